# SPDX-License-Identifier: Apache-2.0
"""Baseline and suppressions: what is known is shown and does not fail; what is new, or whose suppression has expired, does."""

from __future__ import annotations

import datetime
import json
from pathlib import Path

import pytest

import samples
from command_line import Faultline, assert_one_clear_line
from faultline.base.errors import BadInputError
from faultline.campaign import known
from faultline.campaign.known import KnownFindings, read_known
from faultline.campaign.results import CellResult, summarise
from faultline.cli import options, output
from faultline.pipeline.events import Stopped
from faultline.report import junit, outcomes, reports, results_document, sarif

ID = samples.FINDING["id"]
OTHER = "FL004-00000001"
OTHER_CELL = '{"name": "other smoke", "strategy": "complete", "nested": 0, "follow_up": true}'


def cell(*ids: str, **spec: object) -> CellResult:
    findings = [samples.finding(id=identity) for identity in ids]
    verdict = "fail" if ids else "pass"
    return CellResult(samples.spec(**spec), "k", verdict, findings=findings, certificate=samples.certificate())


def baseline_of(folder: Path, *results: CellResult) -> Path:
    path = folder / "baseline.json"
    known.write_baseline(path, list(results))
    return path


def suppressions(folder: Path, expires: str, identity: str = ID) -> Path:
    path = folder / "known.toml"
    path.write_text(f'[[suppression]]\nid = "{identity}"\nreason = "issue 17"\nexpires = {expires}\n')
    return path


def marked(found: KnownFindings, *results: CellResult) -> list[CellResult]:
    for result in results:
        found.mark(result)
    return list(results)


def test_what_is_in_the_baseline_does_not_fail(tmp_path: Path) -> None:
    files = read_known(baseline_of(tmp_path, cell(ID)), None, [samples.spec()])
    (old,) = marked(files, cell(ID))
    assert (outcomes.outcome(old), old.new_findings, summarise([old]).findings) == ("known", [], 0)
    assert "failure" not in junit.render([old]).replace('failures="0"', "")
    assert '"baselineState": "unchanged"' in sarif.render([old])
    assert "No new finding in 1 clean cell; 1 known not counted." in reports.html([old], "done")
    (both,) = marked(files, cell(ID, OTHER))
    assert (outcomes.outcome(both), [one.id for one in both.new_findings]) == ("fail", [OTHER])
    assert summarise([both]).findings == 1
    assert 'message="1 finding:' in junit.render([both])


