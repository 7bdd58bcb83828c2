# SPDX-License-Identifier: Apache-2.0
"""Each kind of access to PM, made by a small target with hooks (accesses.c): what a recorded run lists of it."""

from __future__ import annotations

import os
import re
import struct
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultline.build import HOOKS, build_runner, hooked_link
from faultline.cache import Cache
from loads.server import (
    CONTENTS,
    FULL,
    GUARDED,
    LOADS,
    NOT_HOOKED,
    SHARED,
    UNSEEN,
    Load,
    Run,
    Server,
)

HERE = Path(__file__).resolve().parent
HEAP_BYTES = 65536
UNITS = HEAP_BYTES // 8
GEOMETRY = ("--heap-bytes", str(HEAP_BYTES), "--limit-bytes", str(HEAP_BYTES), "--slots", "1", "--address-hint", "0")
BASE = 512
"""Unit of byte 4096, which the accesses are relative to."""
DONE, SIGNAL = 0, 1

LISTED: dict[str, list[int]] = {
    "load1": [0],
    "load8": [0],
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
    "file_read_here": [8],
    "stream": [*range(-BASE, UNITS - BASE)],
    "private_mapping": [0],
    "second_mapping": [1],
    "mapped_again": [1],
    "private_copy": [0, 1],
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
}
"""Units relative to BASE, in order."""
BY_OTHERS = ("copy", "move", "kernel", "file", "stream", "flush")
"""Accesses that the runner makes for the target, the kernel, or nobody."""


@pytest.fixture(scope="module")
def runner(root: Path) -> Path:
    if given := os.environ.get("FAULTLINE_TEST_RUNNER"):  # of quality/test_planted.py
        return Path(given)
    return build_runner(root, Cache(root / ".faultline")).path


@pytest.fixture(scope="module")
def adapter(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    built = tmp_path_factory.mktemp("accesses")

    def build(is_hooked: bool = True) -> Path:
        path = built / f"accesses-{is_hooked}.so"
        if not path.exists():
            command = ["gcc", "-std=gnu11", "-O2", "-Wall", "-Wextra", "-Werror", "-fPIC", "-shared", "-D_GNU_SOURCE"]
            command += ["-I", str(root / "allocators/include"), *(HOOKS if is_hooked else ()), str(HERE / "accesses.c")]
            subprocess.run([*command, "-o", str(path), *(hooked_link("c11") if is_hooked else ())], check=True)
        return path

    return build


Started = Callable[..., Server]


@pytest.fixture
def start(
    runner: Path, adapter: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Started]:
    servers: list[Server] = []

    def begin(access: str, is_hooked: bool = True, heap: bytes | None = None) -> Server:
        monkeypatch.setenv("FL_ACCESS", access)
        server = Server(runner, adapter(is_hooked), folder, *GEOMETRY)
        servers.append(server)
        server.create(heap or bytes(4096) + bytes((i + 1) & 0xFF for i in range(4096)) + bytes(HEAP_BYTES - 8192))
        server.watch((0, 0, UNITS))
        return server

    yield begin
    for server in servers:
        assert server.close() == (0, "")


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


@pytest.mark.parametrize("access", [name for name in LISTED if name != "sort"])
def test_the_guard_changes_nothing_and_finds_nothing_where_all_is_announced(start: Started, access: str) -> None:
    """sort: the C library moves the elements between calls of the target's comparison."""
    server = start(access)
    recorded, guarded = server.run(LOADS), server.run(GUARDED)
    assert (guarded.report, guarded.loads, guarded.flags, guarded.unseen) == (recorded.report, recorded.loads, 0, 0)
    assert guarded.seen > 0 or access.startswith(BY_OTHERS)


@pytest.mark.parametrize("access", ["assembly", "by_value", "print"])
def test_the_guard_finds_an_access_without_a_hook(start: Started, access: str) -> None:
    server = start(access)
    plain, guarded = server.run(0), server.run(GUARDED)
    assert relative(server.run(LOADS)) == []
    assert guarded.report == plain.report
    assert guarded.flags == UNSEEN
    assert guarded.unseen > 0
    module = "libc.so.6" if access == "print" else "accesses-True.so"
    offset = 4096 + (240 if access == "print" else 0)
    assert re.fullmatch(
        rf"{module}\+0x[0-9a-f]+: an access without a hook to offset {offset} of a heap file", guarded.text
    )


def test_a_target_without_hooks_is_told(start: Started) -> None:
    run = start("load8", is_hooked=False).run(LOADS)
    assert (run.flags, run.outcome) == (NOT_HOOKED, DONE)


def test_a_thread_is_told(start: Started) -> None:
    assert start("start_thread").run(LOADS).flags == SHARED


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
    def end_after(kind: int, offset: int = 0, size: int = 0, payload: bytes = b"") -> str:
        server = Server(runner, adapter(), folder, *GEOMETRY)
        server.send(kind, 0, offset, size, payload)
        code, errors = server.close()
        assert code == 2
        assert errors.count("\n") == 1
        return errors

    assert "23 bytes, expected ranges of 24" in end_after(11, payload=bytes(23))
    assert "span more than 4 GiB" in end_after(11, payload=struct.pack("<IIQQ", 0, 0, 1 << 29, 1))
    assert "span more than 4 GiB" in end_after(11, payload=struct.pack("<IIQQ", 0, 0, 0, 1 << 62))
    assert "flags 2, expected 0, 1 (loads) or 3 (guarded)" in end_after(9, offset=2, size=1)
