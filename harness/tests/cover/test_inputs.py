# SPDX-License-Identifier: Apache-2.0
"""A build is made again when anything that it read is another, wherever that lies, and only then. What is damaged is not used."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from exploration.files_project import link_tool
from faultline.base import cache as cache_module
from faultline.base.cache import Cache
from faultline.base.config import Allocator, find_allocator
from faultline.pipeline import build
from faultline.pipeline.inputs import Inputs, first_rule
from foreign.foreign_project import DESCRIPTION


class Outside:
    """An allocator of a repository of its own, as it is linked into a clone."""

    def __init__(self, root: Path, place: Path) -> None:
        self.root = place / "clone"
        self.top = place / "repository"
        self.folder = self.top / "faultline"
        self.folder.mkdir(parents=True)
        (self.root / "allocators").mkdir(parents=True)
        (self.root / "allocators" / "outside").symlink_to(self.folder)
        link_tool(root, self.root)
        self.write("faultline/adapter.c", "int adapter(void);\nint adapter(void) { return 1; }\n")

    def write(self, name: str, text: str) -> Path:
        path = self.top / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    def describe(self, sources: str = '"own.c"', flags: str = "", libraries: str = "") -> None:
        text = DESCRIPTION.format(
            name="outside", sources=sources, adapter='"adapter.c"', flags=flags, libraries=libraries, threads=1
        )
        self.write("faultline/allocator.toml", text)

    def allocator(self) -> Allocator:
        return find_allocator(self.root, "outside")

    def library(self, name: str, text: str) -> None:
        """A prebuilt one, shared or not by its name's end."""
        source = self.write("library/source.c", text)
        command = ["gcc", "-shared", "-fPIC", "-o", self.top / "library" / name, source]
        if name.endswith(".a"):
            made = source.with_suffix(".o")
            subprocess.run(["gcc", "-c", "-fPIC", "-o", made, source], check=True)
            command = ["ar", "rcs", self.top / "library" / name, made]
        subprocess.run(command, check=True)


Change = Callable[[Outside], object]
ONE, TWO = "int value(void) { return 1; }\n", "int value(void) { return 2; }\n"
ASKING = "int value(void);\nint own(void) { return value(); }\n"


def sources_beside(it: Outside) -> Change:
    it.describe(sources='"../src/*.c"')
    it.write("src/own.c", ONE)
    return lambda it: it.write("src/own.c", TWO)


def one_source_more(it: Outside) -> Change:
    sources_beside(it)
    return lambda it: it.write("src/more.c", "int more;\n")


def linked_source(it: Outside) -> Change:
    it.describe()
    (it.folder / "own.c").symlink_to(it.write("src/own.c", ONE))
    return lambda it: it.write("src/own.c", TWO)


def link_to_another(it: Outside) -> Change:
    linked_source(it)
    other = it.write("src/other.c", TWO)

    def change(it: Outside) -> None:
        (it.folder / "own.c").unlink()
        (it.folder / "own.c").symlink_to(other)

    return change


def included_source(it: Outside) -> Change:
    it.describe()
    it.write("faultline/own.c", '#include "../src/table.inc"\n')
    it.write("src/table.inc", ONE)
    return lambda it: it.write("src/table.inc", TWO)


def included_by_option(it: Outside) -> Change:
    it.write("faultline/own.c", "int value(void) { return FIRST; }\n")
    header = it.write("src/first.h", "#define FIRST 1\n")
    it.describe(flags=f'"-include", "{header}"')
    return lambda it: it.write("src/first.h", "#define FIRST 2\n")


def header_elsewhere(it: Outside) -> Change:
    header = it.write("headers/deep/value.h", ONE)
    it.describe(flags=f'"-I{header.parents[1]}"')
    it.write("faultline/own.c", "#include <deep/value.h>\n")
    return lambda it: it.write("headers/deep/value.h", TWO)


def header_that_hides(it: Outside) -> Change:
    header = it.write("second/deep/value.h", ONE)
    (it.top / "first").mkdir()
    it.describe(flags=f'"-I{it.top / "first"}", "-I", "{header.parents[1]}"')
    it.write("faultline/own.c", "#include <deep/value.h>\n")
    return lambda it: it.write("first/deep/value.h", TWO)


def header_that_is_asked_for(it: Outside) -> Change:
    it.describe()
    it.write("faultline/own.c", f'#if __has_include("own_config.h")\n{TWO}#else\n{ONE}#endif\n')
    return lambda it: it.write("faultline/own_config.h", "")


def assembled_bytes(it: Outside) -> Change:
    data = it.write("src/data.bin", "one")
    it.describe()
    it.write("faultline/own.c", f'__asm__(".data\\n.incbin \\"{data}\\"\\n.text");\n')
    return lambda it: it.write("src/data.bin", "two")


def arguments_of_a_file(it: Outside) -> Change:
    flags = it.write("flags", "-DVALUE=1")
    it.describe(flags=f'"@{flags}"')
    it.write("faultline/own.c", "int value(void) { return VALUE; }\n")
    return lambda it: it.write("flags", "-DVALUE=2")


def script_of_the_linker(it: Outside) -> Change:
    script = it.write("names.map", "{ global: *; };\n")
    it.describe(flags=f'"-Wl,--version-script={script}"')
    it.write("faultline/own.c", ONE)
    return lambda it: it.write("names.map", "{ global: adapter; local: *; };\n")


