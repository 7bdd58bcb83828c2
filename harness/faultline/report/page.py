# SPDX-License-Identifier: Apache-2.0
"""What report.html shows, as data: the verdict of the whole campaign with what it does not say, the maps, the findings' events and
the certificates. The template only sets it.

The banner answers two questions: is it green, and can that be trusted. Green means no finding in a clean cell, every mutant killed
and every cell with a verdict; what limits the trust stands right below it, never further down.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Literal

from faultline.base.config import DEFAULT_STRATEGY, Flush
from faultline.base.text import count
from faultline.campaign.causes import Found, causes_of
from faultline.campaign.results import CellResult, Summary, kill_rates_of, summarise
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment, Part
from faultline.pipeline.events import Certificate, Finding, OperationCost, TraceEvent
from faultline.report.addresses import Addresses
from faultline.report.coverage import RecoveryCoverage, recovery_coverage
from faultline.report.outcomes import Mark, mark, outcome
from faultline.report.reasons import reason_of
from faultline.report.timeline import timeline
from faultline.report.trace_rules import AllocatorWarning, costs_of, warnings_of
from faultline.study import kill_rates
from faultline.study.explanation import Explanation
from faultline.study.kill_rates import KillRate
from faultline.study.witness import Shrunk

GLYPHS: dict[Mark, str] = {"good": "✓", "bad": "✗", "open": "?"}
REASON_LIMIT = 6
"""Bounds and reasons that the banner spells out; the certificates have all."""
OPEN_FINDINGS = 10
"""Findings that are unfolded from the start."""
FOLD_ROWS = 24
"""Rows of a map, or cells, that are all shown; of more, those that are good are folded."""


@dataclass
class Fact:
    """One line of the banner: what is claimed, and how far."""

    label: str
    text: str
    mark: Mark | None = None
    reasons: list[str] = field(default_factory=list)


@dataclass
class Banner:
    word: str
    mark: Mark
    headline: str
    facts: list[Fact]


@dataclass
class Tile:
    """One square of a map. share: 0 to 100, how strongly it is coloured; notes: what else it says, one a line."""

    mark: Mark
    word: str
    share: int
    cells: list[int]
    notes: list[str] = field(default_factory=list)


@dataclass
class Map:
    """A table of tiles; rows and columns are named, a tile that is not there was not run."""

    columns: list[str]
    rows: list[tuple[str, list[Tile | None]]]

    @property
    def folded(self) -> list[tuple[str, list[Tile | None]]]:
        """Rows in which everything is good, where there are too many to show all."""
        if len(self.rows) <= FOLD_ROWS:
            return []
        return [row for row in self.rows if all(tile is None or tile.mark == "good" for tile in row[1])]

    @property
    def shown(self) -> list[tuple[str, list[Tile | None]]]:
        folded = self.folded
        return [row for row in self.rows if row not in folded]


@dataclass
class FindingView:
    cell: int
    result: CellResult
    finding: Finding
    rows: list[EventRow]
    has_threads: bool
    is_expected: bool
    seen: int
    """Crash states, of all cells that show it."""
    others: list[FindingView] = field(default_factory=list)
    """Further findings that have its cause."""
    address: str = ""
    """In the page: its id, which CI can link to; behind it the build's name where another finding has that."""

    @property
    def explanation(self) -> Explanation | None:
        return self.result.explanation_of(self.finding)

    @property
    def shrunk(self) -> Shrunk | None:
        return self.result.shrunk_of(self.finding)

    @property
    def not_shrunk(self) -> str | None:
        return self.result.not_shrunk.get(self.finding.id)

    @property
    def sites(self) -> list[tuple[str, str]]:
        """What each site is, where, and who called it."""
        return self.finding.call_paths()

    @property
    def timeline(self) -> list[tuple[str, str]]:
        return timeline(self.finding)


