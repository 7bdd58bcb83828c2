# SPDX-License-Identifier: Apache-2.0
"""How long a mutant takes: `faultline run ALLOCATOR --mutant M` of each, one at a time with one worker, from source (builds are
cached). `make bench PARTS=mutants`: to what a person needs of its own rule's finding: what is lost, the repair that was tried, and
the smallest witness. `make bench PARTS=behind`: one workload without a stop rule, to its end. `make bench PARTS=places`: the same
of the allocator as it is without one of its flushes and fences, each in turn, from its trace to the certificate."""

from __future__ import annotations

import json
import statistics
import subprocess
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from bench_parts import Bench, Clock, Part

from faultline.base import config
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Certificate, Event, Finding, Place
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.report.terminal.streams import note
from faultline.study.mutate import places_of

RowOf = Callable[[Path, str, config.Mutant], dict[str, Any]]

GOAL_S = 60.0
LIMIT_S = 600
"""Of one mutant."""
OPERATIONS = 80
TO_THE_END = ("-w", "churn", "--ops", str(OPERATIONS), "--stop-at-rule", "none")
REPAIR = "a decided repair"
"""Lacks where the time ends before all repairs are tried."""


def measure(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """A row a mutant; is_tiny: of the first one alone."""
    return measure_each(bench, "mutants", needed)


def measure_behind(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """A row a mutant; is_tiny: of the first one alone."""
    return measure_each(bench, "behind", seen_to_the_end)


def measure_each(bench: Bench, part: str, row_of: RowOf) -> Iterator[list[dict[str, Any]]]:
    rows: list[dict[str, Any]] = []
    for name in config.names_with_sources(bench.root):
        for mutant in config.find_allocator(bench.root, name).mutant:
            note(f"{part}: {name} {mutant.id}")
            row = bench.attempt(f"{name} {mutant.id}", row_of, bench.root, name, mutant)
            if row is not None:
                rows.append({"allocator": name, "mutant": mutant.id, **row})
            yield rows
            if bench.is_tiny:
                return


def needed(root: Path, allocator: str, mutant: config.Mutant) -> dict[str, Any]:
    row, cell = timed_run(root, allocator, mutant)
    return {**row, "lacks": what_lacks(cell, mutant.rule) if cell else ["results"]}


def seen_to_the_end(root: Path, allocator: str, mutant: config.Mutant) -> dict[str, Any]:
    """rules: of its findings, the shown one first; ended: no limit was hit; behind: how the exploration looked behind findings."""
    row, cell = timed_run(root, allocator, mutant, *TO_THE_END)
    certificate = cell.get("certificate") or {}
    return {
        **row,
        "rules": [finding["rule"] for finding in cell.get("findings", [])],
        "explained": len(cell.get("explanations", [])),
        "ended": bool(certificate) and not certificate.get("stopped"),
        "recoveries": certificate.get("recoveries", 0),
        "behind": [behind["how"] for behind in certificate.get("behind", [])],
    }


def measure_places(bench: Bench) -> Iterator[list[dict[str, Any]]]:
    """A row a flush or fence; is_tiny: of the first one alone."""
    rows: list[dict[str, Any]] = []
    for name in config.names_with_sources(bench.root):
        spec = CellSpec(name, "churn", OPERATIONS, 1, "complete", "px86", "clwb", time_limit_s=LIMIT_S)
        cell = prepare(bench.workshop, spec)
        for place in places_of(cell):
            note(f"places: {name} {place.name}")
            row = bench.attempt(f"{name} {place.name}", without, cell, place)
            if row is not None:
                rows.append({"allocator": name, "mutant": place.name, **row})
            yield rows
            if bench.is_tiny:
                return


def without(cell: PreparedCell, place: Place) -> dict[str, Any]:
    events: list[Event] = []
    clock = Clock()
    explore(cell, events.append, more={"edits": [{"edit": "without", "sites": place.sites}]})
    taken = clock.row()
    certificate = [event for event in events if isinstance(event, Certificate)][-1]
    return {
        **taken,
        "rules": [event.rule for event in events if isinstance(event, Finding)],
        "ended": certificate.stopped is None,
        "recoveries": certificate.recoveries,
        "behind": [behind.how for behind in certificate.behind],
    }


def timed_run(root: Path, allocator: str, mutant: config.Mutant, *more: str) -> tuple[dict[str, Any], dict[str, Any]]:
    """Its time and exit code, and its cell of results.json: empty where it wrote none."""
    faultline = str(Path(sysconfig.get_path("scripts")) / "faultline")
    with tempfile.TemporaryDirectory(dir=root / ".faultline", prefix="bench-") as place:
        command = [faultline, "run", allocator, "--mutant", mutant.id, *more, "--jobs", "1", "--json", "--out", place]
        clock = Clock()
        run = subprocess.run(command, cwd=root, stdout=subprocess.PIPE, text=True, check=False, timeout=LIMIT_S)
        taken = clock.row()
    cell = json.loads(run.stdout)["cells"][0] if run.stdout else {}
    return {**taken, "exit_code": run.returncode}, cell


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


def times(rows: list[dict[str, Any]], what: str) -> list[str]:
    seconds, cpu_s = [row["wall_s"] for row in rows], [row["cpu_s"] for row in rows]
    late = [row for row in rows if row["wall_s"] > GOAL_S]
    return [
        f"{what}: {len(rows)}, median {statistics.median(seconds):.1f} s, the slowest {max(seconds):.1f} s"
        f" (goal {GOAL_S:.0f} s each), {len(late)} over it;"
        f" of a processor: median {statistics.median(cpu_s):.1f} s, at most {max(cpu_s):.1f} s",
        *(f"  {row['allocator']} {row['mutant']}: {row['wall_s']:.1f} s" for row in late),
    ]


def in_words(rows: list[dict[str, Any]], _: bool) -> list[str]:
    if not rows:
        return []
    lines = times(rows, "faultline run --mutant M, mutants")
    lacking = [row for row in rows if row["lacks"]]
    lines.append(f"  of {len(rows) - len(lacking)} the finding is explained, shrunk, and its repair decided")
    return lines + [f"  {row['allocator']} {row['mutant']}: without {', '.join(row['lacks'])}" for row in lacking]


def behind_in_words(rows: list[dict[str, Any]], _: bool) -> list[str]:
    return to_the_end_in_words(rows, f"faultline run --mutant M {' '.join(TO_THE_END)}, mutants")


def places_in_words(rows: list[dict[str, Any]], _: bool) -> list[str]:
    return to_the_end_in_words(rows, f"churn, {OPERATIONS} operations, without a flush or a fence")


def to_the_end_in_words(rows: list[dict[str, Any]], what: str) -> list[str]:
    if not rows:
        return []
    lines = times(rows, what)
    found = [row for row in rows if row["rules"]]
    further = [len(row["rules"]) - 1 for row in found]
    ended, behind = sum(row["ended"] for row in rows), sum(bool(row["behind"]) for row in rows)
    lines += [
        f"  {len(found)} have findings, {sum(count > 0 for count in further)} of them further ones: {sum(further)} in all",
        f"  {ended} ended by themselves, {behind} looked behind a finding",
    ]
    for row in rows:
        how = ", ".join([f"{row['recoveries']:,} recoveries", *sorted(set(row["behind"]))])
        rules, end = " ".join(row["rules"]) or "no finding", "" if row["ended"] else ", stopped"
        taken = f"{row['wall_s']:.1f} s ({row['cpu_s']:.1f} of a processor)"
        lines.append(f"  {row['allocator']} {row['mutant']}: {taken}, {rules}; {how}{end}")
    return lines


PARTS = (
    Part("mutants", 7200, measure, in_words),
    Part("behind", 7200, measure_behind, behind_in_words),
    Part("places", 7200, measure_places, places_in_words),
)
