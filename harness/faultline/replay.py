# SPDX-License-Identifier: Apache-2.0
"""Replaying a token: the engine says what the token names, the target is built and traced as then, and when the trace is the same
the one crash state is recovered and judged again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec

from faultline import workloads
from faultline.cache import scratch_folder
from faultline.config import Flush, Model, find_allocator
from faultline.engine import Event, Finding, Verdict
from faultline.errors import BadInputError
from faultline.explaining import explain
from faultline.explanation import Explanation
from faultline.exploring import Workshop, write_config
from faultline.results import CellSpec
from faultline.tracing import Target, Trace, build_target, trace
from faultline.workloads import Workload


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
    later: list[dict[str, Any]] = []
    """Crashes after the first: what recoveries do is told by the adapter that was built with hooks."""

    @property
    def mutant(self) -> str | None:
        return self.mutant_word or None


@dataclass(frozen=True)
class Replay:
    token: Token
    spec: CellSpec
    verdict: Verdict
    findings: list[Finding]
    explanations: list[Explanation]


def replay(
    workshop: Workshop, text: str, is_explained: bool = False, say: Callable[[str], None] | None = None
) -> Replay:
    """is_explained: repairs of what breaks the token's rule are tried (explaining.py); say hears of each."""
    token = workshop.engine.ask_json(Token, "token", text)
    allocator = find_allocator(workshop.root, token.allocator)
    workload = workloads.find(token.workload, token.ops, token.seed, allocator.heap, workshop.cache)
    needs_hooks = bool(token.later) or is_explained
    target = build_target(workshop.root, workshop.cache, allocator, token.mutant, token.flush, needs_hooks)
    traced = trace(workshop.cache, workshop.engine, target, workload, heap_folder=workshop.heap_folder)
    if not is_same_hash(traced.hash, token.trace_hash):
        raise BadInputError(
            f"the trace differs: the token names trace {token.trace_hash}, {token.allocator} {token.workload} now gives "
            f"{traced.hash} (build then {token.build or 'unknown'}, now {target.adapter.key})",
            "replay it on the sources, compiler and Valgrind it was found with",
        )
    replayed = _replay_state(workshop, text, token, target, traced, workload)
    if is_explained:
        for finding in replayed.findings:
            if finding.rule == token.rule:
                explained = explain(workshop, replayed.spec, target, traced, workload, finding, say)
                replayed.explanations.append(explained)
    return replayed


def is_same_hash(full: str, named: str) -> bool:
    """A token may carry the first digits only; at least eight."""
    return len(named) >= 8 and full.startswith(named)


def _replay_state(
    workshop: Workshop,
    text: str,
    token: Token,
    target: Target,
    traced: Trace,
    workload: Workload,
) -> Replay:
    spec = CellSpec(
        token.allocator, token.workload, token.ops, token.seed, "mixed", token.model, token.flush, mutant=token.mutant
    )
    findings: list[Finding] = []

    def handle(event: Event) -> None:
        if isinstance(event, Finding):
            findings.append(event)

    with scratch_folder(workshop.cache, workshop.heap_folder) as folder:
        config = write_config(folder, spec, target, traced, workload)
        verdict = workshop.engine.events(["replay", str(config), "--token", text], handle)
    return Replay(token, spec, verdict, findings, [])
