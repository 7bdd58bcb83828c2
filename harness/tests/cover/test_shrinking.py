# SPDX-License-Identifier: Apache-2.0
"""The way down to a smallest witness, with findings that depend on the operations in a way the test says; and bounds."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import msgspec
import pytest

import samples
from faultline.base.cache import Cache
from faultline.base.errors import InfrastructureError
from faultline.pipeline.events import Finding, StateSize
from faultline.pipeline.prepared import PreparedCell
from faultline.study import candidates
from faultline.study import shrink as shrink_module
from faultline.study.candidates import Operations
from faultline.study.shrink import Budget
from faultline.study.witness import Shrunk
from faultline.workload import catalogue, file_format, generators
from faultline.workload.operations import Operation, Workload

Shows = Callable[[Operations], bool]
"""Whether a case of these operations shows the finding at its last one."""


def finding_at(index: int) -> Finding:
    return samples.finding(operation={"index": index, "kind": "allocate", "slot": 0, "pending": False})


def later_finding_at(index: int) -> Finding:
    """Of a second crash, at an operation of the recovery from the first one, which was at this one of the workload."""
    return msgspec.structs.replace(finding_at(0xF01000), is_later=True, token=str(index))


class Simulated(shrink_module._WitnessSearch):
    """Explores by the test's word; explored: the cases of each exploration."""

    found_at = staticmethod(finding_at)

    def __init__(self, workload: Workload, shows: Shows, budget: Budget, tmp: Cache, steps: list[str]) -> None:
        heap = type("Heap", (), {"boundary_sizes": [64, 2048]})
        allocator = type("Allocator", (), {"heap": heap})
        target = type("Target", (), {"allocator": allocator, "hooked": True})
        engine = type("Engine", (), {"ask_json": staticmethod(lambda kind, _, token: kind(int(token) + 1))})
        shop = type("Workshop", (), {"cache": tmp, "heap_folder": None, "engine": engine})
        last = max(workload.operation_count - 2, 0)
        cell = replace(samples.cell(None, target, shop, strategy="complete"), workload=workload)
        super().__init__(cell, self.found_at(last), budget, tmp, steps.append)
        self.shows, self.explored, self.probes = shows, list[list[Operations]](), list[str]()
        self.shows_alone = True

    def _explore(self, workload: Workload, cache: Cache, is_last: bool = False) -> tuple[Finding | None, PreparedCell]:
        self._count(is_last)
        cell = replace(self.cell, spec=self._spec_of(workload), workload=workload)
        return None if is_last and not self.shows_alone else self._shown(workload), cell

    def _shown(self, workload: Workload) -> Finding | None:
        parsed = file_format.parse(workload.text(), "candidate")
        assert parsed.operations == workload.operations
        self.explored.append([])
        self.probes.append("full" if self.is_probe_full else "first")
        index = 0
        for case in _cases(workload):
            self.explored[-1].append(case)
            for end in range(len(case) + 1):
                if self.shows(case[:end]):
                    return self.found_at(
                        index + sum(2 if one.kind == "reopen" else one.kind != "join" for one in case[:end])
                    )
            index += 2 + sum(2 if one.kind == "reopen" else one.kind != "join" for one in case)
        return None

    def _with_smallest_state(self, cell: PreparedCell, found: Finding, operations: Operations) -> Shrunk:
        self.written, self.written_spec = cell.workload, cell.spec
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


CHURN = generators.churn(40, 1)
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


