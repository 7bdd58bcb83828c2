# SPDX-License-Identifier: Apache-2.0
"""Compiles allocators, mutants and the runner, each once: the key of a build is a hash over its command lines, the compiler's
version and everything that compiler, linker and loader read (inputs.py), wherever that lies. Paths in commands are relative to the
clone, and debug information is mapped to it too, so that a build is the same in every clone.

Each source is compiled by itself, through ccache. A mutant differs from the clean allocator in one source or two; the objects of
the others are those of the clean build (objects.py)."""

from __future__ import annotations

import functools
import os
import re
import shlex
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultline.base.cache import Cache, hint_to_install, key_of, project_root
from faultline.base.config import Allocator, Flush, repository_of
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.project import headers_of
from faultline.pipeline import objects
from faultline.pipeline.command import OwnBuild, is_telling
from faultline.pipeline.compiler import CXX, Settings
from faultline.pipeline.hooked_code import part_without_hooks
from faultline.pipeline.inputs import (
    SEARCHED_BY_ENVIRONMENT,
    Inputs,
    first_rule,
    inputs_of,
    libraries_of,
    portable,
    without_hooks,
)
from faultline.pipeline.packages import expect_packages

SOURCE_SUFFIXES = {".c", ".cc", ".cpp", ".h", ".hh", ".hpp", ".S"}
"""Of sources in C++, as the compiler knows them. All others are C, or assembly."""
COMPILE_LIMIT_S = 600
"""No translation unit here takes more than seconds; a compiler that hangs is an error, not a wait."""
COMPILE_TRIES = 3
CCACHE_SIZE = "1G"
"""All mutants of all allocators, twice each, are a twentieth of that."""


@dataclass(frozen=True)
class Recipe:
    """How one file is made of sources: each is compiled with arguments, by the compiler of its language, and the objects are linked
    with those of link."""

    what: str
    output: str
    arguments: tuple[str, ...]
    sources: tuple[str, ...]
    link: tuple[str, ...]
    assembler: Path | None = None
    """In the place of the compiler's."""
    only_c: tuple[str, ...] = ()
    """Arguments of sources in C, after the others."""
    only_cxx: tuple[str, ...] = ()
    """And of those in C++."""
    prebuilt: tuple[str, ...] = ()
    """Objects, archives and shared libraries to be linked, too."""
    made: Made | None = None
    """What makes more of them."""
    generator: str | None = None
    """What makes one more source of the objects."""
    has_mutants: bool = False
    """Its objects are kept for them."""
    mutant: str | None = None
    clean: Recipe | None = None
    """Of a mutant: the same without it."""

    @property
    def linker(self) -> str:
        """The compiler that knows the libraries of all languages there are."""
        return "g++" if any(map(is_cxx, self.sources)) or self.made or self.generator else "gcc"

    def command(self, source: str) -> list[str]:
        """What compiles it."""
        compiler, own = ("g++", self.only_cxx) if is_cxx(source) else ("gcc", self.only_c)
        return [compiler, *self.arguments, *own]

    def stem(self) -> str:
        """Of what is known before it is built."""
        # Builds of before were not asked for parts without hooks.
        version = f"{version_of_assembler(self.assembler)} {WITHOUT_HOOKS}" if self.assembler else ""
        words = (*self.arguments, version, *self.sources, "", *self.link, "", *self.only_c, "", *self.only_cxx, "")
        searched = (os.environ.get(variable, "") for variable in SEARCHED_BY_ENVIRONMENT)
        made = (self.made.stem(),) if self.made else ()
        kept = (objects.FOLDER,) if self.has_mutants else ()
        generated = (self.generator,) if self.generator else ()
        return key_of(
            self.output,
            version_of(self.linker),
            *map(portable, words),
            *searched,
            *self.prebuilt,
            *made,
            *kept,
            *generated,
        )

    def key(self, root: Path, inputs: Inputs) -> str:
        made = self.made.own.contents() if self.made else ()
        return key_of(self.stem(), *inputs.contents(root), *made)


