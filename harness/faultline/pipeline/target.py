# SPDX-License-Identifier: Apache-2.0
"""An allocator, built to be traced and recovered."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultline.base.cache import key_of
from faultline.base.config import Allocator, Flush, upgrade_of
from faultline.base.errors import BadInputError
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
    """The adapter whose loads are seen, for strategy complete: of what recovers."""
    newer: Allocator | None = None
    """Another build, which recovers the heaps that this one makes. None: this one does."""
    upgrade: Built | None = None
    """Its adapter."""
    capabilities: frozenset[str] = frozenset()
    """What the adapter can, by the names of the runner (runner/base/adapter_load.c)."""

    @property
    def relocates(self) -> bool:
        """Recoveries map the heap at other addresses: the contract says that it may be mapped anywhere, and the adapter can."""
        return self.allocator.contract.relocatable and "relocate" in self.capabilities

    @property
    def build(self) -> str:
        """Of what makes the heaps and what recovers them."""
        return self.adapter.key if self.upgrade is None else key_of(self.adapter.key, self.upgrade.key)

    @property
    def helpers(self) -> list[str]:
        """Of both builds, as a compiler records them."""
        of_both = (self.allocator, self.newer) if self.newer else (self.allocator,)
        return list(dict.fromkeys(name for one in of_both for name in one.build.helper_names()))

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
    newer = upgrade_of(allocator)

    def built(one: Allocator, is_hooked: bool = False) -> Built:
        its_mutant = mutant if one is allocator or mutant in {known.id for known in one.mutant} else None
        return build_adapter(Path(one.root), cache, one, its_mutant, flush, is_hooked)

    adapter, runner = built(allocator), build_runner(root, cache)
    can = check_adapter(runner, adapter, allocator.name)
    upgrade = built(newer) if newer else None
    if newer and upgrade:
        _check_upgrade(allocator, can, newer, check_adapter(runner, upgrade, f"{allocator.name}'s upgrade"))
    hooked = built(newer or allocator, is_hooked=True) if needs_hooks else None
    tracer = workshop.tracer.build(root, cache)
    return Target(allocator, mutant, flush, adapter, runner, tracer, hooked, newer, upgrade, can)


def _check_upgrade(allocator: Allocator, can: frozenset[str], newer: Allocator, newer_can: frozenset[str]) -> None:
    """What one of them can and the other cannot would be asked of both."""
    if can != newer_can:
        raise BadInputError(
            f"{newer.folder}: its adapter can {_listed(newer_can)}, and that of {allocator.name} can {_listed(can)}",
            "give both the same capabilities: the heaps of one are recovered by the other",
        )


def _listed(capabilities: frozenset[str]) -> str:
    return ", ".join(sorted(capabilities)) or "nothing of choice"
