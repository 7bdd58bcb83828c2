# SPDX-License-Identifier: Apache-2.0
"""A runner whose allocator is a table (toy.py has the layout): speaks the fork server's protocol of heap_report.h, and recovers
by looking. It has no walk, no check and no twins. What it looks at it says (loads.h)."""

from __future__ import annotations

import struct
import sys
from typing import BinaryIO

LINE_BYTES = 64
SLOTS = 2
MAGIC = 0x796F74
BROKEN_LATER, OVERLOADED_NOW, LISTED_TWICE, PAST_HOOKS, THREADED, RESTLESS = 1, 2, 3, 4, 5, 6
MANY_MAPPINGS, DAMAGED_LIST, SLOW_GUARDED = 7, 8, 9
"""Values of the flag: the second recovery answers an error; the first one meets an overloaded machine; the first one lists its
free place twice and takes the flag back, so that the second one does not; recovery loads something that no hook announces; it
starts a thread; it looks at its first object every other time, for nothing; it maps its heap more often than the runner follows; it
overwrites the list of its loads; a guarded run of it takes too long."""

CREATE, RESIZE, REMOVE, RENAME, WRITE, MKDIR, RMDIR, RUN, STAGES, WATCH, ENGINES = 1, 2, 4, 5, 6, 7, 8, 9, 10, 11, 12
OPEN, FILES, SLOT_LIST, WALK, CHECK, DRAIN, CLOSE = 1, 2, 3, 4, 5, 7, 10
OK, NOT_A_HEAP, UNSUPPORTED, ERROR = 0, 2, 4, 5
DONE, HUNG, OVERLOADED = 0, 2, 4
REPORT_VERSION = 4
LOADS_VERSION = 3
BY_TARGET = 1
RUN_GUARDED = 2
SHARED, UNSEEN, MAPPINGS, DAMAGED = 4, 8, 32, 64
FULL = 2
ALLOCATED = 1
FREE_LINE = 7


def section(kind: int, life: int, status: int = OK, count: int = 0, value: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("<HHIIIQ", kind, life, status, count, len(payload), value) + payload + bytes(-len(payload) % 8)


def report(outcome: int, life: int, stage: int, sections: list[bytes]) -> bytes:
    body = b"".join(sections)
    return struct.pack("<8I", 0x52484C46, REPORT_VERSION, 32 + len(body), len(sections), outcome, 0, life, stage) + body


loaded: list[int] = []
"""Units of the heap file that the probe has looked at, in order."""
runs = [0]
"""How many there were."""


def word(heap: bytes, offset: int) -> int:
    loaded.append(offset // 8)
    return int.from_bytes(heap[offset : offset + 8], "little")


def life_of(heap: bytes, number: int) -> list[bytes]:
    if heap[8] == RESTLESS and runs[0] % 2 == 1:
        word(heap, (1 + SLOTS) * LINE_BYTES)
    entries = [(slot, 0, word(heap, (1 + slot) * LINE_BYTES)) for slot in range(SLOTS)]
    entries = [entry for entry in entries if entry[2] != 0]
    payload = b"".join(struct.pack("<IIQ", *entry) for entry in entries)
    sections = [section(OPEN, number), section(SLOT_LIST, number, OK, len(entries), SLOTS, payload)]
    sections += [section(WALK, number, UNSUPPORTED), section(CHECK, number, UNSUPPORTED)]
    return [*sections, section(FILES, number, count=1, payload=b"heap\0")]


def drain(number: int, listings: int) -> bytes:
    block = struct.pack("<IIQQ", 0, ALLOCATED, FREE_LINE * LINE_BYTES, LINE_BYTES)
    return section(DRAIN, number, OK, listings, listings * LINE_BYTES, block * listings)


def probe(heap: bytes | None, kind: int, is_guarded: bool) -> bytes:
    if heap is None or word(heap, 0) != MAGIC:
        return report(DONE, 0, OPEN, [section(OPEN, 0, NOT_A_HEAP)])
    flag = word(heap, 8)
    if flag == OVERLOADED_NOW:
        return report(OVERLOADED, 0, OPEN, [])
    if flag == SLOW_GUARDED and is_guarded:
        return report(HUNG, 0, OPEN, [])
    sections = life_of(heap, 0)
    if kind != FULL:
        return report(DONE, 0, CHECK, sections)
    sections.append(section(OPEN, 1))
    if flag == BROKEN_LATER:
        return report(DONE, 2, OPEN, [*sections, section(OPEN, 2, ERROR)])
    sections += life_of(heap, 2)
    sections += [*life_of(heap, 3), drain(3, 2 if flag == LISTED_TWICE else 1), section(CLOSE, 3)]
    sections += [*life_of(heap, 4), section(CLOSE, 4)]
    return report(DONE, 4, CLOSE, sections)


def recorded_loads(file: int, hot: set[tuple[int, int]], flag: int, is_guarded: bool) -> bytes:
    unseen = UNSEEN if flag == PAST_HOOKS and is_guarded else 0
    of_flag = {THREADED: SHARED, MANY_MAPPINGS: MAPPINGS, DAMAGED_LIST: DAMAGED}
    flags, text = (unseen, b"a read at 0x8") if unseen else (of_flag.get(flag, 0), b"")
    units = [unit for unit in dict.fromkeys(loaded) if (file, unit) in hot]
    loads = b"".join(struct.pack("<BBHIQ", BY_TARGET, 0, 0, file, unit) for unit in units)
    return struct.pack("<IIIIQQ", LOADS_VERSION, flags, len(units), len(text), 0, 0) + loads + text


def serve(commands: BinaryIO, answers: BinaryIO) -> None:
    files: dict[int, bytearray] = {}
    names: dict[int, bytes] = {}
    hot: set[tuple[int, int]] = set()
    while head := commands.read(32):
        kind, file, offset, size, length = struct.unpack("<IIQQQ", head)
        payload = commands.read(length)
        if kind == CREATE:
            files[file], names[file] = bytearray(size), payload
        elif kind == RESIZE:
            files[file] = files[file][:size] + bytes(max(0, size - len(files[file])))
        elif kind == REMOVE:
            del files[file], names[file]
        elif kind == RENAME:
            names[file] = payload
        elif kind == WRITE:
            files[file][offset : offset + length] = payload
        elif kind == WATCH:
            ranges = struct.iter_unpack("<IIQQ", payload)
            hot = {(number, first + unit) for number, _, first, count in ranges for unit in range(count)}
        elif kind in (RUN, STAGES, ENGINES):
            loaded.clear()
            runs[0] += kind == RUN
            heaps = [number for number in files if names[number] == b"heap"]
            others = {STAGES: b"", ENGINES: struct.pack("<QQQ", runs[0], 0, 0)}
            is_guarded = kind == RUN and bool(offset & RUN_GUARDED)
            heap = bytes(files[heaps[0]]) if heaps else None
            reply = [probe(heap, size, is_guarded) if kind == RUN else others[kind]]
            if kind == RUN and offset != 0:
                flag = files[heaps[0]][8] if heaps and len(files[heaps[0]]) > 8 else 0
                reply.append(recorded_loads(heaps[0] if heaps else 0, hot, flag, is_guarded))
            answers.write(b"".join(struct.pack("<I", len(part)) + part for part in reply))
            answers.flush()


if __name__ == "__main__" and sys.argv[1] == "serve":
    serve(sys.stdin.buffer, sys.stdout.buffer)
