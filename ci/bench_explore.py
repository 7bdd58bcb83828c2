# SPDX-License-Identifier: Apache-2.0
"""How long `complete` takes. `make bench PARTS=explore`: churn with the first part of the probe (open, slots, walk, check), for
each allocator, with one worker and with two; `PARTS=long`: nvm_malloc over a hundred times as many operations; `PARTS=ace`: every
sequence of three operations, and the same for a second crash, in recoveries alone and in what follows them, too; `PARTS=nested`:
smoke, with all of the probe, for the same crashes; `PARTS=engines`: recoveries a second of smoke by each engine."""

from __future__ import annotations

import json
import statistics
import subprocess
from collections.abc import Callable, Iterator
from typing import Any

from bench_parts import Bench, Clock, Part

from faultline.base import config
from faultline.base.cache import scratch_folder
from faultline.base.errors import InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import prepare
from faultline.report.terminal.streams import note

OPERATIONS = 1000
LONG_OPERATIONS = 100_000
TINY_OPERATIONS = 8
ROUNDS = 3
"""Of each timing; the median counts. One worker and two take turns, so that a busy machine slows both."""
GOALS_S = {"nvm_malloc": 2.0}
OTHERS_GOAL_S = 10.0
LONG_GOAL_S = 200.0
JOBS_GOAL = 1.7
ACE_GOAL_S = 30.0
NESTED_GOAL = 6.0
PEAK_GOAL_BYTES = 1 << 30
SEEING_ENGINES = ("in-process", "traced")
TRACED_GOAL = 1 / 15
"""Recoveries a second of processor time, against the isolated engine's."""
TRACED_GOALS_S = {"nvm_malloc": 10.0}
LIMIT_S, LONG_LIMIT_S = 600, 1800
"""Of one exploration. One that hits it is not complete, says so, and ends the row of its allocator."""


Row = dict[str, Any]


def measure_each(bench: Bench, part: str, measure_one: Callable[[Bench, str], Row]) -> Iterator[list[Row]]:
    """A row an allocator."""
    rows: list[Row] = []
    for name in config.names_with_sources(bench.root):
        note(f"{part}: {name}")
        row = bench.attempt(name, measure_one, bench, name)
        if row is not None:
            rows.append({"allocator": name, **row})
        yield rows


def measure_explore(bench: Bench) -> Iterator[list[Row]]:
    return measure_each(bench, "explore", explore_one)


def explore_one(bench: Bench, name: str) -> Row:
    """Once where it does not come to its end."""
    operations = TINY_OPERATIONS if bench.is_tiny else OPERATIONS
    exploration = Exploration(bench, name, "churn", operations)
    row = exploration.run(1)
    if not row["complete"]:
        return {**row, "operations": operations, "one_s": row["wall_s"], "two_s": None}
    rounds = [(row, exploration.run(2))]
    rounds += [(exploration.run(1), exploration.run(2)) for _ in range(0 if bench.is_tiny else ROUNDS - 1)]
    one_s, two_s = (statistics.median(turn[at]["wall_s"] for turn in rounds) for at in (0, 1))
    return {**rounds[-1][0], "operations": operations, "one_s": one_s, "two_s": two_s}


def measure_long(bench: Bench) -> Iterator[Row]:
    operations = TINY_OPERATIONS if bench.is_tiny else LONG_OPERATIONS
    note(f"explore: nvm_malloc, {operations:,} operations")
    row = bench.attempt("nvm_malloc", Exploration(bench, "nvm_malloc", "churn", operations, LONG_LIMIT_S).run)
    if row is not None:
        yield {"operations": operations, **row}


def measure_ace(bench: Bench) -> Iterator[list[Row]]:
    return measure_each(bench, "ace", ace_one)


def ace_one(bench: Bench, name: str) -> Row:
    """second_crash: in recoveries alone, then in what follows them, too; as far as they come to an end."""
    workload = "ace:1" if bench.is_tiny else "ace:3"
    exploration = Exploration(bench, name, workload, 1)
    row, second = exploration.run(), list[Row]()
    for follow_up in (False, True):
        if all(one["complete"] for one in (row, *second)):
            second.append(exploration.run(nested=1, follow_up=follow_up))
    return {"workload": workload, **row, "second_crash": second}


