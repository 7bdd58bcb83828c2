# SPDX-License-Identifier: Apache-2.0
"""Each kind of access to PM, made by a small target with hooks (accesses.c): what a recorded run lists of it."""

from __future__ import annotations

import re
import struct
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from loads.access_targets import BASE, GEOMETRY, HEAP_BYTES, UNITS, Started
from loads.server import (
    CONTENTS,
    DAMAGED,
    FULL,
    GUARDED,
    IN_PROCESS,
    LOADS,
    MAPPINGS,
    NOT_HOOKED,
    RECOVERY,
    SHARED,
    UNSEEN,
    Load,
    Run,
    Server,
)
from runner_protocol import FL, Command

DONE, SIGNAL = 0, 1

LISTED: dict[str, list[int]] = {
    "load1": [0],
    "load8": [0],
    "load_often": [0],
    "load_between_mappings": [0],
    "load16": [2, 3],
    "load_across_units": [0, 1],
    "load_across_lines": [7, 8],
    "load_one_bit": [0],
    "load_bit_field": [0],
    "assign_structure": [*range(1, 8)],
    "assign_structure_to_itself": [*range(7)],
    "assign_pair": [1, 2],
    "copy_constant": [0, 1, 2],
    "copy_variable": [0, 1, 2],
    "copy_nothing": [],
    "move_overlapping": [*range(5)],
    "compare_until_difference": [0, 1],
    "compare_strings": [0, 1],
    "string_length": [30, 31],
    "string_copy": [30, 31],
    "find_byte": [0, 1, 2],
    "sort": [*range(4)],
    "atomic_load": [0],
    "atomic_load4": [0],
    "atomic_exchange": [0],
    "atomic_add": [0],
    "atomic_or1": [1],
    "failed_exchange": [0],
    "old_builtin": [0],
    "kernel_reads": [0, 1, 2, 8, 16, 17],
    "file_read": [0, 1, 2],
    "file_read_64": [0, 1, 2],
    "file_read_here": [8],
    "stream": [*range(-BASE, UNITS - BASE)],
    "private_mapping": [0],
    "second_mapping": [1],
    "mapped_again": [1],
    "private_copy": [0, 1],
    "list_folder": [7],
    "descriptor_of_listing": [0],
    "store1": [0],
    "store8": [0],
    "store_bit_field": [0],
    "store_narrow_bit_field": [0],
    "store_then_load": [],
    "store4_then_load": [0],
    "set_then_load": [0, 3],
    "copied_over": [],
    "flush": [],
    "crash": [0],
    "own_function": [1],
    "assembly": [0],
    "by_value": [*range(7)],
    "pair_by_value": [0, 1],
    "store_result": [],
    "store_large_result": [],
    "load_without_hook": [0],
    "stream_store": [],
    "own_flushes": [],
    "own_store": [8],
    "own_exchange": [0],
    "own_compare_exchange": [0],
    "own_wide_compare_exchange": [2, 3],
    "own_copy": [0, 9],
    "own_copy_from_pm": [0, 1, 2],
    "own_fill": [],
    "own_search": [0, 1, 2],
    "own_wide_store": [],
    "lock_elsewhere": [],
    "wide_atomic": [2, 3],
}
"""Units relative to BASE, in order."""
BY_OTHERS = ("copy", "move", "kernel", "file", "stream", "flush", "own_flushes", "own_search")
"""Accesses that the runner makes for the target, the kernel, or nobody."""


def relative(run: Run) -> list[int]:
    assert run.flags == 0, run.text
    assert run.units(CONTENTS) == []
    return [unit - BASE for unit in run.units()]


@pytest.mark.parametrize("access", LISTED)
def test_an_access_lists_the_units_it_depends_on(start: Started, access: str) -> None:
    server = start(access)
    plain, recorded = server.run(0), server.run(LOADS)
    assert recorded.report == plain.report
    assert recorded.outcome == (SIGNAL if access == "crash" else DONE)
    assert relative(recorded) == LISTED[access]


