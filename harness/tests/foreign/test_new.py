# SPDX-License-Identifier: Apache-2.0
"""`faultline new`: what it writes works at once, and docs/tutorial.md is true of it."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import msgspec
import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.base.config import Contract
from page_commands import run_commands

MATRIX = "faultline-matrix.toml"


@pytest.fixture
def shared_cache(root: Path, tmp_path: Path) -> Path:
    """Runner and tracer are those of the clone."""
    return cache_that_shares_builds(root, tmp_path / ".faultline").folder


@pytest.mark.slow
@pytest.mark.usefixtures("shared_cache")
def test_the_tutorials_commands_do_what_it_says(root: Path, scripts: Path, tmp_path: Path) -> None:
    text = (root / "docs" / "tutorial.md").read_text()
    _, red, _, green, matrix, mutation = run_commands(text, tmp_path, scripts)
    stores = "stores: lost: the store at shelf_publish (shelf.c:114); recovery read it at shelf_open (shelf.c:78)"
    repair = "repair: clwb and sfence after the store at shelf_publish (shelf.c:114); tried: this finding is gone"
    for words in (stores, repair, "FL004-31672dd3", "  also: FL005 ", "  also: FL007 "):
        assert words in red
    for words in (stores, repair, "FL004-31672dd3"):
        assert words in text
    assert "complete=1/1" in green
    assert "findings=0" in matrix
    assert "complete=2/2" in matrix
    assert (tmp_path / "faultline-out" / "report.html").is_file()
    assert " blind=0 unknown=0 " in mutation


@pytest.mark.usefixtures("shared_cache")
def test_the_example_runs_without_the_rights_of_root(scripts: Path, faultline: Faultline, tmp_path: Path) -> None:
    """Where the file system has no MAP_SYNC, Valgrind asks once more, at address 0: EPERM for all but root, and in containers."""
    assert faultline("new", "toy", "--example", cwd=tmp_path).returncode == 0
    less = ["setpriv", "--bounding-set=-sys_rawio"] if os.geteuid() == 0 else []
    words = [*less, str(scripts / "faultline"), "run", "toy", "-w", "create"]
    run = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "complete=1/1" in run.stdout


@pytest.mark.slow
def test_a_skeleton_is_a_project_that_says_what_is_missing(faultline: Faultline, tmp_path: Path) -> None:
    made = faultline("new", "bare", "--folder", "pm/faultline", cwd=tmp_path)
    assert made.returncode == 0, made.stderr
    assert made.stdout.splitlines()[-1].startswith("next: write pm/faultline/adapter.c")
    folder = tmp_path / "pm" / "faultline"
    description = folder / "allocator.toml"
    assert_one_clear_line(faultline("run", "bare", cwd=tmp_path), 2, "build.sources: expected sources")
    (folder / "own.c").write_text("int own;\n")
    description.write_text(description.read_text().replace("sources = []", 'sources = ["own.c"]'))
    begun = faultline("run", "bare", "-w", "smoke", cwd=tmp_path)
    assert begun.returncode == 3
    assert "create of slot 0, 0 bytes) answered error: this function of the adapter is not written yet" in begun.stderr


def test_each_key_of_a_contract_is_explained(faultline: Faultline, tmp_path: Path) -> None:
    """One that is not given, too: without its comment sign it is what the contract may say."""
    assert faultline("new", "bare", cwd=tmp_path).returncode == 0
    text = (tmp_path / "bare" / "allocator.toml").read_text()
    _, _, contract = text.partition("[contract]")
    given = re.sub(r"^# (?=\w+ = )", "", contract.partition("\n")[2], flags=re.MULTILINE)
    explained = set(re.findall(r"^(\w+) = .*# \S", given, re.MULTILINE))
    assert explained == set(Contract.__struct_fields__)
    msgspec.toml.decode(given, type=Contract)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["Big"], "Big: is no name of an allocator"),
        (["a b"], "a b: is no name"),
        (["x", "--folder", "/proc/nothing"], "cannot be written"),
    ],
)
def test_bad_names_are_one_line(faultline: Faultline, tmp_path: Path, arguments: list[str], words: str) -> None:
    ended = faultline("new", *arguments, cwd=tmp_path)
    assert_one_clear_line(ended, 3 if "--folder" in arguments else 2, words)


def test_nothing_is_overwritten(faultline: Faultline, tmp_path: Path) -> None:
    (tmp_path / MATRIX).write_text("mine")
    assert_one_clear_line(faultline("new", "toy", cwd=tmp_path), 2, f"{MATRIX}: is there already")
    assert [path.name for path in tmp_path.iterdir()] == [MATRIX]
    assert (tmp_path / MATRIX).read_text() == "mine"
