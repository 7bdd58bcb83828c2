# SPDX-License-Identifier: Apache-2.0
"""Allocators with flushes, fences, stores and loads of their own (own/adapter.c) are explored by what their instructions are, as if
these had come from persist.h. Where hooks do not see what they do, the tracer does. Without one, a strategy that asks for no loads
is used, and never green."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from exploration.files_project import project_of
from faultline.base.cache import Cache, scratch_folder
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import engine_config
from faultline.pipeline.prepared import build_cell, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.workload import file_format

pytestmark = pytest.mark.slow

LIMIT_S = 300
WORKLOAD = "workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 64\nreopen\nfree 0\nallocate 0 100\n"

RIGHT = (None, "INTRINSICS", "BYTES", "STREAM", "ALIAS", "EXCHANGE", "WIDE_EXCHANGE_ELSEWHERE")
WRONG = ("STREAM_UNFENCED", "ALIAS_WRONG_LINE", "PAIR_TORN", "WIDE_TORN", "LOADS_BY_COPY", "LOADS_BY_ASSEMBLY")
UNSEEN = {
    "LOADS_BY_GATHER": "load_both (allocators/own/adapter.c:",
    "LOADS_BY_SYSTEM_CALL": "a system call by an instruction, number 17",
    "LOADS_BY_PRINTF": "a call of snprintf with a pointer to PM",
}


@pytest.fixture(scope="module")
def place(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return project_of("own", root, tmp_path_factory.mktemp("project"))


@pytest.fixture
def folder(root: Path) -> Iterator[Path]:
    with scratch_folder(Cache(root / ".faultline")) as folder:
        yield folder


class Seen:
    def __init__(self, events: list[dict[str, Any]]) -> None:
        self.rules = {event["rule"] for event in events if event["event"] == "finding"}
        self.certificate = [event for event in events if event["event"] == "certificate"][-1]
        [self.verdict] = [event["verdict"] for event in events if event["event"] == "done"]


def explored(root: Path, place: Path, scripts: Path, folder: Path, mutant: str | None, **changes: Any) -> Seen:
    workshop = Workshop(place, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    spec = CellSpec("own", "own", 0, 1, strategy="complete", model="px86", flush="clwb", mutant=mutant)
    cell = trace_cell(workshop, spec, build_cell(workshop, spec), file_format.parse(WORKLOAD, "own"))
    written = engine_config(cell, folder)
    path = folder / "config.json"
    path.write_bytes(msgspec.json.encode({**written, **changes}))
    run = subprocess.run(
        [workshop.engine.path, "explore", path], capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert run.returncode in (0, 1, 3), run.stderr
    return Seen([msgspec.json.decode(line) for line in run.stdout.splitlines()])


@pytest.mark.parametrize("mutant", RIGHT)
def test_what_is_right_passes_with_a_second_crash(
    root: Path, place: Path, scripts: Path, folder: Path, mutant: str | None
) -> None:
    seen = explored(root, place, scripts, folder, mutant, nested=1, follow_up=False)
    assert (seen.verdict, seen.rules, seen.certificate["complete"]) == ("pass", set(), True), seen.certificate
    assert seen.certificate["later_positions"] > 0


@pytest.mark.parametrize("mutant", WRONG)
def test_what_is_wrong_is_found_and_explored_whole(
    root: Path, place: Path, scripts: Path, folder: Path, mutant: str
) -> None:
    seen = explored(root, place, scripts, folder, mutant)
    assert (seen.verdict, "FL003" in seen.rules, seen.certificate["complete"]) == ("fail", True, True)


def test_a_flush_that_recovery_forgets_is_found_by_a_second_crash(
    root: Path, place: Path, scripts: Path, folder: Path
) -> None:
    seen = explored(root, place, scripts, folder, "RECOVERY_FORGETS", nested=1, follow_up=False)
    assert (seen.verdict, seen.rules) == ("fail", {"FL014"})


@pytest.mark.parametrize("mutant", UNSEEN)
def test_a_place_that_hooks_do_not_see_is_explored_under_the_tracer(
    root: Path, place: Path, scripts: Path, folder: Path, mutant: str
) -> None:
    seen = explored(root, place, scripts, folder, mutant)
    assert (seen.verdict, "FL003" in seen.rules, seen.certificate["complete"]) == ("fail", True, True)
    assert (seen.certificate["engine"], seen.certificate["fallback"]) == ("traced", None)
    assert UNSEEN[mutant] in seen.certificate["engine_why"]


@pytest.mark.parametrize("mutant", UNSEEN)
def test_without_a_tracer_such_a_place_is_never_green(
    root: Path, place: Path, scripts: Path, folder: Path, mutant: str
) -> None:
    """And what is wrong there is found."""
    seen = explored(root, place, scripts, folder, mutant, tracer=[])
    assert (seen.verdict, "FL003" in seen.rules, seen.certificate["complete"]) == ("fail", True, False)
    assert UNSEEN[mutant] in seen.certificate["fallback"]