@pytest.mark.parametrize(
    "access",
    [
        "load8",
        "load_bit_field",
        "copy_variable",
        "sort",
        "atomic_load",
        "compare_until_difference",
        "compare_strings",
        "string_length",
        "string_copy",
        "find_byte",
        "file_read",
        "file_read_64",
    ],
)
def test_a_load_names_the_code_that_makes_it(start: Started, access: str) -> None:
    server = start(access)
    arguments = [str(argument) for argument in server.process.args]  # type: ignore[union-attr]
    adapter = arguments[arguments.index("--adapter") + 1]
    sites = {hex(load.site) for load in server.run(LOADS).loads}
    named = subprocess.run(["addr2line", "-f", "-i", "-e", adapter, *sites], capture_output=True, text=True, check=True)
    assert sites != {"0x0"}
    assert access in named.stdout.splitlines()[::2]


@pytest.mark.parametrize("access", [name for name in LISTED if name != "sort"])
def test_the_guard_changes_nothing_and_finds_nothing_where_all_is_announced(start: Started, access: str) -> None:
    """sort: the C library moves the elements between calls of the target's comparison."""
    server = start(access)
    recorded, guarded = server.run(LOADS), server.run(GUARDED)
    assert (guarded.report, guarded.loads, guarded.flags, guarded.unseen) == (recorded.report, recorded.loads, 0, 0)
    assert guarded.seen > 0 or access.startswith(BY_OTHERS)


def test_the_guard_finds_an_access_that_nothing_announces(start: Started) -> None:
    """In code that the target made itself."""
    server = start("load_made")
    plain, guarded = server.run(0), server.run(GUARDED)
    assert relative(server.run(LOADS)) == []
    assert guarded.report == plain.report
    assert guarded.flags == UNSEEN
    assert guarded.unseen > 0
    assert re.fullmatch(r"\?\+0x[0-9a-f]+: an access without a hook to offset 4096 of a heap file", guarded.text)


UNSEEN_PLACES = {
    "print": "a call of snprintf with a pointer to PM",
    "print_list": "a call of vsnprintf with a pointer to PM",
    "print_many": "a call of snprintf with a pointer to PM",
    "lock_mutex": "a call of pthread_mutex_lock with a pointer to PM",
    "random_bytes": "a call of getrandom with a pointer to PM",
    "system_call": "a system call by an instruction, number 17",
    "gather": "a gather or scatter",
    "save_state": "an instruction that is not followed",
    "call_library": "a call of getdelim, which is not built with hooks",
}


@pytest.mark.parametrize("where", [0, IN_PROCESS], ids=["isolated", "in-process"])
@pytest.mark.parametrize("access", UNSEEN_PLACES)
def test_a_place_that_hooks_do_not_see_says_so_in_the_run_that_comes_there(
    start: Started, access: str, where: int
) -> None:
    server = start(access)
    plain, recorded = server.run(0), server.run(LOADS | where)
    assert (recorded.report, recorded.flags) == (plain.report, UNSEEN)
    assert re.fullmatch(rf"accesses-True.so\+0x[0-9a-f]+: {UNSEEN_PLACES[access]}", recorded.text)


@pytest.mark.parametrize("access", ["print_other", "harmless_system_call", "save_state_elsewhere", "lock_other_mutex"])
def test_what_reaches_no_pm_is_no_such_place(start: Started, access: str) -> None:
    server = start(access)
    for where in (0, IN_PROCESS):
        assert relative(server.run(LOADS | where)) == [0]


def test_a_guarded_run_may_take_longer(start: Started) -> None:
    """The limits are for what the target does, not for how closely it is looked at."""
    server = start("load_often", "--cpu-limit-ms", "40")
    recorded, guarded = server.run(LOADS), server.run(GUARDED)
    assert recorded.outcome == DONE
    assert (guarded.report, guarded.loads) == (recorded.report, recorded.loads)


