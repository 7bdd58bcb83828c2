# SPDX-License-Identifier: Apache-2.0
"""What a part of `make bench` is, and how one runs: in a process of its own, which is ended at the part's limit. What was measured
until then stays, and so does what one measurement that fails leaves of the others."""

from __future__ import annotations

import contextlib
import json
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from multiprocessing.context import ForkProcess
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from faultline.base.cache import Cache
from faultline.base.errors import FaultlineError
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.streams import note

STOP_GRACE_S = 10
"""Between Ctrl-C and the end of what does not react to it."""

T = TypeVar("T")
P = ParamSpec("P")


@dataclass
class Bench:
    """What parts measure with. is_tiny: as little as possible, as a test."""

    root: Path
    cache: Cache
    engine: Engine
    scratch: Path
    is_tiny: bool = False
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)

    @property
    def workshop(self) -> Workshop:
        return Workshop(self.root, self.cache, self.engine)

    def attempt(self, what: str, measure: Callable[P, T], *arguments: P.args, **options: P.kwargs) -> T | None:
        """One measurement. None where it failed: that is kept to be said, and the others go on."""
        try:
            return measure(*arguments, **options)
        except (FaultlineError, OSError, subprocess.SubprocessError) as error:
            self.failures.append(f"{what}: {error}")
            note(f"{what}: failed: {error}")
            return None

    def look_for(self, find: Callable[[], T]) -> T | None:
        """A program of others, which find raises FaultlineError without. None: that is kept to be said, and what does without goes
        on."""
        try:
            return find()
        except FaultlineError as error:
            self.missing.append(f"{error.message} ({error.hint})" if error.hint else error.message)
            note(f"missing: {self.missing[-1]}")
            return None


@dataclass(frozen=True)
class Part:
    """measure: yields the figures so far, again and again, those of the whole part last; words: a table or a line of them;
    is_default: measured where no parts are named."""

    name: str
    limit_s: float
    measure: Callable[[Bench], Iterator[Any]]
    words: Callable[[Any, bool], list[str]]
    is_default: bool = True


class Clock:
    """Wall time, and the processor's time of children that have ended: that one is the same on a busy machine, about."""

    def __init__(self) -> None:
        self.began = time.perf_counter(), self._cpu_s()

    def row(self) -> dict[str, Any]:
        wall_s, cpu_s = self.began
        return {"wall_s": time.perf_counter() - wall_s, "cpu_s": self._cpu_s() - cpu_s}

    @staticmethod
    def _cpu_s() -> float:
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime


@dataclass
class Measured:
    """figures: None when nothing was measured; missing: programs of others that were not there; stopped: why it did not come to its
    end by itself."""

    figures: Any = None
    failures: list[str] = field(default_factory=list)
    missing: list[str] = field(default_factory=list)
    stopped: str = ""

    def lines(self, part: Part, is_tiny: bool) -> list[str]:
        lines = [] if self.figures is None else part.words(self.figures, is_tiny)
        lines += [f"{part.name}: failed: {failure}" for failure in self.failures]
        lines += [f"{part.name}: missing: {what}" for what in self.missing]
        if self.stopped:
            left = "this is what it had measured" if lines else "it had measured nothing"
            lines.append(f"{part.name}: stopped: {self.stopped}; {left}")
        return lines


def run_part(part: Part, bench: Bench, limit_s: float | None = None) -> Measured:
    """limit_s: in the place of the part's own."""
    limit_s = part.limit_s if limit_s is None else limit_s
    path = bench.scratch / f"{part.name}.json"
    process = multiprocessing.get_context("fork").Process(target=_measure, args=(part, bench, path))
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})  # it may be told to end before it handles that
    process.start()
    signal.pthread_sigmask(signal.SIG_SETMASK, mask)
    assert process.pid is not None
    with contextlib.suppress(OSError):  # it does so itself, but not before it may be told to end
        os.setpgid(process.pid, process.pid)
    stopped = ""
    try:
        process.join(limit_s)
        if process.is_alive():
            stopped = f"limit of {limit_s:,.0f} s"
    except KeyboardInterrupt:
        stopped = "interrupted"
    _end(process)
    if not stopped and process.exitcode != 0:
        stopped = f"its process ended with {process.exitcode}"
    measured = Measured(**json.loads(path.read_bytes())) if path.exists() else Measured()
    measured.stopped = stopped
    return measured


def _measure(part: Part, bench: Bench, path: Path) -> None:
    """In the part's process, which leads a group: ending that ends all that the part has started."""
    os.setpgid(0, 0)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    figures = None
    try:
        signal.pthread_sigmask(signal.SIG_UNBLOCK, {signal.SIGINT})
        for figures in part.measure(bench):
            _keep(path, figures, bench)
    except FaultlineError as error:
        bench.failures.append(str(error))
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    finally:
        _keep(path, figures, bench)


def _keep(path: Path, figures: Any, bench: Bench) -> None:
    whole = path.with_suffix(".new")
    said = {"figures": figures, "failures": bench.failures, "missing": bench.missing}
    whole.write_text(json.dumps(said), encoding="utf-8")
    whole.replace(path)


def _end(process: ForkProcess) -> None:
    """And everything in its group."""
    assert process.pid is not None
    for number in (signal.SIGINT, signal.SIGKILL):
        if not process.is_alive():
            break
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        process.join(STOP_GRACE_S)
    with contextlib.suppress(ProcessLookupError):  # what it left behind
        os.killpg(process.pid, signal.SIGKILL)
