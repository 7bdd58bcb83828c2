# SPDX-License-Identifier: Apache-2.0
"""What came of taking every flush and fence out."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from faultline.report.terminal import streams
from faultline.report.terminal.streams import print_line
from faultline.study.explanation import lines_of_new_outcome
from faultline.study.mutate import Fate, Mutation


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
        workloads = {trial.workload for trial in ([last] if place.fate == "killed" else place.trials)}
        style = {"killed": "green", "redundant": "", "unknown": "yellow", "blind spot": "bold red"}[place.fate]
        table.add_row(
            Text(place.fate, style),
            Text(" ".join(sorted(set(last.rules))) or "-"),
            Text(f"{place.count:,}" if place.count else "-"),
            Text(f"{place.recoveries:,}"),
            Text(workloads.pop() if len(workloads) == 1 else f"all {len(workloads)}"),
            Text(place.name),
        )
    console = streams.out()
    console.print(table)
    if mutation.known:
        print_line(console, "known findings, which kill nothing: ", "", ", ".join(mutation.known))
    for place in mutation.places:
        if place.fate == "unknown":
            print_line(console, f"{place.name}: ", "yellow", f"unknown: {place.why_unknown()}")
        for trial in place.trials:
            if trial.instead_of:
                print_line(console, f"{place.name}: ", "", f"{trial.workload} instead of {trial.instead_of}")
            if place.fate == "blind spot" and trial.new_outcomes:
                many = "s" * (trial.new_outcomes > 1)
                said = f"{trial.workload}: recovery shows {trial.new_outcomes:,} new outcome{many}, and no rule minds"
                print_line(console, f"{place.name}: ", "bold red", said)
                for word, text in lines_of_new_outcome(trial.first_new) if trial.first_new else ():
                    print_line(console, f"  {word}: ", "cyan", text)
