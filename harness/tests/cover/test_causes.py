# SPDX-License-Identifier: Apache-2.0
"""Findings with one cause are one entry, on the terminal, in report.html and in results.sarif."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

import samples
from faultline.campaign.causes import causes_of
from faultline.campaign.results import CellResult
from faultline.pipeline.events import Finding, Loss, Site
from faultline.report import sarif
from faultline.report.terminal.campaigns import print_results
from faultline.study.explanation import Explanation, RepairTrial

PLACE = Site("nvm_free", "allocators/x/src/free.c", 31)


def finding(name: str, **changes: Any) -> Finding:
    return samples.finding(id=name, rule=name[:5], token=f"fl1{name}", **changes)


def logic(name: str, fact: str, at: Site, **changes: Any) -> Finding:
    """Every store is persisted."""
    return finding(name, fact=fact, lost=None, sites=[at], **changes)


def cell(*findings: Finding, workload: str = "churn", **repairs: str) -> CellResult:
    """repairs: of findings, by their ids with _ for -; each was tried and helps."""
    result = CellResult(samples.spec(workload=workload), verdict="fail", findings=list(findings))
    for name, text in repairs.items():
        trial = RepairTrial(text, "helps", recoveries=9, is_complete=True)
        result.explanations.append(Explanation(name.replace("_", "-"), "", "", "", [trial]))
    return result


def grouped(*results: CellResult) -> list[list[str]]:
    return [[found.finding.id for found in (cause.first, *cause.others)] for cause in causes_of(results)]


def test_findings_that_lack_the_same_store_are_one_entry_and_the_earliest_crash_is_first() -> None:
    later = finding("FL004-a", position=511)
    elsewhere = finding("FL008-c", position=10, lost=Loss(PLACE))
    assert grouped(cell(later, finding("FL008-b", position=508), elsewhere)) == [["FL008-b", "FL004-a"], ["FL008-c"]]


def test_what_says_most_of_the_heap_comes_before_a_recovery_that_dies() -> None:
    assert grouped(cell(finding("FL001-a", position=5), finding("FL006-b", position=9))) == [["FL006-b", "FL001-a"]]


def test_fewer_crashes_are_nearer_to_the_cause() -> None:
    twice = finding("FL004-a", is_later=True, position=3)
    assert grouped(cell(twice, finding("FL004-b", position=90))) == [["FL004-b", "FL004-a"]]


def test_a_step_that_fails_without_a_crash_is_one_entry_in_whichever_life() -> None:
    def without(name: str, fact: str) -> Finding:
        return samples.finding(id=name, rule="FL017", token="", lost=None, sites=[], fact=f"without-crash {fact}")

    drains = [without(f"FL017-{life}", f"answered {life}/drain status-1") for life in ("executed", "use")]
    others = [without("FL017-died", "died use/drain signal-6"), without("FL017-close", "answered use/close status-1")]
    found = grouped(cell(finding("FL004-a", position=1), *drains, *others))
    assert found == [["FL004-a"], ["FL017-executed", "FL017-use"], ["FL017-died"], ["FL017-close"]]


def test_one_repair_is_one_cause_and_two_repairs_are_two() -> None:
    other = finding("FL008-b", lost=Loss(PLACE))
    assert grouped(cell(finding("FL004-a"), other, FL004_a="clwb", FL008_b="clwb")) == [["FL004-a", "FL008-b"]]
    same = finding("FL008-b")
    assert grouped(cell(finding("FL004-a"), same, FL004_a="clwb", FL008_b="sfence")) == [["FL004-a"], ["FL008-b"]]


def test_one_that_was_not_explained_joins_one_that_was_where_both_lack_the_same_store() -> None:
    assert grouped(cell(finding("FL004-a"), finding("FL008-b"), FL004_a="clwb")) == [["FL004-a", "FL008-b"]]


def test_where_nothing_is_lost_the_same_fact_or_the_same_place_is_one_cause() -> None:
    here, there, third = Site("f", "a.c", 1), Site("f", "a.c", 2), Site("f", "a.c", 3)
    leaks = [logic("FL009-a", "block-leaked", here), logic("FL009-b", "block-leaked", there)]
    overlap = logic("FL006-c", "blocks-overlap", there)
    apart = logic("FL011-d", "check-failed", third)
    assert grouped(cell(*leaks, overlap, apart)) == [["FL009-a", "FL009-b", "FL006-c"], ["FL011-d"]]


def test_a_store_at_an_unknown_place_joins_nothing() -> None:
    unknown = Loss(Site(""))
    first, second = (finding(name, lost=unknown, fact=name, sites=[]) for name in ("FL004-a", "FL008-b"))
    assert grouped(cell(first, second)) == [["FL004-a"], ["FL008-b"]]


def test_builds_and_known_findings_stand_apart() -> None:
    mutant = cell(finding("FL004-a"))
    mutant.spec = msgspec.structs.replace(mutant.spec, mutant="M")
    assert grouped(mutant, cell(finding("FL004-a"))) == [["FL004-a"], ["FL004-a"]]
    known = finding("FL008-b", known="an old bug", position=1)
    assert grouped(cell(known, finding("FL004-a"))) == [["FL008-b"], ["FL004-a"]]


def test_one_id_in_several_cells_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    results = [cell(finding("FL004-a")), cell(finding("FL004-a"), finding("FL008-b", position=200), workload="smoke")]
    (cause,) = causes_of(results)
    assert (cause.first.seen, [more.spec.workload for more in cause.first.more]) == (34, ["smoke"])
    print_results(results)
    shown = capsys.readouterr().out
    assert shown.count("(FL004-a, seen") == 1
    assert "  seen in: nvm_malloc smoke" in shown
    assert "  also: FL008 a returned operation is lost (FL008-b, seen 17)" in shown
    assert "faultline replay fl1FL008-b" in shown


def test_sarif_has_one_result_for_a_cause_that_names_the_others() -> None:
    results = [cell(finding("FL004-a"), finding("FL008-b", position=200, sites=[PLACE]))]
    (result,) = msgspec.json.decode(sarif.render(results))["runs"][0]["results"]
    assert result["properties"]["also"] == ["FL008-b"]
    assert "also: FL008 a returned operation is lost (FL008-b, seen 17)" in result["message"]["text"]
    related = result["relatedLocations"]
    assert related[-1]["physicalLocation"]["region"] == {"startLine": 31}
