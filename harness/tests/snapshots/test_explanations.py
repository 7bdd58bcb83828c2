# SPDX-License-Identifier: Apache-2.0
"""What a person reads of a finding, for ten mutants, as files. A place is shown with its line of source in the place of the line's
number, so that they stay as they are when lines move, and whoever reads them sees whether it is the line to change.
UPDATE_SNAPSHOTS=1 rewrites them."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest
from test_snapshots import HERE, check

from command_line import Faultline
from faultline.base.cache import Cache, project_root
from faultline.base.config import Matrix, read_toml
from faultline.base.project import Project
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.matrix import cells_of_matrix
from faultline.campaign.results import Results
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop

ROOT = project_root()
MUTANTS = [
    ("nvm_malloc", "MISSING_FLUSH_LINK"),
    ("nvm_malloc", "MISSING_FENCE_RING"),
    ("nvm_malloc", "LINK_AFTER_STATE"),
    ("nvm_malloc", "MISSING_FLUSH_IDLE"),
    ("nvm_malloc", "RECOVERY_FORGETS_FREE"),
    ("makalu", "MISSING_FENCE_LOG"),
    ("makalu", "LOG_VERSION_FIRST"),
    ("makalu", "VERSION_NOT_FLUSHED"),
    ("pallocator", "ARGUMENT_NOT_FLUSHED"),
    ("pallocator", "SPLIT_NOT_FLUSHED"),
]
PLACE = re.compile(r"(allocators/[\w/.]+):(\d+)")
OF_THE_MACHINE = [
    (re.compile(r"fl1\.[\w-]+"), "TOKEN"),
    (re.compile(r"position \d+"), "position N"),  # a copy by wider instructions has fewer events
    (re.compile(r"[\d,]+ recoveries"), "N recoveries"),
]


def token_of(workshop: Workshop, folder: Path, allocator: str, mutant: str) -> str:
    """The finding of the mutant's own rule, by its cell of the matrix."""
    matrix = cells_of_matrix(Project(ROOT).allocator, read_toml(ROOT / "ci" / "matrix.toml", Matrix))
    wanted = (allocator, mutant, "complete")
    [spec] = [spec for spec in matrix if (spec.allocator, spec.mutant, spec.strategy) == wanted]
    results = Results(folder / "results.sqlite")
    [result] = run_cells(workshop, results, "matrix", [spec], 1, SilentWatcher())
    results.close()
    return next(finding.token for finding in result.findings if finding.rule == spec.expected_rule)


def source_of(place: re.Match[str]) -> str:
    """allocators/makalu/src/atomic.c `mak_fence();`"""
    lines = (ROOT / place[1]).read_text().splitlines()
    return f"{place[1]} `{lines[int(place[2]) - 1].strip()}`"


def settled(text: str) -> str:
    """Up to the table of events, without what differs from machine to machine."""
    head = text.split("\nposition  operation", 1)[0]
    for pattern, word in OF_THE_MACHINE:
        head = pattern.sub(word, head)
    return "\n".join(PLACE.sub(source_of, line).rstrip() for line in head.splitlines()) + "\n"


@pytest.mark.drawn(5)
@pytest.mark.parametrize(("allocator", "mutant"), [pytest.param(*key, id=key[1]) for key in MUTANTS])
def test_what_is_said_of_a_mutant(
    scripts: Path, faultline: Faultline, tmp_path: Path, allocator: str, mutant: str
) -> None:
    workshop = Workshop(ROOT, Cache(ROOT / ".faultline"), Engine(scripts / "faultline-engine"))
    told = faultline("explain", token_of(workshop, tmp_path, allocator, mutant))
    assert told.returncode == 1, told.stderr
    assert "  repair: " in told.stdout, told.stderr
    check(f"explained-{mutant}.txt", settled(told.stdout))


RUN = [
    ("nvm_malloc", "MISSING_FLUSH_LINK"),  # a flush
    ("makalu", "REPLAY_NOT_FLUSHED"),  # what only a second crash shows
    ("nvm_malloc", "RECOVERY_FORGETS_FREE"),  # no flush and no fence
]


TIME_ENDED = re.compile(r"^  repair: not found in \d+ s: .*$", re.MULTILINE)


def repair_in(name: str) -> Callable[[re.Match[str]], str]:
    """The first repair line that the snapshot has."""
    found = re.search(r"^  repair: .*$", (HERE / name).read_text(), re.MULTILINE)
    assert found
    return lambda _: found[0]


@pytest.mark.slow
@pytest.mark.parametrize(("allocator", "mutant"), [pytest.param(*key, id=key[1]) for key in RUN])
def test_what_run_says_of_a_mutant(faultline: Faultline, allocator: str, mutant: str) -> None:
    """Of each finding when, stores, repair, smallest witness and how to replay it; around that stand counts of the machine."""
    told = faultline("run", allocator, "--mutant", mutant)
    assert told.returncode == 1, told.stderr
    findings = re.search(r"^FL\d.*(?=^summary: )", told.stdout, re.MULTILINE | re.DOTALL)
    assert findings, told.stdout
    told_text = settled(findings[0])
    if TIME_ENDED.search(told_text):  # a busy machine: how far repairs came in their time is its own
        told_text = TIME_ENDED.sub(repair_in(f"run-{mutant}.txt"), told_text, count=1)
    check(f"run-{mutant}.txt", told_text)
