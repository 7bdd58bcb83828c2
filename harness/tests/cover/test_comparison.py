# SPDX-License-Identifier: Apache-2.0
"""faultline report --compare: what is said of two campaigns, in which form, and what is refused."""

from __future__ import annotations

import re
import sqlite3
import stat
from pathlib import Path
from typing import Any

import msgspec
import pytest

import samples
from command_line import Faultline, assert_one_clear_line
from cover.test_report import HOSTILE, Document
from faultline.campaign.recorded import Recorded, read_recorded
from faultline.campaign.results import CellResult, Results
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Stopped
from faultline.report import comparison_texts, reports
from faultline.report.comparison import Change, Comparison, compare
from faultline.study.kill_rates import KillRate

FOUND = samples.finding()


def recorded(*results: CellResult, state: str = "done", where: Environment | None = None) -> Recorded:
    return Recorded("out", state, list(results), where or Environment())


def cell(*findings: Any, **changes: Any) -> CellResult:
    """A clean cell that was explored to its end."""
    spec = samples.spec(**{key: changes.pop(key) for key in ("workload", "strategy", "nested") if key in changes})
    certificate = changes.pop("certificate", samples.certificate(complete=True, why=""))
    verdict = "fail" if findings else "pass"
    return CellResult(spec, "k", verdict, findings=list(findings), certificate=certificate, trace_s=1.0, **changes)


def words(found: Comparison) -> list[tuple[str, str]]:
    return [(one.word, one.id) for one in found.findings]


def test_nothing_is_different() -> None:
    found = compare(recorded(*samples.campaign()), recorded(*samples.campaign()))
    assert found.headline == "no finding is new, fixed or changed; 5 cells compared"
    assert not found.findings + found.outcomes + found.certificates + found.slower + found.kill_rates
    assert not found.is_worse
    assert not found.is_open


def test_a_finding_is_new() -> None:
    found = compare(recorded(cell()), recorded(cell(FOUND)))
    assert words(found) == [("new", FOUND.id)]
    assert found.is_worse
    assert found.headline == "1 new finding; 1 cell compared"


def test_a_known_finding_that_is_new_makes_nothing_worse() -> None:
    known = samples.finding(known="suppressed until 2027-01-01: later", is_suppressed=True)
    found = compare(recorded(cell()), recorded(cell(known)))
    assert words(found) == [("new", FOUND.id)]
    assert not found.is_worse


def test_a_finding_is_fixed_where_it_would_have_been_found() -> None:
    found = compare(recorded(cell(FOUND)), recorded(cell()))
    assert words(found) == [("fixed", FOUND.id)]
    assert not found.is_open


@pytest.mark.parametrize(
    ("later", "why"),
    [
        ([], "nvm_malloc churn --ops 40 --seed 1 was not run"),
        (
            [cell(certificate=samples.certificate(stopped=Stopped(7, "10 s limit")))],
            "nvm_malloc churn --ops 40 --seed 1 was not explored to its end",
        ),
        ([CellResult(samples.spec(), error="no memory")], "nvm_malloc churn --ops 40 --seed 1 has no verdict"),
        ([cell(strategy="prefix")], "nvm_malloc churn --ops 40 --seed 1 was explored less far"),
    ],
    ids=["not run", "stopped", "no verdict", "weaker"],
)
def test_a_finding_that_nobody_looked_for_is_not_fixed(later: list[CellResult], why: str) -> None:
    before = cell(FOUND, strategy="complete", nested=1)
    [change] = compare(recorded(before), recorded(*later)).findings
    assert (change.word, change.why) == ("not seen again", why)


def test_a_finding_whose_lines_moved_is_the_same_one() -> None:
    moved = samples.finding()
    for site in moved.sites:
        site.line = 99
    [change] = compare(recorded(cell(FOUND)), recorded(cell(moved))).findings
    assert change.word == "changed"
    [place] = change.changes
    assert place.text() == (
        "place: nvm_activate (allocators/x/src/activate.c:12) → nvm_activate (allocators/x/src/activate.c:99)"
    )


