# SPDX-License-Identifier: Apache-2.0
"""Whether another machine would give the result that this one gives: what results are made of is the same on both. It is compared
before a worker of a cluster gets a part, by hashes of contents: names of folders and times of files do not count."""

from __future__ import annotations

import functools
import hashlib
import subprocess
from collections.abc import Iterable
from pathlib import Path

import msgspec

from faultline import __version__
from faultline.base.cache import hash_of_file, key_of
from faultline.base.config import Allocator, repository_of, upgrade_of
from faultline.base.errors import FaultlineError
from faultline.pipeline import build
from faultline.pipeline.tracers import TRACERS
from faultline.pipeline.workshop import Workshop

SHOWN_DIGITS = 12
PACKAGE = Path(__file__).resolve().parents[1]
INSTALLED = (
    "include/*.h",
    "runner/**/*.[ch]",
    "pintools/*.h",
    *(f"pintools/{name}/*" for name in TRACERS),
    "allocators/**/*",
)
"""What a wheel has of a clone (ci/packaging), of which runner, tracers and built-in allocators are built."""
LEFT_OUT = {"tests", "testing", "__pycache__"}


class Machine(msgspec.Struct, frozen=True):
    """Of one machine, for the cells of one allocator: what is compared, by its name."""

    facts: dict[str, str]

    def difference(self, other: Machine) -> str:
        """The first fact that is another one there: `the engine is A there, and B here`; empty: there is none."""
        for name in [*self.facts, *other.facts]:
            here, there = self.facts.get(name, "unknown"), other.facts.get(name, "unknown")
            if here != there:
                return f"{name}: {there} there, {here} here"
        return ""


def machine_of(workshop: Workshop, allocator: Allocator) -> Machine:
    """As it is now: a worker's repository may change while it runs."""
    return Machine(
        {
            "version of faultline": __version__,
            "Python sources of faultline": _own_sources(),
            "engine": hash_of_file(workshop.engine.path)[:SHOWN_DIGITS]
            if workshop.engine.path.is_file()
            else "missing",
            "sources of runner, tracers and built-in allocators": _hash(workshop.root, _installed(workshop.root)),
            "gcc": _said_by("gcc"),
            "g++": _said_by("g++"),
            workshop.tracer.name: _known(workshop),
            f"sources of {allocator.name}": _sources_of(workshop, allocator),
        }
    )


def _said_by(compiler: str) -> str:
    try:
        return build.version_of(compiler)
    except FaultlineError:
        return "missing"


def _known(workshop: Workshop) -> str:
    try:
        return workshop.tracer.version()
    except FaultlineError:
        return "missing"


@functools.cache
def _own_sources() -> str:
    """Of this process, which has loaded them: a later change counts when it is started again."""
    return _hash(
        PACKAGE, (path for path in PACKAGE.rglob("*.py") if "installed" not in path.relative_to(PACKAGE).parts)
    )


def _installed(root: Path) -> Iterable[Path]:
    found = (path for pattern in INSTALLED for path in root.glob(pattern))
    return (path for path in found if not LEFT_OUT.intersection(path.relative_to(root).parts))


def _sources_of(workshop: Workshop, allocator: Allocator) -> str:
    """As _sources_of_one, and of the build that recovers its heaps, if another one does."""
    own, newer = _sources_of_one(workshop, allocator), upgrade_of(allocator)
    return own if newer is None else key_of(own, _sources_of_one(workshop, newer))[:SHOWN_DIGITS]


def _sources_of_one(workshop: Workshop, allocator: Allocator) -> str:
    """What the allocator may be built from: all that git tracks in its repository, what else is in its folder, and what it names
    elsewhere. Without git all of its folder."""
    root, folder = Path(allocator.root).resolve(), Path(allocator.folder).resolve()
    variables = key_of(*allocator.variable_words())
    if root == workshop.root.resolve():
        return key_of(_hash(folder, _below(folder)), variables)[:SHOWN_DIGITS]
    trees = [folder, *([root] if root != folder else [])]
    if allocator.build.command is not None:
        trees += [tree for tree in build.own_build_of(folder, allocator, None).parts if tree not in trees]
    hashes = [_hash(tree, _below(tree, is_all=tree == folder)) for tree in trees]
    prebuilt = [] if allocator.build.command is not None else [root / output for output in allocator.build.outputs]
    return key_of(*hashes, _hash(root, prebuilt), variables)[:SHOWN_DIGITS]


def _below(folder: Path, is_all: bool = True) -> list[Path]:
    """What git tracks there, of the working tree; is_all: and what it does not ignore. Without git all but hidden files."""
    if (repository_of(folder) / ".git").exists():
        more = ["--others", "--exclude-standard"] if is_all else []
        run = subprocess.run(
            ["git", "-C", str(folder), "ls-files", "-z", "--cached", *more, "--", "."], capture_output=True, check=False
        )
        if run.returncode == 0:
            return [folder / name.decode("utf-8", "surrogateescape") for name in run.stdout.split(b"\0") if name]
    return [
        path
        for path in folder.rglob("*")
        if not any(part.startswith(".") or part == "__pycache__" for part in path.relative_to(folder).parts)
    ]


def _hash(root: Path, paths: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for path in sorted(set(paths)):
        if path.is_file():
            name = path.relative_to(root).as_posix() if path.is_relative_to(root) else path.name
            digest.update(f"{name}\0{hash_of_file(path)}\0".encode(errors="surrogateescape"))
    return digest.hexdigest()[:SHOWN_DIGITS]
