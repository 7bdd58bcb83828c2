# SPDX-License-Identifier: Apache-2.0
"""What people see: progress on stderr, tables on stdout, errors as one line and a hint. No colour and no bars when the stream is
not a terminal or NO_COLOR is set."""

from __future__ import annotations

import threading

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table
from rich.text import Text

from faultline.base.errors import FaultlineError
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Finding, TraceRules
from faultline.pipeline.engine import Progress as EngineProgress
from faultline.report.coverage import recovery_coverage
from faultline.report.outcomes import mark, outcome, scientific
from faultline.report.page import event_rows
from faultline.report.timeline import LEGEND, timeline
from faultline.report.trace_rules import COST_NAMES, warning_lines
from faultline.study import kill_rates
from faultline.study.bisect import SHOWN_LINES, Bisection, command_text, place_of
from faultline.study.explanation import Explanation, lines_of_new_outcome
from faultline.study.mutate import Fate, Mutation
from faultline.study.witness import Shrunk
from faultline.wear import page
from faultline.wear.figures import SHOWN_HOTTEST, Wear

COLOURS = {"good": "green", "bad": "bold red", "open": "yellow"}
PLAIN_WIDTH = 160
"""Of tables that go to a file or a pipe: wide enough that no column is folded."""


def out() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def err() -> Console:
    return Console(stderr=True, highlight=False)


def print_error(error: FaultlineError) -> None:
    console = err()
    _print_line(console, "error: ", "bold red", error.message)
    if error.hint:
        _print_line(console, "hint: ", "bold cyan", error.hint)


def _print_line(console: Console, head: str, style: str, text: str) -> None:
    console.print(Text.assemble((head, style), text.replace("\n", " ")), soft_wrap=True)


def note(text: str) -> None:
    err().print(Text(text), soft_wrap=True)


# ---- tables --------------------------------------------------------------------------------------------------------------


def print_results(results: list[CellResult]) -> None:
    """The verdict table, then what needs a look: findings, survivors and errors, each with what to do next. The findings of a
    killed mutant are expected: they are in the reports, and shown here when it is the only cell."""
    console = out()
    console.print(verdict_table(results))
    for result in results:
        if result.error is not None and len(results) > 1:  # of a single cell it is the command's own error
            _print_line(console, f"{result.spec.name}: ", "yellow", f"unknown: {result.error}")
            if result.hint:
                _print_line(console, "  hint: ", "cyan", result.hint)
        if result.certificate is not None and result.certificate.fallback is not None:
            ran = f"strategy {result.certificate.strategy} ran: {result.certificate.fallback}"
            _print_line(console, f"{result.spec.name}: ", "yellow", ran)
        if len(results) == 1 and result.certificate is not None and (ran_in := result.certificate.engines.text()):
            _print_line(console, "recoveries: ", "", ran_in)
        is_expected = outcome(result) == "killed" and len(results) > 1
        for finding in [] if is_expected else result.findings:
            explained, shrunk = result.explanation_of(finding), result.shrunk_of(finding)
            print_finding(console, result.spec, finding, explained, shrunk, result.not_shrunk.get(finding.id))
        if result.spec.mutant and outcome(result) == "survived":
            _print_line(console, f"{result.spec.name}: ", "bold red", f"survived, expected {result.spec.expected_rule}")
            _print_line(console, "  again: ", "cyan", result.spec.command_line())
    _print_allocators(console, results)


def _print_allocators(console: Console, results: list[CellResult]) -> None:
    for line in warning_lines(results):
        _print_line(console, "", "", line)
    for coverage in recovery_coverage(results):
        _print_line(console, f"{coverage.allocator}: ", "yellow" if coverage.never else "", coverage.line())
    for build, rate in kill_rates_of(results).items():
        head = f"{kill_rates.name(*build)}: "
        if rate is not None:
            _print_line(console, head, "" if rate.is_whole else "yellow", f"kill rate {rate.text()}")
        elif len(results) > 1:
            measure = kill_rates.command(*build)
            _print_line(console, head, "yellow", f"kill rate {kill_rates.text_of(None)}: {measure}")


