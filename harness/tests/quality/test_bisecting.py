# SPDX-License-Identifier: Apache-2.0
"""Bisection of a history that is made here: thirty commits, a flush that one of them takes away, two that do not build. The clone
is a copy, with a harness of its own, so that its history can be anything."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import nullcontext, suppress
from pathlib import Path
from typing import Any, cast

import msgspec
import pytest

import samples
from command_line import assert_one_clear_line
from faultline.base.cache import Cache
from faultline.base.errors import BadInputError, InfrastructureError, InterruptedCampaignError
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Site
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.bisection import print_bisection
from faultline.study import bisect as bisect_module
from faultline.study.bisect import (
    CommitResult,
    Step,
    TargetFinding,
    _new_at_bad,
    _shown,
    _sources,
    concerned,
    explore_commit,
    has_function,
    judge,
)
from faultline.study.history import Change, Repository, parse_diff
from faultline.workload.operations import Workload

COMMITS, PLANTED = 30, 19
BROKEN = {15, 22}
"""They do not build; the first is where git looks first."""
SOURCE = "allocators/nvm_malloc/src/protocol.c"
FLUSH = "#elif !defined(MUTANT_MISSING_FLUSH_LINK)\n        fl_flush(word, sizeof *word);\n#endif"
WORKLOAD = ("-w", "churn", "--ops", "4")

Run = subprocess.CompletedProcess[str]


def git(folder: Path, *arguments: str) -> str:
    identity = ("-c", "user.name=A Person", "-c", "user.email=person@example.org", "-c", "commit.gpgsign=false")
    run = subprocess.run(["git", *identity, *arguments], cwd=folder, capture_output=True, text=True, check=True)
    return run.stdout.strip()


@pytest.fixture(scope="module")
def clone(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Commits are tagged c1 to c30."""
    folder = tmp_path_factory.mktemp("clone")
    for part in (*samples.SOURCE_FOLDERS, "harness/faultline"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    (folder / ".gitignore").write_text("__pycache__\n")
    git(folder, "init", "-q")
    original = (folder / SOURCE).read_text()
    assert FLUSH in original
    for number in range(1, COMMITS + 1):
        text = original.replace("/* Step 3", "/* moved */\n" * number + "/* Step 3")
        if number >= PLANTED:
            text = text.replace(FLUSH, "#endif")
        if number in BROKEN:
            text += "\n#error this commit does not build\n"
        (folder / SOURCE).write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {number}")
        git(folder, "tag", f"c{number}")
    add_side_branch(folder)
    add_later_branch(folder)
    return folder


def add_side_branch(folder: Path) -> None:
    """s1 does not build, s2 is as the commit that takes the flush away."""
    branch = git(folder, "branch", "--show-current")
    git(folder, "checkout", "-q", "-b", "side", f"c{PLANTED - 1}")
    (folder / SOURCE).write_text("#error this commit does not build\n")
    git(folder, "commit", "-q", "-a", "-m", "side 1")
    git(folder, "tag", "s1")
    git(folder, "checkout", "-q", f"c{PLANTED}", "--", SOURCE)
    git(folder, "commit", "-q", "-a", "-m", "side 2")
    git(folder, "tag", "s2")
    git(folder, "checkout", "-q", branch)


def add_later_branch(folder: Path) -> None:
    """l1, l2 and l3; l2 takes a flush away in recovery, which only a second crash shows."""
    branch = git(folder, "branch", "--show-current")
    git(folder, "checkout", "-q", "-b", "later", "c2")
    types = folder / "allocators/nvm_malloc/src/types.h"
    text = types.read_text()
    for number in range(1, 4):
        types.write_text("#define MUTANT_REPLAY_LINKS_NOT_FLUSHED\n" * (number >= 2) + text + f"/* {number} */\n")
        git(folder, "commit", "-q", "-a", "-m", f"later {number}")
        git(folder, "tag", f"l{number}")
    git(folder, "checkout", "-q", branch)


Bisect = Callable[..., Run]


def command(clone: Path, root: Path, scripts: Path, temporary: Path) -> tuple[list[str], dict[str, str]]:
    """temporary: for its folders alone, so that what it leaves there is seen."""
    options = ["--cache", str(root / ".faultline"), "--engine", str(scripts / "faultline-engine")]
    words = [sys.executable, "-P", "-m", "faultline", "bisect", "nvm_malloc", *options]
    temporary.mkdir()
    return words, {**os.environ, "PYTHONPATH": str(clone / "harness"), "TMPDIR": str(temporary)}


@pytest.fixture
def bisect(clone: Path, root: Path, scripts: Path, tmp_path: Path) -> Iterator[Bisect]:
    """Afterwards nothing is left of it, and the checkout is as it was."""
    temporary = tmp_path / "temporary"
    words, environment = command(clone, root, scripts, temporary)

    def run(*arguments: str) -> Run:
        return subprocess.run(
            [*words, *arguments], env=environment, capture_output=True, text=True, timeout=600, check=False
        )

    yield run
    assert_nothing_is_left(clone, temporary)


@pytest.fixture(scope="module")
def found(clone: Path, root: Path, scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What bisecting all of the history says."""
    shutil.rmtree(root / ".faultline" / bisect_module.KEPT, ignore_errors=True)
    temporary = tmp_path_factory.mktemp("whole") / "temporary"
    words, environment = command(clone, root, scripts, temporary)
    words += ["--good", "c1", "--bad", "HEAD", *WORKLOAD, "--json"]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert_nothing_is_left(clone, temporary)
    said: dict[str, Any] = json.loads(run.stdout)
    return said


def outcomes_of_last_good(steps: list[dict[str, Any]]) -> list[str]:
    """Of the commit that was looked at last."""
    return [step["outcome"] for step in steps if step["commit"] == steps[-1]["commit"]]


def assert_nothing_is_left(clone: Path, *scratch: Path) -> None:
    assert git(clone, "worktree", "list").count("\n") == 0
    assert git(clone, "for-each-ref", "refs/bisect") == ""
    assert git(clone, "describe", "--tags") == f"c{COMMITS}"
    assert [path for folder in scratch for path in folder.iterdir()] == []


@pytest.mark.slow
def test_the_commit_that_takes_a_flush_away_is_found(found: dict[str, Any]) -> None:
    assert found["title"].endswith(f"A Person: commit {PLANTED}")
    lines = [line for change in found["changes"] for line in change["lines"]]
    assert "-        fl_flush(word, sizeof *word);" in lines
    assert found["finding"]["sites"][0]["function"] == "set_links"
    assert found["shrunk"]["operations"] == 1, "of the four that show it"
    assert outcomes_of_last_good(found["steps"]) == ["good", "good"], "by the smallest workload, and by all of it"
    skipped = [step for step in found["steps"] if step["outcome"] == "skip"]
    assert [step for step in skipped if "does not build" in step["why"]]


@pytest.mark.slow
def test_what_was_explored_is_kept(bisect: Bisect, found: dict[str, Any]) -> None:
    """A bisection that was stopped is asked for again: here, one that came to its end."""
    run = bisect("--good", "c1", "--bad", "HEAD", *WORKLOAD)
    assert run.returncode == 0, run.stderr
    assert f"A Person: commit {PLANTED}" in run.stdout.splitlines()[0]
    tested = re.findall(r"^[0-9a-f]{12}: (good|bad|skip): (.*)$", run.stderr, re.MULTILINE)
    assert len(tested) > 3
    for outcome, why in tested:
        assert why.endswith(" (explored before)") == ("does not build" not in why), (outcome, why)
    told = re.findall(
        r"^([0-9a-f]{12}) is next; (\d+) commits? left after it, about (\d+) steps?$", run.stderr, re.MULTILINE
    )
    left = [int(commits) for _, commits, _ in told]
    assert left[0] in {13, 14}, "which half git takes first depends on the commits' times"
    assert left == sorted(left, reverse=True)
    lines = run.stderr.splitlines()
    for commit, *_ in told:
        following = lines[
            next(number for number, line in enumerate(lines) if line.startswith(f"{commit} is next; ")) + 1
        ]
        assert following.startswith(f"{commit}: "), "each step stands below the line that announces it"


@pytest.mark.slow
def test_what_a_person_sees(bisect: Bisect, found: dict[str, Any]) -> None:
    """Who has a witness."""
    token = found["finding"]["token"]
    run = bisect("--good", f"c{PLANTED - 1}", "--bad", f"c{PLANTED}", "--witness", token)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("first bad commit: ")
    assert f"A Person: commit {PLANTED}" in run.stdout
    assert "    -        fl_flush(word, sizeof *word);" in run.stdout
    assert "at set_links (allocators/nvm_malloc/src/protocol.c:" in run.stdout
    assert "looked at with" not in run.stdout, "its workload is the smallest one already"


@pytest.mark.nightly
def test_where_only_skipped_commits_are_left_no_commit_is_blamed(bisect: Bisect) -> None:
    run = bisect("--good", f"c{PLANTED - 1}", "--bad", "s2", *WORKLOAD)
    assert run.returncode == 3, run.stderr
    head, *candidates = run.stdout.splitlines()
    assert head.startswith("first bad commit: one of those that could not be tested")
    assert sorted("does not build" in line for line in candidates) == [False, True]


def test_an_allocator_may_lie_in_a_repository_of_its_own(tmp_path: Path) -> None:
    """Linked into the clone."""
    own, root = tmp_path / "own", tmp_path / "clone"
    (own / "pm" / "mine").mkdir(parents=True)
    (own / "pm" / "mine" / "allocator.toml").write_text("")
    (root / "allocators").mkdir(parents=True)
    (root / "allocators" / "mine").symlink_to(own / "pm" / "mine")
    with pytest.raises(BadInputError, match="is in no git repository"):
        Repository(root / "allocators" / "mine")
    git(own, "init", "-q")
    git(own, "add", "-A")
    git(own, "commit", "-q", "-m", "first")
    repository = Repository(root / "allocators" / "mine")
    assert (repository.top, repository.sources) == (own.resolve(), ["."])
    (own / "readme").write_text("not a source")
    repository.check_clean()
    (own / "source.c").write_text("what it is built from")
    git(own, "add", "source.c")
    with pytest.raises(BadInputError, match=r": source\.c has changes that are not committed"):
        repository.check_clean()
    git(own, "reset", "-q")
    (own / "pm" / "mine" / "new.c").write_text("a source")
    with pytest.raises(BadInputError, match=r"new\.c has changes that are not committed"):
        repository.check_clean()
    first = repository.commit("HEAD")
    with repository.worktree(first) as checkout, _sources(root, checkout, repository.folder, "mine") as sources:
        assert (sources / "allocators" / "mine" / "allocator.toml").is_file()
        assert not (sources / "allocators" / "mine" / "new.c").exists()
    assert git(own, "worktree", "list").count("\n") == 0


@pytest.mark.parametrize("folder", ["include", "allocators/include"])
def test_each_commit_is_built_with_its_own_headers(tmp_path: Path, root: Path, folder: str) -> None:
    """Older commits have them elsewhere. Another include folder, without all of them, is the allocator's own business."""
    checkout = tmp_path / "checkout"
    (checkout / folder).mkdir(parents=True)
    for name in ("adapter.h", "persist.h"):
        (checkout / folder / name).write_text("")
    with _sources(root, checkout, "mine", "mine") as sources:
        assert (sources / "include").resolve() == root / "include"
    (checkout / folder / "stage.h").write_text("")
    with _sources(root, checkout, "mine", "mine") as sources:
        assert (sources / "include").resolve() == (checkout / folder).resolve()


@pytest.mark.slow
def test_the_history_of_a_repository_of_its_own_is_gone_through(
    clone: Path, root: Path, scripts: Path, tmp_path: Path
) -> None:
    """The second of three commits takes the flush away; the clone that it is linked into is no repository. Its sources lie beside
    its folder."""
    project, own = tmp_path / "project", tmp_path / "own"
    shutil.copytree(clone, project, ignore=shutil.ignore_patterns(".git", "nvm_malloc"))
    shutil.copytree(root / "allocators/nvm_malloc", own / "pm/mine", ignore=shutil.ignore_patterns("tests"))
    (project / "allocators/nvm_malloc").symlink_to(own / "pm/mine")
    (own / "pm/mine/src").rename(own / "src")
    description = own / "pm/mine/allocator.toml"
    assert description.read_text().count('["src') >= 2
    description.write_text(description.read_text().replace('["src', '["../../src'))
    git(tmp_path, "init", "-q", "own")
    source = own / "src/protocol.c"
    original = source.read_text()
    for number, text in enumerate(
        (original, original.replace(FLUSH, "#endif"), original.replace(FLUSH, "#endif\n")), 1
    ):
        source.write_text(text)
        git(own, "add", "-A")
        git(own, "commit", "-q", "-m", f"commit {number}")
    temporary = tmp_path / "temporary"
    words, environment = command(project, root, scripts, temporary)
    words += ["--good", "HEAD~2", "--bad", "HEAD", *WORKLOAD]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stderr
    assert "A Person: commit 2" in run.stdout.splitlines()[0]
    assert "    -        fl_flush(word, sizeof *word);" in run.stdout
    assert git(own, "worktree", "list").count("\n") == 0
    assert git(own, "status", "--porcelain") == ""
    assert list(temporary.iterdir()) == []


@pytest.fixture
def own(tmp_path: Path) -> Repository:
    """A small repository; c1 and c2 are tags."""
    folder = tmp_path / "own"
    source = folder / "allocators" / "mine" / "x.c"
    source.parent.mkdir(parents=True)
    git(tmp_path, "init", "-q", "own")
    for number, text in enumerate(("-- i;\nold\n", "++ i;\nnew\n"), 1):
        source.write_text(text)
        git(folder, "add", "-A")
        git(folder, "commit", "-q", "-m", f"commit {number}")
        git(folder, "tag", f"c{number}")
    return Repository(folder / "allocators" / "mine")


def test_what_else_is_in_the_repository_stays(own: Repository, tmp_path: Path) -> None:
    """Another worktree, on a disk that is not there now, and the index."""
    git(own.top, "worktree", "add", "-q", str(tmp_path / "other"))
    shutil.rmtree(tmp_path / "other")
    with own.worktree("c1"):
        pass
    with own.worktree("c1") as checkout:
        shutil.rmtree(checkout)
    assert [line.split()[0] for line in git(own.top, "worktree", "list").splitlines()[1:]] == [str(tmp_path / "other")]
    index = own.top / ".git" / "index"
    before = index.read_bytes()
    os.utime(own.top / "allocators/mine/x.c", (0, 0))
    own.check_clean()
    assert index.read_bytes() == before


def test_what_git_refuses_is_said(own: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    (own.top / ".git" / "index").write_bytes(b"not an index, and long enough to have a head and a hash")
    with pytest.raises(InfrastructureError, match=r"own: git status failed: fatal: index file corrupt"):
        own.check_clean()
    with (
        pytest.raises(InfrastructureError, match=r"git worktree failed: fatal: invalid reference: nothing"),
        own.worktree("nothing"),
    ):
        pass
    monkeypatch.setenv("PATH", "")
    with pytest.raises(InfrastructureError, match="git cannot be started: git: No such file or directory"):
        own.check_clean()


@pytest.mark.parametrize("key", ["diff.noprefix", "diff.mnemonicPrefix", "color.diff"])
def test_the_lines_of_a_commit_are_those_of_everyone(own: Repository, key: str) -> None:
    git(own.top, "config", key, "always" if key == "color.diff" else "true")
    git(own.top, "config", "diff.interHunkContext", "9")
    file = "allocators/mine/x.c"
    assert parse_diff(own.diff_of("c2")) == [Change(file, 1, "", ["--- i;", "-old", "+++ i;", "+new"])]


@pytest.mark.nightly
def test_a_witness_says_what_is_sought(bisect: Bisect, clone: Path, root: Path, scripts: Path, tmp_path: Path) -> None:
    words, environment = command(clone, root, scripts, tmp_path / "temporary of run")
    words[words.index("bisect")] = "run"
    run = subprocess.run([*words, *WORKLOAD, "--json"], env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    token = cell["findings"][-1]["token"]
    shown = bisect("--good", f"c{PLANTED - 1}", "--bad", f"c{PLANTED}", "--witness", token, "--json")
    assert shown.returncode == 0, shown.stderr
    assert json.loads(shown.stdout)["finding"]["rule"] == cell["findings"][-1]["rule"]
    gone = bisect("--good", "c1", "--bad", f"c{PLANTED - 1}", "--witness", token)
    assert (gone.returncode, "passes: its crash states do not show FL" in gone.stderr) == (2, True)


@pytest.mark.slow
def test_a_witness_of_a_second_crash(bisect: Bisect, clone: Path, root: Path, scripts: Path, tmp_path: Path) -> None:
    """And a shrunk one: its token is of the smallest workload, of a build that is another one at each commit."""
    other = tmp_path / "other"
    git(tmp_path, "clone", "-q", str(clone), str(other))
    git(other, "checkout", "-q", "l3")
    words, environment = command(other, root, scripts, tmp_path / "temporary of run")
    words[words.index("bisect")] = "run"
    words += ["-w", "churn", "--ops", "4", "--nested", "1", "--stop-at-rule", "FL014", "--json"]
    run = subprocess.run(words, env=environment, capture_output=True, text=True, check=False)
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    (shrunk,) = cell["shrunk"]
    assert shrunk["operations"] == 1
    shown = bisect("--good", "c2", "--bad", "l3", "--witness", shrunk["witness"]["token"], "--json")
    assert shown.returncode == 0, shown.stderr
    said = json.loads(shown.stdout)
    assert said["title"].endswith("A Person: later 2")
    assert (said["finding"]["rule"], said["finding"]["sites"][0]["function"]) == ("FL014", "set_links")


@pytest.mark.parametrize(
    ("function", "there"),
    [
        ("set_links", True),
        ("ns::Tree<int>::split(ns::Leaf&)", True),
        ("main::{lambda(int)#1}::operator()", True),  # no name to look for, but one of the outer function
        ("", True),
        ("gone_away", False),
        ("ns::Tree::gone(int)", False),
    ],
)
def test_whether_a_function_is_there(function: str, there: bool) -> None:
    assert has_function(b"..set_links\0main\0_ZN2ns4Tree5splitERNS_4LeafE\0split\0", function) == there


@pytest.mark.slow
def test_a_witness_of_a_place_that_is_gone_is_said_before_it_is_explored(
    root: Path, cache: Cache, scripts: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bisect_module, "trace_cell", lambda *_, **__: pytest.fail("traced"))
    workshop = Workshop(root, cache, Engine(scripts / "faultline-engine"))
    folder, spec = "allocators/nvm_malloc", samples.spec(strategy="mixed")
    with pytest.raises(BadInputError, match="of a place that is gone: the bad end has no gone_away"):
        explore_commit(workshop, root, folder, spec, cast(Workload, None), None, TargetFinding("FL003", "gone_away"))


def test_bad_ends_are_said(bisect: Bisect) -> None:
    """Before the history is gone through."""
    assert_one_clear_line(bisect("--good", "c1", "--bad", "nothing"), 2, "'nothing' is no commit")
    assert_one_clear_line(bisect("--good", "--all", "--bad", "c2"), 2, "'--all' is no commit")
    assert_one_clear_line(bisect("--good", "c2", "--bad", "c2"), 2, "are both")
    assert_one_clear_line(bisect("--good", "c3", "--bad", "c2"), 2, "is no ancestor of the bad end")
    witness = ("--good", "c1", "--bad", "c2", "--witness", "fl1.AAAA")
    assert_one_clear_line(bisect(*witness), 2, "not a token")
    assert_one_clear_line(
        bisect(*witness, "-w", "smoke"), 2, "--witness names the whole cell, and --workload is given, too"
    )


@pytest.mark.nightly
def test_ends_that_are_not_what_they_are_said_to_be(bisect: Bisect) -> None:
    passes = bisect("--good", "c1", "--bad", f"c{PLANTED - 1}", *WORKLOAD)
    assert (passes.returncode, "the bad end" in passes.stderr) == (2, True)
    assert "passes: its crash states do not show any rule broken" in passes.stderr
    fails = bisect("--good", f"c{PLANTED}", "--bad", f"c{PLANTED + 1}", *WORKLOAD)
    assert (fails.returncode, "the good end" in fails.stderr) == (2, True)
    assert "fails: it has all findings of the bad end" in fails.stderr


@pytest.mark.slow
@pytest.mark.parametrize(
    ("which", "good", "bad"), [("bad", 1, max(BROKEN)), pytest.param("good", min(BROKEN), 20, marks=pytest.mark.slow)]
)
def test_an_end_that_does_not_build_is_said(bisect: Bisect, which: str, good: int, bad: int) -> None:
    run = bisect("--good", f"c{good}", "--bad", f"c{bad}", *WORKLOAD)
    assert run.returncode == 2, run.stderr
    *_, error, hint = run.stderr.splitlines()
    assert error.startswith(f"error: the {which} end ")
    assert error.endswith("#error this commit does not build")
    assert hint.startswith("hint: ")


def test_uncommitted_sources_are_said(bisect: Bisect, clone: Path) -> None:
    source = clone / SOURCE
    text = source.read_text()
    try:
        source.write_text(text + "/* more */\n")
        assert_one_clear_line(bisect("--good", "c1", "--bad", "c2"), 2, "protocol.c has changes that are not committed")
    finally:
        source.write_text(text)


@pytest.mark.slow
def test_ctrl_c_leaves_nothing(clone: Path, root: Path, scripts: Path, tmp_path: Path, folder: Path) -> None:
    """While a step has its tracer or engine running: nothing is known of any commit."""
    shutil.rmtree(root / ".faultline" / bisect_module.KEPT, ignore_errors=True)
    temporary = tmp_path / "temporary"
    words, environment = command(clone, root, scripts, temporary)
    words += ["--heap-folder", str(folder), "--good", "c1", "--bad", "HEAD", *WORKLOAD]
    with subprocess.Popen(words, env=environment, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if "is sought between" in line:
                break
        while not that_name(folder) and process.poll() is None:
            time.sleep(0.01)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 3
    deadline = time.monotonic() + 1  # what is killed takes a moment to die
    while that_name(folder) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert that_name(folder) == []
    assert_nothing_is_left(clone, temporary, folder)


def test_ctrl_c_says_that_it_goes_on(monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: Any) -> CommitResult:
        raise KeyboardInterrupt

    monkeypatch.setattr(bisect_module._HistorySearch, "look_at_end", interrupted)
    monkeypatch.setattr(bisect_module, "_with_stored_workload", lambda _, spec: spec)
    nothing = cast(Any, None)
    with pytest.raises(InterruptedCampaignError) as caught:
        bisect_module.bisect(nothing, cast(Any, FakeRepository()), WHOLE, ("c1", "c9"), None, lambda _: None)
    assert caught.value.hint == "the same command goes on where it was"


def that_name(folder: Path) -> list[str]:
    """Command lines of processes."""
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            words = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if f"{folder}/" in words:
                found.append(words)
    return found


# ---- what a commit shows -------------------------------------------------------------------------------------------------

SOUGHT = TargetFinding("FL004", "nvm_activate", "FL004-1a2b3c4d")


def seen(*findings: Any, **certificate: Any) -> CommitResult:
    return CommitResult(list(findings), samples.certificate(**{"complete": True, "why": "", **certificate}))


def test_the_same_function_is_the_same_bug() -> None:
    """An ordinal changes where a statement is put above the store."""
    assert judge("c", seen(samples.finding(id="FL004-00000000")), SOUGHT, []).outcome == "bad"


def test_another_place_is_good_only_where_the_good_end_has_it_too() -> None:
    other = samples.finding(id="FL004-00000000", sites=[Site("renamed", "x.c", 3)])
    assert judge("c", seen(other), SOUGHT, []).outcome == "skip"
    assert judge("c", seen(other), SOUGHT, [("FL004", "renamed")]).outcome == "good"


def test_another_rule_is_good_only_where_the_good_end_breaks_it_there_too() -> None:
    """One bug may break one rule at this commit and another at the next."""
    other = samples.finding(rule="FL010", id="FL010-00000000")
    skipped = judge("c", seen(other), SOUGHT, [("FL004", "nvm_activate"), ("FL010", "renamed")])
    assert skipped.outcome == "skip"
    assert skipped.why.startswith("FL010 at nvm_activate")
    assert judge("c", seen(other), SOUGHT, [("FL010", "nvm_activate")]).outcome == "good"


def test_what_was_not_explored_is_not_good() -> None:
    capped = "3 of 90 crash positions are not explored completely"
    for why in (capped, "sampled at 96 of 9000 crash positions", "some states are unknown"):
        assert judge("c", seen(complete=False, why=why), SOUGHT, []) == Step("c", "skip", why)
    assert judge("c", seen(complete=False, why=""), SOUGHT, []).outcome == "skip"
    assert judge("c", CommitResult([], None), SOUGHT, []).outcome == "skip"
    assert judge("c", seen(), SOUGHT, []).outcome == "good"


def test_the_ends_are_looked_at() -> None:
    finding = samples.finding()
    with pytest.raises(BadInputError, match="the bad end c2 passes: its crash states do not show any rule broken"):
        _shown([], None, "c2")
    with pytest.raises(
        BadInputError, match=r"the bad end c2 passes: .* do not show FL010 at free, but FL004 at nvm_act"
    ):
        _shown([finding], TargetFinding("FL010", "free"), "c2")
    with pytest.raises(BadInputError, match="the good end c1 fails: it has all findings of the bad end c2"):
        _new_at_bad([finding], seen(finding), None, ("c1", "c2"))
    with pytest.raises(BadInputError, match="the good end c1 fails: it shows FL004 at nvm_activate, too"):
        _new_at_bad([finding], seen(finding), SOUGHT, ("c1", "c2"))


def test_where_no_commit_passes_there_is_nothing_to_bisect() -> None:
    finding, ends = samples.finding(), ("c1", "c2")
    first = "no commit passes: c1, the first one that has the allocator, "
    with pytest.raises(BadInputError, match=f"{first}has all findings of the bad end c2") as caught:
        _new_at_bad([finding], seen(finding), None, ends, is_first=True)
    assert "older" not in str(caught.value.hint).replace("as old as", "")
    with pytest.raises(BadInputError, match=f"{first}shows FL004 at nvm_activate, too"):
        _new_at_bad([finding], seen(finding), SOUGHT, ends, is_first=True)
    assert _new_at_bad([finding], seen(), None, ends, is_first=True)[0] == finding, "the first one may be good"


def test_a_commit_without_the_allocator_is_said(own: Repository, scripts: Path, cache: Cache, root: Path) -> None:
    """An end before anything is explored. No name of a folder of ours is in it."""
    old, described = own.commit("c2"), own.top / own.folder / "allocator.toml"
    described.write_text("")
    git(own.top, "add", "-A")
    git(own.top, "commit", "-q", "-m", "described")
    with pytest.raises(BadInputError, match=f"^the good end {old[:12]} has no allocators/mine/allocator.toml$"):
        own.check_range(old, own.commit("HEAD"))
    git(own.top, "commit", "-q", "--allow-empty", "-m", "later")
    own.check_range(own.commit("HEAD^"), own.commit("HEAD"))
    workshop = Workshop(root, cache, Engine(scripts / "faultline-engine"))
    with (
        own.worktree(old) as checkout,
        pytest.raises(BadInputError, match=r"^it has no allocators/mine/allocator\.toml"),
    ):
        explore_commit(workshop, checkout, own.folder, samples.spec(), cast(Workload, None), None)


def test_the_first_commit_that_has_the_allocator_is_known(own: Repository) -> None:
    assert own.is_first(own.commit("c1"))
    description = own.top / own.folder / "allocator.toml"
    description.write_text("")
    git(own.top, "add", "-A")
    git(own.top, "commit", "-q", "-m", "described")
    described = own.commit("HEAD")
    assert own.is_first(described), "c1 and c2 have none"
    git(own.top, "commit", "-q", "--allow-empty", "-m", "later")
    assert not own.is_first(own.commit("HEAD"))


def test_a_good_end_that_was_not_explored_completely_is_not_good() -> None:
    sampled = seen(complete=False, why="sampled at 96 of 9000 crash positions")
    with pytest.raises(InfrastructureError, match="the good end c1 cannot be told good: sampled at 96"):
        _new_at_bad([samples.finding()], sampled, None, ("c1", "c2"))
    dying = seen(complete=False, why="some states are unknown", unknown_reasons=["the heap without a crash died"])
    with pytest.raises(InfrastructureError, match="good: some states are unknown: the heap without a crash died"):
        _new_at_bad([samples.finding()], dying, None, ("c1", "c2"))


WHOLE = samples.spec(strategy="complete")
SMALL = msgspec.structs.replace(WHOLE, workload="file:0123456789abcdef", ops=0)


class FakeRepository:
    """Commits c1 (good), c2, ... c9 (bad)."""

    def is_first(self, _: str) -> bool:
        return False

    def worktree(self, _: str) -> Any:
        return nullcontext(Path("checkout"))

    def demand(self, *words: str, **_: Any) -> str:
        assert words == ("rev-parse", "c5^@")
        return "c4\nc0\n"

    def ask(self, *words: str, **_: Any) -> str | None:
        """c0 is an ancestor of the good end."""
        assert words[:2] == ("merge-base", "--is-ancestor")
        return "" if words[2:] == ("c0", "c1") else None


@pytest.mark.parametrize(
    ("whole_at_c4", "first", "is_whole", "unconfirmed"),
    [
        (seen(), "c5", False, ""),
        (seen(samples.finding()), "c3", True, ""),
        (seen(complete=False, why="60 s limit"), "c5", False, "c4: 60 s limit"),
    ],
)
def test_the_commit_before_is_looked_at_by_the_whole_workload(
    monkeypatch: pytest.MonkeyPatch, whole_at_c4: CommitResult, first: str, is_whole: bool, unconfirmed: str
) -> None:
    """Sources of that time may need more than the smallest one to show the bug: then the history before is gone through again."""
    shown = {("c9", WHOLE): seen(samples.finding()), ("c1", WHOLE): seen(), ("c4", WHOLE): whole_at_c4}
    ranges = []

    def between(_: Any, ends: tuple[str, str], test: Any, *more: Any) -> tuple[str, list[str]]:
        ranges.append((ends, test.spec))
        return ("c5" if ends == ("c1", "c9") else "c3"), []

    search = bisect_module._HistorySearch
    monkeypatch.setattr(search, "look_at", lambda _, commit, what, spec, *more: shown[commit, spec])
    monkeypatch.setattr(search, "shrink", lambda *_: (samples.shrunk(), bisect_module.CommitTest(SMALL, [])))
    monkeypatch.setattr(search, "between", between)
    monkeypatch.setattr(bisect_module, "_with_stored_workload", lambda _, spec: spec)
    monkeypatch.setattr(bisect_module, "_bisection", lambda *parts: parts)
    nothing = cast(Any, None)
    parts: Any = bisect_module.bisect(nothing, cast(Any, FakeRepository()), WHOLE, ("c1", "c9"), None, lambda _: None)
    _, _, steps, found, _, shrunk, not_sure = parts
    assert ranges == [(("c1", "c9"), SMALL)] + [(("c1", "c4"), WHOLE)] * is_whole
    assert (found, shrunk is None, not_sure) == (first, is_whole, unconfirmed)
    assert [step.commit for step in steps] == ["c9", "c4"]


def test_what_is_next_is_said_between_the_steps(tmp_path: Path) -> None:
    """However late they are read: here all of them at once, as when each commit was explored before."""
    one, two, three = ("1" * 40, "2" * 40, "3" * 40)
    outcomes = [Step(one, "good", "no FL004"), Step(two, "bad", "FL004"), Step(three, "bad", "FL004")]
    steps, log = tmp_path / "steps", tmp_path / "log"
    steps.write_bytes(b"".join(msgspec.json.encode(step) + b"\n" for step in outcomes))
    log.write_text(
        f"running 'python'\nBisecting: 1 revision left to test after this (roughly 1 step)\n[{two}] a title\n"
        f"running 'python'\nBisecting: 0 revisions left to test after this (roughly 0 steps)\n[{three}] another\n"
    )
    said: list[str] = []
    with subprocess.Popen(["true"]) as process:
        assert bisect_module._wait(cast(Any, process), steps, log, said.append) == 0
    assert said == [
        "111111111111: good: no FL004",
        "222222222222 is next; 1 commit left after it, about 1 step",
        "222222222222: bad: FL004",
        "333333333333 is the last one",
        "333333333333: bad: FL004",
    ]


def test_what_commits_were_looked_at_with_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    unsure = "c4: 60 s limit"
    found = bisect_module.Bisection(samples.finding(), "c5", "a title", [], [], [], samples.shrunk(), unsure)
    print_bisection(found)
    said = capsys.readouterr().out
    assert (
        "  looked at with: 1 of 4 operations (allocate 0 1), 1 line lost; the commit before: with the whole workload\n"
        in said
    )
    assert "  not sure: by the whole workload, c4: 60 s limit\n" in said


DIFF = """diff --git a/src/activate.c b/src/activate.c
index 1..2 100644
--- a/src/activate.c
+++ b/src/activate.c
@@ -3,0 +4,2 @@
+-- a
+b
@@ -200 +300 @@ void nvm_activate(int x) {
-old
+new
diff --git a/other.c b/other.c
--- a/other.c
+++ b/other.c
@@ -1 +1 @@
-c
+d
"""


def test_lines_near_the_stores_are_shown(root: Path) -> None:
    changes = parse_diff(DIFF)
    assert changes[0] == Change("src/activate.c", 4, "", ["+-- a", "+b"])
    assert [(change.file, change.line) for change in changes] == [
        ("src/activate.c", 4),
        ("src/activate.c", 300),
        ("other.c", 1),
    ]
    repository = Repository.__new__(Repository)
    repository.name, repository.folder = "x", "own/x"
    site = Site("nvm_activate", "allocators/x/src/activate.c", 12)
    moved = [Change(f"own/x/{change.file}", change.line, change.function, change.lines) for change in changes]
    assert concerned(moved, samples.finding(sites=[site]), repository) == moved[:2]
    assert concerned(moved[2:], samples.finding(sites=[site]), repository) == moved[2:], "else all"
