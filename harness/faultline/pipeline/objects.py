# SPDX-License-Identifier: Apache-2.0
"""The objects of a clean build, for its mutants. A mutant is the same sources with its name defined: a source that does not have
the name, nor reads a file that does, has the same object with it and without."""

from __future__ import annotations

import functools
import re
from collections.abc import Iterable
from pathlib import Path

import msgspec

from faultline.pipeline.inputs import below, place_of

FOLDER = "objects"
"""In a build, with LIST in it."""
LIST = "list.json"
MUTANT = re.compile(rb"MUTANT_(\w*)")
MADE_UP = ""
"""In the place of a name that the preprocessor puts together: it may be any."""


class Object(msgspec.Struct, frozen=True):
    """file: its name in FOLDER; read: what it was made of; mutants: that are named there."""

    file: str
    read: list[str]
    mutants: list[str]


class Objects(msgspec.Struct, frozen=True):
    """By source."""

    of: dict[str, Object]

    def without(self, source: str, mutant: str) -> Object | None:
        """The source's, if it is the mutant's, too."""
        found = self.of.get(source)
        return None if found is None or {mutant, MADE_UP} & set(found.mutants) else found


def object_of(root: Path, file: str, read: Iterable[str]) -> Object:
    """read: as the compiler names it, in a build in root."""
    names = [below(root, name) for name in read]
    mutants = set[str]().union(*(_named_in(place_of(root, name)) for name in names))
    return Object(file, names, sorted(mutants))


def keep(folder: Path, objects: dict[str, Object]) -> None:
    """In a build that is being made, whose objects lie in FOLDER."""
    (folder / FOLDER / LIST).write_bytes(msgspec.json.encode(Objects(objects)))


def kept(folder: Path) -> Objects:
    return msgspec.json.decode((folder / FOLDER / LIST).read_bytes(), type=Objects)


def _named_in(path: Path) -> frozenset[str]:
    try:
        found = path.stat()
        return _named(str(path), found.st_ino, found.st_size, found.st_mtime_ns)
    except OSError:
        return frozenset({MADE_UP})


@functools.lru_cache(maxsize=1 << 14)
def _named(path: str, *identity: int) -> frozenset[str]:  # noqa: ARG001
    return frozenset(name.decode() for name in MUTANT.findall(Path(path).read_bytes()))
