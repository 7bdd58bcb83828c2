# SPDX-License-Identifier: Apache-2.0
"""From a cell's name to what can be explored: its workload is made, its allocator is built, the workload is traced on it."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.cache import Cache, hash_of_file, key_of
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.given_trace import given_trace
from faultline.pipeline.lists import follows_loads
from faultline.pipeline.target import Target, build_target
from faultline.pipeline.trace import Trace, trace
from faultline.pipeline.workshop import Workshop
from faultline.workload import catalogue
from faultline.workload.operations import Workload


@dataclass(frozen=True)
class PreparedCell:
    """A cell that is ready to be explored."""

    workshop: Workshop
    spec: CellSpec
    target: Target
    workload: Workload
    trace: Trace

    def with_spec(self, **changes: Any) -> PreparedCell:
        """The same trace, explored in another way."""
        return replace(self, spec=msgspec.structs.replace(self.spec, **changes))

    def with_workload(self, spec: CellSpec, workload: Workload, cache: Cache | None = None) -> PreparedCell:
        """Another workload, traced on the same target. cache: where its trace is kept, if not in the workshop's."""
        traced = trace(self.workshop, self.target, workload, cache=cache)
        return replace(self, spec=spec, workload=workload, trace=traced)

    def key(self) -> str:
        """Of everything that the cell's result is a function of, but when it stops: what runs, the trace (and with it the builds),
        contract, engine."""
        spec = msgspec.structs.replace(self.spec, time_limit_s=None, recovery_limit=None, allow_incomplete=False)
        heap = msgspec.json.encode(self.target.allocator.heap)
        contract = msgspec.json.encode(self.target.allocator.contract)
        recovering = [built.key if built else "" for built in (self.target.hooked, self.target.upgrade)]
        engine = hash_of_file(self.workshop.engine.path)
        variables = self.target.allocator.variable_words()
        return key_of(msgspec.json.encode(spec), self.trace.hash, *recovering, heap, contract, engine, *variables)


def find_workload(workshop: Workshop, spec: CellSpec) -> Workload:
    allocator = workshop.allocator(spec.allocator)
    return catalogue.find(spec.workload, spec.ops, spec.seed, allocator.heap, workshop.cache, Path(allocator.root))


def build_cell(workshop: Workshop, spec: CellSpec, needs_hooks: bool | None = None) -> Target:
    """needs_hooks: the loads of recoveries are to be seen; None: if the strategy of the cell asks for that."""
    allocator = workshop.allocator(spec.allocator)
    if needs_hooks is None:
        needs_hooks = follows_loads(workshop.engine, spec.strategy)
    return build_target(workshop, allocator, spec.mutant, spec.flush, needs_hooks)


def trace_cell(
    workshop: Workshop,
    spec: CellSpec,
    target: Target,
    workload: Workload,
    *,
    fresh: bool = False,
    limit_s: float | None = None,
) -> PreparedCell:
    """fresh: trace even if the trace is in the cache; limit_s: of tracing. Nothing is traced where the spec names a trace."""
    if spec.trace:
        traced = given_trace(workshop, workload, Path(spec.trace))
    else:
        traced = trace(workshop, target, workload, fresh=fresh, limit_s=limit_s)
    return PreparedCell(workshop, spec, target, workload, traced)


def prepare(workshop: Workshop, spec: CellSpec, needs_hooks: bool | None = None) -> PreparedCell:
    """All steps. Raises what building and tracing raise."""
    return trace_cell(workshop, spec, build_cell(workshop, spec, needs_hooks), find_workload(workshop, spec))
