# SPDX-License-Identifier: Apache-2.0
"""The engine's exploration, from a trace to its findings, against brute force: on small traces of a toy allocator with bugs it
judges exactly the states there are, where they are, and finds exactly what is broken. No tracer and no compiled target."""

from __future__ import annotations

import itertools
import json
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from exploration import toy_runner
from exploration.toy import (
    ALLOCATE,
    BEGIN,
    CASE,
    CREATE,
    FREE,
    HEAP_BYTES,
    LINE_BYTES,
    RETURN,
    SLOTS,
    Marker,
    Toy,
    allocation,
    flush,
    is_broken_later,
    journalled,
    later,
    persisted,
    place,
    random_journal,
    random_toy,
    store,
)
from exploration.toy_runner import JOURNAL, MAGIC, pattern_word
from outcome_files import outcomes
from reference.trace_writer import Event, Fence, FileBegin, FileEnd, Flush, Operation, Store, StoreKind

SEEDS = 24
NESTED_SEEDS = 12
PASSING_SEEDS = 3
LIMIT_S = 60
LAST_POSITION = 2**32 - 1
"""Of any trace."""
CONTRACT = {
    "publish": "atomic",
    "fill": "before",
    "leaks": "none",
    "durable": "on-return",
    "accounting": "none",
    "slack_bytes": 0,
    "relocatable": False,
    "detects": [],
    "after_failed_create": "error",
    "clean_close": False,
    "threads": 1,
}


@dataclass
class Explored:
    verdict: str
    certificate: dict[str, Any]
    findings: list[dict[str, Any]]
    seen: Counter[str]
    """How often each rule was broken."""
    new_outcomes: int = 0
    """Compared with another exploration."""

    def first(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        for finding in self.findings:
            positions.setdefault(finding["rule"], finding["position"])
        return positions


@dataclass
class Shrunk:
    finding: dict[str, Any]
    crashes: dict[str, Any]
    """As the token has them."""
    sizes: dict[str, Any]


LIMITS = {"exhaustive_states": 4096, "samples": 2, "time_s": None, "cpu_limit_ms": 1000, "wall_limit_ms": 9000}
OF_THE_RUN = {"time_s": 0, "peak_memory_bytes": 0, "engines": None}
"""What of a certificate differs from run to run, or by the number of workers."""
COMPLETE: dict[str, Any] = {"strategy": "complete", "hooked_adapter": True}
"""The toy says what it loads; its adapter is never loaded."""


class Engine:
    def __init__(self, scripts: Path, folder: Path) -> None:
        self.path = scripts / "faultline-engine"
        self.folder = folder
        self.runner = folder / "runner"
        self.runner.write_text(f"#!{sys.executable} -SE\n{Path(toy_runner.__file__).read_text()}")
        self.runner.chmod(0o755)

    def config(self, toy: Toy, **changes: Any) -> Path:
        (self.folder / "trace").write_bytes(toy.trace())
        (self.folder / "workload").touch()
        here = {key: str(self.folder / key) for key in ("trace", "runner")}
        heap = {"heap_bytes": HEAP_BYTES, "limit_bytes": HEAP_BYTES, "slots": SLOTS, "slot_layout": "array"}
        identity = {
            "allocator": "toy",
            "mutant": None,
            "build": "",
            "workload": "",
            "ops": None,
            "seed": 1,
            "flush": "clwb",
        }
        config = {
            "version": 2,
            **here,
            "adapter": here["runner"],
            "workload_file": str(self.folder / "workload"),
            "scratch": str(self.folder),
            "heap": {**heap, "address_hint": 0, "alignment": 64, "smallest_bytes": 8, "relocates": False},
            "contract": CONTRACT,
            "model": "px86",
            "strategy": "exhaustive",
            "seed": 1,
            "limits": LIMITS,
            "stop_at_rule": None,
            "probe": "full",
            "identity": identity,
            **changes,
        }
        if config.get("hooked_adapter"):
            config["hooked_adapter"] = here["runner"]
        path = self.folder / "config.json"
        path.write_text(json.dumps(config))
        return path

    def events(self, *arguments: str | Path) -> list[dict[str, Any]]:
        command = [str(self.path), *map(str, arguments)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
        assert run.returncode in (0, 1, 3), run.stderr
        assert run.stderr == ""
        return [json.loads(line) for line in run.stdout.splitlines()]

    def explore(self, toy: Toy, **changes: Any) -> Explored:
        events = self.events("explore", self.config(toy, **changes))
        of_kind: dict[str, list[dict[str, Any]]] = {}
        for event in events:
            of_kind.setdefault(event["event"], []).append(event)
        [*_, certificate], [done], findings = of_kind["certificate"], of_kind["done"], of_kind.get("finding", [])
        seen: Counter[str] = Counter()
        for finding in findings:
            seen[finding["rule"]] += done["seen"][finding["id"]]
        new_outcomes = sum(event["new"] for event in of_kind.get("outcomes", []))
        return Explored(done["verdict"], certificate, findings, seen, new_outcomes)

    def replay(self, toy: Toy, token: str) -> list[tuple[str, str]]:
        return [(finding["rule"], finding["message"]) for finding in self.replayed(toy, token)]

    def replayed(self, toy: Toy, token: str) -> list[dict[str, Any]]:
        """Findings."""
        events = self.events("replay", self.config(toy), "--token", token)
        return [event for event in events if event["event"] == "finding"]

    def shrink(self, toy: Toy, token: str, **changes: Any) -> Shrunk:
        config = self.config(toy, **{**COMPLETE, "nested": 1, **changes})
        events = {event["event"]: event for event in self.events("shrink", config, "--token", token)}
        [crashes] = self.events("token", events["finding"]["token"])
        return Shrunk(events["finding"], crashes, events["shrunk"])


@pytest.fixture
def engine(scripts: Path, tmp_path: Path) -> Engine:
    return Engine(scripts, tmp_path)


Explore = Callable[[Toy], Explored]


@pytest.mark.slow
def test_random_traces_are_explored_completely(engine: Engine) -> None:
    rules: set[str] = set()
    clean = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        found, expected = engine.explore(toy), toy.findings
        certificate = found.certificate
        assert certificate["crash_positions"] == expected.positions, seed
        assert certificate["judgements"] == len(expected.judged), seed
        assert certificate["distinct_images"] == certificate["recoveries"] == len(expected.images), seed
        assert found.seen == expected.seen, seed
        assert found.first() == expected.first, seed
        assert (certificate["complete"], certificate["why"]) == (True, ""), seed
        assert found.verdict == ("fail" if expected.seen else "pass"), seed
        rules |= expected.seen.keys()
        clean += not expected.seen
    assert rules == {"FL003", "FL004", "FL005", "FL009"}
    assert 0 < clean < SEEDS


@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["pairwise", "pairwise-3"])
def test_pairwise_finds_the_bugs_of_few_lines(engine: Engine, strategy: str) -> None:
    """Each of the toy's bugs needs two lines at most; which of them are broken together is not covered."""
    fewer = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        found, expected = engine.explore(toy, strategy=strategy), toy.findings
        certificate = found.certificate
        assert found.first() == expected.first, seed
        assert found.verdict == ("fail" if expected.seen else "pass"), seed
        assert certificate["positions_by_strategy"] == {strategy: expected.positions}, seed
        lines = 3 if strategy == "pairwise-3" else 2
        words = f"each combination of the choices of any {lines} lines at all {expected.positions} crash positions"
        assert (certificate["complete"], words in certificate["why"]) == (False, True), seed
        fewer += certificate["recoveries"] < len(expected.images)
    assert fewer > 0


@pytest.mark.slow
def test_complete_finds_what_all_states_show(engine: Engine) -> None:
    """The same rules are broken at the same first crash positions."""
    for seed in range(SEEDS):
        toy = random_toy(seed)
        found, expected = engine.explore(toy, **COMPLETE), toy.findings
        certificate = found.certificate
        assert certificate["crash_positions"] == expected.positions, seed
        assert certificate["positions_by_strategy"] == {"complete": expected.positions}, seed
        assert found.first() == expected.first, seed
        assert (certificate["complete"], certificate["why"]) == (True, ""), seed
        assert found.verdict == ("fail" if expected.seen else "pass"), seed


@pytest.mark.slow
def test_complete_finds_what_all_states_show_under_every_model(engine: Engine) -> None:
    """What the engine assumes under a model is said; what it explores is what exhaustive explores."""
    models = json.loads(subprocess.check_output([engine.path, "lists"]))["models"]
    failing = Counter[str]()
    for seed in range(SEEDS // 4):
        toy = random_toy(seed)
        for name in (model["name"] for model in models):
            found, expected = engine.explore(toy, **COMPLETE, model=name), engine.explore(toy, model=name)
            assert found.certificate["crash_positions"] == expected.certificate["crash_positions"], (name, seed)
            assert found.certificate["states"] == expected.certificate["states"], (name, seed)
            assert (found.first(), found.verdict) == (expected.first(), expected.verdict), (name, seed)
            failing[name] += found.verdict == "fail"
    assert len(models) > 4
    assert failing["px86"] > failing["strict"] == failing["process-crash"], "what persists in order breaks less"
    assert failing["px86"] >= failing["px86-returned"]


@pytest.mark.slow
def test_findings_of_complete_replay(engine: Engine) -> None:
    replayed = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        for finding in engine.explore(toy, **COMPLETE).findings[:2]:
            assert (finding["rule"], finding["message"]) in engine.replay(toy, finding["token"]), seed
            replayed += 1
    assert replayed > SEEDS / 2


def test_a_limit_of_recoveries_is_a_bound_that_is_said(engine: Engine) -> None:
    limits = {**LIMITS, "recoveries": 2}
    found = engine.explore(created(), **COMPLETE, limits=limits)
    assert (found.certificate["complete"], found.certificate["recoveries"]) == (False, 2)
    assert "stopped at crash position" in found.certificate["why"]
    assert "limit of 2 recoveries" in found.certificate["why"]


def test_a_limit_of_leaves_is_a_bound_that_is_said(engine: Engine) -> None:
    found = engine.explore(random_toy(1), **COMPLETE, limits={**LIMITS, "leaves": 1})
    assert found.certificate["complete"] is False
    assert "crash positions are not explored completely, from " in found.certificate["why"]


def test_a_limit_of_memory_is_a_bound_that_is_said(engine: Engine) -> None:
    found = engine.explore(random_toy(1), **COMPLETE, limits={**LIMITS, "memory_mib": 0})
    certificate = found.certificate
    assert (certificate["complete"], found.verdict) == (False, "incomplete")
    assert certificate["judgements"] > 0, "floor, prefix and samples are run all the same"
    assert "more to remember in a window than the limit of memory" in certificate["why"]
    [incomplete] = certificate["incomplete"]
    assert incomplete["positions"] == certificate["crash_positions"]
    assert (incomplete["first"], incomplete["last"]) == (1, certificate["crash_positions"])
    assert certificate["peak_memory_bytes"] > 1 << 20


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"recoveries": 1}, {"recoveries": 7}, {"time_s": 0.0}])
@pytest.mark.parametrize("strategy", [COMPLETE, {"strategy": "exhaustive"}], ids=["complete", "exhaustive"])
def test_an_exploration_that_was_stopped_goes_on(
    engine: Engine, strategy: dict[str, Any], budget: dict[str, float]
) -> None:
    """In two parts, it passes each crash position once and finds what it finds in one."""
    for seed in range(3):
        toy = random_toy(seed)
        whole = engine.explore(toy, **strategy)
        part = engine.explore(toy, **strategy, limits={**LIMITS, **budget})
        stopped = part.certificate["stopped"]
        assert (stopped is not None) != part.certificate["complete"]
        if not stopped:  # equal images are recovered once: all of it took no more
            assert whole.certificate["recoveries"] <= budget["recoveries"]
            continue
        assert part.certificate["why"].startswith(f"stopped at crash position {stopped['position']} of "), seed
        assert part.certificate["gaps"] == []
        rest = engine.explore(toy, **strategy, left=stopped["left"])
        counts = ("crash_positions", "unknowns")
        for name in counts:
            assert part.certificate[name] + rest.certificate[name] == whole.certificate[name], (seed, name)
        assert rest.certificate["complete"]
        found = {finding["id"] for finding in part.findings + rest.findings}
        assert found == {finding["id"] for finding in whole.findings}, seed


