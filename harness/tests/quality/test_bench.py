# SPDX-License-Identifier: Apache-2.0
"""The benchmarks of `make bench` at their smallest: what they count and check, never how long they take."""

from __future__ import annotations

import json
import signal
import struct
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faultline.cache import Cache

HEAP_ADDRESS = 0x200000000000
"""BENCH_ADDRESS of allocators/bench/bench.h."""


@pytest.fixture(scope="module")
def figures(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    path = tmp_path_factory.mktemp("bench") / "out" / "figures.json"
    command = [sys.executable, "ci/bench.py", "--tiny", "--out", str(path), "allocators", "recovery"]
    run = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
    assert "x glibc" in run.stdout
    assert "T_REC" in run.stdout
    return json.loads(path.read_text())


@pytest.fixture(scope="module")
def driver(root: Path) -> Path:
    sys.path.insert(0, str(root / "ci"))
    import bench_allocators

    return bench_allocators.build_driver(root, Cache(root / ".faultline"), is_counting=False)


def rows(figures: Any, allocator: str) -> list[dict[str, Any]]:
    return [row for row in figures["allocators"] if row["allocator"] == allocator]


@pytest.mark.parametrize("allocator", ["glibc", "makalu", "nvm_malloc", "pallocator"])
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
        *((name, mib) for name in ("makalu", "nvm_malloc", "pallocator") for mib in (2, 4)),
    ]
    for row in figures["recovery"]["rows"]:
        assert row["longest"] * 512 >= row["objects"] > 0
        assert row["allocations"] > row["objects"]


def is_node(content: bytes, at: int) -> bool:
    """An object of resur's lists: next, check, bytes."""
    check, size = struct.unpack_from("<QQ", content, at + 8)
    return 24 <= size <= 512 and check == (HEAP_ADDRESS + at) * 31 % 2**64 ^ size


def test_an_object_that_changed_is_noticed(driver: Path, tmp_path: Path) -> None:
    run = subprocess.run([driver, "makalu", "resur", tmp_path, "1", "512", "1"], capture_output=True, check=False)
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
        (["makalu", "unheard", "HEAP", "1", "100", "1", "0"], 2, "expected ALLOCATOR"),
        (["nobody", "larson", "HEAP", "1", "100", "1", "0"], 1, "no such allocator"),
        (["makalu", "larson", "HEAP", "0", "100", "1", "0"], 2, "0: expected a number from 1"),
        (["makalu", "larson", "HEAP", "1", "1e3", "1", "0"], 2, "1e3: expected a number"),
        (["makalu", "prodcon", "HEAP", "1", "100", "1", "0"], 1, "must be even"),
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


def test_an_unknown_part_is_bad_input(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "ci/bench.py", "nothing"], cwd=root, capture_output=True, text=True, check=False
    )
    assert run.returncode == 2
    assert "unknown part 'nothing': the parts are" in run.stderr
