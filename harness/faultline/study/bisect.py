# SPDX-License-Identifier: Apache-2.0
"""Bisection: the first commit that has a bug.

`git bisect run` goes through the history in a worktree of its own, so that the user's checkout stays as it is. At each commit the
allocator is built from that commit's sources (its folder, and the adapters' headers if they are in the same repository). Runner,
tracer and engine are those of today. The workload of the witness is traced, and all its crash states are explored. The witness's
own crash state cannot be replayed: it is a choice for the lines of one trace, and means nothing in another trace. The broken rule
and the lost store mean the same in both.

The workload is first shrunk at the bad end, so that a commit takes a second or two. A commit with other sources may need more of
the workload to show the bug. So the last good commit is explored by the whole workload, too. If that finds it bad, the history
before it is searched again, by the whole workload.

A commit is bad if it shows the finding: the rule, and the same lost store or another one of the same function. It is good if it was
explored completely and breaks no rule in a function where the good end keeps it. Any other commit is skipped, and the reason said:
its sources do not build, a limit was hit (--time), its states were only sampled (as all are of an allocator without hooks), or a
rule is broken elsewhere, which may be the same bug.

What a commit shows is kept in the cache, under the key of its cell. A bisection that was stopped goes on when it is asked for
again: its commits are built and traced from the cache, and none that was explored is explored again."""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from os.path import normpath
from pathlib import Path
from typing import Literal

import msgspec

from faultline.base.cache import Cache, key_of
from faultline.base.config import Allocator, read_allocator
from faultline.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    BadInputError,
    FaultlineError,
    InfrastructureError,
    InterruptedCampaignError,
)
from faultline.base.processes import child, interrupt_group
from faultline.base.project import Project, headers_of
from faultline.base.text import count
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Certificate, Event, Finding
from faultline.pipeline.explore import explore
from faultline.pipeline.lists import follows_loads
from faultline.pipeline.prepared import PreparedCell, find_workload, trace_cell
from faultline.pipeline.target import build_target
from faultline.pipeline.workshop import Workshop
from faultline.study.history import Change, Repository, git_environment, last_line, parse_diff
from faultline.study.replay import Token
from faultline.study.shrink import Budget, shrink
from faultline.study.witness import Shrunk
from faultline.workload import catalogue
from faultline.workload.operations import Workload

EXIT_SKIP = 125
"""What git bisect run takes for: this commit cannot be tested."""
EXIT_STOP = 128
"""And for: stop."""
NEAR_LINES = 10
"""A changed line this near to a store concerns it: a flush stands below what it flushes."""
KEPT = "bisections"
"""The part of the cache."""
SHOWN_LINES = 60
"""Of a diff; git shows the rest."""


class TargetFinding(msgspec.Struct, frozen=True):
    """What makes a commit bad."""

    rule: str
    function: str
    id: str = ""

    def is_it(self, finding: Finding) -> bool:
        return finding.rule == self.rule and (finding.id == self.id or lost_in(finding) == self.function)


def lost_in(finding: Finding) -> str:
    """The function of the store that matters most."""
    return finding.sites[0].function if finding.sites else ""


def broken_by(findings: list[Finding]) -> list[tuple[str, str]]:
    """Rules, and the functions that they are broken in."""
    return sorted({(finding.rule, lost_in(finding)) for finding in findings})


class Step(msgspec.Struct, frozen=True):
    """One commit that was looked at. why: in words, what it shows."""

    commit: str
    outcome: Literal["good", "bad", "skip"]
    why: str
    finding: Finding | None = None
    is_kept: bool = False
    """By an earlier bisection, from the cache."""

    def text(self) -> str:
        return f"{self.commit[:12]}: {self.outcome}: {self.why}" + (" (explored before)" if self.is_kept else "")


class CommitTest(msgspec.Struct, frozen=True):
    """What commits are looked at with. known: what the good end breaks so, rules and functions."""

    spec: CellSpec
    known: list[tuple[str, str]]


