# SPDX-License-Identifier: Apache-2.0
"""What is different between two campaigns: findings that are new, fixed or changed, cells that end otherwise, what certificates say
of them, and cells that are slower.

A finding is fixed only if the later campaign would have found it: each cell that showed it was explored again, to the end and at
least as far. Otherwise it is *not seen again*, and the comparison says why. Findings of mutants are expected, and not compared; a
mutant that survives is a cell that ends otherwise."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Literal

import msgspec

from faultline.base.text import count
from faultline.campaign.known import explored_of, is_stopped
from faultline.campaign.recorded import Identity, Recorded, cells_by_identity
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.pipeline.events import Certificate, Finding
from faultline.report.addresses import Links
from faultline.report.outcomes import outcome
from faultline.study import kill_rates

SLOWER_RATIO = 1.5
SLOWER_S = 2.0
"""A cell is slower when tracing and exploring take both so many times as long and so many seconds more: less is noise."""
Word = Literal["new", "fixed", "not seen again", "changed"]


class Change(msgspec.Struct):
    """One fact of two campaigns, in words."""

    what: str
    before: str
    after: str

    def text(self) -> str:
        return f"{self.what}: {self.before} → {self.after}"


class FindingChange(msgspec.Struct):
    """A finding of an allocator. cells: that show it, by name; why: of one that is not seen again; changes: of one that both have;
    link: to its part of report.html, where somebody said where that is."""

    word: Word
    allocator: str
    id: str
    headline: str
    message: str
    place: str
    repair: str
    replay: str
    cells: list[str]
    is_known: bool = False
    why: str = ""
    changes: list[Change] = []
    link: str = ""

    def text(self) -> str:
        place = f" at {self.place}" if self.place else ""
        return f"{self.id} {self.allocator}: {self.headline}{place}"


class CellChange(msgspec.Struct):
    """What is different of a cell that both have."""

    name: str
    changes: list[Change]

    def text(self) -> str:
        return f"{self.name}: {'; '.join(change.text() for change in self.changes)}"


class SlowerCell(msgspec.Struct):
    """Seconds of tracing and exploring."""

    name: str
    before_s: float
    after_s: float

    def text(self) -> str:
        return f"{self.name}: {self.before_s:,.1f} s → {self.after_s:,.1f} s ({self.after_s / self.before_s:.1f} times)"


class Comparison(msgspec.Struct):
    """before, after: what was compared, as the user named it; cells: that both have. outcomes: of cells that end otherwise;
    certificates: of those that cover more or less."""

    before: str
    after: str
    cells: int
    findings: list[FindingChange]
    outcomes: list[CellChange]
    certificates: list[CellChange]
    slower: list[SlowerCell]
    added: list[str]
    removed: list[str]
    kill_rates: list[Change]
    is_stopped: bool
    """The later campaign did not reach its end."""
    survivors: list[str] = []
    """Mutants that were killed, or were not there, and survive."""
    opened: list[str] = []
    """Cells that have no verdict, and had one or were not there."""

    def of(self, word: Word) -> list[FindingChange]:
        return [finding for finding in self.findings if finding.word == word]

    @property
    def new(self) -> list[FindingChange]:
        """New findings that nobody has taken for known."""
        return [finding for finding in self.of("new") if not finding.is_known]

    @property
    def is_worse(self) -> bool:
        return bool(self.new or self.survivors)

    @property
    def is_open(self) -> bool:
        return self.is_stopped or bool(self.opened)

    @property
    def headline(self) -> str:
        """1 new finding, 2 fixed; 56 cells compared"""
        parts = [count(len(found), "new finding") for found in [self.new] if found]
        parts += [f"{len(found)} {word}" for word in ("fixed", "not seen again", "changed") if (found := self.of(word))]
        parts += [f"{count(len(self.survivors), 'mutant')} survive{'s' * (len(self.survivors) == 1)}"] * bool(
            self.survivors
        )
        parts += [f"{count(len(self.opened), 'cell')} without a verdict"] * bool(self.opened)
        parts += [f"{count(len(self.slower), 'cell')} slower"] * bool(self.slower)
        said = ", ".join(parts) or "no finding is new, fixed or changed"
        stopped = "; the later campaign was stopped before its end" if self.is_stopped else ""
        return f"{said}; {count(self.cells, 'cell')} compared{stopped}"


def compare(before: Recorded, after: Recorded) -> Comparison:
    old, new = cells_by_identity(before.results), cells_by_identity(after.results)
    both = [(old[key], result) for key, result in new.items() if key in old]
    return Comparison(
        before=before.name,
        after=after.name,
        cells=len(both),
        findings=list(_findings(before, after)),
        outcomes=list(_changed(both, _outcome_changes)),
        certificates=list(_changed(both, _certificate_changes)),
        slower=list(_slower(both)),
        added=[result.spec.name for key, result in new.items() if key not in old],
        removed=[result.spec.name for key, result in old.items() if key not in new],
        kill_rates=list(_kill_rates(before.results, after.results)),
        is_stopped=after.state != "done",
        survivors=list(_newly(old, new, lambda result: outcome(result) == "survived")),
        opened=list(_newly(old, new, lambda result: result.is_open)),
    )


def _newly(
    old: dict[Identity, CellResult], new: dict[Identity, CellResult], holds: Callable[[CellResult], bool]
) -> Iterator[str]:
    """Names of cells of which it holds, and did not."""
    for key, result in new.items():
        if holds(result) and not (key in old and holds(old[key])):
            yield result.spec.name


# ---- findings ------------------------------------------------------------------------------------------------------------


class _Seen(msgspec.Struct):
    """A finding of one campaign, and its cells."""

    finding: Finding
    cells: list[CellResult]

    @property
    def names(self) -> list[str]:
        return [cell.spec.name for cell in self.cells]

    @property
    def repair(self) -> str:
        explained = [found for cell in self.cells if (found := cell.explanation_of(self.finding))]
        return next((one.repair.text for one in explained if one.repair), "")

    @property
    def place(self) -> str:
        return next((text for site in self.finding.sites if (text := site.text())), "")


def _seen(results: Iterable[CellResult]) -> dict[tuple[str, str], _Seen]:
    found: dict[tuple[str, str], _Seen] = {}
    for result in results:
        for finding in result.findings if result.spec.mutant is None else ():
            found.setdefault((result.spec.allocator, finding.id), _Seen(finding, [])).cells.append(result)
    return found


def _findings(before: Recorded, after: Recorded) -> Iterator[FindingChange]:
    old, new = _seen(before.results), _seen(after.results)
    old_links, new_links = (Links(one.environment, one.results) for one in (before, after))
    for key, seen in new.items():
        changes = list(_finding_changes(old[key], seen)) if key in old else []
        if key not in old or changes:
            yield _change("changed" if key in old else "new", key[0], seen, new_links, changes=changes)
    for key, seen in old.items():
        if key not in new:
            why = _why_not_fixed(seen, after.results)
            yield _change("not seen again" if why else "fixed", key[0], seen, old_links, why=why)


def _change(
    word: Word, allocator: str, seen: _Seen, links: Links, changes: list[Change] | None = None, why: str = ""
) -> FindingChange:
    finding = seen.finding
    return FindingChange(
        word,
        allocator,
        finding.id,
        finding.headline,
        finding.message,
        seen.place,
        seen.repair,
        seen.cells[0].spec.replay_command(finding.token),
        seen.names,
        finding.known is not None,
        why,
        changes or [],
        links.to(seen.cells[0].spec, finding),
    )


def _finding_changes(old: _Seen, new: _Seen) -> Iterator[Change]:
    """Not its message, in which numbers of operations and addresses are."""
    facts = (
        ("place", old.place, new.place),
        ("repair", old.repair, new.repair),
        ("known", old.finding.known or "", new.finding.known or ""),
        ("cells", ", ".join(sorted(old.names)), ", ".join(sorted(new.names))),
    )
    for what, before, after in facts:
        if before != after:
            yield Change(what, before or "none", after or "none")


def _why_not_fixed(seen: _Seen, results: list[CellResult]) -> str:
    """Empty: every cell that showed it was explored again, to the end."""
    return next((why for cell in seen.cells if (why := _why_not_reached(cell, results))), "")


def _why_not_reached(cell: CellResult, results: list[CellResult]) -> str:
    again = [result for result in results if result.spec.name == cell.spec.name]
    if any(_reaches(result, cell) for result in again):
        return ""
    name = cell.spec.name
    if not again:
        return f"{name} was not run"
    if any(is_stopped(result) or result.is_incomplete for result in again):
        return f"{name} was not explored to its end"
    if any(not result.is_explored or result.is_unknown for result in again):
        return f"{name} has no verdict"
    return f"{name} was explored less far"


def _reaches(result: CellResult, cell: CellResult) -> bool:
    is_whole = result.is_explored and not (is_stopped(result) or result.is_unknown or result.is_incomplete)
    return is_whole and explored_of(result).reaches(explored_of(cell))


# ---- cells ---------------------------------------------------------------------------------------------------------------

Pairs = list[tuple[CellResult, CellResult]]


def _changed(pairs: Pairs, facts: Callable[[CellResult, CellResult], Iterator[Change]]) -> Iterator[CellChange]:
    for old, new in pairs:
        changes = [change for change in facts(old, new) if change.before != change.after]
        if changes:
            yield CellChange(new.spec.name, changes)


def _outcome_changes(old: CellResult, new: CellResult) -> Iterator[Change]:
    yield Change("outcome", outcome(old), outcome(new))


def _certificate_changes(old: CellResult, new: CellResult) -> Iterator[Change]:
    if old.certificate is None or new.certificate is None:
        there = ("none", "there")
        yield Change("certificate", there[old.certificate is not None], there[new.certificate is not None])
        return
    for (what, before), (_, after) in zip(_covered(old.certificate), _covered(new.certificate), strict=True):
        yield Change(what, before, after)


def _covered(certificate: Certificate) -> Iterator[tuple[str, str]]:
    """What it says of how much was covered; how many recoveries that took is no part of it."""
    not_complete = f"no ({certificate.why})" if certificate.why else "no"
    yield "complete", "yes" if certificate.complete else not_complete
    yield "crash positions", f"{certificate.crash_positions:,}"
    yield "reachable states", certificate.states
    yield "rules judged", " ".join(certificate.rules_judged) or "none"


def _slower(pairs: Pairs) -> Iterator[SlowerCell]:
    """Those that were explored in both, the slowest first."""
    found = []
    for old, new in pairs:
        was, now = old.trace_s + old.explore_s, new.trace_s + new.explore_s
        is_measured = old.is_explored and new.is_explored and not (old.is_reused or new.is_reused) and was > 0
        if is_measured and now >= was * SLOWER_RATIO and now >= was + SLOWER_S:
            found.append(SlowerCell(new.spec.name, was, now))
    yield from sorted(found, key=lambda one: one.before_s - one.after_s)


def _kill_rates(old: list[CellResult], new: list[CellResult]) -> Iterator[Change]:
    """Of allocators that both have, and whose rate was measured in one of them."""
    before = kill_rates_of(old)
    for build, rate in kill_rates_of(new).items():
        if build in before and before[build] != rate:
            yield Change(kill_rates.name(*build), kill_rates.text_of(before[build]), kill_rates.text_of(rate))
