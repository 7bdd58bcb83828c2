# SPDX-License-Identifier: Apache-2.0
"""Explorations that were stopped go on where they were: what becomes of their certificates, findings and verdicts."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import samples
from command_line import Faultline
from faultline.campaign.resume import joined, joined_verdict
from faultline.pipeline.events import Certificate, Engines, Incomplete, Stage, Stopped

GAP = "a line with more than 65,536 choices"


def part(first: int, last: int, stopped: int | None, **changes: Any) -> Certificate:
    text = [f"stopped at crash position {stopped} of 90: limit of 9 recoveries"] if stopped else []
    stop = Stopped(stopped, "limit of 9 recoveries", [(stopped, 90)], text=text[0]) if stopped else None
    keys: dict[str, Any] = {
        "complete": not stopped,
        "why": "; ".join(text),
        "gaps": [],
        "stopped": stop,
        "strategy": "complete",
        "fallback": None,
        "crash_positions": last - first,
        "states": "100",
        "states_log10": 2.0,
        "positions_by_strategy": {"complete": last - first},
        "stages": [Stage("log replay", 4)],
        "bounds_hit": text,
        "rules_not_judged": [],
        "incomplete": [],
    }
    return samples.certificate(**{**keys, **changes})


def test_two_parts_are_one_certificate() -> None:
    whole = joined(part(1, 40, 40), part(40, 90, None, states_log10=3.0, rules_judged=["FL003"]))
    assert (whole.complete, whole.why, whole.bounds_hit, whole.stopped) == (True, "", [], None)
    assert (whole.crash_positions, whole.positions_by_strategy) == (89, {"complete": 89})
    assert (whole.recoveries, whole.judgements) == (2 * 4083, 2 * 5000)
    assert whole.states == "1.1e+03"
    assert whole.stages == [Stage("log replay", 8)]
    assert whole.engines == Engines(2 * 4001, 2 * 9, isolated={"starts a thread or a process": 2 * 82})
    assert whole.rules_judged == ["FL001", "FL003", "FL004"]


def test_what_is_counted_apart_is_joined_too() -> None:
    counts = {"later_positions": 7, "later_judgements": 5, "long_lives": 8}
    whole = joined(part(1, 40, 40, **counts), part(40, 90, None, **counts))
    assert {name: getattr(whole, name) for name in counts} == {name: 2 * count for name, count in counts.items()}


def test_a_part_that_was_stopped_again_can_go_on_again() -> None:
    whole = joined(part(1, 40, 40), part(40, 60, 60))
    assert whole.stopped
    assert (whole.complete, whole.stopped.left) == (False, [(60, 90)])
    assert whole.why == whole.stopped.text == "stopped at crash position 60 of 90: limit of 9 recoveries"
    assert joined(whole, part(60, 90, None)).complete


def test_what_the_first_part_did_not_complete_stays_incomplete() -> None:
    incomplete = [Incomplete(GAP, 2, 7, 9)]
    first = part(1, 40, 40, gaps=[GAP], incomplete=incomplete)
    whole = joined(first, part(40, 90, None, gaps=[GAP], incomplete=[Incomplete(GAP, 1, 50, 50)], complete=False))
    assert (whole.complete, whole.why, whole.gaps) == (False, GAP, [GAP])
    assert whole.incomplete == [Incomplete(GAP, 3, 7, 50)]
    assert joined(first, part(40, 90, None)).complete is False


def test_an_exploration_that_fell_back_is_the_whole() -> None:
    """It begins again from its start: what was pruned by loads that could not be trusted counts for nothing."""
    fallen = part(1, 90, None, strategy="mixed", fallback="strategy complete is not possible: a thread")
    assert joined(part(1, 40, 40), fallen) == fallen
    again = part(40, 90, None, strategy="mixed")
    whole = joined(part(1, 40, 40, strategy="mixed", fallback="a thread", gaps=["a thread"]), again)
    assert (whole.fallback, whole.strategy, whole.complete) == ("a thread", "mixed", False)
    assert whole.crash_positions == 89


def test_the_verdict_is_that_of_both_parts() -> None:
    unknown = part(1, 40, 40, unknown_reasons=["the runner failed"])
    assert joined_verdict([], part(1, 40, 40), "pass") == "pass"
    assert joined_verdict([], unknown, "pass") == "unknown"
    assert joined_verdict([], part(1, 40, 40), "unknown") == "unknown"
    assert joined_verdict([samples.finding()], unknown, "pass") == "fail"


@pytest.mark.slow
def test_run_goes_on_where_a_budget_stopped_it(faultline: Faultline, tmp_path: Path) -> None:
    """With the findings of both parts, and once complete there is nothing to go on with."""
    path = tmp_path / "short.workload"
    path.write_text("workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 64\nfree 0\n")
    command = ["run", "nvm_malloc", "-w", path, "--mutant", "MISSING_FLUSH_LINK", "--stop-at-rule", "none"]
    command += ["--no-explain", "--no-shrink", "--out", tmp_path / "out", "--json"]

    def cell(*options: str, is_from_start: bool = True) -> dict[str, Any]:
        run = faultline(*command, *options)
        assert run.returncode in (0, 1, 3), run.stderr
        name = "nvm_malloc short.workload MISSING_FLUSH_LINK"
        line = f"{name}: nothing to go on with, the same exploration was not stopped last; it begins at its start\n"
        assert run.stderr.count(line) == (is_from_start and "--resume" in options)
        found: dict[str, Any] = json.loads(run.stdout)["cells"][0]
        return found

    whole = cell()
    assert whole["certificate"]["complete"]
    part = cell("--recoveries", "60")
    assert part["certificate"]["stopped"] is not None
    rest = cell("--resume", is_from_start=False)
    assert rest["certificate"]["complete"], rest["certificate"]["why"]
    assert rest["certificate"]["crash_positions"] == whole["certificate"]["crash_positions"]
    assert {finding["id"] for finding in rest["findings"]} == {finding["id"] for finding in whole["findings"]}
    assert len(rest["findings"]) >= len(part["findings"])
    again = cell("--resume")
    assert again["certificate"]["recoveries"] == whole["certificate"]["recoveries"]


def test_recoveries_of_which_none_were_in_process_are_told_as_such() -> None:
    reason = "unmaps a file that it stored to, without hooks"
    assert Engines(isolated={reason: 74}).text() == f"74 isolated: the target {reason}"
    assert (
        Engines(3, 1, isolated={reason: 74}).text().endswith(f" with equal answers; 74 isolated: the target {reason}")
    )
    assert Engines().text() == ""