@dataclass
class EventRow:
    """kind: event, gap (so many left out) or crash."""

    kind: Literal["event", "gap", "crash"]
    event: TraceEvent | None = None
    is_reached: bool = True
    left_out: int = 0


@dataclass
class NotJudged:
    """Rules that share a reason: `FL004-FL013`."""

    rules: str
    why: str


@dataclass(frozen=True)
class RuleText:
    """What a rule means that something here breaks; its id is its address."""

    id: str
    title: str
    meaning: str


Cells = list[tuple[int, CellResult]]
"""With their numbers."""


@dataclass
class Page:
    banner: Banner
    summary: Summary
    state: str
    results: list[CellResult]
    clean_map: Map | None
    mutant_map: Map | None
    mutant_map_is_by_rule: bool
    findings: list[FindingView]
    mutant_findings: list[FindingView]
    shown_cells: Cells
    folded_cells: Cells
    """Those that are good, where there are too many to show all."""
    rates: list[tuple[str, str, KillRate | None]]
    """Of each clean build: its name, what measures it, its kill rate."""
    rules: list[RuleText]
    coverage: list[RecoveryCoverage]
    warnings: list[AllocatorWarning]
    costs: dict[str, list[OperationCost]]
    environment: Environment
    settings: list[tuple[str, str]]
    seconds: float

    @property
    def folded_mutant_findings(self) -> list[FindingView]:
        """Those by which a mutant is killed, where there are too many to show all."""
        is_long = len(self.mutant_findings) > FOLD_ROWS
        return [view for view in self.mutant_findings if view.is_expected] if is_long else []

    @property
    def shown_mutant_findings(self) -> list[FindingView]:
        folded = {id(view) for view in self.folded_mutant_findings}
        return [view for view in self.mutant_findings if id(view) not in folded]


def page(results: list[CellResult], state: str, environment: Environment) -> Page:
    summary = summarise(results)
    coverage = recovery_coverage(results)
    clean = [(cell, result) for cell, result in enumerate(results) if result.spec.mutant is None]
    mutants = [(cell, result) for cell, result in enumerate(results) if result.spec.mutant is not None]
    findings, mutant_findings = list(_findings(clean)), list(_findings(mutants))
    _give_addresses([*findings, *mutant_findings], results)
    numbered = list(enumerate(results))
    folded = [one for one in numbered if mark(one[1]) == "good"] if len(results) > FOLD_ROWS else []
    is_by_rule = len({(result.spec.allocator, result.spec.mutant) for _, result in mutants}) == len(mutants)
    return Page(
        banner=_banner(results, state, summary, coverage, environment.part),
        summary=summary,
        state=state,
        results=results,
        clean_map=_map_of_settings(clean, _clean_tile) if clean else None,
        mutant_map=(_map_of_rules(mutants) if is_by_rule else _map_of_settings(mutants, _mutant_tile))
        if mutants
        else None,
        mutant_map_is_by_rule=is_by_rule,
        findings=findings,
        mutant_findings=mutant_findings,
        shown_cells=[one for one in numbered if one not in folded],
        folded_cells=folded,
        rates=[
            (kill_rates.name(*build), kill_rates.command(*build), rate)
            for build, rate in kill_rates_of(results).items()
        ],
        rules=_rule_texts(results),
        coverage=coverage,
        warnings=warnings_of(results),
        costs=costs_of(results),
        environment=environment,
        settings=list(_settings(results)),
        seconds=sum(result.build_s + result.trace_s + result.explore_s for result in results if not result.is_reused),
    )


# ---- the banner ----------------------------------------------------------------------------------------------------------


