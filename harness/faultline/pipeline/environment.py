# SPDX-License-Identifier: Apache-2.0
"""Where a campaign ran: what a reader of its report needs to judge its figures and to run it again. It is gathered when the
campaign begins, and kept with its results. Nothing here may fail a campaign: what cannot be found out is said to be unknown."""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import platform
import re
import shlex
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterable
from pathlib import Path
from urllib.parse import quote, urlsplit, urlunsplit

import msgspec

from faultline import __version__
from faultline.base.cache import SCRATCH_FOLDER, Cache
from faultline.base.config import FLUSHES, Allocator, Flush, repository_of
from faultline.base.errors import FaultlineError, InfrastructureError
from faultline.pipeline import build
from faultline.pipeline.workshop import Workshop

MAP_SHARED_VALIDATE = 0x03
MAP_SYNC = 0x80000


OWN_FOLDERS = ("include", "runner")
"""Of faultline: what is compiled or run with an allocator."""


class SourcePlace(msgspec.Struct, frozen=True):
    """Where an allocator's sources are in its repository. description: its allocator.toml; tree: the folder that its sites name
    files from, `..` where a build takes in what lies beside the repository; of_faultline: folders of faultline that sites name as
    if they were in there, and that are not."""

    allocator: str
    description: str
    tree: str = "."
    of_faultline: list[str] = []


class Repository(msgspec.Struct, frozen=True):
    """A git repository that allocators of a campaign are in. url: of its remote origin, without a password; revision: the whole
    hash of the commit; branch: empty where none is checked out."""

    places: list[SourcePlace]
    url: str = ""
    revision: str = ""
    branch: str = ""


class Part(msgspec.Struct, frozen=True):
    """A shard of a matrix: number index of count, from 1. key: of the whole matrix; cells: how many that has; positions: those of
    them that are of this shard, from 0."""

    index: int
    count: int
    key: str
    cells: int
    positions: list[int]

    @property
    def name(self) -> str:
        return f"{self.index}/{self.count}"


class Environment(msgspec.Struct):
    """started_utc: `2026-11-21 09:00:00`. facts: name and words, in the order to be shown. report_url: where the report will be
    read; empty: nobody said. part: None: the campaign is a whole one."""

    command: str = ""
    started_utc: str = ""
    facts: dict[str, str] = {}
    repositories: list[Repository] = []
    report_url: str = ""
    part: Part | None = None


def describe(workshop: Workshop, allocators: Iterable[str] = ()) -> Environment:
    """allocators: of the campaign."""
    heaps = workshop.heap_folder or heap_folder_of(workshop.cache)
    facts = {
        "faultline": __version__,
        "engine": _known(lambda: workshop.engine.ask("--version").strip()),
        "revision": _known(lambda: _revisions(workshop, allocators)),
        "heaps": _known(lambda: f"{file_system_of(heaps)}, {persistent_memory(heaps)}"),
        "processor": f"{processor()}, {len(os.sched_getaffinity(0))} usable",
        "flushes": described_flushes(),
        "kernel": f"{platform.system()} {platform.release()} {platform.machine()}",
        "system": system(),
        workshop.tracer.name: _known(workshop.tracer.version),
        "gcc": _known(lambda: build.version_of("gcc")),
        "g++": _known(lambda: build.version_of("g++")),
        "python": platform.python_version(),
    }
    command = shlex.join(["faultline", *sys.argv[1:]])
    return Environment(command, facts=facts, repositories=repositories(map(workshop.allocator, sorted(allocators))))


def _known(find: Callable[[], str]) -> str:
    try:
        return find() or "unknown"
    except (FaultlineError, OSError) as error:
        return f"unknown: {error}"


def _revisions(workshop: Workshop, allocators: Iterable[str]) -> str:
    """Of the repositories that the allocators are in; with several, each with its folder's name."""
    roots = sorted({workshop.allocator(name).root for name in allocators} or {str(workshop.root)})
    found = [revision(Path(root)) for root in roots]
    return (
        found[0]
        if len(found) == 1
        else "; ".join(f"{Path(at).name} {one}" for at, one in zip(roots, found, strict=True))
    )


def revision(root: Path) -> str:
    """Of a git repository; with a note when the tree is not as committed. Raises InfrastructureError where there is none."""
    commit = _of_git(root, "rev-parse", "--short=12", "HEAD")
    if not commit:
        raise InfrastructureError(f"{root}: no commit of git")
    changed = _of_git(root, "status", "--porcelain", "--untracked-files=no")
    return commit + (", with uncommitted changes" if changed else "")


