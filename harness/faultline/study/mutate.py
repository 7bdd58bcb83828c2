# SPDX-License-Identifier: Apache-2.0
"""`faultline mutate`: takes every place that flushes or fences out of the trace in turn, and explores what is left by `complete`.

Fates. A place is killed when exploring without it gives a finding. It is redundant when complete explorations prove that recovery
shows no heap without it that it does not show with it (contents apart): after one crash of each workload, and after a second crash
of the workloads that the matrix runs with second crashes in what follows recoveries, too (a limit may end some of these, not all).
If the matrix runs no such workload that comes to the place, one is chosen: the one with the fewest recoveries after one crash, of
those whose own opens run the place, else of all. What is neither killed nor redundant is a blind spot of the contract, the oracle
or the workloads.

Limits. Without a place there may be more crash states than a limit allows, because undecided lines multiply. A generated workload
that a limit ends is tried with half as many operations, then a quarter and so on, as long as it comes to the place. The output says
so.

Recoveries. Recovery from a crash may run places that no clean open runs. They are found by exploring all second crashes that the
matrix explores. They are taken out of recoveries of the workloads that the matrix runs with second crashes in what follows
recoveries, too; if these do not come to a place, in recoveries alone.

Several at once. Nothing is built again: a flush changes which stores are guaranteed, not which stores are made. Fewer flushes and
fences guarantee less, so every state that is reachable without one place is reachable without that place and others (a test of
edit.rs). If exploring without several places shows nothing new, exploring without one of them shows nothing new. So the places that
survived a workload are taken out of the next one all at once. Only if that shows something are they tried in halves, down to single
places.

The engine skips the crash positions at which power failure leaves the same states with the place as without it.

Known findings. An allocator that is not clean yet is tried with the ids of its findings. They kill nothing. What recovery shows is
compared as ever, also where a known finding is what it shows, so a place may be redundant. Where recovery shows a new heap and only
known findings, they may be all that minds it: the place is unknown. So it is with a known finding of contents, which are not
compared.

Trials are kept in the cache: a mutate that was stopped goes on where it was."""

from __future__ import annotations

import itertools
import math
import shutil
import tempfile
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Protocol

import msgspec

from faultline.base.cache import key_of, scratch_folder
from faultline.base.errors import BadInputError, InterruptedCampaignError
from faultline.base.pool import run_in_pool
from faultline.base.processes import interrupt_all
from faultline.base.text import count
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Certificate, Done, Event, Finding, NewOutcome, Outcomes, Place, Site, Verdict
from faultline.pipeline.explore import explore, write_config
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.pipeline.workshop import Workshop
from faultline.study import kill_rates
from faultline.study.kill_rates import KillRate
from faultline.workload import catalogue

Fate = Literal["killed", "redundant", "blind spot", "unknown"]

TOGETHER_RECOVERIES = 3
"""Most recoveries of an exploration without several places, as a multiple of those with all places. Beyond it the places are tried
in halves. The choices that each place leaves to recovery multiply: without nineteen places, one workload of nvm_malloc took twenty
minutes and was not done."""


CONTENTS_RULE = "FL009-"
"""Of ids: bytes of an object, which no outcome has."""


class _Places(msgspec.Struct):
    """What `faultline-engine places` prints. events: of the whole trace."""

    events: int
    places: list[Place]


class PlaceTrial(msgspec.Struct):
    """One workload explored without the place. together: places that were taken out at once, this one among them; nested: crashes
    after the first one; new_outcomes: pairs of expected heap and heap report that recoveries show only then; first_new: a crash
    state that shows the first of them; later_places: of the workload as it is, with crashes after the first; why: what keeps the
    exploration from being complete; is_only_incomplete: that alone, for `complete` did not explore every state and had nothing
    against those that it did; instead_of: the same workload with more operations, and the limit that ended it; known: ids of
    known findings that it shows."""

    workload: str
    count: int
    verdict: Verdict
    rules: list[str] = []
    message: str = ""
    is_complete: bool = False
    why: str = ""
    is_only_incomplete: bool = False
    new_outcomes: int = 0
    first_new: NewOutcome | None = None
    later_places: list[Place] = []
    recoveries: int = 0
    time_s: float = 0.0
    in_recovery: int = 0
    nested: int = 0
    together: int = 1
    instead_of: str = ""
    known: list[str] = []

    @property
    def is_silent(self) -> bool:
        """Whether a complete exploration found nothing that tells the loss."""
        return self.verdict == "pass" and self.is_complete and not self.new_outcomes

    @property
    def is_cut(self) -> bool:
        """Whether it proves nothing: it was not killed, and not seen whole."""
        return self.verdict != "fail" and not (self.verdict == "pass" and self.is_complete)


