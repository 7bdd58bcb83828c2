# SPDX-License-Identifier: Apache-2.0
"""The timeline of a finding's lines: a column an event, a mark for what became of each store."""

from __future__ import annotations

from typing import Any

import msgspec

import samples
from faultline.pipeline.events import Finding
from faultline.report.timeline import timeline


def finding(*events: dict[str, Any], position: int = 100) -> Finding:
    numbered = [{"position": 10 + number, **event} for number, event in enumerate(events)]
    return msgspec.convert({**samples.FINDING, "position": position, "events": numbered}, Finding)


def store(offset: int, state: str, *, guaranteed: bool = False, size: int = 8) -> dict[str, Any]:
    access = {"kind": "store", "file": "heap", "offset": offset, "size": size}
    return {**access, "is_persisted": state, "is_guaranteed": guaranteed if state == "yes" else None}


def flush(offset: int) -> dict[str, Any]:
    return {"kind": "clwb", "file": "heap", "offset": offset, "size": 64}


FENCE = {"kind": "fence"}


def test_each_line_has_a_row_and_each_event_a_column() -> None:
    told = finding(store(72, "no"), flush(64), store(128, "yes"), FENCE, store(64, "torn"))
    assert timeline(told) == [("heap + 0x40", "xf.|t!"), ("heap + 0x80", "..S|.!")]


def test_what_is_guaranteed_elsewhere_or_after_the_crash_is_left_out() -> None:
    after = {**store(64, "no"), "position": 101, "is_persisted": None}
    told = finding(store(0, "yes", guaranteed=True), store(64, "no"), flush(512), {"kind": "operation return"}, after)
    assert timeline(told) == [("heap + 0x40", "x!")]


def test_a_store_over_two_lines_is_on_both() -> None:
    assert timeline(finding(store(60, "no"), flush(64))) == [("heap + 0x0", "x.!"), ("heap + 0x40", "xf!")]


def test_where_nothing_is_undecided_there_is_no_timeline() -> None:
    assert timeline(finding(store(64, "yes", guaranteed=True), FENCE)) == []
