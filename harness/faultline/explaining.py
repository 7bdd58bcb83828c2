# SPDX-License-Identifier: Apache-2.0
"""What a person learns from a finding: the operation, the store that is lost and the one that is there, and which flush or fence
forbids the state. A repair is not guessed: the trace is explored again as if its source had it, all of it, by `complete` where the
target's loads are seen."""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from faultline.cache import scratch_folder
from faultline.engine import Certificate, Done, Event, Finding, Repair, Verdict
from faultline.explanation import BUDGET_S, Explanation, Trial
from faultline.exploring import Workshop, write_config
from faultline.results import CellSpec
from faultline.tracing import Target, Trace
from faultline.workloads import Workload


def explain(
    workshop: Workshop,
    spec: CellSpec,
    target: Target,
    traced: Trace,
    workload: Workload,
    finding: Finding,
    say: Callable[[str], None] | None = None,
) -> Explanation:
    """Tries the engine's repairs of the finding until one makes it go. spec: of the cell that shows it; say hears of each before it
    is tried."""
    names = [site.text() for site in finding.sites]
    is_lost = bool(finding.lines)
    found = Explanation(
        finding.id,
        f"power fails at position {finding.position}, {finding.operation_text()}",
        names[0] if is_lost and names else "",
        (names[1] if len(names) > 1 else "") if is_lost else (names[0] if names else ""),
        [],
    )
    deadline = time.monotonic() + BUDGET_S
    partly: Trial | None = None
    for repair in finding.repairs:
        left = deadline - time.monotonic()
        if left <= 0:
            found.is_cut = True
            break
        if say is not None:
            say(repair.text)
        trial = _try(workshop, spec, target, traced, workload, finding, repair, left)
        found.trials.append(trial)
        if trial.outcome == "helps":
            return found
        if trial.outcome == "helps, others remain" and partly is None:
            partly = trial
    if partly is not None:
        found.trials.remove(partly)
        found.trials.append(partly)
    return found


def _try(
    workshop: Workshop,
    spec: CellSpec,
    target: Target,
    traced: Trace,
    workload: Workload,
    finding: Finding,
    repair: Repair,
    limit_s: float,
) -> Trial:
    trial = Trial(repair.text, "unknown")
    verdict: Verdict = "unknown"
    seen: list[Finding] = []

    def handle(event: Event) -> None:
        nonlocal verdict
        match event:
            case Finding():
                seen.append(event)
            case Certificate():
                trial.recoveries, trial.is_complete, trial.why = event.recoveries, event.complete, event.why
            case Done():
                verdict = event.verdict

    # The whole trace, unless the finding comes back: it is the same rule at the same place, whatever is found before it.
    strategy = "complete" if target.hooked else spec.strategy
    spec = msgspec.structs.replace(spec, stop_at_rule=finding.rule, time_limit_s=limit_s, strategy=strategy, nested=0)
    with scratch_folder(workshop.cache, workshop.heap_folder) as folder:
        config = write_config(folder, spec, target, traced, workload, more={"edits": repair.edits})
        workshop.engine.events(["explore", str(config)], handle)
    if any(other.rule == finding.rule for other in seen):
        trial.outcome = "does not help"
    elif verdict == "pass":
        trial.outcome = "helps"
    elif verdict == "fail":
        trial.outcome, trial.others = "helps, others remain", sorted({other.rule for other in seen})
    return trial
