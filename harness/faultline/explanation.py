# SPDX-License-Identifier: Apache-2.0
"""What is said of a finding in three lines: when, which stores, and which flush or fence was tried and helps."""

from __future__ import annotations

from typing import Literal

import msgspec

BUDGET_S = 60.0
"""Of all repairs of a finding: they are tried one after the other."""

Outcome = Literal["helps", "helps, others remain", "breaks others", "does not help", "unknown"]


class Trial(msgspec.Struct):
    """A repair, tried. others: rules that are broken with it, at other places; recoveries: of the exploration with it."""

    text: str
    outcome: Outcome
    others: list[str] = []
    recoveries: int = 0
    is_complete: bool = False
    why: str = ""
    """What keeps the exploration from being complete."""


class Explanation(msgspec.Struct):
    """Of one finding: all repairs that were tried, the one to make last. is_cut: the budget ended before all were tried."""

    finding: str
    operation: str
    lost: str
    there: str
    trials: list[Trial]
    is_cut: bool = False
    is_later: bool = False
    read: str = ""
    """Where recovery first reads what is lost, if that can be seen."""

    @property
    def repair(self) -> Trial | None:
        last = self.trials[-1] if self.trials else None
        return last if last and last.outcome.startswith("helps") else None

    def lines(self) -> list[tuple[str, str]]:
        """Three lines, each a word and what it is: the operation, the stores, the repair."""
        if self.lost:
            stores = f"lost: the store at {self.lost}" + (
                f"; persisted: the store at {self.there}" if self.there else ""
            )
            stores += f"; recovery read it at {self.read}" if self.read else ""
        else:
            stores = f"every store is persisted; the last one is at {self.there}" if self.there else "no store is lost"
        return [("when", self.operation), ("stores", stores), ("repair", self.repair_text())]

    def repair_text(self) -> str:
        """What was tried, and what came of it."""
        repair, tried = self.repair, len(self.trials)
        if repair is not None:
            said = f"{repair.text}; tried: this finding is gone, {repair.recoveries:,} recoveries, "
            said += "complete" if repair.is_complete else f"not complete ({repair.why})"
            if repair.others:
                return f"{said}, but {', '.join(repair.others)} elsewhere"
            return f"{said}, and no other appears after one crash" if repair.is_complete else said
        if self.is_later:
            return "not looked for: power failed more than once, and repairs are tried in the workload's own trace"
        unknown = [trial for trial in self.trials if trial.outcome == "unknown"]
        if self.is_cut:
            return f"not found in {BUDGET_S:.0f} s: {tried} tried, {len(unknown)} of them not to the end"
        if unknown:
            return f"not found: of {tried} tried, some could not be explored whole ({unknown[0].why})"
        if not self.lost:
            alone = (
                " without breaking another rule" if any(one.outcome == "breaks others" for one in self.trials) else ""
            )
            order = f", and none of the {tried} orders of two stores that were tried helps{alone}" if tried else ""
            return f"no flush and no fence: the state has every store{order}, so what is stored, or when, is wrong"
        if not self.trials:
            return "nothing to try: the lost store is the kernel's, or at an unknown place"
        return f"none of the {tried} flushes, fences and orders that were tried helps: what is stored may be wrong"
