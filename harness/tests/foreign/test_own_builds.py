# SPDX-License-Identifier: Apache-2.0
"""An allocator that its author's own build makes gets the right answer, its builds follow every edit of its repository, and the
repository stays as it is."""

from __future__ import annotations

import re
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from exploration.files_project import link_tool
from faultline.base.cache import Cache
from faultline.base.config import find_allocator
from faultline.base.errors import BadInputError
from faultline.pipeline import build
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from faultline.study.bisect import explore_commit
from faultline.workload import file_format
from foreign.foreign_project import DESCRIPTION, HERE
from foreign.test_languages import answer_of

ENTRY = """\
#include "adapter.h"
const struct fl_adapter *ways_adapter(void);
__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) { return ways_adapter(); }
"""
ENTRY_THAT_CALLS = """\
#include "adapter.h"
const struct fl_adapter *ways_adapter(void);
static int open_there(const struct fl_heap_options *options, fl_heap **heap) { return ways_adapter()->open(options, heap); }
__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static struct fl_adapter table;
    table = *ways_adapter();
    table.open = open_there;
    return &table;
}
"""
CONFIG = """\
#pragma once
#define faultline_adapter ways_adapter
#if defined(BUG) || defined(MUTANT_UNORDERED)
#define BETWEEN nothing
#else
#define BETWEEN clwb
#endif
"""
LINK = "\t$(CC) $(CFLAGS) -fPIC -shared -Wl,-z,defs -Wl,-soname,$@ -o $@"
MAKEFILE = """\
CC = gcc
CFLAGS = -O1 -D_GNU_SOURCE -include src/config.h $(if $(BUG),-DBUG)
BUG =
all: libways.a selftest
	./selftest
libways.a: src/adapter.o src/more.o
	$(AR) rcs $@ $^
libways.so.1: src/adapter.c src/more.c src/config.h
	$(CC) $(CFLAGS) -fPIC -shared -Wl,-z,defs -Wl,-soname,$@ -o $@ src/adapter.c src/more.c
libways.so: libways.so.1
	ln -sf $< $@
selftest: src/selftest.o libways.a
	$(CC) -o $@ $^
src/%.o: src/%.c src/config.h
	$(CC) $(CFLAGS) -MD -MF $(@:.o=.d) -c -o $@ $<
clean:
	rm -f *.a *.so* selftest src/*.o src/*.d
"""
MORE = """\
#include <stdatomic.h>
#include <string.h>
_Atomic unsigned long count;
int more(char *to, const char *from) { memcpy(to, from, strlen(from)); return (int)atomic_fetch_add(&count, 1); }
"""
SELFTEST = """\
int more(char *to, const char *from);
int main(void) { char to[8]; return more(to, "seven") == 0 && more(to, "one") == 1 && to[0] == 'o' ? 0 : 1; }
"""
MUTANT = '\n[[mutant]]\nid = "UNORDERED"\nsummary = "nothing between a and b"\nrule = "FL003"\nkilled_by = []\n'
SHORT = "workload 1\nslots 1\ncase\nallocate 0 64\n"
MAKE = "make -C .. CC=$FAULTLINE_CC"


