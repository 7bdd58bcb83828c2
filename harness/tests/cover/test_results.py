# SPDX-License-Identifier: Apache-2.0
"""The summary line, exit codes, and that reports are well-formed and say everything."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import jsonschema
import msgspec
import pytest

import samples
from command_line import Faultline, assert_one_clear_line
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.campaign.known import BASELINE_VERSION
from faultline.campaign.results import CellResult, Results, summarise
from faultline.cli.commands.matrix import exit_code_of_matrix
from faultline.pipeline import events
from faultline.pipeline.environment import Environment
from faultline.report import junit, outcomes, reports, results_document, sarif
from faultline.report.trace_rules import warning_lines


def test_the_summary_line_counts_clean_cells_and_killed_mutants() -> None:
    assert summarise(samples.campaign()).line() == (
        "summary: cells=3 findings=1 mutants=1/2 states=4.8e+09 recoveries=16332 complete=0/3 incomplete=0 unknown=1"
        " kill_rate=unmeasured"
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
    assert outcomes.outcome(result) == "survived"


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
    [result, *warnings] = run["results"]
    assert [(found["ruleId"], found["level"]) for found in warnings] == [("FL101", "error"), ("FL112", "note")]
    location = result["locations"][0]["physicalLocation"]
    assert result["ruleId"] == run["tool"]["driver"]["rules"][0]["id"] == "FL004"
    assert location["artifactLocation"]["uri"] == "allocators/x/src/activate.c"
    assert location["region"]["startLine"] == 12
    assert result["partialFingerprints"][f"faultline/v{BASELINE_VERSION}"] == "FL004-1a2b3c4d"
    assert "faultline replay fl1abcdef" in result["message"]["text"]


def test_a_trace_rule_is_a_finding_only_where_a_flush_or_a_fence_forbids_a_failing_state() -> None:
    def level(results: list[CellResult]) -> str:
        found = json.loads(sarif.render(results))["runs"][0]["results"]
        (one,) = (one for one in found if one["ruleId"] == "FL101")
        assert ("FL004-1a2b3c4d" in one["message"]["text"]) == (one["level"] == "error")
        return str(one["level"])

    def failing(**changes: Any) -> CellResult:
        explanation = msgspec.structs.replace(samples.explanation(), **changes)
        return CellResult(samples.spec(), findings=[samples.finding()], explanations=[explanation])

    warned = samples.campaign()[0]
    assert level([warned]) == "warning"
    assert level([warned, failing()]) == "error"
    assert level([warned, failing(trials=[])]) == "warning", "nothing that was tried helps"
    order = [msgspec.structs.replace(trial, is_order=True) for trial in samples.explanation().trials]
    assert level([warned, failing(trials=order)]) == "warning", "no flush and no fence does"
    assert level([warned, failing(lost="elsewhere (allocators/x/src/activate.c:99)")]) == "warning"
    assert level([warned, failing(lost="", there=samples.explanation().lost)]) == "warning", "nothing is lost"
    (said, warnings) = warning_lines([warned, failing()])
    assert said == (
        "nvm_malloc: a finding: FL101 never flushed, or never synced, at nvm_activate (allocators/x/src/activate.c:12):"
        " FL004-1a2b3c4d"
    )
    assert warnings == "nvm_malloc: warnings: FL112 at 1 place"


def test_each_flush_of_what_is_no_pm_is_shown_with_its_place() -> None:
    warned = samples.campaign()[0]
    assert warned.trace_rules is not None
    first, *others = warned.trace_rules.warnings
    elsewhere = msgspec.structs.replace(first, id="FL104-1", rule="FL104", title="flush of an address that is no PM")
    warned.trace_rules.warnings = [elsewhere, *others]
    assert warning_lines([warned]) == [
        "nvm_malloc: a warning: FL104 flush of an address that is no PM, 7 times at nvm_activate"
        " (allocators/x/src/activate.c:12)",
        "nvm_malloc: warnings: FL112 at 1 place",
    ]


def test_sarif_gives_the_events_up_to_the_crash_as_thread_flows() -> None:
    second = samples.event(position=100, thread=2, kind="fence")
    finding = samples.finding(events=[*samples.finding().events[:2], second, *samples.finding().events[2:]])
    [result] = json.loads(sarif.render([CellResult(samples.spec(), findings=[finding])]))["runs"][0]["results"]
    [flow] = result["codeFlows"]
    first, other = flow["threadFlows"]
    assert [step["executionOrder"] for step in first["locations"]] == [80, 82, 121, 122, 123]
    assert [step["executionOrder"] for step in other["locations"]] == [100]
    essential = [step for step in first["locations"] if step["importance"] == "essential"]
    assert [step["location"]["physicalLocation"]["region"]["startLine"] for step in essential] == [12]
    assert "lost" in essential[0]["location"]["message"]["text"]


def test_sarif_of_a_finding_without_events_has_no_code_flow() -> None:
    cells = [CellResult(samples.spec(), findings=[samples.finding(events=[])])]
    assert "codeFlows" not in sarif.render(cells)


def test_sarif_locations_are_uris() -> None:
    sites = [events.Site("f", "./a folder/x.c", 1), events.Site("memcpy", "/build/string/memcpy.S", 2)]
    [run] = json.loads(sarif.render([CellResult(samples.spec(), findings=[samples.finding(sites=sites)])]))["runs"]
    [result] = run["results"]
    places = [
        place["physicalLocation"]["artifactLocation"] for place in result["locations"] + result["relatedLocations"]
    ]
    assert places == [{"uri": "a%20folder/x.c", "uriBaseId": "ROOT"}, {"uri": "file:///build/string/memcpy.S"}]


def test_junit_has_one_suite_an_allocator_however_cells_are_ordered() -> None:
    cells = [CellResult(samples.spec(allocator=name), verdict="pass") for name in ("a", "b", "a")]
    assert [suite.get("tests") for suite in ET.fromstring(junit.render(cells))] == ["2", "1"]


def test_results_json_has_every_cell() -> None:
    document = json.loads(results_document.render(samples.campaign(), "done"))
    assert document["version"] == 7
    assert [cell["verdict"] for cell in document["cells"]] == ["pass", "fail", "unknown", "fail", "pass"]
    assert [cell.get("is_killed") for cell in document["cells"]] == [None, None, None, True, False]


def test_a_folder_that_cannot_be_written_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(InfrastructureError, match="the report cannot be written"):
        reports.write_all(tmp_path / "file" / "out", samples.campaign(), "done")


def test_a_workload_file_is_called_as_it_was_named() -> None:
    spec = samples.spec(workload="file:0123", path="somewhere/mine.workload", ops=0)
    assert spec.name == "nvm_malloc mine.workload"
    assert "--workload somewhere/mine.workload" in spec.command_line()


@pytest.mark.parametrize("version", [1, 2, 3, 5])
def test_a_database_of_another_version_is_refused(tmp_path: Path, version: int) -> None:
    path = tmp_path / "results.sqlite"
    Results(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute(f"pragma user_version = {version}")
    with pytest.raises(BadInputError, match=f"a results database of version {version}, expected 4: ") as refused:
        Results(path)
    assert refused.value.hint == "move the file away; the next campaign begins a new one"


READERS = (
    ("run", "nvm_malloc", "-w", "smoke"),
    ("matrix",),
    ("report",),
    ("wear", "glibc", "--ops", "8"),
)


@pytest.mark.parametrize("command", READERS, ids=lambda command: command[0])
def test_every_command_refuses_a_database_of_another_version(
    faultline: Faultline, tmp_path: Path, command: tuple[str, ...]
) -> None:
    """Before anything runs, and it leaves the file as it is."""
    path = tmp_path / "results.sqlite"
    Results(path).close()
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("pragma user_version = 3")
    before = path.read_bytes()
    run = faultline(*command, "--out", tmp_path)
    assert_one_clear_line(run, 2, "a results database of version 3, expected 4", "move the file away")
    assert path.read_bytes() == before
    assert [one.name for one in tmp_path.iterdir()] == ["results.sqlite"]


def test_a_result_of_another_shape_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "results.sqlite"
    results = Results(path)
    results.cell(results.begin("run", "key", [samples.spec()]), 0, samples.campaign()[0])
    results.close()
    with sqlite3.connect(path) as connection:
        connection.execute("update cell set result = replace(result, '\"workload\"', '\"loadwork\"')")
    with pytest.raises(BadInputError, match="results of another faultline: ") as refused:
        Results(path).read()
    assert refused.value.hint == "move the file away; the next campaign begins a new one"


def test_what_a_campaign_finished_stays_done_when_it_was_stopped_twice(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.sqlite")
    (first, second, *_) = samples.campaign()
    first.key, second.key = "first", "second"
    first.state = second.state = "done"
    first.verdict = second.verdict = "pass"

    def stopped(*done: CellResult) -> int:
        campaign = results.begin("matrix", "key", [first.spec, second.spec])
        for result in done:
            results.cell(campaign, [first, second].index(result), result)
        results.end(campaign, "stopped")
        return campaign

    stopped(first, second)
    last = stopped(first)
    assert [results.done_cell(last, key) is not None for key in ("first", "second")] == [True, True]
    other = results.begin("matrix", "another key", [second.spec])
    assert results.done_cell(other, "second") is None
    results.end(last, "done")
    again = stopped()
    assert results.done_cell(again, "second") is None, "a campaign that came to its end began anew"
    results.close()


def test_the_schema_of_results_json_is_the_published_one(root: Path) -> None:
    published = root / "docs" / "results.schema.json"
    assert results_document.schema() == published.read_text(), f"faultline list --results-schema > {published}"


def closed(schema: Any) -> Any:
    """The same schema, refusing keys that it does not name."""
    if isinstance(schema, list):
        return [closed(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    shut = {"additionalProperties": False} if "properties" in schema else {}
    return {**{key: closed(value) for key, value in schema.items()}, **shut}


@pytest.mark.parametrize("where", [samples.ENVIRONMENT, None])
def test_results_json_is_what_the_schema_says(where: Environment | None) -> None:
    """It names every key, at every depth, and every key that has no default is there."""
    schema = json.loads(results_document.schema())
    document = json.loads(results_document.render(samples.campaign(), "done", where))
    msgspec.convert(document, results_document.ResultsDocument)
    for known in (schema, closed(schema)):
        validator = jsonschema.Draft202012Validator(known)
        assert [f"{error.json_path}: {error.message}" for error in validator.iter_errors(document)] == []
    document["cells"][1]["findings"][0]["certainty"] = 1
    assert not jsonschema.Draft202012Validator(closed(schema)).is_valid(document)
    del document["cells"][1]["findings"][0]["rule"]
    assert not jsonschema.Draft202012Validator(schema).is_valid(document)
