# SPDX-License-Identifier: Apache-2.0
"""The traced engine answers as the in-process one does: of the same cell the same verdict, rules, ids, positions and states.

Each run of the tests takes one short cell and a mutant of each allocator. The nightly one takes every clean cell of ci/matrix.toml
that is explored within SHORT_S in-process, and every mutant on its own workload."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import msgspec
import pytest

from command_line import Faultline
from faultline.base.config import names_with_sources
from faultline.campaign.results import CellResult

pytestmark = pytest.mark.slow

LIMIT_S = 12 * 3600
SHORT_S = 10.0
SECTION = re.compile(r"^(?=\[)", re.MULTILINE)
"""Before each table of a matrix file."""
DIFFERS = ["recoveries", "later-positions"]
"""A stage that came to the state of an earlier one is not executed again in-process: the order of runs decides which that is."""
FEW = """
version = 1
[defaults]
ops = 4
replay_engine = "{engine}"
"""
CLEAN = """
[[cell]]
allocator = "{allocator}"
workload = "churn"
"""
MUTANTS = """
[[mutants]]
allocator = "{allocator}"
ids = ["{mutant}"]
"""
FEW_MUTANTS = {
    "nvm_malloc": "MISSING_FLUSH_LINK",
    "makalu": "LOG_VERSION_FIRST",
    "nvmalloc": "ALLOCATED_NOT_FLUSHED",
    "pallocator": "ARGUMENT_NOT_FLUSHED",
}


def explored(faultline: Faultline, folder: Path, matrix: str) -> list[CellResult]:
    folder.mkdir()
    (folder / "matrix.toml").write_text(matrix)
    run = faultline("matrix", "-c", folder / "matrix.toml", "--out", folder, limit_s=LIMIT_S)
    assert run.returncode in (0, 1), run.stderr
    document = json.loads((folder / "results.json").read_text())
    return msgspec.convert(document["cells"], list[CellResult], strict=False)


def assert_equal(root: Path, before: Path, after: Path) -> None:
    command = [sys.executable, "ci/compare_results.py", before / "results.json", after / "results.json"]
    run = subprocess.run([*command, "--leave-out", *DIFFERS], cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def assert_engine(cells: list[CellResult], engine: str) -> None:
    for cell in cells:
        assert cell.certificate, cell.spec.name
        assert cell.certificate.engine == engine, (cell.spec.name, cell.certificate.engine_why)


@pytest.mark.parametrize("allocator", FEW_MUTANTS)
def test_a_short_cell(faultline: Faultline, root: Path, tmp_path: Path, allocator: str) -> None:
    for engine in ("in-process", "traced"):
        cells = (CLEAN + MUTANTS).format(allocator=allocator, mutant=FEW_MUTANTS[allocator])
        found = explored(faultline, tmp_path / engine, FEW.format(engine=engine) + cells)
        assert [cell.verdict for cell in found] == ["pass", "fail"]
        assert_engine(found, engine)
    assert_equal(root, tmp_path / "in-process", tmp_path / "traced")


def with_engine(engine: str, tables: list[str]) -> str:
    """The text of a matrix file."""
    return "".join(
        f'{table}replay_engine = "{engine}"\n' if table.startswith("[defaults]") else table for table in tables
    )


@pytest.fixture
def tables(root: Path) -> dict[str, list[str]]:
    """Of ci/matrix.toml, by what they are of; those of sources."""
    found: dict[str, list[str]] = {"head": [], "cell": [], "mutants": []}
    for table in SECTION.split((root / "ci" / "matrix.toml").read_text()):
        allocator = re.search(r'^allocator = "(\w+)"', table, re.MULTILINE)
        if allocator and allocator[1] not in names_with_sources(root):
            continue  # built already: no recovery of it is in-process
        name = table[2:].split("]")[0] if table.startswith("[[") else "head"
        found[name].append(table if table.endswith("\n") else table + "\n")
    assert all(found.values())
    return found


@pytest.mark.nightly
def test_short_clean_cells(faultline: Faultline, root: Path, tmp_path: Path, tables: dict[str, list[str]]) -> None:
    in_process = explored(faultline, tmp_path / "all", with_engine("in-process", tables["head"] + tables["cell"]))
    assert len(in_process) == len(tables["cell"])
    short = [table for cell, table in zip(in_process, tables["cell"], strict=True) if cell.explore_s < SHORT_S]
    assert len(short) > 10
    for engine in ("in-process", "traced"):
        assert_engine(explored(faultline, tmp_path / engine, with_engine(engine, tables["head"] + short)), engine)
    assert_equal(root, tmp_path / "in-process", tmp_path / "traced")


@pytest.mark.nightly
def test_every_mutant(faultline: Faultline, tmp_path: Path, tables: dict[str, list[str]]) -> None:
    asked = [
        table for table in tables["mutants"] if "strategy" not in table
    ]  # others need not see what recoveries load
    mutants = explored(faultline, tmp_path / "traced", with_engine("traced", tables["head"] + asked))
    assert_engine(mutants, "traced")
    assert len(mutants) > 100
    assert [cell.spec.name for cell in mutants if not cell.is_killed] == []
    assert [cell.spec.name for cell in mutants if not cell.is_killed] == []
