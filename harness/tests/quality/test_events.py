# SPDX-License-Identifier: Apache-2.0
"""The events around a finding's crash position, from the engine to the terminal, on the first mutant of the matrix."""

from __future__ import annotations

import json
from typing import Any

import pytest

from command_line import Faultline
from faultline.base.cache import project_root
from faultline.base.config import Matrix, read_toml
from faultline.base.project import Project
from faultline.campaign.matrix import cells_of_matrix

ROOT = project_root()
CELLS = cells_of_matrix(Project(ROOT).allocator, read_toml(ROOT / "ci" / "matrix.toml", Matrix))
MUTANT = next(spec for spec in CELLS if spec.mutant)
BEFORE, AFTER, FROM_FURTHER_BACK = 12, 6, 9
STORES = ("store", "non-temporal store", "locked RMW", "file written")


def findings(faultline: Faultline, *options: str) -> list[dict[str, Any]]:
    run = faultline(*MUTANT.command_line().split()[1:], "--json", *options)
    assert run.returncode in (0, 1), run.stderr
    found: list[dict[str, Any]] = json.loads(run.stdout)["cells"][0]["findings"]
    return found


@pytest.fixture(scope="module")
def found(faultline: Faultline) -> list[dict[str, Any]]:
    return findings(faultline, "--stop-at-rule", str(MUTANT.expected_rule))


@pytest.mark.slow
def test_the_window_ends_on_both_sides_of_the_crash(found: list[dict[str, Any]]) -> None:
    assert found
    for finding in found:
        positions = [event["position"] for event in finding["events"]]
        crash = finding["position"]
        assert positions == sorted(set(positions))
        assert len([position for position in positions if position > crash]) <= AFTER
        assert {*range(max(positions[0], crash - BEFORE + 1), crash + 1)} <= set(positions)
        assert len(positions) <= BEFORE + AFTER + FROM_FURTHER_BACK


def test_stores_before_the_crash_are_there_or_lost_and_later_ones_neither(found: list[dict[str, Any]]) -> None:
    for finding in found:
        for event in finding["events"]:
            is_known = event["position"] <= finding["position"] and event["kind"] in STORES
            assert (event["is_persisted"] is not None) == is_known, event
            assert (event["is_guaranteed"] is not None) == (event["is_persisted"] == "yes"), event


def test_the_first_site_is_that_of_the_first_store_that_is_lost(found: list[dict[str, Any]]) -> None:
    with_losses = 0
    for finding in found:
        lost = [event for event in finding["events"] if event["is_persisted"] in ("no", "torn")]
        assert bool(lost) == bool(finding["lines"])
        if lost:
            with_losses += 1
            assert finding["sites"][0] == lost[0]["site"]
            newest = [event for event in finding["events"] if event["is_guaranteed"] is False]
            assert not newest or finding["sites"][1] == newest[-1]["site"]
    assert with_losses


@pytest.mark.slow
def test_replay_shows_the_same_events_as_text(faultline: Faultline, found: list[dict[str, Any]]) -> None:
    [finding] = found[:1]
    run = faultline("replay", finding["token"])
    assert run.returncode == 1, run.stderr
    assert "power fails" in run.stdout
    shown = [line for line in run.stdout.splitlines() if " lost " in line]
    lost = [event for event in finding["events"] if event["is_persisted"] in ("no", "torn")]
    assert [line.split()[0] for line in shown] == [str(event["position"]) for event in lost]
    again = json.loads(faultline("replay", finding["token"], "--json").stdout)["findings"]
    assert finding["events"] in [other["events"] for other in again]
    short = faultline(*MUTANT.command_line().split()[1:], "--stop-at-rule", str(MUTANT.expected_rule))
    assert "not reached" in run.stdout
    assert "not reached" not in short.stdout, "a run's findings are three lines, without their events"
