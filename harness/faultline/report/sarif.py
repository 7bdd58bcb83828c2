# SPDX-License-Identifier: Apache-2.0
"""results.sarif (SARIF 2.1.0): the findings of clean cells, each at the sites of the stores that matter, for code review tools. The
finding's stable id is its fingerprint; its replay line is in the message, and that of its smallest witness. What the trace rules
say of stores are warnings, what they say of needless flushes and fences are notes. Kill rates are properties of the run.

The events up to the crash are the result's code flow, one thread flow a thread (SARIF 3.36, 3.37); executionOrder gives the memory
order over all threads. Events after the crash are left out: they do not lead to it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any
from urllib.parse import quote

import msgspec

from faultline import __version__
from faultline.campaign.causes import Cause, causes_of
from faultline.campaign.known import BASELINE_VERSION
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.pipeline.events import Finding, Site, TraceEvent
from faultline.report.trace_rules import AllocatorWarning, warnings_of
from faultline.study import kill_rates

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"


def render(results: Iterable[CellResult]) -> str:
    results = list(results)
    causes = causes_of(result for result in results if result.spec.mutant is None)
    findings = [found.finding for cause in causes for found in (cause.first, *cause.others)]
    warnings = warnings_of(results)
    rules = {finding.rule: (finding.title, finding.meaning) for finding in findings}
    rates = kill_rates_of(results)
    rules |= {entry.warning.rule: (entry.warning.title, entry.warning.meaning) for entry in warnings}
    run = {
        "tool": {
            "driver": {
                "name": "faultline",
                "version": __version__,
                "rules": [_rule(rule, *rules[rule]) for rule in sorted(rules)],
            }
        },
        "columnKind": "utf16CodeUnits",
        "properties": {
            "killRates": {kill_rates.name(*build): kill_rates.text_of(rate) for build, rate in rates.items()}
        },
        "originalUriBaseIds": {"ROOT": {"description": {"text": "the folder of the clone"}}},
        "results": [_result(cause) for cause in causes] + [_warning(entry) for entry in warnings],
    }
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [run]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


def _rule(rule: str, title: str, meaning: str) -> dict[str, Any]:
    """As the engine lists it: what is found has the engine's texts with it."""
    return {"id": rule, "shortDescription": {"text": title}, "fullDescription": {"text": meaning or title}}


def _result(cause: Cause) -> dict[str, Any]:
    result, finding = cause.first.result, cause.first.finding
    replay = ". ".join(line[0].upper() + line[1:] for line in result.replay_lines(finding))
    text = f"{finding.message}{finding.torn_words} ({result.spec.name}; {finding.operation_text()}). {replay}"
    text += "".join(f". Also: {other.text()}" for other in cause.others)
    locations = [_location(site) for site in finding.sites if site.file]
    more = [_location(site) for other in cause.others for site in other.finding.sites if site.file]
    locations += [place for at, place in enumerate(more) if place not in locations + more[:at]]
    flow = _thread_flows(finding)
    return {
        "ruleId": finding.rule,
        "level": "error",
        "message": {"text": text},
        "partialFingerprints": {f"faultline/v{BASELINE_VERSION}": finding.id},
        **_known(finding),
        "occurrenceCount": max(1, cause.first.seen),
        "locations": locations[:1],
        "relatedLocations": locations[1:],
        **({"properties": {"also": [other.finding.id for other in cause.others]}} if cause.others else {}),
        **({"codeFlows": [{"threadFlows": flow}]} if flow else {}),
    }


def _known(finding: Finding) -> dict[str, Any]:
    """SARIF 3.27.23, 3.27.24."""
    if finding.is_suppressed:
        return {"suppressions": [{"kind": "external", "justification": finding.known}]}
    return {"baselineState": "unchanged"} if finding.known else {}


def _warning(entry: AllocatorWarning) -> dict[str, Any]:
    warning = entry.warning
    shown = f": {', '.join(entry.shown_by)}" if entry.shown_by else ""
    return {
        "ruleId": warning.rule,
        "level": "error" if entry.shown_by else "warning" if warning.concern == "loss" else "note",
        "message": {"text": f"{entry.allocator}: {warning.title}{shown}"},
        "partialFingerprints": {f"faultline/v{BASELINE_VERSION}": f"{entry.allocator}/{warning.id}"},
        "occurrenceCount": entry.count,
        "locations": [_location(warning.site)] if warning.site.file else [],
    }


def _thread_flows(finding: Finding) -> list[dict[str, Any]]:
    threads: dict[str, list[dict[str, Any]]] = {}
    for event in finding.events:
        if event.position <= finding.position:
            threads.setdefault(event.thread_text(), []).append(_step(event))
    return [{"id": f"thread {thread}", "locations": steps} for thread, steps in threads.items()]


def _step(event: TraceEvent) -> dict[str, Any]:
    words = (event.operation_text(), event.kind, event.place_text(), event.value, event.state_text())
    location = _location(event.site) if event.site and event.site.file else {}
    is_lost = event.is_persisted in ("no", "torn")
    return {
        "location": {**location, "message": {"text": "; ".join(word for word in words if word)}},
        "executionOrder": event.position,
        "importance": "essential" if is_lost else "important",
    }


def _location(site: Site) -> dict[str, Any]:
    file = site.file or ""
    artifact = {"uri": quote(file.removeprefix("./")), "uriBaseId": "ROOT"}
    if file.startswith("/"):  # not of the clone: a system library
        artifact = {"uri": f"file://{quote(file)}"}
    physical: dict[str, Any] = {"artifactLocation": artifact}
    if site.line:
        physical["region"] = {"startLine": site.line}
    function = {"logicalLocations": [{"name": site.function, "kind": "function"}]} if site.function else {}
    return {"physicalLocation": physical, **function}
