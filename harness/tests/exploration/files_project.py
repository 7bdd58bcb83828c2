# SPDX-License-Identifier: Apache-2.0
"""Projects in which an allocator of these tests is the only one."""

from __future__ import annotations

from pathlib import Path

HERE = Path(__file__).resolve().parent


def files_project(root: Path, place: Path) -> Path:
    return project_of("files", root, place)


def project_of(allocator: str, root: Path, place: Path) -> Path:
    """In the folder place, with what else is needed of the clone at root; returns place."""
    (place / "allocators").mkdir()
    (place / "allocators" / allocator).symlink_to(HERE / allocator)
    link_tool(root, place)
    return place


def link_tool(root: Path, place: Path) -> None:
    """What allocators, runner and tracers are built from."""
    for name in ("include", "runner", "pintools"):
        (place / name).symlink_to(root / name)
