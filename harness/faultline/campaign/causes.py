# SPDX-License-Identifier: Apache-2.0
"""Findings that have one cause are one entry of reports: the one nearest to the cause, and the others under it. One missing flush
breaks several rules, at several places, in several cells.

Two findings of a build have one cause where one repair mends both, or where both lack the same store and no two repairs tell them
apart. Of states that lack nothing, where the same thing is broken, or where the heap goes wrong at the same place. Without a crash,
where the same step of the probe fails in the same way, in whichever life."""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from faultline.campaign.results import CellResult
from faultline.pipeline.events import Finding, Loss

SYMPTOMS = ("FL001", "FL002")
"""Recovery fails or does not return: each says less of the heap than a rule that names what is wrong in it."""


@dataclass(frozen=True)
class Found:
    """A finding, and the first cell that shows it. more: the others."""

    result: CellResult
    finding: Finding
    more: tuple[CellResult, ...] = ()

    @property
    def seen(self) -> int:
        """Crash states, of all cells."""
        again = (one.seen for result in self.more for one in result.findings if one.id == self.finding.id)
        return self.finding.seen + sum(again)

    def text(self) -> str:
        """As one of several with one cause."""
        finding = self.finding
        return f"{finding.rule} {finding.headline} ({finding.id}, seen {self.seen}): {finding.message}"


@dataclass(frozen=True)
class Cause:
    """first: the finding nearest to the cause; others: the further ones, the nearest first."""

    first: Found
    others: tuple[Found, ...]


def causes_of(results: Iterable[CellResult]) -> list[Cause]:
    """In the order of their first findings. A known finding and a new one are never one entry."""
    builds: dict[Hashable, list[CellResult]] = {}
    for result in results:
        builds.setdefault((result.spec.allocator, result.spec.mutant), []).append(result)
    return [cause for cells in builds.values() for cause in _of_build(cells)]


def _of_build(results: Sequence[CellResult]) -> Iterator[Cause]:
    found = list(_found(results))
    by_repair = {_lost_place(one.finding): repair for one in found if (repair := _repair(one)) and one.finding.lost}
    groups: list[tuple[set[Hashable], list[Found]]] = []
    for one in found:
        keys = set(_keys(one, by_repair))
        joined = [group for group in groups if group[0] & keys]
        groups = [group for group in groups if not group[0] & keys]
        members = [member for group in joined for member in group[1]]
        groups.append((keys.union(*(group[0] for group in joined)), [*members, one]))
    order = {id(one): at for at, one in enumerate(found)}
    for _, members in sorted(groups, key=lambda group: min(order[id(one)] for one in group[1])):
        first, *others = sorted(members, key=lambda one: (*_distance(one.finding), order[id(one)]))
        yield Cause(first, tuple(others))


def _found(results: Sequence[CellResult]) -> Iterator[Found]:
    """Each id once."""
    cells: dict[str, list[tuple[CellResult, Finding]]] = {}
    for result in results:
        for finding in result.findings:
            cells.setdefault(finding.id, []).append((result, finding))
    for (result, finding), *more in cells.values():
        yield Found(result, finding, tuple(other for other, _ in more))


def _keys(one: Found, by_repair: dict[str | None, str]) -> Iterator[Hashable]:
    """Findings that share one have one cause."""
    finding = one.finding
    is_known = finding.known is not None
    repair = _repair(one) or by_repair.get(_lost_place(finding))
    if repair:
        yield is_known, "repair", repair
    elif not finding.needs_crash:
        yield is_known, "without-crash", re.sub(r" \S+/", " ", finding.fact)
    elif place := _lost_place(finding):
        yield is_known, "lost", place
    else:
        yield is_known, "broken", finding.rule, finding.fact
        yield from ((is_known, "wrong from", site.text()) for site in finding.sites[:1] if site.text())


def _repair(one: Found) -> str | None:
    """What mends it, as far as that was tried."""
    explained = one.result.explanation_of(one.finding)
    return explained.repair.text if explained is not None and explained.repair is not None else None


def _lost_place(finding: Finding) -> str | None:
    """Of the earliest store that is lost, in the first generation that lost one."""
    losses: list[Loss | None] = [*(crash.lost for crash in finding.earlier), finding.lost]
    places = (f"{lost.kind} {lost.site.text()}" for lost in losses if lost is not None and lost.site.text())
    return next(places, None)


def _distance(finding: Finding) -> tuple[int, bool, int]:
    """From the cause: the fewer crashes, the more that is said of the heap, the earlier the crash, the nearer."""
    return finding.crashes, finding.rule in SYMPTOMS, finding.position
