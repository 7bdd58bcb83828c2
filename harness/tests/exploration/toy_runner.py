# SPDX-License-Identifier: Apache-2.0
"""A runner whose allocator is a table (toy.py has the layout): speaks the fork server's protocol of runner/protocol.h, and recovers
by looking, and by taking up what a journal says. It has no walk, no check and no twins. What it looks at it says, and
what it does."""

from __future__ import annotations

import struct
import sys
from typing import BinaryIO


class FL:
    """Numbers of runner/protocol.h, and of what it names. runner/tests/test_protocol.py compares them with the headers."""

    COMMAND_CREATE = 1
    COMMAND_RESIZE = 2
    COMMAND_REMOVE = 4
    COMMAND_RENAME = 5
    COMMAND_WRITE = 6
    COMMAND_RUN = 9
    COMMAND_STAGES = 10
    COMMAND_WATCH = 11
    COMMAND_ENGINES = 12
    COMMAND_REPORT = 13
    SECTION_OPEN = 1
    SECTION_FILES = 2
    SECTION_SLOTS = 3
    SECTION_WALK = 4
    SECTION_CHECK = 5
    SECTION_DRAIN = 7
    SECTION_CLOSE = 10
    OK = 0
    NOT_A_HEAP = 2
    UNSUPPORTED_CALL = 4
    ERROR = 5
    OUTCOME_DONE = 0
    OUTCOME_HUNG = 2
    OUTCOME_OVERLOADED = 4
    REPORT_VERSION = 11
    PROTOCOL_VERSION = 16
    LOAD_TARGET = 1
    RUN_LOADS = 1
    RUN_IN_PROCESS = 4
    RUN_DEATH = 64
    RUN_COMPARED = 128
    LOADS_SHARED = 4
    LOADS_UNSEEN = 8
    LOADS_DIFFERS = 16
    LOADS_MAPPINGS = 32
    LOADS_DAMAGED = 64
    PROBE_FULL = 2
    PROBE_GENERATION = 3
    PROBE_RECOVERY = 4
    EVENTS_FILES = 2
    EVENT_STORE = 1
    EVENT_FLUSH = 2
    EVENT_FENCE = 3
    EVENT_BEGIN = 4
    EVENT_RETURN = 5
    STORED_PLAIN = 1
    FLUSHED_CLWB = 3
    FENCED_SFENCE = 1
    OP_OPEN = 3
    OP_ALLOCATE = 5
    OP_FREE = 6
    FIRST_INDEX = 0xF00000
    INDEXES_OF_A_GENERATION = 0x1000
    BLOCK_ALLOCATED = 1


LINE_BYTES = 64
SLOTS = 2
MAGIC = 0x796F74
BROKEN_LATER, OVERLOADED_NOW, LISTED_TWICE, PAST_HOOKS, THREADED, RESTLESS = 1, 2, 3, 4, 5, 6
MANY_MAPPINGS, DAMAGED_LIST, FORGETFUL, CHANGEABLE, TWO_FACED, NEVER_OPEN = 7, 8, 10, 11, 12, 13
"""Values of the flag: the second recovery answers an error; the first one meets an overloaded machine; the first one lists its
free place twice and takes the flag back, so that the second one does not; recovery loads something that no hook announces; it
starts a thread; it looks at its first object every other time, for nothing; it maps its heap more often than the runner follows; it
overwrites the list of its loads; a guarded run of it takes too long; a run in one process with others finds no object; each
run finds them somewhere else; the second recovery answers an error, and the engines are said to differ where they are compared; of
what the first one does no end is told."""
CAREFUL = 64
"""With this flag or a greater one recovery takes up the journal, and what it does wrong is the sum of these."""
(
    CLEARS_FIRST,
    LINK_NOT_FLUSHED,
    LINK_NOT_FENCED,
    CLEAR_NOT_FLUSHED,
    FORGETS_LATER,
    NOT_USABLE,
    HIDES_FILES,
    LINKS_FIRST,
) = (
    1,
    2,
    4,
    8,
    16,
    32,
    64,
    128,
)
LOOKS_FURTHER, PLACED = 256, 512
"""The journal is cleared before it is taken up; ...; a recovery that finds the mark of one that was cut short leaves slot 0 to be
lost by the next one, or a heap in which nothing can be allocated; it changes files in a way that is not told; what follows it links
an object that is not there yet; and what is no mistake: where the journal was not empty, the probe, and only it, reads the mark,
and there is more room where it is 1; each word is stored to at a place of its own in the code."""
JOURNAL, MARK = 5 * LINE_BYTES, 6 * LINE_BYTES
"""Journal: the slot that is to get its object, + 1, or 0. Mark: 1 while recovery is at work, 2 afterwards, 3 after one that was cut
short."""
FIRST_PLACE = 0x1000
PATTERN_MASK = (1 << 64) - 1
FREE_LINE = 7


