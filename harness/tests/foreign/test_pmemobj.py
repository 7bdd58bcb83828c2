# SPDX-License-Identifier: Apache-2.0
"""libpmemobj as the distribution ships it, with a minimal adapter (pmemobj/adapter.c): what it does to a heap is explored whole by
the traced engine. What is found is said as it is."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exploration.files_project import link_tool
from faultline.base.cache import Cache
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.workload import file_format
from foreign.answer import Answer

HERE = Path(__file__).resolve().parent
CREATED_ONLY = "workload 1\nslots 1\ncase\nallocate 0 64\n"

Prepare = Callable[..., PreparedCell]

pytestmark = pytest.mark.nightly


@pytest.fixture
def prepared(root: Path, scripts: Path, tmp_path: Path) -> Prepare:
    (tmp_path / "allocators").mkdir()
    (tmp_path / "allocators" / "pmemobj").symlink_to(HERE / "pmemobj")
    link_tool(root, tmp_path)
    workshop = Workshop(tmp_path, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))

    def prepare(workload: str, ops: int = 0, text: str = "") -> PreparedCell:
        spec = CellSpec("pmemobj", workload, ops, 1, "complete", "px86", "clwb", replay_engine="traced")
        parsed = file_format.parse(text, workload) if text else find_workload(workshop, spec)
        return trace_cell(workshop, spec, build_cell(workshop, spec), parsed)

    return prepare


def position_after_creation(cell: PreparedCell) -> int:
    command = [cell.workshop.engine.path, "dump", cell.trace.path]
    lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
    return next(int(line.split()[0]) for line in lines if "operation return" in line and "create" in line)


@pytest.mark.parametrize(
    ("workload", "ops", "probe"), [("smoke", 0, "first"), ("smoke", 0, "full"), ("churn", 40, "first")]
)
def test_what_it_does_to_a_heap_is_explored_whole(prepared: Prepare, workload: str, ops: int, probe: str) -> None:
    """After its creation. All stages of the probe take ten times as long as the first part of it."""
    cell = prepared(workload, ops)
    answer = Answer()
    first_position = position_after_creation(cell)
    answer.verdict = explore(cell, answer.hear, first_position, more={"probe": probe})
    assert (answer.verdict, answer.rules) == ("pass", set())
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    assert answer.certificate.recoveries > 1000


def test_a_creation_is_explored_whole_and_dies_of_an_empty_pool(prepared: Prepare) -> None:
    """80,000 crash positions. pmemobj_open of a file of no bytes, which is there before it is made longer, is a bus error."""
    answer = Answer()
    answer.verdict = explore(prepared("created", text=CREATED_ONLY), answer.hear)
    assert (answer.verdict, answer.rules) == ("fail", {"FL001"})
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    assert "SIGBUS" in answer.messages[0]