class PlaceResult(msgspec.Struct):
    """All trials of a place; the last one is that which killed it, if one did."""

    name: str
    kind: str
    site: Site
    trials: list[PlaceTrial]

    @property
    def fate(self) -> Fate:
        if any(trial.verdict == "fail" for trial in self.trials):
            return "killed"
        if any(trial.is_cut and not (trial.nested and trial.is_only_incomplete) for trial in self.trials):
            return "unknown"
        whole = [trial for trial in self.trials if not trial.is_cut]
        if any(trial.new_outcomes for trial in whole):
            return "blind spot"
        if any(trial.new_outcomes for trial in self.trials):
            return "unknown"
        return "redundant" if any(trial.nested for trial in whole) else "unknown"

    @property
    def is_silent(self) -> bool:
        """Whether complete explorations found nothing that tells its loss."""
        return all(trial.is_silent for trial in self.trials)

    def why_unknown(self) -> str:
        """What keeps it from being proved."""
        all_cut = [trial for trial in self.trials if trial.is_cut]
        cut = min(all_cut, key=lambda trial: trial.nested and trial.is_only_incomplete, default=None)
        return (
            f"{cut.workload}{', second crash' * bool(cut.nested)}: {cut.why or 'its verdict is unknown'}" if cut else ""
        )

    @property
    def recoveries(self) -> int:
        return sum(trial.recoveries for trial in self.trials)

    @property
    def count(self) -> int:
        """Executions in all trials; none of what only a recovery from a crash comes to."""
        return sum(trial.count for trial in self.trials)


class Mutation(msgspec.Struct):
    """Of an allocator: the fate of each place that its workloads come to."""

    allocator: str
    workloads: list[str]
    places: list[PlaceResult]
    builds: list[str] = []
    """Keys of what was explored (kill_rates.build_key): one a flush instruction."""
    known: list[str] = []
    """Ids of findings that kill nothing."""

    def count(self, fate: Fate) -> int:
        return sum(place.fate == fate for place in self.places)

    def kill_rate(self) -> KillRate:
        return KillRate(
            self.allocator,
            self.workloads,
            len(self.places),
            killed=self.count("killed"),
            redundant=self.count("redundant"),
            blind=self.count("blind spot"),
            unknown=self.count("unknown"),
            shortened=sum(any(trial.instead_of for trial in place.trials) for place in self.places),
        )

    def line(self) -> str:
        """The last line that `mutate` prints."""
        fates: dict[str, Fate] = {
            "killed": "killed",
            "redundant": "redundant",
            "blind": "blind spot",
            "unknown": "unknown",
        }
        counts = " ".join(f"{name}={self.count(fate)}" for name, fate in fates.items())
        return f"summary: places={len(self.places)} {counts} kill_rate={self.kill_rate().share:.1%}"


class MutationWatcher(Protocol):
    """Hears how it goes on; called from worker threads."""

    def begins(self, step: str, total: int) -> None: ...

    def ends(self, text: str) -> None: ...


@dataclass(frozen=True)
class _TracedWorkload:
    """A workload of the allocator as it is: its trace, and its outcomes, in files by crashes after the first, that others are
    compared with. spec.nested says only whether the matrix runs it with second crashes in what follows
    recoveries, too: they cost some a hundred times as much."""

    cell: PreparedCell
    places: dict[str, Place]
    outcomes: Path
    whole: dict[int, PlaceTrial]
    """By crashes after the first."""
    guard: threading.Lock
    """Of whole: one explores it, and the others wait."""

    @property
    def spec(self) -> CellSpec:
        return self.cell.spec

    @property
    def later_places(self) -> dict[str, Place]:
        """Those that only a recovery from a crash comes to, and what follows it; none before it was explored."""
        found = self.whole[1].later_places if 1 in self.whole else []
        return {place.name: place for place in found if place.name not in self.places}

    def place(self, name: str) -> Place:
        return self.places.get(name) or self.later_places[name]

    def comes_to(self, name: str) -> bool:
        return name in self.places or name in self.later_places

    def outcomes_after(self, nested: int) -> Path:
        return self.outcomes.with_suffix(f".{nested}")

    def second_crash_cost(self) -> float:
        """Recoveries; of one that was not seen whole more than of any other."""
        second = self.whole.get(1)
        return second.recoveries if second is not None and second.is_complete else math.inf


