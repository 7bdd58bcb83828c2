# SPDX-License-Identifier: Apache-2.0
"""nvmreconstruct as a library that a program links: type tables of debug information, its own tests, section 6.3 of the paper."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from command_line import Faultline

FOLDER = Path("allocators/nvmreconstruct")
COMMON = ("-std=gnu++20", "-g", "-D_GNU_SOURCE", "-fno-strict-aliasing", "-Wall", "-Wextra", "-pthread")
SANITIZED = ("-O1", "-fsanitize=address,undefined", "-fno-sanitize=vptr,alignment", "-fno-sanitize-recover")


@pytest.fixture
def include(root: Path) -> tuple[str, ...]:
    return tuple(f"-I{root / name}" for name in ("include", "allocators/testing", FOLDER / "src"))


def compiled(root: Path, folder: Path, include: tuple[str, ...], source: Path, *flags: str) -> Path:
    target = folder / f"{source.stem}.o"
    subprocess.run(["g++", *COMMON, *include, *flags, "-c", "-o", target, source], check=True, cwd=root)
    return target


def tables_of(root: Path, *objects: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(root / FOLDER / "tools" / "nv_types.py"), *map(str, objects)]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def program(root: Path, folder: Path, include: tuple[str, ...], test: str, *flags: str) -> Path:
    folder.mkdir()
    sources = [*sorted((root / FOLDER / "src").glob("*.cpp")), root / FOLDER / "tests" / test]
    objects = [compiled(root, folder, include, source, *flags) for source in sources]
    made = tables_of(root, *objects)
    assert made.returncode == 0, made.stderr
    tables = folder / "tables.cpp"
    tables.write_text(made.stdout)
    whole = folder / "program"
    linked = [*objects, compiled(root, folder, include, tables, *flags)]
    subprocess.run(["g++", *COMMON, *flags, "-o", whole, *linked], check=True)
    return whole


@pytest.mark.parametrize("flags", [("-O2",), pytest.param(SANITIZED, marks=pytest.mark.slow)], ids=["O2", "sanitized"])
def test_nvmreconstruct_is_a_correct_allocator(
    root: Path, tmp_path: Path, include: tuple[str, ...], flags: tuple[str, ...]
) -> None:
    test = program(root, tmp_path / "program", include, "test_nvmreconstruct.cpp", *flags)
    # A trap is a SIGSEGV that the library handles: the sanitizer would end the program at it.
    run = subprocess.run(
        [test], capture_output=True, text=True, check=False, env={"ASAN_OPTIONS": "handle_segv=0:use_sigaltstack=0"}
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert " 0 failed" in run.stdout


@pytest.mark.slow
def test_objects_outlive_the_program_that_made_them(root: Path, tmp_path: Path, include: tuple[str, ...]) -> None:
    """Section 6.3: other flags, a field more in each type, the heap moved from 2^40 to 3 * 2^40."""
    first = program(root, tmp_path / "first", include, "portability.cpp", "-O3")
    again = program(root, tmp_path / "again", include, "portability.cpp", "-O0", "-DADDED")
    heap = tmp_path / "heap"
    heap.mkdir()
    made = subprocess.run([first, heap, "make"], capture_output=True, text=True, check=True).stdout
    assert made.splitlines()[:3] == ["5", "hello world", "3"]
    assert len(made.splitlines()) == 60
    for program_again in (again, first, again):
        opened = subprocess.run([program_again, heap], capture_output=True, text=True, check=False)
        assert (opened.returncode, opened.stdout) == (0, made), opened.stderr


@pytest.fixture
def refused(root: Path, tmp_path: Path, include: tuple[str, ...]) -> Callable[..., str]:
    def refuse(declaration: str, *flags: str, body: str = "") -> str:
        source = tmp_path / "made.cpp"
        make = "nv::Status make(nv::Heap *heap) { return heap->make<Made>(heap->root<Made>(0), 0, [](Made *) {}); }"
        source.write_text(f'#include "nvreconstruct.h"\n{declaration}\n{body}\n{make}\n')
        run = tables_of(root, compiled(root, tmp_path, include, source, *flags))
        assert run.returncode == 1
        assert run.stdout == ""
        (line,) = run.stderr.splitlines()
        return line.removeprefix("nv_types.py: error: ")

    return refuse


def test_what_cannot_be_told_apart_is_refused(refused: Callable[..., str]) -> None:
    union = "struct Made { union { Made *pointer; long number; } both; };"
    assert refused(union).startswith("Made: both is a union: give the type a nv_reconstruct")
    assert refused("struct Made { int Made::*member; };").startswith("Made: member is a pointer to member")
    assert "virtual base" in refused("struct Base { int a; }; struct Made : virtual Base { };")
    several = "struct A { virtual void a() {} }; struct B { virtual void b() {} }; struct Made : A, B { };"
    assert "several virtual tables" in refused(several)
    assert "which types are made" in refused("struct Made { Made *next; };", "-g0")
    hidden = "namespace { struct Made { virtual void a(); }; void Made::a() {} }"
    assert "virtual table of {anonymous}::Made is in none of them, or it is local" in refused(hidden)


def test_a_table_says_what_each_field_is(root: Path, tmp_path: Path, include: tuple[str, ...]) -> None:
    source = tmp_path / "made.cpp"
    source.write_text(
        '#include "nvreconstruct.h"\n'
        "struct Base { virtual void act() {} Base *base; };\n"
        "struct Inner { short a; const char *text; };\n"
        "struct Made : Base { Inner inner[2]; nv::transient<long> gone; void (*code)(); unsigned bits : 3; char tail[]; };\n"
        "nv::Status make(nv::Heap *heap) { return heap->make<Made>(heap->root<Made>(0), 0, [](Made *) {}); }\n"
    )
    run = tables_of(root, compiled(root, tmp_path, include, source))
    assert run.returncode == 0, run.stderr
    fields = [line.strip() for line in run.stdout.splitlines() if "name_hash" in line]
    expected = {
        "virtual table": (0, 8, "VIRTUAL_TABLE"),
        "base": (8, 8, "POINTER"),
        "inner[0].a": (16, 2, "PLAIN"),
        "inner[0].text": (24, 8, "POINTER"),
        "inner[1].a": (32, 2, "PLAIN"),
        "inner[1].text": (40, 8, "POINTER"),
        "gone": (48, 8, "TRANSIENT"),
        "code": (56, 8, "CODE"),
        "bits": (64, 1, "PLAIN"),
    }
    for name, (offset, size, kind) in expected.items():
        assert f'{{nv::name_hash("{name}"), {offset}, {size}, nv::Kind::{kind}}},' in fields
    assert {field.split('"')[1] for field in fields} == set(expected)


@pytest.mark.slow
def test_a_token_of_what_another_address_breaks_in_a_long_life_replays(faultline: Faultline) -> None:
    """Pages of several executions are in a recovered heap only when it is opened lazily once more: no first life shows it."""
    workload = FOLDER / "workloads" / "lazy.workload"
    mutant = ("--mutant", "DELTA_OF_LAST", "--stop-at-rule", "FL015", "--no-explain", "--no-shrink")
    run = faultline("run", "nvmreconstruct", "-w", workload, *mutant, "--json")
    finding = next(one for one in json.loads(run.stdout)["cells"][0]["findings"] if one["rule"] == "FL015")
    assert "in a long life" in finding["message"]
    replayed = faultline("replay", finding["token"])
    assert replayed.returncode == 1, replayed.stdout + replayed.stderr
    assert finding["id"] in replayed.stdout
