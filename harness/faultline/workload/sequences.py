# SPDX-License-Identifier: Apache-2.0
"""Every sequence of a few operations. (The name is CrashMonkey's: bounded, automatic, exhaustive.)"""

from __future__ import annotations

from collections.abc import Iterator

from faultline.workload.operations import Operation, Workload

MAX_ACE_OPERATIONS = 6
"""ace:6 with four sizes has 1.6 million cases; more is a slip of the finger."""


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
