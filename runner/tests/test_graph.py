# SPDX-License-Identifier: Apache-2.0
"""The runner on objects that point to each other, driven over makalu: the workload file's operations, the objects of a heap report,
and the conservative mark."""

from __future__ import annotations

import ctypes
import random
import shutil
import struct
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest
from test_runner import (
    CONTENTS,
    DONE,
    DRAIN,
    GEOMETRY,
    NOT_A_HEAP,
    OBJECTS,
    OK,
    OPEN,
    OUT_OF_MEMORY,
    RECREATE,
    RETAINED,
    SLOT_LIST,
    WALK,
    Report,
    error_line,
    execute,
    parse,
    probe,
    run_twins,
)

from faultline.pipeline.build import flush_definition
from faultline.pipeline.environment import best_flush
from faultline.workload import graph_generators
from faultline.workload.operations import Workload

ROOT = Path(__file__).resolve().parents[2]
ALLOCATED = 1
FIELDS_BYTES = 16
LAYOUT = ("--slot-layout", "graph")


@pytest.fixture(scope="session")
def makalu(built: Path) -> Path:
    path, folder = built / "makalu.so", ROOT / "allocators/makalu"
    build = tomllib.loads((folder / "allocator.toml").read_text())["build"]
    sources = [str(source) for glob in build["sources"] + build["adapter"] for source in folder.glob(glob)]
    command = ["gcc", "-std=gnu11", "-O1", "-g", "-D_GNU_SOURCE", "-fPIC", "-shared", *build["flags"]]
    command += [flush_definition(best_flush())]  # class Heap loads it
    command += ["-I", str(ROOT / "include"), "-I", str(folder / "src"), *sources]
    subprocess.run([*command, "-o", str(path), "-lpthread"], check=True)
    return path


def graph_workload(lines: str) -> str:
    """One operation between two semicolons."""
    return "\n".join(["workload 1", "slots 8 graph", "case", *(line.strip() for line in lines.split(";"))]) + "\n"


def run_graph(runner: Path, makalu: Path, folder: Path, lines: str) -> Path:
    """The region that the workload leaves, closed."""
    text = graph_workload(lines)
    for session in range(text.count("reopen") + 1):
        run = execute(runner, makalu, folder, text, session, *LAYOUT)
        assert (run.returncode, run.stderr) == (0, "")
    return folder / "case-0/region"


# ---- the conservative mark -------------------------------------------------------------------------------------------------


class Marking(ctypes.Structure):
    """struct marking of probe/probe.h."""

    CONTENT = ctypes.CFUNCTYPE(ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.POINTER(ctypes.c_uint64))
    TARGET = ctypes.CFUNCTYPE(ctypes.c_size_t, ctypes.c_void_p, ctypes.c_uint64)
    _fields_ = (
        ("block_count", ctypes.c_size_t),
        ("content", CONTENT),
        ("target", TARGET),
        ("context", ctypes.c_void_p),
    )


@pytest.fixture(scope="session")
def mark(alone: Callable[[str, str], ctypes.CDLL]) -> ctypes.CDLL:
    return alone("probe/mark.c", "void report_broken(const char *message) { (void)message; abort(); }")


def random_heap(chance: random.Random) -> list[tuple[int, bytes]]:
    """Blocks that do not overlap: address, content. Their words are numbers, pointers to the start of blocks, into them, to their
    ends and between them; some of each are not aligned."""
    heap: list[tuple[int, int]] = []
    address = 1 << 20
    for _ in range(chance.randrange(1, 60)):
        size = chance.choice([8, 16, 24, 30, 64, 100, 500])
        heap.append((address, size))
        address += size + chance.choice([0, 8, 40])
    density = chance.choice([0.01, 0.05, 0.3])
    blocks = []
    for start, size in heap:
        content = bytearray(chance.randbytes(size))
        for at in range(0, size - 7, 4):
            if chance.random() < density:
                target, target_size = chance.choice(heap)
                content[at : at + 8] = struct.pack(
                    "<Q", target + chance.choice([0, 1, 7, target_size - 1, target_size])
                )
        blocks.append((start, bytes(content)))
    return blocks


def block_of(heap: list[tuple[int, bytes]], word: int) -> int | None:
    found = [number for number, (start, content) in enumerate(heap) if start <= word < start + len(content)]
    return found[0] if found else None


