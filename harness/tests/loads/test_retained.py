# SPDX-License-Identifier: Apache-2.0
"""The runner's conservative mark decides what the heap report says: what it looks at is listed like the target's loads."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.base.config import find_allocator
from faultline.pipeline.build import build_adapter, build_runner
from loads.server import GUARDED, LOADS, Run, Server

GEOMETRY = ["--heap-bytes", "65536", "--limit-bytes", "524288", "--slots", "4", "--address-hint", "0x200000000000"]
GEOMETRY += ["--slot-layout", "graph"]
OBJECT_BYTES = 4000
"""Of slot 0's object: nobody else has heap blocks of this size."""


@pytest.fixture(scope="module")
def runner(root: Path) -> Path:
    return build_runner(root, Cache(root / ".faultline")).path


@pytest.fixture(scope="module")
def makalu(root: Path) -> Path:
    allocator = find_allocator(root, "makalu")
    return build_adapter(root, Cache(root / ".faultline"), allocator, None, "clwb", is_hooked=True).path


def runs(runner: Path, makalu: Path, folder: Path, tmp_path: Path, end: str) -> tuple[int, list[Run]]:
    """First unit of the object's content, and a recorded and a guarded run that watch it."""
    text = f"workload 1\nslots 4 graph\ncase\nallocate 0 {OBJECT_BYTES}\nallocate 1 100\n{end}\n"
    workload = tmp_path / "mine.workload"
    workload.write_text(text)
    arguments = ["--adapter", str(makalu), "--workload", str(workload), "--folder", str(folder), "--session", "0"]
    subprocess.run([str(runner), "workload", *arguments, *GEOMETRY], check=True)
    content = (folder / "case-0/region").read_bytes()
    shutil.rmtree(folder / "case-0")
    first = next(at for at in range(0, len(content), 16) if content[at + 6 : at + 8] == b"\xed\xf1") // 8
    server = Server(runner, makalu, folder, *GEOMETRY)
    server.create(content, "region")
    server.watch((0, first, OBJECT_BYTES // 8))
    both = [server.run(LOADS), server.run(GUARDED)]
    assert server.close() == (0, "")
    return first, both


def test_what_the_mark_looks_at_is_listed(runner: Path, makalu: Path, folder: Path, tmp_path: Path) -> None:
    first, both = runs(runner, makalu, folder, tmp_path, "drop 1")
    for run in both:
        assert (run.flags, run.unseen, run.units()) == (0, 0, list(range(first, first + OBJECT_BYTES // 8)))
    assert both[0].report == both[1].report


def test_without_left_over_heap_blocks_nothing_is_looked_at(
    runner: Path, makalu: Path, folder: Path, tmp_path: Path
) -> None:
    _, both = runs(runner, makalu, folder, tmp_path, "free 1")
    assert [(run.flags, run.unseen, run.units()) for run in both] == [(0, 0, [])] * 2
