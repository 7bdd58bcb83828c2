# SPDX-License-Identifier: Apache-2.0
"""Targets without hooks in the in-process engine (runner/inprocess/inprocess.c): first parts of the probe, with the heap report
that the isolated engine gives, or an isolated run that is counted with its reason."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from loads.access_targets import BASE, Started
from loads.server import FULL, IN_PROCESS, LOADS

DONE, SIGNAL, BROKEN = 0, 1, 5
NAMES = re.findall(r"^ +ACCESS\((\w+)\),", (Path(__file__).parent / "accesses.c").read_text(), re.MULTILINE)
LEAVES = {
    "maps a part of a file twice, without hooks": [
        "map_for_long",
        "load_past_a_wish",
        "load_between_mappings",
        "second_mapping",
        "use_unmapped",
        "store_unmapped",
    ],
    "reads a file that it has mapped, without hooks": ["file_read", "file_read_64", "file_read_here", "update_all"],
    "unmaps a file that it stored to, without hooks": ["stored_and_mapped_again"],
    "changes files, without hooks": [
        *("private_copy", "list_after_change", "resize", "write_file", "flush_cut", "grow", "make_file", "remove_file"),
        *("load_cut", "rename_files", "cut_files", "punch_file", "write_files", "change_all", "change_all_and_crash"),
        *("change_all_and_leave", "leave_file", "lock_other"),
    ],
    "changes files": ["walk_folder", "make_folder", "make_link", "write_synced"],
    "changes its environment": ["leave_environment"],
    "maps a file privately": ["private_mapping"],
    "duplicates a descriptor": ["stream"],
    "opens a stream": ["stream_of_what_was_stored", "stream_left_open", "overwrite_list", "overwrite_hot"],
    "asks for the descriptor of a listing": ["descriptor_of_listing"],
    "starts a thread or a process": ["start_thread"],
    "reached a time limit": ["load_for_ever", "loop_for_ever"],
}
REASONS = {access: reason for reason, accesses in LEAVES.items() for access in accesses}
NOT_FOLLOWED, AT_ONCE, LATER = "walk_by_fts", "fail_in_a_worker", "fail_the_second_time"


@pytest.mark.parametrize("access", [name for name in NAMES if name not in (NOT_FOLLOWED, AT_ONCE, LATER)])
def test_runs_are_like_isolated_ones(start: Started, access: str) -> None:
    """Each changes nothing that the next one sees."""
    server = start(access, "--wall-limit-ms", "600000", is_hooked=False)
    isolated = server.run(0)
    for _ in range(3):
        assert server.run(IN_PROCESS).report == isolated.report
    assert server.run(0).report == isolated.report, "the image is what it was"
    in_process, _, instead, reasons = server.engines()
    wanted = (0, 3, {REASONS[access]: 3}) if access in REASONS else (3, 0, {})
    assert (in_process, instead, reasons) == wanted


@pytest.mark.parametrize(
    "access", ["store_past_the_end", "load_past_the_end", "load_before_the_start", "load_past_a_wish"]
)
def test_what_runs_over_an_end_of_a_mapping_dies(start: Started, access: str) -> None:
    """Whatever would lie there."""
    server = start(access, is_hooked=False)
    assert server.run(0).outcome == server.run(IN_PROCESS).outcome == SIGNAL


def test_what_is_not_followed_says_nothing(start: Started) -> None:
    server = start(NOT_FOLLOWED, is_hooked=False)
    assert server.run(0).outcome == server.run(IN_PROCESS).outcome == BROKEN


def test_a_target_that_differs_at_once_is_isolated(start: Started) -> None:
    """By the addresses of its own memory, say."""
    server = start(AT_ONCE, is_hooked=False)
    isolated = server.run(0)
    for _ in range(3):
        assert server.run(IN_PROCESS).report == isolated.report
    assert server.engines()[2:] == (3, {"does not do the same in one process with others": 3})


def test_a_target_that_differs_later_says_nothing(start: Started) -> None:
    """By what the kernel keeps of a process: runs before were believed."""
    server = start(LATER, is_hooked=False)
    assert server.run(IN_PROCESS).outcome == server.run(0).outcome == DONE
    assert server.run(IN_PROCESS).outcome == BROKEN


def test_a_store_is_gone_when_the_run_is_over(start: Started, folder: Path) -> None:
    """And a run sees what was written to the image since the last one."""
    server = start("store8", is_hooked=False)
    server.run(0)
    base = next(folder.glob("heap-*")) / "heap"
    before = base.read_bytes()
    for value in range(1, 4):
        server.write(8 * BASE + 512, value.to_bytes(8, "little"))
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
