# SPDX-License-Identifier: Apache-2.0
"""`faultline mutate`: a flush that matters is killed, one that does nothing is proved redundant, and what is neither is said."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import samples
from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from exploration.files_project import files_project
from faultline.base.cache import Cache
from faultline.base.errors import BadInputError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import NewOutcome, Site
from faultline.pipeline.prepared import PreparedCell
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.mutation import print_mutation
from faultline.study import mutate
from faultline.study.mutate import Mutation, Place, PlaceResult, PlaceTrial

MUTATE = ("mutate", "nvm_malloc", "-w", "smoke")
IDLE = cast(Any, SimpleNamespace(begins=lambda *_: None, ends=lambda _: None))


def fates(faultline: Faultline, only: str) -> dict[str, Any]:
    run = faultline(*MUTATE, "--only", only, "--json")
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


def test_the_flush_and_the_fence_before_a_ring_entry_counts_are_killed(faultline: Faultline) -> None:
    found = fates(faultline, "nvm_ring_begin")
    assert sorted(found["fates"].values()) == ["killed", "killed"], found
    assert {place["kind"] for place in found["places"]} == {"flush", "fence"}
    for place in found["places"]:
        assert place["trials"][-1]["rules"][0].startswith("FL0")


@pytest.mark.nightly
def test_what_recovery_runs_is_explored_with_a_second_crash(faultline: Faultline) -> None:
    """No process of smoke dies, so what recovery finds in the ring is persisted already: after power failed twice, too."""
    found = fates(faultline, "flush at replay_ring")
    (place,) = found["places"]
    assert [trial["nested"] for trial in place["trials"]] == [0, 1]
    assert place["trials"][0]["recoveries"] < place["trials"][1]["recoveries"]
    assert set(found["fates"].values()) == {"redundant"}


@pytest.mark.slow
def test_what_nothing_can_tell_is_redundant(faultline: Faultline) -> None:
    """The slots of smoke are used once, so an entry that stays in the ring is replayed and finds its object idle."""
    found = fates(faultline, "flush at nvm_ring_end")
    assert set(found["fates"].values()) == {"redundant"}
    for place in found["places"]:
        assert [trial["nested"] for trial in place["trials"]] == [0, 1], "no open of smoke runs it, and recovery may"
        assert place["trials"][0]["in_recovery"] == 0
    assert all(trial["is_complete"] for place in found["places"] for trial in place["trials"])


def test_the_table_ends_with_the_kill_rate(faultline: Faultline) -> None:
    run = faultline(*MUTATE, "--only", "fence at nvm_ring_begin")
    assert run.returncode == 0, run.stderr
    assert run.stdout.splitlines()[-1] == "summary: places=1 killed=1 redundant=0 blind=0 unknown=0 kill_rate=100.0%"
    assert "fence at nvm_ring_begin (allocators/nvm_malloc/src/ring.c:" in run.stdout


def test_what_shows_and_no_rule_minds_is_a_blind_spot(capsys: pytest.CaptureFixture[str]) -> None:
    mutation = Mutation("a", ["smoke"], [result(trial("pass", is_complete=True, new_outcomes=1))])
    print_mutation(mutation)
    assert "smoke: recovery shows 1 new outcome, and no rule minds" in capsys.readouterr().out
    assert mutation.line() == "summary: places=1 killed=0 redundant=0 blind=1 unknown=0 kill_rate=0.0%"


@pytest.mark.parametrize(("workloads", "said"), [(("smoke", "smoke"), "smoke"), (("smoke", "churn"), "all 2")])
def test_the_table_counts_workloads_and_not_trials(
    workloads: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One workload is tried twice: with one crash, and with a second one."""
    trials = [
        PlaceTrial(workload, 1, "pass", is_complete=True, nested=nested) for nested, workload in enumerate(workloads)
    ]
    print_mutation(Mutation("a", ["smoke"], [result(*trials)]))
    (row,) = [line for line in capsys.readouterr().out.splitlines() if line.startswith("redundant")]
    assert said in row.split("  ")


