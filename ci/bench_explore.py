# SPDX-License-Identifier: Apache-2.0
"""How long `complete` takes. `make bench PARTS=explore`: churn with the first part of the probe (open, slots, walk, check), for
each allocator, with one worker and with two; `PARTS=long`: nvm_malloc over a hundred times as many operations; `PARTS=ace`: every
sequence of three operations, and the same for a second crash, in recoveries alone and in what follows them, too; `PARTS=nested`:
smoke, with all of the probe, for the same crashes."""

from __future__ import annotations

import json
import resource
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faultline.base import config
from faultline.base.cache import Cache, scratch_folder
from faultline.base.errors import InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import prepare
from faultline.pipeline.workshop import Workshop
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
LIMIT_S = 1800


def measure(parts: Sequence[str], root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> dict[str, Any]:
    """What of it is asked for."""
    measured = {"explore": measure_all, "long": measure_long, "ace": measure_ace, "nested": measure_nested}
    return {part: measured[part](root, cache, engine, is_tiny) for part in parts if part in measured}


def measure_all(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> list[dict[str, Any]]:
    rows = []
    for name in config.allocator_names(root):
        note(f"explore: {name}")
        operations = TINY_OPERATIONS if is_tiny else OPERATIONS
        exploration = Exploration(root, cache, engine, name, "churn", operations)
        rounds = [(exploration.run(1), exploration.run(2)) for _ in range(1 if is_tiny else ROUNDS)]
        one_s, two_s = (statistics.median(turn[at]["wall_s"] for turn in rounds) for at in (0, 1))
        rows.append({**rounds[-1][0], "allocator": name, "operations": operations, "one_s": one_s, "two_s": two_s})
    return rows


def measure_long(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> dict[str, Any]:
    operations = TINY_OPERATIONS if is_tiny else LONG_OPERATIONS
    note(f"explore: nvm_malloc, {operations:,} operations")
    return {"operations": operations, **Exploration(root, cache, engine, "nvm_malloc", "churn", operations).run()}


def measure_ace(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> list[dict[str, Any]]:
    workload, rows = "ace:1" if is_tiny else "ace:3", []
    for name in config.allocator_names(root):
        note(f"ace: {name}")
        exploration = Exploration(root, cache, engine, name, workload, 1)
        second = [exploration.run(nested=1, follow_up=follow_up) for follow_up in (False, True)]
        rows.append({"allocator": name, "workload": workload, **exploration.run(), "second_crash": second})
    return rows


def measure_nested(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> list[dict[str, Any]]:
    rows = []
    for name in config.allocator_names(root):
        note(f"nested: {name}")
        workload = "ace:1" if is_tiny else "smoke"
        exploration = Exploration(root, cache, engine, name, workload, 1)
        rows.append(
            {
                "allocator": name,
                "workload": workload,
                "crashes": [exploration.run(probe="full", nested=nested) for nested in (0, 1)],
                "in_recoveries": exploration.run(probe="full", nested=1, follow_up=False),
                "two_workers": exploration.run(2, probe="full", nested=1),
            }
        )
    return rows


class Exploration:
    """One trace, explored again and again."""

    def __init__(self, root: Path, cache: Cache, engine: Engine, name: str, workload: str, operations: int) -> None:
        self.workshop = Workshop(root, cache, engine)
        spec = CellSpec(name, workload, operations, 1, "complete", "px86", "clwb")
        self.cell = prepare(self.workshop, spec)

    def run(self, jobs: int = 1, probe: str = "first", nested: int = 0, follow_up: bool = True) -> dict[str, Any]:
        """cpu_s: of engine and runner, all their processes."""
        with scratch_folder(self.workshop.cache) as folder:
            more = {"probe": probe, "nested": nested, "follow_up": follow_up}
            path = write_config(folder, self.cell, jobs=jobs, more=more)
            cpu_s, started = cpu_of_children_s(), time.perf_counter()
            command = [str(self.workshop.engine.path), "explore", str(path)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
            times = {"wall_s": time.perf_counter() - started, "cpu_s": cpu_of_children_s() - cpu_s}
        events = [json.loads(line) for line in run.stdout.splitlines()]
        certificates = [event for event in events if event["event"] == "certificate"]
        if not certificates:
            raise InfrastructureError(f"{self.cell.spec.allocator}: no certificate (exit code {run.returncode})")
        names = ("crash_positions", "recoveries", "peak_memory_bytes", "complete", "why")
        return {**times, **{name: certificates[-1][name] for name in names}}


def cpu_of_children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def in_words(figures: dict[str, Any]) -> list[str]:
    lines = []
    for row in figures.get("explore", []):
        goal_s, peak_mib = GOALS_S.get(row["allocator"], OTHERS_GOAL_S), row["peak_memory_bytes"] / 2**20
        lines.append(
            f"explore: {row['allocator']:<12} {row['operations']:,} operations, first part of the probe: {row['one_s']:.2f} s (goal"
            f" <= {goal_s:.0f} s), {row['recoveries']:,} recoveries; two workers {row['two_s']:.2f} s,"
            f" {row['one_s'] / row['two_s']:.2f}x (goal >= {JOBS_GOAL}x); {peak_mib:.0f} MiB; {whole(row)}"
        )
    if row := figures.get("long"):
        lines.append(
            f"explore: nvm_malloc {row['operations']:,} operations, first part of the probe: {row['wall_s']:.0f} s (goal <="
            f" {LONG_GOAL_S:.0f} s), {row['recoveries']:,} recoveries, {row['peak_memory_bytes'] / 2**20:.0f} MiB (goal <="
            f" {PEAK_GOAL_BYTES >> 20} MiB); {whole(row)}"
        )
    for row in figures.get("ace", []):
        lines.append(
            f"ace: {row['allocator']:<12} {row['workload']}, first part of the probe: {row['wall_s']:.1f} s, processor time"
            f" {row['cpu_s']:.1f} s (goal <= {ACE_GOAL_S:.0f} s), {row['recoveries']:,} recoveries,"
            f" {row['peak_memory_bytes'] / 2**20:.0f} MiB; {whole(row)}"
        )
        for where, second in zip(("recoveries alone", "what follows them, too"), row["second_crash"], strict=True):
            lines.append(
                f"ace: {row['allocator']:<12} {row['workload']}, a second crash, in {where}: {second['wall_s']:.1f} s,"
                f" processor time {second['cpu_s']:.1f} s (goal <= {NESTED_GOAL * ACE_GOAL_S:.0f} s),"
                f" {second['cpu_s'] / row['cpu_s']:.1f}x,"
                f" {second['recoveries']:,} recoveries, {second['peak_memory_bytes'] / 2**20:.0f} MiB; {whole(second)}"
            )
    for row in figures.get("nested", []):
        (one, two), short = row["crashes"], row["in_recoveries"]
        workers_s = row["two_workers"]["wall_s"]
        lines.append(
            f"nested: {row['allocator']:<12} {row['workload']}, processor time for one crash {one['cpu_s']:.2f} s,"
            f" {one['recoveries']:,} recoveries; for two {two['cpu_s']:.1f} s, {two['recoveries']:,}:"
            f" {two['cpu_s'] / one['cpu_s']:.1f}x (goal <= {NESTED_GOAL:.0f}x); in recoveries alone {short['cpu_s']:.1f} s,"
            f" {short['recoveries']:,}: {short['cpu_s'] / one['cpu_s']:.1f}x; two workers"
            f" {two['wall_s'] / workers_s:.2f}x; {two['peak_memory_bytes'] / 2**20:.0f} MiB; {whole(two)}"
        )
    return lines


def whole(row: dict[str, Any]) -> str:
    return "complete" if row["complete"] else f"not complete: {row['why']}"
