# SPDX-License-Identifier: Apache-2.0
"""The runner, tested from outside: its subcommands, the fork server's protocol, and the isolation of what targets do to files."""

from __future__ import annotations

import ctypes
import itertools
import random
import re
import shutil
import signal
import struct
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from faultline.base.errors import BadInputError
from faultline.pipeline.build import runner_recipe
from faultline.workload import file_format, generators, sequences, transaction_generators
from faultline.workload.operations import Workload
from runner_protocol import FL, Command

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
HEAP_BYTES = 1 << 20
SLOTS = 8
PROBE_SLOTS = 1024
GEOMETRY = [
    *("--heap-bytes", str(HEAP_BYTES), "--limit-bytes", str(HEAP_BYTES)),
    *("--slots", str(SLOTS), "--address-hint", "0x200000000000"),
]
DONE, SIGNAL, HUNG, EXITED, OVERLOADED, BROKEN = range(6)
OPEN, FILES, SLOT_LIST, WALK, CHECK, CONTENTS, DRAIN, FREE_ALL, MAXIMAL, CLOSE, RECREATE, MESSAGE, OBJECTS, RETAINED = (
    range(1, 15)
)
SETTLE = 16
LAZY = ("-DLAZY", "-DCAPABILITIES=FL_CAN_WALK|FL_CAN_CHECK|FL_CAN_SETTLE|FL_CAN_THREADS|FL_CAN_NAMES|FL_CAN_CHAIN")
FIRST, FULL, DEEP = FL.PROBE_FIRST, FL.PROBE_FULL, FL.PROBE_DEEP
OK, OUT_OF_MEMORY, NOT_A_HEAP, CORRUPT, UNSUPPORTED, ERROR = range(6)
PROBE_OBJECT = 0xFFFFFF


# ---- heap reports --------------------------------------------------------------------------------------------------------


@dataclass
class Section:
    kind: int
    life: int
    status: int
    count: int
    value: int
    payload: bytes

    def entries(self, form: str) -> list[tuple[int, ...]]:
        entries = list(struct.iter_unpack(form, self.payload))
        assert len(entries) == self.count
        return entries


@dataclass
class Report:
    outcome: int
    signal: int
    life: int
    stage: int
    sections: list[Section] = field(default_factory=list)

    def all(self, life: int, kind: int) -> list[Section]:
        return [section for section in self.sections if (section.life, section.kind) == (life, kind)]

    def one(self, life: int, kind: int) -> Section:
        (section,) = self.all(life, kind)
        return section

    def message(self) -> str:
        return " / ".join(section.payload.decode() for section in self.sections if section.kind == MESSAGE)


def parse(data: bytes) -> Report:
    magic, version, total, count, *rest = struct.unpack_from("<8I", data)
    assert (magic, version, total) == (0x52484C46, FL.REPORT_VERSION, len(data))
    report = Report(*rest)
    at = 32
    while at < total:
        kind, life, status, entries, size, value = struct.unpack_from("<HHIIIQ", data, at)
        report.sections.append(Section(kind, life, status, entries, value, data[at + 24 : at + 24 + size]))
        at += 24 + (size + 7) // 8 * 8
    assert at == total
    assert len(report.sections) == count
    return report


# ---- workloads -----------------------------------------------------------------------------------------------------------

WORKLOAD = """
workload 1   # a comment
slots 8

case
allocate 0 200
allocate 1 13
reallocate 1 45
allocate 2 64
free 2
"""


def execute(
    runner: Path, adapter: Path, folder: Path, text: str, session: int = 0, *options: str
) -> subprocess.CompletedProcess[str]:
    workload = folder.parent / f"{folder.name}.workload"
    workload.write_text(text)
    command = [str(runner), "workload", "--adapter", str(adapter), "--workload", str(workload)]
    command += ["--session", str(session), "--folder", str(folder), *GEOMETRY, *options]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    workload.unlink()
    return run


@pytest.fixture(scope="session")
def image(runner: Path, adapter: Callable[..., Path], built: Path) -> bytes:
    """The heap file that WORKLOAD leaves."""
    folder = built / "image"
    folder.mkdir()
    run = execute(runner, adapter(), folder, WORKLOAD)
    assert (run.returncode, run.stderr) == (0, "")
    return (folder / "case-0/heap").read_bytes()


def error_line(run: subprocess.CompletedProcess[str]) -> str:
    lines = run.stderr.splitlines()
    assert len(lines) == 1, run.stderr
    assert lines[0].startswith("runner: error: ")
    return lines[0].removeprefix("runner: error: ")


# ---- the fork server -----------------------------------------------------------------------------------------------------


class Server:
    def __init__(
        self, runner: Path, adapter: Path, folder: Path, *options: str, cpu_ms: int = 300, wall_ms: int = 2000
    ) -> None:
        command = [str(runner), "serve", "--adapter", str(adapter), "--folder", str(folder), *GEOMETRY]
        command += ["--cpu-limit-ms", str(cpu_ms), "--wall-limit-ms", str(wall_ms), *options]
        pipe = subprocess.PIPE
        self.process = subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe)
        self.folder = folder

    def send(self, kind: int, file: int = 0, offset: int = 0, size: int = 0, payload: bytes = b"") -> None:
        assert self.process.stdin
        self.process.stdin.write(Command(kind, file, offset, size, payload).packed())

    def load(self, image: bytes) -> None:
        self.send(FL.COMMAND_CREATE, 0, size=len(image), payload=b"heap")
        for offset in range(0, len(image), 4096):
            piece = image[offset : offset + 4096]
            if any(piece):
                self.send(FL.COMMAND_WRITE, 0, offset, payload=piece)

    def answer(self) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        assert len(head) == 4, self.process.stderr.read() if self.process.stderr else ""
        return self.process.stdout.read(struct.unpack("<I", head)[0])

    def run(self, probe: int = FIRST) -> Report:
        assert self.process.stdin
        self.process.stdin.write(Command(FL.COMMAND_RUN, probe=probe).packed())
        return parse(self.answer())

    def stages(self) -> dict[str, int]:
        self.send(FL.COMMAND_STAGES)
        rest, stages = self.answer(), {}
        while rest:
            name, rest_after = rest[8:].split(b"\0", 1)
            stages[name.decode()] = struct.unpack_from("<Q", rest)[0]
            rest = rest_after
        return stages

    def base(self) -> dict[str, bytes]:
        (heap,) = [path for path in self.folder.iterdir() if path.name.startswith("heap-")]
        return {str(path.relative_to(heap)): path.read_bytes() for path in heap.rglob("*") if path.is_file()}

    def leftovers(self) -> list[str]:
        return [path.name for path in self.folder.iterdir() if not path.name.startswith("heap-")]

    def close(self) -> tuple[int, str]:
        _, errors = self.process.communicate()
        return self.process.returncode, errors.decode()


@pytest.fixture
def serve(runner: Path, adapter: Callable[..., Path], folder: Path, image: bytes) -> Iterator[Callable[..., Server]]:
    servers: list[Server] = []

    def start(behaviour: str = "NONE", *options: str, **limits: int) -> Server:
        server = Server(runner, adapter(behaviour), folder, *options, **limits)
        servers.append(server)
        server.load(image)
        return server

    yield start
    for server in servers:
        if server.process.returncode is None:
            assert server.close() == (0, "")
        assert list(folder.iterdir()) == []


@pytest.mark.slow
def test_first_part_reports_slots_walk_check_and_contents(serve: Callable[..., Server]) -> None:
    report = serve().run(FIRST)
    assert (report.outcome, report.life, report.stage) == (DONE, 0, CONTENTS)
    assert [section.kind for section in report.sections] == [OPEN, SLOT_LIST, WALK, CHECK, CONTENTS, FILES]
    assert all(section.status == OK for section in report.sections)
    assert report.one(0, FILES).payload == b"heap\0"
    slots = report.one(0, SLOT_LIST)
    assert slots.value == SLOTS + PROBE_SLOTS
    assert [entry[:2] for entry in slots.entries("<IIQ")] == [(0, 0), (1, 0)]
    walk = report.one(0, WALK)
    assert walk.value == HEAP_BYTES
    assert sum(entry[3] for entry in walk.entries("<IIQQ")) == HEAP_BYTES


def test_the_first_part_may_be_without_check(serve: Callable[..., Server]) -> None:
    report = serve("NONE", "--no-check").run(FIRST)
    assert (report.outcome, report.stage) == (DONE, CONTENTS)
    assert [section.kind for section in report.sections] == [OPEN, SLOT_LIST, WALK, CONTENTS, FILES]


def test_full_probe_goes_through_seven_lives(serve: Callable[..., Server]) -> None:
    server = serve()
    report = server.run(FULL)
    assert (report.outcome, report.life, report.stage) == (DONE, 6, OPEN)
    first = [OPEN, SLOT_LIST, WALK, CHECK]
    kinds = {life: [section.kind for section in report.sections if section.life == life] for life in range(7)}
    assert kinds[0] == [*first, FILES]
    assert kinds[1] == [OPEN, CONTENTS]
    assert kinds[2] == [*first, CONTENTS, FILES]
    assert kinds[3] == [*first, CONTENTS, DRAIN, CONTENTS, FREE_ALL, CONTENTS, MAXIMAL, CLOSE, FILES]
    assert kinds[4] == [*first, CONTENTS, CLOSE, FILES]
    assert kinds[5] == [OPEN, FREE_ALL, DRAIN, CLOSE, FILES]
    assert kinds[6] == [OPEN]
    assert all(section.status == OK for section in report.sections)
    assert server.leftovers() == []


