# SPDX-License-Identifier: Apache-2.0
"""Flushes and fences deleted at random, and the mutants that lack one: what is missing is found, and a repair is proposed that
makes it go."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.base.config import Matrix, find_allocator, read_toml
from faultline.base.project import Project
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.matrix import cells_of_matrix
from faultline.campaign.results import Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Event, Finding
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.pipeline.workshop import Workshop
from faultline.study.explanation import Explanation
from faultline.study.mutate import Place, places_of
from faultline.study.repairs import explain

ALLOCATORS = ("nvm_malloc", "makalu", "nvmalloc", "pallocator")
SEED = 1
WORDS_OF_ORDER = ("flush", "fence")
"""One of them stands in the summary of each mutant that lacks a flush or a fence, and in no other."""


@dataclass
class Deletion:
    """A place that was deleted, and what is said of the first finding then; none: nothing notices."""

    name: str
    explanation: Explanation | None

    @property
    def is_repaired(self) -> bool:
        """Where it is missing: a repair elsewhere that helps is none."""
        repair = self.explanation.repair if self.explanation else None
        return repair is not None and not repair.is_order and f"/{file_of(self.name)}:" in repair.text

    def line(self) -> str:
        said = self.explanation.repair_text() if self.explanation else "nothing notices"
        return f"without {self.name}: {said}"


@dataclass
class Traced:
    cell: PreparedCell
    places: list[Place]


@pytest.fixture(scope="module")
def workshop(root: Path, scripts: Path) -> Workshop:
    return Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))


def traced(workshop: Workshop, name: str) -> Traced:
    spec = CellSpec(name, "smoke", 40, 1, "complete", "px86", "clwb")
    cell = prepare(workshop, spec)
    return Traced(cell, places_of(cell))


def file_of(place: str) -> str:
    """flush at set_links (allocators/nvm_malloc/src/protocol.c:66) is of protocol.c."""
    return place.rsplit(":", 1)[0].rsplit("/", 1)[1]


def delete(workshop: Workshop, one: Traced, place: Place) -> Deletion:
    edits = [{"edit": "without", "sites": place.sites}]
    findings: list[Finding] = []
    more = {"edits": edits, "stop_at_rule": "any"}
    explore(one.cell, adder(findings), more=more)
    if not findings:
        return Deletion(place.name, None)
    found = explain(one.cell, findings[0], edits=edits)
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


@pytest.mark.slow
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
    cells = cells_of_matrix(Project(root).allocator, read_toml(root / "ci" / "matrix.toml", Matrix))
    return [cell for cell in cells if cell.strategy == "complete" and lacks_an_order(root, cell)]


def lacks_an_order(root: Path, cell: CellSpec) -> bool:
    summary = summary_of(root, cell)
    return any(word in summary for word in WORDS_OF_ORDER)


def summary_of(root: Path, cell: CellSpec) -> str:
    """FILE, FUNCTION: what is wrong there; empty: no mutant."""
    return find_allocator(root, cell.allocator).mutant_named(cell.mutant).summary if cell.mutant else ""


def is_there(summary: str, words: str) -> bool:
    """Whether the repair's words name the file of the summary; the function may be one that it calls, or that calls it."""
    file, _ = summary.split(", ", 1)
    return f"/{file}:" in words


def explained(workshop: Workshop, folder: Path, spec: CellSpec) -> Explanation:
    """Of the mutant's own rule."""
    if spec.nested:  # repairs are tried in its smallest workload
        results = Results(folder / "results.sqlite")
        (result,) = run_cells(workshop, results, "run", [spec], 1, SilentWatcher())
        results.close()
        own = next(finding for finding in result.findings if finding.rule == spec.expected_rule)
        return next(one for one in result.explanations if one.finding == own.id)
    cell = prepare(workshop, spec, needs_hooks=True)
    findings: list[Finding] = []
    explore(cell, adder(findings))
    own = next(finding for finding in findings if finding.rule == spec.expected_rule)
    return explain(cell, own)


@pytest.mark.nightly
def test_at_least_four_of_five_mutants_without_a_flush_or_a_fence_are_repaired(
    root: Path, workshop: Workshop, tmp_path: Path
) -> None:
    """Where it is missing: a repair elsewhere that helps is none. Prints what is said of each."""
    cells = flush_and_fence_mutants(root)
    assert {(cell.allocator, bool(cell.nested)) for cell in cells} >= {(name, False) for name in ALLOCATORS}
    assert sum(bool(cell.nested) for cell in cells) >= 7
    failed = []
    for cell in cells:
        found = explained(workshop, tmp_path, cell)
        line = f"{cell.allocator} {cell.mutant}: {found.repair_text()}"
        print(line, flush=True)
        repair = found.repair
        is_right = repair is not None and not repair.is_order and is_there(summary_of(root, cell), repair.text)
        failed += [f"{line}\n    but it is {summary_of(root, cell)}"] * (not is_right)
    print(
        f"{len(cells) - len(failed)} of {len(cells)} mutants are repaired where they lack something; not so:",
        *failed,
        sep="\n",
    )
    assert len(failed) <= len(cells) // 5, "\n".join(failed)