def test_a_blind_spot_shows_a_crash_state_and_how_its_heap_differs(capsys: pytest.CaptureFixture[str]) -> None:
    sites = [Site("f", "f.c", 1), Site("g", "f.c", 2)]
    operation = {"index": 3, "kind": "allocate", "slot": 2, "bytes": 64, "pending": True}
    differs = "check after recovery: ok, not corrupt"
    lost = NewOutcome(7, operation, sites, Site("check", "f.c", 9), line_count=1, differences=[differs])
    persisted = NewOutcome(8, None, sites[:1], is_later=True)
    blind = [trial("pass", is_complete=True, new_outcomes=1, first_new=first) for first in (lost, persisted)]
    print_mutation(Mutation("a", ["smoke"], [result(*blind)]))
    assert capsys.readouterr().out.splitlines()[-7:] == [
        "  when: power fails at position 7, operation 3: allocate, slot 2, 64 bytes (pending)",
        "  stores: lost: the store at f (f.c:1); persisted: the store at g (f.c:2); recovery read it at check (f.c:9)",
        f"  shows: {differs}",
        "flush at f (f.c:1): smoke: recovery shows 1 new outcome, and no rule minds",
        "  when: power fails at position 8, outside any operation (after an earlier crash)",
        "  stores: every store is persisted; the last one is at f (f.c:1)",
        "  shows: no more than where everything persisted, which no crash showed here before",
    ]


def test_a_blind_spot_is_found_where_recovery_shows_what_no_rule_minds(root: Path, tmp_path: Path) -> None:
    """An allocator whose recovery tells all that it sees in its files; what creates the heap is not promised before it returns."""
    place = files_project(root, tmp_path)
    (tmp_path / "one.workload").write_text("workload 1\nslots 4\ncase\nallocate 0 40\n")
    spec = CellSpec("files", str(tmp_path / "one.workload"), 0, 1, "complete", "px86", "clwb")
    cache = cache_that_shares_builds(root, tmp_path / "cache")
    mutation = mutate.mutate(Workshop(place, cache, Engine()), [spec], "fence at create", None, 1, IDLE)
    assert mutation.line() == "summary: places=1 killed=0 redundant=0 blind=1 unknown=0 kill_rate=0.0%"
    (first,) = [trial.first_new for trial in mutation.places[0].trials]
    assert first is not None
    assert (first.line_count, first.is_later) == (1, False)
    assert first.operation is not None
    assert (first.operation["kind"], first.operation["pending"]) == ("create", True)
    assert {site.function for site in first.sites} == {"create"}
    assert first.differences[0].startswith("messages after recovery: the first that differs: before: slots:")


@pytest.mark.slow
def test_what_is_not_clean_yet_is_tried_with_its_baseline(faultline: Faultline, tmp_path: Path) -> None:
    """A build with a known bug stands for it. Without the baseline it is refused."""
    cell = ("nvm_malloc", "-w", "smoke", "--mutant", "MISSING_FENCE_RING")
    baseline = tmp_path / "baseline.json"
    explored = ("--nested", "1", "--stop-at-rule", "none", "--no-explain", "--no-shrink")
    run = faultline("run", *cell, *explored, "--write-baseline", baseline, "--out", tmp_path / "out")
    assert run.returncode == 1, run.stderr
    only = ("--only", "at store_intent")
    refused = faultline("mutate", *cell, *only)
    assert_one_clear_line(refused, 2, "does not pass completely as it is", "mutate takes it as --baseline FILE")
    found = faultline("mutate", *cell, *only, "--baseline", baseline)
    assert found.returncode == 0, found.stderr
    assert re.search(
        r"^known findings, which kill nothing: FL003-[0-9a-f]{8}, FL014-[0-9a-f]{8}$", found.stdout, re.MULTILINE
    )
    assert found.stdout.splitlines()[-1] == "summary: places=2 killed=2 redundant=0 blind=0 unknown=0 kill_rate=100.0%"
    silent = faultline("mutate", *cell, "--only", "flush at replay_ring", "--baseline", baseline, "--json")
    assert set(json.loads(silent.stdout)["fates"].values()) == {"redundant"}


@pytest.mark.parametrize(
    ("known", "new", "verdict"),
    [
        ([], 1, "pass"),  # a blind spot
        (["FL004-00000000"], 0, "pass"),
        (["FL004-00000000"], 1, "unknown"),
        (["FL009-00000000"], 0, "unknown"),  # outcomes have no contents
    ],
)
def test_what_a_known_finding_may_hide_is_unknown(known: list[str], new: int, verdict: str) -> None:
    tried = trial("pass", is_complete=True, new_outcomes=new, known=known)
    mutate._tell_hidden(tried)
    assert tried.verdict == verdict
    if verdict == "unknown":
        assert known[0] in tried.why
        assert result(tried).fate == "unknown"


