# SPDX-License-Identifier: Apache-2.0
"""The kill rate of an allocator: of the flushes and fences that it needs, the share whose absence the tester notices. `faultline
mutate` measures it, and keeps it in the cache by build of allocator and tester. A matrix says the rate of the very build that it
runs; of another build nothing is known."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from faultline.base.cache import Cache, hash_of_file, key_of
from faultline.pipeline.target import Target
from faultline.pipeline.workshop import Workshop

FOLDER = "mutations"


class KillRate(msgspec.Struct):
    """What `mutate` found of one build. places: lines of source that flush or fence, in all; workloads: those they were looked for
    in; shortened: places without which one of them had more crash states than a limit allows, and fewer operations stand for it."""

    allocator: str
    workloads: list[str]
    places: int
    killed: int
    redundant: int
    blind: int
    unknown: int
    shortened: int = 0

    @property
    def share(self) -> float:
        """Killed, of those that are not proved redundant; 1 if there are none."""
        return _share_of([self])

    @property
    def is_whole(self) -> bool:
        return not self.blind and not self.unknown

    def text(self) -> str:
        said = f"{self.share:.1%} of the flushes and fences it needs are missed when they are gone: "
        said += f"{self.killed} killed, {self.redundant} redundant, {self.blind} blind spots, {self.unknown} unknown"
        many = "s" * (len(self.workloads) != 1)
        places = "place" if self.shortened == 1 else "places"
        shorter = f", {self.shortened} {places} in fewer operations of one" if self.shortened else ""
        return f"{said} ({len(self.workloads)} workload{many}{shorter})"


def _share_of(rates: Sequence[KillRate]) -> float:
    needed = sum(rate.places - rate.redundant for rate in rates)
    return sum(rate.killed for rate in rates) / needed if needed else 1.0


def text_of(rate: KillRate | None) -> str:
    return "not measured of this build" if rate is None else rate.text()


def share_text(rates: Collection[KillRate | None]) -> str:
    """Of all allocators that have places, in one word: 98.5%, or 98.5%(3/4) where it was measured of three of four; unmeasured."""
    measured = [rate for rate in rates if rate is not None]
    if not measured:
        return "unmeasured"
    return f"{_share_of(measured):.1%}" + (f"({len(measured)}/{len(rates)})" if len(measured) < len(rates) else "")


def name(allocator: str, flush: str) -> str:
    """Whose rate it is: nvm_malloc, or nvm_malloc clflush."""
    return allocator if flush == "clwb" else f"{allocator} {flush}"


def command(allocator: str, flush: str) -> str:
    """What measures it."""
    return f"faultline mutate {allocator}" + ("" if flush == "clwb" else f" --workload W --flush {flush}")


def keep(cache: Cache, build: str, rate: KillRate) -> None:
    """Anew, but that of fewer workloads does not take the place of one of more."""
    earlier = find(cache, build)
    if earlier is not None and len(earlier.workloads) > len(rate.workloads):
        return
    cache.keep(FOLDER, f"{build}.json", rate)


def find(cache: Cache, build: str) -> KillRate | None:
    """Of this build; none if nobody measured it, or another version of this program did."""
    return cache.kept(FOLDER, f"{build}.json", KillRate)


def build_key(workshop: Workshop, target: Target) -> str:
    """Of everything that a kill rate is a function of, but the workloads."""
    heap = msgspec.json.encode(target.allocator.heap)
    contract = msgspec.json.encode(target.allocator.contract)
    helpers = msgspec.json.encode(target.helpers)
    builds = (target.build, target.runner.key, target.tracer.key)
    return key_of(*builds, heap, contract, helpers, hash_of_file(workshop.engine.path))
