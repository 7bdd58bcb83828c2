# SPDX-License-Identifier: Apache-2.0
"""results.sarif (SARIF 2.1.0): the findings of clean cells, each at the sites of the stores that matter, for code review tools.

Findings with one cause are one result: the one nearest to the cause, with the places of the others as related locations. Its
fingerprint is the finding's stable id; its message has the explanation, the repair and the replay lines; its hostedViewerUri is its
part of report.html, where somebody said where that will be read. What the trace rules say of stores are warnings, what they say of
needless flushes and fences are notes. Cells without a verdict are notifications. Kill rates are properties of the run.

A location is relative to the repository that the allocator is in (places.py). A result's first location is always in there, since
services refuse a result that is nowhere.

The events up to the crash are the result's code flow, one thread flow a thread (SARIF 3.36, 3.37); executionOrder gives the memory
order over all threads. Events after the crash are left out: they do not lead to it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import quote

import msgspec

from faultline import __version__
from faultline.campaign.causes import Cause, Found, causes_of
from faultline.campaign.known import BASELINE_VERSION
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.pipeline.environment import Environment, Repository
from faultline.pipeline.events import Finding, TraceEvent
from faultline.report.addresses import Links
from faultline.report.outcomes import outcome
from faultline.report.places import Spot, places_of
from faultline.report.reasons import reason_of
from faultline.report.trace_rules import AllocatorWarning, warnings_of
from faultline.study import kill_rates

SCHEMA = "https://docs.oasis-open.org/sarif/sarif/v2.1.0/errata01/os/schemas/sarif-schema-2.1.0.json"
OWN_BASE = "FAULTLINE"
Json = dict[str, Any]


def render(results: Iterable[CellResult], state: str = "done", environment: Environment | None = None) -> str:
    """The text of results.sarif."""
    results = list(results)
    writer = _Writer(environment or Environment(), results)
    document = {"$schema": SCHEMA, "version": "2.1.0", "runs": [writer.run(results, state)]}
    return msgspec.json.format(msgspec.json.encode(document), indent=2).decode() + "\n"


class _Writer:
    """Of one run: what every part of it asks the environment for."""

    def __init__(self, environment: Environment, results: list[CellResult]) -> None:
        self.environment = environment
        self.places = places_of(environment)
        self.links = Links(environment, results)

    def run(self, results: list[CellResult], state: str) -> Json:
        causes = causes_of(result for result in results if result.spec.mutant is None)
        warnings = warnings_of(results)
        rates = kill_rates_of(results)
        rules = self.rules(causes, warnings)
        repositories = self.environment.repositories
        return {
            "tool": {"driver": {"name": "faultline", "version": __version__, "rules": rules}},
            "automationDetails": _automation(results, self.environment),
            "invocations": [self.invocation(results, state)],
            **_provenance(repositories),
            "columnKind": "utf16CodeUnits",
            "properties": {
                "killRates": {kill_rates.name(*build): kill_rates.text_of(rate) for build, rate in rates.items()}
            },
            "originalUriBaseIds": {
                **{
                    base_of(number): {"description": {"text": "the top folder of the repository"}}
                    for number in range(max(1, len(repositories)))
                },
                OWN_BASE: {"description": {"text": "the top folder of faultline's own sources"}},
            },
            "results": [self.result(cause) for cause in causes] + [self.warning(entry) for entry in warnings],
        }

    # ---- rules and invocation --------------------------------------------------------------------------------------------

    def rules(self, causes: list[Cause], warnings: list[AllocatorWarning]) -> list[Json]:
        """Those of the results, as the engine words them: what is found has the engine's texts with it."""
        findings = [found.finding for cause in causes for found in (cause.first, *cause.others)]
        texts = {finding.rule: (finding.title, finding.meaning) for finding in findings}
        texts |= {entry.warning.rule: (entry.warning.title, entry.warning.meaning) for entry in warnings}
        return [self.rule(rule, *texts[rule]) for rule in sorted(texts)]

    def rule(self, rule: str, title: str, meaning: str) -> Json:
        page = self.links.to_rule(rule)
        meant = meaning or title
        return {
            "id": rule,
            "name": _in_one_word(title),
            "shortDescription": {"text": title},
            "fullDescription": {"text": meant},
            "help": {"text": f"{rule}: {meant}. What to do about it: docs/triage.md of faultline."},
            **({"helpUri": page} if page else {}),
        }

    def invocation(self, results: list[CellResult], state: str) -> Json:
        """How the campaign ended, and what it could not say."""
        started = self.environment.started_utc.replace(" ", "T")
        return {
            "executionSuccessful": state == "done",
            **({"commandLine": self.environment.command} if self.environment.command else {}),
            **({"startTimeUtc": f"{started}Z"} if started else {}),
            "toolExecutionNotifications": list(_notifications(results)),
        }

    # ---- results ---------------------------------------------------------------------------------------------------------

    def result(self, cause: Cause) -> Json:
        result, finding = cause.first.result, cause.first.finding
        allocator = result.spec.allocator
        page = self.links.to(result.spec, finding)
        flow = list(self.thread_flows(allocator, finding))
        return {
            "ruleId": finding.rule,
            "level": "error",
            "message": {"text": _message(cause)},
            "partialFingerprints": {f"faultline/v{BASELINE_VERSION}": finding.id},
            **_known(finding),
            "occurrenceCount": max(1, cause.first.seen),
            **self.locations(cause),
            **({"hostedViewerUri": page} if page else {}),
            "properties": _properties(cause),
            **({"codeFlows": [{"threadFlows": flow}]} if flow else {}),
        }

    def locations(self, cause: Cause) -> Json:
        """The first place of the first finding, and the others, each with what it is."""
        allocator = cause.first.result.spec.allocator
        spots = self.places.spots(allocator, cause.first.finding.sites)
        related = [(spot, "the same finding") for spot in spots[1:]]
        for other in cause.others:
            found = (self.places.spot(allocator, site) for site in other.finding.sites)
            related += [(spot, f"the same cause: {_named(other)}") for spot in found if spot]
        words: dict[Spot, list[str]] = {}
        for spot, word in related:
            if word not in words.setdefault(spot, []):
                words[spot].append(word)
        return {
            "locations": [self.location(allocator, spot) for spot in spots[:1]],
            "relatedLocations": [
                {"id": number, **self.location(allocator, spot), "message": {"text": "; ".join(said)}}
                for number, (spot, said) in enumerate(words.items(), 1)
            ],
        }

    def warning(self, entry: AllocatorWarning) -> Json:
        warning = entry.warning
        shown = f": {', '.join(entry.shown_by)}" if entry.shown_by else ""
        spots = self.places.spots(entry.allocator, [warning.site])
        return {
            "ruleId": warning.rule,
            "level": "error" if entry.shown_by else "warning" if warning.concern == "loss" else "note",
            "message": {"text": f"{entry.allocator}: {warning.title}{shown}"},
            "partialFingerprints": {f"faultline/v{BASELINE_VERSION}": f"{entry.allocator}/{warning.id}"},
            "occurrenceCount": entry.count,
            "locations": [self.location(entry.allocator, spot) for spot in spots[:1]],
        }

    def thread_flows(self, allocator: str, finding: Finding) -> Iterator[Json]:
        threads: dict[str, list[Json]] = {}
        for event in finding.events:
            if event.position <= finding.position:
                threads.setdefault(event.thread_text(), []).append(self.step(allocator, event))
        for thread, steps in threads.items():
            yield {"id": f"thread {thread}", "locations": steps}

    def step(self, allocator: str, event: TraceEvent) -> Json:
        words = (event.operation_text(), event.kind, event.place_text(), event.value, event.state_text())
        spot = self.places.spot(allocator, event.site) if event.site else None
        location = self.location(allocator, spot) if spot else {}
        is_lost = event.is_persisted in ("no", "torn")
        return {
            "location": {**location, "message": {"text": "; ".join(word for word in words if word)}},
            "executionOrder": event.position,
            "importance": "essential" if is_lost else "important",
        }

    def location(self, allocator: str, spot: Spot) -> Json:
        base = OWN_BASE if spot.is_of_faultline else base_of(self.places.repository.get(allocator, 0))
        artifact = {"uri": quote(spot.file), "uriBaseId": base}
        if spot.file.startswith("/"):  # a system library, or what comes with faultline
            artifact = {"uri": f"file://{quote(spot.file)}"}
        physical: Json = {"artifactLocation": artifact}
        if spot.line:
            physical["region"] = {"startLine": spot.line}
        function = {"logicalLocations": [{"name": spot.function, "kind": "function"}]} if spot.function else {}
        return {"physicalLocation": physical, **function}


