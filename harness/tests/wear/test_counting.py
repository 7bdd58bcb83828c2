# SPDX-License-Identifier: Apache-2.0
"""What the Valgrind tool counts, against programs whose counts are worked out by hand (lines.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.base.errors import InfrastructureError
from faultline.pipeline.build import Built
from faultline.pipeline.trace import environment_for
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.wear.figures import Counts, read_counts

Lines = dict[int, tuple[int, int]]
"""By number: stores, write-backs."""


@pytest.fixture(scope="module")
def program(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("lines") / "lines"
    source = root / "harness" / "tests" / "wear" / "lines.c"
    flags = ["-std=gnu11", "-O1", "-g", "-Wall", "-Wextra", "-Werror"]
    subprocess.run(["gcc", *flags, "-o", str(path), str(source)], check=True)
    return path


@pytest.fixture(scope="module")
def tools(root: Path) -> Built:
    return DEFAULT_TRACER.build(root, Cache(root / ".faultline"))


class Counter:
    def __init__(self, program: Path, tools: Built, folder: Path) -> None:
        self.program, self.tools, self.folder = program, tools, folder
        self.file = folder / "counts"

    def run(self, name: str, *options: str) -> subprocess.CompletedProcess[str]:
        heap = self.folder / "pm"
        heap.mkdir(exist_ok=True)
        command = ["valgrind", "--tool=faultline", "-q", f"--wear={self.file}", f"--pm-folder={heap}", *options]
        return subprocess.run(
            [*command, str(self.program), str(heap), name],
            env=environment_for(DEFAULT_TRACER, self.tools), capture_output=True, text=True, check=False,
        )  # fmt: skip

    def counts(self, name: str, *options: str) -> Counts:
        ended = self.run(name, *options)
        assert ended.returncode == 0, ended.stdout + ended.stderr
        return read_counts(self.file, is_memory="--wear-memory=yes" in options)

    def lines(self, name: str, *options: str) -> Lines:
        counts = self.counts(name, *options)
        return {number: (stores, backs) for number, stores, backs, _, _ in counts.lines.tolist()}


@pytest.fixture
def counter(program: Path, tools: Built, tmp_path: Path) -> Counter:
    return Counter(program, tools, tmp_path)


@pytest.mark.parametrize(
    ("name", "lines"),
    [
        ("nothing", {}),
        ("coalesced", {0: (2, 1), 1: (1, 1)}),
        ("across", {2: (2, 1), 3: (1, 1)}),
        ("interrupted", {4: (1, 1)}),
        ("flushed", {0: (1, 3), 1: (1, 1)}),
        ("past", {0: (1, 2), 1: (1, 2)}),
        ("repeated", {0: (1, 1), 1: (1, 1), 2: (1, 1)}),
        ("kernel", {64: (1, 1), 65: (1, 1), 128: (1, 1)}),
    ],
)
def test_stores_and_write_backs_are_those_worked_out_by_hand(counter: Counter, name: str, lines: Lines) -> None:
    assert counter.lines(name) == lines


def test_totals_say_why_lines_were_written_back(counter: Counter) -> None:
    counts = counter.counts("flushed")
    assert counts.write_back_reasons == {"flushed": 2, "evicted": 0, "non-temporal": 0, "dirty at the end": 2}
    assert (counts.executed, counts.flushes) == (4, 3)
    assert counts.files == ["heap"]
    past = counter.counts("past").write_back_reasons
    assert past == {"flushed": 0, "evicted": 0, "non-temporal": 4, "dirty at the end": 0}


def test_a_longer_line_takes_the_stores_of_shorter_ones(counter: Counter) -> None:
    assert counter.lines("across", "--wear-line=128", "--wear-cache=4096") == {1: (1, 1)}
    assert counter.lines("across", "--wear-line=8", "--wear-cache=4096") == {16: (1, 1), 23: (1, 1), 24: (1, 1)}


def test_a_flush_writes_back_all_short_lines_of_its_64_bytes(counter: Counter) -> None:
    """The first word is dirty again at the end, the last one was written back by the flush of the second."""
    counts = counter.counts("flushed_together", "--wear-line=8", "--wear-cache=4096")
    assert counts.write_back_reasons == {"flushed": 2, "evicted": 0, "non-temporal": 0, "dirty at the end": 1}
    assert {number: backs for number, _, backs, _, _ in counts.lines.tolist()} == {0: 2, 7: 1}


def test_writes_that_are_not_followed_stop_the_count(counter: Counter) -> None:
    """A trace says so in a record; counts have no place for it, and would be too low without a word."""
    ended = counter.run("not_followed")
    assert ended.returncode == 3
    said = (ended.stdout + ended.stderr).strip()
    assert "copy_file_range writes a file of the PM folder" in said
    assert len(said.splitlines()) == 1


def test_a_small_cache_evicts_the_least_recently_used_line(counter: Counter) -> None:
    """0, 1, 0, 2 throws out 1; 1 throws out 0."""
    counts = counter.counts("evicted", "--wear-cache=128", "--wear-ways=2")
    assert counts.write_back_reasons["evicted"] == 2
    assert counter.lines("evicted", "--wear-cache=128", "--wear-ways=2") == {0: (2, 1), 1: (2, 2), 2: (1, 1)}


def test_sites_of_a_line_add_up_to_its_stores(counter: Counter) -> None:
    counts = counter.counts("across")
    assert [(line.place, line.stores) for line in counts.hottest] == [("heap+0x80", 2), ("heap+0xc0", 1)]
    for line in counts.hottest:
        assert sum(site.stores for site in line.sites) == line.stores
        assert all("across (lines.c:" in site.place for site in line.sites)


def test_the_heap_of_a_process_is_what_brk_and_mmap_give(counter: Counter) -> None:
    lines = counter.lines("memory", "--wear-memory=yes")
    assert sorted(lines.values()) == [(3, 1), (3, 1)], "static, shared and stack memory are no heap"
    assert counter.lines("memory") == {}, "not asked for"


def test_a_heap_that_outgrows_brk_is_said_to(counter: Counter) -> None:
    assert not counter.counts("memory", "--wear-memory=yes").is_brk_refused
    assert counter.counts("large", "--wear-memory=yes").is_brk_refused


def test_stores_of_children_are_said_not_to_be_counted(counter: Counter) -> None:
    with pytest.raises(InfrastructureError, match="the target forked"):
        counter.counts("forked")


@pytest.mark.parametrize(
    ("options", "error"),
    [
        (["--wear-line=48"], "power of two"),
        (["--wear-cache=100"], "expected a multiple"),
        (["--trace=x"], "give one of them"),
    ],
)
def test_bad_options_are_one_line(counter: Counter, options: list[str], error: str) -> None:
    ended = counter.run("nothing", *options)
    assert ended.returncode == 2
    said = ended.stdout + ended.stderr
    assert error in said
    assert len(said.strip().splitlines()) == 1


@pytest.mark.parametrize(
    ("what", "error"),
    [("cut", "expected"), ("magic", "not counts"), ("version", "not counts"), ("empty", "start with")],
)
def test_damaged_counts_are_refused(counter: Counter, what: str, error: str) -> None:
    counter.counts("coalesced")
    data = counter.file.read_bytes()
    damaged = {"cut": data[:-1], "magic": b"x" + data[1:], "version": data[:8] + b"\x09" + data[9:], "empty": b""}
    counter.file.write_bytes(damaged[what])
    with pytest.raises(InfrastructureError, match=error):
        read_counts(counter.file, is_memory=False)
