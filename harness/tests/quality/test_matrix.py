# SPDX-License-Identifier: Apache-2.0
"""`make matrix`, as a test: the clean allocators are clean in every crash state of their workloads, every mutant is killed by its
rule, and the crash states reach every stage of recovery that the allocators name.

The nightly run takes the matrix as it is. In each run of the tests, power fails twice in some of the clean cells, and once in the
others."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from command_line import Faultline
from faultline.campaign.results import CellResult
from faultline.report.coverage import recovery_coverage

LIMIT_S = 3600
"""It takes minutes; a machine that does other things may take long."""
SHAPES = {
    "heap: three small, three big and three huge segments",
    "heap: three free segments",
    "big: the tree of free blocks had three levels",
    "big: the tree of all blocks had three levels",
}
"""Of pallocator's heaps: what its workloads must reach."""
DEFRAGMENTATION_STEPS = 16
NOT_TOLD_APART = [
    # One of two does not flush what the other flushes too late. That somebody flushes the line later tells nothing: a neighbour's
    # flush may come at any time.
    {"CLEAN_TOO_EARLY", "MARKS_NOT_FLUSHED"},
    {"FREE_NOT_FLUSHED", "FREE_PERSISTED_AFTER_WAIT"},
    # They lose nothing: recovery answers the same status, and the last store before is one of a function that many call. What the
    # allocator says of it differs, but its words are in no id.
    {"HUGE_WITHOUT_RING", "NAME_NOT_FREEING"},
    {"CHUNK_SPLIT_ORDER", "CONVERT_ORDER"},
    {"GROWTH_ORDER", "SIZE_BEFORE_GROWTH"},
    {"FREE_IGNORES_SCAN", "SCAN_FORGETS_KNOWN_RUN"},
    {"REPLAY_FORGETS_LAST", "USE_NOT_MARKED"},
    {"BOTTOM_NOT_CLEARED", "MAP_TRUSTED"},
    # They need no crash: the open of the closed heap answers that it is damaged.
    {"ARENA_OF_CALLER", "TABLE_NOT_CLEARED"},
    # The adapter's check finds an object that is not right, or dies of it: which of its fields it is, its words say.
    {"CODE_NOT_FIXED", "VIRTUAL_TABLE_NOT_FIXED"},
    {"LAST_SLOT_FORGOTTEN", "RECONSTRUCTOR_FIRST", "TRANSIENT_NOT_ZEROED"},
]
"""All that there are, by allocator."""
RECOVERIES_AN_OPERATION = {"nvm_malloc": 10}
"""Of `complete` over churn, at most; 30 of other allocators."""
RECOVERIES_AN_OPERATION_NESTED = {True: 200, False: 100}
"""With a second crash: in what follows recoveries, too, and in recoveries alone."""


SECOND_CRASHES = {
    ("nvm_malloc", "smoke"),
    ("nvm_malloc", "allocators/nvm_malloc/workloads/growth.workload"),
    ("nvm_malloc", "allocators/nvm_malloc/workloads/scan.workload"),
    ("makalu", "smoke"),
    ("makalu", "allocators/makalu/workloads/spaces.workload"),
    ("nvmalloc", "smoke"),
    ("nvmalloc", "allocators/nvmalloc/workloads/regions.workload"),
    ("nvmreconstruct", "allocators/nvmreconstruct/workloads/twice.workload"),
    ("pallocator", "smoke"),
    ("pallocator", "allocators/pallocator/workloads/segments.workload"),
    ("pallocator", "allocators/pallocator/workloads/trees.workload"),
}
"""Clean cells in which each run of the tests lets power fail twice. The second crashes of the others take three quarters of the
time of all cells."""


def with_few_second_crashes(matrix: str) -> str:
    """The text of a matrix file."""
    tables = re.split(r"^(?=\[\[)", matrix, flags=re.MULTILINE)
    found = set()
    for at, text in enumerate(tables):
        keys = tuple(re.findall(r'^(?:allocator|workload) = "(.*)"', text, re.MULTILINE)[:2])
        if keys in SECOND_CRASHES:
            found.add(keys)
        elif text.startswith("[[cell]]\n"):
            once = re.sub(r"^(nested|follow_up) = .*\n", "", text, flags=re.MULTILINE)
            tables[at] = once.replace("[[cell]]\n", "[[cell]]\nnested = 0\n", 1)
    assert found == SECOND_CRASHES
    return "".join(tables)