def lazy_server(runner: Path, adapter: Path, folder: Path, image: bytes) -> Server:
    server = Server(runner, adapter, folder, "--lazy")
    server.load(image)
    return server


def test_some_lives_open_lazily_and_others_at_once(
    runner: Path, adapter: Callable[..., Path], folder: Path, image: bytes
) -> None:
    server = lazy_server(runner, adapter("NONE", *LAZY), folder, image)
    report = server.run(FULL)
    first = [OPEN, SLOT_LIST, WALK, CHECK]
    lazily = [OPEN, SLOT_LIST, SETTLE, WALK, CHECK]
    kinds = {life: [section.kind for section in report.sections if section.life == life] for life in range(7)}
    assert (kinds[0], kinds[1][:3]) == ([*lazily, FILES], [OPEN, SETTLE, CONTENTS])
    assert (kinds[2], kinds[3][:4]) == ([*first, CONTENTS, FILES], first), "what lazy opens are compared with"
    assert (kinds[4], kinds[5]) == ([*lazily, CONTENTS, CLOSE, FILES], [OPEN, FREE_ALL, DRAIN, CLOSE, FILES])
    assert all(section.status == OK for section in report.sections)
    assert server.close() == (0, "")


def test_a_piece_that_fails_is_told_in_the_lives_that_come_to_it(
    runner: Path, adapter: Callable[..., Path], folder: Path, image: bytes
) -> None:
    server = lazy_server(runner, adapter("NONE", *LAZY, "-DBREAKS"), folder, image)
    report = server.run(FULL)
    assert [report.one(life, SETTLE).status for life in (0, 1, 4)] == [CORRUPT] * 3
    assert "the second piece" in report.message()
    assert server.close() == (0, "")


@pytest.mark.parametrize(
    ("head", "flags", "options", "words"),
    [
        ("slots 8\nopens lazily", LAZY, (), "the workload opens lazily, the heap at once; pass --lazy"),
        ("slots 8", LAZY, ("--lazy",), "the workload opens at once, the heap lazily; leave out --lazy"),
        ("slots 8\nopens lazily", (), ("--lazy",), "nothing of test's open can be done later"),
    ],
)
def test_an_adapter_that_cannot_open_so_is_bad_input(
    runner: Path,
    adapter: Callable[..., Path],
    folder: Path,
    head: str,
    flags: tuple[str, ...],
    options: tuple[str, ...],
    words: str,
) -> None:
    run = execute(runner, adapter("NONE", *flags), folder, WORKLOAD.replace("slots 8", head), 0, *options)
    assert (run.returncode, words in error_line(run)) == (2, True)


@pytest.mark.parametrize("command", ["serve", "probe"])
def test_a_heap_of_an_adapter_without_lazy_opens_is_not_opened_so(
    runner: Path, adapter: Callable[..., Path], folder: Path, command: str
) -> None:
    words = [command, "--adapter", str(adapter()), "--folder", str(folder), *GEOMETRY, "--lazy"]
    run = subprocess.run([str(runner), *words], capture_output=True, text=True, check=False, stdin=subprocess.DEVNULL)
    said = "--lazy: nothing of test's open can be done later; its adapter does not say FL_CAN_SETTLE"
    assert (run.returncode, error_line(run)) == (2, said)


