# SPDX-License-Identifier: Apache-2.0
"""Allocators made from ways/: one for each case, the only one of a project of its own."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import Any

from exploration.files_project import link_tool
from faultline.base.cache import Cache
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.results import CellResult, Results
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
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
    threads = 2 if "WORKERS" in case.defines.split() else 1
    add_build(place, "ways", case.defines, case.libraries, threads)
    link_tool(root, place)
    return place


def explore_case(place: Path, cache: Cache, scripts: Path, workload: str, **options: Any) -> CellResult:
    """What the project's allocator comes to. workload: the text of a file; options: of the cell."""
    path = place / "ways.workload"
    path.write_text(workload)
    results = Results(place.with_name("results.sqlite"))
    spec = CellSpec("ways", str(path), 0, 1, "complete", "px86", "clwb", **options)
    workshop = Workshop(place, cache, Engine(scripts / "faultline-engine"))
    [result] = run_cells(workshop, results, "run", [spec], 1, SilentWatcher())
    results.close()
    return result


def add_build(place: Path, name: str, defines: str, libraries: Iterable[str] = (), threads: int = 1) -> Path:
    """One more allocator of the project; returns its allocator.toml."""
    folder = place / "allocators" / name
    folder.mkdir(parents=True)
    for source in (HERE / "ways").iterdir():
        (folder / source.name).symlink_to(source)
    flags = (f'"-D{define}"' for define in defines.split())
    description = DESCRIPTION.format(
        name=name,
        sources='"adapter.c"',
        adapter='"nothing.c"',
        flags=", ".join(flags),
        libraries=", ".join(f'"{library}"' for library in libraries),
        threads=threads,
    )
    path = folder / "allocator.toml"
    path.write_text(description)
    return path
