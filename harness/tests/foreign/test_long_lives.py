# SPDX-License-Identifier: Apache-2.0
"""What breaks at the eighth open, or at the fortieth allocation after one, is found in a long life (FL020), and not without one."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from faultline.campaign.results import CellResult
from foreign.cases import WORKLOAD, Case
from foreign.foreign_project import explore_case, project_of_case

Run = Callable[..., CellResult]


@pytest.fixture
def run(root: Path, scripts: Path, tmp_path: Path) -> Run:
    cache = cache_that_shares_builds(root, tmp_path / "cache")

    def of(defines: str, slack_bytes: int = 0, **options: Any) -> CellResult:
        place = tmp_path / "place"
        if not place.exists():
            project_of_case(Case("long_lives", defines, ""), root, place)
        description = place / "allocators" / "ways" / "allocator.toml"
        description.write_text(re.sub("slack_bytes = .*", f"slack_bytes = {slack_bytes}", description.read_text()))
        return explore_case(place, cache, scripts, WORKLOAD, **options)

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defines", "slack_bytes", "message"),
    [
        pytest.param("REPEATS=40", 0, r"FL006: an allocation after recovery overlaps a live one", id="repeats"),
        pytest.param(
            "SPOILS=300", 0, r"FL012: the long use \(life 4\) .* an object of \d+ bytes is wrong", id="spoils"
        ),
        pytest.param("REFUSES=300", 0, r"FL012: the long use \(life 4\) answered error: not today", id="refuses"),
        pytest.param("LOST=(opens<8?0:opens-7)", 0, r"FL012: .* bytes are lost, 0 permitted", id="loses_late"),
        pytest.param("LOST=opens", 512, r"FL012: .* bytes are lost, 512 permitted", id="loses_little"),
    ],
)
def test_what_a_few_opens_and_allocations_do_not_show_is_found(
    run: Run, defines: str, slack_bytes: int, message: str
) -> None:
    without = run(defines, slack_bytes, long_lives=0)
    assert (without.verdict, without.certificate and without.certificate.complete) == ("pass", True)
    result = run(defines, slack_bytes)
    assert (result.verdict, {finding.rule for finding in result.findings}) == ("fail", {"FL020"})
    assert result.certificate is not None
    assert "FL020" in result.certificate.rules_judged
    assert any(re.match(f"in a long life, {message}", finding.message) for finding in result.findings)


@pytest.mark.slow
def test_a_right_allocator_lives_long(run: Run) -> None:
    result = run("PERSIST=clwb", long_lives=100)
    assert result.verdict == "pass"
    assert result.certificate is not None
    assert (result.certificate.complete, result.certificate.long_lives) == (True, 100)