def test_options_of_a_workload_need_one(faultline: Faultline) -> None:
    run = faultline("mutate", "nvm_malloc", "--mutant", "MISSING_FLUSH_LINK")
    assert_one_clear_line(run, 2, "--mutant is about a workload, and none is named")


@pytest.mark.parametrize(
    ("more", "words"),
    [
        (["--only", "nosuch"], "no flush or fence is called 'nosuch'"),
        (
            ["--mutant", "MISSING_FLUSH_LINK"],
            "does not pass completely as it is, so that what a flush is for cannot be told: FL",
        ),
        (["--time", "0.001"], "does not pass completely as it is, so that what a flush is for cannot be told: stopped"),
    ],
)
def test_bad_input_is_one_clear_line(faultline: Faultline, more: list[str], words: str) -> None:
    run = faultline(*MUTATE, *more)
    assert_one_clear_line(run, 2, words)


def result(*trials: PlaceTrial) -> PlaceResult:
    return PlaceResult("flush at f (f.c:1)", "flush", Site("f", "f.c", 1), list(trials))


def trial(verdict: Any, **more: Any) -> PlaceTrial:
    return PlaceTrial("smoke", 1, verdict, **more)


def test_the_fate_of_a_place_is_that_of_all_its_workloads() -> None:
    good = trial("pass", is_complete=True)
    second = trial("pass", is_complete=True, nested=1)
    assert result(good, good).fate == "unknown", "recovery may run what no clean open does"
    assert result(good, good, second).fate == "redundant"
    assert result(good, trial("fail", rules=["FL004"])).fate == "killed"
    assert result(good, trial("pass", is_complete=True, new_outcomes=1)).fate == "blind spot"
    # A second crash of one workload is enough, and where a limit ended another nothing is known of that.
    cut = trial("pass", why="60 s limit", nested=1, is_only_incomplete=True)
    assert result(good, cut, second).fate == "redundant"
    assert result(good, cut).fate == "unknown"
    assert result(good, trial("pass", new_outcomes=1, nested=1), second).fate == "unknown"
    assert result(good, cut, trial("pass", is_complete=True, new_outcomes=1, nested=1)).fate == "blind spot"
    # Not a limit: something was seen that may break a rule, and another workload does not change that.
    doubted = trial("unknown", why="a stage overloaded", nested=1)
    assert result(good, doubted, second).fate == "unknown"
    assert result(good, cut, doubted, second).why_unknown() == "smoke, second crash: a stage overloaded"
    # What was not seen whole is not proved, whatever else is new.
    assert result(good, trial("pass", is_complete=False)).fate == "unknown"
    recovering = trial("pass", is_complete=True, in_recovery=1)
    assert result(recovering).fate == "unknown"
    assert result(recovering, trial("pass", is_complete=True, in_recovery=1, nested=1)).fate == "redundant"
    assert result(recovering, trial("pass", is_complete=False, why="60 s limit", nested=1)).why_unknown() == (
        "smoke, second crash: 60 s limit"
    )
    assert result(trial("unknown", is_complete=True), trial("pass", is_complete=True, new_outcomes=1)).fate == "unknown"


def test_the_kill_rate_leaves_out_what_is_redundant() -> None:
    killed, redundant = result(trial("fail")), result(trial("pass", is_complete=True, nested=1))
    blind = result(trial("pass", is_complete=True, new_outcomes=2))
    assert Mutation("a", [], [killed, redundant, redundant, killed, blind]).kill_rate().share == pytest.approx(2 / 3)
    assert Mutation("a", [], [redundant]).kill_rate().share == 1


