# SPDX-License-Identifier: Apache-2.0
"""What is said of a finding in three lines: when, which stores, and which flush or fence was tried and helps."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import msgspec

from faultline.pipeline.events import UNKNOWN_PLACE, Finding, NewOutcome, PutKind, Site

BUDGET_S = 60.0
"""Of all repairs of a finding, when it is asked for: they are tried one after the other."""

SHOWN_TRIALS = 3
"""Repairs that were not tried to the end, in one line."""

SHOWN_PLACES = 3
"""Where recovery stores, in one line."""

TORN_ADVICE = (
    "x86 persists 8 aligned bytes at a time, so no flush and no fence keeps a wider store whole, nor does an atomic instruction of"
    " 16 bytes: store in two steps, the last one of 8 aligned bytes after the first is flushed and fenced, or have recovery verify"
    " a checksum"
)
"""Of a finding whose store is torn, where no flush, fence or order helps. Not tried: that is another program."""

Outcome = Literal["helps", "helps, others remain", "breaks others", "does not help", "unknown"]


def when_text(state: Finding | NewOutcome) -> str:
    """The crash position and its operation; with earlier crashes, the first one first."""
    last = f"position {state.position}, {state.operation_text()}"
    if not isinstance(state, Finding) or not state.is_later:
        return f"power fails at {last}"
    if not state.earlier:
        return f"power fails, and again at {last}"
    first, *more = (crash.text() for crash in state.earlier)
    return f"power fails at {first}" + "".join(f"; again at {crash}" for crash in [*more, last])


def lost_and_there(sites: Sequence[Site], is_lost: bool) -> tuple[str, str]:
    """Of a state's sites: the earliest store that is lost, and the newest that is there; where none is lost the last store."""
    names = [*(site.text() for site in sites), "", ""]
    return (names[0], names[1]) if is_lost else ("", names[0])


def lost_text(how: str, lost: str, there: str, there_kind: PutKind = "store") -> str:
    """Which store the state lacks, and which newer one it has. how: lost: the store."""
    return f"{how} at {lost}" + (f"; persisted: the {there_kind} at {there}" if there else "")


def all_there_text(there: str, there_kind: PutKind = "store", is_later: bool = False) -> str:
    """Of a state that lacks nothing of its generation. is_later: a recovery made it."""
    of_recovery = " of the recovery before" if is_later else ""
    last = f"the last one is at {there}" if there_kind == "store" else f"the last write is at {there}"
    return f"every store{of_recovery} is persisted; {last}" if there else "no store is lost"


def _stored_text(places: Sequence[str] | None, is_later: bool) -> str:
    if places is None:
        return ""
    stores = "; the last recovery stores" if is_later else "; recovery stores"
    if not places:
        return f"{stores} nothing"
    shown, more = [f"at {place or UNKNOWN_PLACE}" for place in places[:SHOWN_PLACES]], len(places) - SHOWN_PLACES
    if more > 0:
        shown.append(f"at {more} more place{'s' * (more > 1)}")
    *first, last = shown
    return f"{stores} {', '.join(first)} and {last}" if first else f"{stores} {last}"


def lines_of_new_outcome(state: NewOutcome) -> list[tuple[str, str]]:
    """What recovery shows only without a flush or a fence, as of a finding, each line a word and what it is."""
    lost, there = lost_and_there(state.sites, state.line_count > 0)
    stores = lost_text("lost: the store", lost, there) if lost else all_there_text(there)
    stores += f"; recovery read it at {state.read.text()}" if state.read else ""
    when = when_text(state) + (" (after an earlier crash)" if state.is_later else "")
    shown = state.differences or ["no more than where everything persisted, which no crash showed here before"]
    return [("when", when), ("stores", stores), *(("shows", one) for one in shown)]


class RepairTrial(msgspec.Struct):
    """A repair, tried. others: rules that are broken with it, at other places; recoveries: of the exploration with it."""

    text: str
    outcome: Outcome
    others: list[str] = []
    recoveries: int = 0
    is_complete: bool = False
    why: str = ""
    """What keeps the exploration from being complete."""
    is_order: bool = False
    """Two stores the other way round, and no flush or fence alone."""
    of: list[str] = []
    """It is the repair of these other findings."""
    together_with: list[str] = []
    """The repairs of these other findings were taken for made, too."""

    def how_far(self) -> str:
        return f"{self.text}: {self.recoveries:,} recoveries" + (f", {self.why}" if self.why else "")


