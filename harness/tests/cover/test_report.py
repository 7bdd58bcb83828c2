# SPDX-License-Identifier: Apache-2.0
"""report.html: whole, self-contained, escaped, honest; with no cell and with five hundred."""

from __future__ import annotations

import re
from html.parser import HTMLParser
from importlib import resources
from typing import get_args

import pytest

import samples
from faultline.base.config import Start
from faultline.campaign.results import CellResult
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Site, Stage
from faultline.report import page, reports
from faultline.report.terminal.campaigns import print_results

HOSTILE = "<script>alert(1)</script>\"'&"


class Document(HTMLParser):
    """Asserts that every tag is closed in order, and collects what the tests ask about."""

    VOID = ("meta", "link", "br", "wbr")

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str | None]]] = []
        self.ids: list[str] = []
        self.links: list[str] = []
        self.text = ""
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        assert len(dict(attributes)) == len(attributes), f"{tag}: an attribute twice"
        self.tags.append((tag, dict(attributes)))
        for name, value in attributes:
            assert name not in ("src", "srcset", "action", "data", "poster")
            assert not name.startswith("on")
            if name == "id":
                self.ids.append(str(value))
            if name == "href":
                self.links.append(str(value))
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] not in ("style", "script"):
            self.text += data


def render(results: list[CellResult], state: str = "done", environment: Environment | None = None) -> Document:
    """The report, after checking what holds for every report."""
    text = reports.html(results, state, environment)
    document = Document(text)
    assert len(set(document.ids)) == len(document.ids)
    for link in document.links:
        assert link.startswith("#"), "the report asks for nothing outside itself"
        assert link[1:] in document.ids, f"{link} leads nowhere"
    assert not re.search(r"url\(|@import|https?://", text)
    assert [tag for tag, _ in document.tags].count("script") == 1
    for tag, attributes in document.tags:
        assert tag != "th" or attributes.get("scope") in ("row", "col")
    tags = [tag for tag, _ in document.tags]
    assert tags.count("main") == tags.count("h1") == 1
    assert tags.count("table") == tags.count("caption")
    return document


def test_a_campaign_of_everything_is_shown() -> None:
    document = render(samples.campaign(), environment=samples.ENVIRONMENT)
    for words in (
        "1 finding in 1 of 3 clean cells; 1 of 2 mutants survived.",
        "faultline replay fl1abcdef",
        "96 positions were sampled",
        "SIGSEGV",
        "1.2 × 10⁹",
        "SURVIVOR",
        "nvm_activate",
        "allocators/x/src/activate.c:12",
        "power fails at position 123",
        "38 events left out",
        "persisted, not guaranteed",
        "not reached",
        "FL015: not in this version",
        "emulated PM",
        "faultline matrix --out out",
        "samples: 16 a position",
    ):
        assert words in document.text, words


def test_everything_that_a_target_says_is_escaped() -> None:
    finding = samples.finding(
        message=HOSTILE,
        title=HOSTILE,
        token=HOSTILE,
        sites=[Site(HOSTILE, HOSTILE, 1)],
        events=[samples.event(position=1, kind=HOSTILE, file=HOSTILE, offset=1, value=HOSTILE)],
        lines=[{"file": HOSTILE, "offset": 1, "choice": HOSTILE}],
    )
    certificate = samples.certificate(why=HOSTILE, covers=HOSTILE, unknown_reasons=[HOSTILE], bounds_hit=[HOSTILE])
    spec = samples.spec(allocator=HOSTILE, workload=HOSTILE)
    mutant = samples.spec(mutant=HOSTILE, expected_rule="FL004")
    cells = [
        CellResult(spec, verdict="fail", findings=[finding], certificate=certificate, error=HOSTILE, hint=HOSTILE),
        CellResult(mutant, verdict="fail", findings=[finding], certificate=certificate),
    ]
    document = render(cells, HOSTILE, Environment(HOSTILE, HOSTILE, {HOSTILE: HOSTILE}))
    assert document.text.count(HOSTILE) > 20


def test_the_terminal_says_why_there_is_no_smallest_witness(capsys: pytest.CaptureFixture[str]) -> None:
    found = samples.finding()
    print_results([CellResult(samples.spec(), findings=[found], not_shrunk={found.id: "the tracer died"})])
    assert "not shrunk: the tracer died" in capsys.readouterr().out