def test_a_target_without_hooks_is_told(start: Started) -> None:
    run = start("load8", is_hooked=False).run(LOADS)
    assert (run.flags, run.outcome) == (NOT_HOOKED, DONE)


def test_a_thread_is_told(start: Started) -> None:
    assert start("start_thread").run(LOADS).flags == SHARED


@pytest.mark.parametrize("where", [0, IN_PROCESS], ids=["isolated", "in-process"])
@pytest.mark.parametrize(
    ("access", "flag", "outcome"),
    [("map_often", MAPPINGS, DONE), ("overwrite_list", DAMAGED, DONE), ("overwrite_hot", 0, SIGNAL)],
)
def test_what_cannot_be_followed_in_one_run_is_told_of_that_run(
    start: Started, access: str, flag: int, outcome: int, where: int
) -> None:
    """The runs before it and after it are as they should be."""
    server = start(access)
    usual = server.run(LOADS)
    assert (usual.flags, usual.outcome, sorted(usual.units())) == (0, DONE, [0, BASE])
    for _ in range(2):
        server.write(0, b"\1")
        run = server.run(LOADS | where)
        assert (run.flags, run.outcome) == (flag, outcome)
        server.write(0, b"\0")
        assert server.run(LOADS | where) == usual


def test_only_hot_units_are_listed(start: Started) -> None:
    server = start("assign_structure")
    server.watch((0, BASE + 2, 2), (0, BASE + 5, 1), (0, BASE + 6, 0), (7, 0, 100))
    assert relative(server.run(LOADS)) == [2, 3, 5]
    server.watch((0, BASE + 7, 1))
    assert relative(server.run(LOADS)) == [7]
    server.watch()
    assert relative(server.run(LOADS)) == []


def test_each_run_begins_anew(start: Started) -> None:
    server = start("store4_then_load")
    runs = [server.run(LOADS, FULL) for _ in range(3)]
    assert runs[0].loads == runs[1].loads == runs[2].loads == [Load(1, 0, 0, BASE)]


def test_stores_decide_for_the_lives_that_see_them(start: Started) -> None:
    """Unit 1 is stored by lives 0, 1 and 3 and loaded by 2 and 4; unit 2 by lives 0 and 3: life 2 finds the crash's bytes."""
    heap = bytes(4096) + struct.pack("<Q", 1) + bytes(HEAP_BYTES - 4096 - 8)
    run = start("lives", heap=heap).run(LOADS, FULL)
    assert run.outcome == DONE
    assert run.loads == [Load(1, 0, 0, BASE), Load(1, 2, 0, BASE + 2)]


def test_a_file_keeps_its_number_in_copies(start: Started) -> None:
    server = start("private_copy")
    server.create(b"x" * 4096, "other", file=9)
    server.watch((0, BASE, 2), (9, 0, 512))
    run = server.run(LOADS, FULL)
    assert run.loads == [Load(1, 0, 0, BASE), Load(1, 0, 0, BASE + 1)]


def test_bad_commands_end_the_server_with_one_line(runner: Path, adapter: Callable[..., Path], folder: Path) -> None:
    def end_after(kind: int, payload: bytes = b"", probe: int = 0, flags: int = 0) -> str:
        server = Server(runner, adapter(), folder, *GEOMETRY)
        server.send(Command(kind, payload=payload, probe=probe, flags=flags))
        code, errors = server.close()
        assert code == 2
        assert errors.count("\n") == 1
        return errors

    assert "23 bytes, expected ranges of 24" in end_after(FL.COMMAND_WATCH, payload=bytes(23))
    assert "span more than 4 GiB" in end_after(FL.COMMAND_WATCH, payload=struct.pack("<IIQQ", 0, 0, 1 << 29, 1))
    assert "span more than 4 GiB" in end_after(FL.COMMAND_WATCH, payload=struct.pack("<IIQQ", 0, 0, 0, 1 << 62))
    assert "flags 2, expected 0, 1 (loads) or 3 (guarded), with 4 (in-process)" in end_after(
        FL.COMMAND_RUN, probe=1, flags=2
    )


