# SPDX-License-Identifier: Apache-2.0
"""How results are worded, the same on the terminal and in every report."""

from __future__ import annotations

from typing import Literal

from faultline.campaign.results import CellResult

Mark = Literal["good", "bad", "open"]
MARKS: dict[str, Mark] = {
    **dict.fromkeys(("pass", "killed"), "good"),
    **dict.fromkeys(("unknown", "incomplete", "stopped", "known"), "open"),
}
"""Of outcomes; the others are bad."""


def outcome(result: CellResult) -> str:
    """The one word that says how a cell ended."""
    if result.state == "stopped":
        return "stopped"
    if result.spec.mutant is not None:
        if result.is_killed:
            return "killed"
        return result.verdict if result.is_unknown or result.is_incomplete else "survived"
    if result.findings and not result.new_findings:
        return "unknown" if result.is_unknown else "incomplete" if result.is_incomplete else "known"
    return result.verdict


def mark(result: CellResult) -> Mark:
    """Class of the outcome: good, bad or open."""
    return MARKS.get(outcome(result), "bad")


def scientific(states: str) -> str:
    """1.2e+09 as 1.2 × 10⁹."""
    mantissa, letter, exponent = states.partition("e")
    if not letter:
        return states
    superscript = str(int(exponent)).translate(str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻"))
    return f"{mantissa} × 10{superscript}"
