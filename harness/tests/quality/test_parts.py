# SPDX-License-Identifier: Apache-2.0
"""The other parts' own tests that are no pytest: conformance of the tracer, unit and crash tests of allocators."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from command_line import Faultline
from faultline.base.cache import Cache, project_root
from faultline.base.config import find_allocator
from faultline.pipeline.build import flush_definition
from faultline.pipeline.environment import best_flush
from faultline.pipeline.tracers import DEFAULT_TRACER

LIMIT_S = 1200


def check(command: list[str], folder: Path) -> str:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return run.stdout


@pytest.mark.slow
def test_the_tracer_conforms(root: Path, tmp_path: Path) -> None:
    tool = DEFAULT_TRACER.build(root, Cache(root / ".faultline")).path
    command = [sys.executable, "pintools/conformance/check.py", "--tool-dir", str(tool), "--work", str(tmp_path)]
    check(command, root)


COMMON = (
    *("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror", "-O1", "-g", "-pthread"),
    flush_definition(best_flush()),  # they run as they are
)
MEMORY = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")
RACES = ("-fsanitize=thread",)
SHARED = ("-I../testing", "-I../../include")
RECORDER = "../testing/recorder.c"
RECORDED = ("-I../testing/recorded",)  # before SHARED: this persist.h is the one taken
CHECKED = "-DNVM_DEBUG=2"
WIDE = ("-DNVM_WIDEN",)  # threads come in between one another's steps where they rarely do
SMALL = ("-DNVM_CHUNK_BYTES=65536", "-DNVM_ARENAS=3")


BY_SEEDS = pytest.mark.parametrize("seeds", [2, pytest.param(6, marks=pytest.mark.nightly)])
"""Of crash tests: some each time."""


def run_nvm_malloc_test(
    root: Path, tmp_path: Path, tests: list[str], *flags: str, arguments: tuple[str, ...] = ()
) -> str:
    """Builds the allocator and its adapter with the test's sources, as the comment at the top of each says, and runs it."""
    folder = root / "allocators" / "nvm_malloc"
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), *sorted(map(str, folder.glob("adapter*.c")))]
    check([*COMMON, *flags, "-Isrc", "-I.", *SHARED, *sources, *tests, "-o", str(tmp_path / "test")], folder)
    return check([str(tmp_path / "test"), *arguments], folder)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("test", "flags"),
    [
        ("test_nvm_malloc", (CHECKED,)),
        ("test_nvm_malloc", (CHECKED, *MEMORY)),
        ("test_growth", (CHECKED, *SMALL, *MEMORY)),
        ("test_threads", (*SMALL, *MEMORY)),
        ("test_threads", (*SMALL, *RACES)),
        ("test_threads", (*SMALL, *WIDE)),
        ("test_threads", (*SMALL, *WIDE, *RACES)),
    ],
    ids=[
        "plain",
        "unit-memory",
        "growth-memory",
        "threads-memory",
        "threads-races",
        "threads-wide",
        "threads-wide-races",
    ],
)
def test_nvm_malloc_is_a_correct_allocator(root: Path, tmp_path: Path, test: str, flags: tuple[str, ...]) -> None:
    assert " 0 failed" in run_nvm_malloc_test(root, tmp_path, [f"tests/{test}.c"], *flags)


@pytest.mark.slow
@BY_SEEDS
def test_nvm_malloc_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path, seeds: int) -> None:
    tests = [RECORDER, "tests/test_crash.c"]
    run_nvm_malloc_test(root, tmp_path, tests, "-O2", *SMALL, *RECORDED, arguments=("--seeds", str(seeds)))


@pytest.mark.slow
def test_nvm_malloc_survives_lines_that_nobody_flushed(root: Path, tmp_path: Path) -> None:
    tests = [RECORDER, "tests/test_dirty.c"]
    run_nvm_malloc_test(root, tmp_path, tests, "-O2", *SMALL, *RECORDED)


