# SPDX-License-Identifier: Apache-2.0
"""Generators of workloads whose objects point to each other."""

from __future__ import annotations

import random

from faultline.workload.generators import below, churn_size
from faultline.workload.links import GRAPH_FIELDS, Links
from faultline.workload.operations import Operation, Workload
from faultline.workload.slots import follow_links

GRAPH_SLOTS = 6
"""Few, so that most objects are reached through fields only."""
GRAPH_LIVE_OBJECTS = 24
"""Bound of what the slots reach."""
GRAPH_GARBAGE_OBJECTS = 24
"""Bound of what a heap has lost sight of: only a recovery after a crash collects it. Beyond it the workload goes on with a new
case."""
GRAPH_NULL_FIELD_SHARE = 0.85
"""Of links, that overwrite nothing if there is such a field: else what fields alone reach is soon lost."""
GRAPH_REOPENS = 2
GRAPH_MIX = (
    ("allocate", 0.28),
    ("link", 0.30),
    ("unlink", 0.04),
    ("drop", 0.20),
    ("load", 0.06),
    ("free", 0.07),
    ("reallocate", 0.05),
)
"""Share of each kind, where it is possible; where not, the next possible one of this order is taken."""


def graph(ops: int, seed: int) -> Workload:
    """ops operations, seeded, on objects that point to each other, themselves too: cycles, objects that only fields reach, objects
    that nothing reaches any more. Several lives of each heap."""
    maker = _GraphMaker(seed)
    for number in range(1, ops + 1):
        maker.step()
        if number * (GRAPH_REOPENS + 1) // ops > (number - 1) * (GRAPH_REOPENS + 1) // ops and number < ops:
            maker.operations.append(Operation("reopen"))
    return Workload("graph", GRAPH_SLOTS, tuple(maker.operations), ops, seed, "graph")


class _GraphMaker:
    """Makes the operations of graph one by one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.links = Links()
        self.allocated = 0
        """Objects of this heap that were not freed."""
        self.operations = [Operation("case")]

    def step(self) -> None:
        reached = sum(1 for _ in self.links.reached())
        if self.allocated - reached >= GRAPH_GARBAGE_OBJECTS:
            self.operations.append(Operation("case"))
            self.links.clear()
            self.allocated = reached = 0
        kinds = [kind for kind, _ in GRAPH_MIX]
        first = kinds.index(self.wanted_kind())
        for kind in kinds[first:] + kinds[:first]:
            choices = self.choices(kind, reached)
            if choices:
                slot, other, field = choices[below(self.chance, len(choices))]
                size = churn_size(self.chance) if kind in ("allocate", "reallocate") else 0
                operation = Operation(kind, slot, size, other=other, field=field)
                self.allocated += (kind == "allocate") - (kind == "free")
                follow_links(self.links, operation)
                self.operations.append(operation)
                return

    def wanted_kind(self) -> str:
        point = self.chance.random()
        for kind, share in GRAPH_MIX:
            if point < share:
                return kind
            point -= share
        return GRAPH_MIX[0][0]

    def choices(self, kind: str, reached: int) -> list[tuple[int, int, int]]:
        """Slot, other and field of those that are possible. What is dropped lives on, if there is such an object: garbage comes of
        unlinking, of links that are overwritten, and of full slots."""
        live = sorted(self.links.slots)
        empty = [slot for slot in range(GRAPH_SLOTS) if slot not in self.links.slots]
        fields = [(slot, field) for slot in live for field in range(GRAPH_FIELDS)]
        is_set = [(slot, field) for slot, field in fields if self.links.slots[slot].fields[field] is not None]
        match kind:
            case "allocate":
                return [(slot, 0, 0) for slot in empty if reached < GRAPH_LIVE_OBJECTS]
            case "link":
                is_null = [place for place in fields if place not in is_set]
                wanted = is_null if is_null and self.chance.random() < GRAPH_NULL_FIELD_SHARE else fields
                return [(slot, other, field) for slot, field in wanted for other in live]
            case "unlink":
                return [(slot, 0, field) for slot, field in is_set]
            case "drop":
                held = [slot for slot in live if self.links.lives_without(slot)]
                return [(slot, 0, 0) for slot in held or live[: len(live) == GRAPH_SLOTS]]
            case "load":
                return [(empty[0], slot, field) for slot, field in is_set if empty]
            case _:
                return [(slot, 0, 0) for slot in live if self.links.holder(slot) is None]


RESUR_LISTS = 8
"""The paper's benchmark has 512, one a root."""
RESUR_LARGEST_BYTES = 2048
"""Half an OS page."""


def resur(ops: int, seed: int, limit_bytes: int) -> Workload:
    """ops operations after Makalu's benchmark of recovery (section 13.2): objects of random size up to half an OS page, less where
    the heap is small; a coin decides whether each is freed at once or pushed in front of one of the lists that slots hold.
    After three quarters a new life begins, which drops every other list and goes on."""
    chance = random.Random(seed)
    largest = max(1, min(RESUR_LARGEST_BYTES, limit_bytes // max(1, ops)))
    heads: list[int | None] = [None] * RESUR_LISTS
    """By list: the slot of its first object."""
    empty = list(range(RESUR_LISTS + 1))
    operations: list[Operation] = []
    is_later_life = False
    while len(operations) < ops + 1:
        if len(operations) >= ops * 3 // 4 and not is_later_life:
            is_later_life = True
            operations.append(Operation("reopen"))
            dropped = [slot for slot in heads[::2] if slot is not None]
            operations += [Operation("drop", slot) for slot in dropped]
            heads = [None if slot in dropped else slot for slot in heads]
            empty += dropped
        slot = empty.pop()
        operations.append(Operation("allocate", slot, 1 + below(chance, largest)))
        if chance.random() < 0.5:
            operations.append(Operation("free", slot))
            empty.append(slot)
            continue
        number = below(chance, RESUR_LISTS)
        head, heads[number] = heads[number], slot
        if head is not None:
            operations += [Operation("link", slot, other=head), Operation("drop", head)]
            empty.append(head)
    kept = operations[: ops + is_later_life]
    return Workload("resur", RESUR_LISTS + 1, (Operation("case"), *kept), ops, seed, "graph")
