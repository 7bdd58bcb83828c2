# SPDX-License-Identifier: Apache-2.0
"""Campaigns: runs cells (build, trace, explore, explain and shrink), several at a time.

A clean cell never stops early; a mutant's cell stops at its expected rule. Cells are independent: an error in one makes that one
unknown and leaves the others alone. Results are written at once. A stopped matrix goes on where it was: a cell is taken from the
stopped campaign if its key, which covers everything that its result is a function of, is the same there."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import msgspec

from faultline.base.cache import key_of
from faultline.base.errors import FaultlineError, InterruptedCampaignError
from faultline.base.pool import run_in_pool
from faultline.base.processes import interrupt_all
from faultline.campaign.known import KnownFindings, is_stopped
from faultline.campaign.results import CellResult, Results
from faultline.campaign.resume import as_it_ran, joined, joined_verdict
from faultline.pipeline import environment
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Part
from faultline.pipeline.events import Certificate, Done, Event, Finding, Progress, TraceRules
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, build_cell, find_workload, trace_cell
from faultline.pipeline.rehearsal import FailsWithoutCrashError
from faultline.pipeline.workshop import Workshop
from faultline.study import kill_rates
from faultline.study.explanation import RepairTrial
from faultline.study.repairs import Tried, described, explain, proved, stopped
from faultline.study.replay import explain_token
from faultline.study.shrink import Budget, shrink

EXPLAINED = 3
"""So many findings of a cell are explained and shrunk, the first ones: they say most."""
BEYOND = f"nor explained: that is done for the first {EXPLAINED} findings of a cell; faultline explain and shrink take its token"
"""Said of the findings after them."""
BEYOND_SHRUNK = f"that is done for the first {EXPLAINED} findings of a cell; faultline shrink takes its token"
"""The same, where the exploration itself explained them."""
NOT_EXPLAINED = (
    "nor explained: that is done where complete explores under px86; faultline explain and shrink take its token"
)
FOUND_S = 35.0
"""Time for explaining and shrinking the findings of a cell, all together: a run ends within a minute if exploring takes the
rest of it. The output names what this limit cut short. `faultline explain` and `faultline shrink` give one finding more time."""
SHRINKING_S = 12.0
"""The part of FOUND_S that is kept for shrinking."""
LATER_S = 10.0
"""The part of FOUND_S that is kept for the repairs of findings that need a second crash."""
SHRUNK_S = 30.0
"""Most time for shrinking one finding."""
LEAST_SHRUNK_S = 4.0
"""Least time for shrinking one finding, however late it is: the smallest crash state of the whole workload takes a second."""


@dataclass(frozen=True)
class Examining:
    """What is done with findings: repairs are tried, smaller witnesses are looked for."""

    explains: bool = True
    shrinks: bool = True


EXAMINING_ALL = Examining()


def found_share(limit_s: float | None, taken_s: float) -> float:
    """The part of FOUND_S that a cell has, of whose time limit so much was taken: what is left, at least a quarter of the limit."""
    if limit_s is None:
        return 1.0
    return min(FOUND_S, max(limit_s - taken_s, limit_s / 4)) / FOUND_S


class CampaignWatcher(Protocol):
    """Hears how a campaign goes on; called from worker threads."""

    def cell_begins(self, position: int, spec: CellSpec, step: str) -> None: ...

    def nothing_to_resume(self, spec: CellSpec) -> None:
        """It was asked to go on, and begins at its start."""

    def cell_progress(self, position: int, progress: Progress) -> None: ...

    def cell_ends(self, position: int, result: CellResult) -> None: ...


class SilentWatcher:
    def cell_begins(self, position: int, spec: CellSpec, step: str) -> None:
        pass

    def nothing_to_resume(self, spec: CellSpec) -> None:
        pass

    def cell_progress(self, position: int, progress: Progress) -> None:
        pass

    def cell_ends(self, position: int, result: CellResult) -> None:
        pass


@dataclass(frozen=True)
class Order:
    """What a crew runs. key: of the campaign, on this machine and in this database; earlier: of a position, what a stopped campaign
    left of it; before: results that may be taken over, by key; begins and keep: to be called when a cell begins somewhere, and with
    its result."""

    workshop: Workshop
    key: str
    specs: list[CellSpec]
    known: KnownFindings
    earlier: Callable[[int], CellResult | None]
    before: Mapping[str, CellResult]
    begins: Callable[[int, str], None]
    keep: Callable[[int, CellResult], None]


class Crew(Protocol):
    """Others than this process, who run its cells."""

    def fact(self) -> str:
        """For the report."""

    def run(self, order: Order) -> list[CellResult]:
        """All cells, in order. After Ctrl-C what ran is ended, and what it found is kept, before KeyboardInterrupt goes on."""


class _StoppedError(Exception):
    """Ctrl-C, as a cell's worker thread sees it at its next step."""


