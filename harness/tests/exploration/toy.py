# SPDX-License-Identifier: Apache-2.0
"""Workloads of a toy allocator as traces, and by brute force everything that exploring them must find.

    line 0         magic, flag (toy_runner.py has its values)
    line 1 + slot  where the slot's object is; 0: null
    line 3 + slot  the object: one word of the pattern
    line 5, 6      what toy_runner.py says of JOURNAL and MARK

Stores, flushes and fences are left out here and there, so that there are bugs. What the crash states are says the reference of
the persistency model (reference/px86.py); what each must show, and which rules it breaks, is written down here once more.
"""

from __future__ import annotations

import hashlib
import itertools
import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from exploration import toy_runner
from exploration.toy_runner import BROKEN_LATER, FL, JOURNAL, LINE_BYTES, MAGIC, SLOTS, pattern_word, place, word
from reference.px86 import Px86
from reference.trace_writer import (
    CHUNK_MAGIC,
    FOOTER_MAGIC,
    RECORD_BYTES,
    TRACE_VERSION,
    Event,
    Fence,
    FenceKind,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Operation,
    RecordKind,
    Store,
    StoreKind,
    checksum,
    event_cells,
    file_definition,
    padded,
    record,
)

HEAP_BYTES = 8 * LINE_BYTES
MOST_STATES = 200
BEGIN, RETURN = 13, 14
CASE, CREATE, ALLOCATE, FREE = 1, 2, 5, 6
MODULE, SITE = 3, 4
TOY_MODULE = b"toy\0\0"


@dataclass(frozen=True)
class Marker:
    kind: int
    operation: int
    index: int = 0
    slot: int = 0
    bytes: int = 0
    object: int = 0


@dataclass(frozen=True)
class Expected:
    """What the markers so far say of the heap. slots, freed: object ids, 0 for none."""

    phase: str = "absent"
    slots: tuple[int, ...] = (0,) * SLOTS
    freed: tuple[int, ...] = (0,) * SLOTS
    pending: tuple[int, int] | None = None
    """Slot, and the object that it will hold."""
    markers: int = 0

    def candidates(self, slot: int) -> set[int]:
        return {self.slots[slot]} | ({self.pending[1]} if self.pending and self.pending[0] == slot else set())

    def after(self, marker: Marker) -> Expected:
        now = replace(self, markers=self.markers + (marker.operation != CASE))
        if marker.operation == CREATE:
            return replace(now, phase="creating" if marker.kind == BEGIN else "created")
        if marker.operation == CASE:
            return now
        if marker.kind == BEGIN:
            return replace(now, pending=(marker.slot, marker.object))
        assert self.pending
        slot, new = self.pending
        slots, freed = list(self.slots), list(self.freed)
        freed[slot] = slots[slot] if new == 0 else freed[slot]
        slots[slot] = new
        return replace(now, slots=tuple(slots), freed=tuple(freed), pending=None)


def broken_rules(heap: bytes | None, expected: Expected) -> list[str]:
    """One entry for each violation."""
    if expected.phase == "absent":
        return []
    if heap is None or word(heap, 0) != MAGIC:
        return ["FL003"] if expected.phase == "created" else []
    rules = ["FL003"] if word(heap, 8) == BROKEN_LATER else []
    for slot in range(SLOTS):
        rules += broken_by_slot(heap, slot, expected)
    return rules


def broken_by_slot(heap: bytes, slot: int, expected: Expected) -> list[str]:
    candidates = expected.candidates(slot)
    if word(heap, (1 + slot) * LINE_BYTES) == 0:
        return [] if 0 in candidates else ["FL004"]
    objects = candidates - {0}
    content = word(heap, place(slot))
    if not objects:
        return ["FL005"]
    if content in map(pattern_word, objects):
        return []
    freed = expected.freed[slot]
    return ["FL004", "FL005"] if freed and content == pattern_word(freed) else ["FL009"]


