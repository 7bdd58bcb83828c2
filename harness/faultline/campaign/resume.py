# SPDX-License-Identifier: Apache-2.0
"""Joins the parts of an exploration that was stopped and went on at the crash position where it had stopped. The result is that of
an exploration that was never stopped, except for the numbers of recoveries: each part has a memory of its own."""

from __future__ import annotations

from collections import Counter
from typing import Any

from faultline.pipeline.events import Certificate, Engines, Finding, Incomplete, Stage, Verdict, states_text, sum_log10
from faultline.pipeline.prepared import PreparedCell


def as_it_ran(cell: PreparedCell, certificate: Certificate) -> PreparedCell:
    """The cell with the strategy and the engine that an exploration of it came to."""
    if certificate.fallback:
        return cell.with_spec(strategy="mixed")
    return cell.with_spec(replay_engine=certificate.engine) if certificate.engine_why else cell


AS_REPAIRED = "complete only as repaired"
"""As the engine says it."""


def joined(earlier: Certificate, later: Certificate) -> Certificate:
    """Of crash positions up to where the earlier one stopped, and of those from there on. An exploration that falls back to another
    engine or strategy does so from its start: then it is the whole."""
    if (later.strategy, later.engine) != (earlier.strategy, earlier.engine):
        return later
    stop = earlier.stop_bounds()
    gaps = _each_once(earlier.gaps + later.gaps)
    behind = earlier.behind + later.behind
    is_whole = not gaps and later.stopped is None
    is_whole_as_repaired = is_whole and bool(behind)
    why = [AS_REPAIRED] if is_whole_as_repaired else []
    why += [*(one.text() for one in behind), *gaps, *later.stop_bounds()]
    states_log10 = sum_log10([one.states_log10 for one in (earlier, later) if one.states_log10 is not None])
    return Certificate(
        complete=is_whole and not behind,
        why="; ".join(why),
        gaps=gaps,
        is_whole_as_repaired=is_whole_as_repaired,
        behind=behind,
        stopped=later.stopped,
        strategy=later.strategy,
        fallback=later.fallback or earlier.fallback,
        engine=later.engine,
        engine_why=later.engine_why or earlier.engine_why,
        incomplete=_joined_incomplete(earlier.incomplete + later.incomplete),
        crash_positions=earlier.crash_positions + later.crash_positions,
        states=states_text(states_log10),
        states_log10=states_log10,
        recoveries=earlier.recoveries + later.recoveries,
        memoised=earlier.memoised + later.memoised,
        distinct_images=earlier.distinct_images + later.distinct_images,
        unknowns=earlier.unknowns + later.unknowns,
        unknown_reasons=_each_once(earlier.unknown_reasons + later.unknown_reasons),
        rules_judged=sorted({*earlier.rules_judged, *later.rules_judged}),
        rules_not_judged=_each_once(earlier.rules_not_judged + later.rules_not_judged),
        positions_by_strategy=dict(Counter(earlier.positions_by_strategy) + Counter(later.positions_by_strategy)),
        judgements=earlier.judgements + later.judgements,
        later_positions=earlier.later_positions + later.later_positions,
        later_judgements=earlier.later_judgements + later.later_judgements,
        long_lives=earlier.long_lives + later.long_lives,
        file_losses=later.file_losses,
        full_probes=earlier.full_probes + later.full_probes,
        stages=_joined_stages(earlier.stages + later.stages),
        engines=_joined_engines(earlier.engines, later.engines),
        peak_memory_bytes=max(earlier.peak_memory_bytes, later.peak_memory_bytes),
        time_s=earlier.time_s + later.time_s,
        covers=later.covers,
        bounds_hit=_each_once([bound for bound in earlier.bounds_hit if bound not in stop] + later.bounds_hit),
    )


def joined_verdict(findings: list[Finding], earlier: Certificate, later: Verdict) -> Verdict:
    if findings:
        return "fail"
    if earlier.unknown_reasons:
        return "unknown"
    return "incomplete" if earlier.incomplete and later == "pass" else later


def _each_once(entries: list[Any]) -> list[Any]:
    return [entry for at, entry in enumerate(entries) if entry not in entries[:at]]


def _joined_incomplete(entries: list[Incomplete]) -> list[Incomplete]:
    by_reason: dict[str, Incomplete] = {}
    for entry in entries:
        known = by_reason.setdefault(entry.why, Incomplete(entry.why, 0, entry.first, entry.last))
        known.positions += entry.positions
        known.last = entry.last
    return list(by_reason.values())


def _joined_stages(stages: list[Stage]) -> list[Stage]:
    entered: Counter[str] = Counter()
    for stage in stages:
        entered[stage.name] += stage.entered
    return [Stage(name, count) for name, count in entered.items()]


def _joined_engines(earlier: Engines, later: Engines) -> Engines:
    isolated = Counter(earlier.isolated) + Counter(later.isolated)
    counts = ("in_process", "compared", "refereed", "remembered")
    return Engines(**{name: getattr(earlier, name) + getattr(later, name) for name in counts}, isolated=dict(isolated))
