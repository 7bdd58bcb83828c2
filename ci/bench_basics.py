# SPDX-License-Identifier: Apache-2.0
"""Parts of `make bench`: what tracing costs, how many recoveries a second the engines run, how long wear runs take, how long the
matrix takes."""

from __future__ import annotations

import os
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import msgspec
from bench_parts import Bench, Part

from faultline.base import config
from faultline.base.errors import InfrastructureError
from faultline.base.project import Project
from faultline.pipeline import build, trace
from faultline.pipeline.build import Built
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.driver import build_driver
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import trace_cell
from faultline.pipeline.target import build_target
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.pipeline.tracers.tracer import Session
from faultline.report.terminal.streams import note
from faultline.wear import counting, figures
from faultline.workload import catalogue, file_format, generators
from faultline.workload.operations import Workload

ROUNDS = 3
"""Of each timing; the median counts. Native and traced runs take turns, so that a busy machine slows both."""
STORE_OPERATIONS = 400_000
CHURN_OPERATIONS = 400_000
"""Enough that the start of the tracer, a quarter of a second, is a small part."""
REPLAY_HEAP_BYTES = 64 << 20
IN_PROCESS_HEAP_BYTES = 8 << 20
REPLAY_LIVE_OBJECTS = 200


# ---- tracing -------------------------------------------------------------------------------------------------------------


def measure_tracing(bench: Bench) -> Iterator[dict[str, Any]]:
    measured = {}
    for name, measure in (("bench_store", bench_store), ("churn", bench_churn)):
        note(f"tracing: {name}")
        found = bench.attempt(name, measure, bench)
        if found is not None:
            measured[name] = found
        yield measured


def tracing_in_words(measured: dict[str, Any], _: bool) -> list[str]:
    names = {"bench_store": "bench_store", "churn": f"churn {CHURN_OPERATIONS}"}
    return [f"tracing, {names[name]}: {as_ratio(times)}" for name, times in measured.items()]


def bench_store(bench: Bench) -> dict[str, float]:
    source = "pintools/conformance/bench_store.c"
    recipe = build.Recipe("bench_store", "bench_store", ("-O2", "-g", "-Ipintools"), (source,), ())
    program = build.make(bench.root, bench.cache, recipe).path
    return compare(bench, lambda folder: [str(program), str(folder), str(STORE_OPERATIONS)])


def bench_churn(bench: Bench) -> dict[str, float]:
    """The clean allocator under the runner, as campaigns trace it."""
    allocator = config.find_allocator(bench.root, "nvm_malloc")
    target = build_target(bench.workshop, allocator, None, "clwb")
    workload = generators.churn(CHURN_OPERATIONS, 1)
    path = catalogue.store(workload, bench.cache)
    geometry = trace.heap_arguments(allocator.heap, workload)

    def command(folder: Path) -> list[str]:
        return [
            *(str(target.runner.path), "workload", "--adapter", str(target.adapter.path)),
            *("--workload", str(path), "--session", "0", "--folder", str(folder)),
            *geometry,
        ]

    return compare(bench, command)


def compare(bench: Bench, command: Callable[[Path], list[str]]) -> dict[str, float]:
    """Wall time of command(folder) alone and under the tracer, process start included in both."""
    built = DEFAULT_TRACER.build(bench.root, bench.cache)

    def traced_command(folder: Path, trace: Path) -> list[str]:
        session = Session(tuple(command(folder)), trace, folder, built.path.parent)
        return DEFAULT_TRACER.trace_command(built, session)

    native, traced = [], []
    for _ in range(ROUNDS):
        native.append(timed(bench.scratch, lambda folder, _: command(folder), built))
        traced.append(timed(bench.scratch, traced_command, built))
    native_s, traced_s = statistics.median(native), statistics.median(traced)
    return {"native_s": native_s, "traced_s": traced_s, "ratio": traced_s / native_s}


def timed(scratch: Path, command: Callable[[Path, Path], list[str]], tracer: Built) -> float:
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        folder = Path(place) / "pm"
        folder.mkdir()
        line = command(folder, Path(place) / "trace")
        environment = {**os.environ, **DEFAULT_TRACER.environment(tracer)}
        started = time.perf_counter()
        run = subprocess.run(line, env=environment, capture_output=True, text=True, check=False)
        seconds = time.perf_counter() - started
    if run.returncode != 0:
        raise InfrastructureError(f"{line[0]} ended with {run.returncode}: {run.stderr.strip()[-300:]}")
    return seconds


# ---- replay --------------------------------------------------------------------------------------------------------------


def measure_replay(bench: Bench) -> Iterator[dict[str, Any]]:
    measured = {}
    for name, heap_bytes in (("isolated", REPLAY_HEAP_BYTES), ("in_process", IN_PROCESS_HEAP_BYTES)):
        note(f"recoveries a second: {name}")
        found = bench.attempt(name, bench_replay, bench, heap_bytes)
        if found is not None:
            measured[name] = found
        yield measured


def replay_in_words(measured: dict[str, Any], _: bool) -> list[str]:
    lines = isolated_in_words(measured["isolated"]) if "isolated" in measured else []
    return lines + (in_process_in_words(measured["in_process"]) if "in_process" in measured else [])


def isolated_in_words(replay: dict[str, Any]) -> list[str]:
    return [
        f"recoveries a second a core, open + slots + walk: {replay['walk_per_s']:.0f} (goal >= 2,000;"
        f" {replay['heap_bytes'] >> 20} MiB heap, {replay['live_objects']} live objects); without hooks in one process with"
        f" others: {replay['batched_per_s']:.0f}, {replay['batched_per_s'] / replay['walk_per_s']:.1f}x",
        f"recoveries a second a core, full probe: {replay['full_per_s']:.1f}",
    ]


