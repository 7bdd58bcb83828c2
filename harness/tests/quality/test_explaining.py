# SPDX-License-Identifier: Apache-2.0
"""What a finding lacks: the flush or fence that a mutant left out is named, and was tried; where none helps, that is said."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import samples
from command_line import Faultline
from faultline.base.errors import InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Done, Event, Finding, Site
from faultline.pipeline.prepared import PreparedCell
from faultline.study import repairs
from faultline.study.explanation import TORN_ADVICE, Explanation, Outcome, RepairTrial, when_text

LATER_MUTANTS = [
    # In what recovery does: the flush is gone; the fence is gone; another order of two stores.
    (
        "nvm_malloc",
        "REPLAY_LINKS_NOT_FLUSHED",
        "clwb after the store at set_links (allocators/nvm_malloc/src/protocol.c:",
    ),
    ("makalu", "REPLAY_NOT_FLUSHED", "clwb after the store at undo (allocators/makalu/src/recover.c:"),
    ("nvmalloc", "RECOVERY_MERGES", "the store at merge_neighbours (allocators/nvmalloc/src/scan.c:"),
]
STORE = {"function": "f", "file": "a.c", "line": 7}
MUTANTS = [
    # The flush is gone, the fence is still there.
    ("nvm_malloc", "MISSING_FLUSH_LINK", "clwb after the store at set_links (allocators/nvm_malloc/src/protocol.c:"),
    # The flush is there, its fence is gone.
    ("nvm_malloc", "MISSING_FENCE_RING", "sfence after the flush at nvm_ring_begin (allocators/nvm_malloc/src/ring.c:"),
]


MORE = "faultline explain --time S gives it more"
PATIENT = ("--time", "600", "--json")
"""A machine that does other things may take long."""


def explained_by_token(faultline: Faultline, token: str) -> dict[str, Any]:
    told = faultline("explain", token, *PATIENT, limit_s=900)
    assert told.returncode == 1, told.stderr
    (explanation,) = json.loads(told.stdout)["explanations"]
    return dict(explanation)


def explained(faultline: Faultline, allocator: str, mutant: str) -> tuple[str, dict[str, Any], str]:
    """Token and explanation of the finding of the mutant's own rule, and its last trial's words."""
    run = faultline("run", allocator, "-w", "churn", "--mutant", mutant, "--json")
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    (finding,) = (found for found in cell["findings"] if found["rule"] == cell["spec"]["expected_rule"])
    (explanation,) = (one for one in cell["explanations"] if one["finding"] == finding["id"])
    return finding["token"], explanation, explanation["trials"][-1]["text"] if explanation["trials"] else ""


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant", "repair"), MUTANTS)
def test_the_missing_instruction_is_named_and_tried(
    faultline: Faultline, allocator: str, mutant: str, repair: str
) -> None:
    token, explanation, _ = explained(faultline, allocator, mutant)
    again = explained_by_token(faultline, token)
    last = again["trials"][-1]
    assert last["text"].startswith(repair)
    assert (last["outcome"], last["is_complete"]) == ("helps", True)
    assert last["recoveries"] > 100, "of the whole trace, not of the one state"
    assert again == explanation or explanation["is_cut"]


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant", "repair"), LATER_MUTANTS)
def test_what_a_recovery_lacks_is_named_and_tried(
    faultline: Faultline, allocator: str, mutant: str, repair: str
) -> None:
    """In the smallest workload, which is a matter of seconds; the token of that workload is explained so, too."""
    run = faultline("run", allocator, "-w", "churn", "--mutant", mutant, "--json")
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    (explanation,), (shrunk,) = cell["explanations"], cell["shrunk"]
    again = explained_by_token(faultline, shrunk["witness"]["token"])
    last = again["trials"][-1]
    assert last["text"].startswith(repair)
    assert (last["outcome"], last["is_complete"]) == ("helps", True)
    if explanation["is_smallest"] and not explanation["is_cut"]:  # the time of a run was enough
        assert again["trials"] == explanation["trials"]
        assert explanation["crashes"] == 2
        assert "again at position" in explanation["operation"]


def finding(repairs: int = 3, **more: Any) -> Finding:
    proposed = [{"text": f"repair {number}", "edits": []} for number in range(repairs)]
    return msgspec.convert({**samples.FINDING, "repairs": proposed, **more}, Finding)


def explain(
    monkeypatch: pytest.MonkeyPatch, outcomes: list[Outcome], found: Finding, budget_s: float = repairs.BUDGET_S
) -> Explanation:
    """With trials that end like this."""
    left = iter(outcomes)

    def one(*arguments: Any) -> tuple[RepairTrial, bool]:
        outcome = next(left)
        others = ["FL010"] if outcome == "helps, others remain" else []
        why = "60 s limit" if outcome == "unknown" else ""
        return RepairTrial(arguments[-2].text, outcome, others, 1234, is_complete=not why, why=why), False

    monkeypatch.setattr(repairs, "_try", one)
    return repairs.explain(samples.cell(), found, budget_s=budget_s)


def test_the_first_that_helps_ends_the_search(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["does not help", "helps"], finding())
    assert [trial.text for trial in told.trials] == ["repair 0", "repair 1"]
    assert told.repair is told.trials[-1]


def test_one_that_leaves_others_is_the_second_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["helps, others remain", "does not help", "does not help"], finding())
    assert told.repair is not None
    assert told.repair.text == "repair 0"
    assert told.repair_text().endswith("complete, but FL010 elsewhere")


def tried_after(
    monkeypatch: pytest.MonkeyPatch, first: list[Outcome], then: list[Outcome], later: list[int]
) -> Explanation:
    """Of a second finding with these of the first one's repairs, or others, and what is tried of them, which ends like `then`."""
    left = iter([*first, *then])

    def one(*arguments: Any) -> tuple[RepairTrial, bool]:
        return RepairTrial(arguments[-2].text, next(left), recoveries=1234, is_complete=True), False

    def proposing(numbers: list[int]) -> Finding:
        repairs = [{"text": f"repair {number}", "edits": [{"edit": "flush", "at": number}]} for number in numbers]
        return msgspec.convert({**samples.FINDING, "repairs": repairs}, Finding)

    monkeypatch.setattr(repairs, "_try", one)
    tried: repairs.Tried = {}
    repairs.explain(samples.cell(), proposing(list(range(len(first)))), tried=tried)
    told = repairs.explain(samples.cell(), proposing(later), tried=tried)
    assert next(left, None) is None, "all that was to be tried was"
    return told


