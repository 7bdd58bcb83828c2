# SPDX-License-Identifier: Apache-2.0
"""The in-process engine (runner/inprocess/inprocess.c) against the isolated one: equal heap reports and loads, or an isolated run
that is counted with its reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from loads.access_targets import BASE, GEOMETRY, HEAP_BYTES, UNITS, Started
from loads.server import (
    AFRESH,
    COMPARED,
    DIFFERS,
    FIRST,
    FULL,
    IN_PROCESS,
    LOADS,
    REPORT_APART,
    Run,
    Server,
)
from loads.test_accesses import LISTED, relative
from runner_protocol import FL, Command

DONE, SIGNAL, EXITED, BROKEN = 0, 1, 3, 5
MASK = (1 << 64) - 1


def is_compared(seed: int, run: int) -> bool:
    """As is_chosen in inprocess.c."""
    mixed = ((seed << 32) ^ run) * 0x9E3779B97F4A7C15 & MASK
    mixed = (mixed ^ mixed >> 32) * 0xBF58476D1CE4E5B9 & MASK
    return run == 0 or (mixed >> 32) % FL.COMPARE_ONE_IN == 0


def run_seeded(server: Server, flags: int, seed: int) -> Run:
    server.send_run(flags, seed=seed)
    run = Run(server.answer())
    if flags & LOADS:
        answer = server.answer()
        run.flags = int.from_bytes(answer[4:8], "little")
        run.text = answer[32 + 24 * int.from_bytes(answer[8:12], "little") :].decode()
    return run


STAYS = [name for name in LISTED if name not in ("crash", "stream", "private_mapping", "descriptor_of_listing")]


@pytest.mark.parametrize(
    "access",
    [
        *STAYS,
        "map_a_neighbour",
        "map_for_long",
        "update_all",
        "keep_global",
        "keep_thread_local",
        "keep_allocated",
        "keep_much",
    ],
)
def test_in_process_runs_are_like_isolated_ones(start: Started, access: str) -> None:
    server = start(access)
    isolated = server.run(LOADS)
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
        assert server.run(IN_PROCESS).report == isolated.report
    again = server.run(LOADS)
    assert (again.report, again.loads) == (isolated.report, isolated.loads), "the image is what it was"
    in_process, compared, isolated_instead, reasons = server.engines()
    assert (in_process, compared > 0, isolated_instead) == (6, True, 0), reasons


@pytest.mark.parametrize(
    "access", ["keep_global", "keep_garbage", "keep_mapping", "keep_key", "keep_descriptor", "grow"]
)
def test_nothing_is_left_to_the_next_run(start: Started, access: str) -> None:
    server = start(access)
    first = server.run(LOADS | IN_PROCESS)
    for _ in range(5):
        run = server.run(LOADS | IN_PROCESS)
        assert (run.report, run.loads, run.flags) == (first.report, first.loads, 0), run.text
    assert server.engines()[0] == 6


@pytest.mark.parametrize("access", ["store1", "crash", "start_thread"])
@pytest.mark.parametrize("engine", [0, IN_PROCESS])
def test_a_report_can_be_fetched_instead_of_sent(start: Started, access: str, engine: int) -> None:
    server = start(access)
    sent = server.run(LOADS | engine)
    assert server.report_file.name.isdigit()
    for flags in (LOADS, 0):
        apart = server.run(flags | engine | REPORT_APART)
        assert apart.report == server.run(flags | engine).report == sent.report
        assert apart.loads == (sent.loads if flags else ())


def test_server_and_worker_run_where_they_are_told(start: Started) -> None:
    """Told before the worker is there, then by the worker, then by the server."""

    def processors() -> list[set[int]]:
        server_id = server.process.pid
        workers = Path(f"/proc/{server_id}/task/{server_id}/children").read_text().split()
        return [os.sched_getaffinity(int(process)) for process in (server_id, *workers)]

    def seat(*chosen: int) -> None:
        bits = sum(1 << processor for processor in chosen)
        server.send(Command(FL.COMMAND_AFFINITY, payload=bits.to_bytes(128, "little")))

    server, allowed = start(STAYS[0]), sorted(os.sched_getaffinity(0))
    seat(allowed[-1])
    alone = server.run(LOADS)
    assert processors() == [{allowed[-1]}]
    report = server.run(LOADS | IN_PROCESS)
    assert processors() == [{allowed[-1]}] * 2
    for chosen in (allowed, allowed[:1]):
        seat(*chosen)
        assert server.run(LOADS | IN_PROCESS) == report
        assert processors() == [set(chosen)] * 2
    seat(*allowed)
    assert server.run(LOADS).loads == report.loads == alone.loads
    assert processors() == [set(allowed)] * 2


@pytest.mark.parametrize("access", ["lives", "store4_then_load", "update_all", "grow"])
def test_full_probes_are_alike(start: Started, access: str) -> None:
    server = start(access)
    isolated = server.run(LOADS, FULL)
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS, FULL)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
    in_process, _, instead, reasons = server.engines()
    assert (in_process, instead) == (3, 0), reasons


@pytest.mark.parametrize("probe", [FIRST, FULL])
def test_a_lock_on_the_heap_file_is_gone_when_power_fails(start: Started, probe: int) -> None:
    """The worker is still there and has the file open: the isolated engine, and the next life, get the lock all the same."""
    server = start("lock_file")
    isolated = server.run(LOADS, probe)
    assert isolated.outcome == DONE
    assert isolated.units() == [BASE + 7], "each lock was there to get"
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS, probe)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
        assert server.run(LOADS, probe).loads == isolated.loads
    in_process, _, instead, reasons = server.engines()
    assert (in_process, instead) == (3, 0), reasons


def test_the_rest_of_a_run_is_known_from_another_one_that_came_to_the_same(start: Started) -> None:
    """Of unit 64, which is not hot, open makes what unit 0 is; it overwrites unit 1. Drain reads 64, 1 and 2, and 5 if 64 is not
    0."""
    server = start("rest", heap=bytes(HEAP_BYTES))
    steps = [  # what is written to which unit; number of the hot units; flags; whether the rest is known
        (0, 0, 1, 0, False),
        (0, 0, 1, 0, True),
        (1, 9, 1, 0, True),
        (4, 1, 1, 0, True),
        (2, 7, 1, 0, False),
        (2, 0, 1, 0, True),
        (5, 1, 1, 0, True),
        (0, 1, 1, 0, False),
        (5, 2, 1, 0, False),
        (5, 1, 1, 0, True),
        (5, 1, 1, AFRESH, False),
        (5, 1, 2, 0, False),
        (5, 1, 1, 0, True),
    ]
    for unit, value, number, flags, _ in steps:
        server.write(8 * (BASE + unit), value.to_bytes(8, "little"))
        server.watch((0, BASE, 8), number=number)
        isolated, run = server.run(LOADS, FULL), server.run(LOADS | IN_PROCESS | flags, FULL)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
    in_process, _, instead, reasons = server.engines()
    assert (in_process, instead, server.remembered) == (len(steps), 0, sum(step[-1] for step in steps)), reasons


def test_the_rest_of_a_run_whose_check_stores_is_its_own(start: Started) -> None:
    """Life 1 leaves another image than life 0 did: it makes no check."""
    server = start("rest_of_check", heap=bytes(HEAP_BYTES))
    for _ in range(3):
        server.watch((0, BASE, 8), number=1)
        isolated, run = server.run(LOADS, FULL), server.run(LOADS | IN_PROCESS, FULL)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
    server.engines()
    assert server.remembered == 0


def test_what_life_2_reads_is_listed_where_check_of_life_0_decided_it(start: Started) -> None:
    """Check stores what the crash left there anyway, so life 1 leaves the image that life 0 left; but in lives 1 and 2 it is the
    crash's."""
    heap = bytearray(HEAP_BYTES)
    heap[8 * (BASE + 2)] = 7
    server = start("rest_decided_by_check", heap=bytes(heap))
    for _ in range(3):
        server.watch((0, BASE, 8), number=1)
        isolated, run = server.run(LOADS, FULL), server.run(LOADS | IN_PROCESS, FULL)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
    assert BASE + 2 in isolated.units()


