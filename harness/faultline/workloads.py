# SPDX-License-Identifier: Apache-2.0
"""Workloads: what an allocator is made to do while it is traced. A workload is a text file (FORMAT) that the runner executes.

A session is a part between two reopens; each is one process. An operation's index counts create, every operation and close over the
whole file (reopen counts as close and open), so that it is a fact of the file alone; an object's id is the index of its allocation
plus one. Which thread runs an operation, and when, changes no index.

Generators are functions of their arguments only. random.Random(seed).random() is the one source of chance: of that class, only it
is promised to stay the same from one Python version to the next.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

from faultline.cache import Cache, key_of
from faultline.config import Heap
from faultline.errors import BadInputError

FORMAT = """
workload 1                # version; first line that is no comment
slots 64                  # workload slots, 1 to 65536; `slots 64 names` or `slots 64 chain` for another layout
case                      # a new heap: create ... close; every workload starts with one
allocate SLOT BYTES       # needs an empty slot
free SLOT                 # needs a live slot
reallocate SLOT BYTES     # needs a live slot; BYTES: the new size
reopen                    # close, a fresh process, open (recovery)
thread N allocate 0 64    # an operation (allocate, free, reallocate) run by worker N, 1 to 63; without `thread`: by the main thread
join                      # what stands before it has returned before anything after it begins; case and reopen join too

`#` starts a comment, blank lines are ignored. A slot is live as if every allocate succeeded; an operation that runs out of memory
has no effect, and what follows on its slot is skipped.