MAKALU_TINY = ("-DMAK_HEADER_SPACE_BYTES=4096", "-DMAK_MAP_BOTTOM=16", "-DMAK_VISIBLE_LINES=16")
MAKALU_SMALL = (
    *(*MAKALU_TINY, "-DMAK_GROW_BYTES=65536", "-DMAK_EMPTY_BLOCKS=2"),
    *("-DMAK_MARK_STACK=8", "-DMAK_MARK_POOL=32", "-DMAK_MARK_AHEAD=2"),
)
MAKALU_SMALLEST = (
    *(*MAKALU_TINY, "-DMAK_GROW_BYTES=16384", "-DMAK_EMPTY_BLOCKS=1"),
    *("-DMAK_MARK_STACK=2", "-DMAK_MARK_POOL=2", "-DMAK_MARK_AHEAD=1", "-DMAK_MARK_THREADS=1"),
)


def run_makalu_test(root: Path, tmp_path: Path, tests: list[str], *flags: str, arguments: tuple[str, ...] = ()) -> str:
    folder = root / "allocators" / "makalu"
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), *sorted(map(str, folder.glob("adapter*.c"))), *tests]
    check([*COMMON, *flags, "-Isrc", "-I.", *SHARED, *sources, "-o", str(tmp_path / "test")], folder)
    return check([str(tmp_path / "test"), *arguments], folder)


@pytest.mark.drawn(3)
@pytest.mark.parametrize(
    ("test", "flags"),
    [
        ("test_makalu", ()),
        ("test_makalu", (*MAKALU_SMALL, "-DMAK_WIDEN")),
        ("test_makalu", (*MAKALU_SMALL, *MEMORY)),
        ("test_makalu", (*MAKALU_SMALL, "-DMAK_WIDEN", *RACES)),
        ("test_mark", MEMORY),
        ("test_mark", (*MAKALU_SMALL, *MEMORY)),
        ("test_mark", RACES),
        ("test_mark", (*MAKALU_SMALL, *RACES)),
    ],
    ids=[
        "plain",
        "small-wide",
        "small-memory",
        "small-wide-races",
        "mark-memory",
        "mark-small-memory",
        "mark-races",
        "mark-small-races",
    ],
)
def test_makalu_is_a_correct_allocator(root: Path, tmp_path: Path, test: str, flags: tuple[str, ...]) -> None:
    assert " 0 failed" in run_makalu_test(root, tmp_path, [f"tests/{test}.c"], *flags)


MAKALU_CRASH = [RECORDER, "tests/test_crash.c"]


@pytest.mark.nightly
def test_makalu_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path) -> None:
    run_makalu_test(root, tmp_path, MAKALU_CRASH, "-O2", *MAKALU_SMALLEST, *RECORDED)


GENERATIONS = ("--generations", "--seeds", "6", "--operations", "30", "--images", "2")


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("mutant", "arguments"),
    [
        ("", ()),
        ("REPLAY_KEEPS_VERSION", ("--expect", "FL003", "--unchecked")),
        ("REPLAY_VERSION_FIRST", ("--expect", "FL003")),
        ("COLLECTION_NOT_FLUSHED", ("--expect", "FL003")),
    ],
    ids=["clean", "REPLAY_KEEPS_VERSION", "REPLAY_VERSION_FIRST", "COLLECTION_NOT_FLUSHED"],
)
def test_makalu_replays_no_log_over_later_work(
    root: Path, tmp_path: Path, mutant: str, arguments: tuple[str, ...]
) -> None:
    """Later generations begin with an unfinished log; two of these mutants show in no first one."""
    flags = ("-O2", *MAKALU_SMALLEST, *RECORDED, *([f"-DMUTANT_{mutant}"] if mutant else []))
    run_makalu_test(root, tmp_path, MAKALU_CRASH, *flags, arguments=(*GENERATIONS, *arguments))


