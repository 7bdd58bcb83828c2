# SPDX-License-Identifier: Apache-2.0
"""Flushes and fences deleted at random: what is missing is found, and a repair is proposed that makes it go."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline import workloads
from faultline.cache import Cache
from faultline.config import find_allocator
from faultline.engine import Engine, Event, Finding
from faultline.explaining import explain
from faultline.explanation import Explanation
from faultline.exploring import Workshop, explore
from faultline.mutating import Place, places_of
from faultline.results import CellSpec
from faultline.tracing import Target, Trace, build_target, trace
from faultline.workloads import Workload

ALLOCATORS = ("nvm_malloc", "makalu", "pallocator")
SEED = 1


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
    findings: list[Finding] = []

    def handle(event: Event) -> None:
        if isinstance(event, Finding):
            findings.append(event)

    edits = [{"edit": "without", "sites": place.sites}]
    more = {"edits": edits, "stop_at_rule": "any"}
    explore(workshop, one.spec, one.target, one.trace, one.workload, handle, more=more)
    if not findings:
        return Deletion(place.name, None)
    found = explain(workshop, one.spec, one.target, one.trace, one.workload, findings[0], edits=edits)
    return Deletion(place.name, found)


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
