# SPDX-License-Identifier: Apache-2.0
"""`make bench PARTS=programs`: what programs that Hypothesis draws find, as in a test of a user (docs/pytest.md). Each mutant has a
time; so has each allocator as it is, on which nothing may be found. Builds are not counted, tracing is."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

from bench_parts import Bench, Part
from hypothesis import Phase, Verbosity, given, seed, settings

from faultline.base import config
from faultline.base.errors import FaultlineError
from faultline.pipeline.prepared import build_cell
from faultline.report.terminal.streams import note
from faultline.testing import CrashConsistencyError, Program, UndecidedError, native_settings, programs
from faultline.testing.cells import asked_cell
from faultline.testing.explorer import Explorer

LIMIT_S = 60.0
"""Of one mutant, and of one allocator as it is."""
TINY_LIMIT_S = 1.0
SEED = 1
GOAL_FOUND = 0.9
GOAL_A_SECOND = 3.0
MEASURED = "nvm_malloc"
"""Whose examples a second the goal is about."""
MOST = 1_000_000
"""Examples, more than any limit leaves time for."""
Row = dict[str, Any]


class _OverError(Exception):
    """The time is over."""


def measure(bench: Bench) -> Iterator[list[Row]]:
    """A row an allocator as it is, with mutant "", and a row a mutant; is_tiny: of the first allocator, and its first mutant."""
    rows: list[Row] = []
    limit_s = TINY_LIMIT_S if bench.is_tiny else LIMIT_S
    for name in config.names_with_sources(bench.root):
        mutants = config.find_allocator(bench.root, name).mutant
        for mutant, rule in (("", ""), *((mutant.id, mutant.rule) for mutant in mutants)):
            note(f"programs: {name} {mutant}".rstrip())
            row = bench.attempt(f"{name} {mutant}", hunt, bench, name, mutant, limit_s)
            if row is not None:
                rows.append({"allocator": name, "mutant": mutant, "rule": rule, **row})
            yield rows
            if bench.is_tiny and mutant:
                return


def hunt(bench: Bench, allocator: str, mutant: str, limit_s: float) -> Row:
    """found: the rule of the first finding, or "". At least one program is explored, however long that takes."""
    explorer = Explorer({"cache": str(bench.cache.folder)})
    options = {"allocator": allocator} | ({"mutant": mutant} if mutant else {})
    asked = asked_cell(bench.root, {**options, "workload": "create"})
    build_cell(asked.workshop, asked.spec)
    began = time.monotonic()
    explored: set[Program] = set()

    @seed(SEED)
    @settings(native_settings, max_examples=MOST, phases=[Phase.generate], database=None, verbosity=Verbosity.quiet)
    @given(program=programs(allocator))
    def any_program(program: Program) -> None:
        if explored and time.monotonic() - began > limit_s:
            raise _OverError
        explored.add(program)
        explorer.explore(bench.root, {**options, "workload": program})

    found = ""
    try:
        any_program()
    except CrashConsistencyError as error:
        found = error.result.new_findings[0].rule
    except UndecidedError as error:
        raise FaultlineError(f"no verdict: {str(error).splitlines()[0]}") from None
    except _OverError:
        pass
    return {"found": found, "examples": len(explored), "wall_s": time.monotonic() - began}


def in_words(rows: list[Row], _: bool) -> list[str]:
    if not rows:
        return []
    clean, mutants = [row for row in rows if not row["mutant"]], [row for row in rows if row["mutant"]]
    found = [row for row in mutants if row["found"]]
    wrong = [row for row in clean if row["found"]]
    examples, seconds = sum(row["examples"] for row in rows), sum(row["wall_s"] for row in rows)
    lines = [
        f"mutants found by random programs within {LIMIT_S:.0f} s each: {len(found)} of {len(mutants)}"
        f" (goal {GOAL_FOUND:.0%}), {sum(row['found'] == row['rule'] for row in found)} of them by their own rule first",
        f"allocators as they are with a finding: {len(wrong)} of {len(clean)} (goal 0)",
        f"examples a second: {examples / seconds:.2f}, all rows",
    ]
    lines += [
        f"  {row['allocator']}: {row['examples'] / row['wall_s']:.2f} examples a second"
        + (f" (goal {GOAL_A_SECOND:g})" if row["allocator"] == MEASURED else "")
        + (f"; it has {row['found']}" if row["found"] else "")
        for row in clean
    ]
    for row in mutants:
        how = row["found"] or "not found"
        lines.append(f"  {row['allocator']} {row['mutant']}: {how}, {row['examples']} examples, {row['wall_s']:.1f} s")
    return lines


PARTS = (Part("programs", 14400, measure, in_words, is_default=False),)
