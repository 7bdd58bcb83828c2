# SPDX-License-Identifier: Apache-2.0
"""Write wear: how often each line of a heap was written, and what that means for memory whose cells wear out.

Two views of one run (pintools/wear.h says what is counted): `stores`, consecutive ones to a line coalesced, and `write_backs`, what
a model of a cache lets through to the medium. For each the figures are over the lines that were written at least once:

    total      writes, of all lines
    maximum    writes of the line with most
    mean       total / lines
    p99        the least number of writes that 99 % of the lines do not exceed
    variation  standard deviation / mean (coefficient of variation): 0 if all are written equally often
    gini       mean absolute difference of two lines / (2 mean): 0 if all are equal, near 1 if one takes it all

**Lifetime**, in operations of the workload: the workload is repeated on the same memory until the first cell has been written
`endurance` times; every write of a line writes each of its cells once.

    without levelling   operations * endurance / maximum
    ideally levelled    operations * endurance * (capacity / line bytes) / total: writes are spread evenly over `capacity` bytes

The former is what an allocator alone is good for, the latter the most that any hardware can make of its writes; what a device lives
lies between them.
"""

from __future__ import annotations

import csv
import struct
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from faultline.base.config import read_json
from faultline.base.errors import BadInputError, InfrastructureError

if TYPE_CHECKING:
    import numpy  # below it is imported where it is used: like matplotlib it takes longer to load than all the rest

WEAR_JSON_VERSION = 1
"""Of wear.json and of what --protect writes."""
DEFAULT_ENDURANCE = 1e8
"""Writes a cell of phase-change memory lasts (Moraru et al., Table 1)."""
MOST_ENDURANCE = 1e18
"""More than any memory; lifetimes stay finite."""
DEFAULT_CAPACITY_BYTES = 1 << 30
DEFAULT_LINE_BYTES = 64
DEFAULT_CACHE_BYTES = 2 << 20
DEFAULT_CACHE_WAYS = 16
"""The second-level cache of a core of today's servers: 2 MiB, 16 ways."""
SHOWN_HOTTEST = 3
"""Lines with most stores that tables show; wear.json has as many as the tracer kept."""

PICTURE_FORMATS = ("png", "svg")

View = Literal["stores", "write_backs"]
VIEWS: dict[View, str] = {"stores": "stores", "write_backs": "write-backs"}

_MAGIC = b"FLWEAR\0\0"
_VERSION = 2
_HEADER = struct.Struct("<8sIIQIIIIQQQQQ4Q16x")
_LINE = [("number", "<u8"), ("stores", "<u8"), ("write_backs", "<u8"), ("file", "<u4"), ("reserved", "<u4")]
_USE = [("line", "<u8"), ("stores", "<u8"), ("site", "<u8")]
_FORKED, _BRK_REFUSED = 1, 2
REASONS = ("flushed", "evicted", "non-temporal", "dirty at the end")
"""Why lines were written back, as enum fl_wear_reason counts them."""


# ---- what the tracer counted ---------------------------------------------------------------------------------------------


class WriteSite(msgspec.Struct):
    """A place in the source that stored to a line. place: `function (file:line)`, innermost first, callers behind ` < `."""

    place: str
    stores: int


class HotLine(msgspec.Struct):
    """place: `file+offset`, or the address of a line of the process's own heap."""

    place: str
    stores: int
    write_backs: int
    sites: list[WriteSite]


def _run_text(heap_bytes: int | None) -> str:
    return "by allocators/bench" if heap_bytes is None else f"through its adapter with a heap of {heap_bytes} bytes"


@dataclass(frozen=True)
class Counts:
    """A file of pintools/wear.h. lines: a row each for line that was written, by file and number."""

    line_bytes: int
    cache_bytes: int
    cache_ways: int
    lines: numpy.ndarray[Any, Any]
    files: list[str]
    hottest: list[HotLine]
    executed: int
    flushes: int
    fences: int
    write_back_reasons: dict[str, int]
    is_brk_refused: bool