class Explored(mutate._Runner):
    """Explores by the test's word: `told` are the places whose loss shows, by workload; what is as it is with a second crash says
    what it is given."""

    def __init__(
        self,
        tmp: Path,
        nested_whole: PlaceTrial,
        told: dict[str, set[str]] | None = None,
        told_twice: dict[str, set[int]] | None = None,
    ) -> None:
        super().__init__(cast(Workshop, None), tmp, IDLE)
        self.told_twice = told_twice or {}
        """By workload, lines of places whose loss a second crash shows."""
        self.nested_whole, self.told = nested_whole, told or {}
        self.cut: dict[str, set[int]] = {}
        """By workload, lines of places without which a second crash does not end within the limit."""
        self.doubted: set[str] = set()
        """Workloads in which more than the limit keeps those from passing."""
        self.most_operations = 100
        """With more, places 1 and 2 do not come to an end."""
        self.fewest_operations = 1
        """With fewer, place 2 is not come to."""
        self.recoveries: dict[str, int] = {}
        """By workload, with a second crash as it is."""
        self.later: dict[str, list[Place]] = {}
        """By workload, what its recoveries come to."""
        self.explored: list[tuple[str, list[int], int]] = []
        """Workload, lines of the places, crashes after the first."""

    def _explore(
        self, traced: mutate._TracedWorkload, places: Sequence[Place], nested: int, workers: int = 1
    ) -> PlaceTrial:
        workload = traced.spec.workload
        self.explored.append((workload, [place.site.line for place in places], nested))
        if not places:
            recoveries, later = self.recoveries.get(workload, 0), self.later.get(workload, [])
            return msgspec.structs.replace(self.nested_whole, recoveries=recoveries, later_places=later)
        if nested and {place.site.line for place in places} & self.cut.get(workload, set()):
            return trial("unknown", why="60 s limit", nested=nested, is_only_incomplete=workload not in self.doubted)
        if traced.spec.ops > self.most_operations and {place.site.line for place in places} & {1, 2}:
            cut = trial("pass", why="60 s limit", nested=nested, is_only_incomplete=workload not in self.doubted)
            return msgspec.structs.replace(cut, workload=traced.spec.workload_text)
        is_told = bool({place.name for place in places} & self.told.get(workload, set()))
        is_told |= bool(nested and {place.site.line for place in places} & self.told_twice.get(workload, set()))
        return trial("fail", rules=["FL004"]) if is_told else trial("pass", is_complete=True, nested=nested)

    def _trace(self, spec: CellSpec) -> mutate._TracedWorkload:
        places = PLACES[:1] if spec.ops < self.fewest_operations else PLACES[:3]
        return dataclasses.replace(traced_with(places, self.folder, spec.workload), cell=samples.cell(spec))


def traced_with(places: list[Place], tmp: Path, workload: str = "smoke") -> mutate._TracedWorkload:
    by_name = {place.name: place for place in places}
    return mutate._TracedWorkload(
        samples.cell(workload=workload),
        by_name,
        tmp / workload,
        {0: trial("pass", is_complete=True)},
        Lock(),
    )


def tried(runner: Explored, *traced: mutate._TracedWorkload) -> dict[int, PlaceResult]:
    """By line."""
    names = list(dict.fromkeys(name for one in traced for name in one.places))
    return {place.site.line: place for place in runner.without(names, traced, 1)}


PLACES = [Place("flush", Site("f", "f.c", line), (line,), count=line) for line in range(1, 6)]
WHOLE = trial("pass", is_complete=True, nested=1)


def test_what_survives_is_explored_with_a_second_crash_all_at_once(tmp_path: Path) -> None:
    runner = Explored(tmp_path, WHOLE)
    found = tried(runner, traced_with(PLACES[:2], tmp_path))
    assert [place.fate for place in found.values()] == ["redundant", "redundant"]
    assert runner.explored == [("smoke", [1], 0), ("smoke", [2], 0), ("smoke", [], 1), ("smoke", [1, 2], 1)]
    assert [[one.together for one in place.trials] for place in found.values()] == [[1, 2], [1, 2]]
    assert [place.trials[-1].count for place in found.values()] == [1, 2]


def test_survivors_of_a_workload_are_taken_out_of_the_next_one_together(tmp_path: Path) -> None:
    """Alone where nothing was tried yet; together then, and in halves where that shows."""
    runner = Explored(tmp_path, WHOLE, {"smoke": {PLACES[0].name}, "churn": {PLACES[3].name}})
    found = tried(runner, traced_with(PLACES[:4], tmp_path), traced_with(PLACES, tmp_path, "churn"))
    assert runner.explored == [
        *[("smoke", [line], 0) for line in (1, 2, 3, 4)],
        ("churn", [5], 0),
        *[("churn", lines, 0) for lines in ([2, 3, 4], [2], [3, 4], [3], [4])],
        ("smoke", [], 1),
        ("smoke", [2, 3], 1),
        ("churn", [], 1),
        ("churn", [5], 1),
    ]
    assert [place.fate for place in found.values()] == ["killed", "redundant", "redundant", "killed", "redundant"]
    assert found[4].trials[-1].together == 1, "what is killed is killed alone"