PALLOCATOR = ("g++", "-std=gnu++20", "-fno-strict-aliasing", *COMMON[2:])
PALLOCATOR_SMALL = (
    *("-DPAL_SEGMENT_BYTES=32768", "-DPAL_PAGE_BYTES=4096", "-DPAL_BIG_LIMIT=16384"),
    *("-DPAL_LEAF_ENTRIES=3", "-DPAL_INNER_CHILDREN=3", "-DPAL_SEGMENT_ENTRIES=64"),
)


def run_pallocator_test(
    root: Path, tmp_path: Path, tests: list[str], *flags: str, arguments: tuple[str, ...] = ()
) -> str:
    """A test that has tests/recorded.cpp gets its file operations from there, and the recorder, which is C."""
    folder = root / "allocators" / "pallocator"
    sources = sorted(str(path) for path in (folder / "src").glob("*.cpp"))
    if "tests/recorded.cpp" in tests:
        sources = [source for source in sources if not source.endswith("/files.cpp")]
        recorder = str(tmp_path / "recorder.o")
        check([*COMMON, *RECORDED, *SHARED, "-c", RECORDER, "-o", recorder], folder)
        tests = [recorder, *tests]
    check([*PALLOCATOR, *flags, "-Isrc", *SHARED, *sources, *tests, "-o", str(tmp_path / "test")], folder)
    return check([str(tmp_path / "test"), *arguments], folder)


@pytest.mark.drawn(1)
@pytest.mark.parametrize(
    "flags",
    [(), (*PALLOCATOR_SMALL, *MEMORY), (*PALLOCATOR_SMALL, *RACES)],
    ids=["plain", "small-memory", "small-races"],
)
def test_pallocator_is_a_correct_allocator(root: Path, tmp_path: Path, flags: tuple[str, ...]) -> None:
    assert " 0 failed" in run_pallocator_test(root, tmp_path, ["tests/test_pallocator.cpp"], *flags)


@pytest.mark.slow
def test_pallocators_tree_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path) -> None:
    tests = ["tests/recorded.cpp", "tests/test_tree.cpp"]
    run_pallocator_test(root, tmp_path, tests, *PALLOCATOR_SMALL, *RECORDED)


@pytest.mark.slow
@BY_SEEDS
def test_pallocator_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path, seeds: int) -> None:
    tests = ["tests/recorded.cpp", "tests/test_crash.cpp"]
    run_pallocator_test(root, tmp_path, tests, *PALLOCATOR_SMALL, *RECORDED, arguments=("--seeds", str(seeds)))


PALLOCATOR_MUTANTS = {
    "ARGUMENT_NOT_FLUSHED": "FL004",
    "BIG_CLEARED_TOO_EARLY": "FL010",
    "COUNTER_NOT_FLUSHED": "FL011",
    "CREATION_KEPT": "FL011",
    "DEFRAGMENTATION_NOT_CLEARED": "FL011",
    "FILE_BEFORE_OFFSET": "FL008",
    "FREE_READS_PAGE": "FL008",
    "FULL_SEGMENTS_FORGOTTEN": "FL004",
    "HEAD_NOT_FLUSHED": "FL004",
    "LEAF_BITMAP_FIRST": "FL011",
    "LEAF_FREED_FIRST": "FL010",
    "PAGE_PUNCHED_BEFORE_LOGGED": "FL011",
    "READY_TOO_EARLY": "FL003",
    "SECOND_LINE_NOT_FLUSHED": "FL011",
    "SEGMENT_LISTED_FIRST": "FL003",
    "SEGMENT_NOT_LISTED": "FL003",
    "SLOT_NOT_CLEARED": "FL005",
    "SMALL_CLEARED_TOO_EARLY": "FL011",
    "SPLIT_LINKED_FIRST": "FL003",
    "SPLIT_NOT_FLUSHED": "FL003",
    "UNLINKED_BEFORE_UNLISTED": "FL003",
}
"""Known bugs of pallocator, each with the rule that its own crash test names first."""


