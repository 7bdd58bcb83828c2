# SPDX-License-Identifier: Apache-2.0
"""What the lines of a workload file say of its slots, as if every allocate succeeded: which operations are possible."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence

from faultline.workload.links import Links
from faultline.workload.operations import (
    EMPTYING,
    FILLING,
    GRAPH_OPERATIONS,
    SLOT_OPERATIONS,
    WITH_OTHER_SLOT,
    Operation,
)


class SlotStates:
    """What the file says of the slots so far, as if every allocate succeeded: which are live, and which thread each belongs to
    until the next join. What two threads do to one slot has no order unless a join lies between. In the graph layout, what slots
    and fields hold too."""

    def __init__(self, is_graph: bool) -> None:
        self.live: set[int] = set()
        self.owners: dict[int, int] = {}
        self.links = Links() if is_graph else None

    def check(self, operation: Operation) -> None:
        """Checks the operation against the slots and updates them."""
        slot = operation.slot
        if operation.kind not in SLOT_OPERATIONS:
            self.owners.clear()
            if operation.kind == "case":
                self.live.clear()
                if self.links is not None:
                    self.links.clear()
            return
        if self.links is not None:
            expect(operation.thread == 0, "with `slots COUNT graph` every operation is the main thread's")
        else:
            expect(operation.kind not in GRAPH_OPERATIONS, f"{operation.kind} needs `slots COUNT graph`")
        owner = self.owners.setdefault(slot, operation.thread)
        other = f"thread {owner}" if owner else "the main thread"
        expect(
            owner == operation.thread,
            f"slot {slot} was used by {other} since the last join: put a `join` between them",
        )
        if operation.kind in FILLING:
            remedy = "free it" if self.links is None else "free or drop it"
            expect(slot not in self.live, f"slot {slot} is live, {operation.kind} needs an empty one: {remedy} first")
        else:
            self._expect_live(slot, operation.kind)
        if operation.kind in WITH_OTHER_SLOT:
            self._expect_live(operation.other, operation.kind)
        if self.links is not None:
            follow_links(self.links, operation)
        if operation.kind in EMPTYING:
            self.live.remove(slot)
        else:
            self.live.add(slot)

    def _expect_live(self, slot: int, kind: str) -> None:
        expect(slot in self.live, f"slot {slot} is empty, {kind} needs a live one: allocate it first")


def well_formed(operations: Sequence[Operation], layout: str) -> tuple[Operation, ...]:
    """The operations of a case but for those that do not find the slots, fields and threads as they need them."""
    state = SlotStates(is_graph=layout == "graph")
    kept = []
    for operation in operations:
        with contextlib.suppress(ValueError):
            state.check(operation)
            kept.append(operation)
    return tuple(kept)


def follow_links(links: Links, operation: Operation) -> None:
    """Runs the operation, whose slots are as it needs them; ValueError with one line when its object or field is not."""
    slot, other, field = operation.slot, operation.other, operation.field
    match operation.kind:
        case "allocate":
            links.allocate(slot, operation.size_bytes)
        case "free" | "reallocate":
            holder = links.holder(slot)
            expect(holder is None, f"the object in slot {slot} {holder}")
            if operation.kind == "free":
                links.free(slot)
            else:
                links.reallocate(slot, operation.size_bytes)
        case "link":
            links.link(slot, field, other)
        case "unlink":
            links.unlink(slot, field)
        case "drop":
            links.drop(slot)
        case "load":
            expect(
                links.slots[other].fields[field] is not None,
                f"field {field} of the object in slot {other} is null, load needs one that is set: link it first",
            )
            links.load(slot, other, field)


def expect(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)