def test_the_second_crash_is_of_a_workload_that_the_matrix_runs_with_one(tmp_path: Path) -> None:
    """Of those that have the place: fewer recoveries after one crash say little of what a second one costs."""
    cheap, asked = (traced_with(places, tmp_path, name) for places, name in ((PLACES, "chunks"), (PLACES[:2], "smoke")))
    asked = dataclasses.replace(asked, cell=samples.cell(workload="smoke", nested=1))
    runner = Explored(tmp_path, trial("pass", is_complete=True, nested=1))
    tried(runner, cheap, asked)
    lines = [place.site.line for place in PLACES]
    second = [one for one in runner.explored if one[2] and one[1]]
    assert sorted(second) == [("chunks", lines[2:], 1), ("smoke", lines[:2], 1)]


def test_second_crashes_in_recoveries_alone_are_not_those_of_mutate() -> None:
    short, whole = (mutate.as_tried(samples.spec(nested=1, follow_up=one), 9.0) for one in (False, True))
    assert (short.nested, short.follow_up, short.time_limit_s) == (0, True, 9.0)
    assert (whole.nested, whole.follow_up) == (1, True)


def test_all_that_the_matrix_runs_with_second_crashes_are_tried_cheap_ones_first(tmp_path: Path) -> None:
    nested = {"nested": 1}
    dear, cheap = (
        dataclasses.replace(traced_with(PLACES[:2], tmp_path, name), cell=samples.cell(workload=name, **nested))
        for name in ("punch", "smoke")
    )
    other = traced_with(PLACES[:2], tmp_path, "chunks")

    def second_crashes(runner: Explored) -> list[tuple[str, list[int]]]:
        return [(workload, lines) for workload, lines, nested in runner.explored if nested and lines]

    runner = Explored(tmp_path, WHOLE)
    runner.recoveries = {"punch": 3330, "smoke": 2634}
    found = tried(runner, dear, cheap, other)
    assert [place.fate for place in found.values()] == ["redundant", "redundant"]
    assert second_crashes(runner) == [("smoke", [1, 2]), ("punch", [1, 2])]
    assert runner._proved == {place.name for place in PLACES[:2]}
    # What one of them kills is not tried in the next one.
    runner = Explored(tmp_path, WHOLE, told_twice={"smoke": {2}})
    runner.recoveries = {"punch": 3330, "smoke": 2634}
    found = tried(runner, dear, cheap, other)
    assert [place.fate for place in found.values()] == ["redundant", "killed"]
    assert second_crashes(runner) == [*[("smoke", lines) for lines in ([1, 2], [1], [2])], ("punch", [1])]
    # Where a limit ends one, another one proves it; if there is one.
    runner = Explored(tmp_path, WHOLE)
    runner.recoveries, runner.cut = {"punch": 3330, "smoke": 2634}, {"smoke": {2}}
    assert [place.fate for place in tried(runner, dear, cheap, other).values()] == ["redundant", "redundant"]
    runner = Explored(tmp_path, WHOLE)
    runner.recoveries, runner.cut, runner.doubted = {"punch": 3330, "smoke": 2634}, {"smoke": {2}}, {"smoke"}
    assert [place.fate for place in tried(runner, dear, cheap, other).values()] == ["redundant", "unknown"]
    runner = Explored(tmp_path, WHOLE)
    runner.cut = {"smoke": {2}, "punch": {2}}
    assert [place.fate for place in tried(runner, dear, cheap, other).values()] == ["redundant", "unknown"]