def specs_of_matrix(cells: Sequence[CellSpec], allocator: str) -> list[CellSpec]:
    """The clean cells of the allocator that are explored by `complete`: what a matrix tries the allocator with."""
    chosen = [spec for spec in cells if spec.allocator == allocator and spec.mutant is None]
    return [spec for spec in chosen if spec.strategy == "complete"]


def as_tried(spec: CellSpec, time_s: float | None) -> CellSpec:
    """A second crash is explored in what follows recoveries, too: a cell without that is none that has one."""
    nested = spec.nested if spec.follow_up else 0
    return msgspec.structs.replace(spec, time_limit_s=time_s, nested=nested, follow_up=True)


def mutate(
    workshop: Workshop,
    specs: Sequence[CellSpec],
    only: str | None,
    time_s: float | None,
    jobs: int,
    watcher: MutationWatcher,
    known: Sequence[str] = (),
) -> Mutation:
    """Tries every place of the workloads of specs, all of one allocator. only: part of a place's name; time_s: of one trial;
    known: ids of findings of the allocator as it is.

    Raises BadInputError when the allocator as it is has other findings, or no place has such a name.
    """
    alone = {as_tried(spec, time_s).name for spec in specs if spec.nested and not spec.follow_up}
    specs = [as_tried(spec, time_s) for spec in specs]
    with tempfile.TemporaryDirectory(prefix="faultline-mutate-") as folder:
        runner = _Runner(workshop, Path(folder), watcher, known)
        try:
            watcher.begins("as it is", len(specs))
            traced: list[_TracedWorkload] = run_in_pool(runner.explore_whole, runner.stop, specs, jobs)
            traced.sort(key=lambda one: one.whole[0].recoveries)
            short = [runner.in_recoveries_alone(one) for one in traced if one.spec.name in alone]
            runner.find_later_places([*(one for one in traced if one.spec.nested), *short], jobs)
            names = list(dict.fromkeys(name for one in [*traced, *short] for name in [*one.places, *one.later_places]))
            chosen = [name for name in names if only is None or only in name]
            if not chosen:
                raise BadInputError(
                    f"no flush or fence is called {only!r}" if names else "the workloads come to no flush or fence",
                    f"names are like: {names[0]}" if names else "choose another workload with -w",
                )
            places = runner.without(chosen, traced, jobs, short)
        except KeyboardInterrupt:
            raise InterruptedCampaignError("interrupted", "the same command goes on where it was") from None
    builds = sorted({kill_rates.build_key(workshop, one.cell.target) for one in traced})
    mutation = Mutation(specs[0].allocator, [spec.name for spec in specs], places, builds, sorted(known))
    if only is None:
        for build in builds:
            kill_rates.keep(workshop.cache, build, mutation.kill_rate())
    return mutation


def places_of(cell: PreparedCell) -> list[Place]:
    """In the order in which the trace comes to them."""
    workshop = cell.workshop
    with scratch_folder(workshop.cache, workshop.heap_folder) as folder:
        config = write_config(folder, cell)
        return workshop.engine.ask_json(_Places, "places", str(config)).places


