# SPDX-License-Identifier: Apache-2.0
"""The way down to a smallest witness, with findings that depend on the operations in a way the test says; and bounds."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import msgspec
import pytest

import samples
from faultline import candidates, shrinking, workloads
from faultline.cache import Cache
from faultline.candidates import Operations
from faultline.engine import Finding, StateSize
from faultline.errors import InfrastructureError
from faultline.shrinking import Budget
from faultline.shrunk import Shrunk
from faultline.tracing import Target
from faultline.workloads import Operation, Workload

Shows = Callable[[Operations], bool]
"""Whether a case of these operations shows the finding at its last one."""


def finding_at(index: int) -> Finding:
    return samples.finding(operation={"index": index, "kind": "allocate", "slot": 0, "pending": False})


class Simulated(shrinking._Search):
    """Explores by the test's word; explored: the cases of each exploration."""

    def __init__(self, workload: Workload, shows: Shows, budget: Budget, tmp: Cache, steps: list[str]) -> None:
        heap = type("Heap", (), {"boundary_sizes": [64, 2048]})
        allocator = type("Allocator", (), {"heap": heap})
        target = cast(Target, type("Target", (), {"allocator": allocator, "hooked": True}))
        shop = cast(Any, type("Workshop", (), {"cache": tmp, "heap_folder": None}))
        last = max(workload.operation_count - 2, 0)
        spec = samples.spec(strategy="complete")
        super().__init__(shop, spec, target, workload, finding_at(last), budget, tmp, steps.append)
        self.shows, self.explored = shows, list[list[Operations]]()

    def _explore(self, workload: Workload, cache: Cache, reserve_s: float) -> Finding | None:
        if self.explorations >= self.budget.explorations:
            raise shrinking._BudgetError(f"limit of {self.budget.explorations} explorations")
        self.explorations += 1
        parsed = workloads.parse(workload.text(), "candidate")
        assert parsed.operations == workload.operations
        self.explored.append([])
        index = 0
        for case in _cases(workload):
            self.explored[-1].append(case)
            for end in range(len(case) + 1):
                if self.shows(case[:end]):
                    return finding_at(
                        index + sum(2 if one.kind == "reopen" else one.kind != "join" for one in case[:end])
                    )
            index += 2 + sum(2 if one.kind == "reopen" else one.kind != "join" for one in case)
        return None

    def _with_smallest_state(self, workload: Workload, spec: Any, found: Finding, operations: Operations) -> Shrunk:
        self.written = workload
        size = StateSize(1, 1, 1)
        counts = (candidates.count(operations), candidates.count(self.whole))
        lines = [one.line() for one in operations]
        is_fewest = self._is_fewest(operations)
        return Shrunk(found.id, found, lines, *counts, size, size, self.explorations, is_fewest, self.bounds)


def _cases(workload: Workload) -> list[Operations]:
    cases: list[list[Operation]] = []
    for operation in workload.operations:
        if operation.kind == "case":
            cases.append([])
        else:
            cases[-1].append(operation)
    return [tuple(case) for case in cases]


def shrink(workload: Workload, shows: Shows, cache: Cache, **budget: Any) -> tuple[Shrunk, Simulated]:
    search = Simulated(workload, shows, Budget(**budget), cache, [])
    return search.run(), search


def kinds(operations: Operations) -> list[str]:
    return [one.kind for one in operations]


CHURN = workloads.churn(40, 1)
LARGE = 300


def test_one_operation_is_found_from_below(cache: Cache) -> None:
    shrunk, search = shrink(CHURN, lambda case: kinds(case)[-1:] == ["allocate"], cache)
    assert shrunk.workload == ["allocate 0 1"]
    assert shrunk.is_fewest
    assert search.written.slots == 1
    assert shrunk.explorations == 2, "all from below at once, and alone"


def test_no_operation_may_be_enough(cache: Cache) -> None:
    shrunk, _ = shrink(CHURN, lambda case: True, cache)
    assert (shrunk.workload, shrunk.operations, shrunk.is_fewest) == ([], 0, True)


def test_sizes_fall_to_where_the_finding_still_shows(cache: Cache) -> None:
    shrunk, _ = shrink(CHURN, lambda case: bool(case) and case[-1].size_bytes > 64, cache)
    assert shrunk.workload == ["allocate 0 65"]


def test_three_operations_are_found_from_above_and_are_fewest(cache: Cache) -> None:
    """Three objects at a time: none from below, and most of what came before goes."""

    def shows(case: Operations) -> bool:
        return bool(case) and case[-1].kind == "allocate" and len(candidates._live_after(case)) >= 3

    shrunk, search = shrink(CHURN, shows, cache)
    assert shrunk.workload == ["allocate 0 1", "allocate 1 1", "allocate 2 1"]
    assert shrunk.is_fewest
    assert search.bounds == []