def test_what_helped_another_finding_of_the_cell_is_not_explored_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """It left no finding at all; what did not help there left one. What comes before it and is new is tried."""
    told = tried_after(monkeypatch, ["unknown", "does not help", "helps"], [], [0, 1, 2])
    assert [(trial.text, trial.outcome, trial.recoveries) for trial in told.trials] == [("repair 2", "helps", 1234)]
    told = tried_after(monkeypatch, ["unknown", "helps"], ["does not help"], [0, 7, 1])
    assert [trial.text for trial in told.trials] == ["repair 7", "repair 1"]
    told = tried_after(monkeypatch, ["unknown", "helps"], ["helps"], [7, 1])
    assert [trial.text for trial in told.trials] == ["repair 7"]


def test_what_is_known_to_help_is_told_when_the_time_is_over_before_its_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    now, found = 0.0, finding()
    known = RepairTrial("repair 2", "helps", is_complete=True)
    found.repairs = [msgspec.structs.replace(one, edits=[number]) for number, one in enumerate(found.repairs)]

    def one(*arguments: Any) -> tuple[RepairTrial, bool]:
        nonlocal now
        now += repairs.BUDGET_S
        return RepairTrial(arguments[-2].text, "unknown", why="stopped"), True

    monkeypatch.setattr(repairs, "_try", one)
    monkeypatch.setattr(repairs, "time", SimpleNamespace(monotonic=lambda: now))
    tried = {repairs._key(found.repairs[2]): known}
    told = repairs.explain(samples.cell(), found, tried=tried)
    assert (told.repair, told.is_cut) == (known, False)
    assert [trial.text for trial in told.trials] == ["repair 0", "repair 2"]


