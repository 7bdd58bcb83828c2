# SPDX-License-Identifier: Apache-2.0
"""`make bench [PARTS="..."]`: what tracing costs, how many recoveries a second the engines run, how fast allocators are
and recover (bench_allocators.py), what complete exploration costs (bench_complete.py) and gains by
workers (bench_explore.py), how long mutants take to an explained finding (bench_mutants.py), how long the matrix takes. Tables and
one line a figure on stdout, with its goal where there is one; --out FILE writes the same as JSON."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import bench_allocators
import bench_complete
import bench_explore
import bench_mutants
import bench_pallocator
import msgspec

from faultline.base import config
from faultline.base.cache import Cache, project_root, scratch_folder
from faultline.base.errors import InfrastructureError
from faultline.pipeline import build, environment, trace
from faultline.pipeline.build import Built
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.driver import build_driver
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import trace_cell
from faultline.pipeline.target import build_target
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.pipeline.tracers.tracer import Session
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.streams import note
from faultline.wear import counting, figures
from faultline.workload import catalogue, file_format, generators

ROUNDS = 3
"""Of each timing; the median counts. Native and traced runs take turns, so that a busy machine slows both."""
STORE_OPERATIONS = 400_000
CHURN_OPERATIONS = 400_000
"""Enough that the start of the tracer, a quarter of a second, is a small part."""
REPLAY_HEAP_BYTES = 64 << 20
IN_PROCESS_HEAP_BYTES = 8 << 20
REPLAY_LIVE_OBJECTS = 200


PARTS = (
    *(
        "tracing",
        "replay",
        "wear",
        "allocators",
        "recovery",
        "sizes",
        "restart",
        "fragmentation",
        "complete",
        "explore",
        "long",
        "ace",
        "nested",
    ),
    "mutants",
    "matrix",
)


def main() -> int:
    parser = argparse.ArgumentParser(description="Measure tracing, recoveries a second, allocators, exploration.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; all if none is given")
    parser.add_argument("--json", action="store_true", help="JSON on stdout")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON there, too")
    parser.add_argument(
        "--tiny", action="store_true", help="what measures allocators, complete: as little as possible, as a test"
    )
    options = parser.parse_args()
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: the parts are {', '.join(PARTS)}")
    figures = measure(options.parts or PARTS, options.tiny)
    if options.out:
        options.out.parent.mkdir(parents=True, exist_ok=True)
        options.out.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    print(json.dumps(figures, indent=2) if options.json else in_words(figures, options.tiny))
    return 0


def scales(is_tiny: bool) -> tuple[bench_allocators.Scale, bench_pallocator.Scale]:
    if is_tiny:
        return bench_allocators.TINY, bench_pallocator.TINY
    return bench_allocators.FULL, bench_pallocator.FULL


def measure(parts: Sequence[str], is_tiny: bool) -> dict[str, Any]:
    scale, section_5 = scales(is_tiny)
    root, engine = project_root(), Engine()
    cache = Cache(root / ".faultline")
    facts = environment.describe(Workshop(root, cache, engine)).facts
    facts["load before"] = f"{os.getloadavg()[0]:.1f} processes wanted a processor in the last minute"
    figures: dict[str, Any] = {"environment": facts}
    with scratch_folder(cache) as scratch:
        if "tracing" in parts:
            note("tracing: bench_store")
            figures["store"] = bench_store(root, cache, scratch)
            note("tracing: churn")
            figures["churn"] = bench_churn(root, cache, scratch)
        if "replay" in parts:
            note("recoveries a second")
            figures["replay"] = bench_replay(root, cache, engine, scratch, REPLAY_HEAP_BYTES)
            figures["in_process"] = bench_replay(root, cache, engine, scratch, IN_PROCESS_HEAP_BYTES)
        if "allocators" in parts:
            figures["allocators"] = bench_allocators.measure_throughput(root, cache, scratch, scale)
        if "recovery" in parts:
            figures["recovery"] = bench_allocators.measure_recovery(root, cache, scratch, scale)
        if "sizes" in parts:
            figures["sizes"] = bench_pallocator.measure_sizes(root, cache, scratch, section_5)
        if "restart" in parts:
            figures["restart"] = bench_pallocator.measure_restart(root, cache, scratch, section_5)
        if "fragmentation" in parts:
            figures["fragmentation"] = bench_pallocator.measure_fragmentation(root, cache, scratch, section_5)
        if "complete" in parts:
            figures["complete"] = bench_complete.measure(root, is_tiny)
        figures |= measure_wear(parts, root, cache)
        figures |= bench_explore.measure(parts, root, cache, engine, is_tiny)
        figures |= bench_mutants.measure(parts, root, is_tiny)
        if "matrix" in parts:
            note("the matrix, from an empty cache")
            figures["matrix"] = bench_matrix(root)
    return figures


def in_words(figures: dict[str, Any], is_tiny: bool) -> str:
    scale, section_5 = scales(is_tiny)
    facts = figures["environment"]
    lines = [f"{facts['processor']}; {facts['heaps']}; {facts['load before']}"]
    if "store" in figures:
        lines += [
            f"tracing, bench_store: {as_ratio(figures['store'])}",
            f"tracing, churn {CHURN_OPERATIONS}: {as_ratio(figures['churn'])}",
        ]
    if "replay" in figures:
        lines += isolated_in_words(figures["replay"]) + in_process_in_words(figures["in_process"])
    lines += wear_in_words(figures.get("wear", {}))
    if "allocators" in figures:
        lines += bench_allocators.throughput_in_words(figures["allocators"], scale)
    if "recovery" in figures:
        lines += bench_allocators.recovery_in_words(figures["recovery"], scale)
    if "sizes" in figures:
        lines += bench_pallocator.sizes_in_words(figures["sizes"], section_5)
    if "restart" in figures:
        lines += bench_pallocator.restart_in_words(figures["restart"], section_5)
    if "fragmentation" in figures:
        lines += bench_pallocator.fragmentation_in_words(figures["fragmentation"], section_5)
    if "complete" in figures:
        lines += bench_complete.in_words(figures["complete"])
    lines += bench_explore.in_words(figures)
    lines += bench_mutants.in_words(figures)
    if matrix := figures.get("matrix"):
        lines.append(f"matrix from an empty cache: {matrix['wall_s']:.0f} s on {matrix['processors']} processors")
        lines.append(matrix["summary"])
    return "\n".join(lines)


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


# ---- tracing -------------------------------------------------------------------------------------------------------------


def bench_store(root: Path, cache: Cache, scratch: Path) -> dict[str, float]:
    source = "pintools/conformance/bench_store.c"
    inputs = build.sources_below(root / "pintools" / "conformance")
    recipe = build.Recipe("bench_store", "bench_store", "gcc", ("-O2", "-g", "-Ipintools"), (source,), (), inputs)
    program = build.make(root, cache, recipe).path
    return compare(root, cache, scratch, lambda folder: [str(program), str(folder), str(STORE_OPERATIONS)])


def bench_churn(root: Path, cache: Cache, scratch: Path) -> dict[str, float]:
    """The clean allocator under the runner, as campaigns trace it."""
    allocator = config.find_allocator(root, "nvm_malloc")
    target = build_target(Workshop(root, cache, Engine()), allocator, None, "clwb")
    workload = generators.churn(CHURN_OPERATIONS, 1)
    path = catalogue.store(workload, cache)
    geometry = trace.heap_arguments(allocator.heap, workload)

    def command(folder: Path) -> list[str]:
        return [
            *(str(target.runner.path), "workload", "--adapter", str(target.adapter.path)),
            *("--workload", str(path), "--session", "0", "--folder", str(folder)),
            *geometry,
        ]

    return compare(root, cache, scratch, command)


def compare(root: Path, cache: Cache, scratch: Path, command: Callable[[Path], list[str]]) -> dict[str, float]:
    """Wall time of command(folder) alone and under the tracer, process start included in both."""
    built = DEFAULT_TRACER.build(root, cache)

    def traced_command(folder: Path, trace: Path) -> list[str]:
        session = Session(tuple(command(folder)), trace, folder, built.path.parent)
        return DEFAULT_TRACER.trace_command(built, session)

    native, traced = [], []
    for _ in range(ROUNDS):
        native.append(timed(scratch, lambda folder, _: command(folder), built))
        traced.append(timed(scratch, traced_command, built))
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


# ---- wear ----------------------------------------------------------------------------------------------------------------


def bench_wear(root: Path, cache: Cache) -> dict[str, float]:
    """Seconds that counting takes, by allocator: the default workload of `faultline wear`, start of the tracer and reading of the
    counts included, builds not."""
    seconds = {}
    workshop = Workshop(root, cache, Engine())
    workload = counting.find_workload(workshop, counting.DEFAULT_WORKLOAD, counting.DEFAULT_OPS, 1)
    model = counting.Cache(figures.DEFAULT_CACHE_BYTES, figures.DEFAULT_CACHE_WAYS)
    build_driver(root, cache, "clwb")
    workshop.tracer.build(root, cache)
    for name in counting.subject_names(root):
        note(f"wear: {name}")
        subject = counting.find_subject(root, name)
        started = time.perf_counter()
        counting.count(workshop, subject, workload, figures.DEFAULT_LINE_BYTES, model, fresh=True)
        seconds[name] = time.perf_counter() - started
    return seconds


def measure_wear(parts: Sequence[str], root: Path, cache: Cache) -> dict[str, Any]:
    return {"wear": bench_wear(root, cache)} if "wear" in parts else {}


def wear_in_words(seconds: dict[str, float]) -> list[str]:
    if not seconds:
        return []
    each = ", ".join(f"{name} {taken:.1f} s" for name, taken in seconds.items())
    return [f"wear of {counting.DEFAULT_OPS:,} operations that write each object whole: {each}; goal <= 60 s each"]


# ---- replay --------------------------------------------------------------------------------------------------------------


def bench_replay(root: Path, cache: Cache, engine: Engine, scratch: Path, heap_bytes: int) -> dict[str, Any]:
    """A heap with 200 live objects of the sizes of churn, as its last operation left it; with chunks of the default size,
    not the small ones of the matrix."""
    allocator = config.find_allocator(root, "nvm_malloc")
    heap = msgspec.structs.replace(allocator.heap, heap_bytes=heap_bytes, limit_bytes=heap_bytes)
    allocator = msgspec.structs.replace(allocator, heap=heap, build=msgspec.structs.replace(allocator.build, flags=[]))
    sizes = [operation.size_bytes for operation in generators.churn(4000, 1).operations if operation.kind == "allocate"]
    lines = [f"allocate {slot} {size}" for slot, size in enumerate(sizes[:REPLAY_LIVE_OBJECTS])]
    text = "\n".join(["workload 1", f"slots {REPLAY_LIVE_OBJECTS}", "case", *lines, ""])
    workload = file_format.parse(text, "bench")
    workshop = Workshop(root, cache, engine)
    target = build_target(workshop, allocator, None, "clwb", needs_hooks=heap_bytes == IN_PROCESS_HEAP_BYTES)
    spec = CellSpec(allocator.name, workload.name, 0, 1, "mixed", "px86", "clwb")
    cell = trace_cell(workshop, spec, target, workload)
    with tempfile.TemporaryDirectory(dir=scratch) as place:
        path = write_config(Path(place), cell)
        return engine.ask_json(dict[str, Any], "bench-replay", str(path))


# ---- the matrix ----------------------------------------------------------------------------------------------------------


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


if __name__ == "__main__":
    sys.exit(main())
