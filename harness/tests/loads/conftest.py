# SPDX-License-Identifier: Apache-2.0
"""Targets of one access each (accesses.c), and servers of them."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.pipeline.build import HOOKS, assembled_by, assembler, build_runner, hooked_link
from loads.access_targets import GEOMETRY, HEAP_BYTES, UNITS, Started
from loads.server import Server

HERE = Path(__file__).resolve().parent


@pytest.fixture(scope="module")
def runner(root: Path) -> Path:
    if given := os.environ.get("FAULTLINE_TEST_RUNNER"):  # of planted/builds.py
        return Path(given)
    return build_runner(root, Cache(root / ".faultline")).path


@pytest.fixture(scope="module")
def adapter(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Path]:
    built = tmp_path_factory.mktemp("accesses")

    def build(is_hooked: bool = True) -> Path:
        path = built / f"accesses-{is_hooked}.so"
        if not path.exists():
            command = [
                "gcc",
                "-std=gnu11",
                "-O2",
                "-g",
                "-fno-optimize-sibling-calls",
                "-Wall",
                "-Wextra",
                "-Werror",
                "-fPIC",
                "-shared",
                "-D_GNU_SOURCE",
            ]
            command += [
                "-I",
                str(root / "include"),
                "-I",
                str(root / "runner"),
                *((*HOOKS, assembled_by(assembler()), "-DFL_HOOKED") if is_hooked else ()),
                str(HERE / "accesses.c"),
            ]
            link = hooked_link(has_cxx=False) if is_hooked else ()
            subprocess.run([*command, "-o", str(path), *link], check=True)
        return path

    return build


@pytest.fixture
def start(
    runner: Path, adapter: Callable[..., Path], folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Started]:
    servers: list[Server] = []

    def begin(access: str, *options: str, is_hooked: bool = True, heap: bytes | None = None) -> Server:
        monkeypatch.setenv("FL_ACCESS", access)
        server = Server(runner, adapter(is_hooked), folder, *GEOMETRY, *options)
        servers.append(server)
        server.create(heap or bytes(4096) + bytes((i + 1) & 0xFF for i in range(4096)) + bytes(HEAP_BYTES - 8192))
        server.watch((0, 0, UNITS))
        return server

    yield begin
    for server in servers:
        assert server.close() == (0, "")