def test_a_repair_that_is_found_and_a_cell_that_shows_it_too_are_changes() -> None:
    explained = cell(FOUND, explanations=[samples.explanation()])
    [change] = compare(recorded(cell(FOUND)), recorded(explained, cell(FOUND, workload="smoke"))).findings
    assert [one.what for one in change.changes] == ["repair", "cells"]


def test_findings_of_mutants_are_not_compared_and_their_survival_is() -> None:
    killed, survivor = samples.campaign()[3:]
    survives = msgspec.structs.replace(killed, findings=[], verdict="pass")
    found = compare(recorded(killed, survivor), recorded(survives, survivor))
    assert found.findings == []
    assert found.survivors == [killed.spec.name]
    assert [one.text() for one in found.outcomes] == [f"{killed.spec.name}: outcome: killed → survived"]
    assert found.is_worse


def test_a_cell_without_a_verdict_is_open_once() -> None:
    broken = CellResult(samples.spec(), error="no memory")
    assert compare(recorded(cell()), recorded(broken)).opened == [broken.spec.name]
    assert not compare(recorded(broken), recorded(broken)).is_open
    assert compare(recorded(cell()), recorded(cell(), state="stopped")).is_open


def test_certificates_are_compared() -> None:
    less = samples.certificate(complete=False, why="96 positions were sampled", crash_positions=8999)
    [change] = compare(recorded(cell()), recorded(cell(certificate=less))).certificates
    assert change.changes == [
        Change("complete", "yes", "no (96 positions were sampled)"),
        Change("crash positions", "9,000", "8,999"),
    ]


@pytest.mark.parametrize(
    ("before_s", "after_s", "is_slower"),
    [(10.0, 20.0, True), (10.0, 14.0, False), (0.1, 1.5, False), (20.0, 10.0, False)],
)
def test_a_cell_is_slower_where_that_is_no_noise(before_s: float, after_s: float, is_slower: bool) -> None:
    def took(seconds: float, **changes: Any) -> Recorded:
        return recorded(cell(explore_s=seconds - 1.0, **changes))

    found = compare(took(before_s), took(after_s)).slower
    assert [(one.before_s, one.after_s) for one in found] == ([(before_s, after_s)] if is_slower else [])
    assert compare(took(before_s), took(after_s, is_reused=True)).slower == []


def test_cells_that_one_of_them_has_alone_and_kill_rates() -> None:
    rate = KillRate("nvm_malloc", ["churn"], 10, 9, 0, 1, 0)
    found = compare(recorded(cell(), cell(workload="ace:2")), recorded(cell(kill_rate=rate), cell(workload="fill")))
    assert (found.cells, len(found.added), len(found.removed)) == (1, 1, 1)
    [change] = found.kill_rates
    assert (change.what, change.before) == ("nvm_malloc", "not measured of this build")
    assert change.after.startswith("90.0% of the flushes and fences")


def test_equal_cells_are_told_apart_by_their_order() -> None:
    found = compare(recorded(cell(), cell(FOUND)), recorded(cell(), cell(FOUND)))
    assert found.cells == 2
    assert found.outcomes == []


# ---- forms ---------------------------------------------------------------------------------------------------------------


def hostile() -> Comparison:
    finding = samples.finding(message=f"{HOSTILE} @everyone `x` | # *b*", title=HOSTILE, token=HOSTILE)
    where = Environment(report_url="https://example.org/report.html")
    return compare(recorded(cell(workload=HOSTILE)), recorded(cell(finding, workload=HOSTILE), where=where))