def heap_of(image: str) -> bytes | None:
    """The bytes of an image as Px86.images prints it."""
    if not image:
        return None
    _, size, lines = image.rstrip(";").split(":")
    heap = bytearray(int(size))
    for line in filter(None, lines.split(",")):
        number, content = line.split("=")
        data = bytes.fromhex(content)
        heap[int(number) * LINE_BYTES : int(number) * LINE_BYTES + len(data)] = data
    return bytes(heap)


@dataclass
class Findings:
    """What exhaustive exploration must say of a trace."""

    positions: int = 0
    images: set[str] = field(default_factory=set)
    judged: set[tuple[str, int]] = field(default_factory=set)
    seen: Counter[str] = field(default_factory=Counter)
    first: dict[str, int] = field(default_factory=dict)
    """The first crash position at which a rule is broken."""


class Toy:
    """A trace in the making; everything that is added is explored at once."""

    def __init__(self) -> None:
        self.events: list[Event | Marker] = []
        self.expected = Expected()
        self.model = Px86()
        self.findings = Findings()
        self.index = 0
        self.has_sites = False
        """Each flush and fence has one of its own, numbered from 1."""
        self.has_places = False
        """Each store is at a place of its own, in a module."""

    def add(self, *events: Event | Marker) -> None:
        for event in events:
            self.events.append(event)
            if isinstance(event, Marker):
                self.expected = self.expected.after(event)
            else:
                self.model.step(event)
            self.explore()

    def explore(self) -> None:
        found = self.findings
        found.positions += 1
        for image in self.model.images() or []:
            found.images.add(image)
            if (image, self.expected.markers) in found.judged:
                continue
            found.judged.add((image, self.expected.markers))
            for rule in broken_rules(heap_of(image), self.expected):
                found.seen[rule] += 1
                found.first.setdefault(rule, found.positions)

    def operation(self, operation: int, *steps: Event, slot: int = 0, new: int = 0) -> None:
        sizes = {"bytes": 8 if new else 0, "object": new}
        self.add(Marker(BEGIN, operation, self.index, slot, **sizes))
        self.add(*steps)
        self.add(Marker(RETURN, operation, self.index))
        self.index += 1

    def create(self, *more: Event) -> None:
        self.add(Marker(BEGIN, CASE))
        steps: list[Event] = []
        for begin in (
            FileBegin(1, Operation.CREATE, 1, path="case-0/heap"),
            FileBegin(1, Operation.TRUNCATE, 1, offset=HEAP_BYTES),
        ):
            steps += [begin, FileEnd(begin)]
        self.operation(CREATE, *steps, *more, *persisted(store(0, MAGIC)))

    def allocate(self, slot: int, *steps: Event) -> None:
        self.operation(ALLOCATE, *steps, slot=slot, new=self.index + 1)

    def free(self, slot: int, *steps: Event) -> None:
        self.operation(FREE, *steps, slot=slot)

    def trace(self) -> bytes:
        cells = record(RecordKind.PROCESS, detail=1, thread=1)
        sites = itertools.count(1)
        if self.has_places:
            cells += record(MODULE, size=len(TOY_MODULE), value=1) + padded(TOY_MODULE)
        for event in self.events:
            if isinstance(event, Marker):
                size = (event.kind, event.operation, 1, 0, event.slot, event.index, event.bytes, event.object)
                cells += struct.pack("<BBHIIIQQ", *size)
                continue
            if isinstance(event, FileBegin) and event.operation is Operation.CREATE:
                cells += file_definition(event.file, event.path)
            event_cell = event_cells(event, 1, 1)
            is_place = self.has_places and isinstance(event, Store)
            if is_place or (self.has_sites and isinstance(event, Flush | Fence)):
                site = next(sites)
                cells += struct.pack("<BBHIIIQQ", SITE, 0, 0, site, 0, 0, site, is_place)
                event_cell = event_cell[:4] + site.to_bytes(4, "little") + event_cell[8:]
            cells += event_cell
        cells += record(RecordKind.PROCESS_END, thread=1)
        count = len(cells) // RECORD_BYTES
        body = struct.pack("<8sIIQ24s16x", b"FLTRACE\0", TRACE_VERSION, RECORD_BYTES, 0, b"toy")
        body += struct.pack("<IIQQQ", CHUNK_MAGIC, 1, count, checksum(cells), 0) + cells
        return body + struct.pack("<IIQ32s16x", FOOTER_MAGIC, TRACE_VERSION, count, hashlib.sha256(body).digest())


