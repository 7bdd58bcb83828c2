# SPDX-License-Identifier: Apache-2.0
"""Workloads: what an allocator is made to do while it is traced. A workload is a text file (FORMAT) that the runner executes.

A session is a part between two reopens; each is one process. An operation's index counts create, every operation and close over the
whole file (reopen counts as close and open), so that it is a fact of the file alone; an object's id is the index of its allocation
plus one. Which thread runs an operation, and when, changes no index.

Generators are functions of their arguments only. random.Random(seed).random() is the one source of chance: of that class, only it
is promised to stay the same from one Python version to the next.
"""

from __future__ import annotations

import contextlib
import random
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from pathlib import Path

from faultline.base.cache import Cache, key_of, project_root
from faultline.base.config import Heap
from faultline.base.errors import BadInputError
from faultline.workload.links import GRAPH_FIELDS, Links

FORMAT = """
workload 1                # version; first line that is no comment
slots 64                  # workload slots, 1 to 65536; `slots 64 names`, `slots 64 chain` or `slots 64 graph` for another layout
case                      # a new heap: create ... close; every workload starts with one
allocate SLOT BYTES       # needs an empty slot
free SLOT                 # needs a live slot
reallocate SLOT BYTES     # needs a live slot; BYTES: the new size
reopen                    # close, a fresh process, open (recovery)
thread N allocate 0 64    # an operation (allocate, free, reallocate) run by worker N, 1 to 63; without `thread`: by the main thread
join                      # what stands before it has returned before anything after it begins; case and reopen join too

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

MAX_SLOTS = 65536
MAX_OPERATIONS = (1 << 24) - 2
"""Object ids are 24 bits wide in the pattern (heap_report.h), 0 is none."""
MAX_ACE_OPERATIONS = 6
"""ace:6 with four sizes has 1.6 million cases; more is a slip of the finger."""
MAX_BYTES = 1 << 46
MAX_THREADS = 63
"""Workers; threads have 16 bits in a trace, but no allocator is tried with more."""
LAYOUTS = ("root", "names", "chain", "graph")
"""Slot layouts, as adapter.h has them; root is the default."""
LAYOUT_USAGE = "slots COUNT [names | chain | graph]"


@dataclass(frozen=True)
class Operation:
    """One line of a workload file. kind: case, reopen, join or one of SLOT_OPERATIONS. thread: 0 is the main thread."""

    kind: str
    slot: int = 0
    size_bytes: int = 0
    thread: int = 0
    other: int = 0
    """link: the slot linked to; load: the slot whose object's field is loaded."""
    field: int = 0

    def line(self) -> str:
        worker = f"thread {self.thread} " if self.thread else ""
        arguments = (str(getattr(self, _ARGUMENTS[word][0])) for word in SLOT_OPERATIONS.get(self.kind, "").split())
        return worker + " ".join([self.kind, *arguments])


@dataclass(frozen=True)
class Workload:
    name: str
    slots: int
    operations: tuple[Operation, ...]
    ops: int = 0
    """What the generator was asked for; 0 where the name says it all."""
    seed: int = 0
    layout: str = "root"
    schedule_seed: int = 0
    """Of the traced threads; never 0 where there are any, always 0 where there are none."""

    @property
    def thread_count(self) -> int:
        """Threads that run operations; create, open and close, which the main thread runs, do not count."""
        threads = {operation.thread for operation in self.operations if operation.kind in SLOT_OPERATIONS}
        return max(1, len(threads))

    @property
    def is_threaded(self) -> bool:
        return any(operation.thread for operation in self.operations)

    @property
    def session_count(self) -> int:
        return 1 + sum(operation.kind == "reopen" for operation in self.operations)

    @property
    def case_count(self) -> int:
        return sum(operation.kind == "case" for operation in self.operations)

    @property
    def operation_count(self) -> int:
        """Operations that get markers, as the runner counts them: create, the lines, close; close and open for a reopen."""
        per_kind = {"case": 2, "reopen": 2, "join": 0}
        return sum(per_kind.get(operation.kind, 1) for operation in self.operations)

    def text(self) -> str:
        head = ["workload 1", f"slots {self.slots}" + ("" if self.layout == "root" else f" {self.layout}")]
        return "\n".join([*head, *(operation.line() for operation in self.operations)]) + "\n"

    @property
    def key(self) -> str:
        return key_of(self.text())


# ---- generators ----------------------------------------------------------------------------------------------------------


def smoke() -> Workload:
    """A dozen fixed operations: every kind, small and large, shrinking and growing, on both sides of a reopen."""
    lines = """
        allocate 0 64
        allocate 1 24
        allocate 2 2048
        allocate 3 8192
        free 1
        reallocate 0 256
        reallocate 2 4500
        allocate 1 1000
        free 3
        reopen
        allocate 3 128
        free 2
        reallocate 1 48
        """
    operations = (_parse_line(line.split()) for line in lines.split("\n") if line.strip())
    return Workload("smoke", 8, (Operation("case"), *operations))


