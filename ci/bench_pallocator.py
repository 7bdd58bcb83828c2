# SPDX-License-Identifier: Apache-2.0
"""The parts of `make bench` that repeat section 5 of the PAllocator paper, by the driver in allocators/bench: allocations and
deallocations by object size (Figures 10 to 13) at one and two threads against malloc of glibc, recovery time by the size of the
heap (Figure 14), and the fragmentation stress (Table 2), scaled. docs/notes/benchmarks.md says what the figures mean;
bench_allocators.py how they are taken. Ratios are of processor time within a turn: they mean something on a busy machine too."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from bench_allocators import (
    Benchmark,
    Turn,
    ask,
    compare,
    cost,
    crash_in_turns,
    has_room,
    no_room,
    recovery_row,
    slope,
    times_glibc,
)
from bench_parts import Bench, Part

from faultline.pipeline.driver import DRIVER_BASELINE as BASELINE
from faultline.pipeline.driver import allocators_here, build_driver
from faultline.pipeline.environment import best_flush
from faultline.report.terminal.streams import note

KIB = 1024
OWN = "pallocator"
"""What the others are compared with."""
SMALLEST, LARGEST = 64, 128 * KIB
"""Of the objects of the random benchmark and of Figure 14."""
KEPT = 100
"""Percent of the objects of Figure 14: all."""
PAPER_RECOVERY_S = {"pallocator": 0.045, "makalu": 23.5, "nvm_malloc": 1.3}
"""Of 61 GB, at the lowest latency."""
PAPER_FRAGMENTATION = {
    "pallocator": (2_100_000, 2 << 30, 512),
    "makalu": (303_000, 128 * KIB, 0),
    "nvm_malloc": (0, 64 * KIB, 0),
}
"""Table 2: allocations, largest objects in bytes, GB defragmented. 256 GB of 64 KB were the fill, of at most 359 GB."""
PAPER_FILL_MIB = 256 << 10


@dataclass(frozen=True)
class Experiment:
    """A benchmark at one and at two threads. objects: a thread's. paper: how many there."""

    name: str
    workload: str
    smallest: int
    largest: int
    objects: int
    paper: str
    chance: float = 0

    def at(self, threads: int, counted_rounds: int) -> Benchmark:
        objects = self.objects * (threads if self.workload == "threadtest" else 1)
        sizes = (self.smallest, self.largest, self.chance)
        return Benchmark(self.workload, threads, objects, counted_rounds, self.paper, *sizes)


@dataclass(frozen=True)
class Scale:
    turns: int
    seconds: float
    counted_rounds: int
    experiments: tuple[Experiment, ...]
    heaps_mib: tuple[int, ...]
    recovery_turns: int
    fill_mib: int
    fill_bytes: int
    """Of the objects that the heap is filled with."""
    largest_bytes: int


def standalone(name: str, size: int, objects: int, paper: str) -> Experiment:
    return Experiment(f"standalone {name}", "threadtest", size, size, objects, paper)


FULL = Scale(
    turns=3,
    seconds=0.2,
    counted_rounds=3,
    experiments=(
        standalone("128 B", 128, 100_000, "500,000"),
        standalone("1 KB", KIB, 32_000, "500,000"),
        standalone("8 KB", 8 * KIB, 8_000, "500,000"),
        standalone("64 KB", 64 * KIB, 1_000, "80,000"),
        standalone("512 KB", 512 * KIB, 128, "10,000"),
        Experiment("random, uniform", "threadtest", SMALLEST, LARGEST, 1_000, "50,000"),
        Experiment("random, binomial small", "threadtest", SMALLEST, LARGEST, 20_000, "500,000", 0.01),
        Experiment("random, binomial large", "threadtest", SMALLEST, LARGEST, 700, "50,000", 0.7),
        Experiment("larson, 64-256 B", "larson", 64, 256, 1_000, "1,000"),
        Experiment("larson, 1-4 KB", "larson", KIB, 4 * KIB, 1_000, "1,000"),
        Experiment("larson, 64-256 KB", "larson", 64 * KIB, 256 * KIB, 250, "1,000"),
    ),
    heaps_mib=(64, 128, 256, 512, 1024, 2048),
    recovery_turns=3,
    fill_mib=2048,
    fill_bytes=64 * KIB,
    largest_bytes=16 << 20,
)
TINY = Scale(
    turns=1,
    seconds=0.001,
    counted_rounds=2,
    experiments=(
        standalone("128 B", 128, 200, ""),
        Experiment("random, binomial small", "threadtest", SMALLEST, LARGEST, 100, "", 0.01),
        Experiment("larson, 1-4 KB", "larson", KIB, 4 * KIB, 100, ""),
    ),
    heaps_mib=(2, 4),
    recovery_turns=1,
    fill_mib=512,
    fill_bytes=2 << 20,
    largest_bytes=8 << 20,
)


