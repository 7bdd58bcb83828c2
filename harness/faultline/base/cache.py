# SPDX-License-Identifier: Apache-2.0
"""Where things live: the clone this package runs from, and the cache of what was built, traced and generated from it.

    .faultline/             --cache
        layout              the number of the layout: what parts there are, and what is in them
        builds/KEY/         one compiled target, tool or runner; KEY covers all that compiler and linker read, flags, compiler
        builds/STEM.inputs  what they read when it was last built; STEM covers flags and compiler; STEM.log, what they said
        ccache/             what single sources compiled to
        traces/KEY.trace    sealed traces, with KEY.log, what target and tracer printed
        imported/HASH.trace traces that `run --trace` was given, for tokens that name them
        workloads/KEY       user-written workload files, for tokens that name them as file:KEY
        wear/KEY/           what a wear run counted, what its driver said, its log
        mutations/KEY.json  kill rate of a build of allocator and tester; KEY.trial, KEY.outcomes: what one exploration said
        allocators/NAME     where its allocator.toml is, of one that was named by its path
        outside/ALLOCATOR   files that it made outside of its heap folder
        results.sqlite      results of `run`, unless --out says otherwise

Entries appear by rename, complete or not at all, so that several campaigns can share a cache and Ctrl-C leaves no half entry.

Other versions of this program. A cache of a newer layout is refused. Nothing that another version wrote is taken for this one's:
a folder names the layout beside its sums; a structure is kept with version and shape, and is nothing to a version that keeps it
otherwise; the key of a trace covers the layout. What is left over so is made again. Workloads and traces that were given are named
by what they hold, and their readers look at that and at the version that each of them names. The database has a version of its
own."""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import shutil
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TypeVar

import msgspec

from faultline import __version__
from faultline.base.errors import BadInputError, InfrastructureError

LAYOUT = 1
"""A new one when what is in an entry changes without a change of its key: what else lies in the folder of a build, say."""
LAYOUT_FILE = "layout"
KEY_DIGITS = 16
"""Hex digits of a cache key: 64 bits, far from collisions among the thousands of entries that a cache ever has."""

_locks: dict[str, threading.Lock] = {}
_locks_guard = threading.Lock()
_verified: set[str] = set()
PACKAGES = "gcc g++ make ccache libc6-dev"
"""What the commands start, by the names of Debian. Of a clone ci/packages.txt has them all."""
SUMS = "sha256"
"""In a folder of the cache: the layout, and the sum of each file in it."""


@functools.cache
def project_root() -> Path:
    """The clone, or what a wheel installed of one: allocators, runner and tracers are built from its sources."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "installed", package.parents[1]):
        if (root / "include" / "adapter.h").is_file():
            return root
    raise InfrastructureError(
        f"{package}: no include/adapter.h is with it, so nothing can be built from source",
        "install a whole wheel, or a clone: make setup (or pip install -e .)",
    )


def is_clone(root: Path) -> bool:
    return (root / "Cargo.toml").is_file()


def hint_to_install(of_clone: str = "make setup installs what is missing", installed: str = "") -> str:
    """What to do where something is missing: in a clone, and where faultline was installed."""
    if is_clone(project_root()):
        return of_clone
    return installed or f"install what is missing; Debian's packages are {PACKAGES}"


def key_of(*parts: bytes | str) -> str:
    """A cache key of parts; each is length-prefixed, so that shifting bytes between parts changes it."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little"))
        digest.update(raw)
    return digest.hexdigest()[:KEY_DIGITS]


