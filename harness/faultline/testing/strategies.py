# SPDX-License-Identifier: Apache-2.0
"""Strategies of Hypothesis: sizes, operations and programs of an allocator, by what its adapter can.

A program is drawn as a list of wishes: a kind of operation, and a number that chooses among the slots and fields for which it is
possible when it is its turn. A wish for which there is none is left out. So what Hypothesis takes away from the list leaves a
program. It takes away at most five choices at a time: a wish has three, and that there is one is the fourth. What an adapter can is
asked when the first program is drawn: that builds it."""

from __future__ import annotations

import contextlib
import functools
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy

from faultline.pipeline.prepared import build_cell
from faultline.testing.cells import asked_cell
from faultline.testing.program import Program
from faultline.workload.links import GRAPH_FIELDS
from faultline.workload.operations import TRANSACTION_BOUNDS, WORD_BYTES, Operation
from faultline.workload.slots import SlotStates

SLOTS = 4
"""Of a program: few, so that most operations meet an object, and frees and reallocations are seldom left out."""
MOST_OPERATIONS = 10
THREADS = 2
NEAR_BYTES = 1
"""How far from a boundary a size is drawn: on both sides of it."""
LARGEST_SHARE = 16
"""No object is larger than this part of the heap, but for those at a boundary: a program is to fill none."""

native_settings = settings(
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
    phases=[Phase.explicit, Phase.reuse, Phase.generate, Phase.shrink],
    print_blob=True,
)
"""For tests that explore: an example runs processes, and takes as long as its recoveries do. Hypothesis' own explanation, which
names lines of Python, is left out. `@native_settings` before `@given`;
`settings(native_settings, max_examples=20)` is the same with fewer."""


@dataclass(frozen=True)
class Abilities:
    """boundaries: object sizes on both sides of which another path of allocation begins."""

    boundaries: tuple[int, ...]
    smallest_bytes: int
    largest_bytes: int
    has_threads: bool = False
    has_graphs: bool = False
    has_transactions: bool = False


