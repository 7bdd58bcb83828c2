# SPDX-License-Identifier: Apache-2.0
"""Addresses in report.html: what CI can link to. A finding's is its id; behind it stands the build's name where another build has a
finding of the same id. A rule's is its id."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable

from faultline.campaign.results import CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Finding


class Addresses:
    """Of the findings of a campaign. Clean allocators come first: theirs are the ids as people know them."""

    def __init__(self, results: Iterable[CellResult]) -> None:
        self._found: dict[tuple[str, str | None, str], str] = {}
        taken: set[str] = set()
        for result in sorted(results, key=lambda one: one.spec.mutant is not None):
            for finding in result.findings:
                key = (result.spec.allocator, result.spec.mutant, finding.id)
                if key not in self._found:
                    self._found[key] = address = _free(result.spec, finding, taken)
                    taken.add(address)

    def of(self, spec: CellSpec, finding: Finding) -> str:
        return self._found[(spec.allocator, spec.mutant, finding.id)]


def _free(spec: CellSpec, finding: Finding, taken: set[str]) -> str:
    """The shortest one that nobody has."""
    names = [re.sub(r"[^A-Za-z0-9_-]", "-", one) for one in (finding.id, spec.allocator, spec.mutant or "clean")]
    choices = (".".join(names[:length]) for length in (1, 2, 3))
    numbered = (f"{'.'.join(names)}.{turn}" for turn in itertools.count(2))
    return next(one for one in itertools.chain(choices, numbered) if one not in taken)


class Links:
    """To the report of a campaign; empty where nobody said where it will be read."""

    def __init__(self, environment: Environment, results: Iterable[CellResult]) -> None:
        self._page = environment.report_url.partition("#")[0]
        self._addresses = Addresses(results)

    def to(self, spec: CellSpec, finding: Finding) -> str:
        return self._to(self._addresses.of(spec, finding))

    def to_rule(self, rule: str) -> str:
        return self._to(rule)

    def _to(self, address: str) -> str:
        return f"{self._page}#{address}" if self._page else ""
