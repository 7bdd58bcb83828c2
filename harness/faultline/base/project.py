# SPDX-License-Identifier: Apache-2.0
"""A user's project: the file faultline.toml in the user's own repository, found upwards from the current folder. It names
allocators and says where results go. Without one, allocators are named by their paths.

    version = 1
    allocators = ["pm", "tests/second/allocator.toml"]  # folders with an allocator.toml, or the files
    matrix = "faultline-matrix.toml"                     # what `matrix` and `mutate` read
    cache = ".faultline"
    out = "out"                                          # reports of `matrix`
    [options.run]                                        # defaults of a command's options
    workload = "churn"

Paths are relative to the file."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import msgspec

from faultline.base.cache import is_clone
from faultline.base.config import Allocator, allocator_names, find_allocator, read_allocator, read_toml
from faultline.base.errors import BadInputError, InfrastructureError

FILE = "faultline.toml"
DESCRIPTION = "allocator.toml"
VERSION = 1
CACHE = ".faultline"
HEADER_FOLDERS = ("include", "allocators/include")
"""Where the headers of adapters are, and where older commits have them."""


class ProjectFile(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    version: int
    allocators: list[str] = []
    matrix: str | None = None
    cache: str | None = None
    out: str | None = None
    options: dict[str, dict[str, Any]] = {}
    """By command and option."""


class _Versioned(msgspec.Struct):
    version: int


@dataclass(frozen=True)
class Project:
    """installation: where the built-in allocators lie; file: faultline.toml, if there is one; allocators: those that it names, and
    those that the command line names by their paths."""

    installation: Path
    file: Path | None = None
    allocators: Mapping[str, Allocator] = field(default_factory=dict)
    matrix: Path | None = None
    cache: Path | None = None
    out: Path | None = None
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)

    def names(self) -> list[str]:
        """Of the project's allocators; where no file names any, of those that are built in."""
        return sorted(self.allocators) or self.built_in()

    def built_in(self) -> list[str]:
        return allocator_names(self.installation)

    def get(self, name: str) -> Allocator | None:
        """None: no allocator has this name."""
        if name in self.allocators:
            return self.allocators[name]
        return find_allocator(self.installation, name) if name in self.built_in() else None

    def allocator(self, name: str) -> Allocator:
        """Raises BadInputError when no allocator has this name."""
        found = self.get(name)
        if found is None:
            raise self.unknown(name)
        return found

    def unknown(self, name: str) -> BadInputError:
        known = sorted({*self.allocators, *self.built_in()})
        return BadInputError(f"unknown allocator {name!r}", f"allocators here are: {', '.join(known) or 'none'}")

    def with_path(self, text: str) -> tuple[Project, Allocator]:
        """With the allocator of this path, too.

        Raises BadInputError when there is none, or another one has its name."""
        allocator = read_allocator(description_at(Path(text), text))
        return replace(self, allocators=self._added(allocator, text)), allocator

    def _added(self, allocator: Allocator, what: str) -> dict[str, Allocator]:
        other = self.get(allocator.name)
        if other is not None and not Path(other.folder).samefile(allocator.folder):
            raise BadInputError(
                f"{what}: two allocators of one name, {allocator.name!r}: the other one is in {other.folder}",
                "give one of them another name in its allocator.toml",
            )
        return {**self.allocators, allocator.name: other or allocator}


def description_at(path: Path, named: str) -> Path:
    """The allocator.toml of a folder, or of the path itself. named: as the user named it.

    Raises BadInputError when the path is no allocator."""
    found = path / DESCRIPTION if path.is_dir() else path
    if found.name != DESCRIPTION or not found.is_file():
        what = f"no {DESCRIPTION} is in it" if path.is_dir() else "is no folder" if path.exists() else "is not there"
        raise BadInputError(f"{named}: is no allocator: {what}", f"name a folder that has an {DESCRIPTION}")
    return found.resolve()


def looks_like_path(text: str) -> bool:
    """Names of allocators have neither dots nor slashes."""
    return "/" in text or "." in text or Path(text).is_dir()


def find_project(start: Path, installation: Path) -> Project:
    """Of the first faultline.toml upwards from start."""
    for folder in (start, *start.parents):
        if (folder / FILE).is_file():
            return read_project(folder / FILE, installation)
    return Project(installation)


def read_project(path: Path, installation: Path) -> Project:
    """Raises BadInputError for what is wrong in the file, or in an allocator.toml that it names."""
    version = read_toml(path, _Versioned).version
    if version != VERSION:
        raise BadInputError(
            f"{path}: version {version}, and this faultline reads version {VERSION}",
            "install a faultline that reads it",
        )
    said = read_toml(path, ProjectFile)

    def below(name: str | None) -> Path | None:
        return None if name is None else path.parent / name

    project = Project(
        installation, path, {}, below(said.matrix), below(said.cache), below(said.out), dict(said.options)
    )
    for name in said.allocators:
        allocator = read_allocator(description_at(path.parent / name, f"{path}: allocators: {name!r}"))
        if allocator.name in project.allocators:
            other = project.allocators[allocator.name]
            raise BadInputError(
                f"{path}: two allocators of one name, {allocator.name!r}: {other.folder} and {allocator.folder}",
                "give one of them another name in its allocator.toml",
            )
        project = replace(project, allocators=project._added(allocator, f"{path}: {name!r}"))
    return project


def cache_folder(project: Project) -> Path:
    """Where nothing else is said: what faultline.toml names, else the project's .faultline, without a project the clone's. The
    user's own cache where that cannot be written, or where faultline is installed and no project is there."""
    here = project.file.parent if project.file else project.installation
    if project.cache or project.file or is_clone(project.installation):
        folder = project.cache or here / CACHE
        there = next(path for path in (folder, *folder.parents) if path.exists())
        if not there.is_dir() or os.access(there, os.W_OK | os.X_OK):
            return folder
    return user_cache()


def user_cache() -> Path:
    """Raises InfrastructureError for a user without a home."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    if named.startswith("/"):
        return Path(named) / "faultline"
    try:
        return Path.home() / ".cache" / "faultline"
    except RuntimeError as error:
        raise InfrastructureError(
            "you have no home folder, in which a cache could be", "name one with --cache DIR"
        ) from error


def headers_of(checkout: Path) -> Path | None:
    """Of adapters. None: the repository has none of its own."""
    names = ("adapter.h", "persist.h", "stage.h")
    folders = (checkout / folder for folder in HEADER_FOLDERS)
    return next((folder for folder in folders if all((folder / name).is_file() for name in names)), None)
