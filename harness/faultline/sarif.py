# SPDX-License-Identifier: Apache-2.0
"""results.sarif (SARIF 2.1.0): the findings of clean cells, each at the sites of the stores that matter, for code review tools. The
finding's stable id is its fingerprint; its replay line is in the message."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from faultline import __version__
from faultline.engine import Finding, Site
from faultline.results import CellResult


def render(results: Iterable[CellResult]) -> str:
    findings = [(result, finding) for result in results if result.spec.mutant is None for finding in result.findings]
    rules = {finding.rule: finding.title for _, finding in findings}
    run = {
        "tool": {
            "driver": {
                "name": "faultline",
                "version": __version__,
                "rules": [{"id": rule, "shortDescription": {"text": rules[rule]}} for rule in sorted(rules)],
            }
        },
        "columnKind": "utf16CodeUnits",
        "originalUriBaseIds": {"ROOT": {"description": {"text": "the folder of the clone"}}},
        "results": [_result(result, finding) for result, finding in findings],
    }
    return msgspec.json.format(msgspec.json.encode({"version": "2.1.0", "runs": [run]}), indent=2).decode() + "\n"


def _result(result: CellResult, finding: Finding) -> dict[str, Any]:
    text = (
        f"{finding.message} ({result.spec.name}; {finding.operation_text()}). Replay: faultline replay {finding.token}"
    )
    locations = [_location(site) for site in finding.sites if site.file]
    return {
        "ruleId": finding.rule,
        "level": "error",
        "message": {"text": text},
        "partialFingerprints": {"faultline/v1": finding.id},
        "occurrenceCount": max(1, finding.seen),
        "locations": locations[:1],
        "relatedLocations": locations[1:],
    }


def _location(site: Site) -> dict[str, Any]:
    physical: dict[str, Any] = {"artifactLocation": {"uri": (site.file or "").removeprefix("./"), "uriBaseId": "ROOT"}}
    if site.line:
        physical["region"] = {"startLine": site.line}
    return {"physicalLocation": physical, "logicalLocations": [{"name": site.function, "kind": "function"}]}
