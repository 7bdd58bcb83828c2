# SPDX-License-Identifier: Apache-2.0
"""Generators of workloads. Each is a function of its arguments only. random.Random(seed).random() is the one source of chance: of
that class, only it is promised to stay the same from one Python version to the next.
"""

from __future__ import annotations

import random
from dataclasses import replace
from itertools import pairwise

from faultline.workload.file_format import parse_line
from faultline.workload.operations import Operation, Workload


def create() -> Workload:
    """A heap, and nothing in it."""
    return Workload("create", 1, (Operation("case"),))


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
    operations = (parse_line(line.split()) for line in lines.split("\n") if line.strip())
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
            slot = empty.pop(below(chance, len(empty)))
            live.append(slot)
            operations.append(Operation("allocate", slot, churn_size(chance)))
        elif choice < CHURN_ALLOCATE_SHARE + CHURN_FREE_SHARE:
            slot = live.pop(below(chance, len(live)))
            empty.append(slot)
            operations.append(Operation("free", slot))
        else:
            slot = live[below(chance, len(live))]
            operations.append(Operation("reallocate", slot, churn_size(chance)))
    return Workload("churn", CHURN_SLOTS, tuple(operations), ops, seed)


def below(chance: random.Random, bound: int) -> int:
    return int(chance.random() * bound)


def churn_size(chance: random.Random) -> int:
    point = chance.random()
    for share, smallest, largest in CHURN_SIZE_MIX:
        if point < share:
            return smallest + below(chance, largest - smallest + 1)
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
        if live and below(chance, allocations + frees) < frees:
            at = below(chance, len(live))
            live[at], live[-1] = live[-1], live[at]
            operations.append(Operation("free", live[-1]))
            empty.append(live.pop())
            frees -= 1
        else:
            if not empty:
                empty.append(slots)
                slots += 1
            live.append(empty.pop())
            operations.append(Operation("allocate", live[-1], smallest + below(chance, largest - smallest + 1)))
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
        thread = 1 + below(chance, THREADS)
        choice = chance.random()
        mine = [slot for slot in live if owners.get(slot, thread) == thread]
        if not mine or (choice < CHURN_ALLOCATE_SHARE and len(live) < THREADS_LIVE_OBJECTS):
            free_to_use = [slot for slot in empty if owners.get(slot, thread) == thread]
            slot = free_to_use[below(chance, len(free_to_use))]
            empty.remove(slot)
            live.append(slot)
            operation = Operation("allocate", slot, churn_size(chance), thread)
        elif choice < CHURN_ALLOCATE_SHARE + CHURN_FREE_SHARE:
            slot = mine[below(chance, len(mine))]
            live.remove(slot)
            empty.append(slot)
            operation = Operation("free", slot, thread=thread)
        else:
            slot = mine[below(chance, len(mine))]
            operation = Operation("reallocate", slot, churn_size(chance), thread)
        owners[operation.slot] = thread
        operations.append(operation)
    return Workload("threads", THREADS_SLOTS, tuple(operations), ops, seed)


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


SPLIT_HEAP_SHARE = 2


def split(piece: int, most: int) -> Workload:
    """Large objects of every number of pieces from two up to `most` bytes. Each is allocated and freed; its room is asked for by an
    object of one piece and one of all the others, so that the allocator splits what was free; they are freed in the other order,
    so that it joins them again. piece: the largest boundary size, in bytes."""
    operations = [Operation("case")]
    for count in range(2, max(2, most // piece) + 1):
        operations += [Operation("allocate", 0, count * piece), Operation("free", 0)]
        operations += [Operation("allocate", 1, piece), Operation("allocate", 2, (count - 1) * piece)]
        operations += [Operation("free", 2), Operation("free", 1)]
    return Workload("split", 3, tuple(operations))


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
        smallest = (limit_bytes // BIG_SMALLEST_SHARE) << below(chance, doublings)
        size = max(1, smallest + below(chance, smallest + 1))
        slot = below(chance, BIG_SLOTS)
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
            slot = sorted(live)[below(chance, len(live))]
            del live[slot]
            operations.append(Operation("free", slot))
    return Workload("big", BIG_SLOTS, (Operation("case"), *operations), ops, seed)
