# SPDX-License-Identifier: Apache-2.0
"""The events of a trace that a tracer made, for the reference of the persistency model: the way back of reference/trace_writer.py.
Files are numbered in the order in which they are met; a name that is given again is another file."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from reference.trace_writer import (
    CHUNK_MAGIC,
    RECORD_BYTES,
    VALUE_BYTES,
    Event,
    Fence,
    FenceKind,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Marker,
    Operation,
    RecordKind,
    Store,
    StoreKind,
)

HEADER_BYTES = 64
MODULE, UNSUPPORTED = 3, 15
OF_NAMES = (10, 11, 12)
"""mkdir, rmdir and fsync of a folder: they say a path, and no file."""
OF_NO_FILE = (*OF_NAMES, 13)
THREADS = 1000
"""Fewer than that in a process."""


@dataclass(frozen=True)
class Record:
    process: int
    kind: int
    detail: int
    thread: int
    file: int
    size: int
    offset: int
    value: int
    payload: bytes


def payload_bytes(kind: int, detail: int, size: int) -> int:
    if kind in (RecordKind.FILE, MODULE, UNSUPPORTED):
        return size
    match kind:
        case RecordKind.STORE:
            return size if size > VALUE_BYTES else 0
        case RecordKind.FILE_BEGIN:
            return size if detail in (Operation.RENAME, Operation.WRITE, *OF_NAMES) else 0
        case RecordKind.FILE_END:
            return size if detail in (Operation.RENAME, *OF_NAMES) else 0
    return 0


def records(content: bytes) -> Iterator[Record]:
    at = HEADER_BYTES
    while struct.unpack_from("<I", content, at)[0] == CHUNK_MAGIC:
        _, process, count, _, _ = struct.unpack_from("<IIQQQ", content, at)
        at += 32
        end = at + count * RECORD_BYTES
        while at < end:
            kind, detail, thread, _, file, size, offset, value = struct.unpack_from("<BBHIIIQQ", content, at)
            at += RECORD_BYTES
            length = payload_bytes(kind, detail, size)
            payload, at = content[at : at + length], at + (length + RECORD_BYTES - 1) // RECORD_BYTES * RECORD_BYTES
            yield Record(process, kind, detail, thread, file, size, offset, value, payload)


@dataclass
class Reader:
    names: dict[str, int] = field(default_factory=dict)
    """Of the files that have one now."""
    paths: dict[tuple[int, int], str] = field(default_factory=dict)
    """By a process and its id of a file: the name when it was met."""
    numbers: dict[tuple[int, int], int] = field(default_factory=dict)
    pending: dict[tuple[int, int], FileBegin] = field(default_factory=dict)
    count: int = 0

    def new_file(self) -> int:
        self.count += 1
        return self.count

    def event(self, record: Record) -> Event | None:
        key, thread = (record.process, record.file), record.process * THREADS + record.thread
        match record.kind:
            case RecordKind.FILE:
                path = record.payload.decode()
                self.paths[key], self.numbers[key] = path, self.names.get(path, 0) or self.new_file()
            case RecordKind.STORE:
                data = record.payload or record.value.to_bytes(VALUE_BYTES, "little")[: record.size]
                return Store(thread, self.numbers[key], record.offset, data, StoreKind(record.detail))
            case RecordKind.FLUSH:
                return Flush(thread, self.numbers[key], record.offset, FlushKind(record.detail))
            case RecordKind.FENCE:
                return Fence(thread, FenceKind(record.detail))
            case RecordKind.FILE_BEGIN if record.detail not in OF_NO_FILE:
                return self.begin(record, key, thread)
            case RecordKind.FILE_END if record.detail not in OF_NO_FILE:
                return self.end(record, thread)
            case RecordKind.OPERATION_BEGIN | RecordKind.OPERATION_RETURN | RecordKind.FILE_BEGIN | RecordKind.FILE_END:
                return Marker(thread, 0, record.kind == RecordKind.OPERATION_BEGIN)
        assert record.kind != UNSUPPORTED, record.payload.decode()
        return None

    def begin(self, record: Record, key: tuple[int, int], thread: int) -> FileBegin:
        operation = Operation(record.detail)
        size = record.value if operation in (Operation.ALLOCATE, Operation.PUNCH, Operation.MSYNC) else 0
        path = self.paths[key] if operation is Operation.CREATE else ""
        path = record.payload.decode() if operation is Operation.RENAME else path
        data = record.payload if operation is Operation.WRITE else b""
        begin = FileBegin(thread, operation, self.numbers[key], record.offset, size, data, path)
        self.pending[thread, operation] = begin
        return begin

    def end(self, record: Record, thread: int) -> FileEnd:
        operation = Operation(record.detail)
        begin = self.pending.pop((thread, operation))
        if record.value == 0 and operation in (Operation.CREATE, Operation.RENAME, Operation.UNLINK):
            self.names = {name: file for name, file in self.names.items() if file != begin.file}
            if operation is not Operation.UNLINK:
                self.names[begin.path] = begin.file
        return FileEnd(begin, record.value)


def read_events(path: Path) -> list[Event]:
    reader = Reader()
    found = (reader.event(record) for record in records(path.read_bytes()))
    return [event for event in found if event is not None]
