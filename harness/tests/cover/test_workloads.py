# SPDX-License-Identifier: Apache-2.0
"""Generators and the workload file's parser."""

from __future__ import annotations

import contextlib
import itertools
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultline.base.cache import Cache
from faultline.base.config import Heap
from faultline.base.errors import BadInputError
from faultline.workload import (
    catalogue,
    file_format,
    generators,
    graph_generators,
    sequences,
    slots,
    transaction_generators,
)
from faultline.workload.links import Links, Object
from faultline.workload.operations import SLOT_OPERATIONS, Operation, Workload

SIZES = [64, 1984, 2048, 65536]
HEAP = Heap(1 << 23, 1 << 23, "0x200000000000", 64, 64, SIZES)


def is_valid(workload: Workload) -> bool:
    return file_format.parse(workload.text(), "text").operations == workload.operations


@given(count=st.integers(1, 40), per=st.one_of(st.none(), st.integers(1, 30)), seed=st.integers(0, 2**64))
def test_tx_is_valid_and_has_the_transactions_asked_for(count: int, per: int | None, seed: int) -> None:
    tx = transaction_generators.tx(count, per, seed)
    assert is_valid(tx)
    kinds = [operation.kind for operation in tx.operations]
    assert kinds.count("begin") == count == kinds.count("commit") + kinds.count("abort")
    lengths = [
        kinds.index(next(k for k in kinds[at:] if k in ("commit", "abort")), at) - at - 1
        for at, kind in enumerate(kinds)
        if kind == "begin"
    ]
    assert all(length == per if per else 1 <= length <= transaction_generators.TX_FEW for length in lengths)


def test_tx_has_every_operation_inside_and_outside_and_aborts() -> None:
    tx = transaction_generators.tx(400, None, 3)
    inside, outside, is_open = set(), set(), False
    for operation in tx.operations[1:]:
        is_open = operation.kind == "begin" or (is_open and operation.kind not in ("commit", "abort"))
        (inside if is_open else outside).add(operation.kind)
    assert inside == {"begin", "allocate", "free", "reallocate", "write"}
    assert outside == {"commit", "abort", "allocate", "free", "reallocate", "write"}
    assert transaction_generators.tx(40, None, 1).key == "050ded446d1fa607"


@pytest.mark.parametrize("name", ["tx:", "tx:0", "tx:4:0", "tx:1:2:3", "tx:x", "tx:-1"])
def test_tx_of_no_number_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="expected tx:TRANSACTIONS"):
        catalogue.find(name, 0, 1, HEAP, Cache(tmp_path))


def test_a_workload_may_open_lazily(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    lazy, at_once = (catalogue.find(name, 20, 1, HEAP, cache) for name in ("lazy:reopen", "reopen"))
    assert (lazy.name, lazy.is_lazy, lazy.operations) == ("lazy:reopen", True, at_once.operations)
    assert lazy.text() == at_once.text().replace("\ncase", "\nopens lazily\ncase", 1)
    read = file_format.parse(lazy.text(), "text")
    assert (read.is_lazy, read.text()) == (True, lazy.text())
    assert catalogue.takes_ops("lazy:churn")
    assert not catalogue.takes_ops("lazy:smoke")
    assert catalogue.is_made_for_heap("lazy:ace:2")


def test_a_workload_may_meet_a_full_disk(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    full = catalogue.find("full:3:lazy:churn", 20, 1, HEAP, cache)
    assert (full.name, full.is_lazy, full.growths) == ("full:3:lazy:churn", True, 3)
    assert full.text().startswith("workload 1\nslots 64\nopens lazily\ngrowths 3\ncase\n")
    assert file_format.parse(full.text(), "text").text() == full.text()
    assert catalogue.find("full:0:smoke", 0, 1, HEAP, cache).growths == 0
    assert catalogue.takes_ops("lazy:full:2:churn")
    for many in ("many", "65537", "9" * 5000):
        with pytest.raises(BadInputError, match="expected full:N:NAME with N from 0 to 65536"):
            catalogue.find(f"full:{many}:smoke", 0, 1, HEAP, cache)


@pytest.mark.parametrize(
    "name",
    ["lazy:", "lazy:nothing", "lazy:file:1234", "lazy:FILE", "lazy:ace", "lazy:smoke:3", "full:1", "full:", "full:1:x"],
)
def test_lazy_of_no_workload_is_one_line(tmp_path: Path, name: str) -> None:
    with pytest.raises(BadInputError, match="expected the name of a workload after lazy: or full:N:"):
        catalogue.find(name, 20, 1, HEAP, Cache(tmp_path))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("workload 1\nslots 4\nopens\n", "text:3: expected `opens lazily`"),
        ("workload 1\nslots 4\ncase\nopens lazily\n", "text:4: `opens lazily` after the first `case`"),
        ("workload 1\nslots 4\ngrowths\n", "text:3: expected `growths COUNT`"),
        ("workload 1\nslots 4\ngrowths 65537\n", "text:3: growths '65537': expected a number from 0 to 65536"),
        ("workload 1\nslots 4\ncase\ngrowths 1\n", "text:4: `growths` after the first `case`"),
    ],
)
def test_lazy_stands_below_the_slots(text: str, message: str) -> None:
    with pytest.raises(BadInputError, match=message):
        file_format.parse(text, "text")