def _banner(
    results: list[CellResult], state: str, summary: Summary, coverage: list[RecoveryCoverage], part: Part | None
) -> Banner:
    survivors = sum(outcome(result) == "survived" for result in results)
    with_findings = sum(bool(result.new_findings) for result in results if result.spec.mutant is None)
    open_cells = sum(mark(result) == "open" and outcome(result) not in ("known", "incomplete") for result in results)
    known = sum(len(result.findings) - len(result.new_findings) for result in results if result.spec.mutant is None)
    facts = [
        *_shard_facts(part),
        _mutants_fact(summary, survivors),
        _complete_fact(summary),
        *_incomplete_facts(results),
        _unknown_fact(results),
        _bounds_fact(results),
        _rules_fact(results),
        *(_coverage_fact(found) for found in coverage),
        *_kill_rate_facts(kill_rates_of(results)),
    ]
    bad = []
    if summary.findings:
        bad.append(f"{count(summary.findings, 'finding')} in {with_findings} of {count(summary.cells, 'clean cell')}")
    if survivors:
        bad.append(f"{survivors} of {count(summary.mutants_run, 'mutant')} survived")
    if bad:
        return Banner("fail", "bad", "; ".join(bad) + ".", facts)
    if state != "done":
        text = f"{state} before its end, after {count(len(results), 'cell')}: no finding so far."
        return Banner("unknown", "open", text[0].upper() + text[1:], facts)
    if open_cells:
        text = f"{open_cells} of {count(len(results), 'cell')} without a verdict"
        text += "; no finding in the others." if open_cells < len(results) else "."
        return Banner("unknown", "open", text, facts)
    if summary.incomplete:
        text = f"No finding, and {summary.incomplete} of {count(len(results), 'cell')} not explored to the end."
        return Banner("incomplete", "open", text, facts)
    if not results:
        return Banner("unknown", "open", "Nothing was explored.", facts)
    return Banner("pass", "good", _green(summary, known), facts)


def _green(summary: Summary, known: int) -> str:
    if not summary.cells:
        return f"{count(summary.mutants_run, 'mutant')} killed; no clean cell was run."
    killed = f", and {count(summary.mutants_run, 'mutant')} killed" if summary.mutants_run else ""
    if known:
        return f"No new finding in {count(summary.cells, 'clean cell')}{killed}; {known} known not counted."
    return f"No finding in {count(summary.cells, 'clean cell')}{killed}."


def _shard_facts(part: Part | None) -> Iterator[Fact]:
    if part is not None:
        cells = f"{len(part.positions)} of the {count(part.cells, 'cell')} of the matrix"
        yield Fact("shard", f"{part.name}: {cells}; nothing is said here of the others", "open")


def _mutants_fact(summary: Summary, survivors: int) -> Fact:
    if not summary.mutants_run:
        return Fact("mutants", "none was run: nothing here shows that a bug would have been seen", "open")
    text = f"{summary.mutants_killed} of {summary.mutants_run} killed by the rule expected of each"
    if survivors:
        return Fact("mutants", f"{text}; {survivors} survived", "bad")
    return Fact("mutants", text, "good" if summary.mutants_killed == summary.mutants_run else "open")


def _complete_fact(summary: Summary) -> Fact:
    if summary.cells and summary.complete == summary.cells:
        return Fact("complete", f"{summary.complete} of {summary.cells} clean cells: every reachable state", "good")
    text = f"{summary.complete} of {count(summary.cells, 'clean cell')}"
    if summary.complete < summary.cells:
        text += (
            "; in the others not every reachable state was run"
            if summary.complete
            else ": not every reachable state was run"
        )
    return Fact("complete", text, "open")


def _incomplete_facts(results: list[CellResult]) -> Iterator[Fact]:
    reasons = [reason for result in results if result.is_incomplete and (reason := reason_of(result))]
    if reasons:
        text = f"{count(len(reasons), 'cell')}: a limit ended the exploration, or left states out"
        yield Fact("incomplete", text, "open", _counted(Counter(reason.why for reason in reasons)))