def test_a_disk_is_full_after_so_many_growths(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    """Counted from create on. Three allocations grow six times each."""
    for growths in range(28):
        text = WORKLOAD.replace("slots 8", f"slots 8\ngrowths {growths}")
        run = execute(runner, adapter("NONE", "-DGROWS"), folder, text)
        assert (run.returncode, "No space left on device" in run.stderr) == ((3, True) if growths < 27 else (0, False))
        shutil.rmtree(folder / "case-0")


def test_a_lazy_session_does_a_piece_after_each_operation(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    text = WORKLOAD.replace("slots 8", "slots 8\nopens lazily") + "reopen\nfree 0\nfree 1\nallocate 0 64\n"
    broken = adapter("NONE", *LAZY, "-DBREAKS")
    assert execute(runner, broken, folder, text, 0, "--lazy").returncode == 0, "a heap that was just created is whole"
    run = execute(runner, broken, folder, text, 1, "--lazy")
    assert run.returncode == 3
    assert "step after operation 9 answered corrupt: the second piece" in error_line(run)


def test_recoveries_have_the_code_at_another_address(serve: Callable[..., Server]) -> None:
    def place(*options: str) -> int:
        server = serve("SAYS_WHERE", *options)
        where = int(server.run(FIRST).message(), 16)
        assert server.close() == (0, "")
        return where

    assert place("--code-in-place") == place("--code-in-place")
    assert abs(place("--code-in-place") - place()) >= 16 << 20


# ---- the deep probe ------------------------------------------------------------------------------------------------------


def test_the_deep_probe_uses_the_heap_long(serve: Callable[..., Server]) -> None:
    server = serve()
    full, deep = server.run(FULL), server.run(DEEP)
    assert (deep.outcome, deep.life, deep.stage) == (DONE, 6, OPEN)
    long_use = deep.one(4, DRAIN)
    assert [section for section in deep.sections if section is not long_use] == full.sections
    assert (long_use.status, long_use.value) == (OK, sum(size for *_, size in long_use.entries("<IIQQ")))
    extents = sorted((offset, offset + size) for _, _, offset, size in long_use.entries("<IIQQ"))
    assert len(extents) > 60
    assert all(one[1] <= next_[0] for one, next_ in itertools.pairwise(extents))
    assert deep.sections == server.run(DEEP).sections


def test_a_heap_that_opens_few_times_does_not_come_through_the_deep_probe(serve: Callable[..., Server]) -> None:
    server = serve("OPENS_TEN_TIMES")
    assert all(section.status == OK for section in server.run(FULL).sections)
    report = server.run(DEEP)
    assert (report.outcome, report.life, report.one(4, OPEN).status) == (DONE, 4, CORRUPT)
    assert report.message() == "opened ten times"


@pytest.mark.slow
def test_a_target_that_is_slow_does_not_hang_in_a_long_use(serve: Callable[..., Server]) -> None:
    report = serve("SLOW_TO_ALLOCATE").run(DEEP)
    assert (report.outcome, report.life, report.one(4, DRAIN).status) == (DONE, 6, OK)


def test_a_long_use_looks_at_what_it_stored(serve: Callable[..., Server]) -> None:
    """Two objects are in one place."""
    long_use = serve("LISTED_ALWAYS").run(DEEP).one(4, DRAIN)
    offsets = [offset for _, _, offset, _ in long_use.entries("<IIQQ")]
    assert long_use.status == ERROR
    assert len(offsets) == len(set(offsets)) + 1


def runs_of(contents: Section) -> list[tuple[int, ...]]:
    return [entry for entry in contents.entries("<IIQQ") if entry[1] != 0]


def words_of(contents: Section, slot: int) -> list[tuple[int, int]]:
    """Offset and value of each bare word of the slot's object."""
    return [(at, word) for number, run, at, word in contents.entries("<IIQQ") if (number, run) == (slot, 0)]


def pattern(object_id: int, index: int) -> bytes:
    """fl_pattern_word of protocol.h."""
    mask = (1 << 64) - 1
    mix = (object_id << 40) ^ index
    mix = (mix ^ mix >> 31) * 0x9E3779B97F4A7C15 & mask
    mix = (mix ^ mix >> 29) * 0xBF58476D1CE4E5B9 & mask
    return (0xF1ED << 48 | object_id << 24 | mix >> 40).to_bytes(8, "little")


def test_contents_show_what_each_operation_left(serve: Callable[..., Server]) -> None:
    report = serve().run(FULL)
    entries = runs_of(report.one(1, CONTENTS))
    # Objects are operation index + 1: create is operation 0. Bytes 13 to 15 of both patterns are the same here.
    assert entries[:2] == [(0, 2, 0, 200), (1, 3, 0, 16)]
    assert entries[2][:3] == (1, 4, 16)
    assert 45 <= entries[2][3] < 48
    for contents in [*report.all(2, CONTENTS), *report.all(3, CONTENTS)]:
        assert [entry for entry in runs_of(contents) if entry[0] < SLOTS] == entries


def test_contents_of_a_broken_word_are_cut_there(serve: Callable[..., Server], image: bytes) -> None:
    server = serve()
    (_, _, offset), *_ = server.run(FIRST).one(0, SLOT_LIST).entries("<IIQ")
    server.send(FL.COMMAND_WRITE, 0, offset + 64, payload=bytes(8))
    contents = server.run(FULL).one(1, CONTENTS)
    assert [entry for entry in runs_of(contents) if entry[0] == 0] == [(0, 2, 0, 64), (0, 2, 72, 200)]
    assert words_of(contents, 0)[0] == (64, 0)


def test_bytes_behind_the_last_whole_word_are_shown(serve: Callable[..., Server]) -> None:
    """Slot 1 has 45 bytes, the last ones of object 4."""
    words = words_of(serve().run(FULL).one(1, CONTENTS), 1)
    assert words[0] == (40, int.from_bytes(pattern(4, 5)[:5], "little"))


@pytest.mark.parametrize("kept", [0, 3, 8, 17, 48])
def test_the_first_four_bare_words_and_the_last_one_are_shown(
    serve: Callable[..., Server], image: bytes, kept: int
) -> None:
    server = serve()
    (_, _, offset), *_ = server.run(FIRST).one(0, SLOT_LIST).entries("<IIQ")
    damage = bytes(range(1, 65))
    server.send(FL.COMMAND_WRITE, 0, offset + kept, payload=damage)
    whole = b"".join(pattern(2, index) for index in range(25))
    expected = whole[:kept] + damage + whole[kept + len(damage) :]
    first, last = kept // 8, (kept + len(damage) - 1) // 8
    shown = [*range(first, first + 4), last]
    words = [entry for entry in words_of(server.run(FULL).one(1, CONTENTS), 0) if entry[0] < 200]
    assert words == [(8 * word, int.from_bytes(expected[8 * word : 8 * word + 8], "little")) for word in shown]


def test_drain_takes_what_is_free_and_gives_it_back(serve: Callable[..., Server]) -> None:
    report = serve().run(FULL)
    drain = report.one(3, DRAIN)
    entries = drain.entries("<IIQQ")
    free = sum(entry[3] for entry in report.one(0, WALK).entries("<IIQQ") if entry[1] == 3)
    assert drain.value == sum(entry[3] for entry in entries) == free
    sizes = [entry[3] for entry in entries]
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == HEAP_BYTES // 2
    after_drain = report.all(3, CONTENTS)[1].entries("<IIQQ")
    assert sum(entry[3] - entry[2] for entry in after_drain if entry[1] == PROBE_OBJECT) == free
    assert not any(entry[1] == PROBE_OBJECT for entry in report.all(3, CONTENTS)[2].entries("<IIQQ"))
    assert report.one(3, MAXIMAL).value == HEAP_BYTES // 2
    assert [entry[0] for entry in report.one(4, SLOT_LIST).entries("<IIQ")] == [0, 1, SLOTS]


def test_once_all_is_freed_the_drain_takes_the_objects_memory_too(serve: Callable[..., Server]) -> None:
    report = serve().run(FULL)
    walked = report.one(0, WALK).entries("<IIQQ")
    assert [state for _, state, _, _ in walked].count(1) == 2
    assert report.one(5, DRAIN).value == sum(size for _, state, _, size in walked if state in (1, 3))


def test_the_drain_uses_what_the_first_recovery_built(serve: Callable[..., Server]) -> None:
    """A list that is wrong only after the first recovery: the second one, of what that left, must not hide it."""
    report = serve("LISTED_TWICE").run(FULL)
    for life in (3, 5):
        offsets = [entry[2] for entry in report.one(life, DRAIN).entries("<IIQQ")]
        assert len(offsets) == len(set(offsets)) + 1


def test_the_probe_is_a_function_of_the_image(serve: Callable[..., Server]) -> None:
    server = serve()
    reports = [server.run(FULL) for _ in range(3)]
    assert reports[0] == reports[1] == reports[2]


def test_commands_move_the_image(serve: Callable[..., Server], image: bytes) -> None:
    server = serve()
    server.send(FL.COMMAND_MKDIR, payload=b"sub")
    server.send(FL.COMMAND_CREATE, 7, size=4096, payload=b"sub/other")
    server.send(FL.COMMAND_WRITE, 7, 4000, payload=b"abc")
    report = server.run()
    assert report.one(0, WALK).value == HEAP_BYTES + 4096
    server.send(FL.COMMAND_RESIZE, 7, size=10)
    server.send(FL.COMMAND_RENAME, 7, payload=b"renamed")
    server.send(FL.COMMAND_RMDIR, payload=b"sub")
    server.send(FL.COMMAND_PUNCH, 0, offset=HEAP_BYTES - 8192, size=8192)
    assert server.run().one(0, WALK).value == HEAP_BYTES + 10
    assert server.base() == {"heap": image[:-8192] + bytes(8192), "renamed": bytes(10)}
    server.send(FL.COMMAND_RENAME, 7, payload=b"heap")  # takes the name of file 0, which is gone then
    assert server.run().one(0, OPEN).status == CORRUPT or server.base() == {"heap": bytes(10)}


def test_no_heap_is_created_again_in_the_full_probe(serve: Callable[..., Server], image: bytes) -> None:
    server = serve()
    server.send(FL.COMMAND_WRITE, 0, 0, payload=bytes(8))
    assert server.run(FIRST).one(0, OPEN).status == NOT_A_HEAP
    report = server.run(FULL)
    assert report.outcome == DONE
    assert report.one(1, RECREATE).status == OK
    assert server.base() == {"heap": bytes(8) + image[8:]}


def test_stages_of_recovery_are_counted_in_the_first_life_only(serve: Callable[..., Server]) -> None:
    server = serve()
    assert server.stages() == {"magic": 0, "no magic": 0}
    server.run(FIRST)
    server.run(FULL)
    assert server.stages() == {"magic": 2, "no magic": 0}
    server.send(FL.COMMAND_WRITE, 0, 0, payload=bytes(8))
    server.run(FIRST)
    assert server.stages() == {"magic": 2, "no magic": 1}


def test_stages_are_counted_when_recovery_crashes(serve: Callable[..., Server]) -> None:
    server = serve("CRASH")
    assert server.run(FIRST).outcome == SIGNAL
    assert server.stages() == {"magic": 1, "no magic": 0}


CPP_HEADER = """
#include "stage.h"
inline void helper() { FL_STAGE("inline"); }
template <class T> void over(T) { FL_STAGE("template"); }
struct Log { void replay() { FL_STAGE("member"); } void never() { FL_STAGE("member, never called"); } };
void second();
"""
CPP_FIRST = """
extern "C" void go() { FL_STAGE("plain"); helper(); over(1); over(2.0); Log().replay(); second(); }
void out_of_use() { FL_STAGE("plain, never called"); Log().never(); }
"""
CPP_SECOND = """
void second() { FL_STAGE("plain"); helper(); over('c'); Log().replay(); }
"""


class Stage(ctypes.Structure):
    _fields_ = (("name", ctypes.c_char_p), ("entered", ctypes.POINTER(ctypes.c_uint64)))


@pytest.mark.parametrize("flags", ["-O0", "-O2 -std=c++11", "-O2 -ffunction-sections -Wl,--gc-sections"])
def test_stages_of_cpp_are_listed_wherever_they_stand(tmp_path: Path, flags: str) -> None:
    sources = [tmp_path / "first.cpp", tmp_path / "second.cpp"]
    for path, text in zip(sources, (CPP_FIRST, CPP_SECOND), strict=True):
        path.write_text(CPP_HEADER + text)
    command = ["g++", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-I", str(ROOT / "include")]
    subprocess.run([*command, *flags.split(), *map(str, sources), "-o", str(tmp_path / "library.so")], check=True)
    library = ctypes.CDLL(str(tmp_path / "library.so"))
    library.faultline_stages.restype = ctypes.POINTER(ctypes.POINTER(Stage))
    count = ctypes.c_size_t()
    listed = library.faultline_stages(ctypes.byref(count))
    stages = [listed[i].contents for i in range(count.value)]
    counters = (ctypes.c_uint64 * count.value)()
    for i, stage in enumerate(stages):
        stage.entered = ctypes.cast(ctypes.byref(counters, 8 * i), ctypes.POINTER(ctypes.c_uint64))
    library.go()
    sums: dict[str, int] = {}
    for stage, entered in zip(stages, counters, strict=True):
        sums[stage.name.decode()] = sums.get(stage.name.decode(), 0) + entered
    called = {"plain": 2, "inline": 2, "template": 3, "member": 2}
    assert sums == {**called, "plain, never called": 0, "member, never called": 0}


OUTCOMES = [
    ("CRASH", FIRST, SIGNAL, signal.SIGSEGV, 0, OPEN),
    ("ABORT", FIRST, SIGNAL, signal.SIGABRT, 0, OPEN),
    ("ILLEGAL", FIRST, SIGNAL, signal.SIGILL, 0, OPEN),
    ("RAISE_ILLEGAL", FIRST, SIGNAL, signal.SIGILL, 0, OPEN),
    ("FLUSH_UNMAPPED", FIRST, SIGNAL, signal.SIGSEGV, 0, OPEN),
    ("EXIT", FULL, EXITED, 0, 0, OPEN),
    ("BUSY", FIRST, HUNG, 0, 0, OPEN),
    ("ASLEEP", FULL, HUNG, 0, 0, OPEN),
    ("CRASH_IN_WALK", FULL, SIGNAL, signal.SIGSEGV, 0, WALK),
    ("CRASH_IN_DRAIN", FULL, SIGNAL, signal.SIGBUS, 3, DRAIN),
]


@pytest.mark.parametrize(("behaviour", "probe", "outcome", "number", "life", "stage"), OUTCOMES)
def test_outcome(
    serve: Callable[..., Server], behaviour: str, probe: int, outcome: int, number: int, life: int, stage: int
) -> None:
    # A busy machine takes its time to give 200 ms of its processor; only a sleeper is waited for.
    server = serve(behaviour, cpu_ms=200, wall_ms=600 if behaviour == "ASLEEP" else 20000)
    for _ in range(2):
        report = server.run(probe)
        assert (report.outcome, report.signal, report.life, report.stage) == (outcome, number, life, stage)
    assert server.leftovers() == []


OPERANDS = [
    *("(%rax)", "(%r9)", "8(%rbp)", "(%rsp)", "(%r12)", "(%r13,%r14,8)", "-1000(%rdi,%rcx,2)", "70(%rip)", "0x1000"),
    *("(%eax)", "%fs:(%rbx)", "%gs:8(%r10)", "%fs:(%r8d)", "%ds:(%rax)"),
]
OTHERS = [
    *(
        "clflush (%rax)",
        "xsave (%rax)",
        "xsaveopt (%rax)",
        "xsaveopt64 (%r8)",
        "xrstor (%rax)",
        "ldmxcsr (%rax)",
        "sfence",
    ),
    *("mfence", "lfence", "tpause %eax", "ud2", "nop", "lock clwb (%rax)", "lock clflush (%rax)"),
]


def assemble(folder: Path, lines: list[str]) -> list[bytes]:
    """The bytes of each line."""
    source, library = folder / "lines.s", folder / "lines.o"
    labels = [f"line{number}: {line}\n" for number, line in enumerate([*lines, "nop"])]
    source.write_text("".join(labels).replace("lock ", ".byte 0xf0; "))
    subprocess.run(["gcc", "-c", str(source), "-o", str(library)], check=True)
    subprocess.run(["objcopy", "-O", "binary", "-j", ".text", str(library), str(folder / "lines.bin")], check=True)
    code, names = (folder / "lines.bin").read_bytes(), subprocess.check_output(["nm", str(library)], text=True)
    starts = {fields[2]: int(fields[0], 16) for fields in map(str.split, names.splitlines())}
    ends = [starts[f"line{number}"] for number in range(len(labels))]
    return [code[start:end] for start, end in itertools.pairwise(ends)]


@pytest.fixture(scope="session")
def replaced(alone: Callable[[str, str], ctypes.CDLL]) -> Callable[[bytes], bytes]:
    """flush_replacement of flushes.c, as products have it; what is left of the instruction goes after it."""
    fails = "void fail(int code, const char *format, ...) { (void)code, (void)format, abort(); }"
    notes = "void deaths_note(int number, const void *info, const void *at) { (void)number, (void)info, (void)at; }\n"
    library = alone(
        "signals/flushes.c", "void *real_function(const char *name) { return (void)name, NULL; }\n" + notes + fails
    )
    library.flush_replacement.restype = ctypes.c_size_t

    def replacement(code: bytes) -> bytes:
        bytes_of = (ctypes.c_uint8 * 18)()
        count = library.flush_replacement(code.ljust(18, b"\0"), bytes_of)
        return bytes(bytes_of[:count]) + code[count:] if count > 0 else b""

    return replacement


@pytest.mark.parametrize("flush", ["clwb", "clflushopt"])
def test_a_flush_becomes_a_clflush_of_the_same_operand(
    replaced: Callable[[bytes], bytes], tmp_path: Path, flush: str
) -> None:
    code = assemble(tmp_path, [f"{name} {operand}" for operand in OPERANDS for name in (flush, "clflush")])
    for operand, one, other in zip(OPERANDS, code[::2], code[1::2], strict=True):
        assert replaced(one) == b"\x90" + other, operand


def test_nothing_else_is_taken_for_a_flush(replaced: Callable[[bytes], bytes], tmp_path: Path) -> None:
    code = assemble(tmp_path, OTHERS)
    assert [line for line, one in zip(OTHERS, code, strict=True) if replaced(one) != b""] == []


@pytest.mark.parametrize("behaviour", ["FLUSH", "FLUSH_BY_THREADS"])
def test_a_recovery_flushes_with_what_the_processor_lacks(serve: Callable[..., Server], behaviour: str) -> None:
    server = serve(behaviour)
    for _ in range(2):
        report = server.run(FULL)
        assert (report.outcome, report.life, report.stage) == (DONE, 6, OPEN)


def test_what_one_life_replaced_is_replaced_for_the_next(serve: Callable[..., Server]) -> None:
    server = serve("FLUSH_IS_KNOWN")
    assert [server.run().one(0, OPEN).status for _ in range(3)] == [ERROR, OK, OK]


def test_a_life_below_its_cpu_limit_at_the_wall_limit_is_overloaded(serve: Callable[..., Server]) -> None:
    assert serve("BUSY", cpu_ms=60000, wall_ms=200).run().outcome == OVERLOADED


def monotonic_ms() -> int:
    return time.clock_gettime_ns(time.CLOCK_MONOTONIC) // 1_000_000


@pytest.mark.slow
@pytest.mark.parametrize("behaviour", ["BUSY", "ASLEEP"])
def test_a_run_is_cut_when_the_time_is_over(serve: Callable[..., Server], behaviour: str) -> None:
    """One that begins then, too. It is no hang: it had less time than the others."""
    begun = monotonic_ms()
    server = serve(behaviour, "--ends-at-ms", str(begun + 500), cpu_ms=60000, wall_ms=60000)
    for _ in range(2):
        report = server.run()
        assert report.outcome == BROKEN
        assert "the time that was asked for was over" in report.message()
    assert monotonic_ms() - begun < 30000
    assert server.leftovers() == []


def test_a_run_that_ends_is_not_cut(serve: Callable[..., Server]) -> None:
    assert serve("NONE", "--ends-at-ms", str(monotonic_ms())).run(FULL).outcome == DONE


def test_a_kill_from_outside_is_no_finding(serve: Callable[..., Server]) -> None:
    report = serve("KILLED").run()
    assert report.outcome == BROKEN
    assert "killed from outside" in report.message()


def test_an_error_of_open_comes_with_its_message(serve: Callable[..., Server]) -> None:
    report = serve("REFUSE").run(FULL)
    assert (report.outcome, report.life, report.one(0, OPEN).status) == (DONE, 0, ERROR)
    assert report.message() == "refused to open"


FILE_BEHAVIOURS = [
    *(
        "PWRITE",
        "PREAD",
        "MAP_TWICE",
        "UNMAP",
        "RESIZE",
        "SAME_SIZE",
        "PUNCH",
        "DISCARD",
        "RENAME",
        "REPLACE",
        "CREATE",
    ),
    *("FOLDERS", "UNLINK", "PROTECT", "LOCK", "THREAD", "FORK"),
]


@pytest.mark.parametrize("behaviour", FILE_BEHAVIOURS)
def test_what_targets_do_to_files_works_and_stays_theirs(
    serve: Callable[..., Server], image: bytes, behaviour: str
) -> None:
    server = serve(behaviour)
    first = server.run(FIRST)
    assert (first.outcome, first.message()) == (DONE, "")
    assert server.base() == {"heap": image}
    assert server.leftovers() == []
    assert server.run(FIRST) == first
    full = server.run(FULL)
    if behaviour != "UNLINK":  # whose heap is gone in the next life
        assert (full.outcome, full.life, full.message()) == (DONE, 6, "")
    assert server.base() == {"heap": image}
    assert server.leftovers() == []


@pytest.mark.parametrize("behaviour", [name for name in FILE_BEHAVIOURS if name != "UNLINK"])
def test_the_same_works_without_isolation(
    runner: Path, adapter: Callable[..., Path], folder: Path, behaviour: str
) -> None:
    text = WORKLOAD + "reopen\n"
    for session in (0, 1):
        run = execute(runner, adapter(behaviour), folder, text, session)
        assert (run.returncode, run.stderr) == (0, "")


def test_truncating_open_stays_in_the_copy(serve: Callable[..., Server], image: bytes) -> None:
    server = serve("REOPEN_TRUNCATED")
    report = server.run()
    assert (report.outcome, report.one(0, OPEN).status, report.message()) == (DONE, ERROR, "no failure")
    assert server.base() == {"heap": image}


def test_a_descriptor_of_the_image_cannot_write(serve: Callable[..., Server], image: bytes) -> None:
    server = serve("RAW_DESCRIPTOR")
    assert (server.run().outcome, server.base()) == (DONE, {"heap": image})


@pytest.mark.parametrize("behaviour", ["RAW_WRITE", "RAW_MAP"])
def test_a_change_past_the_library_is_noticed(serve: Callable[..., Server], behaviour: str) -> None:
    server = serve(behaviour)
    report = server.run()
    assert report.outcome == BROKEN
    assert report.message().startswith("heap: the target changed the crash image")
    code, errors = server.close()
    assert code == 3
    assert "the image can no longer be used" in errors


def test_stores_of_later_lives_stay_in_the_copy(serve: Callable[..., Server], image: bytes) -> None:
    server = serve("CORRUPT")
    report = server.run(FULL)
    offsets = [report.one(life, SLOT_LIST).entries("<IIQ")[0][2] for life in (0, 2, 3, 4)]
    # Each open moves it: life 1's store is life 2's image, life 3 starts from the crash image again.
    assert [offset - offsets[0] for offset in offsets] == [0, 64, 0, 64]
    assert server.base() == {"heap": image}


LAST_PAGE = HEAP_BYTES - 4096


@pytest.mark.parametrize("behaviour", ["LOADS_LAST_PAGE", "STORES_LAST_PAGE"])
def test_a_load_or_store_of_a_poisoned_page_is_a_bus_error(
    serve: Callable[..., Server], image: bytes, behaviour: str
) -> None:
    server = serve(behaviour)
    assert server.run(FIRST).outcome == DONE
    server.send(FL.COMMAND_POISON, 0, LAST_PAGE, 4096)
    for _ in range(2):
        report = server.run(FIRST)
        assert (report.outcome, report.signal, report.life, report.stage) == (SIGNAL, signal.SIGBUS, 0, OPEN)
    server.send(FL.COMMAND_POISON, 0, LAST_PAGE - 4096, 4096)
    assert server.run(FIRST).outcome == DONE, "another page is poisoned now, and this one no more"
    server.send(FL.COMMAND_POISON)
    assert server.run(FIRST).outcome == DONE
    assert server.base() == {"heap": image}


def test_a_target_can_live_with_poison(serve: Callable[..., Server], image: bytes) -> None:
    server = serve("MEETS_POISON")
    assert server.run(FIRST).message() != "", "without poison it does not see what it expects"
    server.send(FL.COMMAND_POISON, 0, LAST_PAGE, 4096)
    report = server.run(FIRST)
    assert (report.outcome, report.message()) == (DONE, "")
    assert server.base() == {"heap": image}


def test_poison_is_of_one_file(serve: Callable[..., Server]) -> None:
    server = serve("LOADS_LAST_PAGE")
    server.send(FL.COMMAND_CREATE, 7, size=HEAP_BYTES, payload=b"other")
    server.send(FL.COMMAND_POISON, 7, LAST_PAGE, 4096)
    assert server.run(FIRST).outcome == DONE


def test_a_poisoned_mapping_that_moves_is_not_followed(serve: Callable[..., Server]) -> None:
    server = serve("GROWS_MAPPING")
    server.send(FL.COMMAND_POISON, 0, 0, 4096)
    assert server.run(FIRST).signal == signal.SIGBUS, "the head is there"
    server.send(FL.COMMAND_POISON, 0, LAST_PAGE, 4096)
    report = server.run(FIRST)
    assert (report.outcome, report.message()) == (BROKEN, "it moves or resizes a mapping that shows a poisoned page")


FIRST_SLOT = 4096
KEPT_OUT = 8
NO_WORD = bytes(8)


def test_a_stray_store_is_made_as_soon_as_a_life_has_opened_the_crash_image(
    serve: Callable[..., Server], image: bytes
) -> None:
    """It empties slot 0; lives 2 and 4 find that on media."""
    server = serve()

    def is_slot_0_set() -> list[bool]:
        report = server.run(FULL)
        assert not any(report.one(life, OPEN).value & KEPT_OUT for life in range(7))
        lists = [report.one(life, SLOT_LIST).entries("<IIQ") for life in (0, 2, 3, 4)]
        return [0 in [slot for slot, _, _ in entries] for entries in lists]

    assert is_slot_0_set() == [True] * 4
    server.send(FL.COMMAND_STRAY, 0, FIRST_SLOT, payload=NO_WORD)
    assert is_slot_0_set() == [False] * 4
    server.send(FL.COMMAND_STRAY)
    assert is_slot_0_set() == [True] * 4
    assert server.base() == {"heap": image}


@pytest.mark.parametrize(
    ("behaviour", "offset", "is_kept_out"),
    [
        ("NONE", 4096, False),
        ("READ_ONLY", 4096, True),
        ("UNMAPS", LAST_PAGE, True),
        ("UNMAPS", LAST_PAGE - 8, False),
        ("WRITES_ELSEWHERE", 4096, False),
        ("WRITES_PRIVATELY", 4096, False),
    ],
)
def test_a_stray_store_is_kept_out_where_nothing_can_be_stored(
    serve: Callable[..., Server], image: bytes, behaviour: str, offset: int, is_kept_out: bool
) -> None:
    server = serve(behaviour)
    server.send(FL.COMMAND_STRAY, 0, offset, payload=NO_WORD)
    report = server.run(FIRST)
    assert (report.outcome, bool(report.one(0, OPEN).value & KEPT_OUT)) == (DONE, is_kept_out)
    slots = [slot for slot, _, _ in report.one(0, SLOT_LIST).entries("<IIQ")]
    assert (0 in slots) == (is_kept_out or offset != FIRST_SLOT)
    assert server.base() == {"heap": image}


@pytest.mark.parametrize("behaviour", ["PROTECTS", "PROTECTS_ONCE"])
def test_a_stray_store_that_was_kept_out_is_made_again_when_the_heap_has_been_used(
    serve: Callable[..., Server], image: bytes, behaviour: str
) -> None:
    server = serve(behaviour)
    server.send(FL.COMMAND_STRAY, 0, FIRST_SLOT, payload=NO_WORD)
    report = server.run(FULL)
    opened = {life for life in range(7) if report.one(life, OPEN).value & KEPT_OUT}
    used = {life for life in (3, 5) if report.one(life, FREE_ALL).value & KEPT_OUT}
    found = 0 in [slot for slot, _, _ in report.one(4, SLOT_LIST).entries("<IIQ")]
    is_kept_out = behaviour == "PROTECTS"
    assert (opened, used, found) == ({0, 1, 3, 5}, {3, 5} if is_kept_out else set(), is_kept_out)
    assert server.base() == {"heap": image}


@pytest.mark.parametrize(
    ("command", "message"),
    [
        (Command(FL.COMMAND_STRAY, 0, 4, 0, NO_WORD), "8 bytes at 4 of heap, expected a word of 8 bytes, aligned to 8"),
        (Command(FL.COMMAND_STRAY, 0, 8, 0, b"1234"), "4 bytes at 8 of heap, expected a word of 8 bytes, aligned to 8"),
        (Command(FL.COMMAND_STRAY, 5, 8, 0, NO_WORD), "there is no file 5"),
        (Command(FL.COMMAND_POISON, 0, 64, 4096), "4096 bytes at 64 of heap, expected whole OS pages"),
        (Command(FL.COMMAND_POISON, 5, 0, 4096), "there is no file 5"),
        (Command(99), "unknown command 99"),
        (Command(FL.COMMAND_WRITE, 5, 0, 0, b"x"), "there is no file 5"),
        (
            Command(FL.COMMAND_WRITE, 0, HEAP_BYTES - 1, 0, b"xy"),
            f"2 bytes at {HEAP_BYTES - 1} of heap, which has {HEAP_BYTES}",
        ),
        (Command(FL.COMMAND_CREATE, 1, 0, 10, b"../evil"), "`../evil` is no path below the heap folder"),
        (Command(FL.COMMAND_CREATE, 1, 0, 10, b"/evil"), "`/evil` is no path below the heap folder"),
        (Command(FL.COMMAND_CREATE, 0, 0, 10, b"again"), "file 0 is there already"),
        (Command(FL.COMMAND_RUN, probe=9), "probe 9, expected"),
    ],
)
def test_bad_commands_end_the_server_with_one_line(
    serve: Callable[..., Server], command: Command, message: str
) -> None:
    server = serve()
    assert server.process.stdin
    server.process.stdin.write(command.packed())
    code, errors = server.close()
    assert code == 2
    assert message in errors
    assert len(errors.splitlines()) == 1


def test_a_signal_ends_the_server_and_its_target(serve: Callable[..., Server]) -> None:
    server = serve("ASLEEP", cpu_ms=10000, wall_ms=20000)
    assert server.process.stdin
    server.process.stdin.write(Command(FL.COMMAND_RUN, probe=FIRST).packed())
    server.process.stdin.flush()
    time.sleep(0.2)
    server.process.send_signal(signal.SIGTERM)
    code, errors = server.close()
    assert (code, errors) == (3, "runner: error: stopped by a signal\n")


# ---- workload ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "1: the file ends here, expected `workload 1`"),
        ("workload 2\n", "1: expected `workload 1` as the first line"),
        ("workload 1\ncase\n", "2: expected `slots COUNT [names | chain | graph]` after `workload 1`"),
        ("workload 1\nslots 0\n", "2: slot count is `0`, expected a whole number from 1 to 65536"),
        ("workload 1\nslots 8\n", "3: the file ends here, expected `case`"),
        (
            "workload 1\nslots 8\nallocate 0 8\n",
            "3: `allocate` before the first `case`; every workload starts with one",
        ),
        ("workload 1\nslots 8\ncase\nallocate 8 8\n", "4: slot is `8`, expected a whole number from 0 to 7"),
        ("workload 1\nslots 8\ncase\nallocate 0\n", "4: expected `allocate SLOT BYTES`"),
        ("workload 1\nslots 8\ncase\nallocate 0 0\n", "4: size in bytes is `0`, expected a whole number"),
        ("workload 1\nslots 8\ncase\nallocate 0 8\nallocate 0 8\n", "5: allocate: slot 0 is in use; free it first"),
        ("workload 1\nslots 8\ncase\nfree 3\n", "4: free: slot 3 is empty; allocate it first"),
        ("workload 1\nslots 8\ncase\nallocate 0 8\ncase\nreallocate 0 9\n", "6: reallocate: slot 0 is empty"),
        ("workload 1\nslots 8\ncase\nfree 1 2 3 4\n", "4: expected `free SLOT`"),
        ("workload 1\nslots 8\ncase\ncommit\n", "4: commit: no transaction is open; begin one first"),
        ("workload 1\nslots 8\ncase\nabort\n", "4: abort: no transaction is open; begin one first"),
        ("workload 1\nslots 8\ncase\nbegin\nbegin\n", "5: begin: a transaction is open; commit or abort it first"),
        ("workload 1\nslots 8\ncase\nbegin\nreopen\n", "5: reopen in a transaction; commit or abort it first"),
        ("workload 1\nslots 8\ncase\nbegin\ncase\n", "5: case in a transaction; commit or abort it first"),
        ("workload 1\nslots 8\ncase\nbegin\n", "5: the file ends in a transaction; commit or abort it first"),
        (
            "workload 1\nslots 8\ncase\nbegin\nthread 1 allocate 0 8\n",
            "5: allocate: a workload has transactions and writes, or `thread`, not both",
        ),
        (
            "workload 1\nslots 8\ncase\nthread 1 allocate 0 8\njoin\nbegin\n",
            "6: begin: a workload has transactions and writes, or `thread`, not both",
        ),
        (
            "workload 1\nslots 8\ncase\nbegin\nallocate 0 8\nabort\nfree 0\n",
            "7: free: slot 0 is empty; allocate it first",
        ),
        ("workload 1\nslots 8\ncase\nallocate 0 64\nwrite 0 4 8\n", "5: first byte is 4, expected a multiple of 8"),
        (
            "workload 1\nslots 8\ncase\nallocate 0 64\nwrite 0 56 16\n",
            "5: write: it ends at byte 72, the object in slot 0 at byte 64",
        ),
        (
            "workload 1\nslots 8 graph\ncase\nbegin\n",
            "4: begin: there are no transactions and writes with `slots COUNT graph`",
        ),
        (
            "workload 1\nslots 8 graph\ncase\nallocate 0 64\nwrite 0 0 16\n",
            "5: write: there are no transactions and writes with `slots COUNT graph`",
        ),
        ("workload 1\nslots 8\ncase\nmalloc 1 2\n", "4: `malloc` is no operation"),
        ("workload 1\nslots 8\ncase now\n", "3: expected `case`"),
        ("workload 1\nslots 8 tree\ncase\n", "2: slot layout is `tree`, expected root, names, chain or graph"),
        ("workload 1\nslots 8\ncase\nthread 0 free 0\n", "4: thread is `0`, expected a whole number from 1 to 63"),
        ("workload 1\nslots 8\ncase\nthread 64 free 0\n", "4: thread is `64`, expected a whole number from 1 to 63"),
        ("workload 1\nslots 8\ncase\nthread 1\n", "4: expected `thread N` and an operation, as in `thread 1 free 0`"),
        (
            "workload 1\nslots 8\ncase\nthread 1 join\n",
            "4: `join` is no operation of a thread, expected allocate, free",
        ),
        ("workload 1\nslots 8\ncase\njoin 1\n", "4: expected `join`"),
        ("workload 1\nslots 8\njoin\n", "3: `join` before the first `case`"),
        ("workload 1\nslots 8\nopens late\n", "3: expected `opens lazily`"),
        ("workload 1\nslots 8\ncase\nopens lazily\n", "4: `opens lazily` after the first `case`"),
        ("workload 1\nslots 8\ngrowths\n", "3: expected `growths COUNT`"),
        ("workload 1\nslots 8\ngrowths -1\n", "3: growths is `-1`, expected a whole number from 0 to 65536"),
        ("workload 1\nslots 8\ncase\ngrowths 1\n", "4: `growths` after the first `case`"),
        (
            "workload 1\nslots 8\ncase\nthread 1 allocate 0 8\nfree 0\n",
            "5: free: slot 0 was used by thread 1 since the last join; put a `join` between them",
        ),
        (
            "workload 1\nslots 8\ncase\nallocate 0 8\nthread 2 free 0\n",
            "5: free: slot 0 was used by the main thread since the last join; put a `join` between them",
        ),
    ],
)
def test_bad_workloads_name_file_and_line(
    runner: Path, adapter: Callable[..., Path], folder: Path, text: str, message: str
) -> None:
    run = execute(runner, adapter(), folder, text)
    assert run.returncode == 2
    assert f"{folder.name}.workload:{message}" in error_line(run)
    assert list(folder.iterdir()) == []


def odd_transactions(seed: int) -> str:
    """A generated workload that lacks one line, or has one more."""
    chance = random.Random(seed)
    head, *lines = transaction_generators.tx(3, None, seed).text().splitlines()
    at = chance.randrange(2, len(lines))
    odd = ["begin", "commit", "abort", "reopen", "case", "join", "free 0", "write 0 4 8", "thread 1 allocate 31 8"]
    lines[at : at + seed % 2] = [] if seed % 2 else [chance.choice(odd)]
    return "\n".join([head, *lines]) + "\n"


def wrong_line(text: str) -> int | None:
    """Where the harness's reader finds the file wrong."""
    try:
        file_format.parse(text, "text")
    except BadInputError as error:
        named = re.search(r"text:(\d+):", error.message)
        return int(named[1]) if named else text.count("\n") + 1
    return None


def test_runner_and_harness_take_the_same_files_with_transactions(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    taken = 0
    for seed in range(80):
        text = odd_transactions(seed)
        run = execute(runner, adapter(), folder, text)
        named = re.search(r":(\d+): ", run.stderr)
        assert (int(named[1]) if named else None) == wrong_line(text), (text, run.stderr)
        taken += named is None
        shutil.rmtree(folder)
        folder.mkdir()
    assert 8 < taken < 72


LIVE_AFTER_WORKLOAD = {0: 200, 1: 40}
"""Bytes in whole words."""


def contents(report: Report, life: int = 1) -> dict[int, int]:
    """Whole words of known content of each slot's object, bytes."""
    ends: dict[int, int] = {}
    for slot, _, _, end in runs_of(report.all(life, CONTENTS)[0]):
        ends[slot] = max(end // 8 * 8, ends.get(slot, 0))
    return ends


def probe(runner: Path, adapter: Path, heap: Path, layout: str = "root") -> Report:
    command = ["probe", "--full", "--adapter", str(adapter), "--folder", str(heap), *GEOMETRY, "--slot-layout", layout]
    run = subprocess.run([str(runner), *command], capture_output=True, check=True)
    return parse(run.stdout)


@pytest.mark.parametrize("layout", ["root", "names", "chain"])
def test_slots_live_in_the_layout_of_the_workload(
    runner: Path, adapter: Callable[..., Path], folder: Path, layout: str
) -> None:
    text = WORKLOAD.replace("slots 8", f"slots 8 {layout}") + "reopen\nallocate 7 24\nfree 7\n"
    for session in (0, 1):
        run = execute(runner, adapter(), folder, text, session, "--slot-layout", layout)
        assert (run.returncode, run.stderr) == (0, "")
    report = probe(runner, adapter(), folder / "case-0", layout)
    assert (report.outcome, report.life) == (DONE, 6)
    assert [entry[0] for entry in report.one(0, SLOT_LIST).entries("<IIQ")] == list(LIVE_AFTER_WORKLOAD)
    assert contents(report) == LIVE_AFTER_WORKLOAD
    states = [state for _, state, _, _ in report.one(0, WALK).entries("<IIQQ")]
    assert states.count(1) == 2
    assert states.count(4) == 1 + (2 if layout == "chain" else 0)  # a chain's node headers are metadata
    drained = {entry[0] for entry in report.all(3, CONTENTS)[1].entries("<IIQQ") if entry[1] == PROBE_OBJECT}
    assert drained
    if layout == "root":
        assert min(drained) >= SLOTS
    else:  # by its path, too
        assert drained.issuperset(set(range(SLOTS)) - set(LIVE_AFTER_WORKLOAD))
        other = probe(runner, adapter(), folder / "case-0")
        assert other.one(0, SLOT_LIST).entries("<IIQ") == []


@pytest.mark.parametrize(
    ("head", "capabilities", "options", "words"),
    [
        ("slots 8 chain", None, [], "the workload's slots are `chain`, the heap's `root`; pass --slot-layout chain"),
        ("slots 8", None, ["chain"], "the workload's slots are `root`, the heap's `chain`; pass --slot-layout root"),
        (
            "slots 8 names",
            "FL_CAN_CHAIN",
            ["names"],
            "the workload needs `slots COUNT names`, which test does not have",
        ),
        (
            "slots 8 chain",
            "FL_CAN_NAMES",
            ["chain"],
            "the workload needs `slots COUNT chain`, which test does not have",
        ),
        (
            "slots 8 graph",
            None,
            ["graph"],
            "the workload needs `slots COUNT graph`, which test does not have",
        ),
    ],
)
def test_a_layout_that_the_adapter_lacks_is_bad_input(
    runner: Path,
    adapter: Callable[..., Path],
    folder: Path,
    head: str,
    capabilities: str | None,
    options: list[str],
    words: str,
) -> None:
    flags = [f"-DCAPABILITIES=FL_CAN_WALK|FL_CAN_CHECK|FL_CAN_THREADS|{capabilities}"] if capabilities else []
    layout = ["--slot-layout", *options] if options else []
    run = execute(runner, adapter("NONE", *flags), folder, WORKLOAD.replace("slots 8", head), 0, *layout)
    assert (run.returncode, words in error_line(run)) == (2, True)


THREADED = """workload 1
slots 8
case
allocate 0 100
thread 1 allocate 1 100
thread 2 allocate 2 100
thread 1 allocate 3 100
thread 3 allocate 4 64
join
thread 2 free 1
thread 1 reallocate 2 304
free 3
reopen
thread 2 free 4
thread 1 allocate 5 64
"""


def test_threads_run_what_the_file_says(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    for session in (0, 1):
        run = execute(runner, adapter(), folder, THREADED, session)
        assert (run.returncode, run.stderr) == (0, "")
    report = probe(runner, adapter(), folder / "case-0")
    assert contents(report) == {0: 96, 2: 304, 5: 64}


@pytest.mark.slow
def test_workers_do_not_race(built: Path, folder: Path) -> None:
    """Under the thread sanitizer, without the interposed calls, which it cannot start below."""
    sanitized = ["gcc", "-std=gnu11", "-O1", "-g", "-w", "-fsanitize=thread", "-D_GNU_SOURCE", "-pthread"]
    sanitized += [f"-I{ROOT / folder}" for folder in ("include", "runner", "pintools")]
    sources = [ROOT / source for source in runner_recipe(ROOT).sources]
    own = [str(source) for source in sources if source.parent.name != "calls"]
    subprocess.run([*sanitized, *own, "-rdynamic", "-ldl", "-o", str(built / "tsan-runner")], check=True)
    shared = [*sanitized, "-fPIC", "-shared", str(HERE / "test_adapter.c"), "-o", str(built / "tsan.so")]
    subprocess.run(shared, check=True)
    text = (
        generators.threads(200, 5).text()
        + "case\nthread 3 allocate 0 8\nthread 1 allocate 1 8\njoin\nthread 1 free 0\n"
    )
    options = ("--slots", "32", "--address-hint", "0x0")
    run = execute(built / "tsan-runner", built / "tsan.so", folder, text, 0, *options)
    assert (run.returncode, run.stderr) == (0, "")


def test_a_workload_of_threads_needs_an_adapter_with_threads(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    flags = ("-DCAPABILITIES=FL_CAN_WALK|FL_CAN_CHECK", "-DNO_THREADS")
    run = execute(runner, adapter("NONE", *flags), folder, THREADED)
    assert (run.returncode, "the workload has threads, which test does not support" in error_line(run)) == (2, True)
    assert execute(runner, adapter("NONE", *flags), folder, WORKLOAD).returncode == 0


def test_markers_say_how_far_a_session_is(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    """Each session goes on in the same file. No file system of a test machine grants MAP_SYNC."""
    markers = Path(f"{folder}.markers")
    text = "workload 1\nslots 8\ncase\nallocate 0 200\nreopen\nfree 0\n"
    for session in (0, 1):
        run = execute(runner, adapter(), folder, text, session, "--markers", str(markers))
        assert (run.returncode, run.stderr) == (0, "")
    words = [line.split() for line in markers.read_text().splitlines()]
    mapped = [(int(synced), int(others) > 0) for kind, synced, others in (w for w in words if w[0] == "mapped")]
    assert mapped == [(0, True), (0, True)]
    said = [" ".join(one) for one in words if one[0] != "mapped"]
    begun = [line.split()[1] for line in said if line.startswith("begin")]
    assert said[0] == "case 0"
    assert [line.split()[2] for line in said if line.startswith("begin")] == [
        *("create", "allocate", "close", "open", "free", "close")
    ]
    assert [line.split()[0] for line in said[1:]] == ["begin", "return"] * 6
    assert [line for line in said if line.startswith("return")] == [f"return {index} 0" for index in begun]


def test_markers_that_cannot_be_written_are_one_line(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    run = execute(runner, adapter(), folder, WORKLOAD, 0, "--markers", f"{folder}/no/such")
    assert (run.returncode, "cannot be written: No such file" in error_line(run)) == (3, True)


def test_sessions_hand_over_what_ran_out_of_memory(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    text = f"""workload 1
slots 8
case
allocate 0 100
allocate 1 {HEAP_BYTES}
reallocate 0 {HEAP_BYTES}
reopen
reallocate 0 300
free 1
reopen
reallocate 0 50
"""
    for session in range(3):
        run = execute(runner, adapter(), folder, text, session)
        assert (run.returncode, run.stderr) == (0, "")
    assert not Path(f"{folder}.session").exists()
    run = execute(runner, adapter(), folder, text, 3)
    assert (run.returncode, "has 3 sessions, counted from 0" in error_line(run)) == (2, True)
    run = execute(runner, adapter(), folder, text, 2)
    assert (run.returncode, "run the sessions in order" in error_line(run)) == (2, True)


def test_each_case_has_its_own_heap(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    run = execute(runner, adapter(), folder, WORKLOAD + "case\nallocate 0 64\n")
    assert (run.returncode, run.stderr) == (0, "")
    assert sorted(path.name for path in folder.iterdir()) == ["case-0", "case-1"]
    assert execute(runner, adapter(), folder, WORKLOAD).returncode == 2  # the folder is not empty


BOUNDARIES = [64, 1984, 2048, 8192]
GENERATED = [
    generators.smoke(),
    generators.churn(60, 3),
    generators.over_layout("chain", 60, 3),
    generators.over_layout("names", 60, 3),
    generators.sizes(BOUNDARIES),
    generators.reopen(60, 3),
    generators.fill(HEAP_BYTES),
    generators.threads(60, 3),
    sequences.ace(2, BOUNDARIES),
]


@pytest.mark.parametrize("workload", GENERATED, ids=lambda workload: workload.name)
def test_generated_workloads_run(runner: Path, adapter: Callable[..., Path], folder: Path, workload: Workload) -> None:
    """The harness writes them, the runner reads them: both count sessions and cases alike."""
    options = ("--slots", "64", "--slot-layout", workload.layout)
    for session in range(workload.session_count):
        run = execute(runner, adapter(), folder, workload.text(), session, *options)
        assert (run.returncode, run.stderr) == (0, "")
    assert len(list(folder.iterdir())) == workload.case_count
    run = execute(runner, adapter(), folder, workload.text(), workload.session_count, *options)
    assert f"has {workload.session_count} session" in error_line(run)


def test_a_workload_may_make_a_stream_of_a_descriptor(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    text = WORKLOAD + "reopen\n"
    for session in (0, 1):
        run = execute(runner, adapter("STREAM"), folder, text, session)
        assert run.returncode == 0, run.stderr
    Path(f"{folder}.session").unlink(missing_ok=True)


def test_an_error_of_the_adapter_ends_the_workload(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    text = WORKLOAD + "reopen\n"
    assert execute(runner, adapter("REFUSE"), folder, text).returncode == 0
    run = execute(runner, adapter("REFUSE"), folder, text, 1)
    assert run.returncode == 3
    assert "operation 7 (open of slot 0, 0 bytes) answered error: refused to open" in error_line(run)
    Path(f"{folder}.session").unlink()


# ---- twins ---------------------------------------------------------------------------------------------------------------


def run_twins(
    runner: Path, adapter: Path, folder: Path, text: str, plan: str | None = None, *more: str
) -> tuple[subprocess.CompletedProcess[bytes], dict[int, Report]]:
    workload = folder.parent / f"{folder.name}.workload"
    workload.write_text(text)
    plan_file = folder.parent / f"{folder.name}.plan"
    plan_file.write_text(plan or "")
    options = [] if plan is None else ["--plan", str(plan_file)]
    command = [str(runner), "twins", "--adapter", str(adapter), "--workload", str(workload), "--folder", str(folder)]
    run = subprocess.run([*command, *options, *GEOMETRY, *more], capture_output=True, check=False, timeout=60)
    workload.unlink()
    plan_file.unlink()
    twins: dict[int, Report] = {}
    at = 0
    while at < len(run.stdout):
        index, size = struct.unpack_from("<II", run.stdout, at)
        twins[index] = parse(run.stdout[at + 8 : at + 8 + size])
        at += 8 + size
    return run, twins


def test_twins_show_the_heap_after_each_operation(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    text = WORKLOAD + "reopen\nallocate 3 64\ncase\nallocate 0 64\n"
    run, twins = run_twins(runner, adapter(), folder, text)
    assert (run.returncode, run.stderr) == (0, b"")
    assert list(twins) == list(range(13))
    live = [[entry[0] for entry in twin.one(3, SLOT_LIST).entries("<IIQ")] for twin in twins.values()]
    first = [[], [0], [0, 1], [0, 1], [0, 1, 2], [0, 1]]
    assert live == [*first, [0, 1], [0, 1], [0, 1, 3], [0, 1, 3], [], [0], [0]]
    for twin in twins.values():
        assert (twin.outcome, twin.life, twin.stage) == (DONE, 6, OPEN)
        assert all(section.status == OK for section in twin.sections)
        free = sum(entry[3] for entry in twin.one(3, WALK).entries("<IIQQ") if entry[1] == 3)
        assert twin.one(3, DRAIN).value == free
        is_closed = any(twin is twins[index] for index in (6, 9, 12))
        assert emptied_open(twin) == ([] if is_closed else [OK, twin.one(5, DRAIN).value])
    assert list(folder.iterdir()) == []


def emptied_open(twin: Report) -> list[int]:
    """What a copy that was not closed answered: the status of freeing all, and the bytes that it then held."""
    stages = (twin.all(1, FREE_ALL), twin.all(1, DRAIN))
    return [stages[0][0].status, stages[1][0].value] if stages[0] else []


def slots_of(twin: Report) -> dict[int, int]:
    """Offset of each slot's object."""
    return {slot: offset for slot, _, offset in twin.one(3, SLOT_LIST).entries("<IIQ")}


PLANNED = """order 0 2 1 4 3 5 6 7 8 11 12
twin 0 0
twin 0 1
twin 0 0 1
twin 0 0 1 2
twin 0 0 2 1
twin 0 8
twin 0 8 11
twin 0 10
"""


def test_planned_twins_execute_their_history_alone(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    run, twins = run_twins(runner, adapter(), folder, THREADED, PLANNED)
    assert (run.returncode, run.stderr) == (0, b"")
    live = [set(slots_of(twin)) for twin in twins.values()]
    assert live == [set(), {1}, {0}, {0, 1}, {0, 1}, {0, 2, 4}, {0, 2}, {0, 2, 5}]
    for twin in twins.values():
        assert (twin.outcome, twin.life, twin.stage) == (DONE, 6, OPEN)
        assert emptied_open(twin) == [OK, twin.one(5, DRAIN).value]
    first_fit = slots_of(twins[3]), slots_of(twins[4])
    assert first_fit[0][0] < first_fit[0][1]  # in the order of the plan, not of the file
    assert first_fit[1][0] > first_fit[1][1]
    assert list(folder.iterdir()) == []


def test_a_planned_operation_that_has_no_effect_makes_no_twin(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    text = f"workload 1\nslots 8\ncase\nthread 1 allocate 0 64\nthread 2 allocate 1 {HEAP_BYTES}\n"
    run, twins = run_twins(runner, adapter(), folder, text, "order 0 1 2\ntwin 0 1 2\ntwin 0 2\n")
    assert (run.returncode, run.stderr) == (0, b"")
    assert set(slots_of(twins[0])) == {0}  # it was pending: out-of-memory is one of its ends
    assert twins[1].one(1, CLOSE).status == OUT_OF_MEMORY
    assert "operation 2 had no effect, which it had when it was traced" in twins[1].message()


@pytest.mark.parametrize(
    ("plan", "words"),
    [
        ("twin 1 0\n", "plan:1: case `1`, expected a number below 1; plan and workload must belong together"),
        ("order 0 0\n", "plan:1: operation 0 is none on a slot of case 0"),
        ("order 0 99\n", "plan:1: operation `99`, expected a number below"),
        ("order 0 1\ntwin 0 2\n", "plan:2: count `2`, expected a number below 2"),
        ("order 0 1\n\n", "plan:2: expected `order CASE INDEX...` or `twin CASE COUNT INDEX...`"),
        ("twin 0\n", "plan:1: expected `twin CASE COUNT INDEX...`"),
        (None, "the workload has threads: which histories are wanted must come with --plan FILE"),
    ],
)
def test_bad_plans_are_bad_input(
    runner: Path, adapter: Callable[..., Path], folder: Path, plan: str | None, words: str
) -> None:
    run, _ = run_twins(runner, adapter(), folder, THREADED, plan)
    assert (run.returncode, words in run.stderr.decode()) == (2, True), run.stderr


def test_a_planned_history_that_hangs_is_one_failed_twin(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    text = "workload 1\nslots 8\ncase\nthread 1 allocate 0 64\nthread 2 allocate 7 64\n"
    plan = "order 0 1 2\ntwin 0 0 2\ntwin 0 1\n"
    run, twins = run_twins(runner, adapter("HANG_AT_SLOT_7"), folder, text, plan, "--wall-limit-ms", "500")
    assert (run.returncode, run.stderr) == (0, b"")
    assert (twins[0].outcome, twins[0].message()) == (HUNG, "not done after 1500 ms")
    assert (twins[1].outcome, set(slots_of(twins[1]))) == (DONE, {0})
    assert list(folder.iterdir()) == []


def test_a_workload_that_hangs_without_a_crash_ends_the_twins(
    runner: Path, adapter: Callable[..., Path], folder: Path
) -> None:
    text = "workload 1\nslots 8\ncase\nallocate 0 64\nallocate 7 64\n"
    run, twins = run_twins(runner, adapter("HANG_AT_SLOT_7"), folder, text, None, "--wall-limit-ms", "500")
    assert (run.returncode, list(twins)) == (3, [0, 1])
    assert b"hung while it executed" in run.stderr
    assert run.stderr.endswith(b"not done after 1500 ms\n")


def test_twins_say_when_a_life_crashes(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    run, twins = run_twins(runner, adapter("CRASH"), folder, "workload 1\nslots 8\ncase\n")
    assert run.returncode == 0
    assert {(twin.outcome, twin.signal, twin.life) for twin in twins.values()} == {(SIGNAL, signal.SIGSEGV, 3)}


@pytest.mark.parametrize(
    ("behaviour", "end"),
    [
        ("CRASH_IN_DRAIN", f"died of signal {int(signal.SIGBUS)} while it emptied a copy of the heap"),
        ("SPIN_IN_DRAIN", f"died of signal {int(signal.SIGPROF)} while it emptied a copy of the heap"),
        ("SLEEP_IN_DRAIN", "hung while it emptied a copy of the heap: not done after 500 ms"),
    ],
)
def test_a_copy_that_dies_while_it_is_emptied_is_told(
    runner: Path, adapter: Callable[..., Path], folder: Path, behaviour: str, end: str
) -> None:
    limits = ("--cpu-limit-ms", "200", "--wall-limit-ms", "500" if behaviour == "SLEEP_IN_DRAIN" else "10000")
    run, twins = run_twins(runner, adapter(behaviour), folder, "workload 1\nslots 8\ncase\n", None, *limits)
    assert (run.returncode, run.stderr, list(twins)) == (0, b"", [0, 1])
    assert (twins[0].life, twins[0].one(1, CLOSE).status, twins[0].all(1, DRAIN)) == (3, OK, [])
    assert twins[0].message() == f"the target {end}"
    assert list(folder.iterdir()) == []


# ---- probe, check-adapter, options -----------------------------------------------------------------------------------------


def call(runner: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([str(runner), *arguments], capture_output=True, text=True, check=False)


def test_probe_prints_a_report_and_leaves_the_folder_alone(
    runner: Path, adapter: Callable[..., Path], folder: Path, image: bytes
) -> None:
    (folder / "heap").write_bytes(image)
    command = ["probe", "--adapter", str(adapter("PWRITE")), "--folder", str(folder), *GEOMETRY]
    text = call(runner, *command, "--full", "--text")
    assert (text.returncode, text.stderr) == (0, "")
    assert text.stdout.startswith("outcome: done, in life 6, open\n")
    assert "slot 1: bytes 0 to 16 hold object 3" in text.stdout
    raw = subprocess.run([str(runner), *command], capture_output=True, check=True)
    assert parse(raw.stdout).outcome == DONE
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {"heap": image}


def test_a_bus_error_without_free_space_is_no_finding(
    runner: Path, adapter: Callable[..., Path], folder: Path, image: bytes
) -> None:
    """The limit is more than the file system has free, so the store may have met its end."""
    (folder / "heap").write_bytes(image)
    command = ["probe", "--adapter", str(adapter("CRASH_IN_DRAIN")), "--folder", str(folder), "--full"]
    enough = subprocess.run([str(runner), *command, *GEOMETRY], capture_output=True, check=True)
    assert (parse(enough.stdout).outcome, parse(enough.stdout).signal) == (SIGNAL, signal.SIGBUS)
    geometry = [*GEOMETRY, "--limit-bytes", str(1 << 46)]
    full = subprocess.run([str(runner), *command, *geometry], capture_output=True, check=True)
    assert parse(full.stdout).outcome == BROKEN
    assert b"no free space" in full.stdout


def test_serve_wants_room_for_an_image_and_its_copy(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    command = ["serve", "--adapter", str(adapter()), "--folder", str(folder), *GEOMETRY, "--limit-bytes", str(1 << 46)]
    run = call(runner, *command)
    assert (run.returncode, run.stderr.count("\n")) == (3, 1)
    assert "are needed for images; free space there or choose another folder" in run.stderr


def test_check_adapter_prints_name_and_capabilities(runner: Path, adapter: Callable[..., Path]) -> None:
    run = call(runner, "check-adapter", "--adapter", str(adapter()))
    assert (run.returncode, run.stdout, run.stderr) == (0, "test walk check threads names chain\n", "")


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("-DNO_SYMBOL",), "no symbol faultline_adapter"),
        (("-DABI=9",), "adapter of ABI version 9, expected 8"),
        (("-DNO_REALLOCATE",), "adapter test has no function reallocate, which is required"),
        (("-DNO_WALK",), "adapter test has no function walk, which is promised by a capability bit"),
        (("-DCAPABILITIES=FL_CAN_LINK",), "adapter test has capability link without walk"),
        (("-DCAPABILITIES=FL_CAN_WALK",), "adapter test has a function check but not its capability bit"),
    ],
)
def test_bad_adapters_are_refused(
    runner: Path, adapter: Callable[..., Path], flags: tuple[str, ...], message: str
) -> None:
    run = call(runner, "check-adapter", "--adapter", str(adapter("NONE", *flags)))
    assert run.returncode == 2
    assert message in error_line(run)


def test_what_is_no_adapter_at_all_is_refused(runner: Path, folder: Path) -> None:
    run = call(runner, "check-adapter", "--adapter", str(folder / "missing.so"))
    assert (run.returncode, "No such file or directory" in error_line(run)) == (2, True)
    (folder / "text.so").write_text("no shared object")
    run = call(runner, "check-adapter", "--adapter", str(folder / "text.so"))
    assert (run.returncode, "not an adapter that can be loaded" in error_line(run)) == (2, True)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--heap-bytes", "1000", "--heap-bytes 1000: expected a multiple of 4096"),
        ("--heap-bytes", "8M", "--heap-bytes 8M: expected a whole number"),
        ("--heap-bytes", "-4096", "--heap-bytes -4096: expected a whole number"),
        ("--limit-bytes", "4096", f"--limit-bytes 4096: expected at least --heap-bytes ({HEAP_BYTES})"),
        ("--slots", "0", "--slots 0: expected 1 to 65536"),
        ("--address-hint", "1", "--address-hint 0x1: expected a multiple of 4096"),
        ("--cpu-limit-ms", "0", "--cpu-limit-ms 0: expected 1 to one day"),
        ("--folder", "/nonexistent", "/nonexistent: folder: No such file or directory"),
    ],
)
def test_nonsense_is_refused(
    runner: Path, adapter: Callable[..., Path], folder: Path, option: str, value: str, message: str
) -> None:
    run = call(runner, "serve", "--adapter", str(adapter()), "--folder", str(folder), *GEOMETRY, f"{option}={value}")
    assert run.returncode == 2
    assert message in error_line(run)


def test_missing_and_unknown_options_and_commands_are_refused(runner: Path) -> None:
    assert "serve needs --adapter FILE" in error_line(call(runner, "serve"))
    assert "no command `explode`" in error_line(call(runner, "explode"))
    assert call(runner, "serve", "--explode").returncode == 2
    assert call(runner).returncode == 2
    assert call(runner, "--help").returncode == 0
