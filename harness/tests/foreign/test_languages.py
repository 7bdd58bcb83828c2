# SPDX-License-Identifier: Apache-2.0
"""An allocator of C and C++ sources gets the right answer, however its author optimises it and whatever standards they are in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from exploration.files_project import link_tool
from faultline.base.config import find_allocator
from faultline.pipeline import build
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import build_cell, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.workload import file_format
from foreign.answer import Answer
from foreign.cases import WORKLOAD
from foreign.foreign_project import DESCRIPTION, HERE

ENTRY = """\
#include "adapter.h"
#include <stdexcept>
#include <string>
static_assert(__cplusplus == 201703L, "the standard of cxx_flags");
extern "C" const struct fl_adapter *ways_adapter(void);
static int open_or_throw(const struct fl_heap_options *options, fl_heap **heap) {
    struct leaving { std::string why; ~leaving() { why.clear(); } } left{std::string(40, 'x')};
    int status = ways_adapter()->open(options, heap);
    if (status != FL_OK) throw std::runtime_error(left.why + std::to_string(status));
    return status;
}
static int open_heap(const struct fl_heap_options *options, fl_heap **heap) {
    try {
        return open_or_throw(options, heap);
    } catch (const std::runtime_error &error) {
        return std::stoi(std::string(error.what()).substr(40));
    }
}
extern "C" __attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static struct fl_adapter table = *ways_adapter();
    table.open = open_heap;
    return &table;
}
"""
STANDARDS = '\nc_flags = ["-Dfaultline_adapter=ways_adapter"]\ncxx_flags = ["-std=c++17"]\n'


def mixed_project(root: Path, place: Path, flags: str, between: str) -> Path:
    """The allocator of ways/, in C, whose adapter's table comes from C++."""
    folder = place / "allocators" / "ways"
    folder.mkdir(parents=True)
    for source in (HERE / "ways").iterdir():
        (folder / source.name).symlink_to(source)
    (folder / "entry.cpp").write_text(ENTRY)
    listed = ", ".join(f'"{flag}"' for flag in ("-std=gnu99", f"-DBETWEEN={between}", *flags.split()))
    text = DESCRIPTION.format(
        name="ways", sources='"adapter.c"', adapter='"entry.cpp"', flags=listed, libraries='"pmem"', threads=1
    )
    (folder / "allocator.toml").write_text(
        text.replace('language = "c11"\n', "").replace("\n[heap]", f"{STANDARDS}\n[heap]")
    )
    link_tool(root, place)
    return place


def answer_of(workshop: Workshop, workload: str = WORKLOAD, **options: Any) -> Answer:
    spec = CellSpec("ways", "ways", 0, 1, "complete", "px86", "clwb", **options)
    answer = Answer()
    cell = trace_cell(workshop, spec, build_cell(workshop, spec), file_format.parse(workload, "ways"))
    answer.verdict = explore(cell, answer.hear)
    return answer


@pytest.mark.slow
@pytest.mark.parametrize(("between", "verdict"), [("clwb", "pass"), ("nothing", "fail")])
@pytest.mark.parametrize("flags", ["-O0", "-O3 -march=x86-64-v2", "-Os -flto"])
def test_c_and_cxx_get_the_right_answer_at_any_optimisation(
    root: Path, scripts: Path, tmp_path: Path, flags: str, between: str, verdict: str
) -> None:
    place = mixed_project(root, tmp_path / "place", flags, between)
    workshop = Workshop(place, cache_that_shares_builds(root, tmp_path / "cache"), Engine(scripts / "faultline-engine"))
    fast = answer_of(workshop)
    assert (fast.verdict, fast.certificate.engine, fast.certificate.complete) == (verdict, "in-process", True), (
        fast.certificate.engine_why
    )
    traced = answer_of(workshop, replay_engine="traced")
    assert (traced.verdict, traced.certificate.engine, traced.rules) == (verdict, "traced", fast.rules)


def test_each_language_has_its_own_compiler_and_standard(root: Path, tmp_path: Path) -> None:
    place = mixed_project(root, tmp_path, "-std=c++14 -O1", "clwb")
    recipe = build.adapter_recipe(place, find_allocator(place, "ways"), None, "clwb", is_hooked=True)
    c, cxx = recipe.command("adapter.c"), recipe.command("entry.cpp")
    assert (c[0], cxx[0], recipe.linker) == ("gcc", "g++", "g++")
    assert [word for word in c if word.startswith("-std=")][-1] == "-std=gnu99"
    assert [word for word in cxx if word.startswith("-std=")][-1] == "-std=c++17"
    assert [word for word in c if word.startswith("-O")][-1] == "-O1"
