# SPDX-License-Identifier: Apache-2.0
"""Pages as a browser sets them: no page scrolls sideways, on a phone or a wide screen, and a link leads to what it names."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import msgspec
import pytest

import samples
from browser import look
from cover.test_comparison import cell, recorded
from faultline.campaign.results import CellResult
from faultline.report import comparison_texts, junit, page, reports, sarif
from faultline.report.comparison import compare

WIDTHS = (400, 1400)


def cells(count: int) -> list[CellResult]:
    """Many: of five allocators, and of mutants with long names; one fails."""
    found = samples.campaign()
    for number in range(45):
        spec = samples.spec(allocator=f"allocator_{number % 5}", workload=f"ace:{number // 5}", ops=0)
        found.append(CellResult(spec, verdict="pass", certificate=samples.certificate(complete=True)))
    for number in range(count - len(found)):
        rule = f"FL0{4 + number % 9:02}"
        mutant = f"MISSING_FLUSH_OF_THE_LINK_{number}"
        finding = samples.finding(id=f"{rule}-{number:08x}", rule=rule)
        spec = samples.spec(mutant=mutant, expected_rule=rule, stop_at_rule=rule)
        found.append(CellResult(spec, verdict="fail", findings=[finding], certificate=samples.certificate()))
    return found


def pages() -> dict[str, str]:
    many = [samples.finding(id=f"FL004-{number:08x}", message="word " * 60, token="t" * 400) for number in range(30)]
    return {
        "one-bug": reports.html(samples.campaign()[1:2], "done", samples.ENVIRONMENT),
        "165-cells": reports.html(cells(165), "done", samples.ENVIRONMENT),
        "comparison": comparison_texts.html(compare(recorded(cell()), recorded(cell(*many)))),
    }


@pytest.mark.slow
@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", ["one-bug", "165-cells", "comparison"])
def test_no_page_scrolls_sideways(tmp_path: Path, name: str, width: int) -> None:
    seen = look(pages()[name], tmp_path, width)
    assert seen["scroll_width"] <= width, seen
    assert seen["wide"] == []


def test_what_is_wider_than_the_window_is_noticed(tmp_path: Path) -> None:
    """The card was not positioned once: what is hidden in it widened the page."""
    text = pages()["165-cells"].replace(".card { position: relative; ", ".card { ")
    assert look(text, tmp_path, 400)["scroll_width"] > 400


@pytest.mark.slow
@pytest.mark.parametrize("address", ["FL004-1a2b3c4d", "FL005-00000001", "cell-164", "FL012"])
def test_a_link_leads_to_what_it_names(tmp_path: Path, address: str) -> None:
    """A finding, one of a mutant, a certificate and a rule: whatever they are folded in is unfolded."""
    text = pages()["165-cells"]
    assert f'id="{address}"' in text
    seen = look(text, tmp_path, 1400, address)
    assert all(seen["folds"]), seen
    assert 0 <= seen["top"] < 900, seen


def test_a_long_matrix_folds_what_is_good() -> None:
    """The page shows what needs a look, and says how much else there is."""
    results = cells(165)
    shown = page.page(results, "done", samples.ENVIRONMENT)
    assert shown.mutant_map is not None
    assert [name for name, _ in shown.mutant_map.shown] == ["SURVIVOR"]
    assert len(shown.mutant_map.folded) == 116
    assert (len(shown.shown_mutant_findings), len(shown.folded_mutant_findings)) == (0, 116)
    assert [cell for cell, _ in shown.shown_cells] == [1, 2, 4]
    assert len(shown.folded_cells) == 162
    few = page.page(results[:24], "done", samples.ENVIRONMENT)
    assert few.folded_cells == []


def test_every_link_of_ci_leads_somewhere() -> None:
    """Of results.sarif, junit.xml and a comparison; two allocators have a finding of one id."""
    found = samples.finding()
    where = msgspec.structs.replace(samples.ENVIRONMENT, report_url="https://example.org/report.html")
    others = [cell(found), msgspec.structs.replace(cell(found), spec=samples.spec(allocator="other"))]
    results = [*samples.campaign(), *others]
    texts = (
        sarif.render(results, "done", where),
        junit.render(results, where),
        comparison_texts.markdown(compare(recorded(), recorded(*results, where=where))),
    )
    named = [set(re.findall(r"https://example.org/report.html#([A-Za-z0-9_.-]+)", text)) for text in texts]
    assert {f"{found.id}.other", found.id} <= named[0] & named[1] & named[2]
    assert "FL112" in named[0]
    ids = set(re.findall(r' id="([^"]+)"', reports.html(results, "done", where)))
    assert set().union(*named) <= ids


def test_each_finding_has_an_address_of_its_own() -> None:
    """That of a clean allocator is its id: CI knows no other."""
    found = samples.finding()

    def of(**spec: Any) -> CellResult:
        return CellResult(samples.spec(**spec), verdict="fail", findings=[found], certificate=samples.certificate())

    both = page.page([of(mutant="M", expected_rule="FL004"), of(), of(allocator="a b")], "done", samples.ENVIRONMENT)
    assert [view.address for view in both.findings] == [found.id, f"{found.id}.a-b"]
    assert [view.address for view in both.mutant_findings] == [f"{found.id}.nvm_malloc"]