def test_a_file_that_ends_in_a_transaction_is_refused() -> None:
    with pytest.raises(BadInputError, match=r"text: ends in a transaction: commit or abort it first"):
        file_format.parse(HEAD + "begin\nallocate 0 8\n", "text")


def test_smoke_is_a_dozen_operations_of_every_kind() -> None:
    smoke = generators.smoke()
    kinds = [operation.kind for operation in smoke.operations]
    assert is_valid(smoke)
    assert set(kinds) == {"case", "allocate", "free", "reallocate", "reopen"}
    assert sum(kind in ("allocate", "free", "reallocate") for kind in kinds) == 12
    assert smoke.session_count == 2


@given(ops=st.integers(1, 400), seed=st.integers(0, 2**64))
def test_churn_is_valid_bounded_and_has_the_operations_asked_for(ops: int, seed: int) -> None:
    churn = generators.churn(ops, seed)
    assert is_valid(churn)
    assert len(churn.operations) == ops + 1
    live: set[int] = set()
    for operation in churn.operations[1:]:
        live = live | {operation.slot} if operation.kind != "free" else live - {operation.slot}
        assert len(live) <= generators.CHURN_LIVE_OBJECTS


def test_churn_is_a_function_of_its_seed() -> None:
    assert generators.churn(100, 7) == generators.churn(100, 7)
    assert generators.churn(100, 7).text() != generators.churn(100, 8).text()


def test_churn_of_seed_1_is_what_it_was() -> None:
    """Tokens name generated workloads by ops and seed: a changed generator would break them all."""
    assert generators.churn(40, 1).key == "e4d089a0a6f02a97"


def test_churn_mixes_operations_and_sizes() -> None:
    operations = generators.churn(2000, 3).operations[1:]
    kinds = [operation.kind for operation in operations]
    sizes = [operation.size_bytes for operation in operations if operation.size_bytes]
    assert all(kinds.count(kind) > 200 for kind in ("allocate", "free", "reallocate"))
    assert sum(size <= 512 for size in sizes) > len(sizes) / 2
    assert max(sizes) > 8192


@pytest.mark.parametrize("depth", [1, 2, 3])
@pytest.mark.parametrize("size_count", [1, 2, 4])
def test_ace_has_every_sequence_once(depth: int, size_count: int) -> None:
    ace = sequences.ace(depth, SIZES[:size_count])
    cases = ace.text().split("case\n")[1:]
    assert len(cases) == len(set(cases)) == ace.case_count == sequences.ace_case_count(depth, size_count)
    assert is_valid(ace)


def test_ace_counts_by_hand() -> None:
    """4 sizes: 4 first operations; after an allocation 4 allocations, 1 free and 3 reallocations follow."""
    assert sequences.ace_case_count(1, 4) == 4
    assert sequences.ace_case_count(2, 4) == 4 + 4 * (4 + 1 + 3)


def test_ace_has_the_sequences_that_count() -> None:
    cases = set(sequences.ace(2, SIZES).text().split("case\n")[1:])
    assert "allocate 0 64\nfree 0\n" in cases
    assert "allocate 0 64\nreallocate 0 65536\n" in cases
    assert "allocate 0 64\nreallocate 0 64\n" not in cases
    assert "allocate 0 2048\nallocate 1 2048\n" in cases


