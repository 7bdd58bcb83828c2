# SPDX-License-Identifier: Apache-2.0
"""What a workload file alone says of its objects in the graph layout, as if every allocate succeeded: which object each slot and
each field holds. The runner's reader keeps the same (runner/workload/links.c)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

GRAPH_FIELDS = 2
"""Fields of an object, FL_GRAPH_FIELDS of adapter.h."""


@dataclass(eq=False)
class Object:
    size_bytes: int
    fields: list[Object | None] = field(default_factory=lambda: [None] * GRAPH_FIELDS)
    holders: int = 0
    """Slots and fields that hold it, fields of garbage too."""


class Links:
    """Each method is one operation of the format, on slots and fields that are as it needs them."""

    def __init__(self) -> None:
        self.slots: dict[int, Object] = {}
        """The live ones."""

    def clear(self) -> None:
        self.slots.clear()

    def allocate(self, slot: int, size_bytes: int) -> None:
        self._put(slot, Object(size_bytes))

    def free(self, slot: int) -> None:
        for number in range(GRAPH_FIELDS):
            self._hold(slot, number, None)
        self.drop(slot)

    def reallocate(self, slot: int, size_bytes: int) -> None:
        self.slots[slot].size_bytes = size_bytes

    def link(self, slot: int, number: int, target_slot: int) -> None:
        self._hold(slot, number, self.slots[target_slot])

    def unlink(self, slot: int, number: int) -> None:
        self._hold(slot, number, None)

    def drop(self, slot: int) -> None:
        self.slots.pop(slot).holders -= 1

    def load(self, slot: int, from_slot: int, number: int) -> None:
        target = self.slots[from_slot].fields[number]
        assert target is not None
        self._put(slot, target)

    def _put(self, slot: int, held: Object) -> None:
        self.slots[slot] = held
        held.holders += 1

    def _hold(self, slot: int, number: int, held: Object | None) -> None:
        fields = self.slots[slot].fields
        before, fields[number] = fields[number], held
        if before is not None:
            before.holders -= 1
        if held is not None:
            held.holders += 1

    def lives_without(self, slot: int) -> bool:
        """Whether other slots reach the slot's object."""
        return any(found is self.slots[slot] for _, found in self.reached(set(self.slots) - {slot}))

    def reached(self, slots: set[int] | None = None) -> Iterator[tuple[int, Object]]:
        """Every object that a slot, or one of these, reaches, once, with the first slot that does."""
        seen: set[Object] = set()
        for slot in sorted(self.slots if slots is None else slots):
            waiting = [self.slots[slot]]
            while waiting:
                found = waiting.pop()
                if found in seen:
                    continue
                seen.add(found)
                yield slot, found
                waiting += [target for target in found.fields if target is not None]

    def holder(self, slot: int) -> str | None:
        """What else holds the slot's object, and what to do about it; None: nothing. Garbage holds nothing up."""
        wanted = self.slots[slot]
        if wanted.holders == 1:
            return None
        for other, found in self.slots.items():
            if other != slot and found is wanted:
                return f"is in slot {other} too: drop that first"
        for root, found in self.reached():
            for number, target in enumerate(found.fields):
                if target is wanted and found is self.slots[root]:
                    return f"is still linked from slot {root}'s field {number}: unlink it first"
                if target is wanted:
                    return f"is still linked from field {number} of an object that slot {root} reaches: unlink it first"
        return None
