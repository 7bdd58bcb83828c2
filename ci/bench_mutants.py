# SPDX-License-Identifier: Apache-2.0
"""How long a mutant takes. `make bench PARTS=mutants`: `faultline run ALLOCATOR --mutant M` of each, one at a time with one
worker, from source (builds are cached) to what a person needs of its own rule's finding: what is lost, the repair that was tried,
and the smallest witness."""

from __future__ import annotations

import json
import statistics
import subprocess
import sysconfig
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from bench_parts import Bench, Part

from faultline.base import config
from faultline.report.terminal.streams import note

GOAL_S = 60.0
LIMIT_S = 600
"""Of one mutant."""
REPAIR = "a decided repair"
"""Lacks where the time ends before all repairs are tried."""


def measure(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """A row a mutant; is_tiny: of the first one alone."""
    rows: list[dict[str, Any]] = []
    for name in config.names_with_sources(bench.root):
        for mutant in config.find_allocator(bench.root, name).mutant:
            note(f"mutants: {name} {mutant.id}")
            row = bench.attempt(f"{name} {mutant.id}", measure_one, bench.root, name, mutant)
            if row is not None:
                rows.append(row)
            yield rows
            if bench.is_tiny:
                return


def measure_one(root: Path, allocator: str, mutant: config.Mutant) -> dict[str, Any]:
    faultline = str(Path(sysconfig.get_path("scripts")) / "faultline")
    with tempfile.TemporaryDirectory(dir=root / ".faultline", prefix="bench-") as place:
        command = [faultline, "run", allocator, "--mutant", mutant.id, "--jobs", "1", "--json", "--out", place]
        started = time.perf_counter()
        run = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
        seconds = time.perf_counter() - started
    return {
        "allocator": allocator,
        "mutant": mutant.id,
        "wall_s": seconds,
        "exit_code": run.returncode,
        "lacks": what_lacks(json.loads(run.stdout)["cells"][0], mutant.rule) if run.stdout else ["results"],
    }


def what_lacks(cell: dict[str, Any], rule: str) -> list[str]:
    """Of what a person needs."""
    own = {finding["id"] for finding in cell["findings"] if finding["rule"] == rule}
    if not own:
        return ["a finding of its rule"]
    explained = [one for one in cell["explanations"] if one["finding"] in own]
    shrunk = [one for one in cell["shrunk"] if one["finding"] in own]
    is_cut = bool(explained) and all(one["is_cut"] for one in explained)
    lacks = {"an explanation": not explained, "a shrunk witness": not shrunk, REPAIR: is_cut}
    return [what for what, is_lacking in lacks.items() if is_lacking]


def in_words(rows: list[dict[str, Any]], _: bool) -> list[str]:
    if not rows:
        return []
    seconds = [row["wall_s"] for row in rows]
    late = [row for row in rows if row["wall_s"] > GOAL_S]
    lines = [
        f"faultline run --mutant, {len(rows)} mutants: median {statistics.median(seconds):.1f} s, the slowest {max(seconds):.1f} s"
        f" (goal {GOAL_S:.0f} s each), {len(late)} over it"
    ]
    lines += [f"  {row['allocator']} {row['mutant']}: {row['wall_s']:.1f} s" for row in late]
    lacking = [row for row in rows if row["lacks"]]
    lines.append(f"  of {len(rows) - len(lacking)} the finding is explained, shrunk, and its repair decided")
    return lines + [f"  {row['allocator']} {row['mutant']}: without {', '.join(row['lacks'])}" for row in lacking]


PART = Part("mutants", 7200, measure, in_words)
