# SPDX-License-Identifier: Apache-2.0
"""Figures of wear."""

from __future__ import annotations

from rich.table import Table

from faultline.report.terminal import streams
from faultline.report.terminal.streams import print_line
from faultline.wear import page
from faultline.wear.figures import SHOWN_HOTTEST, Wear


def print_wear(wear: Wear) -> None:
    """A table a view, then the lines with most stores and who stored to them."""
    console = streams.out()
    setting = wear.setting
    cache = f"cache model {setting.cache_bytes / 1024:g} KiB, {setting.cache_ways} ways"
    print_line(console, "", "", f"{setting.name()}: {setting.line_bytes}-byte lines, {cache}")
    for view, rows in page.rows_of(wear).items():
        table = Table(title=view, title_justify="left", title_style="bold", box=None, pad_edge=False)
        for field, head in page.HEADS.items():
            table.add_column(head, justify="left" if field == "allocator" else "right")
        for row in rows:
            table.add_row(*(getattr(row, field) for field in page.HEADS))
        console.print(table)
    for note_text in page.notes_of(wear):
        print_line(console, "", "", note_text)
    for each in wear.allocators:
        for line in each.hottest[:SHOWN_HOTTEST]:
            sites = line.sites[: page.SHOWN_SITES]
            writers = "; ".join(f"{site.stores:,} by {page.short_place(site.place)}" for site in sites)
            print_line(console, f"{each.allocator}: ", "", f"line {line.place}: {line.stores:,} stores: {writers}")