class Task(msgspec.Struct, frozen=True):
    """What `faultline bisect-step` reads from a file."""

    root: str
    allocator: Allocator
    """As the user has it now."""
    cache: str
    engine: str
    heap_folder: str | None
    jobs: int
    checkout: str
    folder: str
    """Of the allocator, in the checkout."""
    test: CommitTest
    target: TargetFinding
    steps: str


@dataclass(frozen=True)
class Bisection:
    """first_bad: empty when only commits are left that could not be tested; `candidates` are these. shrunk: the witness that the
    commits were tested with; None: the whole workload. unconfirmed: why the whole workload does not show the commit before to be
    good."""

    finding: Finding
    first_bad: str
    title: str
    steps: list[Step]
    candidates: list[str]
    changes: list[Change]
    shrunk: Shrunk | None = None
    unconfirmed: str = ""


class Explored(msgspec.Struct, frozen=True):
    """What a commit's exploration said, as it is kept."""

    findings: list[Finding]
    certificate: Certificate | None

    @property
    def is_whole(self) -> bool:
        """What was unknown may be known the next time."""
        return bool(self.findings) or (self.certificate is not None and self.certificate.complete)


# ---- one commit ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class CommitResult:
    """What the exploration of a commit came to."""

    findings: list[Finding]
    certificate: Certificate | None
    cell: PreparedCell | None = None
    is_kept: bool = False
    """It was explored before."""

    def why_open(self) -> str:
        """Why what was not found may still be there; empty if every crash state has a verdict."""
        if self.certificate is None:
            return "no certificate"
        return "" if self.certificate.complete else self.certificate.why_in_words() or "not explored completely"


def has_function(built: bytes, function: str) -> bool:
    """Whether a built adapter's debug information has a function of that name, as it is demangled: the last word before its
    arguments; of a lambda, the one around it."""
    words = re.findall(r"\w+", re.sub(r"<[^<>]*>", "", re.split(r"[({]", function)[0]))
    return not words or words[-1].encode() in built


def explore_commit(
    workshop: Workshop,
    checkout: Path,
    folder: str,
    spec: CellSpec,
    workload: Workload,
    stop_at: str | None,
    witness: TargetFinding | None = None,
) -> CommitResult:
    """Builds, traces and explores what is checked out. stop_at: id of the finding that ends it.

    Raises BadInputError, before it explores, when what is built has no function that the witness names.
    """
    findings: list[Finding] = []
    certificates: list[Certificate] = []

    def handle(event: Event) -> None:
        if isinstance(event, Finding):
            findings.append(event)
        elif isinstance(event, Certificate):
            certificates.append(event)

    if not (checkout / folder / "allocator.toml").is_file():
        raise BadInputError(f"it has no {folder}/allocator.toml")
    with _sources(workshop.root, checkout, folder, spec.allocator) as sources:
        allocator = read_allocator(sources / "allocators" / spec.allocator / "allocator.toml", sources)
        needs_hooks = follows_loads(workshop.engine, spec.strategy)
        target = build_target(workshop, allocator, spec.mutant, spec.flush, needs_hooks)
        built = [one for one in (target.adapter, target.upgrade) if one is not None]
        if witness is not None and not any(has_function(one.path.read_bytes(), witness.function) for one in built):
            raise BadInputError(
                f"the witness is of a place that is gone: the bad end has no {witness.function}",
                "name a revision that has it, or leave --witness out",
            )
        cell = trace_cell(workshop, spec, target, workload).with_spec(stop_at_rule=stop_at)
        key = key_of(cell.key(), str(spec.time_limit_s)) if spec.time_limit_s else cell.key()
        kept = workshop.cache.kept(KEPT, key, Explored)
        if kept is not None:
            return CommitResult(kept.findings, kept.certificate, cell, is_kept=True)
        explore(cell, handle, jobs=workshop.explore_jobs)
    explored = Explored(findings, certificates[-1] if certificates else None)
    if explored.is_whole:
        workshop.cache.keep(KEPT, key, explored)
    return CommitResult(explored.findings, explored.certificate, cell)


