# SPDX-License-Identifier: Apache-2.0
"""Tracing: one process a session of the workload, each under the Valgrind tool, all appending to one trace, which the engine
seals. The trace is cached by everything it is a function of: allocator, runner and tool builds, workload, heap geometry."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from faultline.base.cache import Cache, key_of, scratch_folder
from faultline.base.config import Allocator, Flush, Heap
from faultline.base.errors import BadInputError, FaultlineError, InfrastructureError
from faultline.base.processes import child
from faultline.pipeline.build import Built, build_adapter, build_runner, build_tracer, check_adapter, valgrind_version
from faultline.pipeline.engine import Engine, signal_name
from faultline.workload import catalogue
from faultline.workload.operations import Workload

TRACE_LIMIT_S = 900
"""Wall time of one session; a target that loops for ever while it is traced is an error, not a wait."""
FOOTER_BYTES = 64
FOOTER_HASH = slice(16, 48)
"""Where pintools/trace.h puts sha256 in struct fl_trace_footer."""


@dataclass(frozen=True)
class Target:
    """An allocator, built for one cell, with what runs and traces it."""

    allocator: Allocator
    mutant: str | None
    flush: Flush
    adapter: Built
    runner: Built
    tracer: Built
    hooked: Built | None = None
    """The adapter whose loads are seen, for strategy complete."""


@dataclass(frozen=True)
class Trace:
    path: Path
    hash: str
    workload_file: Path
    is_cached: bool
    time_s: float


def build_target(
    root: Path,
    cache: Cache,
    allocator: Allocator,
    mutant: str | None,
    flush: Flush,
    needs_hooks: bool = False,
    *,
    sources: Path | None = None,
) -> Target:
    """sources: where the allocator lies, laid out as root is, if it is not the one in root."""
    adapter = build_adapter(sources or root, cache, allocator, mutant, flush)
    hooked = build_adapter(sources or root, cache, allocator, mutant, flush, is_hooked=True) if needs_hooks else None
    runner = build_runner(root, cache)
    check_adapter(runner, adapter, allocator.name)
    return Target(allocator, mutant, flush, adapter, runner, build_tracer(root, cache), hooked)


def heap_arguments(heap: Heap, workload: Workload) -> list[str]:
    """The runner's options that say how heaps are made; the same for workload, serve and twins."""
    return [
        *("--heap-bytes", str(heap.heap_bytes), "--limit-bytes", str(heap.limit_bytes)),
        *("--slots", str(workload.slots), "--slot-layout", workload.layout),
        *("--address-hint", heap.address_hint),
    ]


def check_supported(allocator: Allocator, workload: Workload) -> None:
    """What the contract promises about threads; slot layouts are capabilities of the adapter, which the runner checks."""
    promised = allocator.contract.threads
    if workload.is_threaded and workload.thread_count > promised:
        raise BadInputError(
            f"workload {workload.name} has {workload.thread_count} threads, {allocator.name} supports {promised}",
            f"choose a workload without `thread`; a contract says how many it promises with `threads = N` "
            f"(allocators/{allocator.name}/allocator.toml)",
        )


def trace_key(target: Target, workload: Workload) -> str:
    geometry = heap_arguments(target.allocator.heap, workload)
    builds = (target.adapter.key, target.runner.key, target.tracer.key)
    return key_of(*builds, valgrind_version(), workload.key, str(workload.schedule_seed), *geometry)


def trace(
    cache: Cache,
    engine: Engine,
    target: Target,
    workload: Workload,
    *,
    heap_folder: Path | None = None,
    fresh: bool = False,
) -> Trace:
    """The sealed trace of workload on target. heap_folder: where heaps lie meanwhile; fresh: trace even if it is cached."""
    started = time.monotonic()
    check_supported(target.allocator, workload)
    workload_file = catalogue.store(workload, cache)
    key = trace_key(target, workload)
    is_made = False

    def make(path: Path) -> None:
        nonlocal is_made
        is_made = True
        log = cache.folder / "traces" / f"{key}.log"
        log.unlink(missing_ok=True)
        with scratch_folder(cache, heap_folder) as folder:
            for session in range(workload.session_count):
                _trace_session(target, workload, workload_file, session, folder, path, log)
        engine.seal(path)

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


def _trace_session(
    target: Target, workload: Workload, workload_file: Path, session: int, folder: Path, trace: Path, log: Path
) -> None:
    command = [
        *("valgrind", "--tool=faultline", "-q"),
        *(
            f"--trace={trace}",
            f"--pm-folder={folder}",
            f"--module-root={_builds_of(target)}",
            f"--process={session + 1}",
            f"--schedule-seed={workload.schedule_seed}",
        ),
        *(str(target.runner.path), "workload", "--adapter", str(target.adapter.path)),
        *("--workload", str(workload_file), "--session", str(session), "--folder", str(folder)),
        *heap_arguments(target.allocator.heap, workload),
    ]
    with log.open("ab") as output:
        output.write(f"session {session}\n".encode())
        output.flush()
        start = output.tell()
        code = run_traced(command, output, environment_for(target.tracer.path))
    if code is None:
        raise InfrastructureError(
            f"{_name(target)} ran for more than {TRACE_LIMIT_S} s while session {session} of {workload.name} was traced",
            f"output of target and tracer: {log}",
        )
    if code != 0:
        said = log.read_bytes()[start:].decode(errors="replace")
        raise _session_error(target, workload, session, code, said, folder, log)


def run_traced(command: list[str], output: IO[bytes], environment: dict[str, str]) -> int | None:
    """Exit code, negative for a signal; None when the limit was hit."""
    with child(command, output, output, environment) as process:
        try:
            return process.wait(TRACE_LIMIT_S)
        except subprocess.TimeoutExpired:
            return None


def environment_for(tools: Path) -> dict[str, str]:
    """Small and fixed: a target that looks at its environment must see the same each time."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
    return {**kept, "LC_ALL": "C", "VALGRIND_LIB": str(tools)}


def _session_error(
    target: Target, workload: Workload, session: int, code: int, said: str, folder: Path, log: Path
) -> FaultlineError:
    """Why a session did not end with exit code 0: its own words where the runner said why, the signal where it died."""
    where = f"while session {session} of workload {workload.name} was traced"
    if code == -signal.SIGXFSZ:
        return InfrastructureError(
            f"{folder.parent}: the heap folder is full: a file reached the limit of the file size {where}",
            "raise the limit: ulimit -f unlimited",
        )
    free = shutil.disk_usage(folder).free
    if code == -signal.SIGBUS and free < target.allocator.heap.limit_bytes:
        return InfrastructureError(
            f"{folder.parent}: the heap folder is full ({free} bytes free) {where}",
            "free space there, or choose another folder with --heap-folder DIR",
        )
    if code < 0:
        return InfrastructureError(f"{_name(target)} crashed with {signal_name(-code)} {where}", f"its output: {log}")
    lines = [line.strip() for line in said.splitlines() if "error: " in line]
    if lines:
        kind = BadInputError if code == BadInputError.exit_code else InfrastructureError
        return kind(f"{lines[-1].partition('error: ')[2]} ({_name(target)}, {where})", f"all of its output: {log}")
    return InfrastructureError(f"{_name(target)} ended with exit code {code} {where}", f"its output: {log}")


def _name(target: Target) -> str:
    return target.allocator.name + (f" with mutant {target.mutant}" if target.mutant else "")
