# SPDX-License-Identifier: Apache-2.0
"""The first bad commit, and what it changed."""

from __future__ import annotations

from rich.console import Console

from faultline.report.terminal import streams
from faultline.report.terminal.streams import print_line
from faultline.study.bisect import SHOWN_LINES, Bisection, command_text, place_of


def print_bisection(bisection: Bisection) -> None:
    """The commit, then its lines that concern the stores of the finding."""
    console = streams.out()
    finding = bisection.finding
    if not bisection.first_bad:
        print_line(
            console, "first bad commit: ", "bold", "one of those that could not be tested, or the one after them:"
        )
        for commit in bisection.candidates:
            why = next((one.why for one in reversed(bisection.steps) if one.commit == commit), "bad")
            print_line(console, f"  {commit[:12]} ", "", why)
        return
    print_line(console, "first bad commit: ", "bold red", f"{bisection.first_bad[:12]} {bisection.title}")
    print_line(console, "  shows: ", "cyan", f"{place_of(finding)} ({finding.id}): {finding.message}")
    _print_changes(console, bisection)
    if bisection.shrunk is not None:
        print_line(
            console,
            "  looked at with: ",
            "cyan",
            f"{bisection.shrunk.text()}; the commit before: with the whole workload",
        )
    if bisection.unconfirmed:
        print_line(console, "  not sure: ", "yellow", f"by the whole workload, {bisection.unconfirmed}")
    outcomes = [one.outcome for one in bisection.steps]
    counted = ", ".join(f"{outcomes.count(word)} {word}" for word in ("good", "bad", "skip") if word in outcomes)
    print_line(console, "  tested: ", "cyan", f"{counted}; {command_text(bisection)} shows all of it")


def _print_changes(console: Console, bisection: Bisection) -> None:
    left = SHOWN_LINES
    for change in bisection.changes:
        shown = change.lines[: max(0, left)]
        if not shown:
            print_line(console, "  ", "dim", "and more")
            return
        left -= len(shown)
        print_line(console, f"  {change.file}:{change.line} ", "bold", change.function)
        for line in shown:
            print_line(console, "    ", "", line)
