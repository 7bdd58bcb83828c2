# SPDX-License-Identifier: Apache-2.0
"""Known findings, which do not fail a campaign. They are those of a baseline, which is an earlier campaign, and those that a person
has suppressed until a date, for a reason.

A baseline is `results.json`, or what `--write-baseline FILE` wrote:

    {"version": 7,
     "cells": [{"name": "x smoke", "strategy": "complete", "nested": 1, "follow_up": false}],
     "findings": [{"allocator": "x", "mutant": null, "id": "FL004-1a2b3c4d",
                   "cells": [{"name": "x smoke", "strategy": "complete", "nested": 1, "follow_up": false}]}]}

A file of suppressions:

    [[suppression]]
    id = "FL004-1a2b3c4d"      # as `run` and the reports print it
    reason = "lost only where clwb is a no-op; issue 17"
    expires = 2027-03-31       # the last day on which it is suppressed (UTC)
    allocator = "x"            # if ids of other allocators could be meant
    mutant = "MISSING_FENCE"   # if it is a mutant's finding; without it, the clean allocator's

A known finding of a mutant is not known of the clean allocator, and the other way round."""

from __future__ import annotations

import datetime
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from faultline.base.config import Line, read_toml
from faultline.base.errors import BadInputError
from faultline.base.input_files import read_input
from faultline.base.text import count
from faultline.campaign.results import RESULTS_VERSION, CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Finding

BASELINE_VERSION = 7
FindingId = Annotated[str, Meta(pattern="^FL[0-9]{3}-[0-9a-f]{8}$")]


