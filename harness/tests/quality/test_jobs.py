# SPDX-License-Identifier: Apache-2.0
"""`faultline run --jobs N`: what an exploration says does not depend on how many workers there were, or on who of them did what."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

from faultline.base.cache import Cache, scratch_folder
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import write_config
from faultline.pipeline.prepared import prepare
from faultline.pipeline.workshop import Workshop

OPERATIONS = 100
"""Two parts of 4,096 crash positions (crashgen/engine/src/explore/parts.rs)."""
LIMIT_S = 600


class Explored:
    """The first part of the probe unless said: it is quick. limits, more: of the configuration."""

    def __init__(
        self,
        root: Path,
        scripts: Path,
        mutant: str | None = None,
        limits: dict[str, Any] | None = None,
        workload: str = "churn",
        allocator_name: str = "nvm_malloc",
        **more: Any,
    ) -> None:
        cache, self.engine = Cache(root / ".faultline"), Engine(scripts / "faultline-engine")
        spec = CellSpec(allocator_name, workload, OPERATIONS, 1, "complete", "px86", "clwb", mutant=mutant)
        self.cell = prepare(Workshop(root, cache, self.engine), spec)
        self.cache, self.more, self.limits = cache, {"probe": "first", **more}, limits or {}

    def events(self, jobs: int) -> list[dict[str, Any]]:
        """What the engine says, but for progress, certificates of parts, times, memory and how many runs were compared."""
        with scratch_folder(self.cache, None) as folder:
            path = write_config(folder, self.cell, jobs)
            given = json.loads(path.read_text())
            limits = {**given["limits"], **self.limits}
            path.write_text(json.dumps({**given, **self.more, "limits": limits}))
            command = [str(self.engine.path), "explore", str(path)]
            run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert run.returncode in (0, 1, 3), run.stderr
        events = [json.loads(line) for line in run.stdout.splitlines()]
        assert events[0]["event"] == "trace_rules"
        last = [event for event in events if event["event"] == "certificate"][-1]
        del last["time_s"], last["peak_memory_bytes"], last["engines"]["compared"]
        return [
            *(event for event in events if event["event"] not in ("progress", "certificate")),
            last,
        ]


@pytest.mark.parametrize("jobs", [2, 3])
def test_a_clean_run_is_that_of_one_worker(root: Path, scripts: Path, jobs: int) -> None:
    explored = Explored(root, scripts)
    alone = explored.events(1)
    certificate = alone[-1]
    assert certificate["complete"], certificate["why"]
    assert certificate["crash_positions"] > 2 * 4096
    assert explored.events(jobs) == alone


@pytest.mark.slow
def test_findings_are_those_of_one_worker(root: Path, scripts: Path) -> None:
    """In the same order, seen as often, with the same witnesses."""
    explored = Explored(root, scripts, "MISSING_FENCE_RING")
    alone = explored.events(1)
    assert sum(event["event"] == "finding" for event in alone) >= 1
    assert explored.events(2) == alone


def test_what_a_bound_leaves_out_is_the_same(root: Path, scripts: Path) -> None:
    explored = Explored(root, scripts, limits={"leaves": 2, "samples": 1})
    alone = explored.events(1)
    assert not alone[-1]["complete"]
    assert explored.events(2) == alone


def test_behind_the_expected_rule_nothing_counts(root: Path, scripts: Path) -> None:
    explored = Explored(root, scripts, "MISSING_FENCE_RING", stop_at_rule="FL003")
    alone = explored.events(1)
    assert not alone[-1]["complete"]
    assert explored.events(2) == alone


@pytest.mark.slow
def test_second_crashes_are_those_of_one_worker(root: Path, scripts: Path) -> None:
    """Of findings, too: what recoveries taught is learned again in each part, by whoever explores it."""
    explored = Explored(root, scripts, "REPLAY_IDLE_FIRST", workload="smoke", nested=1)
    alone = explored.events(1)
    assert {event["rule"] for event in alone if event["event"] == "finding"} == {"FL014"}
    assert alone[-1]["crash_positions"] > 2 * 1024, "two parts at least"
    assert explored.events(2) == alone


@pytest.mark.slow
@pytest.mark.parametrize("allocator", ["nvm_malloc", "makalu", "nvmalloc", "pallocator"])
def test_what_people_run_is_that_of_one_worker(root: Path, scripts: Path, allocator: str) -> None:
    """The whole probe and its twins, second crashes: what later stages came to is known from other runs, of other parts, too."""
    explored = Explored(root, scripts, workload="smoke", allocator_name=allocator, nested=1, probe="full")
    alone = explored.events(1)
    assert alone[-1]["crash_positions"] > 2 * 1024, "two parts at least"
    assert alone[-1]["complete"], alone[-1]["why"]
    assert explored.events(2) == alone


@pytest.mark.slow
def test_second_crashes_are_complete_with_room_for_a_few_of_them(root: Path, scripts: Path) -> None:
    """What later recoveries loaded is remembered for all crash positions, but for a tenth of it there is no room here: then it is
    forgotten, and some of them run again."""

    def certificate(**limits: Any) -> dict[str, Any]:
        *_, last = Explored(root, scripts, limits=limits, workload="smoke", nested=1).events(1)
        assert last["complete"], last["why"]
        return last

    whole, small = certificate(), certificate(leaves=100)
    assert whole["recoveries"] > 1000
    assert small["recoveries"] > whole["recoveries"]
    for name in ("crash_positions", "later_positions", "states_log10"):
        assert small[name] == whole[name]