def test_what_only_a_recovery_from_a_crash_comes_to_is_taken_out_too(tmp_path: Path) -> None:
    """By a second crash, of the workloads that the matrix runs so."""
    asked, other = (traced_with(PLACES[:2], tmp_path, name) for name in ("smoke", "churn"))
    asked = dataclasses.replace(asked, cell=samples.cell(workload="smoke", nested=1))
    runner = Explored(tmp_path, WHOLE, told_twice={"smoke": {4}})
    runner.later = {"smoke": [PLACES[0], *PLACES[2:4]], "churn": PLACES[4:]}
    short = runner.in_recoveries_alone(other)
    assert (short.spec.nested, short.spec.follow_up, other.spec.nested) == (1, False, 0)
    assert short.outcomes != other.outcomes
    runner.find_later_places([asked, short], 1)
    names = [place.name for place in PLACES]
    found = {place.site.line: place for place in runner.without(names, [asked, other], 1, [short])}
    fates = [found[line].fate for line in range(1, 6)]
    assert fates == ["redundant", "redundant", "redundant", "killed", "redundant"]
    tried_with = [one for one in runner.explored if set(one[1]) & {3, 4, 5}]
    assert tried_with == [*[("smoke", lines, 1) for lines in ([1, 2, 3, 4], [3, 4], [3], [4])], ("churn", [5], 1)]


