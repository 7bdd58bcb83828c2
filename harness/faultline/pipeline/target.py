# SPDX-License-Identifier: Apache-2.0
"""An allocator, built to be traced and recovered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultline.base.config import Allocator, Flush
from faultline.pipeline.build import Built, build_adapter, build_runner, check_adapter
from faultline.pipeline.workshop import Workshop


@dataclass(frozen=True)
class Target:
    """An allocator, built for one cell, with what runs and traces it."""

    allocator: Allocator
    mutant: str | None
    flush: Flush
    adapter: Built
    runner: Built
    tracer: Built
    hooked: Built | None = None
    """The adapter whose loads are seen, for strategy complete."""
    capabilities: frozenset[str] = frozenset()
    """What the adapter can, by the names of the runner (runner/base/adapter_load.c)."""

    @property
    def relocates(self) -> bool:
        """Recoveries map the heap at other addresses: the contract says that it may be mapped anywhere, and the adapter can."""
        return self.allocator.contract.relocatable and "relocate" in self.capabilities

    @property
    def name(self) -> str:
        return self.allocator.name + (f" with mutant {self.mutant}" if self.mutant else "")


def build_target(
    workshop: Workshop,
    allocator: Allocator,
    mutant: str | None,
    flush: Flush,
    needs_hooks: bool = False,
) -> Target:
    root, cache = workshop.root, workshop.cache
    sources = Path(allocator.root)
    adapter = build_adapter(sources, cache, allocator, mutant, flush)
    hooked = build_adapter(sources, cache, allocator, mutant, flush, is_hooked=True) if needs_hooks else None
    runner = build_runner(root, cache)
    can = check_adapter(runner, adapter, allocator.name)
    return Target(allocator, mutant, flush, adapter, runner, workshop.tracer.build(root, cache), hooked, can)