def in_process_in_words(figures: dict[str, Any]) -> list[str]:
    lines = []
    for name, probe, goal in (
        ("walk", "open + slots + walk", "goals >= 40,000 and >= 8x"),
        ("first", "the same + check", ""),
        ("full", "full probe", ""),
    ):
        rates = figures["engines"][name]
        isolated_us, in_process_us = rates["isolated_cpu_us"], rates["in_process_cpu_us"]
        lines += [
            f"recoveries a second, recorded, {probe}: {rates['in_process_per_s']:.0f} in-process,"
            f" {rates['isolated_per_s']:.0f} isolated ({figures['heap_bytes'] >> 20} MiB heap, {figures['live_objects']} live"
            f" objects{'; ' if goal else ''}{goal})",
            f"  processor time of one: {in_process_us:.0f} us, {isolated_us:.0f} us, {isolated_us / in_process_us:.1f}x; of"
            f" {rates['in_process']} in-process runs {rates['compared']} were compared, {rates['isolated_instead']} isolated",
        ]
    return lines


def as_ratio(times: dict[str, float]) -> str:
    return f"{times['ratio']:.2f}x native ({times['native_s']:.3f} s, {times['traced_s']:.3f} s; goal <= 4x)"


def bench_replay(bench: Bench, heap_bytes: int) -> dict[str, Any]:
    """A heap with 200 live objects of the sizes of churn, as its last operation left it; with chunks of the default size,
    not the small ones of the matrix."""
    allocator = config.find_allocator(bench.root, "nvm_malloc")
    heap = msgspec.structs.replace(allocator.heap, heap_bytes=heap_bytes, limit_bytes=heap_bytes)
    allocator = msgspec.structs.replace(allocator, heap=heap, build=msgspec.structs.replace(allocator.build, flags=[]))
    sizes = [operation.size_bytes for operation in generators.churn(4000, 1).operations if operation.kind == "allocate"]
    lines = [f"allocate {slot} {size}" for slot, size in enumerate(sizes[:REPLAY_LIVE_OBJECTS])]
    text = "\n".join(["workload 1", f"slots {REPLAY_LIVE_OBJECTS}", "case", *lines, ""])
    workload = file_format.parse(text, "bench")
    workshop = bench.workshop
    target = build_target(workshop, allocator, None, "clwb", needs_hooks=heap_bytes == IN_PROCESS_HEAP_BYTES)
    spec = CellSpec(allocator.name, workload.name, 0, 1, "mixed", "px86", "clwb")
    cell = trace_cell(workshop, spec, target, workload)
    with tempfile.TemporaryDirectory(dir=bench.scratch) as place:
        path = write_config(Path(place), cell)
        return bench.engine.ask_json(dict[str, Any], "bench-replay", str(path))


# ---- wear ----------------------------------------------------------------------------------------------------------------


def measure_wear(bench: Bench) -> Iterator[dict[str, float]]:
    """Seconds that counting takes, by allocator: the default workload of `faultline wear`, start of the tracer and reading of the
    counts included, builds not."""
    workload = counting.find_workload(bench.workshop, [], counting.DEFAULT_WORKLOAD, counting.DEFAULT_OPS, 1)
    build_driver(bench.root, bench.cache, "clwb")
    bench.workshop.tracer.build(bench.root, bench.cache)
    seconds: dict[str, float] = {}
    for name in counting.subject_names(bench.root):
        note(f"wear: {name}")
        taken = bench.attempt(name, time_of_wear_run, bench, name, workload)
        if taken is not None:
            seconds[name] = taken
        yield seconds


def time_of_wear_run(bench: Bench, name: str, workload: Workload) -> float:
    subject = counting.find_subject(Project(bench.root), name)
    model = counting.CacheModel(figures.DEFAULT_CACHE_BYTES, figures.DEFAULT_CACHE_WAYS)
    started = time.perf_counter()
    counting.count(bench.workshop, subject, workload, figures.DEFAULT_LINE_BYTES, model, fresh=True)
    return time.perf_counter() - started


def wear_in_words(seconds: dict[str, float], _: bool) -> list[str]:
    each = ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items())
    return [f"wear of {counting.DEFAULT_OPS:,} operations that write each object whole: {each}; goal <= 60 s each"]


# ---- the matrix ----------------------------------------------------------------------------------------------------------


def measure_matrix(bench: Bench) -> Iterator[dict[str, Any]]:
    note("the matrix, from an empty cache")
    found = bench.attempt("the matrix", bench_matrix, bench.root)
    if found is not None:
        yield found


def bench_matrix(root: Path) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=root / ".faultline", prefix="bench-") as place:
        command = [str(Path(sysconfig.get_path("scripts")) / "faultline"), "matrix", "--cache", f"{place}/cache"]
        started = time.perf_counter()
        run = subprocess.run([*command, "--out", f"{place}/out"], stdout=subprocess.PIPE, text=True, check=False)
        seconds = time.perf_counter() - started
    summary = run.stdout.strip().splitlines()[-1] if run.stdout.strip() else f"exit code {run.returncode}"
    return {
        "wall_s": seconds,
        "processors": len(os.sched_getaffinity(0)),
        "exit_code": run.returncode,
        "summary": summary,
    }


def matrix_in_words(matrix: dict[str, Any], _: bool) -> list[str]:
    return [
        f"matrix from an empty cache: {matrix['wall_s']:.0f} s on {matrix['processors']} processors",
        matrix["summary"],
    ]


TRACING = Part("tracing", 600, measure_tracing, tracing_in_words)
REPLAY = Part("replay", 900, measure_replay, replay_in_words)
WEAR = Part("wear", 1200, measure_wear, wear_in_words)
MATRIX = Part("matrix", 5400, measure_matrix, matrix_in_words)