@contextmanager
def _sources(root: Path, checkout: Path, folder: str, allocator: str) -> Iterator[Path]:
    """The layout that builds expect, with the allocator of the checkout in it."""
    with tempfile.TemporaryDirectory(prefix="faultline-sources-") as name:
        sources = Path(name).resolve()
        (sources / "allocators").mkdir()
        (sources / "allocators" / allocator).symlink_to((checkout / folder).resolve())
        (sources / "include").symlink_to(headers_of(checkout) or root / "include")
        (sources / "runner").symlink_to(root / "runner")
        yield sources


def step(task: Task) -> int:
    """What git bisect run starts at each commit; its exit code says good (0), bad (1) or skip (125)."""
    spec = task.test.spec
    now = task.allocator
    repository = Repository(Path(now.folder), now.name)
    checkout = Path(task.checkout)
    commit = repository.ask("rev-parse", "HEAD", inside=checkout) or ""
    heap_folder = Path(task.heap_folder) if task.heap_folder else None
    cache, engine = Cache(Path(task.cache)), Engine(Path(task.engine))
    project = Project(Path(task.root), allocators={now.name: now})
    workshop = Workshop(Path(task.root), cache, engine, heap_folder, task.jobs, given=project)
    workload = find_workload(workshop, spec)
    try:
        seen = explore_commit(workshop, checkout, task.folder, spec, workload, task.target.id)
        done = judge(commit, seen, task.target, task.test.known)
    except FaultlineError as error:
        done = Step(commit, "skip", error.message)
    with Path(task.steps).open("ab") as steps:
        steps.write(msgspec.json.encode(done) + b"\n")
    return {"good": EXIT_OK, "bad": EXIT_FINDINGS, "skip": EXIT_SKIP}[done.outcome]


def judge(commit: str, seen: CommitResult, target: TargetFinding, known: list[tuple[str, str]]) -> Step:
    """known: what the good end breaks, too."""
    found = next((finding for finding in seen.findings if target.is_it(finding)), None)
    if found is not None:
        return Step(commit, "bad", place_of(found), found, seen.is_kept)
    where = f"{target.rule} at {target.function}"
    others = [one for one in seen.findings if (one.rule, lost_in(one)) not in known]
    if others:
        why = f"{place_of(others[0])}, and no {where}: the same bug or another?"
        return Step(commit, "skip", why, is_kept=seen.is_kept)
    why = seen.why_open()
    return Step(commit, "skip" if why else "good", why or f"no {where}", is_kept=seen.is_kept)


def place_of(finding: Finding) -> str:
    return f"{finding.rule} at {finding.sites[0].text() if finding.sites else 'an unknown place'}"


# ---- the whole history ---------------------------------------------------------------------------------------------------

Say = Callable[[str], None]


