# SPDX-License-Identifier: Apache-2.0
"""`generator` in allocator.toml: one more source, made of the compiled objects."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

from faultline.base.cache import Cache
from faultline.base.config import find_allocator
from faultline.base.errors import BadInputError
from faultline.pipeline import build
from samples import copy_of_sources

GENERATOR = """import sys
assert all(name.endswith(".o") for name in sys.argv[1:])
print("extern int of_objects; int of_objects = %d;" % len(sys.argv[1:]))
"""


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Path:
    return copy_of_sources(root, tmp_path / "clone")


@pytest.fixture
def described(clone: Path) -> Path:
    """nvm_malloc with a generator."""
    folder = clone / "allocators" / "nvm_malloc"
    (folder / "make.py").write_text(GENERATOR)
    path = folder / "allocator.toml"
    path.write_text(path.read_text().replace("[build]\n", '[build]\ngenerator = "make.py"\n', 1))
    return path


def built(clone: Path, cache: Cache, mutant: str | None = None) -> build.Built:
    return build.build_adapter(clone, cache, find_allocator(clone, "nvm_malloc"), mutant, "clwb")


def value_of(library: Path) -> int:
    """Of the variable that the generator defines."""
    program = "import ctypes, sys; print(ctypes.c_int.in_dll(ctypes.CDLL(sys.argv[1]), 'of_objects').value)"
    run = subprocess.run(["python3", "-c", program, library], capture_output=True, text=True, check=True)
    return int(run.stdout)


def test_what_it_makes_is_linked_in_mutants_too(clone: Path, described: Path, cache: Cache) -> None:
    sources = len(list((described.parent / "src").glob("*.c"))) + len(list(described.parent.glob("adapter*.c")))
    clean = built(clone, cache)
    assert value_of(clean.path) == sources
    assert value_of(built(clone, cache, "MAGIC_NOT_LAST").path) == sources
    assert built(clone, cache).key == clean.key


def test_another_generator_is_another_build(clone: Path, described: Path, cache: Cache) -> None:
    before = built(clone, cache)
    (described.parent / "make.py").write_text(GENERATOR.replace("%d;", "%d + 1000;"))
    after = built(clone, cache)
    assert before.key != after.key
    assert value_of(after.path) == value_of(before.path) + 1000


@pytest.mark.parametrize(
    ("program", "why"),
    [
        ("import sys; sys.exit('nothing can be made')", "make.py failed: nothing can be made"),
        ("print('int is no source')", "error: "),
        (None, "build.generator: 'make.py' matches no file"),
    ],
)
def test_one_that_fails_is_bad_input(clone: Path, described: Path, cache: Cache, program: str | None, why: str) -> None:
    if program is None:
        (described.parent / "make.py").unlink()
    else:
        (described.parent / "make.py").write_text(program)
    with pytest.raises(BadInputError, match=re.escape(why)):
        built(clone, cache)


def test_a_command_runs_its_own(clone: Path, described: Path, cache: Cache) -> None:
    text = described.read_text().replace("[build]\n", '[build]\ncommand = "make"\noutputs = ["a.o"]\n', 1)
    described.write_text(text)
    with pytest.raises(BadInputError, match=r"expected none beside build\.command"):
        built(clone, cache)


@pytest.mark.slow
def test_two_clones_make_the_same_bytes(tmp_path: Path, root: Path, clone: Path) -> None:
    allocator = find_allocator(root, "nvmreconstruct")
    one = build.build_adapter(root, Cache(tmp_path / "one"), allocator, None, "clwb", is_hooked=True)
    other = build.build_adapter(
        clone, Cache(tmp_path / "other"), find_allocator(clone, "nvmreconstruct"), None, "clwb", is_hooked=True
    )
    assert one.path.read_bytes() == other.path.read_bytes()