# Share of the objects, and the sizes of each kind, bytes. Mostly small, as allocators see it; some of several OS pages.
CHURN_SIZE_MIX = ((0.45, 1, 64), (0.35, 65, 512), (0.14, 513, 2048), (0.05, 2049, 8192), (0.01, 8193, 32768))
CHURN_SLOTS = 64
CHURN_LIVE_OBJECTS = 48
"""Bound of the live set, so that long runs meet used, freed and reused memory instead of a heap that only fills."""
CHURN_ALLOCATE_SHARE = 0.5
CHURN_FREE_SHARE = 0.3


def churn(ops: int, seed: int) -> Workload:
    """ops operations, seeded: half allocate, the rest free and reallocate, over a size mix and a bounded live set."""
    chance = random.Random(seed)
    live: list[int] = []
    empty = list(range(CHURN_SLOTS))
    operations = [Operation("case")]
    for _ in range(ops):
        choice = chance.random()
        if not live or (choice < CHURN_ALLOCATE_SHARE and len(live) < CHURN_LIVE_OBJECTS):
            slot = empty.pop(_below(chance, len(empty)))
            live.append(slot)
            operations.append(Operation("allocate", slot, _churn_size(chance)))
        elif choice < CHURN_ALLOCATE_SHARE + CHURN_FREE_SHARE:
            slot = live.pop(_below(chance, len(live)))
            empty.append(slot)
            operations.append(Operation("free", slot))
        else:
            slot = live[_below(chance, len(live))]
            operations.append(Operation("reallocate", slot, _churn_size(chance)))
    return Workload("churn", CHURN_SLOTS, tuple(operations), ops, seed)


def _below(chance: random.Random, bound: int) -> int:
    return int(chance.random() * bound)


def _churn_size(chance: random.Random) -> int:
    point = chance.random()
    for share, smallest, largest in CHURN_SIZE_MIX:
        if point < share:
            return smallest + _below(chance, largest - smallest + 1)
        point -= share
    return CHURN_SIZE_MIX[0][1]


def uniform(ops: int, seed: int, smallest: int, largest: int) -> Workload:
    """ops operations, seeded, in a random order: half allocate objects of smallest to largest bytes, all sizes equally likely, half
    free one of the live objects, chosen at random (Moraru et al., section 8.1.1; there 10 to 4096). A free that finds nothing
    changes places with an allocation. The live set is a random walk that ends empty, or with one object if ops is odd."""
    chance = random.Random(seed)
    live: list[int] = []
    empty: list[int] = []
    frees = ops // 2
    allocations = ops - frees
    slots = 0
    operations = [Operation("case")]
    while allocations or frees:
        if live and _below(chance, allocations + frees) < frees:
            at = _below(chance, len(live))
            live[at], live[-1] = live[-1], live[at]
            operations.append(Operation("free", live[-1]))
            empty.append(live.pop())
            frees -= 1
        else:
            if not empty:
                empty.append(slots)
                slots += 1
            live.append(empty.pop())
            operations.append(Operation("allocate", live[-1], smallest + _below(chance, largest - smallest + 1)))
            allocations -= 1
    return Workload(f"uniform:{smallest}:{largest}", max(1, slots), tuple(operations), ops, seed)


def over_layout(layout: str, ops: int, seed: int) -> Workload:
    """churn's operations with the slots in another layout (`chain`: the nodes of one list; `names`: named allocations), so that its
    links and names are made, changed and taken back in every state of the heap."""
    return replace(churn(ops, seed), name=layout, layout=layout)


REOPENS = 4
"""Close/open cycles of reopen; the last follows the one before it at once."""


def reopen(ops: int, seed: int) -> Workload:
    """churn's operations in several lives of one heap: what one life allocated the next ones free and reallocate. The last cycle
    has no work before it: a close right after an open."""
    first, *rest = churn(ops, seed).operations
    operations = [first]
    for number, operation in enumerate(rest):
        operations.append(operation)
        if (number + 1) * REOPENS // ops > number * REOPENS // ops:
            operations.append(Operation("reopen"))
    return Workload("reopen", CHURN_SLOTS, (*operations, Operation("reopen")), ops, seed)


def sizes(boundaries: list[int]) -> Workload:
    """Both sides of every size-class boundary: one byte less, the boundary, one byte more are allocated, reallocated across it,
    freed, and the place is used again; then one object goes through all size classes, up and down, and from end to end."""
    operations = [Operation("case")]
    for boundary in boundaries:
        around = [max(1, boundary - 1), boundary, boundary + 1]
        operations += [Operation("allocate", slot, size) for slot, size in enumerate(around)]
        operations += [Operation("reallocate", slot, around[2 - slot]) for slot in (0, 2)]
        operations += [Operation("free", slot) for slot in (1, 0, 2)]
        operations += [Operation("allocate", 1, boundary), Operation("free", 1)]
    way = [*boundaries, *reversed(boundaries[:-1]), boundaries[-1], boundaries[0]]
    operations.append(Operation("allocate", 0, way[0]))
    operations += [Operation("reallocate", 0, after) for before, after in pairwise(way) if before != after]
    return Workload("sizes", 3, (*operations, Operation("free", 0)))