def test_ace_over_some_of_the_sizes_is_bounded(cache: Cache) -> None:
    """What CI runs of ace:3, and what the long matrix runs."""
    assert [catalogue.find(name, 40, 1, HEAP, cache).case_count for name in ("ace:3:2", "ace:3", "ace:3:4")] == [
        46,
        340,
        340,
    ]
    assert catalogue.find("ace:3:2", 40, 1, HEAP, cache).name == "ace:3:2"
    assert [sequences.spread(SIZES, count) for count in (1, 2, 3)] == [[64], [64, 65536], [64, 2048, 65536]]


def test_ace_has_every_sequence_of_three_operations() -> None:
    """Against all sequences over four slots and two sizes, renamed so that the slots come in order of first use."""
    sizes = SIZES[:2]
    alphabet = [("allocate", slot, size) for slot in range(3) for size in sizes]
    alphabet += [("reallocate", slot, size) for slot in range(3) for size in sizes] + [
        ("free", slot, 0) for slot in range(3)
    ]
    expected = set()
    for length in (1, 2, 3):
        for sequence in itertools.product(alphabet, repeat=length):
            if (text := lowest_slots_first(sequence)) is not None:
                expected.add(text)
    assert set(sequences.ace(3, sizes).text().split("case\n")[1:]) == expected


def lowest_slots_first(sequence: tuple[tuple[str, int, int], ...]) -> str | None:
    """The sequence's lines if it can be run, changes no object into itself, and takes the lowest empty slot each time."""
    live: dict[int, int] = {}
    lines = []
    for kind, slot, size in sequence:
        lowest = next(number for number in itertools.count() if number not in live)
        if (slot != lowest) if kind == "allocate" else (slot not in live or live[slot] == size):
            return None
        if kind == "free":
            del live[slot]
        else:
            live[slot] = size
        lines.append(Operation(kind, slot, size).line() + "\n")
    return "".join(lines)


@given(ops=st.integers(1, 300), seed=st.integers(0, 2**64))
def test_chain_and_names_are_churn_over_their_layout(ops: int, seed: int) -> None:
    for layout in ("chain", "names"):
        workload = generators.over_layout(layout, ops, seed)
        assert is_valid(workload)
        assert (workload.name, workload.layout) == (layout, layout)
        assert workload.operations == generators.churn(ops, seed).operations


@given(ops=st.integers(1, 300), seed=st.integers(0, 2**64))
def test_reopen_has_its_cycles_with_work_in_between(ops: int, seed: int) -> None:
    workload = generators.reopen(ops, seed)
    assert is_valid(workload)
    work = [operation for operation in workload.operations if operation.kind != "reopen"]
    assert tuple(work) == generators.churn(ops, seed).operations
    assert workload.session_count == 1 + min(generators.REOPENS, ops) + 1
    parts = workload.text().split("reopen\n")
    assert all(parts[:-2])
    assert parts[-2:] == ["", ""]


@pytest.mark.parametrize("boundaries", [[64], [1, 2], SIZES, [24, 100, 1000]])
def test_sizes_meets_both_sides_of_every_boundary(boundaries: list[int]) -> None:
    workload = generators.sizes(boundaries)
    assert is_valid(workload)
    live: dict[int, int] = {}
    changes: set[tuple[str, int, int]] = set()
    for operation in workload.operations[1:]:
        changes.add((operation.kind, live.pop(operation.slot, 0), operation.size_bytes))
        if operation.kind != "free":
            live[operation.slot] = operation.size_bytes
    assert not live
    for boundary in boundaries:
        below, above = max(1, boundary - 1), boundary + 1
        for size in (below, boundary, above):
            assert {("allocate", 0, size), ("free", size, 0)} <= changes
        assert {("reallocate", below, above), ("reallocate", above, below)} <= changes
    for smaller, larger in [*itertools.pairwise(boundaries), (boundaries[0], boundaries[-1])]:
        assert smaller == larger or {("reallocate", smaller, larger), ("reallocate", larger, smaller)} <= changes