@dataclass(frozen=True)
class Made:
    """What the author's own build makes, in a copy that is then the root of the recipe. tool: the clone; include: folders in which
    what it compiles is looked for, too, after all others; own_c and own_cxx: its flags."""

    own: OwnBuild
    tool: Path
    include: tuple[str, ...]
    own_c: tuple[str, ...]
    own_cxx: tuple[str, ...]
    is_hooked: bool

    def stem(self) -> str:
        headers = (path.read_bytes() for path in sources_below(self.tool / "include"))
        return key_of(self.own.stem(), *self.include, "", *self.own_c, "", *self.own_cxx, "", *headers)


def is_cxx(source: str) -> bool:
    return Path(source).suffix in CXX


@dataclass(frozen=True)
class Built:
    path: Path
    key: str

    def without_hooks(self) -> str | None:
        """Of an adapter with hooks: a part that was compiled without them."""
        path = self.path.parent / WITHOUT_HOOKS
        return path.read_text() if path.exists() else None


WITHOUT_HOOKS = "without-hooks"
"""Beside an adapter with hooks, where a part of it has none: which."""


@functools.cache
def version_of(program: str) -> str:
    """The first line of what it says."""
    if shutil.which(program) is None:
        raise InfrastructureError(f"{program} was not found on PATH", hint_to_install())
    run = subprocess.run([program, "--version"], capture_output=True, text=True, check=False)
    return run.stdout.partition("\n")[0]


def sources_below(*folders: Path) -> tuple[Path, ...]:
    """C and C++ sources and headers below the folders, tests left out, sorted."""
    found = {
        path
        for folder in folders
        for path in folder.rglob("*")
        if path.suffix in SOURCE_SUFFIXES and path.is_file() and "tests" not in path.relative_to(folder).parts
    }
    return tuple(sorted(found))


def make(root: Path, cache: Cache, recipe: Recipe) -> Built:
    """From the cache if all that was read is as it was. A source that is written meanwhile is read again."""
    listed = cache.folder / "builds" / f"{recipe.stem()}.inputs"
    with cache.lock(listed.with_suffix("")):
        inputs = cache.kept("builds", listed.name, Inputs)
        key = recipe.key(root, inputs) if inputs else ""
        if inputs and cache.has_folder("builds", key):
            return Built(cache.folder / "builds" / key / recipe.output, key)
        for _ in range(COMPILE_TRIES):
            started_ns = time.time_ns()
            made_of = list(recipe.made.own.contents()) if recipe.made else []
            with cache.new_folder("builds") as temporary:
                inputs = _compile(root, cache, recipe, temporary)
                if inputs.are_younger(root, started_ns) or (recipe.made and made_of != [*recipe.made.own.contents()]):
                    continue
                key = recipe.key(root, inputs)
                folder = cache.keep_folder("builds", key, temporary)
            cache.keep("builds", listed.name, inputs)
            return Built(folder / recipe.output, key)
    raise InfrastructureError(f"{recipe.what}: its sources were written each time they were compiled", "try again")


def _write(content: bytes, path: Path) -> None:
    path.write_bytes(content)


def _compile(root: Path, cache: Cache, recipe: Recipe, folder: Path) -> Inputs:
    log = cache.folder / "builds" / f"{recipe.stem()}.log"
    log.unlink(missing_ok=True)
    if recipe.made is None:
        prebuilt = [root / name for name in recipe.prebuilt]
        return _compile_in(root, cache, recipe, folder, log, prebuilt, recipe.prebuilt)
    with cache.new_folder("builds") as temporary:
        place = temporary.resolve()  # as compilers see it, which is mapped to `.`
        copied = place / "tree"
        outputs, read = _run_command(cache, recipe, recipe.made, place, log)
        inputs = _compile_in(copied, cache, recipe, folder, log, outputs, read)
    elsewhere = [name for name in inputs.read if name.startswith("/")]
    return Inputs(elsewhere, [name for name in inputs.hiding if name.startswith("/")])  # the tree's files count anyhow


