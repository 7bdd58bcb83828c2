# SPDX-License-Identifier: Apache-2.0
"""Builds: cached by all that they depend on, the same in every clone, errors in one line."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from faultline.base.cache import Cache, key_of
from faultline.base.config import Flush, find_allocator
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.pipeline import build, objects
from samples import copy_of_sources


@pytest.fixture
def clone(tmp_path: Path, root: Path) -> Path:
    """A clone's sources, to change as we like."""
    return copy_of_sources(root, tmp_path / "clone")


@pytest.mark.slow
def test_the_key_depends_on_all_that_matters_and_on_no_path(cache: Cache, root: Path, clone: Path) -> None:
    def adapter_key(root: Path, mutant: str | None = None, flush: Flush = "clwb") -> str:
        return build.build_adapter(root, cache, find_allocator(root, "nvm_malloc"), mutant, flush).key

    clean = adapter_key(clone)
    assert clean == adapter_key(root)
    others = [
        adapter_key(clone, mutant="MAGIC_NOT_LAST"),
        adapter_key(clone, flush="clflush"),
        build.build_runner(clone, cache).key,
    ]
    for changed in (
        "include/persist.h",
        "allocators/nvm_malloc/src/layout.h",
        "allocators/nvm_malloc/adapter.c",
    ):
        with (clone / changed).open("a") as file:
            file.write("/* changed */\n")
        others.append(adapter_key(clone))
    assert len({clean, *others}) == len(others) + 1


def test_key_parts_do_not_run_into_each_other() -> None:
    assert key_of("ab", "c") != key_of("a", "bc")


