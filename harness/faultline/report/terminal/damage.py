# SPDX-License-Identifier: Apache-2.0
"""What became of damaged heaps."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from faultline.report.terminal import streams
from faultline.report.terminal.streams import print_line
from faultline.study.damage import BAD, OUTCOMES, DamageReport

RULE = "FL016"


def print_damage(report: DamageReport) -> None:
    """A line a kind, then an example of each way in which damage was not noticed, then broken promises."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("damage", "promised", "tried", "of", *(outcome.replace("-", " ") for outcome in OUTCOMES)):
        table.add_column(heading, justify="left" if heading in ("damage", "promised") else "right")
    for kind in report.kinds:
        counts = [kind.outcomes.get(outcome, 0) for outcome in OUTCOMES]
        styles = ["bold red" if kind.is_promised and outcome in BAD else "" for outcome in OUTCOMES]
        cells = [Text(f"{count:,}" if count else "-", style) for count, style in zip(counts, styles, strict=True)]
        promised = "detected" if kind.is_promised else "-"
        table.add_row(kind.kind, promised, f"{kind.tried:,}", f"{kind.possible:,}", *cells)
    console = streams.out()
    console.print(table)
    for one in report.examples():
        print_line(console, f"{one.outcome}: ", "yellow", f"{one.name}: {one.rule or 'no rule'}: {one.message}")
    for one in report.broken[:1]:
        many = len(report.broken)
        text = f"{many:,} damage{'s' * (many > 1)} that the contract promises to detect: the first is {one.name} ({one.outcome})"
        print_line(console, f"{RULE}: ", "bold red", text)
    for why in report.why_unknown:
        print_line(console, "unknown: ", "yellow", why)