def bisect(
    workshop: Workshop,
    repository: Repository,
    spec: CellSpec,
    ends: tuple[str, str],
    target: TargetFinding | None,
    say: Say,
) -> Bisection:
    """The first commit that shows the finding. ends: the good and the bad one, checked before. target: of a witness; without one,
    the first finding of the bad end that the good end does not have.

    Raises BadInputError when the ends are not what they are said to be, InfrastructureError when an end cannot be explored,
    InterruptedCampaignError on Ctrl-C.
    """
    good, bad = ends
    spec = _with_stored_workload(workshop, spec)
    try:
        with repository.worktree(bad) as checkout:
            search = _HistorySearch(workshop, repository, checkout, say)
            at_bad = search.look_at_end(bad, "the bad end", spec, target)
            found = _shown(at_bad.findings, target, bad)
            at_good = search.look_at_end(good, "the good end", spec)
            finding, target = _new_at_bad(found, at_good, target, ends, is_first=repository.is_first(good))
            whole = CommitTest(spec, broken_by(at_good.findings))
            shrunk, small = search.shrink(whole, at_bad.cell, finding, target, good)
            steps = [Step(bad, "bad", place_of(finding), finding)]
            say(f"{target.rule} at {target.function} is sought between {good[:12]} and {bad[:12]}")
            first, candidates = search.between(ends, small, target, steps)
            unconfirmed = ""
            if first and small is not whole:
                parents = [
                    one
                    for one in repository.demand("rev-parse", f"{first}^@").split()
                    if repository.ask("merge-base", "--is-ancestor", one, good) is None  # else it counts as good
                ]
                looked = [
                    search.judged(one, "the commit before, by the whole workload,", whole, target) for one in parents
                ]
                steps += looked
                earlier = next((one for one in looked if one.outcome == "bad"), None)
                unconfirmed = "; ".join(f"{one.commit[:12]}: {one.why}" for one in looked if one.outcome == "skip")
                if earlier is not None:
                    try:
                        first, candidates = search.between((good, earlier.commit), whole, target, steps)
                        shrunk, unconfirmed = None, ""
                    except InfrastructureError as error:
                        unconfirmed = (
                            f"{earlier.commit[:12]} is bad, and what is before it was not gone through: {error.message}"
                        )
    except KeyboardInterrupt:
        raise InterruptedCampaignError("interrupted", "the same command goes on where it was") from None
    return _bisection(repository, finding, steps, first, candidates, shrunk, unconfirmed)


@dataclass(frozen=True)
class _HistorySearch:
    """In a worktree, the checkout."""

    workshop: Workshop
    repository: Repository
    checkout: Path
    say: Say

    def look_at(self, commit: str, what: str, spec: CellSpec, witness: TargetFinding | None = None) -> CommitResult:
        self.say(f"{commit[:12]}: {what} is explored")
        self.repository.demand("checkout", "--detach", "--force", commit, inside=self.checkout)
        workload = find_workload(self.workshop, spec)
        return explore_commit(self.workshop, self.checkout, self.repository.folder, spec, workload, None, witness)

    def look_at_end(self, commit: str, what: str, spec: CellSpec, witness: TargetFinding | None = None) -> CommitResult:
        """Raises what the exploration raises, and says at which end."""
        try:
            return self.look_at(commit, what, spec, witness)
        except FaultlineError as error:
            raise type(error)(f"{what} {commit[:12]}: {error.message}", error.hint) from error

    def judged(self, commit: str, what: str, test: CommitTest, target: TargetFinding) -> Step:
        try:
            return judge(commit, self.look_at(commit, what, test.spec), target, test.known)
        except FaultlineError as error:
            return Step(commit, "skip", error.message)

    def shrink(
        self, whole: CommitTest, cell: PreparedCell | None, finding: Finding, target: TargetFinding, good: str
    ) -> tuple[Shrunk | None, CommitTest]:
        """The finding's smallest witness at the bad end, and its workload as what to look with, if the good end is good by it."""
        assert cell is not None
        self.say(f"{target.rule} at {target.function} is shrunk")
        spec = msgspec.structs.replace(whole.spec, nested=finding.crashes - 1)
        try:
            key = key_of("shrunk", cell.key(), finding.token)
            shrunk = self.workshop.cache.kept(KEPT, key, Shrunk)
            if shrunk is None:
                shrunk = shrink(replace(cell, spec=spec), finding, Budget())
                self.workshop.cache.keep(KEPT, key, shrunk)
            token = self.workshop.engine.ask_json(Token, "token", shrunk.witness.token)
            if token.workload == spec.workload:
                return None, whole
            small = {"workload": token.workload, "ops": token.ops, "seed": token.seed, "path": ""}
            spec = msgspec.structs.replace(spec, **small)
            at_good = self.look_at(good, "the good end, by the smallest workload,", spec)
        except FaultlineError as error:
            self.say(f"the whole workload is used: {error.message}")
            return None, whole
        if judge(good, at_good, target, broken_by(at_good.findings)).outcome != "good":
            self.say("the whole workload is used: the good end is not good by the smallest one")
            return None, whole
        return shrunk, CommitTest(spec, broken_by(at_good.findings))

    def between(
        self, ends: tuple[str, str], test: CommitTest, target: TargetFinding, steps: list[Step]
    ) -> tuple[str, list[str]]:
        """The first bad commit, or those that may be; appends what each step says."""
        folder = Path(tempfile.mkdtemp(prefix="steps-", dir=self.checkout.parent))
        heap_folder = self.workshop.heap_folder
        task = Task(
            root=str(self.workshop.root),
            allocator=self.workshop.allocator(test.spec.allocator),
            cache=str(self.workshop.cache.folder),
            engine=str(self.workshop.engine.path),
            heap_folder=str(heap_folder) if heap_folder else None,
            jobs=self.workshop.explore_jobs,
            checkout=str(self.checkout),
            folder=self.repository.folder,
            test=test,
            target=target,
            steps=str(folder / "steps"),
        )
        steps += _run(self.repository, self.checkout, task, folder, ends, self.say)
        return _conclusion(self.repository, self.checkout)


