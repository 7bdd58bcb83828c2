# SPDX-License-Identifier: Apache-2.0
"""faultline as its users have it: a wheel of this clone, in an environment of its own whose path has a space, without a network."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import assert_one_clear_line
from foreign.foreign_project import DESCRIPTION, HERE
from foreign.own_repository import FOLDER, ORDERED, git, make_repository
from foreign.test_own_builds import CONFIG, ENTRY, MAKE, MAKEFILE, MORE, MUTANT, SELFTEST, SHORT

NOBODY = 65534
LINES_OF_A_PASSING_RUN = 10
OF_PROJECT = {
    "faultline.toml": 'version = 1\nallocators = ["faultline"]\nmatrix = "cells.toml"\nout = "reports"\n\n'
    '[options.run]\nworkload = "short.workload"\n',
    "cells.toml": 'version = 1\n[[cell]]\nallocator = "ways"\nworkload = "short.workload"\n\n'
    '[[mutants]]\nallocator = "ways"\nworkload = "short.workload"\n',
    ".gitignore": ".faultline/\nreports/\n",
}
Installed = Callable[..., subprocess.CompletedProcess[str]]
pytestmark = pytest.mark.slow


def python(*words: str | Path, **options: Any) -> None:
    subprocess.run(
        [sys.executable, *map(str, words)], check=True, capture_output=True, text=True, timeout=600, **options
    )


@pytest.fixture(scope="module")
def place() -> Iterator[Path]:
    """Where everyone may look: pytest's own folders are its user's alone."""
    with tempfile.TemporaryDirectory(prefix="faultline test ") as name:
        Path(name).chmod(0o755)
        yield Path(name)


@pytest.fixture(scope="module")
def environment(root: Path, place: Path) -> Path:
    """The wheel's. What it depends on comes from the environment of these tests."""
    path = os.pathsep.join((sysconfig.get_path("scripts"), os.environ["PATH"], str(Path.home() / ".cargo" / "bin")))
    offline = ("--quiet", "--no-deps", "--no-index")
    build = ("-m", "pip", "wheel", *offline, "--no-build-isolation", "-w", place / "wheels", root)
    python(*build, env={**os.environ, "PATH": path})
    (wheel,) = (place / "wheels").iterdir()
    made = place / "environment"
    python("-m", "venv", "--without-pip", made)
    python("-m", "pip", "--python", made / "bin" / "python", "install", *offline, wheel)
    (packages,) = made.glob("lib/python3*/site-packages")
    (packages / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    return made


@pytest.fixture(scope="module")
def installed(environment: Path) -> Installed:
    def run(*words: str | Path, before: tuple[str, ...] = (), **options: Any) -> subprocess.CompletedProcess[str]:
        command = [*before, str(environment / "bin" / "faultline"), *map(str, words)]
        own = {"PATH": os.environ["PATH"], "HOME": str(environment.parent), **options.pop("env", {})}
        limits = {"capture_output": True, "text": True, "timeout": 600, "stdin": subprocess.DEVNULL, "check": False}
        return subprocess.run(command, env=own, **limits, **options)

    return run


@pytest.fixture(scope="module")
def repository(root: Path, place: Path) -> Path:
    """With a cache that has what the clone built: its keys are those of the wheel, too."""
    made = make_repository(place / "a heap")
    cache_that_shares_builds(root, made / ".faultline")
    return made


def test_the_wheel_is_whole(environment: Path, installed: Installed, repository: Path, root: Path) -> None:
    (package,) = environment.glob("lib/python3*/site-packages/faultline")
    there = {path.relative_to(package / "installed").as_posix() for path in (package / "installed").rglob("*")}
    assert {"include/adapter.h", "runner/main.c", "runner/hooks/hooks.c", "pintools/valgrind/Makefile"} <= there
    assert "allocators/nvm_malloc/allocator.toml" in there
    assert not [name for name in there if "/tests" in name or name.endswith(".rs")]
    run = installed("doctor", cwd=repository)
    assert run.returncode == 0, run.stdout + run.stderr
    listed = installed("list", "--built-in", cwd=repository)
    assert "makalu" in listed.stdout
    assert str(root) not in run.stdout, "nothing of the clone"


def test_a_wheel_builds_what_a_clone_builds(installed: Installed, repository: Path, root: Path) -> None:
    """So tokens travel: runner and built-in allocators have the keys that they have in the clone."""
    words = ("build", "nvm_malloc", "--json", "--cache", repository / ".faultline")
    from_wheel = installed(*words, cwd=repository)
    here = subprocess.run(
        [Path(sysconfig.get_path("scripts")) / "faultline", *words],
        cwd=root,
        capture_output=True,
        text=True,
        check=True,
    )
    assert from_wheel.returncode == 0, from_wheel.stderr
    assert from_wheel.stdout == here.stdout


def test_a_repository_is_tested_red_and_green(installed: Installed, repository: Path) -> None:
    green = installed("run", "own", cwd=repository / FOLDER)
    assert green.returncode == 0, green.stdout + green.stderr
    assert len(green.stdout.splitlines()) <= LINES_OF_A_PASSING_RUN
    matrix = installed("matrix", cwd=repository)
    assert matrix.returncode == 0, matrix.stdout + matrix.stderr
    git(repository, "checkout", "-q", "bad")
    red = installed("run", "own", cwd=repository)
    git(repository, "checkout", "-q", "good")
    assert red.returncode == 1, red.stderr
    assert f"({FOLDER}/adapter.c:" in red.stdout
    bisected = installed("bisect", "own", "--good", "good", "--bad", "worse", "-w", "smoke", cwd=repository)
    assert bisected.returncode == 0, bisected.stderr
    assert "bad commit" in bisected.stdout.splitlines()[0]


def test_the_wheel_brings_the_pytest_plugin(environment: Path, repository: Path, tmp_path: Path) -> None:
    """By its entry point. pytest itself is not of the wheel."""
    (tmp_path / "test_own.py").write_text(
        "import pytest\nimport faultline\n\n"
        f"@pytest.mark.crash_consistent({str(repository / FOLDER)!r}, 'smoke')\n"
        f"def test_own():\n    assert faultline.__file__.startswith({str(environment)!r})\n"
    )
    words = (
        "-m",
        "pytest",
        "-p",
        "no:cacheprovider",
        "--strict-markers",
        "--faultline-cache",
        repository / ".faultline",
    )
    own = {"PATH": os.environ["PATH"], "HOME": str(environment.parent)}
    command = [str(environment / "bin" / "python"), *map(str, words)]
    run = subprocess.run(command, cwd=tmp_path, env=own, capture_output=True, text=True, timeout=600, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "summary: cells=1 findings=0 " in run.stdout
    assert "complete=1/1" in run.stdout


def test_mutate_trace_and_wear_work_in_the_repository(installed: Installed, repository: Path) -> None:
    """--protect says what grew, by exit code 1."""
    words = ("mutate", "own", "-w", "smoke", "--only", "fence at")
    mutated = installed(*words, cwd=repository / FOLDER)
    assert mutated.returncode == 0, mutated.stderr
    assert f"({FOLDER}/adapter.c:" in mutated.stdout
    assert mutated.stdout.splitlines()[-1].startswith("summary: places=1 killed=1 ")
    costs = repository / ".faultline" / "costs.json"
    for more in (("--update",), ()):
        traced = installed("trace", "own", "-w", "smoke", "--protect", costs, *more, cwd=repository)
        assert traced.returncode == 0, traced.stderr
    source = repository / FOLDER / "adapter.c"
    good = source.read_text()
    source.write_text(good.replace(ORDERED, ORDERED + ORDERED))
    try:
        grown = installed("trace", "own", "-w", "smoke", "--protect", costs, cwd=repository)
    finally:
        source.write_text(good)
    assert grown.returncode == 1, grown.stderr
    worn = installed("wear", "own", "-w", "smoke", cwd=repository)
    assert worn.returncode == 0, worn.stderr
    assert "change_slot (adapter.c:" in worn.stdout


@pytest.fixture(scope="module")
def made_by_make(root: Path, place: Path) -> Path:
    """A fresh clone of a repository with a Makefile and flush macros of its own, a bug behind a variable of make, and one commit
    that sets it for good."""
    origin = place / "origin"
    folder = origin / "faultline"
    folder.mkdir(parents=True)
    shutil.copytree(HERE / "ways", origin / "src")
    files = {"Makefile": MAKEFILE, "src/config.h": CONFIG, "src/more.c": MORE, "src/selftest.c": SELFTEST}
    for name, text in {**files, "faultline/entry.c": ENTRY, "short.workload": SHORT, **OF_PROJECT}.items():
        (origin / name).write_text(text)
    text = DESCRIPTION.format(name="ways", sources="", adapter='"entry.c"', flags="", libraries="", threads=1)
    built = f"root = '..'\ncommand = '{MAKE} $BUILD_OPTIONS'\noutputs = ['../libways.a']"
    description = text.replace("sources = []\n", f"{built}\n") + '\n[environment]\npass = ["BUILD_OPTIONS"]\n' + MUTANT
    (folder / "allocator.toml").write_text(description)
    git(origin, "init", "-q", "-b", "main", ".")
    for tag, makefile in (("good", MAKEFILE), ("bad", MAKEFILE.replace("BUG =\n", "BUG = 1\n"))):
        (origin / "Makefile").write_text(makefile)
        (origin / "CHANGES").write_text(tag)
        git(origin, "add", "-A")
        git(origin, "commit", "-q", "-m", f"{tag} commit")
        git(origin, "tag", tag)
    clone = place / "a fresh clone"
    git(place, "clone", "-q", "-b", "good", str(origin), clone.name)
    cache_that_shares_builds(root, clone / ".faultline")
    return clone


def test_what_make_builds_is_tested_from_a_fresh_clone(installed: Installed, made_by_make: Path) -> None:
    """Red by a variable of make, by a commit and by an edit of a header that the Makefile includes; else green."""

    def code_of(*words: str, **options: Any) -> tuple[int, str]:
        run = installed(*words, cwd=made_by_make, **options)
        return run.returncode, run.stdout + run.stderr

    cell = ("run", "ways", "--no-shrink", "--no-explain")
    code, said = code_of(*cell, env={"BUILD_OPTIONS": "BUG=1"})
    assert (code, "(src/stores.h:" in said) == (1, True), said
    code, said = code_of("matrix")
    assert (code, "mutants=1/1" in said) == (0, True), said
    code, said = code_of("bisect", "ways", "--good", "good", "--bad", "bad", "-w", "short.workload")
    assert (code, "bad commit" in said) == (0, True), said
    code, said = code_of("mutate", "ways", "-w", "short.workload", "--only", "flush at")
    assert (code, " killed=0 " in said.splitlines()[-1]) == (0, False), said
    code, said = code_of("wear", "ways", "-w", "short.workload")
    assert code == 0, said
    header = made_by_make / "src" / "config.h"
    header.write_text(CONFIG.replace("BETWEEN clwb", "BETWEEN nothing"))
    assert code_of(*cell)[0] == 1


def test_others_than_root_use_an_installation_that_they_cannot_write(
    installed: Installed, repository: Path, place: Path
) -> None:
    """What is compiled goes to the user's own cache."""
    before: tuple[str, ...] = ()
    if os.geteuid() == 0:
        before = ("setpriv", "--reuid", str(NOBODY), "--regid", str(NOBODY), "--clear-groups", "--inh-caps=-all")
        words = ("sh", "-c", '"$0" -c ""', sys.executable)  # setpriv itself still may look everywhere
        seen = subprocess.run([*before, *words], check=False, capture_output=True, cwd="/")
        if seen.returncode != 0:
            pytest.skip("another user cannot start the Python of these tests")
    else:
        pytest.skip("the installation is this user's own: only root can become another one")
    home = place / "home"
    home.mkdir()
    shutil.chown(home, NOBODY, NOBODY)
    run = installed("run", repository / FOLDER, "-w", "create", before=before, cwd="/", env={"HOME": str(home)})
    assert run.returncode == 0, run.stdout + run.stderr
    assert (home / ".cache" / "faultline" / "builds").is_dir()


def test_a_machine_without_a_compiler_is_one_line(installed: Installed, repository: Path, place: Path) -> None:
    tools = place / "tools"
    tools.mkdir()
    for name in ("git", "setpriv", "sh"):
        (tools / name).symlink_to(str(shutil.which(name)))
    cell = ("run", "own", "--cache", place / "cache")
    run = installed(*cell, cwd=repository, env={"PATH": str(tools)})
    assert_one_clear_line(run, 3, "was not found on PATH", "Debian's packages are gcc")
    assert "make setup" not in run.stderr
