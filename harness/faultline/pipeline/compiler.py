# SPDX-License-Identifier: Apache-2.0
"""faultline-cc and faultline-c++: the compilers that an allocator's own build is run with (command.py). They are the compilers
themselves, with arguments of faultline's. What is compiled gets the mutant's define and, in builds with hooks, the hooks; what is
linked gets what objects with hooks ask for. Questions (--version), preprocessing and everything else pass through.

This file is a program of its own, started once a compilation, and it uses nothing but the standard library:
`compiler.py SETTINGS LANGUAGE ARGUMENT...`, with SETTINGS in JSON."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path, PurePath

WITH_VALUE = {
    *("-o", "-I", "-D", "-U", "-L", "-l", "-x", "-T", "-u", "-z", "-e", "-A", "-B", "-MF", "-MT", "-MQ", "-h"),
    *("-include", "-imacros", "-isystem", "-iquote", "-idirafter", "-iprefix", "-iwithprefix", "-iwithprefixbefore"),
    *("-isysroot", "--sysroot", "-Xlinker", "-Xassembler", "-Xpreprocessor", "--param", "-aux-info", "-wrapper"),
    *("-dumpbase", "-dumpdir", "-dumpbase-ext", "-specs", "-imultilib", "-arch"),
}
"""Options whose value may be the next argument."""
ONLY_PREPROCESSED = {"-E", "-M", "-MM"}
NOT_LINKED = {"-c", "-S", "-fsyntax-only"}
WITHOUT_LIBRARIES = {"-nostdlib", "-nodefaultlibs"}
ASSEMBLY = {".s", ".S", ".sx"}
CXX = {".C", ".cc", ".cp", ".cpp", ".cxx", ".c++", ".ii", ".CPP"}
C = {".c", ".i"}
DEEPEST_FILES = 16
"""Files of arguments that name files of arguments."""


@dataclass(frozen=True)
class Settings:
    """Of one build of one target. Arguments in lists; first and last: before and after the build's own."""

    compilers: dict[str, str]
    """By language, `c` and `c++`; so is own."""
    first: list[str]
    own: dict[str, list[str]]
    """Last, of what is preprocessed or compiled: the mutant's define, flags of allocator.toml."""
    last: list[str]
    """Of what is compiled or assembled, with the place of the assembler."""
    hooks: list[str]
    """Of what is compiled; empty: a build without hooks."""
    wraps: list[str]
    """Of shared libraries, with hooks."""
    hooks_off: str
    """An object for programs: hooks that do nothing."""
    read: str
    """The folder where each compilation says what it reads."""
    launcher: list[str]
    """Before compilers that compile."""

    def write(self, path: Path) -> None:
        path.write_text(json.dumps(asdict(self)), encoding="utf-8")


@dataclass(frozen=True)
class Call:
    """What a compiler is asked for."""

    options: list[str]
    """All arguments, those of files in the place of the file's name."""
    inputs: list[str]
    suffixes: set[str]
    """Of inputs that are compiled or assembled, with `.c` and `.cc` for what -x says."""

    @property
    def is_preprocessing(self) -> bool:
        return not ONLY_PREPROCESSED.isdisjoint(self.options)

    @property
    def is_linking(self) -> bool:
        return not self.is_preprocessing and NOT_LINKED.isdisjoint(self.options)

    @property
    def is_assembly(self) -> bool:
        return self.suffixes <= ASSEMBLY

    @property
    def language(self) -> str | None:
        """Of the sources; None: as the compiler's name says."""
        if self.suffixes & CXX:
            return "c++"
        return "c" if self.suffixes & C else None