@pytest.mark.parametrize(
    ("access", "reason"),
    [
        ("stream_of_what_was_stored", "opens a stream"),
        ("stream_left_open", "opens a stream"),
        ("start_thread", "starts a thread or a process"),
        ("make_folder", "changes files"),
        ("make_link", "changes files"),
        ("descriptor_of_listing", "asks for the descriptor of a listing"),
        ("leave_environment", "changes its environment"),
        ("private_mapping", "maps a file privately"),
        ("use_unmapped", "touches memory that it has unmapped"),
        ("store_unmapped", "touches memory that it has unmapped"),
        ("lock_twice", "locks a file by two descriptors"),
        ("lock_other", "locks a file in a way that is not kept"),
        ("free_twice", "frees what is not allocated, or wrote past the end of an allocation"),
        ("store_made", "stores to PM where no hook sees it"),
        ("load_for_ever", "makes more than 10 million accesses to PM"),
        ("loop_for_ever", "reached a time limit"),
    ],
)
def test_what_cannot_be_taken_back_is_done_in_the_isolated_engine(start: Started, access: str, reason: str) -> None:
    server = start(access, "--wall-limit-ms", "600000")
    isolated = server.run(LOADS)
    for _ in range(2):
        run = server.run(LOADS | IN_PROCESS)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, isolated.flags)
    assert server.engines() == (0, 0, 2, {reason: 2})


