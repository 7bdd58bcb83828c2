# SPDX-License-Identifier: Apache-2.0
"""The persistency model of docs/model.md by brute force: slow, and as close to the words of the rules as it gets.

A *unit* is what one store leaves in one aligned 8-byte piece (R3). A line has a sequence of ordered stores, each a set of
units, and a set of floating units (non-temporal stores, write()). A *choice* of a line is the set of its units that are
persisted; what may be chosen is written down as sets in `ordered_choices` and `floating_choices`. A crash state is one choice
for each line of each file that has a name.

`ignore` names a rule to get wrong on purpose, so that a test can show that it would notice.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from math import prod

from reference.trace_writer import (
    Event,
    Fence,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Marker,
    Operation,
    Remap,
    Store,
    StoreKind,
    thread_of,
)

LINE_BYTES = 64
UNIT_BYTES = 8
IMAGE_LIMIT = 65536

KERNEL = 0
"""The issuer of units that write() leaves: no thread's fence guarantees them."""

Choice = frozenset["Unit"]


@dataclass(frozen=True)
class Unit:
    """What store number `store` (its place in memory order) leaves in one aligned 8-byte piece of a file."""

    store: int
    thread: int
    data: tuple[tuple[int, int], ...]
    """(offset in the file, byte)"""

    @property
    def piece(self) -> int:
        return self.data[0][0] // UNIT_BYTES

    @property
    def line(self) -> int:
        return self.data[0][0] // LINE_BYTES

    def without(self, begin: int, end: int) -> Unit:
        return replace(self, data=tuple((at, byte) for at, byte in self.data if not begin <= at < end))


@dataclass
class Line:
    """`stores`: the ordered stores in memory order; `floating`: units that persist each on its own; `guaranteed`: the numbers
    of the stores, and for floating units the units' (store, piece), that are known to be persisted."""

    stores: list[Choice] = field(default_factory=list)
    floating: list[Unit] = field(default_factory=list)
    guaranteed_stores: set[int] = field(default_factory=set)
    guaranteed_floating: set[tuple[int, int]] = field(default_factory=set)


@dataclass
class File:
    size: int = 0
    lines: dict[int, Line] = field(default_factory=dict)

    def line(self, number: int) -> Line:
        return self.lines.setdefault(number, Line())


@dataclass(frozen=True)
class Pending:
    """A flush or a sync on its way: the ordered stores of a line that it covers."""

    thread: int
    file: int
    line: int
    stores: frozenset[int]
    floating: frozenset[tuple[int, int]] = frozenset()


@dataclass(frozen=True)
class Position:
    position: int
    count: int
    born: int | None
    """None: the engine does not say."""
    images: list[str] | None
    is_bounded: bool = False
    """Others ran while a file operation that had its effect was on its way: states in which the effect came earlier are missing."""


def number_of(store: Choice) -> int:
    return next(iter(store)).store


def subsets(units: Iterable[Unit]) -> list[Choice]:
    pool = list(units)
    return [frozenset(some) for size in range(len(pool) + 1) for some in itertools.combinations(pool, size)]


