# SPDX-License-Identifier: Apache-2.0
"""Pictures of wear, by matplotlib without a display. The same wear.json gives the same bytes: no dates, ids from a fixed salt.

Axes are logarithmic where writes spread over more than a factor of LOG_FROM: a heap has lines written once and lines written ten
thousand times. The right half is the complementary CDF, the share of lines that were written at least so often: in a plain CDF
the few lines that wear out first, which the picture is for, are a hairline below 1."""

from __future__ import annotations

import io
import re
from collections.abc import Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any

import matplotlib
import numpy
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

from faultline.base.errors import InfrastructureError
from faultline.wear.figures import PICTURE_FORMATS, VIEWS, Counts, Distribution, Wear

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9", "#8c6d31", "#7f7f7f")
"""Okabe and Ito's, told apart by people with colour-blindness, on white and on black; two more at the end."""
DASHES = ("-", "--", "-.", (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5, 1, 1.5)), (0, (3, 1.5)), "-", "--")
LOG_FROM = 20
BINS_A_DECADE = 8
FLOOR = 0.7
"""Of axes that count lines: a bin of one line is seen, an empty one is not."""
INK, SOFT, RULE, CARD = "#1b2230", "#545e70", "#d8dde6", "#ffffff"
"""Of report.css, light; in a page these four become its variables, so that pictures follow its dark colours."""
STYLE: Any = {
    "font.family": ["DejaVu Sans"],
    "font.size": 9.5,
    "svg.hashsalt": "faultline wear",
    "svg.fonttype": "none",
    "text.color": INK,
    "axes.labelcolor": SOFT,
    "axes.edgecolor": SOFT,
    "axes.titlecolor": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "axes.facecolor": CARD,
    "figure.facecolor": CARD,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "grid.color": RULE,
    "grid.linewidth": 0.6,
    "axes.axisbelow": True,
    "legend.frameon": False,
}
PNG_DPI = 144


def write(wear: Wear, folder: Path, formats: Sequence[str]) -> list[Path]:
    """wear.png and wear.svg below folder."""
    with styled():
        return save(overview(wear), folder, "wear", formats)


def styled() -> AbstractContextManager[None]:
    """What pictures are made and saved in."""
    context: AbstractContextManager[None] = matplotlib.rc_context(STYLE)
    return context


def save(figure: Figure, folder: Path, name: str, formats: Sequence[str]) -> list[Path]:
    written = []
    for suffix in formats:
        path = folder / f"{name}.{suffix}"
        metadata = {"Date": None, "Creator": None} if suffix == "svg" else {"Software": None}
        try:
            figure.savefig(path, format=suffix, dpi=PNG_DPI, metadata=metadata)
        except OSError as error:
            raise InfrastructureError(f"{path}: cannot be written: {error.strerror}") from error
        written.append(path)
    return written


def inline_svg(wear: Wear) -> str:
    """For a page: without the XML head, in the page's own colours."""
    text = io.BytesIO()
    with styled():
        overview(wear).savefig(text, format="svg", metadata={"Date": None, "Creator": None})
    svg = text.getvalue().decode()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, flags=re.DOTALL)
    svg = re.sub(
        r'<svg [^>]*?viewBox="([^"]*)"[^>]*>', r'<svg viewBox="\1" role="img" aria-labelledby="wear">', svg, count=1
    )
    for colour, name in ((INK, "--ink"), (SOFT, "--soft"), (RULE, "--rule"), (CARD, "--card")):
        svg = svg.replace(colour, f"var({name})")
    return svg


# ---- histogram and CDF ---------------------------------------------------------------------------------------------------


def overview(wear: Wear) -> Figure:
    """Two rows, a view each: histogram, and complementary CDF."""
    figure = new_figure(11, 7.6)
    axes = figure.subplots(2, 2, gridspec_kw={"hspace": 0.34, "wspace": 0.2})
    for row, (view, words) in enumerate(VIEWS.items()):
        distributions = [each.view(view) for each in wear.allocators]
        largest = max(distribution.maximum for distribution in distributions)
        is_log = largest > LOG_FROM
        for index, distribution in enumerate(distributions):
            _histogram(axes[row][0], distribution, index, largest, is_log)
            _tail(axes[row][1], distribution, index)
        axes[row][0].set_yscale("log")
        axes[row][0].set_ylim(bottom=FLOOR)
        noun = "stores, consecutive ones coalesced" if view == "stores" else "write-backs through the cache model"
        _frame(axes[row][0], f"{noun}", f"{words} of a line", "lines", is_log)
        _frame(axes[row][1], "share of lines with at least so many", f"{words} of a line", "share of lines", is_log)
    handles = [Line2D([], [], **style_of(index)) for index in range(len(wear.allocators))]
    names = [each.allocator for each in wear.allocators]
    columns = min(len(names), 6)
    figure.legend(handles, names, loc="upper center", ncols=columns, bbox_to_anchor=(0.5, 0.94), handlelength=2.6)
    setting = wear.setting
    cache = f"cache {setting.cache_bytes / 1024:g} KiB, {setting.cache_ways} ways"
    figure.suptitle(f"Writes of each {setting.line_bytes}-byte line: {setting.name()} ({cache})", y=0.975, fontsize=11)
    figure.subplots_adjust(left=0.075, right=0.985, bottom=0.075, top=0.855)
    return figure


