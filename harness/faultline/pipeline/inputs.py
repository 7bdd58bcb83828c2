# SPDX-License-Identifier: Apache-2.0
"""What a build reads: the files that compiler and linker say they opened, wherever they lie, and the libraries that the program is
run with. Of each its content counts. A file that would be read in another one's place if it were there counts by its absence."""

from __future__ import annotations

import functools
import hashlib
import os
import re
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path, PurePath

import msgspec

from faultline.base.cache import project_root

SEARCHED_BY_ENVIRONMENT = ("CPATH", "C_INCLUDE_PATH", "CPLUS_INCLUDE_PATH", "LIBRARY_PATH", "LD_LIBRARY_PATH")
"""Variables that say where compiler, linker and loader look."""
INCLUDE_OPTIONS = ("-I", "-iquote", "-isystem", "-idirafter")
LIBRARY_OPTION = "-L"
SPELLED_PARTS = 3
"""Of a header's path, by which a source may have named it: <a/b/c.h>. A header that comes to hide one of a longer name goes
unnoticed."""
SYSTEM = "/usr/"
INSTALLATION = "<faultline>"
"""In keys, in the place of the folder that faultline is installed in."""
ASSEMBLED = re.compile(r"""\.incbin\s+\\?"([^"\\]+)""")
"""What a source has the assembler read, which says nothing of it."""
ASKED_FOR = re.compile(r"""__has_include(?:_next)?\s*\(\s*[<"]([^>"]+)""")
"""What a source asks the preprocessor for."""


class Inputs(msgspec.Struct, frozen=True):
    """Of a build in a root; names below it are relative to it. read: what it read; hiding: where something would have been found
    before that, or instead of nothing."""

    read: list[str]
    hiding: list[str]

    def contents(self, root: Path) -> Iterator[str]:
        """For a key: names, and what is in the files now."""
        for name in self.read:
            yield name
            yield content_of(place_of(root, name))
        yield "hiding"
        yield from _files_of(root, self.hiding)

    def are_younger(self, root: Path, time_ns: int) -> bool:
        """Whether one was written since."""
        return any(_mtime_ns(place_of(root, name)) > time_ns for name in self.read)


def _files_of(root: Path, names: Iterable[str]) -> Iterator[str]:
    """Those that are there. Of the many that are not, most lie in few folders: each is listed once."""
    listed: dict[str, frozenset[str] | None] = {}
    for name in names:
        folder, _, last = name.rpartition("/")
        if folder not in listed:
            listed[folder] = _entries_of(place_of(root, f"{folder}/" if name.startswith("/") else folder))
        entries = listed[folder]
        if (entries is None or last in entries) and place_of(root, name).is_file():
            yield name


def _entries_of(folder: Path) -> frozenset[str] | None:
    """None: it may not be listed, which keeps no compiler from opening a file in it."""
    try:
        with os.scandir(folder) as entries:
            return frozenset(entry.name for entry in entries)
    except PermissionError:
        return None
    except OSError:
        return frozenset()


def _mtime_ns(path: Path) -> int:
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0


def content_of(path: Path) -> str:
    """A hash; empty for a file that is gone."""
    try:
        found = path.stat()
        return _hash(str(path), found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns)
    except OSError:
        return ""


@functools.lru_cache(maxsize=1 << 16)
def _hash(path: str, *identity: int) -> str:  # noqa: ARG001
    with Path(path).open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


NAMES_OF_HOOKS = ("__tsan_", "fl_hook_")
"""How the names of hooks begin."""
OF_COMPILERS = frozenset(
    {
        "crti.o",
        "crtn.o",
        "crtbeginS.o",
        "crtendS.o",
        "libgcc.a",
        "libgcc_eh.a",
        "libc_nonshared.a",
        "libpthread.a",
        "libm.a",
    }
)
"""What every shared library is linked with: none of it accesses memory that is not its own or given to it."""


def first_rule(path: Path) -> list[str]:
    """The prerequisites of the first rule of a makefile that compiler or linker wrote."""
    text = path.read_text(errors="surrogateescape").replace("\\\n", " ").partition("\n")[0]
    _, _, listed = text.partition(": ")
    names = re.findall(r"(?:\\.|[^\s\\])+", listed)
    return [re.sub(r"\\(.)", r"\1", name).replace("$$", "$") for name in names]


