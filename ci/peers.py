# SPDX-License-Identifier: Apache-2.0
"""What others use, for `make bench-peers`: the Valgrind that has pmemcheck, and pmreorder of PMDK. No package has them:
PMEMCHECK_VALGRIND names the one, PMREORDER the other. Where one is missing, that is said and what needs it is left out.

What pmreorder checks is compared with what x86 allows. Its checker (harness/tests/pmemcheck/images.h) writes each image down, and
`faultline-engine states --lines` says what each line may hold at each crash position of the same trace. An image that fits no
position is forbidden: no power failure, anywhere in this trace, leaves it behind. An image that is possible at another moment than
where pmreorder checked it counts as possible, so that the count of forbidden ones is a lower bound."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_parts import Clock

from faultline.base.errors import InfrastructureError

PMEMCHECK, PMREORDER = "PMEMCHECK_VALGRIND", "PMREORDER"
ENGINES = ("NoReorderDoCheck", "ReorderFull", "ReorderPartial", "ReorderAccumulative", "ReorderReverseAccumulative")
"""Of pmreorder, all that check anything."""
CREATE = "faultline_create"
"""The marker of a creation in logs that `faultline export` writes."""
INCONSISTENT = re.compile(r"^WARNING: File .* inconsistent$", re.MULTILINE)
TRACEBACK = "Traceback (most recent call last)"


class MissingError(InfrastructureError):
    """A program of others that is not there."""


# ---- where they are ------------------------------------------------------------------------------------------------------


def find_pmemcheck() -> Path:
    """Raises MissingError."""
    hint = f"ci/pmemcheck.sh builds one from its sources, and says how to set {PMEMCHECK}"
    named = os.environ.get(PMEMCHECK)
    if not named:
        raise MissingError(f"pmemcheck: {PMEMCHECK} names no Valgrind that has it", hint)
    path = Path(named)
    if not (path.is_file() and os.access(path, os.X_OK)):
        raise MissingError(f"pmemcheck: {PMEMCHECK}={named}: no program is there", hint)
    run = subprocess.run([named, "--tool=pmemcheck", "-q", "true"], capture_output=True, text=True, check=False)
    if run.returncode != 0:
        raise MissingError(f"pmemcheck: {PMEMCHECK}={named}: this Valgrind does not have it", hint)
    return path


def find_pmreorder() -> Path:
    """pmreorder.py. Raises MissingError."""
    hint = f"set {PMREORDER} to a checkout of PMDK (pmem/pmdk), or to its folder src/tools/pmreorder"
    named = os.environ.get(PMREORDER)
    if not named:
        raise MissingError(f"pmreorder: {PMREORDER} names no folder that has it", hint)
    for folder in (Path(named), Path(named) / "src" / "tools" / "pmreorder"):
        if (folder / "pmreorder.py").is_file():
            return folder / "pmreorder.py"
    raise MissingError(f"pmreorder: {PMREORDER}={named}: no pmreorder.py is there", hint)


# ---- what x86 allows -----------------------------------------------------------------------------------------------------

ZERO = ""
"""The content of a line that an image does not name."""


def first_position_after_creation(dump: Iterable[str]) -> int:
    """dump: of `faultline trace --dump`. Raises InfrastructureError where no creation returns."""
    for line in dump:
        words = line.split()
        if words[3:6] == ["operation", "return", "create:"]:
            return int(words[0])
    raise InfrastructureError("the trace has no creation that returned")


class Judge:
    """Which of some images crash states of a trace leave behind. Lines are independent: an image is possible at a crash position if
    each of its lines is one of those that the position allows. Positions are added in order; what each line may hold stays until a
    later position says something else.

    images: of one file, each as NUMBER=HEX,... without lines of zeros; possible: what is found to be; undecided: what may be, at a
    position with a line that may hold more than can be listed."""

    def __init__(self, images: Iterable[str]) -> None:
        self.possible: set[str] = set()
        self._maybe: set[str] = set()
        self._groups: dict[int, dict[str, set[str]]] = {}
        self._all = set(images)
        self._unlisted: set[int] = set()
        self._allowed: dict[int, set[str]] = {}
        self._wrong = dict.fromkeys(self._all, 0)
        for image in self._all:
            for number, content in parsed(image):
                self._groups.setdefault(number, {}).setdefault(content, set()).add(image)
                self._wrong[image] += 1

    @property
    def undecided(self) -> set[str]:
        return self._maybe - self.possible

    def add(self, lines: Iterable[tuple[int, list[str] | None]]) -> None:
        """A crash position: what each of these lines may hold, in hex; None: more than can be listed."""
        for number, contents in lines:
            self._allow(number, contents)
        right = {image for image, wrong in self._wrong.items() if wrong == 0}
        (self._maybe if self._unlisted else self.possible).update(right)

    def _allow(self, number: int, contents: list[str] | None) -> None:
        (self._unlisted.add if contents is None else self._unlisted.discard)(number)
        groups = self._groups_of(number)
        before = self._allowed.get(number, {ZERO})
        after = set(groups) if contents is None else {content.rstrip("0") and content for content in contents}
        self._allowed[number] = after
        for content, images in groups.items():
            change = (content in before) - (content in after)
            for image in images if change else ():
                self._wrong[image] += change

    def _groups_of(self, number: int) -> dict[str, set[str]]:
        """Images by what the line holds, those without it included."""
        groups = self._groups.setdefault(number, {})
        if ZERO not in groups:
            groups[ZERO] = self._all.difference(*groups.values())
        return groups


def parsed(image: str) -> Iterator[tuple[int, str]]:
    for line in image.split(",")[:-1]:
        number, _, content = line.partition("=")
        yield int(number), content


def judge(images: Iterable[str], said: Iterable[str], file: str) -> Judge:
    """said: lines of `faultline-engine states --lines`; file: in the heap folder."""
    judge = Judge(images)
    for line in said:
        judge.add((number, contents) for path, number, contents in json.loads(line)["lines"] if path == file)
    return judge


def count_images(said: Iterable[str], file: str, first: int) -> int | None:
    """How many different images the crash states from position first on leave behind; None: more than can be listed. said:
    lines of `faultline-engine states`."""
    found: set[str] = set()
    for line in said:
        position = json.loads(line)
        if position["position"] >= first:
            if position["images"] is None:
                return None
            found.update(lines_of(image, file) for image in position["images"])
    return len(found)


def lines_of(image: str, file: str) -> str:
    """Of an image in words, PATH:BYTES:LINES; for each file, what one of them holds. Empty: it is not there, or all zeros."""
    for part in image.split(";"):
        if part.startswith(f"{file}:"):
            return part.rpartition(":")[2]
    return ""


# ---- pmreorder -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Checked:
    """An image that pmreorder had checked. at_s: since it was started."""

    is_bad: bool
    at_s: float
    image: str


@dataclass
class Replay:
    """A run of pmreorder. is_whole: it came to its end within its limit."""

    checked: list[Checked]
    wall_s: float
    cpu_s: float
    is_whole: bool


def without_creation(log: str) -> tuple[str, list[tuple[int, bytes]]]:
    """A log of one file that begins where the creation has returned, and what was stored until then: offset and bytes. A creation
    stores to hundreds of lines before it fences, which is more sequences than anybody waits for, and pmreorder goes through all
    stores that are not persisted yet for each flush.

    Raises InfrastructureError where no creation returns, or there are more files."""
    records = log.split("|")
    ends = [number for number, record in enumerate(records) if record.startswith(f"{CREATE}.END")]
    bases = [int(record.split(";")[2], 16) for record in records if record.startswith("REGISTER_FILE;")]
    if not ends or len(bases) != 1:
        raise InfrastructureError(
            f"the log has {len(bases)} files and {len(ends)} creations that return; one of each was expected"
        )
    kept, stores = [], []
    for record in records[: ends[0]]:
        name, *fields = record.split(";")
        if name == "STORE":
            address, value, size = (int(field, 16) for field in fields[:3])
            stores.append((address - bases[0], value.to_bytes(size, "little")))
        elif name not in ("FLUSH", "FENCE", f"{CREATE}.BEGIN"):
            kept.append(record)
    return "|".join([*kept, *records[ends[0] + 1 :]]), stores


def replay(
    pmreorder: Path,
    log: Path,
    engine: str,
    checker: Sequence[str],
    images: Path,
    limit_s: float,
    variables: Mapping[str, str],
) -> Replay:
    """checker: a program that appends what it is asked to the file that IMAGES names; variables: for the checker. Files that the
    log names must be there, as they were when it began; pmreorder changes them.

    Raises InfrastructureError: pmreorder failed, or its own count of bad images is another one than the checker's."""
    images.write_bytes(b"")
    command = [sys.executable, str(pmreorder), "-l", str(log), "-r", engine, "-c", "prog", "-p", *checker]
    environment = {**os.environ, **variables, "IMAGES": str(images)}
    began_ns, clock, is_whole = time.monotonic_ns(), Clock(), True
    try:
        run = subprocess.run(
            command, env=environment, cwd=images.parent, capture_output=True, text=True, timeout=limit_s, check=False
        )
    except subprocess.TimeoutExpired:
        is_whole = False
    times = clock.row()
    checked = list(read_images(images.read_text().splitlines(keepends=True), began_ns))
    if is_whole:
        check_said(engine, run, sum(one.is_bad for one in checked))
    return Replay(checked, times["wall_s"], times["cpu_s"], is_whole)