# ---- recovery traces (runner/protocol.h) ------------------------------------------------------------------------------

STORE, FLUSH, FENCE, BEGIN, RETURN, FILE, WRITE, SYNC = 1, 2, 3, 4, 5, 6, 7, 8
PLAIN, RMW, STREAM = 1, 2, 4
CLFLUSH, CLFLUSHOPT, CLWB = 1, 2, 3
SFENCE, MFENCE, LOCKED = 1, 2, 3
ALLOCATE, FIRST_FOLLOW_UP_BYTES = 5, 48
FIELD = (1 | 2 << 8 | 3 << 16 | 4 << 24 | 5 << 32 | 6 << 40 | 7 << 48 | 8 << 56) & ~(((1 << 30) - 1) << 20) | 3 << 20

RECORDED: dict[str, list[tuple[int, int, int, bytes]]] = {
    "load8": [],
    "store1": [(STORE, PLAIN, 3, b"\1")],
    "store8": [(STORE, PLAIN, 0, (1).to_bytes(8, "little"))],
    "store_bit_field": [(STORE, PLAIN, 0, FIELD.to_bytes(8, "little"))],
    "store_in_order": [
        (STORE, PLAIN, 0, (1).to_bytes(8, "little")),
        (STORE, PLAIN, 64, (2).to_bytes(4, "little")),
        (STORE, PLAIN, 0, (3).to_bytes(8, "little")),
    ],
    "store_then_lock": [(STORE, PLAIN, 0, (1).to_bytes(8, "little")), (FENCE, LOCKED, 0, b"")],
    "store_released": [(STORE, PLAIN, 0, (1).to_bytes(8, "little"))],
    "store_then_load": [(STORE, RMW, 0, (1).to_bytes(8, "little"))],
    "store4_then_load": [(STORE, RMW, 0, (1).to_bytes(4, "little"))],
    "atomic_exchange": [(STORE, RMW, 0, (1).to_bytes(8, "little"))],
    "atomic_or1": [(STORE, RMW, 9, b"\x0b")],
    "failed_exchange": [(FENCE, LOCKED, 0, b"")],
    "set_then_load": [(STORE, PLAIN, 4, bytes(24))],
    "copied_over": [(STORE, PLAIN, 0, bytes(16))],
    "move_overlapping": [(STORE, PLAIN, 8, bytes(range(1, 41)))],
    "assign_structure_to_itself": [(STORE, PLAIN, at, bytes(range(at + 1, at + 9))) for at in range(0, 56, 8)],
    "flush": [(FLUSH, CLWB, 0, b""), (FLUSH, CLWB, 64, b""), (FENCE, SFENCE, 0, b"")],
    "stream_store": [(STORE, STREAM, 0, (1).to_bytes(8, "little"))],
    "own_flushes": [
        (FLUSH, CLWB, 0, b""),
        (FLUSH, CLFLUSHOPT, 64, b""),
        (FLUSH, CLFLUSH, 128, b""),
        (FENCE, SFENCE, 0, b""),
        (FENCE, MFENCE, 0, b""),
    ],
    "own_store": [
        (STORE, PLAIN, 0, (1).to_bytes(8, "little")),
        (STORE, PLAIN, 0, (2).to_bytes(8, "little")),
        (STORE, PLAIN, 64, (3).to_bytes(4, "little")),
    ],
    "own_exchange": [(STORE, RMW, 0, (1).to_bytes(8, "little"))],
    "own_compare_exchange": [(STORE, RMW, 0, (1).to_bytes(8, "little")), (FENCE, LOCKED, 0, b"")],
    "own_wide_compare_exchange": [(STORE, RMW, 16, (1 | 2 << 64).to_bytes(16, "little"))],
    "own_copy": [(STORE, PLAIN, 5, bytes(70))],
    "own_fill": [(STORE, PLAIN, 0, 3 * (7).to_bytes(8, "little"))],
    "own_wide_store": [(STORE, PLAIN, 40, bytes(32))],
    "lock_elsewhere": [(STORE, PLAIN, 0, (1).to_bytes(8, "little")), (FENCE, LOCKED, 0, b"")],
    "wide_atomic": [(STORE, RMW, 16, (1).to_bytes(16, "little"))],
    "store_result": [(STORE, PLAIN, 0, (5).to_bytes(8, "little")), (STORE, PLAIN, 8, (6).to_bytes(8, "little"))],
    "store_without_hook": [(STORE, PLAIN, 0, (1).to_bytes(8, "little"))],
    "store_announced_twice": [(STORE, PLAIN, 0, value.to_bytes(8, "little")) for value in (1, 2)],
    "resize": [
        (FILE, 2, 0, (2 * HEAP_BYTES).to_bytes(8, "little") + b"heap\0"),
        (FILE, 4, 4096, (64).to_bytes(8, "little") + b"heap\0"),
        (SYNC, 0, 0, bytes([255] * 8)),
    ],
    "write_file": [(WRITE, 0, 0, bytes(8))],
    "write_synced": [(WRITE, 0, 0, bytes(8)), (SYNC, 0, 0, (8).to_bytes(8, "little"))],
    "private_copy": [
        (STORE, PLAIN, 0, (7).to_bytes(8, "little")),
        (FILE, 1, 0, bytes(8) + b"heap.new\0"),
    ],
}
"""Offsets relative to byte 4096; those of file events as they are."""


