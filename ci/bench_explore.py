# SPDX-License-Identifier: Apache-2.0
"""`make bench PARTS=explore`: how long `complete` takes for churn with the first part of the probe (open, slots, walk, check), for
each allocator, with one worker and with two; `PARTS=long`: nvm_malloc over a hundred times as many operations."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from faultline import config, exploring, tracing, workloads
from faultline.cache import Cache, scratch_folder
from faultline.engine import Engine
from faultline.errors import InfrastructureError
from faultline.results import CellSpec
from faultline.terminal import note

OPERATIONS = 1000
LONG_OPERATIONS = 100_000
TINY_OPERATIONS = 8
ROUNDS = 3
"""Of each timing; the median counts. One worker and two take turns, so that a busy machine slows both."""
GOALS_S = {"nvm_malloc": 2.0}
OTHERS_GOAL_S = 10.0
LONG_GOAL_S = 200.0
JOBS_GOAL = 1.7
PEAK_GOAL_BYTES = 1 << 30
LIMIT_S = 1800


def measure(parts: Sequence[str], root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> dict[str, Any]:
    """What of it is asked for."""
    measured = {"explore": measure_all, "long": measure_long}
    return {part: measured[part](root, cache, engine, is_tiny) for part in parts if part in measured}


def measure_all(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> list[dict[str, Any]]:
    rows = []
    for name in config.allocator_names(root):
        note(f"explore: {name}")
        operations = TINY_OPERATIONS if is_tiny else OPERATIONS
        exploration = Exploration(root, cache, engine, name, operations)
        rounds = [(exploration.run(1), exploration.run(2)) for _ in range(1 if is_tiny else ROUNDS)]
        one_s, two_s = (statistics.median(turn[at]["wall_s"] for turn in rounds) for at in (0, 1))
        rows.append({**rounds[-1][0], "allocator": name, "operations": operations, "one_s": one_s, "two_s": two_s})
    return rows


def measure_long(root: Path, cache: Cache, engine: Engine, is_tiny: bool) -> dict[str, Any]:
    operations = TINY_OPERATIONS if is_tiny else LONG_OPERATIONS
    note(f"explore: nvm_malloc, {operations:,} operations")
    return {"operations": operations, **Exploration(root, cache, engine, "nvm_malloc", operations).run(1)}


class Exploration:
    """One trace, explored again and again."""

    def __init__(self, root: Path, cache: Cache, engine: Engine, name: str, operations: int) -> None:
        allocator = config.find_allocator(root, name)
        self.cache, self.engine = cache, engine
        self.spec = CellSpec(name, "churn", operations, 1, "complete", "px86", "clwb")
        self.workload = workloads.find("churn", operations, 1, allocator.heap, cache)
        self.target = tracing.build_target(root, cache, allocator, None, "clwb", needs_hooks=True)
        self.traced = tracing.trace(cache, engine, self.target, self.workload)

    def run(self, jobs: int) -> dict[str, Any]:
        with scratch_folder(self.cache, None) as folder:
            path = exploring.write_config(folder, self.spec, self.target, self.traced, self.workload, None, jobs)
            path.write_text(json.dumps({**json.loads(path.read_text()), "probe": "first"}))
            started = time.perf_counter()
            command = [str(self.engine.path), "explore", str(path)]
            run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
            seconds = time.perf_counter() - started
        events = [json.loads(line) for line in run.stdout.splitlines()]
        certificates = [event for event in events if event["event"] == "certificate"]
        if not certificates:
            raise InfrastructureError(f"{self.spec.allocator}: no certificate (exit code {run.returncode})")
        names = ("crash_positions", "recoveries", "peak_memory_bytes", "complete", "why")
        return {"wall_s": seconds, **{name: certificates[-1][name] for name in names}}


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
    return lines


def whole(row: dict[str, Any]) -> str:
    return "complete" if row["complete"] else f"not complete: {row['why']}"
