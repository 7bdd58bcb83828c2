# SPDX-License-Identifier: Apache-2.0
"""junit.xml: one test case a cell. A clean cell fails by its new findings, a mutant by surviving; no verdict is an error. What a
limit left incomplete is skipped.
The kill rate of its allocator is a property of the suite."""

from __future__ import annotations

import xml.etree.ElementTree as ET
from collections.abc import Iterable

from faultline.base.text import count
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.study import kill_rates


def render(results: Iterable[CellResult]) -> str:
    suites = ET.Element("testsuites", name="faultline")
    groups: dict[str, list[CellResult]] = {}
    for result in results:
        groups.setdefault(result.spec.allocator, []).append(result)
    for allocator, group in groups.items():
        _add_suite(suites, allocator, group)
    ET.indent(suites)
    return ET.tostring(suites, encoding="unicode", xml_declaration=True) + "\n"


def _add_suite(suites: ET.Element, allocator: str, results: list[CellResult]) -> None:
    suite = ET.SubElement(suites, "testsuite", name=allocator, tests=str(len(results)))
    rates = kill_rates_of(results)
    properties = ET.SubElement(suite, "properties") if rates else suite
    for build, rate in rates.items():
        ET.SubElement(
            properties, "property", name=f"kill rate of {kill_rates.name(*build)}", value=kill_rates.text_of(rate)
        )
    counts = {"failure": 0, "error": 0, "skipped": 0}
    for result in results:
        seconds = result.build_s + result.trace_s + result.explore_s
        name = result.spec.name.removeprefix(f"{allocator} ")
        case = ET.SubElement(suite, "testcase", classname=f"faultline.{allocator}", name=name, time=f"{seconds:.3f}")
        problem = _problem(result)
        if problem is not None:
            kind, message, text = problem
            counts[kind] += 1
            element = ET.SubElement(case, kind, message=message)
            if kind != "skipped":  # which has no type, and no text that readers show
                element.set("type", f"faultline.{kind}")
                element.text = _printable(text)
    suite.set("failures", str(counts["failure"]))
    suite.set("errors", str(counts["error"]))
    suite.set("skipped", str(counts["skipped"]))


def _problem(result: CellResult) -> tuple[str, str, str] | None:
    """Kind of element, message, text; None when the cell is as it should be."""
    found = "\n".join(
        "\n".join([f"{finding.rule} {finding.headline}: {finding.message}", *result.replay_lines(finding)])
        for finding in result.new_findings
    )
    if result.spec.mutant is not None and result.is_killed:
        return None
    new = result.new_findings
    if result.spec.mutant is None and new:
        rules = ", ".join(sorted({f"{finding.rule} {finding.title}" for finding in new}))
        return "failure", _printable(f"{count(len(new), 'finding')}: {rules}"), found
    if result.is_unknown:
        why = result.error or (result.certificate.why if result.certificate else "no verdict")
        return "error", f"unknown: {_printable(why)}", found
    if result.is_incomplete:
        return "skipped", f"incomplete: {_printable(result.certificate.why if result.certificate else '')}", found
    if result.spec.mutant is not None:
        return "failure", f"survived: expected {result.spec.expected_rule}", found or "no finding"
    return None


def _printable(text: str) -> str:
    """XML 1.0 has no way to write most control characters."""
    return "".join(letter if letter.isprintable() or letter in "\n\t" else "?" for letter in text)