@pytest.mark.parametrize(
    ("access", "outcome"),
    [
        ("crash", SIGNAL),
        ("store_past_the_end", SIGNAL),
        ("load_past_the_end", SIGNAL),
        ("load_before_the_start", SIGNAL),
        ("load_past_a_wish", SIGNAL),
        ("flush_nothing", SIGNAL),
        ("flush_cut", SIGNAL),
        ("abort_now", SIGNAL),
        ("divide", SIGNAL),
        ("overflow_stack", SIGNAL),
        ("exit_now", EXITED),
    ],
)
def test_a_run_that_ends_the_process_is_compared(start: Started, access: str, outcome: int) -> None:
    server = start(access)
    isolated = server.run(LOADS)
    assert isolated.outcome == outcome
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
    assert server.engines() == (3, 3, 0, {})


def test_flushes_of_pm_are_left_out_in_process(start: Started) -> None:
    """The target aborts where it is not to flush what it has just loaded, but what is no PM."""
    server = start("ask_flush")
    assert server.run(LOADS).outcome == DONE
    assert server.run(LOADS | IN_PROCESS).flags == DIFFERS


def with_files(server: Server) -> Server:
    """Made in another order than that of their names."""
    for number, name in enumerate(("d", "b", "c"), 1):
        server.create(b"", name, number)
    server.send(Command(FL.COMMAND_MKDIR, payload=b"sub"))
    server.create(b"", "sub/x", 4)
    return server


FULL_HEAP = b"".join(
    bytes(4096) if page in (9, 12) else bytes((page + i) % 61 + 1 for i in range(4096)) for page in range(16)
)


def with_contents(server: Server) -> Server:
    """Of less than a line, and of some OS pages, the second one a hole."""
    server.create(b"\x03" * 50, "b", 1)
    server.create(b"\x04" * 4096 + bytes(4096) + b"\x05" * 100, "c", 2)
    server.create(b"\x06" * 4096, "d", 3)
    server.watch((0, 0, UNITS), (1, 0, 1), (2, 0, 1))
    return server