def hash_of_file(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


HEAD_OF_SUMS = f"layout {LAYOUT}\n"


def _sums_of(folder: Path) -> str:
    """Links lead elsewhere, and are not followed."""
    files = sorted(path for path in folder.rglob("*") if path.is_file() and not path.is_symlink() and path.name != SUMS)
    sums = (f"{hash_of_file(path)}  {path.relative_to(folder).as_posix()}\n" for path in files)
    return HEAD_OF_SUMS + "".join(sums)


Kept = TypeVar("Kept", bound=msgspec.Struct)


class _Envelope(msgspec.Struct):
    """What keep writes. faultline: the version that did; shape: of what is kept."""

    faultline: str
    shape: str
    kept: msgspec.Raw


@functools.cache
def _shape_of(kind: type[msgspec.Struct]) -> str:
    """The same as long as fields, their types and their defaults are the same, in whatever is inside."""
    return key_of(msgspec.json.encode(msgspec.json.schema(kind)))


class Cache:
    def __init__(self, folder: Path) -> None:
        self.folder = folder.absolute()
        self._check_layout()
        for part in (
            "builds",
            "traces",
            "imported",
            "workloads",
            "mutations",
            "bisections",
            "wear",
            "outside",
            "allocators",
        ):
            self._make(self.folder / part)
        with contextlib.suppress(OSError):  # read-only: each entry says what it is of
            self._write_layout()

    def _check_layout(self) -> None:
        """One that says none is new, or older than layouts have numbers."""
        path = self.folder / LAYOUT_FILE
        try:
            said = path.read_bytes().strip()
        except FileNotFoundError:
            return
        except OSError as error:
            raise InfrastructureError(
                f"{path}: cannot be read: {error.strerror}", "choose another cache with --cache DIR"
            ) from error
        if not (said.isdigit() and len(said) <= KEY_DIGITS):
            raise BadInputError(
                f"{path}: expected the number of a layout, as every faultline writes it",
                "choose another cache with --cache DIR, or move this one away",
            )
        if int(said) > LAYOUT:
            raise BadInputError(
                f"{self.folder}: a cache of layout {int(said)}, made by a newer faultline; this one reads layout {LAYOUT}",
                "use that faultline, or another cache with --cache DIR",
            )

    def _write_layout(self) -> None:
        path, text = self.folder / LAYOUT_FILE, f"{LAYOUT}\n"
        if not path.exists() or path.read_text() != text:
            temporary = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}.tmp")
            temporary.write_text(text)
            temporary.replace(path)

    @staticmethod
    def _make(folder: Path) -> None:
        try:
            folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise InfrastructureError(
                f"{folder}: the cache folder cannot be made: {error.strerror}", "choose another one with --cache DIR"
            ) from error

    @property
    def database(self) -> Path:
        return self.folder / "results.sqlite"

    def folder_entry(self, part: str, key: str, make: Callable[[Path], None]) -> Path:
        """The folder `part/key`; make(temporary folder) fills it when it is not there yet."""
        entry = self.folder / part / key
        with self.lock(entry):
            if self.has_folder(part, key):
                return entry
            with self.new_folder(part) as temporary:
                make(temporary)
                return self.keep_folder(part, key, temporary)

    def has_folder(self, part: str, key: str) -> bool:
        """Whether `part/key` is there, as it was made: looked at once in a process. What is not as it was made, or of
        another layout, is removed."""
        entry = self.folder / part / key
        if str(entry) in _verified:
            return True
        what = "is damaged"
        try:
            if not entry.is_dir():
                return False
            sums = (entry / SUMS).read_text()
            if sums == _sums_of(entry):
                _verified.add(str(entry))
                return True
            what = what if sums.startswith(HEAD_OF_SUMS) else "was made by another version"
        except (OSError, UnicodeDecodeError):
            pass
        sys.stderr.write(f"[{entry}: {what}, and is made again]\n")
        shutil.rmtree(entry, ignore_errors=True)
        return False

    @contextlib.contextmanager
    def new_folder(self, part: str) -> Iterator[Path]:
        """An empty one, to fill and to keep; it is gone afterwards otherwise."""
        temporary = Path(tempfile.mkdtemp(suffix=".tmp", dir=self.folder / part))
        try:
            yield temporary
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def keep_folder(self, part: str, key: str, temporary: Path) -> Path:
        """What was filled becomes `part/key`, in the place of what is not as it was made."""
        entry = self.folder / part / key
        self.has_folder(part, key)
        (temporary / SUMS).write_text(_sums_of(temporary))
        temporary.chmod(0o755)
        with contextlib.suppress(OSError):  # another process was faster: its entry is as good
            temporary.rename(entry)
        _verified.add(str(entry))
        return entry

    def file_entry(self, part: str, name: str, make: Callable[[Path], None], *, fresh: bool = False) -> Path:
        """The file `part/name`; make(temporary path) writes it when it is not there yet, or anew when fresh."""
        entry = self.folder / part / name
        with self.lock(entry):
            if entry.is_file() and not fresh:
                return entry
            temporary = entry.with_name(f"{entry.name}.{os.getpid()}.{threading.get_ident()}.tmp")
            try:
                make(temporary)
                temporary.replace(entry)
            finally:
                temporary.unlink(missing_ok=True)
        return entry

    def keep(self, part: str, name: str, result: msgspec.Struct) -> None:
        """The file `part/name`, anew."""
        kept = msgspec.Raw(msgspec.json.encode(result))
        envelope = _Envelope(__version__, _shape_of(type(result)), kept)
        self.text_entry(part, name, msgspec.json.encode(envelope).decode(), fresh=True)

    def kept(self, part: str, name: str, kind: type[Kept]) -> Kept | None:
        """What keep wrote; None: nothing, or another version of this program did."""
        try:
            envelope = msgspec.json.decode((self.folder / part / name).read_bytes(), type=_Envelope)
            if (envelope.faultline, envelope.shape) != (__version__, _shape_of(kind)):
                return None
            return msgspec.json.decode(envelope.kept, type=kind)
        except (OSError, msgspec.DecodeError, UnicodeDecodeError):
            return None

    def text_entry(self, part: str, name: str, text: str, *, fresh: bool = False) -> Path:
        def write(temporary: Path) -> None:
            temporary.write_text(text, encoding="utf-8")

        return self.file_entry(part, name, write, fresh=fresh)

    @staticmethod
    @contextlib.contextmanager
    def lock(entry: Path) -> Iterator[None]:
        """One maker an entry within this process; between processes the rename decides."""
        with _locks_guard:
            lock = _locks.setdefault(str(entry), threading.Lock())
        with lock:
            yield


