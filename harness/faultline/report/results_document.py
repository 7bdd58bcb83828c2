# SPDX-License-Identifier: Apache-2.0
"""results.json: what a campaign found, for programs. docs/results.schema.json is its JSON schema; `faultline list --results-schema`
prints it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from faultline.campaign.results import RESULTS_VERSION, CellResult, Summary, summarise
from faultline.pipeline.environment import Environment


class ReportedCell(CellResult):
    """A cell. name: as tables call it; is_killed: of mutants alone."""

    name: str = ""
    is_killed_mutant: bool | msgspec.UnsetType = msgspec.field(default=msgspec.UNSET, name="is_killed")


class ResultsDocument(msgspec.Struct):
    """results.json. version: grows when ids change, or what a key means; state: how the campaign ended."""

    version: int
    state: str
    summary: Summary
    environment: Environment
    cells: list[ReportedCell]


def render(results: Iterable[CellResult], state: str, environment: Environment | None = None) -> str:
    """The text of results.json."""
    results = list(results)
    cells = [_reported(result) for result in results]
    document = ResultsDocument(RESULTS_VERSION, state, summarise(results), environment or Environment(), cells)
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _reported(result: CellResult) -> ReportedCell:
    facts: dict[str, Any] = {name: getattr(result, name) for name in result.__struct_fields__}
    is_killed = result.is_killed if result.spec.mutant is not None else msgspec.UNSET
    return ReportedCell(**facts, name=result.spec.name, is_killed_mutant=is_killed)


def schema() -> str:
    """JSON schema (2020-12) of results.json."""
    document = {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": f"faultline results.json, version {RESULTS_VERSION}",
        **msgspec.json.schema(ResultsDocument),
    }
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"
