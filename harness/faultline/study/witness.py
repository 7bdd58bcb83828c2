# SPDX-License-Identifier: Apache-2.0
"""The smallest witness of a finding: what shrinking leaves."""

from __future__ import annotations

import msgspec

from faultline.pipeline.events import Finding, StateSize

BUDGET_S = 50.0
"""Of one finding. What a bound cuts short is said: only then does the result depend on the machine."""
EXPLORATIONS = 80
"""Traces taken and explored, of one finding; most need a quarter of it."""
STATE_RECOVERIES = 20_000
"""To find the smallest crash state of the last workload: some seconds."""


SHOWN_OPERATIONS = 12
"""In one line; the workload file that the token names has all."""


class Shrunk(msgspec.Struct):
    """A finding's smallest witness. workload: the lines of its one case, as in a workload file; operations: how many they are, but
    for create and close; operations_before: of the finding's own case, up to the crash; is_fewest: every workload of fewer
    operations of the same kinds and a choice of its sizes was explored, and none shows the finding."""

    finding: str
    witness: Finding
    workload: list[str]
    operations: int
    operations_before: int
    state: StateSize
    state_before: StateSize
    """Of the crash state that the exploration of that workload found."""
    explorations: int
    is_fewest: bool
    bounds: list[str]
    """Why a smaller witness may have been missed."""

    def text(self) -> str:
        """2 of 17 operations (allocate 0 1; free 0), 1 line lost."""
        said = "; ".join(self.workload[:SHOWN_OPERATIONS]) or "create and close"
        said += "; ..." if len(self.workload) > SHOWN_OPERATIONS else ""
        lost = f"{self.state.lines} line{'s' * (self.state.lines > 1)} lost" if self.state.lines else "no line lost"
        text = f"{self.operations} of {self.operations_before} operation{'s' * (self.operations_before != 1)} ({said}), {lost}"
        return text + "".join(f"; {bound}" for bound in self.bounds)
