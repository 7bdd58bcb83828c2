# SPDX-License-Identifier: Apache-2.0
"""Does it find bugs: of the simple strategies, exactly those in `killed_by` kill a mutant by its expected rule. That `complete`
kills all of them is in test_matrix.py.

A strategy that kills a mutant ends there. One that does not explores to the end, which takes minutes for prefix, an image a store.
A share is shown each time, others at each commit: of each allocator and strategy one that is killed, and one that is not. All are
shown in the nightly run. So is sample."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Faultline
from drawn import drawn
from faultline.base.cache import project_root
from faultline.base.config import KILL_STRATEGIES, KillStrategy, Matrix, Mutant, find_allocator, read_toml
from faultline.base.project import Project
from faultline.campaign.matrix import cells_of_matrix
from faultline.pipeline.cell import CellSpec

ROOT = project_root()
MATRIX = cells_of_matrix(Project(ROOT).allocator, read_toml(ROOT / "ci" / "matrix.toml", Matrix))
MUTANTS = [spec for spec in MATRIX if spec.mutant and spec.strategy == "complete"]
SAMPLES = 4
"""With which `killed_by` was measured."""
LONG = {"allocators/pallocator/workloads/holes.workload", "allocators/pallocator/workloads/segments.workload"}
"""Workloads with more than fifty thousand crash positions: a mutant of one that survives `prefix` takes five minutes."""
WITHOUT_CRASH = "FL017"
"""Shown before the first recovery: an exploration that stops at it makes none."""


def mutant_of(spec: CellSpec) -> Mutant:
    return find_allocator(ROOT, spec.allocator).mutant_named(str(spec.mutant))


def share(allocator: str, strategy: KillStrategy) -> list[CellSpec]:
    """A mutant that the strategy kills, and one that it does not, of no long workload."""
    specs = [spec for spec in MUTANTS if spec.allocator == allocator]
    killed = [spec for spec in specs if strategy in mutant_of(spec).killed_by]
    survivors = [spec for spec in specs if spec not in killed and spec.workload not in LONG]
    return [spec for some in (killed, survivors) for spec in drawn(ROOT, some, 1)]


ALLOCATORS = sorted({spec.allocator for spec in MUTANTS})
SHARE = {strategy: [spec for name in ALLOCATORS for spec in share(name, strategy)] for strategy in KILL_STRATEGIES}


def is_nightly(spec: CellSpec, strategy: KillStrategy) -> bool:
    return strategy == "sample" or spec not in SHARE[strategy]


PAIRS = [
    pytest.param(
        spec,
        strategy,
        marks=[pytest.mark.nightly] if is_nightly(spec, strategy) else [],
        id=f"{spec.allocator}-{spec.mutant}-{strategy}",
    )
    for spec in MUTANTS
    for strategy in KILL_STRATEGIES
]


def explore(faultline: Faultline, spec: CellSpec, *options: str) -> dict[str, object]:
    arguments = [*spec.command_line().split()[1:], "--no-explain", "--no-shrink", "--json", *options]
    run = faultline(*arguments)
    assert run.returncode in (0, 1), run.stderr
    cell: dict[str, object] = json.loads(run.stdout)["cells"][0]
    return cell


def rules(cell: dict[str, object]) -> set[str]:
    return {finding["rule"] for finding in cell["findings"]}  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "strategy"), PAIRS)
def test_a_strategy_kills_the_mutants_it_is_said_to(faultline: Faultline, spec: CellSpec, strategy: str) -> None:
    options = ["--strategy", strategy, "--samples", str(SAMPLES), "--stop-at-rule", str(spec.expected_rule)]
    cell = explore(faultline, spec, *options)
    assert (spec.expected_rule in rules(cell)) == (strategy in mutant_of(spec).killed_by), rules(cell)
    if spec.expected_rule != WITHOUT_CRASH:
        assert cell["certificate"]["recoveries"] > 0  # type: ignore[index]


@pytest.mark.parametrize(
    ("allocator", "mutants", "prefix", "floor"),
    [("nvm_malloc", 16, 6, 1), ("makalu", 14, 5, 1), ("pallocator", 22, 13, 6), ("nvmalloc", 17, 10, 5)],
)
def test_the_simple_strategies_are_not_enough(allocator: str, mutants: int, prefix: int, floor: int) -> None:
    specs = [spec for spec in MUTANTS if spec.allocator == allocator]
    survivors = {
        strategy: {s.mutant for s in specs if strategy not in mutant_of(s).killed_by} for strategy in KILL_STRATEGIES
    }
    assert len(specs) >= mutants
    assert len(survivors["prefix"]) >= prefix
    assert len(survivors["floor"]) >= floor


@pytest.mark.slow
def test_the_clean_allocator_has_findings_under_no_flush_instruction(faultline: Faultline, tmp_path: Path) -> None:
    """A short file of its own: three flush instructions through the whole pipeline."""
    path = tmp_path / "short.workload"
    path.write_text("workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 2048\nfree 0\nreopen\nreallocate 1 64\n")
    for flush in ("clwb", "clflushopt", "clflush"):
        run = faultline(
            "run", "nvm_malloc", "-w", path, "--flush", flush, "--samples", "1", "--exhaustive-states", "64"
        )
        assert run.returncode == 0, run.stdout + run.stderr
        assert " findings=0 " in run.stdout.splitlines()[-1]


@pytest.mark.slow
def test_one_bug_is_one_finding_a_rule(faultline: Faultline, tmp_path: Path) -> None:
    """Whatever else was lost with it: each finding names the function whose store was never flushed."""
    path = tmp_path / "short.workload"
    path.write_text("workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 64\nfree 0\n")
    mutant = ("--mutant", "MISSING_FLUSH_LINK", "--stop-at-rule", "none", "--no-explain", "--no-shrink")
    run = faultline("run", "nvm_malloc", "-w", path, *mutant, "--samples", "1", "--json")
    findings = json.loads(run.stdout)["cells"][0]["findings"]
    assert {finding["sites"][0]["function"] for finding in findings} == {"set_links"}
    assert len(findings) == len({finding["rule"] for finding in findings}) > 1
    assert sum(finding["seen"] for finding in findings) > 50
    assert json.loads(run.stdout)["cells"][0]["certificate"]["complete"]
