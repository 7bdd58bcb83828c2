# SPDX-License-Identifier: Apache-2.0
"""A replayed token shows what it is of, or says in one line why it does not."""

from __future__ import annotations

from faultline.pipeline.events import Finding
from faultline.study.replay import DEPENDS, Token, note_of


def token_of(rule: str | None) -> Token:
    return Token(allocator="one", workload="smoke", trace_hash="0123456789", rule=rule)


def finding_of(rule: str) -> Finding:
    return Finding(id=f"{rule}-0", rule=rule, title="", message="", token="fl1.x")


def test_a_token_that_shows_its_rule_needs_no_word() -> None:
    assert note_of(token_of("FL001"), [finding_of("FL012"), finding_of("FL001")], ["a reason"]) is None
    assert note_of(token_of(None), [finding_of("FL012")], []) is None


def test_a_token_that_shows_another_rule_says_which_and_why_that_may_be() -> None:
    note = note_of(token_of("FL001"), [finding_of("FL012"), finding_of("FL003"), finding_of("FL012")], [])
    said = f"the token is of FL001, and this run of its crash state shows FL003 and FL012: {DEPENDS}, or the oracle has changed"
    assert note == said


def test_a_token_that_shows_nothing_says_what_the_engine_says_of_it() -> None:
    begin = "the token is of FL001, and this run of its crash state does not show it: "
    assert note_of(token_of("FL001"), [], ["one", "two"]) == f"{begin}one; two"
    assert note_of(token_of("FL001"), [], []) == f"{begin}nothing is wrong: {DEPENDS}"