def pattern_word(object_id: int) -> int:
    mix = object_id << 40 & PATTERN_MASK
    mix = (mix ^ mix >> 31) * 0x9E3779B97F4A7C15 & PATTERN_MASK
    mix = (mix ^ mix >> 29) * 0xBF58476D1CE4E5B9 & PATTERN_MASK
    return 0xF1ED << 48 | object_id << 24 | mix >> 40


def place(slot: int) -> int:
    return (3 + slot) * LINE_BYTES


def section(kind: int, life: int, status: int = FL.OK, count: int = 0, value: int = 0, payload: bytes = b"") -> bytes:
    return struct.pack("<HHIIIQ", kind, life, status, count, len(payload), value) + payload + bytes(-len(payload) % 8)


def report(outcome: int, life: int, stage: int, sections: list[bytes]) -> bytes:
    body = b"".join(sections)
    return (
        struct.pack("<8I", 0x52484C46, FL.REPORT_VERSION, 32 + len(body), len(sections), outcome, 0, life, stage) + body
    )


loaded: list[int] = []
"""Units of the heap file that the probe has looked at, in order."""
stored: set[int] = set()
"""Units that the probe has stored to: what the crash left there does not matter any more."""
runs = [0]
"""How many there were."""
Done = tuple[int, int, int, int, bytes]
"""Kind; detail; slot of a begin, status of a return; offset, or index of an operation; payload."""


