# SPDX-License-Identifier: Apache-2.0
"""Events of a small trace, and the sealed trace file of them (pintools/trace.h): one chunk for each run of events of one
process. Threads 1 and 2 are those of the first process, thread 3 is thread 1 of a forked child: threads are told apart by both
numbers. The child names each file as soon as it is made, since its ids are its own."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

TRACE_VERSION = 1
RECORD_BYTES = 32
CHUNK_MAGIC = 0x4B4E4843
FOOTER_MAGIC = 0x444E4546
VALUE_BYTES = 8
WORD = (1 << 64) - 1


class RecordKind(IntEnum):
    PROCESS = 1
    PROCESS_END = 2
    FILE = 5
    STORE = 6
    FLUSH = 7
    FENCE = 8
    FILE_BEGIN = 9
    FILE_END = 10


class StoreKind(IntEnum):
    PLAIN = 1
    NT = 2
    RMW = 3
    REP = 4


class FlushKind(IntEnum):
    CLFLUSH = 1
    CLFLUSHOPT = 2
    CLWB = 3


class FenceKind(IntEnum):
    SFENCE = 1
    MFENCE = 2
    RMW = 3


class Operation(IntEnum):
    CREATE = 1
    TRUNCATE = 2
    ALLOCATE = 3
    PUNCH = 4
    UNLINK = 5
    RENAME = 6
    MSYNC = 7
    FSYNC = 8
    WRITE = 9


@dataclass(frozen=True)
class Store:
    thread: int
    file: int
    offset: int
    data: bytes
    kind: StoreKind


@dataclass(frozen=True)
class Flush:
    thread: int
    file: int
    offset: int
    kind: FlushKind


@dataclass(frozen=True)
class Fence:
    thread: int
    kind: FenceKind


@dataclass(frozen=True)
class FileBegin:
    thread: int
    operation: Operation
    file: int
    offset: int = 0
    size: int = 0
    """Bytes of a range; 0 where the operation has none."""
    data: bytes = b""
    """What write() writes."""
    path: str = ""
    """The new path of a rename, the path of a create."""


@dataclass(frozen=True)
class FileEnd:
    begin: FileBegin
    errno: int = 0


Event = Store | Flush | Fence | FileBegin | FileEnd


def record(
    kind: RecordKind, detail: int = 0, thread: int = 0, file: int = 0, size: int = 0, offset: int = 0, value: int = 0
) -> bytes:
    return struct.pack("<BBHIIIQQ", kind, detail, thread, 0, file, size, offset, value)


def padded(payload: bytes) -> bytes:
    return payload + bytes(-len(payload) % RECORD_BYTES)


@dataclass(frozen=True)
class Place:
    process: int
    thread: int


FIRST = Place(1, 1)
CHILD = Place(257, 1)
PLACES = {1: FIRST, 2: Place(1, 2), 3: CHILD}
CHILD_FILE_IDS = 100
"""What the child adds to the id of a file."""


def place_of(event: Event) -> Place:
    return PLACES[event.begin.thread if isinstance(event, FileEnd) else event.thread]


def in_own_numbers(event: Event) -> Event:
    """The event with the thread and file numbers of its process."""
    if isinstance(event, FileEnd):
        begin = in_own_numbers(event.begin)
        assert isinstance(begin, FileBegin)
        return replace(event, begin=begin)
    place = place_of(event)
    if isinstance(event, Fence):
        return replace(event, thread=place.thread)
    return replace(event, thread=place.thread, file=event.file + CHILD_FILE_IDS * (place == CHILD))


def event_cells(event: Event) -> bytes:
    match event:
        case Store(thread, file, offset, data, kind) if len(data) <= VALUE_BYTES:
            return record(RecordKind.STORE, kind, thread, file, len(data), offset, int.from_bytes(data, "little"))
        case Store(thread, file, offset, data, kind):
            return record(RecordKind.STORE, kind, thread, file, len(data), offset) + padded(data)
        case Flush(thread, file, offset, kind):
            return record(RecordKind.FLUSH, kind, thread, file, 0, offset)
        case Fence(thread, kind):
            return record(RecordKind.FENCE, kind, thread)
        case FileBegin():
            return file_cells(event, RecordKind.FILE_BEGIN, event.size)
        case FileEnd(begin, errno):
            return file_cells(begin, RecordKind.FILE_END, errno)


def file_cells(begin: FileBegin, kind: RecordKind, value: int) -> bytes:
    operation = begin.operation
    size, payload = 0, b""
    if operation is Operation.RENAME:
        payload = begin.path.encode()
        size = len(payload)
    elif operation is Operation.WRITE:
        size = len(begin.data)
        payload = begin.data if kind is RecordKind.FILE_BEGIN else b""
    return record(kind, operation, begin.thread, begin.file, size, begin.offset, value) + padded(payload)


def checksum(cells: bytes) -> int:
    total = 0x666C74726163651
    for (word,) in struct.iter_unpack("<Q", cells):
        total = ((total ^ word) * 0x9E3779B97F4A7C15) & WORD
        total ^= total >> 32
    return total


def file_definition(file: int, path: str) -> bytes:
    name = path.encode()
    return record(RecordKind.FILE, thread=1, file=file, size=len(name)) + padded(name)


def process_cells(events: Sequence[Event]) -> Iterator[tuple[int, bytes]]:
    """The cells of a trace in order, each with its process."""
    has_child = any(place_of(event) == CHILD for event in events)
    yield FIRST.process, record(RecordKind.PROCESS, detail=1, thread=1)
    if has_child:
        yield CHILD.process, record(RecordKind.PROCESS, detail=2, thread=1, offset=FIRST.process)
    for event in events:
        if isinstance(event, FileBegin) and event.operation is Operation.CREATE:
            yield place_of(event).process, file_definition(event.file, event.path)
        yield place_of(event).process, event_cells(in_own_numbers(event))
        if has_child and isinstance(event, FileEnd) and event.begin.operation is Operation.CREATE:
            yield CHILD.process, file_definition(event.begin.file + CHILD_FILE_IDS, event.begin.path)
    if has_child:
        yield CHILD.process, record(RecordKind.PROCESS_END, thread=1)
    yield FIRST.process, record(RecordKind.PROCESS_END, thread=1)


def trace_bytes(events: Sequence[Event]) -> bytes:
    body = struct.pack("<8sIIQ24s16x", b"FLTRACE\0", TRACE_VERSION, RECORD_BYTES, 0, b"reference")
    total = 0
    for process, run in itertools.groupby(process_cells(events), lambda pair: pair[0]):
        cells = b"".join(cell for _, cell in run)
        count = len(cells) // RECORD_BYTES
        total += count
        body += struct.pack("<IIQQQ", CHUNK_MAGIC, process, count, checksum(cells), 0) + cells
    return body + struct.pack("<IIQ32s16x", FOOTER_MAGIC, TRACE_VERSION, total, hashlib.sha256(body).digest())
