# SPDX-License-Identifier: Apache-2.0
"""What a trace breaks, and what its operations pay."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from faultline.pipeline.events import TraceRules
from faultline.report.terminal import streams
from faultline.report.trace_rules import COST_NAMES


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
    console = streams.out()
    if rules.warnings:
        console.print(warnings)
        console.print()
    console.print(costs)