def print_trace_rules(rules: TraceRules) -> None:
    """What is broken where, then what an operation of each kind pays on average."""
    warnings = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (
        ("rule", "left"),
        ("count", "right"),
        ("first", "right"),
        ("what", "left"),
        ("site", "left"),
    ):
        warnings.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    for warning in rules.warnings:
        texts = (
            warning.rule,
            f"{warning.count:,}",
            str(warning.position),
            warning.title,
            warning.site.text() or "unknown",
        )
        warnings.add_row(*map(Text, texts))
    costs = Table(box=None, pad_edge=False, header_style="bold")
    costs.add_column("operation")
    for heading in ("count", *COST_NAMES):
        costs.add_column(heading, justify="right")
    for cost in rules.costs:
        means = [f"{getattr(cost, name) / cost.operations:,.2f}" for name in COST_NAMES]
        costs.add_row(*map(Text, (cost.operation, f"{cost.operations:,}", *means)))
    console = out()
    if rules.warnings:
        console.print(warnings)
        console.print()
    console.print(costs)


def print_finding(
    console: Console,
    spec: CellSpec,
    finding: Finding,
    explanation: Explanation | None = None,
    shrunk: Shrunk | None = None,
    not_shrunk: str | None = None,
) -> None:
    _print_line(
        console, f"{finding.rule} ", "bold", f"{spec.name}: {finding.title} ({finding.id}, seen {finding.seen})"
    )
    if finding.known:
        _print_line(console, "  known: ", "yellow", finding.known)
    _print_line(console, "  ", "", finding.message)
    if explanation is None:
        sites = ", ".join(site.text() for site in finding.sites)
        _print_line(console, "  at: ", "cyan", finding.operation_text() + (f"; {sites}" if sites else ""))
    for word, text in explanation.lines() if explanation else []:
        _print_line(console, f"  {word}: ", "bold cyan", text)
    if finding.model_note:
        _print_line(console, "  model: ", "cyan", finding.model_note)
    if shrunk is not None:
        is_other = shrunk.witness.token != finding.token
        again = f": faultline replay {shrunk.witness.token}" if is_other else ""
        _print_line(console, "  shrunk: ", "bold cyan", shrunk.text() + again)
    if not_shrunk is not None:
        _print_line(console, "  not shrunk: ", "yellow", not_shrunk)
    _print_line(console, "  replay: ", "cyan", f"faultline replay {finding.token}")


def print_events(console: Console, finding: Finding) -> None:
    """Who made the stores that matter, their lines over time, and the events around the crash position, with what the crash state
    holds of each store."""
    for role, path in finding.call_paths():
        _print_line(console, f"  {role}: ", "cyan", path)
    if not finding.events:
        return
    rows = timeline(finding)
    if rows:
        _print_line(console, "  timeline: ", "cyan", LEGEND)
    width = max((len(line) for line, _ in rows), default=0)
    for line, marks in rows:
        _print_line(console, f"    {line:{width}}  ", "", marks)
    has_threads = len({event.thread_text() for event in finding.events}) > 1
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("position", justify="right", no_wrap=True)
    for heading in (["thread"] if has_threads else []) + [
        "operation",
        "event",
        "where",
        "value",
        "crash state",
        "site",
    ]:
        table.add_column(heading, overflow="fold")
    for row in event_rows(finding):
        event = row.event
        if event is None:
            text = Text("power fails", "bold red") if row.kind == "crash" else Text(f"{row.left_out:,} left out", "dim")
            table.add_row(*[""] * (2 + has_threads), text)
            continue
        texts = [event.operation_text(), event.kind, event.place_text(), event.value or ""]
        state = Text(event.state_text(), "bold red" if event.is_persisted in ("no", "partly") else "")
        table.add_row(
            str(event.position),
            *(Text(text) for text in ([event.thread_text()] if has_threads else []) + texts),
            state if row.is_reached else Text("not reached", "dim"),
            Text(event.site.short_text() if event.site else ""),
        )
    console.print(table)