def _run_command(cache: Cache, recipe: Recipe, made: Made, place: Path, log: Path) -> tuple[list[Path], list[str]]:
    """In place: `tree`, the copy, and beside it what else is needed."""
    copied, tools = place / "tree", place / "tools"
    made.own.copy(copied)
    included = [f"-idirafter{folder}" for folder in (*(copied / name for name in made.include), place / "include")]
    shutil.copytree(made.tool / "include", place / "include")
    settings = Settings(
        compilers={"c": "gcc", "c++": "g++"},
        first=list(OF_COMMANDS),
        own={"c": [*included, *made.own_c], "c++": [*included, *made.own_cxx]},
        last=[
            "-fPIC",
            f"-ffile-prefix-map={place}=.",
            f"-ffile-prefix-map={copied}=.",
            *([assembled_by(recipe.assembler)] if recipe.assembler else []),
        ],
        hooks=list(HOOKS) if made.is_hooked else [],
        wraps=[*WRAPS, "-Wl,-z,undefs"],
        hooks_off=str(build_hooks_off(made.tool, cache).path) if made.is_hooked else "",
        read=str(place / "read"),
        launcher=["env", "-u", "CCACHE_DISABLE", "ccache"],
    )
    ccache = {name: value for name, value in _of_ccache(cache, recipe).items() if name.startswith("CCACHE_")}
    return made.own.run(recipe.what, copied, tools, settings, ccache, log)


def _compile_in(
    root: Path, cache: Cache, recipe: Recipe, folder: Path, log: Path, prebuilt: list[Path], made_of: Iterable[str]
) -> Inputs:
    """prebuilt: what is linked, too; made_of: what was read so far."""
    arguments = (*recipe.arguments, *recipe.only_c, *recipe.only_cxx, *recipe.link)
    place = folder / objects.FOLDER
    place.mkdir()
    own, read_for = _compile_sources(root, cache, recipe, place, log)
    read = [*made_of, *_named_in_arguments(root, arguments), *read_for]
    output, rule = folder / recipe.output, folder / "rule.d"
    _expect_no_program(recipe.what, prebuilt)
    listing = f"-Wl,--dependency-file={rule}"
    linked = [*own, *_linked(prebuilt, folder)]
    run_in(root, recipe.what, [recipe.linker, "-o", str(output), *linked, *recipe.link, listing], log)
    linked_files = first_rule(rule)
    read += linked_files
    rule.unlink()
    if recipe.assembler:
        others = [root / name for name in linked_files if name not in own]
        if recipe.made and any(map(_is_shared, prebuilt)):
            others += root.rglob("*.o")  # what of them its build linked into the library nobody says
        libraries = [output, *filter(_is_shared, prebuilt)]
        if part := without_hooks(others) or next(filter(None, map(part_without_hooks, libraries)), ""):
            (folder / WITHOUT_HOOKS).write_text(part)
    if not recipe.has_mutants:
        shutil.rmtree(place)
    read += libraries_of(output)
    return inputs_of(root, read, arguments, folder)


def _compile_sources(root: Path, cache: Cache, recipe: Recipe, place: Path, log: Path) -> tuple[list[str], list[str]]:
    """The objects, in place, and what was read for them."""
    # Of several that begin a name, the compiler takes the last one.
    roots = sorted({str(root), str(project_root())}, key=len)
    more = [f"-ffile-prefix-map={one}=." for one in roots]
    if recipe.assembler:
        more.append(assembled_by(recipe.assembler))
    environment = _of_ccache(cache, recipe)
    clean = make(root, cache, recipe.clean).path.parent if recipe.clean else None
    of_clean = objects.kept(clean) if clean else objects.Objects({})
    compiled: dict[str, objects.Object] = {}
    own: list[str] = []
    read: list[str] = []
    rule = place / "rule.d"

    def compiled_to(target: Path, source: str, *also: str) -> list[str]:
        """What was read for it."""
        command = ["ccache", *recipe.command(source), *more, *also, "-MD", "-MF", str(rule), "-c", "-o", str(target)]
        run_in(root, recipe.what, [*command, source], log, environment)
        read_here = first_rule(rule)
        rule.unlink()
        return read_here

    for number, source in enumerate(recipe.sources):
        target = place / f"{number}.o"
        own.append(str(target))
        if clean and (same := of_clean.without(source, recipe.mutant or "")):
            shutil.copy(clean / objects.FOLDER / same.file, target)
            read += same.read
            continue
        read_here = compiled_to(target, source)
        read += read_here
        if recipe.has_mutants:
            compiled[source] = objects.object_of(root, target.name, read_here)
    if recipe.has_mutants:
        objects.keep(place.parent, compiled)
    if recipe.generator:
        generated, target = place / GENERATED, place / f"{len(own)}.o"
        command = [sys.executable, recipe.generator, *own]
        generated.write_text(run_in(root, recipe.what, command, log, of=recipe.generator))
        read_here = compiled_to(target, str(generated), f"-ffile-prefix-map={place}=.")
        read += [recipe.generator, *(name for name in read_here if name != str(generated))]
        own.append(str(target))
    return own, read


