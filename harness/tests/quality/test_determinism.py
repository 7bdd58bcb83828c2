# SPDX-License-Identifier: Apache-2.0
"""Same seed, same trace hash, same results; a token replays to its verdict, and refuses when the trace differs."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from subprocess import CompletedProcess
from typing import Any

import msgspec
import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.study.replay import Token
from samples import SOURCE_FOLDERS

MUTANT = (
    *("run", "nvm_malloc", "-w", "churn", "--ops", "12", "--mutant", "MISSING_FLUSH_LINK"),
    *("--samples", "2", "--stop-at-rule", "FL004", "--recoveries", "200"),
)
TIMES = ("build_s", "trace_s", "explore_s")


@pytest.mark.parametrize("workload", ["smoke", "churn", "ace:1"])
def test_the_same_seed_gives_the_same_trace(faultline: Faultline, workload: str, tmp_path: Path) -> None:
    """Traced twice, each in a fresh heap folder of another name: the same bytes."""
    (tmp_path / "heaps").mkdir()
    command = ("trace", "nvm_malloc", "-w", workload, "--json", "--fresh")
    first = json.loads(faultline(*command, "--out", tmp_path / "a").stdout)
    second = json.loads(faultline(*command, "--out", tmp_path / "b", "--heap-folder", tmp_path / "heaps").stdout)
    assert first["hash"] == second["hash"]
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


@pytest.mark.slow
def test_a_trace_does_not_depend_on_where_its_programs_were_built(faultline: Faultline, tmp_path: Path) -> None:
    """So a token from CI replays on the machine of who reads it."""
    command = ("trace", "nvm_malloc", "-w", "smoke", "--json", "--fresh")
    here = json.loads(faultline(*command).stdout)
    there = json.loads(faultline(*command, "--cache", tmp_path / "elsewhere").stdout)
    assert here["hash"] == there["hash"]


def test_other_seeds_give_other_traces(faultline: Faultline) -> None:
    command = ("trace", "nvm_malloc", "-w", "churn", "--ops", "12", "--json", "--seed")
    assert json.loads(faultline(*command, "1").stdout)["hash"] != json.loads(faultline(*command, "2").stdout)["hash"]


def comparable(text: str) -> Any:
    """Everything a campaign says but when it was and what it took."""
    document = json.loads(text)
    del document["environment"]["started_utc"]
    for cell in document["cells"]:
        for key in TIMES:
            del cell[key]
        del cell["certificate"]["time_s"], cell["certificate"]["peak_memory_bytes"]
    return document


@pytest.mark.slow
def test_the_same_seed_gives_the_same_results(faultline: Faultline) -> None:
    first, second = faultline(*MUTANT, "--json"), faultline(*MUTANT, "--json")
    assert first.returncode == second.returncode == 1, first.stderr
    assert comparable(first.stdout) == comparable(second.stdout)


@pytest.fixture(scope="module")
def findings(faultline: Faultline) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(faultline(*MUTANT, "--json").stdout)["cells"][0]["findings"]
    assert found
    return found


@pytest.mark.slow
def test_every_token_replays_to_its_finding(faultline: Faultline, findings: list[dict[str, Any]]) -> None:
    for finding in findings:
        run = faultline("replay", finding["token"], "--json")
        assert run.returncode == 1, run.stderr
        replayed = json.loads(run.stdout)
        assert replayed["verdict"] == "fail"
        assert (finding["id"], finding["message"]) in {
            (again["id"], again["message"]) for again in replayed["findings"]
        }


def test_a_replay_says_the_verdict_in_words(faultline: Faultline, findings: list[dict[str, Any]]) -> None:
    run = faultline("replay", findings[0]["token"])
    assert run.returncode == 1
    assert run.stdout.splitlines()[-1] == "verdict: fail"


@pytest.mark.slow
def test_a_token_of_a_workload_file_replays(faultline: Faultline, tmp_path: Path) -> None:
    path = tmp_path / "mine.workload"
    path.write_text("workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 2048\n")
    run = faultline(
        "run", "nvm_malloc", "-w", path, "--mutant", "MISSING_FLUSH_LINK", "--stop-at-rule", "FL004", "--json"
    )
    path.unlink()
    token = json.loads(run.stdout)["cells"][0]["findings"][0]["token"]
    assert faultline("replay", token).returncode == 1


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Path:
    """To be changed."""
    for part in (*SOURCE_FOLDERS, "harness"):
        shutil.copytree(root / part, tmp_path / part, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    return tmp_path


def replayed_in(clone: Path, faultline: Faultline, token: str) -> CompletedProcess[str]:
    return faultline("replay", token, "--cache", clone / "cache", env={"PYTHONPATH": str(clone / "harness")})


@pytest.mark.slow
def test_a_token_of_another_build_is_refused_before_anything_is_traced(
    faultline: Faultline, findings: list[dict[str, Any]], clone: Path
) -> None:
    header = clone / "include" / "persist.h"
    header.write_text(header.read_text() + "// other sources\n")
    run = replayed_in(clone, faultline, findings[0]["token"])
    assert_one_clear_line(run, 2, "the token is of another build of nvm_malloc", "replay it on the sources")
    assert not [*(clone / "cache" / "traces").iterdir()]


def test_a_token_refuses_another_trace(
    root: Path, faultline: Faultline, findings: list[dict[str, Any]], clone: Path
) -> None:
    """The allocator is the same, and its heap is larger."""
    settings = clone / "allocators" / "nvm_malloc" / "allocator.toml"
    text = settings.read_text()
    assert "\nheap_bytes = 65536 " in text
    settings.write_text(text.replace("\nheap_bytes = 65536 ", "\nheap_bytes = 131072 "))
    cache_that_shares_builds(root, clone / "cache")
    run = replayed_in(clone, faultline, findings[0]["token"])
    assert_one_clear_line(run, 2, "the trace differs", "replay it with the allocator.toml")


@pytest.mark.parametrize(("word", "mutant"), [("", None), ("MISSING_FLUSH_LINK", "MISSING_FLUSH_LINK")])
def test_a_token_of_the_clean_allocator_names_no_mutant(word: str, mutant: str | None) -> None:
    said = {"allocator": "nvm_malloc", "workload": "smoke", "trace_hash": "0" * 64, "mutant": word}
    assert msgspec.json.decode(json.dumps(said), type=Token).mutant == mutant