def _unknown_fact(results: list[CellResult]) -> Fact:
    """Without killed mutants: their twins, which have the bug too, may well fail."""
    cells = [result for result in results if outcome(result) == "unknown"]
    counting = [result for result in results if outcome(result) != "killed"]
    judgements = sum(result.certificate.unknowns for result in counting if result.certificate)
    reasons = Counter(reason for result in counting for reason in _unknown_reasons(result))
    text = f"{count(len(cells), 'cell')}, {count(judgements, 'judgement')}"
    return Fact("unknown", text, "open" if cells or judgements else None, _counted(reasons))


def _unknown_reasons(result: CellResult) -> Iterator[str]:
    if result.error is not None:
        yield result.error
    if result.certificate is not None:
        yield from (str(reason) for reason in result.certificate.unknown_reasons)
        if outcome(result) == "unknown" and not result.certificate.unknown_reasons and result.certificate.why:
            yield result.certificate.why


def _bounds_fact(results: list[CellResult]) -> Fact:
    """Of clean cells: that a mutant stops at its rule is meant."""
    clean = [result.certificate for result in results if result.spec.mutant is None and result.certificate]
    bounds = Counter(bound for certificate in clean for bound in certificate.bounds_hit)
    sampled = sum(certificate.positions_by_strategy.get("sample", 0) for certificate in clean)
    positions = sum(certificate.crash_positions for certificate in clean)
    texts = []
    if sampled:
        texts.append(f"sampled at {sampled:,} of {positions:,} crash positions, which have too many states to run all")
    if bounds:
        texts.append(count(len(bounds), "other bound" if sampled else "bound"))
    return Fact("bounds hit", "; ".join(texts) or "none", "open" if texts else None, _counted(bounds))


def _rules_fact(results: list[CellResult]) -> Fact:
    certificates = [result.certificate for result in results if result.certificate and result.spec.mutant is None]
    judged = {rule for certificate in certificates for rule in certificate.rules_judged}
    reasons: dict[str, set[str]] = {}
    for certificate in certificates:
        for skipped in certificate.rules_not_judged:
            if skipped["rule"] not in judged:
                reasons.setdefault(skipped["why"], set()).add(skipped["rule"])
    never = sorted(set().union(*reasons.values()))
    if not certificates:
        return Fact("rules", "none judged: there is no certificate of a clean cell", "open")
    text = f"{count(len(judged), 'rule')} judged"
    if never:
        text += f"; never: {rule_ranges(never)}"
    return Fact("rules", text, "open" if never else None, [f"{rule_ranges(reasons[why])}: {why}" for why in reasons])


def _coverage_fact(coverage: RecoveryCoverage) -> Fact:
    entered = f"{len(coverage.stages) - len(coverage.never)} of {len(coverage.stages)} stages of {coverage.allocator}"
    if not coverage.never:
        return Fact("recovery", f"{entered} entered by some crash state", "good")
    return Fact("recovery", f"{entered} entered; nothing is known of the others", "open", coverage.never)


def _kill_rate_facts(rates: dict[tuple[str, Flush], KillRate | None]) -> Iterator[Fact]:
    """One for each build that was measured; one for all others."""
    for build, rate in rates.items():
        if rate is not None:
            mark: Mark = "good" if rate.is_whole else "open"
            yield Fact("kill rate", f"{kill_rates.name(*build)}: {rate.text()}", mark)
    unmeasured = [build for build, rate in rates.items() if rate is None]
    if unmeasured:
        names = ", ".join(kill_rates.name(*build) for build in unmeasured)
        commands = [kill_rates.command(*build) for build in unmeasured]
        yield Fact("kill rate", f"{kill_rates.text_of(None)} of {names}", "open", commands)


def _counted(reasons: Counter[str]) -> list[str]:
    """The most frequent first, with the number of cells where there are several."""
    texts = [f"{text} ({cells} cells)" if cells > 1 else text for text, cells in reasons.most_common(REASON_LIMIT)]
    left = len(reasons) - len(texts)
    return [*texts, f"and {left} more"] if left else texts


