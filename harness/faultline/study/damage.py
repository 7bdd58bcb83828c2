# SPDX-License-Identifier: Apache-2.0
"""`faultline damage`: what an allocator makes of heaps that a medium or a stray store damaged. The engine damages one thing at a
time, in heaps with every store persisted, and runs the probe script on each."""

from __future__ import annotations

from collections import Counter

import msgspec

from faultline.pipeline.events import Damage, DamageOutcome, Damages, Event, Unknown
from faultline.pipeline.explore import ask_engine
from faultline.pipeline.prepared import PreparedCell

OUTCOMES: tuple[DamageOutcome, ...] = ("harmless", "detected", "given-up", "silent", "dies", "hangs", "unknown")
BAD: tuple[DamageOutcome, ...] = ("silent", "dies", "hangs")
"""FL016 where the kind was promised to be detected."""


class KindOfDamage(msgspec.Struct):
    """What became of the damages of one kind. possible: how many there are; tried: of these."""

    kind: str
    is_promised: bool
    tried: int
    possible: int
    outcomes: dict[str, int]


class DamageReport(msgspec.Struct):
    """broken: damages of kinds that the contract promises to detect, and that were not (FL016); why_unknown: what keeps a promise
    from being judged."""

    allocator: str
    workload: str
    kinds: list[KindOfDamage]
    damages: list[Damage]
    broken: list[Damage]
    why_unknown: list[str]

    def examples(self) -> list[Damage]:
        """The first damage of each kind that became each of the bad outcomes."""
        first = {(one.kind, one.outcome): one for one in reversed(self.damages) if one.outcome in BAD}
        ways = [(kind.kind, outcome) for kind in self.kinds for outcome in BAD]
        return [first[way] for way in ways if way in first]


def damage(cell: PreparedCell, at_most: int, only: str | None = None) -> DamageReport:
    """at_most: damages of each kind at each crash position; more are drawn with the seed."""
    found: list[Damage] = []
    counted = Damages()
    why_unknown: list[str] = []

    def handle(event: Event) -> None:
        nonlocal counted
        if isinstance(event, Damage):
            found.append(event)
        elif isinstance(event, Damages):
            counted = event
        elif isinstance(event, Unknown):
            why_unknown.extend(event.reasons)

    words = ["--at-most", str(at_most), *(["--only", only] if only else [])]
    ask_engine(cell, handle, "damage", *words)
    why_unknown += [f"not in order before it is damaged, and left out: {text}" for text in counted.skipped]
    promised = cell.target.allocator.contract.detects
    unknown = [one for one in found if one.outcome == "unknown" and one.kind in promised]
    kinds = [_of_kind(kind, found, counted, kind in promised) for kind in counted.kinds]
    if only is None:
        why_unknown += [
            f"{one.kind} is promised, and no heap had one" for one in kinds if one.is_promised and not one.tried
        ]
    return DamageReport(
        cell.spec.allocator,
        cell.spec.workload_text,
        kinds,
        found,
        [one for one in found if one.outcome in BAD and one.kind in promised],
        why_unknown + [f"{one.name}: {one.message}" for one in unknown],
    )


def _of_kind(kind: str, found: list[Damage], counted: Damages, is_promised: bool) -> KindOfDamage:
    outcomes = Counter(str(one.outcome) for one in found if one.kind == kind)
    return KindOfDamage(kind, is_promised, outcomes.total(), counted.possible.get(kind, 0), dict(outcomes))
