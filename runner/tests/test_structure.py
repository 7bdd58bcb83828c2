# SPDX-License-Identifier: Apache-2.0
"""Which files of the runner call which: by the symbols that object files define and need. A function that the C library has does
not count: the runner's own code calls it as the C library's, and the interposed calls (runner/calls, undo/arena.c) answer it."""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline.pipeline.build import runner_recipe

ROOT = Path(__file__).resolve().parents[2]
RUNNER = ROOT / "runner"
Calls = dict[str, set[str]]


def symbols(path: Path, kinds: str, *options: str) -> set[str]:
    said = subprocess.run(["nm", *options, str(path)], capture_output=True, text=True, check=True).stdout
    found = (line.split() for line in said.splitlines())
    return {words[-1].partition("@")[0] for words in found if words[-2] in kinds}


def c_library() -> Path:
    said = subprocess.run(["gcc", "-print-file-name=libc.so.6"], capture_output=True, text=True, check=True).stdout
    return Path(said.strip())


@pytest.fixture(scope="module")
def calls(built: Path) -> Calls:
    """By file, relative to the folder of the runner: the files whose functions and variables it uses."""
    recipe = runner_recipe(ROOT)
    objects = {}
    for number, source in enumerate(recipe.sources):
        objects[source.removeprefix("runner/")] = compiled = built / f"structure-{number}.o"
        arguments = [argument for argument in recipe.arguments if not argument.startswith("-O")]
        subprocess.run(["gcc", *arguments, "-O0", "-c", source, "-o", str(compiled)], cwd=ROOT, check=True)
    library = symbols(c_library(), "TWiuVBD", "-D", "--defined-only")
    defined_in = {
        symbol: file for file, compiled in objects.items() for symbol in symbols(compiled, "TDBRCW") - library
    }
    return {
        file: {defined_in[symbol] for symbol in symbols(compiled, "U") if symbol in defined_in} - {file}
        for file, compiled in objects.items()
    }


def circles(calls: Calls) -> Iterator[set[str]]:
    """Files that reach each other by calls."""
    reached: dict[str, set[str]] = defaultdict(set)
    for file in calls:
        rest = [file]
        while rest:
            new = calls[rest.pop()] - reached[file]
            reached[file] |= new
            rest += new
    for file in calls:
        circle = {other for other in reached[file] if file in reached[other]}
        if circle and file == min(circle):
            yield circle


def folders() -> list[str]:
    """In the order of README.md: each calls itself and those before it."""
    return re.findall(r"^\| `(\w+)` \|", (RUNNER / "README.md").read_text(), re.MULTILINE)


def folder_of(file: str) -> str:
    return file.rpartition("/")[0]


def test_circles_are_found() -> None:
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": {"b", "d"}, "d": set()})) == [{"b", "c"}]
    assert list(circles({"a": {"b"}, "b": {"c"}, "c": set()})) == []


@pytest.mark.slow
def test_no_files_call_each_other_in_a_circle(calls: Calls) -> None:
    assert "loads/loads.c" in calls["hooks/hooks.c"], "the symbols tell which file calls which"
    assert list(circles(calls)) == []


def test_folders_call_in_one_direction(calls: Calls) -> None:
    order = folders()
    assert {folder_of(file) for file in calls} == {*order, ""}
    upward = [
        (file, other)
        for file, others in calls.items()
        for other in others
        if "/" in file and order.index(folder_of(other)) > order.index(folder_of(file))
    ]
    assert upward == []