def scale_of(is_tiny: bool) -> Scale:
    return TINY if is_tiny else FULL


# ---- allocations and deallocations by size ---------------------------------------------------------------------------------


def measure_sizes(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """One row for each experiment, number of threads and allocator."""
    scale = scale_of(bench.is_tiny)
    rows: list[dict[str, Any]] = []
    for experiment in scale.experiments:
        for threads in (1, 2):
            benchmark = experiment.at(threads, scale.counted_rounds)
            compared = compare(bench, f"{experiment.name}, {threads} threads", benchmark, scale.turns, scale.seconds)
            for name, counted in compared.counted.items():
                rows.append(size_row(name, experiment, threads, compared.turns, counted))
            yield rows


def size_row(
    name: str, experiment: Experiment, threads: int, turns: list[Turn], counted: dict[str, Any]
) -> dict[str, Any]:
    row = {
        "experiment": experiment.name,
        "threads": threads,
        "objects": experiment.objects,
        "allocator": name,
        "cpu_ns_per_operation": statistics.median(1e9 * cost(turn, name, "cpu_s") for turn in turns),
        "times_glibc_cpu": times_glibc(turns, name, "cpu_s"),
        "flushes_per_operation": counted["flushes"] / counted["operations"],
        "fences_per_operation": counted["fences"] / counted["operations"],
    }
    if experiment.workload == "threadtest":  # whose phases are timed apart
        row["allocate_times_glibc_cpu"] = times_glibc(turns, name, "allocating_cpu_s", "allocations")
        row["free_times_glibc_cpu"] = times_glibc(turns, name, "freeing_cpu_s", "frees")
    return row


def sizes_in_words(rows: list[dict[str, Any]], is_tiny: bool) -> list[str]:
    scale = scale_of(is_tiny)
    heads = ("allocate", "free", "both", "flushes", "fences")
    lines = [
        "allocators by object size (PAllocator §5): processor time against glibc's in the same turn, median of"
        f" {scale.turns} turns of {scale.seconds} s; flushes and fences an operation",
        f"  {'experiment':<24}{'t':>2}  {'allocator':<12}" + "".join(f"{head:>10}" for head in heads),
    ]
    for row in rows:
        if row["allocator"] == BASELINE:
            continue
        ratios = (row.get("allocate_times_glibc_cpu"), row.get("free_times_glibc_cpu"), row["times_glibc_cpu"])
        said = "".join(f"{'-' if ratio is None else f'{ratio:.2f}x':>10}" for ratio in ratios)
        counts = f"{row['flushes_per_operation']:>10.3f}{row['fences_per_operation']:>10.3f}"
        lines.append(f"  {row['experiment']:<24}{row['threads']:>2}  {row['allocator']:<12}{said}{counts}")
    objects = (f"{experiment.name} {experiment.objects:,} ({experiment.paper})" for experiment in scale.experiments)
    return [*lines, f"  objects a thread (the paper's): {'; '.join(objects)}"]


# ---- recovery by the size of the heap ----------------------------------------------------------------------------------------


def measure_restart(bench: Bench) -> Iterator[dict[str, Any]]:
    """A row for each heap and allocator: recovery after a crash, with the collection where there is one."""
    scale = scale_of(bench.is_tiny)
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for mib in scale.heaps_mib:
        if not has_room(bench.scratch, mib):
            left_out.append(no_room(bench.scratch, mib))
            continue
        crashed = crash_in_turns(bench, allocators_here(bench.root)[1:], mib, LARGEST, KEPT, scale.recovery_turns)
        turns = {name: list(map(whole_recovery, answers)) for name, answers in crashed.items()}
        for name in turns if OWN in turns else ():  # without it nothing can be compared
            row = recovery_row(name, mib, LARGEST, turns[name])
            pairs = zip(turns[name], turns[OWN], strict=True)
            row["times_pallocator_cpu"] = statistics.median(
                turn["whole_cpu_s"] / own["whole_cpu_s"] for turn, own in pairs
            )
            rows.append(row)
        yield {"rows": rows, "growth": whole_growth(rows), "left_out": left_out}


def whole_recovery(turn: dict[str, Any]) -> dict[str, Any]:
    """With what must be done before the heap is as it was."""
    whole = turn["recover_cpu_s"] + turn["collect_cpu_s"]
    return {**turn, "whole_cpu_s": whole}


def whole_growth(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The exponent b of time = a * size^b, by allocator."""
    found = {}
    for name in sorted({row["allocator"] for row in rows}):
        points = [(row["mib"], row["whole_cpu_s"]) for row in rows if row["allocator"] == name]
        if len(points) > 1:
            found[name] = slope(points)
    return found


def restart_in_words(restart: dict[str, Any], is_tiny: bool) -> list[str]:
    scale = scale_of(is_tiny)
    lines = [
        "recovery after a crash by the size of the heap (PAllocator §5, Figure 14): objects of"
        f" {size(SMALLEST)} to {size(LARGEST)}, all kept, with makalu's collection; processor time, median of"
        f" {scale.recovery_turns} crashes. Goal: makalu >= 10x pallocator",
        f"  {'allocator':<12}{'MiB':>6}{'objects':>9}{'CPU ms':>10}{'x pallocator':>14}",
    ]
    for row in restart["rows"]:
        lines.append(
            f"  {row['allocator']:<12}{row['mib']:>6}{row['objects']:>9.0f}{row['whole_cpu_s'] * 1e3:>10.2f}"
            f"{row['times_pallocator_cpu']:>13.1f}x"
        )
    said = (f"{name} as size^{exponent:.2f}" for name, exponent in restart["growth"].items())
    lines.append(f"  growth: {', '.join(said)}. Goal for pallocator: nearly flat")
    own = PAPER_RECOVERY_S[OWN]
    said = (f"{name} {seconds:g} s ({seconds / own:.0f}x)" for name, seconds in PAPER_RECOVERY_S.items())
    lines.append(f"  the paper, 61 GB, wall time: {', '.join(said)}")
    return lines + [f"  left out: {what}" for what in restart["left_out"]]


# ---- fragmentation -----------------------------------------------------------------------------------------------------------


def measure_fragmentation(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """A row for each allocator whose heap has a limit."""
    program = build_driver(bench.root, bench.cache, best_flush()).path
    scale = scale_of(bench.is_tiny)
    rows: list[dict[str, Any]] = []
    for name in allocators_here(bench.root)[1:]:
        note(f"fragmentation, {name}")
        with tempfile.TemporaryDirectory(dir=bench.scratch) as folder:
            sizes = (scale.fill_mib, scale.fill_bytes, scale.largest_bytes)
            said = bench.attempt(name, ask, program, name, "fragment", folder, *sizes)
        if said is not None:
            rows.append({"allocator": name, **said})
        yield rows


def fragmentation_in_words(rows: list[dict[str, Any]], is_tiny: bool) -> list[str]:
    scale = scale_of(is_tiny)
    heads = (
        ("filled", 8),
        ("allocations", 18),
        ("MiB defragmented", 18),
        ("largest", 18),
        ("fails at", 10),
        ("in use", 8),
    )
    share = scale.fill_mib / PAPER_FILL_MIB
    lines = [
        f"fragmentation (PAllocator §5, Table 2): {scale.fill_mib} MiB of {size(scale.fill_bytes)} objects; then every other one"
        " is freed, down to half, and as much is allocated in objects of twice the size, up to"
        f" {size(scale.largest_bytes)}; in brackets: the paper's, of 256 GB and up to 2 GB, amounts in proportion",
        f"  {'allocator':<12}" + "".join(f"{head:>{width}}" for head, width in heads),
    ]
    for row in rows:
        allocations, largest, defragmented = (f" [{text}]" for text in paper_fragmentation(row["allocator"], share))
        cells = (
            "yes" if row["is_filled"] else "no",
            f"{row['allocations']:,}{allocations}",
            f"{row['defragmented_bytes'] >> 20:,}{defragmented}",
            f"{size(row['largest_bytes'])}{largest}",
            size(row["failed_bytes"]) if row["failed_bytes"] else "-",
            f"{100 * row['live_bytes'] / row['limit_bytes']:.0f} %",
        )
        said = "".join(f"{cell:>{width}}" for cell, (_, width) in zip(cells, heads, strict=True))
        lines.append(f"  {row['allocator']:<12}{said}")
    return [
        *lines,
        "  in use: of the heap's limit, when it stopped. Goal: pallocator goes on to the end, the others stop before",
    ]


def paper_fragmentation(name: str, share: float) -> tuple[str, str, str]:
    """Allocations, largest object and MiB defragmented. share: of the paper's fill."""
    if name not in PAPER_FRAGMENTATION:
        return "-", "-", "-"
    allocations, largest, defragmented_gb = PAPER_FRAGMENTATION[name]
    return f"{allocations * share:,.0f}", size(largest), f"{defragmented_gb * KIB * share:,.0f}"


def size(value: int) -> str:
    for unit, step in (("GB", 1 << 30), ("MB", 1 << 20), ("KB", KIB)):
        if value >= step:
            return f"{value // step} {unit}"
    return f"{value} B"


PARTS = (
    Part("sizes", 2400, measure_sizes, sizes_in_words),
    Part("restart", 2400, measure_restart, restart_in_words),
    Part("fragmentation", 900, measure_fragmentation, fragmentation_in_words),
)
