# SPDX-License-Identifier: Apache-2.0
from __future__ import annotations

import samples
from faultline.campaign.results import CellResult
from faultline.pipeline.events import Stage
from faultline.report.coverage import RecoveryCoverage, recovery_coverage


def cell(stages: dict[str, int], **spec: str) -> CellResult:
    certificate = samples.certificate(stages=[Stage(name, entered) for name, entered in stages.items()])
    return CellResult(samples.spec(**spec), certificate=certificate)


def test_stages_are_summed_over_the_clean_cells_of_each_allocator() -> None:
    results = [
        cell({"ring: empty": 3, "ring: pending free": 0}),
        cell({"ring: pending free": 2, "ring: empty": 1, "huge": 0}),
        cell({"huge": 9}, mutant="M", expected_rule="FL004"),
        cell({"undo": 0}, allocator="other"),
        CellResult(samples.spec(allocator="without")),
    ]
    first, second = recovery_coverage(results)
    assert first == RecoveryCoverage("nvm_malloc", {"huge": 0, "ring: empty": 4, "ring: pending free": 2})
    assert first.line(is_whole=False) == "recovery stages entered 2/3, never: huge"
    assert second.line(is_whole=True) == "recovery stages entered 0/1, never: undo"


def test_an_allocator_without_stages_is_left_out() -> None:
    assert recovery_coverage([cell({})]) == []


def test_full_coverage_names_nothing() -> None:
    assert recovery_coverage([cell({"a": 1})])[0].line(is_whole=False) == "recovery stages entered 1/1"


def test_a_long_list_of_stages_is_whole_where_that_is_asked_for() -> None:
    [coverage] = recovery_coverage([cell({"a": 0, "b": 0, "c": 0, "d": 0, "e": 1})])
    assert coverage.line(is_whole=False) == "recovery stages entered 1/5, never: a; b; c; and 1 more (-v names them)"
    assert coverage.line(is_whole=True) == "recovery stages entered 1/5, never: a; b; c; d"