def _with_stored_workload(workshop: Workshop, spec: CellSpec) -> CellSpec:
    """The same operations at every commit, whatever its heap geometry."""
    if spec.workload.startswith("file:"):
        return spec
    workload = find_workload(workshop, spec)
    catalogue.store(workload, workshop.cache)
    return msgspec.structs.replace(spec, workload=f"file:{workload.key}", path=spec.path or spec.workload)


def _shown(findings: list[Finding], target: TargetFinding | None, bad: str) -> list[Finding]:
    shown = [finding for finding in findings if target is None or target.is_it(finding)]
    if not shown:
        what = f"{target.rule} at {target.function}" if target else "any rule broken"
        others = ", ".join(sorted({place_of(finding) for finding in findings}))
        raise BadInputError(
            f"the bad end {bad[:12]} passes: its crash states do not show {what}"
            + (f", but {others}" if others else ""),
            "name a revision that fails, or the workload that shows it (--workload)",
        )
    return shown


def _new_at_bad(
    found: list[Finding],
    at_good: CommitResult,
    target: TargetFinding | None,
    ends: tuple[str, str],
    is_first: bool = False,
) -> tuple[Finding, TargetFinding]:
    """is_first: no commit before the good end has the allocator."""
    good, bad = ends
    for finding in found:
        asked = TargetFinding(finding.rule, lost_in(finding), finding.id)
        if not any(asked.is_it(known) for known in at_good.findings):
            if why := at_good.why_open():
                raise InfrastructureError(
                    f"the good end {good[:12]} cannot be told good: {why}",
                    "what was not explored may have the bug: take a smaller workload, or shrink the witness first",
                )
            return finding, asked
    what = f"shows {target.rule} at {target.function}, too" if target else f"has all findings of the bad end {bad[:12]}"
    if is_first:
        raise BadInputError(
            f"no commit passes: {good[:12]}, the first one that has the allocator, {what}",
            "there is nothing to bisect: the bug is as old as the allocator; name another finding with --witness",
        )
    raise BadInputError(f"the good end {good[:12]} fails: it {what}", "name an older revision that passes")


def _run(
    repository: Repository, checkout: Path, task: Task, folder: Path, ends: tuple[str, str], say: Say
) -> list[Step]:
    """git bisect run, with what it says kept for the case that it fails. folder: for files of its own."""
    good, bad = ends
    repository.demand("bisect", "start", bad, good, inside=checkout)
    task_file = folder / "task"
    task_file.write_bytes(msgspec.json.encode(task))
    command = [sys.executable, "-P", "-m", "faultline", "bisect-step", str(task_file)]
    log = folder / "log"
    with log.open("wb") as output:
        run = ["git", "-c", "core.hooksPath=/dev/null", "-C", str(checkout), "bisect", "run", *command]
        with child(run, output, output, git_environment()) as process:
            code = _wait(process, Path(task.steps), log, say)
    steps = _read_steps(Path(task.steps))
    if code != 0 and not _only_skipped(log):
        said = last_line(log.read_text(errors="replace")) or f"exit code {code}"
        raise InfrastructureError(f"git bisect run failed after {len(steps)} commits: {said}")
    return steps


