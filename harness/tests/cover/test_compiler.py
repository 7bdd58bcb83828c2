# SPDX-License-Identifier: Apache-2.0
"""faultline-cc: what it makes of a compiler's arguments."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from faultline.pipeline.compiler import Settings, command_of, question_of, understand

HOOKED = Settings(
    compilers={"c": "gcc", "c++": "g++"},
    first=["-g"],
    own={"c": ["-DC"], "c++": ["-DCXX"]},
    last=["-fPIC"],
    hooks=["-fsanitize=thread"],
    wraps=["-Wl,--wrap=memcpy"],
    hooks_off="/off.o",
    read="/read",
    launcher=["ccache"],
)
PLAIN = replace(HOOKED, hooks=[])


@pytest.mark.parametrize(
    ("given", "language", "expected"),
    [
        ("--version", "c", "gcc --version"),
        ("-v -Wl,--version", "c", "gcc -v -Wl,--version"),
        ("-print-file-name=libc.so", "c++", "g++ -print-file-name=libc.so"),
        ("-E a.c", "c", "gcc -E a.c -DC"),
        ("-M a.c -o a.d", "c", "gcc -M a.c -o a.d -DC"),
        ("-c a.c -o a.o", "c", "ccache gcc -g -c a.c -o a.o -DC -fPIC -fsanitize=thread"),
        ("-c a.c b.c", "c", "ccache gcc -g -c a.c b.c -DC -fPIC -fsanitize=thread"),
        ("-c a.cpp", "c", "ccache gcc -g -c a.cpp -DCXX -fPIC -fsanitize=thread"),
        ("-c a.c", "c++", "ccache g++ -g -c a.c -DC -fPIC -fsanitize=thread"),
        ("-x c++ -c a.h", "c", "ccache gcc -g -x c++ -c a.h -DCXX -fPIC -fsanitize=thread"),
        ("-xc -c -", "c", "ccache gcc -g -xc -c - -DC -fPIC -fsanitize=thread"),
        ("-S a.c", "c", "ccache gcc -g -S a.c -DC -fPIC -fsanitize=thread"),
        ("-c a.S", "c", "ccache gcc -g -c a.S -fPIC"),
        ("-include x.c -c a.S", "c", "ccache gcc -g -include x.c -c a.S -fPIC"),
        ("a.o -o a", "c", "gcc -g a.o -o a -x none /off.o"),
        ("a.c -o a", "c", "gcc -g a.c -o a -DC -fPIC -x none /off.o"),
        ("-shared a.o -o a.so", "c", "gcc -g -shared a.o -o a.so -Wl,--wrap=memcpy"),
        (
            "-shared a.c -o a.so",
            "c",
            "gcc -g -shared a.c -o a.so -DC -fPIC -fsanitize=thread -nodefaultlibs -Wl,--wrap=memcpy -lc -lgcc",
        ),
        ("-r a.o -o b.o", "c", "gcc -g -r a.o -o b.o"),
    ],
)
def test_arguments_are_added_to_what_they_are_for(given: str, language: str, expected: str) -> None:
    assert " ".join(command_of(HOOKED, language, given.split())) == expected


@pytest.mark.parametrize("given", ["a.o -o a", "-shared a.o -o a.so"])
def test_without_hooks_a_link_is_as_asked(given: str) -> None:
    assert command_of(PLAIN, "c", given.split()) == ["gcc", "-g", *given.split()]


def test_arguments_of_files_are_looked_at_and_left_there(tmp_path: Path) -> None:
    inner, outer = tmp_path / "inner", tmp_path / "outer"
    inner.write_text("-c 'a b.cc'")
    outer.write_text(f"-O2\n@{inner}")
    call = understand([f"@{outer}"])
    assert (call.options, call.inputs, call.is_linking) == (["-O2", "-c", "a b.cc"], ["a b.cc"], False)
    assert command_of(PLAIN, "c", [f"@{outer}"]) == ["ccache", "gcc", "-g", f"@{outer}", "-DCXX", "-fPIC"]


def test_a_file_of_arguments_that_names_itself_ends(tmp_path: Path) -> None:
    endless = tmp_path / "endless"
    endless.write_text(f"-c a.c @{endless}")
    assert "a.c" in understand([f"@{endless}"]).inputs


def test_what_is_read_is_asked_without_writing_the_build_s_files() -> None:
    given = ["-MD", "-MF", "a.d", "-MT", "x", "-c", "-o", "a.o", "-I", "src", "a.c"]
    assert question_of(HOOKED, "c", given) == ["gcc", "-I", "src", "a.c", "-DC", "-M"]
