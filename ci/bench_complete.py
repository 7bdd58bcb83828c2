# SPDX-License-Identifier: Apache-2.0
"""`make bench PARTS=complete`: what exploring every crash state costs, for each allocator and growing workloads (churn, whose live
set is bounded): crash positions, the number of states, recoveries run and answered from memory, time, peak memory, and with
which power of the number of operations they grow."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_allocators import slope
from bench_parts import Bench, Part

from faultline.base import config
from faultline.base.errors import InfrastructureError
from faultline.report.terminal.streams import note

WORKLOAD = "churn"
OPERATIONS = (100, 300, 1000, 3000)
TINY_OPERATIONS = (4, 8)
LIMIT_S = 900
"""Of one exploration; beyond it a row is not complete, and does not count for the growth."""
RECOVERIES_GOAL = {"nvm_malloc": 10}
"""An operation."""
OTHERS_GOAL = 30
GROWTH_GOAL = 1.05


def measure(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for name in config.names_with_sources(bench.root):
        for ops in TINY_OPERATIONS if bench.is_tiny else OPERATIONS:
            what = f"complete: {name}, {ops} operations"
            note(what)
            row = bench.attempt(what, measure_one, bench.root, name, ops)
            if row is not None:
                rows.append(row)
            yield rows


def measure_one(root: Path, allocator: str, ops: int) -> dict[str, Any]:
    command = [str(Path(sysconfig.get_path("scripts")) / "faultline"), "run", allocator, "--workload", WORKLOAD]
    command += ["--ops", str(ops), "--strategy", "complete", "--time", str(LIMIT_S), "--json"]
    run = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False, timeout=2 * LIMIT_S)
    cell = json.loads(run.stdout)["cells"][0] if run.stdout else {}
    if cell.get("certificate") is None:
        raise InfrastructureError(f"{allocator}, {ops} operations: no certificate (exit code {run.returncode})")
    certificate = cell["certificate"]
    names = ("crash_positions", "states", "recoveries", "memoised", "time_s", "peak_memory_bytes", "complete", "why")
    figures = {name: certificate[name] for name in names}
    return {"allocator": allocator, "operations": ops, "verdict": cell["verdict"], **figures}


def in_words(rows: list[dict[str, Any]], _: bool) -> list[str]:
    lines = [
        "complete: churn; crash positions, states, recoveries run (an operation), answered from memory, time, peak memory"
    ]
    for name in sorted({row["allocator"] for row in rows}):
        mine = [row for row in rows if row["allocator"] == name]
        lines += map(row_in_words, mine)
        lines.append(f"complete: {name} grows as {growth_in_words(mine)} (goal: recoveries <= {GROWTH_GOAL})")
    return lines


def row_in_words(row: dict[str, Any]) -> str:
    each = row["recoveries"] / row["operations"]
    goal = RECOVERIES_GOAL.get(row["allocator"], OTHERS_GOAL)
    whole = "complete" if row["complete"] else f"not complete: {row['why']}"
    return (
        f"complete: {row['allocator']:<12} {row['operations']:>5} operations: {row['crash_positions']:,} positions,"
        f" {row['states']} states, {row['recoveries']:,} recoveries ({each:.1f} an operation, goal <= {goal}),"
        f" {row['memoised']:,} from memory, {row['time_s']:.1f} s, {row['peak_memory_bytes'] / 2**20:.0f} MiB;"
        f" {row['verdict']}, {whole}"
    )


def growth_in_words(rows: list[dict[str, Any]]) -> str:
    whole = [row for row in rows if row["complete"]]
    if len(whole) < 2:
        return "nobody knows: fewer than two complete rows"
    power = {name: slope([(row["operations"], row[name]) for row in whole]) for name in ("recoveries", "time_s")}
    sizes = f"{whole[0]['operations']} to {whole[-1]['operations']} operations"
    return f"operations^{power['recoveries']:.2f} in recoveries and ^{power['time_s']:.2f} in time, {sizes}"


PART = Part("complete", 7200, measure, in_words)
