# SPDX-License-Identifier: Apache-2.0
"""Allocators in repositories of their users: named by faultline.toml, or by their paths."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.base.config import read_allocator
from faultline.base.errors import BadInputError
from faultline.base.project import Project, cache_folder, find_project
from faultline.pipeline import build
from foreign.own_repository import FOLDER, git, make_repository


@pytest.fixture(scope="module")
def repository(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = make_repository(tmp_path_factory.mktemp("somebody else") / "a heap")
    cache_that_shares_builds(root, place / ".faultline")
    return place


def project_with(folder: Path, text: str, root: Path) -> Project:
    (folder / "faultline.toml").write_text(text)
    return find_project(folder, root)


def test_a_project_is_found_upwards(repository: Path, root: Path) -> None:
    project = find_project(repository / FOLDER, root)
    assert project.names() == ["own"]
    assert project.allocator("own").root == str(repository)
    assert project.matrix == repository / "cells.toml"
    assert cache_folder(project) == repository / ".faultline"
    assert "nvm_malloc" in project.built_in()
    assert project.allocator("nvm_malloc").root == str(root), "what is built in has its name everywhere"


@pytest.mark.slow
def test_a_cell_is_green_and_names_revision_and_files_of_the_repository(repository: Path, faultline: Faultline) -> None:
    run = faultline("run", "own", "--json", cwd=repository / FOLDER)  # the workload is an option of faultline.toml
    assert run.returncode == 0, run.stderr
    said = json.loads(run.stdout)
    revision = git(repository, "rev-parse", "--short=12", "HEAD").strip()
    assert said["environment"]["facts"]["revision"] == revision
    adapter = repository / FOLDER / "adapter.c"
    good = adapter.read_text()
    adapter.write_text(good.replace("    persist(&head->a, 8);\n", ""))
    try:
        red = faultline("run", "own", cwd=repository)
    finally:
        adapter.write_text(good)
    assert red.returncode == 1, red.stderr
    assert f"({FOLDER}/adapter.c:" in red.stdout


@pytest.mark.slow
def test_an_allocator_is_named_by_its_path_and_later_by_its_name(
    root: Path, repository: Path, faultline: Faultline, tmp_path: Path
) -> None:
    """Without a faultline.toml upwards."""
    cache = cache_that_shares_builds(root, tmp_path / "cache")
    cell = ("-w", "create", "--cache", cache.folder)
    for word in (repository / FOLDER, repository / FOLDER / "allocator.toml", "own"):
        run = faultline("run", word, *cell, cwd=tmp_path)
        assert run.returncode == 0, run.stderr
    other = faultline("run", "nosuch", *cell, cwd=tmp_path)
    assert_one_clear_line(other, 2, "unknown allocator 'nosuch'")


@pytest.mark.slow
def test_a_matrix_of_the_project_is_run(repository: Path, faultline: Faultline) -> None:
    run = faultline("matrix", cwd=repository / FOLDER)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "mutants=1/1" in run.stdout
    assert (repository / "reports" / "report.html").is_file()


@pytest.mark.slow
def test_bisect_mutate_and_trace_work_in_the_repository(repository: Path, faultline: Faultline) -> None:
    bisected = faultline("bisect", "own", "--good", "good", "--bad", "worse", "-w", "smoke", cwd=repository)
    assert bisected.returncode == 0, bisected.stderr
    assert "bad commit" in bisected.stdout.splitlines()[0]
    mutated = faultline("mutate", "own", "-w", "smoke", "--only", "fence at", "--json", cwd=repository)
    assert "killed" in json.loads(mutated.stdout)["fates"].values(), mutated.stderr
    costs = repository / ".faultline" / "costs.json"
    for words in (("--update",), ()):
        traced = faultline("trace", "own", "-w", "smoke", "--protect", costs, *words, cwd=repository)
        assert traced.returncode == 0, traced.stderr


def test_a_build_has_one_key_in_every_clone_of_a_repository(root: Path, tmp_path: Path) -> None:
    keys = set()
    for name in ("here", "there"):
        path = make_repository(tmp_path / name) / FOLDER / "allocator.toml"
        allocator = read_allocator(path)
        recipe = build.adapter_recipe(Path(allocator.root), allocator, None, "clwb")
        assert recipe.sources == (f"{FOLDER}/adapter.c", f"{FOLDER}/nothing.c")
        assert str(root) in " ".join(recipe.arguments), "the installation's headers"
        keys.add(recipe.stem())
    assert len(keys) == 1


def test_sources_are_named_without_dots(tmp_path: Path) -> None:
    (tmp_path / "pm").mkdir()
    (tmp_path / "src").mkdir()
    link = tmp_path / "linked"
    link.symlink_to(tmp_path / "pm")
    for folder in (tmp_path / "pm", link):
        assert build.relative(tmp_path, [folder / "../src/heap.c"]) == ["src/heap.c"]
    assert build.relative(tmp_path / "pm", [tmp_path / "pm" / "../src/heap.c"]) == ["../src/heap.c"]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("version = 2\nnew = 1", "version 2, and this faultline reads version 1"),
        ("version = 1\nnew = 1", "new: unknown key"),
        ("allocators = []", "version: this key is required and missing"),
        ('version = 1\nallocators = ["nothing"]', "'nothing': is no allocator: is not there"),
        ('version = 1\nallocators = ["empty"]', "'empty': is no allocator: no allocator.toml is in it"),
        ('version = 1\nallocators = ["one/heap", "two/heap"]', "two allocators of one name, 'own'"),
    ],
)
def test_a_bad_project_is_one_line(tmp_path: Path, root: Path, repository: Path, text: str, words: str) -> None:
    (tmp_path / "empty").mkdir()
    for name in ("one", "two"):
        (tmp_path / name / "heap").mkdir(parents=True)
        description = (repository / FOLDER / "allocator.toml").read_text()
        (tmp_path / name / "heap" / "allocator.toml").write_text(description)
    with pytest.raises(BadInputError) as caught:
        project_with(tmp_path, text, root)
    assert words in caught.value.message
    assert str(tmp_path / "faultline.toml") in caught.value.message


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ('[options.fly]\nout = "x"', "options.fly: no command has this name"),
        ("[options.run]\nwings = 2", "options.run.wings: faultline run has no --wings"),
        ("[options.run]\nops = 0", "options.run.ops: "),
    ],
)
def test_options_that_no_command_takes_are_said(tmp_path: Path, faultline: Faultline, options: str, words: str) -> None:
    (tmp_path / "faultline.toml").write_text(f"version = 1\n{options}\n")
    assert_one_clear_line(faultline("list", cwd=tmp_path), 2, "faultline.toml", words)


@pytest.mark.parametrize("glob", ["", "/etc/heap.c"])
def test_sources_are_named_from_the_folder_on(tmp_path: Path, glob: str) -> None:
    with pytest.raises(BadInputError, match=r"build\.sources: expected names below"):
        build.matches(tmp_path, "build.sources", [glob])


def test_a_name_that_is_built_in_is_taken(repository: Path, root: Path, tmp_path: Path) -> None:
    description = (repository / FOLDER / "allocator.toml").read_text().replace('name = "own"', 'name = "makalu"')
    (tmp_path / "allocator.toml").write_text(description)
    with pytest.raises(BadInputError, match="two allocators of one name, 'makalu'"):
        Project(root).with_path(str(tmp_path))


def test_what_is_no_allocator_is_one_line(tmp_path: Path, faultline: Faultline) -> None:
    for word, why in ((".", "no allocator.toml is in it"), ("./nothing", "is not there")):
        run = faultline("run", word, "-w", "smoke", cwd=tmp_path)
        assert_one_clear_line(run, 2, f"{word}: is no allocator: {why}")


def test_the_users_cache_is_used_where_the_project_cannot_be_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    installed = Project(tmp_path / "installed")
    assert cache_folder(installed) == tmp_path / "cache" / "faultline"
    monkeypatch.setattr("os.access", lambda *_: False)
    assert cache_folder(Project(tmp_path, file=tmp_path / "faultline.toml")) == tmp_path / "cache" / "faultline"
    named = Project(tmp_path, file=tmp_path / "faultline.toml", cache=tmp_path / "not" / "there")
    assert cache_folder(named) == tmp_path / "cache" / "faultline"
    monkeypatch.undo()
    assert cache_folder(named) == tmp_path / "not" / "there"
