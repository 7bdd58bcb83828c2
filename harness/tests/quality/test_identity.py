# SPDX-License-Identifier: Apache-2.0
"""The id of a finding: the same bug keeps it when lines move, under other seeds and workloads; two bugs do not share one."""

from __future__ import annotations

import json
import shutil
from collections import Counter
from pathlib import Path

import msgspec
import pytest

from command_line import Faultline
from faultline.base import config
from faultline.base.cache import Cache
from faultline.campaign import campaign
from faultline.campaign.results import Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from samples import SOURCE_FOLDERS

MUTANT = "MISSING_FLUSH_LINK"
SPEC = CellSpec("nvm_malloc", "churn", 12, 1, "complete", "px86", "clwb", mutant=MUTANT, stop_at_rule="FL004")
SEED_RECOVERIES = 1000
MOST_NEW = 0.15


def ids_of(workshop: Workshop, folder: Path, spec: CellSpec) -> tuple[set[str], set[int | None]]:
    """Ids of the findings, and the lines of the first stores that they are about."""
    results = Results(folder / "results.sqlite")
    (result,) = campaign.run_cells(workshop, results, "matrix", [spec], 1, campaign.SilentWatcher())
    results.close()
    assert result.error is None, result.error
    return {finding.id for finding in result.findings}, {finding.sites[0].line for finding in result.findings}


def test_the_same_bug_keeps_its_id(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Under another seed, another workload, and in sources whose lines have moved."""
    here = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    first, lines = ids_of(here, tmp_path, SPEC)
    assert first
    assert first & ids_of(here, tmp_path, msgspec.structs.replace(SPEC, seed=2))[0]
    assert first & ids_of(here, tmp_path, msgspec.structs.replace(SPEC, workload="smoke", ops=0))[0]

    for part in SOURCE_FOLDERS:
        shutil.copytree(root / part, tmp_path / "moved" / part)
    source = tmp_path / "moved" / "allocators" / "nvm_malloc" / "src" / "protocol.c"
    text = (
        "/* a line\n   more */\nint a_new_function(void);\nint a_new_function(void) {\n    return 1;\n}\n"
        + source.read_text()
    )
    head = "    if (relative == 0)"
    source.write_text(text.replace("static void set_links(", "\n\nstatic void set_links(").replace(head, f"\n{head}"))
    there = Workshop(tmp_path / "moved", Cache(tmp_path / "cache"), here.engine)
    moved, moved_lines = ids_of(there, tmp_path, SPEC)
    assert moved == first
    assert not moved_lines & lines


@pytest.mark.nightly
def test_few_ids_are_new_under_another_seed(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Of all mutants whose workload has a seed. Another one may show the bug in more ways, and a limit ends it elsewhere."""
    shop = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    cells = campaign.cells_of_matrix(root, config.read_toml(root / "ci" / "matrix.toml", config.Matrix))
    cells = [cell for cell in cells if cell.mutant and cell.ops and cell.strategy == "complete" and not cell.nested]
    assert len(cells) >= 50
    counts = Counter[str]()
    for cell in cells:
        spec = msgspec.structs.replace(cell, stop_at_rule=None, recovery_limit=SEED_RECOVERIES)
        known, _ = ids_of(shop, tmp_path, spec)
        others, _ = ids_of(shop, tmp_path, msgspec.structs.replace(spec, seed=2))
        counts += Counter(all=len(others), new=len(others - known))
        print(f"{cell.allocator} {cell.mutant}: {len(others - known)} of {len(others)} ids are new", flush=True)
    assert counts["new"] <= MOST_NEW * counts["all"], counts


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


def test_two_bugs_that_lose_nothing_do_not_share_an_id_anywhere(faultline: Faultline) -> None:
    """Each of them leaves a slot wrong in a reallocation, and the next stores of that are the same ones."""
    everything = ("-w", "smoke", "--stop-at-rule", "none")
    one, other = (
        ids(faultline, "nvm_malloc", mutant, *everything) for mutant in ("LINK_AFTER_STATE", "ABSOLUTE_ON_REPLAY")
    )
    assert not one & other
    assert (len(one), len(other)) == (5, 5)  # by rule and what is said


def ids(faultline: Faultline, allocator: str, mutant: str, *options: str) -> set[str]:
    run = faultline("run", allocator, "--mutant", mutant, "--json", *options)
    assert run.returncode == 1, run.stderr
    (cell,) = json.loads(run.stdout)["cells"]
    return {finding["id"] for finding in cell["findings"]}