class Px86:
    def __init__(self, ignore: str | None = None) -> None:
        self.ignore = ignore
        self.files: dict[int, File] = {}
        self.names: dict[str, int] = {}
        self.stores = 0
        self.clflushes: list[Pending] = []
        self.clwbs: list[Pending] = []
        self.syncs: dict[FileBegin, list[Pending]] = {}
        self.on_their_way: dict[FileBegin, bool] = {}
        """File operations, and whether another thread did something meanwhile."""
        self.is_bounded = False
        self.by_first_name: dict[str, File] = {}

    # Events.

    def step(self, event: Event) -> int:
        """Takes the event; gives the number of states born at the position after it."""
        self.watch_file_operations(event)
        match event:
            case Store():
                return self.store(event)
            case Flush():
                self.flush(event)
            case Fence():
                self.clflushes_take_effect()
                self.fence(event.thread)
            case FileBegin():
                self.sync_begins(event)
            case FileEnd(begin, 0):
                return self.file_operation_ends(begin)
            case Marker() if self.ignore == "R4-return":
                self.clflushes_take_effect()
        return 0

    def watch_file_operations(self, event: Event) -> None:
        for begin in self.on_their_way:
            self.on_their_way[begin] |= begin.thread != thread_of(event)
        if isinstance(event, FileBegin):
            self.on_their_way[event] = False
        elif isinstance(event, FileEnd):
            self.is_bounded |= self.on_their_way.pop(event.begin) and not event.errno

    def store(self, event: Store) -> int:
        self.clflushes_take_effect()
        if event.kind is StoreKind.RMW and self.ignore != "R6":
            self.fence(event.thread)
        units = self.units_of(event.thread, event.offset, event.data)
        if event.kind is StoreKind.NT and self.ignore != "R8":
            self.float_units(event.file, units)
        else:
            self.order_units(event.file, units)
        return self.count() - self.count(without_store=self.stores)

    def units_of(self, thread: int, offset: int, data: bytes) -> list[Unit]:
        self.stores += 1
        places = list(enumerate(data, offset))
        atom = LINE_BYTES if self.ignore == "R3" else UNIT_BYTES
        pieces = itertools.groupby(places, lambda place: place[0] // atom)
        return [Unit(self.stores, thread, tuple(places)) for _, places in pieces]

    def order_units(self, file: int, units: list[Unit]) -> None:
        for number, part in itertools.groupby(units, lambda unit: unit.line):
            self.files[file].line(number).stores.append(frozenset(part))

    def float_units(self, file: int, units: list[Unit]) -> None:
        for unit in units:
            self.files[file].line(unit.line).floating.append(unit)

    def flush(self, event: Flush) -> None:
        """R4, R5, R7: covers the ordered stores of the line so far, by any thread; no floating unit (R8)."""
        self.clflushes_take_effect()
        number = event.offset // LINE_BYTES
        covered = frozenset(
            number_of(store)
            for store in self.files[event.file].line(number).stores
            if self.ignore != "R7" or next(iter(store)).thread == event.thread
        )
        pending = Pending(event.thread, event.file, number, covered)
        if event.kind is FlushKind.CLFLUSH:
            self.clflushes.append(pending)
        else:
            self.clwbs.append(pending)
            if self.ignore == "R5":
                self.fence(event.thread)

    def clflushes_take_effect(self) -> None:
        """R4: before any later store, flush, fence or locked RMW of any thread."""
        if self.ignore != "R4":
            self.persist(self.clflushes)
            self.clflushes = []

    def fence(self, thread: int) -> None:
        """R5, R8: completes the thread's flushes, and guarantees the thread's non-temporal units."""
        self.persist([pending for pending in self.clwbs if pending.thread == thread])
        self.clwbs = [pending for pending in self.clwbs if pending.thread != thread]
        for file in self.files.values():
            for line in file.lines.values():
                line.guaranteed_floating |= {
                    (unit.store, unit.piece) for unit in line.floating if unit.thread == thread
                }

    def persist(self, pendings: Iterable[Pending]) -> None:
        for pending in pendings:
            line = self.files[pending.file].line(pending.line)
            line.guaranteed_stores |= pending.stores
            line.guaranteed_floating |= pending.floating

    # File operations (R9): whole at FILE_END, no effect before it, which is a bound when others run meanwhile; what a sync
    # guarantees is what there was at FILE_BEGIN.

    def sync_begins(self, begin: FileBegin) -> None:
        if begin.operation not in (Operation.MSYNC, Operation.FSYNC):
            return
        file = self.files[begin.file]
        first, last = 0, max(file.lines, default=0)
        if begin.operation is Operation.MSYNC:
            first, last = begin.offset // LINE_BYTES, (begin.offset + begin.size - 1) // LINE_BYTES
        self.syncs[begin] = [
            Pending(
                begin.thread,
                begin.file,
                number,
                frozenset(number_of(store) for store in line.stores),
                frozenset((unit.store, unit.piece) for unit in line.floating if unit.thread == KERNEL),
            )
            for number, line in file.lines.items()
            if first <= number <= last
        ]

    def file_operation_ends(self, begin: FileBegin) -> int:
        if begin.operation in (Operation.MSYNC, Operation.FSYNC):
            if self.ignore == "R9-begin":
                self.sync_begins(begin)
            self.persist(self.syncs.pop(begin))
            return 0
        if self.change_files(begin):
            return self.count()
        return 0

    def change_files(self, begin: FileBegin) -> bool:
        match begin.operation:
            case Operation.CREATE:
                self.files[begin.file] = self.new_file(begin.path)
                self.names[begin.path] = begin.file
            case Operation.TRUNCATE:
                self.take_away(begin.file, begin.offset, self.files[begin.file].size)
                self.files[begin.file].size = begin.offset
            case Operation.ALLOCATE:
                self.grow(begin.file, begin.offset + begin.size)
            case Operation.PUNCH:
                self.take_away(begin.file, begin.offset, begin.offset + begin.size)
            case Operation.UNLINK:
                self.names = {path: file for path, file in self.names.items() if file != begin.file}
            case Operation.RENAME:
                self.names = {path: file for path, file in self.names.items() if file != begin.file}
                self.names[begin.path] = begin.file
            case Operation.WRITE:
                self.grow(begin.file, begin.offset + len(begin.data))
                self.float_units(begin.file, self.units_of(KERNEL, begin.offset, begin.data))
        return begin.file in self.names.values() or begin.operation is Operation.UNLINK

    def new_file(self, path: str) -> File:
        """R10: another file than the one that had the name before."""
        file = File()
        if self.ignore == "R10":
            file.lines = self.by_first_name.setdefault(path, file).lines
        return file

    def grow(self, file: int, size: int) -> None:
        self.files[file].size = max(self.files[file].size, size)

    def take_away(self, file: int, begin: int, end: int) -> None:
        """The bytes become zero, and nothing stored there before can come back."""
        if self.ignore == "R9":
            return
        for line in self.files[file].lines.values():
            cut = [
                frozenset(rest for unit in store if (rest := unit.without(begin, end)).data) for store in line.stores
            ]
            line.stores = [store for store in cut if store]
            line.floating = [rest for unit in line.floating if (rest := unit.without(begin, end)).data]

    # States.

    def ordered_choices(self, line: Line) -> list[Choice]:
        """R1, R3: a prefix of the stores not below the floor, then perhaps some units of the next store but not all."""
        stores = line.stores
        floor = max(
            (place for place, store in enumerate(stores, 1) if number_of(store) in line.guaranteed_stores), default=0
        )
        if self.ignore == "R1":
            stores = stores[:floor] + list(reversed(stores[floor:]))
        choices: set[Choice] = set()
        for cut in range(floor, len(stores) + 1):
            prefix: Choice = frozenset().union(*stores[:cut])
            following: Choice = stores[cut] if cut < len(stores) else frozenset()
            choices.update(prefix | some for some in subsets(following))
        return list(choices)

    def free(self, line: Line) -> list[Unit]:
        return [unit for unit in line.floating if (unit.store, unit.piece) not in line.guaranteed_floating]

    def floating_choices(self, line: Line) -> list[Choice]:
        """R8: what is guaranteed, and any subset of the rest."""
        free = self.free(line)
        sure: Choice = frozenset(line.floating) - frozenset(free)
        return [sure | some for some in subsets(free)]

    def named_files(self) -> list[tuple[str, File]]:
        return [(path, self.files[file]) for path, file in sorted(self.names.items())]

    def count(self, without_store: int | None = None) -> int:
        """States, or only those that hold no unit of one store."""

        def counts(units: Iterable[Unit]) -> bool:
            return all(unit.store != without_store for unit in units)

        return prod(
            sum(map(counts, self.ordered_choices(line))) * 2 ** sum(counts([unit]) for unit in self.free(line))
            for _, file in self.named_files()
            for line in file.lines.values()
        )

    def images(self) -> list[str] | None:
        if self.count() > IMAGE_LIMIT:
            return None
        parts: list[list[str]] = []
        for path, file in self.named_files():
            parts.append([f"{path}:{file.size}:"])
            parts += [self.line_texts(file, number) for number in sorted(file.lines)]
            parts.append([";"])
        return sorted(map("".join, itertools.product(*parts)))

    def line_texts(self, file: File, number: int) -> list[str]:
        """The distinct contents of one line: where two units hit the same byte, the later in memory order wins."""
        line = file.lines[number]
        start = number * LINE_BYTES
        width = max(0, min(LINE_BYTES, file.size - start))
        texts = set()
        for ordered, floating in itertools.product(self.ordered_choices(line), self.floating_choices(line)):
            content = bytearray(LINE_BYTES)
            for unit in sorted(ordered | floating, key=lambda unit: unit.store):
                for at, byte in unit.data:
                    content[at - start] = byte
            content = content[:width]
            texts.add(f"{number}={content.hex()}," if any(content) else "")
        return list(texts)


def states(events: Sequence[Event], ignore: str | None = None, with_images: bool = True) -> list[Position]:
    """What `faultline-engine states` gives of the same events: one entry after each."""
    model = Px86(ignore)
    positions: list[Position] = []
    for number, event in enumerate((event for event in events if not isinstance(event, Remap)), 1):
        born = model.step(event)
        images = model.images() if with_images else None
        positions.append(Position(number, model.count(), born, images, model.is_bounded))
    return positions