def test_of_a_second_crash_the_operation_is_that_of_the_first(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a candidate would be taken for the last one that was traced with it."""
    monkeypatch.setattr(Simulated, "found_at", staticmethod(later_finding_at))
    shrunk, search = shrink(CHURN, three_live, cache)
    assert shrunk.workload == ["allocate 0 1", "allocate 1 1", "allocate 2 1"]
    assert candidates.count(search.whole) == candidates.count(CHURN.operations)
    assert set(search.probes) == {"first"}


def test_three_operations_are_found_from_above_and_are_fewest(cache: Cache) -> None:
    """Three objects at a time: none from below, and most of what came before goes."""
    shrunk, search = shrink(CHURN, three_live, cache)
    assert shrunk.workload == ["allocate 0 1", "allocate 1 1", "allocate 2 1"]
    assert shrunk.is_fewest
    assert search.bounds == []


def three_live(case: Operations) -> bool:
    return bool(case) and case[-1].kind == "allocate" and len(candidates._live_after(case)) >= 3


def test_from_above_the_first_part_of_the_probe_script_is_enough(cache: Cache) -> None:
    """If it shows the finding; what is said of workloads of fewer operations is said of all of the script."""
    shrunk, search = shrink(CHURN, three_live, cache)
    assert (shrunk.operations, shrunk.is_fewest) == (3, True)
    assert search.probes == ["full"] * search.probes.count("full") + ["first"] * search.probes.count("first")
    assert search.probes.count("first") > 3


def test_what_only_all_of_the_probe_script_shows_is_shrunk_by_it(cache: Cache) -> None:
    search = Simulated(CHURN, lambda case: search.is_probe_full and three_live(case), Budget(), cache, [])
    shrunk = search.run()
    assert shrunk.workload == ["allocate 0 1", "allocate 1 1", "allocate 2 1"]
    assert 1 <= search.probes.count("first") <= 2, "all operations, on slots of their own or not"


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


@pytest.mark.parametrize("left", [3, 4, 6, 8])
def test_a_limit_of_explorations_is_said_and_keeps_what_is_there(cache: Cache, left: int) -> None:
    def shows(case: Operations) -> bool:
        return kinds(case).count("free") >= 3 and case[-1].kind == "reallocate"

    whole, _ = shrink(CHURN, shows, cache)
    assert whole.bounds == []
    cut, search = shrink(CHURN, shows, cache, explorations=whole.explorations - left)
    assert cut.explorations <= whole.explorations - left
    assert any("limit of" in bound for bound in cut.bounds)
    assert search.current is not None
    assert whole.operations <= cut.operations < cut.operations_before, "what was found is the witness"
    assert "; not all smaller workloads" in cut.text()


def test_a_limit_of_time_is_said_and_what_is_there_is_still_explored_alone(cache: Cache) -> None:
    search = Simulated(CHURN, lambda case: True, Budget(time_s=0.0), cache, [])
    with pytest.raises(shrink_module._BudgetError, match="0 s limit"):
        search._explore(CHURN, cache)
    search.current = search.whole[:2]
    assert search.run().operations < candidates.count(search.whole)


def test_a_limit_of_time_has_the_digits_that_a_person_reads() -> None:
    """What is left of the time for a cell's findings is any number."""
    assert [Budget(time_s=time_s).limit_text() for time_s in (7.68786, 50.0)] == ["7.7 s limit", "50 s limit"]


def test_the_time_begins_with_the_search(cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    """And not when the command line was read: building and tracing come between."""
    now = 100.0
    monkeypatch.setattr(shrink_module.time, "monotonic", lambda: now)
    budget = Budget(time_s=10)
    now = 500.0
    assert Simulated(CHURN, lambda case: True, budget, cache, [])._left_s(is_last=True) == 10


def test_a_search_that_is_stopped_takes_no_error_for_a_workload(cache: Cache) -> None:
    """The child that Ctrl-C ended gives an error, too."""
    search = Simulated(CHURN, lambda case: True, Budget(), cache, [])
    asked = 0

    def say(_: str) -> None:
        nonlocal asked
        asked += 1
        if asked > 1:
            raise RuntimeError("stopped")

    def explore(*_: object) -> None:
        raise InfrastructureError("the tracer was interrupted")

    search.say, search._explore = say, explore  # type: ignore[method-assign, assignment]
    with pytest.raises(RuntimeError, match="stopped"):
        search._first_that_shows([search.whole[:1], search.whole[:2], search.whole[:3]], "some")
    assert asked == 2


def test_what_shows_only_among_other_cases_stays_as_it_is(cache: Cache) -> None:
    shrunk, _ = shrink(CHURN, lambda case: False, cache)
    assert shrunk.operations == shrunk.operations_before
    assert shrunk.bounds == ["not even the operations up to its crash show it alone"]


def test_one_thread_is_enough_or_the_threads_stay(cache: Cache) -> None:
    threaded = catalogue.find("threads", 16, 1, cast(Any, None), cache)
    single, _ = shrink(threaded, lambda case: len(case) >= 1, cache)
    assert single.workload == ["allocate 0 1"]
    assert single.text().startswith("1 of 16 operations")

    def needs_threads(case: Operations) -> bool:
        return len({one.thread for one in case if one.kind != "join"}) == 2

    both, search = shrink(threaded, needs_threads, cache)
    assert [line.split()[0] for line in both.workload] == ["thread", "thread"]
    assert all(len(cases) == 1 for cases in search.explored if any(one.thread for case in cases for one in case))


def test_what_does_not_show_alone_leaves_the_finding_as_it_was(cache: Cache) -> None:
    """With its own seed, though others were tried: its token would be refused."""
    threaded = catalogue.find("threads", 16, 7, cast(Any, None), cache)
    search = Simulated(threaded, lambda case: len({one.thread for one in case}) == 2, Budget(), cache, [])
    search.shows_alone, search.cell = False, search.cell.with_spec(seed=7)
    shrunk = search.run()
    assert search.seed != 7, "the pair was found in another schedule"
    assert search.written_spec == samples.spec(strategy="complete", seed=7)
    assert search.written is threaded
    assert shrunk.operations == shrunk.operations_before == candidates.count(search.whole)


def test_a_smaller_size_may_show_it_at_an_earlier_operation(cache: Cache) -> None:
    def shows(case: Operations) -> bool:
        return bool(case) and (case[0].size_bytes == 8 or (len(case) == 3 and case[0].size_bytes == LARGE))

    search = Simulated(CHURN, shows, Budget(), cache, [])
    search.current = tuple(Operation("allocate", slot=slot, size_bytes=LARGE) for slot in range(3))
    search._use_small_sizes()
    assert search.current == (Operation("allocate", slot=0, size_bytes=8),)


@pytest.mark.parametrize(("needed", "left"), [(1, 1), (2, 2), (3, 3)])
def test_as_few_crashes_as_it_needs(cache: Cache, needed: int, left: int) -> None:
    search = Simulated(CHURN, lambda case: bool(case) and search.crashes >= needed, Budget(), cache, [])
    search.cell, search.crashes = search.cell.with_spec(nested=3), 3
    shrunk = search.run()
    assert (shrunk.operations, search.written_spec.nested) == (1, left)


def test_a_limit_leaves_as_many_crashes_as_it_needs(cache: Cache) -> None:
    search = Simulated(CHURN, lambda case: bool(case) and search.crashes == 3, Budget(explorations=4), cache, [])
    search.cell, search.crashes = search.cell.with_spec(nested=3), 3
    shrunk = search.run()
    assert (shrunk.operations, search.written_spec.nested) == (1, 3)
    assert shrunk.bounds == ["not all smaller workloads were tried: limit of 4 explorations"]


def test_no_crash_fewer_than_the_rule_of_a_later_crash_needs_is_tried(cache: Cache) -> None:
    search = Simulated(CHURN, lambda case: search.crashes == 1, Budget(), cache, [])
    search.cell, search.crashes = search.cell.with_spec(nested=1), 1
    search.run()
    assert search.explorations == 2, "from below, and alone"


def test_a_candidate_that_cannot_be_traced_does_not_hide_the_others(cache: Cache) -> None:
    def shows(case: Operations) -> bool:
        if kinds(case) == ["allocate", "reallocate"]:
            raise InfrastructureError("nvm_malloc crashed with SIGSEGV")
        return kinds(case) == ["allocate", "free"]

    shrunk, _ = shrink(CHURN, shows, cache)
    assert kinds(file_format.parse("workload 1\nslots 9\ncase\n" + "\n".join(shrunk.workload), "").operations[1:]) == [
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
