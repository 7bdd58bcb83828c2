# SPDX-License-Identifier: Apache-2.0
"""Repairs of a finding: which flush or fence forbids its crash state. A repair is not guessed. The whole trace is explored again as
if its source had the repair, by `complete` if the target's loads are seen."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import msgspec

from faultline.base.errors import FaultlineError
from faultline.pipeline.events import Certificate, Done, Event, Finding, Repair, Verdict
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell
from faultline.study.explanation import BUDGET_S, Explanation, RepairTrial, lost_and_there, when_text

FIRST_LOOK_S = 10.0
"""Of each repair, before one of them is given what is left of the budget: one that forbids some of the states and not all may leave
recovery more to tell apart, or to hang in, than the whole of it allows, where the next one is explored in seconds."""


Tried = dict[bytes, RepairTrial]
"""By edits: what came of the repairs that were tried for other findings of the same exploration."""


def described(finding: Finding, tried: Explanation | None = None, is_smallest: bool = False) -> Explanation:
    """What is said of the finding, with the repairs that were tried for it elsewhere; is_smallest: in its smallest workload."""
    found = Explanation(
        finding.id,
        when_text(finding),
        *lost_and_there(finding.sites, finding.lost is not None),
        [],
        crashes=finding.crashes,
        is_lost_before=any(crash.lost for crash in finding.earlier),
        how_lost=f"{finding.lost.how()}: {finding.lost.what()}" if finding.lost else "",
        is_torn=finding.lost is not None and finding.lost.is_torn,
        there_kind=finding.there or "store",
        read=finding.read.text() if finding.read else "",
        died=finding.died.text() if finding.died else "",
        stored=None if finding.stored is None else [place.text() for place in finding.stored],
    )
    if tried is not None:
        found.trials, found.is_cut, found.budget_s = tried.trials, tried.is_cut, tried.budget_s
        found.crashes, found.is_lost_before = tried.crashes, tried.is_lost_before
        found.is_smallest = is_smallest
    return found


def explain(
    cell: PreparedCell,
    finding: Finding,
    say: Callable[[str], None] | None = None,
    edits: Sequence[Any] = (),
    tried: Tried | None = None,
    budget_s: float = BUDGET_S,
) -> Explanation:
    """Tries the engine's repairs of the finding until one makes it go. cell: shows it; say hears of each before it
    is tried; edits: what the trace was explored with; tried: is read, and gets what is tried here. One that helped there left no
    finding at all, so it helps here, and what was tried there beside it is not tried again: it left a finding, or was not explored
    to its end. budget_s: of all repairs."""
    found = described(finding)
    deadline = time.monotonic() + budget_s
    trials: dict[int, RepairTrial] = {}
    tried = {} if tried is None else tried
    known = [tried.get(_key(repair)) for repair in finding.repairs]
    helping = next((trial for trial in known if trial is not None and trial.outcome == "helps"), None)
    left = [
        (number, repair)
        for number, repair in enumerate(finding.repairs)
        if helping is None or known[number] is None or known[number] is helping
    ]
    for is_first_look in (True, False):
        again: list[tuple[int, Repair]] = []
        for place, (number, repair) in enumerate(left):
            if helping is not None and known[number] is helping:
                break
            limit_s = deadline - time.monotonic()
            if is_first_look:
                limit_s = min(FIRST_LOOK_S, limit_s / (len(left) - place))
            if limit_s <= (0 if is_first_look else FIRST_LOOK_S):
                found.is_cut = helping is None
                break
            if say is not None:
                say(repair.text)
            edited = msgspec.structs.replace(repair, edits=[*edits, *repair.edits])
            trial, is_stopped = _try(cell, finding, edited, limit_s)
            trials[number] = tried[_key(repair)] = trial
            if trial.outcome == "helps":
                found.trials = _ending_with(trial, trials.values())
                return found
            again += [(number, repair)] * is_stopped
        if helping is not None:  # it is its turn, or the time is over
            found.trials = _ending_with(helping, [*trials.values(), helping])
            return found
        left = again
    found.is_cut = found.is_cut or bool(left)
    found.budget_s = round(budget_s) if found.is_cut else BUDGET_S
    partly = next((trial for trial in trials.values() if trial.outcome == "helps, others remain"), None)
    found.trials = _ending_with(partly, trials.values())
    return found


def proved(finding: Finding, findings: Sequence[Finding], certificate: Certificate | None) -> Explanation | None:
    """What the exploration of the finding's cell proved by going on behind it; None: nothing. findings: of the cell."""
    if (
        certificate is None
        or not certificate.is_whole_as_repaired
        or finding.is_later
        or finding.lost is None
        or finding.lost.kind == "file"
    ):
        return None
    repaired = {behind.finding: behind.repair for behind in certificate.behind if behind.how == "repaired"}
    if len(repaired) < len(certificate.behind):
        return None  # what is not told apart proves nothing
    texts = [repaired.get(finding.id)] if finding.id in repaired else list(repaired.values())
    trial = RepairTrial(
        " and ".join(text for text in texts if text), "helps", recoveries=certificate.recoveries, is_complete=True
    )
    if finding.id in repaired:
        trial.together_with = [other for other in repaired if other != finding.id]
    else:
        trial.of = list(repaired)
    trial.others = sorted({other.rule for other in findings if other.lost is None})
    if trial.others:
        trial.outcome = "helps, others remain"
    found = described(finding)
    found.trials = [trial]
    return found