@pytest.mark.parametrize("room_bytes", [1 << 20, (1 << 20) - 65536, 700_000])
@pytest.mark.parametrize("overhead_bytes", [0, 64])
def test_fill_runs_out_of_memory_at_each_size_and_comes_back(room_bytes: int, overhead_bytes: int) -> None:
    """Against an allocator that packs perfectly, which is the hardest to fill."""
    limit_bytes = 1 << 20
    workload = generators.fill(limit_bytes)
    assert is_valid(workload)
    live: dict[int, int] = {}
    refused: list[int] = []
    got_all_back = 0
    for operation in workload.operations[1:]:
        if operation.kind == "free":
            live.pop(operation.slot, None)
            got_all_back += not live
            continue
        if operation.kind == "reallocate" and operation.slot not in live:
            continue
        rest = sum(size + overhead_bytes for slot, size in live.items() if slot != operation.slot)
        if rest + operation.size_bytes + overhead_bytes > room_bytes:
            refused.append(operation.size_bytes)
        else:
            live[operation.slot] = operation.size_bytes
    assert {limit_bytes // share for share in generators.FILL_SHARES} <= set(refused)
    assert refused[-1] == limit_bytes // generators.FILL_SHARES[0], "the second time too"
    assert not live
    assert got_all_back >= 2


@given(ops=st.integers(1, 300), seed=st.integers(0, 2**64))
def test_threads_is_valid_and_joins(ops: int, seed: int) -> None:
    """That no slot has two threads between two joins is what parse checks."""
    workload = generators.threads(ops, seed)
    assert is_valid(workload)
    assert {operation.thread for operation in workload.operations if operation.slot} <= {1, 2}
    assert sum(operation.kind != "join" for operation in workload.operations) == ops + 1
    joins = [place for place, operation in enumerate(workload.operations) if operation.kind == "join"]
    assert all(second - first == generators.THREADS_ROUND + 1 for first, second in itertools.pairwise([0, *joins]))


@pytest.mark.parametrize("seed", range(1, 9))
def test_threads_touch_each_others_objects(seed: int) -> None:
    workload = generators.threads(40, seed)
    makers: dict[int, int] = {}
    crossings = {"free": 0, "reallocate": 0}
    for operation in workload.operations:
        if operation.kind in crossings:
            crossings[operation.kind] += makers[operation.slot] != operation.thread
        if operation.size_bytes:
            makers[operation.slot] = operation.thread
    assert workload.thread_count == 2
    assert crossings["free"] > 0, workload.text()


@pytest.mark.parametrize("name", sorted(catalogue.TAKES_OPS))
def test_seeded_workloads_are_functions_of_their_seed(name: str, cache: Cache) -> None:
    def find(seed: int) -> Workload:
        return catalogue.find(name, 40, seed, HEAP, cache)

    assert find(7) == find(7)
    assert find(7).text() != find(8).text()
    assert (find(7).name, find(7).ops, find(7).seed) == (name, 40, 7)


def test_every_generator_is_found_by_its_name(cache: Cache) -> None:
    for name in catalogue.GENERATORS:
        if name == "FILE":
            continue
        name = name.replace("NAME", "smoke").replace("full:N", "full:2")
        name = name.replace("N", "2" if name.startswith("ace") else "8").replace("K", "2").replace("A:B", "10:99")
        name = name.replace("M", "5")
        workload = catalogue.find(name, 40, 3, HEAP, cache)
        assert workload.name == name
        assert file_format.parse(workload.text(), name).key == workload.key


@pytest.mark.parametrize("ops", [1, 2, 99, 2000])
def test_uniform_allocates_and_frees_in_halves(ops: int) -> None:
    workload = generators.uniform(ops, 3, 10, 20)
    kinds = Counter(operation.kind for operation in workload.operations)
    assert (kinds["allocate"], kinds["free"]) == (ops - ops // 2, ops // 2)
    sizes = {operation.size_bytes for operation in workload.operations if operation.kind == "allocate"}
    assert sizes <= set(range(10, 21))
    assert ops < 2000 or sizes == set(range(10, 21))
    assert slots.well_formed(workload.operations, "root") == workload.operations


@pytest.mark.parametrize(
    "name", ["uniform:", "uniform:10", "uniform:0:5", "uniform:6:5", "uniform:a:5", "uniform:1:2:3"]
)
def test_a_uniform_workload_needs_two_sizes(cache: Cache, name: str) -> None:
    with pytest.raises(BadInputError, match="expected uniform:SMALLEST:LARGEST"):
        catalogue.find(name, 40, 3, HEAP, cache)


def test_operations_are_counted_as_the_runner_counts() -> None:
    """create, allocate, close, open, free, close; then create and close."""
    workload = file_format.parse("workload 1\nslots 1\ncase\nallocate 0 8\nreopen\nfree 0\ncase\n", "text")
    assert workload.operation_count == 8
    assert (workload.session_count, workload.case_count) == (2, 2)


def test_comments_and_blank_lines_do_not_count() -> None:
    text = "# mine\n\nworkload 1 # version\nslots 2\n  case\nallocate 1 8 # one\n\n"
    assert file_format.parse(text, "f").text() == "workload 1\nslots 2\ncase\nallocate 1 8\n"


HEAD = "workload 1\nslots 4\ncase\n"
GRAPH = "workload 1\nslots 4 graph\ncase\nallocate 0 8\nallocate 1 8\n"


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("", None, "ends before `workload 1`"),
        ("workload 1\n", None, "ends before `slots COUNT`"),
        ("workload 1\nslots 4\n", None, "ends before `case`"),
        ("workload 2\n", 1, "expected `workload 1`"),
        ("slots 4\n", 1, "expected `workload 1`"),
        ("workload 1\ncase\n", 2, "expected `slots COUNT [names | chain | graph]`"),
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
        (HEAD + "commit\n", 4, "commit: no transaction is open: begin one first"),
        (HEAD + "abort\n", 4, "abort: no transaction is open: begin one first"),
        (HEAD + "begin 1\n", 4, "expected `begin`"),
        (HEAD + "begin\nbegin\n", 5, "begin: a transaction is open: commit or abort it first"),
        (HEAD + "begin\nreopen\n", 5, "reopen in a transaction: commit or abort it first"),
        (HEAD + "begin\ncase\n", 5, "case in a transaction: commit or abort it first"),
        (HEAD + "begin\nthread 1 allocate 0 8\n", 5, "transactions and writes, or `thread`, not both"),
        (HEAD + "thread 1 allocate 0 8\njoin\nbegin\n", 6, "transactions and writes, or `thread`, not both"),
        (HEAD + "thread 1 write 0 0 8\n", 4, "`thread N` goes before allocate, free, reallocate, got 'write'"),
        (HEAD + "begin\nallocate 0 8\nabort\nfree 0\n", 7, "slot 0 is empty, free needs a live one"),
        (HEAD + "write 0 0 8\n", 4, "slot 0 is empty, write needs a live one"),
        (HEAD + "allocate 0 64\nwrite 0 8\n", 5, "expected `write SLOT START LENGTH`"),
        (HEAD + "allocate 0 64\nwrite 0 4 8\n", 5, "write: first byte 4: expected a multiple of 8"),
        (HEAD + "allocate 0 64\nwrite 0 8 12\n", 5, "write: length 12: expected a multiple of 8"),
        (HEAD + "allocate 0 64\nwrite 0 8 4\n", 5, "length in bytes '4': expected a number from 8"),
        (HEAD + "allocate 0 64\nwrite 0 56 16\n", 5, "it ends at byte 72, the object in slot 0 at byte 64"),
        ("workload 1\nslots 4 graph\ncase\nbegin\n", 4, "no transactions and writes with `slots COUNT graph`"),
        (GRAPH + "write 0 0 8\n", 6, "write: there are no transactions and writes with `slots COUNT graph`"),
        ("workload 1\nslots 4 tree\n", 2, "slot layout 'tree': expected one of root, names, chain, graph"),
        ("workload 1\nslots 4 names 3\n", 2, "expected `slots COUNT [names | chain | graph]`"),
        (HEAD + "thread 0 allocate 0 8\n", 4, "thread '0': expected a number from 1 to 63"),
        (HEAD + "thread 64 allocate 0 8\n", 4, "thread '64': expected a number from 1 to 63"),
        (HEAD + "thread 1\n", 4, "expected `thread N` and an operation"),
        (HEAD + "thread 1 join\n", 4, "`thread N` goes before allocate, free, reallocate, got 'join'"),
        (HEAD + "thread 1 thread 2 free 0\n", 4, "got 'thread'"),
        (HEAD + "join 1\n", 4, "expected `join`"),
        (HEAD + "thread 1 allocate 0 8\nfree 0\n", 5, "slot 0 was used by thread 1 since the last join"),
        (HEAD + "allocate 0 8\nthread 2 free 0\n", 5, "slot 0 was used by the main thread since the last join"),
        (HEAD + "allocate 0 8\nlink 0 0 0\n", 5, "link needs `slots COUNT graph`"),
        (HEAD + "allocate 0 8\nunlink 0 0\n", 5, "unlink needs `slots COUNT graph`"),
        (HEAD + "allocate 0 8\ndrop 0\n", 5, "drop needs `slots COUNT graph`"),
        (HEAD + "allocate 0 8\nload 1 0 0\n", 5, "load needs `slots COUNT graph`"),
        (GRAPH + "thread 1 free 0\n", 6, "with `slots COUNT graph` every operation is the main thread's"),
        (GRAPH + "thread 1 link 0 0 1\n", 6, "`thread N` goes before allocate, free, reallocate, got 'link'"),
        (GRAPH + "link 0 0\n", 6, "expected `link SLOT FIELD TARGET`"),
        (GRAPH + "link 0 2 1\n", 6, "field '2': expected a number from 0 to 1"),
        (GRAPH + "link 0 0 4\n", 6, "slot 4 is not below `slots 4`"),
        (GRAPH + "link 0 0 2\n", 6, "slot 2 is empty, link needs a live one"),
        (GRAPH + "link 2 0 0\n", 6, "slot 2 is empty, link needs a live one"),
        (GRAPH + "unlink 0\n", 6, "expected `unlink SLOT FIELD`"),
        (GRAPH + "unlink 2 0\n", 6, "slot 2 is empty, unlink needs a live one"),
        (GRAPH + "drop 0 0\n", 6, "expected `drop SLOT`"),
        (GRAPH + "drop 2\n", 6, "slot 2 is empty, drop needs a live one"),
        (GRAPH + "load 2 0\n", 6, "expected `load SLOT FROM FIELD`"),
        (
            GRAPH + "load 2 0 0\n",
            6,
            "field 0 of the object in slot 0 is null, load needs one that is set: link it first",
        ),
        (GRAPH + "load 2 3 0\n", 6, "slot 3 is empty, load needs a live one"),
        (GRAPH + "link 0 0 1\nload 1 0 0\n", 7, "slot 1 is live, load needs an empty one: free or drop it first"),
        (GRAPH + "allocate 1 8\n", 6, "slot 1 is live, allocate needs an empty one: free or drop it first"),
        (
            GRAPH + "link 0 1 1\nfree 1\n",
            7,
            "the object in slot 1 is still linked from slot 0's field 1: unlink it first",
        ),
        (
            GRAPH + "link 1 1 1\nreallocate 1 9\n",
            7,
            "the object in slot 1 is still linked from slot 1's field 1: unlink it first",
        ),
        (
            GRAPH + "allocate 2 8\nlink 0 0 1\nlink 1 0 2\ndrop 1\nfree 2\n",
            10,
            "the object in slot 2 is still linked from field 0 of an object that slot 0 reaches: unlink it first",
        ),
        (
            GRAPH + "link 0 0 1\nload 2 0 0\nfree 1\n",
            8,
            "the object in slot 1 is in slot 2 too: drop that first",
        ),
    ],
)
def test_errors_name_file_and_line(text: str, line: int | None, words: str) -> None:
    with pytest.raises(BadInputError) as caught:
        file_format.parse(text, "mine.workload")
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
    workload = file_format.parse(THREADED, "text")
    assert workload.text() == THREADED
    assert (workload.layout, workload.thread_count, workload.is_threaded) == ("chain", 2, True)
    assert workload.operation_count == 8  # create, 2 allocate, free, close, open, reallocate, close
    assert file_format.parse(THREADED.replace(" chain", " root"), "text").text() == THREADED.replace(" chain", "")