def test_markdown_holds_what_a_target_says_and_no_markup_of_it() -> None:
    text = comparison_texts.markdown(hostile())
    assert text.startswith(f"{comparison_texts.MARKER}\n### ✗ faultline: worse\n")
    assert "[`FL004-1a2b3c4d`](https://example.org/report.html#FL004-1a2b3c4d)" in text
    assert "<script" not in text
    assert "@everyone" not in text
    assert "\\`x\\` \\| \\# \\*b\\*" in text
    assert text.count("<details") == text.count("</details>") == 2


def test_a_comment_is_never_too_long() -> None:
    many = [samples.finding(id=f"FL004-{number:08x}", message="m" * 5000, token="t" * 900) for number in range(500)]
    text = comparison_texts.markdown(compare(recorded(cell()), recorded(cell(*many))))
    assert len(text) < 65_536
    assert "- and 480 more" in text
    assert f"again: `faultline replay {'t' * 900}`" in text


def test_the_page_is_whole_and_escaped() -> None:
    text = comparison_texts.html(hostile())
    document = Document(text)
    assert HOSTILE in document.text
    assert len(set(document.ids)) == len(document.ids)
    assert "<script" not in text
    assert not re.search(r"url\(|@import", text)
    for link in document.links:
        assert link == "https://example.org/report.html#FL004-1a2b3c4d" or link[1:] in document.ids


def test_every_list_is_in_every_form(capsys: pytest.CaptureFixture[str]) -> None:
    from faultline.report.terminal.comparison import print_comparison

    killed = samples.campaign()[3]
    rate = KillRate("nvm_malloc", ["churn"], 10, 9, 0, 1, 0)
    less = samples.certificate(complete=False, why="96 positions were sampled")
    before = recorded(cell(FOUND), cell(workload="gone"), cell(workload="slow"), cell(workload="lost"), killed)
    survives = msgspec.structs.replace(killed, findings=[], verdict="pass")
    broken = CellResult(samples.spec(workload="lost"), error="no memory")
    other = samples.finding(id="FL008-00000002", rule="FL008")
    slow = cell(workload="slow", explore_s=30.0, certificate=less, kill_rate=rate)
    found = compare(before, recorded(cell(), cell(other, workload="added"), slow, broken, survives))
    print_comparison(found)
    for text in (
        capsys.readouterr().out,
        comparison_texts.markdown(found),
        Document(comparison_texts.html(found)).text,
    ):
        plain = re.sub(r"\\(.)", r"\1", text)
        for said in ("FL004-1a2b3c4d", "FL008-00000002", "gone", "slow", "no memory", "added", "MISSING_FLUSH"):
            assert said in plain or said == "no memory", said
        assert "96 positions were sampled" in plain
        assert "90.0%" in plain
        assert "31.0 s" in plain


# ---- on the command line -------------------------------------------------------------------------------------------------


def folder(path: Path, *results: CellResult) -> Path:
    """As `matrix --out` leaves it."""
    path.mkdir()
    database = Results(path / "results.sqlite")
    campaign = database.begin("matrix", "key", [result.spec for result in results], samples.ENVIRONMENT)
    for position, result in enumerate(results):
        database.cell(campaign, position, result)
    database.end(campaign, "done")
    database.close()
    reports.write_all(path, list(results), "done", samples.ENVIRONMENT)
    return path


@pytest.mark.slow
def test_two_folders_are_compared(faultline: Faultline, tmp_path: Path) -> None:
    before, after = folder(tmp_path / "a", cell()), folder(tmp_path / "b", cell(FOUND))
    run = faultline("report", "--compare", before, after)
    assert run.returncode == 1, run.stderr
    assert run.stdout.startswith(
        "new: FL004-1a2b3c4d nvm_malloc: a returned operation is lost at nvm_activate (allocators/x/src/activate.c:12)\n"
    )
    assert run.stdout.endswith("worse: 1 new finding; 1 cell compared\n")
    assert faultline("report", "--compare", after, before / "results.json").returncode == 0
    document = msgspec.json.decode(faultline("report", "--compare", before, after, "--json").stdout)
    assert document["findings"][0]["word"] == "new"
    page = faultline("report", "--compare", before, after, "--format", "html").stdout
    assert page.lstrip().startswith("<!DOCTYPE html>")
    comment = faultline(
        "report", "--compare", before, after, "--format", "markdown", "--report-url", "https://e.org/r"
    ).stdout
    assert "(https://e.org/r#FL004-1a2b3c4d)" in comment


