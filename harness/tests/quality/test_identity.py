# SPDX-License-Identifier: Apache-2.0
"""The id of a finding: the same bug keeps it when lines move, when messages change, under other seeds and workloads; two bugs do
not share one."""

from __future__ import annotations

import json
import re
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from caches import cache_that_shares_builds
from command_line import Faultline
from faultline.base import config
from faultline.base.cache import Cache
from faultline.base.project import Project
from faultline.campaign import campaign
from faultline.campaign.known import read_known, write_baseline
from faultline.campaign.matrix import cells_of_matrix
from faultline.campaign.results import CellResult, Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from samples import SOURCE_FOLDERS

MUTANT = "MISSING_FLUSH_LINK"
SPEC = CellSpec("nvm_malloc", "churn", 12, 1, "complete", "px86", "clwb", mutant=MUTANT, stop_at_rule="FL004")
SEED_RECOVERIES = 1000
MOST_NEW = 0.15


def run(workshop: Workshop, folder: Path, spec: CellSpec) -> CellResult:
    results = Results(folder / "results.sqlite")
    (result,) = campaign.run_cells(workshop, results, "matrix", [spec], 1, campaign.SilentWatcher())
    results.close()
    assert result.error is None, result.error
    return result


def ids_of(result: CellResult) -> set[str]:
    return {finding.id for finding in result.findings}


def warnings_of(result: CellResult) -> dict[str, int | None]:
    """Ids of what the trace rules warn of, with the lines."""
    assert result.trace_rules
    return {warning.id: warning.site.line for warning in result.trace_rules.warnings}


def copied(root: Path, place: Path) -> Path:
    for part in SOURCE_FOLDERS:
        shutil.copytree(root / part, place / part)
    return place


@pytest.mark.slow
def test_the_same_bug_keeps_its_id(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Under another seed, another workload, and in sources whose lines have moved."""
    here = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    first = run(here, tmp_path, SPEC)
    assert first.findings
    assert ids_of(first) & ids_of(run(here, tmp_path, msgspec.structs.replace(SPEC, seed=2)))
    assert ids_of(first) & ids_of(run(here, tmp_path, msgspec.structs.replace(SPEC, workload="smoke", ops=0)))

    source = copied(root, tmp_path / "moved") / "allocators" / "nvm_malloc" / "src" / "protocol.c"
    text = (
        "/* a line\n   more */\nint a_new_function(void);\nint a_new_function(void) {\n    return 1;\n}\n"
        + source.read_text()
    )
    head = "    if (relative == 0)"
    source.write_text(text.replace("static void set_links(", "\n\nstatic void set_links(").replace(head, f"\n{head}"))
    there = Workshop(tmp_path / "moved", cache_that_shares_builds(root, tmp_path / "cache"), here.engine)
    moved = run(there, tmp_path, SPEC)
    assert ids_of(moved) == ids_of(first)
    lines, moved_lines = ({finding.sites[0].line for finding in result.findings} for result in (first, moved))
    assert not moved_lines & lines
    warnings, moved_warnings = warnings_of(first), warnings_of(moved)
    assert moved_warnings.keys() == warnings.keys()
    assert moved_warnings != warnings, "the lines of some have moved"


@pytest.mark.slow
def test_the_words_of_an_adapter_are_in_no_id(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Each of its messages is another one, and a baseline holds."""
    here = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    spec = CellSpec("nvmalloc", "smoke", 0, 1, "complete", "px86", "clwb", mutant="REMAINDER_TOO_LONG")
    first = run(here, tmp_path, spec)
    damaged = [finding for finding in first.findings if "the heap has damaged headers" in finding.message]
    assert {finding.rule for finding in damaged} == {"FL017"}
    write_baseline(tmp_path / "baseline.json", [first])

    source = copied(root, tmp_path / "reworded") / "allocators" / "nvmalloc" / "adapter.c"
    text = source.read_text().replace("the heap has damaged headers", "some headers of the heap are damaged")
    text, count = re.subn(r'(fail\(FL_\w+, )"', r'\1"reworded: ', text)
    assert count > 5
    source.write_text(text)
    there = Workshop(tmp_path / "reworded", cache_that_shares_builds(root, tmp_path / "cache"), here.engine)
    second = run(there, tmp_path, spec)
    said, reworded = ({finding.message for finding in result.findings} for result in (first, second))
    assert any("reworded: some headers of the heap are damaged" in message for message in reworded - said)
    assert ids_of(second) == ids_of(first)
    read_known(tmp_path / "baseline.json", None, [spec]).mark(second)
    assert second.new_findings == []


@pytest.mark.nightly
def test_few_ids_are_new_under_another_seed(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Of all mutants whose workload has a seed. Another one may show the bug in more ways, and a limit ends it elsewhere."""
    shop = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    cells = cells_of_matrix(Project(root).allocator, config.read_toml(root / "ci" / "matrix.toml", config.Matrix))
    cells = [cell for cell in cells if cell.mutant and cell.ops and cell.strategy == "complete" and not cell.nested]
    assert len(cells) >= 50
    counts = Counter[str]()
    for cell in cells:
        spec = msgspec.structs.replace(cell, stop_at_rule=None, recovery_limit=SEED_RECOVERIES)
        known = ids_of(run(shop, tmp_path, spec))
        others = ids_of(run(shop, tmp_path, msgspec.structs.replace(spec, seed=2)))
        counts += Counter(all=len(others), new=len(others - known))
        print(f"{cell.allocator} {cell.mutant}: {len(others - known)} of {len(others)} ids are new", flush=True)
    assert counts["new"] <= MOST_NEW * counts["all"], counts


@pytest.mark.slow
@pytest.mark.parametrize(
    ("allocator", "one", "other"),
    [
        ("nvm_malloc", "MISSING_FENCE_RING", "MISSING_FLUSH_IDLE"),
        ("nvmalloc", "ALLOCATED_NOT_FLUSHED", "ALLOCATED_NOT_FENCED"),  # one store, one rule
        ("nvmalloc", "REMAINDER_NOT_FLUSHED", "REMAINDER_NOT_FENCED"),
        ("nvmalloc", "FREE_NOT_FLUSHED", "FREE_NOT_FENCED"),
        pytest.param("makalu", "LOG_VERSION_FIRST", "VERSION_NOT_FLUSHED", marks=pytest.mark.nightly),
    ],
)
def test_two_bugs_do_not_share_an_id(faultline: Faultline, allocator: str, one: str, other: str) -> None:
    assert not ids(faultline, allocator, one) & ids(faultline, allocator, other)


@pytest.mark.slow
def test_two_bugs_that_lose_nothing_do_not_share_an_id_anywhere(faultline: Faultline) -> None:
    """Each of them leaves a slot wrong in a reallocation, and the next stores of that are the same ones."""
    everything = ("-w", "smoke", "--stop-at-rule", "none")
    one, other = (
        ids(faultline, "nvm_malloc", mutant, *everything) for mutant in ("LINK_AFTER_STATE", "ABSOLUTE_ON_REPLAY")
    )
    assert not one & other
    assert (len(one), len(other)) == (4, 6)  # by rule and fact; FL015 is one: what replay writes is an address


def ids(faultline: Faultline, allocator: str, mutant: str, *options: str) -> set[str]:
    shown = faultline("run", allocator, "--mutant", mutant, "--no-explain", "--no-shrink", "--json", *options)
    assert shown.returncode == 1, shown.stderr
    (cell,) = json.loads(shown.stdout)["cells"]
    return {finding["id"] for finding in cell["findings"]}