def _wait(process: subprocess.Popen[bytes], steps: Path, log: Path, say: Say) -> int:
    """Says each step as it comes, and after it what git says is next. Ctrl-C is handed to git, which dies at once, and to the step
    that runs, which ends what it started."""
    told, told_next = 0, 0
    try:
        while True:
            try:
                code: int | None = process.wait(0.5)
            except subprocess.TimeoutExpired:
                code = None
            done, following = _read_steps(steps), _said_next(log)
            while told < len(done) or told_next < min(told, len(following)):
                if told_next < min(told, len(following)):
                    say(following[told_next])
                    told_next += 1
                else:
                    say(done[told].text())
                    told += 1
            if code is not None:
                return code
    except KeyboardInterrupt:
        interrupt_group(process)
        raise


def _said_next(log: Path) -> list[str]:
    """What git said after each commit but the last one: which is next, and what is left after it."""
    said = log.read_text(errors="replace")
    lines = r"^Bisecting: (\d+) revisions? left to test after this \(roughly (\d+) steps?\)\n\[([0-9a-f]{12})"
    return [
        f"{commit} is next; {count(int(left), 'commit')} left after it, about {count(int(more), 'step')}"
        if int(left)
        else f"{commit} is the last one"
        for left, more, commit in re.findall(lines, said, re.MULTILINE)
    ]


def _read_steps(path: Path) -> list[Step]:
    lines = path.read_bytes().split(b"\n")[:-1] if path.exists() else []
    return [msgspec.json.decode(line, type=Step) for line in lines]


def _only_skipped(log: Path) -> bool:
    return "only 'skip'ped commits left" in log.read_text(errors="replace")


def _conclusion(repository: Repository, checkout: Path) -> tuple[str, list[str]]:
    """The first bad commit, or those that may be."""
    said = repository.demand("bisect", "log", inside=checkout)
    first = re.search(r"^# first bad commit: \[([0-9a-f]+)\]", said, re.MULTILINE)
    possible = re.findall(r"^# possible first bad commit: \[([0-9a-f]+)\]", said, re.MULTILINE)
    return (first[1] if first else ""), ([] if first else possible)


def _bisection(
    repository: Repository,
    finding: Finding,
    steps: list[Step],
    first: str,
    candidates: list[str],
    shrunk: Shrunk | None,
    unconfirmed: str,
) -> Bisection:
    title, changes = "", []
    if first:
        shown = next((one.finding for one in steps if one.commit == first and one.finding is not None), finding)
        title = repository.demand("show", "-s", "--date=short", "--format=%ad %an: %s", first)
        changes = concerned(parse_diff(repository.diff_of(first)), shown, repository)
        finding = shown
    return Bisection(finding, first, title, steps, candidates, changes, shrunk, unconfirmed)


# ---- the lines of a commit -----------------------------------------------------------------------------------------------


def concerned(changes: list[Change], finding: Finding, repository: Repository) -> list[Change]:
    """Those near the stores of the finding or in their functions; else those of their files; else all."""
    prefix = f"allocators/{repository.name}/"
    sites = [(_in_repository(site.file or "", prefix, repository.folder), site) for site in finding.sites]

    def is_near(change: Change) -> bool:
        return any(
            change.file == file
            and (abs(change.line - (site.line or 0)) <= NEAR_LINES or f"{site.function}(" in change.function)
            for file, site in sites
        )

    near = [change for change in changes if is_near(change)]
    return near or [change for change in changes if change.file in {file for file, _ in sites}] or changes


def _in_repository(file: str, prefix: str, folder: str) -> str:
    return normpath(f"{folder}/{file.removeprefix(prefix)}") if file.startswith(prefix) else file


def command_text(bisection: Bisection) -> str:
    return shlex.join(["git", "show", bisection.first_bad])
