# SPDX-License-Identifier: Apache-2.0
"""Why a cell has no verdict, or not all of one, and what to do next: in the same words on the terminal and in reports."""

from __future__ import annotations

from dataclasses import dataclass

from faultline.campaign.results import CellResult
from faultline.pipeline.events import Certificate

LIMITS = {
    " s limit": "--time (in a matrix: time_s)",
    " recoveries": "--recoveries",
    "more leaves": "--leaves",
    "limit of memory": "--memory",
}
"""What is said of a limit, and the option that sets it."""
NOTHING_STORED = "no store into PM was seen"


@dataclass(frozen=True)
class Reason:
    word: str
    """incomplete or unknown."""
    why: str
    next: str


def reason_of(result: CellResult) -> Reason | None:
    """None: the cell has a verdict, or was stopped by hand."""
    certificate = result.certificate
    if result.state == "stopped":
        return None
    if result.error is not None:
        return Reason("unknown", result.error, result.hint or "")
    if certificate is None:
        return None
    if result.is_incomplete:
        return Reason("incomplete", certificate.why, _more(certificate))
    if result.is_unknown:
        return Reason("unknown", _first(_doubts(certificate)), _against_doubts(certificate))
    return None


def _doubts(certificate: Certificate) -> list[str]:
    return [str(reason) for reason in certificate.unknown_reasons] or certificate.gaps or [certificate.why]


def _first(reasons: list[str]) -> str:
    return reasons[0] + (f" (and {len(reasons) - 1} more reasons, in the report)" if len(reasons) > 1 else "")


def _more(certificate: Certificate) -> str:
    said = certificate.why
    options = [option for words, option in LIMITS.items() if words in said]
    resumed = ", or go on with --resume" if certificate.stopped else ""
    raised = f"raise {' and '.join(options)}{resumed}; " if options else ""
    return f"{raised}--allow-incomplete accepts it"


def _against_doubts(certificate: Certificate) -> str:
    if NOTHING_STORED in certificate.gaps:
        return "does the adapter map its heap in the folder that it is given (MAP_SHARED)? docs/allocators.md"
    if certificate.engine == "in-process":
        return "--replay-engine traced sees more of the target; docs/triage.md has the usual causes"
    return "docs/triage.md has the usual causes"