def stopped(finding: Finding, certificate: Certificate | None) -> Explanation:
    """Of an exploration that was stopped by hand: what is known of the finding, and no repair that is tried now."""
    found = described(finding)
    behind = certificate.behind if certificate is not None else []
    own = [one.repair for one in behind if one.finding == finding.id and one.how == "repaired"]
    found.trials = [RepairTrial(repair, "unknown", why="the run was stopped") for repair in own]
    found.is_cut, found.budget_s = True, 0.0
    return found


def _key(repair: Repair) -> bytes:
    return msgspec.json.encode((repair.edits, repair.later_edits))


def _ending_with(last: RepairTrial | None, trials: Iterable[RepairTrial]) -> list[RepairTrial]:
    return sorted(trials, key=lambda trial: trial is last)


def _try(cell: PreparedCell, finding: Finding, repair: Repair, limit_s: float) -> tuple[RepairTrial, bool]:
    """And whether the limit ended it."""
    trial = RepairTrial(repair.text, "unknown", is_order=_is_another_order(repair))
    verdict: Verdict = "unknown"
    is_stopped = False
    seen: list[Finding] = []

    def handle(event: Event) -> None:
        nonlocal verdict, is_stopped
        match event:
            case Finding():
                seen.append(event)
            case Certificate():
                trial.recoveries, trial.is_complete, trial.why = event.recoveries, event.complete, event.why
                is_stopped = event.stopped is not None
            case Done():
                verdict = event.verdict

    # The whole trace, unless the finding comes back.
    nested = finding.crashes - 1
    changes = {"stop_at_rule": finding.id, "time_limit_s": limit_s, "recovery_limit": None, "nested": nested}
    cell = cell.with_spec(strategy="complete" if cell.target.hooked else cell.spec.strategy, **changes)
    try:
        more = {"edits": repair.edits, "later_edits": repair.later_edits}
        explore(cell, handle, jobs=cell.workshop.explore_jobs, more=more)
    except FaultlineError as error:
        trial.why = error.message
        return trial, False
    others = sorted({other.rule for other in seen if other.id != finding.id})
    if any(other.id == finding.id for other in seen):
        trial.outcome = "does not help"
    elif is_stopped:
        trial.outcome = "unknown"
    elif verdict == "pass":
        trial.outcome = "helps"
    elif verdict == "fail":
        # A flush or a fence more forbids states and allows no other: what is there with it was there without.
        is_new = trial.is_order and any(other.needs_crash for other in seen)
        trial.outcome = "breaks others" if is_new else "helps, others remain"
        trial.others = others
    return trial, is_stopped and trial.outcome == "unknown"


def _is_another_order(repair: Repair) -> bool:
    return any(edit["edit"] == "move-behind" for edit in [*repair.edits, *repair.later_edits])