def test_the_command_of_a_cell_says_where_power_fails_first() -> None:
    """What holds without --start is the allocator's: pmdk's is workload."""
    for start in get_args(Start):
        assert samples.spec(start=start).command_line().endswith(f"--start {start}")
    assert "--start" not in samples.spec(workload="create", ops=0, start="create").command_line()


def test_no_cell_is_unknown_and_not_green() -> None:
    document = render([])
    assert "Nothing was explored." in document.text
    assert "unknown" in document.text


def test_five_hundred_cells_fit() -> None:
    cells = [
        CellResult(
            samples.spec(allocator=f"allocator_{number % 20}", workload=f"ace:{number // 20}"),
            verdict="pass",
            certificate=samples.certificate(),
        )
        for number in range(500)
    ]
    text = reports.html(cells, "done")
    assert len(text) < 4_000_000
    shown = page.page(cells, "done", Environment()).clean_map
    assert shown is not None
    assert (len(shown.rows), len(shown.columns)) == (20, 25)
    assert all(tile is not None for _, tiles in shown.rows for tile in tiles)
    render(cells)


# ---- the banner ----------------------------------------------------------------------------------------------------------

PASSING = CellResult(samples.spec(), verdict="pass", certificate=samples.certificate())
COMPLETE = CellResult(samples.spec(), verdict="pass", certificate=samples.certificate(complete=True, bounds_hit=[]))
KILLED, SURVIVOR = samples.campaign()[3:]
FAILING, UNKNOWN = samples.campaign()[1:3]


@pytest.mark.parametrize(
    ("cells", "state", "word", "headline"),
    [
        ([PASSING, KILLED], "done", "pass", "No finding in 1 clean cell, and 1 mutant killed."),
        ([PASSING], "done", "pass", "No finding in 1 clean cell."),
        ([KILLED], "done", "pass", "1 mutant killed; no clean cell was run."),
        ([PASSING, FAILING], "done", "fail", "1 finding in 1 of 2 clean cells."),
        ([PASSING, SURVIVOR], "done", "fail", "1 of 1 mutant survived."),
        ([PASSING, UNKNOWN], "done", "unknown", "1 of 2 cells without a verdict; no finding in the others."),
        ([FAILING, UNKNOWN], "done", "fail", "1 finding in 1 of 2 clean cells."),
        ([PASSING], "stopped", "unknown", "Stopped before its end, after 1 cell: no finding so far."),
        ([FAILING], "stopped", "fail", "1 finding in 1 of 1 clean cell."),
        ([], "done", "unknown", "Nothing was explored."),
    ],
)
def test_the_banner_says_what_the_campaign_is(cells: list[CellResult], state: str, word: str, headline: str) -> None:
    banner = page.page(cells, state, Environment()).banner
    assert (banner.word, banner.headline) == (word, headline)


def facts(*cells: CellResult) -> dict[str, page.Fact]:
    return {fact.label: fact for fact in page.page(list(cells), "done", Environment()).banner.facts}


def test_green_without_proof_says_so() -> None:
    shown = facts(PASSING)
    assert shown["complete"].text == "0 of 1 clean cell: not every reachable state was run"
    assert "sampled at 96 of 9,000 crash positions" in shown["bounds hit"].text
    assert shown["bounds hit"].reasons == ["samples: 16 a position"]
    assert "never: FL015" in shown["rules"].text
    assert "none was run" in shown["mutants"].text
    assert {shown[name].mark for name in ("complete", "bounds hit", "rules", "mutants")} == {"open"}


def test_what_is_complete_is_said_to_be() -> None:
    shown = facts(COMPLETE, KILLED)
    assert (shown["complete"].mark, shown["mutants"].mark) == ("good", "good")


def test_a_recovery_stage_that_no_state_entered_is_a_warning() -> None:
    stages = [Stage("log replay", 4), Stage("lazy headers", 0)]
    cell = CellResult(samples.spec(), verdict="pass", certificate=samples.certificate(stages=stages))
    shown = facts(cell)["recovery"]
    assert (shown.mark, shown.reasons) == ("open", ["lazy headers"])
    assert "1 stage of nvm_malloc never entered." in render([cell]).text