def base_of(repository: int) -> str:
    """What locations of a repository are relative to, by its number."""
    return "ROOT" if repository == 0 else f"ROOT{repository + 1}"


def _in_one_word(title: str) -> str:
    """aReturnedOperationIsLost: viewers expect a name without spaces."""
    first, *more = map(str, re.findall(r"[A-Za-z0-9]+", title) or ["rule"])
    return first + "".join(word[0].upper() + word[1:] for word in more)


def _automation(results: list[CellResult], environment: Environment) -> Json:
    """Runs of one kind are one series: a service compares a run with the one before of the same id, up to its last slash. Each
    shard of a matrix is a series of its own."""
    words = environment.command.split()
    series = "matrix"
    if words[1:2] == ["run"] and results:
        series = f"run/{re.sub(r'[^A-Za-z0-9_.-]+', '-', results[0].spec.name)}"
    elif environment.part is not None:
        series = f"matrix/shard-{environment.part.index}-of-{environment.part.count}"
    return {
        "id": f"faultline/{series}/{environment.started_utc.replace(' ', 'T')}",
        "description": {"text": environment.command or "faultline"},
    }


def _provenance(repositories: list[Repository]) -> Json:
    details = [
        {
            "repositoryUri": one.url,
            **({"revisionId": one.revision} if one.revision else {}),
            **({"branch": one.branch} if one.branch else {}),
            "mappedTo": {"uriBaseId": base_of(number)},
        }
        for number, one in enumerate(repositories)
        if one.url
    ]
    return {"versionControlProvenance": details} if details else {}


