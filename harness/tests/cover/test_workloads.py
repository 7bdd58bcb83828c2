# SPDX-License-Identifier: Apache-2.0
"""Generators and the workload file's parser."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from faultline import workloads
from faultline.cache import Cache
from faultline.config import Heap
from faultline.errors import BadInputError

SIZES = [64, 1984, 2048, 65536]
HEAP = Heap(1 << 23, 1 << 23, "0x200000000000", 64, 64, SIZES)


def is_valid(workload: workloads.Workload) -> bool:
    return workloads.parse(workload.text(), "text").operations == workload.operations


def test_smoke_is_a_dozen_operations_of_every_kind() -> None:
    smoke = workloads.smoke()
    kinds = [operation.kind for operation in smoke.operations]
    assert is_valid(smoke)
    assert set(kinds) == {"case", "allocate", "free", "reallocate", "reopen"}
    assert sum(kind in ("allocate", "free", "reallocate") for kind in kinds) == 12
    assert smoke.session_count == 2


@given(ops=st.integers(1, 400), seed=st.integers(0, 2**64))
def test_churn_is_valid_bounded_and_has_the_operations_asked_for(ops: int, seed: int) -> None:
    churn = workloads.churn(ops, seed)
    assert is_valid(churn)
    assert len(churn.operations) == ops + 1
    live: set[int] = set()
    for operation in churn.operations[1:]:
        live = live | {operation.slot} if operation.kind != "free" else live - {operation.slot}
        assert len(live) <= workloads.CHURN_LIVE_OBJECTS


def test_churn_is_a_function_of_its_seed() -> None:
    assert workloads.churn(100, 7) == workloads.churn(100, 7)
    assert workloads.churn(100, 7).text() != workloads.churn(100, 8).text()


def test_churn_of_seed_1_is_what_it_was() -> None:
    """Tokens name generated workloads by ops and seed: a changed generator would break them all."""
    assert workloads.churn(40, 1).key == "e4d089a0a6f02a97"


def test_churn_mixes_operations_and_sizes() -> None:
    operations = workloads.churn(2000, 3).operations[1:]
    kinds = [operation.kind for operation in operations]
    sizes = [operation.size_bytes for operation in operations if operation.size_bytes]
    assert all(kinds.count(kind) > 200 for kind in ("allocate", "free", "reallocate"))
    assert sum(size <= 512 for size in sizes) > len(sizes) / 2
    assert max(sizes) > 8192


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("size_count", [1, 2, 4])
def test_ace_has_every_sequence_once(depth: int, size_count: int) -> None:
    ace = workloads.ace(depth, SIZES[:size_count])
    cases = ace.text().split("case\n")[1:]
    assert len(cases) == len(set(cases)) == ace.case_count == workloads.ace_case_count(depth, size_count)
    assert is_valid(ace)


def test_ace_counts_by_hand() -> None:
    """4 sizes: 4 first operations; after an allocation 4 allocations, 1 free and 3 reallocations follow."""
    assert workloads.ace_case_count(1, 4) == 4
    assert workloads.ace_case_count(2, 4) == 4 + 4 * (4 + 1 + 3)


def test_ace_has_the_sequences_that_count() -> None:
    cases = set(workloads.ace(2, SIZES).text().split("case\n")[1:])
    assert "allocate 0 64\nfree 0\n" in cases
    assert "allocate 0 64\nreallocate 0 65536\n" in cases
    assert "allocate 0 64\nreallocate 0 64\n" not in cases
    assert "allocate 0 2048\nallocate 1 2048\n" in cases


def test_operations_are_counted_as_the_runner_counts() -> None:
    """create, allocate, close, open, free, close; then create and close."""
    workload = workloads.parse("workload 1\nslots 1\ncase\nallocate 0 8\nreopen\nfree 0\ncase\n", "text")
    assert workload.operation_count == 8
    assert (workload.session_count, workload.case_count) == (2, 2)


def test_comments_and_blank_lines_do_not_count() -> None:
    text = "# mine\n\nworkload 1 # version\nslots 2\n  case\nallocate 1 8 # one\n\n"
    assert workloads.parse(text, "f").text() == "workload 1\nslots 2\ncase\nallocate 1 8\n"


HEAD = "workload 1\nslots 4\ncase\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "ends before `workload 1`"),
        ("workload 1\n", None, "ends before `slots COUNT`"),
        ("workload 1\nslots 4\n", None, "ends before `case`"),
        ("workload 2\n", 1, "expected `workload 1`"),
        ("slots 4\n", 1, "expected `workload 1`"),
        ("workload 1\ncase\n", 2, "expected `slots COUNT [names | chain]`"),
        ("workload 1\nslots 0\n", 2, "expected a number from 1 to 65536"),
        ("workload 1\nslots 65537\n", 2, "expected a number from 1 to 65536"),
        ("workload 1\nslots four\n", 2, "expected a number"),
        ("workload 1\nslots 4\nallocate 0 8\n", 3, "every workload starts with"),
        (HEAD + "alocate 0 8\n", 4, "unknown operation 'alocate'"),
        (HEAD + "allocate 0\n", 4, "expected `allocate SLOT BYTES`"),
        (HEAD + "allocate 0 8 8\n", 4, "expected `allocate SLOT BYTES`"),
        (HEAD + "free\n", 4, "expected `free SLOT`"),
        (HEAD + "reopen 1\n", 4, "expected `reopen`"),
        (HEAD + "allocate 4 8\n", 4, "slot 4 is not below `slots 4`"),
        (HEAD + "allocate 0 0\n", 4, "expected a number from 1"),
        (HEAD + "allocate -1 8\n", 4, "expected a number from 0"),
        (HEAD + "allocate 0 \u0665\n", 4, "expected a number"),
        (HEAD + "allocate 0 8\nallocate 0 8\n", 5, "slot 0 is live"),
        (HEAD + "free 0\n", 4, "slot 0 is empty, free needs a live one"),
        (HEAD + "reallocate 0 8\n", 4, "slot 0 is empty, reallocate needs a live one"),
        (HEAD + "allocate 0 8\ncase\nfree 0\n", 6, "slot 0 is empty"),
        ("workload 1\nslots 4 tree\n", 2, "slot layout 'tree': expected one of root, names, chain"),
        ("workload 1\nslots 4 names 3\n", 2, "expected `slots COUNT [names | chain]`"),
        (HEAD + "thread 0 allocate 0 8\n", 4, "thread '0': expected a number from 1 to 63"),
        (HEAD + "thread 64 allocate 0 8\n", 4, "thread '64': expected a number from 1 to 63"),
        (HEAD + "thread 1\n", 4, "expected `thread N` and an operation"),
        (HEAD + "thread 1 join\n", 4, "`thread N` goes before allocate, free, reallocate, got 'join'"),
        (HEAD + "thread 1 thread 2 free 0\n", 4, "got 'thread'"),
        (HEAD + "join 1\n", 4, "expected `join`"),
        (HEAD + "thread 1 allocate 0 8\nfree 0\n", 5, "slot 0 was used by thread 1 since the last join"),
        (HEAD + "allocate 0 8\nthread 2 free 0\n", 5, "slot 0 was used by the main thread since the last join"),
    ],
)
def test_errors_name_file_and_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        workloads.parse(text, "mine.workload")
    assert caught.value.message.startswith("mine.workload:" if line is None else f"mine.workload:{line}: ")
    assert words in caught.value.message


THREADED = """workload 1
slots 4 chain
case
thread 1 allocate 0 8
thread 2 allocate 1 8
join
thread 2 free 0
reopen
thread 1 reallocate 1 9
"""


def test_threads_and_layouts_are_read_and_written_as_they_were() -> None:
    workload = workloads.parse(THREADED, "text")
    assert workload.text() == THREADED
    assert (workload.layout, workload.thread_count, workload.is_threaded) == ("chain", 2, True)
    assert workload.operation_count == 8  # create, 2 allocate, free, close, open, reallocate, close
    assert workloads.parse(THREADED.replace(" chain", " root"), "text").text() == THREADED.replace(" chain", "")


def test_only_threads_have_a_schedule(tmp_path: Path, cache: Cache) -> None:
    """Seed 0 is the tracer's own schedule, which is not promised to be the same each time."""
    path = tmp_path / "mine.workload"
    path.write_text(THREADED)
    assert [workloads.find(str(path), 40, seed, HEAP, cache).schedule_seed for seed in (0, 1, 7)] == [1, 1, 7]
    assert workloads.find("churn", 40, 7, HEAP, cache).schedule_seed == 0


