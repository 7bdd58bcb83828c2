# SPDX-License-Identifier: Apache-2.0
"""What a run of pytest says of all its cells: the line that `faultline run` and `matrix` end with, and the reports."""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path

import msgspec

from faultline.base.errors import FaultlineError
from faultline.campaign.results import summarise
from faultline.report import reports
from faultline.report.terminal import streams
from faultline.report.terminal.campaigns import verdict_table
from faultline.testing.explorer import Reported
from faultline.testing.outcomes import error_text


def summary(reported: Sequence[str], is_verbose: bool) -> list[str]:
    """is_verbose: a line for each cell, too."""
    results = [msgspec.json.decode(one, type=Reported).result for one in reported]
    text = io.StringIO()
    if is_verbose:
        streams.to_text(text).print(verdict_table(results))
    return [line.rstrip() for line in text.getvalue().splitlines()] + [summarise(results).line()]


def report_line(folder: Path, reported: Sequence[str]) -> str:
    """Writes report.html and the others of all cells; says where, or why not."""
    decoded = [msgspec.json.decode(one, type=Reported) for one in reported]
    try:
        reports.write_all(folder, [one.result for one in decoded], "done", decoded[0].environment)
    except FaultlineError as error:
        return error_text(error)
    return f"report: {folder / 'report.html'}"