def read_counts(path: Path, *, is_memory: bool) -> Counts:
    """is_memory: lines are those of the process's own heap. Raises InfrastructureError when the file is not what wear.h says."""

    def fail(why: str) -> InfrastructureError:
        return InfrastructureError(f"{path}: {why}", "remove it from the cache and count again")

    import numpy

    line_row, use_row = numpy.dtype(_LINE), numpy.dtype(_USE)
    data = path.read_bytes()
    if len(data) < _HEADER.size:
        raise fail(f"{len(data)} bytes, counts of wear start with {_HEADER.size}")
    (
        magic,
        version,
        line_bytes,
        cache_bytes,
        ways,
        flags,
        files,
        uses,
        lines,
        text_bytes,
        executed,
        flushes,
        fences,
        *why,
    ) = _HEADER.unpack_from(data)
    if magic != _MAGIC or version != _VERSION:
        raise fail(f"not counts of wear of version {_VERSION}")
    wanted = _HEADER.size + lines * line_row.itemsize + uses * use_row.itemsize + text_bytes
    if len(data) != wanted:
        raise fail(f"{len(data)} bytes, expected {wanted}")
    if flags & _FORKED:
        raise fail("the target forked, stores of child processes are not counted")
    at = _HEADER.size
    rows = numpy.frombuffer(data, line_row, lines, at)
    at += rows.nbytes
    use_rows = numpy.frombuffer(data, use_row, uses, at)
    text = data[at + use_rows.nbytes :]
    names = [name.decode(errors="replace") for name in text.split(b"\0")[:files]]
    if lines and (int(rows["file"].min()) == 0 or int(rows["file"].max()) > files):
        raise fail("a line of a file that has no name")
    if uses and (int(use_rows["line"].max()) >= lines or int(use_rows["site"].max()) >= text_bytes):
        raise fail("a site of a line that is not there")

    hottest: dict[int, HotLine] = {}
    for index, stores, place in use_rows.tolist():
        row = rows[index]
        if index not in hottest:
            offset = int(row["number"]) * line_bytes
            where = f"{offset:#x}" if is_memory else f"{names[int(row['file']) - 1]}+{offset:#x}"
            hottest[index] = HotLine(where, int(row["stores"]), int(row["write_backs"]), [])
        end = text.index(b"\0", place)
        hottest[index].sites.append(WriteSite(text[place:end].decode(errors="replace"), stores))
    ranked = sorted(hottest.values(), key=lambda line: -line.stores)
    reasons = dict(zip(REASONS, why, strict=True))
    return Counts(
        line_bytes,
        cache_bytes,
        ways,
        rows,
        names,
        ranked,
        executed,
        flushes,
        fences,
        reasons,
        bool(flags & _BRK_REFUSED),
    )


def counts_of_all(sessions: Sequence[Counts]) -> Counts:
    """Of a workload's processes, one after the other: what each wrote to the same lines is added up. The hottest lines are those
    that were among the hottest of a process."""
    import numpy

    if len(sessions) == 1:
        return sessions[0]
    files = sorted({name for one in sessions for name in one.files})
    numbers = {name: at + 1 for at, name in enumerate(files)}
    rows = [one.lines.copy() for one in sessions]
    for one, mine in zip(sessions, rows, strict=True):
        mine["file"] = [numbers[one.files[file - 1]] for file in mine["file"].tolist()]
    every = numpy.concatenate(rows)
    lines, places = numpy.unique(every[["file", "number"]], return_inverse=True)
    summed = numpy.zeros(len(lines), numpy.dtype(_LINE))
    summed["file"], summed["number"] = lines["file"], lines["number"]
    for view in VIEWS:
        numpy.add.at(summed[view], places.ravel(), every[view])
    hottest: dict[str, HotLine] = {}
    for line in (line for one in sessions for line in one.hottest):
        before = hottest.get(line.place, HotLine(line.place, 0, 0, []))
        stores, write_backs = before.stores + line.stores, before.write_backs + line.write_backs
        hottest[line.place] = HotLine(line.place, stores, write_backs, _sites_of([*before.sites, *line.sites]))
    return replace(
        sessions[0],
        lines=summed,
        files=files,
        hottest=sorted(hottest.values(), key=lambda line: -line.stores)[: max(len(one.hottest) for one in sessions)],
        executed=sum(one.executed for one in sessions),
        flushes=sum(one.flushes for one in sessions),
        fences=sum(one.fences for one in sessions),
        write_back_reasons={why: sum(one.write_back_reasons[why] for one in sessions) for why in REASONS},
        is_brk_refused=any(one.is_brk_refused for one in sessions),
    )


def _sites_of(sites: Sequence[WriteSite]) -> list[WriteSite]:
    """Each place once, the one that stores most first."""
    stores: dict[str, int] = {}
    for site in sites:
        stores[site.place] = stores.get(site.place, 0) + site.stores
    return sorted((WriteSite(place, count) for place, count in stores.items()), key=lambda site: -site.stores)


