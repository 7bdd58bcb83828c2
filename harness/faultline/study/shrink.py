# SPDX-License-Identifier: Apache-2.0
"""Shrinks the witness of a finding: first the workload (fewest operations, then smallest sizes, then fewest slots; one thread if
one suffices), then the crash state of the smallest workload. The engine does the latter (shrink.rs).

A candidate shows the finding if exploring its trace gives the same finding: same rule, same place in the source. Starting the
tracer costs more than a short workload. So candidates are traced together, as the cases of one workload, best first: the first case
that shows the finding is the best of them, and the exploration ends there. Candidates with threads are traced one by one, because
the schedule of a case depends on the cases before it. Only pairs of concurrent operations are tried in many cases and schedules at
once; then a schedule is searched in which the pair shows the finding alone.

The steps, each of which begins with what the one before has left:

1. one thread instead of several; if that does not show it, two operations that run concurrently;
2. from below: every workload of up to two operations, of the kinds and some sizes of the witness;
3. from above: all operations up to the crash; then the operation at the crash with those it depends on and one other; then delta
   debugging, until no operation can go;
4. every workload of fewer operations, if there are not too many;
5. sizes, all together, then one by one: as small as possible, of those at which allocators change their behaviour;
6. as few crashes after the first as the finding needs: the rule of a later crash (FL014) needs one;
7. as few slots as it needs.

From the third step on, only the first part of the probe script runs if that shows the finding: the rest takes most of the time. If
power fails more than once, this holds from the first step on.

The smallest workload is then traced and explored alone, because only that makes it a witness. All of the probe script runs on its
crash state. Everything is in a fixed order: the same finding shrinks to the same witness unless a bound is hit."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice, product

import msgspec

from faultline.base.cache import Cache, scratch_folder
from faultline.base.config import StartPoint
from faultline.base.errors import FaultlineError, InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Certificate, Event, Finding, ShrunkState
from faultline.pipeline.explore import ask_engine, explore
from faultline.pipeline.prepared import PreparedCell
from faultline.study import candidates
from faultline.study.candidates import Operations, Shape
from faultline.study.witness import BUDGET_S, EXPLORATIONS, STATE_RECOVERIES, Shrunk
from faultline.workload.operations import MAX_BYTES, Workload
from faultline.workload.sequences import spread

BATCH_OPERATIONS = 160
"""Most operations of the cases that are traced together: if the first case shows the finding, the others are traced for nothing."""
FIRST_PART_BATCH_OPERATIONS = 480
"""The same when only the first part of the probe script runs: then the start of the tracer takes most of the time."""
SIZE_OPERATIONS = 2500
"""Most operations of all workloads with one smaller size, about: of long workloads fewer sizes are tried."""
FEWEST_SIZES = 2
GROWN_PAIRS = 60
"""So many operations before the one at the crash are each tried with it."""
ENUMERATED_CASES = 160
"""Most workloads that are explored from below: some seconds."""
ENUMERATED_BYTES = 1 << 17
"""Most bytes of their objects together: each word of content is a crash position."""
ENUMERATED_SIZES = 3
PAIR_SCHEDULES = 4
"""How often each pair of concurrent operations is tried among the others, each time in another schedule."""
ALONE_SCHEDULES = 12
"""Seeds of the schedule with which a pair is tried alone."""
WITNESS_SHARE = 0.2
"""The share of the time that is kept for the smallest workload: to explore it alone, and to shrink its crash state."""
WITNESS_EXPLORATIONS = 2
"""Explorations that are kept for the same: with as few slots as it needs, then with as many as there were."""
LEAST_S = 1.0
"""Least time for each of these two steps, however late it is: without them all that was found would be lost."""


@dataclass(frozen=True)
class Budget:
    """Bounds of one finding; the time begins with shrink()."""

    time_s: float = BUDGET_S
    explorations: int = EXPLORATIONS

    def limit_text(self) -> str:
        return f"{round(self.time_s, 1):g} s limit"


def shrink(
    cell: PreparedCell,
    finding: Finding,
    budget: Budget | None = None,
    say: Callable[[str], None] | None = None,
) -> Shrunk:
    """The finding's smallest witness. cell: shows it, with as many crashes after the first as the finding needs;
    say hears of each step."""
    budget = budget or Budget()
    with scratch_folder(cell.workshop.cache, cell.workshop.heap_folder) as folder:
        search = _WitnessSearch(cell, finding, budget, Cache(folder), say or (lambda _: None))
        return search.run()


def start_of_smaller(spec: CellSpec) -> StartPoint:
    """Where power fails first in a smaller workload: it may not have the operation that the cell starts with."""
    return "workload" if isinstance(spec.start, int) else spec.start


class _FirstCrash(msgspec.Struct):
    """What a token says of it. operation: its index, plus one; 0 before the first."""

    operation: int


class _BudgetError(Exception):
    """A bound was hit."""


class _WitnessSearch:
    """The search of one finding. whole: the operations of its own case up to the crash; base: what candidates are made of; current:
    the smallest operations that show it so far; seed: of the schedule that shows them; crashes: after the first, at most;
    is_probe_full: all of the probe script is run."""

    def __init__(
        self,
        cell: PreparedCell,
        finding: Finding,
        budget: Budget,
        cache: Cache,
        say: Callable[[str], None],
    ) -> None:
        self.cell, self.finding, self.budget, self.cache, self.say = cell, finding, budget, cache, say
        workload = cell.workload
        _, self.whole = candidates.case_at(workload, self._operation_of(finding))
        self.base = self.whole
        can_rename = workload.layout != "graph" and not _is_threaded(self.base)
        self.shape = Shape(workload.slots, workload.layout, can_rename, workload.is_lazy, workload.growths)
        self.current: Operations | None = None
        self.seed, self.crashes = cell.spec.seed, cell.spec.nested
        self.is_probe_full = not finding.is_later
        self.deadline = time.monotonic() + budget.time_s
        self.explorations = 0
        self.explored_below = -1
        """Every workload of up to so many operations was explored, but for those after the witness."""
        self.bounds: list[str] = []
        self.failed: set[Operations] = set()

    def run(self) -> Shrunk:
        try:
            self._shrink_workload()
        except _BudgetError as bound:
            self._note(f"not all smaller workloads were tried: {bound}")
        alone = self._alone()
        if alone is None:
            return self._with_smallest_state(self.cell, self.finding, self.whole)
        return self._with_smallest_state(*alone, self.current or ())

    # ---- the workload ----

    def _shrink_workload(self) -> None:
        self._use_one_thread()
        if _is_threaded(self.base):
            is_small = self._find_concurrent()
        else:
            is_small = self._find_from_below(2, "workloads of up to two operations")
        if not is_small:
            self._find_from_above()
        if self.current is not None:
            self._drop_operations()
            self._find_fewer()
            self._use_small_sizes()
            self._use_few_crashes(self.current)

    def _use_one_thread(self) -> None:
        if _is_threaded(self.base):
            single = candidates.single_threaded(self.base)
            if self._take([single], "one thread"):
                self.base = self.current or ()
                self.shape = replace(self.shape, is_renamed=True)

    def _find_concurrent(self) -> bool:
        """Two operations at a time: first in many schedules at once, each a case of one trace, then alone."""
        pairs = candidates.concurrent(self.shape, self.base)
        for batch in _batches(pairs * PAIR_SCHEDULES, BATCH_OPERATIONS):
            case = self._first_that_shows(batch, "two concurrent operations")
            if case is not None and self._find_schedule(case):
                return True
        return False

    def _find_schedule(self, case: Operations) -> bool:
        """Whether some schedule shows the case alone; it is kept."""
        for seed in range(1, ALONE_SCHEDULES + 1):
            self.seed = seed
            if self._first_that_shows([case], f"two concurrent operations alone, seed {seed}") is not None:
                self.current = case
                return True
        self.seed = self.cell.spec.seed
        return False

    def _find_from_below(self, depth: int, step: str) -> bool:
        """Every workload of up to so many operations, fewest and smallest first; if that is too much, the first ones. Whether one
        of them shows it."""
        cases = sorted(self._enumerated(depth), key=candidates.size)
        cases, rest = cases[:ENUMERATED_CASES], cases[ENUMERATED_CASES:]
        while cases and sum(candidates.size(case)[1] for case in cases) > ENUMERATED_BYTES:
            rest = [cases.pop()]
        whole = candidates.count(rest[0]) - 1 if rest else depth
        is_found = self._take(cases, step)
        if self.is_probe_full:
            self.explored_below = min(whole, candidates.count(self.current or ()) - 1) if is_found else whole
        return is_found

    def _enumerated(self, depth: int) -> Iterator[Operations]:
        """With one operation of all sizes of the witness, with more of some."""
        kinds = frozenset(operation.kind for operation in self.base)
        sizes = sorted({1, *(operation.size_bytes for operation in self.base if operation.size_bytes)})
        few = spread(sizes, min(len(sizes), ENUMERATED_SIZES))
        for length in range(depth + 1):
            cases = candidates.enumerated(self.shape, kinds, sizes if length == 1 else few, length)
            yield from islice(cases, ENUMERATED_CASES + 1)

    def _find_from_above(self) -> None:
        """All of its operations, by the first part of the probe script if that is enough, on slots of their own if that may be."""
        shapes = dict.fromkeys([self.shape, replace(self.shape, is_renamed=False)])
        for is_probe_full, shape in product((False, True), shapes):
            self.is_probe_full, self.shape = is_probe_full, shape
            case = shape.kept(self.base, lambda _: True)
            found = None if case is None else self._first_that_shows([case], "all operations up to the crash")
            if found is not None:
                self.current = found
                break
        grown = candidates.growing(self.shape, self.base, GROWN_PAIRS)
        self._take(grown, "the operation at the crash and one other")

    def _drop_operations(self) -> None:
        """Delta debugging: halves of what is left, then smaller and smaller pieces, until no single operation can go."""
        length = max(1, len(self.current or ()) // 2)
        while self.current and not self._is_fewest(self.current):
            pieces = candidates.without_chunks(self.shape, self.current, length)
            if self._take(pieces, f"without {length} of {len(self.current)} operations"):
                length = max(1, min(length, len(self.current) // 2))
            elif length == 1:
                return
            else:
                length //= 2

    def _is_fewest(self, operations: Operations) -> bool:
        return candidates.count(operations) <= self.explored_below + 1

    def _find_fewer(self) -> None:
        """Operations of the same kinds that the finding's own workload does not have, or not in that order."""
        if self.current and not self._is_fewest(self.current):
            depth = candidates.count(self.current) - 1
            self._find_from_below(depth, f"workloads of up to {depth} operations")

    def _use_small_sizes(self) -> None:
        is_threaded = _is_threaded(self.base)
        alphabet = [1] if is_threaded else _size_alphabet(self.cell.target.allocator.heap.boundary_sizes)
        self._take([self._with_sizes_up_to(size) for size in alphabet], "all sizes smaller")
        at, length = 0, len(self.current or ())
        few = spread(alphabet, min(len(alphabet), max(FEWEST_SIZES, SIZE_OPERATIONS // (length * length or 1))))
        while at < len(now := self.current or ()):  # a smaller size may show it at an earlier operation
            smaller = [case for number in range(at, len(now)) for case in candidates.smaller_sizes(now, number, few)]
            if not self._take(smaller, f"smaller sizes from operation {at + 1} on"):
                return
            at = 1 + _first_difference(now, self.current or ())

    def _with_sizes_up_to(self, size_bytes: int) -> Operations:
        """What is written of an object that gets smaller is written of what is left of it, or not at all."""
        now = self.current or ()
        smaller = (
            one if one.kind == "write" else replace(one, size_bytes=min(one.size_bytes, size_bytes)) for one in now
        )
        return candidates.within_objects(tuple(smaller))

    def _use_few_crashes(self, operations: Operations) -> None:
        crashes = self.crashes
        try:
            for fewer in range(1, crashes):
                self.crashes = fewer
                step = f"no more than {fewer} later crash{'es' * (fewer > 1)}"
                if self._first_that_shows([operations], step) is not None:
                    crashes = fewer
                    return
        finally:
            self.crashes = crashes

    def _take(self, cases: Iterable[Operations], step: str) -> bool:
        """Whether one of these shows the finding; the first that does is the new witness. Known failures are left out."""
        left = [case for case in dict.fromkeys(cases) if case not in self.failed and case != self.current]
        if self.current is not None:
            left = [case for case in left if candidates.size(case) < candidates.size(self.current)]
        most = BATCH_OPERATIONS if self.is_probe_full else FIRST_PART_BATCH_OPERATIONS
        for batch in _batches(left, 1 if _is_threaded(self.base) else most):
            found = self._first_that_shows(batch, step)
            if found is not None:
                self.current = found
                return True
            self.failed.update(batch)
        return False

    def _first_that_shows(self, cases: list[Operations], step: str) -> Operations | None:
        """The first of the cases that shows the finding, up to the operation at its crash. Where it is stopped, say ends it here:
        what failed then is no candidate that cannot be traced."""
        self.say(f"{step}: {len(cases)} workload{'s' * (len(cases) > 1)}")
        workload = self.shape.workload(cases, self.seed or 1)
        try:
            found, _ = self._explore(workload, self.cache)
        except FaultlineError:  # one of them cannot be traced: it breaks its heap without a crash
            if len(cases) == 1:
                return None
            middle = len(cases) // 2
            return self._first_that_shows(cases[:middle], step) or self._first_that_shows(cases[middle:], step)
        if found is None:
            return None
        number, operations = candidates.case_at(workload, self._operation_of(found))
        return cases[number] if _is_threaded(cases[number]) else operations

    def _operation_of(self, finding: Finding) -> int:
        """Of the workload: where power fails first. The finding's own is one of a recovery if it fails more than once."""
        if finding.is_later:
            return max(0, self.cell.workshop.engine.ask_json(_FirstCrash, "token", finding.token).operation - 1)
        return int(finding.operation["index"]) if finding.operation else 0

    def _explore(self, workload: Workload, cache: Cache, is_last: bool = False) -> tuple[Finding | None, PreparedCell]:
        """The finding, if the workload shows it. cache: where its trace is kept; is_last: it is what was found, and may use what is
        kept for that."""
        self._count(is_last)
        cell = self.cell.with_workload(self._spec_of(workload), workload, cache)
        found: list[Finding] = []
        gap = ""

        def handle(event: Event) -> None:
            nonlocal gap
            match event:
                case Finding() if event.id == self.finding.id:
                    found.append(event)
                case Certificate():
                    gap = "" if event.complete else event.why

        try:
            left_s = self._left_s(is_last)  # tracing took some
            limited = cell.with_spec(stop_at_rule=self.finding.id, time_limit_s=left_s, recovery_limit=None)
            explore(limited, handle, more={"probe": "full" if self.is_probe_full else "first"})
        finally:
            if cache is self.cache:
                cell.trace.path.unlink(missing_ok=True)
        if not found and gap and time.monotonic() >= self._end(is_last):
            raise _BudgetError(self.budget.limit_text())
        if not found and gap:
            self._note(f"a smaller workload was not explored whole: {gap}")
        return found[0] if found else None, cell

    def _count(self, is_last: bool) -> None:
        """Another exploration, if the bounds allow it."""
        self._left_s(is_last)
        if self.explorations >= self.budget.explorations - (0 if is_last else WITNESS_EXPLORATIONS):
            raise _BudgetError(f"limit of {self.budget.explorations} explorations")
        self.explorations += 1

    def _left_s(self, is_last: bool) -> float:
        left_s = self._end(is_last) - time.monotonic()
        if is_last:
            return max(LEAST_S, left_s)
        if left_s <= 0:
            raise _BudgetError(self.budget.limit_text())
        return left_s

    def _end(self, is_last: bool) -> float:
        return self.deadline - (0 if is_last else self.budget.time_s * WITNESS_SHARE)

    def _note(self, bound: str) -> None:
        if bound not in self.bounds:
            self.bounds.append(bound)

    def _spec_of(self, workload: Workload) -> CellSpec:
        strategy = "complete" if self.cell.target.hooked else self.cell.spec.strategy
        file = {"workload": f"file:{workload.key}", "ops": 0, "path": ""}
        how = {
            "seed": self.seed,
            "nested": self.crashes,
            "strategy": strategy,
            "start": start_of_smaller(self.cell.spec),
        }
        return msgspec.structs.replace(self.cell.spec, **file, **how)

    # ---- the witness ----

    def _alone(self) -> tuple[PreparedCell, Finding] | None:
        """The smallest workload as a file of its own in the cache, traced, and the finding as it shows it: with the slots that it
        needs, else with as many as there were."""
        if self.current is None:
            if not self.bounds:
                self._note("not even the operations up to its crash show it alone")
            return None
        for slots in sorted({candidates.fewest_slots(self.current), self.shape.slots}):
            shape = replace(self.shape, slots=slots, is_renamed=False)
            workload = shape.workload([self.current], self.seed or 1)
            self.say("the smallest workload alone")
            try:
                found, cell = self._explore(workload, self.cell.workshop.cache, is_last=True)
            except _BudgetError as bound:
                self._note(f"the smallest workload was not traced alone: {bound}")
                return None
            if found is not None:
                return cell, found
        self._note("the smallest workload does not show it when it is traced alone")
        return None

    def _with_smallest_state(self, cell: PreparedCell, found: Finding, operations: Operations) -> Shrunk:
        self.say("the smallest crash state")
        witness, state = found, None

        def handle(event: Event) -> None:
            nonlocal witness, state
            match event:
                case Finding():
                    witness = event
                case ShrunkState():
                    state = event

        cell = cell.with_spec(time_limit_s=self._left_s(is_last=True), recovery_limit=STATE_RECOVERIES)
        ask_engine(cell, handle, "shrink", "--token", found.token)
        if state is None:
            raise InfrastructureError("the engine shrank a crash state and did not say how small it is")
        return Shrunk(
            finding=self.finding.id,
            witness=witness,
            workload=[operation.line() for operation in operations],
            operations=candidates.count(operations),
            operations_before=candidates.count(self.whole),
            state=state.after,
            state_before=state.before,
            explorations=self.explorations,
            is_fewest=self._is_fewest(operations) and not self.bounds,
            bounds=[*self.bounds, *state.bounds_hit],
        )


def _is_threaded(operations: Operations) -> bool:
    return any(operation.thread for operation in operations)


def _batches(cases: list[Operations], most: int) -> Iterator[list[Operations]]:
    """Consecutive cases to be traced together: of so many operations, or one."""
    batch: list[Operations] = []
    operations = 0
    for case in cases:
        if batch and operations + len(case) > most:
            yield batch
            batch, operations = [], 0
        batch.append(case)
        operations += len(case)
    if batch:
        yield batch


def _first_difference(one: Operations, other: Operations) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (ours, theirs) in enumerate(pairs) if ours != theirs), min(len(one), len(other)))


def _size_alphabet(boundaries: list[int]) -> list[int]:
    """One byte, powers of two, both sides of each size-class boundary."""
    powers = [1 << power for power in range(MAX_BYTES.bit_length())]
    return sorted({*powers, *boundaries, *(boundary + 1 for boundary in boundaries)})
