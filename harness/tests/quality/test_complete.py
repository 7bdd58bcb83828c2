# SPDX-License-Identifier: Apache-2.0
"""`complete` on real allocators against `exhaustive`: at every crash position with few enough states, the heap reports of all of
them, run with the adapter that people use, are those of the leaves that the search found with the hooked one.

The workloads are small, so that most of their crash positions have few enough states: some operations of the generators, with
small objects. Many of them are the cases of one file. A share of them runs in `make test`, all of them in `make nightly`.

All are compared by the first part of the probe script, a share of them by the whole of it, which takes several times as long."""

from __future__ import annotations

import json
import subprocess
from collections import Counter
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from faultline.base.cache import Cache, project_root, scratch_folder
from faultline.base.config import Heap, find_allocator
from faultline.base.errors import InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import build_cell, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.workload import generators, graph_generators, transaction_generators
from faultline.workload.operations import Operation, Workload
from faultline.workload.slots import well_formed

STATES = {"nvm_malloc": 2048, "nvm_malloc_tx": 2048, "makalu": 512, "nvmalloc": 2048, "pallocator": 512}
"""Crash positions with more states are left out: a state costs a recovery. Those are mostly the ones inside a fill."""
FULL_STATES = 48
"""The same for the whole probe script, of five lives."""
FULL_ONE_IN = 4
"""Of the workloads of each share, one in so many, and at least one, is compared by the whole probe script as well."""
LEAVES = 1000
"""A search that keeps more explodes (some mutants leave undecided what recovery looks at): its certificate says so, and of what it
found all must be there, but not more. Unmutated allocators stay far below."""
INCOMPLETE_SHARE = 0.05
"""Of the positions that are compared, at most, of the mutants together."""
LARGE_SHARE = 0.3
"""Of the workloads, at least: those with more than a thousand distinct images that were compared."""
FEW_WORKLOADS = 8
ALL_WORKLOADS = 500
"""An allocator, spread over the clean one and its mutants."""
LIMIT_S = 3000
HANG_MS = 50
"""Of processor time: recoveries of these heaps take less than one. Some mutants hang in many states."""

KINDS = {
    "nvm_malloc": ("root", "names", "chain", "threads"),
    "nvm_malloc_tx": ("transactions",),
    "makalu": ("root", "graph", "threads"),
    "nvmalloc": ("root", "threads"),
    "pallocator": ("root", "threads"),
}
"""Layouts that the adapter has, and two threads on roots."""
OPERATIONS = (2, 3, 4)
"""Of a workload, in turn."""
SMALL_BYTES = (24, 64, 130, 200)
"""Of objects: their fills have few states."""
REOPEN_ONE_IN = 4
BOUNDARY_ONE_IN = 12
"""Objects that have the size of another allocation path; most crash positions of their fills are left out."""