# ---- parts ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("site", "text"),
    [
        (Site("put", "src/put.c", 3), "put (src/put.c:3)"),
        (Site("put", "libput.so"), "put (libput.so)"),
        (Site("", "libput.so"), "libput.so"),
        (Site("put"), "put"),
    ],
)
def test_a_place_without_a_function_is_its_library(site: Site, text: str) -> None:
    assert site.text() == text


def test_rules_are_written_as_ranges() -> None:
    assert page.rule_ranges(["FL005", "FL003", "FL004", "FL014", "FL003"]) == "FL003–FL005 FL014"
    assert page.rule_ranges([]) == ""


def test_the_crash_stands_between_the_events_also_when_nothing_follows() -> None:
    finding = samples.finding()
    kinds = [row.kind for row in page.event_rows(finding)]
    assert kinds == ["event", "gap", "event", "gap", "event", "event", "event", "crash", "event"]
    assert [row.kind for row in page.event_rows(samples.finding(events=finding.events[:-1]))][-1] == "crash"
    assert list(page.event_rows(samples.finding(events=[]))) == []


def test_mutants_with_several_cells_are_mapped_by_what_they_were_run_with() -> None:
    other = CellResult(samples.spec(mutant="MISSING_FLUSH", expected_rule="FL004", strategy="prefix"), verdict="pass")
    shown = page.page([KILLED, other], "done", Environment())
    assert not shown.mutant_map_is_by_rule
    assert shown.mutant_map is not None
    assert shown.mutant_map.columns == ["churn 40, seed 1 mixed", "churn 40, seed 1 prefix"]
    [(name, tiles)] = shown.mutant_map.rows
    assert (name, [tile and tile.word for tile in tiles]) == ("MISSING_FLUSH", ["killed", "survived"])


def test_only_a_complete_cell_has_the_full_colour() -> None:
    whole = {"exhaustive": 9000}
    assert page.covered_share(samples.certificate(positions_by_strategy=whole)) == 99
    assert page.covered_share(samples.certificate(complete=True, positions_by_strategy=whole)) == 100


# ---- colours -------------------------------------------------------------------------------------------------------------


def luminance(colour: str) -> float:
    channels = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [channel / 12.92 if channel <= 0.04045 else ((channel + 0.055) / 1.055) ** 2.4 for channel in channels]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    low, high = sorted((luminance(one), luminance(other)))
    return (high + 0.05) / (low + 0.05)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_text_has_the_contrast_of_wcag_aa(scheme: str) -> None:
    css = (resources.files("faultline.report") / "templates" / "report.css").read_text()
    light, dark = (dict(re.findall(r"--([a-z-]+): (#[0-9a-f]{6})", part)) for part in css.split("@media")[:2])
    colours = {**light, **(dark if scheme == "dark" else {})}
    assert set(light) == set(dark)
    grounds = {
        "ink": ["ground", "card", "code", "good-heat", "open-ground", "stripe", "bad-ground"],
        "soft": ["ground", "card", "code", "bad-ground", "open-ground"],
        "link": ["ground", "card"],
        "good": ["card"],
        "bad": ["card", "bad-ground"],
        "open": ["card", "open-ground"],
        "on-solid": ["good-solid", "bad-solid", "open-solid"],
    }
    for text, behind in grounds.items():
        for ground in behind:
            assert contrast(colours[text], colours[ground]) >= 4.5, f"{scheme}: {text} on {ground}"


def test_what_is_unknown_of_a_killed_mutant_is_no_limit() -> None:
    certificate = samples.certificate(unknown_reasons=["a twin without a drain"], unknowns=3)
    mutant = samples.spec(mutant="M", expected_rule="FL004", stop_at_rule="FL004")
    killed = CellResult(mutant, "k", "fail", findings=[samples.finding()], certificate=certificate)
    survivor = CellResult(mutant, "k", "pass", certificate=certificate)

    def fact(result: CellResult) -> str:
        text = reports.html([result], "done")
        return text[: text.index('id="matrix"') if 'id="matrix"' in text else text.index('id="mutants"')]

    assert "a twin without a drain" not in fact(killed)
    assert "a twin without a drain" in fact(survivor)
