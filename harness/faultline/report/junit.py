# SPDX-License-Identifier: Apache-2.0
"""junit.xml: one test case a cell. A clean cell fails by its new findings, a mutant by surviving; no verdict is an error. What a
limit left incomplete is skipped. The totals stand on the suites and on all of them.

A case names the file and the line of its first finding, in the repository (places.py); the text has each finding's id, explanation,
repair and replay lines. The kill rate of its allocator is a property of the suite."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections import Counter
from collections.abc import Iterable, Iterator

from faultline.base.text import count
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Finding
from faultline.report.addresses import Links
from faultline.report.places import places_of
from faultline.report.reasons import reason_of
from faultline.study import kill_rates

COUNTED = {"failure": "failures", "error": "errors", "skipped": "skipped"}
"""Elements of a case, and the attributes of suites that count them."""


def render(results: Iterable[CellResult], environment: Environment | None = None) -> str:
    """The text of junit.xml."""
    environment = environment or Environment()
    results = list(results)
    suites = ET.Element("testsuites", name="faultline")
    groups: dict[str, list[CellResult]] = {}
    for result in results:
        groups.setdefault(result.spec.allocator, []).append(result)
    links = Links(environment, results)
    for allocator, group in groups.items():
        _add_suite(suites, allocator, group, environment, links)
    _set_totals(suites, results)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(
    suites: ET.Element, allocator: str, results: list[CellResult], environment: Environment, links: Links
) -> None:
    suite = ET.SubElement(suites, "testsuite", name=allocator)
    _set_totals(suite, results)
    if environment.started_utc:
        suite.set("timestamp", environment.started_utc.replace(" ", "T"))
    rates = kill_rates_of(results)
    properties = ET.SubElement(suite, "properties") if rates else suite
    for build, rate in rates.items():
        ET.SubElement(
            properties, "property", name=f"kill rate of {kill_rates.name(*build)}", value=kill_rates.text_of(rate)
        )
    for result in results:
        _add_case(suite, result, environment, links)


def _set_totals(element: ET.Element, results: list[CellResult]) -> None:
    problems = Counter(problem[0] for result in results if (problem := _problem(result)))
    element.set("tests", str(len(results)))
    for kind, attribute in COUNTED.items():
        element.set(attribute, str(problems[kind]))
    element.set("time", f"{sum(map(_seconds, results)):.3f}")


def _seconds(result: CellResult) -> float:
    return result.build_s + result.trace_s + result.explore_s


def _add_case(suite: ET.Element, result: CellResult, environment: Environment, links: Links) -> None:
    allocator = result.spec.allocator
    name = result.spec.name.removeprefix(f"{allocator} ")
    case = ET.SubElement(suite, "testcase", classname=f"faultline.{allocator}", name=name)
    case.set("time", f"{_seconds(result):.3f}")
    sites = [site for finding in result.new_findings for site in finding.sites]
    for spot in places_of(environment).spots(allocator, sites)[:1]:
        case.set("file", spot.file)
        if spot.line:
            case.set("line", str(spot.line))
    problem = _problem(result)
    if problem is None:
        return
    kind, message = problem
    element = ET.SubElement(case, kind, message=_printable(message))
    if kind != "skipped":  # which has no type, and no text that readers show
        element.set("type", f"faultline.{kind}")
        element.text = _printable("\n".join(_found(result, links)) or _what_next(result) or message)


def _problem(result: CellResult) -> tuple[str, str] | None:
    """Kind of element, and message; None when the cell is as it should be."""
    is_mutant = result.spec.mutant is not None
    if is_mutant and result.is_killed:
        return None
    new = result.new_findings
    if not is_mutant and new:
        rules = ", ".join(sorted({f"{finding.rule} {finding.title}" for finding in new}))
        return "failure", f"{count(len(new), 'finding')}: {rules}"
    if result.is_unknown:
        return "error", f"unknown: {result.error or (result.certificate.why if result.certificate else 'no verdict')}"
    if result.is_incomplete:
        return "skipped", f"incomplete: {result.certificate.why if result.certificate else ''}"
    return ("failure", f"survived: expected {result.spec.expected_rule}") if is_mutant else None


def _what_next(result: CellResult) -> str:
    reason = reason_of(result)
    return reason.next if reason else ""


def _found(result: CellResult, links: Links) -> Iterator[str]:
    for finding in result.new_findings:
        yield from _finding(result, finding, links)


def _finding(result: CellResult, finding: Finding, links: Links) -> Iterator[str]:
    yield f"{finding.id} {finding.headline}: {finding.message}"
    explained = result.explanation_of(finding)
    lines = explained.lines() if explained else [("at", finding.where_text())]
    yield from (f"{word}: {text}" for word, text in lines)
    yield from result.replay_lines(finding)
    if page := links.to(result.spec, finding):
        yield f"report: {page}"


def _printable(text: str) -> str:
    """XML 1.0 has no way to write most control characters."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
