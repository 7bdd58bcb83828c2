# SPDX-License-Identifier: Apache-2.0
"""The wear page, as data, and the words that tables of wear have everywhere. In the folder of a campaign the page becomes a part of
its report.html, which `faultline report` and `faultline matrix` keep; elsewhere report.html is the page alone."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

from faultline.wear.figures import SHOWN_HOTTEST, VIEWS, AllocatorWear, HotLine, Wear, read_wear

FILE = "wear.json"
SHOWN_FRAMES = 3
SHOWN_SITES = 3
"""Of a line with most stores: those that stored most, and how many of the calls that led there."""
_PARAMETERS = re.compile(r"\(.*\)(?: const)? (?=\([^()]*\)$)")


@dataclass(frozen=True)
class Row:
    """Of an allocator and a view, as people read it; every table shows the same. ratio: total and maximum against the baseline."""

    allocator: str
    view: str
    lines: str
    total: str
    maximum: str
    mean: str
    p99: str
    variation: str
    gini: str
    unlevelled: str
    levelled: str
    ratio_total: str
    ratio_maximum: str


HEADS = {
    "allocator": "allocator",
    "lines": "lines",
    "total": "total",
    "maximum": "max",
    "mean": "mean",
    "p99": "p99",
    "variation": "CV",
    "gini": "Gini",
    "unlevelled": "lifetime",
    "levelled": "levelled",
    "ratio_total": "x total",
    "ratio_maximum": "x max",
}
"""Of the columns of a view's table."""


@dataclass(frozen=True)
class WearPage:
    wear: Wear
    rows: dict[str, list[Row]]
    """By view, in words."""
    picture: str
    hottest: list[tuple[str, list[HotLine]]]
    notes: list[str]


def rows_of(wear: Wear) -> dict[str, list[Row]]:
    return {words: [_row(each, view) for each in wear.allocators] for view, words in VIEWS.items()}


def _row(each: AllocatorWear, view: str) -> Row:
    distribution = each.stores if view == "stores" else each.write_backs
    lifetime, ratio = each.lifetimes[view], each.ratios.get(view)
    return Row(
        allocator=each.allocator,
        view=view,
        lines=f"{distribution.lines:,}",
        total=f"{distribution.total:,}",
        maximum=f"{distribution.maximum:,}",
        mean=f"{distribution.mean:.1f}",
        p99=f"{distribution.p99:,}",
        variation=f"{distribution.variation:.2f}",
        gini=f"{distribution.gini:.3f}",
        unlevelled=amount(lifetime.unlevelled),
        levelled=amount(lifetime.levelled),
        ratio_total=f"{ratio['total']:.2f}" if ratio else "-",
        ratio_maximum=f"{ratio['maximum']:.2f}" if ratio else "-",
    )


def short_place(place: str) -> str:
    """The innermost SHOWN_FRAMES functions of a site, without the parameters of C++."""
    frames = [_PARAMETERS.sub(" ", frame) for frame in place.replace("(anonymous namespace)::", "").split(" < ")]
    return " < ".join(frames[:SHOWN_FRAMES])


def amount(operations: float | None) -> str:
    """Two digits and a power of ten."""
    if operations is None:
        return "-"
    digits, exponent = f"{operations:.1e}".split("e")
    return f"{digits}e{int(exponent)}"


def notes_of(wear: Wear) -> list[str]:
    """What a reader of the table must know and the table does not say."""
    notes = [
        f"lifetime: operations until the first cell has {wear.endurance:.0e} writes; levelled: if all writes were spread evenly"
        f" over {wear.capacity_bytes / (1 << 20):,.10g} MiB",
        f"x total, x max: times those of {wear.baseline}",
    ]
    if any(not each.is_persistent for each in wear.allocators):
        names = ", ".join(each.allocator for each in wear.allocators if not each.is_persistent)
        notes.append(
            f"{names}: malloc in DRAM, which never flushes its own words: they are written back when evicted or at the end,"
            " so compare its stores, not its write-backs"
        )
    adapted = wear.setting.adapter_heaps
    notes += [
        f"{name}: through its adapter, built and run as `faultline run` does, its heap at most {most:,} bytes"
        for name, most in adapted.items()
    ]
    if adapted and len(adapted) < len(wear.allocators):
        others = ", ".join(each.allocator for each in wear.allocators if each.allocator not in adapted)
        notes.append(f"{others}: by allocators/bench, with sizes of their own: --through-adapter runs all alike")
    notes += [
        f"{each.allocator}: {each.failed:,} allocations failed, what follows on their slots was skipped"
        for each in wear.allocators
        if each.failed
    ]
    notes += [
        f"{each.allocator}: its heap outgrew the 8 MiB that the tracer has for brk and went on with mmap, as where brk fails"
        for each in wear.allocators
        if each.is_brk_refused
    ]
    return notes


def page_of(wear: Wear) -> WearPage:
    from faultline.wear import pictures

    hottest = [(each.allocator, each.hottest[:SHOWN_HOTTEST]) for each in wear.allocators]
    return WearPage(wear, rows_of(wear), pictures.inline_svg(wear), hottest, notes_of(wear))


def read_page(folder: Path) -> WearPage | None:
    """Of the wear run that was written to folder; None if there was none."""
    return page_of(read_wear(folder / FILE)) if (folder / FILE).is_file() else None
