# SPDX-License-Identifier: Apache-2.0
"""Does it find bugs: every mutant is killed by its expected rule, and a mutant that is said to survive a strategy does."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from conftest import Faultline
from faultline.cache import project_root
from faultline.campaign import cells_of_matrix
from faultline.config import Matrix, find_allocator, read_toml
from faultline.results import CellSpec

ROOT = project_root()
MUTANTS = [spec for spec in cells_of_matrix(ROOT, read_toml(ROOT / "ci" / "matrix.toml", Matrix)) if spec.mutant]
SURVIVORS = [
    (spec, strategy)
    for spec in MUTANTS
    for strategy in find_allocator(ROOT, spec.allocator).mutant_named(str(spec.mutant)).survives
]


def explore(faultline: Faultline, spec: CellSpec, *options: str) -> dict[str, object]:
    arguments = [*spec.command_line().split()[1:], "--json", *options]
    run = faultline(*arguments)
    assert run.returncode in (0, 1), run.stderr
    cell: dict[str, object] = json.loads(run.stdout)["cells"][0]
    return cell


def rules(cell: dict[str, object]) -> set[str]:
    return {finding["rule"] for finding in cell["findings"]}  # type: ignore[attr-defined]


@pytest.mark.slow
@pytest.mark.parametrize("spec", MUTANTS, ids=lambda spec: spec.mutant)
def test_a_mutant_is_killed_by_its_expected_rule(faultline: Faultline, spec: CellSpec) -> None:
    assert spec.expected_rule in rules(explore(faultline, spec, "--stop-at-rule", str(spec.expected_rule)))


@pytest.mark.slow
@pytest.mark.parametrize(("spec", "strategy"), SURVIVORS, ids=lambda value: getattr(value, "mutant", value))
def test_a_mutant_survives_the_strategies_it_is_said_to(faultline: Faultline, spec: CellSpec, strategy: str) -> None:
    cell = explore(faultline, spec, "--strategy", strategy)
    assert cell["verdict"] == "pass", rules(cell)
    assert cell["certificate"]["recoveries"] > 0  # type: ignore[index]


def test_three_mutants_survive_prefix() -> None:
    assert len({spec.mutant for spec, strategy in SURVIVORS if strategy == "prefix"}) >= 3


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
    run = faultline("run", "nvm_malloc", "-w", path, "--mutant", "MISSING_FLUSH_LINK", "--samples", "1", "--json")
    findings = json.loads(run.stdout)["cells"][0]["findings"]
    assert {finding["sites"][0]["function"] for finding in findings} == {"set_links"}
    assert len(findings) == len({finding["rule"] for finding in findings}) > 1
    assert sum(finding["seen"] for finding in findings) > 100