@pytest.fixture(scope="module")
def out(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


@pytest.fixture(scope="module", params=["shortened", pytest.param("whole", marks=pytest.mark.nightly)])
def matrix(
    root: Path, faultline: Faultline, out: Path, request: pytest.FixtureRequest
) -> subprocess.CompletedProcess[str]:
    path = root / "ci" / "matrix.toml"
    if request.param == "shortened":
        shortened = with_few_second_crashes(path.read_text())
        path = out / "matrix.toml"
        path.write_text(shortened)
    return faultline("matrix", "-c", path, "--out", out, limit_s=LIMIT_S)


@pytest.fixture(scope="module")
def cells(matrix: subprocess.CompletedProcess[str], out: Path) -> list[CellResult]:
    assert matrix.stdout, matrix.stderr
    return msgspec.convert(json.loads((out / "results.json").read_text())["cells"], list[CellResult], strict=False)


def test_the_clean_allocators_are_clean(cells: list[CellResult]) -> None:
    clean = [cell for cell in cells if cell.spec.mutant is None]
    assert len(clean) >= 20
    for cell in clean:
        assert cell.verdict == "pass", (cell.spec.name, cell.error, cell.findings)


def test_every_crash_state_of_the_clean_cells_is_covered(cells: list[CellResult]) -> None:
    for cell in cells:
        if cell.spec.mutant is None:
            assert cell.certificate, cell.spec.name
            assert cell.certificate.complete, (cell.spec.name, cell.certificate.why)


def test_an_operation_costs_few_recoveries(cells: list[CellResult]) -> None:
    found = {cell.spec.allocator: cell for cell in cells if cell.spec.mutant is None and cell.spec.workload == "churn"}
    assert found.keys() >= {"nvm_malloc", "makalu"}
    for name, cell in found.items():
        assert cell.certificate
        once = RECOVERIES_AN_OPERATION.get(name, 30)
        twice = RECOVERIES_AN_OPERATION_NESTED[cell.spec.follow_up]
        most = twice if cell.spec.nested else once
        assert cell.certificate.recoveries <= most * cell.spec.ops


def test_every_mutant_is_killed_by_its_expected_rule(cells: list[CellResult]) -> None:
    mutants = [cell for cell in cells if cell.spec.mutant is not None]
    assert len(mutants) >= 40
    assert [cell.spec.mutant for cell in mutants if not cell.is_killed] == []


def test_no_two_mutants_share_an_id(cells: list[CellResult]) -> None:
    """Of what they are killed by: a baseline or a suppression of the one would hide the other."""
    named: dict[tuple[str, str], set[str]] = {}
    for cell in cells:
        for finding in cell.findings:
            if cell.spec.mutant is not None and finding.rule == cell.spec.expected_rule:
                named.setdefault((cell.spec.allocator, finding.id), set()).add(cell.spec.mutant)
    shared = {frozenset(mutants) for mutants in named.values() if len(mutants) > 1}
    assert len(named) > 80
    assert shared == set(map(frozenset, NOT_TOLD_APART))


def test_the_crash_states_enter_every_stage_of_recovery(cells: list[CellResult]) -> None:
    coverage = {of.allocator: of for of in recovery_coverage(cells)}
    assert len(coverage["nvm_malloc"].stages) >= 30
    assert len(coverage["makalu"].stages) >= 15
    options = {"nvm_malloc_tx": "nvm_malloc", "nvmalloc_protected": "nvmalloc"}
    options |= {f"nvmreconstruct_{option}": "nvmreconstruct" for option in ("compacting", "trapping", "upgraded")}
    own = {name: set(coverage[name].stages) - set(coverage[base].stages) for name, base in options.items()}
    assert len(own["nvm_malloc_tx"]) >= 3, "the rest is nvm_malloc's"
    by_options: dict[str, set[str]] = {}
    for name, base in options.items():
        by_options.setdefault(base, set()).update(set(coverage[name].stages) - set(coverage[name].never))
    missed = {
        name: [
            stage for stage in of.never if stage in own.get(name, of.never) and stage not in by_options.get(name, ())
        ]
        for name, of in coverage.items()
    }
    assert {name: stages for name, stages in missed.items() if stages} == {}
    stages = set(coverage["pallocator"].stages)
    assert stages >= SHAPES
    assert len([stage for stage in stages if stage.startswith("defragment: ")]) >= DEFRAGMENTATION_STEPS


def test_the_command_says_so(matrix: subprocess.CompletedProcess[str]) -> None:
    assert matrix.returncode == 0, matrix.stdout[-2000:] + matrix.stderr[-2000:]
    last = matrix.stdout.splitlines()[-1]
    assert " findings=0 " in last
    covered = re.search(r" complete=(\d+)/(\d+) ", last)
    assert covered
    assert covered[1] == covered[2] != "0"
    assert " unknown=0 kill_rate=" in last
