# SPDX-License-Identifier: Apache-2.0
"""Heaps of several files, from the target's system calls to what its recovery sees. Files are made, grown, cut, punched, renamed,
renamed over one another, unlinked, written and mapped, and power fails before, inside and after each of these. What each image must
be says the reference of the persistency model (reference/px86.py), of traces that the tracer made and of random ones; what
recovery saw of it, and of its own changes to it, says the adapter in files/, which takes an inventory before and after."""

from __future__ import annotations

import itertools
import json
import os
import random
import re
import struct
import subprocess
import zlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exploration.files_project import files_project
from exploration.traced import read_events
from faultline.base import config
from faultline.base.cache import Cache, scratch_folder
from faultline.pipeline.build import build_adapter
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import engine_config
from faultline.pipeline.prepared import PreparedCell, build_cell, trace_cell
from faultline.pipeline.trace import Trace
from faultline.pipeline.workshop import Workshop
from faultline.workload import file_format
from reference.px86 import LINE_BYTES, Px86
from reference.trace_writer import (
    Event,
    Fence,
    FenceKind,
    FileBegin,
    FileEnd,
    Flush,
    FlushKind,
    Operation,
    Remap,
    Store,
    StoreKind,
    trace_bytes,
)

HERE = Path(__file__).resolve().parent
CHECK, MESSAGE, DONE = 5, 12, 0
LIMIT_S = 300
SEEDS = 10
STEPS = 60
"""Events of a random trace, about."""
MOST_STATES = 16
"""Of a random trace: each is a recovery."""
PATHS = ("a", "b", "c", "slots")
SIZES = (1, 100, 192, 4096 + 40, 8192)
WORKLOAD = """workload 1
slots 4
case
allocate 0 40
allocate 1 100
reallocate 0 130
reallocate 0 70
reallocate 1 20
reallocate 1 90
free 1
allocate 2 8
free 0
allocate 1 60
reopen
reallocate 1 200
reallocate 1 72
free 2
"""
"""Longer and shorter again, by whole lines and within one; a file number used again; a second session."""

Files = dict[str, bytes]


# ---- what must be seen ---------------------------------------------------------------------------------------------------