def new_figure(width: float, height: float) -> Figure:
    """Inches."""
    figure = Figure(figsize=(width, height))
    FigureCanvasAgg(figure)
    return figure


def style_of(index: int) -> dict[str, Any]:
    return {"color": COLOURS[index % len(COLOURS)], "linestyle": DASHES[index % len(DASHES)], "linewidth": 1.7}


def _histogram(axes: Axes, distribution: Distribution, index: int, largest: int, is_log: bool) -> None:
    """Lines in each bin; bins are whole numbers of writes, wider to the right where the axis is logarithmic."""
    edges = _edges(largest, is_log)
    values = [value for value, _ in distribution.histogram]
    counts = [count for _, count in distribution.histogram]
    heights, _ = numpy.histogram(values, bins=edges, weights=counts)
    colour = COLOURS[index % len(COLOURS)]
    axes.stairs(numpy.maximum(heights, FLOOR), edges, baseline=FLOOR, color=colour, linewidth=1.3)


def _edges(largest: int, is_log: bool) -> list[float]:
    if not is_log:
        return [value + 0.5 for value in range(largest + 1)]
    edges = {0.5}
    step = 10 ** (1 / BINS_A_DECADE)
    at = 1.0
    while at <= largest:
        edges.add(int(at) + 0.5)
        at *= step
    edges.add(largest + 0.5)
    return sorted(edges)


def _tail(axes: Axes, distribution: Distribution, index: int) -> None:
    values = numpy.array([value for value, _ in distribution.histogram], dtype=float)
    counts = numpy.array([count for _, count in distribution.histogram], dtype=float)
    share = counts[::-1].cumsum()[::-1] / max(1, distribution.lines)
    axes.plot(values, share, drawstyle="steps-pre", **style_of(index))
    if len(values):
        axes.plot(values[-1:], share[-1:], marker="o", markersize=4, color=COLOURS[index % len(COLOURS)])


def _frame(axes: Axes, title: str, x: str, y: str, is_log: bool) -> None:
    axes.set_title(title, loc="left", fontsize=10)
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.set_yscale("log")
    if is_log:
        axes.set_xscale("log")
    axes.grid(visible=True, which="major")
    axes.tick_params(which="minor", length=2)


# ---- writes by address (Moraru et al., Figure 4) -------------------------------------------------------------------------


def by_address(panels: Sequence[tuple[str, Counts]], title: str, folder: Path, name: str) -> list[Path]:
    """A panel for each: the stores of every line, files one after the other. All panels have the same vertical axis."""
    with styled():
        figure = new_figure(10, 1.9 * len(panels) + 0.8)
        all_axes = figure.subplots(len(panels), 1, sharey=True, squeeze=False)[:, 0]
        for index, (axes, (words, counts)) in enumerate(zip(all_axes, panels, strict=True)):
            axes.stairs(
                numpy.maximum(_in_order(counts), FLOOR),
                baseline=FLOOR,
                fill=True,
                color=COLOURS[index],
                rasterized=True,
            )
            axes.set_yscale("log")
            axes.set_ylim(bottom=FLOOR)
            axes.set_title(words, loc="left", fontsize=9.5)
            axes.set_ylabel("stores")
            axes.grid(visible=True, axis="y")
        all_axes[-1].set_xlabel(f"{panels[0][1].line_bytes}-byte line, from the start of the heap")
        figure.suptitle(title, fontsize=11)
        figure.tight_layout()
        return save(figure, folder, name, PICTURE_FORMATS)


def _in_order(counts: Counts) -> numpy.ndarray[Any, Any]:
    """The stores of each line, and 0 of those in between; what lies between two files is left out."""
    place = counts.lines["number"].astype(numpy.int64)
    end = 0
    for file in numpy.unique(counts.lines["file"]):
        mine = counts.lines["file"] == file
        place[mine] += end - place[mine].min()
        end = int(place[mine].max()) + 1
    stores = numpy.zeros(end)
    stores[place] = counts.lines["stores"]
    return stores
