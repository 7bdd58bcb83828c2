# SPDX-License-Identifier: Apache-2.0
"""Campaigns with a fake engine and without a tracer: what becomes of events, errors, Ctrl-C and stopped matrices."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import msgspec
import pytest

import samples
from faultline.base.cache import Cache
from faultline.base.config import find_allocator
from faultline.base.errors import BadInputError, FaultlineError, InfrastructureError, InterruptedCampaignError
from faultline.base.pool import run_in_pool
from faultline.campaign import campaign
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.results import CellResult, Results
from faultline.cli.campaigns import run_campaign
from faultline.cli.options import KnownFiles
from faultline.pipeline import explore, prepared
from faultline.pipeline.build import Built
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Stopped
from faultline.pipeline.target import Target
from faultline.pipeline.trace import Trace
from faultline.pipeline.workshop import Workshop
from faultline.study.explanation import Explanation
from faultline.study.witness import Shrunk

MakeEngine = Callable[[dict[str, Any]], Path]


@pytest.fixture(autouse=True)
def no_tracer(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    built = Built(tmp_path / "built", "0123456789abcdef")

    def build_target(_: Workshop, allocator: Any, mutant: str | None, flush: Any, needs_hooks: bool) -> Target:
        return Target(allocator, mutant, flush, built, built, built)

    def trace(_: Workshop, target: Target, workload: Any, **__: Any) -> Trace:
        if workload.name == "smoke":
            raise InfrastructureError("nvm_malloc crashed with SIGSEGV", "its output: log")
        if workload.name == "file":
            raise InfrastructureError("no smaller workload can be traced")
        return Trace(tmp_path / "trace", "ab" * 32, tmp_path / "workload", True, 0.0)

    monkeypatch.setattr(prepared, "build_target", build_target)
    monkeypatch.setattr(prepared, "trace", trace)


@pytest.fixture
def results(tmp_path: Path) -> Results:
    return Results(tmp_path / "results.sqlite")


def workshop(root: Path, cache: Cache, engine: Path) -> Workshop:
    return Workshop(root, cache, Engine(engine))


def run(
    shop: Workshop, results: Results, specs: list[CellSpec], kind: str = "matrix", jobs: int = 1, **options: Any
) -> list[CellResult]:
    return run_cells(shop, results, kind, specs, jobs, SilentWatcher(), **options)


FAILS = {
    "explore": {"print": [samples.PROGRESS, samples.FINDING, samples.CERTIFICATE, samples.done("fail")], "exit": 1}
}
PASSES = {"explore": {"print": [samples.CERTIFICATE, samples.done("pass")]}}


def test_events_become_a_stored_result(root: Path, cache: Cache, fake_engine: MakeEngine, results: Results) -> None:
    [result] = run(workshop(root, cache, fake_engine(FAILS)), results, [samples.spec()])
    assert result.verdict == "fail"
    assert [finding.id for finding in result.findings] == ["FL004-1a2b3c4d"]
    assert result.certificate is not None
    assert result.certificate.recoveries == 4083
    assert results.read() == ("done", [result])


def test_the_engine_is_told_what_the_cell_says(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, tmp_path: Path
) -> None:
    spec = samples.spec(seed=7, mutant="MAGIC_NOT_LAST", expected_rule="FL003", stop_at_rule="FL003", samples=3)
    run(workshop(root, cache, fake_engine(PASSES)), results, [spec])
    config = json.loads((tmp_path / "script.json.config").read_text())
    heap = find_allocator(root, "nvm_malloc").heap
    assert config["version"] == explore.CONFIG_VERSION
    assert config["heap"]["address_hint"] == heap.address
    assert config["heap"]["slots"] == 64
    assert config["contract"]["publish"] == "atomic"
    assert (config["seed"], config["stop_at_rule"], config["limits"]["samples"]) == (7, "FL003", 3)
    assert config["identity"] == {
        "allocator": "nvm_malloc",
        "mutant": "MAGIC_NOT_LAST",
        "build": "0123456789abcdef",
        "workload": "churn",
        "ops": 40,
        "seed": 7,
        "flush": "clwb",
    }
    assert not Path(config["scratch"]).exists()


def test_an_unknown_verdict_is_kept_though_the_engine_ends_with_3(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results
) -> None:
    script = {"explore": {"print": [samples.CERTIFICATE, samples.done("unknown")], "exit": 3, "error": "x"}}
    [result] = run(workshop(root, cache, fake_engine(script)), results, [samples.spec()])
    assert (result.verdict, result.error) == ("unknown", None)


def test_a_cell_that_cannot_run_is_unknown_and_leaves_the_others_alone(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results
) -> None:
    specs = [samples.spec(workload="smoke", ops=0), samples.spec()]
    broken, good = run(workshop(root, cache, fake_engine(PASSES)), results, specs)
    assert (broken.verdict, broken.error, broken.error_code) == ("unknown", "nvm_malloc crashed with SIGSEGV", 3)
    assert good.verdict == "pass"


@pytest.mark.parametrize(
    ("step", "code", "words"),
    [
        (
            {"exit": 2, "error": "faultline-engine: error: t.trace: truncated\nhint: trace again"},
            2,
            "t.trace: truncated",
        ),
        ({"exit": 3, "error": "faultline-engine: error: no memory"}, 3, "no memory"),
        ({"exit": 101, "error": "thread 'main' panicked"}, 3, "panicked"),
        ({"signal": signal.SIGKILL}, 3, "died of SIGKILL"),
        ({"exit": 0}, 3, "exit code 0"),
        ({"print": ["no json"]}, 3, "what is no event: 'no json'"),
        ({"print": ['{"event": "surprise"}']}, 3, "what is no event"),
    ],
)
def test_an_engine_that_fails_gives_no_pass(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, step: dict[str, Any], code: int, words: str
) -> None:
    [result] = run(workshop(root, cache, fake_engine({"explore": step})), results, [samples.spec()])
    assert result.verdict == "unknown"
    assert words in str(result.error)
    assert result.error_code == code


def test_findings_before_an_engine_error_are_kept(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results
) -> None:
    script = {"explore": {"print": [samples.FINDING], "exit": 3, "error": "error: no memory"}}
    [result] = run(workshop(root, cache, fake_engine(script)), results, [samples.spec()])
    assert (result.verdict, len(result.findings), result.error) == ("fail", 1, "no memory")


def test_findings_are_explained_but_those_of_a_matrix_of_mutants(
    root: Path,
    cache: Cache,
    fake_engine: MakeEngine,
    results: Results,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    engine = fake_engine({"explore": {"print": [samples.FINDING, samples.CERTIFICATE, samples.done("fail")]}})
    seconds, shrink = [], campaign.shrink

    def remembered(*arguments: Any) -> Shrunk:
        seconds.append(arguments[2].time_s)
        return shrink(*arguments)

    monkeypatch.setattr(campaign, "shrink", remembered)
    whole = samples.spec(strategy="complete")
    mutant = samples.spec(strategy="complete", mutant="MISSING_FLUSH_LINK", expected_rule="FL004", stop_at_rule="FL004")
    clean, of_matrix, mixed = run(workshop(root, cache, engine), results, [whole, mutant, samples.spec()])
    assert mixed.explanations == []
    assert [trial.outcome for trial in clean.explanations[0].trials] == ["does not help"]
    assert of_matrix.explanations == []
    [alone] = run(workshop(root, cache, engine), results, [mutant], kind="run")
    assert [one.finding for one in alone.explanations] == [samples.FINDING["id"]]
    assert (of_matrix.not_shrunk, list(alone.not_shrunk)) == ({}, [samples.FINDING["id"]]), "nothing can be traced here"
    assert (alone.verdict, alone.error) == ("fail", None), "what was found stays"
    assert seconds == [campaign.SHRUNK_S] * 2, "one alone has no more, too"
    config = json.loads((tmp_path / "script.json.config").read_text())
    assert config["edits"] == samples.FINDING["repairs"][0]["edits"]
    assert config["stop_at_rule"] == samples.FINDING["id"]


@pytest.mark.parametrize("is_shrunk", [True, False])
def test_what_needs_a_second_crash_is_explained_where_it_is_smallest(
    root: Path,
    cache: Cache,
    fake_engine: MakeEngine,
    results: Results,
    monkeypatch: pytest.MonkeyPatch,
    is_shrunk: bool,
) -> None:
    """After it was shrunk; where that failed, by its own token, and what keeps that from being replayed is told."""
    later = {**samples.FINDING, "is_later": True, "earlier": [{"position": 9}] * 2}
    engine = fake_engine({"explore": {"print": [later, samples.CERTIFICATE, samples.done("fail")]}})
    asked, time_s = [], []

    def shrunk(*arguments: Any) -> Shrunk:
        time_s.append(arguments[2].time_s)
        if is_shrunk:
            return samples.shrunk()
        raise FaultlineError("nothing smaller")

    def explained(_: Workshop, token: str, follow_up: bool, *more: Any) -> Explanation:
        asked.append((token, follow_up))
        time_s.append(more[-1])
        if is_shrunk:
            return msgspec.structs.replace(samples.explanation(), crashes=2)
        raise FaultlineError("the trace differs")

    monkeypatch.setattr(campaign, "shrink", shrunk)
    monkeypatch.setattr(campaign, "explain_token", explained)
    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: 1000.0))
    spec = samples.spec(strategy="complete", nested=1, follow_up=False)
    [result] = run(workshop(root, cache, engine), results, [spec])
    assert asked == [("fl1small" if is_shrunk else later["token"], False)]
    assert time_s == [campaign.FOUND_S - campaign.LATER_S, campaign.FOUND_S]
    (told,) = result.explanations
    assert told.operation.startswith("power fails at position 9"), "of the finding, not of its smallest witness"
    if is_shrunk:
        assert f"{samples.REPAIR}; tried in the smallest workload: this finding is gone" in told.repair_text()
        assert told.repair_text().endswith("no other appears after up to 2 crashes"), "the smallest witness has fewer"
    else:
        assert told.repair_text() == "not found: of 1 tried, some could not be explored whole (the trace differs)"


def test_what_is_not_asked_for_is_not_done(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No repair is tried, no smaller witness looked for; which store is lost is said all the same."""
    later = {**samples.FINDING, "id": "FL004-later000", "is_later": True, "earlier": [{"position": 9}] * 2}
    found = [samples.FINDING, later, samples.CERTIFICATE, samples.done("fail")]
    engine = fake_engine({"explore": {"print": found}})

    def never(*_: Any, **__: Any) -> Any:
        raise AssertionError("was asked not to")

    for name in ("explain", "explain_token", "shrink"):
        monkeypatch.setattr(campaign, name, never)
    nothing = campaign.Examining(explains=False, shrinks=False)
    [result] = run(workshop(root, cache, engine), results, [samples.spec(strategy="complete")], examining=nothing)
    assert (result.shrunk, result.not_shrunk) == ([], {})
    assert [[word for word, _ in told.lines()] for told in result.explanations] == [["when", "stores"]] * 2