class _Runner:
    def __init__(self, workshop: Workshop, folder: Path, watcher: MutationWatcher, known: Sequence[str] = ()) -> None:
        self.workshop = workshop
        self.known = sorted(known)
        self.folder = folder
        self.watcher = watcher
        self._is_stopped = threading.Event()
        self._numbers = itertools.count()
        self._halves: dict[str, _TracedWorkload] = {}
        """By the cell's name."""
        self._shortened: set[tuple[str, str]] = set()
        """Cell and place, of which fewer operations stand for those that a limit ended."""
        self._proved: set[str] = set()
        """Places of which a second crash of some workload tells no loss: in the next ones they are tried as far as several are."""
        self._halving: dict[str, threading.Lock] = {}

    def stop(self) -> None:
        self._is_stopped.set()
        interrupt_all()

    def explore_whole(self, spec: CellSpec) -> _TracedWorkload:
        traced = self._trace(spec)
        trial = traced.whole[0]
        if trial.verdict != "pass" or not trial.is_complete:
            raise _as_it_is_broken(spec, trial)
        self.watcher.ends(f"{spec.name}: {len(traced.places)} places")
        return traced

    def _trace(self, spec: CellSpec) -> _TracedWorkload:
        cell = prepare(self.workshop, spec, needs_hooks=True)
        outcomes = self.folder / f"{next(self._numbers)}.outcomes"
        whole = _TracedWorkload(cell, {}, outcomes, {}, threading.Lock())
        places = places_of(cell)
        whole.whole[0] = self._explore(whole, (), 0)
        return replace(whole, places={place.name: place for place in places})

    def _half(self, one: _TracedWorkload) -> _TracedWorkload | None:
        """The same generated workload with half as many operations; None: there is none."""
        spec = one.spec
        if not catalogue.takes_ops(spec.workload) or spec.ops < 2:
            return None
        spec = msgspec.structs.replace(spec, ops=spec.ops // 2)
        with self._halving.setdefault(spec.name, threading.Lock()):
            if spec.name not in self._halves:
                self._halves[spec.name] = self._trace(spec)
        return self._halves[spec.name]

    def in_recoveries_alone(self, one: _TracedWorkload) -> _TracedWorkload:
        """The same with second crashes in recoveries and not in what follows them."""
        cell = one.cell.with_spec(nested=1, follow_up=False)
        outcomes = self.folder / f"{next(self._numbers)}.outcomes"
        return replace(one, cell=cell, outcomes=outcomes, whole={0: one.whole[0]}, guard=threading.Lock())

    def find_later_places(self, traced: Sequence[_TracedWorkload], jobs: int) -> None:
        """By exploring second crashes."""
        self.watcher.begins("as it is, second crash", len(traced))
        wholes = run_in_pool(lambda one: self._whole(one, 1), self.stop, traced, jobs)
        for one, whole in zip(traced, wholes, strict=True):
            whole_text = "" if whole.is_complete else f", not complete: {whole.why}"
            self.watcher.ends(f"{one.spec.name}: {count(len(one.later_places), 'more place')}{whole_text}")

    def without(
        self, names: Sequence[str], traced: Sequence[_TracedWorkload], jobs: int, short: Sequence[_TracedWorkload] = ()
    ) -> list[PlaceResult]:
        """Workloads of few recoveries first, each for the places that none before it killed; then with a second crash, where that
        may tell more. short: with second crashes in recoveries alone, for what no other second crash comes to."""
        results: dict[str, PlaceResult] = {}
        for one in traced:
            left = [name for name in names if name in one.places]
            left = [name for name in left if name not in results or results[name].fate != "killed"]
            fresh = [[name] for name in left if name not in results]
            survivors = [name for name in left if name in results]
            for name in left:
                place = one.places[name]
                results.setdefault(name, PlaceResult(name, place.kind, place.site, []))
            self._try(one, fresh, 0, jobs, results)
            self._try(one, [survivors], 0, jobs, results)
        _begin_results(names, traced, results)
        self._try_second_crash(traced, jobs, results)
        seldom = _begin_results(names, short, results)
        for one in sorted(short, key=_TracedWorkload.second_crash_cost):
            left = [name for name in seldom if one.comes_to(name) and results[name].fate != "killed"]
            self._try(one, [left], 1, jobs, results)
        return [results[name] for name in names]

    def _try_second_crash(self, traced: Sequence[_TracedWorkload], jobs: int, results: dict[str, PlaceResult]) -> None:
        """Where that may tell more, in workloads of few recoveries first."""
        able: dict[str, list[int]] = {}
        for name, result in results.items():
            whole = {number for number, one in enumerate(traced) if name in one.places}
            whole = whole or {number for number, one in enumerate(traced) if one.comes_to(name)}
            limited = {number for number in whole if (traced[number].spec.name, name) in self._shortened}
            having = sorted(whole - limited or whole)
            recovering = [number for number in having if traced[number].place(name).in_recovery]
            if result.fate != "killed" and (recovering or result.is_silent):
                asked = [number for number in having if traced[number].spec.nested]
                able[name] = asked or (recovering or having)[:1]
        compared = sorted({number for numbers in able.values() if len(numbers) > 1 for number in numbers})
        if compared:
            self.watcher.begins("as it is, second crash", len(compared))
        run_in_pool(lambda number: self._whole(traced[number], 1), self.stop, compared, jobs)
        for number in sorted(
            set().union(*able.values()), key=lambda number: (traced[number].second_crash_cost(), number)
        ):
            survivors = [name for name, numbers in able.items() if number in numbers and results[name].fate != "killed"]
            self._try(traced[number], [survivors], 1, jobs, results)

    def _try(
        self, one: _TracedWorkload, groups: Sequence[list[str]], nested: int, jobs: int, results: dict[str, PlaceResult]
    ) -> None:
        """One workload without each group of places; what a processor has no group for helps with the others."""
        groups = [group for group in groups if group]
        if not groups:
            return
        crash = ", second crash" if nested else ""
        self.watcher.begins(f"without, {one.spec.workload_text}{crash}", sum(map(len, groups)))
        workers = max(1, jobs // len(groups))
        for trials in run_in_pool(lambda group: self._settle(one, group, nested, workers), self.stop, groups, jobs):
            for name, trial in trials.items():
                results[name].trials.append(trial)
                if nested and not trial.is_cut:
                    self._proved.add(name)

    def _settle(self, one: _TracedWorkload, group: list[str], nested: int, workers: int) -> dict[str, PlaceTrial]:
        """A trial of each, together as far as nothing tells their loss."""
        places = [one.place(name) for name in group]
        trial = self._without(one, places, nested, workers)
        if not trial.is_silent and len(group) > 1:
            middle = len(group) // 2
            halves = group[:middle], group[middle:]
            return {name: trial for half in halves for name, trial in self._settle(one, half, nested, workers).items()}
        if not nested and len(group) == 1:
            trial, places = self._with_fewer_operations(one, group[0], trial, workers)
        said = "nothing tells" if trial.is_silent else trial.rules[0] if trial.rules else "not killed"
        for place in places:
            self.watcher.ends(f"{place.name}: {said}")
        counts = [{"count": place.count, "in_recovery": place.in_recovery} for place in places]
        return {
            name: msgspec.structs.replace(trial, together=len(group), **count)
            for name, count in zip(group, counts, strict=True)
        }

    def _with_fewer_operations(
        self, one: _TracedWorkload, name: str, trial: PlaceTrial, workers: int
    ) -> tuple[PlaceTrial, list[Place]]:
        """The trial, or where a limit ended it one that came to its end; and the place as that comes to it."""
        shorter, shorter_trial = one, trial
        while shorter_trial.is_cut and shorter_trial.is_only_incomplete and not shorter_trial.new_outcomes:
            half = self._half(shorter)
            if half is None or name not in half.places:
                return trial, [one.places[name]]
            shorter, shorter_trial = half, self._without(half, [half.places[name]], 0, workers)
        if shorter is one or shorter_trial.is_cut:
            return trial, [one.places[name]]
        self._shortened.add((one.spec.name, name))
        shorter_trial = msgspec.structs.replace(shorter_trial, instead_of=f"{trial.workload} ({trial.why})")
        return shorter_trial, [shorter.places[name]]

    def _without(self, traced: _TracedWorkload, places: Sequence[Place], nested: int, workers: int) -> PlaceTrial:
        whole = self._whole(traced, nested, workers)
        if whole.verdict == "pass" and whole.is_complete:
            return self._explore(traced, places, nested, workers)
        why = f"as it is, {whole.message or whole.why or 'its verdict is unknown'}"
        return msgspec.structs.replace(whole, verdict="unknown", rules=[], why=why)

    def _whole(self, traced: _TracedWorkload, nested: int, workers: int = 1) -> PlaceTrial:
        with traced.guard:
            if nested not in traced.whole:
                traced.whole[nested] = self._explore(traced, (), nested, workers)
        whole = traced.whole[nested]
        if whole.verdict == "fail":
            raise _as_it_is_broken(msgspec.structs.replace(traced.spec, nested=nested), whole)
        return whole

    def _explore(self, traced: _TracedWorkload, places: Sequence[Place], nested: int, workers: int = 1) -> PlaceTrial:
        """As if the source lacked the places; none: as it is, for the outcomes."""
        if self._is_stopped.is_set():
            raise KeyboardInterrupt
        sites = sorted({site for place in places for site in place.sites})
        kept = _KeptTrial(traced, places, nested, self.known)
        if (found := kept.find()) is not None:
            return found
        started = time.monotonic()
        trial = PlaceTrial(traced.spec.workload_text, 0, "unknown", nested=nested)

        def handle(event: Event) -> None:
            match event:
                case Finding() if event.id in self.known:
                    trial.known.append(event.id)
                case Finding():
                    trial.rules.append(event.rule)
                    trial.message = trial.message or event.message
                case Certificate():
                    trial.is_complete, trial.why = event.complete, event.why_in_words()
                    trial.is_only_incomplete = not (event.complete or event.fallback or event.unknown_reasons)
                    trial.recoveries = event.recoveries
                case Outcomes():
                    trial.new_outcomes, trial.first_new = event.new, event.first_new
                    trial.later_places = event.later_places
                case Done():
                    is_known = event.verdict == "fail" and not trial.rules
                    trial.verdict = "pass" if is_known else event.verdict

        later = [{"kind": place.kind, "site": msgspec.to_builtins(place.site)} for place in places]
        without = [[{"edit": "without", "sites": lost}] if places else [] for lost in (sites, later)]
        edits = dict(zip(("edits", "later_edits"), without, strict=True))
        outcomes = {"compare" if places else "write": str(traced.outcomes_after(nested))}
        more: dict[str, Any] = {**edits, "outcomes": outcomes, "stop_at_rule": "any", "known_findings": self.known}
        is_bounded = len(places) > 1 or (nested > 0 and all(place.name in self._proved for place in places))
        most = TOGETHER_RECOVERIES * (traced.whole[nested].recoveries + 1) if is_bounded and places else None
        explore(traced.cell.with_spec(nested=nested, recovery_limit=most), handle, jobs=workers, more=more)
        if places:
            _tell_hidden(trial)
        trial.time_s = round(time.monotonic() - started, 3)
        kept.keep(trial)
        return trial


def _begin_results(
    names: Sequence[str], traced: Sequence[_TracedWorkload], results: dict[str, PlaceResult]
) -> list[str]:
    """Of the places that have none yet and that one of these comes to."""
    begun = []
    for name in names:
        place = next((one.place(name) for one in traced if name not in results and one.comes_to(name)), None)
        if place is not None:
            results[name] = PlaceResult(name, place.kind, place.site, [])
            begun.append(name)
    return begun


def _tell_hidden(trial: PlaceTrial) -> None:
    """Where nothing but known findings tells what is new, whether a rule minds it cannot be said."""
    is_of_contents = any(one.startswith(CONTENTS_RULE) for one in trial.known)
    if trial.verdict == "pass" and trial.known and (trial.new_outcomes or is_of_contents):
        what = "what recovery shows of contents" if is_of_contents else "that a rule minds what recovery shows"
        trial.verdict, trial.is_only_incomplete = "unknown", False
        trial.why = f"known findings may hide {what}: {', '.join(trial.known)}"


def _as_it_is_broken(spec: CellSpec, whole: PlaceTrial) -> BadInputError:
    said = f"{whole.rules[0]}: {whole.message}" if whole.rules else whole.why or "its verdict is unknown"
    look = f"look at it first: {spec.command_line()}"
    known = f"{look}, with --write-baseline FILE; mutate takes it as --baseline FILE"
    larger = f"give a larger --time, or a smaller workload; {look}"
    return BadInputError(
        f"{spec.name} does not pass completely as it is, so that what a flush is for cannot be told: {said}",
        known if whole.rules else larger if whole.is_only_incomplete else look,
    )


class _KeptTrial:
    """A trial in the cache, so that who stops mutate loses the one that runs. What was not explored to its end, by a limit, is not
    kept, and what took longer than the limit that is asked for is not taken."""

    def __init__(
        self, traced: _TracedWorkload, places: Sequence[Place], nested: int, known: Sequence[str] = ()
    ) -> None:
        cell = traced.cell.with_spec(nested=nested)
        helpers = msgspec.json.encode(cell.target.helpers)
        key = key_of(cell.key(), helpers, msgspec.json.encode(sorted(places, key=lambda place: place.name)), *known)
        self.cache, self.names = cell.workshop.cache, (f"{key}.trial", f"{key}.outcomes")
        self.outcomes = None if places else traced.outcomes_after(nested)
        """Of the workload as it is, which go with the trial."""
        self.limit_s = cell.spec.time_limit_s

    def find(self) -> PlaceTrial | None:
        found = self.cache.kept(kill_rates.FOLDER, self.names[0], PlaceTrial)
        if found is None or (self.limit_s is not None and found.time_s > self.limit_s):
            return None
        if self.outcomes is not None:
            try:
                self.outcomes.write_bytes((self.cache.folder / kill_rates.FOLDER / self.names[1]).read_bytes())
            except OSError:
                return None
        return found

    def keep(self, trial: PlaceTrial) -> None:
        if trial.verdict != "fail" and not trial.is_complete:
            return
        if self.outcomes is not None:
            if trial.verdict != "pass":
                return
            copy = partial(shutil.copyfile, self.outcomes)
            self.cache.file_entry(kill_rates.FOLDER, self.names[1], copy, fresh=True)
        self.cache.keep(kill_rates.FOLDER, self.names[0], trial)
