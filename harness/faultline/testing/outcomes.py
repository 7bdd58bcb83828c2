# SPDX-License-Identifier: Apache-2.0
"""How a cell ends a test, in the words that the command line has for it."""

from __future__ import annotations

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

from faultline.base.errors import FaultlineError
from faultline.campaign.results import CellResult
from faultline.report.outcomes import outcome
from faultline.report.reasons import reason_of
from faultline.report.terminal import streams
from faultline.report.terminal.campaigns import print_causes, print_cell

Ending = Literal["passes", "finds", "is-undecided", "is-cut-short", "is-known"]
"""is-cut-short: by a limit, and that is no reason to fail; is-known: every finding is (campaign/known.py)."""
AGAINST_LIMITS = "--faultline-time S gives it more time, --faultline-allow-incomplete makes this a skip"


class CrashConsistencyError(AssertionError):
    """A crash state was found that recovery does not mend. The message is what `faultline run` prints. result: the cell, with
    findings, explanations and certificate."""

    def __init__(self, text: str, result: CellResult) -> None:
        super().__init__(text)
        self.result = result
        self.example: tuple[Path, Mapping[str, Any]] | None = None
        """Of Hypothesis: where the test lies, and what it explored."""


class UndecidedError(Exception):
    """Nothing was found, and that says nothing: the verdict is unknown, a limit ended the exploration, or there was none. result:
    None where there was none."""

    def __init__(self, text: str, result: CellResult | None = None) -> None:
        super().__init__(text)
        self.result = result


def ending_of(result: CellResult) -> Ending:
    """By the same facts as the exit code of `faultline run`."""
    if result.new_findings:
        return "finds"
    if result.is_open:
        return "is-undecided"
    if result.is_incomplete:
        return "is-cut-short"
    return "is-known" if result.findings else "passes"


def explanation(result: CellResult) -> str:
    """What the command line says of the cell: finding, explanation, repair, replay; else why there is no verdict."""
    text = io.StringIO()
    console = streams.to_text(text)
    print_causes(console, [result])
    print_cell(console, result, is_alone=True)
    if outcome(result) == "incomplete":
        streams.print_line(console, "  in pytest: ", "", AGAINST_LIMITS)
    return text.getvalue().rstrip("\n")


def reason(result: CellResult) -> str:
    """In one line: why a limit ended it, or which findings are known."""
    found = reason_of(result)
    if found is not None:
        return f"{result.spec.name}: {found.word}: {found.why}"
    return f"{result.spec.name}: known: " + ", ".join(f"{one.id} ({one.known})" for one in result.findings)


def error_text(error: FaultlineError) -> str:
    """As on the command line."""
    return f"error: {error.message}" + (f"\nhint: {error.hint}" if error.hint else "")