def one_large_operation() -> Toy:
    """The first allocation has most of the crash states, six operations behind it have few."""
    toy = created()
    states = itertools.chain.from_iterable(persisted(store(8, 16 + number)) for number in range(150))
    toy.allocate(0, *states, *persisted(store(8, 0)), *allocation(0, 2))
    for _ in range(3):
        toy.free(0, *persisted(store(LINE_BYTES, 0)))
        toy.allocate(0, *allocation(0, toy.index + 1))
    return toy


def left_of(found: Explored) -> dict[int, tuple[int, int]]:
    """By operation: how many of its crash positions were left, and how many it has."""
    stopped = found.certificate["stopped"]
    operations = stopped["operations"] if stopped else []
    return {of["operation"]: (of["left"], of["positions"]) for of in operations}


def test_operations_share_a_budget(engine: Engine) -> None:
    toy = one_large_operation()
    whole = engine.explore(toy, **COMPLETE)
    limits = {**LIMITS, "recoveries": whole.certificate["recoveries"] // 2}
    alone = engine.explore(toy, **COMPLETE, limits=limits)
    shared = engine.explore(toy, **COMPLETE, limits=limits, shares_budget=True)
    left, positions = left_of(alone)[7]
    assert left == positions, "what comes first uses all of a budget that nobody shares"
    assert set(left_of(shared)) == {1}, "of the others, everything was explored"
    assert (shared.verdict, shared.certificate["complete"]) == ("incomplete", False)
    [(left, positions)] = left_of(shared).values()
    assert f"recoveries ({left} of {positions} of operation 1 (allocate))" in shared.certificate["why"]
    assert 0 < left < left_of(alone)[1][0] + positions
    assert shared.certificate["recoveries"] == limits["recoveries"]
    again = engine.explore(toy, **COMPLETE, limits=limits, shares_budget=True, jobs=2)
    assert {**again.certificate, **OF_THE_RUN} == {**shared.certificate, **OF_THE_RUN}


def test_what_is_left_goes_round_again(engine: Engine) -> None:
    """A budget that is just enough for all of it leaves nothing, though the first operation has not half of it at once."""
    toy = one_large_operation()
    whole = engine.explore(toy, **COMPLETE)
    limits = {**LIMITS, "recoveries": whole.certificate["recoveries"] * 4 // 3}
    shared = engine.explore(toy, **COMPLETE, limits=limits, shares_budget=True)
    assert shared.certificate["complete"], shared.certificate["why"]
    assert shared.certificate["recoveries"] > whole.certificate["recoveries"], "some are run again"
    assert shared.certificate["crash_positions"] == whole.certificate["crash_positions"]


def test_a_large_budget_is_shared_by_nobody(engine: Engine) -> None:
    toy = one_large_operation()
    whole = engine.explore(toy, **COMPLETE)
    for limits in ({"recoveries": 2 * whole.certificate["recoveries"] + 2}, {"time_s": 600.0}):
        shared = engine.explore(toy, **COMPLETE, limits={**LIMITS, **limits}, shares_budget=True)
        assert {**shared.certificate, **OF_THE_RUN} == {**whole.certificate, **OF_THE_RUN}


@pytest.mark.slow
@pytest.mark.parametrize("budget", [{"recoveries": 9}, {"recoveries": 31}, {"time_s": 0.0}])
def test_what_operations_left_is_what_an_exploration_goes_on_with(engine: Engine, budget: dict[str, float]) -> None:
    """Each crash position once, and the findings of one exploration."""
    for seed in range(3):
        toy = random_toy(seed)
        whole = engine.explore(toy, **COMPLETE)
        part = engine.explore(toy, **COMPLETE, limits={**LIMITS, **budget}, shares_budget=True)
        stopped = part.certificate["stopped"]
        if not stopped:
            assert part.certificate["crash_positions"] == whole.certificate["crash_positions"]
            continue
        rest = engine.explore(toy, **COMPLETE, left=stopped["left"])
        assert rest.certificate["complete"]
        positions = part.certificate["crash_positions"] + rest.certificate["crash_positions"]
        assert positions == whole.certificate["crash_positions"], seed
        found = {finding["id"] for finding in part.findings + rest.findings}
        assert found == {finding["id"] for finding in whole.findings}, seed


def never_flushed(lines: int) -> Toy:
    """Its recovery reads a line that nobody ever flushes: the flag's, and operations store to it again and again."""
    toy = created()
    for number in range(lines):
        toy.allocate(0, store(8, 16 + number), *allocation(0, toy.index + 1))
        toy.free(0, store(8, 160 + number), *persisted(store(LINE_BYTES, 0)))
    return toy


def test_what_is_assumed_persisted_is_said(engine: Engine) -> None:
    """A line that is never flushed has ever more states; where the end of an operation is taken to persist it, it has not."""
    toy = never_flushed(6)
    found = engine.explore(toy, **COMPLETE)
    assumed = engine.explore(toy, **COMPLETE, model="px86-returned")
    assert found.certificate["complete"]
    assert assumed.certificate["complete"] is False
    assert assumed.certificate["why"].startswith(
        "assumed, though it is not so: what is stored is persisted when an oper"
    )
    assert assumed.certificate["recoveries"] * 3 < found.certificate["recoveries"]
    assert (found.verdict, assumed.verdict) == ("pass", "unknown")


def test_lines_that_are_never_flushed_do_not_blow_up(engine: Engine) -> None:
    """Leaves are capped, and the certificate says which trace rule is the likely reason."""
    found = engine.explore(never_flushed(6), **COMPLETE, limits={**LIMITS, "leaves": 4})
    certificate = found.certificate
    assert certificate["complete"] is False
    assert "more leaves in a window than the limit" in certificate["why"]
    assert "places that store and never flush (FL101): 1, a likely cause" in certificate["why"]
    [incomplete] = certificate["incomplete"]
    assert 0 < incomplete["positions"] < certificate["crash_positions"]
    assert certificate["positions_by_strategy"]["complete"] == certificate["crash_positions"] - incomplete["positions"]


def test_lines_that_are_never_flushed_cost_what_the_limit_allows(engine: Engine) -> None:
    """Leaves are a product of those that recovery reads; with a limit, recoveries grow as the crash positions do, no faster."""

    def explored(lines: int, **limits: int) -> tuple[int, int]:
        certificate = engine.explore(never_flushed(lines), **COMPLETE, limits={**LIMITS, **limits}).certificate
        return int(certificate["recoveries"]), int(certificate["crash_positions"])

    (few, positions), (many, more_positions) = explored(6, leaves=4), explored(24, leaves=4)
    (all_of_few, _), (all_of_many, _) = explored(6), explored(24)
    assert many / few < 1.5 * more_positions / positions
    assert all_of_many / all_of_few > 1.5 * more_positions / positions, "without it they grow faster"


def test_trace_rules_are_told_before_anything_else_is(engine: Engine) -> None:
    events = engine.events("explore", engine.config(never_flushed(2), **COMPLETE, limits={**LIMITS, "time_s": 0.0}))
    assert [event["event"] for event in events][:1] == ["trace_rules"]
    [rules, *_] = events
    assert "FL101" in json.dumps(rules)
    assert events[-2]["recoveries"] == 0


def test_the_time_is_that_of_twins_too(engine: Engine) -> None:
    """They do not end here."""
    toy_without_twins = engine.runner.rename(engine.runner.with_name("without-twins"))
    engine.runner.write_text(f'#!/bin/sh\n[ "$1" != twins ] || exec sleep {LIMIT_S}\nexec {toy_without_twins} "$@"\n')
    engine.runner.chmod(0o755)
    found = engine.explore(never_flushed(2), **COMPLETE, limits={**LIMITS, "time_s": 0.5})
    assert (found.verdict, found.certificate["recoveries"]) == ("incomplete", 0)
    assert found.certificate["stopped"]["why"] == "0.5 s limit"
    assert found.certificate["time_s"] < LIMIT_S / 2


@pytest.mark.parametrize("is_hooked", [True, False], ids=["a thread in recovery", "no hooks"])
@pytest.mark.parametrize("jobs", [1, 2])
def test_trace_rules_are_told_once_also_when_complete_falls_back(engine: Engine, jobs: int, is_hooked: bool) -> None:
    toy = with_flag(toy_runner.THREADED)
    toy.free(1, store(LINE_BYTES, 0))
    how = COMPLETE if is_hooked else {"strategy": "complete"}
    events = engine.events("explore", engine.config(toy, **how, jobs=jobs))
    assert [event["event"] == "trace_rules" for event in events] == [True] + [False] * (len(events) - 1)
    certificate = [event for event in events if event["event"] == "certificate"][-1]
    assert certificate["fallback"]
    [never_flushed] = [warning for warning in events[0]["warnings"] if warning["rule"] == "FL101"]
    assert never_flushed["count"] == 1


def test_findings_of_an_assumed_state_replay(engine: Engine) -> None:
    toy = random_toy(2)
    [finding, *_] = engine.explore(toy, **COMPLETE, model="px86-returned").findings
    events = engine.events("replay", engine.config(toy, model="px86-returned"), "--token", finding["token"])
    assert finding["rule"] in [event["rule"] for event in events if event["event"] == "finding"]


def with_flag(flag: int) -> Toy:
    """A correct toy whose recovery does something odd from the first allocation on."""
    toy = created()
    toy.allocate(0, *persisted(store(8, flag)), *allocation(0, 2))
    toy.allocate(1, *allocation(1, 3))
    toy.free(0, *persisted(store(LINE_BYTES, 0)))
    return toy


def check_fallback(found: Explored, why: str) -> None:
    """Everything was explored, but not by what recovery loads."""
    certificate = found.certificate
    assert (certificate["strategy"], certificate["complete"]) == ("mixed", False)
    assert certificate["fallback"] == f"strategy complete is not possible: {why}"
    assert "power fails" not in certificate["covers"]
    assert certificate["why"].startswith(certificate["fallback"])
    assert "complete" not in certificate["positions_by_strategy"]
    assert certificate["positions_by_strategy"]["prefix"] == certificate["crash_positions"]
    assert found.verdict == "pass"


def test_complete_without_hooks_and_tracer_falls_back(engine: Engine) -> None:
    found = engine.explore(random_toy(3), strategy="complete")
    mixed = engine.explore(random_toy(3), strategy="mixed")
    assert (found.certificate["fallback"], mixed.certificate["fallback"]) == (
        "strategy complete is not possible: no engine sees what recovery loads",
        None,
    )
    assert (found.verdict, found.seen, found.first()) == (mixed.verdict, mixed.seen, mixed.first())
    assert found.certificate["judgements"] == mixed.certificate["judgements"]


def test_loads_past_the_hooks_make_complete_fall_back(engine: Engine) -> None:
    found = engine.explore(with_flag(toy_runner.PAST_HOOKS), **COMPLETE, nested=1)
    check_fallback(found, "recovery loads PM past the hooks: a read at 0x8")


def test_a_thread_in_recovery_makes_complete_fall_back(engine: Engine) -> None:
    found = engine.explore(with_flag(toy_runner.THREADED), **COMPLETE)
    check_fallback(found, "recovery started a thread or a process, whose loads have no order")


def test_a_failure_that_is_another_one_each_time_is_unknown(engine: Engine) -> None:
    found = engine.explore(with_flag(toy_runner.CHANGEABLE), strategy="prefix", probe="first")
    assert (found.verdict, found.seen) == ("unknown", Counter())
    assert "has other heap reports when it is recovered again" in found.certificate["unknown_reasons"][0]


def test_a_failure_that_a_process_of_its_own_does_not_show_is_an_error(engine: Engine) -> None:
    config = engine.config(with_flag(toy_runner.FORGETFUL), strategy="prefix", probe="first")
    command = [str(engine.path), "explore", str(config)]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (run.returncode, "than in a process of its own" in run.stderr) == (3, True), run.stderr
    assert '"event":"finding"' not in run.stdout


def test_a_failure_that_the_engines_show_with_other_heap_reports_is_left_to_the_next_engine(engine: Engine) -> None:
    """Of passes a share is compared; of failures each that would be a finding."""
    alike = engine.explore(with_flag(toy_runner.BROKEN_LATER), **COMPLETE)
    assert (alike.verdict, set(alike.seen)) == ("fail", {"FL003"})
    found = engine.explore(with_flag(toy_runner.TWO_FACED), **COMPLETE)
    assert (found.verdict, set(found.seen)) == ("fail", {"FL003"})
    assert found.certificate["strategy"] == "mixed"
    told = "the in-process engine cannot be trusted here: the runs of one image have other heap reports"
    assert found.certificate["fallback"] == f"strategy complete is not possible: {told}"


@pytest.mark.parametrize("stop", ["FL003", "any"])
def test_what_engines_show_differently_is_no_finding_to_stop_at(engine: Engine, stop: str) -> None:
    """The next engine begins anew, and stops at the first finding that it shows."""
    toy = created()
    toy.allocate(0, *persisted(store(8, toy_runner.TWO_FACED)), *persisted(store(8, 0)), *allocation(0, 2))
    toy.allocate(1, *persisted(store(8, toy_runner.BROKEN_LATER)), *allocation(1, 3), *persisted(store(8, 0)))
    found = engine.explore(toy, **COMPLETE, stop_at_rule=stop)
    assert (found.verdict, [finding["rule"] for finding in found.findings]) == ("fail", ["FL003"])
    assert found.findings[0]["operation"]["index"] == 1
    assert found.certificate["strategy"] == "mixed"


def check_incomplete(found: Explored, verdict: str, why: str) -> None:
    """Some crash positions are not complete, the others are."""
    certificate = found.certificate
    assert (found.verdict, certificate["strategy"], certificate["complete"]) == (verdict, "complete", False)
    assert certificate["fallback"] is None
    [incomplete] = certificate["incomplete"]
    assert (incomplete["why"], 0 < incomplete["positions"] < certificate["crash_positions"]) == (why, True)
    assert certificate["positions_by_strategy"]["complete"] == certificate["crash_positions"] - incomplete["positions"]


def test_a_recovery_that_maps_its_heap_too_often_is_a_bound_of_its_crash_positions(engine: Engine) -> None:
    found = engine.explore(with_flag(toy_runner.MANY_MAPPINGS), **COMPLETE)
    check_incomplete(found, "incomplete", "a recovery that has more than 64 mappings of its heap at a time")
    assert found.certificate["unknown_reasons"] == []


def test_a_recovery_that_overwrites_the_list_is_unknown_at_its_crash_positions(engine: Engine) -> None:
    found = engine.explore(with_flag(toy_runner.DAMAGED_LIST), **COMPLETE)
    check_incomplete(found, "unknown", "runs that say nothing")
    [reason] = found.certificate["unknown_reasons"]
    assert reason == "recovery overwrote the list of what it loads, in memory that is not its own"


def test_findings_from_before_a_fallback_stay(engine: Engine) -> None:
    toy = created()
    toy.allocate(0, *persisted(store(8, toy_runner.BROKEN_LATER)), *persisted(store(8, 0)), *allocation(0, 2))
    toy.allocate(1, *persisted(store(8, toy_runner.THREADED)), *allocation(1, 3), *persisted(store(8, 0)))
    found = engine.explore(toy, **COMPLETE)
    assert found.certificate["strategy"] == "mixed"
    assert (found.verdict, set(found.seen)) == ("fail", {"FL003"})
    assert len({finding["id"] for finding in found.findings}) == len(found.findings)


def test_a_recovery_that_is_not_deterministic_is_unknown(engine: Engine) -> None:
    """With the first load that differs."""
    found = engine.explore(with_flag(toy_runner.RESTLESS), **COMPLETE)
    assert (found.verdict, found.certificate["complete"]) == ("unknown", False)
    reasons = "; ".join(found.certificate["unknown_reasons"])
    assert "recovery is not deterministic: after " in reasons
    assert re.search("it loaded case-0/heap at 0x(40|c0), and in another run case-0/heap at 0x(40|c0)", reasons), (
        reasons
    )


@pytest.mark.slow
def test_tokens_replay_to_what_was_found(engine: Engine) -> None:
    replayed = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        for finding in engine.explore(toy).findings[:2]:
            assert (finding["rule"], finding["message"]) in engine.replay(toy, finding["token"]), seed
            replayed += 1
    assert replayed > SEEDS / 2


@pytest.mark.slow
def test_the_smallest_crash_state_shows_the_same_finding(engine: Engine) -> None:
    """In a replay of its own, too: what the search probed before leaves nothing behind."""
    shrunk = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        for finding in engine.explore(toy).findings[-1:]:
            events = engine.events("shrink", engine.config(toy), "--token", finding["token"])
            [smallest] = [event for event in events if event["event"] == "finding"]
            assert smallest["id"] == finding["id"], seed
            assert (smallest["rule"], smallest["message"]) in engine.replay(toy, smallest["token"]), seed
            shrunk += smallest["token"] != finding["token"]
    assert shrunk > 0


def created() -> Toy:
    toy = Toy()
    toy.create()
    return toy


def test_a_correct_toy_passes(engine: Engine) -> None:
    toy = created()
    toy.allocate(0, *allocation(0, 2))
    toy.free(0, *persisted(store(LINE_BYTES, 0)))
    found = engine.explore(toy)
    assert (found.verdict, found.findings) == ("pass", [])


def test_what_cannot_be_known_never_passes(engine: Engine) -> None:
    toy = created()
    toy.allocate(0, *persisted(store(8, toy_runner.OVERLOADED_NOW)), *persisted(store(8, 0)), *allocation(0, 2))
    found = engine.explore(toy)
    assert (found.verdict, found.findings) == ("unknown", [])
    assert found.certificate["unknowns"] > 0
    assert "some states are unknown" in found.certificate["why"]


def test_what_only_the_first_recovery_builds_wrong_is_found(engine: Engine) -> None:
    toy = created()
    toy.allocate(0, *persisted(store(8, toy_runner.LISTED_TWICE)), *persisted(store(8, 0)), *allocation(0, 2))
    found = engine.explore(toy)
    assert (found.verdict, set(found.seen)) == ("fail", {"FL006"})


def test_a_position_with_too_many_states_is_a_bound_that_is_said(engine: Engine) -> None:
    toy = created()
    wide = Store(1, 1, 3 * LINE_BYTES, b"\7" * 256, StoreKind.REP)
    toy.events.append(wide)
    found = engine.explore(toy)
    assert found.certificate["complete"] is False
    assert "a position has more than 16777216 states" in found.certificate["why"]


def test_a_time_limit_is_a_bound_that_is_said(engine: Engine) -> None:
    found = engine.explore(created(), limits={**LIMITS, "time_s": 0.0})
    assert (found.certificate["complete"], ": 0 s limit" in found.certificate["why"]) == (False, True)


def test_two_bugs_of_one_rule_are_two_findings(engine: Engine) -> None:
    """A link that is never flushed is lost; one that is never stored was not there to be lost."""
    toy = created()
    *steps, link, _, last_fence = allocation(0, 2)
    toy.allocate(0, *steps, link, last_fence)
    toy.add(flush(LINE_BYTES), last_fence)
    toy.allocate(1, *persisted(store(place(1), 7)))
    found = engine.explore(toy)
    assert [finding["rule"] for finding in found.findings] == ["FL004", "FL004"]
    assert found.seen == toy.findings.seen


def forgotten() -> Toy:
    """The object of slot 0 is lost from its allocation's return on, whatever persists; what comes after that is in order."""
    toy = created()
    toy.allocate(0, *persisted(store(place(0), pattern_word(2))))
    toy.allocate(1, *allocation(1, 3))
    toy.free(1, *persisted(store(2 * LINE_BYTES, 0)))
    return toy


@pytest.mark.slow
@pytest.mark.parametrize(
    "strategy",
    [COMPLETE, {"strategy": "exhaustive"}, {"strategy": "prefix"}],
    ids=["complete", "exhaustive", "prefix"],
)
def test_what_stays_wrong_is_one_finding_from_where_it_began(engine: Engine, strategy: dict[str, Any]) -> None:
    """Wherever the exploration begins, and whatever the last store and the operation are by then."""
    toy = forgotten()
    whole = engine.explore(toy, **strategy)
    [finding] = whole.findings
    assert (finding["rule"], finding["lost"]) == ("FL004", None)
    if strategy["strategy"] == "exhaustive":
        assert whole.seen == toy.findings.seen
    for position in range(finding["position"] + 1, whole.certificate["crash_positions"]):
        [later_one] = engine.explore(toy, **strategy, left=[(position, LAST_POSITION)]).findings
        assert later_one["id"] == finding["id"], position
        [replayed] = engine.replayed(toy, later_one["token"])
        assert replayed["id"] == finding["id"], position
        assert engine.shrink(toy, later_one["token"]).finding["position"] <= finding["position"]


@pytest.mark.parametrize("nested", [1, 2])
def test_what_stays_wrong_in_a_recovery_is_one_finding_from_where_it_began(engine: Engine, nested: int) -> None:
    """From the mark that says that it is at work to the one that says that it is done, which other stores come between."""
    toy = with_journal(toy_runner.FORGETS_LATER + toy_runner.PLACED)
    findings = engine.explore(toy, **COMPLETE, nested=nested, follow_up=False).findings
    assert {one["rule"] for one in findings} == {"FL014"}
    lasting = [one for one in findings if one["lost"] is None]
    assert lasting
    by_words = {re.sub(r"[0-9]", "", one["message"]): one for one in lasting}
    assert len(lasting) == len(by_words), "more than one where the same is said"
    for finding in lasting:
        [replayed] = engine.replayed(toy, finding["token"])
        shrunk = engine.shrink(toy, finding["token"], nested=nested).finding
        assert replayed["id"] == shrunk["id"] == finding["id"]
        assert shrunk["position"] <= len(["begin", *persisted(store(toy_runner.MARK, 1))]), "before the second store"


@pytest.mark.parametrize("nested", [1, 2])
def test_what_stays_wrong_is_the_same_where_recoveries_are_followed_in_between(engine: Engine, nested: int) -> None:
    """While a link that is taken back by mistake is undecided, recoveries find it at each crash position, and are wrong."""
    toy = Toy()
    toy.has_places = True
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.FORGETS_LATER + toy_runner.PLACED)))
    toy.allocate(0, *allocation(0, toy.index + 1))
    toy.allocate(1, store(LINE_BYTES, 0), *journalled(1, toy.index + 1))
    once, twice = (engine.explore(toy, **COMPLETE, nested=number, follow_up=False) for number in (0, nested))
    of_one_crash = [[one["id"] for one in found.findings if one["rule"] != "FL014"] for found in (once, twice)]
    assert of_one_crash[0] == of_one_crash[1]
    assert len(of_one_crash[0]) == 1
    assert "FL014" in twice.seen