def _notifications(results: list[CellResult]) -> Iterator[Json]:
    for result in results:
        reason = reason_of(result)
        if reason is None and outcome(result) == "survived":
            text = f"survived: expected {result.spec.expected_rule}"
            yield {"level": "error", "message": {"text": f"{result.spec.name}: {text}"}}
        elif reason is not None and outcome(result) != "killed":
            then = f" ({reason.next})" if reason.next else ""
            text = f"{result.spec.name}: {reason.word}: {reason.why}{then}"
            yield {"level": "error" if result.error else "warning", "message": {"text": text}}


def _named(found: Found) -> str:
    return f"{found.finding.rule} {found.finding.headline} ({found.finding.id})"


def _message(cause: Cause) -> str:
    """What is wrong in the first sentence, which is all that lists show; then a line for each word of the explanation."""
    result, finding = cause.first.result, cause.first.finding
    said = f"{finding.message}{finding.torn_words} ({result.spec.name}; {finding.operation_text()})."
    explained = result.explanation_of(finding)
    explanation = explained.lines() if explained else [("at", finding.where_text())]
    lines = [f"{word}: {text}" for word, text in explanation]
    lines += result.replay_lines(finding)
    lines += [f"also: {other.text()}" for other in cause.others]
    return "\n".join([said, f"id: {finding.id}", *lines])


def _properties(cause: Cause) -> Json:
    result, finding = cause.first.result, cause.first.finding
    explained = result.explanation_of(finding)
    repair = explained.repair if explained else None
    return {
        "id": finding.id,
        **({"repair": repair.text} if repair else {}),
        "replay": result.spec.replay_command(finding.token),
        **({"also": [other.finding.id for other in cause.others]} if cause.others else {}),
    }


def _known(finding: Finding) -> Json:
    """SARIF 3.27.23, 3.27.24."""
    if finding.is_suppressed:
        return {"suppressions": [{"kind": "external", "justification": finding.known}]}
    return {"baselineState": "unchanged"} if finding.known else {}
