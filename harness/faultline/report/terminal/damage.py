# SPDX-License-Identifier: Apache-2.0
"""What became of damaged heaps."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from faultline.report.terminal import streams
from faultline.report.terminal.streams import print_line
from faultline.study.damage import BAD, OUTCOMES, PROMISES, DamageReport

RULE = "FL016"


def print_damage(report: DamageReport) -> None:
    """A line a kind, then an example of each way in which damage was not noticed, then broken promises."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    headings = ("damage", "promised", "tried", "of", *(outcome.replace("-", " ") for outcome in OUTCOMES), "isolated")
    for heading in headings:
        table.add_column(heading, justify="left" if heading in ("damage", "promised") else "right")
    for kind in report.kinds:
        counts = [kind.outcomes.get(outcome, 0) for outcome in OUTCOMES]
        is_detection = "detected" in kind.promised
        styles = ["bold red" if is_detection and outcome in BAD else "" for outcome in OUTCOMES]
        styles.append("bold red" if "isolated" in kind.promised and kind.isolated < kind.tried else "")
        counted = zip([*counts, kind.isolated], styles, strict=True)
        cells = [Text(f"{count:,}" if count else "-", style) for count, style in counted]
        promised = ", ".join(kind.promised) or "-"
        table.add_row(kind.kind, promised, f"{kind.tried:,}", f"{kind.possible:,}", *cells)
    console = streams.out()
    console.print(table)
    for one in report.examples():
        print_line(console, f"{one.outcome}: ", "yellow", f"{one.name}: {one.rule or 'no rule'}: {one.message}")
    for promise in PROMISES:
        broken = [one for one in report.broken if one.promise == promise]
        for first in broken[:1]:
            many = f"{len(broken):,} damage{'s' * (len(broken) > 1)}"
            text = f"{many} not {promise}, which the contract promises: the first is {first.name} ({first.outcome})"
            print_line(console, f"{RULE}: ", "bold red", text)
    for why in report.why_unknown:
        print_line(console, "unknown: ", "yellow", why)