BOTH = pytest.mark.parametrize("strategy", [COMPLETE, {"strategy": "exhaustive"}], ids=["complete", "exhaustive"])


@BOTH
def test_what_stays_wrong_hides_no_lost_store(engine: Engine, strategy: dict[str, Any]) -> None:
    """Of the same rule: what it is told with, and what it is shrunk to, is its own."""
    toy = forgotten()
    content = persisted(store(place(1), pattern_word(toy.index + 1)))
    toy.allocate(1, *content, store(JOURNAL, 5), store(2 * LINE_BYTES, place(1)))  # none of the two flushed
    [lasting, new] = engine.explore(toy, **strategy).findings
    assert (new["rule"], new["lost"] is not None, new["line_count"]) == ("FL004", True, 1)
    for finding in (new, engine.shrink(toy, new["token"]).finding, engine.replayed(toy, new["token"])[0]):
        assert (finding["id"], finding["message"].startswith("slot 1 ")) == (new["id"], True)
    assert engine.replayed(toy, new["token"])[1]["id"] == lasting["id"]


@BOTH
def test_what_stays_wrong_hides_no_lost_content(engine: Engine, strategy: dict[str, Any]) -> None:
    """Of two objects in one heap report, each of which breaks the rule in other states."""
    toy = created()
    toy.allocate(0, *persisted(store(place(0), 7)), *persisted(store(LINE_BYTES, place(0))))
    toy.allocate(1, store(place(1), pattern_word(toy.index + 1)), *persisted(store(2 * LINE_BYTES, place(1))))
    findings = [(one["rule"], one["lost"] is not None) for one in engine.explore(toy, **strategy).findings]
    assert findings == [("FL009", False), ("FL009", True)]