Layouts: root (the default) keeps slots where the allocator's roots are; names makes each slot a named allocation, found again by
its name; chain makes the objects the nodes of one linked list. Between two joins the threads run concurrently, each its operations
in the order of the file, and a slot belongs to one thread. --seed picks the schedule. More in docs/workloads.md.
"""

MAX_SLOTS = 65536
MAX_OPERATIONS = (1 << 24) - 2
"""Object ids are 24 bits wide in the pattern (heap_report.h), 0 is none."""
MAX_ACE_OPERATIONS = 6
"""ace:6 with four sizes has 1.6 million cases; more is a slip of the finger."""
MAX_BYTES = 1 << 46
MAX_THREADS = 63
"""Workers; threads have 16 bits in a trace, but no allocator is tried with more."""
LAYOUTS = ("root", "names", "chain")
"""Slot layouts, as adapter.h has them; root is the default."""
LAYOUT_USAGE = "slots COUNT [names | chain]"


@dataclass(frozen=True)
class Operation:
    """One line of a workload file. kind: case, allocate, free, reallocate, reopen or join. thread: 0 is the main thread."""

    kind: str
    slot: int = 0
    size_bytes: int = 0
    thread: int = 0

    def line(self) -> str:
        worker = f"thread {self.thread} " if self.thread else ""
        match self.kind:
            case "allocate" | "reallocate":
                return f"{worker}{self.kind} {self.slot} {self.size_bytes}"
            case "free":
                return f"{worker}free {self.slot}"
            case _:
                return self.kind


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


def ace(depth: int, sizes: list[int]) -> Workload:
    """Every sequence of 1 to depth operations, each as its own case: allocate each size into the lowest empty slot, free each live
    slot, reallocate each live slot to each other size. (The name is CrashMonkey's: bounded, automatic, exhaustive.)"""
    operations: list[Operation] = []
    for sequence in _ace_sequences(depth, sizes, {}):
        operations += [Operation("case"), *sequence]
    return Workload(f"ace:{depth}", depth, tuple(operations))


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
    state = _Slots()
    operations: list[Operation] = []
    is_versioned = False
    for number, raw in enumerate(text.splitlines(), 1):
        words = raw.partition("#")[0].split()
        if not words:
            continue
        try:
            if not is_versioned:
                _expect(words == ["workload", "1"], "expected `workload 1` as the first line")
                is_versioned = True
            elif slots is None:
                slots, layout = _parse_slots(words)
            else:
                operation = _parse_line(words)
                _expect(bool(operations) or operation.kind == "case", "expected `case`: every workload starts with one")
                _expect(operation.slot < slots, f"slot {operation.slot} is not below `slots {slots}`")
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


def _parse_slots(words: list[str]) -> tuple[int, str]:
    _expect(words[0] == "slots" and 2 <= len(words) <= 3, f"expected `{LAYOUT_USAGE}` after `workload 1`")
    layout = words[2] if len(words) == 3 else "root"
    _expect(layout in LAYOUTS, f"slot layout {layout!r}: expected one of {', '.join(LAYOUTS)}")
    return _number(words[1], 1, MAX_SLOTS, "slot count"), layout


SLOT_OPERATIONS = {"allocate": "SLOT BYTES", "free": "SLOT", "reallocate": "SLOT BYTES"}
"""Operations on a slot, which threads may run, and their arguments."""


def _parse_line(words: list[str]) -> Operation:
    if words[0] == "thread":
        _expect(len(words) > 2, "expected `thread N` and an operation, as in `thread 1 free 0`")
        _expect(words[2] in SLOT_OPERATIONS, f"`thread N` goes before {', '.join(SLOT_OPERATIONS)}, got {words[2]!r}")
        return replace(_parse_line(words[2:]), thread=_number(words[1], 1, MAX_THREADS, "thread"))
    kind, arguments = words[0], words[1:]
    names = {"case": "", "reopen": "", "join": "", **SLOT_OPERATIONS}
    if kind not in names:
        raise ValueError(f"unknown operation {kind!r}, expected one of {', '.join(names)}, thread")
    usage = f"{kind} {names[kind]}".strip()
    _expect(len(arguments) == len(names[kind].split()), f"expected `{usage}`")
    slot = _number(arguments[0], 0, MAX_SLOTS - 1, "slot") if arguments else 0
    size = _number(arguments[1], 1, MAX_BYTES, "bytes") if len(arguments) > 1 else 0
    return Operation(kind, slot, size)


class _Slots:
    """What the file says of the slots so far, as if every allocate succeeded: which are live, and which thread each belongs to
    until the next join. What two threads do to one slot has no order unless a join lies between."""

    def __init__(self) -> None:
        self.live: set[int] = set()
        self.owners: dict[int, int] = {}

    def check(self, operation: Operation) -> None:
        """Checks the operation against the slots and updates them."""
        slot = operation.slot
        if operation.kind not in SLOT_OPERATIONS:
            self.owners.clear()
            if operation.kind == "case":
                self.live.clear()
            return
        owner = self.owners.setdefault(slot, operation.thread)
        other = f"thread {owner}" if owner else "the main thread"
        _expect(
            owner == operation.thread,
            f"slot {slot} was used by {other} since the last join: put a `join` between them",
        )
        if operation.kind == "allocate":
            _expect(slot not in self.live, f"slot {slot} is live, allocate needs an empty one: free it first")
            self.live.add(slot)
            return
        _expect(slot in self.live, f"slot {slot} is empty, {operation.kind} needs a live one: allocate it first")
        if operation.kind == "free":
            self.live.remove(slot)


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
    "ace:N": "every sequence of up to N operations over the allocator's boundary sizes, each on a heap of its own",
    "FILE": "a workload file of your own",
}


def find(name: str, ops: int, seed: int, heap: Heap, cache: Cache) -> Workload:
    """The workload called name: a generator, a stored file (file:KEY, as tokens say it), or a path. seed: of the generator, and
    of the schedule of its threads."""
    workload = _find(name, ops, seed, heap, cache)
    return replace(workload, schedule_seed=seed or 1) if workload.is_threaded else workload


def _find(name: str, ops: int, seed: int, heap: Heap, cache: Cache) -> Workload:
    if name == "smoke":
        return smoke()
    if name == "churn":
        _limit(2 + ops, f"churn --ops {ops}")
        return churn(ops, seed)
    if name.startswith("ace:"):
        return _find_ace(name, heap)
    if name.startswith("file:"):
        return _stored_file(name.removeprefix("file:"), cache)
    return _user_file(Path(name), cache)


def _find_ace(name: str, heap: Heap) -> Workload:
    depth = name.removeprefix("ace:")
    if not (depth.isascii() and depth.isdigit() and 1 <= int(depth) <= MAX_ACE_OPERATIONS):
        raise BadInputError(f"workload {name!r}: expected ace:1 to ace:{MAX_ACE_OPERATIONS}")
    _limit(ace_case_count(int(depth), len(heap.boundary_sizes)) * (2 + int(depth)), name)
    return ace(int(depth), heap.boundary_sizes)


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
