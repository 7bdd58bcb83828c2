# SPDX-License-Identifier: Apache-2.0
"""A project in which the allocator of files/ is the only one."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def files_project(root: Path, place: Path) -> Path:
    """In the folder place, with what else is needed of the clone at root; returns place."""
    (place / "allocators").mkdir()
    (place / "allocators" / "files").symlink_to(HERE / "files")
    for name in ("include", "runner", "pintools"):
        (place / name).symlink_to(root / name)
    return place