@BOTH
@pytest.mark.parametrize("has_places", [True, False], ids=["places", "no places"])
def test_what_stays_wrong_hides_no_other_fault_of_logic(
    engine: Engine, strategy: dict[str, Any], has_places: bool
) -> None:
    """The same is said of both; they begin at other stores, and in operations of other kinds if nothing is known of those."""
    toy = forgotten()
    toy.has_places = has_places
    toy.allocate(1, *allocation(1, toy.index + 1))
    toy.free(0, *persisted(store(2 * LINE_BYTES, 0)))  # of another slot
    first, second = engine.explore(toy, **strategy).findings
    assert (first["rule"], second["rule"]) == ("FL004", "FL004")
    assert "slot 1" in second["message"]
    assert engine.shrink(toy, second["token"]).finding["id"] == second["id"]


AN_UNKNOWN_PLACE = {"function": "", "file": "", "line": 0}


@pytest.mark.parametrize(
    ("flag", "stored"),
    [
        (0, []),
        (toy_runner.CAREFUL, [AN_UNKNOWN_PLACE]),  # a link, and the journal
        (toy_runner.CAREFUL + toy_runner.HIDES_FILES, None),
        (toy_runner.THREADED, None),
        (toy_runner.NEVER_OPEN, None),
    ],
    ids=["nothing", "journal", "not told", "threads", "no return"],
)
def test_where_recovery_stores_is_told_where_it_is_known(engine: Engine, flag: int, stored: list[Any] | None) -> None:
    """Of a state that has every store: slot 0 is lost, and the journal says that slot 1 is to get its object."""
    toy = Toy()
    toy.create(*persisted(store(8, flag)))
    toy.allocate(0, *persisted(store(place(0), pattern_word(2))), *persisted(store(JOURNAL, 2)))
    findings = engine.explore(toy, strategy="prefix", hooked_adapter=True).findings
    [finding, *_] = [one for one in findings if one["rule"] == "FL004"]
    assert (finding["lost"], finding["stored"]) == (None, stored)