@pytest.mark.nightly
@pytest.mark.parametrize(("mutant", "rule"), PALLOCATOR_MUTANTS.items())
def test_pallocators_crash_test_finds_known_bugs(root: Path, tmp_path: Path, mutant: str, rule: str) -> None:
    flags = (f"-DMUTANT_{mutant}", *PALLOCATOR_SMALL, *RECORDED)
    arguments = ("--seeds", "3", "--operations", "120", "--expect", rule)
    run_pallocator_test(root, tmp_path, ["tests/recorded.cpp", "tests/test_crash.cpp"], *flags, arguments=arguments)


def build_nvmalloc_test(root: Path, tmp_path: Path, test: str, *flags: str) -> str:
    folder = root / "allocators" / "nvmalloc"
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), f"tests/{test}.c"]
    sources += [RECORDER] if RECORDED[0] in flags else []
    check([*COMMON, *flags, "-Isrc", *SHARED, *sources, "-o", str(tmp_path / "test")], folder)
    return str(tmp_path / "test")


@pytest.mark.drawn(2)
@pytest.mark.parametrize(
    ("test", "flags"),
    [("test_nvmalloc", ()), ("test_nvmalloc", MEMORY), ("test_nvmalloc", RACES), ("test_damage", MEMORY)],
    ids=["plain", "memory", "races", "damage-memory"],
)
def test_nvmalloc_is_a_correct_allocator(root: Path, tmp_path: Path, test: str, flags: tuple[str, ...]) -> None:
    assert " 0 failed" in check([build_nvmalloc_test(root, tmp_path, test, *flags)], root)


@pytest.mark.slow
def test_nvmalloc_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path) -> None:
    assert " 0 failed" in check([build_nvmalloc_test(root, tmp_path, "test_crash", "-O2", *RECORDED)], root)


@pytest.mark.nightly
@pytest.mark.parametrize("mutant", [mutant.id for mutant in find_allocator(project_root(), "nvmalloc").mutant])
def test_nvmallocs_crash_test_finds_known_bugs(root: Path, tmp_path: Path, mutant: str) -> None:
    program = build_nvmalloc_test(root, tmp_path, "test_crash", "-O2", *RECORDED, f"-DMUTANT_{mutant}")
    run = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode != 0, run.stdout


def test_every_bit_of_nvmallocs_headers_was_turned(root: Path, tmp_path: Path) -> None:
    """FL016: flips tried = bits x headers, each found by the next scan at the cost of one heap block."""
    printed = check([build_nvmalloc_test(root, tmp_path, "test_damage")], root)
    said = re.search(
        r"^(\d+) flips tried: 64 bits of (\d+) allocated headers, 128 of (\d+) free ones, 128 of 2 root lines,"
        r" 64 of the chain's end$",
        printed,
        re.MULTILINE,
    )
    assert said is not None, printed
    flips, allocated, free = map(int, said.groups())
    assert flips == 64 * allocated + 128 * free + 2 * 128 + 64
    assert flips >= 2000


@pytest.mark.parametrize("mutant", ["CHECKSUM_WITHOUT_POSITION", "OLD_HEADERS_TRUSTED", "ZERO_ENDS_CHAIN"])
def test_nvmallocs_damage_test_notices_a_scan_that_trusts_too_much(root: Path, tmp_path: Path, mutant: str) -> None:
    """Bugs that no power failure shows, only damage: so they are no mutants of allocator.toml."""
    program = build_nvmalloc_test(root, tmp_path, "test_damage", f"-DMUTANT_{mutant}")
    run = subprocess.run([program], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode != 0, run.stdout


def test_litmus_passes_through(root: Path, faultline: Faultline) -> None:
    files = sorted((root / "crashgen").rglob("*.litmus"))
    assert len(files) >= 25
    run = faultline("litmus", *files)
    assert run.returncode == 0, run.stdout + run.stderr


def test_doctor_finds_everything(faultline: Faultline) -> None:
    run = faultline("doctor")
    assert run.returncode == 0, run.stdout
