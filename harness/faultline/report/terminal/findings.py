# SPDX-License-Identifier: Apache-2.0
"""One finding, and the events around its crash position."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Finding
from faultline.report.page import event_rows
from faultline.report.terminal.streams import print_line
from faultline.report.timeline import LEGEND, timeline
from faultline.study.explanation import Explanation
from faultline.study.witness import Shrunk


def print_finding(
    console: Console,
    spec: CellSpec,
    finding: Finding,
    explanation: Explanation | None = None,
    shrunk: Shrunk | None = None,
    not_shrunk: str | None = None,
) -> None:
    print_line(
        console, f"{finding.rule} ", "bold", f"{spec.name}: {finding.headline} ({finding.id}, seen {finding.seen})"
    )
    if finding.known:
        print_line(console, "  known: ", "yellow", finding.known)
    print_line(console, "  ", "", finding.message)
    if explanation is None:
        print_line(console, "  at: ", "cyan", finding.where_text())
    for word, text in explanation.lines() if explanation else []:
        print_line(console, f"  {word}: ", "bold cyan", text)
    if finding.model_note:
        print_line(console, "  model: ", "cyan", finding.model_note)
    if shrunk is not None:
        is_other = shrunk.witness.token != finding.token
        again = f": faultline replay {shrunk.witness.token}" if is_other else ""
        print_line(console, "  shrunk: ", "bold cyan", shrunk.text() + again)
    if not_shrunk is not None:
        print_line(console, "  not shrunk: ", "yellow", not_shrunk)
    print_line(console, "  replay: ", "cyan", spec.replay_command(finding.token))


def print_events(console: Console, finding: Finding) -> None:
    """Who made the stores that matter, their lines over time, and the events around the crash position, with what the crash state
    holds of each store."""
    for role, path in finding.call_paths():
        print_line(console, f"  {role}: ", "cyan", path)
    if not finding.events:
        return
    rows = timeline(finding)
    if rows:
        print_line(console, "  timeline: ", "cyan", LEGEND)
    width = max((len(line) for line, _ in rows), default=0)
    for line, marks in rows:
        print_line(console, f"    {line:{width}}  ", "", marks)
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
        state = Text(event.state_text(), "bold red" if event.is_persisted in ("no", "torn") else "")
        table.add_row(
            str(event.position),
            *(Text(text) for text in ([event.thread_text()] if has_threads else []) + texts),
            state if row.is_reached else Text("not reached", "dim"),
            Text(event.site.short_text() if event.site else ""),
        )
    console.print(table)
