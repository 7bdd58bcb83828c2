# SPDX-License-Identifier: Apache-2.0
"""`faultline damage`: what an allocator makes of heaps that a medium or a stray store damaged. The engine damages one thing at a
time, in heaps with every store persisted, and runs the probe script on each."""

from __future__ import annotations

from collections import Counter
from typing import Literal

import msgspec

from faultline.base.config import Contract
from faultline.pipeline.events import Damage, DamageOutcome, Damages, Event, Unknown
from faultline.pipeline.explore import ask_engine
from faultline.pipeline.prepared import PreparedCell

OUTCOMES: tuple[DamageOutcome, ...] = (
    "harmless",
    "kept-out",
    "detected",
    "given-up",
    "silent",
    "dies",
    "hangs",
    "unknown",
)
BAD: tuple[DamageOutcome, ...] = ("silent", "dies", "hangs")
"""FL016 where the kind is promised to be detected."""
Promise = Literal["detected", "isolated"]
PROMISES: tuple[Promise, ...] = ("detected", "isolated")


class KindOfDamage(msgspec.Struct):
    """What became of the damages of one kind. promised: by the contract; possible: how many there are; tried: of these; isolated:
    so many of those that were tried, whatever became of them."""

    kind: str
    promised: list[Promise]
    tried: int
    possible: int
    outcomes: dict[str, int]
    isolated: int


class BrokenPromise(msgspec.Struct):
    """FL016. name, kind, outcome: of the damage that shows it."""

    promise: Promise
    name: str
    kind: str
    outcome: DamageOutcome


class DamageReport(msgspec.Struct):
    """broken: promises of the contract, each with each damage that shows it broken; why_unknown: what keeps a promise from being
    judged."""

    allocator: str
    workload: str
    is_promised: bool
    kinds: list[KindOfDamage]
    damages: list[Damage]
    broken: list[BrokenPromise]
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
    contract = cell.target.allocator.contract
    unknown = [one for one in found if one.outcome == "unknown" and _promised(contract, one.kind)]
    kinds = [_of_kind(kind, found, counted, _promised(contract, kind)) for kind in counted.kinds]
    known = set(counted.kinds)
    nobody = sorted({*contract.detects, *contract.isolates} - known)
    why_unknown += [f"{kind} is promised, and there is no such kind of damage" for kind in nobody]
    if only is None:
        why_unknown += [
            f"{one.kind} is promised, and no heap had one" for one in kinds if one.promised and not one.tried
        ]
    return DamageReport(
        cell.spec.allocator,
        cell.spec.workload_text,
        bool(contract.detects or contract.isolates),
        kinds,
        found,
        [promise for one in found for promise in _broken(one, contract)],
        why_unknown + [f"{one.name}: {one.message}" for one in unknown],
    )


def _promised(contract: Contract, kind: str) -> list[Promise]:
    promises: list[tuple[Promise, list[str]]] = [("detected", contract.detects), ("isolated", contract.isolates)]
    return [promise for promise, kinds in promises if kind in kinds]


def _broken(one: Damage, contract: Contract) -> list[BrokenPromise]:
    is_kept: dict[Promise, bool] = {
        "detected": one.outcome not in BAD,
        "isolated": one.is_isolated or one.outcome == "unknown",
    }
    broken = [promise for promise in _promised(contract, one.kind) if not is_kept[promise]]
    return [BrokenPromise(promise, one.name, one.kind, one.outcome) for promise in broken]


def _of_kind(kind: str, found: list[Damage], counted: Damages, promised: list[Promise]) -> KindOfDamage:
    of_kind = [one for one in found if one.kind == kind]
    outcomes = Counter(str(one.outcome) for one in of_kind)
    isolated = sum(one.is_isolated for one in of_kind)
    return KindOfDamage(kind, promised, len(of_kind), counted.possible.get(kind, 0), dict(outcomes), isolated)
