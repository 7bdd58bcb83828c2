# SPDX-License-Identifier: Apache-2.0
"""An allocator that its author's own build makes: `command` of allocator.toml. It is run in a private copy of the repository, so
that builds of mutants, with hooks and without never mix, and the author's folders stay as they are. Its compilers are faultline-cc
and faultline-c++ (compiler.py). The copy holds no file that git ignores: objects of another build would be taken for this one's."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from faultline.base.cache import key_of
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.processes import child
from faultline.pipeline import compiler
from faultline.pipeline.compiler import Settings
from faultline.pipeline.inputs import content_of, first_rule

COMMAND_LIMIT_S = 3600
"""Of a whole build; one that hangs is an error, not a wait."""
NOT_COPIED = {".git", ".faultline"}
LAST_LINES = 3
"""Of what a command that failed has said."""
COMPILERS = {"c": "faultline-cc", "c++": "faultline-c++"}


TEMPORARY = "temporary"
"""The folder of temporary files of a build, beside its compilers."""


@dataclass(frozen=True)
class OwnBuild:
    """tree: what is copied lies in it: the repository, or what holds root and folder where neither holds the other; parts: all of
    the tree that is copied; folder: the allocator's, in it, where the command is run; outputs: globs below it; variables: the
    environment of the command, besides PATH and HOME; left_out: a folder that is no part of the tree."""

    tree: Path
    parts: tuple[Path, ...]
    folder: Path
    command: str
    outputs: tuple[str, ...]
    variables: Mapping[str, str]
    left_out: Path | None

    def stem(self) -> str:
        """Of what is known before its sources are read."""
        variables = [word for pair in sorted(self.variables.items()) for word in pair]
        wrapper = Path(compiler.__file__).read_bytes()
        place = self.folder.relative_to(self.tree).as_posix()
        return key_of(place, self.command, *self.outputs, "", *variables, "", os.environ.get("PATH", ""), wrapper)

    def contents(self) -> Iterator[str]:
        """For a key: every file of the tree, by its name, mode and content."""
        for name in self._names():
            path = self.tree / name
            yield name
            if _stays_a_link(self.tree, path):
                yield f"link to {path.readlink()}"
            else:
                yield "program" if os.access(path, os.X_OK) else "file"
                yield content_of(path)

    def name_of(self, source: Path) -> str:
        """In the tree, and so in the copy."""
        path = Path(os.path.normpath(source))
        if not any(path.is_relative_to(part) for part in self.parts):
            raise BadInputError(
                f"{path}: lies outside of {' and '.join(map(str, self.parts))}, which the command builds a copy of",
                "name a folder that holds it: build.root of allocator.toml",
            )
        return path.relative_to(self.tree).as_posix()

    def _names(self) -> list[str]:
        names = (name for part in self.parts for name in self._names_in(part))
        there = {expanded for name in names for expanded in _expanded(self.tree, name)}
        return sorted(name for name in there if not self._is_left_out(name))

    def _names_in(self, part: Path) -> Iterator[str]:
        listed = _of_git(part)
        place = part.relative_to(self.tree)
        yield from ((place / name).as_posix() for name in (_below(part) if listed is None else listed))

    def _is_left_out(self, name: str) -> bool:
        if not NOT_COPIED.isdisjoint(Path(name).parts):
            return True
        return self.left_out is not None and (self.tree / name).is_relative_to(self.left_out)

    def copy(self, to: Path) -> None:
        to.mkdir()
        for name in self._names():
            source, copied = self.tree / name, to / name
            copied.parent.mkdir(parents=True, exist_ok=True)
            try:
                shutil.copy2(source, copied, follow_symlinks=not _stays_a_link(self.tree, source))
            except OSError as error:
                raise BadInputError(f"{source}: cannot be copied to {copied}: {error.strerror}") from error

    def run(
        self, what: str, copied: Path, tools: Path, settings: Settings, ccache: Mapping[str, str], log: Path
    ) -> tuple[list[Path], list[str]]:
        """In the copy; tools: a folder for the compilers; ccache: its settings. The outputs, and what was read of other folders."""
        tools.mkdir()
        (tools / TEMPORARY).mkdir()
        Path(settings.read).mkdir()
        settings.write(tools / "settings.json")
        for language, name in COMPILERS.items():
            words = [sys.executable, "-IS", compiler.__file__, str(tools / "settings.json"), language]
            (tools / name).write_text(f'#!/bin/sh\nexec {shlex.join(words)} "$@"\n')
            (tools / name).chmod(0o755)
        folder = copied / self.folder.relative_to(self.tree)
        code = self._run(what, folder, self._environment(tools, copied, ccache), log)
        if code != 0:
            raise BadInputError(
                f"{what}: its build command failed with exit code {code}: {_end_of(log)}", f"all of its output: {log}"
            )
        rules = sorted(Path(settings.read).iterdir())
        if not rules:
            raise BadInputError(
                f"{what}: its build command has compiled nothing with $FAULTLINE_CC or $FAULTLINE_CXX",
                f"hand them to it, as in make CC=$FAULTLINE_CC; all of its output: {log}",
            )
        return self._found(what, folder, log), _elsewhere(copied, rules)

    def _environment(self, tools: Path, copied: Path, ccache: Mapping[str, str]) -> dict[str, str]:
        """The same whoever runs it: what allocator.toml names, and no more. CCACHE_DISABLE: a ccache of the build's own would
        answer in the compilers' place; that of faultline's stands behind them (Settings.launcher). CCACHE_BASEDIR: copies lie in
        different folders. TMPDIR: what a compiler that is stopped leaves goes with the copy."""
        kept = {"HOME": os.environ["HOME"]} if "HOME" in os.environ else {}
        names = {"FAULTLINE_CC": COMPILERS["c"], "FAULTLINE_CXX": COMPILERS["c++"]}
        own = {"CC": COMPILERS["c"], "CXX": COMPILERS["c++"], "LC_ALL": "C"}
        path = f"{tools}:{os.environ.get('PATH', os.defpath)}"
        behind = {**ccache, "CCACHE_BASEDIR": str(copied), "CCACHE_DISABLE": "1"}
        no_git = {"GIT_CEILING_DIRECTORIES": str(copied.parent)}  # of the repository around the cache no key would know
        own |= {"TMPDIR": str(tools / TEMPORARY)}
        return {**kept, **own, **self.variables, **names, **behind, **no_git, "PATH": path}

    def _run(self, what: str, folder: Path, environment: Mapping[str, str], log: Path) -> int:
        with log.open("ab") as output:
            output.write(f"{self.command}\n".encode())
            output.flush()
            try:
                with child(["sh", "-c", self._command_in(folder)], output, output, environment) as process:
                    return process.wait(COMMAND_LIMIT_S)
            except subprocess.TimeoutExpired as error:
                raise InfrastructureError(
                    f"{what}: its build command ran for more than {COMMAND_LIMIT_S} s", f"its output: {log}"
                ) from error

    def _command_in(self, folder: Path) -> str:
        return f"cd {shlex.quote(str(folder))} || exit\n{self.command}"

    def _found(self, what: str, folder: Path, log: Path) -> list[Path]:
        found: dict[Path, Path] = {}
        for glob in self.outputs:
            files = sorted(path for path in folder.glob(glob) if path.is_file())
            if not files:
                raise BadInputError(
                    f"{what}: build.outputs: {glob!r} matches no file that its build command has made",
                    f"outputs are relative to the folder of allocator.toml; the command's output: {log}",
                )
            found.update((path.resolve(), path) for path in files if path.resolve() not in found)
        return list(found.values())


def _of_git(tree: Path) -> list[str] | None:
    """Committed or not, but not what is ignored. None: it is no work tree of git."""
    names: list[str] = []
    for words in (["--cached", "--recurse-submodules"], ["--others", "--exclude-standard"]):
        command = ["git", "-C", str(tree), "ls-files", "-z", *words]
        run = subprocess.run(command, capture_output=True, check=False)
        if run.returncode != 0:
            return None
        names += os.fsdecode(run.stdout).split("\0")
    return [name for name in names if name and os.path.lexists(tree / name)]


def _below(tree: Path) -> list[str]:
    """Of all files and links."""
    return [
        (Path(folder) / name).relative_to(tree).as_posix()
        for folder, folders, files in os.walk(tree)
        for name in (*files, *(name for name in folders if (Path(folder) / name).is_symlink()))
    ]


def _expanded(tree: Path, name: str) -> Iterator[str]:
    """A folder that a link brings from elsewhere, file by file; of what is no file, nothing."""
    path = tree / name
    if _stays_a_link(tree, path) or path.is_file():
        yield name
    elif path.is_symlink() and path.is_dir():
        yield from (f"{name}/{below}" for below in _below(path) if (path / below).is_file())


def _stays_a_link(tree: Path, path: Path) -> bool:
    """It leads to a place that is copied, too."""
    if not path.is_symlink() or path.readlink().is_absolute():
        return False
    return path.resolve().is_relative_to(tree.resolve())


def _elsewhere(copied: Path, rules: list[Path]) -> list[str]:
    """What compilations read outside of the copy and of the headers beside it, sorted."""
    names = {name for rule in rules for name in first_rule(rule) if name.startswith("/")}
    return sorted(name for name in names if not Path(name).is_relative_to(copied.parent))


def is_telling(line: str) -> bool:
    """A compiler's or linker's word of what is wrong; not its driver's, that the linker has failed."""
    telling = r"\berror: |undefined reference|cannot find|\bld: .*\b(?:cannot|can not) "
    return not line.startswith("collect2: ") and re.search(telling, line) is not None


def _end_of(log: Path) -> str:
    """The first error that a compiler or linker tells, and the last lines."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    telling = next((line for line in lines if is_telling(line)), None)
    last = lines[-LAST_LINES:]
    return " / ".join(last if telling is None or telling in last else [telling, *last[1:]])