def test_where_recovery_stores_is_not_told_where_a_store_is_lost(engine: Engine) -> None:
    toy = created()
    toy.allocate(0, *allocation(0, 2)[:3], store(LINE_BYTES, place(0)))
    [finding] = engine.explore(toy, strategy="exhaustive", hooked_adapter=True).findings
    assert (finding["lost"] is not None, finding["stored"]) == (True, None)


def test_what_stays_wrong_in_a_later_case_began_there(engine: Engine) -> None:
    toy = created()
    for file in (1, 2):
        if file == 2:
            heap = FileBegin(1, Operation.CREATE, 2, path="case-1/heap")
            size = FileBegin(1, Operation.TRUNCATE, 2, offset=HEAP_BYTES)
            toy.events.append(Marker(BEGIN, CASE, bytes=1))
            raw(toy, CREATE, heap, FileEnd(heap), size, FileEnd(size), *persisted(replace(store(0, MAGIC), file=2)))
            lost = toy.index
            raw(toy, ALLOCATE, *persisted(replace(store(place(0), pattern_word(lost + 1)), file=2)), new=lost + 1)
        for _ in range(3):
            content, link = store(place(1), pattern_word(toy.index + 1)), store(2 * LINE_BYTES, place(1))
            steps = [*persisted(replace(content, file=file)), *persisted(replace(link, file=file))]
            raw(toy, ALLOCATE, *steps, slot=1, new=toy.index + 1)
            raw(toy, FREE, *persisted(replace(store(2 * LINE_BYTES, 0), file=file)), slot=1)
    [finding] = engine.explore(toy, **COMPLETE).findings
    for position in range(finding["position"], len(toy.events), 5):
        [later_one] = engine.explore(toy, strategy="prefix", left=[(position, LAST_POSITION)]).findings
        assert later_one["id"] == finding["id"], position


