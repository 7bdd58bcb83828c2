# SPDX-License-Identifier: Apache-2.0
"""ci/compare_results.py, with which the results of a matrix before and after a change are compared."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import samples
from faultline.report import results_document

Compare = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def compare(root: Path) -> Compare:
    def run(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "ci/compare_results.py", *map(str, arguments)]
        return subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)

    return run


@pytest.fixture
def document() -> dict[str, Any]:
    return dict(json.loads(results_document.render(samples.campaign(), "done")))


def written(path: Path, document: dict[str, Any]) -> Path:
    path.write_text(json.dumps(document))
    return path


def test_equal_results_are_equal_in_any_order(compare: Compare, document: dict[str, Any], tmp_path: Path) -> None:
    before = written(tmp_path / "a", document)
    for cell in document["cells"]:
        cell["explore_s"] = 77.0
    document["cells"].reverse()
    run = compare(before, written(tmp_path / "b", document))
    assert run.returncode == 0, run.stdout
    assert run.stdout.startswith(f"summary: cells={len(document['cells'])} differences=0 compared=verdict,")


def change_finding(cell: dict[str, Any], **changes: str) -> None:
    cell["findings"][0].update(changes)


CHANGES: dict[str, tuple[Callable[[dict[str, Any]], None], str]] = {
    "verdict": (lambda cell: cell.update(verdict="pass"), "verdict: fail -> pass"),
    "error": (lambda cell: cell.update(error="no memory"), "error: none -> no memory"),
    "complete": (lambda cell: cell["certificate"].update(complete=None), "complete: "),
    "rules": (lambda cell: change_finding(cell, rule="FL017"), "rules: FL004 -> FL017"),
    "ids": (lambda cell: change_finding(cell, id="FL004-00000000"), "ids: FL004-1a2b3c4d -> FL004-00000000"),
    "positions": (lambda cell: cell["certificate"].update(crash_positions=5), "positions: "),
    "later-positions": (lambda cell: cell["certificate"].update(later_positions=5), "later-positions: "),
    "states": (lambda cell: cell["certificate"].update(states_log10=2.25), "-> 10^2.25"),
    "recoveries": (lambda cell: cell["certificate"].update(recoveries=5), "recoveries: 4083 -> 5"),
}


@pytest.mark.parametrize("fact", CHANGES)
def test_a_fact_that_differs_is_one_line(compare: Compare, document: dict[str, Any], tmp_path: Path, fact: str) -> None:
    before = written(tmp_path / "a", document)
    change, words = CHANGES[fact]
    cell = next(cell for cell in document["cells"] if cell["findings"] and not cell["spec"]["mutant"])
    change(cell)
    after = written(tmp_path / "b", document)
    run = compare(before, after)
    assert run.returncode == 1, run.stderr
    line, summary = run.stdout.splitlines()
    assert line.startswith(f"{cell['name']}: {fact}: ")
    assert words in line
    assert "differences=1" in summary
    assert compare(before, after, "--leave-out", fact).returncode == 0


def test_a_cell_of_one_file_only_is_one_line(compare: Compare, document: dict[str, Any], tmp_path: Path) -> None:
    whole = written(tmp_path / "a", document)
    name = document["cells"].pop()["name"]
    part = written(tmp_path / "b", document)
    first, second = compare(whole, part), compare(part, whole)
    assert (first.returncode, second.returncode) == (1, 1)
    assert f"{name}: only in the first\n" in first.stdout
    assert f"{name}: only in the second\n" in second.stdout


@pytest.mark.parametrize("content", ["", "[]", "{}", '{"cells": []}', '{"cells": [1]}', '{"cells": [{"spec": {}}]}'])
def test_what_is_no_results_file_is_bad_input(
    compare: Compare, document: dict[str, Any], tmp_path: Path, content: str
) -> None:
    good = written(tmp_path / "a", document)
    bad = tmp_path / "b"
    bad.write_text(content)
    for files in ((good, bad), (bad, good), (good, tmp_path / "none")):
        run = compare(*files)
        assert (run.returncode, run.stdout) == (2, "")
        error, hint = run.stderr.splitlines()
        assert error.startswith("error: ")
        assert hint.startswith("hint: name the results.json")
    assert compare(good, good, "--leave-out", "colour").returncode == 2