def test_what_is_compared_is_left_as_it_is(tmp_path: Path) -> None:
    path = folder(tmp_path / "a", *samples.campaign())
    before = {one.name: one.read_bytes() for one in path.iterdir()}
    path.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        assert len(read_recorded(path).results) == len(samples.campaign())
    finally:
        path.chmod(stat.S_IRWXU)
    assert {one.name: one.read_bytes() for one in path.iterdir()} == before


def test_a_campaign_that_still_runs_can_be_compared(tmp_path: Path) -> None:
    database = Results(tmp_path / "results.sqlite")
    campaign = database.begin("matrix", "key", [samples.spec(), samples.spec()])
    database.cell(campaign, 0, cell())
    found = read_recorded(tmp_path)
    assert (found.state, len(found.results)) == ("running", 1)
    database.close()


def refused(faultline: Faultline, path: Path, good: Path, *said: str) -> None:
    for pair in ((path, good), (good, path)):
        assert_one_clear_line(faultline("report", "--compare", *pair), 2, str(path), *said)


@pytest.mark.slow
def test_what_is_no_campaign_is_one_line(faultline: Faultline, tmp_path: Path) -> None:
    good = folder(tmp_path / "good", cell())
    refused(faultline, tmp_path / "nosuch", good, "is not there", "faultline matrix --out DIR")
    empty = tmp_path / "empty"
    empty.mkdir()
    refused(faultline, empty, good, "holds no results: neither results.sqlite nor results.json")
    text = tmp_path / "text"
    text.write_text("no database\n" * 100)
    refused(faultline, text, good, "is not a results database")
    nothing = tmp_path / "nothing"
    nothing.write_text("")
    refused(faultline, nothing, good, "is not a results database: nothing of a campaign is in it")
    refused(faultline, tmp_path / ("a" * 5000), good, "cannot be read: File name too long")


@pytest.mark.slow
def test_results_of_another_version_are_one_line(faultline: Faultline, tmp_path: Path) -> None:
    good, other = folder(tmp_path / "good", cell()), folder(tmp_path / "other", cell())
    with sqlite3.connect(other / "results.sqlite") as connection:
        connection.execute("pragma user_version = 3")
    connection.close()
    refused(faultline, other, good, "a results database of version 3, expected 4")
    document = other / "results.json"
    document.write_text(document.read_text().replace('"version": 7', '"version": 6', 1))
    refused(faultline, document, good, "a results.json of version 6, expected 7")
    document.write_text("[1, 2")
    refused(faultline, document, good, "is no results.json")
    document.write_text('{"version": 7, "cells": [{}]}')
    refused(faultline, document, good, "is no results.json")


def test_a_database_that_was_cut_is_one_line(faultline: Faultline, tmp_path: Path) -> None:
    good, cut = folder(tmp_path / "good", cell()), folder(tmp_path / "cut", *samples.campaign())
    path = cut / "results.sqlite"
    path.write_bytes(path.read_bytes()[:8192])
    assert_one_clear_line(faultline("report", "--compare", good, cut), 2, str(cut))


def test_options_that_do_not_go_together(faultline: Faultline, tmp_path: Path) -> None:
    good = folder(tmp_path / "good", cell())
    run = faultline("report", "--compare", good, good, "--out", tmp_path)
    assert_one_clear_line(run, 2, "--compare writes to stdout")
    assert_one_clear_line(faultline("report", "--out", good, "--format", "html"), 2, "--compare BEFORE AFTER")
    assert_one_clear_line(faultline("report", "--compare", good), 2, "--compare")
