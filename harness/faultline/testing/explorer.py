# SPDX-License-Identifier: Apache-2.0
"""Explores what tests ask for, and keeps the results until they are reported."""

from __future__ import annotations

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

IN_MEMORY = Path(":memory:")
"""What SQLite calls a database that is no file: workers of pytest-xdist need not wait for each other."""


class Reported(msgspec.Struct):
    """What goes from the process that ran a test to the one that writes the summary."""

    result: CellResult
    environment: Environment


class Explorer:
    """settings: options of this run of pytest, which count where a test says nothing."""

    def __init__(self, settings: Mapping[str, Any]) -> None:
        self._settings = settings
        self._results = Results(IN_MEMORY)
        self._reported: list[str] = []

    def take_reported(self) -> list[str]:
        """JSON of what was explored since it was asked last."""
        taken, self._reported = self._reported, []
        return taken

    def explore(self, folder: Path, options: Mapping[str, Any]) -> CellResult:
        """As cells.asked_cell has it. The result of a cell that passes.

        Raises CrashConsistencyError for a finding that is not known; UndecidedError where there is no verdict, bad input and what
        does not work included; what pytest skips by, and takes for an expected failure, for what a limit ended and for
        known findings."""
        __tracebackhide__ = True
        given = {name: value for name, value in options.items() if value is not None}
        try:
            asked = cells.asked_cell(folder, {**self._settings, **given})
            result = explore_cell(asked, self._results, SilentWatcher())
        except InterruptedCampaignError:
            raise KeyboardInterrupt from None
        except FaultlineError as error:
            raise UndecidedError(error_text(error)) from None
        reported = Reported(result, self._results.environment())
        self._reported.append(msgspec.json.encode(reported).decode())
        program = given.get("workload")
        _end(result, _program_text(program) if isinstance(program, Program) else "")
        return result


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
