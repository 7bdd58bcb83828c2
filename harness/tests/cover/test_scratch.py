# SPDX-License-Identifier: Apache-2.0
"""Folders for heaps: memory-backed, so that what a killed process leaves must not stay."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from faultline.base import cache as caches
from faultline.base.cache import LEFT_AFTER_S, SCRATCH_FOLDER, SCRATCH_PREFIX, Cache, hint_of_room, scratch_folder
from faultline.base.errors import InfrastructureError
from faultline.pipeline.engine import LACKS_ROOM, engine_error

HOLDER = """
import sys
from pathlib import Path
from faultline.base.cache import Cache, scratch_folder
with scratch_folder(Cache(Path(sys.argv[1])), Path(sys.argv[2])) as folder:
    print(folder, flush=True)
    sys.stdin.read()
"""


def grow_old(folder: Path) -> None:
    now = folder.stat().st_mtime
    os.utime(folder, (now, now - LEFT_AFTER_S))


def test_what_a_killed_process_left_goes_with_the_next_one(tmp_path: Path) -> None:
    """What a process that lives still holds stays, and so does what is nobody's folder for heaps."""
    cache, heaps = Cache(tmp_path / "cache"), tmp_path / "heaps"
    heaps.mkdir()
    command = [sys.executable, "-c", HOLDER, str(cache.folder), str(heaps)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as holder:
        assert holder.stdout
        held = Path(holder.stdout.readline().strip())
        (held / "heap").write_text("a heap")
        others = [heaps / "faultline-other", heaps / f"{SCRATCH_PREFIX}file"]
        others[0].mkdir()
        others[1].touch()
        for folder in (held, *others):
            grow_old(folder)
        with scratch_folder(cache, heaps) as mine:
            grow_old(mine)
            with scratch_folder(cache, heaps):
                assert held.is_dir()
                assert mine.is_dir()
        assert not mine.exists()
        holder.kill()
    assert held.is_dir()
    with scratch_folder(cache, heaps):
        assert not held.exists()
    assert set(heaps.iterdir()) == set(others)


def test_a_young_folder_is_left_alone(tmp_path: Path) -> None:
    young = tmp_path / f"{SCRATCH_PREFIX}young"
    young.mkdir()
    with scratch_folder(Cache(tmp_path / "cache"), tmp_path):
        assert young.is_dir()


def test_where_room_is_lacking_in_a_container_the_container_is_given_more(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for sign, folder, is_of_container in (
        (tmp_path, SCRATCH_FOLDER, True),
        (tmp_path, tmp_path, False),
        (tmp_path / "none", SCRATCH_FOLDER, False),
    ):
        monkeypatch.setattr(caches, "SIGNS_OF_A_CONTAINER", (sign,))
        hint = hint_of_room(folder)
        assert ("docker run --shm-size" in hint) == is_of_container
        assert "--heap-folder" in hint


def test_a_heap_folder_that_is_full_while_recoveries_run_has_the_same_hint(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The runner says it, and knows of no option."""
    assert f'{LACKS_ROOM}",' in (root / "runner" / "serve" / "serve.c").read_text()
    monkeypatch.setattr(caches, "SIGNS_OF_A_CONTAINER", (tmp_path,))
    for folder, is_of_container in ((SCRATCH_FOLDER, True), (tmp_path, False)):
        said = f"error: the server ended: {folder}/heaps: 0 MiB are free, 1 MiB are needed for images{LACKS_ROOM}\n"
        error = engine_error("explore", 3, said)
        assert isinstance(error, InfrastructureError)
        assert error.message.endswith("are needed for images")
        assert error.hint == hint_of_room(folder)
        assert ("--shm-size" in error.hint) == is_of_container