class Repository:
    """One with its own Makefile, and the adapter in a folder of it."""

    def __init__(self, root: Path, place: Path) -> None:
        self.clone, self.top = place / "clone", place / "a repository"
        self.folder = self.top / "faultline"
        self.folder.mkdir(parents=True)
        (self.clone / "allocators").mkdir(parents=True)
        (self.clone / "allocators" / "ways").symlink_to(self.folder)
        link_tool(root, self.clone)
        shutil.copytree(HERE / "ways", self.top / "src")
        self.write("Makefile", MAKEFILE)
        self.write("src/config.h", CONFIG)
        self.write("src/more.c", MORE)
        self.write("src/selftest.c", SELFTEST)
        self.write("faultline/entry.c", ENTRY)
        self.workshop = Workshop(self.clone, cache_that_shares_builds(root, place / "cache"), Engine())
        self.describe(MAKE)

    def write(self, name: str, text: str) -> None:
        (self.top / name).parent.mkdir(parents=True, exist_ok=True)
        (self.top / name).write_text(text)

    def describe(self, command: str | None, outputs: str = '"../libways.a"', more: str = 'root = ".."') -> None:
        text = DESCRIPTION.format(name="ways", sources="", adapter='"entry.c"', flags="", libraries="", threads=1)
        made = f"command = '''{command}'''\n{more}\n" if command else ""
        text = text.replace("[build]\nsources = []\n", f"[build]\n{made}outputs = [{outputs}]\n")
        self.write("faultline/allocator.toml", text + MUTANT)

    def built(self, mutant: str | None = None, is_hooked: bool = False) -> build.Built:
        allocator = find_allocator(self.clone, "ways")
        return build.build_adapter(self.clone, self.workshop.cache, allocator, mutant, "clwb", is_hooked)

    def files(self) -> dict[str, bytes]:
        return {str(path): path.read_bytes() for path in self.top.rglob("*") if path.is_file()}


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Repository:
    return Repository(root, tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize(("bug", "verdict"), [("", "pass"), ("1", "fail")])
def test_a_bug_behind_a_make_variable_is_found(repository: Repository, bug: str, verdict: str) -> None:
    repository.describe(f"{MAKE} BUG={bug}")
    before = repository.files()
    fast = answer_of(repository.workshop)
    assert (fast.verdict, fast.certificate.engine, fast.certificate.complete) == (verdict, "in-process", True), (
        fast.certificate.engine_why
    )
    traced = answer_of(repository.workshop, SHORT, replay_engine="traced")
    assert (traced.verdict, traced.certificate.engine) == (verdict, "traced")
    assert repository.files() == before


@pytest.mark.slow
def test_a_shared_library_of_its_own_build_gets_the_right_answer(repository: Repository) -> None:
    repository.describe(f"{MAKE} libways.so BUG=1", outputs='"../libways.so*"')
    answer = answer_of(repository.workshop, SHORT)
    found = answer.verdict, answer.certificate.engine, answer.certificate.complete
    assert found == ("fail", "in-process", True), answer.certificate.engine_why
    built = repository.built(is_hooked=True)
    assert sorted(path.name for path in built.path.parent.iterdir()) == ["adapter.so", "libways.so.1", "sha256"]


def library_that_is_called(repository: Repository, load: str = "") -> None:
    """A shared library of the author's build, whose recovery an adapter outside of it calls."""
    repository.write("faultline/entry.c", ENTRY_THAT_CALLS)
    if load:
        repository.write("src/config.h", f"#define WITH_ZLIB\n#define LOAD {load}\n{CONFIG}")
        repository.write("Makefile", MAKEFILE.replace("src/adapter.c src/more.c\n", "src/adapter.c src/more.c -lz\n"))
    repository.describe(f"{MAKE} libways.so BUG=1", outputs='"../libways.so*"')


def test_calls_of_a_shared_library_with_hooks_are_no_calls_past_them(repository: Repository) -> None:
    library_that_is_called(repository)
    answer = answer_of(repository.workshop, SHORT)
    found = answer.verdict, answer.certificate.engine, answer.certificate.complete
    assert found == ("fail", "in-process", True), answer.certificate.engine_why
    [finding] = answer.findings
    assert finding.sites
    assert all(site.file.startswith("src/") and site.function and site.line for site in finding.sites)


def test_places_of_recovery_in_a_shared_library_with_hooks_are_named(repository: Repository) -> None:
    """Where it loads and stores, though no hook of the adapter's own announces it."""
    library_that_is_called(repository)
    answer = answer_of(repository.workshop, SHORT, nested=1)
    assert {finding.rule for finding in answer.findings} == {"FL003", "FL014"}
    for finding in answer.findings:
        assert [site.function for site in finding.sites] == ["store_plain"] * 2
        assert finding.read is not None
        assert (finding.read.function, finding.read.file) == ("load_plain", "src/loads.h")


@pytest.mark.slow
def test_calls_that_leave_a_shared_library_with_hooks_are_seen(repository: Repository) -> None:
    library_that_is_called(repository, "zlib")
    answer = answer_of(repository.workshop, SHORT)
    assert (answer.verdict, answer.certificate.engine) == ("fail", "traced")
    why = answer.certificate.engine_why or ""
    assert re.search(r"load_zlib \(.*loads\.h:\d+\), libways\.so\.1\+0x[0-9a-f]+: a call of crc32", why), why


@pytest.mark.slow
@pytest.mark.parametrize("output", ["libways.a", "libways.so"])
def test_an_object_without_hooks_is_no_secret(repository: Repository, output: str) -> None:
    """A Makefile that compiles one file past $CC. Whatever that loads, no hook announces it, so the tracer sees to all."""
    past = "src/more.o: src/more.c\n\tgcc -O1 -fPIC -c -o $@ $<\n"
    text = MAKEFILE.replace("src/%.o:", f"{past}src/%.o:").replace(
        "src/adapter.c src/more.c\n", "src/adapter.c src/more.o\n"
    )
    text = text.replace("libways.so.1: src/adapter.c src/more.c", "libways.so.1: src/adapter.c src/more.o")
    repository.write("Makefile", text)
    repository.describe(f"{MAKE} {output} BUG=1", outputs=f'"../{output}"')
    answer = answer_of(repository.workshop, SHORT)
    part = "more.o of libways.a" if output == "libways.a" else "more.o"
    certificate = answer.certificate
    assert (certificate.engine, certificate.engine_why) == ("traced", f"{part} was compiled without hooks")
    assert (answer.verdict, certificate.complete) == ("fail", True)


@pytest.mark.slow
@pytest.mark.parametrize("is_stripped", [False, True])
def test_an_object_without_hooks_is_no_secret_when_it_is_gone(repository: Repository, is_stripped: bool) -> None:
    """Nor in a library without symbols."""
    strip = " && strip $@" if is_stripped else ""
    past = f"\tgcc -O1 -fPIC -c -o src/more.o src/more.c\n{LINK} src/adapter.c src/more.o && rm src/more.o{strip}\n"
    repository.write("Makefile", MAKEFILE.replace(f"{LINK} src/adapter.c src/more.c\n", past))
    repository.describe(f"{MAKE} libways.so BUG=1", outputs='"../libways.so"')
    answer = answer_of(repository.workshop, SHORT)
    certificate = answer.certificate
    assert (answer.verdict, certificate.engine, certificate.complete) == ("fail", "traced", True)
    part = r"more \(libways\.so\+0x[0-9a-f]+\) was compiled without hooks"
    assert re.fullmatch(part, certificate.engine_why or ""), certificate.engine_why


@pytest.mark.slow
def test_an_object_without_hooks_is_no_secret_beside_one_that_has_some(repository: Repository) -> None:
    """Two objects linked into one: that has hooks, and a part without them."""
    past = "src/more.o: src/more.c src/adapter.o\n\tgcc -O1 -fPIC -c -o $@.o $< && ld -r -o $@ $@.o src/adapter.o && rm $@.o\n"
    text = MAKEFILE.replace("src/%.o:", f"{past}src/%.o:").replace("src/adapter.o src/more.o\n", "src/more.o\n", 1)
    repository.write("Makefile", text)
    repository.describe(f"{MAKE} libways.a BUG=1")
    answer = answer_of(repository.workshop, SHORT)
    certificate = answer.certificate
    assert (answer.verdict, certificate.engine, certificate.complete) == ("fail", "traced", True)
    why = certificate.engine_why or ""
    assert re.fullmatch(r"more \(adapter\.so\+0x[0-9a-f]+\) was compiled without hooks", why), why


@pytest.mark.parametrize(
    "more", ["-s", "-static-libgcc -ffast-math", "-ffunction-sections -Wl,--gc-sections", "-O0 -flto"]
)
def test_a_library_that_has_hooks_everywhere_is_believed(repository: Repository, more: str) -> None:
    """The compiler's own parts, which it is linked with, have none."""
    division = '__attribute__((visibility("default"))) __int128 quotient(__int128 a, __int128 b) { return a / b; }\n'
    repository.write("src/more.c", MORE + division)
    repository.write("Makefile", MAKEFILE.replace(f"{LINK} ", f"{LINK} {more} "))
    repository.describe(f"{MAKE} libways.so", outputs='"../libways.so"')
    built = repository.built(is_hooked=True)
    assert built.without_hooks() is None
    assert "__divti3" not in symbols(built.path.with_name("libways.so.1")), "the compiler's part is in it"


@pytest.mark.slow
def test_a_program_is_no_adapter(repository: Repository) -> None:
    """Static or not, and whatever its name is."""
    for flags, name in (("-static", "selftest"), ("-pie", "selftest"), ("-static", "selftest.so")):
        command = f"{MAKE} all && $FAULTLINE_CC {flags} -o {name} ../src/selftest.o ../libways.a"
        repository.describe(command, f'"{name}"')
        with pytest.raises(BadInputError, match=f"{re.escape(name)} is a program, and no process can load one"):
            repository.built()


def test_why_a_link_fails_is_told(repository: Repository) -> None:
    repository.describe(MAKE)
    path = repository.folder / "allocator.toml"
    path.write_text(path.read_text().replace("flags = []", 'flags = ["-static"]'))
    with pytest.raises(BadInputError, match=r"ways: g\+\+ failed: .*ld: .*relocation .* when making a shared object"):
        repository.built()


def symbols(path: Path) -> str:
    return subprocess.run(["nm", "--undefined-only", path], capture_output=True, text=True, check=True).stdout


@pytest.mark.slow
def test_only_builds_with_hooks_have_hooks(repository: Repository) -> None:
    hooks = "fl_hook_instruction", "__tsan_read8", "__wrap_memcpy", "__tsan_atomic64_fetch_add"
    plain, hooked = symbols(repository.built().path), symbols(repository.built(is_hooked=True).path)
    repository.describe(f"{MAKE} libways.so", outputs='"../libways.so"')
    library = symbols(repository.built(is_hooked=True).path.with_name("libways.so.1"))
    assert not any(hook in plain for hook in hooks)
    assert all(hook in hooked for hook in hooks[:2]), "more() is not called, so it is not linked"
    assert all(hook in library for hook in hooks)


@pytest.mark.slow
def test_an_archive_may_have_the_adapter(repository: Repository) -> None:
    repository.write("src/more.c", f"#undef faultline_adapter\n{ENTRY}{MORE}")
    repository.write("faultline/entry.c", "extern int nothing;\n")
    answer = answer_of(repository.workshop, SHORT)
    assert (answer.verdict, answer.certificate.complete) == ("pass", True)


def test_names_are_those_of_the_repository(repository: Repository, tmp_path: Path) -> None:
    path = repository.folder / "allocator.toml"
    text = path.read_text().replace(
        "flags = []", f'flags = []\ninclude = ["../src", "{tmp_path}"]\nsources = ["../src/more.c"]'
    )
    path.write_text(text)
    recipe = build.adapter_recipe(repository.clone, find_allocator(repository.clone, "ways"), None, "clwb")
    assert recipe.sources == ("src/more.c", "faultline/entry.c")
    assert [word for word in recipe.arguments if word.startswith("-I")] == ["-I../include", "-Isrc", f"-I{tmp_path}"]


@pytest.mark.slow
def test_sources_beside_the_project_are_built_and_nothing_else_of_the_folder_around_them(
    repository: Repository, tmp_path: Path
) -> None:
    """root: a folder that the allocator's does not lie in. Each edit of it is followed, and no other is."""
    sources = tmp_path / "sources of another"
    sources.mkdir()
    for name in ("src", "Makefile"):
        (repository.top / name).rename(sources / name)
    there = "../../sources of another"
    repository.describe(
        f"make -C '{there}' CC=$FAULTLINE_CC BUG=1", outputs=f'"{there}/libways.a"', more=f'root = "{there}"'
    )
    (tmp_path / "beside").write_text("before")
    (repository.top / "beside").write_text("before")
    answer = answer_of(repository.workshop, SHORT)
    assert (answer.verdict, answer.certificate.engine) == ("fail", "in-process"), answer.certificate.engine_why
    assert all(site.file.startswith("sources of another/src/") for site in answer.findings[0].sites)
    before = repository.built()
    (tmp_path / "beside").write_text("after")
    (repository.top / "beside").write_text("after")
    assert repository.built() == before
    (sources / "src" / "more.c").write_text(f"{MORE}int more_of_it;\n")
    assert repository.built().key != before.key


def test_a_source_outside_of_the_repository_is_bad_input(repository: Repository, tmp_path: Path) -> None:
    (tmp_path / "other.c").write_text("int other;\n")
    path = repository.folder / "allocator.toml"
    path.write_text(path.read_text().replace("flags = []", 'flags = []\nsources = ["../../other.c"]'))
    with pytest.raises(BadInputError, match="lies outside of"):
        repository.built()


@pytest.mark.slow
def test_commits_are_built_by_the_command_of_their_own(repository: Repository, tmp_path: Path) -> None:
    repository.describe(f"{MAKE} BUG=1", more="")
    checkout = tmp_path / "checkout"
    shutil.copytree(repository.top, checkout)
    subprocess.run(["git", "init", "--quiet", checkout], check=True)
    repository.describe(MAKE, more="")
    spec = CellSpec("ways", "ways", 0, 1, "complete", "px86", "clwb")
    result = explore_commit(
        repository.workshop, checkout, "faultline", spec, file_format.parse(SHORT, "ways"), stop_at=None
    )
    assert {finding.rule for finding in result.findings} == {"FL003"}
    assert result.certificate is not None
    assert result.certificate.engine == "in-process"


def test_a_mutant_is_another_build(repository: Repository) -> None:
    assert repository.built().path.read_bytes() != repository.built("UNORDERED").path.read_bytes()


def changed_header(it: Repository) -> None:
    it.write("src/config.h", CONFIG.replace("clwb", "clflushopt"))


def changed_makefile(it: Repository) -> None:
    it.write("Makefile", MAKEFILE.replace("-O1", "-O2"))


def changed_adapter(it: Repository) -> None:
    it.write("faultline/entry.c", ENTRY + "int more_of_it;\n")


def changed_command(it: Repository) -> None:
    it.describe(f"{MAKE} BUG=1")


def changed_flags(it: Repository) -> None:
    text = (it.folder / "allocator.toml").read_text().replace("flags = []", 'flags = ["-DBUG"]')
    it.write("faultline/allocator.toml", text)


def header_that_hides(it: Repository) -> None:
    it.write("src/stdatomic.h", "typedef int nothing;\n#include_next <stdatomic.h>\n")
    it.write("Makefile", MAKEFILE.replace("-O1", "-O1 -Isrc"))


@pytest.mark.parametrize(
    "change",
    [changed_header, changed_makefile, changed_adapter, changed_command, changed_flags, header_that_hides],
    ids=lambda change: change.__name__,
)
def test_edits_are_followed(repository: Repository, change: Callable[[Repository], None]) -> None:
    first = repository.built()
    assert repository.built() == first
    change(repository)
    second = repository.built()
    assert second.key != first.key
    assert second.path.read_bytes() != first.path.read_bytes() or change is header_that_hides
    cache = Cache(repository.clone / "other cache")
    anew = build.build_adapter(repository.clone, cache, find_allocator(repository.clone, "ways"), None, "clwb")
    assert (anew.key, anew.path.read_bytes()) == (second.key, second.path.read_bytes())


def test_a_header_outside_of_the_repository_is_followed(repository: Repository, tmp_path: Path) -> None:
    header = tmp_path / "elsewhere" / "value.h"
    header.parent.mkdir()
    header.write_text("#define VALUE 1\n")
    repository.write("src/more.c", f'#include "{header}"\n{MORE}int value = VALUE;\n')
    first = repository.built()
    header.write_text("#define VALUE 2\n")
    assert repository.built().key != first.key


def test_what_is_as_it_was_is_not_built_again(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    first = repository.built()
    monkeypatch.setattr(build, "_compile", lambda *_: pytest.fail("compiled again"))
    (repository.top / "Makefile").touch()
    assert repository.built() == first


def test_what_git_ignores_is_left_out(repository: Repository) -> None:
    """A stale archive of the author's would be taken for what the command makes."""
    repository.describe(f"! git rev-parse && {MAKE}", more="")
    subprocess.run(["git", "init", "--quiet", repository.top], check=True)
    repository.workshop = replace(repository.workshop, cache=Cache(repository.top / ".faultline"))
    repository.write(".gitignore", "*.a\n*.o\n")
    first = repository.built()
    repository.write("libways.a", "of another build")
    assert repository.built() == first
    repository.write("src/new.c", "int not_yet_committed;\n")
    assert repository.built() != first


def test_links_are_copied_with_what_they_bring(repository: Repository, tmp_path: Path) -> None:
    shutil.move(repository.top / "src", tmp_path / "sources")
    (repository.top / "src").symlink_to(tmp_path / "sources")
    (repository.top / "Makefile").rename(repository.top / "GNUmakefile")
    (repository.top / "Makefile").symlink_to("GNUmakefile")
    first = repository.built()
    (tmp_path / "sources" / "config.h").write_text(CONFIG.replace("clwb", "clflushopt"))
    assert repository.built() != first


def test_compilations_of_other_builds_are_used_again(repository: Repository) -> None:
    repository.built()
    repository.describe(f"{MAKE} ANOTHER=1")
    repository.built()
    cache = repository.workshop.cache.folder / "ccache"
    said = subprocess.run(["ccache", "--dir", cache, "--print-stats"], capture_output=True, text=True, check=True)
    hits = [line.split() for line in said.stdout.splitlines() if "hit" in line]
    assert sum(int(count) for _, count in hits) >= 3, said.stdout


CONFIGURE = """\
#!/bin/sh -e
mkdir -p build; cd build
echo 'int main(void) { return 0; }' > conftest.c
$CC conftest.c -o conftest && ./conftest && $CC -c conftest.c && $CC -o conftest2 conftest.o && ./conftest2
$CC -E conftest.c > conftest.i && $CC --version > version && $CC -M conftest.c | grep -q conftest.o
echo 'int main(void) { return missing_function(); }' > conftest.c
! $CC conftest.c -o conftest 2>/dev/null
echo '#include <string>\\nint main() { return std::string("x").size() - 1; }' > conftest.cc
$CXX conftest.cc -o conftest && ./conftest && $CXX -c -o conftest.o conftest.cc && $CXX conftest.o -o conftest && ./conftest
echo '-I../src -include ../src/config.h -D_GNU_SOURCE -O2' > arguments
$CC @arguments -c ../src/adapter.c ../src/more.c
printf '.globl assembled\\nassembled: mfence; ret\\n' > part.S; $CC -c part.S
$CC -xc -c -o piped.o - < ../src/more.c
$CC -S -o more.s ../src/more.c && $CC -c -o again.o more.s
ar rcs libways.a adapter.o more.o part.o
"""


@pytest.mark.slow
@pytest.mark.parametrize("is_hooked", [False, True])
def test_the_compilers_are_what_a_configure_script_expects(repository: Repository, is_hooked: bool) -> None:
    repository.write("configure", CONFIGURE)
    (repository.top / "configure").chmod(0o755)
    repository.describe("cd .. && ./configure", outputs='"../build/libways.a"')
    assert ("fl_hook_instruction" in symbols(repository.built(is_hooked=is_hooked).path)) is is_hooked


CMAKE = """\
cmake_minimum_required(VERSION 3.13)
project(ways C CXX)
add_library(ways STATIC src/adapter.c src/more.c)
target_compile_options(ways PRIVATE -D_GNU_SOURCE -include ${CMAKE_SOURCE_DIR}/src/config.h)
add_executable(selftest src/selftest.c)
target_link_libraries(selftest ways)
"""


@pytest.mark.skipif(shutil.which("cmake") is None, reason="cmake is not installed")
def test_cmake_builds_it(repository: Repository) -> None:
    repository.write("CMakeLists.txt", CMAKE)
    command = "cmake -S .. -B ../build && cmake --build ../build && ../build/selftest"
    repository.describe(command, outputs='"../build/libways.a"')
    assert "fl_hook_instruction" in symbols(repository.built(is_hooked=True).path)


MESON = """\
project('ways', 'c')
add_project_arguments('-D_GNU_SOURCE', '-include', meson.project_source_root() / 'src/config.h', language: 'c')
ways = static_library('ways', 'src/adapter.c', 'src/more.c')
executable('selftest', 'src/selftest.c', link_with: ways)
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("meson") is None or shutil.which("ninja") is None, reason="meson is not installed")
def test_meson_builds_it(repository: Repository) -> None:
    """Its archive is a thin one: it names the objects, and does not hold them."""
    repository.write("meson.build", MESON)
    command = "cd .. && meson setup build && meson compile -C build && build/selftest"
    repository.describe(command, outputs='"../build/libways.a"')
    assert "fl_hook_instruction" in symbols(repository.built(is_hooked=True).path)


CONFIGURE_AC = """\
AC_INIT([ways], [1.0])
AM_INIT_AUTOMAKE([foreign subdir-objects])
AM_PROG_AR
AC_PROG_CC
AC_CHECK_FUNCS([process_vm_readv])
LT_INIT
AC_CONFIG_HEADERS([config.h])
AC_CONFIG_FILES([Makefile])
AC_OUTPUT
"""
MAKEFILE_AM = """\
AM_CPPFLAGS = -D_GNU_SOURCE -include $(top_srcdir)/src/config.h
lib_LTLIBRARIES = libways.la
libways_la_SOURCES = src/adapter.c src/more.c
libways_la_LDFLAGS = -version-info 3:0:2
check_PROGRAMS = selftest
selftest_SOURCES = src/selftest.c
selftest_LDADD = libways.la
TESTS = selftest
"""


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("autoreconf") is None, reason="autoconf is not installed")
@pytest.mark.skipif(shutil.which("automake") is None, reason="automake is not installed")
@pytest.mark.skipif(shutil.which("libtoolize") is None, reason="libtool is not installed")
def test_autotools_build_it(repository: Repository) -> None:
    """A library of libtool's, which lies in a folder of its own."""
    repository.write("configure.ac", CONFIGURE_AC)
    repository.write("Makefile.am", MAKEFILE_AM)
    repository.write("faultline/entry.c", ENTRY_THAT_CALLS)
    (repository.top / "Makefile").unlink()
    command = "cd .. && autoreconf -i && mkdir -p build && cd build && ../configure && make && make check"
    repository.describe(command, outputs='"../build/.libs/libways.so*"')
    before = repository.files()
    folder = repository.built(is_hooked=True).path.parent
    [library] = folder.glob("libways*")
    assert library.name == "libways.so.1"
    assert "fl_hook_instruction" in symbols(library)
    assert repository.files() == before


@pytest.mark.parametrize(
    ("command", "outputs", "expected"),
    [
        ("echo first; echo the end; exit 7", '"../libways.a"', "failed with exit code 7: .*the end"),
        (f"{MAKE} CFLAGS=-Dstruct=nonsense", '"../libways.a"', "failed with exit code 2: .*error: .*Error 1"),
        ("no-such-program", '"../libways.a"', "failed with exit code 127: .*no-such-program"),
        (MAKE, '"../libnone.a"', "'../libnone.a' matches no file that its build command has made"),
        ("gcc -c ../src/more.c && ar r ../libways.a more.o", '"../libways.a"', "has compiled nothing with"),
    ],
)
def test_a_command_that_goes_wrong_is_bad_input(
    repository: Repository, command: str, outputs: str, expected: str
) -> None:
    repository.describe(command, outputs=outputs)
    with pytest.raises(BadInputError, match=expected) as raised:
        repository.built()
    assert raised.value.hint is not None
    log = Path(raised.value.hint.rpartition(": ")[2])
    assert command in log.read_text()


@pytest.mark.parametrize(
    ("before", "after", "expected"),
    [
        ('root = ".."', 'root = "nowhere"', "build.root: expected a folder, got 'nowhere'"),
        ('root = ".."', 'root = ".."\nsources = ["*.cc"]', "build.sources: '\\*.cc' matches no file"),
        ('outputs = ["../libways.a"]', "outputs = []", "build.outputs: expected what the command makes"),
        (f"command = '''{MAKE}'''", "", "build.root: expected a command that builds it"),
    ],
)
def test_keys_that_do_not_fit_are_bad_input(repository: Repository, before: str, after: str, expected: str) -> None:
    path = repository.folder / "allocator.toml"
    text = path.read_text()
    assert before in text
    path.write_text(text.replace(before, after))
    with pytest.raises(BadInputError, match=expected):
        repository.built()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["libways.a", "libways.so", "libways.so.1"])
def test_a_prebuilt_library_is_enough(repository: Repository, name: str) -> None:
    def prebuild(*arguments: str) -> None:
        flags = f"CFLAGS=-O1 -fPIC -g -D_GNU_SOURCE -I{repository.clone / 'include'} -include src/config.h"
        command = ["make", "--silent", "-C", repository.top, "clean", name, f"{flags} {' '.join(arguments)}"]
        subprocess.run(command, check=True, capture_output=True)

    prebuild()
    repository.describe(None, outputs=f'"../{name}"')
    right = answer_of(repository.workshop, SHORT)
    built = repository.built()
    assert (right.verdict, right.certificate.engine, right.certificate.complete) == ("pass", "traced", True), (
        right.certificate.engine_why
    )
    is_linked_in = right.certificate.engine_why == "adapter.o of libways.a was compiled without hooks"
    assert is_linked_in == (name == "libways.a"), right.certificate.engine_why
    prebuild("-DBUG")
    wrong = answer_of(repository.workshop, SHORT)
    assert (wrong.verdict, wrong.rules) == ("fail", {"FL003"})
    assert repository.built().key != built.key


def environment_of(repository: Repository, text: str) -> None:
    path = repository.folder / "allocator.toml"
    path.write_text(f"{path.read_text()}\n[environment]\n{text}\n")


def test_the_environment_is_that_of_the_build(repository: Repository, monkeypatch: pytest.MonkeyPatch) -> None:
    keys = set()
    repository.describe(f"{MAKE} BUG=$BUG OTHER=$OTHER")
    environment_of(repository, 'pass = ["BUG"]')
    for name, value, is_another in [("BUG", "", True), ("BUG", "1", True), ("OTHER", "1", False)]:
        monkeypatch.setenv(name, value)
        key = repository.built().key
        assert (key not in keys) is is_another
        keys.add(key)


def test_what_a_build_leaves_for_later_goes_with_its_copy(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    users = tmp_path / "users"
    users.mkdir()
    monkeypatch.setenv("TMPDIR", str(users))
    repository.describe(f"touch $TMPDIR/left && {MAKE}")
    assert repository.built().path.is_file()
    assert [*users.iterdir()] == []


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("A = 1", "environment"),
        ('pass = "A"', "environment.pass: expected a list of names of variables, got 'A'"),
        ('pass = ["A=B"]', "environment.pass: expected a list of names of variables"),
        ('A = ["B"]', "environment.A: expected a text"),
        ('"A B" = "1"', "environment: expected names of variables, got 'A B'"),
    ],
)
def test_an_environment_that_is_none_is_bad_input(repository: Repository, text: str, expected: str) -> None:
    environment_of(repository, text)
    with pytest.raises(BadInputError, match=expected):
        find_allocator(repository.clone, "ways")