SCRATCH_FOLDER = Path("/dev/shm")  # noqa: S108 - fresh names inside, made by mkdtemp
"""Memory-backed, so that heaps cost no disk writes; the cache folder where there is no such place."""
SIGNS_OF_A_CONTAINER = (Path("/.dockerenv"), Path("/run/.containerenv"))
"""Docker's and Podman's."""
SCRATCH_PREFIX = "faultline-heaps-"
LEFT_AFTER_S = 60
"""A folder that no process has locked was left by one that was killed, unless it is younger: it is made before it is locked."""


@contextlib.contextmanager
def scratch_folder(cache: Cache, inside: Path | None = None) -> Iterator[Path]:
    """A fresh folder for heaps, removed afterwards; what killed processes left beside it goes, too. inside: the user's choice
    (--heap-folder)."""
    parent = inside or (SCRATCH_FOLDER if os.access(SCRATCH_FOLDER, os.W_OK) else cache.folder)
    try:
        folder = Path(tempfile.mkdtemp(prefix=SCRATCH_PREFIX, dir=parent))
        lock = os.open(folder, os.O_RDONLY)
    except OSError as error:
        raise InfrastructureError(
            f"{parent}: no heap folder can be made there: {error.strerror}",
            "choose a folder that exists and is writable with --heap-folder DIR",
        ) from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _remove_left(parent)
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
        os.close(lock)


def hint_of_room(folder: Path | None) -> str:
    """Where the folder for heaps (None: the user's own) is full. Containers have a /dev/shm of their own, of 64 MB."""
    is_scratch = folder is not None and folder.is_relative_to(SCRATCH_FOLDER)
    is_of_container = is_scratch and any(sign.exists() for sign in SIGNS_OF_A_CONTAINER)
    more = "give the container more (docker run --shm-size 1g)" if is_of_container else "free space there"
    return f"{more}, or choose another folder with --heap-folder DIR"


def _remove_left(parent: Path) -> None:
    for folder in parent.glob(f"{SCRATCH_PREFIX}*"):
        with contextlib.suppress(OSError):  # another process's, or another user's
            lock = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if time.time() - os.fstat(lock).st_mtime >= LEFT_AFTER_S:
                    shutil.rmtree(folder)
            finally:
                os.close(lock)