def store(offset: int, value: int, kind: StoreKind = StoreKind.PLAIN) -> Store:
    return Store(1, 1, offset, value.to_bytes(8, "little"), kind)


def flush(offset: int) -> Flush:
    return Flush(1, 1, offset, FlushKind.CLWB)


def fence() -> Fence:
    return Fence(1, FenceKind.SFENCE)


def persisted(step: Store) -> list[Event]:
    return [step, flush(step.offset), fence()]


def allocation(slot: int, object_id: int) -> list[Event]:
    """As it should be."""
    return [
        *persisted(store(place(slot), pattern_word(object_id))),
        *persisted(store((1 + slot) * LINE_BYTES, place(slot))),
    ]


def random_toy(seed: int) -> Toy:
    """Up to five operations; every store is left out, reordered, or not flushed or fenced, now and then."""
    dice = random.Random(seed)
    toy = Toy()
    toy.create()
    for _ in range(dice.randint(1, 5)):
        if toy.model.count() > MOST_STATES:
            break
        slot = dice.randrange(SLOTS)
        link = (1 + slot) * LINE_BYTES
        if toy.expected.slots[slot]:
            toy.free(slot, *careless(dice, [(link, 0)]))
        else:
            toy.allocate(slot, *careless(dice, [(place(slot), pattern_word(toy.index + 1)), (link, place(slot))]))
    return toy


def careless(dice: random.Random, stores: list[tuple[int, int]]) -> list[Event]:
    if dice.random() < 0.15:
        stores = stores[::-1]
    if dice.random() < 0.25:
        stores = [(8, BROKEN_LATER), *stores, (8, 0)]
    steps: list[Event] = []
    for offset, value in stores:
        kind = StoreKind.NT if dice.random() < 0.15 else StoreKind.PLAIN
        steps += [store(offset, value, kind)] * (dice.random() < 0.95)
        steps += [flush(offset)] * (dice.random() < 0.8)
        steps += [fence()] * (dice.random() < 0.8)
    return steps


# ---- crashes after the crash ---------------------------------------------------------------------------------------------


@dataclass
class Later:
    """What exploring the crashes after the crash must say of a trace."""

    told: int = 0
    """Recoveries that power fails in."""
    images: int = 0
    broken: set[tuple[int, int]] = field(default_factory=set)
    """(crash position, crash position in the recovery from there) at which some state is broken."""


def journalled(slot: int, object_id: int) -> list[Event]:
    """An allocation that recovery brings to its end."""
    content, link = allocation(slot, object_id)[:3], allocation(slot, object_id)[3:]
    return [*content, *persisted(store(JOURNAL, slot + 1)), *link, *persisted(store(JOURNAL, 0))]


def random_journal(seed: int) -> Toy:
    """One to three operations, now and then without a fence; recovery, or what follows it, makes some mistakes, or none."""
    dice = random.Random(seed)
    wrong = sum(bit for bit in (1, 2, 4, 8) if dice.random() < 0.2)
    wrong += toy_runner.LINKS_FIRST * (seed % 4 == 0)
    toy = Toy()
    toy.create(*persisted(store(8, toy_runner.CAREFUL + wrong)))
    for _ in range(dice.randint(1, 3)):
        slot = dice.randrange(SLOTS)
        if toy.expected.slots[slot]:
            toy.free(slot, *persisted(store((1 + slot) * LINE_BYTES, 0)))
        else:
            # What one crash breaks already is no matter of a second one: the content is there before the journal says so.
            steps = journalled(slot, toy.index + 1)
            careless = [step for step in steps[3:] if not isinstance(step, Fence) or dice.random() < 0.8]
            toy.allocate(slot, *steps[:3], *careless)
    return toy


def recovered(heap: bytes) -> bytes:
    after = bytearray(heap)
    toy_runner.recover(after)
    return bytes(after)


