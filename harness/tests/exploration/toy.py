# SPDX-License-Identifier: Apache-2.0
"""Workloads of a toy allocator as traces, and by brute force everything that exploring them must find.

    line 0         magic, flag (toy_runner.py has its values)
    line 1 + slot  where the slot's object is; 0: null
    line 3 + slot  the object: one word of the pattern

Stores, flushes and fences are left out here and there, so that there are bugs. What the crash states are says the reference of
the persistency model (reference/px86.py); what each must show, and which rules it breaks, is written down here once more.
"""

from __future__ import annotations

import hashlib
import random
import struct
from collections import Counter
from dataclasses import dataclass, field, replace

from exploration.toy_runner import BROKEN_LATER, LINE_BYTES, MAGIC, SLOTS, word
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
    record,
)

HEAP_BYTES = 8 * LINE_BYTES
MOST_STATES = 200
BEGIN, RETURN = 13, 14
CASE, CREATE, ALLOCATE, FREE = 1, 2, 5, 6
PATTERN_MASK = (1 << 64) - 1


@dataclass(frozen=True)
class Marker:
    kind: int
    operation: int
    index: int = 0
    slot: int = 0
    bytes: int = 0
    object: int = 0


def pattern_word(object_id: int) -> int:
    mix = object_id << 40 & PATTERN_MASK
    mix = (mix ^ mix >> 31) * 0x9E3779B97F4A7C15 & PATTERN_MASK
    mix = (mix ^ mix >> 29) * 0xBF58476D1CE4E5B9 & PATTERN_MASK
    return 0xF1ED << 48 | object_id << 24 | mix >> 40


def place(slot: int) -> int:
    return (3 + slot) * LINE_BYTES


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

    def create(self) -> None:
        self.add(Marker(BEGIN, CASE))
        steps: list[Event] = []
        for begin in (
            FileBegin(1, Operation.CREATE, 1, path="case-0/heap"),
            FileBegin(1, Operation.TRUNCATE, 1, offset=HEAP_BYTES),
        ):
            steps += [begin, FileEnd(begin)]
        self.operation(CREATE, *steps, *persisted(store(0, MAGIC)))

    def allocate(self, slot: int, *steps: Event) -> None:
        self.operation(ALLOCATE, *steps, slot=slot, new=self.index + 1)

    def free(self, slot: int, *steps: Event) -> None:
        self.operation(FREE, *steps, slot=slot)

    def trace(self) -> bytes:
        cells = record(RecordKind.PROCESS, detail=1, thread=1)
        for event in self.events:
            if isinstance(event, Marker):
                size = (event.kind, event.operation, 1, 0, event.slot, event.index, event.bytes, event.object)
                cells += struct.pack("<BBHIIIQQ", *size)
                continue
            if isinstance(event, FileBegin) and event.operation is Operation.CREATE:
                cells += file_definition(event.file, event.path)
            cells += event_cells(event, 1, 1)
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
