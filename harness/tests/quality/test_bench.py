# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of `make bench` at their smallest: what they count and check, never how long they take."""

from __future__ import annotations

import json
import os
import re
import signal
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from faultline.base.cache import Cache
from faultline.base.config import names_with_sources
from faultline.base.errors import InfrastructureError
from faultline.pipeline.engine import Engine

BYTES = ("64", "64", "0")
"""Smallest, largest, chance."""
HEAP_ADDRESS = 0x200000000000
"""BENCH_ADDRESS of allocators/bench/bench.h."""


@pytest.fixture(scope="module")
def figures(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("bench") / "out" / "figures.json"
    parts = [
        "allocators",
        "recovery",
        "sizes",
        "restart",
        "fragmentation",
        "explore",
        "long",
        "ace",
        "nested",
        "mutants",
        "behind",
        "places",
    ]
    command = [sys.executable, "ci/bench.py", "--tiny", "--out", str(path), *parts]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    for word in (
        "x glibc",
        "T_REC",
        "Figure 14",
        "growth: makalu as size^",
        "Table 2",
        "fails at",
        "two workers",
        "run --mutant M, mutants: 1, median",
        "1 have findings",
    ):
        assert word in run.stdout, word
    return json.loads(path.read_text())


@pytest.fixture(scope="module", autouse=True)
def _bench_modules(root: Path) -> None:
    sys.path.insert(0, str(root / "ci"))


@pytest.fixture(scope="module")
def driver(root: Path) -> Path:
    from faultline.pipeline import environment
    from faultline.pipeline.driver import build_driver

    return build_driver(root, Cache(root / ".faultline"), environment.best_flush()).path


def rows(figures: Any, allocator: str) -> list[dict[str, Any]]:
    return [row for row in figures["allocators"] if row["allocator"] == allocator]


@pytest.mark.slow
@pytest.mark.parametrize("allocator", ["glibc", "makalu", "nvm_malloc", "nvmalloc", "pallocator"])
def test_every_allocator_runs_every_benchmark(figures: Any, allocator: str) -> None:
    assert [row["workload"] for row in rows(figures, allocator)] == ["threadtest", "larson", "prodcon"]
    counted = {"threadtest": 2 * 20 * 1000, "larson": 2 * 2 * 20 * 1000, "prodcon": 2 * 20 * 1000}
    for row in rows(figures, allocator):
        assert row["counted_operations"] == counted[row["workload"]]
        assert row["operations_per_s"] > 0


def test_flushes_are_counted(figures: Any) -> None:
    assert all(row["flushes_per_operation"] == 0 for row in rows(figures, "glibc"))
    assert all(row["flushes_per_operation"] < 0.1 for row in rows(figures, "makalu"))
    one_thread = rows(figures, "nvm_malloc")[0]
    assert one_thread["flushes_per_operation"] == 5  # ring entry, intent, link, header, ring entry
    assert one_thread["fences_per_operation"] == 5


def test_recovery_is_measured_for_every_allocator_and_size(figures: Any) -> None:
    found = [(row["allocator"], row["mib"]) for row in figures["recovery"]["rows"]]
    assert sorted(found) == [
        ("makalu", 1),
        *((name, mib) for name in PERSISTENT for mib in (2, 4)),
    ]
    for row in figures["recovery"]["rows"]:
        assert row["longest"] * 512 >= row["objects"] > 0
        assert row["allocations"] > row["objects"]


PERSISTENT = ("makalu", "nvm_malloc", "nvmalloc", "pallocator")


def test_explorations_are_measured_to_their_end(root: Path, figures: Any) -> None:
    ace, nested = figures["ace"], figures["nested"]
    assert [row["allocator"] for row in ace] == [row["allocator"] for row in nested] == names_with_sources(root)
    assert all(row["complete"] and row["cpu_s"] > 0 for row in ace)
    for row in ace:
        in_recoveries, after_them = row["second_crash"]
        assert in_recoveries["complete"]
        assert after_them["complete"]
        assert after_them["recoveries"] > in_recoveries["recoveries"] > row["recoveries"]
    for row in nested:
        runs = row["runs"]
        assert all(run["complete"] for run in runs.values())
        assert runs["two crashes"]["recoveries"] > runs["one crash"]["recoveries"] > 0
        assert runs["two workers"]["recoveries"] == runs["two crashes"]["recoveries"]


@pytest.mark.nightly
def test_each_engine_is_measured_and_they_agree(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, "ci/bench.py", "--tiny", "--out", str(path), "engines"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    engines = json.loads(path.read_text())["engines"]
    assert [row["allocator"] for row in engines] == list(PERSISTENT)
    for row in engines:
        runs = row["runs"]
        seeing = ["in-process", "in-process, second crash", "traced", "traced, second crash"]
        assert list(runs) == [*seeing, "isolated"]
        assert all(runs[name]["complete"] and name.startswith(runs[name]["engine"]) for name in seeing)
        assert runs["in-process"]["recoveries"] == runs["traced"]["recoveries"]
        assert runs["isolated"]["recoveries"] <= runs["traced"]["recoveries"]


def test_every_size_is_measured_at_one_and_two_threads(figures: Any) -> None:
    experiments = ("standalone 128 B", "random, binomial small", "larson, 1-4 KB")
    found = [(row["experiment"], row["threads"], row["allocator"]) for row in figures["sizes"]]
    assert found == [
        (experiment, threads, name)
        for experiment in experiments
        for threads in (1, 2)
        for name in ("glibc", *PERSISTENT)
    ]
    for row in figures["sizes"]:
        assert row["times_glibc_cpu"] > 0
        has_phases = not row["experiment"].startswith("larson")
        assert ("allocate_times_glibc_cpu" in row, "free_times_glibc_cpu" in row) == (has_phases, has_phases)
        if row["allocator"] == "glibc":
            assert (row["times_glibc_cpu"], row["flushes_per_operation"]) == (1, 0)


def test_recovery_is_compared_at_equal_heaps(figures: Any) -> None:
    rows = {(row["allocator"], row["mib"]): row for row in figures["restart"]["rows"]}
    assert sorted(rows) == [(name, mib) for name in PERSISTENT for mib in (2, 4)]
    for (name, mib), row in rows.items():
        assert row["objects"] == row["allocations"] == rows["pallocator", mib]["objects"], "all are kept"
        assert row["whole_cpu_s"] >= row["recover_cpu_s"] > 0
        assert row["times_pallocator_cpu"] == 1 if name == "pallocator" else row["times_pallocator_cpu"] > 0
    assert sorted(figures["restart"]["growth"]) == list(PERSISTENT)


def test_only_what_defragments_survives_the_stress(figures: Any) -> None:
    rows = {row["allocator"]: row for row in figures["fragmentation"]}
    assert sorted(rows) == list(PERSISTENT)
    survivor = rows["pallocator"]
    assert (survivor["is_filled"], survivor["failed_bytes"], survivor["largest_bytes"]) == (True, 0, 8 << 20)
    assert (survivor["fill_allocations"], survivor["allocations"]) == (256, 64 + 32)
    assert survivor["defragmented_bytes"] > 0
    for name in ("makalu", "nvm_malloc"):
        assert rows[name]["failed_bytes"] in (2 << 20, 4 << 20), name
        assert rows[name]["defragmented_bytes"] == 0
        assert rows[name]["live_bytes"] < rows[name]["limit_bytes"] == (512 << 20) // 256 * 359


def test_the_page_shows_what_is_measured(figures: Any, root: Path) -> None:
    page = (root / "docs" / "notes" / "benchmarks.md").read_text()
    for part in ("allocators", "recovery", "sizes", "restart", "fragmentation"):
        assert re.search(rf"PARTS=\"[a-z ]*\b{part}\b", page), part
    import bench_pallocator

    for experiment in bench_pallocator.FULL.experiments:
        assert experiment.name in page, experiment.name


def is_node(content: bytes, at: int) -> bool:
    """An object of resur's lists: next, check, bytes."""
    check, size = struct.unpack_from("<QQ", content, at + 8)
    return 24 <= size <= 512 and check == (HEAP_ADDRESS + at) * 31 % 2**64 ^ size


def test_an_object_that_changed_is_noticed(driver: Path, tmp_path: Path) -> None:
    run = subprocess.run([driver, "makalu", "resur", tmp_path, "1", "512", "50", "1"], capture_output=True, check=False)
    assert run.returncode == -signal.SIGABRT
    content = bytearray((tmp_path / "region").read_bytes())
    content[next(at for at in range(0, len(content), 16) if is_node(content, at)) + 16] ^= 1
    (tmp_path / "region").write_bytes(content)
    run = subprocess.run([driver, "makalu", "recover", tmp_path, "1"], capture_output=True, text=True, check=False)
    assert run.returncode == 1
    assert run.stderr == "bench: error: an object of a list: its content changed\n"


@pytest.mark.parametrize(
    ("arguments", "code", "word"),
    [
        (["makalu"], 2, "expected ALLOCATOR"),
        (["makalu", "unheard", "HEAP", "1", *BYTES, "100", "1", "0"], 2, "expected ALLOCATOR"),
        (["nobody", "larson", "HEAP", "1", *BYTES, "100", "1", "0"], 1, "no such allocator"),
        (["makalu", "larson", "HEAP", "0", *BYTES, "100", "1", "0"], 2, "0: expected a number from 1"),
        (["makalu", "larson", "HEAP", "1", *BYTES, "1e3", "1", "0"], 2, "1e3: expected a number"),
        (["makalu", "larson", "HEAP", "1", "64", "8", "0", "100", "1", "0"], 1, "the largest object is smaller"),
        (["makalu", "prodcon", "HEAP", "1", *BYTES, "100", "1", "0"], 1, "must be even"),
        (["makalu", "fragment", "HEAP", "0", "64", "64"], 2, "0: expected a number from 1"),
        (["glibc", "fragment", "HEAP", "1", "64", "64"], 1, "nothing survives"),
        (["makalu", "recover", "HEAP", "1"], 1, "does not exist"),
        (["glibc", "recover", "HEAP", "1"], 1, "nothing survives"),
    ],
)
def test_the_driver_says_what_is_wrong(
    driver: Path, tmp_path: Path, arguments: list[str], code: int, word: str
) -> None:
    line = [str(tmp_path) if argument == "HEAP" else argument for argument in arguments]
    run = subprocess.run([driver, *line], capture_output=True, text=True, check=False)
    assert run.returncode == code, run.stderr
    assert word in run.stderr
    assert len(run.stderr.splitlines()) == 1


@pytest.mark.slow
def test_complete_exploration_is_measured_for_every_allocator(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "figures.json"
    command = [sys.executable, "ci/bench.py", "--tiny", "--out", str(path), "complete"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    rows = json.loads(path.read_text())["complete"]
    assert [(row["allocator"], row["operations"]) for row in rows] == [
        (name, ops) for name in names_with_sources(root) for ops in (4, 8)
    ]
    for row in rows:
        assert row["recoveries"] > row["operations"]
        assert row["peak_memory_bytes"] > 1 << 20
        assert row["complete"], row["why"]
    assert run.stdout.count("an operation, goal <=") == len(rows)
    assert "complete: nvm_malloc grows as operations^" in run.stdout


def test_a_mutant_ends_with_what_a_person_needs(figures: Any) -> None:
    [row] = figures["mutants"]
    assert (row["exit_code"], row["lacks"]) == (1, [])


def test_what_is_behind_a_finding_is_seen_to_the_end(figures: Any) -> None:
    [row] = figures["behind"]
    assert (row["exit_code"], row["ended"]) == (1, True)
    assert row["rules"]
    assert row["explained"]
    assert row["recoveries"] > 0


def test_each_flush_and_fence_is_taken_out_and_seen_to_the_end(figures: Any) -> None:
    [row] = figures["places"]
    assert row["ended"]
    assert row["recoveries"] > 0


def test_what_a_person_needs_is_missed() -> None:
    import bench_mutants

    found = {"findings": [{"id": "FL004-1", "rule": "FL004"}, {"id": "FL003-1", "rule": "FL003"}]}
    told = {"explanations": [{"finding": "FL004-1", "is_cut": False}], "shrunk": [{"finding": "FL004-1"}]}
    other = {"explanations": [{"finding": "FL003-1", "is_cut": False}], "shrunk": [{"finding": "FL003-1"}]}
    cut = {**told, "explanations": [{"finding": "FL004-1", "is_cut": True}]}
    for cell, lacking in [
        ({**found, **told}, []),
        ({**found, **cut}, ["a decided repair"]),
        ({**found, **other}, ["an explanation", "a shrunk witness"]),
        ({**told, "findings": found["findings"][1:]}, ["a finding of its rule"]),
    ]:
        assert bench_mutants.what_lacks(cell, "FL004") == lacking


@pytest.mark.nightly
def test_every_mutant_ends_with_what_a_person_needs(root: Path, tmp_path: Path) -> None:
    """How long each takes is measured and is no test; so is whether there is time for all repairs."""
    import bench_mutants

    path = tmp_path / "figures.json"
    run = subprocess.run([sys.executable, "ci/bench.py", "--out", str(path), "mutants"], cwd=root, check=False)
    assert run.returncode == 0
    rows = json.loads(path.read_text())["mutants"]
    lacking = {row["mutant"]: [what for what in row["lacks"] if what != bench_mutants.REPAIR] for row in rows}
    assert {mutant: what for mutant, what in lacking.items() if what} == {}


@pytest.mark.slow
def test_random_programs_find_a_mutant_and_the_table_says_which_they_did_not(root: Path, tmp_path: Path) -> None:
    import bench_programs
    from bench_parts import Bench

    found = bench_programs.hunt(
        Bench(root, Cache(root / ".faultline"), Engine(), tmp_path), "nvm_malloc", "MISSING_FLUSH_LINK", 60
    )
    assert found["found"] == "FL010"
    assert found["examples"] >= 1
    rows = [
        {"allocator": "nvm_malloc", "mutant": "", "rule": "", "found": "", "examples": 120, "wall_s": 60.0},
        {"allocator": "nvm_malloc", "mutant": "MISSING_FLUSH_LINK", "rule": "FL010", **found, "wall_s": 30.0},
        {"allocator": "nvm_malloc", "mutant": "ANOTHER", "rule": "FL004", "found": "", "examples": 80, "wall_s": 60.0},
    ]
    lines = bench_programs.in_words(rows, False)
    assert (
        lines[0]
        == "mutants found by random programs within 60 s each: 1 of 2 (goal 90%), 1 of them by their own rule first"
    )
    assert lines[1] == "allocators as they are with a finding: 0 of 1 (goal 0)"
    assert "  nvm_malloc: 2.00 examples a second (goal 3)" in lines
    assert "  nvm_malloc ANOTHER: not found, 80 examples, 60.0 s" in lines


def test_an_unknown_part_is_bad_input(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "ci/bench.py", "nothing"], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "unknown part 'nothing': the parts are" in run.stderr


# ---- limits and failures -------------------------------------------------------------------------------------------------


@pytest.fixture
def bench(root: Path, tmp_path: Path) -> Any:
    from bench_parts import Bench

    return Bench(root, Cache(tmp_path / "cache"), Engine(), tmp_path, is_tiny=True)


def measured(
    bench: Any, parts: list[Any], capsys: pytest.CaptureFixture[str], limit_s: float | None = None
) -> tuple[dict[str, Any], list[str]]:
    """Figures, also as the file has them, and lines on stdout but for that of the machine."""
    import bench as program

    out = bench.scratch / "out.json"
    figures = program.measure(parts, bench, limit_s, out, is_quiet=False)
    assert json.loads(out.read_text()) == figures
    return figures, capsys.readouterr().out.splitlines()[1:]


def counting(measure: Callable[[Any], Iterator[Any]], name: str = "first", limit_s: float = 60) -> Any:
    from bench_parts import Part

    return Part(name, limit_s, measure, lambda rows, _: [f"{name}: {row}" for row in rows])


def whole(_: Any) -> Iterator[list[int]]:
    yield [1]
    yield [1, 2]


def is_running(pid: int) -> bool:
    """A process that has ended stays visible until its parent has asked for its end."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "XZ"
    except FileNotFoundError:
        return False


def test_a_part_that_hits_its_limit_keeps_what_it_has_and_the_rest_goes_on(
    bench: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    """What it has started ends with it."""
    pid = bench.scratch / "pid"

    def endless(_: Any) -> Iterator[list[int]]:
        yield [7]
        subprocess.run(["sh", "-c", f"trap '' INT; echo $$ > {pid}; while :; do sleep 0.1; done"], check=True)

    figures, lines = measured(bench, [counting(endless, limit_s=2), counting(whole, "second")], capsys)
    assert (figures["first"], figures["second"]) == ([7], [1, 2])
    assert figures["stopped"] == {"first": "limit of 2 s"}
    assert lines == [
        "first: 7",
        "first: stopped: limit of 2 s; this is what it had measured",
        "second: 1",
        "second: 2",
    ]
    assert not is_running(int(pid.read_text()))


def test_a_part_is_printed_when_it_ends(bench: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    import bench as program

    said: list[list[str]] = []
    monkeypatch.setattr(program, "say", lambda lines, _: said.append(lines))
    program.measure([counting(whole), counting(lambda _: iter([[len(said)]]), "second")], bench, None, None, False)
    assert said[1:] == [["first: 1", "first: 2"], ["second: 2"]], "the second part began after the first was printed"


def test_a_measurement_that_fails_leaves_the_others(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def failing(here: Any) -> Iterator[list[int]]:
        rows = []
        for number in (1, 2, 3):
            row = here.attempt(f"number {number}", one, number)
            if row is not None:
                rows.append(row)
            yield rows

    def one(number: int) -> int:
        if number == 2:
            raise InfrastructureError("no memory")
        return number

    figures, lines = measured(bench, [counting(failing)], capsys)
    assert (figures["first"], figures["failures"]) == ([1, 3], {"first": ["number 2: no memory"]})
    assert lines[-1] == "first: failed: number 2: no memory"


def test_a_part_that_dies_is_said(bench: Any, capsys: pytest.CaptureFixture[str]) -> None:
    def dying(_: Any) -> Iterator[list[int]]:
        yield [4]
        os.kill(os.getpid(), signal.SIGKILL)

    figures, lines = measured(bench, [counting(dying), counting(whole, "second")], capsys)
    assert (figures["first"], figures["second"]) == ([4], [1, 2])
    assert lines[1] == "first: stopped: its process ended with -9; this is what it had measured"


def test_a_part_that_is_ended_before_it_has_begun_measures_nothing(
    bench: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though SIGINT is ignored, as by what a shell starts in the background."""
    import bench_parts

    begins = bench_parts._measure

    def begins_late(*arguments: Any) -> None:
        time.sleep(1)
        begins(*arguments)

    monkeypatch.setattr(bench_parts, "_measure", begins_late)
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        figures, lines = measured(bench, [counting(whole, limit_s=0)], capsys)
    finally:
        signal.signal(signal.SIGINT, before)
    assert (figures.get("first"), lines[-1]) == (None, "first: stopped: limit of 0 s; it had measured nothing")


def test_a_limit_that_is_hit_is_exit_code_3(root: Path) -> None:
    command = [sys.executable, "ci/bench.py", "--tiny", "--limit", "0", "fragmentation"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 3
    assert run.stdout.endswith("fragmentation: stopped: limit of 0 s; it had measured nothing\n")