@given(st.text(alphabet="workload 1slots case\nfree#2-"))
def test_any_text_parses_or_is_bad_input(text: str) -> None:
    with contextlib.suppress(BadInputError):
        workloads.parse(text, "text")


@pytest.mark.parametrize("name", ["ace:0", "ace:7", "ace:x", "ace:", "nosuch", "file:nosuch", "file:../../etc"])
def test_unknown_workloads_are_bad_input(name: str, cache: Cache) -> None:
    with pytest.raises(BadInputError, match=name.replace(".", r"\.")):
        workloads.find(name, 40, 1, HEAP, cache)


def test_a_file_is_found_again_by_its_key(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "mine.workload"
    path.write_text("workload 1\nslots 1 # one\ncase\nallocate 0 8\n")
    first = workloads.find(str(path), 40, 1, HEAP, cache)
    path.unlink()
    assert first.name == f"file:{first.key}"
    assert workloads.find(first.name, 40, 1, HEAP, cache) == first


def test_a_file_that_is_no_text_is_bad_input(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"workload \xff\xfe")
    with pytest.raises(BadInputError, match="UTF-8"):
        workloads.find(str(path), 40, 1, HEAP, cache)
    with pytest.raises(BadInputError, match="cannot be read"):
        workloads.find(str(tmp_path), 40, 1, HEAP, cache)
