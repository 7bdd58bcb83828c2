# SPDX-License-Identifier: Apache-2.0
"""The engine's persistency model against a second one, written from docs/model.md alone (px86.py): on random small traces
both name the same images, the same exhaustive count and the same births at every crash position."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from reference.px86 import IMAGE_LIMIT, Position, states
from reference.trace_writer import (
    PLACES,
    Event,
    FileBegin,
    FileEnd,
    Marker,
    Operation,
    Remap,
    Store,
    StoreKind,
    thread_of,
    trace_bytes,
)
from reference.traces import traces

EXAMPLES = 150
FEW_EXAMPLES, MANY_EXAMPLES = 60, 600
"""That the engine answers, too."""
MANY_STATES = 1000
LEAST_SHARE = 0.05
"""Of the traces that have what the model is asked about."""
ENGINE_LIMIT_S = 60

fixed = settings(
    max_examples=EXAMPLES,
    derandomize=True,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    suppress_health_check=list(HealthCheck),
)

EngineStates = Callable[[Sequence[Event]], list[Position]]


@pytest.fixture(scope="module")
def engine_states(scripts: Path, tmp_path_factory: pytest.TempPathFactory) -> EngineStates:
    trace = tmp_path_factory.mktemp("reference") / "trace"

    def run(events: Sequence[Event]) -> list[Position]:
        trace.write_bytes(trace_bytes(events))
        done = subprocess.run(
            [str(scripts / "faultline-engine"), "states", str(trace)],
            capture_output=True,
            text=True,
            timeout=ENGINE_LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [
            Position(line["position"], int(line["count"]), int(line["born"]), line["images"], bool(line["bounds"]))
            for line in lines
        ]

    return run


def assert_same(events: Sequence[Event], got: list[Position], expected: list[Position]) -> None:
    assert [position.position for position in got] == [position.position for position in expected]
    assert [position.is_bounded for position in got] == [position.is_bounded for position in expected]
    for ours, theirs in zip(expected, got, strict=True):
        event = [event for event in events if not isinstance(event, Remap)][ours.position - 1]
        assert theirs.count == ours.count, f"position {ours.position}, after {event}"
        assert theirs.born == ours.born, f"position {ours.position}, after {event}"
        assert theirs.images == ours.images, f"position {ours.position}, after {event}"


@pytest.mark.slow
@pytest.mark.parametrize("examples", [FEW_EXAMPLES, pytest.param(MANY_EXAMPLES, marks=pytest.mark.nightly)])
def test_engine_and_reference_agree_on_random_traces(engine_states: EngineStates, examples: int) -> None:
    most_states: list[int] = []

    @settings(fixed, max_examples=examples)
    @given(traces())
    def compare(events: list[Event]) -> None:
        got = engine_states(events)
        expected = states(events)
        assert_same(events, got, expected)
        for position in got:
            assert (position.images is None) == (position.count > IMAGE_LIMIT)
            assert position.images is None or len(set(position.images)) == len(position.images)
        most_states.append(max(position.count for position in got))

    compare()
    large = sum(count > MANY_STATES for count in most_states)
    assert len(most_states) >= examples
    assert 3 * large >= len(most_states), f"{large} of {len(most_states)} traces have more than {MANY_STATES} states"


def whole(*operations: FileBegin) -> list[Event]:
    return [event for begin in operations for event in (begin, FileEnd(begin))]


def test_births_are_counted_where_images_are_not_listed(engine_states: EngineStates) -> None:
    events = [
        *whole(FileBegin(1, Operation.CREATE, 1, path="f1"), FileBegin(1, Operation.TRUNCATE, 1, offset=192)),
        Store(1, 1, 0, bytes(range(1, 137)), StoreKind.REP),
    ]
    assert states(events)[-1] == Position(5, 256 * 256 * 2, 256 * 256 * 2 - 1, None)
    assert engine_states(events)[-1].born == states(events)[-1].born


def test_a_file_without_a_name_bears_no_states(engine_states: EngineStates) -> None:
    events = whole(
        FileBegin(1, Operation.CREATE, 1, path="f1"),
        FileBegin(1, Operation.UNLINK, 1),
        FileBegin(1, Operation.TRUNCATE, 1, offset=64),
    )
    assert states(events)[-1] == Position(6, 1, 0, [""])
    assert engine_states(events)[-1] == states(events)[-1]


@pytest.fixture(scope="module")
def generated() -> list[list[Event]]:
    found: list[list[Event]] = []

    @fixed
    @given(traces())
    def collect(events: list[Event]) -> None:
        found.append(events)

    collect()
    return found


def are_overlapped(events: list[Event]) -> bool:
    return states(events, with_images=False)[-1].is_bounded


def have_several_sessions(events: list[Event]) -> bool:
    return len({PLACES[thread_of(event)].process for event in events if thread_of(event) != 3}) > 1


def have_a_fork(events: list[Event]) -> bool:
    return {1, 3} <= {thread_of(event) for event in events}


def give_a_name_again(events: list[Event]) -> bool:
    paths = [
        event.begin.path for event in events if isinstance(event, FileEnd) and event.begin.operation is Operation.CREATE
    ]
    return len(set(paths)) < len(paths)


def have_markers(events: list[Event]) -> bool:
    return any(isinstance(event, Marker) for event in events)


def map_again(events: list[Event]) -> bool:
    return any(isinstance(event, Remap) for event in events)


@pytest.mark.parametrize(
    "what", [are_overlapped, have_several_sessions, have_a_fork, give_a_name_again, have_markers, map_again]
)
def test_enough_traces(what: Callable[[list[Event]], bool], generated: list[list[Event]]) -> None:
    share = sum(map(what, generated)) / len(generated)
    assert share >= LEAST_SHARE, f"{share:.0%} of the traces {what.__name__}"


@pytest.mark.parametrize("rule", ["R1", "R3", "R4", "R4-return", "R5", "R6", "R7", "R8", "R9", "R9-begin", "R10"])
def test_a_model_without_a_rule_is_noticed(rule: str, generated: list[list[Event]]) -> None:
    assert any(
        states(events, with_images=False) != states(events, ignore=rule, with_images=False) for events in generated
    ), f"no generated trace needs {rule}"
