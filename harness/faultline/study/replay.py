# SPDX-License-Identifier: Apache-2.0
"""Replays a token. The engine says what the token names; the target is built and the workload traced again; if the trace is the
same, the one crash state is recovered and judged. Explaining and shrinking a token begin in the same way."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from faultline.base.config import Allocator, FileSystem, Flush, Model
from faultline.base.errors import BadInputError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Event, Finding, Unknown, Verdict
from faultline.pipeline.explore import ask_engine
from faultline.pipeline.given_trace import kept_trace
from faultline.pipeline.lists import check_model
from faultline.pipeline.prepared import PreparedCell, build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.study.explanation import Explanation
from faultline.study.repairs import explain
from faultline.study.shrink import Budget, shrink
from faultline.study.witness import Shrunk

DEPENDS = "recovery may depend on more than the image (addresses, time, threads)"
"""Why the same crash state may not show the same again."""


class Token(msgspec.Struct, frozen=True):
    """What `faultline-engine token` decodes, as far as the harness needs it."""

    allocator: str
    workload: str
    trace_hash: str
    rule: str | None = None
    mutant_word: str = msgspec.field(name="mutant", default="")
    """Empty: of the clean allocator."""
    build: str = ""
    ops: int = 0
    seed: int = 0
    flush: Flush = "clwb"
    model: Model = "px86"
    site: str = ""
    """Function of the store that matters most."""
    lost: list[int] = []
    """Events of the file operations that power failure lost."""
    later: list[dict[str, Any]] = []
    """Crashes after the first: only the adapter that was built with hooks says what recoveries do."""

    @property
    def mutant(self) -> str | None:
        return self.mutant_word or None

    @property
    def file_system(self) -> FileSystem | None:
        """On which it was found; None: what the contract asks for."""
        return "posix" if self.lost else None


@dataclass(frozen=True)
class Replay:
    token: Token
    spec: CellSpec
    verdict: Verdict
    findings: list[Finding]
    explanations: list[Explanation]
    note: str | None = None
    """Why it does not show what the token is of; None: it does."""


def replay(
    workshop: Workshop, text: str, explaining_s: float | None = None, say: Callable[[str], None] | None = None
) -> Replay:
    """explaining_s: for so long repairs of what breaks the token's rule are tried (repairs.py), if any; say hears of each."""
    opened = _open(workshop, text, needs_hooks=explaining_s is not None)
    replayed = _replay_state(text, opened)
    if explaining_s is not None:
        for finding in replayed.findings:
            if finding.rule == opened.token.rule:
                replayed.explanations.append(explain(opened.cell, finding, say, budget_s=explaining_s))
    return replayed


def explain_token(
    workshop: Workshop, text: str, follow_up: bool, say: Callable[[str], None] | None, budget_s: float
) -> Explanation:
    """Tries the repairs of what breaks the token's rule. follow_up: power fails again in what follows recoveries, too; say hears of
    each repair before it is tried; budget_s: of all of them."""
    opened = _open(workshop, text, needs_hooks=True)
    finding = _finding_of(text, opened)
    return explain(opened.cell.with_spec(follow_up=follow_up), finding, say, budget_s=budget_s)


def shrink_token(
    workshop: Workshop, text: str, budget: Budget, say: Callable[[str], None] | None = None
) -> tuple[CellSpec, Shrunk]:
    """The smallest witness of what breaks the token's rule, and the cell that the token is of; say hears of each step."""
    opened = _open(workshop, text, needs_hooks=True)
    finding = _finding_of(text, opened)
    cell = opened.cell.with_spec(strategy="complete", nested=len(opened.token.later))
    return cell.spec, shrink(cell, finding, budget, say)


def _finding_of(text: str, opened: _Opened) -> Finding:
    """What breaks the token's rule."""
    rule = opened.token.rule
    replayed = _replay_state(text, opened)
    finding = next((found for found in replayed.findings if found.rule == rule), None)
    if finding is None:
        raise BadInputError(
            f"{replayed.note or f'the crash state does not break {rule} any more'}: verdict {replayed.verdict}",
            "nothing is there to shrink or to explain; `faultline run` looks for findings",
        )
    return finding


@dataclass(frozen=True)
class _Opened:
    """What a token names, built and traced again."""

    token: Token
    cell: PreparedCell


def _open(workshop: Workshop, text: str, needs_hooks: bool) -> _Opened:
    token = workshop.engine.ask_json(Token, "token", text)
    check_model(workshop.engine, token.model)
    spec = CellSpec(
        token.allocator,
        token.workload,
        token.ops,
        token.seed,
        "mixed",
        token.model,
        token.flush,
        mutant=token.mutant,
        file_system=token.file_system,
    )
    target = build_cell(workshop, spec, needs_hooks or bool(token.later))
    build = target.build
    if token.build and not is_same_hash(build, token.build):  # traces name the build, so none would be the same
        raise BadInputError(
            f"the token is of another build of {token.allocator}: {token.build}, and this one is {build}",
            "replay it on the sources and the compiler it was found with",
        )
    given = kept_trace(workshop.cache, token.trace_hash)
    spec = msgspec.structs.replace(spec, trace=str(given or ""))
    cell = trace_cell(workshop, spec, target, find_workload(workshop, spec))
    if not is_same_hash(cell.trace.hash, token.trace_hash):
        raise BadInputError(
            f"the trace differs: the token names trace {token.trace_hash}, {token.allocator} {token.workload} now gives "
            f"{cell.trace.hash}",
            _to_replay(target.allocator),
        )
    return _Opened(token, cell)


def _to_replay(allocator: Allocator) -> str:
    """What to do where the trace is another one."""
    if allocator.varies:
        return (
            f"{allocator.varies} of {allocator.name} differ in each trace: replay it with the cache it was found with"
        )
    return "replay it with the allocator.toml, the workload generators, the runner and the tracer it was found with"


def is_same_hash(full: str, named: str) -> bool:
    """A token may carry the first digits only; at least eight."""
    return len(named) >= 8 and full.startswith(named)


def _replay_state(text: str, opened: _Opened) -> Replay:
    findings: list[Finding] = []
    reasons: list[str] = []

    def handle(event: Event) -> None:
        match event:
            case Finding():
                findings.append(event)
            case Unknown():
                reasons.extend(event.reasons)

    verdict = ask_engine(opened.cell, handle, "replay", "--token", text)
    note = note_of(opened.token, findings, reasons)
    return Replay(opened.token, opened.cell.spec, verdict, findings, [], note)


def note_of(token: Token, findings: list[Finding], reasons: list[str]) -> str | None:
    """Why the run does not show what the token is of; None: it does."""
    rules = sorted({finding.rule for finding in findings})
    if token.rule is None or token.rule in rules:
        return None
    if rules:
        shown = " and ".join(rules)
        return f"the token is of {token.rule}, and this run of its crash state shows {shown}: {DEPENDS}, or the oracle has changed"
    why = "; ".join(reasons) or f"nothing is wrong: {DEPENDS}"
    return f"the token is of {token.rule}, and this run of its crash state does not show it: {why}"
