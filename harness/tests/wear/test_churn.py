# SPDX-License-Identifier: Apache-2.0
"""The fragmentation benchmark (allocators/bench/churn.c) on an allocator of known addresses; words of ci/paper_nvmalloc.py."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faultline.pipeline.build import flush_definition
from faultline.pipeline.environment import best_flush

BUMP = """
#include "bench.h"
#include "persist.h"
static unsigned char room[1 << 24] __attribute__((aligned(64)));
static uint64_t used;
static bool create(const char *folder, uint64_t limit) { return (void)folder, (void)limit, true; }
static bool close_heap(void) { return true; }
static const char *message(void) { return "no"; }
/* Each object has STEP bytes to itself and none is used again. */
static void *allocate(unsigned thread, size_t bytes) { return (void)thread, (void)bytes, room + STEP * used++; }
static void release(unsigned thread, void *object) { (void)thread, (void)object; }
const struct bench_allocator bench_bump = {
    .name = "bump", .create = create, .close = close_heap, .message = message, .allocate = allocate, .free = release};
"""


@pytest.fixture(scope="module")
def churn(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """Of an allocator that gives each object so many bytes."""
    folder = tmp_path_factory.mktemp("churn")
    (folder / "bump.c").write_text(BUMP)
    bench = root / "allocators" / "bench"

    def run(step: int, *arguments: int) -> Any:
        program = folder / f"bench-{step}"
        if not program.exists():
            flags = [
                "-std=gnu11",
                "-O1",
                "-D_GNU_SOURCE",
                flush_definition(best_flush()),
                "-DBENCH_ALLOCATORS=X(bump)",
                f"-DSTEP={step}",
            ]
            includes = ["-I", str(root / "include"), "-I", str(bench)]
            sources = [str(bench / f"{name}.c") for name in ("main", "workloads", "resur", "fragment", "churn", "wear")]
            line = ["gcc", *flags, *includes, "-o", str(program), *sources, str(folder / "bump.c"), "-pthread"]
            subprocess.run(line, check=True)
        line = [str(program), "bump", "churn", str(folder), *map(str, arguments)]
        return json.loads(subprocess.run(line, check=True, capture_output=True, text=True).stdout)

    return run


def test_without_frees_the_range_is_full_of_objects_and_small_gaps(churn: Any) -> None:
    """One operation in a million is a free: none of these 1000. Objects of 100 bytes, 128 apart: gaps of 28 are not external."""
    found = churn(128, 1000, 1_000_000, 100, 100, 1)
    assert (found["allocations"], found["frees"], found["live_objects"]) == (1000, 0, 1000)
    assert found["live_bytes"] == found["peak_bytes"] == 100_000
    assert found["extent_bytes"] == 999 * 128 + 100
    assert found["external_bytes"] == 0


def test_gaps_of_128_bytes_and_more_are_external(churn: Any) -> None:
    assert churn(228, 1000, 1_000_000, 100, 100, 1)["external_bytes"] == 999 * 128
    assert churn(227, 1000, 1_000_000, 100, 100, 1)["external_bytes"] == 0


@pytest.mark.parametrize("per_free", [1, 2, 3])
def test_a_free_comes_for_so_many_allocations(churn: Any, per_free: int) -> None:
    found = churn(128, 40_000, per_free, 10, 128, 3)
    assert found["allocations"] + found["frees"] == 40_000
    assert found["allocations"] - found["frees"] == found["live_objects"]
    assert found["allocations"] / found["frees"] == pytest.approx(per_free, rel=0.03)
    assert found["live_bytes"] <= found["peak_bytes"]
    freed = found["extent_bytes"] - found["live_objects"] * 128
    assert found["external_bytes"] >= 0.9 * freed, "what was freed lies in gaps of an object or more"


def test_the_table_of_the_paper_says_the_median_and_the_range(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(root / "ci"))
    import paper_nvmalloc

    def row(per_free: int, total: float) -> dict[str, Any]:
        answer = {"allocations": 600, "frees": 400, "total": total, "external": total / 2}
        return {
            "per_free": per_free,
            "seed": 1,
            "glibc": {**answer, "cpu_s": 1.0},
            "nvmalloc": {**answer, "cpu_s": 1.5},
        }

    rows = [row(per_free, total) for per_free in (1, 2, 3) for total in (1.0, 2.0, 9.0)]
    lines = paper_nvmalloc.fragmentation_table(rows)
    assert lines[2] == (
        "| 1/3 | 1,000 / 1,000,000 | 2.00 % (1.00 %) [1.0 to 9.0] | 1.63 % (0.32 %) "
        "| 2.00 % (1.00 %) [1.0 to 9.0] | 2.14 % (0.26 %) | 1.50 | 1.35 |"
    )
    assert len(lines) == 5
    sys.modules.pop("paper_nvmalloc")
