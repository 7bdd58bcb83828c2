# SPDX-License-Identifier: Apache-2.0
"""Caches of tests that need one of their own."""

from __future__ import annotations

from pathlib import Path

from faultline.base.cache import Cache


def cache_that_shares_builds(root: Path, folder: Path) -> Cache:
    """In folder, with traces, workloads and trials of its own. What is built lies in the clone's cache: its key says all that it is
    made of, wherever the sources lie (test_build.py)."""
    folder.mkdir()
    for part in ("builds", "ccache"):
        shared = root / ".faultline" / part
        shared.mkdir(parents=True, exist_ok=True)
        (folder / part).symlink_to(shared)
    return Cache(folder)
