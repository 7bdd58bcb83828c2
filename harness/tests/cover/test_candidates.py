# SPDX-License-Identifier: Apache-2.0
"""Smaller workloads: each is well-formed, and smaller; those from below are all there are."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from faultline.study import candidates
from faultline.study.candidates import Operations, Shape
from faultline.workload import file_format, generators, graph_generators, sequences
from faultline.workload.operations import Operation, Workload


def case(text: str) -> Operations:
    return parsed(f"case\n{text}").operations[1:]


def parsed(lines: str, slots: str = "8") -> Workload:
    return file_format.parse(f"workload 1\nslots {slots}\n" + lines.replace("; ", "\n") + "\n", "text")


def text(operations: Operations | None) -> str:
    return "; ".join(one.line() for one in operations or ())


def assert_well_formed(shape: Shape, operations: Operations) -> None:
    workload = shape.workload([operations, operations], 7)
    assert file_format.parse(workload.text(), "text").operations == workload.operations


ROOT = Shape(64, "root", is_renamed=True)
SAME_SLOTS = Shape(64, "root", is_renamed=False)
SHORT = case("allocate 5 64; allocate 3 2048; free 5; allocate 5 100; reallocate 3 64; reopen; free 5")


def test_the_case_of_an_operation_ends_with_it() -> None:
    """Indexes: create 0, allocate 1, close 2 and open 3, free 4, close 5; create 6, allocate 7, allocate 8, close 9."""
    workload = parsed("case; allocate 0 1; reopen; free 0; case; allocate 1 2; allocate 2 3")
    found = {index: candidates.case_at(workload, index) for index in range(10)}
    assert {index: (number, text(case)) for index, (number, case) in found.items()} == {
        0: (0, ""),
        1: (0, "allocate 0 1"),
        2: (0, "allocate 0 1; reopen"),
        3: (0, "allocate 0 1; reopen"),
        4: (0, "allocate 0 1; reopen; free 0"),
        5: (0, "allocate 0 1; reopen; free 0"),
        6: (1, ""),
        7: (1, "allocate 1 2"),
        8: (1, "allocate 1 2; allocate 2 3"),
        9: (1, "allocate 1 2; allocate 2 3"),
    }


def test_threads_run_to_the_next_join() -> None:
    workload = parsed("case; thread 1 allocate 0 1; thread 2 allocate 1 1; join; free 0")
    assert text(candidates.case_at(workload, 1)[1]) == "thread 1 allocate 0 1; thread 2 allocate 1 1"
    single = candidates.single_threaded(workload.operations[1:])
    assert text(single) == "allocate 0 1; allocate 1 1; free 0"


def test_what_a_deletion_leaves_without_its_object_goes_with_it() -> None:
    assert (
        text(ROOT.kept(SHORT, lambda at: at != 0)) == "allocate 0 2048; allocate 1 100; reallocate 0 64; reopen; free 1"
    )
    no_free = "allocate 0 64; allocate 1 2048; allocate 2 100; reallocate 1 64; reopen; free 2"
    assert text(ROOT.kept(SHORT, lambda at: at != 2)) == no_free
    same = "allocate 5 64; allocate 3 2048; reallocate 3 64; reopen; free 5"
    assert text(SAME_SLOTS.kept(SHORT, lambda at: at != 2)) == same, "the second object of the slot has no place"


def test_a_candidate_that_needs_more_slots_than_there_are_is_none() -> None:
    assert Shape(2, "root", is_renamed=True).kept(SHORT, lambda at: at != 2) is None


def test_the_last_operation_grows_by_one_other_with_what_both_need() -> None:
    grown = [text(one) for one in candidates.growing(ROOT, SHORT[:5], 60)]
    assert grown[0] == "allocate 0 2048; reallocate 0 64"
    assert set(grown[1:]) == {
        "allocate 0 2048; allocate 1 100; reallocate 0 64",
        "allocate 0 64; allocate 1 2048; free 0; reallocate 1 64",
        "allocate 0 64; allocate 1 2048; reallocate 1 64",
    }


@settings(deadline=None, max_examples=25)
@given(ops=st.integers(1, 60), seed=st.integers(0, 1000), length=st.integers(1, 30), is_renamed=st.booleans())
def test_candidates_are_well_formed_and_smaller(ops: int, seed: int, length: int, is_renamed: bool) -> None:
    shape = Shape(generators.CHURN_SLOTS, "root", is_renamed)
    operations = generators.churn(ops, seed).operations[1:]
    for one in candidates.without_chunks(shape, operations, length):
        assert_well_formed(shape, one)
        assert candidates.size(one) < candidates.size(operations)
    for one in candidates.growing(shape, operations, 60):
        assert_well_formed(shape, one)
        assert one[-1].kind == operations[-1].kind


@settings(deadline=None, max_examples=25)
@given(ops=st.integers(1, 60), seed=st.integers(0, 1000))
def test_graphs_stay_well_formed(ops: int, seed: int) -> None:
    graph = graph_generators.graph(ops, seed)
    shape = Shape(graph.slots, "graph", is_renamed=False)
    _, operations = candidates.case_at(graph, 20)
    for one in candidates.without_chunks(shape, operations, 1) + candidates.growing(shape, operations, 60):
        assert_well_formed(shape, one)


@pytest.mark.parametrize("depth", [1, 2, 3])
def test_from_below_is_every_sequence_once(depth: int) -> None:
    """As ace has them; sizes that stay the same are reallocated too."""
    sizes = [64, 2048]
    kinds = frozenset({"allocate", "free", "reallocate"})
    found = [text(one) for one in candidates.enumerated(ROOT, kinds, sizes, depth)]
    ace = sequences.ace(depth, sizes)
    lines = "; ".join(one.line() for one in ace.operations).split("case; ")[1:]
    expected = {one.removesuffix("; ") for one in lines if one.removesuffix("; ").count(";") == depth - 1}
    assert len(found) == len(set(found))
    assert expected <= set(found)
    assert [one for one in found if one not in expected and "reallocate" not in one] == []


def test_from_below_reopens_only_where_there_is_something() -> None:
    found = {text(one) for one in candidates.enumerated(ROOT, frozenset({"allocate", "reopen"}), [8], 3)}
    assert found == {
        "allocate 0 8; allocate 1 8; allocate 2 8",
        "allocate 0 8; allocate 1 8; reopen",
        "allocate 0 8; reopen; allocate 1 8",
    }


def test_sizes_fall_one_by_one() -> None:
    now = (Operation("allocate", 0, 100), Operation("free", 0))
    assert [text(one) for one in candidates.smaller_sizes(now, 0, [100, 8, 1, 128])] == [
        "allocate 0 1; free 0",
        "allocate 0 8; free 0",
    ]