@functools.cache
def _abilities(allocator: str, folder: Path) -> Abilities:
    """Builds the adapter. Raises what building raises."""
    asked = asked_cell(folder, {"allocator": allocator, "workload": "create"})
    target = build_cell(asked.workshop, asked.spec)
    can, heap = target.capabilities, target.allocator.heap
    return Abilities(
        tuple(sorted(heap.boundary_sizes)),
        heap.smallest_bytes,
        max(heap.smallest_bytes, heap.limit_bytes // LARGEST_SHARE),
        has_threads="threads" in can and target.allocator.contract.threads >= THREADS,
        has_graphs="link" in can,
        has_transactions="transactions" in can,
    )


def sizes_of(abilities: Abilities) -> SearchStrategy[int]:
    """Bytes of objects: boundaries and what lies beside them, and as many sizes from the smallest to the largest between them."""
    near = {size + beside for size in abilities.boundaries for beside in (-NEAR_BYTES, 0, NEAR_BYTES)}
    steps = max(1, len(near))
    between = {round(abilities.largest_bytes ** (step / steps)) for step in range(1, steps + 1)}
    return st.sampled_from(sorted({1, abilities.smallest_bytes, *between, *(size for size in near if size > 0)}))


PLAIN = ("allocate", "allocate", "free", "reallocate", "reopen")
"""Kinds that every adapter has; the first is the simplest, and what stands twice is drawn as often."""
IN_TRANSACTIONS = (*PLAIN, "begin", "commit", "abort", "write")
IN_THREADS = (*PLAIN, "join")
IN_GRAPHS = (*PLAIN, "link", "link", "unlink", "drop", "load")


CHOICES = SLOTS * GRAPH_FIELDS
"""Slots and fields that an operation may be of, at most."""


@dataclass(frozen=True)
class Wish:
    """number: chooses the thread, and twice among what is possible; size_bytes: of an object, and of what is written."""

    kind: str
    number: int
    size_bytes: int

    @property
    def first(self) -> int:
        return self.number % CHOICES

    @property
    def second(self) -> int:
        return self.number // CHOICES % CHOICES

    @property
    def thread(self) -> int:
        """From 0."""
        return self.number // CHOICES**2


def programs_of(abilities: Abilities, most_operations: int = MOST_OPERATIONS) -> SearchStrategy[Program]:
    """Plain ones first: what is found shrinks towards them. One that ends in a transaction has its commit, too."""
    families: list[tuple[tuple[str, ...], str, int]] = [(PLAIN, "root", 0)]
    families += [(IN_TRANSACTIONS, "root", 0)] * abilities.has_transactions
    families += [(IN_THREADS, "root", THREADS)] * abilities.has_threads
    families += [(IN_GRAPHS, "graph", 0)] * abilities.has_graphs
    return st.one_of(*(_programs(abilities, *family, most_operations) for family in families))


def _programs(
    abilities: Abilities, kinds: Sequence[str], layout: str, threads: int, most: int
) -> SearchStrategy[Program]:
    numbers = st.integers(0, CHOICES**2 * max(1, threads) - 1)
    wish = st.builds(Wish, st.sampled_from(kinds), numbers, sizes_of(abilities))
    wishes = st.lists(wish, min_size=1, max_size=most)
    fulfilled = wishes.map(lambda drawn: _fulfilled(drawn, layout == "graph", is_threaded=threads > 0))
    slots = f"{SLOTS} {layout}" if layout == "graph" else None
    return fulfilled.filter(bool).map(lambda kept: Program(*(one.line() for one in kept), slots=slots))


def _fulfilled(wishes: Sequence[Wish], is_graph: bool, is_threaded: bool) -> list[Operation]:
    state = SlotStates(is_graph)
    kept = []
    for wish in wishes:
        operation = _possible(wish, state, 1 + wish.thread if is_threaded else 0)
        with contextlib.suppress(ValueError):
            if operation is not None:
                state.check(operation)
                kept.append(operation)
    return [*kept, Operation("commit")] if state.at_begin is not None else kept


def _possible(wish: Wish, state: SlotStates, thread: int) -> Operation | None:
    """None: there is no slot or field for it."""
    if wish.kind in ("reopen", "join", *TRANSACTION_BOUNDS):
        return Operation(wish.kind)
    places = _places(wish.kind, state)
    if not places:
        return None
    slot, other, field = places[wish.first % len(places)]
    live = sorted(state.live)
    match wish.kind:
        case "link":
            return Operation("link", slot, other=live[wish.second % len(live)], field=field)
        case "load":
            return Operation("load", slot, other=other, field=field)
        case "write":
            words = state.live[slot] // WORD_BYTES
            start = wish.second % words
            count = 1 + wish.size_bytes // WORD_BYTES % (words - start)
            return Operation("write", slot, count * WORD_BYTES, start=start * WORD_BYTES)
        case "allocate" | "reallocate":
            return Operation(wish.kind, slot, wish.size_bytes, thread)
        case _:
            return Operation(wish.kind, slot, thread=thread, field=field)


def _places(kind: str, state: SlotStates) -> list[tuple[int, int, int]]:
    """Slot, other slot and field that the operation may be of."""
    live = sorted(state.live)
    empty = [slot for slot in range(SLOTS) if slot not in state.live]
    held = state.links.slots if state.links is not None else {}
    fields = [(slot, field) for slot in live for field in range(GRAPH_FIELDS)]
    is_set = [(slot, field) for slot, field in fields if held and held[slot].fields[field] is not None]
    match kind:
        case "allocate":
            return [(slot, 0, 0) for slot in empty]
        case "link":
            return [(slot, 0, field) for slot, field in fields]
        case "unlink":
            return [(slot, 0, field) for slot, field in is_set]
        case "load":
            return [(slot, other, field) for slot in empty for other, field in is_set]
        case "write":
            return [(slot, 0, 0) for slot in live if state.live[slot] >= WORD_BYTES]
        case _:
            return [(slot, 0, 0) for slot in live]


def sizes(allocator: str | os.PathLike[str], folder: Path) -> SearchStrategy[int]:
    """As sizes_of, of an allocator that is named as `explore` has it. folder: of the test."""
    return st.deferred(lambda: sizes_of(_abilities(str(allocator), folder)))


def programs(
    allocator: str | os.PathLike[str], folder: Path, most_operations: int = MOST_OPERATIONS
) -> SearchStrategy[Program]:
    """As programs_of, of an allocator that is named as `explore` has it. folder: of the test."""
    return st.deferred(lambda: programs_of(_abilities(str(allocator), folder), most_operations))
