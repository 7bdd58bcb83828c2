# SPDX-License-Identifier: Apache-2.0
"""Allocators made from ways/: one for each case, the only one of a project of its own."""

from __future__ import annotations

from pathlib import Path

from exploration.files_project import link_tool
from foreign.cases import Case

HERE = Path(__file__).resolve().parent
DESCRIPTION = """\
name = "{name}"
summary = "an allocator of somebody else"
language = "c11"

[build]
sources = [{sources}]
adapter = [{adapter}]
flags = [{flags}]
libraries = [{libraries}]

[heap]
heap_bytes = 65536
limit_bytes = 65536
address_hint = "0x200000000000"
alignment = 64
smallest_bytes = 64
boundary_sizes = [64, 1000]

[contract]
publish = "atomic"
fill = "before"
leaks = "none"
durable = "on-return"
accounting = "full"
slack_bytes = 0
after_failed_create = "error"
threads = {threads}
"""


def project_of_case(case: Case, root: Path, place: Path) -> Path:
    """In the folder place, with what else is needed of the clone at root; returns place."""
    folder = place / "allocators" / "ways"
    folder.mkdir(parents=True)
    for source in (HERE / "ways").iterdir():
        (folder / source.name).symlink_to(source)
    flags = (f'"-D{define}"' for define in case.defines.split())
    libraries = (f'"{library}"' for library in case.libraries)
    threads = 2 if "WORKERS" in case.defines.split() else 1
    (folder / "allocator.toml").write_text(
        DESCRIPTION.format(
            name="ways",
            sources='"adapter.c"',
            adapter='"nothing.c"',
            flags=", ".join(flags),
            libraries=", ".join(libraries),
            threads=threads,
        )
    )
    link_tool(root, place)
    return place