class Suppression(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    id: FindingId
    reason: Line
    expires: datetime.date
    allocator: str | None = None
    mutant: str | None = None

    def is_of_build(self, spec: CellSpec) -> bool:
        return self.allocator in (None, spec.allocator) and self.mutant == spec.mutant

    def is_of(self, spec: CellSpec, finding: Finding) -> bool:
        return finding.id == self.id and self.is_of_build(spec)


class _Suppressions(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    suppression: list[Suppression] = []


class Explored(msgspec.Struct, frozen=True):
    """A cell by name, and how far it was explored."""

    name: str
    strategy: str
    """What ran."""
    nested: int
    follow_up: bool

    def reaches(self, other: Explored) -> bool:
        """Whether what other found would be found here, too, if it were still there."""
        goes_on = self.follow_up or not other.follow_up or other.nested == 0
        is_as_strong = self.strategy in (other.strategy, "complete")
        return self.name == other.name and is_as_strong and self.nested >= other.nested and goes_on


class BaselineFinding(msgspec.Struct, frozen=True):
    allocator: str
    id: FindingId
    mutant: str | None = None
    cells: list[Explored] = []
    """Where it was found."""

    def is_of_build(self, spec: CellSpec) -> bool:
        return (self.allocator, self.mutant) == (spec.allocator, spec.mutant)

    def is_of(self, spec: CellSpec, finding: Finding) -> bool:
        return finding.id == self.id and self.is_of_build(spec)


class Baseline(msgspec.Struct, frozen=True):
    version: int
    findings: list[BaselineFinding]
    cells: list[Explored]
    """All that were run."""


@dataclass
class KnownFindings:
    """What is known when a campaign begins."""

    baseline: Baseline | None = None
    suppressions: list[Suppression] = field(default_factory=list)
    today: datetime.date = field(default_factory=lambda: datetime.datetime.now(datetime.UTC).date())

    def mark(self, result: CellResult) -> None:
        """Says of each finding of a cell why it is known, if it is."""
        for finding in result.findings:
            finding.known, finding.is_suppressed = self._why(result.spec, finding)

    def _why(self, spec: CellSpec, finding: Finding) -> tuple[str | None, bool]:
        for suppression in self.suppressions:
            if suppression.is_of(spec, finding) and suppression.expires >= self.today:
                return f"suppressed until {suppression.expires}: {suppression.reason}", True
        known = self.baseline.findings if self.baseline else []
        return ("in the baseline" if any(one.is_of(spec, finding) for one in known) else None), False

    def ids_of(self, spec: CellSpec) -> list[str]:
        """Known findings of the cell's build."""
        suppressed = (one for one in self.suppressions if one.expires >= self.today)
        known = self.baseline.findings if self.baseline else []
        of_baseline = {one.id for one in known if one.is_of_build(spec)}
        return sorted(of_baseline | {one.id for one in suppressed if one.is_of_build(spec)})

    def lines(self, results: list[CellResult]) -> list[str]:
        """What a person must do about the two files: suppressions that have expired, entries that nothing is found of any more."""
        found = [(result.spec, finding) for result in results for finding in result.findings]
        lines = []
        for one in self.suppressions:
            its = [pair for pair in found if one.is_of(*pair)]
            if its and one.expires < self.today:
                counts = any(self._why(*pair)[0] is None for pair in its)
                now = "counts again" if counts else "does not count all the same: it is known otherwise"
                lines.append(f"expired: {one.id} was suppressed until {one.expires} ({one.reason}) and {now}")
        explored = [explored_of(result) for result in results if result.is_explored and not is_stopped(result)]

        def reach(cells: list[Explored]) -> bool:
            return all(any(one.reaches(cell) for one in explored) for cell in cells)

        for entry in self.baseline.findings if self.baseline else []:
            if entry.cells and reach(entry.cells) and not any(entry.is_of(*pair) for pair in found):
                lines.append(f"stale: {entry.id} of {entry.allocator} is in the baseline and is not found any more")
        if self.baseline is None or reach(self.baseline.cells):  # else one that a part of them lacks is no news
            lines += [
                f"stale: {one.id} is suppressed ({one.reason}) and is not found in this campaign"
                for one in self.suppressions
                if not any(one.is_of(*pair) for pair in found)
            ]
        return lines


def explored_of(result: CellResult) -> Explored:
    spec = result.spec
    ran = result.certificate.strategy if result.certificate is not None else spec.strategy
    return Explored(spec.name, ran, spec.nested, spec.follow_up)


def is_stopped(result: CellResult) -> bool:
    """Before its end: what it did not find may be behind that."""
    return result.certificate is not None and result.certificate.stopped is not None


def read_known(baseline: Path | None, suppressions: Path | None, specs: Iterable[CellSpec]) -> KnownFindings:
    """Raises BadInputError when a file is not what it should be, or the baseline is of other allocators than the cells are."""
    known = KnownFindings()
    if suppressions is not None:
        known.suppressions = read_toml(suppressions, _Suppressions).suppression
        _check_once(suppressions, known.suppressions)
    if baseline is not None:
        known.baseline = _read_baseline(baseline)
        _check_is_of(baseline, known.baseline, specs)
    return known


def _check_once(path: Path, suppressions: list[Suppression]) -> None:
    seen: set[tuple[str, str | None, str | None]] = set()
    for one in suppressions:
        if (one.id, one.allocator, one.mutant) in seen:
            raise BadInputError(f"{path}: {one.id} is suppressed twice", "leave one of the two")
        seen.add((one.id, one.allocator, one.mutant))


BASELINE_HINT = "name the results.json of an earlier campaign, or write one with --write-baseline FILE"


def _read_baseline(path: Path) -> Baseline:
    try:
        document: Any = msgspec.json.decode(read_input(path, BASELINE_HINT))
        is_results = isinstance(document, dict) and "summary" in document
        version, expected = document["version"], RESULTS_VERSION if is_results else BASELINE_VERSION
        if version == expected:
            return msgspec.convert(_of_results(document) if is_results else document, Baseline)
    except (msgspec.MsgspecError, UnicodeDecodeError, LookupError, TypeError, RecursionError) as error:
        raise BadInputError(f"{path}: is no baseline: {error}", BASELINE_HINT) from error
    raise BadInputError(
        f"{path}: a baseline of version {version}, expected {expected}: its findings have other ids",
        "run the campaign again with --write-baseline FILE, look at what is new, and name that file",
    )


def _of_results(document: Any) -> dict[str, Any]:
    results = [msgspec.convert(cell, CellResult) for cell in document["cells"]]
    return baseline_of(results)


def baseline_of(results: list[CellResult]) -> dict[str, Any]:
    """As a baseline file holds it. What is suppressed is known for its own reason, and only until then."""
    cells: dict[tuple[str, str | None, str], list[dict[str, Any]]] = {}
    for result in results:
        for finding in result.findings:
            if not finding.is_suppressed:
                key = result.spec.allocator, result.spec.mutant, finding.id
                cells.setdefault(key, []).append(msgspec.to_builtins(explored_of(result)))
    findings = [
        {"allocator": allocator, "mutant": mutant, "id": identity, "cells": found_in}
        for (allocator, mutant, identity), found_in in cells.items()
    ]
    return {
        "version": BASELINE_VERSION,
        "findings": findings,
        "cells": [msgspec.to_builtins(explored_of(result)) for result in results if result.is_explored],
    }


def _check_is_of(path: Path, baseline: Baseline, specs: Iterable[CellSpec]) -> None:
    """A baseline of something else would let every finding through as new, or hide that it is the wrong file."""
    allocators = {spec.allocator for spec in specs}
    known = {cell.name.partition(" ")[0] for cell in baseline.cells} | {one.allocator for one in baseline.findings}
    if not known & allocators:
        raise BadInputError(
            f"{path}: a stale baseline: it is of {', '.join(sorted(known)) or 'no cell'}, and not of "
            f"{', '.join(sorted(allocators))}",
            BASELINE_HINT,
        )


def write_baseline(path: Path, results: list[CellResult]) -> str:
    """Writes it; says so in a line."""
    document = baseline_of(results)
    try:
        path.write_bytes(msgspec.json.format(msgspec.json.encode(document), indent=2) + b"\n")
    except OSError as error:
        raise BadInputError(f"{path}: the baseline cannot be written: {error.strerror}") from error
    findings, cells = count(len(document["findings"]), "finding"), count(len(document["cells"]), "cell")
    return f"baseline: {path} has {findings} of {cells}"
