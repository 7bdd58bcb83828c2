# SPDX-License-Identifier: Apache-2.0
"""What a limit ended is never green, and says why and what to do: in the table, in reports, by the exit code."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest

import samples
from command_line import Faultline
from faultline.campaign.results import CellResult, summarise
from faultline.cli.commands.matrix import exit_code_of_matrix
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Incomplete, Stopped
from faultline.report import junit
from faultline.report.outcomes import mark, outcome
from faultline.report.page import page
from faultline.report.reasons import reason_of
from faultline.study.shrink import start_of_smaller

STOPPED = {
    "complete": False,
    "stopped": Stopped(17, "40 s limit"),
    "why": "stopped at crash position 17 of 90: 40 s limit",
}
MUTANT = {"mutant": "MISSING_FLUSH", "expected_rule": "FL004"}


def stopped_cell(**changes: Any) -> CellResult:
    return CellResult(samples.spec(**changes), "k", "incomplete", certificate=samples.certificate(**STOPPED))


def test_it_is_an_outcome_of_its_own_and_not_good() -> None:
    for cell in (stopped_cell(), stopped_cell(**MUTANT), stopped_cell(allow_incomplete=True)):
        assert (outcome(cell), mark(cell)) == ("incomplete", "open")
    summary = summarise([stopped_cell(), stopped_cell(**MUTANT)])
    assert (summary.incomplete, summary.unknown, summary.mutants_killed) == (2, 0, 0)


@pytest.mark.parametrize(("cells", "code"), [
    ([stopped_cell()], 3),
    ([stopped_cell(allow_incomplete=True)], 0),
    ([stopped_cell(allow_incomplete=True), stopped_cell()], 3),
    ([stopped_cell(**MUTANT)], 3),
    ([stopped_cell(**MUTANT, allow_incomplete=True)], 1),
    ([stopped_cell(), CellResult(samples.spec(), "k", "fail", findings=[samples.finding()])], 1),
])  # fmt: skip
def test_the_exit_code_of_a_matrix(cells: list[CellResult], code: int) -> None:
    assert exit_code_of_matrix(cells) == code


def test_a_known_finding_does_not_hide_that_a_limit_left_states_out() -> None:
    known = samples.finding(known="baseline")
    gaps = [Incomplete("more leaves in a window than the limit", 3, 4, 9)]
    for changes in (STOPPED, {"complete": False, "incomplete": gaps, "why": "3 of 90 crash positions"}):
        cell = CellResult(samples.spec(), "k", "fail", findings=[known], certificate=samples.certificate(**changes))
        assert outcome(cell) == "incomplete"


def test_reports_say_so() -> None:
    cell = stopped_cell()
    shown = page([cell], "done", Environment())
    assert shown.clean_map
    (tile,) = [tile for _, row in shown.clean_map.rows for tile in row if tile]
    assert (tile.mark, tile.notes) == ("open", ["stopped at 17"]), "and no share of positions that it did not come to"
    (case,) = ET.fromstring(junit.render([cell])).iter("testcase")
    assert [child.tag for child in case] == ["skipped"]
    assert case[0].attrib == {"message": f"incomplete: {STOPPED['why']}"}
    (suite,) = ET.fromstring(junit.render([cell])).iter("testsuite")
    assert (suite.get("skipped"), suite.get("failures"), suite.get("errors")) == ("1", "0", "0")
    banner = shown.banner
    assert (banner.word, banner.mark) == ("incomplete", "open")
    assert "1 of 1 cell not explored to the end" in banner.headline


@pytest.mark.parametrize(("why", "option"), [
    ("stopped at crash position 17 of 90: 40 s limit", "--time (in a matrix: time_s)"),
    ("stopped at crash position 17 of 90: limit of 3 recoveries", "--recoveries"),
    ("3 of 9 crash positions are not explored completely, from 1 to 7: more leaves in a window than the limit", "--leaves"),
    ("3 of 9 crash positions are not explored completely, from 1 to 7: more to remember in a window than the limit of memory",
     "--memory"),
])  # fmt: skip
def test_the_hint_names_the_option_that_sets_the_limit(why: str, option: str) -> None:
    cell = stopped_cell()
    cell.certificate = samples.certificate(complete=False, why=why)
    reason = reason_of(cell)
    assert reason is not None
    assert (reason.word, reason.why) == ("incomplete", why)
    assert reason.next.startswith(f"raise {option}; ")


@pytest.mark.slow
def test_the_command_says_so(faultline: Faultline, tmp_path: Path) -> None:
    words = ["run", "nvmalloc", "-w", "smoke", "--recoveries", "3", "--out", tmp_path]
    run = faultline(*words)
    assert run.returncode == 3, run.stdout + run.stderr
    assert "nvmalloc smoke: incomplete: stopped at crash position" in run.stdout
    assert "hint: raise --recoveries, or go on with --resume; --allow-incomplete accepts it" in run.stdout
    assert " incomplete=1 unknown=0 " in run.stdout.splitlines()[-1]
    allowed = faultline(*words, "--allow-incomplete")
    assert allowed.returncode == 0
    assert "nvmalloc smoke: incomplete: " in allowed.stdout


@pytest.mark.parametrize("is_allowed", [False, True])
def test_cells_of_a_matrix_have_a_time_and_may_be_allowed_to_need_more(
    faultline: Faultline, tmp_path: Path, is_allowed: bool
) -> None:
    traced = faultline("run", "nvmalloc", "-w", "smoke")  # else the time would be over before
    assert traced.returncode == 0, traced.stderr
    allowed = "allow_incomplete = true\n" if is_allowed else ""
    cell = '[[cell]]\nallocator = "nvmalloc"\nworkload = "smoke"\ntime_s = 0.001\n'
    (tmp_path / "matrix.toml").write_text(f"version = 1\n{cell}{allowed}")
    run = faultline("matrix", "-c", tmp_path / "matrix.toml", "--out", tmp_path / "out")
    assert run.returncode == (0 if is_allowed else 3), run.stdout + run.stderr
    assert "each cell is explored for 0.001 s at most (time_s)" in run.stderr
    assert "nvmalloc smoke: incomplete: stopped at crash position" in run.stdout


def explored(faultline: Faultline, *words: str) -> dict[str, Any]:
    run = faultline("run", "nvmalloc", "--json", *words)
    assert run.returncode == 0, run.stdout + run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    return dict(cell["certificate"])


@pytest.mark.slow
def test_creation_can_be_left_out_or_be_all(faultline: Faultline) -> None:
    whole = explored(faultline, "-w", "ace:1:1")
    workload = explored(faultline, "-w", "ace:1:1", "--start", "workload")
    creation = explored(faultline, "-w", "create")
    assert all(one["complete"] for one in (whole, workload, creation))
    assert 0 < workload["crash_positions"] < whole["crash_positions"]
    assert 0 < creation["crash_positions"] < whole["crash_positions"]
    assert workload["covers"].startswith("workload ace:1:1 without its creation (--start workload), one interleaving")
    assert "without" not in whole["covers"] + creation["covers"]


@pytest.mark.slow
def test_exploration_may_begin_late_in_the_workload(faultline: Faultline) -> None:
    """smoke: create, some operations, close, open."""
    workload = explored(faultline, "-w", "smoke", "--start", "workload")
    late = explored(faultline, "-w", "smoke", "--start", "8")
    first = explored(faultline, "-w", "smoke", "--start", "1")
    assert late["complete"]
    assert 0 < late["crash_positions"] < workload["crash_positions"]
    assert workload["crash_positions"] - 1 <= first["crash_positions"] <= workload["crash_positions"]
    assert late["covers"].startswith("workload smoke from operation 8 on (--start 8), one interleaving")


def test_an_operation_that_is_not_there_is_bad_input(faultline: Faultline) -> None:
    run = faultline("run", "nvmalloc", "-w", "ace:1:1", "--start", "500")
    assert run.returncode == 2, run.stdout + run.stderr
    assert "--start 500: the last operation of the workload is" in run.stderr
    assert "Traceback" not in run.stderr
    for word in ("0", "-1", "late", "99999999999"):
        run = faultline("run", "nvmalloc", "-w", "ace:1:1", "--start", word)
        assert run.returncode == 2, run.stdout + run.stderr


def test_a_smaller_workload_is_explored_from_its_creation_on() -> None:
    """It has other operations: operation 500 is none of them."""
    assert start_of_smaller(samples.spec(start=500)) == "workload"
    assert [start_of_smaller(samples.spec(start=start)) for start in ("create", "workload")] == ["create", "workload"]
