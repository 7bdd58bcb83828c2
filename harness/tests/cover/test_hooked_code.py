# SPDX-License-Identifier: Apache-2.0
"""Code that was compiled without hooks is found in the library that it was linked into, and code with hooks is not taken for it."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from faultline.pipeline.build import assembled_by, assembler
from faultline.pipeline.hooked_code import part_without_hooks

HOOKED = """\
#include <string>
#include <vector>
template <class T> struct List {
    std::vector<T> values;
    void add(T value) { values.push_back(value); }
    ~List() { values.clear(); }
};
static List<std::string> list;
__attribute__((constructor)) static void begin() { list.add("a"); }
extern "C" int go(int *to) {
    list.add("b");
    try { if (*to) throw 3; } catch (int) { return 1; }
    return static_cast<int>(list.values.size());
}
__attribute__((cold)) void seldom(int *to) { *to = 1; }
__attribute__((section(".special"))) void special(int *to) { *to = 2; }
"""
PAST = 'extern "C" char peek(const char *at) { return *at; }\n'
"""Four bytes of code: it has room in the padding between two other functions."""
LINK = ("-shared", "-nodefaultlibs", "-Wl,-z,undefs", "-lstdc++", "-lc", "-lgcc_s", "-lgcc")


def gxx(place: Path, *words: str) -> None:
    subprocess.run(["g++", *words], cwd=place, check=True, capture_output=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "hooked.cc").write_text(HOOKED)
    (tmp_path / "past.cc").write_text(PAST)
    gxx(tmp_path, "-c", "-O2", "-fPIC", "past.cc")
    return tmp_path


@pytest.mark.parametrize("options", ["-O2", "-O0", "-O2 -ffunction-sections -Wl,--gc-sections", "-O2 -Wl,-s"])
def test_code_past_the_hooks_is_named(place: Path, options: str) -> None:
    compiled = ("-fPIC", "-fsanitize=thread", assembled_by(assembler()), *options.split())
    gxx(place, "-c", *compiled, "hooked.cc")
    gxx(place, *options.split(), "-o", "whole.so", "hooked.o", *LINK)
    assert part_without_hooks(place / "whole.so") == ""
    for objects in (("past.o", "hooked.o"), ("hooked.o", "past.o")):
        gxx(place, *options.split(), "-o", "part.so", *objects, *LINK)
        assert part_without_hooks(place / "part.so").startswith("peek (part.so+0x"), objects


def test_a_library_without_any_hook_is_the_runners_to_know(place: Path) -> None:
    gxx(place, "-o", "none.so", "past.o", *LINK)
    assert part_without_hooks(place / "none.so") == ""