@pytest.mark.parametrize("access", RECORDED)
def test_an_access_is_told_as_what_it_does_to_pm(start: Started, access: str) -> None:
    trace = start(access).trace_recovery()
    assert trace.flags == 0
    begins = [at for at, event in enumerate(trace.events) if event[0] == BEGIN]
    assert trace.events[begins[1]][1::2] == (ALLOCATE, FIRST_FOLLOW_UP_BYTES, trace.events[begins[1]][5])
    inside = trace.events[begins[1] + 1 : begins[2] - 1]
    assert trace.events[begins[2] - 1][0] == RETURN
    base = {STORE: 4096, FLUSH: 4096, WRITE: 4096, SYNC: 4096 if access == "write_synced" else 0}
    assert [(kind, detail, at - base.get(kind, 0), bytes_) for kind, detail, _, at, _, bytes_ in inside] == RECORDED[
        access
    ]
    sites = {site for kind, *_, site, _ in inside if kind in (STORE, FLUSH, FENCE, WRITE, SYNC)}
    assert all(sites), "each event says which instruction it is of"


def test_what_cannot_be_told_is_said(start: Started) -> None:
    assert start("make_link").trace_recovery().flags == 2


def test_generations_have_operations_of_their_own(start: Started) -> None:
    server = start("load8")
    indexes = [{event[4] for event in server.trace_recovery(number).events if event[0] == BEGIN} for number in (1, 2)]
    assert all(len(numbers) == 5 for numbers in indexes)
    assert not indexes[0] & indexes[1]


def test_a_recovery_is_told_without_what_follows_it(start: Started) -> None:
    """As it is told with that, up to open's return."""
    server = start("store8")
    whole, recovery = server.trace_recovery().events, server.trace_recovery(probe=RECOVERY).events
    assert [event[0] for event in recovery].count(BEGIN) == 1
    assert recovery[-1][0] == RETURN
    assert whole[: len(recovery)] == recovery
    assert len(whole) > len(recovery)


@pytest.mark.parametrize("access", ["store8", "resize"])
def test_a_told_run_leaves_the_image_as_it_was(start: Started, access: str) -> None:
    server = start(access)
    before = server.run(LOADS).report
    first = server.trace_recovery().events
    assert server.trace_recovery().events == first
    assert server.run(LOADS).report == before