def test_results_json_is_a_baseline(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(results_document.render([cell(ID)], "done"))
    (old,) = marked(read_known(path, None, [samples.spec()]), cell(ID))
    assert old.findings[0].known == "in the baseline"


def test_a_mutants_finding_is_not_the_allocators(tmp_path: Path) -> None:
    files = read_known(baseline_of(tmp_path, cell(ID, mutant="M", expected_rule="FL004")), None, [samples.spec()])
    (clean,) = marked(files, cell(ID))
    assert clean.new_findings


def test_known_findings_do_not_hide_that_the_rest_is_unknown(tmp_path: Path) -> None:
    files = read_known(baseline_of(tmp_path, cell(ID)), None, [samples.spec()])
    old = cell(ID)
    old.certificate = samples.certificate(unknown_reasons=["the probe hangs in its own code"])
    marked(files, old)
    assert (outcomes.outcome(old), summarise([old]).unknown) == ("unknown", 1)
    first = cell(ID, stop_at_rule="FL004")
    first.certificate = samples.certificate(complete=False, stopped=Stopped(17, "stopped at the expected rule FL004"))
    marked(files, first)
    assert outcomes.outcome(first) == "unknown", "what comes after it was not explored"
    first.certificate = samples.certificate(complete=False, stopped=Stopped(17, "60 s limit"))
    first.spec = samples.spec(stop_at_rule="FL009")
    assert outcomes.outcome(first) == "incomplete", "a limit is said, as where nothing is found"
    stopped = cell(ID)
    stopped.error = "the engine died"
    assert summarise(marked(files, stopped)).unknown == 1


def test_a_suppression_holds_until_its_last_day(tmp_path: Path) -> None:
    files = read_known(None, suppressions(tmp_path, "2026-11-22"), [samples.spec()])
    files.today = datetime.date(2026, 11, 22)
    (old,) = marked(files, cell(ID))
    assert old.findings[0].known == "suppressed until 2026-11-22: issue 17"
    assert '"justification": "suppressed until 2026-11-22: issue 17"' in sarif.render([old])
    files.today = datetime.date(2026, 11, 23)
    (old,) = marked(files, cell(ID))
    assert old.new_findings
    assert files.lines([old]) == [f"expired: {ID} was suppressed until 2026-11-22 (issue 17) and counts again"]


def test_a_suppression_is_of_the_clean_allocator_or_of_one_mutant(tmp_path: Path) -> None:
    path = suppressions(tmp_path, "9999-01-01")
    mutant = cell(ID, mutant="M", expected_rule="FL004")
    marked(read_known(None, path, [samples.spec()]), clean := cell(ID), mutant)
    assert (len(clean.new_findings), len(mutant.new_findings)) == (0, 1)
    path.write_text(path.read_text() + 'mutant = "M"\n')
    other = cell(ID, mutant="N", expected_rule="FL004")
    marked(read_known(None, path, [samples.spec()]), clean := cell(ID), mutant, other)
    assert [len(one.new_findings) for one in (clean, mutant, other)] == [1, 0, 1]


def test_what_has_expired_and_is_in_the_baseline_does_not_count_again(tmp_path: Path) -> None:
    files = read_known(baseline_of(tmp_path, cell(ID)), suppressions(tmp_path, "2026-11-22"), [samples.spec()])
    files.today = datetime.date(2026, 11, 23)
    (old,) = marked(files, cell(ID))
    assert old.new_findings == []
    (line,) = files.lines([old])
    assert line.endswith("and does not count all the same: it is known otherwise")


def test_what_is_suppressed_does_not_get_into_a_baseline(tmp_path: Path) -> None:
    files = read_known(None, suppressions(tmp_path, "9999-01-01"), [samples.spec()])
    (old,) = marked(files, cell(ID))
    assert known.baseline_of([old])["findings"] == []


def test_stale_entries_are_said_where_their_cells_were_run(tmp_path: Path) -> None:
    path = baseline_of(tmp_path, cell(ID), cell(workload="smoke", ops=0))
    files = read_known(path, suppressions(tmp_path, "9999-01-01", OTHER), [samples.spec()])
    assert files.lines([cell(workload="smoke", ops=0)]) == [], "the cell with the finding was not run"
    assert files.lines([cell(ID)]) == [], "of the suppression a part of the cells says nothing"
    said = files.lines([cell(), cell(workload="smoke", ops=0)])
    assert said == [
        f"stale: {ID} of nvm_malloc is in the baseline and is not found any more",
        f"stale: {OTHER} is suppressed (issue 17) and is not found in this campaign",
    ]


def explored(strategy: str = "complete", stopped: Stopped | None = None, **spec: object) -> CellResult:
    result = cell(**spec)
    result.certificate = samples.certificate(strategy=strategy, stopped=stopped)
    return result


def test_stale_entries_are_not_said_where_less_was_explored(tmp_path: Path) -> None:
    found = cell(ID, nested=1, follow_up=True)
    found.certificate = samples.certificate(strategy="complete")
    files = read_known(baseline_of(tmp_path, found), None, [samples.spec()])
    less = [
        explored(nested=0),
        explored(nested=1, follow_up=False),
        explored(nested=2, follow_up=False),
        explored("mixed", nested=1),
        explored(nested=1, stopped=Stopped(17, "60 s limit")),
    ]
    assert [files.lines([one]) for one in less] == [[]] * len(less)
    stale = [f"stale: {ID} of nvm_malloc is in the baseline and is not found any more"]
    assert [files.lines([explored(nested=nested)]) for nested in (1, 2)] == [stale] * 2
    assert files.lines([less[0], explored(nested=1)]) == stale, "one of two cells of that name is enough"
    found.spec, found.certificate = samples.spec(nested=0), samples.certificate(strategy="sample")
    files = read_known(baseline_of(tmp_path, found), None, [samples.spec()])
    assert files.lines([explored(nested=0)]) == files.lines([explored(nested=1, follow_up=False)]) == stale


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "is no baseline"),
        ("[1]", "is no baseline"),
        ('{"version": 7, "findings": 3, "cells": []}', "is no baseline"),
        ('{"version": 7, "findings": [], "cells": ["nvm_malloc smoke"]}', "is no baseline"),
        (
            '{"version": 6, "findings": [], "cells": []}',
            "a baseline of version 6, expected 7: its findings have other ids",
        ),
        (
            '{"version": 6, "summary": {}, "cells": []}',
            "a baseline of version 6, expected 7: its findings have other ids",
        ),
        (f'{{"version": 7, "findings": [], "cells": [{OTHER_CELL}]}}', "it is of other, and not of nvm_malloc"),
        ('{"version": 7, "findings": [], "cells": []}', "it is of no cell"),
    ],
)
def test_what_is_no_baseline_is_said(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "baseline.json"
    path.write_text(text)
    with pytest.raises(BadInputError, match=words):
        read_known(path, None, [samples.spec()])


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[[suppression]]\nid = 3", "suppression"),
        ('[[suppression]]\nid = "FL004"\nreason = "r"\nexpires = 2027-01-01', "id"),
        ('[[suppression]]\nid = "FL004-00000001"\nexpires = 2027-01-01', "reason"),
        ('[[suppression]]\nid = "FL004-00000001"\nreason = ""\nexpires = 2027-01-01', "reason"),
        ('[[suppression]]\nid = "FL004-00000001"\nreason = "r"', "expires"),
        ('[[suppression]]\nid = "FL004-00000001"\nreason = "r"\nexpires = "soon"', "expires"),
        ('[[suppression]]\nid = "FL004-00000001"\nreason = "r"\nexpires = 2027-01-01\n' * 2, "suppressed twice"),
    ],
)
def test_what_are_no_suppressions_is_said(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "known.toml"
    path.write_text(text)
    with pytest.raises(BadInputError, match=words):
        read_known(None, path, [samples.spec()])


def test_bad_files_are_one_clear_line_before_anything_runs(faultline: Faultline, tmp_path: Path) -> None:
    run = ("run", "nvm_malloc", "-w", "smoke", "--cache", tmp_path / "cache")
    assert_one_clear_line(
        faultline(*run, "--baseline", tmp_path / "none"), 2, "cannot be read", "--write-baseline FILE"
    )
    assert_one_clear_line(faultline(*run, "--suppressions", tmp_path / "none"), 2, "cannot be read")
    assert_one_clear_line(faultline(*run, "--write-baseline", tmp_path / "no" / "b"), 2, "cannot be written there")
    old = tmp_path / "old.json"
    old.write_text('{"version": 6, "findings": [], "cells": []}')
    assert_one_clear_line(faultline(*run, "--baseline", old), 2, "version 6, expected 7", "--write-baseline FILE")
    assert not list((tmp_path / "cache" / "builds").iterdir())


def test_a_file_that_is_read_only_is_said_before_anything_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old = tmp_path / "old.json"
    old.touch()
    for path, read_only in ((old, old), (tmp_path / "new.json", tmp_path)):
        monkeypatch.setattr(output.os, "access", lambda asked, _, not_this=read_only: asked != not_this)
        with pytest.raises(BadInputError, match="cannot be written there: it is read-only"):
            options.KnownFiles(None, None, path).read([])
        monkeypatch.undo()
        options.KnownFiles(None, None, path).read([])


@pytest.mark.slow
def test_a_second_run_does_not_fail(faultline: Faultline, tmp_path: Path) -> None:
    run = ("run", "nvm_malloc", "-w", "smoke", "--mutant", "MISSING_FLUSH_IDLE")
    path = tmp_path / "baseline.json"
    first = faultline(*run, "--write-baseline", path)
    assert (first.returncode, f"baseline: {path} has 1 finding of 1 cell\n" in first.stderr) == (1, True), first.stderr
    second = faultline(*run, "--baseline", path)
    assert second.returncode == 0, second.stdout + second.stderr
    assert "known: in the baseline" in second.stdout
    assert {entry["mutant"] for entry in json.loads(path.read_text())["findings"]} == {"MISSING_FLUSH_IDLE"}