READER = """\
#include "adapter.h"
#include <stdlib.h>
#include <string.h>
const struct fl_adapter *ways_adapter(void);
static int is(const char *name, const char *value) { return getenv(name) != NULL && strcmp(getenv(name), value) == 0; }
static int open_if_told(const struct fl_heap_options *options, fl_heap **heap) {
    int is_told = is("OWN", "one") && is("PASSED", "two") && getenv("OTHER") == NULL && is("LC_ALL", "C");
    return is_told ? ways_adapter()->open(options, heap) : FL_CORRUPT;
}
__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static struct fl_adapter table;
    table = *ways_adapter();
    table.open = open_if_told;
    return &table;
}
"""


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["in-process", "traced"])
def test_the_target_has_its_environment_everywhere(
    repository: Repository, monkeypatch: pytest.MonkeyPatch, engine: str
) -> None:
    """Traced and recovered, in the engine's processes and in twins."""
    repository.write("faultline/entry.c", READER)
    environment_of(repository, 'OWN = "one"\npass = ["PASSED", "UNSET"]')
    monkeypatch.setenv("PASSED", "two")
    monkeypatch.setenv("OTHER", "three")
    monkeypatch.setenv("LC_ALL", "C.UTF-8")
    options = {"replay_engine": "traced"} if engine == "traced" else {}
    answer = answer_of(repository.workshop, SHORT, **options)
    assert (answer.verdict, answer.certificate.engine) == ("pass", engine), answer.messages