def raw(toy: Toy, operation: int, *steps: Event, slot: int = 0, new: int = 0) -> None:
    """Adds an operation that brute force does not look at."""
    sizes = {"bytes": 8 if new else 0, "object": new}
    begin, end = Marker(BEGIN, operation, toy.index, slot, **sizes), Marker(RETURN, operation, toy.index)
    toy.events += [begin, *steps, end]
    toy.index += 1


@BOTH
def test_what_a_pending_operation_may_leak_is_not_blamed_for_a_leak_before(
    engine: Engine, strategy: dict[str, Any]
) -> None:
    """Two blocks leaked by free; then an allocation in order, of which the content is there and the link is not."""
    source = Path(toy_runner.__file__).read_text()
    walks = "section(FL.SECTION_WALK, number, FL.UNSUPPORTED_CALL)"
    assert walks in source
    blocks = 'b"".join(struct.pack("<IIQQ", 0, FL.BLOCK_ALLOCATED, place(at), 64) for at in range(4) if word(heap, place(at)))'
    count = "sum(word(heap, place(at)) != 0 for at in range(4))"
    walk = f"section(FL.SECTION_WALK, number, FL.OK, {count}, len(heap), {blocks})"
    engine.runner.write_text(f"#!{sys.executable} -SE\n{source.replace(walks, walk)}")
    toy = created()
    for at in (5 * LINE_BYTES, 3 * LINE_BYTES):
        toy.allocate(0, *persisted(store(at, pattern_word(toy.index + 1))), *persisted(store(LINE_BYTES, at)))
        toy.free(0, *persisted(store(LINE_BYTES, 0)))
    toy.allocate(1, *allocation(1, toy.index + 1))
    toy.free(1, *persisted(store(2 * LINE_BYTES, 0)), *persisted(store(place(1), 0)))
    contract = {**CONTRACT, "leaks": "pending"}
    findings = engine.explore(toy, **strategy, contract=contract, probe="first").findings
    assert [(one["rule"], one["lost"] is not None) for one in findings] == [("FL010", False)]


# ---- crashes after the crash ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("follow_up", [True, False])
def test_a_second_crash_is_explored_as_brute_force_does(engine: Engine, follow_up: bool) -> None:
    """FL014 is found if some state of some position of some recovery is broken, and else not: at a position where one is after
    the first crash that shows it."""
    broken = 0
    for seed in range(NESTED_SEEDS):
        toy = random_journal(seed)
        found = engine.explore(toy, **COMPLETE, nested=1, follow_up=follow_up)
        expected = later(toy, follow_up)
        certificate = found.certificate
        assert (certificate["complete"], certificate["why"]) == (True, ""), seed
        assert certificate["crash_positions"] == len(toy.events), seed
        assert ("FL014" in found.first()) == bool(expected.broken), seed
        first = min((position for position, _ in expected.broken), default=None)
        at_first = {number for position, number in expected.broken if position == first}
        assert first is None or found.first()["FL014"] in at_first, seed
        broken += first is not None
    assert 0 < broken < NESTED_SEEDS


