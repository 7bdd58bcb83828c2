# SPDX-License-Identifier: Apache-2.0
"""Threads and slot layouts from workload to verdict, on the small allocator of the runner's tests: it locks everything, so that
whatever is found is the tester's fault."""

from __future__ import annotations

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from samples import SOURCE_FOLDERS

ALLOCATOR = """
name = "tester"
summary = "the runner's test allocator"
language = "c11"

[build]
sources = ["source.c"]
adapter = ["adapter.c"]

[heap]
heap_bytes = 262144
limit_bytes = 262144
address_hint = "0x200000000000"
alignment = 64
smallest_bytes = 64
boundary_sizes = [64, 2048]

[contract]
publish = "atomic"
fill = "before"
leaks = "none"
durable = "on-return"
accounting = "full"
threads = 2

[[mutant]]
id = "KEEPS_RESERVATION"
summary = "recovery does not give back a place that was reserved for an object"
rule = "FL012"
killed_by = []
"""

WORKLOAD = """workload 1
slots 6
case
thread 1 allocate 0 64
thread 2 allocate 1 64
thread 1 allocate 2 128
thread 2 allocate 3 24
join
thread 1 free 1
thread 2 free 2
thread 1 allocate 4 64
thread 2 reallocate 3 64
reopen
thread 2 free 0
"""

Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture(scope="module")
def tester(faultline: Faultline, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """faultline in a clone of the sources that has this allocator too."""
    clone = tmp_path_factory.mktemp("clone")
    for part in (*SOURCE_FOLDERS, "harness"):
        shutil.copytree(root / part, clone / part, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    folder = clone / "allocators" / "tester"
    folder.mkdir()
    (folder / "allocator.toml").write_text(ALLOCATOR)
    (folder / "source.c").write_text("int tester_has_no_sources_of_its_own;\n")
    shutil.copyfile(root / "runner" / "tests" / "test_adapter.c", folder / "adapter.c")
    plain = clone / "allocators" / "plain"
    shutil.copytree(folder, plain)
    flags = 'adapter = ["adapter.c"]\nflags = ["-DCAPABILITIES=FL_CAN_WALK|FL_CAN_CHECK", "-DNO_THREADS"]'
    text = ALLOCATOR.replace('"tester"', '"plain"').replace('adapter = ["adapter.c"]', flags)
    (plain / "allocator.toml").write_text(text)
    (clone / "mine.workload").write_text(WORKLOAD)

    cache_that_shares_builds(root, clone / "cache")

    def run(command: str, *arguments: str, allocator: str = "tester") -> subprocess.CompletedProcess[str]:
        words = [str(clone / word) if word == "mine.workload" else word for word in arguments]
        options = ("--cache", clone / "cache")
        return faultline(command, allocator, *words, *options, env={"PYTHONPATH": str(clone / "harness")})

    return run


def cell(run: subprocess.CompletedProcess[str]) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run.stdout)["cells"][0]
    return found


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["mine.workload", "threads", "chain", "names"])
def test_a_sound_allocator_passes_and_its_capacity_is_judged(tester: Run, workload: str) -> None:
    run = tester("run", "-w", workload, "--ops", "12", "--samples", "1", "--json")
    assert run.returncode == 0, run.stdout + run.stderr
    certificate = cell(run)["certificate"]
    assert {"FL004", "FL006", "FL010", "FL012"} <= set(certificate["rules_judged"])
    assert certificate["unknowns"] == 0


def test_several_operations_are_pending_at_once(tester: Run) -> None:
    """Else the test above shows little."""
    pending: set[str] = set()
    most = 0
    for line in tester("trace", "-w", "mine.workload", "--dump").stdout.splitlines():
        words = line.split()
        if "operation begin" in line:
            pending.add(words[2])
        elif "operation return" in line:
            pending.remove(words[2])
        most = max(most, len(pending))
    assert most == 2


@pytest.mark.slow
def test_a_seed_is_an_interleaving(tester: Run) -> None:
    def trace_hash(seed: int) -> str:
        run = tester("trace", "-w", "mine.workload", "--seed", str(seed), "--fresh", "--json")
        return str(json.loads(run.stdout)["hash"])

    first = [trace_hash(seed) for seed in range(1, 5)]
    assert first == [trace_hash(seed) for seed in range(1, 5)]
    assert len(set(first)) > 1


@pytest.mark.slow
def test_capacity_lost_under_threads_is_found_and_replays(tester: Run) -> None:
    mutant = ("--mutant", "KEEPS_RESERVATION", "--samples", "1", "--stop-at-rule", "FL012", "--seed", "2", "--json")
    run = tester("run", "-w", "mine.workload", *mutant)
    assert run.returncode == 1, run.stdout + run.stderr
    assert "FL012" in {finding["rule"] for finding in cell(run)["findings"]}


def test_more_threads_than_the_contract_promises_are_bad_input(tester: Run, tmp_path: Path) -> None:
    path = tmp_path / "three.workload"
    path.write_text("workload 1\nslots 3\ncase\n" + "".join(f"thread {n} allocate {n - 1} 64\n" for n in (1, 2, 3)))
    run = tester("trace", "-w", str(path))
    assert_one_clear_line(run, 2, "has 3 threads, tester supports 2", "threads = N")


@pytest.mark.parametrize(
    ("workload", "words"),
    [
        ("chain", "needs `slots COUNT chain`, which test does not have"),
        ("names", "needs `slots COUNT names`, which test does not have"),
        ("graph", "needs `slots COUNT graph`, which test does not have"),
        ("resur", "needs `slots COUNT graph`, which test does not have"),
        ("threads", "has threads, which test does not support"),
    ],
)
def test_what_an_adapter_cannot_do_is_bad_input(tester: Run, workload: str, words: str) -> None:
    assert_one_clear_line(tester("trace", "-w", workload, allocator="plain"), 2, words)
