# SPDX-License-Identifier: Apache-2.0
"""Tracing: each session of the workload is one process under the tracer. All append to one trace, which the engine seals. The trace
is cached by everything it is a function of: builds of allocator, runner and tracer, workload, heap geometry. Where tracing fails,
the workload is rehearsed without the tracer."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from faultline.base.cache import LAYOUT, Cache, hint_of_room, key_of, scratch_folder
from faultline.base.config import Allocator, Heap
from faultline.base.errors import BadInputError, FaultlineError, InfrastructureError
from faultline.base.processes import child
from faultline.pipeline.build import Built
from faultline.pipeline.engine import signal_name
from faultline.pipeline.rehearsal import FROM_OUTSIDE, printed_by_target, rehearse, target_environment
from faultline.pipeline.target import Target
from faultline.pipeline.tracers.tracer import Session, Tracer
from faultline.pipeline.workshop import Workshop
from faultline.workload import catalogue
from faultline.workload.operations import Workload

TRACE_LIMIT_S = 900
"""Wall time of one session; a target that loops for ever while it is traced is an error, not a wait."""
LATE_S = 60
"""A session that takes so long may hang: it is rehearsed while it goes on."""
OF_TRACER = "faultline: "
"""How its own lines begin."""
FOOTER_BYTES = 64
FOOTER_HASH = slice(16, 48)
"""Where pintools/trace.h puts sha256 in struct fl_trace_footer."""


@dataclass(frozen=True)
class Trace:
    path: Path
    hash: str
    workload_file: Path
    is_cached: bool
    time_s: float


def heap_arguments(heap: Heap, workload: Workload) -> list[str]:
    """The runner's options that say how heaps are made; the same for workload, serve and twins."""
    return [
        *("--heap-bytes", str(heap.heap_bytes), "--limit-bytes", str(heap.limit_bytes)),
        *("--slots", str(workload.slots), "--slot-layout", workload.layout),
        *("--address-hint", heap.address_hint),
        *(["--lazy"] if workload.is_lazy else []),
    ]


def session_command(
    target: Target, workload_file: Path, session: int, folder: Path, heap: Sequence[str]
) -> tuple[str, ...]:
    """What executes a session of the workload on heaps in that folder. heap: heap_arguments."""
    return (
        *(str(target.runner.path), "workload", "--adapter", str(target.adapter.path)),
        *("--workload", str(workload_file), "--session", str(session), "--folder", str(folder), *heap),
    )


def check_supported(allocator: Allocator, workload: Workload) -> None:
    """What the contract promises about threads; slot layouts are capabilities of the adapter, which the runner checks."""
    promised = allocator.contract.threads
    if workload.is_threaded and workload.thread_count > promised:
        raise BadInputError(
            f"workload {workload.name} has {workload.thread_count} threads, {allocator.name} supports {promised}",
            f"choose a workload without `thread`; a contract says how many it promises with `threads = N` "
            f"({allocator.folder}/allocator.toml)",
        )


def trace_key(target: Target, workload: Workload) -> str:
    geometry = heap_arguments(target.allocator.heap, workload)
    builds = (target.adapter.key, target.runner.key, target.tracer.key)
    return key_of(
        str(LAYOUT), *builds, workload.key, str(workload.schedule_seed), *geometry, *target.allocator.variable_words()
    )


def trace(
    workshop: Workshop,
    target: Target,
    workload: Workload,
    *,
    fresh: bool = False,
    cache: Cache | None = None,
    limit_s: float | None = None,
) -> Trace:
    """The sealed trace of workload on target. fresh: trace even if it is cached; cache: where it is kept, not the workshop's;
    limit_s: of all sessions together, beside TRACE_LIMIT_S of each.

    Raises FailsWithoutCrashError: the target fails without a crash, in an operation of the workload."""
    started = time.monotonic()
    cache = cache or workshop.cache
    check_supported(target.allocator, workload)
    workload_file = catalogue.store(workload, cache)
    key = trace_key(target, workload)
    is_made = False

    def make(path: Path) -> None:
        nonlocal is_made
        is_made = True
        log = cache.folder / "traces" / f"{key}.log"
        log.unlink(missing_ok=True)
        with scratch_folder(cache, workshop.heap_folder) as folder:
            deadline = None if limit_s is None else started + limit_s
            tracing = _Tracing(workshop, target, workload, workload_file, folder, path, log, deadline)
            for session in range(workload.session_count):
                tracing.run(session)
        workshop.engine.seal(path)

    path = cache.file_entry("traces", f"{key}.trace", make, fresh=fresh)
    return Trace(path, _hash_in_footer(path), workload_file, not is_made, time.monotonic() - started)


def _hash_in_footer(path: Path) -> str:
    """The footer's own claim; the engine checks it against the content when it reads the trace."""
    with path.open("rb") as file:
        size = file.seek(0, os.SEEK_END)
        file.seek(max(0, size - FOOTER_BYTES))
        return file.read()[FOOTER_HASH].hex()


def _builds_of(target: Target) -> Path:
    """The folder that all builds of a target lie in. Modules are named relative to it, so that another clone or cache gives
    the same trace, and tokens travel."""
    return Path(os.path.commonpath([target.runner.path.resolve(), target.adapter.path.resolve()]))