# ---- figures -------------------------------------------------------------------------------------------------------------


class Distribution(msgspec.Struct):
    """Of the writes of one view. histogram: pairs of a number of writes and the number of lines that were written so
    often."""

    lines: int
    total: int
    maximum: int
    mean: float
    p99: int
    variation: float
    gini: float
    histogram: list[tuple[int, int]]


def distribution_of(writes: numpy.ndarray[Any, Any]) -> Distribution:
    """writes: of each line; those that were never written do not count. With none left every figure is 0."""
    import numpy

    values, counts = numpy.unique(writes[writes > 0], return_counts=True)
    lines, total = int(counts.sum()), int((values * counts.astype(values.dtype)).sum())
    if lines == 0:
        return Distribution(0, 0, 0, 0.0, 0, 0.0, 0.0, [])
    mean = total / lines
    squares = float((counts * (values.astype(float) - mean) ** 2).sum())
    reached = numpy.cumsum(counts)
    p99 = int(values[int(numpy.searchsorted(reached, -(-99 * lines // 100)))])
    return Distribution(
        lines=lines,
        total=total,
        maximum=int(values[-1]),
        mean=mean,
        p99=p99,
        variation=(squares / lines) ** 0.5 / mean,
        gini=_gini(values, counts),
        histogram=list(zip(values.tolist(), counts.tolist(), strict=True)),
    )


def _gini(values: numpy.ndarray[Any, Any], counts: numpy.ndarray[Any, Any]) -> float:
    """Of values[i], counts[i] times each, ascending: sum over lines of (2 rank - n - 1) value / (n total), ranks from 1 to n."""
    n = int(counts.sum())
    last = counts.cumsum().astype(float)
    mean_rank = last - (counts - 1) / 2
    weighted = float(((2 * mean_rank - n - 1) * values * counts).sum())
    return weighted / (n * float((values * counts.astype(float)).sum()))


@dataclass(frozen=True)
class Medium:
    endurance: float
    capacity_bytes: int


class Lifetime(msgspec.Struct):
    """In operations of the workload; null where nothing was written."""

    unlevelled: float | None
    levelled: float | None


def lifetime_of(distribution: Distribution, operations: int, line_bytes: int, medium: Medium) -> Lifetime:
    if distribution.total == 0:
        return Lifetime(None, None)
    capacity_lines = medium.capacity_bytes / line_bytes
    return Lifetime(
        operations * medium.endurance / distribution.maximum,
        operations * medium.endurance * capacity_lines / distribution.total,
    )


# ---- wear.json -----------------------------------------------------------------------------------------------------------


class Setting(msgspec.Struct):
    """What must be equal for figures to compare. workload_key: hash of the workload's file."""

    workload: str
    ops: int
    seed: int
    workload_key: str
    operations: int
    line_bytes: int
    cache_bytes: int
    cache_ways: int
    adapter_heaps: dict[str, int] = {}
    """Of allocators that ran through their adapters: the most bytes of a heap."""

    def difference(self, other: Setting) -> str | None:
        """Which part differs, in words; None if none does. Names and seeds are in the key."""
        if self.workload_key != other.workload_key:
            return f"workload {other.name()}, here {self.name()}"
        if self.line_bytes != other.line_bytes:
            return f"lines of {other.line_bytes} bytes, here {self.line_bytes}"
        if (self.cache_bytes, self.cache_ways) != (other.cache_bytes, other.cache_ways):
            mine, its = (f"{each.cache_bytes} bytes and {each.cache_ways} ways" for each in (self, other))
            return f"a cache of {its}, here {mine}"
        for name in self.adapter_heaps.keys() | other.adapter_heaps.keys():
            mine, its = (_run_text(each.adapter_heaps.get(name)) for each in (self, other))
            if mine != its:
                return f"{name} {its}, here {mine}"
        return None

    def name(self) -> str:
        return f"{self.workload} --ops {self.ops} --seed {self.seed}" if self.ops else self.workload


class AllocatorWear(msgspec.Struct):
    """build: key of the driver or the adapter; version: of a library that is not built here."""

    allocator: str
    build: str
    version: str
    is_persistent: bool
    allocations: int
    frees: int
    failed: int
    object_bytes: int
    executed: int
    flushes: int
    fences: int
    write_back_reasons: dict[str, int]
    is_brk_refused: bool
    """malloc wanted more from brk than the tracer has for it, and went on with mmap."""
    stores: Distribution
    write_backs: Distribution
    lifetimes: dict[str, Lifetime]
    """By view."""
    ratios: dict[str, dict[str, float]]
    """By view: total and maximum, as multiples of those of the baseline; empty where the baseline wrote nothing."""
    hottest: list[HotLine]

    def view(self, view: View) -> Distribution:
        return self.stores if view == "stores" else self.write_backs


class Wear(msgspec.Struct):
    """wear.json."""

    version: int
    setting: Setting
    endurance: float
    capacity_bytes: int
    baseline: str
    allocators: list[AllocatorWear]


def ratios(mine: AllocatorWear, baseline: AllocatorWear) -> dict[str, dict[str, float]]:
    found: dict[str, dict[str, float]] = {}
    for view in VIEWS:
        one, other = mine.view(view), baseline.view(view)
        if other.total:
            found[view] = {"total": one.total / other.total, "maximum": one.maximum / other.maximum}
    return found


def read_wear(path: Path) -> Wear:
    hint = "faultline wear ... --out DIR writes it"
    found = read_json(path, Wear, "what `faultline wear` writes", hint, WEAR_JSON_VERSION)
    if not found.allocators or any(set(each.lifetimes) != set(VIEWS) for each in found.allocators):
        raise BadInputError(f"{path}: expected allocators, each with lifetimes of both views", hint)
    return found


def write_csv(path: Path, counted: Sequence[tuple[str, Counts]]) -> None:
    """A row a line that was written: allocator, file, offset in it (of a process's own heap: address), stores, write-backs."""
    with path.open("w", newline="", encoding="utf-8") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["allocator", "file", "offset", "stores", "write_backs"])
        for name, counts in counted:
            for number, stores, write_backs, which, _ in counts.lines.tolist():
                rows.writerow([name, counts.files[which - 1], number * counts.line_bytes, stores, write_backs])


# ---- the gate ------------------------------------------------------------------------------------------------------------


class Limit(msgspec.Struct):
    """What an allocator may write, by view: total and maximum. failed: allocations; who refuses more writes less."""

    failed: int
    stores: dict[str, int]
    write_backs: dict[str, int]


class Protected(msgspec.Struct):
    """What --protect reads, and writes with --update."""

    version: int
    setting: Setting
    limits: dict[str, Limit]


def protected_of(wear: Wear) -> Protected:
    def of(distribution: Distribution) -> dict[str, int]:
        return {"total": distribution.total, "maximum": distribution.maximum}

    limits = {each.allocator: Limit(each.failed, of(each.stores), of(each.write_backs)) for each in wear.allocators}
    return Protected(WEAR_JSON_VERSION, wear.setting, limits)


def read_protected(path: Path) -> Protected:
    hint = "with --update it is written"
    found = read_json(path, Protected, "what --protect --update writes", hint, WEAR_JSON_VERSION)
    for limit in found.limits.values():
        if set(limit.stores) != {"total", "maximum"} or set(limit.write_backs) != {"total", "maximum"}:
            raise BadInputError(f"{path}: expected total and maximum of both views of each allocator", hint)
    return found


def check_comparable(path: Path, before: Protected, setting: Setting, names: Sequence[str]) -> None:
    """Before anything runs. Raises BadInputError when `before` is of another setting, or lacks an allocator."""
    hint = "give the options that it was made with, or --update writes it anew"
    difference = setting.difference(before.setting)
    if difference is not None:
        raise BadInputError(f"{path}: is of {difference}", hint)
    for name in names:
        if name not in before.limits:
            raise BadInputError(f"{path}: has no {name}, it has {', '.join(sorted(before.limits)) or 'none'}", hint)


def growth(before: Protected, wear: Wear, tolerance: float) -> list[str]:
    """A line for each figure that is more than its limit and tolerance (0.05: five percent); failed allocations have none."""
    lines = []
    for each in wear.allocators:
        limit = before.limits[each.allocator]
        if each.failed > limit.failed:
            lines.append(
                f"{each.allocator}: failed allocations {limit.failed:,} to {each.failed:,}, so less is written"
            )
        writes: dict[View, dict[str, int]] = {"stores": limit.stores, "write_backs": limit.write_backs}
        for view, was in writes.items():
            now = each.view(view)
            for figure, value in (("total", now.total), ("maximum", now.maximum)):
                if value > was[figure] * (1 + tolerance):
                    more = f" (+{100 * (value / was[figure] - 1):.1f} %)" if was[figure] else ""
                    lines.append(f"{each.allocator}: {figure} {VIEWS[view]} {was[figure]:,} to {value:,}{more}")
    return lines
