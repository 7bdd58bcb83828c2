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

from faultline.coverage import recovery_coverage
from faultline.engine import Finding, TraceRules
from faultline.engine import Progress as EngineProgress
from faultline.errors import FaultlineError
from faultline.outcomes import mark, outcome, scientific
from faultline.page import event_rows
from faultline.results import CellResult, CellSpec
from faultline.trace_rules import COST_NAMES, warning_lines

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
            print_finding(console, result.spec, finding)
        if result.spec.mutant and outcome(result) == "survived":
            _print_line(console, f"{result.spec.name}: ", "bold red", f"survived, expected {result.spec.expected_rule}")
            _print_line(console, "  again: ", "cyan", result.spec.command_line())
    for line in warning_lines(results):
        _print_line(console, "", "", line)
    for coverage in recovery_coverage(results):
        _print_line(console, f"{coverage.allocator}: ", "yellow" if coverage.never else "", coverage.line())


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


def print_finding(console: Console, spec: CellSpec, finding: Finding) -> None:
    _print_line(
        console, f"{finding.rule} ", "bold", f"{spec.name}: {finding.title} ({finding.id}, seen {finding.seen})"
    )
    _print_line(console, "  ", "", finding.message)
    sites = ", ".join(site.text() for site in finding.sites)
    _print_line(console, "  at: ", "cyan", finding.operation_text() + (f"; {sites}" if sites else ""))
    if finding.model_note:
        _print_line(console, "  model: ", "cyan", finding.model_note)
    _print_line(console, "  replay: ", "cyan", f"faultline replay {finding.token}")


def print_events(console: Console, finding: Finding) -> None:
    """The events around the crash position, with what the crash state holds of each store."""
    if not finding.events:
        return
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
    workload = f"{spec.workload_name} {spec.ops}" if spec.ops else spec.workload_name
    if spec.flush != "clwb":
        workload += f" {spec.flush}"
    rules = sorted({finding.rule for finding in result.findings})
    cells = [
        Text(spec.allocator),
        Text(workload),
        Text(spec.mutant or "-"),
        Text(outcome(result), style=COLOURS[mark(result)]),
        Text(" ".join(rules) or "-"),
        Text(f"{certificate.crash_positions:,}" if certificate else "-"),
        Text(scientific(certificate.states) if certificate else "-"),
        Text(f"{certificate.recoveries:,}" if certificate else "-"),
    ]
    seconds = result.build_s + result.trace_s + result.explore_s
    return [*cells, Text("reused" if result.is_reused else f"{seconds:.1f} s")]


# ---- progress ------------------------------------------------------------------------------------------------------------


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
        self._bars = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=24),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
            console=console,
            disable=is_quiet or not console.is_terminal,
        )
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