def rule_ranges(rules: Iterable[str]) -> str:
    """FL003, FL004, FL005, FL014 as FL003-FL005 FL014."""
    runs: list[list[str]] = []
    for rule in sorted(set(rules)):
        if runs and runs[-1][-1][2:].isdigit() and rule[2:].isdigit() and int(rule[2:]) == int(runs[-1][-1][2:]) + 1:
            runs[-1].append(rule)
        else:
            runs.append([rule])
    return " ".join(run[0] if len(run) == 1 else f"{run[0]}–{run[-1]}" for run in runs)


# ---- maps ----------------------------------------------------------------------------------------------------------------


def setting_of(spec: CellSpec) -> str:
    """What a cell was run with, short: the usual is not said."""
    words = [spec.workload_name]
    if spec.ops:
        words += [f"{spec.ops},", f"seed {spec.seed}"]
    usual = (("flush", "clwb"), ("model", "px86"), ("strategy", DEFAULT_STRATEGY))
    return " ".join(words + [getattr(spec, key) for key, value in usual if getattr(spec, key) != value])


def _map_of_settings(cells: Cells, tile: Callable[[int, CellResult], Tile]) -> Map:
    """Allocators (of mutants: mutants) by what they were run with."""
    columns = list(dict.fromkeys(setting_of(result.spec) for _, result in cells))
    rows: dict[str, dict[str, Tile]] = {}
    names = _row_names(cells)
    for cell, result in cells:
        row = rows.setdefault(names(result.spec), {})
        column = setting_of(result.spec)
        made = tile(cell, result)
        row[column] = _worse(row[column], made) if column in row else made
    return Map(columns, [(name, [row.get(column) for column in columns]) for name, row in rows.items()])


def _row_names(cells: Cells) -> Callable[[CellSpec], str]:
    """Mutants without their allocator where there is only one."""
    is_alone = len({result.spec.allocator for _, result in cells}) == 1
    return lambda spec: (
        spec.allocator if not spec.mutant else f"{'' if is_alone else spec.allocator + ' '}{spec.mutant}"
    )


def _worse(one: Tile, other: Tile) -> Tile:
    """Cells that differ in bounds only share a tile: it shows the worst."""
    worst = max(one, other, key=lambda tile: ("good", "open", "bad").index(tile.mark))
    worst.cells += [cell for cell in one.cells + other.cells if cell not in worst.cells]
    return worst


def _clean_tile(cell: int, result: CellResult) -> Tile:
    """Coloured by the share of crash positions of which every state was run."""
    certificate = result.certificate
    if certificate is None:
        return Tile(mark(result), outcome(result), 0, [cell], ["no certificate"])
    share = covered_share(certificate)
    if result.findings:
        rules = " ".join(sorted({finding.rule for finding in result.findings}))
        return Tile(mark(result), outcome(result), 100, [cell], [rules])
    if certificate.stopped:  # of how many positions is not known
        return Tile(mark(result), outcome(result), 0, [cell], [f"stopped at {certificate.stopped.position:,}"])
    note = "complete" if certificate.complete else f"{share} % whole"
    return Tile(mark(result), outcome(result), share, [cell], [note])


