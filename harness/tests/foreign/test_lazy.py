# SPDX-License-Identifier: Apache-2.0
"""An allocator that finds out after open which units are used, step by step or in a thread: what is wrong beside that is found."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from faultline.base.errors import EXIT_BAD_INPUT
from faultline.campaign.results import CellResult
from foreign.cases import WORKLOAD, Case
from foreign.foreign_project import explore_case, project_of_case

Run = Callable[..., CellResult]
LAZILY = WORKLOAD.replace("slots 3\n", "slots 3\nopens lazily\n")


@pytest.fixture
def run(root: Path, scripts: Path, tmp_path: Path) -> Run:
    cache = cache_that_shares_builds(root, tmp_path / "cache")

    def of(defines: str, workload: str = LAZILY, **options: Any) -> CellResult:
        place = tmp_path / "place"
        if not place.exists():
            project_of_case(Case("lazy", defines, ""), root, place)
        return explore_case(place, cache, scripts, workload, **options)

    return of


@pytest.mark.slow
@pytest.mark.parametrize(("defines", "engine"), [("LAZY", "in-process"), ("LAZY BY_THREAD", "traced")])
def test_a_right_one_passes_with_crashes_in_what_it_leaves_to_later(run: Run, defines: str, engine: str) -> None:
    result = run(defines, nested=1)
    assert (result.verdict, result.findings) == ("pass", [])
    assert result.certificate is not None
    assert (result.certificate.complete, result.certificate.engine) == (True, engine)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defines", "rule", "message"),
    [
        pytest.param("LAZY LAZY_ROLLS_BACK", "FL013", "after recovery of a fresh copy (life 3)", id="another heap"),
        pytest.param("LAZY LAZY_REFUSES", "FL003", "settling the heap after recovery answered error", id="refuses"),
        pytest.param("LAZY LAZY_B_FIRST", "FL003", "recovery answered corrupt", id="order"),
        pytest.param("LAZY BY_THREAD LAZY_B_FIRST", "FL003", "recovery answered corrupt", id="order in a thread"),
        pytest.param(
            "LAZY LAZY_TAKES_EARLY", "FL009", "is wrong after recovery (life 1)", id="takes what it does not know"
        ),
    ],
)
def test_what_only_a_lazy_open_shows_is_found(run: Run, defines: str, rule: str, message: str) -> None:
    at_once = run(defines, WORKLOAD)
    assert (at_once.verdict, at_once.certificate and at_once.certificate.complete) == ("pass", True)
    lazily = run(defines, start="workload")
    assert lazily.verdict == "fail"
    messages = [finding.message for finding in lazily.findings if finding.rule == rule]
    assert any(message in text for text in messages), [(one.rule, one.message) for one in lazily.findings]


@pytest.mark.slow
def test_a_crash_in_a_piece_that_follows_a_recovery_is_found(run: Run) -> None:
    """No reopen: the first crash comes before any lazy open."""
    without_reopen = LAZILY[: LAZILY.index("reopen")]
    assert run("LAZY LAZY_B_FIRST", without_reopen).verdict == "pass"
    assert {finding.rule for finding in run("LAZY LAZY_B_FIRST", without_reopen, nested=1).findings} == {"FL014"}


@pytest.mark.slow
@pytest.mark.parametrize("defines", ["FAILS=in_allocate FAILS_FROM=2", "FAILS=in_free FAILS_FROM=1"])
@pytest.mark.parametrize("how", ["segv", "refuse"])
def test_what_fails_without_a_crash_is_no_finding_of_a_lazy_recovery(run: Run, defines: str, how: str) -> None:
    """In the lives of a twin allocations and frees fail, too."""
    result = run(f"LAZY {defines} FAILS_BY={how}", LAZILY[: LAZILY.index("reopen")])
    assert {finding.rule for finding in result.findings} == {"FL017"}, result.findings


@pytest.mark.slow
@pytest.mark.parametrize(("how", "words"), [("segv", "died of SIGSEGV"), ("refuse", "answered error: not today")])
def test_a_piece_that_fails_in_the_workload_is_told(run: Run, how: str, words: str) -> None:
    result = run(f"LAZY FAILS=in_step FAILS_BY={how}")
    assert [finding.rule for finding in result.findings] == ["FL017"]
    message = result.findings[0].message
    assert message.startswith(f"what a lazy open left to later, after operation 5 (free, slot 0), {words}"), message


def test_what_cannot_be_done_later_is_said(run: Run) -> None:
    result = run("PERSIST=clwb")
    assert result.error_code == EXIT_BAD_INPUT
    assert "the workload opens lazily, and nothing of ways's open can be done later" in result.error
