# SPDX-License-Identifier: Apache-2.0
"""Random small traces for Hypothesis: few lines and many ways to touch them, so that the rules meet each other."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from hypothesis import strategies as st

from reference.px86 import IMAGE_LIMIT, LINE_BYTES, Px86
from reference.trace_writer import (
    PLACES,
    Event,
    Fence,
    FenceKind,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Marker,
    Operation,
    Remap,
    Store,
    StoreKind,
)

MOST_STEPS = 32
FIRST_SESSION = (1, 2, 3)
LATER_SESSION = (4, 5)
MOST_STORE_BYTES = 40
FILE_BYTES = (LINE_BYTES + 1, 3 * LINE_BYTES)
MOST_IMAGES = 60_000
"""A trace ends when its positions hold that many images together: both sides write each of them out."""
ENOSPC = 28
PATHS = ("a", "b", "d/c")
"""Few names, so that names are given again after unlink and rename."""
NAMES_CHANGE = (Operation.CREATE, Operation.UNLINK, Operation.RENAME)

STEPS = ["store"] * 16 + ["flush"] * 5 + ["fence"] * 3 + ["change"] * 4
STEPS += ["sync"] * 3 + ["create", "marker", "remap", "session", "return", "return"]


@dataclass
class Call:
    """A file operation on its way."""

    begin: FileBegin
    errno: int
    on_done: Callable[[], None]


@dataclass
class Draft:
    """The events so far, and what is needed to draw the next: sizes and names of the files, who is in a file operation, and
    which processes know which files."""

    draw: st.DrawFn
    threads: tuple[int, ...]
    events: list[Event] = field(default_factory=list)
    sizes: dict[int, int] = field(default_factory=dict)
    paths: dict[int, str] = field(default_factory=dict)
    known: dict[int, set[int]] = field(default_factory=dict)
    calls: dict[int, Call] = field(default_factory=dict)
    files: int = 0
    markers: int = 0
    model: Px86 = field(default_factory=Px86)
    images: int = 0

    def integer(self, low: int, high: int) -> int:
        return self.draw(st.integers(low, high))

    def thread(self) -> int | None:
        """One that is in no file operation."""
        threads = [thread for thread in self.threads if thread not in self.calls]
        return self.draw(st.sampled_from(threads)) if threads else None

    def file(self, thread: int) -> int | None:
        """A file that has bytes, with a name or known to the thread's process from when it had one."""
        known = self.known.setdefault(PLACES[thread].process, set())
        files = [file for file, size in self.sizes.items() if size and (file in self.paths or file in known)]
        return self.draw(st.sampled_from(files)) if files else None

    def add(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, Remap):
            return
        self.model.step(event)
        count = self.model.count()
        self.images += count if count <= IMAGE_LIMIT else 0

    def touch(self, thread: int, file: int) -> None:
        self.known.setdefault(PLACES[thread].process, set()).add(file)

    def operate(
        self, begin: FileBegin, on_done: Callable[[], None] = lambda: None, may_fail: bool = True, at_once: int = 2
    ) -> None:
        """Begins the operation. It returns at once, `at_once` times of three, or other threads run first."""
        is_about_names = begin.operation in NAMES_CHANGE
        if is_about_names and any(call.begin.operation in NAMES_CHANGE for call in self.calls.values()):
            return
        self.touch(begin.thread, begin.file)
        self.calls[begin.thread] = Call(begin, ENOSPC if may_fail and self.integer(0, 9) == 9 else 0, on_done)
        self.add(begin)
        if len(self.threads) == 1 or self.integer(1, 3) <= at_once:
            self.end(begin.thread)

    def end(self, thread: int) -> None:
        call = self.calls.pop(thread)
        self.add(FileEnd(call.begin, call.errno))
        if not call.errno:
            call.on_done()

    def create(self, thread: int) -> None:
        """A new file under a name that none has now; empty for a moment."""
        free = [path for path in PATHS if path not in self.paths.values()]
        if not free:
            return
        self.files += 1
        file, path, size = self.files, self.draw(st.sampled_from(free)), self.integer(*FILE_BYTES)

        def is_there() -> None:
            self.sizes[file], self.paths[file] = 0, path
            self.operate(
                FileBegin(thread, Operation.TRUNCATE, file, offset=size),
                lambda: self.resized(file, size),
                may_fail=False,
            )

        self.operate(FileBegin(thread, Operation.CREATE, file, path=path), is_there, may_fail=False)

    def resized(self, file: int, size: int) -> None:
        self.sizes[file] = size

    def grown(self, file: int, size: int) -> None:
        self.sizes[file] = max(self.sizes[file], size)

    def data(self, size: int) -> bytes:
        """Few values, so that some stores change nothing."""
        first = self.integer(0, 3)
        return bytes(16 * first + at % 7 for at in range(size))

    def store(self, thread: int, file: int) -> None:
        kind = self.draw(st.sampled_from([StoreKind.PLAIN] * 3 + [StoreKind.REP, StoreKind.NT, StoreKind.RMW]))
        most = {StoreKind.NT: 24, StoreKind.RMW: 16}.get(kind, MOST_STORE_BYTES)
        size = self.integer(1, min(most, self.sizes[file]))
        self.touch(thread, file)
        self.add(Store(thread, file, self.integer(0, self.sizes[file] - size), self.data(size), kind))

    def flush(self, thread: int, file: int) -> None:
        self.touch(thread, file)
        offset = self.integer(0, self.sizes[file] - 1)
        self.add(Flush(thread, file, offset, self.draw(st.sampled_from(FlushKind))))
        if self.integer(0, 3) == 0:
            self.marker(thread)

    def fence(self, thread: int) -> None:
        self.add(Fence(thread, self.draw(st.sampled_from(FenceKind))))

    def marker(self, thread: int) -> None:
        self.markers += 1
        self.add(Marker(thread, self.markers // 2, self.markers % 2 == 1))

    def remap(self, thread: int, file: int) -> None:
        if file in self.paths:
            self.touch(thread, file)
            self.add(Remap(thread, file))

    def session(self, _thread: int) -> None:
        """The processes end, whatever they are at, and another one goes on."""
        if self.threads != LATER_SESSION:
            self.threads, self.calls = LATER_SESSION, {}

    def range_of(self, file: int) -> tuple[int, int]:
        offset = self.integer(0, self.sizes[file] - 1)
        return offset, self.integer(1, self.sizes[file] - offset)

    def sync(self, thread: int, file: int) -> None:
        if self.draw(st.booleans()):
            self.operate(FileBegin(thread, Operation.FSYNC, file), at_once=1)
        else:
            offset, size = self.range_of(file)
            self.operate(FileBegin(thread, Operation.MSYNC, file, offset, size), at_once=1)

    def change(self, thread: int, file: int) -> None:
        """Only of a file that has a name: test_a_file_without_a_name_bears_no_states has the others."""
        changes = [self.truncate, self.punch, self.punch, self.write, self.write, self.allocate]
        changes += [self.rename, self.unlink, self.unlink]
        if file in self.paths:
            self.draw(st.sampled_from(changes))(thread, file)

    def truncate(self, thread: int, file: int) -> None:
        size = self.integer(0, FILE_BYTES[1])
        self.operate(FileBegin(thread, Operation.TRUNCATE, file, offset=size), lambda: self.resized(file, size))

    def punch(self, thread: int, file: int) -> None:
        offset, size = self.range_of(file)
        self.operate(FileBegin(thread, Operation.PUNCH, file, offset, size))

    def write(self, thread: int, file: int) -> None:
        data = self.data(self.integer(1, 16))
        offset = self.integer(0, self.sizes[file])
        begin = FileBegin(thread, Operation.WRITE, file, offset, data=data)
        self.operate(begin, lambda: self.grown(file, offset + len(data)))

    def allocate(self, thread: int, file: int) -> None:
        offset, size = self.integer(0, self.sizes[file]), self.integer(1, LINE_BYTES)
        begin = FileBegin(thread, Operation.ALLOCATE, file, offset, size)
        self.operate(begin, lambda: self.grown(file, offset + size))

    def unlink(self, thread: int, file: int) -> None:
        def is_gone() -> None:
            del self.paths[file]
            if self.integer(0, 2):
                self.create(thread)

        self.operate(FileBegin(thread, Operation.UNLINK, file), is_gone)

    def rename(self, thread: int, file: int) -> None:
        """To a free name, or over another file."""
        path = self.draw(st.sampled_from([path for path in PATHS if path != self.paths[file]]))

        def is_renamed() -> None:
            self.paths = {other: name for other, name in self.paths.items() if name != path}
            self.paths[file] = path

        self.operate(FileBegin(thread, Operation.RENAME, file, path=path), is_renamed)

    def step(self, step: str) -> None:
        thread = self.thread()
        if thread is None or (step == "return" and self.calls):
            return self.end(self.draw(st.sampled_from(sorted(self.calls))))
        alone = {"fence": self.fence, "marker": self.marker, "session": self.session, "create": self.create}
        if step in alone:
            return alone[step](thread)
        file = self.file(thread)
        if file is None:
            return self.create(thread)
        with_file = {
            "store": self.store,
            "flush": self.flush,
            "change": self.change,
            "sync": self.sync,
            "remap": self.remap,
        }
        return with_file.get(step, self.store)(thread, file)


@st.composite
def traces(draw: st.DrawFn) -> list[Event]:
    draft = Draft(draw, threads=FIRST_SESSION[: draw(st.integers(1, len(FIRST_SESSION)))])
    draft.create(FIRST_SESSION[0])
    for _ in range(draft.integer(MOST_STEPS * 2 // 3, MOST_STEPS)):
        if draft.images > MOST_IMAGES:
            break
        draft.step(draw(st.sampled_from(STEPS)))
    return draft.events
