# SPDX-License-Identifier: Apache-2.0
"""The hooks of real allocators on crash images of a campaign: against the Valgrind tool, which sees every load of a binary; against
images that agree in nothing but what is listed; and guarded."""

from __future__ import annotations

import random
import struct
from collections import Counter
from collections.abc import Iterable, Iterator
from pathlib import Path

import pytest

from faultline.build import build_adapter, build_runner, build_tracer
from faultline.cache import Cache, project_root
from faultline.config import allocator_names, find_allocator
from loads.crash_images import Image, campaign_images
from loads.server import CONTENTS, FIRST, FULL, GUARDED, LOADS, RUN, TARGET, UNIT_BYTES, Run, Server

pytestmark = pytest.mark.slow

IMAGES = 120
FULL_RUNS = 12
GUARDED_RUNS = 12
CAMPAIGN = ("-w", "churn", "--ops", "60", "--strategy", "sample", "--samples", "1", "--time", "10")
LIMIT_MS = "600000"
EVERY_ACCESS = LOADS | 4
IS_LOAD = 1
REPEATED = 0x8000
"""Of a load's length: one step of a repeated string instruction (pintools/valgrind/fl_loads.c)."""
CONTENTS_SECTION = 6


class Target:
    """An allocator with hooks, and images of it."""

    def __init__(self, root: Path, scripts: Path, name: str, folder: Path) -> None:
        self.name = name
        cache = Cache(root / ".faultline")
        allocator = find_allocator(root, name)
        self.runner = build_runner(root, cache).path
        self.adapter = build_adapter(root, cache, allocator, None, "clwb", is_hooked=True).path
        images, self.options = campaign_images(scripts, self.runner, folder, name, *CAMPAIGN)
        images = [image for image in images if image.contents]
        self.images = images[:: max(1, len(images) // IMAGES)][:IMAGES]
        assert len(self.images) >= 100


@pytest.fixture(scope="module", params=allocator_names(project_root()))
def target(
    root: Path, scripts: Path, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Target:
    return Target(root, scripts, request.param, tmp_path_factory.mktemp("commands"))


@pytest.fixture
def server(target: Target, tmp_path: Path) -> Iterator[Server]:
    server = Server(target.runner, target.adapter, tmp_path, *target.options)
    yield server
    assert server.close() == (0, "")


def watch_all(server: Server, image: Image) -> None:
    server.watch(*((file, 0, len(content) // UNIT_BYTES) for file, content in image.contents.items()))


def units(offset: int, size: int) -> range:
    return range(offset // UNIT_BYTES, (offset + size - 1) // UNIT_BYTES + 1)


# ---- against the Valgrind tool -------------------------------------------------------------------------------------------


def announced(server: Server) -> Counter[int]:
    """How often the hooks announced a load of each unit. Each allocator here has one file."""
    server.send(RUN, offset=EVERY_ACCESS, size=FIRST)
    server.answer()
    answer = server.answer()
    _, flags, count, *_ = struct.unpack_from("<4I", answer)
    assert flags == 0
    entries = struct.iter_unpack("<BBHIQ", answer[32 : 32 + 16 * count])
    return Counter(unit for kind, _, size, _, offset in entries if kind == IS_LOAD for unit in units(offset, size))


def made(loads: Iterable[tuple[int, int]]) -> Counter[int]:
    """How often each unit was loaded, by offset and length of the loads. The steps of a repeated instruction are one load."""
    counts: Counter[int] = Counter()
    ranges: list[list[int]] = []
    is_open = False
    for offset, size in loads:
        if is_open and size & REPEATED and offset == ranges[-1][1]:
            ranges[-1][1] += size & ~REPEATED
        else:
            ranges.append([offset, offset + (size & ~REPEATED)])
        is_open = bool(size & REPEATED)
    for start, end in ranges:
        counts.update(units(start, end - start))
    return counts


def test_the_hooks_announce_the_loads_that_valgrind_sees(
    root: Path,
    target: Target,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> None:
    """By unit, as often as the unit is loaded: compilers narrow a load to the bytes they need, and copy in pieces."""
    if target.name == "pallocator":
        reason = "two units (160, 288) are loaded once more than announced: not understood; guarded runs find nothing"
        request.applymarker(pytest.mark.xfail(strict=True, reason=reason))
    monkeypatch.setenv("VALGRIND_LIB", str(build_tracer(root, Cache(root / ".faultline")).path))
    heaps, loads = tmp_path / "heaps", tmp_path / "loads"
    heaps.mkdir()
    valgrind = ["setarch", "-R", "valgrind", "-q", "--tool=faultline", "--trace=/dev/null", f"--pm-folder={heaps}"]
    limits = ("--wall-limit-ms", LIMIT_MS, "--cpu-limit-ms", LIMIT_MS)
    server = Server(
        target.runner, target.adapter, heaps, *target.options, *limits, wrapper=[*valgrind, f"--loads={loads}"]
    )
    by_hooks, before = [], Image()
    for image in target.images:
        image.follow(server, before)
        watch_all(server, image)
        by_hooks.append(announced(server))
        before = image
    assert server.close() == (0, "")
    by_process: dict[int, list[tuple[int, int]]] = {}
    for process, _, size, offset in struct.iter_unpack("<IHHQ", loads.read_bytes()):
        by_process.setdefault(process, []).append((offset, size))
    by_valgrind = [made(by_process.get((1 << 8) + number, [])) for number in range(1, len(by_hooks) + 1)]
    for seen, known in zip(by_hooks, by_valgrind, strict=True):
        assert (seen - known, known - seen) == (Counter(), Counter())
    assert sum(counts.total() for counts in by_hooks) > 100 * IMAGES


# ---- what is guaranteed --------------------------------------------------------------------------------------------------


def scrambled(image: Image, run: Run, kinds: tuple[int, ...], seed: int) -> Image:
    """Random bytes in all units but those that are listed as one of the kinds."""
    twin, draw = image.copy(), random.Random(seed)
    kept = {(load.file, load.unit) for load in run.loads if load.kind in kinds}
    for file, content in twin.contents.items():
        for unit in range(len(content) // UNIT_BYTES):
            if (file, unit) not in kept:
                content[unit * UNIT_BYTES : (unit + 1) * UNIT_BYTES] = draw.randbytes(UNIT_BYTES)
    return twin


def without_contents(report: bytes) -> bytes:
    """Without payload and count of FL_SECTION_CONTENTS, and without the sum of bytes."""
    kept, at = report[:8] + report[12:32], 32
    while at < len(report):
        kind, life, status, _, size, value = struct.unpack_from("<HHIIIQ", report, at)
        end = at + 24 + (size + 7) // 8 * 8
        kept += struct.pack("<HHIQ", kind, life, status, value) if kind == CONTENTS_SECTION else report[at:end]
        at = end
    return kept


def test_nothing_but_what_is_listed_matters(target: Target, server: Server) -> None:
    before, opened = Image(), 0
    for number, image in enumerate(target.images):
        probe = FULL if number % (IMAGES // FULL_RUNS) == 0 else FIRST
        image.follow(server, before)
        watch_all(server, image)
        run = server.run(LOADS, probe)
        assert run.flags == 0, run.text
        twin = scrambled(image, run, (TARGET, CONTENTS), number)
        twin.follow(server, image)
        again = server.run(LOADS, probe)
        assert (again.report, again.loads) == (run.report, run.loads)
        other = scrambled(image, run, (TARGET,), number)
        other.follow(server, twin)
        again = server.run(LOADS, probe)
        opened += run.status_of_open == 0
        assert without_contents(again.report) == without_contents(run.report)
        assert again.units(TARGET) == run.units(TARGET)
        before = other
    assert opened > IMAGES // 10


# ---- guarded -------------------------------------------------------------------------------------------------------------


def test_no_access_goes_past_the_hooks(target: Target, server: Server) -> None:
    before, seen = Image(), 0
    for number, image in enumerate(target.images[:: IMAGES // GUARDED_RUNS]):
        image.follow(server, before)
        watch_all(server, image)
        probe = FULL if number % 4 == 0 else FIRST
        recorded, guarded = server.run(LOADS, probe), server.run(GUARDED, probe)
        assert (guarded.flags, guarded.text, guarded.unseen) == (0, "", 0)
        seen += guarded.seen
        assert (guarded.report, guarded.loads) == (recorded.report, recorded.loads)
        before = image
    assert seen > 100 * GUARDED_RUNS