def measure_nested(bench: Bench) -> Iterator[list[Row]]:
    return measure_each(bench, "nested", nested_one)


NESTED: dict[str, dict[str, Any]] = {
    "one crash": {"nested": 0},
    "in recoveries alone": {"nested": 1, "follow_up": False},
    "two crashes": {"nested": 1},
    "two workers": {"nested": 1, "jobs": 2},
}


def nested_one(bench: Bench, name: str) -> Row:
    """runs: as far as they come to an end."""
    workload = "ace:1" if bench.is_tiny else "smoke"
    exploration = Exploration(bench, name, workload, 1)
    runs: dict[str, Row] = {}
    for what, options in NESTED.items():
        if all(run["complete"] for run in runs.values()):
            runs[what] = exploration.run(probe="full", **options)
    return {"workload": workload, "runs": runs}


def measure_engines(bench: Bench) -> Iterator[list[Row]]:
    return measure_each(bench, "engines", engines_one)


def engines_one(bench: Bench, name: str) -> Row:
    """runs: with a second crash only by the engines that see what recoveries load, as far as they come to an end."""
    workload = "ace:1" if bench.is_tiny else "smoke"
    runs: dict[str, Row] = {}
    for engine in SEEING_ENGINES:
        exploration = Exploration(bench, name, workload, 1, replay_engine=engine)
        runs[engine] = exploration.run(probe="full")
        if runs[engine]["complete"]:
            runs[f"{engine}, second crash"] = exploration.run(probe="full", nested=1, follow_up=False)
    limit = max(int(runs[engine]["recoveries"]) for engine in SEEING_ENGINES)
    isolated = Exploration(bench, name, workload, 1, strategy="mixed", recovery_limit=limit)
    runs["isolated"] = isolated.run(probe="full")
    return {"workload": workload, "runs": runs}


class Exploration:
    """One trace, explored again and again."""

    def __init__(
        self, bench: Bench, name: str, workload: str, operations: int, limit_s: float = LIMIT_S, **options: Any
    ) -> None:
        """options: of the cell."""
        self.workshop, self.limit_s = bench.workshop, limit_s
        options = {"strategy": "complete", "model": "px86", "flush": "clwb", **options}
        spec = CellSpec(name, workload, operations, 1, time_limit_s=limit_s, **options)
        self.cell = prepare(self.workshop, spec)

    def run(self, jobs: int = 1, probe: str = "first", nested: int = 0, follow_up: bool = True) -> Row:
        """cpu_s: of engine and runner, all their processes."""
        with scratch_folder(self.workshop.cache) as folder:
            more = {"probe": probe, "nested": nested, "follow_up": follow_up}
            path = write_config(folder, self.cell, jobs=jobs, more=more)
            clock = Clock()
            command = [str(self.workshop.engine.path), "explore", str(path)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=2 * self.limit_s)
            times = clock.row()
        events = [json.loads(line) for line in run.stdout.splitlines()]
        certificates = [event for event in events if event["event"] == "certificate"]
        if not certificates:
            raise InfrastructureError(f"{self.cell.spec.allocator}: no certificate (exit code {run.returncode})")
        names = ("crash_positions", "recoveries", "peak_memory_bytes", "complete", "why", "engine")
        return {**times, **{name: certificates[-1][name] for name in names}}


def explore_in_words(rows: list[Row], _: bool) -> list[str]:
    lines = []
    for row in rows:
        goal_s, peak_mib = GOALS_S.get(row["allocator"], OTHERS_GOAL_S), row["peak_memory_bytes"] / 2**20
        two_s = row["two_s"]
        two = f"{two_s:.2f} s, {row['one_s'] / two_s:.2f}x (goal >= {JOBS_GOAL}x)" if two_s else "not tried"
        lines.append(
            f"explore: {row['allocator']:<12} {row['operations']:,} operations, first part of the probe: {row['one_s']:.2f} s (goal"
            f" <= {goal_s:.0f} s), {row['recoveries']:,} recoveries; two workers {two}; {peak_mib:.0f} MiB; {whole(row)}"
        )
    return lines


