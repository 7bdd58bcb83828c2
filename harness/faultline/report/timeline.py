# SPDX-License-Identifier: Apache-2.0
"""The lines that a finding is about, over time: what was stored, flushed and fenced until power failed."""

from __future__ import annotations

from collections.abc import Iterator

from faultline.pipeline.events import Finding, TraceEvent

LINE_BYTES = 64
LEGEND = "x store that is lost, t torn, S persisted; f flush, y sync, | fence; . nothing of this line; ! power fails"
SYNCS = ("fsync", "msync")
"""Where they begin: what they persist was there then."""
_STORE_MARKS = {"no": "x", "torn": "t", "yes": "S"}


def timeline(finding: Finding) -> list[tuple[str, str]]:
    """One row a line, its name and what happened to it, a column for each event that concerns one of them, in memory order; empty
    where no store was undecided. As far as the finding's events go."""
    before = [event for event in finding.events if event.position <= finding.position]
    undecided = [event for event in before if _mark(event) and not event.is_guaranteed]
    lost = [event for event in undecided if event.is_persisted != "yes"]
    newest = [event for event in undecided if event.is_persisted == "yes"][-1:]
    lines = list(dict.fromkeys(line for event in lost + newest for line in _lines(event)))
    if not lines:
        return []
    first = min(event.position for event in lost + newest)
    shown = [event for event in before if event.position >= first and _concerns(event, lines)]
    return [(f"{file} + {number * LINE_BYTES:#x}", _row((file, number), shown) + "!") for file, number in lines]


def _row(line: tuple[str, int], events: list[TraceEvent]) -> str:
    return "".join(_symbol(event, line) for event in events)


def _symbol(event: TraceEvent, line: tuple[str, int]) -> str:
    if event.kind == "fence":
        return "|"
    if event.kind in SYNCS:
        return "y" if _is_sync_of(event, line) else "."
    if line not in _lines(event):
        return "."
    return _mark(event) or "f"


def _mark(event: TraceEvent) -> str:
    return _STORE_MARKS.get(event.is_persisted or "", "")


def _concerns(event: TraceEvent, lines: list[tuple[str, int]]) -> bool:
    is_access = bool(_mark(event)) or event.kind.startswith(("clflush", "clwb"))
    is_sync = event.kind in SYNCS and any(_is_sync_of(event, line) for line in lines)
    return event.kind == "fence" or is_sync or (is_access and any(line in lines for line in _lines(event)))


def _is_sync_of(event: TraceEvent, line: tuple[str, int]) -> bool:
    return event.file == line[0] if event.offset is None else line in _lines(event)


def _lines(event: TraceEvent) -> Iterator[tuple[str, int]]:
    """The lines that a store or a flush touches."""
    if event.file is not None and event.offset is not None and event.size:
        for number in range(event.offset // LINE_BYTES, (event.offset + event.size - 1) // LINE_BYTES + 1):
            yield event.file, number
