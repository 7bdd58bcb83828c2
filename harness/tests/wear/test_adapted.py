# SPDX-License-Identifier: Apache-2.0
"""Wear of an allocator that has no driver: through its adapter, with any workload of one thread."""

from __future__ import annotations

import json
from pathlib import Path

import numpy
import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.cache import Cache
from faultline.base.project import Project
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from faultline.wear import counting
from faultline.wear.figures import REASONS, Counts, HotLine, WriteSite, counts_of_all
from foreign.cases import Case
from foreign.foreign_project import project_of_case

CACHE = counting.CacheModel(1 << 20, 16)
SMALL = ("-w", "churn", "--ops", "60")


def session(lines: list[tuple[str, int, int, int]], hottest: list[HotLine], flushes: int) -> Counts:
    """lines: file, number, stores, write-backs."""
    files = list(dict.fromkeys(line[0] for line in lines))
    kinds = [("number", "<u8"), ("stores", "<u8"), ("write_backs", "<u8"), ("file", "<u4"), ("reserved", "<u4")]
    rows = [(number, stores, backs, files.index(file) + 1, 0) for file, number, stores, backs in lines]
    reasons = dict.fromkeys(REASONS, flushes)
    return Counts(
        64, 1 << 20, 16, numpy.array(rows, numpy.dtype(kinds)), files, hottest, 10, flushes, 1, reasons, False
    )


def test_what_processes_write_to_one_line_of_one_file_is_added_up() -> None:
    first = [HotLine("heap+0x40", 3, 1, [WriteSite("f (a.c:1)", 3)])]
    second = [HotLine("heap+0x40", 5, 2, [WriteSite("g (a.c:2)", 4), WriteSite("f (a.c:1)", 1)])]
    both = counts_of_all(
        [
            session([("heap", 1, 3, 1), ("log", 0, 7, 7)], first, 2),
            session([("log", 0, 1, 0), ("other", 1, 9, 9), ("heap", 1, 5, 2)], second, 3),
        ]
    )
    found = {
        (both.files[row["file"] - 1], int(row["number"])): (int(row["stores"]), int(row["write_backs"]))
        for row in both.lines
    }
    assert found == {("heap", 1): (8, 3), ("log", 0): (8, 7), ("other", 1): (9, 9)}
    assert (both.flushes, both.fences, both.executed, both.write_back_reasons["flushed"]) == (5, 2, 20, 5)
    (hottest,) = both.hottest
    assert (hottest.stores, hottest.sites) == (8, [WriteSite("f (a.c:1)", 4), WriteSite("g (a.c:2)", 4)])


def workload(folder: Path, operations: str) -> str:
    path = folder / "w.workload"
    path.write_text(f"workload 1\nslots 4\ncase\n{operations}")
    return str(path)


def test_an_allocator_of_somebody_else_is_counted_over_its_processes(root: Path, tmp_path: Path) -> None:
    place = project_of_case(Case("ways", "BETWEEN=nothing", "counted"), root, tmp_path)
    workshop = Workshop(place, Cache(root / ".faultline"), Engine(None), None)
    (subject,) = counting.find_subjects(Project(place), ["ways"])

    def counted(operations: str) -> counting.CountedRun:
        found = counting.find_workload(workshop, [subject], workload(tmp_path, operations), 1, 1)
        return counting.count(workshop, subject, found, 64, CACHE)

    once = counted("allocate 0 100\nreallocate 0 200\nallocate 1 99999999\n")
    assert (once.said.allocations, once.said.frees, once.said.failed, once.said.object_bytes) == (2, 1, 1, 300)
    twice = counted("allocate 0 100\nreallocate 0 200\nallocate 1 99999999\nreopen\nallocate 2 64\nfree 0\n")
    assert (twice.said.allocations, twice.said.frees, twice.said.failed, twice.said.object_bytes) == (3, 2, 1, 364)
    assert twice.counts.lines["stores"].sum() > once.counts.lines["stores"].sum()
    assert {name.rpartition("/")[2] for name in twice.counts.files} == {
        name.rpartition("/")[2] for name in once.counts.files
    }
    assert sum(twice.counts.write_back_reasons.values()) == twice.counts.lines["write_backs"].sum()


@pytest.mark.slow
def test_one_that_has_a_driver_runs_through_its_adapter_when_asked(faultline: Faultline, tmp_path: Path) -> None:
    limits = tmp_path / "limits.json"
    arguments = ("nvm_malloc", *SMALL, "--through-adapter", "--json")
    ended = faultline("wear", *arguments, "--protect", limits, "--update")
    assert ended.returncode == 0, ended.stderr
    said = json.loads(ended.stdout)
    assert said["setting"]["adapter_heaps"] == {"nvm_malloc": 524288}
    driven = faultline("wear", "nvm_malloc", *SMALL, "--json")
    operations = ("allocations", "frees", "failed", "object_bytes")
    (mine,), (other,) = said["allocators"], json.loads(driven.stdout)["allocators"]
    assert [mine[name] for name in operations] == [other[name] for name in operations]
    assert_one_clear_line(
        faultline("wear", "nvm_malloc", *SMALL, "--protect", limits),
        2,
        "through its adapter",
        "here by allocators/bench",
    )
    larger = faultline("wear", *arguments, "--heap-bytes", "1048576", "--protect", limits)
    assert_one_clear_line(larger, 2, "with a heap of 524288 bytes, here through its adapter with a heap of 1048576")


@pytest.mark.slow
@pytest.mark.parametrize("workload", ["smoke", "reopen", "sizes"])
def test_workloads_of_run_are_counted(faultline: Faultline, workload: str) -> None:
    ended = faultline("wear", "nvm_malloc", "--through-adapter", "-w", workload, "--ops", "20")
    assert ended.returncode == 0, ended.stderr
    assert "nvm_malloc: through its adapter" in ended.stdout