def further_journal(seed: int) -> Toy:
    """As it should be; each operation sets and clears the mark, too, somewhere."""
    dice = random.Random(seed)
    toy = Toy()
    toy.has_sites = True
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.LOOKS_FURTHER)))
    for slot in (0, 1):
        steps = journalled(slot, toy.index + 1)
        marks = [persisted(store(toy_runner.MARK, value)) for value in (1, 0)]
        first, last = sorted(3 * dice.randint(1, len(steps) // 3) for _ in marks)
        toy.allocate(slot, *steps[:first], *marks[0], *steps[first:last], *marks[1], *steps[last:])
    return toy


@pytest.mark.slow
def test_what_is_passed_by_shows_nothing_in_recoveries(engine: Engine, tmp_path: Path) -> None:
    """Without a flush or a fence, compared with what was explored with it, and with nothing: the same new outcomes."""
    news = set()
    for seed in range(PASSING_SEEDS):
        toy = further_journal(seed)
        known, shown = tmp_path / "known", tmp_path / "shown"
        whole = engine.explore(toy, **COMPLETE, nested=1, outcomes={"write": str(known)})
        assert (whole.verdict, whole.certificate["complete"]) == ("pass", True), seed
        for site in range(1, sum(isinstance(event, Flush | Fence) for event in toy.events) + 1):
            edits = {**COMPLETE, "nested": 1, "edits": [{"edit": "without", "sites": [site]}]}
            alone = engine.explore(toy, **edits, outcomes={"write": str(shown)})
            compared = engine.explore(toy, **edits, outcomes={"compare": str(known)})
            new = len(outcomes(shown) - outcomes(known))
            assert (compared.verdict, compared.new_outcomes) == (alone.verdict, new), (seed, site)
            news.add((alone.verdict, new > 0))
    assert news >= {("pass", False), ("pass", True), ("fail", True)}


@pytest.mark.slow
@pytest.mark.parametrize("nested", [1, 2, 3])
def test_crashes_in_recoveries_are_explored_as_brute_force_does(engine: Engine, nested: int) -> None:
    """Of as many of them: what the last toy forgets takes two, or a second recovery of the whole probe."""
    broken = []
    for toy in (*map(random_journal, range(NESTED_SEEDS)), with_journal(toy_runner.FORGETS_LATER)):
        found = engine.explore(toy, **COMPLETE, nested=nested, follow_up=False, probe="first")
        assert (found.certificate["complete"], found.certificate["why"]) == (True, ""), len(broken)
        broken.append(is_broken_later(toy, nested))
        assert ("FL014" in found.first()) == broken[-1], len(broken)
    assert 0 < sum(broken) < len(broken)
    assert broken[-1] == (nested > 1)


@pytest.mark.slow
def test_what_a_second_crash_shows_replays(engine: Engine) -> None:
    replayed = 0
    for seed in range(NESTED_SEEDS):
        toy = random_journal(seed)
        for finding in engine.explore(toy, **COMPLETE, nested=1).findings:
            assert (finding["rule"], finding["message"]) in engine.replay(toy, finding["token"]), seed
            replayed += 1
    assert replayed > 0


@pytest.mark.slow
@pytest.mark.parametrize("nested", [1, 2])
def test_the_crashes_before_a_later_one_are_told(engine: Engine, nested: int) -> None:
    """By an exploration, by the token's replay, and of the shrunk token."""
    most = 0
    for seed in range(NESTED_SEEDS):
        toy = random_journal(seed)
        for finding in engine.explore(toy, **COMPLETE, nested=nested).findings:
            replayed = engine.events("replay", engine.config(toy), "--token", finding["token"])
            shrunk = engine.shrink(toy, finding["token"], nested=nested).finding
            for found in (finding, shrunk, *(event for event in replayed if event["event"] == "finding")):
                [token] = engine.events("token", found["token"])
                positions = [token["position"], *(crash["position"] for crash in token["later"])]
                assert [*(crash["position"] for crash in found["earlier"]), found["position"]] == positions
                most = max(most, len(found["earlier"]))
            assert [one["operation"]["generation"] for one in finding["earlier"] if one["operation"]] == [
                number for number, one in enumerate(finding["earlier"]) if one["operation"]
            ]
    assert most == nested


def with_journal(wrong: int) -> Toy:
    toy = Toy()
    toy.create(*persisted(store(8, toy_runner.CAREFUL + wrong)))
    toy.allocate(0, *journalled(0, 2))
    return toy


@pytest.mark.parametrize(
    ("wrong", "words"),
    [(toy_runner.FORGETS_LATER, "FL013: after the second recovery"), (toy_runner.NOT_USABLE, "FL012: an allocation")],
    ids=["FL013", "FL012"],
)
def test_all_of_the_probe_is_judged_after_a_second_crash(engine: Engine, wrong: int, words: str) -> None:
    toy = with_journal(wrong)
    assert engine.explore(toy, **COMPLETE).verdict == "pass"
    found = engine.explore(toy, **COMPLETE, nested=1)
    assert {finding["rule"] for finding in found.findings} == {"FL014"}
    [finding] = [finding for finding in found.findings if words in finding["message"]][:1]
    assert (finding["rule"], finding["message"]) in engine.replay(toy, finding["token"])


def test_what_only_the_first_crash_lost_is_told_and_repaired_where_it_was_stored(engine: Engine) -> None:
    """The heap begins with a flag by which a recovery that is cut short leaves slot 0 to be lost. The workload puts that right
    while there is nothing to lose yet, and does not flush it."""
    toy = Toy()
    toy.has_places = True
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.FORGETS_LATER + toy_runner.PLACED)))
    content, link = allocation(0, 2)[:3], allocation(0, 2)[3:]
    right = store(8, toy_runner.CAREFUL + toy_runner.PLACED)
    toy.allocate(0, *content, right, *link)
    assert engine.explore(toy, **COMPLETE).verdict == "pass"
    again = {**COMPLETE, "nested": 1, "follow_up": False}
    finding = next(one for one in engine.explore(toy, **again).findings if one["lost"] is None)
    [replayed] = engine.replayed(toy, finding["token"])
    shrunk = engine.shrink(toy, finding["token"]).finding
    for found in (finding, replayed, shrunk):
        [first] = found["earlier"]
        assert first["lost"] is not None
        helps = next(one for one in found["repairs"] if explored_with(engine, toy, one, again).verdict == "pass")
        assert [edit["edit"] for edit in helps["edits"]] == ["flush-after", "fence-after"]


def explored_with(engine: Engine, toy: Toy, repair: dict[str, Any], how: dict[str, Any]) -> Explored:
    return engine.explore(toy, **how, edits=repair["edits"], later_edits=repair["later_edits"])


def test_what_another_first_crash_leaves_is_looked_at_again(engine: Engine) -> None:
    """Recovery does the same whether the link is there or not, because it stores it without a look; it forgets the flush. While the
    link is persisted, a second crash loses nothing; from the store on that takes it back, it does."""
    toy = Toy()
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.LINK_NOT_FLUSHED)))
    content, link = allocation(0, 2)[:3], allocation(0, 2)[3:]
    journal = persisted(store(toy_runner.JOURNAL, 1)), persisted(store(toy_runner.JOURNAL, 0))
    toy.allocate(0, *content, *link, *journal[0], store(LINE_BYTES, 0), *link, *journal[1])
    taken_back = toy.events.index(store(LINE_BYTES, 0)) + 1
    found, expected = engine.explore(toy, **COMPLETE, nested=1), later(toy)
    assert min(position for position, _ in expected.broken) == taken_back
    assert set(found.seen) == {"FL014"}