LINKED = """workload 1
slots 4 graph
case
allocate 0 8
allocate 1 9
link 0 1 1
link 1 0 0
drop 1
load 2 0 1
unlink 2 0
unlink 0 1
free 2
free 0
allocate 0 8
allocate 1 8
link 0 0 1
drop 0
free 1
case
allocate 1 10
reallocate 1 20
"""


def test_links_are_read_and_written_as_they_were() -> None:
    """In the end slot 0's object is garbage: what its field holds can be freed all the same."""
    workload = file_format.parse(LINKED, "text")
    assert workload.text() == LINKED
    assert (workload.layout, workload.slots, workload.case_count) == ("graph", 4, 2)
    assert workload.operations[3] == Operation("link", 0, field=1, other=1)
    assert workload.operations[6] == Operation("load", 2, other=0, field=1)


@pytest.mark.parametrize("make", [graph_generators.graph, lambda ops, seed: graph_generators.resur(ops, seed, 1 << 19)])
@settings(deadline=None)
@given(ops=st.integers(1, 200), seed=st.integers(0, 2**64))
def test_graphs_are_valid_and_have_the_operations_asked_for(
    make: Callable[[int, int], Workload], ops: int, seed: int
) -> None:
    workload = make(ops, seed)
    assert is_valid(workload)
    assert sum(operation.kind not in ("case", "reopen") for operation in workload.operations) == ops
    assert workload == make(ops, seed)


