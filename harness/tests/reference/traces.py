# SPDX-License-Identifier: Apache-2.0
"""Random small traces for Hypothesis: few lines and many ways to touch them, so that the rules meet each other."""

from __future__ import annotations

from dataclasses import dataclass, field

from hypothesis import strategies as st

from reference.px86 import IMAGE_LIMIT, LINE_BYTES, Px86
from reference.trace_writer import (
    Event,
    Fence,
    FenceKind,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Operation,
    Store,
    StoreKind,
)

MOST_STEPS = 24
MOST_THREADS = 3
MOST_STORE_BYTES = 40
FILE_BYTES = (LINE_BYTES + 1, 3 * LINE_BYTES)
MOST_IMAGES = 60_000
"""A trace ends when its positions hold that many images together: both sides write each of them out."""
ENOSPC = 28

STEPS = ["store"] * 13 + ["flush"] * 5 + ["fence"] * 3 + ["change"] * 2 + ["sync", "create"]


@dataclass
class Draft:
    """The events so far, and what is needed to draw the next: sizes and names of the files."""

    draw: st.DrawFn
    threads: int
    events: list[Event] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    model: Px86 = field(default_factory=Px86)
    images: int = 0

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def thread(self) -> int:
        return self.integer(1, self.threads)

    def file(self) -> int | None:
        """A file that has bytes, with a name or not."""
        files = [file for file, size in self.sizes.items() if size]
        return self.draw(st.sampled_from(files)) if files else None

    def add(self, event: Event) -> None:
        self.events.append(event)
        self.model.step(event)
        count = self.model.count()
        self.images += count if count <= IMAGE_LIMIT else 0

    def operate(self, begin: FileBegin) -> bool:
        """True unless the operation was drawn to fail."""
        errno = ENOSPC if self.integer(0, 9) == 9 else 0
        self.add(begin)
        self.add(FileEnd(begin, errno))
        return not errno

    def create(self, size: int) -> None:
        file = len(self.sizes) + 1
        self.sizes[file], self.paths[file] = size, f"f{file}"
        for begin in (
            FileBegin(1, Operation.CREATE, file, path=f"f{file}"),
            FileBegin(1, Operation.TRUNCATE, file, offset=size),
        ):
            self.add(begin)
            self.add(FileEnd(begin))

    def data(self, size: int) -> bytes:
        """Few values, so that some stores change nothing."""
        first = self.integer(0, 3)
        return bytes(16 * first + at % 7 for at in range(size))

    def store(self, file: int) -> None:
        kind = self.draw(st.sampled_from([StoreKind.PLAIN] * 3 + [StoreKind.REP, StoreKind.NT, StoreKind.RMW]))
        most = {StoreKind.NT: 24, StoreKind.RMW: 16}.get(kind, MOST_STORE_BYTES)
        size = self.integer(1, min(most, self.sizes[file]))
        self.add(Store(self.thread(), file, self.integer(0, self.sizes[file] - size), self.data(size), kind))

    def flush(self, file: int) -> None:
        offset = self.integer(0, self.sizes[file] - 1)
        self.add(Flush(self.thread(), file, offset, self.draw(st.sampled_from(FlushKind))))

    def range_of(self, file: int) -> tuple[int, int]:
        offset = self.integer(0, self.sizes[file] - 1)
        return offset, self.integer(1, self.sizes[file] - offset)

    def sync(self, file: int) -> None:
        if self.draw(st.booleans()):
            self.operate(FileBegin(self.thread(), Operation.FSYNC, file))
        else:
            offset, size = self.range_of(file)
            self.operate(FileBegin(self.thread(), Operation.MSYNC, file, offset, size))

    def change(self, file: int) -> None:
        """Only of a file that has a name: test_a_file_without_a_name_bears_no_states has the others."""
        changes = [self.truncate, self.punch, self.punch, self.write, self.write, self.allocate]
        changes += [self.rename, self.unlink]
        self.draw(st.sampled_from(changes))(file)

    def truncate(self, file: int) -> None:
        size = self.integer(0, FILE_BYTES[1])
        if self.operate(FileBegin(self.thread(), Operation.TRUNCATE, file, offset=size)):
            self.sizes[file] = size

    def punch(self, file: int) -> None:
        offset, size = self.range_of(file)
        self.operate(FileBegin(self.thread(), Operation.PUNCH, file, offset, size))

    def write(self, file: int) -> None:
        data = self.data(self.integer(1, 16))
        offset = self.integer(0, self.sizes[file])
        if self.operate(FileBegin(self.thread(), Operation.WRITE, file, offset, data=data)):
            self.sizes[file] = max(self.sizes[file], offset + len(data))

    def allocate(self, file: int) -> None:
        offset, size = self.integer(0, self.sizes[file]), self.integer(1, LINE_BYTES)
        if self.operate(FileBegin(self.thread(), Operation.ALLOCATE, file, offset, size)):
            self.sizes[file] = max(self.sizes[file], offset + size)

    def unlink(self, file: int) -> None:
        if self.operate(FileBegin(self.thread(), Operation.UNLINK, file)):
            del self.paths[file]

    def rename(self, file: int) -> None:
        """To a new name, or over another file."""
        others = [path for other, path in self.paths.items() if other != file]
        path = self.draw(st.sampled_from([*others, f"g{len(self.events)}"]))
        if self.operate(FileBegin(self.thread(), Operation.RENAME, file, path=path)):
            self.paths = {other: name for other, name in self.paths.items() if name != path}
            self.paths[file] = path


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    draft = Draft(draw, threads=draw(st.integers(1, MOST_THREADS)))
    draft.create(draft.integer(*FILE_BYTES))
    for _ in range(draft.integer(MOST_STEPS // 2, MOST_STEPS)):
        if draft.images > MOST_IMAGES:
            break
        step = draw(st.sampled_from(STEPS))
        file = draft.file()
        if step == "fence":
            draft.add(Fence(draft.thread(), draw(st.sampled_from(FenceKind))))
        elif file is None or step == "create" or (step == "change" and file not in draft.paths):
            draft.create(draft.integer(*FILE_BYTES))
        else:
            {"store": draft.store, "flush": draft.flush, "change": draft.change, "sync": draft.sync}[step](file)
    return draft.events