GENERATED = "generated.cpp"
"""Beside the objects that it is made of."""


ELF, ELF_TYPE, A_PROGRAM, A_LIBRARY = b"\x7fELF", slice(16, 18), 2, 3
"""What a file begins with, and where its type is (ET_EXEC, ET_DYN)."""


def _expect_no_program(what: str, files: list[Path]) -> None:
    for path in files:
        with path.open("rb") as file:
            start = file.read(ELF_TYPE.stop)
        kind = int.from_bytes(start[ELF_TYPE], "little") if start.startswith(ELF) else 0
        if kind == A_PROGRAM or (kind == A_LIBRARY and not _is_shared(path)):
            raise BadInputError(
                f"{what}: build.outputs: {path.name} is a program, and no process can load one as an adapter",
                "name objects, archives (.a) or shared libraries (.so), not linked with -static",
            )


def _linked(files: list[Path], folder: Path) -> list[str]:
    """The linker's arguments. Shared libraries are kept in folder, under the names by which the loader asks for them."""
    shared = list(filter(_is_shared, files))
    words = [str(path) for path in files if path not in shared]
    if words:
        words = ["-Wl,--start-group", *words, "-Wl,--end-group"]
    for path in shared:
        name = _soname_of(path) or path.name
        shutil.copy(path, folder / name)
        words.append(f"-l:{name}")
    if shared:
        words = [f"-L{folder}", *words, "-Wl,--disable-new-dtags,-rpath,$ORIGIN"]
    return words


def _is_shared(path: Path) -> bool:
    return re.search(r"\.so(\.[0-9]+)*$", path.name) is not None


def _soname_of(library: Path) -> str | None:
    command = ["readelf", "--dynamic", "--wide", str(library)]
    environment = {**os.environ, "LC_ALL": "C"}
    run = subprocess.run(command, capture_output=True, text=True, errors="replace", check=False, env=environment)
    found = re.search(r"\(SONAME\).*\[(.*)\]", run.stdout)
    return Path(found[1]).name if found else None


def _named_in_arguments(root: Path, arguments: Iterable[str]) -> Iterator[str]:
    """Files of more arguments, which no rule names."""
    for argument in arguments:
        if argument.startswith("@") and (root / argument[1:]).is_file():
            yield argument[1:]


def _of_ccache(cache: Cache, recipe: Recipe) -> dict[str, str]:
    """The environment of a compilation: ccache with a folder of its own, without what is set up for others. The assembler changes
    an object as much as the compiler does. What a source includes is found anew each time, by the preprocessor:
    of a header that hides another one since, no list of those that were read knows."""
    others = {name: value for name, value in os.environ.items() if not name.startswith("CCACHE_")}
    own = {
        "CCACHE_DIR": str(cache.folder / "ccache"),
        "CCACHE_CONFIGPATH": os.devnull,
        "CCACHE_MAXSIZE": CCACHE_SIZE,
        "CCACHE_NODIRECT": "1",
        "CCACHE_EXTRAFILES": str(recipe.assembler or ""),
    }
    return {**others, **own}


def run_in(
    root: Path,
    what: str,
    command: list[str],
    log: Path,
    environment: Mapping[str, str] = os.environ,
    of: str | None = None,
) -> str:
    """Runs a compiler, make or a generator in root; everything it says is added to log. What it writes to its standard output. of:
    what the program is called, if not by the first word."""
    environment = {**environment, "LC_ALL": "C"}
    try:
        run = subprocess.run(
            command,
            cwd=root,
            env=environment,
            capture_output=True,
            text=True,
            errors="replace",
            check=False,
            timeout=COMPILE_LIMIT_S,
        )
    except FileNotFoundError as error:
        raise InfrastructureError(f"{command[0]} was not found on PATH", hint_to_install()) from error
    except subprocess.TimeoutExpired as error:
        raise InfrastructureError(f"{what}: {command[0]} ran for more than {COMPILE_LIMIT_S} s") from error
    with log.open("a", encoding="utf-8") as file:
        file.write(f"{shlex.join(command)}\n{run.stdout}{run.stderr}")
    if run.returncode != 0:
        program = of or next(word for word in command if word != "ccache")
        raise BadInputError(f"{what}: {program} failed: {_first_error(run.stderr)}", f"all of its output: {log}")
    return run.stdout