def test_what_did_not_help_another_finding_is_tried_again_where_nothing_else_helped(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    told = tried_after(
        monkeypatch, ["does not help", "helps, others remain"], ["helps, others remain", "unknown"], [0, 1]
    )
    assert told.repair is not None
    assert told.repair.text == "repair 0"


def test_an_order_that_breaks_another_rule_is_no_repair(monkeypatch: pytest.MonkeyPatch) -> None:
    """More flushes and fences allow no new state; two stores the other way round do."""
    with_others = [samples.finding(id="FL008-00000000", rule="FL008"), Done("fail", 1)]

    def explored(*arguments: Any, **_: Any) -> None:
        for event in with_others:
            arguments[1](event)

    monkeypatch.setattr(repairs, "explore", explored)
    for edit, outcome in (("move-behind", "breaks others"), ("fence-after", "helps, others remain")):
        suggested = [{"text": "repair", "edits": [{"edit": edit, "sites": []}]}]
        found = msgspec.convert({**samples.FINDING, "lost": None, "repairs": suggested}, Finding)
        told = repairs.explain(samples.cell(), found)
        assert [(trial.outcome, trial.others) for trial in told.trials] == [(outcome, ["FL008"])]
        assert (told.repair is None) == (edit == "move-behind")
        if told.repair is None:
            assert "tried helps without breaking another rule, so what is stored" in told.repair_text()


def test_that_nothing_helps_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    told = explain(monkeypatch, ["does not help"] * 3, finding())
    assert told.repair is None
    assert told.repair_text().startswith(
        "none of the 3 flushes, fences and orders that were tried helps: what is stored"
    )
    unknown = explain(monkeypatch, ["does not help", "unknown", "does not help"], finding())
    assert unknown.repair_text() == "not found: of 3 tried, some could not be explored whole (60 s limit)"


def test_what_was_not_looked_for_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    later = explain(monkeypatch, [], finding(0, is_later=True, lost=None))
    assert later.repair_text().startswith("no flush and no fence: the state has every store of the recovery before, so")
    lost_before = finding(2, is_later=True, lost=None, earlier=[{"position": 4, "lost": {"site": STORE}}])
    first = explain(monkeypatch, ["does not help"] * 2, lost_before)
    assert first.repair_text().startswith("none of the 2 flushes, fences and orders that were tried helps")
    unknown = explain(monkeypatch, [], finding(0))
    assert unknown.repair_text() == "nothing to try: the lost store is at an unknown place"
    whole = explain(monkeypatch, [], finding(0, lost=None))
    assert (
        whole.repair_text()
        == "no flush and no fence: the state has every store, so what is stored, or when, or what recovery makes of it, is wrong"
    )
    moved = explain(monkeypatch, ["does not help"] * 2, finding(2, lost=None))
    assert moved.repair_text().startswith(
        "no flush and no fence: the state has every store, and none of the 2 orders of two stores that were tried helps"
    )
    open_ = explain(monkeypatch, ["does not help", "unknown"], finding(2, lost=None))
    assert open_.repair_text() == "not found: of 2 tried, some could not be explored whole (60 s limit)"
    cut = explain(monkeypatch, [], finding(), budget_s=0.0)
    assert cut.is_cut
    assert cut.repair_text() == f"not found in 0 s: none tried; {MORE}"


@pytest.mark.parametrize("helpful", [0, 1, 2, None])
def test_one_that_takes_long_does_not_keep_another_from_being_tried(
    monkeypatch: pytest.MonkeyPatch, helpful: int | None
) -> None:
    """Of three the first two are not done in their first look; a helpful one is when it has what is left."""
    now, looked = 0.0, []
    first_s = repairs.FIRST_LOOK_S
    left_s = repairs.BUDGET_S - 3 * first_s

    def one(*arguments: Any) -> tuple[RepairTrial, bool]:
        nonlocal now
        repair, limit_s = arguments[-2:]
        number = int(repair.text[-1])
        looked.append((number, limit_s))
        needed_s = first_s if number == 2 else left_s if number == helpful else 1000.0
        now += min(needed_s, limit_s)
        is_stopped = needed_s > limit_s
        outcome: Outcome = "unknown" if is_stopped else "helps" if number == helpful else "does not help"
        return RepairTrial(repair.text, outcome, why="stopped" * is_stopped), is_stopped

    monkeypatch.setattr(repairs, "_try", one)
    monkeypatch.setattr(repairs, "time", SimpleNamespace(monotonic=lambda: now))
    told = repairs.explain(samples.cell(), finding())
    assert looked == [(0, first_s), (1, first_s), (2, first_s)] + [(0, left_s)] * (helpful != 2)
    assert told.is_cut == (helpful in (1, None)), "the first one used up what was left"
    repair = f"repair {helpful}" if helpful in (0, 2) else None
    assert (told.repair.text if told.repair else None) == repair
    assert sorted(trial.text for trial in told.trials) == ["repair 0", "repair 1", "repair 2"]
    if told.is_cut:
        how_far = "repair 0: 0 recoveries, stopped; repair 1: 0 recoveries, stopped"
        assert told.repair_text() == f"not found in 60 s: 3 tried, 2 of them not to the end; {MORE}; {how_far}"


def test_each_of_many_repairs_has_a_share_and_none_is_tried_again_for_less(monkeypatch: pytest.MonkeyPatch) -> None:
    now, looked = 0.0, []

    def one(*arguments: Any) -> tuple[RepairTrial, bool]:
        nonlocal now
        looked.append(arguments[-1])
        now += arguments[-1]
        return RepairTrial(arguments[-2].text, "unknown", why="stopped"), True

    monkeypatch.setattr(repairs, "_try", one)
    monkeypatch.setattr(repairs, "time", SimpleNamespace(monotonic=lambda: now))
    told = repairs.explain(samples.cell(), finding(8))
    assert looked == [pytest.approx(repairs.BUDGET_S / 8)] * 8
    assert (told.is_cut, len(told.trials)) == (True, 8)


CRASH = {"position": 40}
CELL = samples.cell(target=SimpleNamespace(hooked=True), strategy="complete", recovery_limit=5, nested=1)
WHOLE = {**samples.CERTIFICATE, "complete": True, "recoveries": 77}
OTHER = {**samples.FINDING, "id": "FL004-00000000"}


@pytest.mark.parametrize(
    ("events", "outcome", "others"),
    [
        ([samples.FINDING, WHOLE, samples.done("fail")], "does not help", []),
        ([WHOLE, samples.done("pass")], "helps", []),
        ([OTHER, WHOLE, samples.done("fail")], "helps, others remain", ["FL004"]),
        ([WHOLE, samples.done("unknown")], "unknown", []),
        # Before it came to the finding's position: nothing is known.
        (
            [{**WHOLE, "complete": False, "stopped": {"position": 9, "why": "60 s limit"}}, samples.done("pass")],
            "unknown",
            [],
        ),
    ],
)
def test_a_trial_says_what_the_exploration_said(
    monkeypatch: pytest.MonkeyPatch, events: list[dict[str, Any]], outcome: Outcome, others: list[str]
) -> None:
    asked: list[CellSpec] = []

    def explore(cell: PreparedCell, handle: Any, **more: Any) -> None:
        asked.append(cell.spec)
        assert more["more"] == {"edits": [{"edit": "flush-after", "sites": [7]}], "later_edits": [{"edit": "later"}]}
        for event in events:
            handle(msgspec.convert(event, Event))

    monkeypatch.setattr(repairs, "explore", explore)
    for crashes, found in (
        (1, finding(1)),
        (2, finding(1, is_later=True)),
        (3, finding(1, is_later=True, earlier=[CRASH] * 2)),
    ):
        found.repairs[0].edits = [{"edit": "flush-after", "sites": [7]}]
        found.repairs[0].later_edits = [{"edit": "later"}]
        trial, _ = repairs._try(CELL, found, found.repairs[0], 60)
        assert (trial.outcome, trial.others) == (outcome, others)
        spec = asked.pop()
        assert (spec.stop_at_rule, spec.recovery_limit, spec.time_limit_s) == (found.id, None, 60)
        assert spec.nested == crashes - 1, "as often as it takes to see it"


def test_an_engine_that_fails_leaves_the_trial_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    def explore(*_: Any, **__: Any) -> None:
        raise InfrastructureError("no memory")

    monkeypatch.setattr(repairs, "explore", explore)
    found = finding(1)
    trial, _ = repairs._try(CELL, found, found.repairs[0], 60)
    assert (trial.outcome, trial.why) == ("unknown", "no memory")


def test_of_a_later_crash_the_first_one_is_told() -> None:
    """And what follows a recovery has names, not the numbers that keep it apart from the workload."""
    first = {"position": 40, "operation": {"index": 3, "kind": "free", "slot": 2, "pending": True}}
    later = {"index": 2, "generation": 1, "kind": "allocate", "slot": 9, "bytes": 1000, "pending": True}
    found = finding(is_later=True, earlier=[first], position=140, operation=later)
    assert when_text(found) == (
        "power fails at position 40, operation 3: free, slot 2 (pending); again at position 140, "
        "operation 2 after the first recovery: allocate, slot 9, 1000 bytes (pending)"
    )
    lossy = finding(is_later=True, earlier=[{**first, "lost": {"site": STORE}}], position=140, operation=later)
    assert when_text(lossy).startswith(
        "power fails at position 40, operation 3: free, slot 2 (pending), where the store at f (a.c:7) is lost; again at"
    )
    unknown_store = finding(
        is_later=True,
        earlier=[{**first, "lost": {"site": {"function": "", "file": "", "line": 0}}}],
        position=140,
        operation=later,
    )
    assert ", where the store at an unknown place is lost; again" in when_text(unknown_store)
    recovery = {"index": 0, "generation": 1, "kind": "open", "pending": True}
    unknown = finding(is_later=True, position=7, operation=recovery)
    assert when_text(unknown) == "power fails, and again at position 7, the first recovery: open (pending)"


def test_a_write_is_named_with_its_bytes_and_what_is_torn_is_called_so(monkeypatch: pytest.MonkeyPatch) -> None:
    write = {"kind": "write", "site": STORE, "file": "heap", "offset": 64, "bytes": 24, "held": [[0, 8], [16, 24]]}
    sites = [STORE, {**STORE, "line": 9}]
    told = explain(monkeypatch, ["helps"], finding(lost=write, there="write", sites=sites))
    assert told.lines()[1][1].startswith(
        "torn (only bytes 0 to 7 and 16 to 23 persisted): the write of 24 bytes to heap + 0x40 at f (a.c:7); persisted: the write"
        " at f (a.c:9)"
    )
    whole = explain(monkeypatch, [], finding(0, lost=None, there="write"))
    assert whole.lines()[1][1].startswith("every store is persisted; the last write is at nvm_activate")
    earlier = finding(is_later=True, earlier=[{"position": 40, "lost": write}])
    assert (
        "where the write of 24 bytes to heap + 0x40 at f (a.c:7) is torn (only bytes 0 to 7 and 16 to 23 persisted); again at"
        in when_text(earlier)
    )


def test_three_lines_say_when_what_and_how(monkeypatch: pytest.MonkeyPatch) -> None:
    reading = explain(monkeypatch, ["helps"], finding(read=samples.site("replay_ring", 7)))
    assert reading.lines()[1][1].endswith("; recovery read it at replay_ring (allocators/x/src/activate.c:7)")
    place = {"at": samples.site("replay_ring", 7), "callers": [samples.site("nvm_open", 9)], "touched": "address 0x18"}
    dying = finding(died=place)
    places = [samples.site("replay_ring", line) for line in range(1, 6)]
    told = [f"replay_ring (allocators/x/src/activate.c:{line})" for line in range(1, 6)]
    for count, words in [
        (0, "nothing"),
        (1, f"at {told[0]}"),
        (2, f"at {told[0]} and at {told[1]}"),
        (4, f"at {told[0]}, at {told[1]}, at {told[2]} and at 1 more place"),
        (5, f"at {told[0]}, at {told[1]}, at {told[2]} and at 2 more places"),
    ]:
        storing = finding(stored=places[:count])
        assert explain(monkeypatch, ["helps"], storing).lines()[1][1].endswith(f"; recovery stores {words}")
        listed = [path for role, path in storing.call_paths() if role.startswith("recovery stores")]
        assert listed == (told[:count] or ["nothing"])
    nowhere = finding(stored=[Site("")])
    assert explain(monkeypatch, ["helps"], nowhere).lines()[1][1].endswith("; recovery stores at an unknown place")
    assert ("recovery stores at", "an unknown place") in nowhere.call_paths()
    assert (
        explain(monkeypatch, ["helps"], dying)
        .lines()[1][1]
        .endswith("; it died at replay_ring (allocators/x/src/activate.c:7), touching address 0x18")
    )
    called = "replay_ring (allocators/x/src/activate.c:7) < nvm_open (allocators/x/src/activate.c:9)"
    assert dying.call_paths()[-1] == ("recovery died at", called)
    hanging = finding(died={**place, "touched": "", "hung": "5 s asleep"})
    assert (
        explain(monkeypatch, ["helps"], hanging)
        .lines()[1][1]
        .endswith("; it hung at replay_ring (allocators/x/src/activate.c:7), after 5 s asleep")
    )
    assert hanging.call_paths()[-1] == ("recovery hung at", called)
    told = explain(monkeypatch, ["helps"], finding())
    assert told.lines() == [
        ("when", "power fails at position 123, operation 4: allocate, slot 3, 128 bytes (returned)"),
        ("stores", "lost: the store at nvm_activate (allocators/x/src/activate.c:12)"),
        (
            "repair",
            "repair 0; tried: this finding is gone, 1,234 recoveries, complete, and no other appears after one crash",
        ),
    ]


def test_a_torn_store_that_no_flush_mends_gets_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    torn = {"kind": "store", "site": STORE, "file": "heap", "offset": 64, "bytes": 16, "held": [[8, 16]]}
    told = explain(monkeypatch, ["does not help"], finding(1, lost=torn, sites=[STORE]))
    assert told.lines()[1][1].startswith("torn (only bytes 8 to 15 persisted): the store of 16 bytes at f (a.c:7)")
    assert told.repair_text().startswith("repair 0: tried, and does not help")
    assert told.repair_text().endswith(f". Advice: {TORN_ADVICE}")
    assert finding(lost=torn).headline.endswith("; a store is torn")
    many = {**torn, "bytes": 4096, "held": [[16 * run, 16 * run + 8] for run in range(5)]}
    first_runs = "torn (only bytes 0 to 7 and 16 to 23 and 32 to 39 and 2 more runs persisted): the store of 4096 bytes"
    assert explain(monkeypatch, ["helps"], finding(1, lost=many)).lines()[1][1].startswith(first_runs)
    mended = explain(monkeypatch, ["helps"], finding(1, lost=torn, sites=[STORE]))
    assert "Advice" not in mended.repair_text()
    lost = explain(monkeypatch, ["does not help"], finding(1, lost={**torn, "held": []}, sites=[STORE]))
    assert "Advice" not in lost.repair_text()
    assert lost.lines()[1][1].startswith("lost: the store at f (a.c:7)")
