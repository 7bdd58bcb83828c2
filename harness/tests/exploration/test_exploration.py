# SPDX-License-Identifier: Apache-2.0
"""The engine's exploration, from a trace to its findings, against brute force: on small traces of a toy allocator with bugs it
judges exactly the states there are, where they are, and finds exactly what is broken. No tracer and no compiled target."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from exploration import toy_runner
from exploration.toy import HEAP_BYTES, LINE_BYTES, SLOTS, Toy, allocation, flush, persisted, place, random_toy, store
from reference.trace_writer import Store, StoreKind

SEEDS = 24
LIMIT_S = 60
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
    "threads": 1,
}


@dataclass
class Explored:
    verdict: str
    certificate: dict[str, Any]
    findings: list[dict[str, Any]]
    seen: Counter[str]
    """How often each rule was broken."""

    def first(self) -> dict[str, int]:
        positions: dict[str, int] = {}
        for finding in self.findings:
            positions.setdefault(finding["rule"], finding["position"])
        return positions


LIMITS = {"exhaustive_states": 4096, "samples": 2, "time_s": None, "cpu_limit_ms": 1000, "wall_limit_ms": 9000}
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
            "version": 1,
            **here,
            "adapter": here["runner"],
            "workload_file": str(self.folder / "workload"),
            "scratch": str(self.folder),
            "heap": {**heap, "address_hint": 0, "alignment": 64, "smallest_bytes": 8},
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
        [certificate], [done], findings = of_kind["certificate"], of_kind["done"], of_kind.get("finding", [])
        seen: Counter[str] = Counter()
        for finding in findings:
            seen[finding["rule"]] += done["seen"][finding["id"]]
        return Explored(done["verdict"], certificate, findings, seen)

    def replay(self, toy: Toy, token: str) -> list[tuple[str, str]]:
        events = self.events("replay", self.config(toy), "--token", token)
        return [(event["rule"], event["message"]) for event in events if event["event"] == "finding"]


@pytest.fixture
def engine(scripts: Path, tmp_path: Path) -> Engine:
    return Engine(scripts, tmp_path)


Explore = Callable[[Toy], Explored]


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
    assert "crash positions are not explored completely, the first is " in found.certificate["why"]


def test_complete_without_hooks_is_refused(engine: Engine) -> None:
    config = engine.config(created(), strategy="complete")
    run = subprocess.run([engine.path, "explore", config], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert (run.returncode, run.stdout) == (2, "")
    assert run.stderr.endswith("needs an adapter built with hooks; use strategy default\n")


def test_tokens_replay_to_what_was_found(engine: Engine) -> None:
    replayed = 0
    for seed in range(SEEDS):
        toy = random_toy(seed)
        for finding in engine.explore(toy).findings[:2]:
            assert (finding["rule"], finding["message"]) in engine.replay(toy, finding["token"]), seed
            replayed += 1
    assert replayed > SEEDS / 2


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
    assert (found.certificate["complete"], "stopped: 0 s limit" in found.certificate["why"]) == (False, True)


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