def _first_error(said: str) -> str:
    lines = said.splitlines()
    telling = filter(is_telling, lines)
    return next(telling, lines[-1] if lines else "no message").strip()


def relative(root: Path, paths: Iterable[Path]) -> list[str]:
    """As they are named in a build in root: without `..` where what they name lies in there, in what is linked there as well."""
    return [_named(root, path) for path in paths]


def _named(root: Path, path: Path) -> str:
    if ".." in path.parts and path.resolve().is_relative_to(root.resolve()):
        return path.resolve().relative_to(root.resolve()).as_posix()
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else os.path.relpath(path, root)


# ---- allocators ----------------------------------------------------------------------------------------------------------

OPTIMISATION = ("-g", "-O2", "-fno-optimize-sibling-calls")
"""As their users build them, with line tables for sites, and with the frame of every caller (no tail calls)."""
COMMON_INCLUDE = "-Iinclude"


OF_COMMANDS = ("-g", "-fno-optimize-sibling-calls")
"""Of what an author's own build compiles: the same, but it optimises as it says."""


def flags_of(allocator: Allocator, *, is_cxx: bool) -> tuple[str, ...]:
    """Of its sources in one of the languages: the standard, then its own flags."""
    standard = "gnu++20" if is_cxx else "gnu11"
    return (f"-std={standard}", *own_flags_of(allocator, is_cxx=is_cxx))


def own_flags_of(allocator: Allocator, *, is_cxx: bool) -> tuple[str, ...]:
    """A `-std=` of both languages is of one."""
    build = allocator.build
    of_other = "-std=c", "-std=gnu", "-std=iso"
    both = [flag for flag in build.flags if not flag.startswith(of_other) or ("++" in flag) == is_cxx]
    return (*both, *(build.cxx_flags if is_cxx else build.c_flags))


HOOKED_CALLS = (
    *("memcpy", "memmove", "mempcpy", "bcopy", "memset", "bzero", "explicit_bzero"),
    *("memcmp", "bcmp", "memchr", "rawmemchr", "strcmp", "strncmp"),
    *("strlen", "strnlen", "strchr", "strchrnul", "strrchr"),
    *("stpcpy", "strcpy", "strncpy", "strcat", "strdup", "strndup", "qsort"),
)
"""Functions of the C library that access memory for their caller: runner/hooks/hooks.c has its own of each."""
WRAPS = tuple(f"-Wl,--wrap={call}" for call in HOOKED_CALLS)
HOOKS = (
    "-fsanitize=thread",
    "--param=tsan-instrument-func-entry-exit=0",
    "-fno-builtin",
    "-fno-tree-loop-distribute-patterns",
    "-fno-tree-ter",
    "-fno-lto",
)
"""Every load and store of the sources calls a function of the runner first. A compiler that knows memcpy, or makes one of a loop,
expands it without. One that puts a load into the expression that it is for (temporary expression replacement) loads what a
`switch` is over twice: for its bounds and for its table. What the compiler calls nothing for, the assembler does ([assembler]); one
that optimises when it links would show the assembler nothing."""
ASSEMBLER_PREFIX = "faultline-"


def assembler() -> Path:
    """It announces what instructions do, inline assembly included (runner/assembler)."""
    return Path(sysconfig.get_path("scripts")) / f"{ASSEMBLER_PREFIX}as"


def assembled_by(path: Path) -> str:
    """The argument by which a compiler finds it."""
    return f"-B{path.parent}/{ASSEMBLER_PREFIX}"


@functools.cache
def version_of_assembler(path: Path) -> str:
    """Another one for each change of it."""
    if not os.access(path, os.X_OK):
        raise InfrastructureError(
            f"{path}: the assembler of builds with hooks is not there",
            hint_to_install("make setup builds it", "install faultline again"),
        )
    run = subprocess.run([path, "--faultline-version"], capture_output=True, text=True, check=True)
    return run.stdout.strip()


