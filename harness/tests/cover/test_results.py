# SPDX-License-Identifier: Apache-2.0
"""The summary line, exit codes, and that reports are well-formed and say everything."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

import samples
from faultline import junit, report, sarif
from faultline.cli import exit_code_of_matrix
from faultline.errors import InfrastructureError
from faultline.results import CellResult, summarise


def test_the_summary_line_counts_clean_cells_and_killed_mutants() -> None:
    assert summarise(samples.campaign()).line() == (
        "summary: cells=3 findings=1 mutants=1/2 states=4.8e+09 recoveries=16332 complete=0/3 unknown=1"
    )


def test_counts_too_large_for_a_float_add_up() -> None:
    huge = [CellResult(samples.spec(), certificate=samples.certificate(states_log10=977.0)) for _ in range(4)]
    assert summarise(huge).states == "4.0e+977"
    assert summarise([]).states == "0"
    edge = [CellResult(samples.spec(), certificate=samples.certificate(states_log10=2.99999))]
    assert summarise(edge).states == "1.0e+03"


def test_a_mutant_is_killed_by_its_expected_rule_only() -> None:
    other = samples.finding(rule="FL009")
    result = CellResult(samples.spec(mutant="M", expected_rule="FL004"), verdict="fail", findings=[other])
    assert not result.is_killed
    assert report.outcome(result) == "survived"


@pytest.mark.parametrize(
    ("chosen", "code"), [([0], 0), ([0, 3], 0), ([0, 1], 1), ([0, 4], 1), ([0, 2], 3), ([1, 2], 1), ([2, 3], 3)]
)
def test_exit_code_of_a_matrix(chosen: list[int], code: int) -> None:
    cells = samples.campaign()
    assert exit_code_of_matrix([cells[index] for index in chosen]) == code


def test_junit_has_a_case_a_cell_and_its_counts_are_right() -> None:
    suite = ET.fromstring(junit.render(samples.campaign()))[0]
    assert (suite.get("tests"), suite.get("failures"), suite.get("errors")) == ("5", "2", "1")
    assert "fl1abcdef" in ET.tostring(suite, encoding="unicode")


def test_junit_survives_control_characters() -> None:
    result = CellResult(samples.spec(), verdict="unknown", error="bad \x00 byte \x1b[31m")
    assert ET.fromstring(junit.render([result])) is not None


def test_sarif_names_rule_site_and_fingerprint() -> None:
    [run] = json.loads(sarif.render(samples.campaign()))["runs"]
    [result] = run["results"]
    location = result["locations"][0]["physicalLocation"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "FL004"
    assert location["artifactLocation"]["uri"] == "allocators/x/src/activate.c"
    assert location["region"]["startLine"] == 12
    assert result["partialFingerprints"]["faultline/v1"] == "FL004-1a2b3c4d"
    assert "faultline replay fl1abcdef" in result["message"]["text"]


class WellFormed(HTMLParser):
    VOID = ("meta", "link", "br")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.outside += [
            str(value) for name, value in attributes if name in ("src", "href") and not str(value).startswith("#")
        ]
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_the_html_report_is_whole_and_self_contained() -> None:
    text = report.html(samples.campaign(), "done")
    parser = WellFormed()
    parser.feed(text)
    assert parser.open == []
    assert parser.outside == []
    assert "url(" not in text
    for words in ("faultline replay fl1abcdef", "96 positions were sampled", "SIGSEGV", "1.2 × 10⁹", "SURVIVOR"):
        assert words in text


def test_the_html_report_escapes_what_targets_say() -> None:
    hostile = samples.finding(message="<script>alert(1)</script>")
    text = report.html([CellResult(samples.spec(), verdict="fail", findings=[hostile])], "stopped")
    assert "<script>" not in text
    assert "stopped before its end" in text


def test_results_json_has_every_cell() -> None:
    document = json.loads(report.results_json(samples.campaign(), "done"))
    assert document["version"] == 1
    assert [cell["verdict"] for cell in document["cells"]] == ["pass", "fail", "unknown", "fail", "pass"]
    assert [cell.get("is_killed") for cell in document["cells"]] == [None, None, None, True, False]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="the report cannot be written"):
        report.write_all(tmp_path / "file" / "out", samples.campaign(), "done")