@dataclass(frozen=True)
class _Tracing:
    """The sessions of one trace. folder: of the heap; trace: the file that all of them append to; deadline: when the time that was
    asked for is over, by time.monotonic()."""

    workshop: Workshop
    target: Target
    workload: Workload
    workload_file: Path
    folder: Path
    trace: Path
    log: Path
    deadline: float | None

    def run(self, session: int) -> None:
        heap = heap_arguments(self.target.allocator.heap, self.workload)
        asked = Session(
            session_command(self.target, self.workload_file, session, self.folder, heap),
            self.trace,
            self.folder,
            _builds_of(self.target),
            session + 1,
            self.workload.schedule_seed,
        )
        command = self.workshop.tracer.trace_command(self.target.tracer, asked)
        with self.log.open("ab") as output:
            output.write(f"session {session}\n".encode())
            output.flush()
            start = output.tell()
            limit_s = TRACE_LIMIT_S if self.deadline is None else max(0.0, self.deadline - time.monotonic())
            environment = environment_for(self.workshop.tracer, self.target.tracer, self.target.allocator)
            code = run_traced(command, output, environment, min(limit_s, TRACE_LIMIT_S), self._rehearse)
        if code is None and limit_s < TRACE_LIMIT_S:
            raise InfrastructureError(
                f"the time that was asked for was over while session {session} of {self.workload.name} was traced",
                f"give --time more; output of target and tracer: {self.log}",
            )
        if code is None:
            raise InfrastructureError(
                f"{self.target.name} ran for more than {TRACE_LIMIT_S} s while session {session} of "
                f"{self.workload.name} was traced",
                f"output of target and tracer: {self.log}",
            )
        if code != 0:
            said = self.log.read_bytes()[start:].decode(errors="replace")
            # The processor may not know it either. That is no fault of the target's.
            if code == -signal.SIGILL and (why := _of_tracer(said)):
                where = f"while session {session} of workload {self.workload.name} was traced"
                raise InfrastructureError(f"{self.target.name}: {why} ({where})", f"its output: {self.log}")
            is_whole = -code not in FROM_OUTSIDE and self._rehearse()
            raise self._error(session, code, said, is_whole)

    def _rehearse(self) -> bool:
        """Whether it fails without the tracer, too. Not before it was traced: what it makes outside of its heap would be there."""
        options = heap_arguments(self.target.allocator.heap, self.workload)
        return rehearse(self.workshop, self.target, self.workload_file, options)

    def _error(self, session: int, code: int, said: str, is_whole: bool) -> FaultlineError:
        """Why a session did not end with exit code 0: its own words where the runner said why, the signal where it died.
        is_whole: all of the workload ran without the tracer."""
        name, where = self.target.name, f"while session {session} of workload {self.workload.name} was traced"
        if code == -signal.SIGXFSZ:
            return InfrastructureError(
                f"{self.folder.parent}: the heap folder is full: a file reached the limit of the file size {where}",
                "raise the limit: ulimit -f unlimited",
            )
        free = shutil.disk_usage(self.folder).free
        is_full = free < self.target.allocator.heap.limit_bytes
        if code == -signal.SIGBUS and is_full:
            return InfrastructureError(
                f"{self.folder.parent}: the heap folder is full ({free} bytes free) {where}",
                hint_of_room(self.folder.parent),
            )
        if code < 0:
            return InfrastructureError(
                f"{name} crashed with {signal_name(-code)} {where}{'; without the tracer it did not' if is_whole else ''}",
                f"its output: {self.log}",
            )
        lines = [line.strip() for line in said.splitlines() if "error: " in line]
        if lines:
            kind = BadInputError if code == BadInputError.exit_code else InfrastructureError
            words = lines[-1].partition("error: ")[2]
            if is_full and kind is InfrastructureError:
                room = f"{self.folder.parent} has {free} bytes free, and the heap may need {self.target.allocator.heap.limit_bytes}"
                return kind(f"{words} ({name}, {where}; {room})", hint_of_room(self.folder.parent))
            return kind(f"{words} ({name}, {where})", f"all of its output: {self.log}")
        printed = printed_by_target(said)
        return InfrastructureError(
            f"{name} ended with exit code {code} {where}{'; without the tracer it did not' if is_whole else ''}"
            f"{f'; it printed: {printed}' if printed else ''}",
            f"its output: {self.log}",
        )


def _of_tracer(said: str) -> str:
    """What the tracer said last of what it cannot do."""
    words = [line.removeprefix(OF_TRACER) for line in said.splitlines() if line.startswith(OF_TRACER)]
    return words[-1].strip() if words else ""


def run_traced(
    command: list[str],
    output: IO[bytes],
    environment: dict[str, str],
    limit_s: float = TRACE_LIMIT_S,
    when_late: Callable[[], object] = lambda: None,
) -> int | None:
    """Exit code, negative for a signal; None when the limit was hit. when_late: called once in a long run, which it may end by what
    it raises."""
    deadline = time.monotonic() + limit_s
    with child(command, output, output, environment) as process:
        with contextlib.suppress(subprocess.TimeoutExpired):
            return process.wait(min(LATE_S, limit_s))
        if limit_s > LATE_S:
            when_late()
        try:
            return process.wait(max(0.0, deadline - time.monotonic()))
        except subprocess.TimeoutExpired:
            return None


def environment_for(tracer: Tracer, built: Built, allocator: Allocator | None = None) -> dict[str, str]:
    return {**target_environment(allocator), **tracer.environment(built)}