def read_images(lines: Iterable[str], began_ns: int) -> Iterator[Checked]:
    """A last line that was cut is left out."""
    for line in lines:
        if line.endswith("\n"):
            is_bad, at_ns, image = line[:-1].split(" ")
            yield Checked(is_bad == "1", (int(at_ns) - began_ns) / 1e9, sys.intern(image))


def check_said(engine: str, run: subprocess.CompletedProcess[str], bad: int) -> None:
    """bad: images that the checker called so."""
    said = len(INCONSISTENT.findall(run.stdout))
    if TRACEBACK in run.stderr or run.returncode not in (0, 1):
        last = (run.stderr.strip().splitlines() or [f"exit code {run.returncode}"])[-1]
        raise InfrastructureError(f"pmreorder, {engine}: {last}")
    if said != bad or (run.returncode == 1) != (bad > 0):
        raise InfrastructureError(
            f"pmreorder, {engine}: it says {said} inconsistent, its checker {bad}, exit code {run.returncode}"
        )


def compared(found: Replay, judge: Judge) -> dict[str, Any]:
    """What a run came to. forbidden: states that no x86 leaves behind; undecided: those that it may; true_bad: bad ones that
    it does leave behind; first_true_s: when the first of them was found, None: never."""
    true = [one for one in found.checked if one.is_bad and one.image in judge.possible]
    undecided = [one for one in found.checked if one.image in judge.undecided]
    possible = [one for one in found.checked if one.image in judge.possible]
    return {
        "states": len(found.checked),
        "images": len({one.image for one in found.checked}),
        "possible_images": len({one.image for one in possible}),
        "forbidden": len(found.checked) - len(possible) - len(undecided),
        "undecided": len(undecided),
        "bad": sum(one.is_bad for one in found.checked),
        "true_bad": len(true),
        "first_true_s": true[0].at_s if true else None,
        "states_per_s": len(found.checked) / max(found.cpu_s, 1e-3),
        "wall_s": found.wall_s,
        "cpu_s": found.cpu_s,
        "is_whole": found.is_whole,
    }
