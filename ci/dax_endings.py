# SPDX-License-Identifier: Apache-2.0
"""Endings: the machine executes something, is killed in the middle of it, is started again and says what is left. A start looks at
what the one before it left, and executes the next."""

from __future__ import annotations

import os
import queue
import random
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from dax_machine import MOUNT_OPTIONS, Files, Guest, Machine, copy_disk

from faultline.base.errors import InfrastructureError
from faultline.report.terminal.streams import note

RUN_S = 300.0
"""What is executed comes to its end before, or is given up."""
LOOK_S = 300.0
NEXT, BEFORE = "/next", "/before"
"""Where the guest mounts the disk of what it executes, and of what it looks at."""


class Ending(Protocol):
    """One of them."""

    @property
    def file_system(self) -> str: ...
    @property
    def title(self) -> str: ...
    def run_order(self, files: Files) -> tuple[str, str]:
        """What the guest executes, and what it does first, which is not lost. files: what it needs more."""

    def look_order(self, files: Files, markers: str) -> str:
        """What it does to say on /dev/ttyS2 what is left. markers: what was said while it was executed."""

    def moment(self) -> Moment: ...
    def take(self, markers: str, answer: bytes) -> None:
        """What was said while it was executed, and when it was looked at."""


def checked(command: str) -> str:
    """The guest says what its last line of errors is where the command fails, and InfrastructureError says it here."""
    return f'{command} 2>/errors || say "failed: $(tail -n 1 /errors)"'


@dataclass(frozen=True)
class Moment:
    """When the machine ends: so long after that many markers; or that long after all was executed."""

    markers: int
    delay_s: float

    @classmethod
    def drawn(cls, draw: random.Random, markers: int, longest_s: float) -> Moment:
        """After any of them, half of the times at once."""
        return cls(draw.randint(1, markers), draw.choice((0.0, draw.uniform(0, longest_s))))


def run_endings(machine: Machine, endings: Sequence[Ending], templates: dict[str, Path], scratch: Path) -> None:
    """All of them, on as many machines at a time as there are processors. templates: a disk with an empty file system of each kind.
    Each is said when it has been looked at.

    Raises InfrastructureError: a guest does not start, or does not do what it should."""
    machines = min(os.cpu_count() or 1, len(endings))
    rest = queue.SimpleQueue[tuple[int, Ending]]()
    for pair in enumerate(endings, 1):
        rest.put(pair)
    with ThreadPoolExecutor(max_workers=machines) as pool:
        for done in [pool.submit(_run_chain, machine, rest, templates, scratch) for _ in range(machines)]:
            done.result()


@dataclass(frozen=True)
class _Left:
    """What an ending left."""

    number: int
    ending: Ending
    disk: Path
    markers: str


def _next(rest: queue.SimpleQueue[tuple[int, Ending]]) -> tuple[int, Ending] | None:
    try:
        return rest.get_nowait()
    except queue.Empty:
        return None


def _run_chain(
    machine: Machine, rest: queue.SimpleQueue[tuple[int, Ending]], templates: dict[str, Path], scratch: Path
) -> None:
    """One start after the other, until nothing is left to be executed or to be looked at."""
    left: _Left | None = None
    try:
        while (numbered := _next(rest)) is not None or left is not None:
            left = _step(machine, left, numbered, templates, scratch)
    except InfrastructureError:
        while _next(rest) is not None:  # the other machines need not go on
            pass
        raise


def _step(
    machine: Machine,
    left: _Left | None,
    numbered: tuple[int, Ending] | None,
    templates: dict[str, Path],
    scratch: Path,
) -> _Left | None:
    """Looks at what is left, and executes the next; what that leaves."""
    number, ending = numbered or (0, None)
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        disk = None
        if ending is not None:
            disk = scratch / f"{Path(folder).name}.disk"
            copy_disk(templates[ending.file_system], disk)
        markers = _start(machine, left, ending, disk, Path(folder))
    if left is not None:
        note(f"[{left.number}] {left.ending.title}")
        left.disk.unlink()
    return _Left(number, ending, disk, markers) if ending is not None and disk is not None else None


def _start(machine: Machine, left: _Left | None, ending: Ending | None, disk: Path | None, folder: Path) -> str:
    """One start of the machine; what was said while the ending was executed."""
    files = Files()
    order = []
    disks = []
    if left is not None:
        kind = left.ending.file_system
        order += [
            f"attach {kind} 1 {BEFORE} {MOUNT_OPTIONS[kind]}",
            left.ending.look_order(files, left.markers),
            f"umount {BEFORE}",
            "say looked",
        ]
        disks.append(left.disk)
    if ending is not None and disk is not None:
        kind = ending.file_system
        first, then = ending.run_order(files)
        order += [f"attach {kind} {len(disks) + 1} {NEXT} {MOUNT_OPTIONS[kind]}", first, "sync", "say ready", then]
        disks.append(disk)
    with machine.started("\n".join(order) + "\n", files, disks, folder) as guest:
        if left is not None:
            with said_of(left.ending):
                guest.expect("looked", limit_s=LOOK_S)
                left.ending.take(left.markers, guest.answer())
        if ending is None:
            return ""
        with said_of(ending):
            return _until_its_moment(guest, ending)


@contextmanager
def said_of(ending: Ending) -> Iterator[None]:
    """What cannot go on is said with the name of the ending."""
    try:
        yield
    except InfrastructureError as error:
        raise InfrastructureError(f"{ending.title}: {error}", error.hint) from error


def _until_its_moment(guest: Guest, ending: Ending) -> str:
    """The machine goes on until the end of this, and a moment longer: until it is killed."""
    guest.expect("ready")
    begin = guest.read
    moment = ending.moment()
    for _ in range(moment.markers):
        if guest.expect("begin", "return", "over", limit_s=RUN_S) == "over":
            break
    time.sleep(moment.delay_s)
    guest.process.kill()
    guest.process.wait()
    return guest.markers()[begin:]
