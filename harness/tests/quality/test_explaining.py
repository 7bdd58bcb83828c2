# SPDX-License-Identifier: Apache-2.0
"""What a finding lacks: the flush or fence that a mutant left out is named, and was tried; where logic is wrong, that is said."""

from __future__ import annotations

import json
from typing import Any, cast

import msgspec
import pytest

import samples
from command_line import Faultline
from faultline import explaining
from faultline.engine import Finding
from faultline.explanation import Explanation, Outcome, Trial

MUTANTS = [
    # The flush is gone, the fence is still there.
    ("nvm_malloc", "MISSING_FLUSH_LINK", "clwb after the store at set_links (allocators/nvm_malloc/src/protocol.c:"),
    # The flush is there, its fence is gone.
    ("nvm_malloc", "MISSING_FENCE_RING", "sfence after the flush at nvm_ring_begin (allocators/nvm_malloc/src/ring.c:"),
]


def explained(faultline: Faultline, allocator: str, mutant: str) -> tuple[str, dict[str, Any], str]:
    """Token and explanation of the finding of the mutant's own rule, and its last trial's words."""
    run = faultline("run", allocator, "-w", "churn", "--mutant", mutant, "--json")
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    (finding,) = (found for found in cell["findings"] if found["rule"] == cell["spec"]["expected_rule"])
    (explanation,) = (one for one in cell["explanations"] if one["finding"] == finding["id"])
    return finding["token"], explanation, explanation["trials"][-1]["text"] if explanation["trials"] else ""


@pytest.mark.parametrize(("allocator", "mutant", "repair"), MUTANTS)
def test_the_missing_instruction_is_named_and_tried(
    faultline: Faultline, allocator: str, mutant: str, repair: str
) -> None:
    token, explanation, words = explained(faultline, allocator, mutant)
    last = explanation["trials"][-1]
    assert words.startswith(repair)
    assert (last["outcome"], last["is_complete"]) == ("helps", True)
    assert last["recoveries"] > 100, "of the whole trace, not of the one state"
    told = faultline("explain", token, "--json")
    assert told.returncode == 1, told.stderr
    (again,) = json.loads(told.stdout)["explanations"]
    assert again == explanation


def finding(repairs: int = 3, **more: Any) -> Finding:
    proposed = [{"text": f"repair {number}", "edits": []} for number in range(repairs)]
    return msgspec.convert({**samples.FINDING, "repairs": proposed, **more}, Finding)


def explain(monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], found: Finding) -> Explanation:
    """With trials that end like this."""
    left = iter(outcomes)

    def one(*arguments: Any) -> Trial:
        outcome = next(left)
        others = ["FL010"] if outcome == "helps, others remain" else []
        return Trial(arguments[-2].text, outcome, is_complete=True, others=others, recoveries=1234)

    monkeypatch.setattr(explaining, "_try", one)
    nothing = cast(Any, None)
    return explaining.explain(nothing, nothing, nothing, nothing, nothing, found)


def test_the_first_that_helps_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["does not help", "helps"], finding())
    assert [trial.text for trial in told.trials] == ["repair 0", "repair 1"]
    assert told.repair is told.trials[-1]


def test_one_that_leaves_others_is_the_second_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["helps, others remain", "does not help", "does not help"], finding())
    assert told.repair is not None
    assert told.repair.text == "repair 0"
    assert told.repair_text().endswith("but still broken elsewhere: FL010")


def test_that_nothing_helps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["does not help"] * 3, finding())
    assert told.repair is None
    assert told.repair_text() == "none of 3 flushes and fences helps: what is stored, or in which order, is wrong"
    unknown = explain(monkeypatch, ["does not help", "unknown", "does not help"], finding())
    assert unknown.repair_text().startswith("not found: of 3 tried, some could not be explored whole")


def test_what_was_not_looked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    later = explain(monkeypatch, [], finding(0))
    assert later.repair_text().startswith("not looked for")
    whole = explain(monkeypatch, [], finding(0, lines=[]))
    assert (
        whole.repair_text() == "no flush and no fence: the state has every store, so what is stored, or when, is wrong"
    )
    monkeypatch.setattr(explaining, "BUDGET_S", 0.0)
    cut = explain(monkeypatch, [], finding())
    assert cut.is_cut
    assert cut.repair_text() == "not found in 60 s, 0 tried"


def test_three_lines_say_when_what_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["helps"], finding())
    assert told.lines() == [
        ("when", "power fails at position 123, operation 4: allocate, slot 3, 128 bytes (returned)"),
        ("stores", "lost: the store at nvm_activate (allocators/x/src/activate.c:12)"),
        ("repair", "repair 0; tried: this finding is gone, 1,234 recoveries, complete, and no other appears"),
    ]
