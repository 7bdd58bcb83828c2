# SPDX-License-Identifier: Apache-2.0
"""File operations that were not synced may be lost (`--file-system posix`): an allocator of its own repository whose mark of a
clean close, file name and size are at stake (marked/adapter.c), as its user runs it."""

from __future__ import annotations

import json
import subprocess
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from exploration.files_project import project_of

pytestmark = pytest.mark.slow

LIMIT_S = 300
MARKED = "allocators/marked"
RIGHT = (None, "MARK_SYNCS_BOTH", "SYNCS_ALL")
WRONG = {
    "MARK_NOT_SYNCED": ("FL006", "the creation of case-0/open", "fsync of the folder after", "helps"),
    "MAPPED_WITHOUT_SYNC": (
        *("FL003", "the new blocks of case-0/heap at 0x0", "MAP_SYNC, or msync after the first store to"),
        "helps, others remain",  # other stores get other pages
    ),
    "SIZE_NOT_SYNCED": (
        *("FL003", "the truncation of case-0/heap to 32768 bytes", "fsync of the file after"),
        "helps, others remain",  # its blocks are not synced, either
    ),
}


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_of("marked", root, tmp_path_factory.mktemp("project"))


class Cli:
    def __init__(self, root: Path, place: Path, scripts: Path) -> None:
        self.place, self.command = place, [str(Path(sysconfig.get_path("scripts")) / "faultline")]
        self.ours = ["--cache", str(root / ".faultline"), "--engine", str(scripts / "faultline-engine")]

    def __call__(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [*self.command, words[0], *self.ours, *words[1:]]
        return subprocess.run(command, cwd=self.place, capture_output=True, text=True, timeout=LIMIT_S, check=False)

    def run(self, mutant: str | None, *words: str) -> dict[str, Any]:
        """The cell of its results."""
        chosen = ["--mutant", mutant, "--stop-at-rule", "none"] if mutant else []
        ran = self("run", MARKED, "-w", "reopen", "--ops", "12", "--json", *chosen, *words)
        assert ran.returncode in (0, 1), ran.stderr
        [cell] = json.loads(ran.stdout)["cells"]
        return dict(cell)


@pytest.fixture
def cli(root: Path, place: Path, scripts: Path) -> Cli:
    return Cli(root, place, scripts)


@pytest.mark.parametrize("mutant", RIGHT)
def test_what_is_synced_in_time_passes_and_says_what_may_be_lost(cli: Cli, mutant: str | None) -> None:
    cell = cli.run(mutant)
    certificate = cell["certificate"]
    assert (cell["findings"], certificate["complete"]) == ([], True), certificate["why"]
    losses = certificate["file_losses"]
    assert losses["sets"] == losses["explored"] > 5
    assert losses["crash_positions"] > losses["sets"]
    assert f"{losses['sets']} sets that a POSIX file system may lose" in certificate["covers"]


@pytest.mark.parametrize("mutant", WRONG)
def test_what_is_not_synced_is_found_named_mended_and_replayed(cli: Cli, mutant: str) -> None:
    rule, operation, repair, outcome = WRONG[mutant]
    cell = cli.run(mutant, "--no-shrink")
    finding = next(finding for finding in cell["findings"] if finding["rule"] == rule)
    assert (finding["rule"], finding["lost"]["kind"], finding["lost"]["operation"]) == (rule, "file", operation)
    assert cell["certificate"]["complete"], cell["certificate"]["why"]
    lost = [event for event in finding["events"] if event["is_persisted"] == "no"]
    assert any(event["kind"] in ("file created", "file truncated", "store") for event in lost)
    explained = next(one for one in cell["explanations"] if one["finding"] == finding["id"])
    trial = explained["trials"][-1]
    assert (trial["outcome"], trial["is_complete"]) == (outcome, True), explained
    assert trial["text"].startswith(repair)
    replayed = cli("replay", finding["token"])
    assert replayed.returncode == 1, replayed.stderr
    assert finding["id"] in replayed.stdout


@pytest.mark.parametrize("mutant", WRONG)
def test_it_is_right_where_the_file_system_keeps_the_order(cli: Cli, mutant: str) -> None:
    cell = cli.run(mutant, "--file-system", "ordered")
    assert (cell["findings"], cell["certificate"]["file_losses"]) == ([], None)
    assert cell["certificate"]["complete"]


def test_a_kill_loses_no_file(cli: Cli) -> None:
    cell = cli.run("MARK_NOT_SYNCED", "--model", "process-crash")
    assert (cell["findings"], cell["certificate"]["file_losses"]) == ([], None)


def test_every_strategy_finds_it(cli: Cli) -> None:
    for strategy in ("prefix", "floor", "sample", "mixed"):
        found = cli.run("MARK_NOT_SYNCED", "--strategy", strategy, "--samples", "4", "--no-shrink", "--no-explain")
        assert {finding["rule"] for finding in found["findings"]} >= {"FL006"}, strategy


def test_the_result_is_the_same_with_two_workers(cli: Cli) -> None:
    one, two = (cli.run("MARK_NOT_SYNCED", "-j", jobs, "--no-shrink", "--no-explain") for jobs in ("1", "2"))
    for key in ("states", "recoveries", "file_losses", "covers"):
        assert one["certificate"][key] == two["certificate"][key]
    assert [finding["token"] for finding in one["findings"]] == [finding["token"] for finding in two["findings"]]


def test_a_limit_leaves_sets_out_and_says_so(cli: Cli) -> None:
    whole = cli.run(None)["certificate"]["recoveries"]
    ran = cli("run", MARKED, "-w", "reopen", "--ops", "12", "--json", "--recoveries", str(whole - 5))
    assert ran.returncode == 3, ran.stderr
    [cell] = json.loads(ran.stdout)["cells"]
    losses = cell["certificate"]["file_losses"]
    assert cell["verdict"] == "incomplete"
    assert losses["explored"] < losses["sets"]
    assert "lost file operations:" in cell["certificate"]["why"]


def test_the_smallest_witness_loses_the_same_file(cli: Cli) -> None:
    cell = cli.run("MARK_NOT_SYNCED", "--no-explain")
    witness = next(shrunk["witness"] for shrunk in cell["shrunk"] if shrunk["witness"]["rule"] == "FL006")
    assert witness["lost"]["operation"] == "the creation of case-0/open"
    assert cli("replay", witness["token"]).returncode == 1


def test_another_file_system_is_refused(cli: Cli) -> None:
    ran = cli("run", MARKED, "-w", "reopen", "--file-system", "ext4")
    assert (ran.returncode, "'ordered', 'posix'" in ran.stderr) == (2, True), ran.stderr