def later(toy: Toy, has_follow_up: bool = True) -> Later:
    """By brute force: each state of each position of each recovery of each state of each position."""
    found = Later()
    for position, heap, expected in borne_crashes(toy):
        crash_again(heap, expected, (position, has_follow_up), found)
    return found


def borne_crashes(toy: Toy) -> Iterator[tuple[int, bytes, Expected]]:
    """By crash position: heaps that power failure may leave, each once, where recovery is as expected; and what is."""
    model, expected = Px86(), Expected()
    known: set[tuple[str, int]] = set()
    for position, event in enumerate(toy.events, 1):
        if isinstance(event, Marker):
            expected = expected.after(event)
        else:
            model.step(event)
        for image in model.images() or []:
            heap = heap_of(image)
            if expected.phase != "created" or heap is None or (image, expected.markers) in known:
                continue
            known.add((image, expected.markers))
            if not broken_rules(recovered(heap), expected):
                yield position, heap, expected


def is_broken_later(toy: Toy, crashes: int) -> bool:
    """By brute force: whether power that fails so many times more, in recoveries alone, breaks what a first crash did not. Each
    state of each position of each recovery is recovered, again and again."""
    known: set[tuple[bytes, str, int]] = set()

    def is_broken(heap: bytes, expected: Expected, left: int) -> bool:
        key = (heap, repr(expected), left)
        if left == 0 or key in known:
            return False
        known.add(key)
        return any(
            image is None or broken_rules(recovered(image), then) or is_broken(image, then, left - 1)
            for _, image, then in states_of_recovery(heap, expected, False)
        )

    return any(is_broken(heap, expected, crashes) for _, heap, expected in borne_crashes(toy))


def persisted_heap(heap: bytes) -> Px86:
    model = Px86()
    for begin in (
        FileBegin(1, Operation.CREATE, 1, path="heap"),
        FileBegin(1, Operation.TRUNCATE, 1, offset=HEAP_BYTES),
    ):
        model.step(begin)
        model.step(FileEnd(begin))
    for at in range(0, HEAP_BYTES, 8):
        if any(heap[at : at + 8]):
            model.step(store(at, word(heap, at)))
            model.step(flush(at))
    model.step(fence())
    return model


def crash_again(heap: bytes, expected: Expected, how: tuple[int, bool], found: Later) -> None:
    """how: position of the first crash; whether something follows the recovery."""
    position, has_follow_up = how
    found.told += 1
    for number, left, then in states_of_recovery(heap, expected, has_follow_up):
        found.images += 1
        if left is None or broken_rules(recovered(left), then):
            found.broken.add((position, number))


def states_of_recovery(
    heap: bytes, expected: Expected, has_follow_up: bool
) -> Iterator[tuple[int, bytes | None, Expected]]:
    """By position of the recovery, and of what follows it: what power failure may leave there, and what is expected of it."""
    model, after = persisted_heap(heap), recovered(heap)
    ids = []
    for slot in range(SLOTS):
        shown = word(after, (1 + slot) * LINE_BYTES) and word(after, place(slot))
        ids.append(next(one for one in expected.candidates(slot) if shown == (one and pattern_word(one))))
    _, done = toy_runner.traced_life(bytearray(heap), 1, has_follow_up)
    for number, (kind, detail, slot, at, payload) in enumerate(done, 1):
        if kind == FL.EVENT_STORE:
            model.step(Store(1, 1, at, payload, StoreKind.PLAIN))
        elif kind == FL.EVENT_FLUSH:
            model.step(flush(at))
        elif kind == FL.EVENT_FENCE:
            model.step(fence())
        elif detail != FL.OP_OPEN:
            new = struct.unpack("<QI", payload)[1] if kind == FL.EVENT_BEGIN else 0
            is_begin = kind == FL.EVENT_BEGIN
            expected = replace(expected, pending=(slot, new)) if is_begin else expected.after(Marker(RETURN, detail))
        elif kind == FL.EVENT_RETURN:
            expected = replace(expected, slots=tuple(ids), pending=None)
        yield from ((number, heap_of(image), expected) for image in model.images() or [])
