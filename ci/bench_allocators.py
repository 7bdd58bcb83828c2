# SPDX-License-Identifier: Apache-2.0
"""The part of `make bench` that measures allocators, by the driver in allocators/bench: the three benchmarks of Makalu §13.1
against malloc of glibc, and recovery after a crash (§13.2, Table 2). docs/notes/benchmarks.md says what the figures mean.

Every allocator with a file in allocators/bench takes part. One measurement is one process. Those that are compared take turns,
and ratios are taken within a turn, so that a busy machine slows all alike; medians count. Processor time is given
beside wall time, since the former says more on a machine that others use too. Flushes and fences come from a second build of the
same programs, which counts them in persist.h, over a fixed number of rounds."""

from __future__ import annotations

import json
import math
import os
import shutil
import signal
import statistics
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench_parts import Bench, Part

from faultline.base.errors import InfrastructureError
from faultline.pipeline.driver import DRIVER_BASELINE as BASELINE
from faultline.pipeline.driver import allocators_here, build_driver
from faultline.pipeline.environment import best_flush
from faultline.report.terminal.streams import note

RUN_LIMIT_S = 600
"""Of one measurement; the longest takes half a minute."""


@dataclass(frozen=True)
class Benchmark:
    """Of §13.1, as it is run here, and in the paper's words. chance: of a binomial distribution of the sizes (bench.h)."""

    workload: str
    threads: int
    objects: int
    counted_rounds: int
    paper: str
    smallest: int = 64
    largest: int = 64
    chance: float = 0


@dataclass(frozen=True)
class Scale:
    """How much is measured."""

    turns: int
    seconds: float
    benchmarks: tuple[Benchmark, ...]
    heaps: tuple[tuple[int, tuple[int, ...], tuple[str, ...]], ...]
    """Largest object in bytes, the heap sizes in MiB, and whose heaps; none named: of all."""
    recovery_turns: int


THREADTEST = "10,000 rounds of 100,000 / t objects in all"
LARSON = "10 s, 1,000 objects a thread, a new thread each 10,000 rounds"
PRODCON = "20,000,000 / t objects a pair, blocking queues"
HALF_BLOCK = 2048
HALF = 50
SMALL = 104
"""Objects of 24 to 104 bytes, 64 on average: lists are then as long as in the paper, and allocations as many. Of Makalu only,
which is compared with the paper there."""

FULL = Scale(
    turns=5,
    seconds=0.5,
    benchmarks=(
        Benchmark("threadtest", 1, 100_000, 20, THREADTEST),
        Benchmark("threadtest", 2, 100_000, 20, THREADTEST),
        Benchmark("larson", 1, 1000, 500, LARSON),
        Benchmark("larson", 2, 1000, 500, LARSON),
        Benchmark("prodcon", 2, 100_000, 20, PRODCON),
    ),
    heaps=((HALF_BLOCK, (200, 400, 800, 1024, 2048), ()), (SMALL, (200, 400, 800, 1024), ("makalu",))),
    recovery_turns=3,
)
TINY = Scale(
    turns=1,
    seconds=0.001,
    benchmarks=tuple(
        Benchmark(workload, threads, 1000, 20, "")
        for workload, threads in (("threadtest", 1), ("larson", 2), ("prodcon", 2))
    ),
    heaps=((HALF_BLOCK, (2, 4), ()), (SMALL, (1,), ("makalu",))),
    recovery_turns=1,
)

PAPER_TABLE_2 = {
    200: (3.39, 1.01, 4.18, 60.98),
    400: (6.66, 2.00, 6.77, 133.97),
    600: (9.84, 2.97, 7.36, 154.94),
    800: (13.06, 3.94, 11.73, 276.90),
    1024: (16.67, 5.04, 13.66, 349.88),
    2048: (32.82, 10.20, 28.23, 699.23),
    3072: (49.48, 15.08, 37.96, 1030.57),
}
"""By MiB: MX_L in thousands, T_ON in seconds, T_REC and T_GC in milliseconds."""


def scale_of(is_tiny: bool) -> Scale:
    return TINY if is_tiny else FULL


# ---- running -------------------------------------------------------------------------------------------------------------