def covered_share(certificate: Certificate) -> int:
    """Percent of the crash positions at which every reachable state was run; 100 only if it was at all."""
    if not certificate.crash_positions:
        return 0
    whole = sum(certificate.positions_by_strategy.get(strategy, 0) for strategy in ("exhaustive", "complete"))
    return 100 if certificate.complete else min(99, whole * 100 // certificate.crash_positions)


def _mutant_tile(cell: int, result: CellResult) -> Tile:
    recoveries = result.certificate.recoveries if result.certificate else 0
    notes = [count(recoveries, "recovery", "recoveries")] if recoveries else []
    return Tile(mark(result), outcome(result), _sooner(recoveries), [cell], notes)


def _map_of_rules(cells: Cells) -> Map:
    """Mutants by rule. The expected rule's tile says how the mutant ended, and how much work it was to kill it."""
    expected = {result.spec.expected_rule for _, result in cells if result.spec.expected_rule}
    columns = sorted(expected | {finding.rule for _, result in cells for finding in result.findings})
    names = _row_names(cells)
    rows = [(names(result.spec), [_rule_tile(cell, result, rule) for rule in columns]) for cell, result in cells]
    return Map(columns, rows)


def _rule_tile(cell: int, result: CellResult, rule: str) -> Tile | None:
    if rule == result.spec.expected_rule:
        recoveries = result.certificate.recoveries if result.certificate else 0
        notes = [count(recoveries, "recovery", "recoveries")] if recoveries else []
        return Tile(mark(result), outcome(result), _sooner(recoveries), [cell], notes)
    is_seen = any(finding.rule == rule for finding in result.findings)
    return Tile("good", "also", 0, [cell]) if is_seen else None


def _sooner(recoveries: int) -> int:
    """100 for a mutant that the first recovery kills, 20 less for each factor of ten."""
    return max(10, 100 - round(20 * math.log10(recoveries))) if recoveries else 0


# ---- findings ------------------------------------------------------------------------------------------------------------


def _findings(cells: Cells) -> Iterator[FindingView]:
    """One for each cause, with the others in it."""
    numbers = {id(result): cell for cell, result in cells}
    for cause in causes_of(result for _, result in cells):
        found = [cause.first, *cause.others]
        is_expected = any(one.finding.rule == one.result.spec.expected_rule for one in found if one.result.spec.mutant)
        first, *others = (_finding(numbers[id(one.result)], one, is_expected) for one in found)
        first.others = others
        yield first


def _give_addresses(views: Iterable[FindingView], results: list[CellResult]) -> None:
    addresses = Addresses(results)
    for view in (one for first in views for one in (first, *first.others)):
        view.address = addresses.of(view.result.spec, view.finding)


def _rule_texts(results: list[CellResult]) -> list[RuleText]:
    found = {one.rule: RuleText(one.rule, one.title, one.meaning) for result in results for one in result.findings}
    for entry in warnings_of(results):
        warning = entry.warning
        found.setdefault(warning.rule, RuleText(warning.rule, warning.title, warning.meaning))
    return [found[rule] for rule in sorted(found)]


def _finding(cell: int, found: Found, is_expected: bool) -> FindingView:
    rows = list(event_rows(found.finding))
    threads = {(event.process, event.thread) for event in found.finding.events}
    return FindingView(cell, found.result, found.finding, rows, len(threads) > 1, is_expected, found.seen)


def event_rows(finding: Finding) -> Iterator[EventRow]:
    """The events with the crash between them, and what was left out."""
    before: int | None = None
    has_crashed = False
    for event in finding.events:
        if event.position > finding.position and not has_crashed:
            has_crashed = True
            yield EventRow("crash")
        if before is not None and event.position > before + 1:
            yield EventRow("gap", left_out=event.position - before - 1)
        yield EventRow("event", event, is_reached=not has_crashed)
        before = event.position
    if finding.events and not has_crashed:
        yield EventRow("crash")


# ---- certificates and environment ----------------------------------------------------------------------------------------


def rules_not_judged(certificate: Certificate) -> list[NotJudged]:
    """By reason, so that eleven rules with one reason are one line."""
    reasons: dict[str, list[str]] = {}
    for skipped in certificate.rules_not_judged:
        reasons.setdefault(skipped["why"], []).append(skipped["rule"])
    return [NotJudged(rule_ranges(rules), why) for why, rules in reasons.items()]


def _settings(results: list[CellResult]) -> Iterator[tuple[str, str]]:
    """The configuration, as far as all cells share it."""
    for name in ("strategy", "model", "flush", "seed", "exhaustive_states", "samples"):
        values = sorted({str(getattr(result.spec, name)) for result in results})
        if values:
            yield name.replace("_", " "), ", ".join(values)