def word(heap: bytes | bytearray, offset: int) -> int:
    if offset // 8 not in stored:
        loaded.append(offset // 8)
    return int.from_bytes(heap[offset : offset + 8], "little")


# ---- recovery that does something ----------------------------------------------------------------------------------------


def put(heap: bytearray, offset: int, value: int, is_flushed: bool = True, is_fenced: bool = True) -> list[Done]:
    heap[offset : offset + 8] = value.to_bytes(8, "little")
    stored.add(offset // 8)
    events: list[Done] = [(FL.EVENT_STORE, FL.STORED_PLAIN, 0, offset, value.to_bytes(8, "little"))]
    events += [(FL.EVENT_FLUSH, FL.FLUSHED_CLWB, 0, offset, b"")] * is_flushed
    return events + [(FL.EVENT_FENCE, FL.FENCED_SFENCE, 0, 0, b"")] * is_fenced


def recover(heap: bytearray) -> list[Done]:
    """Takes up what the journal says; what it did to the heap."""
    if word(heap, 0) != MAGIC or word(heap, 8) < CAREFUL:
        return []
    wrong, slot = word(heap, 8) - CAREFUL, word(heap, JOURNAL) - 1
    events: list[Done] = []
    mark = word(heap, MARK) if wrong & (FORGETS_LATER | NOT_USABLE) else 0
    if mark == 3 and wrong & FORGETS_LATER:
        events += put(heap, LINE_BYTES, 0)
    if wrong & (FORGETS_LATER | NOT_USABLE):
        events += put(heap, MARK, 3 if mark in (1, 3) else 1)
    if slot >= 0:
        if wrong & CLEARS_FIRST:
            events += put(heap, JOURNAL, 0)
        link = (1 + slot) * LINE_BYTES
        events += put(heap, link, place(slot), not wrong & LINK_NOT_FLUSHED, not wrong & LINK_NOT_FENCED)
        if not wrong & CLEARS_FIRST:
            events += put(heap, JOURNAL, 0, is_flushed=not wrong & CLEAR_NOT_FLUSHED)
    if mark not in (1, 3) and wrong & (FORGETS_LATER | NOT_USABLE):
        events += put(heap, MARK, 2)
    return events


def follow_up(heap: bytearray, index: int) -> list[Done]:
    """An allocation into the first slot that is empty, and a free."""
    empty = [slot for slot in range(SLOTS) if word(heap, (1 + slot) * LINE_BYTES) == 0]
    if not empty:
        return []
    slot, object_id = empty[0], index + 1
    events: list[Done] = [(FL.EVENT_BEGIN, FL.OP_ALLOCATE, slot, index, struct.pack("<QI", 8, object_id))]
    steps = [(place(slot), pattern_word(object_id)), ((1 + slot) * LINE_BYTES, place(slot))]
    is_linked_first = word(heap, 8) >= CAREFUL and word(heap, 8) - CAREFUL & LINKS_FIRST
    for offset, value in reversed(steps) if is_linked_first else steps:
        events += put(heap, offset, value)
    events += [
        (FL.EVENT_RETURN, FL.OP_ALLOCATE, FL.OK, index, b""),
        (FL.EVENT_BEGIN, FL.OP_FREE, slot, index + 1, struct.pack("<QI", 0, 0)),
    ]
    events += put(heap, (1 + slot) * LINE_BYTES, 0)
    return [*events, (FL.EVENT_RETURN, FL.OP_FREE, FL.OK, index + 1, b"")]


def traced_life(heap: bytearray, generation: int, has_follow_up: bool) -> tuple[bytes, list[Done]]:
    """The heap report, and everything that was done."""
    index = FL.FIRST_INDEX + generation * FL.INDEXES_OF_A_GENERATION
    stored.clear()
    events: list[Done] = [(FL.EVENT_BEGIN, FL.OP_OPEN, 0, index, struct.pack("<QI", 0, 0)), *recover(heap)]
    if word(heap, 0) != MAGIC:
        done: list[Done] = [*events, (FL.EVENT_RETURN, FL.OP_OPEN, FL.NOT_A_HEAP, index, b"")]
        return report(FL.OUTCOME_DONE, 0, FL.SECTION_OPEN, [section(FL.SECTION_OPEN, 0, FL.NOT_A_HEAP)]), done
    events.append((FL.EVENT_RETURN, FL.OP_OPEN, FL.OK, index, b""))
    sections = life_of(heap, 0)
    if heap[8] == NEVER_OPEN:
        return report(FL.OUTCOME_HUNG, 0, FL.SECTION_OPEN, []), events[:-1]
    return report(FL.OUTCOME_DONE, 0, FL.SECTION_SLOTS, sections), events + (
        follow_up(heap, index + 1) if has_follow_up else []
    )


def events_answer(file: int, flag: int, events: list[Done]) -> bytes:
    flags = FL.EVENTS_FILES if flag >= CAREFUL and flag - CAREFUL & HIDES_FILES else 0
    is_placed = flag >= CAREFUL and flag - CAREFUL & PLACED
    answer = struct.pack("<IIII", FL.PROTOCOL_VERSION, flags, len(events), 0)
    for kind, detail, number, at, payload in events:
        offset, site, of = at, FIRST_PLACE + at if is_placed and kind == FL.EVENT_STORE else 0, file
        if kind in (FL.EVENT_BEGIN, FL.EVENT_RETURN):
            offset, site, of = 0, at, number
        if kind == FL.EVENT_BEGIN:
            (offset,), payload = struct.unpack_from("<Q", payload), payload[8:]
        answer += struct.pack("<BBHIQIIII", kind, detail, 0, of, offset, len(payload), site, 0, 0)
        answer += payload + bytes(-len(payload) % 8)
    return answer


# ---- lives ---------------------------------------------------------------------------------------------------------------


def life_of(heap: bytes | bytearray, number: int) -> list[bytes]:
    if heap[8] == RESTLESS and runs[0] % 2 == 1:
        word(heap, (1 + SLOTS) * LINE_BYTES)
    entries = [(slot, 0, word(heap, (1 + slot) * LINE_BYTES)) for slot in range(SLOTS)]
    entries = [entry for entry in entries if entry[2] != 0]
    payload = b"".join(struct.pack("<IIQ", *entry) for entry in entries)
    sections = [
        section(FL.SECTION_OPEN, number),
        section(FL.SECTION_SLOTS, number, FL.OK, len(entries), SLOTS, payload),
    ]
    sections += [
        section(FL.SECTION_WALK, number, FL.UNSUPPORTED_CALL),
        section(FL.SECTION_CHECK, number, FL.UNSUPPORTED_CALL),
    ]
    return [*sections, section(FL.SECTION_FILES, number, count=1, payload=b"heap\0")]


def drain(number: int, listings: int, size: int = LINE_BYTES) -> bytes:
    block = struct.pack("<IIQQ", 0, FL.BLOCK_ALLOCATED, FREE_LINE * LINE_BYTES, size)
    return section(FL.SECTION_DRAIN, number, FL.OK, listings, listings * size, block * listings)


def opened(image: bytes) -> bytearray:
    """A heap of its own, recovered."""
    stored.clear()
    heap = bytearray(image)
    recover(heap)
    return heap


def probe(image: bytes | None, kind: int, how: int) -> bytes:
    heap = opened(image or b"")
    if image is None or word(heap, 0) != MAGIC:
        return report(FL.OUTCOME_DONE, 0, FL.SECTION_OPEN, [section(FL.SECTION_OPEN, 0, FL.NOT_A_HEAP)])
    flag = word(heap, 8)
    if flag == OVERLOADED_NOW:
        return report(FL.OUTCOME_OVERLOADED, 0, FL.SECTION_OPEN, [])
    if flag == FORGETFUL and how & FL.RUN_IN_PROCESS:
        heap[LINE_BYTES : (1 + SLOTS) * LINE_BYTES] = bytes(SLOTS * LINE_BYTES)
    if flag == CHANGEABLE:
        heap[LINE_BYTES : LINE_BYTES + 8] = (8 * runs[0]).to_bytes(8, "little")
    sections = life_of(heap, 0)
    if kind != FL.PROBE_FULL:
        return report(FL.OUTCOME_DONE, 0, FL.SECTION_CHECK, sections)
    sections.append(section(FL.SECTION_OPEN, 1))
    if flag in (BROKEN_LATER, TWO_FACED):
        return report(FL.OUTCOME_DONE, 2, FL.SECTION_OPEN, [*sections, section(FL.SECTION_OPEN, 2, FL.ERROR)])
    recover(heap)
    sections += life_of(heap, 2)
    heap = opened(image)
    is_useless = flag >= CAREFUL and (flag - CAREFUL) & NOT_USABLE and word(heap, MARK) == 3
    used = section(FL.SECTION_DRAIN, 3, FL.ERROR) if is_useless else drain(3, 2 if flag == LISTED_TWICE else 1)
    if flag >= CAREFUL and (flag - CAREFUL) & LOOKS_FURTHER:
        is_roomy = word(image, JOURNAL) != 0 and word(heap, MARK) == 1
        used = drain(3, 1, LINE_BYTES if is_roomy else LINE_BYTES // 2)
    sections += [*life_of(heap, 3), used, section(FL.SECTION_CLOSE, 3)]
    sections += [*life_of(heap, 4), section(FL.SECTION_CLOSE, 4)]
    return report(FL.OUTCOME_DONE, 4, FL.SECTION_CLOSE, sections)


def recorded_loads(file: int, hot: set[tuple[int, int]], flag: int, how: int) -> bytes:
    of_flag = {
        THREADED: (FL.LOADS_SHARED, b""),
        MANY_MAPPINGS: (FL.LOADS_MAPPINGS, b""),
        DAMAGED_LIST: (FL.LOADS_DAMAGED, b""),
        PAST_HOOKS: (FL.LOADS_UNSEEN, b"a read at 0x8"),
    }
    flags, text = of_flag.get(flag, (0, b""))
    if flag == TWO_FACED and how & FL.RUN_COMPARED:
        flags, text = FL.LOADS_DIFFERS, b"the runs of one image have other heap reports"
    units = [unit for unit in dict.fromkeys(loaded) if (file, unit) in hot]
    loads = b"".join(struct.pack("<BBHIQQ", FL.LOAD_TARGET, 0, 0, file, unit, 0) for unit in units)
    return struct.pack("<IIIIQQ", FL.PROTOCOL_VERSION, flags, len(units), len(text), 0, 0) + loads + text


def run(heap: bytes | None, file: int, hot: set[tuple[int, int]], kind: int, how: int, generation: int) -> list[bytes]:
    flag = int.from_bytes(heap[8:16], "little") if heap else 0
    if kind in (FL.PROBE_GENERATION, FL.PROBE_RECOVERY):
        answer, done = traced_life(bytearray(heap or b""), generation, kind == FL.PROBE_GENERATION)
        return [answer, recorded_loads(file, hot, flag, how), events_answer(file, flag, done)]
    answer = probe(heap, kind, how)
    if how == FL.RUN_DEATH:
        return [answer, struct.pack("<4IQ2I", FL.PROTOCOL_VERSION, 0, 0, 0, 0, 0, 0)]
    return [answer, recorded_loads(file, hot, flag, how)] if how & FL.RUN_LOADS else [answer]


def serve(commands: BinaryIO, answers: BinaryIO) -> None:
    files: dict[int, bytearray] = {}
    names: dict[int, bytes] = {}
    hot: set[tuple[int, int]] = set()
    while head := commands.read(40):
        kind, length, file, offset, size = struct.unpack("<IxxxxQIxxxxQQ", head)
        probe_kind, flags, _, generation, _ = struct.unpack_from("<4IQ", head, 16)
        payload = commands.read(length)
        if kind == FL.COMMAND_CREATE:
            files[file], names[file] = bytearray(size), payload
        elif kind == FL.COMMAND_RESIZE:
            files[file] = files[file][:size] + bytes(max(0, size - len(files[file])))
        elif kind == FL.COMMAND_REMOVE:
            del files[file], names[file]
        elif kind == FL.COMMAND_RENAME:
            names[file] = payload
        elif kind == FL.COMMAND_WRITE:
            files[file][offset : offset + length] = payload
        elif kind == FL.COMMAND_WATCH:
            ranges = struct.iter_unpack("<IIQQ", payload)
            hot = {(number, first + unit) for number, _, first, count in ranges for unit in range(count)}
        elif kind in (FL.COMMAND_RUN, FL.COMMAND_STAGES, FL.COMMAND_ENGINES, FL.COMMAND_REPORT):
            loaded.clear()
            runs[0] += kind == FL.COMMAND_RUN
            heaps = [number for number in files if names[number] == b"heap"]
            others = {
                FL.COMMAND_STAGES: b"",
                FL.COMMAND_ENGINES: struct.pack("<4Q", runs[0], 0, 0, 0),
                FL.COMMAND_REPORT: b"",
            }
            heap = bytes(files[heaps[0]]) if heaps else None
            if kind == FL.COMMAND_RUN:
                reply = run(heap, heaps[0] if heaps else 0, hot, probe_kind, flags, generation)
            else:
                reply = [others[kind]]
            answers.write(b"".join(struct.pack("<I", len(part)) + part for part in reply))
            answers.flush()


if __name__ == "__main__" and sys.argv[1] == "serve":
    serve(sys.stdin.buffer, sys.stdout.buffer)