def files_in(folder: Path) -> dict[str, tuple[int, bytes]]:
    """The image's, and what was put aside: inode and content of each."""
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): (path.stat().st_ino, path.read_bytes()) for path in paths}


CHANGES = ["make_file", "remove_file", "rename_files", "cut_files", "punch_file", "write_files", "change_all"]


@pytest.mark.parametrize("probe", [FIRST, FULL])
@pytest.mark.parametrize("access", CHANGES)
def test_changes_of_files_are_taken_back(start: Started, folder: Path, access: str, probe: int) -> None:
    server = with_contents(start(access, heap=FULL_HEAP))
    isolated = server.run(LOADS, probe)
    assert isolated.outcome == DONE
    before = files_in(folder)
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS, probe)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
        assert files_in(folder) == before
    assert server.run(LOADS, probe).report == isolated.report
    in_process, compared, instead, reasons = server.engines()
    assert (in_process, compared, instead) == (3, sum(is_compared(0, run) for run in range(3)), 0), reasons


@pytest.mark.parametrize("seed", range(1, 9))
def test_changes_of_files_by_chance_are_taken_back(
    start: Started, folder: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    monkeypatch.setenv("FL_SEED", str(seed))
    server = with_contents(start("change_by_chance", heap=FULL_HEAP))
    for first_byte in range(4):
        server.write(0, bytes([first_byte]))
        isolated = server.run(LOADS)
        assert isolated.outcome == DONE
        before = files_in(folder)
        for _ in range(2):
            run = server.run(LOADS | IN_PROCESS)
            assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
            assert files_in(folder) == before
    in_process, _, instead, reasons = server.engines()
    assert (in_process, instead) == (8, 0), reasons


@pytest.mark.parametrize(
    ("access", "engines"),
    [
        ("change_all_and_crash", (3, 3, 0, {})),
        ("change_all_and_leave", (0, 0, 3, {"changes its environment": 3})),
    ],
)
def test_changes_of_files_are_taken_back_after_a_run_without_an_end(
    start: Started, folder: Path, access: str, engines: tuple[int, int, int, dict[str, int]]
) -> None:
    server = with_contents(start(access, heap=FULL_HEAP))
    isolated = server.run(LOADS)
    before = files_in(folder)
    for _ in range(3):
        run = server.run(LOADS | IN_PROCESS)
        assert (run.report, run.loads, run.flags) == (isolated.report, isolated.loads, 0), run.text
        assert files_in(folder) == before
    assert server.engines() == engines


NAMES = [ord(name) - ord("a") for name in ("b", "c", "d", "heap"[0], "sub"[0], "x")]


def test_folders_are_listed_in_order_of_names(start: Started) -> None:
    server = with_files(start("list_folder"))
    isolated, in_process = server.run(LOADS), server.run(LOADS | IN_PROCESS)
    assert (relative(isolated), relative(in_process)) == (NAMES, NAMES)
    assert in_process.report == isolated.report
    assert server.engines() == (1, 1, 0, {})


@pytest.mark.parametrize(
    ("access", "names", "engines"),
    [
        ("scan_folder", NAMES[-2::-1], (1, 1, 0, {})),
        ("glob_folder", NAMES[:-1], (1, 1, 0, {})),
    ],
)
def test_whole_folders_are_looked_through_in_order_of_names(
    start: Started, access: str, names: list[int], engines: tuple[int, int, int, dict[str, int]]
) -> None:
    server = with_files(start(access))
    isolated, in_process = server.run(LOADS), server.run(LOADS | IN_PROCESS)
    assert (relative(isolated), relative(in_process)) == (names, names)
    assert in_process.report == isolated.report == server.run(0).report
    assert server.engines() == engines


def test_a_walk_shows_a_copy_by_the_names_of_the_image(start: Started) -> None:
    """In the order that the copy has, which was made in order of names."""
    server = with_files(start("walk_folder"))
    isolated, in_process = server.run(LOADS), server.run(LOADS | IN_PROCESS)
    assert sorted(relative(isolated)) == sorted(NAMES)
    assert (in_process.report, in_process.loads) == (isolated.report, isolated.loads)
    assert server.engines() == (0, 0, 1, {"changes files": 1})


def test_a_walk_that_cannot_be_followed_says_nothing_of_the_target(start: Started) -> None:
    server = with_files(start("walk_by_fts"))
    assert [server.run(flags).outcome for flags in (0, LOADS, LOADS | IN_PROCESS)] == [BROKEN] * 3


def test_a_listing_that_is_rewound_shows_what_changed(start: Started) -> None:
    server = with_files(start("list_after_change"))
    seen = relative(server.run(LOADS))
    assert seen == [*NAMES, 25, ord("n") - ord("a")]


@pytest.fixture
def later(runner: Path, adapter: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch) -> Server:
    """One run is over, in which all was well; from now on each stores without a hook."""
    monkeypatch.setenv("FL_ACCESS", "store_made_later")
    server = Server(runner, adapter(True), folder, *GEOMETRY)
    server.create(bytes(HEAP_BYTES))
    assert run_seeded(server, IN_PROCESS, 1).outcome == DONE
    server.write(0, b"\1")
    return server


def test_a_late_store_without_a_hook_ends_the_server(later: Server) -> None:
    """Nobody knows what the runs before saw."""
    compared = next(run for run in range(1, 100_000) if is_compared(1, run))
    outcomes = [run_seeded(later, IN_PROCESS, 1).outcome for _ in range(compared)]
    assert outcomes == [DONE] * (compared - 1) + [BROKEN]
    code, errors = later.close()
    assert code == 3
    assert "the target stores to PM where no hook sees it; the image can no longer be used" in errors


def test_the_last_store_without_a_hook_is_found_when_the_image_goes(later: Server) -> None:
    assert run_seeded(later, IN_PROCESS, 1).outcome == DONE
    later.send(Command(FL.COMMAND_ENGINES))
    code, errors = later.close()
    assert code == FL.EXIT_DISTRUST
    assert "in-process runs saw another image" in errors


def test_file_changes_between_runs_reach_the_worker(start: Started) -> None:
    server = start("load8")
    assert server.run(LOADS | IN_PROCESS).flags == 0
    server.create(b"x" * 4096, "other", file=9)
    server.watch((0, 512, 1), (9, 0, 1))
    for _ in range(2):
        assert server.run(LOADS | IN_PROCESS).units() == [512]
    assert server.engines()[0] == 3


def test_a_run_is_compared_when_that_is_asked_for(start: Started) -> None:
    """It says the same, and one that differs is told."""
    for asked, compared in ((0, 1), (COMPARED, 2)):
        server = start("load8")
        for more in (0, asked):
            run = server.run(LOADS | IN_PROCESS | more)
            assert (run.flags, run.units()) == (0, [512])
        assert server.engines()[:2] == (2, compared), "the first one always"
    leaving = start("leave_library")
    assert [leaving.run(LOADS | IN_PROCESS | COMPARED).flags for _ in range(2)] == [0, DIFFERS]


def test_a_difference_between_the_engines_is_told(start: Started) -> None:
    """A state that no reset reaches: the library's own, which a comparison finds."""
    server = start("leave_library")
    seed = 1
    compared = next(run for run in range(1, 100_000) if is_compared(seed, run))
    runs = [run_seeded(server, LOADS | IN_PROCESS, seed) for _ in range(compared + 1)]
    assert [run.flags for run in runs] == [0] * compared + [DIFFERS]
    place = "heap at 0x[0-9a-f]{4}"
    told = f"the in-process and the isolated run of one image load other units: after 0 loads {place}, and {place}"
    assert re.fullmatch(told, runs[-1].text), runs[-1].text