@dataclass(frozen=True)
class Share:
    """Some workloads of one kind on one build of an allocator."""

    allocator: str
    mutant: str | None
    kind: str
    seed: int
    cases: int
    is_full: bool = False
    """By the whole probe script."""

    def by_full_probe(self) -> Share:
        return replace(self, cases=-(-self.cases // FULL_ONE_IN), is_full=True)


def shares(allocator: str, mutants: list[str | None], cases: int) -> list[Share]:
    """That many cases, spread over each kind for each of the builds; no seed twice."""
    pairs = [(mutant, kind) for mutant in mutants for kind in KINDS[allocator]]
    each = [cases // len(pairs) + (at < cases % len(pairs)) for at in range(len(pairs))]
    made = [Share(allocator, mutant, kind, 1 + 1000 * at, each[at]) for at, (mutant, kind) in enumerate(pairs)]
    return [share for share in made if share.cases > 0]


def workload_of(share: Share, heap: Heap) -> Workload:
    made = [case_of(share.kind, share.seed + number, heap) for number in range(share.cases)]
    layout = "root" if share.kind in ("threads", "transactions") else share.kind
    schedule_seed = share.seed if share.kind == "threads" else 0
    operations = tuple(operation for case in made for operation in case)
    return Workload("small", generators.CHURN_SLOTS, operations, layout=layout, schedule_seed=schedule_seed)


def transactions_of(seed: int, heap: Heap) -> list[Operation]:
    """Two or three, small, with writes of one or two words."""
    operations = [
        replace(operation, start=0, size_bytes=8 + 8 * (at % 2))
        if operation.kind == "write"
        else resized(operation, seed + at, heap)
        for at, operation in enumerate(transaction_generators.tx(2 + seed % 2, None, seed).operations)
    ]
    if seed % REOPEN_ONE_IN == 0:
        operations.append(Operation("reopen"))
    return list(well_formed(operations, "root"))


def case_of(kind: str, seed: int, heap: Heap) -> list[Operation]:
    if kind == "transactions":
        return transactions_of(seed, heap)
    generator = {"graph": graph_generators.graph, "threads": generators.threads}.get(kind, generators.churn)
    made = generator(OPERATIONS[seed % len(OPERATIONS)], seed).operations
    operations = [resized(operation, seed + at, heap) for at, operation in enumerate(made)]
    if seed % REOPEN_ONE_IN == 0:
        operations.insert(1 + len(operations) // 2, Operation("reopen"))
    return operations


def of_one_session(workload: Workload) -> Workload:
    return replace(workload, operations=tuple(step for step in workload.operations if step.kind != "reopen"))


def resized(operation: Operation, chance: int, heap: Heap) -> Operation:
    if operation.size_bytes == 0:
        return operation
    sizes = heap.boundary_sizes[:2] if chance % BOUNDARY_ONE_IN == 0 else SMALL_BYTES
    return replace(operation, size_bytes=sizes[chance % len(sizes)])


def compare(root: Path, scripts: Path, share: Share) -> dict[str, int]:
    cache, engine = Cache(root / ".faultline"), Engine(scripts / "faultline-engine")
    allocator = find_allocator(root, share.allocator)
    workload = workload_of(share, allocator.heap)
    spec = CellSpec(
        share.allocator,
        workload.name,
        0,
        share.seed,
        "complete",
        "px86",
        "clwb",
        mutant=share.mutant,
        leaf_limit=LEAVES,
    )
    workshop = Workshop(root, cache, engine)
    target = build_cell(workshop, spec)
    try:
        cell = trace_cell(workshop, spec, target, workload)
    except InfrastructureError:  # some mutants need no crash to break a heap: what the next session opens is broken
        if share.mutant is None:
            raise
        cell = trace_cell(workshop, spec, target, of_one_session(workload))
    with scratch_folder(cache, None) as folder:
        config = write_config(folder, cell)
        given = json.loads(config.read_text())
        given["limits"]["cpu_limit_ms"] = HANG_MS
        config.write_text(json.dumps(given))
        states = FULL_STATES if share.is_full else STATES[share.allocator]
        command = [engine.path, "yardstick", config, "--states", str(states), *(["--full"] if share.is_full else [])]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode in (0, 1), (share, run.stderr)
    found: dict[str, int] = json.loads(run.stdout)
    assert (found["differing"], found["doubts"]) == (0, []), (share, found)
    assert found["workloads"] == share.cases
    assert share.mutant is not None or found["incomplete"] == 0
    return found


COUNTS = (
    "workloads",
    "large",
    "positions",
    "compared",
    "incomplete",
    "images",
    "exhaustive_recoveries",
    "complete_recoveries",
    "states",
)


def compare_all(root: Path, scripts: Path, all_shares: list[Share]) -> Counter[str]:
    """Prints what was compared; fails at the first difference. What the whole probe script saw is counted apart, as full_NAME."""
    total: Counter[str] = Counter()
    of_clean: Counter[str] = Counter()
    for share in all_shares:
        for compared, prefix in ((share, ""), (share.by_full_probe(), "full_")):
            found = compare(root, scripts, compared)
            counts = {prefix + name: int(found[name]) for name in COUNTS}
            total.update(counts)
            of_clean.update(counts if share.mutant is None else {})
            print(f"{compared}: {found}", flush=True)
    print(f"{all_shares[0].allocator}: {dict(total)}, {total['large'] / total['workloads']:.0%} large, 0 differing")
    assert total["large"] >= LARGE_SHARE * total["workloads"]
    # Of the clean allocator, at all positions, against those with few states. Some mutants leave undecided what is looked at.
    assert of_clean["complete_recoveries"] < of_clean["exhaustive_recoveries"] / 2
    for prefix in ("", "full_"):
        assert total[prefix + "incomplete"] <= INCOMPLETE_SHARE * total[prefix + "compared"]
        assert total[prefix + "compared"] > 0
    return total


def mutants_of(allocator: str) -> list[str | None]:
    return [None, *(mutant.id for mutant in find_allocator(project_root(), allocator).mutant)]


@pytest.mark.slow
@pytest.mark.parametrize("allocator", KINDS)
def test_complete_has_the_heap_reports_of_all_states(root: Path, scripts: Path, allocator: str) -> None:
    """The clean allocator and one of its mutants."""
    compare_all(root, scripts, shares(allocator, mutants_of(allocator)[:2], FEW_WORKLOADS))


@pytest.mark.nightly
@pytest.mark.parametrize("allocator", KINDS)
def test_complete_has_the_heap_reports_of_all_states_of_many_workloads(
    root: Path, scripts: Path, allocator: str
) -> None:
    total = compare_all(root, scripts, shares(allocator, mutants_of(allocator), ALL_WORKLOADS))
    assert total["workloads"] == ALL_WORKLOADS
