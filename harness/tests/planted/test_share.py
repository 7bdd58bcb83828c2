# SPDX-License-Identifier: Apache-2.0
"""The gate's share of the planted faults has those that the last change may have hidden."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from drawn import drawn
from drawn import git as ask
from planted import table
from planted.share import CHANGED, DRAWN, faults_of_the_gate

COUNT = 30


def entry(number: int, test: str = "tests/test_a.py::test_a") -> str:
    return (
        f'[[fault]]\nname = "f{number}"\nwhat = ""\ntest = "{test}"\nfile = "{number}.c"\ntext = "a"\ninstead = "b"\n'
    )


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *arguments], cwd=root, check=True)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / "faults").mkdir()
    (tmp_path / "faults" / "all.toml").write_text("".join(map(entry, range(COUNT))))
    for number in range(COUNT):
        (tmp_path / f"{number}.c").write_text("a")
    git(tmp_path, "init", "-q", "-b", "main")
    git(tmp_path, "add", ".")
    git(tmp_path, "commit", "-q", "-m", "first")
    commit(tmp_path)
    git(tmp_path, "update-ref", "refs/remotes/origin/main", "HEAD")
    return tmp_path


def chosen(root: Path) -> set[str]:
    folder = root / "faults"
    return {fault.name for fault in faults_of_the_gate(root, table.read(folder).faults, folder)}


def commit(root: Path) -> None:
    git(root, "commit", "-q", "-a", "-m", "another", "--allow-empty")


def test_faults_of_changed_files_are_planted(repository: Path) -> None:
    (repository / "3.c").write_text("a\n")
    assert "f3" in chosen(repository)
    commit(repository)
    (repository / "4.c").write_text("a\n")
    assert {"f3", "f4"} <= chosen(repository)


def test_of_main_the_last_commit_counts(repository: Path) -> None:
    (repository / "3.c").write_text("a\n")
    commit(repository)
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    assert "f3" in chosen(repository)


def test_new_and_changed_faults_are_planted(repository: Path) -> None:
    path = repository / "faults" / "all.toml"
    path.write_text(path.read_text().replace('name = "f3"', 'name = "g3"') + entry(COUNT))
    assert {"g3", f"f{COUNT}"} <= chosen(repository)


def test_others_are_drawn_by_the_commit(repository: Path) -> None:
    seen = set()
    for _ in range(6):
        commit(repository)
        git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
        assert len(chosen(repository)) == DRAWN
        assert chosen(repository) == chosen(repository)
        seen |= chosen(repository)
    assert len(seen) > 2 * DRAWN


def test_a_change_of_everything_stays_a_share(repository: Path) -> None:
    for number in range(COUNT):
        (repository / f"{number}.c").write_text("a\n")
    assert len(chosen(repository)) == CHANGED + DRAWN


def test_what_a_test_of_rust_notices_is_always_planted(repository: Path) -> None:
    path = repository / "faults" / "all.toml"
    path.write_text(path.read_text() + entry(COUNT, "litmus: a"))
    commit(repository)
    git(repository, "update-ref", "refs/remotes/origin/main", "HEAD")
    commit(repository)
    assert f"f{COUNT}" in chosen(repository)


def test_without_history_some_are_drawn(tmp_path: Path) -> None:
    faults = table.read().faults
    assert ask(tmp_path, "rev-parse", "HEAD") == ""
    assert len(drawn(tmp_path, faults, DRAWN)) == DRAWN