def files_of(image: str, below: str = "") -> Files:
    """An image as Px86.images prints it."""
    files = {}
    for text in filter(None, image.split(";")):
        path, size, lines = text.split(":")
        content = bytearray(int(size))
        for line in filter(None, lines.split(",")):
            number, data = line.split("=")
            place = int(number) * LINE_BYTES
            content[place : place + len(data) // 2] = bytes.fromhex(data)
        if path.startswith(below):
            files[path.removeprefix(below)] = bytes(content)
    return files


def inventory(files: Files) -> str:
    return "".join(f" {name}:{len(files[name])}:{zlib.crc32(files[name]):08x}" for name in sorted(files))


def mangled(files: Files) -> Files:
    """What files/adapter.c leaves with MANGLE."""
    left = dict(files)
    for number, name in enumerate(sorted(files)):
        content = bytearray(files[name])
        size = len(content)
        if size:
            content[size // 2] ^= 0xFF
            if number % 5 == 1:
                content[: size // 3 + 1] = bytes(size // 3 + 1)
        left[name] = bytes(content[: size // 2] if number % 5 == 0 else content)
        if number % 5 == 2:
            left[f"{name}.moved"] = left.pop(name)
        elif number % 5 == 3:
            del left[name]
    old = left.get("left", b"")
    left["left"] = old[:60].ljust(60, b"\0") + b"left" + old[64:100].ljust(36, b"\0")
    return left


def recovered(files: Files) -> Files:
    """What files/adapter.c leaves of a heap."""
    left = dict(files)
    magic, count, opened = struct.unpack_from("<QQQ", files["slots"])
    wanted = {struct.unpack_from("<Q", files["slots"], LINE_BYTES + 16 * slot)[0] for slot in range(count)}
    left["slots"] = struct.pack("<QQQ", magic, count, opened + 1) + files["slots"][24:]
    for name in [name for name in files if name != "slots"]:
        if name.endswith(".new") or int(name) not in wanted:
            del left[name]
            continue
        size = struct.unpack_from("<Q", files[name], 8)[0]
        left[name] = files[name][: LINE_BYTES + (size + LINE_BYTES - 1) // LINE_BYTES * LINE_BYTES]
    return left


def positions(events: Sequence[Event], below: str = "") -> Iterator[list[Files]]:
    """The images of each crash position, as files below a folder."""
    model = Px86()
    for event in events:
        if isinstance(event, Remap):
            continue
        model.step(event)
        images = model.images()
        assert images is not None
        yield [files_of(image, below) for image in images]


def new_inventories(images: Iterator[list[Files]]) -> list[set[str]]:
    """Of each crash position, the inventories of images that no position before had."""
    seen: set[str] = set()
    found = []
    for files in images:
        here = {inventory(some) for some in files} - seen
        seen |= here
        found.append(here)
    return found


# ---- what is seen --------------------------------------------------------------------------------------------------------

RUNNER = """#!/bin/sh
[ "$1" = serve ] || exec {runner} "$@"
{runner} "$@" | tee {answers}
"""


def messages(answers: bytes) -> Iterator[str]:
    """Of each heap report, in order, what check said."""
    at = 0
    while at < len(answers):
        (length,) = struct.unpack_from("<I", answers, at)
        report, at = answers[at + 4 : at + 4 + length], at + 4 + length
        if not report.startswith(b"FLHR"):  # recovery stages, or which engine did the runs
            continue
        assert struct.unpack_from("<I", report, 16)[0] == DONE
        place, text = 32, ""
        while place < len(report):
            kind, _, _, _, size, value = struct.unpack_from("<HHIIIQ", report, place)
            payload = report[place + 24 : place + 24 + size]
            place += 24 + (size + 7) // 8 * 8
            text += payload.decode() if (kind, value) == (MESSAGE, CHECK) else ""
        yield text


@dataclass
class Bench:
    """The allocator in files/, and what builds, traces and explores it."""

    root: Path
    cache: Cache
    engine: Engine
    folder: Path

    @property
    def allocator(self) -> config.Allocator:
        return config.find_allocator(self.root, "files")

    def prepared(self, mutant: str | None, text: str = WORKLOAD) -> PreparedCell:
        workshop = Workshop(self.root, self.cache, self.engine)
        spec = CellSpec("files", "files", 0, 1, strategy="exhaustive", model="px86", flush="clwb", mutant=mutant)
        return trace_cell(workshop, spec, build_cell(workshop, spec), file_format.parse(text, "files"))

    def config(self, mutant: str | None, text: str = WORKLOAD, **changes: Any) -> tuple[Path, Trace]:
        cell = self.prepared(mutant, text)
        written = engine_config(cell, self.folder)
        if given := os.environ.get("FAULTLINE_TEST_RUNNER"):  # of planted/builds.py
            written["runner"] = given
        return self.write(written, **changes), cell.trace

    def write(self, written: dict[str, Any], **changes: Any) -> Path:
        contract = written["contract"] | changes.pop("contract", {})
        path = self.folder / "config.json"
        path.write_bytes(msgspec.json.encode({**written, "contract": contract, **changes}))
        return path

    def random(self, events: Sequence[Event], **changes: Any) -> Path:
        """The configuration of a trace that is not of this allocator."""
        mangling = build_adapter(self.root, self.cache, self.allocator, "MANGLE", "clwb").path
        path, _ = self.config(None)
        (self.folder / "random.trace").write_bytes(trace_bytes(events))
        return self.write(
            json.loads(path.read_text()),
            trace=str(self.folder / "random.trace"),
            adapter=str(mangling),
            probe="first",
            **changes,
        )

    def run(self, *arguments: str | Path) -> list[dict[str, Any]]:
        command = [str(self.engine.path), *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert run.returncode in (0, 1, 3), run.stderr
        return [json.loads(line) for line in run.stdout.splitlines()]

    def seen(self, path: Path) -> list[str]:
        """What each recovery of an exploration saw, in order."""
        written, answers, runner = json.loads(path.read_text()), self.folder / "answers", self.folder / "runner"
        runner.write_text(RUNNER.format(runner=written["runner"], answers=answers))
        runner.chmod(0o755)
        self.run("explore", self.write(written, runner=str(runner), probe="first"))
        return list(messages(answers.read_bytes()))

    def rules(self, mutant: str | None, **changes: Any) -> set[str]:
        path, _ = self.config(mutant, **changes)
        return {event["rule"] for event in self.run("explore", path) if event["event"] == "finding"}


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return files_project(root, tmp_path_factory.mktemp("project"))


@pytest.fixture
def bench(root: Path, place: Path, scripts: Path) -> Iterator[Bench]:
    cache = Cache(root / ".faultline")
    with scratch_folder(cache) as folder:
        yield Bench(place, cache, Engine(scripts / "faultline-engine"), folder)


# ---- heaps that a program made -------------------------------------------------------------------------------------------


def test_the_workload_does_what_this_is_about(bench: Bench) -> None:
    _, traced = bench.config(None)
    done = [event.begin for event in read_events(traced.path) if isinstance(event, FileEnd) and event.errno == 0]
    operations = [begin.operation for begin in done]
    for operation in (Operation.CREATE, Operation.TRUNCATE, Operation.PUNCH, Operation.UNLINK, Operation.RENAME):
        assert operations.count(operation) >= 3, operation
    sizes: dict[int, list[int]] = {}
    for begin in done:
        if begin.operation is Operation.TRUNCATE:
            sizes.setdefault(begin.file, []).append(begin.offset)
    cuts = [size for size in sizes.values() if any(later < earlier for earlier, later in itertools.pairwise(size))]
    assert len(cuts) >= 2, "files that are cut"
    assert any(size[-1] > min(size[1:]) for size in cuts if len(size) > 2), "and one that grows again"


def test_the_engine_has_the_images_of_the_reference_at_each_position(bench: Bench) -> None:
    _, traced = bench.config(None)
    expected = list(positions(read_events(traced.path)))
    got = bench.run("states", traced.path)
    assert len(got) == len(expected) > 300
    for ours, theirs in zip(expected, got, strict=True):
        assert sorted(map(inventory, ours)) == sorted(inventory(files_of(image)) for image in theirs["images"]), theirs


def test_each_recovery_sees_its_image_and_its_own_changes_and_nothing_else(bench: Bench) -> None:
    path, traced = bench.config(None)
    images = list(positions(read_events(traced.path), "case-0/"))
    after = {inventory(files): inventory(recovered(files)) for some in images for files in some if "slots" in files}
    seen = iter(bench.seen(path))
    for position, expected in enumerate(new_inventories(iter(images)), 1):
        got = [next(seen) for _ in expected]
        assert sorted(got) == sorted(f"before:{one} after:{after[one]}" if one in after else "" for one in expected), (
            f"crash position {position}"
        )
    assert list(seen) == []


# ---- random heaps --------------------------------------------------------------------------------------------------------


@dataclass
class Draft:
    """A random trace of few states and many file operations. Files keep their numbers; those in `lost` have no name any more and
    are still mapped."""

    dice: random.Random
    events: list[Event] = field(default_factory=list)
    model: Px86 = field(default_factory=Px86)
    sizes: dict[int, int] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    count: int = 0

    def add(self, *events: Event) -> None:
        for event in events:
            self.events.append(event)
            self.model.step(event)

    def operate(self, operation: Operation, file: int, **arguments: Any) -> None:
        begin = FileBegin(1, operation, file, **arguments)
        self.add(begin, FileEnd(begin))

    def create(self) -> None:
        free = sorted(set(PATHS) - set(self.names.values()))
        if not free:
            return
        self.count += 1
        self.names[self.count], self.sizes[self.count] = self.dice.choice(free), 0
        self.operate(Operation.CREATE, self.count, path=self.names[self.count])
        if self.dice.random() < 0.9:
            self.resize(self.count)

    def resize(self, file: int) -> None:
        size = self.dice.choice(SIZES) if self.dice.random() < 0.7 else self.dice.randrange(self.sizes[file] + 1)
        self.operate(Operation.TRUNCATE, file, offset=size)
        self.sizes[file] = size

    def extend(self, file: int) -> None:
        offset, size = self.dice.randrange(self.sizes[file] + 1), self.dice.choice(SIZES)
        self.operate(Operation.ALLOCATE, file, offset=offset, size=size)
        self.sizes[file] = max(self.sizes[file], offset + size)

    def punch(self, file: int) -> None:
        offset = self.dice.randrange(self.sizes[file] + 1)
        self.operate(Operation.PUNCH, file, offset=offset, size=self.dice.choice(SIZES))

    def write(self, file: int) -> None:
        offset, data = self.dice.randrange(self.sizes[file] + 1), self.dice.randbytes(self.dice.randint(1, 12))
        self.operate(Operation.WRITE, file, offset=offset, data=data)
        self.sizes[file] = max(self.sizes[file], offset + len(data))
        self.operate(Operation.FSYNC, file)

    def unlink(self, file: int) -> None:
        self.operate(Operation.UNLINK, file)
        del self.names[file]

    def rename(self, file: int) -> None:
        path = self.dice.choice([path for path in PATHS if path != self.names[file]])
        self.operate(Operation.RENAME, file, path=path)
        self.names = {other: name for other, name in self.names.items() if name != path} | {file: path}

    def store(self, file: int) -> None:
        """Near a boundary of sizes as often as not, and so in bytes that are cut away and grow again."""
        size = min(self.sizes[file], self.dice.choice((8, 8, 16, 24)))
        if size == 0:
            return
        ends = [end - size for end in SIZES if size <= end <= self.sizes[file]] or [0]
        offset = (
            self.dice.choice(ends) if self.dice.random() < 0.5 else self.dice.randrange(self.sizes[file] - size + 1)
        )
        self.add(Store(1, file, offset, self.dice.randbytes(size), StoreKind.PLAIN))
        if self.dice.random() < 0.5 or self.model.count() > MOST_STATES:
            self.add(Flush(1, file, offset, FlushKind.CLWB), Flush(1, file, offset + size - 1, FlushKind.CLWB))
        if self.dice.random() < 0.3 or self.model.count() > MOST_STATES:
            self.add(Fence(1, FenceKind.SFENCE))

    def step(self) -> None:
        named = sorted(self.names)
        if len(named) < 2 or self.dice.random() < 0.1:
            return self.create()
        if self.dice.random() < 0.5:
            return self.store(
                self.dice.choice(sorted(self.sizes)) if self.dice.random() < 0.2 else self.dice.choice(named)
            )
        change = self.dice.choice(
            [
                self.resize,
                self.resize,
                self.extend,
                self.punch,
                self.punch,
                self.write,
                self.unlink,
                self.rename,
                self.rename,
            ]
        )
        return change(self.dice.choice(named))


def random_events(seed: int) -> list[Event]:
    draft = Draft(random.Random(seed))
    while len(draft.events) < STEPS:
        draft.step()
    return draft.events


def test_random_heaps_of_several_files_are_seen_as_they_are(bench: Bench) -> None:
    images = 0
    for seed in range(SEEDS):
        events = random_events(seed)
        found = list(positions(events))
        after = {inventory(files): inventory(mangled(files)) for some in found for files in some}
        seen = iter(bench.seen(bench.random(events)))
        for position, expected in enumerate(new_inventories(iter(found)), 1):
            got = [next(seen, None) for _ in expected]
            assert set(got) == {f"before:{one} after:{after[one]}" for one in expected}, (seed, position)
            images += len(expected)
        assert list(seen) == []
    assert images > 40 * SEEDS


@pytest.mark.slow
def test_complete_sees_what_exhaustive_sees_of_several_files(bench: Bench) -> None:
    hooked = str(build_adapter(bench.root, bench.cache, bench.allocator, "MANGLE", "clwb", is_hooked=True).path)
    for seed in range(SEEDS):
        path = bench.random(random_events(seed), strategy="complete", hooked_adapter=hooked)
        [found] = bench.run("yardstick", path)
        assert (found["differing"], found["doubts"]) == (0, []), (seed, found)
        assert found["compared"] == found["positions"], seed


# ---- recoveries that cannot be explored by what they load ------------------------------------------------------------------


def explored(bench: Bench, mutant: str | None, **changes: Any) -> tuple[str, dict[str, Any]]:
    """Verdict and certificate of complete."""
    hooked = str(build_adapter(bench.root, bench.cache, bench.allocator, mutant, "clwb", is_hooked=True).path)
    short = "workload 1\nslots 4\ncase\nallocate 0 8\nfree 0\n"
    path, _ = bench.config(mutant, short, strategy="complete", hooked_adapter=hooked, probe="first", **changes)
    events = bench.run("explore", path)
    [*_, certificate] = [event for event in events if event["event"] == "certificate"]
    [done] = [event for event in events if event["event"] == "done"]
    return done["verdict"], certificate


def test_a_recovery_that_loads_what_it_loads_is_complete(bench: Bench) -> None:
    verdict, certificate = explored(bench, None)
    assert (verdict, certificate["complete"], certificate["why"]) == ("pass", True, "")


def test_a_recovery_that_reads_the_clock_is_unknown(bench: Bench) -> None:
    """With the first load that differs. It reads one bit of the clock, which may be the same in both runs of each leaf that is run
    twice: seldom in one exploration, hardly in three."""
    for _ in range(3):
        verdict, certificate = explored(bench, "READS_CLOCK")
        if verdict != "pass":
            break
    assert (verdict, certificate["strategy"], certificate["complete"]) == ("unknown", "complete", False)
    reasons = "; ".join(certificate["unknown_reasons"])
    assert (
        "recovery is not deterministic: after 0 loads that saw the same bytes it loaded case-0/slots at 0x" in reasons
    )


@pytest.mark.slow
def test_a_recovery_with_loads_past_the_hooks_is_explored_under_the_tracer(bench: Bench) -> None:
    verdict, certificate = explored(bench, "LOADS_PAST_HOOKS")
    assert (verdict, certificate["strategy"], certificate["complete"]) == ("pass", "complete", True)
    assert (certificate["engine"], certificate["fallback"]) == ("traced", None)
    assert certificate["engine_why"].startswith("recovery loads PM past the hooks: misbehave (")


def test_without_a_tracer_a_recovery_with_loads_past_the_hooks_falls_back(bench: Bench) -> None:
    verdict, certificate = explored(bench, "LOADS_PAST_HOOKS", tracer=[])
    assert (verdict, certificate["strategy"], certificate["complete"]) == ("pass", "mixed", False)
    fallback = "strategy complete is not possible: recovery loads PM past the hooks: misbehave ("
    assert certificate["fallback"].startswith(fallback), certificate["fallback"]
    assert re.search(
        r"/adapter\.c:\d+\), adapter\.so\+0x[0-9a-f]+: a system call by an instruction, number 17$",
        certificate["fallback"],
    )
    assert certificate["positions_by_strategy"]["prefix"] == certificate["crash_positions"]


# ---- slots of two words, contents that come later, accounting --------------------------------------------------------------


@pytest.mark.slow
def test_a_heap_of_several_files_passes(bench: Bench) -> None:
    assert bench.rules(None) == set()


NO_BUGS = ("MANGLE", "READS_CLOCK", "LOADS_PAST_HOOKS")
DIES = "READS_WHAT_WAS_CUT"
"""Of a signal, in another workload."""
BUGS = {
    bug.id: bug.rule
    for bug in config.read_allocator(HERE / "files" / "allocator.toml").mutant
    if bug.id not in (*NO_BUGS, DIES)
}


@pytest.mark.slow
@pytest.mark.parametrize("mutant", BUGS)
def test_a_file_operation_at_the_wrong_time_is_found(bench: Bench, mutant: str) -> None:
    assert bench.rules(mutant, stop_at_rule=BUGS[mutant]) == {BUGS[mutant]}


@pytest.mark.slow
def test_contents_may_come_later_where_the_contract_says_so(bench: Bench) -> None:
    assert bench.rules("FILL_AFTER", contract={"fill": "after"}) == set()


@pytest.mark.slow
def test_where_a_recovery_dies_is_told(bench: Bench) -> None:
    """A token's replay and a shrunk witness say it, too."""
    short = "workload 1\nslots 4\ncase\nallocate 0 5000\nreallocate 0 100\n"
    path, _ = bench.config(DIES, short, strategy="prefix")
    found = [event for event in bench.run("explore", path) if event["event"] == "finding" and event["rule"] == "FL001"]
    replayed = [
        event for event in bench.run("replay", "--token", found[0]["token"], path) if event["event"] == "finding"
    ]
    shrunk = [event for event in bench.run("shrink", "--token", found[0]["token"], path) if event["event"] == "finding"]
    for finding in (*found, *replayed, *shrunk):
        assert finding["message"].startswith("recovery died of signal 11 (SIGSEGV)"), finding["message"]
        died = finding["died"]
        assert [died["at"]["function"], *(call["function"] for call in died["callers"])][:4] == [
            "last_of",
            "recover_object",
            "recover",
            "open_heap",
        ]
        assert died["touched"] == "967 bytes further than the end of the mapping of 1"
    other = bench.config("TRUNCATE_FIRST", stop_at_rule="FL003")[0]
    [one] = [event for event in bench.run("explore", other) if event["event"] == "finding"]
    assert one["died"] is None