def hooked_link(*, has_cxx: bool) -> tuple[str, ...]:
    """Without the compiler's default libraries, which would be those of the sanitizer too."""
    libraries = ("-lstdc++", "-lm", "-lgcc_s") if has_cxx else ()
    return ("-nodefaultlibs", *WRAPS, *libraries, "-lc", "-lgcc")


def flush_definition(flush: Flush) -> str:
    """For persist.h."""
    return f"-DFL_FLUSH_{flush.upper()}"


def adapter_recipe(
    root: Path,
    allocator: Allocator,
    mutant: str | None,
    flush: Flush,
    is_hooked: bool = False,
    left_out: Path | None = None,
) -> Recipe:
    """is_hooked: variant `hooks`, whose loads of PM the runner sees (runner/protocol.h); left_out: a folder that is no part of
    what a command builds."""
    if mutant is not None:
        allocator.mutant_named(mutant)
    folder, tool = Path(allocator.folder), root if is_laid_out(root) else project_root()
    build = allocator.build
    own = own_build_of(folder.resolve(), allocator, left_out) if build.command else None
    if own:
        root, folder = own.tree, own.folder
    matches(folder, "build.helpers", build.helpers)  # one that is not there would go unnoticed
    hooks = HOOKS if is_hooked else ()
    defines = (flush_definition(flush), *([f"-DMUTANT_{mutant}"] if mutant else []))
    includes = _included_in(root, folder, build.include, is_copied=own is not None)
    arguments = (
        *OPTIMISATION,
        *("-fPIC", "-Wall", "-Wextra", "-pthread", "-D_GNU_SOURCE"),
        "-I../include" if own else include_of_adapters(root),
        *(f"-I{include}" for include in includes),
        *defines,
    )
    only_c = (*flags_of(allocator, is_cxx=False), *hooks)
    only_cxx = (*flags_of(allocator, is_cxx=True), *hooks)
    listed = (*matches(folder, "build.sources", build.sources), *matches(folder, "build.adapter", build.adapter))
    sources = tuple(map(own.name_of, listed) if own else relative(root, listed))
    prebuilt = () if own else tuple(relative(root, matches(folder, "build.outputs", build.outputs)))
    link = (
        *("-shared", "-pthread", *build.flags),
        *(["-Wl,--undefined=faultline_adapter"] if build.outputs else []),  # an archive may have the adapter
        *(f"-l{library}" for library in build.libraries),
        *(hooked_link(has_cxx=bool(own) or any(map(is_cxx, sources))) if is_hooked else ()),
    )
    what = allocator.name + (f" with mutant {mutant}" if mutant else "") + (" with hooks" if is_hooked else "")
    assembled = assembler() if is_hooked else None
    made = None
    if own:
        own_c, own_cxx = ((*defines, *own_flags_of(allocator, is_cxx=is_cxx)) for is_cxx in (False, True))
        made = Made(own, tool, includes, own_c, own_cxx, is_hooked)
    is_clean = own is None and mutant is None
    return Recipe(
        what,
        "adapter.so",
        arguments,
        sources,
        link,
        assembled,
        only_c,
        only_cxx,
        prebuilt,
        made,
        generator=_generator_of(root, folder, allocator),
        has_mutants=is_clean and bool(allocator.mutant),
        mutant=mutant,
        clean=adapter_recipe(root, allocator, None, flush, is_hooked, left_out) if mutant and not own else None,
    )


def _generator_of(root: Path, folder: Path, allocator: Allocator) -> str | None:
    if allocator.build.generator is None:
        return None
    if allocator.build.command:
        raise BadInputError(
            f"{folder / 'allocator.toml'}: build.generator: expected none beside build.command",
            "let the command run it",
        )
    return relative(root, matches(folder, "build.generator", [allocator.build.generator]))[0]


def _included_in(root: Path, folder: Path, include: list[str], *, is_copied: bool) -> tuple[str, ...]:
    """is_copied: root is a tree without links to folders above; what lies outside is not copied."""
    if not is_copied:
        return tuple(relative(root, [folder / name for name in include]))
    found = (Path(os.path.normpath(folder / name)) for name in include)
    return tuple((path.relative_to(root) if path.is_relative_to(root) else path).as_posix() for path in found)