def test_content_that_one_crash_loses_is_not_told_again_of_a_second(engine: Engine) -> None:
    """Recovery does not put it right, so states that lack it are broken whether power fails again or not."""
    toy = with_journal(0)
    toy.allocate(1, store(place(1), toy_runner.pattern_word(3)), *persisted(store(2 * LINE_BYTES, place(1))))
    once, twice = engine.explore(toy, **COMPLETE), engine.explore(toy, **COMPLETE, nested=1)
    assert set(once.seen) == set(twice.seen) == {"FL009"}
    assert twice.certificate["complete"] is True
    assert twice.certificate["later_positions"] > 0


@pytest.mark.parametrize(
    ("wrong", "rule"), [(toy_runner.FORGETS_LATER, "FL013"), (toy_runner.NOT_USABLE, "FL012")], ids=["FL013", "FL012"]
)
def test_what_later_stages_show_of_one_crash_is_not_told_again_of_a_second(
    engine: Engine, wrong: int, rule: str
) -> None:
    """The heap begins with the mark of a recovery that was cut short, so that the first recovery leaves what a second one would.
    What follows a recovery would be lost, too, after a crash that loses nothing by itself."""
    toy = Toy()
    toy.create(*persisted(store(toy_runner.MARK, 1)), *persisted(store(8, toy_runner.CAREFUL + wrong)))
    toy.allocate(0, *journalled(0, 2))
    once = engine.explore(toy, **COMPLETE)
    twice = engine.explore(toy, **COMPLETE, nested=1, follow_up=False)
    assert (set(once.seen), set(twice.seen)) == ({rule}, {rule})
    assert twice.certificate["later_positions"] > 0


def test_each_first_crash_is_judged_by_what_it_left(engine: Engine) -> None:
    """The mark of a recovery that was cut short is there for a while. Afterwards a crash is in order by itself, and only a second
    one shows that recovery leaves a heap in which nothing can be allocated."""
    toy = Toy()
    toy.create(*persisted(store(toy_runner.MARK, 1)), *persisted(store(8, toy_runner.CAREFUL + toy_runner.NOT_USABLE)))
    toy.allocate(0, *journalled(0, 2))
    toy.allocate(1, *persisted(store(toy_runner.MARK, 0)), *journalled(1, 3))
    once = engine.explore(toy, **COMPLETE)
    twice = engine.explore(toy, **COMPLETE, nested=1, follow_up=False)
    assert (set(once.seen), set(twice.seen)) == ({"FL012"}, {"FL012", "FL014"})


def test_a_second_crash_is_explored_where_some_states_of_the_first_are_broken(engine: Engine) -> None:
    """Those in which another object's content is lost are told of one crash, the others show what only a second one does."""
    toy = Toy()
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.LINK_NOT_FLUSHED)))
    toy.allocate(1, *allocation(1, 2))
    toy.add(store(place(1), 0), store(place(1), toy_runner.pattern_word(2)))
    toy.allocate(0, *journalled(0, 3))
    found = engine.explore(toy, **COMPLETE, nested=1)
    assert set(found.seen) == {"FL009", "FL014"}


def content_gone_for_a_while() -> tuple[Toy, int]:
    """Recovery forgets the flush of a link that the journal names. While the journal is written, another object's content is gone:
    power must fail when it is back, or with that store lost. Returns the first crash position at which everything persisted is in
    order and recovery takes up the journal."""
    toy = Toy()
    toy.create(*persisted(store(8, toy_runner.CAREFUL + toy_runner.LINK_NOT_FLUSHED)))
    toy.allocate(1, *allocation(1, 2))
    content, journal, link = allocation(0, 3)[:3], persisted(store(toy_runner.JOURNAL, 1)), allocation(0, 3)[3:]
    back = store(place(1), toy_runner.pattern_word(2))
    toy.allocate(0, *content, store(place(1), 0), *journal, back, *link, *persisted(store(toy_runner.JOURNAL, 0)))
    return toy, len(toy.events) - toy.events[::-1].index(back)


def test_each_crash_of_a_witness_is_as_small_as_it_can_be(engine: Engine) -> None:
    """The second one must lose the link, and the first one nothing: but not where it breaks the other object by itself."""
    toy, in_order = content_gone_for_a_while()
    [finding] = [one for one in engine.explore(toy, **COMPLETE, nested=1).findings if one["rule"] == "FL014"]
    shrunk = engine.shrink(toy, finding["token"])
    assert (shrunk.sizes["before"]["lines"], shrunk.sizes["after"]["lines"]) == (2, 1)
    assert shrunk.finding["id"] == finding["id"]
    assert (shrunk.crashes["position"], shrunk.crashes["lines"]) == (in_order, [])
    [second] = shrunk.crashes["later"]
    assert len(shrunk.finding["lines"]) == 1, "of the second crash"
    assert shrunk.sizes["after"]["position"] == in_order + second["position"]
    assert shrunk.sizes["bounds_hit"] == []
    assert ("FL014", shrunk.finding["message"]) in engine.replay(toy, shrunk.finding["token"])


@pytest.mark.slow
def test_a_witness_of_two_crashes_that_is_smallest_stays(engine: Engine) -> None:
    shrunk = 0
    for seed in range(NESTED_SEEDS):
        toy = random_journal(seed)
        for finding in engine.explore(toy, **COMPLETE, nested=1).findings:
            smaller = engine.shrink(toy, finding["token"])
            assert smaller.finding["id"] == finding["id"], seed
            again = engine.shrink(toy, smaller.finding["token"])
            assert again.finding["token"] == smaller.finding["token"], seed
            assert again.sizes["before"] == again.sizes["after"] == smaller.sizes["after"], seed
            shrunk += 1
    assert shrunk > 0


def test_a_limit_keeps_the_states_of_both_crashes(engine: Engine) -> None:
    toy, _ = content_gone_for_a_while()
    [finding] = [one for one in engine.explore(toy, **COMPLETE, nested=1).findings if one["rule"] == "FL014"]
    shrunk = engine.shrink(toy, finding["token"], limits={**LIMITS, "recoveries": 1})
    assert shrunk.sizes["before"] == shrunk.sizes["after"]
    assert shrunk.sizes["bounds_hit"] == ["not all smaller crash states were tried: limit of 1 recoveries"]


def test_a_recovery_that_cannot_be_followed_is_not_complete(engine: Engine) -> None:
    """What the kernel writes, and what a msync guarantees, is not told: later generations of such a recovery are not explored."""
    found = engine.explore(with_journal(toy_runner.HIDES_FILES), **COMPLETE, nested=1)
    certificate = found.certificate
    assert (found.verdict, certificate["complete"], certificate["later_positions"]) == ("incomplete", False, 0)
    assert "recovery or its follow-up changes files in a way that is not followed" in certificate["why"]
    assert engine.explore(with_journal(toy_runner.HIDES_FILES), **COMPLETE).certificate["complete"]


def test_capacity_after_a_second_crash_is_said_to_be_unjudged(engine: Engine) -> None:
    certificate = engine.explore(with_journal(0), **COMPLETE, nested=1).certificate
    assert (certificate["complete"], certificate["later_positions"] > 0) == (True, True)
    why = [missing["why"] for missing in certificate["rules_not_judged"] if missing["rule"] == "FL014"]
    assert why == ["FL012 after a second crash: capacity: there are no twins"]