def test_what_is_proved_already_is_tried_within_bounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else one workload that explodes without a place would take hours, and change nothing."""
    limits: list[int | None] = []
    never_kept = SimpleNamespace(find=lambda: None, keep=lambda _: None)
    monkeypatch.setattr(mutate, "_KeptTrial", lambda *_: never_kept)
    monkeypatch.setattr(mutate, "explore", lambda cell, *_, **__: limits.append(cell.spec.recovery_limit))
    runner = mutate._Runner(cast(Workshop, None), tmp_path, IDLE)
    traced = traced_with(PLACES, tmp_path)
    traced.whole.update({nested: trial("pass", is_complete=True, recoveries=9) for nested in (0, 1)})
    runner._proved.add(PLACES[0].name)
    for places, nested in (((), 1), (PLACES[:1], 0), (PLACES[:1], 1), (PLACES[1:2], 1), (PLACES[1:3], 1)):
        runner._explore(traced, places, nested)
    assert limits == [None, None, 30, None, 30]


def test_a_workload_that_a_limit_ends_is_tried_with_fewer_operations(tmp_path: Path) -> None:
    """As many as come to an end, as long as they come to the place; and it is told."""
    churn = dataclasses.replace(traced_with(PLACES[:3], tmp_path, "churn"), cell=samples.cell(workload="churn", ops=80))
    smoke = dataclasses.replace(traced_with(PLACES[:3], tmp_path), cell=samples.cell(workload="smoke", ops=0))
    runner = Explored(tmp_path, WHOLE)
    runner.most_operations, runner.fewest_operations = 20, 40
    found = tried(runner, churn, smoke)
    assert {line: place.fate for line, place in found.items()} == {1: "redundant", 2: "unknown", 3: "redundant"}
    assert [found[line].trials[0].instead_of for line in (1, 2, 3)] == ["churn 80 (60 s limit)", "", ""]
    assert found[2].why_unknown() == "churn 80: 60 s limit"
    assert ("smoke", [1], 1) in runner.explored, "a second crash of what one has too many states for does not end"
    assert Mutation("a", ["churn", "smoke"], list(found.values())).kill_rate().shortened == 1
    # Where only that workload comes to the place, a second crash does not end, and nothing is proved.
    runner = Explored(tmp_path, WHOLE)
    runner.most_operations = 20
    assert tried(runner, churn)[1].fate == "unknown"
    # What shows in the shorter one counts.
    runner = Explored(tmp_path, WHOLE, {"churn": {PLACES[0].name}})
    runner.most_operations = 20
    assert tried(runner, churn)[1].fate == "killed"
    # Not where more than a limit keeps it from passing.
    runner = Explored(tmp_path, WHOLE)
    runner.most_operations, runner.doubted = 20, {"churn"}
    found = tried(runner, churn)
    assert {line: place.fate for line, place in found.items()} == {1: "unknown", 2: "unknown", 3: "redundant"}
    # Nor where there are no operations to leave out.
    file = dataclasses.replace(churn, cell=samples.cell(workload="smoke", ops=80))
    runner = Explored(tmp_path, WHOLE)
    runner.most_operations = 20
    assert tried(runner, file)[1].trials[0].instead_of == ""


def test_the_table_tells_of_fewer_operations(capsys: pytest.CaptureFixture[str]) -> None:
    shorter = trial("pass", is_complete=True, instead_of="churn 80 (60 s limit)")
    print_mutation(Mutation("a", ["churn"], [result(shorter, trial("pass", is_complete=True, nested=1))]))
    assert "flush at f (f.c:1): smoke instead of churn 80 (60 s limit)" in capsys.readouterr().out


def test_what_is_not_complete_as_it_is_is_explored_once(tmp_path: Path) -> None:
    runner = Explored(tmp_path, trial("pass", nested=1, why="60 s limit", is_only_incomplete=True))
    found = tried(runner, traced_with(PLACES[:2], tmp_path))
    assert [one.fate for one in found.values()] == ["unknown", "unknown"]
    assert [one.trials[-1].count for one in found.values()] == [1, 2]
    assert found[2].why_unknown() == "smoke, second crash: as it is, 60 s limit"
    assert [one for one in runner.explored if one[2]] == [("smoke", [], 1)]


def test_an_allocator_that_a_second_crash_breaks_as_it_is_is_said(tmp_path: Path) -> None:
    """Also where another workload is silent with one."""
    broken = trial("fail", rules=["FL014"], message="slot 1 is lost", nested=1)
    cells = [samples.cell(workload=name, nested=1) for name in ("punch", "smoke")]
    traced = [dataclasses.replace(traced_with(PLACES[:2], tmp_path, cell.spec.workload), cell=cell) for cell in cells]
    with pytest.raises(BadInputError, match=r"does not pass completely as it is.*FL014: slot 1 is lost"):
        tried(Explored(tmp_path, broken), *traced)


@pytest.mark.parametrize(
    ("whole", "said", "next_step"),
    [
        (
            trial("fail", rules=["FL004"], message="slot 1 is lost"),
            "FL004: slot 1 is lost",
            "with --write-baseline FILE",
        ),
        (trial("incomplete", why="60 s limit", is_only_incomplete=True), "60 s limit", "give a larger --time"),
        (
            trial("unknown", why="some states are unknown: it died"),
            "some states are unknown: it died",
            "look at it first",
        ),
    ],
)
def test_what_is_to_be_done_with_what_does_not_pass_is_said(whole: PlaceTrial, said: str, next_step: str) -> None:
    """A baseline helps with findings alone."""
    error = mutate._as_it_is_broken(samples.spec(), whole)
    assert error.message.endswith(f"cannot be told: {said}")
    assert next_step in str(error.hint)
    assert ("baseline" in str(error.hint)) == bool(whole.rules)


def test_why_it_is_unknown_has_a_reason() -> None:
    said = samples.certificate(
        why="some states are unknown", unknown_reasons=["the heap without a crash: it died", "2"]
    )
    assert said.why_in_words() == "some states are unknown: the heap without a crash: it died"
    assert samples.certificate(why="60 s limit", unknown_reasons=[]).why_in_words() == "60 s limit"


def test_a_trial_that_came_to_its_end_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the outcomes that others are compared with; a shorter limit than it took does not take it."""
    monkeypatch.setattr(PreparedCell, "key", lambda self: f"cell {self.spec.nested}")
    target = SimpleNamespace(helpers=[])
    workshop = cast(Workshop, SimpleNamespace(cache=Cache(tmp_path / "cache")))

    def kept(folder: str, lines: list[int], nested: int = 0, limit_s: float | None = None) -> mutate._KeptTrial:
        (tmp_path / folder).mkdir(exist_ok=True)
        cell = samples.cell(None, target, workshop, workload="smoke", time_limit_s=limit_s)
        traced = dataclasses.replace(traced_with([], tmp_path / folder), cell=cell)
        return mutate._KeptTrial(traced, [PLACES[line - 1] for line in lines], nested)

    whole, killed = trial("pass", is_complete=True, time_s=2.0), trial("fail", rules=["FL004"])
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "smoke.0").write_bytes(b"what recoveries showed")
    kept("one", []).keep(whole)
    kept("one", [1]).keep(killed)
    kept("one", [2]).keep(trial("pass", why="60 s limit"))
    assert (kept("two", []).find(), kept("two", [1]).find()) == (whole, killed)
    assert (tmp_path / "two" / "smoke.0").read_bytes() == b"what recoveries showed"
    assert kept("two", [2]).find() is None, "it was not explored to its end"
    assert kept("two", [1], nested=1).find() is None
    assert (kept("two", [], limit_s=1.0).find(), kept("two", [], limit_s=3.0).find()) == (None, whole)