class Explanation(msgspec.Struct):
    """Of one finding: all repairs that were tried, the one to make last. is_cut: the budget ended before all were tried."""

    finding: str
    operation: str
    lost: str
    there: str
    trials: list[RepairTrial]
    is_cut: bool = False
    crashes: int = 1
    """How often power failed."""
    is_lost_before: bool = False
    """A crash before the last one lost a store."""
    how_lost: str = "lost: the store"
    """What is lost, and whether all of it."""
    is_torn: bool = False
    """Some bytes of the lost store persisted."""
    there_kind: PutKind = "store"
    """What is at `there`."""
    is_smallest: bool = False
    """Repairs were tried in the smallest workload that shows it."""
    read: str = ""
    """Where recovery first reads what is lost, if that can be seen."""
    died: str = ""
    """Where the recovery died or hung, if that is known, and what it touched or for how long: died at PLACE."""
    stored: list[str] | None = None
    """Where the recovery from the last crash stores, of a state that has every store of its generation; None: not known."""
    is_asked: bool = True
    """Repairs were to be tried."""
    budget_s: float = BUDGET_S
    """Where is_cut: what there was for all of them."""

    @property
    def repair(self) -> RepairTrial | None:
        last = self.trials[-1] if self.trials else None
        return last if last and last.outcome.startswith("helps") else None

    def lines(self) -> list[tuple[str, str]]:
        """Three lines, each a word and what it is: the operation, the stores, the repair if one was to be tried."""
        repair = [("repair", self.repair_text())] if self.is_asked else []
        return [("when", self.operation), ("stores", self.stores_text()), *repair]

    def stores_text(self) -> str:
        """Which stores persisted and which did not, where recovery saw that, where it stored, and where it died."""
        is_later = self.crashes > 1
        if self.lost:
            stores = lost_text(self.how_lost, self.lost, self.there, self.there_kind)
        else:
            stores = all_there_text(self.there, self.there_kind, is_later)
        stores += f"; recovery read it at {self.read}" if self.read else ""
        return stores + _stored_text(self.stored, is_later) + (f"; it {self.died}" if self.died else "")

    def repair_text(self) -> str:
        """What was tried, and what came of it; of a torn store that nothing mends, what to do."""
        advice = f". Advice: {TORN_ADVICE}" if self.is_torn and self.repair is None else ""
        return self._tried_text() + advice

    def _tried_text(self) -> str:
        return self._without_repair_text() if self.repair is None else self._with_repair_text(self.repair)

    def _with_repair_text(self, repair: RepairTrial) -> str:
        if repair.of:
            return f"that of {' and '.join(repair.of)} mends this, too: {repair.text}"
        if repair.together_with:
            others = " and ".join(repair.together_with)
            gone = f"this finding is gone, {repair.recoveries:,} recoveries, complete"
            return f"{repair.text}; tried with that of {others}: {gone}"
        where = " in the smallest workload" if self.is_smallest else ""
        said = f"{repair.text}; tried{where}: this finding is gone, {repair.recoveries:,} recoveries, "
        said += "complete" if repair.is_complete else f"not complete ({repair.why})"
        if repair.others:
            return f"{said}, but {', '.join(repair.others)} elsewhere"
        crashes = "one crash" if self.crashes == 1 else f"up to {self.crashes} crashes"
        return f"{said}, and no other appears after {crashes}" if repair.is_complete else said

    def _without_repair_text(self) -> str:
        tried = len(self.trials)
        unknown = [trial for trial in self.trials if trial.outcome == "unknown"]
        if self.is_cut:
            more = "; faultline explain --time S gives it more"
            if not tried:
                return f"not found in {self.budget_s:.0f} s: none tried{more}"
            said = f"not found in {self.budget_s:.0f} s: {tried} tried, {len(unknown)} of them not to the end{more}"
            return "; ".join([said, *(trial.how_far() for trial in unknown[:SHOWN_TRIALS])])
        if unknown:
            return f"not found: of {tried} tried, some could not be explored whole ({unknown[0].why})"
        if not self.lost and not self.is_lost_before:
            alone = (
                " without breaking another rule" if any(one.outcome == "breaks others" for one in self.trials) else ""
            )
            order = f", and none of the {tried} orders of two stores that were tried helps{alone}" if tried else ""
            store = "store" if self.crashes == 1 else "store of the recovery before"
            wrong = "what is stored, or when, or what recovery makes of it, is wrong"
            return f"no flush and no fence: the state has every {store}{order}, so {wrong}"
        if not self.trials:
            return "nothing to try: the lost store is at an unknown place"
        if tried == 1:
            return f"{self.trials[0].text}: tried, and does not help: what is stored may be wrong"
        return f"none of the {tried} flushes, fences and orders that were tried helps: what is stored may be wrong"
