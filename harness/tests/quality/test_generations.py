# SPDX-License-Identifier: Apache-2.0
"""Crashes after the crash: in recoveries, and in what follows them. Mutants whose recovery breaks what one crash does not show.

test_matrix.py kills all of these mutants each time. Here one of each allocator is looked at closer each time, and all in the
nightly run."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.config import names_with_sources, read_allocator

ROOT = Path(__file__).resolve().parents[3]
MUTANTS = [
    (allocator.name, mutant.id, allocator.workload_of(mutant))
    for allocator in (read_allocator(path) for path in sorted((ROOT / "allocators").glob("*/allocator.toml")))
    for mutant in allocator.mutant
    if mutant.nested and mutant.rule == "FL014"
]
"""What another address alone breaks after a second crash is FL015."""

FEWEST = 3
"""Such mutants of each allocator."""
SHARE = [
    random.Random(1).choice([mutant for mutant in MUTANTS if mutant[0] == name])
    for name in sorted({name for name, _, _ in MUTANTS})
]
BY_SHARE = [pytest.param(*mutant, marks=[] if mutant in SHARE else [pytest.mark.nightly]) for mutant in MUTANTS]
OPERATIONS = 12
MORE_OPERATIONS = {"RECOVERY_TRIMS": 40}
"""Of the matrix: the last heap block must be a free one when power fails."""


def run(faultline: Faultline, *arguments: str) -> dict[str, Any]:
    more = ("--strategy", "complete", "--no-explain", "--no-shrink", "--json")
    return dict(json.loads(faultline("run", *arguments, *more).stdout)["cells"][0])


def test_each_allocator_has_some() -> None:
    counts = Counter(allocator for allocator, _, _ in MUTANTS)
    assert set(counts) == set(names_with_sources(ROOT))
    assert min(counts.values()) >= FEWEST, counts


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant", "workload"), BY_SHARE)
def test_a_second_crash_shows_what_one_does_not(
    faultline: Faultline, allocator: str, mutant: str, workload: str
) -> None:
    operations = MORE_OPERATIONS.get(mutant, OPERATIONS)
    cell = (allocator, "--workload", workload, "--ops", str(operations), "--mutant", mutant)
    shown = run(faultline, *cell, "--stop-at-rule", "FL014")
    assert {finding["rule"] for finding in shown["findings"]} == {"FL014"}
    token = shown["findings"][0]["token"]
    replayed = faultline("replay", token, "--json")
    assert replayed.returncode == 1, replayed.stderr
    assert json.loads(replayed.stdout)["findings"][0]["message"] == shown["findings"][0]["message"]


@pytest.mark.parametrize(("allocator", "mutant", "workload"), BY_SHARE)
def test_one_crash_shows_nothing_of_it(faultline: Faultline, allocator: str, mutant: str, workload: str) -> None:
    """Whatever it leaves: all of its states are explored."""
    operations = MORE_OPERATIONS.get(mutant, OPERATIONS)
    cell = (allocator, "--workload", workload, "--ops", str(operations), "--mutant", mutant)
    once = run(faultline, *cell, "--nested", "0", "--stop-at-rule", "none")
    assert (once["findings"], once["certificate"]["complete"]) == ([], True), once["certificate"]["why"]
    assert once["certificate"]["later_positions"] == 0


@pytest.mark.slow
def test_what_follows_a_recovery_shows_what_recoveries_alone_do_not(faultline: Faultline) -> None:
    """A ring entry that was replayed stays valid: the next recovery replays it over memory that is an object's by then."""
    cell = ("nvm_malloc", "--workload", "sizes", "--mutant", "REPLAYED_ENTRY_STAYS", "--stop-at-rule", "none")
    alone = run(faultline, *cell, "--no-follow-up")
    assert (alone["findings"], alone["certificate"]["complete"]) == ([], True), alone["certificate"]["why"]
    assert alone["certificate"]["later_positions"] > 0


@pytest.mark.slow
def test_recovery_of_a_clean_allocator_bears_crashes(faultline: Faultline) -> None:
    cell = run(faultline, "nvm_malloc", "--workload", "churn", "--ops", "4", "--nested", "1")
    certificate = cell["certificate"]
    assert (cell["verdict"], certificate["complete"]) == ("pass", True), certificate["why"]
    assert "FL014" in certificate["rules_judged"]
    once = run(faultline, "nvm_malloc", "--workload", "churn", "--ops", "4")["certificate"]
    assert "FL014" not in once["rules_judged"]
    assert certificate["crash_positions"] == once["crash_positions"], "later generations are counted apart"
    assert certificate["later_positions"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("allocator", ["nvm_malloc", "makalu", "nvmalloc", "pallocator"])
def test_power_may_fail_three_times(faultline: Faultline, allocator: str) -> None:
    """What a third crash may leave is more than what two may, and all of it is explored."""
    cell = (allocator, "--workload", "churn", "--ops", "2", "--no-follow-up", "--nested")
    twice, thrice = (run(faultline, *cell, nested) for nested in ("1", "2"))
    for one in (twice, thrice):
        assert (one["verdict"], one["certificate"]["complete"]) == ("pass", True), one["certificate"]["why"]
    assert thrice["certificate"]["later_positions"] > 2 * twice["certificate"]["later_positions"]
    assert "power fails 2 times more in recoveries" in thrice["certificate"]["covers"]


@pytest.mark.slow
def test_without_what_follows_recoveries_there_are_fewer_crashes(faultline: Faultline) -> None:
    """And the certificate says so."""
    nested = ("nvm_malloc", "--workload", "churn", "--ops", "4", "--nested", "1")
    whole, short = (run(faultline, *nested, *more)["certificate"] for more in ((), ("--no-follow-up",)))
    assert (short["complete"], "FL014" in short["rules_judged"]) == (True, True)
    assert 0 < short["later_positions"] < whole["later_positions"] / 2
    assert "; power fails again in recoveries and in what follows them" in whole["covers"]
    assert "; power fails again in recoveries, not in what follows them" in short["covers"]


def test_no_follow_up_is_about_second_crashes(faultline: Faultline) -> None:
    refused = faultline("run", "nvm_malloc", "--workload", "smoke", "--no-follow-up")
    assert_one_clear_line(refused, 2, "--no-follow-up is about second crashes", "give --nested 1, too")


@pytest.mark.slow
def test_what_a_follow_up_left_in_a_graph_is_judged_after_the_next_crash(faultline: Faultline, tmp_path: Path) -> None:
    """Its objects lie in slots behind the graph's, and have no fields."""
    workload = tmp_path / "graph.workload"
    workload.write_text("workload 1\nslots 2 graph\ncase\nallocate 0 16\nallocate 1 16\nlink 0 0 1\ndrop 1\n")
    cell = run(faultline, "makalu", "--workload", str(workload), "--nested", "1")
    assert (cell["verdict"], cell["certificate"]["complete"]) == ("pass", True), cell["certificate"]["unknown_reasons"]
    assert cell["certificate"]["later_positions"] > 0