def repositories(allocators: Iterable[Allocator]) -> list[Repository]:
    """Those that the allocators are in, in order of appearance."""
    places: dict[Path, list[SourcePlace]] = {}
    for allocator in allocators:
        root, folder = Path(allocator.root).resolve(), Path(allocator.folder).resolve()
        top = repository_of(folder)
        tree = root
        if allocator.build.command is not None:
            with contextlib.suppress(FaultlineError):  # the build says what is wrong
                tree = build.own_build_of(folder, allocator, None).tree
        description = os.path.relpath(folder / "allocator.toml", top)
        lacking = [folder for folder in OWN_FOLDERS if not (tree / folder).is_dir()]
        places.setdefault(top, []).append(SourcePlace(allocator.name, description, os.path.relpath(tree, top), lacking))
    return [
        Repository(
            found,
            without_password(_of_git(top, "remote", "get-url", "origin")),
            _of_git(top, "rev-parse", "HEAD"),
            _of_git(top, "symbolic-ref", "--short", "--quiet", "HEAD"),
        )
        for top, found in places.items()
    ]


def _of_git(top: Path, *words: str) -> str:
    """Empty: git does not know, or is not there."""
    try:
        run = subprocess.run(["git", "-C", str(top), *words], capture_output=True, text=True, check=False)
    except OSError:
        return ""
    return run.stdout.strip() if run.returncode == 0 else ""


def without_password(remote: str) -> str:
    """A remote of git as a URI: that of ssh is `ssh:`, that of a folder `file:`."""
    if remote.startswith("/"):
        return f"file://{quote(remote)}"
    short = re.fullmatch(r"(?:[^@/]+@)?([^:/]+):(?!//)(.+)", remote)  # git@host:owner/name.git
    if short:
        return f"ssh://{short[1]}/{quote(short[2].lstrip('/'))}"
    parts = urlsplit(remote)
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2])) if parts.scheme else ""


def processor() -> str:
    """The model name of the first processor."""
    return _of_first_processor("model name") or platform.machine()


def flushes() -> tuple[Flush, ...]:
    """The flush instructions of the processor, best first; all x86-64 processors have clflush."""
    known = _of_first_processor("flags").split()
    return tuple(flush for flush in FLUSHES if flush in known or flush == "clflush")


def described_flushes() -> str:
    """In words, with what recoveries do instead of those that the processor lacks; that changes none of their results."""
    lacks_some = len(flushes()) < len(FLUSHES)
    return ", ".join(flushes()) + ("; a recovery's flush of another kind is a clflush" if lacks_some else "")


def best_flush() -> Flush:
    """For programs that run on the processor as they are; traces are the same on all."""
    return flushes()[0]


def _of_first_processor(field: str) -> str:
    """Empty: the file does not say."""
    try:
        lines = Path("/proc/cpuinfo").read_text(errors="replace").splitlines()
    except OSError:
        return ""
    return next((line.partition(":")[2].strip() for line in lines if line.split(":")[0].strip() == field), "")


def system() -> str:
    try:
        return platform.freedesktop_os_release().get("PRETTY_NAME", "unknown")
    except OSError:
        return "unknown"


# ---- where heaps lie -----------------------------------------------------------------------------------------------------


def heap_folder_of(cache: Cache) -> Path:
    return SCRATCH_FOLDER if os.access(SCRATCH_FOLDER, os.W_OK) else cache.folder


def file_system_of(folder: Path) -> str:
    """Type of the file system that holds the folder, by its longest mount point."""
    best, kind = "", "unknown file system"
    path = str(folder.resolve())
    for line in Path("/proc/self/mounts").read_text(errors="replace").splitlines():
        _, mounted, found, *_ = line.split(" ")
        if len(mounted) >= len(best) and (path + "/").startswith(mounted.rstrip("/") + "/"):
            best, kind = mounted, found
    return f"{kind} ({folder})"


def persistent_memory(folder: Path) -> str:
    """Whether MAP_SYNC is honoured in the folder; if not, PM is emulated, which tests need no more than that."""
    libc = ctypes.CDLL(None, use_errno=True)
    libc.mmap.restype = ctypes.c_void_p
    libc.mmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    libc.munmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    try:
        with tempfile.TemporaryFile(dir=folder) as file:
            file.truncate(mmap.PAGESIZE)
            flags = MAP_SHARED_VALIDATE | MAP_SYNC
            base = libc.mmap(None, mmap.PAGESIZE, mmap.PROT_READ | mmap.PROT_WRITE, flags, file.fileno(), 0)
    except OSError as error:
        raise InfrastructureError(f"{folder}: not writable: {error.strerror}") from error
    if base is None or base == ctypes.c_void_p(-1).value:
        return "emulated PM: no MAP_SYNC"
    libc.munmap(base, mmap.PAGESIZE)
    return "MAP_SYNC"
