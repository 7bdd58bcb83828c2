# SPDX-License-Identifier: Apache-2.0
"""Heaps that one build of an allocator made are recovered by another one (`[heap] upgrade`)."""

from __future__ import annotations

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline
from foreign.cases import WORKLOAD, Case
from foreign.foreign_project import add_build, project_of_case

Run = Callable[..., dict[str, Any]]


@pytest.fixture
def place(root: Path, tmp_path: Path) -> Path:
    place = project_of_case(Case("older", "", ""), root, tmp_path / "place")
    (place / "ways.workload").write_text(WORKLOAD)
    return place


@pytest.fixture
def run(faultline: Faultline, root: Path, tmp_path: Path, place: Path) -> Run:
    """The cell of results, and its findings' tokens replayed."""
    cache = cache_that_shares_builds(root, tmp_path / "cache").folder

    def of(newer: str | None, *words: str) -> dict[str, Any]:
        if newer is not None:
            add_build(place, "newer", newer)
        name_upgrade(place, "../newer")
        command = ("run", "allocators/ways", "-w", "ways.workload", *words, "--cache", cache, "--json")
        ended = faultline(*command, "--no-shrink", cwd=place)
        (cell,) = json.loads(ended.stdout)["cells"]
        assert cell["recovered_by"] == "../newer"
        for finding in cell["findings"]:
            if finding["rule"] == "FL017":  # needs no crash state
                continue
            again = faultline("replay", finding["token"], "--cache", cache, cwd=place)
            assert (again.returncode, finding["id"] in again.stdout) == (1, True), again.stderr
        return dict(cell)

    return of


def name_upgrade(place: Path, folder: str) -> None:
    path = place / "allocators" / "ways" / "allocator.toml"
    path.write_text(path.read_text().replace("[contract]", f'upgrade = "{folder}"\n\n[contract]'))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["in-process", "traced"])
def test_a_right_upgrade_passes_with_crashes_in_it(run: Run, engine: str) -> None:
    cell = run("NEWER", "--nested", "1", "--replay-engine", engine)
    assert (cell["verdict"], cell["findings"]) == ("pass", [])
    assert cell["certificate"]["complete"]
    assert cell["certificate"]["later_positions"] > 0


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["in-process", "traced"])
def test_an_upgrade_that_says_too_early_that_it_is_done_is_found(run: Run, engine: str) -> None:
    words = ("--nested", "1", "--replay-engine", engine)
    findings = run("NEWER NEWER_EARLY", *words)["findings"]
    assert {finding["rule"] for finding in findings} == {"FL014"}
    assert "it is in no version" in findings[0]["message"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("newer", "rule", "message"),
    [
        (
            "NEWER NEWER_REFUSES",
            "FL017",
            "the open of the closed heap .life 3. answered corrupt: made by an old version",
        ),
        ("NEWER LOST=64", "FL012", "bytes are lost, 0 permitted"),
    ],
)
def test_what_the_other_build_makes_of_a_heap_is_judged(run: Run, newer: str, rule: str, message: str) -> None:
    findings = run(newer)["findings"]
    assert rule in {finding["rule"] for finding in findings}
    assert any(re.search(message, finding["message"]) for finding in findings)


@pytest.mark.slow
def test_each_build_has_its_own_library_of_one_name(run: Run, place: Path) -> None:
    """In twins, too: the newer one refuses each heap of the older."""
    for name, version in (("ways", 0), ("newer", 1)):
        if name == "newer":
            add_build(place, name, "LIBRARY")
        folder = place / "allocators" / name
        (folder / "version.c").write_text(f"int library_version(void) {{ return {version}; }}\n")
        command = ["gcc", "-shared", "-fPIC", "-Wl,-soname,libversion.so", "-o", "libversion.so", "version.c"]
        subprocess.run(command, cwd=folder, check=True)
        path = folder / "allocator.toml"
        text = path.read_text().replace("sources = [", 'outputs = ["libversion.so"]\nsources = [')
        path.write_text(text.replace("flags = []", 'flags = ["-DLIBRARY"]'))
    findings = run(None)["findings"]
    assert [one for one in findings if one["rule"] == "FL017" and "made by an old library" in one["message"]]


@pytest.mark.slow
def test_the_same_sources_with_other_flags_recover_the_heap(run: Run, place: Path) -> None:
    path = add_build(place, "newer", "")
    path.write_text(path.read_text().replace("flags = []", 'flags = ["-O3"]'))
    cell = run(None)
    assert (cell["verdict"], cell["certificate"]["complete"]) == ("pass", True)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("newer", "said"),
    [
        (None, r"allocator.toml: heap.upgrade: expected the folder of another allocator.toml, got '../newer'"),
        ("name = 1", r"newer/allocator.toml: name: expected `str`, got `int`"),
        ("no C", r"newer: gcc failed: .*error"),
    ],
)
def test_a_wrong_upgrade_is_one_line(
    faultline: Faultline, place: Path, tmp_path: Path, newer: str | None, said: str
) -> None:
    if newer is not None:
        path = add_build(place, "newer", "")
        if newer == "no C":
            path.write_text(path.read_text().replace("flags = []", 'flags = ["-include", "nothing.h"]'))
        else:
            path.write_text(newer)
    name_upgrade(place, "../newer")
    ended = faultline("run", "allocators/ways", "-w", "ways.workload", "--cache", tmp_path / "cache", cwd=place)
    assert ended.returncode == 2
    (line,) = (line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert re.search(said, line), ended.stderr


def test_an_upgrade_is_built_with_what_it_upgrades(
    faultline: Faultline, place: Path, root: Path, tmp_path: Path
) -> None:
    add_build(place, "newer", "NEWER")
    name_upgrade(place, "../newer")
    cache = cache_that_shares_builds(root, tmp_path / "cache").folder
    ended = faultline("build", "allocators/ways", "--cache", cache, "--json", cwd=place)
    assert ended.returncode == 0, ended.stderr
    built = {row["what"]: row["build"] for row in json.loads(ended.stdout)}
    ways = {f"{what}{hooks}" for what in ("ways", "upgrade of ways") for hooks in ("", " with hooks")}
    assert ways <= set(built)
    assert len({built[what] for what in ways}) == 4
