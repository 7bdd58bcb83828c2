# SPDX-License-Identifier: Apache-2.0
"""A comparison of two campaigns, as text: one line a fact, what is worse first."""

from __future__ import annotations

from rich.console import Console

from faultline.report.comparison import Comparison, Word
from faultline.report.comparison_texts import details, mark_of, word_of
from faultline.report.terminal import streams
from faultline.report.terminal.streams import COLOURS, print_line

FINDING_COLOURS: dict[Word, str] = {"new": "bold red", "fixed": "green", "not seen again": "yellow", "changed": "cyan"}


def print_comparison(comparison: Comparison) -> None:
    console = streams.out()
    for word, colour in FINDING_COLOURS.items():
        for finding in comparison.of(word):
            known = " (known)" if finding.is_known else ""
            print_line(console, f"{word}{known}: ", colour, finding.text())
            for name, text in details(finding):
                print_line(console, f"  {name}: ", "cyan", text)
    _print_each(console, "survives: ", "bold red", comparison.survivors)
    _print_each(console, "no verdict: ", "yellow", comparison.opened)
    _print_each(console, "cell: ", "cyan", [one.text() for one in comparison.outcomes])
    _print_each(console, "certificate: ", "cyan", [one.text() for one in comparison.certificates])
    _print_each(console, "slower: ", "yellow", [one.text() for one in comparison.slower])
    _print_each(console, "kill rate: ", "cyan", [one.text() for one in comparison.kill_rates])
    _print_each(console, "added: ", "", comparison.added)
    _print_each(console, "gone: ", "", comparison.removed)
    print_line(console, f"{word_of(comparison)}: ", COLOURS[mark_of(comparison)], comparison.headline)


def _print_each(console: Console, head: str, style: str, texts: list[str]) -> None:
    for text in texts:
        print_line(console, head, style, text)