def understand(arguments: list[str]) -> Call:
    options = list(_expanded(arguments))
    inputs, suffixes = [], set()
    forced = ""
    words = iter(options)
    for word in words:
        if word == "-x" or (word.startswith("-x") and len(word) > len("-x")):
            forced = (next(words, "") if word == "-x" else word[2:]).replace("none", "")
        elif word in WITH_VALUE:
            next(words, None)
        elif word == "-" or not word.startswith("-"):
            inputs.append(word)
            suffix = _suffix_of(forced) if forced else PurePath(word).suffix
            if suffix in ASSEMBLY | CXX | C:
                suffixes.add(suffix)
    return Call(options, inputs, suffixes)


def _suffix_of(language: str) -> str:
    if language.startswith("assembler"):
        return ".s"
    return ".cc" if language.startswith("c++") else ".c"


def _expanded(arguments: list[str], depth: int = 0) -> Iterator[str]:
    """With the arguments that are in files (@FILE)."""
    for argument in arguments:
        path = Path(argument[1:])
        if argument.startswith("@") and depth < DEEPEST_FILES and path.is_file():
            yield from _expanded(shlex.split(path.read_text(errors="surrogateescape")), depth + 1)
        else:
            yield argument


def command_of(settings: Settings, language: str, arguments: list[str]) -> list[str]:
    """What is run in the place of `faultline-cc ARGUMENTS`."""
    call = understand(arguments)
    compiler = settings.compilers[language]
    own = settings.own[call.language or language]
    if not call.inputs:
        return [compiler, *arguments]
    if call.is_preprocessing:
        return [compiler, *arguments, *([] if call.is_assembly else own)]
    is_program = call.is_linking and not {"-shared", "-r"} & set(call.options)
    added = []
    if call.suffixes:
        hooks = [] if is_program or call.is_assembly else settings.hooks
        added = [*([] if call.is_assembly else own), *settings.last, *hooks]
    if call.is_linking and settings.hooks:
        added += _linked(settings, language, call, is_program)
    launcher = settings.launcher if call.suffixes and not call.is_linking else []
    return [*launcher, compiler, *settings.first, *arguments, *added]


def _linked(settings: Settings, language: str, call: Call, is_program: bool) -> list[str]:
    """-x: of files behind it."""
    if is_program:
        return ["-x", "none", settings.hooks_off]
    if "-r" in call.options:
        return []
    is_compiled_too = bool(call.suffixes) and WITHOUT_LIBRARIES.isdisjoint(call.options)
    if not is_compiled_too:
        return settings.wraps
    # -fsanitize is there, which would link the sanitizer's library with the compiler's others.
    of_cxx = ["-lstdc++", "-lm", "-lgcc_s"] if language == "c++" else []
    return ["-nodefaultlibs", *settings.wraps, *of_cxx, "-lc", "-lgcc"]


def question_of(settings: Settings, language: str, arguments: list[str]) -> list[str]:
    """The command that says what a compilation reads, as a rule of make on its output."""
    call = understand(arguments)
    kept = []
    words = iter(call.options)
    for word in words:
        if word in ("-o", "-MF", "-MT", "-MQ"):
            next(words, None)
        elif word not in NOT_LINKED and not word.startswith(("-M", "-Wp,-M", "-o")):
            kept.append(word)
    return [settings.compilers[language], *kept, *settings.own[call.language or language], "-M"]


def note_read(settings: Settings, language: str, arguments: list[str]) -> None:
    """Nothing is known of what does not compile."""
    call = understand(arguments)
    if not call.suffixes or call.is_preprocessing or "-" in call.inputs:
        return
    asked = [] if call.is_assembly else question_of(settings, language, arguments)
    with tempfile.NamedTemporaryFile(dir=settings.read, suffix=".d", delete=False) as file:
        if asked:
            subprocess.run(asked, stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.DEVNULL, check=False)


def main() -> None:
    settings = Settings(**json.loads(Path(sys.argv[1]).read_text(encoding="utf-8")))
    language, arguments = sys.argv[2], sys.argv[3:]
    note_read(settings, language, arguments)
    command = command_of(settings, language, arguments)
    os.execvp(command[0], command)  # noqa: S606


if __name__ == "__main__":
    main()