def archive(it: Outside) -> Change:
    it.describe(flags=f'"-L{it.top / "library"}"', libraries='"value"')
    it.write("faultline/own.c", ASKING)
    it.library("libvalue.a", ONE)
    return lambda it: it.library("libvalue.a", TWO)


def shared_library(it: Outside) -> Change:
    place = it.top / "library"
    it.describe(flags=f'"-L{place}", "-Wl,-rpath,{place}"', libraries='"value"')
    it.write("faultline/own.c", ASKING)
    it.library("libvalue.so", ONE)
    return lambda it: it.library("libvalue.so", TWO)


def library_that_hides(it: Outside) -> Change:
    archive(it)
    first = it.top / "first"
    first.mkdir()
    it.describe(flags=f'"-L{first}", "-L{it.top / "library"}"', libraries='"value"')

    def change(it: Outside) -> None:
        it.library("libvalue.a", TWO)
        shutil.move(it.top / "library" / "libvalue.a", first)
        it.library("libvalue.a", ONE)

    return change


def shared_library_in_place_of_an_archive(it: Outside) -> Change:
    archive(it)
    return lambda it: it.library("libvalue.so", TWO)


LAYOUTS = [
    *(sources_beside, one_source_more, linked_source, link_to_another, included_source, included_by_option),
    *(header_elsewhere, header_that_hides, header_that_is_asked_for, assembled_bytes, arguments_of_a_file),
    *(script_of_the_linker, archive, shared_library, library_that_hides, shared_library_in_place_of_an_archive),
]


@pytest.fixture
def outside(root: Path, tmp_path: Path) -> Outside:
    return Outside(root, tmp_path)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.__name__)
def test_a_build_is_made_again_for_what_it_reads_anywhere(
    outside: Outside, cache: Cache, tmp_path: Path, layout: Callable[[Outside], Change]
) -> None:
    def built() -> build.Built:
        return build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb")

    change = layout(outside)
    first = built()
    assert built() == first
    change(outside)
    second = built()
    assert second.key != first.key
    anew = build.build_adapter(outside.root, Cache(tmp_path / "other"), outside.allocator(), None, "clwb")
    assert second.path.read_bytes() == anew.path.read_bytes()


def test_what_is_not_read_changes_no_build(outside: Outside, cache: Cache, monkeypatch: pytest.MonkeyPatch) -> None:
    header_elsewhere(outside)
    first = build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb")
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    outside.write("faultline/notes.h", "not read")
    outside.write("headers/deep/value.h", ONE)
    assert build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb") == first


def test_a_source_that_is_written_while_it_is_compiled_is_read_again(
    outside: Outside, cache: Cache, monkeypatch: pytest.MonkeyPatch
) -> None:
    change = header_elsewhere(outside)
    compile_it = build._compile
    contents = []

    def compile_and_write(*arguments: object) -> object:
        inputs = compile_it(*arguments)  # type: ignore[arg-type]
        contents.append((outside.top / "headers/deep/value.h").read_text())
        if len(contents) == 1:
            change(outside)
        return inputs

    monkeypatch.setattr(build, "_compile", compile_and_write)
    built = build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb")
    assert contents == [ONE, TWO]
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    assert build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb") == built


@pytest.mark.parametrize("damage", ["flipped", "cut", "gone"])
def test_a_damaged_build_is_not_used(
    outside: Outside, cache: Cache, damage: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    sources_beside(outside)
    first = build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb")
    content = first.path.read_bytes()
    middle = len(content) // 2
    first.path.unlink()
    if damage != "gone":
        flipped = bytes([content[middle] ^ 1])
        first.path.write_bytes(content[:middle] + (flipped + content[middle + 1 :] if damage == "flipped" else b""))
    monkeypatch.setattr(cache_module, "_verified", set())  # as in the next process
    second = build.build_adapter(outside.root, cache, outside.allocator(), None, "clwb")
    assert second == first
    assert second.path.read_bytes() == content
    assert "is damaged, and is made again" in capsys.readouterr().err


def test_rules_name_files_of_any_name(tmp_path: Path) -> None:
    rule = tmp_path / "rule.d"
    rule.write_text("out.o: a.c with\\ space.h \\\n  cost$$.h hash\\#tag.h\n\na.c:\n\nb.h:\n")
    assert first_rule(rule) == ["a.c", "with space.h", "cost$.h", "hash#tag.h"]


@pytest.mark.parametrize("is_listed", [True, False])
def test_what_comes_to_hide_a_header_is_noticed_where_no_folder_may_be_listed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, is_listed: bool
) -> None:
    def refuse(folder: Path) -> None:
        raise PermissionError(folder)

    if not is_listed:
        monkeypatch.setattr("faultline.pipeline.inputs.os.scandir", refuse)
    (tmp_path / "include" / "a").mkdir(parents=True)
    (tmp_path / "include" / "folder.h").mkdir()
    outside = tmp_path / "outside.h"
    names = ["hidden.h", "include/a/hidden.h", "include/folder.h", "include/none/hidden.h", str(outside)]
    inputs = Inputs([], names)
    root = tmp_path
    assert list(inputs.contents(root)) == ["hiding"]
    for name in ("hidden.h", "include/a/hidden.h", str(outside)):
        (root / name).touch()
    assert list(inputs.contents(root)) == ["hiding", "hidden.h", "include/a/hidden.h", str(outside)]
