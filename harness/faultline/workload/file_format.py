# SPDX-License-Identifier: Apache-2.0
"""The file format of workloads (FORMAT), read. The runner's reader is runner/workload/workload.c."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

from faultline.base.errors import BadInputError
from faultline.workload.operations import (
    ARGUMENTS,
    LAYOUTS,
    MAX_GROWTHS,
    MAX_OPERATIONS,
    MAX_SLOTS,
    MAX_THREADS,
    SLOT_OPERATIONS,
    THREAD_OPERATIONS,
    TRANSACTION_BOUNDS,
    Operation,
    Workload,
)
from faultline.workload.slots import SlotStates, expect

FORMAT = """
workload 1                # version; first line that is no comment
slots 64                  # workload slots, 1 to 65536; `slots 64 names`, `slots 64 chain` or `slots 64 graph` for another layout
opens lazily              # may stand here: reopens and recoveries return early, and the rest of them comes between operations
growths 2                 # may stand here: files may grow, or be made, twice after create or open; then the disk is full
case                      # a new heap: create ... close; every workload starts with one
allocate SLOT BYTES       # needs an empty slot
free SLOT                 # needs a live slot
reallocate SLOT BYTES     # needs a live slot; BYTES: the new size
reopen                    # close, a fresh process, open (recovery)
thread N allocate 0 64    # an operation (allocate, free, reallocate) run by worker N, 1 to 63; without `thread`: by the main thread
join                      # what stands before it has returned before anything after it begins; case and reopen join too

                          # for allocators with transactions, without `thread` and `slots 64 graph`:
begin                     # the operations up to commit or abort take effect together, or not at all
commit                    # all of them have happened
abort                     # none of them has
write SLOT START LENGTH   # overwrites a part of the slot's object; multiples of 8, in a transaction or outside

                          # with `slots 64 graph`, of the main thread only; FIELD is 0 or 1:
link SLOT FIELD TARGET    # the field of the slot's object points to the object in slot TARGET
unlink SLOT FIELD         # the field becomes null
drop SLOT                 # the slot becomes empty, its object is not freed: it lives on only where a field reaches it
load SLOT FROM FIELD      # an empty slot gets what the field of the object in slot FROM points to

`#` starts a comment, blank lines are ignored. A slot is live as if every allocate succeeded; an operation that runs out of memory
has no effect, and what follows on its slot is skipped.