def test_explaining_has_what_a_time_limit_leaves_and_at_least_a_quarter_of_it() -> None:
    def seconds(limit_s: float | None, taken_s: float) -> float:
        return campaign.found_share(limit_s, taken_s) * campaign.FOUND_S

    assert seconds(None, 500.0) == campaign.FOUND_S
    assert seconds(600.0, 100.0) == campaign.FOUND_S
    assert [seconds(20.0, taken) for taken in (3.0, 15.0, 18.0, 25.0)] == pytest.approx([17.0, 5.0, 5.0, 5.0])


def test_the_findings_of_a_cell_share_the_time_to_explain_and_shrink_them(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What one leaves is the others'; the last one has some, too, when all of it is used up. Of more than three it is said."""
    four = [{**samples.FINDING, "id": f"FL004-0000000{number}", "repairs": []} for number in range(4)]
    engine = fake_engine({"explore": {"print": [*four, samples.CERTIFICATE, samples.done("fail")]}})
    now, given = 1000.0, []

    def taking(explained_s: list[float], shrunk_s: float) -> None:
        def explained(*arguments: Any, budget_s: float, **_: Any) -> Explanation:
            nonlocal now
            given.append(budget_s)
            now += explained_s.pop(0)
            return Explanation(arguments[1].id, "", "", "", [])

        def shrunk(*arguments: Any) -> Shrunk:
            nonlocal now
            given.append(arguments[2].time_s)
            now += shrunk_s
            raise FaultlineError("nothing smaller")

        given.clear()
        monkeypatch.setattr(campaign, "explain", explained)
        monkeypatch.setattr(campaign, "shrink", shrunk)
        [result] = run(workshop(root, cache, engine), results, [samples.spec(strategy="complete")])
        assert (len(result.explanations), len(result.not_shrunk)) == (3, 4)
        assert [result.not_shrunk[one["id"]] == campaign.BEYOND for one in four] == [False, False, False, True]

    monkeypatch.setattr(campaign, "time", SimpleNamespace(monotonic=lambda: now))
    whole, explaining = campaign.FOUND_S, campaign.FOUND_S - campaign.SHRINKING_S
    taking([2.0, 4.0, 8.0], 1.0)
    left = whole - 14.0
    assert given[:3] == pytest.approx([explaining / 3, (explaining - 2) / 2, explaining - 6])
    assert given[3:] == pytest.approx([left / 3, (left - 1) / 2, min(campaign.SHRUNK_S, left - 2)])
    taking([explaining, 3.0, 3.0], campaign.SHRINKING_S)
    assert given[:3] == pytest.approx([explaining / 3, 0.0, 0.0])
    assert given[3:] == pytest.approx(
        [max(campaign.LEAST_SHRUNK_S, (campaign.SHRINKING_S - 6) / 3), *[campaign.LEAST_SHRUNK_S] * 2]
    )


@contextlib.contextmanager
def ctrl_c_while_it_explores(tmp_path: Path) -> Iterator[None]:
    def press_ctrl_c() -> None:
        while not (tmp_path / "script.json.sleeps").exists():
            time.sleep(0.01)
        os.kill(os.getpid(), signal.SIGINT)

    presser = threading.Thread(target=press_ctrl_c)
    presser.start()
    with pytest.raises(InterruptedCampaignError):
        yield
    presser.join()


@pytest.mark.parametrize(("kind", "is_resumed"), [("matrix", False), ("run", True), ("run", False)])
def test_a_stopped_exploration_goes_on_where_it_was(
    root: Path,
    cache: Cache,
    fake_engine: MakeEngine,
    results: Results,
    tmp_path: Path,
    kind: str,
    is_resumed: bool,
) -> None:
    """A matrix by itself, a run when it is asked to."""
    so_far = {**samples.CERTIFICATE, "gaps": [], "stopped": {"position": 40, "why": "interrupted", "left": [[40, 90]]}}
    finding = {**samples.FINDING, "repairs": []}
    engine = fake_engine({"explore": {"print": [finding, so_far], "on_interrupt": []}})
    with ctrl_c_while_it_explores(tmp_path):
        run(workshop(root, cache, engine), results, [samples.spec()], kind=kind)
    seen = {**samples.done("pass"), "seen": {samples.FINDING["id"]: 3}}
    engine = fake_engine({"explore": {"print": [{**samples.CERTIFICATE, "gaps": []}, seen]}})
    [result] = run(workshop(root, cache, engine), results, [samples.spec()], kind=kind, is_resumed=is_resumed)
    config = json.loads((tmp_path / "script.json.config").read_text())
    assert result.certificate is not None
    if kind == "run" and not is_resumed:
        assert (config["left"], result.verdict, result.findings) == ([], "pass", [])
        return
    assert config["left"] == [[40, 90]]
    assert (result.state, result.verdict) == ("done", "fail")
    assert [(finding.id, finding.seen) for finding in result.findings] == [(samples.FINDING["id"], 17 + 3)]
    assert result.certificate.recoveries == 2 * samples.CERTIFICATE["recoveries"]
    assert result.certificate.complete


def test_ctrl_c_keeps_what_was_found_and_what_the_engine_still_says(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, tmp_path: Path
) -> None:
    late = {**samples.FINDING, "id": "FL005-late", "rule": "FL005"}
    engine = fake_engine({"explore": {"print": [samples.FINDING], "on_interrupt": [late]}})
    started = time.monotonic()
    with ctrl_c_while_it_explores(tmp_path):
        run(workshop(root, cache, engine), results, [samples.spec(), samples.spec(seed=2)])
    assert time.monotonic() - started < 30
    state, cells = results.read()
    assert state == "stopped"
    assert [(cell.state, len(cell.findings)) for cell in cells] == [("stopped", 2)]


def test_what_waits_in_a_stopped_pool_never_begins() -> None:
    begun: list[int] = []
    is_ended = threading.Event()

    def run(item: int) -> None:
        begun.append(item)
        if item == 0:
            raise KeyboardInterrupt
        is_ended.wait()

    def stop() -> None:
        is_ended.set()
        time.sleep(0.2)  # long enough for the worker that this made room in to take what waits

    with pytest.raises(KeyboardInterrupt):
        run_in_pool(run, stop, [0, 1, 2], jobs=1)
    assert 2 not in begun


def test_a_stopped_matrix_goes_on_where_it_was(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, monkeypatch: pytest.MonkeyPatch
) -> None:
    shop = workshop(root, cache, fake_engine(PASSES))
    specs = [samples.spec(), samples.spec(seed=2)]
    explored: list[int] = []
    original = campaign.CellRunner._explore

    def explore(self: Any, position: int, *rest: Any) -> None:
        explored.append(position)
        if len(explored) == 2:
            raise KeyboardInterrupt
        original(self, position, *rest)

    monkeypatch.setattr(campaign.CellRunner, "_explore", explore)
    with pytest.raises(InterruptedCampaignError):
        run(shop, results, specs)
    again = run(shop, results, specs)
    assert [result.is_reused for result in again] == [True, False]
    assert explored == [0, 1, 1]
    assert [result.is_reused for result in run(shop, results, specs)] == [False, False]


@pytest.mark.parametrize(
    ("changes", "is_reused"),
    [
        ({}, True),
        ({"verdict": "incomplete"}, False),
        ({"verdict": "unknown"}, False),
        ({"state": "stopped"}, False),
        ({"certificate": samples.certificate(complete=False, stopped=Stopped(17, "40 s limit"))}, False),
        ({"key": "another build"}, False),
    ],
)
def test_a_result_of_before_is_taken_over_where_nothing_changed(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, changes: dict[str, Any], is_reused: bool
) -> None:
    """What a limit ended, or nobody could say, is explored again."""
    shop = workshop(root, cache, fake_engine(FAILS))
    [before] = run(shop, results, [samples.spec()])
    earlier = msgspec.structs.replace(before, **changes)
    [after] = run(shop, results, [samples.spec()], before=[earlier])
    assert after.is_reused == is_reused
    assert [finding.id for finding in after.findings] == [finding.id for finding in before.findings]
    [other] = run(shop, results, [samples.spec(seed=2)], before=[earlier])
    assert not other.is_reused


def test_two_campaigns_in_one_database_do_not_mix(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results, tmp_path: Path
) -> None:
    shop = workshop(root, cache, fake_engine(PASSES))
    first = run(shop, results, [samples.spec()], kind="run")
    other = Results(tmp_path / "results.sqlite")
    second = run(shop, other, [samples.spec(seed=2)], kind="run")
    assert results.read() == ("done", first)
    assert other.read() == Results(tmp_path / "results.sqlite").read() == ("done", second)


def test_jobs_run_at_the_same_time_and_keep_the_order(
    root: Path, cache: Cache, fake_engine: MakeEngine, results: Results
) -> None:
    specs = [samples.spec(seed=seed) for seed in range(6)]
    done = run(workshop(root, cache, fake_engine(PASSES)), results, specs, jobs=3)
    assert [result.spec for result in done] == specs
    assert results.read() == ("done", done)


def test_a_file_that_is_no_database_is_bad_input(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(BadInputError, match="is not a results database"):
        Results(path)
    with pytest.raises(InfrastructureError, match="cannot be written"):
        Results(path / "below a file" / "results.sqlite")


def test_a_missing_engine_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="no engine is there") as caught:
        Engine(tmp_path / "nosuch").ask("--version")
    assert "make setup" in str(caught.value.hint)


def test_ctrl_c_before_a_campaign_begins_is_no_bad_input(
    root: Path, cache: Cache, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: Any, **__: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(campaign, "run_cells", interrupted)
    shop, spec = Workshop(root, cache, Engine()), CellSpec("nvm_malloc", "smoke", 0, 1, "complete", "px86", "clwb")
    with pytest.raises(KeyboardInterrupt):
        run_campaign(shop, "matrix", [spec], 1, tmp_path, False, KnownFiles(None, None, None))
    assert not (tmp_path / "report.html").exists()
