# SPDX-License-Identifier: Apache-2.0
"""Targets without hooks in the in-process engine (allocators/runner/inprocess.c): first parts of the probe, with the heap report
that the isolated engine gives, or an isolated run that is counted with its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loads.access_targets import BASE, Started
from loads.server import FULL, IN_PROCESS, LOADS, WRITE

BROKEN = 5
NAMES = re.findall(r"^ +ACCESS\((\w+)\),", (Path(__file__).parent / "accesses.c").read_text(), re.MULTILINE)
REASONS = {
    "maps a part of a file twice, without hooks",
    "reads a file that it has mapped, without hooks",
    "unmaps a file that it stored to, without hooks",
    "changes files, without hooks",
    "changes files",
    "changes its environment",
    "maps a file privately",
    "duplicates a descriptor",
    "asks for the descriptor of a listing",
    "starts a thread or a process",
    "locks a file by two descriptors",
    "makes a call that is not followed",
    "reached a time limit",
}


@pytest.mark.parametrize("access", NAMES)
def test_runs_are_like_isolated_ones(start: Started, access: str) -> None:
    """Each changes nothing that the next one sees."""
    server = start(access, "--wall-limit-ms", "600000", is_hooked=False)
    isolated = server.run(0)
    if isolated.outcome == BROKEN:
        assert server.run(IN_PROCESS).outcome == BROKEN
        return
    for _ in range(3):
        assert server.run(IN_PROCESS).report == isolated.report
    assert server.run(0).report == isolated.report, "the image is what it was"
    in_process, _, instead, reasons = server.engines()
    assert (in_process, instead) in ((3, 0), (0, 3))
    assert set(reasons) <= REASONS


def test_a_store_is_gone_when_the_run_is_over(start: Started, folder: Path) -> None:
    """And a run sees what was written to the image since the last one."""
    server = start("store8", is_hooked=False)
    server.run(0)
    base = next(folder.glob("heap-*")) / "heap"
    before = base.read_bytes()
    for value in range(1, 4):
        server.send(WRITE, offset=8 * BASE + 512, payload=value.to_bytes(8, "little"))
        server.run(IN_PROCESS)
        written = before[: 8 * BASE + 512] + value.to_bytes(8, "little") + before[8 * BASE + 520 :]
        assert base.read_bytes() == written
    assert server.engines()[0] == 3


@pytest.mark.parametrize(("flags", "probe"), [(LOADS, 1), (0, FULL), (LOADS, FULL)])
def test_other_runs_are_isolated(start: Started, flags: int, probe: int) -> None:
    server = start("load8", is_hooked=False)
    server.run(IN_PROCESS)
    isolated = server.run(flags, probe)
    assert server.run(flags | IN_PROCESS, probe).report == isolated.report
    assert server.engines()[:3] == (1, 1, 0)