def run_cells(
    workshop: Workshop,
    results: Results,
    kind: str,
    specs: list[CellSpec],
    jobs: int,
    watcher: CampaignWatcher,
    is_resumed: bool = False,
    known: KnownFindings | None = None,
    examining: Examining = EXAMINING_ALL,
    part: Part | None = None,
    before: Iterable[CellResult] = (),
    crew: Crew | None = None,
) -> list[CellResult]:
    """All cells, `jobs` at a time, results in the order of specs.

    is_resumed: explorations that were stopped go on where they were, as those of an unfinished matrix do. known: findings that do
    not fail. part: which shard of a matrix they are. before: results of which those are taken over that have a verdict and the key
    of a cell here: nothing that they are a function of has changed. crew: who runs the cells; None: this process. Raises
    InterruptedCampaignError after Ctrl-C, when everything that was found so far has been written.
    """
    key = key_of(kind, *(msgspec.json.encode(spec) for spec in specs))
    unfinished = results.unfinished(kind, key)
    where = environment.describe(workshop, {spec.allocator for spec in specs})
    where.part = part
    if crew is not None:
        where.facts["cluster"] = crew.fact()
    campaign = results.begin(kind, key, specs, where)
    is_asked = is_resumed
    is_resumed |= kind == "matrix" and unfinished is not None
    whole = {result.key: result for result in before if _is_whole(result)}
    runner = CellRunner(
        workshop, results, campaign, unfinished, watcher, is_resumed, is_asked, kind, known, examining, whole
    )
    state: Any = "stopped"
    try:
        if crew is None:
            done = run_in_pool(lambda cell: runner.run(*cell), runner.stop, list(enumerate(specs)), jobs)
        else:
            done = crew.run(_order_of(runner, key, specs))
        state = "done"
    except KeyboardInterrupt:
        raise InterruptedCampaignError(
            f"interrupted; what was found so far is in {results.path}",
            "the same command goes on where it stopped" + ("" if kind == "matrix" else " with --resume"),
        ) from None
    finally:
        results.end(campaign, state)
    return done


def _order_of(runner: CellRunner, key: str, specs: list[CellSpec]) -> Order:
    def earlier(position: int) -> CellResult | None:
        return runner.results.left_of(key, specs[position]) if runner.is_resumed else None

    def begins(position: int, step: str) -> None:
        runner.watcher.cell_begins(position, specs[position], step)

    own = key_of(key, socket.gethostname(), str(runner.results.path.absolute()))
    return Order(runner.workshop, own, specs, runner.known, earlier, runner.before, begins, runner.keep)


def _is_whole(result: CellResult) -> bool:
    """It can be taken over: what a limit ended, or nobody could say, is explored again."""
    return result.state == "done" and result.verdict in ("pass", "fail") and not is_stopped(result)


# ---- one cell ------------------------------------------------------------------------------------------------------------