def ask(program: Path, *arguments: str | int | float, ends_by: int = 0) -> dict[str, Any]:
    line = [str(program), *map(str, arguments)]
    try:
        run = subprocess.run(line, capture_output=True, text=True, check=False, timeout=RUN_LIMIT_S)
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{' '.join(line)} ran for more than {RUN_LIMIT_S} s") from error
    if run.returncode != ends_by:
        raise InfrastructureError(f"{' '.join(line)} ended with {run.returncode}: {run.stderr.strip()[-300:]}")
    answer: dict[str, Any] = json.loads(run.stdout)
    return answer


Turn = dict[str, dict[str, Any]]
"""What each allocator answered."""


def measure_throughput(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """One row for each benchmark and allocator."""
    scale = scale_of(bench.is_tiny)
    rows: list[dict[str, Any]] = []
    for benchmark in scale.benchmarks:
        compared = compare(
            bench, f"{benchmark.workload}, {benchmark.threads} threads", benchmark, scale.turns, scale.seconds
        )
        rows += [row_of(name, benchmark, compared.turns, counted) for name, counted in compared.counted.items()]
        yield rows


@dataclass(frozen=True)
class Compared:
    """What allocators that took turns answered, in each turn; counted: the flushes and fences of each, beside it. One that failed
    is in neither."""

    turns: list[Turn]
    counted: Turn


def compare(bench: Bench, what: str, benchmark: Benchmark, turn_count: int, seconds: float) -> Compared:
    timing = build_driver(bench.root, bench.cache, best_flush()).path
    counting = build_driver(bench.root, bench.cache, best_flush(), is_counting=True).path
    turns: list[Turn] = [{} for _ in range(turn_count)]
    failed: set[str] = set()
    counted: Turn = {}

    def answer(name: str, program: Path, rounds: int = 0, seconds: float = 0.0) -> dict[str, Any] | None:
        said = bench.attempt(f"{what}: {name}", run_once, program, name, benchmark, bench.scratch, rounds, seconds)
        if said is None:
            failed.add(name)
        return said

    note(what)
    names = allocators_here(bench.root)
    for turn in turns:
        for name in names:
            if name not in failed and (said := answer(name, timing, seconds=seconds)) is not None:
                turn[name] = said
    for name in names:
        is_left = name not in failed and BASELINE not in failed  # without it nothing can be compared
        if is_left and (said := answer(name, counting, benchmark.counted_rounds)) is not None:
            counted[name] = said
    return Compared(turns, counted)


def run_once(
    program: Path, name: str, benchmark: Benchmark, scratch: Path, rounds: int = 0, seconds: float = 0.0
) -> dict[str, Any]:
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        sizes = (benchmark.smallest, benchmark.largest, benchmark.chance)
        amount = (benchmark.objects, rounds, seconds)
        return ask(program, name, benchmark.workload, folder, benchmark.threads, *sizes, *amount)


def cost(turn: Turn, who: str, clock: str, per: str = "operations") -> float:
    return float(turn[who][clock]) / float(turn[who][per])


def times_glibc(turns: list[Turn], name: str, clock: str, per: str = "operations") -> float:
    return statistics.median(cost(turn, name, clock, per) / cost(turn, BASELINE, clock, per) for turn in turns)


def row_of(name: str, benchmark: Benchmark, turns: list[Turn], counted: dict[str, Any]) -> dict[str, Any]:
    return {
        "workload": benchmark.workload,
        "threads": benchmark.threads,
        "objects": benchmark.objects,
        "allocator": name,
        "operations_per_s": statistics.median(1 / cost(turn, name, "wall_s") for turn in turns),
        "cpu_ns_per_operation": statistics.median(1e9 * cost(turn, name, "cpu_s") for turn in turns),
        "times_glibc": times_glibc(turns, name, "wall_s"),
        "times_glibc_cpu": times_glibc(turns, name, "cpu_s"),
        "counted_operations": counted["operations"],
        "flushes_per_operation": counted["flushes"] / counted["operations"],
        "fences_per_operation": counted["fences"] / counted["operations"],
    }


# ---- recovery ------------------------------------------------------------------------------------------------------------


def measure_recovery(bench: Bench) -> Iterator[dict[str, Any]]:
    """A row for each allocator, largest object and heap size; and what was left out."""
    scale = scale_of(bench.is_tiny)
    rows: list[dict[str, Any]] = []
    left_out: list[str] = []
    for largest, sizes, chosen in scale.heaps:
        names = chosen or allocators_here(bench.root)[1:]
        for mib in sizes:
            if not has_room(bench.scratch, mib):
                left_out.append(no_room(bench.scratch, mib))
                continue
            turns = crash_in_turns(bench, names, mib, largest, HALF, scale.recovery_turns)
            rows += [recovery_row(name, mib, largest, answers) for name, answers in turns.items()]
            yield {"rows": rows, "growth": growth_of(rows), "left_out": left_out}


def crash_in_turns(
    bench: Bench, names: Sequence[str], mib: int, largest: int, percent: int, turns: int
) -> dict[str, list[dict[str, Any]]]:
    """What each allocator answered in each turn; one that failed is left out."""
    program = build_driver(bench.root, bench.cache, best_flush()).path
    what = f"recovery of {mib} MiB, objects up to {largest} bytes"
    note(what)
    answers: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for turn in range(turns):
        for name in list(answers):
            said = bench.attempt(
                f"{what}: {name}", crash_once, program, name, mib, largest, turn + 1, bench.scratch, percent
            )
            if said is None:
                del answers[name]
            else:
                answers[name].append(said)
    return answers


def no_room(scratch: Path, mib: int) -> str:
    return f"{mib} MiB: less than twice as much is free in {scratch.parent} or in memory"


def has_room(folder: Path, mib: int) -> bool:
    memory = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(shutil.disk_usage(folder).free, memory) >= 2 * mib << 20


def crash_once(
    program: Path, name: str, mib: int, largest: int, seed: int, scratch: Path, percent: int = HALF
) -> dict[str, Any]:
    """The lists that the process that aborted left must be there, whole, and nothing else. percent: of objects that are kept."""
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        before = ask(program, name, "resur", folder, mib, largest, percent, seed, ends_by=-signal.SIGABRT)
        after = ask(program, name, "recover", folder, mib)
    for what in ("objects", "bytes"):
        if before[what] != after[what]:
            raise InfrastructureError(
                f"{name}: {before[what]} {what} in lists before the crash, {after[what]} after recovery"
            )
    return {**before, **after}


def recovery_row(name: str, mib: int, largest: int, turns: list[dict[str, Any]]) -> dict[str, Any]:
    row: dict[str, Any] = {"allocator": name, "mib": mib, "largest_object_bytes": largest}
    for key in turns[0]:
        row[key] = statistics.median(turn[key] for turn in turns)
    return row


def growth_of(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The exponent b of time = a * size^b, for each allocator and largest object; 1 is linear."""
    found = []
    for name, largest in sorted({(row["allocator"], row["largest_object_bytes"]) for row in rows}):
        series = [row for row in rows if (row["allocator"], row["largest_object_bytes"]) == (name, largest)]
        for key in ("recover_s", "recover_cpu_s", "collect_s", "collect_cpu_s"):
            points = [(row["mib"], row[key]) for row in series if row[key] > 1e-5]  # no collection: a few clock ticks
            if len(points) > 1:
                found.append({"allocator": name, "largest_object_bytes": largest, "of": key, "exponent": slope(points)})
    return found


def slope(points: list[tuple[float, float]]) -> float:
    """Least squares, both axes logarithmic."""
    return statistics.linear_regression(*zip(*((math.log(x), math.log(y)) for x, y in points), strict=True)).slope


# ---- in words ------------------------------------------------------------------------------------------------------------


def throughput_in_words(rows: list[dict[str, Any]], is_tiny: bool) -> list[str]:
    scale = scale_of(is_tiny)
    heads = (("Mops/s", 8), ("x glibc", 9), ("CPU ns", 8), ("x glibc", 9), ("flushes", 10), ("fences", 10))
    lines = [
        "allocators, 64-byte objects (Makalu §13.1). An operation is an allocation or a deallocation; x glibc: its cost against",
        f"that of glibc in the same turn, by wall and by processor time; median of {scale.turns} turns of {scale.seconds} s;",
        "flushes and fences an operation. Goal for makalu: <= 3x, ~0 flushes",
        f"  {'benchmark':<12}{'t':>2}  {'allocator':<12}" + "".join(f"{head:>{width}}" for head, width in heads),
    ]
    for row in rows:
        lines.append(
            f"  {row['workload']:<12}{row['threads']:>2}  {row['allocator']:<12}{row['operations_per_s'] / 1e6:>8.2f}"
            f"{row['times_glibc']:>8.2f}x{row['cpu_ns_per_operation']:>8.1f}{row['times_glibc_cpu']:>8.2f}x"
            f"{row['flushes_per_operation']:>10.5f}{row['fences_per_operation']:>10.5f}"
        )
    return lines + [
        f"  {benchmark.workload}, t = {benchmark.threads}: {amount_in_words(benchmark)}; the paper: {benchmark.paper}"
        for benchmark in scale.benchmarks
    ]


def amount_in_words(benchmark: Benchmark) -> str:
    each = benchmark.objects // (benchmark.threads if benchmark.workload == "threadtest" else 1)
    whose = "pair" if benchmark.workload == "prodcon" else "thread"
    return f"{each:,} objects a {whose} and round, counted over {benchmark.counted_rounds} rounds"


def recovery_in_words(recovery: dict[str, Any], is_tiny: bool) -> list[str]:
    scale = scale_of(is_tiny)
    heads = (("SZ MiB", 8), ("MX_L 10^3", 15), ("T_ON s", 15), ("T_REC ms", 15), ("T_GC ms", 18), ("OVER %", 14))
    lines = [
        "recovery after a crash (Makalu §13.2, Table 2), wall time, median of"
        f" {scale.recovery_turns} crashes; in brackets: Makalu in the paper",
        f"  {'allocator':<12}{'objects':>9}" + "".join(f"{head:>{width}}" for head, width in heads),
        *(recovery_line(row) for row in recovery["rows"]),
    ]
    for name, largest in sorted(
        {(growth["allocator"], growth["largest_object_bytes"]) for growth in recovery["growth"]}
    ):
        said = (
            f"{TIMES[growth['of']]} as SZ^{growth['exponent']:.2f}"
            for growth in recovery["growth"]
            if (growth["allocator"], growth["largest_object_bytes"]) == (name, largest)
        )
        lines.append(f"  {name}, objects <= {largest} B: {', '.join(said)}")
    t_rec, t_gc = (slope([(mib, row[column]) for mib, row in PAPER_TABLE_2.items()]) for column in (2, 3))
    lines.append(f"  Makalu in the paper: T_REC as SZ^{t_rec:.2f}, T_GC as SZ^{t_gc:.2f}. Goal: about linear")
    return lines + [f"  left out: {what}" for what in recovery["left_out"]]


TIMES = {
    "recover_s": "T_REC",
    "recover_cpu_s": "T_REC in processor time",
    "collect_s": "T_GC",
    "collect_cpu_s": "T_GC in processor time",
}


def recovery_line(row: dict[str, Any]) -> str:
    longest, online_s, recover_ms, collect_ms = PAPER_TABLE_2.get(row["mib"], (0, 0, 0, 0))
    cells = (
        (row["longest"] / 1e3, 2, longest, 15),
        (row["online_s"], 2, online_s, 15),
        (row["recover_s"] * 1e3, 1, recover_ms, 15),
        (row["collect_s"] * 1e3, 1, collect_ms, 18),
        (
            overhead(row["online_s"], row["recover_s"] + row["collect_s"]),
            2,
            overhead(online_s, (recover_ms + collect_ms) / 1e3),
            14,
        ),
    )
    said = "".join(f"{beside(value, digits, paper):>{width}}" for value, digits, paper, width in cells)
    return f"  {row['allocator']:<12}{'<= ' + str(row['largest_object_bytes']):>9}{row['mib']:>8}{said}"


def overhead(online_s: float, offline_s: float) -> float:
    """OVER_off, in percent."""
    return offline_s / online_s * 100 if online_s else 0.0


def beside(value: float, digits: int, paper: float) -> str:
    return f"{value:.{digits}f}" + (f" [{paper:.{digits}f}]" if paper else "")


PARTS = (
    Part("allocators", 1800, measure_throughput, throughput_in_words),
    Part("recovery", 2400, measure_recovery, recovery_in_words),
)