def long_in_words(row: Row, _: bool) -> list[str]:
    return [
        f"explore: nvm_malloc {row['operations']:,} operations, first part of the probe: {row['wall_s']:.0f} s (goal <="
        f" {LONG_GOAL_S:.0f} s), {row['recoveries']:,} recoveries, {row['peak_memory_bytes'] / 2**20:.0f} MiB (goal <="
        f" {PEAK_GOAL_BYTES >> 20} MiB); {whole(row)}"
    ]


def ace_in_words(rows: list[Row], _: bool) -> list[str]:
    lines = []
    for row in rows:
        lines.append(
            f"ace: {row['allocator']:<12} {row['workload']}, first part of the probe: {row['wall_s']:.1f} s, processor time"
            f" {row['cpu_s']:.1f} s (goal <= {ACE_GOAL_S:.0f} s), {row['recoveries']:,} recoveries,"
            f" {row['peak_memory_bytes'] / 2**20:.0f} MiB; {whole(row)}"
        )
        for where, second in zip(("recoveries alone", "what follows them, too"), row["second_crash"], strict=False):
            lines.append(
                f"ace: {row['allocator']:<12} {row['workload']}, a second crash, in {where}: {second['wall_s']:.1f} s,"
                f" processor time {second['cpu_s']:.1f} s (goal <= {NESTED_GOAL * ACE_GOAL_S:.0f} s),"
                f" {second['cpu_s'] / row['cpu_s']:.1f}x,"
                f" {second['recoveries']:,} recoveries, {second['peak_memory_bytes'] / 2**20:.0f} MiB; {whole(second)}"
            )
    return lines


def nested_in_words(rows: list[Row], _: bool) -> list[str]:
    """Of two crashes times against one, where there are both; of two workers the gain in wall time."""
    lines = []
    for row in rows:
        runs: dict[str, Row] = row["runs"]
        said = []
        for what, run in runs.items():
            times = f" ({run['cpu_s'] / runs['one crash']['cpu_s']:.1f}x)"
            goal = f"; goal <= {NESTED_GOAL:.0f}x" if what == "two crashes" else ""
            if what == "two workers":
                times = f" ({runs['two crashes']['wall_s'] / run['wall_s']:.2f}x in wall time)"
            said.append(f"{what} {run['cpu_s']:.2f} s{times}, {run['recoveries']:,} recoveries{goal}")
        last = list(runs.values())[-1]
        peak_mib = max(run["peak_memory_bytes"] for run in runs.values()) / 2**20
        lines.append(
            f"nested: {row['allocator']:<12} {row['workload']}, processor time: {'; '.join(said)}; {peak_mib:.0f} MiB;"
            f" {whole(last)}"
        )
    return lines


def engines_in_words(rows: list[Row], _: bool) -> list[str]:
    lines = []
    for row in rows:
        runs: dict[str, Row] = row["runs"]
        isolated_s = 1 / per_s(runs["isolated"])
        for engine, run in runs.items():
            goal_s = TRACED_GOALS_S.get(row["allocator"]) if engine == "traced" else None
            goal = f" (goal <= {goal_s:.0f} s)" if goal_s else ""
            said = f"{run['recoveries']:,} recoveries in {run['wall_s']:.2f} s{goal}, {per_s(run):,.0f} a second of processor time"
            if engine == "traced":
                said += f", {isolated_s * per_s(run):.3f} of isolated (goal >= {TRACED_GOAL:.3f})"
            lines.append(f"engines: {row['allocator']:<12} {row['workload']}, {engine}: {said}; {whole(run)}")
    return lines


def per_s(run: Row) -> float:
    return float(run["recoveries"] / max(run["cpu_s"], 1e-3))


def whole(row: dict[str, Any]) -> str:
    return "complete" if row["complete"] else f"not complete: {row['why']}"


PARTS = (
    Part("explore", 3600, measure_explore, explore_in_words),
    Part("long", 3600, measure_long, long_in_words),
    Part("ace", 7200, measure_ace, ace_in_words),
    Part("nested", 5400, measure_nested, nested_in_words),
    Part("engines", 3600, measure_engines, engines_in_words),
)