class CellRunner:
    """Runs the cells of one campaign, or keeps what others found of them; run may be called from several threads."""

    def __init__(
        self,
        workshop: Workshop,
        results: Results,
        campaign: int,
        unfinished: int | None,
        watcher: CampaignWatcher,
        is_resumed: bool,
        is_asked: bool,
        kind: str,
        known: KnownFindings | None,
        examining: Examining,
        before: Mapping[str, CellResult],
    ) -> None:
        """before: results that may be taken over, by key."""
        self.examining = examining
        self.before = before
        self.workshop = workshop
        self.known = known or KnownFindings()
        self.results = results
        self.campaign = campaign
        self.unfinished = unfinished
        self.watcher = watcher
        self.is_resumed = is_resumed
        self.kind = kind
        self.is_asked = is_asked
        self._is_stopped = threading.Event()

    def stop(self) -> None:
        self._is_stopped.set()
        interrupt_all()

    def explains(self, spec: CellSpec) -> bool:
        """Of the many mutants of a matrix nobody asks what they lack; what other strategies than complete see proves no repair."""
        is_asked = self.kind == "run" or spec.mutant is None
        return is_asked and spec.model == "px86" and spec.strategy == "complete"

    def run(self, position: int, spec: CellSpec) -> CellResult:
        result = CellResult(spec)
        try:
            self._run_steps(position, result)
        except _StoppedError:
            self._note_stopped(result)
        except FailsWithoutCrashError as failure:
            result.verdict, result.findings = "fail", [failure.finding]
            result.certificate = failure.certificate()
            self.results.finding(self.campaign, position, failure.finding)
        except FaultlineError as error:
            if self._is_stopped.is_set():  # its child was interrupted: the error is ours, not the cell's
                self._note_stopped(result)
            else:
                result.error, result.hint, result.error_code = error.message, error.hint, error.exit_code
        if result.state == "stopped" or result.error is not None:
            result.verdict = "fail" if result.findings else "unknown"
        self.known.mark(result)
        self.results.cell(self.campaign, position, result)
        self.watcher.cell_ends(position, result)
        return result

    def keep(self, position: int, result: CellResult) -> None:
        """What was found elsewhere."""
        for finding in result.findings:
            self.results.finding(self.campaign, position, finding)
        self.known.mark(result)
        self.results.cell(self.campaign, position, result)
        self.watcher.cell_ends(position, result)

    def _note_stopped(self, result: CellResult) -> None:
        """What can be said of findings without trying repairs is said."""
        result.state = "stopped"
        if self.explains(result.spec):
            known = {explained.finding for explained in result.explanations}
            findings = [finding for finding in self._explained(result) if finding.id not in known]
            result.explanations += [stopped(finding, result.certificate) for finding in findings]

    def _run_steps(self, position: int, result: CellResult) -> None:
        spec, workshop = result.spec, self.workshop
        self._check_stop()
        self.watcher.cell_begins(position, spec, "build")
        started = time.monotonic()
        workload = find_workload(workshop, spec)
        target = build_cell(workshop, spec)
        result.build, result.build_s = target.build, _since(started)
        result.recovered_by = target.allocator.heap.upgrade or ""
        if spec.mutant is None:
            result.kill_rate = kill_rates.find(workshop.cache, kill_rates.build_key(workshop, target))
        self._check_stop()
        self.watcher.cell_begins(position, spec, "trace")
        begun = time.monotonic()
        cell = trace_cell(workshop, spec, target, workload, limit_s=spec.time_limit_s)
        result.trace_hash, result.trace_s = cell.trace.hash, round(cell.trace.time_s, 3)
        result.key = cell.key()
        if not self._take_over(result):
            self._check_stop()
            self.watcher.cell_begins(position, spec, "explore")
            left_s = None if spec.time_limit_s is None else max(0.0, begun + spec.time_limit_s - time.monotonic())
            self._explore(position, result, cell.with_spec(time_limit_s=left_s))
            if result.certificate is not None and not result.certificate.fallback:
                cell = as_it_ran(cell, result.certificate)
            self.known.mark(result)
            if self.explains(spec):
                share = found_share(spec.time_limit_s, time.monotonic() - begun)
                deadline = time.monotonic() + FOUND_S * share
                self._explain(position, result, cell, deadline - SHRINKING_S * share)
                has_later = any(finding.is_later for finding in self._explained(result))
                least_s = LEAST_SHRUNK_S * share
                self._shrink(position, result, cell, deadline - LATER_S * share * has_later, least_s)
                self._explain_later(position, result, deadline)
            elif self.kind == "run" or spec.mutant is None:
                crashed = (finding for finding in result.findings if finding.needs_crash)
                result.not_shrunk.update({finding.id: NOT_EXPLAINED for finding in crashed})

    def _check_stop(self) -> None:
        if self._is_stopped.is_set():
            raise _StoppedError

    def _take_over(self, result: CellResult) -> bool:
        earlier = None if self.unfinished is None else self.results.done_cell(self.unfinished, result.key)
        earlier = earlier or self.before.get(result.key)
        if earlier is None:
            return False
        result.verdict, result.findings, result.certificate = earlier.verdict, earlier.findings, earlier.certificate
        result.trace_rules, result.explore_s, result.is_reused = earlier.trace_rules, earlier.explore_s, True
        result.explanations = earlier.explanations
        result.shrunk, result.not_shrunk = earlier.shrunk, earlier.not_shrunk
        return True

    def _explore(self, position: int, result: CellResult, cell: PreparedCell) -> None:
        started = time.monotonic()
        earlier = self._earlier_part(position, result)
        seen_earlier = {finding.id: finding.seen for finding in result.findings}

        def handle(event: Event) -> None:
            match event:
                case Progress():
                    self.watcher.cell_progress(position, event)
                case Finding():
                    if event.id not in seen_earlier:
                        result.findings.append(event)
                        self.results.finding(self.campaign, position, event)
                case TraceRules():
                    result.trace_rules = event
                case Certificate():
                    result.certificate = joined(earlier, event) if earlier else event
                    self._keep_so_far(position, result)
                case Done():
                    self._note_seen(position, result, event, seen_earlier)

        left = earlier.stopped.left if earlier and earlier.stopped else []
        if earlier is not None:
            cell = as_it_ran(cell, earlier)
        more = {"looks_behind": _looks_behind(result.spec), "shares_budget": True, "left": left}
        result.verdict = explore(cell, handle, jobs=self.workshop.explore_jobs, more=more)
        if earlier is not None:
            result.verdict = joined_verdict(result.findings, earlier, result.verdict)
        self._check_stop()
        result.explore_s = _since(started)

    def _explain(self, position: int, result: CellResult, cell: PreparedCell, deadline: float) -> None:
        """Those of one crash. Ctrl-C ends it and leaves the cell done."""
        say = self._sayer(position, result, "try ")
        tried: Tried = {}
        findings = []
        for finding in self._by_interest(result):
            explained = proved(finding, result.findings, result.certificate)
            if explained is not None:
                result.explanations.append(explained)
            elif not self.examining.explains:
                result.explanations.append(msgspec.structs.replace(described(finding), is_asked=False))
            elif not finding.is_later and finding in self._explained(result):
                findings.append(finding)
        with contextlib.suppress(_StoppedError):
            for finding, budget_s in _shared(findings, deadline):
                explained = explain(cell, finding, say, tried=tried, budget_s=budget_s)
                self._check_stop()  # else what was tried last ended for that reason
                result.explanations.append(explained)

    def _explain_later(self, position: int, result: CellResult, deadline: float) -> None:
        """Those of several crashes, in the smallest workloads that show them: all second crashes of a long one take minutes. Ctrl-C
        ends it and leaves the cell done."""
        say = self._sayer(position, result, "try ")
        later = self._explained(result) if self.examining.explains else []
        findings = [finding for finding in later if finding.is_later]
        with contextlib.suppress(_StoppedError):
            for finding, budget_s in _shared(findings, deadline):
                shrunk = result.shrunk_of(finding)
                token = shrunk.witness.token if shrunk else finding.token
                follow_up = result.spec.follow_up
                try:
                    tried = explain_token(self.workshop, token, follow_up, say, budget_s)
                except FaultlineError as error:
                    self._check_stop()  # else it ended for that reason
                    tried = described(finding)
                    tried.trials = [RepairTrial("the replay of its witness", "unknown", why=error.message)]
                self._check_stop()  # else what was tried last ended for that reason
                result.explanations.append(described(finding, tried, is_smallest=token != finding.token))

    def _sayer(self, position: int, result: CellResult, what: str) -> Callable[[str], None]:
        def say(text: str) -> None:
            self._check_stop()
            self.watcher.cell_begins(position, result.spec, f"{what}{text}")

        return say

    def _shrink(self, position: int, result: CellResult, cell: PreparedCell, deadline: float, least_s: float) -> None:
        """least_s: for one finding, however late it is. Ctrl-C ends it and leaves the cell done."""
        if not self.examining.shrinks:
            return
        say = self._sayer(position, result, "shrink: ")
        with contextlib.suppress(_StoppedError):
            for finding in self._by_interest(result)[EXPLAINED:]:
                is_explained = result.explanation_of(finding) is not None
                result.not_shrunk[finding.id] = BEYOND_SHRUNK if is_explained else BEYOND
            for finding, share_s in _shared(self._explained(result), deadline):
                budget = Budget(max(least_s, min(SHRUNK_S, share_s)))
                nested = result.spec.nested if finding.is_later else 0
                try:
                    result.shrunk.append(shrink(cell.with_spec(nested=nested), finding, budget, say))
                except FaultlineError as error:
                    self._check_stop()  # else it ended for that reason
                    result.not_shrunk[finding.id] = error.message

    @classmethod
    def _explained(cls, result: CellResult) -> list[Finding]:
        """And shrunk."""
        return cls._by_interest(result)[:EXPLAINED]

    @staticmethod
    def _by_interest(result: CellResult) -> list[Finding]:
        """The expected rule first: it is what a mutant is there to show. What needs no crash has no flush to add and no state to
        shrink."""
        expected = result.spec.expected_rule
        crashed = (finding for finding in result.new_findings if finding.needs_crash)
        return sorted(crashed, key=lambda finding: finding.rule != expected)

    def _keep_so_far(self, position: int, result: CellResult) -> None:
        """If we are killed, an exploration can go on from its last certificate."""
        so_far = msgspec.structs.replace(result, state="stopped", verdict="fail" if result.findings else "unknown")
        self.results.cell(self.campaign, position, so_far)

    def _note_seen(self, position: int, result: CellResult, done: Done, seen_earlier: dict[str, int]) -> None:
        for finding in result.findings:
            before = seen_earlier.get(finding.id, 0)
            finding.seen = before + done.seen.get(finding.id, 0 if before else finding.seen)
            self.results.finding(self.campaign, position, finding)

    def _earlier_part(self, position: int, result: CellResult) -> Certificate | None:
        """What an exploration of this cell that was stopped covered; its findings are ours."""
        earlier = self.results.stopped_cell(result.key) if self.is_resumed else None
        if earlier is None:
            if self.is_asked:
                self.watcher.nothing_to_resume(result.spec)
            return None
        result.findings, result.certificate = earlier.findings, earlier.certificate
        for finding in result.findings:
            self.results.finding(self.campaign, position, finding)
        return earlier.certificate


def _looks_behind(spec: CellSpec) -> bool:
    """Whether the exploration goes on as if what it finds were repaired: where flushes and fences matter, and no finding ends
    it. What second crashes show may need repairs of recoveries, which are not taken for made."""
    return spec.strategy == "complete" and spec.model == "px86" and spec.nested == 0 and spec.stop_at_rule is None


def _shared(findings: Sequence[Finding], deadline: float) -> Iterator[tuple[Finding, float]]:
    """Each finding with its share of the time, which is asked for when it is its turn: what one leaves is the others'."""
    for place, finding in enumerate(findings):
        yield finding, max(0.0, deadline - time.monotonic()) / (len(findings) - place)


def _since(started: float) -> float:
    return round(time.monotonic() - started, 3)