FILL_SHARES = (8, 64, 512)
"""Objects of an eighth of the heap until there is no room for one, then of a 64th, then of a 512th."""


def fill(limit_bytes: int) -> Workload:
    """To out-of-memory and back, then again. Objects of falling sizes, of each one more than can fit beside the larger ones; every
    other object is freed and its place asked for again, by one that is too large too; all are freed; the large ones once more.
    Its trace is as long as the heap is large (every byte of content is stored): for allocators with small heaps."""
    operations = [Operation("case")]
    filled: list[tuple[int, int]] = []
    room = 1
    for share in FILL_SHARES:
        size = max(1, limit_bytes // share)
        count = share // room
        filled += [(len(filled) + number, size) for number in range(count + 1)]
        room = share
    operations += [Operation("allocate", slot, size) for slot, size in filled]
    for slot, size in filled[::2]:
        operations += [Operation("free", slot), Operation("allocate", slot, size)]
    operations.append(Operation("reallocate", 0, limit_bytes))
    operations += [Operation("free", slot) for slot, _ in (*filled[1::2], *filled[::2])]
    operations += [Operation("allocate", slot, limit_bytes // FILL_SHARES[0]) for slot in range(FILL_SHARES[0] + 1)]
    operations += [Operation("free", slot) for slot in reversed(range(FILL_SHARES[0] + 1))]
    return Workload("fill", len(filled), tuple(operations))


THREADS = 2
THREADS_SLOTS = 32
THREADS_LIVE_OBJECTS = 24
THREADS_ROUND = 8
"""Operations between two joins. Longer rounds would let threads meet in more states, and meet each other's objects later."""


def threads(ops: int, seed: int) -> Workload:
    """ops operations, seeded, of two threads that run concurrently: churn's mix, each by either of them. Between two joins
    a slot belongs to the thread that touched it first; after a join any thread frees and reallocates what the other one
    allocated. The schedule is seeded with the same seed."""
    chance = random.Random(seed)
    live: list[int] = []
    empty = list(range(THREADS_SLOTS))
    owners: dict[int, int] = {}
    operations = [Operation("case")]
    for number in range(ops):
        if number % THREADS_ROUND == 0 and number > 0:
            operations.append(Operation("join"))
            owners.clear()
        thread = 1 + _below(chance, THREADS)
        choice = chance.random()
        mine = [slot for slot in live if owners.get(slot, thread) == thread]
        if not mine or (choice < CHURN_ALLOCATE_SHARE and len(live) < THREADS_LIVE_OBJECTS):
            free_to_use = [slot for slot in empty if owners.get(slot, thread) == thread]
            slot = free_to_use[_below(chance, len(free_to_use))]
            empty.remove(slot)
            live.append(slot)
            operation = Operation("allocate", slot, _churn_size(chance), thread)
        elif choice < CHURN_ALLOCATE_SHARE + CHURN_FREE_SHARE:
            slot = mine[_below(chance, len(mine))]
            live.remove(slot)
            empty.append(slot)
            operation = Operation("free", slot, thread=thread)
        else:
            slot = mine[_below(chance, len(mine))]
            operation = Operation("reallocate", slot, _churn_size(chance), thread)
        owners[operation.slot] = thread
        operations.append(operation)
    return Workload("threads", THREADS_SLOTS, tuple(operations), ops, seed)


GRAPH_SLOTS = 6
"""Few, so that most objects are reached through fields only."""
GRAPH_LIVE_OBJECTS = 24
"""Bound of what the slots reach."""
GRAPH_GARBAGE_OBJECTS = 24
"""Bound of what a heap has lost sight of: only a recovery after a crash collects it. Beyond it the workload goes on with a new
case."""
GRAPH_NULL_FIELD_SHARE = 0.85
"""Of links, that overwrite nothing if there is such a field: else what fields alone reach is soon lost."""
GRAPH_REOPENS = 2
GRAPH_MIX = (
    ("allocate", 0.28),
    ("link", 0.30),
    ("unlink", 0.04),
    ("drop", 0.20),
    ("load", 0.06),
    ("free", 0.07),
    ("reallocate", 0.05),
)
"""Share of each kind, where it is possible; where not, the next possible one of this order is taken."""


def graph(ops: int, seed: int) -> Workload:
    """ops operations, seeded, on objects that point to each other, themselves too: cycles, objects that only fields reach, objects
    that nothing reaches any more. Several lives of each heap."""
    maker = _GraphMaker(seed)
    for number in range(1, ops + 1):
        maker.step()
        if number * (GRAPH_REOPENS + 1) // ops > (number - 1) * (GRAPH_REOPENS + 1) // ops and number < ops:
            maker.operations.append(Operation("reopen"))
    return Workload("graph", GRAPH_SLOTS, tuple(maker.operations), ops, seed, "graph")


class _GraphMaker:
    """Makes the operations of graph one by one."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.links = Links()
        self.allocated = 0
        """Objects of this heap that were not freed."""
        self.operations = [Operation("case")]

    def step(self) -> None:
        reached = sum(1 for _ in self.links.reached())
        if self.allocated - reached >= GRAPH_GARBAGE_OBJECTS:
            self.operations.append(Operation("case"))
            self.links.clear()
            self.allocated = reached = 0
        kinds = [kind for kind, _ in GRAPH_MIX]
        first = kinds.index(self.wanted_kind())
        for kind in kinds[first:] + kinds[:first]:
            choices = self.choices(kind, reached)
            if choices:
                slot, other, field = choices[_below(self.chance, len(choices))]
                size = _churn_size(self.chance) if kind in ("allocate", "reallocate") else 0
                operation = Operation(kind, slot, size, other=other, field=field)
                self.allocated += (kind == "allocate") - (kind == "free")
                follow_links(self.links, operation)
                self.operations.append(operation)
                return

    def wanted_kind(self) -> str:
        point = self.chance.random()
        for kind, share in GRAPH_MIX:
            if point < share:
                return kind
            point -= share
        return GRAPH_MIX[0][0]

    def choices(self, kind: str, reached: int) -> list[tuple[int, int, int]]:
        """Slot, other and field of those that are possible. What is dropped lives on, if there is such an object: garbage comes of
        unlinking, of links that are overwritten, and of full slots."""
        live = sorted(self.links.slots)
        empty = [slot for slot in range(GRAPH_SLOTS) if slot not in self.links.slots]
        fields = [(slot, field) for slot in live for field in range(GRAPH_FIELDS)]
        is_set = [(slot, field) for slot, field in fields if self.links.slots[slot].fields[field] is not None]
        match kind:
            case "allocate":
                return [(slot, 0, 0) for slot in empty if reached < GRAPH_LIVE_OBJECTS]
            case "link":
                is_null = [place for place in fields if place not in is_set]
                wanted = is_null if is_null and self.chance.random() < GRAPH_NULL_FIELD_SHARE else fields
                return [(slot, other, field) for slot, field in wanted for other in live]
            case "unlink":
                return [(slot, 0, field) for slot, field in is_set]
            case "drop":
                held = [slot for slot in live if self.links.lives_without(slot)]
                return [(slot, 0, 0) for slot in held or live[: len(live) == GRAPH_SLOTS]]
            case "load":
                return [(empty[0], slot, field) for slot, field in is_set if empty]
            case _:
                return [(slot, 0, 0) for slot in live if self.links.holder(slot) is None]


RESUR_LISTS = 8
"""The paper's benchmark has 512, one a root."""
RESUR_LARGEST_BYTES = 2048
"""Half an OS page."""


def resur(ops: int, seed: int, limit_bytes: int) -> Workload:
    """ops operations after Makalu's benchmark of recovery (section 13.2): objects of random size up to half an OS page, less where
    the heap is small; a coin decides whether each is freed at once or pushed in front of one of the lists that slots hold.
    After three quarters a new life begins, which drops every other list and goes on."""
    chance = random.Random(seed)
    largest = max(1, min(RESUR_LARGEST_BYTES, limit_bytes // max(1, ops)))
    heads: list[int | None] = [None] * RESUR_LISTS
    """By list: the slot of its first object."""
    empty = list(range(RESUR_LISTS + 1))
    operations: list[Operation] = []
    is_later_life = False
    while len(operations) < ops + 1:
        if len(operations) >= ops * 3 // 4 and not is_later_life:
            is_later_life = True
            operations.append(Operation("reopen"))
            dropped = [slot for slot in heads[::2] if slot is not None]
            operations += [Operation("drop", slot) for slot in dropped]
            heads = [None if slot in dropped else slot for slot in heads]
            empty += dropped
        slot = empty.pop()
        operations.append(Operation("allocate", slot, 1 + _below(chance, largest)))
        if chance.random() < 0.5:
            operations.append(Operation("free", slot))
            empty.append(slot)
            continue
        number = _below(chance, RESUR_LISTS)
        head, heads[number] = heads[number], slot
        if head is not None:
            operations += [Operation("link", slot, other=head), Operation("drop", head)]
            empty.append(head)
    kept = operations[: ops + is_later_life]
    return Workload("resur", RESUR_LISTS + 1, (Operation("case"), *kept), ops, seed, "graph")


DEFRAG_SMALLEST_SHARE = 128
DEFRAG_DOUBLINGS = 3
MIN_DEFRAG_SHARE = 1 << DEFRAG_DOUBLINGS
"""The largest objects are at most as large as the heap."""
MAX_DEFRAG_SHARE = 4096


def defrag(limit_bytes: int, share: int = DEFRAG_SMALLEST_SHARE) -> Workload:
    """The stress of PAllocator's section 5, Table 2, scaled: objects of limit_bytes / share bytes until there is no room for one;
    then, three times, every other object is freed, and objects of twice the size ask for the room."""
    size = max(1, limit_bytes // share)
    live = [(slot, size) for slot in range(share + 1)]
    operations = [Operation("case"), *(Operation("allocate", slot, size) for slot, size in live)]
    for _ in range(DEFRAG_DOUBLINGS):
        size *= 2
        freed, live = live[::2], live[1::2]
        operations += [Operation("free", slot) for slot, _ in freed]
        made = freed[: sum(freed_size for _, freed_size in freed) // size]
        operations += [Operation("allocate", slot, size) for slot, _ in made]
        live += [(slot, size) for slot, _ in made]
    name = "defrag" if share == DEFRAG_SMALLEST_SHARE else f"defrag:{share}"
    return Workload(name, share + 1, tuple(operations))


BIG_SLOTS = 16
BIG_SMALLEST_SHARE = 128
BIG_LARGEST_SHARE = 8
BIG_LIVE_SHARE = 2


def big(ops: int, seed: int, limit_bytes: int) -> Workload:
    """ops operations, seeded, on large objects only: from a 128th to an eighth of the heap, each power of two as often. At most
    half the heap is live."""
    chance = random.Random(seed)
    live: dict[int, int] = {}
    operations: list[Operation] = []
    doublings = (BIG_SMALLEST_SHARE // BIG_LARGEST_SHARE).bit_length() - 1
    for _ in range(ops):
        smallest = (limit_bytes // BIG_SMALLEST_SHARE) << _below(chance, doublings)
        size = max(1, smallest + _below(chance, smallest + 1))
        slot = _below(chance, BIG_SLOTS)
        others = sum(live.values()) - live.get(slot, 0)
        is_too_much = others + size > limit_bytes // BIG_LIVE_SHARE
        if slot in live and (is_too_much or chance.random() < CHURN_ALLOCATE_SHARE):
            del live[slot]
            operations.append(Operation("free", slot))
        elif slot in live:
            live[slot] = size
            operations.append(Operation("reallocate", slot, size))
        elif not is_too_much:
            live[slot] = size
            operations.append(Operation("allocate", slot, size))
        else:
            slot = sorted(live)[_below(chance, len(live))]
            del live[slot]
            operations.append(Operation("free", slot))
    return Workload("big", BIG_SLOTS, (Operation("case"), *operations), ops, seed)


def ace(depth: int, sizes: list[int]) -> Workload:
    """Every sequence of 1 to depth operations, each as its own case: allocate each size into the lowest empty slot, free each live
    slot, reallocate each live slot to each other size. (The name is CrashMonkey's: bounded, automatic, exhaustive.) Which of the
    empty slots an allocation takes makes no difference that an allocator could see, so one of them stands for all."""
    operations: list[Operation] = []
    for sequence in _ace_sequences(depth, sizes, {}):
        operations += [Operation("case"), *sequence]
    return Workload(f"ace:{depth}", depth, tuple(operations))


def spread(sizes: list[int], count: int) -> list[int]:
    """count of the sizes, evenly, the first and the last among them."""
    if count == 1:
        return sizes[:1]
    return [sizes[round(number * (len(sizes) - 1) / (count - 1))] for number in range(count)]


def _ace_sequences(depth: int, sizes: list[int], live: dict[int, int]) -> Iterator[tuple[Operation, ...]]:
    """live: size of the object in each live slot. Shorter sequences come before those they start."""
    if depth == 0:
        return
    for operation in _ace_operations(sizes, live):
        after = dict(live)
        if operation.kind == "free":
            del after[operation.slot]
        else:
            after[operation.slot] = operation.size_bytes
        yield (operation,)
        for rest in _ace_sequences(depth - 1, sizes, after):
            yield (operation, *rest)


def _ace_operations(sizes: list[int], live: dict[int, int]) -> Iterator[Operation]:
    lowest_empty = next(slot for slot in range(len(live) + 1) if slot not in live)
    yield from (Operation("allocate", lowest_empty, size) for size in sizes)
    for slot in sorted(live):
        yield Operation("free", slot)
        yield from (Operation("reallocate", slot, size) for size in sizes if size != live[slot])


def ace_case_count(depth: int, size_count: int, live: int = 0) -> int:
    """How many cases ace has, by recurrence over the number of live slots; the generator is tested against it."""
    if depth == 0:
        return 0

    def after(live_then: int) -> int:
        return 1 + ace_case_count(depth - 1, size_count, live_then)

    allocations = size_count * after(live + 1)
    return allocations + live * ((after(live - 1) if live else 0) + (size_count - 1) * after(live))


# ---- files ---------------------------------------------------------------------------------------------------------------


def parse(text: str, source: str) -> Workload:
    """source: the file's name, for messages; violations name it with the line."""
    slots: int | None = None
    layout = "root"
    state = _Slots(is_graph=False)
    operations: list[Operation] = []
    is_versioned = False
    for number, raw in enumerate(text.split("\n"), 1):
        words = _words(raw)
        if not words:
            continue
        try:
            _expect("\0" not in raw, "a NUL byte; a workload is a text file")
            if not is_versioned:
                _expect(words == ["workload", "1"], "expected `workload 1` as the first line")
                is_versioned = True
            elif slots is None:
                slots, layout = _parse_slots(words)
                state = _Slots(is_graph=layout == "graph")
            else:
                operation = _parse_line(words)
                _expect(bool(operations) or operation.kind == "case", "expected `case`: every workload starts with one")
                highest = max(operation.slot, operation.other)
                _expect(highest < slots, f"slot {highest} is not below `slots {slots}`")
                state.check(operation)
                operations.append(operation)
        except ValueError as error:
            raise BadInputError(
                f"{source}:{number}: {error}", "the format is in `faultline list --workload-format`"
            ) from error
    if not operations:
        missing = "`case`" if slots is not None else "`slots COUNT`" if is_versioned else "`workload 1`"
        raise BadInputError(f"{source}: ends before {missing}: the workload is empty")
    workload = Workload("file", slots or 1, tuple(operations), layout=layout)
    if workload.operation_count > MAX_OPERATIONS:
        raise BadInputError(f"{source}: {workload.operation_count} operations, expected at most {MAX_OPERATIONS}")
    return replace(workload, name=f"file:{workload.key}")


def _words(line: str) -> list[str]:
    """Words without the comment. Blanks are what the runner takes for blanks: no form feed, no space of Unicode. A line with a NUL
    has words."""
    code = line if "\0" in line else line.partition("#")[0]
    return [word for word in re.split("[ \t\r]", code) if word]


def _parse_slots(words: list[str]) -> tuple[int, str]:
    _expect(words[0] == "slots" and 2 <= len(words) <= 3, f"expected `{LAYOUT_USAGE}` after `workload 1`")
    layout = words[2] if len(words) == 3 else "root"
    _expect(layout in LAYOUTS, f"slot layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    return _number(words[1], 1, MAX_SLOTS, "slot count"), layout


THREAD_OPERATIONS = {"allocate": "SLOT BYTES", "free": "SLOT", "reallocate": "SLOT BYTES"}
"""Operations on a slot, which threads may run, and their arguments."""
GRAPH_OPERATIONS = {
    "link": "SLOT FIELD TARGET",
    "unlink": "SLOT FIELD",
    "drop": "SLOT",
    "load": "SLOT FROM FIELD",
}
"""Those of the graph layout only."""
SLOT_OPERATIONS = {**THREAD_OPERATIONS, **GRAPH_OPERATIONS}
_ARGUMENTS: dict[str, tuple[str, int, int, str]] = {
    "SLOT": ("slot", 0, MAX_SLOTS - 1, "slot"),
    "BYTES": ("size_bytes", 1, MAX_BYTES, "bytes"),
    "FIELD": ("field", 0, GRAPH_FIELDS - 1, "field"),
    "TARGET": ("other", 0, MAX_SLOTS - 1, "slot"),
    "FROM": ("other", 0, MAX_SLOTS - 1, "slot"),
}
"""By word of the usage: member of Operation, smallest, largest, and what it is called."""


def _parse_line(words: list[str]) -> Operation:
    if words[0] == "thread":
        _expect(len(words) > 2, "expected `thread N` and an operation, as in `thread 1 free 0`")
        _expect(
            words[2] in THREAD_OPERATIONS, f"`thread N` goes before {', '.join(THREAD_OPERATIONS)}, got {words[2]!r}"
        )
        return replace(_parse_line(words[2:]), thread=_number(words[1], 1, MAX_THREADS, "thread"))
    kind, arguments = words[0], words[1:]
    names = {"case": "", "reopen": "", "join": "", **SLOT_OPERATIONS}
    if kind not in names:
        raise ValueError(f"unknown operation {kind!r}, expected one of {', '.join(names)}, thread")
    usage = f"{kind} {names[kind]}".strip()
    _expect(len(arguments) == len(names[kind].split()), f"expected `{usage}`")
    members: dict[str, int] = {}
    for name, argument in zip(names[kind].split(), arguments, strict=True):
        member, smallest, largest, what = _ARGUMENTS[name]
        members[member] = _number(argument, smallest, largest, what)
    return Operation(kind, **members)


class _Slots:
    """What the file says of the slots so far, as if every allocate succeeded: which are live, and which thread each belongs to
    until the next join. What two threads do to one slot has no order unless a join lies between. In the graph layout, what slots
    and fields hold too."""

    def __init__(self, is_graph: bool) -> None:
        self.live: set[int] = set()
        self.owners: dict[int, int] = {}
        self.links = Links() if is_graph else None

    def check(self, operation: Operation) -> None:
        """Checks the operation against the slots and updates them."""
        slot = operation.slot
        if operation.kind not in SLOT_OPERATIONS:
            self.owners.clear()
            if operation.kind == "case":
                self.live.clear()
                if self.links is not None:
                    self.links.clear()
            return
        if self.links is not None:
            _expect(operation.thread == 0, "with `slots COUNT graph` every operation is the main thread's")
        else:
            _expect(operation.kind not in GRAPH_OPERATIONS, f"{operation.kind} needs `slots COUNT graph`")
        owner = self.owners.setdefault(slot, operation.thread)
        other = f"thread {owner}" if owner else "the main thread"
        _expect(
            owner == operation.thread,
            f"slot {slot} was used by {other} since the last join: put a `join` between them",
        )
        if operation.kind in ("allocate", "load"):
            remedy = "free it" if self.links is None else "free or drop it"
            _expect(slot not in self.live, f"slot {slot} is live, {operation.kind} needs an empty one: {remedy} first")
        else:
            self._expect_live(slot, operation.kind)
        if operation.kind in ("link", "load"):
            self._expect_live(operation.other, operation.kind)
        if self.links is not None:
            follow_links(self.links, operation)
        if operation.kind in ("free", "drop"):
            self.live.remove(slot)
        else:
            self.live.add(slot)

    def _expect_live(self, slot: int, kind: str) -> None:
        _expect(slot in self.live, f"slot {slot} is empty, {kind} needs a live one: allocate it first")


def well_formed(operations: Sequence[Operation], layout: str) -> tuple[Operation, ...]:
    """The operations of a case but for those that do not find the slots, fields and threads as they need them."""
    state = _Slots(is_graph=layout == "graph")
    kept = []
    for operation in operations:
        with contextlib.suppress(ValueError):
            state.check(operation)
            kept.append(operation)
    return tuple(kept)


def follow_links(links: Links, operation: Operation) -> None:
    """Runs the operation, whose slots are as it needs them; ValueError with one line when its object or field is not."""
    slot, other, field = operation.slot, operation.other, operation.field
    match operation.kind:
        case "allocate":
            links.allocate(slot, operation.size_bytes)
        case "free" | "reallocate":
            holder = links.holder(slot)
            _expect(holder is None, f"the object in slot {slot} {holder}")
            if operation.kind == "free":
                links.free(slot)
            else:
                links.reallocate(slot, operation.size_bytes)
        case "link":
            links.link(slot, field, other)
        case "unlink":
            links.unlink(slot, field)
        case "drop":
            links.drop(slot)
        case "load":
            _expect(
                links.slots[other].fields[field] is not None,
                f"field {field} of the object in slot {other} is null, load needs one that is set: link it first",
            )
            links.load(slot, other, field)


def _number(word: str, smallest: int, largest: int, what: str) -> int:
    value = int(word) if word.isascii() and word.isdigit() else -1
    _expect(smallest <= value <= largest, f"{what} {word!r}: expected a number from {smallest} to {largest}")
    return value


def _expect(holds: bool, message: str) -> None:
    if not holds:
        raise ValueError(message)


# ---- by name -------------------------------------------------------------------------------------------------------------

GENERATORS = {
    "smoke": "a dozen fixed operations of every kind, with a reopen",
    "churn": "--ops operations of --seed: allocate, free, reallocate over a size mix, bounded live set",
    "chain": "churn over the nodes of one linked list",
    "names": "churn over named allocations",
    "sizes": "both sides of every size-class boundary, and one object through all size classes",
    "reopen": "churn with several close/open cycles",
    "fill": "to out-of-memory and back, then again; long: every byte of the heap is stored",
    "threads": "--ops operations of --seed by two threads, each other's objects too, under a seeded schedule",
    "graph": "--ops operations of --seed on objects that point to each other: cycles, drops, loads, several lives",
    "resur": "--ops operations of --seed: lists that grow in front, objects freed at once, some lists dropped (Makalu's resur)",
    "big": "--ops operations of --seed on large objects, from a 128th to an eighth of the heap",
    "defrag": "full, half of it freed object by object, full again with objects of twice the size, and so on",
    "defrag:N": "the same with objects of an Nth of the heap at first, not a 128th: fewer of them",
    "ace:N": "every sequence of up to N operations over the allocator's boundary sizes, each on a heap of its own",
    "ace:N:K": "the same over K of the sizes: ace:3:2 is what CI has time for",
    "uniform:A:B": "--ops operations of --seed: half allocate A to B bytes, uniformly, half free a random object (nvmalloc's)",
    "FILE": "a workload file of your own",
}
TAKES_OPS = frozenset({"churn", "chain", "names", "reopen", "threads", "graph", "resur", "big"})
"""Workloads that --ops counts the operations of; uniform:A:B is one, too."""


def takes_ops(name: str) -> bool:
    return name in TAKES_OPS or name.startswith("uniform:")


def find(name: str, ops: int, seed: int, heap: Heap, cache: Cache) -> Workload:
    """The workload called name: a generator, a stored file (file:KEY, as tokens say it), or a path. seed: of the generator, and
    of the schedule of its threads."""
    workload = _find(name, ops, seed, heap, cache)
    return replace(workload, schedule_seed=seed or 1) if workload.is_threaded else workload


def _find(name: str, ops: int, seed: int, heap: Heap, cache: Cache) -> Workload:
    if takes_ops(name):
        _limit(2 + 2 * (REOPENS + 1) + ops, f"{name} --ops {ops}")
    generators: dict[str, Callable[[], Workload]] = {
        "smoke": smoke,
        "churn": lambda: churn(ops, seed),
        "chain": lambda: over_layout("chain", ops, seed),
        "names": lambda: over_layout("names", ops, seed),
        "sizes": lambda: sizes(heap.boundary_sizes),
        "reopen": lambda: reopen(ops, seed),
        "fill": lambda: fill(heap.limit_bytes),
        "threads": lambda: threads(ops, seed),
        "graph": lambda: graph(ops, seed),
        "resur": lambda: resur(ops, seed, heap.limit_bytes),
        "big": lambda: big(ops, seed, heap.limit_bytes),
        "defrag": lambda: defrag(heap.limit_bytes),
    }
    if name in generators:
        return generators[name]()
    if name.startswith("ace:"):
        return _find_ace(name, heap)
    if name.startswith("defrag:"):
        return _find_defrag(name, heap)
    if name.startswith("uniform:"):
        return _find_uniform(name, ops, seed)
    if name.startswith("file:"):
        return _stored_file(name.removeprefix("file:"), cache)
    return _user_file(Path(name), cache)


def _find_ace(name: str, heap: Heap) -> Workload:
    all_sizes = heap.boundary_sizes
    words = name.removeprefix("ace:").split(":")
    numbers = [int(word) if word in map(str, range(10)) else 0 for word in words]
    depth, count = numbers[0], numbers[1] if len(numbers) > 1 else len(all_sizes)
    if len(numbers) > 2 or not (1 <= depth <= MAX_ACE_OPERATIONS and 1 <= count <= len(all_sizes)):
        raise BadInputError(
            f"workload {name!r}: expected ace:1 to ace:{MAX_ACE_OPERATIONS}, or ace:N:K with K from 1 to {len(all_sizes)} "
            "of the allocator's boundary sizes"
        )
    _limit(ace_case_count(depth, count) * (2 + depth), name)
    return replace(ace(depth, spread(all_sizes, count)), name=name)


def _find_defrag(name: str, heap: Heap) -> Workload:
    word = name.removeprefix("defrag:")
    share = int(word) if word.isascii() and word.isdigit() and len(word) <= len(str(MAX_DEFRAG_SHARE)) else 0
    if not MIN_DEFRAG_SHARE <= share <= MAX_DEFRAG_SHARE:
        raise BadInputError(f"workload {name!r}: expected defrag:{MIN_DEFRAG_SHARE} to defrag:{MAX_DEFRAG_SHARE}")
    return replace(defrag(heap.limit_bytes, share), name=name)


def _find_uniform(name: str, ops: int, seed: int) -> Workload:
    words = name.removeprefix("uniform:").split(":")
    sizes = [
        int(word) if word.isascii() and word.isdigit() and len(word) <= len(str(MAX_BYTES)) else 0 for word in words
    ]
    if len(sizes) != 2 or not 1 <= sizes[0] <= sizes[1] <= MAX_BYTES:
        raise BadInputError(
            f"workload {name!r}: expected uniform:SMALLEST:LARGEST in bytes, the smallest at least 1, as in uniform:10:4096"
        )
    return uniform(ops, seed, *sizes)


def _limit(operations: int, name: str) -> None:
    if operations > MAX_OPERATIONS:
        raise BadInputError(f"workload {name}: up to {operations} operations, expected at most {MAX_OPERATIONS}")


def _stored_file(key: str, cache: Cache) -> Workload:
    path = cache.folder / "workloads" / key
    if not key.isalnum() or not path.is_file():
        raise BadInputError(
            f"workload file:{key}: not in the cache {cache.folder}",
            "run the workload file once here (faultline run ... --workload FILE), or name its cache with --cache",
        )
    return parse(path.read_text(encoding="utf-8"), str(path))


def _user_file(path: Path, cache: Cache) -> Workload:
    """Below the current folder, or below the clone: allocators and matrices name files so, wherever they are run."""
    if not path.exists() and (project_root() / path).exists():
        path = project_root() / path
    if not path.exists():
        raise BadInputError(
            f"unknown workload {str(path)!r}: no generator of this name and no such file",
            f"workloads are: {', '.join(GENERATORS)}",
        )
    try:
        text = path.read_bytes().decode("utf-8")
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise BadInputError(
            f"{path}: is not UTF-8 text (byte {error.start})", "a workload file is plain text"
        ) from error
    workload = parse(text, str(path))
    store(workload, cache)
    return workload


def store(workload: Workload, cache: Cache) -> Path:
    """The workload as a file that the runner reads; its name in the cache is the workload's key."""
    return cache.text_entry("workloads", workload.key, workload.text())
