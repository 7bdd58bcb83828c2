# SPDX-License-Identifier: Apache-2.0
"""How each kind of result ends a test: only a pass, or a limit or finding that somebody accepted, is no failure."""

from __future__ import annotations

from typing import Any

import pytest

import samples
from faultline.base.errors import BadInputError
from faultline.campaign.results import CellResult
from faultline.pipeline.events import Stopped
from faultline.report.outcomes import mark
from faultline.testing import Program
from faultline.testing.outcomes import Ending, ending_of, explanation, reason

LIMIT = {
    "complete": False,
    "stopped": Stopped(17, "40 s limit"),
    "why": "stopped at crash position 17 of 90: 40 s limit",
}
DOUBT = {"unknown_reasons": ["a load was not seen"]}
KNOWN = {"known": "in the baseline known.json"}


def result(verdict: str, certificate: dict[str, Any] | None, *findings: Any, **spec: Any) -> CellResult:
    made = None if certificate is None else samples.certificate(**certificate)
    return CellResult(samples.spec(**spec), "k", verdict, findings=list(findings), certificate=made)  # type: ignore[arg-type]


RESULTS: list[tuple[Ending, CellResult]] = [
    ("passes", result("pass", {})),
    ("finds", result("fail", {}, samples.finding())),
    ("finds", result("fail", LIMIT, samples.finding(), allow_incomplete=True)),
    ("finds", result("fail", {}, samples.finding(**KNOWN), samples.finding(id="FL004-00000000"))),
    ("finds", result("fail", {}, samples.finding(), mutant="MISSING_FLUSH", expected_rule="FL004")),
    ("is-known", result("fail", {}, samples.finding(**KNOWN))),
    ("is-undecided", result("fail", DOUBT, samples.finding(**KNOWN))),
    ("is-undecided", result("incomplete", LIMIT)),
    ("is-cut-short", result("incomplete", LIMIT, allow_incomplete=True)),
    ("is-cut-short", result("fail", LIMIT, samples.finding(**KNOWN), allow_incomplete=True)),
    ("is-undecided", result("unknown", DOUBT)),
    ("is-undecided", result("unknown", DOUBT, allow_incomplete=True)),
    ("is-undecided", result("unknown", None, allow_incomplete=True)),
]


@pytest.mark.parametrize(("ending", "of"), RESULTS)
def test_nothing_but_a_verdict_without_findings_passes(ending: Ending, of: CellResult) -> None:
    assert ending_of(of) == ending
    assert (ending == "passes") == (mark(of) == "good") or of.spec.mutant is not None


@pytest.mark.parametrize("of", [of for ending, of in RESULTS if ending != "passes" and of.certificate is not None])
def test_what_does_not_pass_says_why(of: CellResult) -> None:
    said = explanation(of)
    assert of.spec.name in said.splitlines()[0]
    if ending_of(of) in ("is-cut-short", "is-known"):
        assert reason(of).startswith(f"{of.spec.name}: ")
        assert "\n" not in reason(of)


def test_a_finding_comes_first_and_ends_with_its_replay_line() -> None:
    lines = explanation(result("fail", {}, samples.finding())).splitlines()
    assert lines[0].startswith("FL004 ")
    assert any(line.startswith("  replay: faultline replay ") for line in lines)


# ---- programs ---------------------------------------------------------------------------------------------------------------


def test_a_program_is_code_and_a_workload_file() -> None:
    program = Program("allocate 3 64  # the first", "thread 1 allocate 0 8", "join", "free 3")
    assert eval(repr(program), {"Program": Program}) == program
    assert program.text() == "workload 1\nslots 4\ncase\nallocate 3 64\nthread 1 allocate 0 8\njoin\nfree 3\n"
    graph = Program("allocate 0 64", "allocate 1 64", "link 0 1 1", slots="3 graph")
    assert eval(repr(graph), {"Program": Program}) == graph
    assert graph.text().splitlines()[1] == "slots 3 graph"
    assert len({program, graph, Program(*program.lines)}) == 2
    assert program.name != graph.name


@pytest.mark.parametrize(
    ("lines", "slots", "words"),
    [
        (["free 0"], None, "Program: line 1: slot 0 is empty, free needs a live one"),
        (["allocate 0 8", "alocate 1 8"], None, "Program: line 2: unknown operation 'alocate'"),
        (["allocate 5 8"], 2, "Program: line 1: slot 5 is not below `slots 2`"),
        (["begin"], None, "Program: ends in a transaction"),
    ],
)
def test_a_line_that_cannot_be_is_named(lines: list[str], slots: int | None, words: str) -> None:
    with pytest.raises(BadInputError) as raised:
        Program(*lines, slots=slots)
    assert raised.value.message.startswith(words)