Layouts: root (the default) keeps slots where the allocator's roots are; names makes each slot a named allocation, found again by
its name; chain makes the objects the nodes of one linked list; graph gives each object two pointers to others. There, free and
reallocate need an object that no other slot and no field holds, and an operation that runs out of memory ends the case. Between
two joins the threads run concurrently, each its operations in the order of the file, and a slot belongs to one thread. --seed picks
the schedule. More in docs/workloads.md.
"""
LAYOUT_USAGE = "slots COUNT [names | chain | graph]"


@dataclass
class _Head:
    """What stands above the first case."""

    is_versioned: bool = False
    slots: int = 0
    layout: str = "root"
    is_lazy: bool = False
    growths: int | None = None

    def takes(self, words: list[str], is_over: bool) -> bool:
        """Whether the line is one of the head. is_over: a case came before it."""
        if not self.is_versioned:
            expect(words == ["workload", "1"], "expected `workload 1` as the first line")
            self.is_versioned = True
        elif not self.slots:
            self.slots, self.layout = _parse_slots(words)
        elif words[0] == "opens":
            expect(words == ["opens", "lazily"], "expected `opens lazily`")
            expect(not is_over, "`opens lazily` after the first `case`; it stands below `slots COUNT`")
            self.is_lazy = True
        elif words[0] == "growths":
            expect(len(words) == 2, "expected `growths COUNT`")
            expect(not is_over, "`growths` after the first `case`; it stands below `slots COUNT`")
            self.growths = _number(words[1], 0, MAX_GROWTHS, "growths")
        else:
            return False
        return True


def parse(text: str, source: str) -> Workload:
    """source: the file's name, for messages; violations name it with the line."""
    head = _Head()
    state = SlotStates(is_graph=False)
    operations: list[Operation] = []
    for number, raw in enumerate(text.split("\n"), 1):
        words = _words(raw)
        if not words:
            continue
        try:
            expect("\0" not in raw, "a NUL byte; a workload is a text file")
            if head.takes(words, bool(operations)):
                continue
            if not operations:
                state = SlotStates(is_graph=head.layout == "graph")
            operation = parse_line(words)
            expect(bool(operations) or operation.kind == "case", "expected `case`: every workload starts with one")
            highest = max(operation.slot, operation.other)
            expect(highest < head.slots, f"slot {highest} is not below `slots {head.slots}`")
            state.check(operation)
            operations.append(operation)
        except ValueError as error:
            raise BadInputError(
                f"{source}:{number}: {error}", "the format is in `faultline list --workload-format`"
            ) from error
    if state.at_begin is not None:
        raise BadInputError(f"{source}: ends in a transaction: commit or abort it first")
    if not operations:
        missing = "`case`" if head.slots else "`slots COUNT`" if head.is_versioned else "`workload 1`"
        raise BadInputError(f"{source}: ends before {missing}: the workload is empty")
    workload = Workload(
        "file", head.slots, tuple(operations), layout=head.layout, is_lazy=head.is_lazy, growths=head.growths
    )
    if workload.operation_count > MAX_OPERATIONS:
        raise BadInputError(f"{source}: {workload.operation_count} operations, expected at most {MAX_OPERATIONS}")
    return replace(workload, name=f"file:{workload.key}")


def _words(line: str) -> list[str]:
    """Words without the comment. Blanks are what the runner takes for blanks: no form feed, no space of Unicode. A line with a NUL
    has words."""
    code = line if "\0" in line else line.partition("#")[0]
    return [word for word in re.split("[ \t\r]", code) if word]


def _parse_slots(words: list[str]) -> tuple[int, str]:
    expect(words[0] == "slots" and 2 <= len(words) <= 3, f"expected `{LAYOUT_USAGE}` after `workload 1`")
    layout = words[2] if len(words) == 3 else "root"
    expect(layout in LAYOUTS, f"slot layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    return _number(words[1], 1, MAX_SLOTS, "slot count"), layout


def parse_line(words: list[str]) -> Operation:
    if words[0] == "thread":
        expect(len(words) > 2, "expected `thread N` and an operation, as in `thread 1 free 0`")
        expect(
            words[2] in THREAD_OPERATIONS, f"`thread N` goes before {', '.join(THREAD_OPERATIONS)}, got {words[2]!r}"
        )
        return replace(parse_line(words[2:]), thread=_number(words[1], 1, MAX_THREADS, "thread"))
    kind, arguments = words[0], words[1:]
    names = {"case": "", "reopen": "", "join": "", **dict.fromkeys(TRANSACTION_BOUNDS, ""), **SLOT_OPERATIONS}
    if kind not in names:
        raise ValueError(f"unknown operation {kind!r}, expected one of {', '.join(names)}, thread")
    usage = f"{kind} {names[kind]}".strip()
    expect(len(arguments) == len(names[kind].split()), f"expected `{usage}`")
    members: dict[str, int] = {}
    for name, argument in zip(names[kind].split(), arguments, strict=True):
        member, smallest, largest, what = ARGUMENTS[name]
        members[member] = _number(argument, smallest, largest, what)
    return Operation(kind, **members)


def _number(word: str, smallest: int, largest: int, what: str) -> int:
    value = int(word) if word.isascii() and word.isdigit() else -1
    expect(smallest <= value <= largest, f"{what} {word!r}: expected a number from {smallest} to {largest}")
    return value
