# SPDX-License-Identifier: Apache-2.0
"""Keys of what is kept: of a cell's result, and of a kill rate."""

from __future__ import annotations

import msgspec

from faultline.base.cache import hash_of_file, key_of
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.explore import Workshop
from faultline.pipeline.trace import Target, Trace


def kill_rate_key(workshop: Workshop, target: Target) -> str:
    """Everything that a kill rate is a function of, but the workloads."""
    heap = msgspec.json.encode(target.allocator.heap)
    contract = msgspec.json.encode(target.allocator.contract)
    helpers = msgspec.json.encode(target.allocator.build.helpers)
    builds = (target.adapter, target.runner, target.tracer)
    return key_of(*(build.key for build in builds), heap, contract, helpers, hash_of_file(workshop.engine.path))


def cell_key(workshop: Workshop, spec: CellSpec, target: Target, traced: Trace) -> str:
    """Everything a cell's result is a function of, but when it stops: what runs, the trace (and with it the builds), contract,
    engine."""
    spec = msgspec.structs.replace(spec, time_limit_s=None, recovery_limit=None)
    heap = msgspec.json.encode(target.allocator.heap)
    contract = msgspec.json.encode(target.allocator.contract)
    hooked = target.hooked.key if target.hooked else ""
    return key_of(msgspec.json.encode(spec), traced.hash, hooked, heap, contract, hash_of_file(workshop.engine.path))