def follow(workload: Workload) -> Iterator[tuple[Operation, Links]]:
    """Each operation, and the slots and fields after it."""
    links = Links()
    for operation in workload.operations:
        if operation.kind == "case":
            links.clear()
        slots.follow_links(links, operation)
        yield operation, links


def test_graph_has_every_operation_cycles_and_bounds() -> None:
    kinds: dict[str, int] = {}
    cycles = 0
    for operation, links in follow(graph_generators.graph(2000, 5)):
        kinds[operation.kind] = kinds.get(operation.kind, 0) + 1
        reached = [found for _, found in links.reached()]
        assert len(reached) <= graph_generators.GRAPH_LIVE_OBJECTS
        cycles += any(found in reaches(found) for found in reached)
    assert all(kinds[kind] > 2000 // 40 for kind in SLOT_OPERATIONS if kind != "write")
    assert kinds["reopen"] == graph_generators.GRAPH_REOPENS
    assert kinds["case"] > 1  # one heap's garbage is bounded
    assert cycles > 500


def reaches(start: Object) -> set[Object]:
    """Through at least one field."""
    seen: set[Object] = set()
    waiting = [start]
    while waiting:
        more = {target for target in waiting.pop().fields if target is not None} - seen
        seen |= more
        waiting += more
    return seen


def test_resur_is_half_lists_that_grow_in_front_and_are_dropped_later() -> None:
    workload = graph_generators.resur(1000, 5, 1 << 30)
    kinds = [operation.kind for operation in workload.operations]
    sizes = [operation.size_bytes for operation in workload.operations if operation.kind == "allocate"]
    assert max(sizes) <= graph_generators.RESUR_LARGEST_BYTES < 2 * max(sizes)
    assert 0.4 < kinds.count("free") / kinds.count("allocate") < 0.6
    assert kinds.count("reopen") == 1
    later = kinds.index("reopen") + 1
    assert kinds[later : later + graph_generators.RESUR_LISTS // 2] == ["drop"] * (graph_generators.RESUR_LISTS // 2)
    longest = max(sum(1 for _, found in links.reached()) for _, links in follow(workload))
    assert longest > 100


def test_resur_is_scaled_to_small_heaps() -> None:
    """What is retained of it fits: else the case would end early."""
    for ops in (60, 1000, 20000):
        *_, (_, links) = follow(graph_generators.resur(ops, 1, 1 << 19))
        assert sum(found.size_bytes for _, found in links.reached()) < 1 << 18


def test_only_threads_have_a_schedule(tmp_path: Path, cache: Cache) -> None:
    """Seed 0 is the tracer's own schedule, which is not promised to be the same each time."""
    path = tmp_path / "mine.workload"
    path.write_text(THREADED)
    assert [catalogue.find(str(path), 40, seed, HEAP, cache).schedule_seed for seed in (0, 1, 7)] == [1, 1, 7]
    assert catalogue.find("churn", 40, 7, HEAP, cache).schedule_seed == 0


@given(st.text(alphabet="workload 1slots case\nfree#2-"))
def test_any_text_parses_or_is_bad_input(text: str) -> None:
    with contextlib.suppress(BadInputError):
        file_format.parse(text, "text")


@pytest.mark.parametrize(
    "name",
    [
        "ace:0",
        "ace:7",
        "ace:x",
        "ace:",
        pytest.param("ace:" + "9" * 5000, id="long"),
        "ace:2:0",
        "ace:2:5",
        "ace:2:2:2",
        "defrag:",
        "defrag:7",
        "defrag:4097",
        "defrag:-8",
        "defrag:8:8",
        pytest.param("defrag:" + "9" * 5000, id="long-defrag"),
        "nosuch",
        "file:nosuch",
        "file:../../etc",
    ],
)
def test_unknown_workloads_are_bad_input(name: str, cache: Cache) -> None:
    with pytest.raises(BadInputError, match=name.replace(".", r"\.")):
        catalogue.find(name, 40, 1, HEAP, cache)


def test_a_file_is_found_again_by_its_key(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "mine.workload"
    path.write_text("workload 1\nslots 1 # one\ncase\nallocate 0 8\n")
    first = catalogue.find(str(path), 40, 1, HEAP, cache)
    path.unlink()
    assert first.name == f"file:{first.key}"
    assert catalogue.find(first.name, 40, 1, HEAP, cache) == first


def test_a_file_that_is_no_text_is_bad_input(tmp_path: Path, cache: Cache) -> None:
    path = tmp_path / "binary"
    path.write_bytes(b"workload \xff\xfe")
    with pytest.raises(BadInputError, match="UTF-8"):
        catalogue.find(str(path), 40, 1, HEAP, cache)
    with pytest.raises(BadInputError, match="is no regular file"):
        catalogue.find(str(tmp_path), 40, 1, HEAP, cache)


def test_the_clones_own_files_are_found_from_any_folder(
    root: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    name = "allocators/nvm_malloc/workloads/chain.workload"
    monkeypatch.chdir(root)
    here = catalogue.find(name, 1, 1, HEAP, cache)
    monkeypatch.chdir(tmp_path)
    assert catalogue.find(name, 1, 1, HEAP, cache) == here


def sizes_of(workload: Workload, kind: str) -> list[int]:
    return [operation.size_bytes for operation in workload.operations if operation.kind == kind]


@pytest.mark.parametrize("share", [128, 32])
def test_defrag_asks_for_twice_the_size_in_what_half_of_the_objects_left(share: int) -> None:
    smallest = (1 << 20) // share
    workload = generators.defrag(1 << 20, share)
    allocated = sizes_of(workload, "allocate")
    assert sorted(set(allocated)) == [smallest, 2 * smallest, 4 * smallest, 8 * smallest]
    assert allocated == sorted(allocated)
    assert allocated.count(smallest) * smallest > 1 << 20
    live: dict[int, int] = {}
    for operation in workload.operations[1:]:
        if operation.kind == "free":
            del live[operation.slot]
        else:
            assert operation.slot not in live
            live[operation.slot] = operation.size_bytes
        assert sum(live.values()) <= (1 << 20) + smallest


def test_split_takes_the_room_of_each_number_of_pieces_in_two() -> None:
    workload = generators.split(100, 450)
    allocated = sizes_of(workload, "allocate")
    assert [tuple(allocated[at : at + 3]) for at in range(0, len(allocated), 3)] == [
        (200, 100, 100),
        (300, 100, 200),
        (400, 100, 300),
    ]
    live: set[int] = set()
    for operation in workload.operations[1:]:
        (live.discard if operation.kind == "free" else live.add)(operation.slot)
        assert len(live) <= 2
    assert not live
    assert sizes_of(generators.split(100, 10), "allocate") == [200, 100, 100], "at least one"


def test_big_has_large_objects_of_all_sizes_and_keeps_half_of_the_heap_free() -> None:
    limit_bytes = 1 << 20
    workload = generators.big(400, 3, limit_bytes)
    assert workload.operation_count == 402
    assert workload == generators.big(400, 3, limit_bytes)
    live: dict[int, int] = {}
    for operation in workload.operations[1:]:
        assert (operation.slot in live) == (operation.kind != "allocate")
        live.pop(operation.slot, None)
        if operation.kind != "free":
            live[operation.slot] = operation.size_bytes
        assert sum(live.values()) <= limit_bytes // 2
    sizes = sizes_of(workload, "allocate") + sizes_of(workload, "reallocate")
    assert limit_bytes // 128 <= min(sizes) < limit_bytes // 64
    assert limit_bytes // 16 < max(sizes) <= limit_bytes // 8
