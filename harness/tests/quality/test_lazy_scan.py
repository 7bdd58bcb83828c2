# SPDX-License-Identifier: Apache-2.0
"""nvm_malloc's scan, beside operations. That lazy opens find its mutants, step by step, is in test_matrix.py."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline


def cell(faultline: Faultline, *words: str | Path) -> dict[str, Any]:
    run = faultline("run", *words, "--no-shrink", "--no-explain", "--json")
    assert run.stdout, run.stderr
    [found] = json.loads(run.stdout)["cells"]
    return dict(found)


@pytest.mark.slow
@pytest.mark.parametrize("mutant", ["SCAN_FORGETS_KNOWN_RUN", "FREE_IGNORES_SCAN"])
def test_a_mutant_of_the_scan_passes_where_opens_wait_for_it(
    root: Path, tmp_path: Path, faultline: Faultline, mutant: str
) -> None:
    lazy = (root / "allocators/nvm_malloc/workloads/lazy.workload").read_text()
    workload = tmp_path / "at_once.workload"
    workload.write_text(lazy.replace("opens lazily\n", ""))
    found = cell(faultline, "nvm_malloc", "-w", workload, "-m", mutant, "--start", "workload")
    assert (found["verdict"], found["findings"], found["certificate"]["complete"]) == ("pass", [], True)


@pytest.fixture
def by_thread(root: Path, tmp_path: Path) -> Path:
    """nvm_malloc whose scan goes on in its own thread."""
    folder = tmp_path / "by_thread"
    shutil.copytree(root / "allocators/nvm_malloc", folder)
    description = folder / "allocator.toml"
    text = description.read_text().replace('"nvm_malloc"', '"by_thread"', 1)
    description.write_text(text.replace('"-pthread"]', '"-pthread", "-DADAPTER_SCANS_BY_THREAD"]'))
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("nested", [0, pytest.param(1, marks=pytest.mark.nightly)])
def test_the_scan_may_be_a_threads(faultline: Faultline, by_thread: Path, nested: int) -> None:
    found = cell(faultline, by_thread, "-w", "lazy:smoke", "--nested", str(nested), "--start", "workload")
    certificate = found["certificate"]
    assert (found["verdict"], certificate["complete"], certificate["engine"]) == ("pass", True, "traced")