@pytest.mark.slow
def test_a_second_build_compiles_nothing(cache: Cache, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = find_allocator(root, "nvm_malloc")
    first = build.build_adapter(root, cache, allocator, None, "clwb")
    assert first.path.is_file()
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    assert build.build_adapter(root, cache, allocator, None, "clwb") == first


def compiled_and_known(cache: Cache) -> tuple[int, int]:
    """Sources that were compiled, and those that ccache knew."""
    environment = {**os.environ, "CCACHE_DIR": str(cache.folder / "ccache")}
    run = subprocess.run(["ccache", "--print-stats"], env=environment, capture_output=True, text=True, check=True)
    counts = {name: int(count) for name, count in (line.split("\t") for line in run.stdout.splitlines())}
    return counts["cache_miss"], counts["direct_cache_hit"] + counts["preprocessed_cache_hit"]


@pytest.mark.slow
def test_of_a_mutant_only_what_it_changes_is_compiled(
    cache: Cache, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CCACHE_DISABLE", "1")  # a user's, for other programs
    allocator = find_allocator(root, "nvm_malloc")
    clean = build.build_adapter(root, cache, allocator, None, "clwb")
    sources, known = compiled_and_known(cache)
    assert known == 0
    mutant = build.build_adapter(root, cache, allocator, "MISSING_FENCE_RING", "clwb")
    assert compiled_and_known(cache) == (sources + 1, 0)
    assert mutant.path.read_bytes() != clean.path.read_bytes()


def test_a_mutant_of_objects_of_the_clean_build_is_what_it_is_without_them(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = find_allocator(root, "nvmalloc")
    made = []
    for name in ("with", "without"):
        cache = Cache(tmp_path / name)
        made.append(build.build_adapter(root, cache, allocator, "ROOT_NOT_FLUSHED", "clwb", is_hooked=True))
        monkeypatch.setattr(objects.Objects, "without", lambda *_: None)
    assert made[0].key == made[1].key
    assert made[0].path.read_bytes() == made[1].path.read_bytes()


@pytest.mark.parametrize(
    ("text", "is_kept"),
    [
        ("#if defined(MUTANT_OTHER)\nint a;\n#endif\n", True),
        ("#if defined(MUTANT_ONE)\nint a;\n#endif\n", False),
        ("#ifdef MUTANT_ONE_MORE\nint a;\n#endif\n", True),
        ("#define IS(name) MUTANT_##name\n", False),
    ],
    ids=["another", "the mutant", "a longer name", "put together"],
)
def test_an_object_is_a_mutants_where_nothing_that_it_is_made_of_names_the_mutant(
    tmp_path: Path, text: str, is_kept: bool
) -> None:
    (tmp_path / "a.c").write_text('#include "a.h"\n')
    (tmp_path / "a.h").write_text(text)
    made = objects.Objects({"a.c": objects.object_of(tmp_path, "0.o", ["a.c", str(tmp_path / "a.h")])})
    assert made.without("b.c", "ONE") is None
    assert (made.without("a.c", "ONE") is not None) == is_kept


def test_a_changed_source_is_no_longer_one_of_the_clean_build(root: Path, cache: Cache, clone: Path) -> None:
    allocator = find_allocator(clone, "nvmalloc")
    first = build.build_adapter(clone, cache, allocator, "ROOT_NOT_FLUSHED", "clwb")
    with (clone / "allocators/nvmalloc/src/scan.c").open("a") as file:
        file.write("int changed(void);\nint changed(void) { return 1; }\n")
    second = build.build_adapter(clone, cache, allocator, "ROOT_NOT_FLUSHED", "clwb")
    assert b"changed" not in first.path.read_bytes()
    assert b"changed" in second.path.read_bytes()


@pytest.mark.slow
def test_with_another_assembler_everything_is_compiled_again(
    cache: Cache, clone: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    allocator = find_allocator(clone, "nvmalloc")
    first = build.build_adapter(clone, cache, allocator, None, "clwb", is_hooked=True)
    sources, _ = compiled_and_known(cache)
    other = tmp_path / "faultline-as"
    other.write_text(
        f'#!/bin/sh\n[ "$1" != --faultline-version ] || exec echo another\nexec {build.assembler()} "$@"\n'
    )
    other.chmod(0o755)
    monkeypatch.setattr(build, "assembler", lambda: other)
    second = build.build_adapter(clone, cache, allocator, None, "clwb", is_hooked=True)
    assert first.key != second.key
    assert compiled_and_known(cache) == (2 * sources, 0)


@pytest.mark.slow
def test_a_header_that_hides_another_one_is_seen(cache: Cache, clone: Path, tmp_path: Path) -> None:
    allocator = find_allocator(clone, "nvmalloc")
    build.build_adapter(clone, cache, allocator, None, "clwb")
    header = clone / "include" / "persist.h"  # beside the source it is found first
    text = header.read_text()
    assert text.count('"sfence"') == 1
    (clone / "allocators" / "nvmalloc" / "src" / "persist.h").write_text(text.replace('"sfence"', '"mfence"'))
    hidden = build.build_adapter(clone, cache, allocator, None, "clwb")
    anew = build.build_adapter(clone, Cache(tmp_path / "other"), allocator, None, "clwb")
    assert hidden.path.read_bytes() == anew.path.read_bytes()


@pytest.mark.slow
def test_two_clones_build_the_same_bytes(tmp_path: Path, root: Path, clone: Path) -> None:
    here = build.build_adapter(root, Cache(tmp_path / "a"), find_allocator(root, "nvm_malloc"), None, "clwb")
    there = build.build_adapter(clone, Cache(tmp_path / "b"), find_allocator(clone, "nvm_malloc"), None, "clwb")
    assert here.key == there.key
    assert here.path.read_bytes() == there.path.read_bytes()


@pytest.mark.slow
def test_a_source_that_does_not_compile_is_bad_input_and_leaves_no_entry(clone: Path, cache: Cache) -> None:
    with (clone / "allocators/nvm_malloc/adapter.c").open("a") as file:
        file.write("int broken = nosuch;\n")
    with pytest.raises(BadInputError, match=r"nvm_malloc: gcc failed: .*nosuch.*undeclared"):
        build.build_adapter(clone, cache, find_allocator(clone, "nvm_malloc"), None, "clwb")
    assert not [entry for entry in (cache.folder / "builds").iterdir() if entry.is_dir()]


def test_a_glob_without_files_is_bad_input(clone: Path, cache: Cache) -> None:
    path = clone / "allocators/nvm_malloc/allocator.toml"
    path.write_text(path.read_text().replace('"src/*.c"', '"nosuch/*.c"'))
    with pytest.raises(BadInputError, match=r"build\.sources: 'nosuch/\*\.c' matches no file"):
        build.build_adapter(clone, cache, find_allocator(clone, "nvm_malloc"), None, "clwb")


def test_a_helper_that_is_not_there_is_bad_input(clone: Path, cache: Cache) -> None:
    path = clone / "allocators/nvm_malloc/allocator.toml"
    path.write_text(path.read_text().replace("[build]\n", '[build]\nhelpers = ["src/nosuch.h"]\n'))
    with pytest.raises(BadInputError, match=r"build\.helpers: 'src/nosuch\.h' matches no file"):
        build.build_adapter(clone, cache, find_allocator(clone, "nvm_malloc"), None, "clwb")


def test_a_missing_compiler_says_what_to_do(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nosuch")
    build.version_of.cache_clear()
    try:
        with pytest.raises(InfrastructureError, match="gcc was not found on PATH") as caught:
            build.version_of("gcc")
        assert "make setup" in str(caught.value.hint)
    finally:
        build.version_of.cache_clear()


def test_an_entry_appears_whole_or_not_at_all(cache: Cache) -> None:
    def fails(folder: Path) -> None:
        (folder / "half").write_text("half")
        raise KeyboardInterrupt

    def fails_in_file(path: Path) -> None:
        path.write_text("half")
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        cache.folder_entry("builds", "key", fails)
    with pytest.raises(KeyboardInterrupt):
        cache.file_entry("traces", "key", fails_in_file)
    assert not list((cache.folder / "builds").iterdir())
    assert not list((cache.folder / "traces").iterdir())
