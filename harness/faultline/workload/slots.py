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
    TRANSACTION_BOUNDS,
    WITH_OTHER_SLOT,
    WORD_BYTES,
    Operation,
)


class SlotStates:
    """What the file says of the slots so far, as if every allocate succeeded: which are live, and which thread each belongs to
    until the next join. What two threads do to one slot has no order unless a join lies between. In the graph layout, what slots
    and fields hold too. What an aborted transaction did to the slots it did not do."""

    def __init__(self, is_graph: bool) -> None:
        self.live: dict[int, int] = {}
        """How large the objects are, by slot; of the graph layout nobody asks."""
        self.at_begin: dict[int, int] | None = None
        """Of the transaction that is open."""
        self.has_transactions = False
        self.has_threads = False
        self.owners: dict[int, int] = {}
        self.links = Links() if is_graph else None

    def check(self, operation: Operation) -> None:
        """Checks the operation against the slots and updates them."""
        slot = operation.slot
        self._check_transaction(operation)
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
        self._check_owner(operation)
        self._check_objects(operation)
        if self.links is not None:
            follow_links(self.links, operation)
        if operation.kind in EMPTYING:
            del self.live[slot]
        elif operation.kind != "write":
            self.live[slot] = operation.size_bytes

    def _check_objects(self, operation: Operation) -> None:
        slot = operation.slot
        if operation.kind in FILLING:
            remedy = "free it" if self.links is None else "free or drop it"
            expect(slot not in self.live, f"slot {slot} is live, {operation.kind} needs an empty one: {remedy} first")
        else:
            self._expect_live(slot, operation.kind)
        if operation.kind in WITH_OTHER_SLOT:
            self._expect_live(operation.other, operation.kind)
        if operation.kind == "write":
            self._check_write(operation)

    def _check_owner(self, operation: Operation) -> None:
        owner = self.owners.setdefault(operation.slot, operation.thread)
        other = f"thread {owner}" if owner else "the main thread"
        expect(
            owner == operation.thread,
            f"slot {operation.slot} was used by {other} since the last join: put a `join` between them",
        )

    def _check_transaction(self, operation: Operation) -> None:
        """begin, commit and abort, and what is no operation in a transaction."""
        kind, is_open = operation.kind, self.at_begin is not None
        self.has_threads |= operation.thread != 0
        if kind in TRANSACTION_BOUNDS or kind == "write":
            self.has_transactions = True
            expect(self.links is None, f"{kind}: there are no transactions and writes with `slots COUNT graph`")
        expect(
            not (self.has_threads and self.has_transactions),
            "a workload has transactions and writes, or `thread`, not both",
        )
        expect(kind not in ("case", "reopen") or not is_open, f"{kind} in a transaction: commit or abort it first")
        if kind == "begin":
            expect(not is_open, "begin: a transaction is open: commit or abort it first")
            self.at_begin = dict(self.live)
        elif kind in TRANSACTION_BOUNDS:
            expect(is_open, f"{kind}: no transaction is open: begin one first")
            if kind == "abort":
                self.live = self.at_begin or {}
            self.at_begin = None

    def _check_write(self, operation: Operation) -> None:
        for name, bytes_ in (("first byte", operation.start), ("length", operation.size_bytes)):
            expect(bytes_ % WORD_BYTES == 0, f"write: {name} {bytes_}: expected a multiple of {WORD_BYTES}")
        end, room = operation.start + operation.size_bytes, self.live[operation.slot]
        expect(end <= room, f"write: it ends at byte {end}, the object in slot {operation.slot} at byte {room}")

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
    if state.at_begin is not None:
        kept.append(Operation("commit"))
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
