# SPDX-License-Identifier: Apache-2.0
"""The runner's conservative mark decides what the heap report says: what it looks at is listed like the target's loads."""

from __future__ import annotations

import os
import shutil
import subprocess
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from faultline.build import HOOKS, build_runner, hooked_link
from faultline.cache import Cache
from loads.server import GUARDED, LOADS, Run, Server

GEOMETRY = ["--heap-bytes", "65536", "--limit-bytes", "524288", "--slots", "4", "--address-hint", "0x200000000000"]
GEOMETRY += ["--slot-layout", "graph"]
OBJECT_BYTES = 4000
"""Of slot 0's object: nobody else has heap blocks of this size."""


@pytest.fixture(scope="module")
def runner(root: Path) -> Path:
    return build_runner(root, Cache(root / ".faultline")).path


@pytest.fixture(scope="module")
def makalu(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path, folder = tmp_path_factory.mktemp("makalu") / "makalu.so", root / "allocators/makalu"
    build = tomllib.loads((folder / "allocator.toml").read_text())["build"]
    sources = [str(source) for glob in build["sources"] + build["adapter"] for source in folder.glob(glob)]
    command = ["gcc", "-std=gnu11", "-O2", "-fPIC", "-shared", "-D_GNU_SOURCE", *build["flags"], *HOOKS]
    command += ["-I", str(root / "allocators/include"), "-I", str(folder / "src"), *sources, "-o", str(path)]
    subprocess.run([*command, *hooked_link("c11"), "-lpthread"], check=True)
    return path


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    shared = Path("/dev/shm")
    path = (shared if os.access(shared, os.W_OK) else tmp_path) / f"retained-test-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


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
