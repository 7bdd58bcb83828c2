# SPDX-License-Identifier: Apache-2.0
"""Behind a finding: an exploration that does not end soon goes on as if it were repaired, and finds what a second bug breaks, in as
few recoveries as a right allocator takes."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline
from exploration.files_project import link_tool
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Certificate, Done, Event, Finding
from faultline.pipeline.explore import explore, write_config
from faultline.pipeline.prepared import PreparedCell, build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.study.repairs import proved

OPERATIONS = 20
BOTH = {"set_links": "MISSING_FLUSH_LINK", "nvm_ring_begin": "MISSING_FENCE_RING"}
"""By the function of the store that is lost."""


class Heard:
    """What an exploration said."""

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self.certificate = Certificate(complete=False)
        self.verdict = ""

    def hear(self, event: Event) -> None:
        match event:
            case Finding():
                self.findings.append(event)
            case Certificate():
                self.certificate = event
            case Done():
                self.verdict = event.verdict

    def lost_at(self) -> set[str]:
        return {finding.sites[0].function for finding in self.findings if finding.lost is not None}


@pytest.fixture
def workshop(root: Path, scripts: Path, tmp_path: Path) -> Workshop:
    place = tmp_path / "project"
    place.mkdir()
    link_tool(root, place)
    cache = cache_that_shares_builds(root, tmp_path / "cache")
    return Workshop(place, cache, Engine(scripts / "faultline-engine"))


def cell_with(root: Path, workshop: Workshop, *bugs: str) -> PreparedCell:
    """nvm_malloc with all of these bugs at once."""
    folder = workshop.root / "allocators" / "nvm_malloc"
    shutil.rmtree(folder, ignore_errors=True)
    shutil.copytree(root / "allocators" / "nvm_malloc", folder)
    description = folder / "allocator.toml"
    flags = "".join(f', "-DMUTANT_{bug}"' for bug in bugs)
    description.write_text(description.read_text().replace(', "-pthread"]', f', "-pthread"{flags}]'))
    spec = CellSpec("nvm_malloc", "churn", OPERATIONS, 1, "complete", "px86", "clwb")
    return trace_cell(workshop, spec, build_cell(workshop, spec), find_workload(workshop, spec))


def explored(cell: PreparedCell, patience: int | None = 0) -> Heard:
    heard = Heard()
    explore(cell, heard.hear, more={"looks_behind": True, "patience": patience})
    return heard


@pytest.mark.slow
def test_what_ends_soon_is_explored_whole_as_it_is(root: Path, workshop: Workshop) -> None:
    cell = cell_with(root, workshop, "MISSING_FENCE_RING")
    as_it_is = explored(cell, patience=None)
    assert as_it_is.verdict == "fail"
    assert (as_it_is.certificate.complete, as_it_is.certificate.behind) == (True, [])
    impatient = explored(cell).certificate
    assert (impatient.complete, impatient.is_whole_as_repaired) == (False, True)
    assert impatient.recoveries < as_it_is.certificate.recoveries


@pytest.mark.slow
def test_two_bugs_at_once_are_both_reported(root: Path, workshop: Workshop) -> None:
    right = explored(cell_with(root, workshop))
    assert (right.certificate.complete, right.certificate.behind) == (True, [])
    cell = cell_with(root, workshop, *BOTH.values())
    both = explored(cell)
    assert both.verdict == "fail"
    assert both.lost_at() >= set(BOTH)
    certificate = both.certificate
    assert (certificate.complete, certificate.is_whole_as_repaired) == (False, True), certificate.why
    assert certificate.why.startswith("complete only as repaired; behind ")
    assert {behind.how for behind in certificate.behind} == {"repaired"}
    by_id = {finding.id: finding for finding in both.findings}
    assert {by_id[behind.finding].sites[0].function for behind in certificate.behind} >= set(BOTH)
    assert certificate.recoveries < 2 * right.certificate.recoveries, "states do not explode"
    repaired = {behind.finding: behind.repair for behind in certificate.behind}
    for finding in both.findings:
        explanation = proved(finding, both.findings, certificate)
        assert explanation is not None
        assert explanation.repair is not None
        own = repaired.get(finding.id)
        assert own in (None, explanation.repair.text)
        assert own is not None or set(explanation.repair.of) == set(repaired), "mended by those of others"


@pytest.mark.slow
def test_what_is_found_behind_a_repair_is_a_state_of_the_source_as_it_is(
    root: Path, workshop: Workshop, tmp_path: Path
) -> None:
    """The token says so: it shows the same finding again, and nothing is repaired then."""
    cell = cell_with(root, workshop, *BOTH.values())
    both = explored(cell)
    last = both.certificate.behind[-1].finding
    (finding,) = (one for one in both.findings if one.id == last)
    assert finding.id != both.findings[0].id
    replayed = Heard()
    config = write_config(tmp_path, cell)
    cell.workshop.engine.events(["replay", str(config), "--token", finding.token], replayed.hear)
    assert finding.id in {one.id for one in replayed.findings}
    assert finding.position in {one.position for one in replayed.findings}


@pytest.mark.slow
def test_a_store_that_no_flush_and_no_fence_mends_is_not_told_apart(root: Path, workshop: Workshop) -> None:
    """Two stores the wrong way round: each repair is tried, the finding comes back, and the exploration ends all the same."""
    heard = explored(cell_with(root, workshop, "MAGIC_NOT_LAST"))
    assert heard.verdict == "fail"
    assert heard.certificate.stopped is None
    assert "not-told-apart" in {behind.how for behind in heard.certificate.behind}
    assert all(proved(finding, heard.findings, heard.certificate) is None for finding in heard.findings)


@pytest.mark.slow
def test_a_run_without_a_stop_rule_ends_and_says_how(faultline: Faultline, tmp_path: Path) -> None:
    mutant = ("--mutant", "MISSING_FLUSH_LINK", "--stop-at-rule", "none")
    run = faultline("run", "nvm_malloc", "-w", "churn", "--ops", "80", *mutant, "--out", tmp_path / "out")
    assert run.returncode == 1, run.stderr
    assert "the certificate looks behind FL010-" in run.stdout
    assert "repair: clwb after the store at set_links" in run.stdout
    (first,) = re.findall(r"the certificate looks behind (\S+),", run.stdout)
    assert re.findall(r"^  also: (FL\d+) ", run.stdout, re.MULTILINE) == ["FL004", "FL008", "FL012", "FL005"]
    (cell,) = json.loads((tmp_path / "out" / "results.json").read_text())["cells"]
    mended_by = {explanation["finding"]: explanation["trials"][0]["of"] for explanation in cell["explanations"]}
    assert mended_by.pop(first) == []
    assert list(mended_by.values()) == [[first]] * 4
