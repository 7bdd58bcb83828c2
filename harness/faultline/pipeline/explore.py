# SPDX-License-Identifier: Apache-2.0
"""One exploration: what it needs, and the configuration that the engine reads."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.cache import scratch_folder
from faultline.pipeline import outside
from faultline.pipeline.events import Certificate, Event, Verdict
from faultline.pipeline.prepared import PreparedCell
from faultline.pipeline.trace import environment_for

CONFIG_VERSION = 2
CPU_LIMIT_MS = 1000
"""One life of a probe takes well under a millisecond; a second of its own CPU time is a hang."""
WALL_LIMIT_MS = 10000
"""Backstop for targets that sleep; on an overloaded machine it gives unknown, not a finding."""


def explore(
    cell: PreparedCell,
    handle: Callable[[Event], None],
    jobs: int = 1,
    more: dict[str, Any] | None = None,
) -> Verdict:
    """Runs the engine over the trace; handle gets its events. jobs: workers; more: keys of the engine's configuration that are
    not a cell's.

    Raises: what Engine.events raises.
    """
    workshop = cell.workshop

    def heard(event: Event) -> None:
        if isinstance(event, Certificate):
            outside.remember(workshop.cache, cell.spec.allocator, event.unknown_reasons)
        handle(event)

    left = {"left_outside": outside.left_by(workshop.cache, cell.spec.allocator)}
    return ask_engine(cell, heard, "explore", jobs=jobs, more={**left, **(more or {})})


def ask_engine(
    cell: PreparedCell,
    handle: Callable[[Event], None],
    command: str,
    *words: str,
    jobs: int = 1,
    more: dict[str, Any] | None = None,
) -> Verdict:
    """Has the engine execute a command that runs recoveries of the cell, in the environment that the target was traced in. words:
    behind the configuration; the others as of explore."""
    workshop = cell.workshop
    with scratch_folder(workshop.cache, workshop.heap_folder) as folder:
        config = write_config(folder, cell, jobs, more)
        return workshop.engine.events([command, str(config), *words], handle, _environment_of(cell))


def _environment_of(cell: PreparedCell) -> dict[str, str]:
    """Of the engine, and so of recoveries and twins: what the target was traced in, and what is about the tool alone."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if name == "TMPDIR" or name.startswith(("FAULTLINE_", "RUST_"))
    }
    return {**kept, **environment_for(cell.workshop.tracer, cell.target.tracer, cell.target.allocator)}


def engine_config(cell: PreparedCell, scratch: Path, jobs: int = 1) -> dict[str, Any]:
    """The JSON that `faultline-engine explore` and `replay` read."""
    spec, target, workload = cell.spec, cell.target, cell.workload
    heap = target.allocator.heap
    return {
        "version": CONFIG_VERSION,
        "trace": str(cell.trace.path),
        "runner": str(target.runner.path),
        "adapter": str(target.adapter.path),
        "upgrade": str(target.upgrade.path) if target.upgrade else None,
        "hooked_adapter": str(target.hooked.path) if target.hooked else None,
        "without_hooks": target.hooked.without_hooks() if target.hooked else None,
        "tracer": cell.workshop.tracer.serve_command(target.tracer),
        "engine": spec.replay_engine,
        "helpers": target.helpers,
        "workload_file": str(cell.trace.workload_file),
        "scratch": str(scratch),
        "heap": {
            "heap_bytes": heap.heap_bytes,
            "limit_bytes": heap.limit_bytes,
            "slots": workload.slots,
            "slot_layout": workload.layout,
            "is_lazy": workload.is_lazy,
            "address_hint": heap.address,
            "alignment": heap.alignment,
            "smallest_bytes": heap.smallest_bytes,
            "relocates": target.relocates,
        },
        "contract": msgspec.to_builtins(target.allocator.contract),
        "model": spec.model,
        "file_system": spec.file_system,
        "strategy": spec.strategy,
        "nested": spec.nested,
        "follow_up": spec.follow_up,
        "long_lives": spec.long_lives,
        "jobs": jobs,
        "seed": spec.seed,
        "limits": {
            "exhaustive_states": spec.exhaustive_states,
            "samples": spec.samples,
            "time_s": spec.time_limit_s,
            "recoveries": spec.recovery_limit,
            "leaves": spec.leaf_limit,
            "memory_mib": spec.memory_limit_mib,
            "cpu_limit_ms": CPU_LIMIT_MS,
            "wall_limit_ms": WALL_LIMIT_MS,
        },
        "start": spec.start,
        "stop_at_rule": spec.stop_at_rule,
        "probe": spec.probe,
        "identity": {
            "allocator": spec.allocator,
            "mutant": spec.mutant,
            "build": target.build,
            "workload": spec.workload,
            "ops": spec.ops,
            "seed": spec.seed,
            "flush": spec.flush,
        },
    }


def write_config(
    folder: Path,
    cell: PreparedCell,
    jobs: int = 1,
    more: dict[str, Any] | None = None,
) -> Path:
    """The engine's configuration in folder, its scratch folder beside it."""
    scratch = folder / "scratch"
    scratch.mkdir()
    path = folder / "config.json"
    config = {**engine_config(cell, scratch, jobs), **(more or {})}
    path.write_bytes(msgspec.json.format(msgspec.json.encode(config), indent=2))
    return path
