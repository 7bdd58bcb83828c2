# SPDX-License-Identifier: Apache-2.0
"""Of a test with many cases, and of the slow tests of a file, the gate runs some, drawn by the commit, and the nightly run has the
others."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from drawn import leave_the_rest_to_nightly

CASES = 12
DRAWN = pytest.mark.drawn(3)


class Case(pytest.Item):
    def __init__(self, number: int, name: str = "test_a", mark: pytest.MarkDecorator = DRAWN, **keys: object) -> None:
        super().__init__(name=f"{name}[{number}]", **keys)  # type: ignore[arg-type]
        self.originalname = name
        self.add_marker(mark)

    def runtest(self) -> None: ...


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    git(tmp_path, "init", "-q")
    commit(tmp_path)
    return tmp_path


def git(root: Path, *arguments: str) -> None:
    subprocess.run(["git", "-c", "user.name=a", "-c", "user.email=a", *arguments], cwd=root, check=True)


def commit(root: Path) -> None:
    git(root, "commit", "-q", "-m", "another", "--allow-empty")


def cases(request: pytest.FixtureRequest, name: str = "test_a") -> list[pytest.Item]:
    return [Case.from_parent(request.node.parent, number=number, name=name) for number in range(CASES)]


def run_each_time(root: Path, items: list[pytest.Item]) -> set[int]:
    leave_the_rest_to_nightly(root, items)
    return {number for number, item in enumerate(items) if not item.get_closest_marker("nightly")}


def test_so_many_run_and_the_others_are_nightly(repository: Path, request: pytest.FixtureRequest) -> None:
    assert len(run_each_time(repository, cases(request))) == 3


def test_a_commit_always_draws_the_same_and_the_next_one_others(
    repository: Path, request: pytest.FixtureRequest
) -> None:
    seen = set()
    for _ in range(6):
        chosen = run_each_time(repository, cases(request))
        assert chosen == run_each_time(repository, cases(request))
        seen |= chosen
        commit(repository)
    assert len(seen) > 6


def test_what_is_nightly_is_not_drawn(repository: Path, request: pytest.FixtureRequest) -> None:
    items = cases(request)
    for item in items[:10]:
        item.add_marker(pytest.mark.nightly)
    assert run_each_time(repository, items) == {10, 11}


def test_each_test_has_its_own(repository: Path, request: pytest.FixtureRequest) -> None:
    """And where they are as many, the same ones: cases of one file share what they are made of."""
    one, other = cases(request), cases(request, "test_b")
    assert run_each_time(repository, [*one, *other]) == {
        number + more for number in run_each_time(repository, cases(request)) for more in (0, CASES)
    }


def slow_tests(request: pytest.FixtureRequest, path: Path) -> list[pytest.Item]:
    items = [
        Case.from_parent(request.node.parent, number=number, name=f"test_{number}", mark=pytest.mark.slow)
        for number in range(10)
    ]
    for item in items:
        item.path = path
    return items


def test_a_third_of_the_slow_tests_of_a_file_runs(repository: Path, request: pytest.FixtureRequest) -> None:
    one, other = (slow_tests(request, repository / name) for name in ("test_one.py", "test_other.py"))
    chosen = run_each_time(repository, [*one, *other])
    assert [len([at for at in chosen if at // 10 == file]) for file in (0, 1)] == [4, 4]
    assert len(run_each_time(repository, slow_tests(request, repository / "test_one.py")[:1])) == 1


def test_of_a_file_that_changed_all_slow_tests_run(repository: Path, request: pytest.FixtureRequest) -> None:
    for name in ("test_one.py", "test_other.py"):
        (repository / name).write_text("")
    git(repository, "add", "-A")
    commit(repository)
    assert len(run_each_time(repository, slow_tests(request, repository / "test_one.py"))) == 10
    commit(repository)
    assert len(run_each_time(repository, slow_tests(request, repository / "test_one.py"))) == 4
    (repository / "test_one.py").write_text("not committed")
    assert len(run_each_time(repository, slow_tests(request, repository / "test_one.py"))) == 10
    (repository / "test_new.py").write_text("not known to git")
    assert len(run_each_time(repository, slow_tests(request, repository / "test_new.py"))) == 10
    assert len(run_each_time(repository, slow_tests(request, repository / "test_other.py"))) == 4


def test_who_names_a_slow_test_gets_it(root: Path) -> None:
    """A third of three is one; here all three are asked for."""
    path = root / "harness/tests/quality/test_bisecting.py"
    slow = [line.split("(")[0].removeprefix("def ") for line in path.read_text().split("@pytest.mark.slow\n")[1:]]
    named = [f"{path}::{name}" for name in slow if name.startswith("test_")][:3]
    command = [sys.executable, "-m", "pytest", "-q", "--collect-only", *named]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert len(named) > 1
    assert all(name.split("::")[1] in found.stdout for name in named), found.stdout