def own_build_of(folder: Path, allocator: Allocator, left_out: Path | None) -> OwnBuild:
    """folder: where allocator.toml is."""
    build = allocator.build
    root = repository_of(folder) if build.root is None else (folder / build.root).resolve()
    if not root.is_dir():
        raise BadInputError(f"{folder / 'allocator.toml'}: build.root: expected a folder, got {build.root!r}")
    tree, parts = root, [root]
    if not folder.is_relative_to(root):  # sources of another's, beside the project
        tree, parts = Path(os.path.commonpath([folder, root])), [root, folder]
    return OwnBuild(
        tree, tuple(parts), folder, build.command or "", tuple(build.outputs), allocator.variables(), left_out
    )


def is_laid_out(root: Path) -> bool:
    """As a clone is: what is compiled with an allocator lies there."""
    return headers_of(root) is not None and (root / "runner" / "hooks").is_dir()


def include_of_adapters(root: Path) -> str:
    """The folder of adapter.h: root's own, where it has one, else that of the installation."""
    own = headers_of(root)
    return f"-I{own.relative_to(root).as_posix() if own else project_root() / 'include'}"


def matches(folder: Path, key: str, globs: list[str]) -> list[Path]:
    found: list[Path] = []
    for glob in globs:
        if not glob or glob.startswith("/"):
            raise BadInputError(
                f"{folder / 'allocator.toml'}: {key}: expected names below {folder}, got {glob!r}",
                "`..` leads out of it",
            )
        matches = sorted(path for path in folder.glob(glob) if path.is_file())
        if not matches:
            raise BadInputError(f"{folder / 'allocator.toml'}: {key}: {glob!r} matches no file in {folder}")
        found += [match for match in matches if match not in found]
    return found


def build_adapter(
    root: Path, cache: Cache, allocator: Allocator, mutant: str | None, flush: Flush, is_hooked: bool = False
) -> Built:
    expect_packages(allocator)
    recipe = adapter_recipe(root, allocator, mutant, flush, is_hooked, cache.folder)
    return make(recipe.made.own.tree if recipe.made else root, cache, recipe)


# ---- runner --------------------------------------------------------------------------------------------------------------


def build_hooks_off(root: Path, cache: Cache) -> Built:
    """An object for programs that a command makes of objects with hooks: hooks that do nothing (runner/hooks/off.c)."""
    arguments = (
        "-std=c11",
        "-O2",
        "-fPIC",
        "-fvisibility=hidden",
        "-DFL_HOOKS_OFF",
        COMMON_INCLUDE,
        "-Irunner",
    )
    sources = tuple(f"runner/hooks/{name}.c" for name in ("hooks", "entry", "off"))
    return make(root, cache, Recipe("hooks that do nothing", "off.o", arguments, sources, ("-r", "-nostdlib")))


def runner_recipe(root: Path) -> Recipe:
    folder = root / "runner"
    arguments = (
        *("-std=c11", *OPTIMISATION, "-Wall", "-Wextra", "-Werror=implicit-function-declaration", "-pthread"),
        "-fvisibility=hidden",  # an adapter's function that has the name of one of the runner's is its own
        *(COMMON_INCLUDE, "-Ipintools", "-Irunner"),
    )
    sources = tuple(relative(root, [path for path in sources_below(folder) if path.suffix == ".c"]))
    link = (
        *("-pthread", "-rdynamic"),
        "-Wl,-z,now",  # names are found once, by the server: each life would find them again, and fault in what it writes for that
        "-ldl",
    )
    return Recipe("the runner", "runner", arguments, sources, link)


def build_runner(root: Path, cache: Cache) -> Built:
    return make(root, cache, runner_recipe(root))


def check_adapter(runner: Built, adapter: Built, what: str) -> frozenset[str]:
    """Whether the runner can load the adapter: its symbol, its ABI version, its required functions. In a process of its own:
    the front never loads a target. What it can, by the names that the runner has for capabilities: link, transactions."""
    command = [str(runner.path), "check-adapter", "--adapter", str(adapter.path)]
    run = subprocess.run(
        command, capture_output=True, text=True, errors="replace", check=False, timeout=COMPILE_LIMIT_S
    )
    if run.returncode != 0:
        lines = run.stderr.strip().splitlines() or [f"exit code {run.returncode}"]
        raise BadInputError(f"{what}: its adapter cannot be used: {lines[-1].removeprefix('runner: error: ')}")
    return frozenset(run.stdout.split()[1:])
