# SPDX-License-Identifier: Apache-2.0
"""Explores what tests ask for, and keeps the results until they are reported."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from faultline.base.errors import FaultlineError, InterruptedCampaignError
from faultline.campaign.campaign import SilentWatcher
from faultline.campaign.results import CellResult, Results
from faultline.cli.campaigns import explore_cell
from faultline.pipeline.environment import Environment
from faultline.testing import cells
from faultline.testing.outcomes import CrashConsistencyError, UndecidedError, ending_of, error_text, explanation, reason
from faultline.testing.program import Program

OF_EXAMPLES = {"no_explain": True, "no_shrink": True}
"""What counts of an example of Hypothesis where its test says nothing."""
AT_FIRST = {"stop_at_rule": "any"}
"""The same: the first finding is enough to go on with, if none is known. Behind a known one there may be others."""
KNOWN = frozenset({"baseline", "suppressions"})
IN_MEMORY = Path(":memory:")
"""What SQLite calls a database that is no file: workers of pytest-xdist need not wait for each other."""


class Reported(msgspec.Struct):
    """What goes from the process that ran a test to the one that writes the summary."""

    result: CellResult
    environment: Environment


class Explorer:
    """settings: options of this run of pytest, which count where a test says nothing."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        cells.run_settings.update(settings)
        self._results = Results(IN_MEMORY)
        self._reported: list[str] = []
        self._examples: dict[str, CellResult] = {}
        """By what was asked: Hypothesis draws one program in many ways while it shrinks."""

    def take_reported(self) -> list[str]:
        """JSON of what was explored since it was asked last."""
        taken, self._reported = self._reported, []
        return taken

    def explore(self, folder: Path, options: Mapping[str, Any]) -> CellResult:
        """As cells.asked_cell has it. The result of a cell that passes. Of an example of Hypothesis what is found is neither
        explained nor shrunk: that is done once, for the smallest one (explain_examples).

        Raises CrashConsistencyError for a finding that is not known; UndecidedError where there is no verdict, bad input and what
        does not work included; what pytest skips by, and takes for an expected failure, for what a limit ended and for
        known findings."""
        __tracebackhide__ = True
        if not _is_example():
            return self._ended(self._explore(folder, options), options)
        key = repr((folder, sorted(options.items())))
        if key not in self._examples:
            at_first = {} if KNOWN & {*cells.run_settings, *options} else AT_FIRST
            self._examples[key] = self._explore(folder, {**OF_EXAMPLES, **at_first, **options})
        try:
            return self._ended(self._examples[key], options)
        except CrashConsistencyError as error:
            error.example = (folder, options)
            raise

    def explain_examples(self, error: BaseException) -> None:
        """Of a test that Hypothesis ended: what its smallest examples show is explored once more, explained and shrunk."""
        if isinstance(error, BaseExceptionGroup):
            for one in error.exceptions:
                self.explain_examples(one)
        elif isinstance(error, CrashConsistencyError) and error.example is not None:
            try:
                folder, options = error.example
                self._ended(self._explore(folder, options), options)
            except CrashConsistencyError as explained:
                error.args = explained.args
            except (UndecidedError, pytest.skip.Exception, pytest.xfail.Exception):
                pass  # what was found stays as it was said

    def _explore(self, folder: Path, options: Mapping[str, Any]) -> CellResult:
        __tracebackhide__ = True
        try:
            asked = cells.asked_cell(folder, options)
            result = explore_cell(asked, self._results, SilentWatcher())
        except InterruptedCampaignError:
            raise KeyboardInterrupt from None
        except FaultlineError as error:
            raise UndecidedError(error_text(error)) from None
        reported = Reported(result, self._results.environment())
        self._reported.append(msgspec.json.encode(reported).decode())
        return result

    @staticmethod
    def _ended(result: CellResult, options: Mapping[str, Any]) -> CellResult:
        """The result, if it passes."""
        __tracebackhide__ = True
        program = options.get("workload")
        _end(result, _program_text(program) if isinstance(program, Program) else "")
        return result


def _is_example() -> bool:
    """Whether a test of Hypothesis is being run. Asked of what the test has imported: nothing here needs Hypothesis."""
    hypothesis = sys.modules.get("hypothesis")
    return hypothesis is not None and bool(hypothesis.currently_in_test_context())


def _end(result: CellResult, program: str) -> None:
    __tracebackhide__ = True
    match ending_of(result):
        case "finds":
            raise CrashConsistencyError(explanation(result) + program, result)
        case "is-undecided":
            raise UndecidedError(explanation(result) + program, result)
        case "is-cut-short":
            raise pytest.skip.Exception(reason(result))
        case "is-known":
            raise pytest.xfail.Exception(reason(result))


def _program_text(program: Program) -> str:
    lines = "".join(f"\n    {line}" for line in program.text().splitlines())
    return f"\nprogram: {program!r}\nas a workload file:{lines}"