def libraries_of(program: Path) -> list[str]:
    """Shared libraries that the loader finds for it."""
    run = subprocess.run(["ldd", program], capture_output=True, text=True, errors="surrogateescape", check=False)
    return re.findall(r"^\s+(?:\S+ => )?(/.+) \(0x[0-9a-f]+\)$", run.stdout, re.MULTILINE)


def without_hooks(linked: Iterable[Path]) -> str:
    """The first object with code, of objects and archives, that calls no hook: `peek.o of libpeek.a`; empty: there is none."""
    for path in sorted({path for path in linked if path.suffix in (".a", ".o") and path.name not in OF_COMPILERS}):
        for member, symbols in _symbols_of(path).items():
            has_code = any(kind in "TtWwi" for kind, _ in symbols)
            if has_code and not any(kind == "U" and name.startswith(NAMES_OF_HOOKS) for kind, name in symbols):
                return f"{member} of {path.name}" if member else path.name
    return ""


def _symbols_of(path: Path) -> dict[str, list[tuple[str, str]]]:
    """Kinds and names, by member of an archive."""
    run = subprocess.run(["nm", "-A", path], capture_output=True, text=True, errors="surrogateescape", check=False)
    found: dict[str, list[tuple[str, str]]] = {}
    for line in run.stdout.splitlines():
        where, _, symbol = line.removeprefix(f"{path}:").rpartition(":")
        *_, kind, name = symbol.split()
        found.setdefault(where, []).append((kind, name))
    return found


def inputs_of(root: Path, read: Iterable[str], arguments: Iterable[str], left_out: Path) -> Inputs:
    """read: as compiler and linker name them, in a build in root; left_out: the folder that it wrote to."""
    names = {below(root, name) for name in read if not PurePath(name).is_relative_to(left_out)}
    texts = [text for name in names if not name.startswith(SYSTEM) and (text := _text(place_of(root, name)))]
    names |= {name for text in texts for name in ASSEMBLED.findall(text)}
    there = sorted(name for name in names if place_of(root, name).is_file())
    asked_for = {name for text in texts for name in ASKED_FOR.findall(text)}
    return Inputs(there, sorted(_hiding(root, there, list(arguments), asked_for) - set(there)))


def portable(text: str) -> str:
    """What names a file of the installation, named alike wherever that is: builds have one key then, and tokens travel."""
    return text.replace(f"{project_root()}/", f"{INSTALLATION}/")


def place_of(root: Path, name: str) -> Path:
    """Of what `below` named."""
    inside = name.removeprefix(f"{INSTALLATION}/")
    return root / name if inside == name else project_root() / inside


def _text(path: Path) -> str:
    """Empty of what is no text."""
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return ""


def below(root: Path, name: str) -> str:
    """The name of a file that a build in root read, as keys have it."""
    path = PurePath(name)
    return path.relative_to(root).as_posix() if path.is_relative_to(root) else portable(name)


def _hiding(root: Path, read: list[str], arguments: list[str], asked_for: set[str]) -> set[str]:
    """Where else files of the same names would be looked for."""
    own = {os.path.dirname(name) for name in read if not name.startswith(SYSTEM)}  # noqa: PTH120 - `..` must stay
    folders = own | set(_searched(arguments))
    for variable in SEARCHED_BY_ENVIRONMENT:
        folders |= set(filter(None, os.environ.get(variable, "").split(":")))
    spelled = set(asked_for)
    for name in read:
        parts = PurePath(name).parts
        spelled |= {"/".join(parts[-count:]) for count in range(1, min(SPELLED_PARTS, len(parts) - 1) + 1)}
    for argument in arguments:
        if argument.startswith("-l"):
            spelled |= {f"lib{argument[2:]}.so", f"lib{argument[2:]}.a"}
    return {below(root, f"{folder}/{name}" if folder else name) for folder in folders for name in spelled}


def _searched(arguments: list[str]) -> Iterator[str]:
    for at, argument in enumerate(arguments):
        for option in (*INCLUDE_OPTIONS, LIBRARY_OPTION):
            if argument == option and at + 1 < len(arguments):
                yield arguments[at + 1]
            elif argument.startswith(option) and len(argument) > len(option):
                yield argument[len(option) :]