def verdict_table(results: list[CellResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("allocator", "workload", "mutant"):
        table.add_column(heading, overflow="fold")
    for heading in ("verdict", "rules"):
        table.add_column(heading)
    for heading in ("positions", "states", "recoveries", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_row(result))
    return table


def _row(result: CellResult) -> list[Text]:
    spec, certificate = result.spec, result.certificate
    rules = sorted({finding.rule for finding in result.findings})
    cells = [
        Text(spec.allocator),
        Text(spec.workload_text),
        Text(spec.mutant or "-"),
        Text(outcome(result), style=COLOURS[mark(result)]),
        Text(" ".join(rules) or "-"),
        Text(f"{certificate.crash_positions:,}" if certificate else "-"),
        Text(scientific(certificate.states) if certificate else "-"),
        Text(f"{certificate.recoveries:,}" if certificate else "-"),
    ]
    seconds = result.build_s + result.trace_s + result.explore_s
    return [*cells, Text("reused" if result.is_reused else f"{seconds:.1f} s")]


def print_mutation(mutation: Mutation) -> None:
    """A line a place, those that need a look last."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading, justify in (
        ("fate", "left"),
        ("rule", "left"),
        ("count", "right"),
        ("recoveries", "right"),
        ("workload", "left"),
        ("place", "left"),
    ):
        table.add_column(heading, justify=justify, overflow="fold")  # type: ignore[arg-type]
    order: list[Fate] = ["killed", "redundant", "unknown", "blind spot"]
    for place in sorted(mutation.places, key=lambda place: order.index(place.fate)):
        last = place.trials[-1]
        style = {"killed": "green", "redundant": "", "unknown": "yellow", "blind spot": "bold red"}[place.fate]
        table.add_row(
            Text(place.fate, style),
            Text(" ".join(sorted(set(last.rules))) or "-"),
            Text(f"{place.count:,}" if place.count else "-"),
            Text(f"{place.recoveries:,}"),
            Text(last.workload if place.fate == "killed" else f"all {len(place.trials)}"),
            Text(place.name),
        )
    console = out()
    console.print(table)
    for place in mutation.places:
        if place.fate == "unknown":
            _print_line(console, f"{place.name}: ", "yellow", f"unknown: {place.why_unknown()}")
        for trial in place.trials:
            if trial.instead_of:
                _print_line(console, f"{place.name}: ", "", f"{trial.workload} instead of {trial.instead_of}")
            if place.fate == "blind spot" and trial.new_outcomes:
                many = "s" * (trial.new_outcomes > 1)
                said = f"{trial.workload}: recovery shows {trial.new_outcomes:,} new outcome{many}, and no rule minds"
                _print_line(console, f"{place.name}: ", "bold red", said)
                for word, text in lines_of_new_outcome(trial.first_new) if trial.first_new else ():
                    _print_line(console, f"  {word}: ", "cyan", text)


def print_bisection(bisection: Bisection) -> None:
    """The commit, then its lines that concern the stores of the finding."""
    console = out()
    finding = bisection.finding
    if not bisection.first_bad:
        _print_line(
            console, "first bad commit: ", "bold", "one of those that could not be tested, or the one after them:"
        )
        for commit in bisection.candidates:
            why = next((one.why for one in reversed(bisection.steps) if one.commit == commit), "bad")
            _print_line(console, f"  {commit[:12]} ", "", why)
        return
    _print_line(console, "first bad commit: ", "bold red", f"{bisection.first_bad[:12]} {bisection.title}")
    _print_line(console, "  shows: ", "cyan", f"{place_of(finding)} ({finding.id}): {finding.message}")
    _print_changes(console, bisection)
    if bisection.shrunk is not None:
        _print_line(
            console, "  looked at with: ", "cyan", f"{bisection.shrunk.text()}; the commit before with all of it"
        )
    if bisection.unconfirmed:
        _print_line(console, "  not sure: ", "yellow", f"by the whole workload, {bisection.unconfirmed}")
    outcomes = [one.outcome for one in bisection.steps]
    counted = ", ".join(f"{outcomes.count(word)} {word}" for word in ("good", "bad", "skip") if word in outcomes)
    _print_line(console, "  tested: ", "cyan", f"{counted}; {command_text(bisection)} shows all of it")


def _print_changes(console: Console, bisection: Bisection) -> None:
    left = SHOWN_LINES
    for change in bisection.changes:
        shown = change.lines[: max(0, left)]
        if not shown:
            _print_line(console, "  ", "dim", "and more")
            return
        left -= len(shown)
        _print_line(console, f"  {change.file}:{change.line} ", "bold", change.function)
        for line in shown:
            _print_line(console, "    ", "", line)


# ---- progress ------------------------------------------------------------------------------------------------------------


def _bars(console: Console, is_quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=is_quiet or not console.is_terminal,
    )


class StepProgress:
    """Progress of a command in steps on stderr: a bar with time left on a terminal, else one line a finished item."""

    def __init__(self, is_quiet: bool = False) -> None:
        console = err()
        self._console = console
        self._is_silent = is_quiet or console.is_terminal
        self._bars = _bars(console, is_quiet)
        self._guard = threading.Lock()
        self._task: TaskID | None = None
        self._done = self._total = 0

    def __enter__(self) -> StepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begins(self, step: str, total: int) -> None:
        self._task = self._bars.add_task(step, total=total)
        self._done, self._total = 0, total

    def ends(self, text: str) -> None:
        with self._guard:
            self._done += 1
            if self._task is not None:
                self._bars.advance(self._task)
            if not self._is_silent:
                self._console.print(Text(f"[{self._done}/{self._total}] {text}"), soft_wrap=True)


class CampaignProgress:
    """Progress of a campaign on stderr: bars with time left on a terminal, else one line a finished cell. Use as context."""

    def __init__(self, specs: list[CellSpec], is_quiet: bool = False) -> None:
        console = err()
        self._console = console
        self._is_quiet = is_quiet
        self._specs = specs
        self._guard = threading.Lock()
        self._finished = 0
        self._tasks: dict[int, TaskID] = {}
        self._bars = _bars(console, is_quiet)
        self._all = self._bars.add_task("cells", total=len(specs), visible=len(specs) > 1)

    def __enter__(self) -> CampaignProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def cell_begins(self, position: int, spec: CellSpec, step: str) -> None:
        with self._guard:
            if position not in self._tasks:
                self._tasks[position] = self._bars.add_task("", total=None)
            self._bars.update(self._tasks[position], description=f"{spec.name}: {step}")

    def nothing_to_resume(self, spec: CellSpec) -> None:
        text = f"{spec.name}: nothing to go on with, the same exploration was not stopped last; it begins at its start"
        with self._guard:
            self._console.print(Text(text), soft_wrap=True)

    def cell_progress(self, position: int, progress: EngineProgress) -> None:
        with self._guard:
            if position in self._tasks:
                self._bars.update(self._tasks[position], total=progress.positions, completed=progress.position)

    def cell_ends(self, position: int, result: CellResult) -> None:
        with self._guard:
            self._finished += 1
            if position in self._tasks:
                self._bars.remove_task(self._tasks.pop(position))
            self._bars.update(self._all, completed=self._finished)
            if not self._console.is_terminal and not self._is_quiet:
                self._console.print(
                    Text(f"[{self._finished}/{len(self._specs)}] {result.spec.name}: {outcome(result)}"), soft_wrap=True
                )


# ---- wear ----------------------------------------------------------------------------------------------------------------


def print_wear(wear: Wear) -> None:
    """A table a view, then the lines with most stores and who stored to them."""
    console = out()
    setting = wear.setting
    cache = f"cache model {setting.cache_bytes / 1024:g} KiB, {setting.cache_ways} ways"
    _print_line(console, "", "", f"{setting.name()}: {setting.line_bytes}-byte lines, {cache}")
    for view, rows in page.rows_of(wear).items():
        table = Table(title=view, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for field, head in page.HEADS.items():
            table.add_column(head, justify="left" if field == "allocator" else "right")
        for row in rows:
            table.add_row(*(getattr(row, field) for field in page.HEADS))
        console.print(table)
    for note_text in page.notes_of(wear):
        _print_line(console, "", "", note_text)
    for each in wear.allocators:
        for line in each.hottest[:SHOWN_HOTTEST]:
            sites = line.sites[: page.SHOWN_SITES]
            writers = "; ".join(f"{site.stores:,} by {page.short_place(site.place)}" for site in sites)
            _print_line(console, f"{each.allocator}: ", "", f"line {line.place}: {line.stores:,} stores: {writers}")
