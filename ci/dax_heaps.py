# SPDX-License-Identifier: Apache-2.0
"""Heaps of allocators on a real file system with DAX: a workload is executed until the machine ends, the heap is recovered by the
allocator itself on that file system, and judged by the oracle from the markers that had left the machine."""

from __future__ import annotations

import io
import random
import re
import shlex
import tarfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dax_endings import BEFORE, NEXT, Moment, checked
from dax_machine import Files, libraries_of

from faultline.base.errors import InfrastructureError
from faultline.pipeline.events import Event, Judged, Unknown
from faultline.pipeline.explore import ask_engine
from faultline.pipeline.prepared import PreparedCell
from faultline.pipeline.trace import heap_arguments, session_command

LONGEST_DELAY_S = 0.02
"""Longer than most operations take in the machine, and than the marker of one."""
CPU_LIMIT_MS, WALL_LIMIT_MS = 60_000, 120_000
"""Of one life of the probe: an emulated processor is some fifty times slower."""
ANSWER = "/answer"


@dataclass
class HeapEnding:
    """A cell's workload, executed until the machine ends."""

    cell: PreparedCell
    file_system: str
    draw: random.Random
    folder: Path
    """It is made, and what is left goes there, as `faultline-engine judge` takes it; nothing where no heap had begun."""
    has_heap: bool = False
    markers: str = ""

    @property
    def title(self) -> str:
        return f"{self.file_system} {self.cell.spec.name}"

    @property
    def mapped(self) -> list[tuple[int, int]]:
        """After each create and open: mappings of its files with MAP_SYNC, and others."""
        found = re.findall(r"^mapped (\d+) (\d+)$", self.markers, re.MULTILINE)
        return [(int(synced), int(others)) for synced, others in found]

    def run_order(self, files: Files) -> tuple[str, str]:
        cell, target = self.cell, self.cell.target
        self._add_programs(files)
        files.copy(cell.trace.workload_file)
        heap = heap_arguments(target.allocator.heap, cell.workload)
        folder = Path(NEXT) / "heap"
        commands = [
            self._command(
                *session_command(target, cell.trace.workload_file, number, folder, heap), "--markers", "/dev/ttyS1"
            )
            for number in range(cell.workload.session_count)
        ]
        return f"mkdir {folder}", "\n".join(map(checked, commands))

    def look_order(self, files: Files, markers: str) -> str:
        cases = re.findall(r"^case (\d+)$", markers, re.MULTILINE)
        if not cases:
            return ""
        target = self.cell.target
        self._add_programs(files)
        folder = f"{BEFORE}/heap/case-{cases[-1]}"
        words = [str(target.runner.path), "probe", "--full", "--adapter", str(target.adapter.path), "--folder", folder]
        words += heap_arguments(target.allocator.heap, self.cell.workload)
        words += ["--cpu-limit-ms", str(CPU_LIMIT_MS), "--wall-limit-ms", str(WALL_LIMIT_MS)]
        words += ["--ends-when-full"] if target.allocator.contract.out_of_memory == "ends" else []
        return "\n".join(
            [
                f"mkdir -p {ANSWER}/heap",
                f"TMPDIR={BEFORE} {self._command(*words)} >{ANSWER}/report 2>{ANSWER}/errors || touch {ANSWER}/failed",
                f"mount --bind {folder} {ANSWER}/heap",
                f"tar -c -C {ANSWER} . | gzip -1 >/dev/ttyS2",
                f"umount {ANSWER}/heap",
                f"rm -r {ANSWER}",
            ]
        )

    def moment(self) -> Moment:
        return Moment.drawn(self.draw, 2 * self.cell.workload.operation_count, LONGEST_DELAY_S)

    def take(self, markers: str, answer: bytes) -> None:
        self.markers = markers
        if not answer:
            return
        with tarfile.open(fileobj=io.BytesIO(answer), mode="r:gz") as archive:
            for member in archive:
                if (content := archive.extractfile(member)) is not None:
                    to = self.folder / member.name
                    to.parent.mkdir(parents=True, exist_ok=True)
                    to.write_bytes(content.read())
        if (self.folder / "failed").exists():
            said = (self.folder / "errors").read_text(errors="replace").splitlines()
            raise InfrastructureError(f"{self.title}: the heap was not probed: {said[-1] if said else 'no message'}")
        (self.folder / "markers").write_text(markers, encoding="utf-8")
        self.has_heap = True

    def _add_programs(self, files: Files) -> None:
        """Where they are here."""
        programs = (self.cell.target.runner.path, self.cell.target.adapter.path)
        for path in (*programs, *libraries_of(*programs)):
            files.copy(path)

    def _command(self, *words: str) -> str:
        """In the environment of the allocator."""
        variables = [f"{name}={value}" for name, value in self.cell.target.allocator.variables().items()]
        return shlex.join(["env", *variables, *words])


@dataclass(frozen=True)
class HeapsOf:
    """What became of a cell's heaps on one file system."""

    file_system: str
    cell: str
    is_planted: bool
    endings: int
    unbegun: int
    """The machine ended before a heap began."""
    in_operation: int
    """It ended in the middle of an operation."""
    synced: int
    """Creates and opens after which files were mapped with MAP_SYNC."""
    others: int
    """After which files were mapped without it alone."""
    broken: list[str]
    """Rule and message, once each."""
    failed: list[Path]
    """What the endings left that break a rule."""
    unknown: list[str]

    @property
    def verdict(self) -> str:
        return "fail" if self.broken else "unknown" if self.unknown else "pass"


def judge(cell: PreparedCell, file_system: str, endings: Sequence[HeapEnding], *, is_planted: bool = False) -> HeapsOf:
    """endings: all of the cell on that file system, after they have been looked at. is_planted: it must fail."""
    judged: list[Judged] = []
    unknown: list[str] = []

    def handle(event: Event) -> None:
        match event:
            case Judged():
                judged.append(event)
                unknown.extend(event.unknown)
            case Unknown():
                unknown.extend(event.reasons)

    folders = [str(ending.folder) for ending in endings if ending.has_heap]
    if folders:
        ask_engine(cell, handle, "judge", *folders)
    mapped = [pair for ending in endings for pair in ending.mapped]
    return HeapsOf(
        file_system,
        cell.spec.name,
        is_planted,
        len(endings),
        len(endings) - len(folders),
        sum(one.is_pending for one in judged),
        sum(synced > 0 for synced, _ in mapped),
        sum(synced == 0 and others > 0 for synced, others in mapped),
        sorted({f"{one.rule}: {one.message}" for ending in judged for one in ending.broken}),
        [Path(one.folder) for one in judged if one.broken],
        list(dict.fromkeys(unknown)),
    )