def test_an_order_that_the_workload_does_not_have_is_found(cache: Cache) -> None:
    """Five operations from above; two that it does not have side by side are enough."""

    def shows(case: Operations) -> bool:
        is_pair = kinds(case) == ["allocate", "reallocate"] and case[0].size_bytes < case[1].size_bytes
        return is_pair or (len(case) >= 5 and case[-1].kind == "free")

    shrunk, _ = shrink(CHURN, shows, cache)
    assert (shrunk.operations, shrunk.is_fewest) == (2, True)


def test_objects_that_must_be_many_stay(cache: Cache) -> None:
    shrunk, _ = shrink(CHURN, lambda case: sum(one.size_bytes for one in case) > 4 * LARGE and len(case) > 6, cache)
    assert shrunk.operations == 7
    assert sum(int(line.rpartition(" ")[2]) for line in shrunk.workload if "alloc" in line) > 4 * LARGE


def test_the_same_finding_shrinks_to_the_same_witness(cache: Cache) -> None:
    def shows(case: Operations) -> bool:
        return kinds(case).count("free") >= 2 and case[-1].kind == "allocate"

    (one, first), (other, second) = shrink(CHURN, shows, cache), shrink(CHURN, shows, cache)
    assert one == other
    assert first.explored == second.explored


def test_a_limit_of_explorations_is_said_and_keeps_what_is_there(cache: Cache) -> None:
    def shows(case: Operations) -> bool:
        return kinds(case).count("free") >= 3 and case[-1].kind == "reallocate"

    whole, _ = shrink(CHURN, shows, cache)
    assert whole.bounds == []
    cut, _ = shrink(CHURN, shows, cache, explorations=whole.explorations - 1)
    assert any("limit of" in bound for bound in cut.bounds)
    assert cut.operations >= whole.operations
    assert "; not all smaller workloads" in cut.text() or "was not traced alone" in cut.text()


def test_a_limit_of_time_is_said(cache: Cache) -> None:
    search = shrinking._Search
    found = Simulated(CHURN, lambda case: True, Budget(time_s=0.0), cache, [])
    with pytest.raises(shrinking._BudgetError, match="0 s limit"):
        search._explore(found, CHURN, cache, 0.0)


def test_what_shows_only_among_other_cases_stays_as_it_is(cache: Cache) -> None:
    shrunk, _ = shrink(CHURN, lambda case: False, cache)
    assert shrunk.operations == shrunk.operations_before
    assert shrunk.bounds == ["not even the operations up to its crash show it alone"]


def test_one_thread_is_enough_or_the_threads_stay(cache: Cache) -> None:
    threaded = workloads.find("threads", 16, 1, cast(Any, None), cache)
    single, _ = shrink(threaded, lambda case: len(case) >= 1, cache)
    assert single.workload == ["allocate 0 1"]

    def needs_threads(case: Operations) -> bool:
        return len({one.thread for one in case if one.kind != "join"}) == 2

    both, search = shrink(threaded, needs_threads, cache)
    assert [line.split()[0] for line in both.workload] == ["thread", "thread"]
    assert all(len(cases) == 1 for cases in search.explored if any(one.thread for case in cases for one in case))


def test_a_candidate_that_cannot_be_traced_does_not_hide_the_others(cache: Cache) -> None:
    def shows(case: Operations) -> bool:
        if kinds(case) == ["allocate", "reallocate"]:
            raise InfrastructureError("nvm_malloc crashed with SIGSEGV")
        return kinds(case) == ["allocate", "free"]

    shrunk, _ = shrink(CHURN, shows, cache)
    assert kinds(workloads.parse("workload 1\nslots 9\ncase\n" + "\n".join(shrunk.workload), "").operations[1:]) == [
        "allocate",
        "free",
    ]


def test_one_line_says_what_is_left() -> None:
    size = StateSize(1, 2, 3)
    found = samples.finding()
    shrunk = Shrunk(found.id, found, ["allocate 0 1", "free 0"], 2, 17, size, size, 9, True, [])
    assert shrunk.text() == "2 of 17 operations (allocate 0 1; free 0), 1 line lost"
    none = msgspec.structs.replace(shrunk, workload=[], operations=0, state=StateSize(0, 0, 0), bounds=["5 s limit"])
    assert none.text() == "0 of 17 operations (create and close), no line lost; 5 s limit"
