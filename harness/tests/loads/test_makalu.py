# SPDX-License-Identifier: Apache-2.0
"""Makalu's auxiliary metadata is stored and not flushed for as long as the region is in use (§8.1), and recovery rebuilds it from
the core: it must not even look at what is there, or each of these words would be a branch of its own in `complete`."""

from __future__ import annotations

import struct
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.base.config import Allocator, find_allocator
from faultline.pipeline.build import build_adapter, build_runner
from faultline.workload import catalogue
from loads.server import FULL, LOADS, UNIT_BYTES, Server

OPERATIONS = 60
HEADER_BYTES, LINE_BYTES, BLOCK_BYTES, WORD_BYTES = 128, 64, 4096, 8
MAP_BOTTOM = 16
"""As allocator.toml has it built."""
STATE, HFL_FIRST, MAP = 192, 256, 3 * BLOCK_BYTES
IN_USE = 0x455355


@pytest.fixture(scope="module")
def makalu(root: Path) -> Allocator:
    return find_allocator(root, "makalu")


def auxiliary(region: bytearray) -> Iterator[tuple[int, int]]:
    """(offset, bytes) of what may have been stored to (allocators/makalu/src/layout.h)."""
    base, limit_bytes, space_bytes, end = (struct.unpack_from("<Q", region, at)[0] for at in (16, 24, 56, 128))
    tops = -((base - end) // BLOCK_BYTES // MAP_BOTTOM)
    yield HFL_FIRST, LINE_BYTES
    yield MAP, tops * WORD_BYTES
    top_bytes = -(-limit_bytes // BLOCK_BYTES // MAP_BOTTOM) * WORD_BYTES
    yield MAP + -(-top_bytes // LINE_BYTES) * LINE_BYTES, tops * MAP_BOTTOM * WORD_BYTES
    for space in struct.unpack_from(f"<{region[136]}Q", region, 320):
        for header in range(space - base, space - base + space_bytes, HEADER_BYTES):
            yield header + LINE_BYTES, LINE_BYTES


@pytest.mark.parametrize(("workload", "seed"), [("churn", 1), ("churn", 2), ("graph", 1), ("graph", 2)])
def test_recovery_does_not_look_at_auxiliary_metadata(
    root: Path, makalu: Allocator, folder: Path, tmp_path: Path, workload: str, seed: int
) -> None:
    cache = Cache(root / ".faultline")
    runner = build_runner(root, cache).path
    adapter = build_adapter(root, cache, makalu, None, "clwb", is_hooked=True).path
    found = catalogue.find(workload, OPERATIONS, seed, makalu.heap, cache)
    heap = makalu.heap
    geometry = [
        "--heap-bytes",
        str(heap.heap_bytes),
        "--limit-bytes",
        str(heap.limit_bytes),
        "--slots",
        str(found.slots),
    ]
    geometry += ["--address-hint", heap.address_hint, "--slot-layout", found.layout]
    file = tmp_path / "mine.workload"
    for count in range(2, OPERATIONS, 6):
        file.write_text(replace(found, operations=found.operations[:count]).text())
        place = folder / f"{count}"
        place.mkdir()
        options = ["--adapter", str(adapter), "--workload", str(file), "--folder", str(place), "--session", "0"]
        subprocess.run([str(runner), "workload", *options, *geometry], check=True)
        region = bytearray((place / "case-0/region").read_bytes())
        struct.pack_into("<Q", region, STATE, IN_USE)  # power failed in close, before it said so
        server = Server(runner, adapter, folder, *geometry)
        server.create(bytes(region), "region")
        server.watch(*((0, offset // UNIT_BYTES, size // UNIT_BYTES) for offset, size in auxiliary(region)))
        run = server.run(LOADS, FULL)
        assert (run.status_of_open, run.flags, run.units()) == (0, 0, [])
        assert server.close() == (0, "")
