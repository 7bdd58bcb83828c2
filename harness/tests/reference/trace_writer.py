# SPDX-License-Identifier: Apache-2.0
"""Events of a small trace, and the sealed trace file of them (pintools/trace.h): one chunk for each run of events of one
process. Threads are told apart by process and number (PLACES): two of the first process, one of a child that it forks, two of a
later session. A process begins with its first event; the others have ended when the later session begins. Ids of files are a
process's own: it names a file when it first touches it, and again under another id when it maps it again."""

from __future__ import annotations

import hashlib
import itertools
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from enum import IntEnum

TRACE_VERSION = 6
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
    MAP = 11
    UNMAP = 12
    OPERATION_BEGIN = 13
    OPERATION_RETURN = 14


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


@dataclass(frozen=True)
class Marker:
    """A workload operation begins or returns; it has a crash position and changes nothing."""

    thread: int
    index: int
    is_begin: bool


@dataclass(frozen=True)
class Remap:
    """The file is mapped again, under another id: what is in the trace and is no event."""

    thread: int
    file: int


Event = Store | Flush | Fence | FileBegin | FileEnd | Marker | Remap


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


PLACES = {1: Place(1, 1), 2: Place(1, 2), 3: Place(257, 1), 4: Place(2, 1), 5: Place(2, 2)}
STARTS = {1: 1, 257: 2, 2: 1}
"""How each process began: FL_PROCESS_START or FL_PROCESS_FORK."""
LATER_SESSION = 2
ALLOCATE_MARKER = 5
FLAGS = 9
"""Shared and writable."""


def thread_of(event: Event) -> int:
    return event.begin.thread if isinstance(event, FileEnd) else event.thread


def event_cells(event: Event, thread: int, file: int) -> bytes:
    """The cells of an event with the thread and file numbers of its process."""
    match event:
        case Store(_, _, offset, data, kind) if len(data) <= VALUE_BYTES:
            return record(RecordKind.STORE, kind, thread, file, len(data), offset, int.from_bytes(data, "little"))
        case Store(_, _, offset, data, kind):
            return record(RecordKind.STORE, kind, thread, file, len(data), offset) + padded(data)
        case Flush(_, _, offset, kind):
            return record(RecordKind.FLUSH, kind, thread, file, 0, offset)
        case Fence(_, kind):
            return record(RecordKind.FENCE, kind, thread)
        case FileBegin():
            return file_cells(replace(event, thread=thread, file=file), RecordKind.FILE_BEGIN, event.size)
        case FileEnd(begin, errno):
            return file_cells(replace(begin, thread=thread, file=file), RecordKind.FILE_END, errno)
        case Marker(_, index, True):
            return record(RecordKind.OPERATION_BEGIN, ALLOCATE_MARKER, thread, 0, index, 64, index + 1)
        case Marker(_, index, False):
            return record(RecordKind.OPERATION_RETURN, ALLOCATE_MARKER, thread, 0, index)
        case Remap():
            raise AssertionError("no event")


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


class Writer:
    """The cells of a trace in order, each with its process."""

    def __init__(self) -> None:
        self.cells: list[tuple[int, bytes]] = []
        self.paths: dict[int, str] = {}
        self.open: list[int] = []
        self.ids: dict[int, dict[int, int]] = {}
        self.defined: dict[int, int] = {}
        self.begun: dict[FileBegin, int] = {}

    def add(self, process: int, cells: bytes) -> None:
        self.cells.append((process, cells))

    def begin(self, process: int) -> None:
        if process == LATER_SESSION:
            self.end_all()
        self.open.append(process)
        self.ids[process], self.defined[process] = {}, 0
        parent = 1 if STARTS[process] == 2 else 0
        self.add(process, record(RecordKind.PROCESS, STARTS[process], 1, offset=parent))

    def end_all(self) -> None:
        for process in self.open:
            self.add(process, record(RecordKind.PROCESS_END, thread=1))
        self.open = []

    def define(self, process: int, file: int) -> None:
        self.defined[process] += 1
        self.ids[process][file] = self.defined[process]
        self.add(process, file_definition(self.defined[process], self.paths[file]))

    def event(self, event: Event) -> None:
        place = PLACES[thread_of(event)]
        if place.process not in self.open:
            self.begin(place.process)
        if isinstance(event, Remap):
            return self.remap(place.process, event.file)
        return self.add(place.process, event_cells(event, place.thread, self.file_number(place.process, event)))

    def file_number(self, process: int, event: Event) -> int:
        """Of the file the event is about, defined first if it has to be. An operation keeps its number to its end."""
        if isinstance(event, Fence | Marker | Remap):
            return 0
        if isinstance(event, FileEnd):
            if event.errno == 0:
                self.follow(event.begin)
            return self.begun.pop(event.begin)
        if isinstance(event, FileBegin) and event.operation is Operation.CREATE:
            self.paths[event.file] = event.path
        if event.file not in self.ids[process]:
            self.define(process, event.file)
        if isinstance(event, FileBegin):
            self.begun[event] = self.ids[process][event.file]
        return self.ids[process][event.file]

    def follow(self, begin: FileBegin) -> None:
        if begin.operation is Operation.RENAME:
            self.paths[begin.file] = begin.path

    def remap(self, process: int, file: int) -> None:
        if file not in self.ids[process]:
            self.define(process, file)
        self.add(process, record(RecordKind.UNMAP, 0, 1, self.ids[process][file], value=4096))
        self.define(process, file)
        self.add(process, record(RecordKind.MAP, FLAGS, 1, self.ids[process][file], value=4096))


def process_cells(events: Sequence[Event]) -> Iterator[tuple[int, bytes]]:
    writer = Writer()
    writer.begin(1)
    for event in events:
        writer.event(event)
    writer.end_all()
    yield from writer.cells


def trace_bytes(events: Sequence[Event]) -> bytes:
    body = struct.pack("<8sIIQ24s16x", b"FLTRACE\0", TRACE_VERSION, RECORD_BYTES, 0, b"reference")
    total = 0
    for process, run in itertools.groupby(process_cells(events), lambda pair: pair[0]):
        cells = b"".join(cell for _, cell in run)
        count = len(cells) // RECORD_BYTES
        total += count
        body += struct.pack("<IIQQQ", CHUNK_MAGIC, process, count, checksum(cells), 0) + cells
    return body + struct.pack("<IIQ32s16x", FOOTER_MAGIC, TRACE_VERSION, total, hashlib.sha256(body).digest())