def closure(heap: list[tuple[int, bytes]], roots: set[int]) -> set[int]:
    """By brute force: again and again over all words of all reached blocks, until nothing is new."""
    reached = set(roots)
    while True:
        words = [
            word
            for number in reached
            for (word,) in struct.iter_unpack("<Q", heap[number][1][: len(heap[number][1]) // 8 * 8])
        ]
        more = reached | {block for word in words if (block := block_of(heap, word)) is not None}
        if more == reached:
            return reached
        reached = more


def marked(mark: ctypes.CDLL, heap: list[tuple[int, bytes]], roots: set[int]) -> tuple[set[int], list[int]]:
    """What mark_conservatively marks, and which blocks it looked at, in order."""
    buffers = [ctypes.create_string_buffer(content, len(content)) for _, content in heap]
    looked_at = []

    def content(_: int, number: int, size: ctypes._Pointer[ctypes.c_uint64]) -> int:
        looked_at.append(number)
        size[0] = len(heap[number][1])
        return ctypes.addressof(buffers[number])

    def target(_: int, word: int) -> int:
        number = block_of(heap, word)
        return ctypes.c_size_t(-1).value if number is None else number

    marks = (ctypes.c_uint8 * len(heap))(*(number in roots for number in range(len(heap))))
    mark.mark_conservatively(
        ctypes.byref(Marking(len(heap), Marking.CONTENT(content), Marking.TARGET(target), None)), marks
    )
    return {number for number in range(len(heap)) if marks[number]}, looked_at


@pytest.mark.parametrize("seed", range(40))
def test_the_mark_is_the_closure(mark: ctypes.CDLL, seed: int) -> None:
    chance = random.Random(seed)
    heap = random_heap(chance)
    roots = {number for number in range(len(heap)) if chance.random() < 0.1}
    reached, looked_at = marked(mark, heap, roots)
    assert reached == closure(heap, roots)
    assert sorted(looked_at) == sorted(reached)  # each once


def test_a_long_chain_and_the_last_word_of_a_block_are_followed(mark: ctypes.CDLL) -> None:
    length = 50
    words = [struct.pack("<3Q", 0, 0, (1 << 20) + 24 * (number + 1) + 23) for number in range(length)]
    heap = [((1 << 20) + 24 * number, content) for number, content in enumerate(words)]
    assert marked(mark, heap, {0})[0] == set(range(length))
    assert marked(mark, heap, {length - 1})[0] == {length - 1}


# ---- objects ---------------------------------------------------------------------------------------------------------------


def objects(report: Report, life: int = 0) -> list[tuple[int, list[int | None]]]:
    """Offset, and what the fields hold."""
    entries = report.one(life, OBJECTS).entries("<IIQIIQIIQ")
    return [
        (offset, [place if is_set else None for is_set, place in ((entry[4], entry[5]), (entry[7], entry[8]))])
        for entry in entries
        for offset in (entry[2],)
    ]


def contents(report: Report, life: int = 1, stage: int = 0) -> dict[int, int]:
    """By object: the id that its first byte shows."""
    return {
        entry[0]: entry[1] for entry in report.all(life, CONTENTS)[stage].entries("<IIQQ") if entry[1] and entry[2] == 0
    }


def slots(report: Report) -> dict[int, int]:
    return {slot: offset for slot, _, offset in report.one(0, SLOT_LIST).entries("<IIQ")}


# Objects 2 to 6; 5 is reached through 3 and 4 only, 3 is in two slots, 4 and 6 form a cycle, 7 is garbage.
GRAPH = """allocate 0 100; allocate 1 200; allocate 2 40; allocate 3 300; allocate 4 50; allocate 5 60
    ; link 0 0 1; link 0 1 2; link 1 0 3; link 2 0 3; link 2 1 4; link 4 0 2; link 4 1 4
    ; drop 4; drop 3; load 6 1 0; drop 5; drop 6; load 7 0 0"""


@pytest.mark.slow
def test_objects_are_told_breadth_first_with_their_contents(runner: Path, makalu: Path, folder: Path) -> None:
    run_graph(runner, makalu, folder, GRAPH.replace("\n", " "))
    report = probe(runner, makalu, folder / "case-0", "graph")
    assert (report.outcome, report.life) == (DONE, 6)
    told = objects(report)
    places = [offset for offset, _ in told]
    root = slots(report)
    assert [root[0], root[1], root[2]] == places[:3]
    assert root[7] == root[1]
    assert [[place and places.index(place) for place in fields] for _, fields in told] == [
        [1, 2],
        [3, None],
        [3, 4],
        [None, None],
        [2, 4],
    ]
    assert contents(report) == {0: 2, 1: 3, 2: 4, 3: 5, 4: 6}
    for life in (2, 3):
        assert objects(report, life) == told
        assert contents(report, life) == contents(report)
    *again, (_, fields) = objects(report, 4)
    assert (again, fields) == (told, [None, None]), "and what the maximal allocation left, in a slot behind the graph's"
    assert contents(report, 4) == {**contents(report), len(told): 0xFFFFFF}
    assert [contents(report, 3, stage) for stage in (1, 2)] == [contents(report)] * 2
    assert report.one(0, RETAINED).value == 1
    assert report.one(0, RETAINED).entries("<IIQQ") == []


def test_there_are_no_objects_without_fields(runner: Path, makalu: Path, folder: Path) -> None:
    text = "workload 1\nslots 8\ncase\nallocate 0 64\n"
    assert execute(runner, makalu, folder, text).returncode == 0
    report = probe(runner, makalu, folder / "case-0")
    assert [section.kind for section in report.sections if section.kind in (OBJECTS, RETAINED)] == []


@pytest.mark.parametrize("word", ["wild", "metadata", "inside", "end", "free"])
def test_a_field_may_hold_anything(runner: Path, makalu: Path, folder: Path, word: str) -> None:
    region = run_graph(runner, makalu, folder, "allocate 0 100; allocate 1 200; link 0 0 1; allocate 2 3000; free 2")
    before = probe(runner, makalu, folder / "case-0", "graph")
    (start, (target, _)), _ = objects(before)
    assert target is not None
    free = next(
        offset for _, state, offset, _ in before.one(0, WALK).entries("<IIQQ") if state == 3 and offset > target
    )
    base = 0x200000000000
    value = {
        "wild": 0xFFFFFFFFFFFFFFF8,
        "metadata": base + 64,
        "inside": base + target,
        "end": base + region.stat().st_size,
        "free": base + free,
    }[word]
    with region.open("r+b") as file:
        file.seek(start - FIELDS_BYTES)
        file.write(struct.pack("<Q", value))
    report = probe(runner, makalu, folder / "case-0", "graph")
    assert report.one(0, OPEN).status == OK
    told = objects(report)
    place = (value + FIELDS_BYTES - base) % 2**64
    assert told[0][1][0] == place
    others = [place] if word == "inside" else []
    assert [offset for offset, _ in told] == [start, target, *others]


def test_more_objects_than_the_bound_are_said(runner: Path, makalu: Path, folder: Path) -> None:
    """One list of 65537 objects."""
    lines = ["allocate 0 8"]
    for number in range(1, 65537):
        first, second = (number + 1) % 2, number % 2
        lines += [f"allocate {second} 8", f"link {second} 0 {first}", f"drop {first}"]
    large = ("--heap-bytes", str(1 << 23), "--limit-bytes", str(1 << 23), *LAYOUT)
    run = execute(runner, makalu, folder, graph_workload(";".join(lines)), 0, *large)
    assert (run.returncode, run.stderr) == (0, "")
    command = [str(runner), "probe", "--adapter", str(makalu), "--folder", str(folder / "case-0"), *GEOMETRY, *large]
    report = parse(subprocess.run(command, capture_output=True, check=True).stdout)
    section = report.one(0, OBJECTS)
    assert (section.status, section.count) == (OUT_OF_MEMORY, 65536)


# ---- retained --------------------------------------------------------------------------------------------------------------


def test_what_a_stale_word_reaches_is_retained(runner: Path, makalu: Path, folder: Path) -> None:
    """Slot 0's object is live; 1 and 2 become garbage, 1 points to 2; 3 is garbage that nothing points to."""
    lines = "allocate 0 100; allocate 1 1000; allocate 2 1100; allocate 3 1200; link 1 1 2"
    region = run_graph(runner, makalu, folder, lines)
    places = {
        slot: offset - FIELDS_BYTES for slot, offset in slots(probe(runner, makalu, folder / "case-0", "graph")).items()
    }
    shutil.rmtree(folder / "case-0")
    region = run_graph(runner, makalu, folder, lines + "; drop 1; drop 2; drop 3")
    with region.open("r+b") as file:
        file.seek(places[0] + 104)  # into its last bytes: 100 are the application's, after 16 of fields
        file.write(struct.pack("<Q", 0x200000000000 + places[1] + 500))
    section = probe(runner, makalu, folder / "case-0", "graph").one(0, RETAINED)
    assert section.value == 3
    assert [(state, offset) for _, state, offset, _ in section.entries("<IIQQ")] == [
        (ALLOCATED, offset) for offset in sorted((places[1], places[2]))
    ]


# ---- workloads and twins ---------------------------------------------------------------------------------------------------


def test_out_of_memory_ends_the_case(runner: Path, makalu: Path, folder: Path) -> None:
    lines = """allocate 0 100; allocate 1 4000000; allocate 2 8; link 0 0 1; drop 0; reopen; free 1; allocate 3 16
        ; case; allocate 0 24; link 0 0 0"""
    run_graph(runner, makalu, folder, lines.replace("\n", " "))
    first = probe(runner, makalu, folder / "case-0", "graph")
    assert list(slots(first)) == [0]
    assert contents(first) == {0: 2}
    second = probe(runner, makalu, folder / "case-1", "graph")
    assert contents(second) == {0: 13}


def test_twins_collect_before_they_drain(runner: Path, makalu: Path, folder: Path) -> None:
    """Whether the object was freed or lost, the twin's capacity is the same; that of the closed heap, probed, is not."""
    capacities = []
    for end in ("free 1", "drop 1"):
        text = graph_workload(f"allocate 0 100; allocate 1 100000; {end}")
        run, twins = run_twins(runner, makalu, folder, text, None, *LAYOUT)
        assert (run.returncode, run.stderr) == (0, b"")
        assert sorted(twins) == list(range(5))
        capacities.append(twins[3].one(3, DRAIN).value)
        shutil.rmtree(folder)
        folder.mkdir()
    assert capacities[0] == capacities[1]
    run_graph(runner, makalu, folder, "allocate 0 100; allocate 1 100000; drop 1")
    assert probe(runner, makalu, folder / "case-0", "graph").one(3, DRAIN).value < capacities[0]


@pytest.mark.parametrize(
    "workload", [graph_generators.graph(120, 3), graph_generators.resur(80, 3, 1 << 20)], ids=lambda each: each.name
)
def test_generated_workloads_run(runner: Path, makalu: Path, folder: Path, workload: Workload) -> None:
    options = ("--slots", "64", *LAYOUT)
    for session in range(workload.session_count):
        run = execute(runner, makalu, folder, workload.text(), session, *options)
        assert (run.returncode, run.stderr) == (0, "")
    assert len(list(folder.iterdir())) == workload.case_count


ONE, TWO = "allocate 0 8", "allocate 0 8; allocate 1 8"


@pytest.mark.parametrize(
    ("lines", "message"),
    [
        (f"{ONE}; link 0 2 0", "5: field is `2`, expected a whole number from 0 to 1"),
        (f"{ONE}; link 0 0", "5: expected `link SLOT FIELD TARGET`"),
        (f"{ONE}; link 0 0 8", "5: slot is `8`, expected a whole number from 0 to 7"),
        (f"{ONE}; link 0 0 1", "5: link: slot 1 is empty; allocate it first"),
        (f"{ONE}; link 1 0 0", "5: link: slot 1 is empty; allocate it first"),
        (f"{ONE}; unlink 0", "5: expected `unlink SLOT FIELD`"),
        (f"{ONE}; unlink 1 0", "5: unlink: slot 1 is empty; allocate it first"),
        ("drop 0", "4: drop: slot 0 is empty; allocate it first"),
        (f"{ONE}; drop 0 1", "5: expected `drop SLOT`"),
        (f"{ONE}; load 1 0", "5: expected `load SLOT FROM FIELD`"),
        (f"{ONE}; load 1 0 0", "5: load: field 0 of the object in slot 0 is null; link it first"),
        (f"{ONE}; load 1 2 0", "5: load: slot 2 is empty; allocate it first"),
        (f"{TWO}; link 0 0 1; load 1 0 0", "7: load: slot 1 is in use; free or drop it first"),
        (f"{TWO}; allocate 1 8", "6: allocate: slot 1 is in use; free or drop it first"),
        (
            f"{TWO}; link 0 1 1; free 1",
            "7: free: the object in slot 1 is still linked from slot 0's field 1: unlink it first",
        ),
        (
            f"{TWO}; link 1 1 1; reallocate 1 9",
            "7: reallocate: the object in slot 1 is still linked from slot 1's field 1: unlink it first",
        ),
        (
            f"{TWO}; allocate 2 8; link 0 0 1; link 1 0 2; drop 1; free 2",
            "10: free: the object in slot 2 is still linked from field 0 of an object that slot 0 reaches: unlink it first",
        ),
        (f"{TWO}; link 0 0 1; load 2 0 0; free 1", "8: free: the object in slot 1 is in slot 2 too: drop that first"),
        (
            "thread 1 allocate 0 8",
            "4: `thread`: with `slots COUNT graph` every operation is the main thread's; leave `thread N` out",
        ),
        (
            "unlnk 0 0",
            "4: `unlnk` is no operation, expected case, reopen, join, thread, allocate, free, reallocate, link,",
        ),
    ],
)
def test_bad_lines_are_named(runner: Path, makalu: Path, folder: Path, lines: str, message: str) -> None:
    run = execute(runner, makalu, folder, graph_workload(lines), 0, *LAYOUT)
    assert run.returncode == 2
    assert f"{folder.name}.workload:{message}" in error_line(run)


@pytest.mark.parametrize("line", ["link 0 0 0", "unlink 0 0", "drop 0", "load 1 0 0"])
def test_fields_need_the_graph_layout(runner: Path, makalu: Path, folder: Path, line: str) -> None:
    run = execute(runner, makalu, folder, f"workload 1\nslots 8\ncase\nallocate 0 8\n{line}\n")
    assert run.returncode == 2
    assert ":5: " in error_line(run)
    assert "needs `slots COUNT graph`" in error_line(run)


def test_garbage_holds_nothing_up(runner: Path, makalu: Path, folder: Path) -> None:
    run_graph(runner, makalu, folder, f"{TWO}; link 0 0 1; drop 0; free 1; allocate 1 8; reallocate 1 9")


# ---- makalu's deferred frees -----------------------------------------------------------------------------------------------


class Options(ctypes.Structure):
    """struct fl_heap_options of adapter.h."""

    _fields_ = (
        ("folder", ctypes.c_char_p),
        ("heap_bytes", ctypes.c_uint64),
        ("limit_bytes", ctypes.c_uint64),
        ("slot_count", ctypes.c_uint32),
        ("flags", ctypes.c_uint32),
        ("address_hint", ctypes.c_size_t),
        ("slot_layout", ctypes.c_uint32),
        ("layout_slots", ctypes.c_uint32),
    )


class Heap:
    """makalu's adapter in this process, over its table (struct fl_adapter): after a head of 24 bytes, functions in this order."""

    FUNCTIONS = (
        "create",
        "open",
        "close",
        "allocate",
        "free",
        "reallocate",
        "read_slot",
        "file_name",
        "message",
        "walk",
    )
    FILL = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_uint64, ctypes.c_uint64)
    VISIT = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint32))

    def __init__(self, makalu: Path, folder: Path) -> None:
        self.library = ctypes.CDLL(str(makalu))
        self.library.faultline_adapter.restype = ctypes.c_size_t
        table = self.library.faultline_adapter()
        self.pointers = dict(
            zip(self.FUNCTIONS, (ctypes.c_size_t * len(self.FUNCTIONS)).from_address(table + 24), strict=True)
        )
        self.heap = ctypes.c_void_p()
        options = Options(str(folder).encode(), 1 << 20, 1 << 20, 8, 0, 0x200000000000, 3, 8)
        self.call("create", ctypes.byref(options), ctypes.byref(self.heap))

    def call(self, name: str, *arguments: object) -> None:
        assert ctypes.CFUNCTYPE(ctypes.c_int)(self.pointers[name])(*arguments) == OK

    def allocate(self, slot: int, size: int) -> None:
        self.call("allocate", self.heap, slot, ctypes.c_uint64(size), self.FILL(lambda *_: None), None)

    def free(self, slot: int) -> None:
        self.call("free", self.heap, slot)

    def allocated(self) -> int:
        states: list[int] = []
        self.call("walk", self.heap, self.VISIT(lambda _, block: states.append(block[1])), None)
        return states.count(ALLOCATED)


def test_frees_are_deferred_until_later_ones_or_memory_is_short(makalu: Path, folder: Path) -> None:
    heap = Heap(makalu, folder)
    for slot in range(6):
        heap.allocate(slot, 100000)
    allocated = []
    for slot in range(6):
        heap.free(slot)
        allocated.append(heap.allocated())
    heap.allocate(0, 700000)
    allocated.append(heap.allocated())
    heap.call("close", heap.heap)
    assert allocated == [6, 6, 6, 5, 4, 3, 1]


def test_the_adapter_keeps_its_names_to_itself(runner: Path, makalu: Path, folder: Path) -> None:
    """The runner has a function `fail` too, which ends the process."""
    report = probe(runner, makalu, folder, "graph")
    assert (report.outcome, report.one(0, OPEN).status, report.one(1, RECREATE).status) == (DONE, NOT_A_HEAP, OK)
