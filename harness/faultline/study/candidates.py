# SPDX-License-Identifier: Apache-2.0
"""Candidates: smaller workloads that may show the same finding. A candidate is the operations of one case, without the line `case`.
It is always well-formed: an operation whose object a deletion takes away is deleted, too."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import product

from faultline.workload.links import GRAPH_FIELDS
from faultline.workload.operations import (
    EMPTYING,
    FILLING,
    SLOT_OPERATIONS,
    TRANSACTION_BOUNDS,
    WITH_OTHER_SLOT,
    WORD_BYTES,
    Operation,
    Workload,
)
from faultline.workload.slots import well_formed

Operations = tuple[Operation, ...]
IS_NO_OPERATION = ("case", "join")
"""Lines that only say where operations stand."""


@dataclass(frozen=True)
class Shape:
    """What all candidates of a workload share."""

    slots: int
    layout: str
    is_renamed: bool
    """Each object has a slot of its own until the candidate is written: deleting a free leaves what follows on its slot alone."""
    is_lazy: bool = False
    growths: int | None = None

    def workload(self, cases: Sequence[Operations], schedule_seed: int) -> Workload:
        """All of them, each on a heap of its own."""
        operations = [operation for case in cases for operation in (Operation("case"), *case)]
        is_threaded = any(operation.thread for operation in operations)
        return Workload(
            "file",
            self.slots,
            tuple(operations),
            layout=self.layout,
            is_lazy=self.is_lazy,
            growths=self.growths,
            schedule_seed=schedule_seed if is_threaded else 0,
        )

    def kept(self, operations: Operations, is_kept: Callable[[int], bool]) -> Operations | None:
        """The operations whose number is kept, but for those that then have nothing to work on. None: too many slots are live."""
        if not self.is_renamed:
            return well_formed([one for at, one in enumerate(operations) if is_kept(at)], self.layout)
        own = _own_slots(operations)
        kept = well_formed([one for at, one in enumerate(own) if is_kept(at)], self.layout)
        packed = _lowest_slots(kept)
        return packed if all(operation.slot < self.slots for operation in packed) else None


def count(operations: Sequence[Operation]) -> int:
    return sum(operation.kind not in IS_NO_OPERATION for operation in operations)


def size(operations: Operations) -> tuple[int, int]:
    """Fewest operations, then smallest sizes."""
    return count(operations), sum(operation.size_bytes for operation in operations)


def case_at(workload: Workload, index: int) -> tuple[int, Operations]:
    """Number of the case that operation `index` (as in FORMAT) is of, and its operations up to that one; in a transaction up to its
    end, where threads run up to the next join."""
    number, next_index, kept = -1, 0, 0
    cases: list[list[Operation]] = []
    for operation in workload.operations:
        if operation.kind == "case":
            next_index += bool(cases)  # the last case's close
            if cases and next_index > index:
                break
            cases.append([])
            number, kept, next_index = number + 1, 0, next_index + 1
            continue
        cases[-1].append(operation)
        is_before = next_index <= index
        next_index += {"reopen": 2, "join": 0}.get(operation.kind, 1)
        kept = len(cases[-1]) if is_before else kept
    case = cases[-1]
    bounds = [at for at, operation in enumerate(case) if operation.kind in TRANSACTION_BOUNDS]
    if kept and sum(at < kept for at in bounds) % 2:
        kept = next(at for at in bounds if at >= kept) + 1
    if any(operation.thread for operation in case):
        joins = (at for at in range(kept, len(case)) if case[at].kind in ("join", "reopen"))
        kept = next(joins, len(case))
    return number, tuple(case[:kept])


def single_threaded(operations: Operations) -> Operations:
    return tuple(replace(one, thread=0) for one in operations if one.kind != "join")


def growing(shape: Shape, operations: Operations, most: int) -> list[Operations]:
    """The last operation with what it needs, then each of the ones before with it, the latest first, at most so many."""
    last = len(operations) - 1
    pairs = [{last, at} for at in range(last - 1, max(-1, last - 1 - most), -1)]
    grown = [_with_needed(shape, operations, chosen) for chosen in [{last}, *pairs]] if operations else []
    return sorted(_distinct(grown), key=size)


def concurrent(shape: Shape, operations: Operations) -> list[Operations]:
    """Two operations of different threads that nothing orders, after the last join, with what they need."""
    joins = [at for at, operation in enumerate(operations) if operation.kind in ("join", "reopen")]
    last = range(max(joins, default=-1) + 1, len(operations))
    pairs = ((one, other) for one in last for other in last[one - last.start + 1 :])
    chosen = ({one, other} for one, other in pairs if operations[one].thread != operations[other].thread)
    return sorted(_distinct([_with_needed(shape, operations, {*pair, *joins}) for pair in chosen]), key=size)


def without_chunks(shape: Shape, operations: Operations, length: int) -> list[Operations]:
    """Without each run of so many operations."""
    starts = range(0, len(operations), length)
    shorter = (shape.kept(operations, lambda at, gone=range(start, start + length): at not in gone) for start in starts)  # type: ignore[misc]
    return sorted((one for one in _distinct(shorter) if size(one) < size(operations)), key=size)


def smaller_sizes(operations: Operations, at: int, alphabet: list[int]) -> list[Operations]:
    """With each smaller size of the alphabet in that operation, smallest first."""
    now = operations[at]
    smaller = (replace(now, size_bytes=one) for one in sorted(alphabet) if one < now.size_bytes)
    shrunk = ((*operations[:at], one, *operations[at + 1 :]) for one in smaller)
    return [one for one in shrunk if not _has_writes(one) or len(well_formed(one, "root")) == len(one)]


def within_objects(operations: Operations) -> Operations:
    """With writes that do not reach past their objects: from an earlier word on, of fewer words, or left out."""
    bytes_: dict[int, int] = {}
    at_begin: dict[int, int] = {}
    kept: list[Operation] = []
    for operation in operations:
        bytes_, at_begin = _at_bound(operation, bytes_, at_begin)
        if operation.kind in ("allocate", "reallocate"):
            bytes_ = {**bytes_, operation.slot: operation.size_bytes}
        if operation.kind == "write":
            room = bytes_.get(operation.slot, 0) // WORD_BYTES * WORD_BYTES
            length = min(operation.size_bytes, room)
            operation = replace(operation, size_bytes=length, start=min(operation.start, room - length))
        if operation.kind != "write" or operation.size_bytes:
            kept.append(operation)
    return tuple(kept)


def _has_writes(operations: Operations) -> bool:
    return any(operation.kind == "write" for operation in operations)


def enumerated(shape: Shape, kinds: frozenset[str], sizes: Sequence[int], depth: int) -> Iterator[Operations]:
    """All workloads of `depth` operations of these kinds and sizes on the lowest slots; no reopen follows another, and no
    transaction is left open."""
    for one in _beginnings(shape, kinds, sizes, depth):
        if len(well_formed(one, shape.layout)) == depth:
            yield one


def _beginnings(shape: Shape, kinds: frozenset[str], sizes: Sequence[int], depth: int) -> Iterator[Operations]:
    if depth == 0:
        yield ()
        return
    for before in _beginnings(shape, kinds, sizes, depth - 1):
        slots = range(min(shape.slots, 1 + sum(one.kind in FILLING for one in before)))
        for operation in _alphabet(kinds, sizes, slots):
            is_idle = operation.kind == "reopen" and (not before or before[-1].kind == "reopen")
            after = (*before, operation)
            if not is_idle and well_formed(after, shape.layout)[:depth] == after and _is_lowest(after):
                yield after


def fewest_slots(operations: Operations) -> int:
    return 1 + max((max(one.slot, one.other) for one in operations), default=0)


def _alphabet(kinds: frozenset[str], sizes: Sequence[int], slots: range) -> Iterator[Operation]:
    ranges = {
        "SLOT": ("slot", slots),
        "BYTES": ("size_bytes", sizes),
        "FIELD": ("field", range(GRAPH_FIELDS)),
        "TARGET": ("other", slots),
        "FROM": ("other", slots),
        "START": ("start", range(1)),
        "LENGTH": ("size_bytes", sorted({one - one % WORD_BYTES for one in sizes if one >= WORD_BYTES})),
    }
    for kind in (*SLOT_OPERATIONS, *TRANSACTION_BOUNDS, "reopen"):
        if kind in kinds:
            words = SLOT_OPERATIONS.get(kind, "").split()
            for values in product(*(ranges[word][1] for word in words)):
                yield Operation(kind, **{ranges[word][0]: value for word, value in zip(words, values, strict=True)})


def _is_lowest(operations: Operations) -> bool:
    """Whether the last operation, if it fills a slot, fills the lowest empty one: others are the same by another name."""
    *before, last = operations
    if last.kind not in FILLING:
        return True
    return last.slot == _lowest_empty(_live_after(before))


def _live_after(operations: Sequence[Operation]) -> set[int]:
    live: dict[int, int] = {}
    at_begin: dict[int, int] = {}
    for operation in operations:
        live, at_begin = _at_bound(operation, live, at_begin)
        if operation.kind in FILLING:
            live[operation.slot] = operation.slot
        elif operation.kind in EMPTYING:
            live.pop(operation.slot, None)
    return set(live)


def _lowest_empty(live: set[int]) -> int:
    return next(slot for slot in range(len(live) + 1) if slot not in live)


def _with_needed(shape: Shape, operations: Operations, chosen: set[int]) -> Operations | None:
    """The chosen operations, with the allocations of what they work on and, where slots are not renamed, what empties those."""
    needed = set(chosen)
    for at in sorted(chosen, reverse=True):
        needed |= _needs_of(operations, at)
    kept = _without_idle_joins(shape.kept(operations, lambda at: at in needed) or ())
    return kept if kept and kept[-1].kind == operations[max(chosen)].kind else None


def _without_idle_joins(operations: Operations) -> Operations:
    """A join orders what stands before it and what stands after it; main-thread operations need none among themselves."""
    kept: list[Operation] = []
    for operation in operations:
        if operation.kind != "join" or (kept and kept[-1].kind != "join"):
            kept.append(operation)
    return tuple(kept)


def _needs_of(operations: Operations, at: int) -> set[int]:
    """The operation that filled its slot; where another object was there before, what took that away. The bounds of its
    transaction."""
    slots = {operations[at].slot, operations[at].other}
    needed = _bounds_around(operations, at)
    if operations[at].kind not in SLOT_OPERATIONS:
        return needed
    for slot in slots if operations[at].kind in WITH_OTHER_SLOT else {operations[at].slot}:
        before = (number for number in range(at - 1, -1, -1) if operations[number].slot == slot)
        filled = next((number for number in before if operations[number].kind in FILLING), None)
        if filled is not None and not (operations[at].kind in FILLING and slot == operations[at].slot):
            needed.add(filled)
            if operations[filled].kind == "load":
                needed |= _needs_of(operations, filled)
    return needed


def _bounds_around(operations: Operations, at: int) -> set[int]:
    """begin and commit or abort of the transaction that the operation is in, or is a bound of."""
    bounds = [number for number, one in enumerate(operations) if one.kind in TRANSACTION_BOUNDS]
    pairs = zip(bounds[::2], bounds[1::2], strict=False)
    return next(({first, last} for first, last in pairs if first <= at <= last), set())


def _own_slots(operations: Operations) -> Operations:
    """Each object in a slot of its own."""
    names: dict[int, int] = {}
    at_begin: dict[int, int] = {}
    renamed: list[Operation] = []
    for operation in operations:
        names, at_begin = _at_bound(operation, names, at_begin)
        if operation.kind == "allocate":
            names[operation.slot] = len(renamed)
        is_slot = operation.kind in SLOT_OPERATIONS
        renamed.append(replace(operation, slot=names[operation.slot]) if is_slot else operation)
    return tuple(renamed)


def _at_bound(
    operation: Operation, names: dict[int, int], at_begin: dict[int, int]
) -> tuple[dict[int, int], dict[int, int]]:
    """The names after the operation, and those when its transaction began: an abort brings them back."""
    match operation.kind:
        case "begin":
            return names, dict(names)
        case "abort":
            return at_begin, {}
        case _:
            return names, at_begin


def _lowest_slots(operations: Sequence[Operation]) -> Operations:
    """Each object in the lowest slot that is empty when it is allocated."""
    names: dict[int, int] = {}
    at_begin: dict[int, int] = {}
    packed: list[Operation] = []
    for operation in operations:
        names, at_begin = _at_bound(operation, names, at_begin)
        if operation.kind not in SLOT_OPERATIONS:
            packed.append(operation)
            continue
        if operation.kind == "allocate":
            names[operation.slot] = _lowest_empty(set(names.values()))
        packed.append(replace(operation, slot=names[operation.slot]))
        if operation.kind == "free":
            del names[operation.slot]
    return tuple(packed)


def _distinct(candidates: Iterator[Operations | None] | list[Operations | None]) -> list[Operations]:
    return list(dict.fromkeys(one for one in candidates if one is not None))
