# SPDX-License-Identifier: Apache-2.0
"""The trace rules (FL1xx) that all cells of a campaign break, and the costs of operations (stores, flushes, fences) against
those of an earlier run."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import msgspec

from faultline.base.config import read_json
from faultline.base.errors import BadInputError
from faultline.campaign.results import CellResult
from faultline.pipeline.events import OperationCost, TraceWarning

FLUSH_ELSEWHERE = "FL104"
"""A flush of an address that is no PM. No state shows what it was meant for, so a person has to look at each place."""
COST_NAMES = ("stores", "bytes", "flushes", "fences", "lines", "redundant")


class Costs(msgspec.Struct):
    """What the operations of a workload paid. cell: allocator, workload and variant, as tables name them."""

    cell: str
    costs: list[OperationCost]


class _CostFile(msgspec.Struct):
    """What --protect writes; `trace --rules --json` prints that, too."""

    costs: Costs


def read_costs(path: Path) -> Costs:
    return read_json(path, _CostFile, "what --protect writes", "with --update it is written").costs


def growth(before: Costs, now: Costs) -> list[str]:
    """One line for each cost that an operation pays more of than before.

    Raises BadInputError when the two are of different cells: then the sums do not compare.
    """
    if before.cell != now.cell:
        raise BadInputError(
            f"the costs to compare with are of {before.cell!r}, these of {now.cell!r}", "trace the same cell"
        )
    known = {cost.operation: cost for cost in before.costs}
    lines = []
    for cost in now.costs:
        old = known.get(cost.operation)
        if old is None or old.operations != cost.operations:
            raise BadInputError(
                f"{now.cell}: {cost.operations} {cost.operation} operations, {old.operations if old else 0} before",
                "the workload has changed: --update writes the file anew",
            )
        for name in COST_NAMES:
            was, is_now = getattr(old, name), getattr(cost, name)
            if is_now > was:
                lines.append(
                    f"{cost.operation}: {name} {was / cost.operations:.2f} to {is_now / cost.operations:.2f} an operation"
                )
    return lines


class AllocatorWarning(msgspec.Struct):
    """A warning over all clean cells of an allocator. cells: numbers of those that have it; shown_by: ids of the findings that
    make it one itself, of states that lack its store and that a flush or a fence was tried to forbid."""

    allocator: str
    warning: TraceWarning
    count: int
    cells: list[int]
    shown_by: list[str] = []


def warnings_of(results: list[CellResult]) -> list[AllocatorWarning]:
    """By allocator, rule and site. Mutants do not count: what they forget is their point."""
    found: dict[tuple[str, str], AllocatorWarning] = {}
    for cell, result in enumerate(results):
        if result.spec.mutant is not None or result.trace_rules is None:
            continue
        for warning in result.trace_rules.warnings:
            key = (result.spec.allocator, warning.id)
            entry = found.setdefault(key, AllocatorWarning(result.spec.allocator, warning, 0, []))
            entry.count += warning.count
            entry.cells.append(cell)
    losses = [entry for entry in found.values() if entry.warning.concern == "loss"]
    for allocator, store, finding in _repaired(results):
        for entry in losses:
            is_shown = (entry.allocator, entry.warning.site.text()) == (allocator, store)
            if is_shown and finding not in entry.shown_by:
                entry.shown_by.append(finding)
    return sorted(found.values(), key=lambda entry: (entry.allocator, entry.warning.rule, entry.warning.site.text()))


def _repaired(results: list[CellResult]) -> Iterator[tuple[str, str, str]]:
    """Allocator, lost store and id of the findings that a flush or a fence was tried to forbid, and did."""
    for result in results:
        for explanation in result.explanations if result.spec.mutant is None else ():
            if explanation.repair is not None and not explanation.repair.is_order and explanation.lost:
                yield result.spec.allocator, explanation.lost, explanation.finding


def costs_of(results: list[CellResult]) -> dict[str, list[OperationCost]]:
    """What the operations of each allocator paid, over all clean cells."""
    sums: dict[str, dict[str, OperationCost]] = {}
    for result in results:
        if result.spec.mutant is not None or result.trace_rules is None:
            continue
        of_allocator = sums.setdefault(result.spec.allocator, {})
        for cost in result.trace_rules.costs:
            total = of_allocator.setdefault(cost.operation, OperationCost(cost.operation, 0, 0, 0, 0, 0, 0, 0))
            for name in ("operations", *COST_NAMES):
                setattr(total, name, getattr(total, name) + getattr(cost, name))
    return {allocator: list(costs.values()) for allocator, costs in sums.items()}


def warning_lines(results: list[CellResult]) -> list[str]:
    """One line an allocator: how many places break which trace rule; before it one for each place whose loss a finding shows, and
    one for each that flushes what is no PM."""
    places: dict[str, dict[str, int]] = {}
    lines = []
    for entry in warnings_of(results):
        if entry.shown_by:
            shown = f"{entry.warning.rule} {entry.warning.title}, at {entry.warning.site.text()}"
            lines.append(f"{entry.allocator}: a finding: {shown}: {', '.join(entry.shown_by)}")
            continue
        if entry.warning.rule == FLUSH_ELSEWHERE:
            shown = f"{entry.warning.rule} {entry.warning.title}, {entry.count:,} time{'s' * (entry.count > 1)}"
            lines.append(f"{entry.allocator}: a warning: {shown} at {entry.warning.site.text() or 'an unknown place'}")
            continue
        rules = places.setdefault(entry.allocator, {})
        rules[entry.warning.rule] = rules.get(entry.warning.rule, 0) + 1
    return lines + [
        f"{allocator}: warnings: "
        + ", ".join(f"{rule} at {count} place{'s' * (count > 1)}" for rule, count in rules.items())
        for allocator, rules in places.items()
    ]
