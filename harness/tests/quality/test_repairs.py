# SPDX-License-Identifier: Apache-2.0
"""Flushes and fences deleted at random, and the mutants that lack one: what is missing is found, and a repair is proposed that
makes it go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline import workloads
from faultline.cache import Cache
from faultline.campaign import cells_of_matrix
from faultline.config import Matrix, find_allocator, read_toml
from faultline.engine import Engine, Event, Finding
from faultline.explaining import explain
from faultline.explanation import Explanation
from faultline.exploring import Workshop, explore
from faultline.mutating import Place, places_of
from faultline.results import CellSpec
from faultline.tracing import Target, Trace, build_target, trace
from faultline.workloads import Workload

ALLOCATORS = ("nvm_malloc", "makalu", "nvmalloc", "pallocator")
SEED = 1
WORDS_OF_ORDER = ("flush", "fence")
"""One of them stands in the summary of each mutant that lacks a flush or a fence, and in no other that one crash shows."""


@dataclass
class Deletion:
    """A place that was deleted, and what is said of the first finding then; none: nothing notices."""

    name: str
    explanation: Explanation | None

    @property
    def is_repaired(self) -> bool:
        return self.explanation is not None and self.explanation.repair is not None

    def line(self) -> str:
        said = self.explanation.repair_text() if self.explanation else "nothing notices"
        return f"without {self.name}: {said}"


@dataclass
class Traced:
    spec: CellSpec
    workload: Workload
    target: Target
    trace: Trace
    places: list[Place]


@pytest.fixture(scope="module")
def workshop(root: Path, scripts: Path) -> Workshop:
    return Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))


def traced(workshop: Workshop, name: str) -> Traced:
    spec = CellSpec(name, "smoke", 40, 1, "complete", "px86", "clwb")
    allocator = find_allocator(workshop.root, name)
    workload = workloads.find(spec.workload, spec.ops, spec.seed, allocator.heap, workshop.cache)
    target = build_target(workshop.root, workshop.cache, allocator, None, spec.flush, needs_hooks=True)
    taken = trace(workshop.cache, workshop.engine, target, workload)
    return Traced(spec, workload, target, taken, places_of(workshop, spec, target, taken, workload))


def delete(workshop: Workshop, one: Traced, place: Place) -> Deletion:
    edits = [{"edit": "without", "sites": place.sites}]
    findings: list[Finding] = []
    more = {"edits": edits, "stop_at_rule": "any"}
    explore(workshop, one.spec, one.target, one.trace, one.workload, adder(findings), more=more)
    if not findings:
        return Deletion(place.name, None)
    found = explain(workshop, one.spec, one.target, one.trace, one.workload, findings[0], edits=edits)
    return Deletion(place.name, found)


def adder(findings: list[Finding]) -> Callable[[Event], None]:
    def handle(event: Event) -> None:
        if isinstance(event, Finding):
            findings.append(event)

    return handle


def noticed(workshop: Workshop, count: int) -> Iterator[Deletion]:
    """So many deletions that are noticed, chosen over all allocators."""
    all_places = [(one, place) for one in (traced(workshop, name) for name in ALLOCATORS) for place in one.places]
    random.Random(SEED).shuffle(all_places)
    for one, place in all_places:
        deletion = delete(workshop, one, place)
        if deletion.explanation is not None:
            print(deletion.line())
            yield deletion
            count -= 1
        if count == 0:
            return
    pytest.fail(f"{count} deletions too few are noticed")


def test_a_deleted_flush_or_fence_is_repaired(workshop: Workshop) -> None:
    for deletion in noticed(workshop, 2):
        assert deletion.is_repaired, deletion.line()


@pytest.mark.nightly
def test_at_least_four_of_five_deletions_are_repaired(workshop: Workshop) -> None:
    deletions = list(noticed(workshop, 25))
    failed = [deletion.line() for deletion in deletions if not deletion.is_repaired]
    assert len(failed) <= len(deletions) // 5, "\n".join(failed)


# ---- mutants -------------------------------------------------------------------------------------------------------------


def flush_and_fence_mutants(root: Path) -> list[CellSpec]:
    """Those that one crash shows: repairs are tried in the workload's own trace."""
    cells = cells_of_matrix(root, read_toml(root / "ci" / "matrix.toml", Matrix))
    return [cell for cell in cells if cell.strategy == "complete" and lacks_an_order(root, cell)]


def lacks_an_order(root: Path, cell: CellSpec) -> bool:
    if cell.mutant is None:
        return False
    mutant = find_allocator(root, cell.allocator).mutant_named(cell.mutant)
    return mutant.nested == 0 and any(word in mutant.summary for word in WORDS_OF_ORDER)


def explained(workshop: Workshop, spec: CellSpec) -> Explanation:
    """Of the mutant's own rule."""
    allocator = find_allocator(workshop.root, spec.allocator)
    workload = workloads.find(spec.workload, spec.ops, spec.seed, allocator.heap, workshop.cache)
    target = build_target(workshop.root, workshop.cache, allocator, spec.mutant, spec.flush, needs_hooks=True)
    taken = trace(workshop.cache, workshop.engine, target, workload)
    findings: list[Finding] = []
    explore(workshop, spec, target, taken, workload, adder(findings))
    own = next(finding for finding in findings if finding.rule == spec.expected_rule)
    return explain(workshop, spec, target, taken, workload, own)


@pytest.mark.nightly
def test_at_least_four_of_five_mutants_without_a_flush_or_a_fence_are_repaired(root: Path, workshop: Workshop) -> None:
    """Prints what is said of each."""
    cells = flush_and_fence_mutants(root)
    assert {cell.allocator for cell in cells} == set(ALLOCATORS)
    failed = []
    for cell in cells:
        found = explained(workshop, cell)
        line = f"{cell.allocator} {cell.mutant}: {found.repair_text()}"
        print(line, flush=True)
        failed += [line] * (found.repair is None)
    print(f"{len(cells) - len(failed)} of {len(cells)} mutants are repaired")
    assert len(failed) <= len(cells) // 5, "\n".join(failed)
