# SPDX-License-Identifier: Apache-2.0
"""A trial of `mutate` passes by what is as in the workload with all its flushes. Compared with one that looks at everything.

A seeded share of the places is compared each time, all of them in the nightly run."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

from caches import cache_that_shares_builds
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Place
from faultline.pipeline.explore import explore
from faultline.pipeline.workshop import Workshop
from faultline.study import mutate
from outcome_files import outcomes

IDLE = cast(Any, SimpleNamespace(begins=lambda *_: None, ends=lambda _: None))
SMALL = "workload 1\nslots 3\ncase\nallocate 0 40\nallocate 1 70\nfree 0\nallocate 2 40\n"
SHARE = 8
"""Of the places of a workload."""


def explored_whole(one: mutate._TracedWorkload, place: Place, path: Path) -> tuple[str, set[bytes]]:
    """With a second crash and without the place, and nothing to compare with: verdict and outcomes."""
    later = [{"edit": "without", "sites": [{"kind": place.kind, "site": msgspec.to_builtins(place.site)}]}]
    edits = {"edits": [{"edit": "without", "sites": list(place.sites)}], "later_edits": later}
    more = {**edits, "outcomes": {"write": str(path)}, "stop_at_rule": "any"}
    verdict = explore(one.cell.with_spec(nested=1), lambda _: None, more=more)
    return verdict, outcomes(path)


def trials(
    workshop: Workshop, tmp_path: Path, spec: CellSpec, of_recoveries: bool, share: int | None
) -> Iterator[tuple[mutate.PlaceTrial, str, int]]:
    """Of each place, or each that only recoveries come to: the trial of a second crash, and the verdict and the number of new
    outcomes where nothing is passed by."""
    runner = mutate._Runner(workshop, tmp_path, IDLE)
    one = runner.explore_whole(spec)
    runner.find_later_places([one], 1)
    known = outcomes(one.outcomes_after(1))
    places = [*one.places.values(), *one.later_places.values()][len(one.places) if of_recoveries else 0 :]
    for place in places if share is None else random.Random(1).sample(places, min(share, len(places))):
        verdict, shown = explored_whole(one, place, tmp_path / "whole")
        yield runner._without(one, [place], 1, 1), verdict, len(shown - known)


def assert_nothing_is_lost(
    workshop: Workshop, tmp_path: Path, cell: tuple[str, str], of_recoveries: bool, share: int | None = None
) -> None:
    allocator, workload = cell
    if workload == "small":
        workload = str(tmp_path / "small.workload")
        Path(workload).write_text(SMALL)
    spec = CellSpec(allocator, workload, 0, 1, "complete", "px86", "clwb", nested=1)
    verdicts = set()
    for trial, verdict, new in trials(workshop, tmp_path, spec, of_recoveries, share):
        assert trial.verdict == verdict
        assert verdict == "fail" or trial.new_outcomes == new
        verdicts.add(verdict)
    assert verdicts == {"pass", "fail"}


@pytest.fixture
def workshop(root: Path, tmp_path: Path, scripts: Path) -> Workshop:
    return Workshop(root, cache_that_shares_builds(root, tmp_path / "cache"), Engine(scripts / "faultline-engine"))


@pytest.mark.slow
def test_what_is_passed_by_shows_nothing(workshop: Workshop, tmp_path: Path) -> None:
    assert_nothing_is_lost(workshop, tmp_path, ("nvmalloc", "small"), of_recoveries=False, share=SHARE)


@pytest.mark.slow
def test_what_recoveries_lose_is_seen_where_they_pass_by_the_rest(workshop: Workshop, tmp_path: Path) -> None:
    assert_nothing_is_lost(workshop, tmp_path, ("makalu", "small"), of_recoveries=True, share=SHARE)


@pytest.mark.nightly
def test_what_any_recovery_loses_is_seen(workshop: Workshop, tmp_path: Path) -> None:
    assert_nothing_is_lost(workshop, tmp_path, ("makalu", "small"), of_recoveries=True)


@pytest.mark.nightly
@pytest.mark.parametrize("allocator", ["nvm_malloc", "makalu", "nvmalloc", "pallocator"])
@pytest.mark.parametrize("workload", ["small", "smoke"])
def test_what_is_passed_by_shows_nothing_in_any_allocator(
    workshop: Workshop, tmp_path: Path, allocator: str, workload: str
) -> None:
    assert_nothing_is_lost(workshop, tmp_path, (allocator, workload), of_recoveries=False)
