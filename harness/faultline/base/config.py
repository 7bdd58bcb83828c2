# SPDX-License-Identifier: Apache-2.0
"""allocator.toml and matrix.toml: read strictly. Unknown keys, wrong types and values out of range are errors that name the file,
the key and what was expected; nothing is guessed."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Callable
from os.path import normpath
from pathlib import Path
from typing import Annotated, Literal, TypeVar

import msgspec
from msgspec import Meta

from faultline.base.errors import BadInputError
from faultline.base.input_files import read_input, read_text

Identifier = Annotated[str, Meta(pattern="^[a-z][a-z0-9_]*$")]
MutantId = Annotated[str, Meta(pattern="^[A-Z][A-Z0-9_]*$")]
RuleId = Annotated[str, Meta(pattern="^FL[0-9]{3}$")]
Line = Annotated[str, Meta(min_length=1, max_length=400)]
Bytes = Annotated[int, Meta(ge=1)]
Count = Annotated[int, Meta(ge=1)]
Nested = Annotated[int, Meta(ge=0, le=3)]
"""Crashes after the first."""
OS_PAGE_BYTES = 4096
LONG_LIVES = 4
"""Crash states that live long, as a rule."""
MOST_LONG_LIVES = 10_000
LongLives = Annotated[int, Meta(ge=0, le=MOST_LONG_LIVES)]
"""Crash states that are opened many times and used for long."""
Strategy = Annotated[str, Meta(min_length=1)]
"""How crash states are chosen, by name: pipeline/lists.py knows which there are."""
KillStrategy = Literal["prefix", "floor", "sample"]
KILL_STRATEGIES: tuple[KillStrategy, ...] = ("prefix", "floor", "sample")
Model = Annotated[str, Meta(min_length=1)]
"""A persistency model, by its name: pipeline/lists.py knows which there are."""
FileSystem = Literal["ordered", "posix"]
"""What is durable of file operations that have returned: all of them, or those that were synced."""
Flush = Literal["clwb", "clflushopt", "clflush"]
Start = Literal["create", "workload"]
StartPoint = Start | Annotated[int, Meta(ge=1)]
"""Where power fails first: in the creation of a heap, in what follows it, or in the operation of that index."""
Probe = Literal["first", "full"]
ReplayEngine = Literal["in-process", "traced"]
"""What runs recoveries."""
DEFAULT_STRATEGY: Strategy = "complete"
"""Explored with mixed instead where it is not possible, which the certificate then says."""
FLUSHES: tuple[Flush, ...] = ("clwb", "clflushopt", "clflush")
"""Folders of pintools/ that are there."""

MAX_BOUNDARY_SIZES = 4
"""One for each allocation path; ace:N grows with their number to the power N."""


class Build(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """[build]: globs relative to the allocator's folder."""

    adapter: Annotated[list[str], Meta(min_length=1)]
    sources: list[str] = []
    command: Annotated[str, Meta(min_length=1)] | None = None
    """The author's own build, for a shell in the allocator's folder: of a copy of root."""
    root: str | None = None
    """What the command builds, relative to the allocator's folder. None: the work tree of git."""
    outputs: list[str] = []
    """Objects, archives and shared libraries to link: those that the command makes, or that are there without one."""
    include: list[str] = []
    flags: list[str] = []
    """Of the compiler, whatever the language; after faultline's own, so that an -O3 or a -std= of the user's counts."""
    c_flags: list[str] = []
    cxx_flags: list[str] = []
    libraries: list[str] = []
    packages: list[
        Annotated[str, Meta(pattern=r"^[A-Za-z0-9][A-Za-z0-9.+_-]*( (=|!=|<|>|<=|>=) [A-Za-z0-9.+~_-]+)?$")]
    ] = []
    """What pkg-config has to find, each with the version that it must have: `libpmemobj >= 1.12`."""
    generator: Annotated[str, Meta(min_length=1)] | None = None
    """A program in Python, a path: it is given the objects of all sources, and prints one more source, in C++."""
    helpers: list[Annotated[str, Meta(min_length=1)]] = []
    """Paths, no globs: files whose functions flush, fence or store for their callers, so that what is said of a place names the
    caller too."""

    def helper_names(self) -> list[str]:
        """As a compiler records them: below the folder that holds the sources, wherever allocator.toml lies."""
        return [re.sub(r"^(\.\./)+", "", normpath(helper)) for helper in self.helpers]


class Heap(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    heap_bytes: Bytes
    limit_bytes: Bytes
    address_hint: Annotated[str, Meta(pattern="^0x[0-9a-f]{1,16}$")]
    alignment: Bytes
    smallest_bytes: Bytes
    boundary_sizes: Annotated[list[Bytes], Meta(min_length=1, max_length=MAX_BOUNDARY_SIZES)]
    upgrade: Annotated[str, Meta(min_length=1)] | None = None
    """The folder, relative to the allocator's, of another build of it, which recovers its heaps. None: this one does."""

    @property
    def address(self) -> int:
        return int(self.address_hint, 16)


class Contract(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What the allocator promises (docs/allocators.md); the oracle checks that and no more."""

    publish: Literal["atomic", "separate"]
    fill: Literal["before", "after"]
    leaks: Literal["none", "pending", "collected"]
    durable: Literal["on-return", "on-close"]
    accounting: Literal["full", "none"]
    slack_bytes: Annotated[int, Meta(ge=0)] = 0
    relocatable: bool = False
    mapping_alignment: Annotated[int, Meta(ge=OS_PAGE_BYTES, le=1 << 40)] = OS_PAGE_BYTES
    """Of what each address that the heap is mapped at is a multiple, bytes."""
    detects: list[str] = []
    isolates: list[str] = []
    """Kinds of damage (docs/damage.md): found, or nothing but what is damaged is lost."""
    after_failed_create: Literal["error", "re-creatable"] = "error"
    clean_close: bool = False
    create_unsafe: bool = False
    """A crash while the heap is created is promised nothing."""
    out_of_memory: Literal["answers", "ends"] = "answers"
    """ends: an allocation for which there is no room ends the process."""
    file_system: FileSystem = "ordered"
    """What it needs of the file system that its files lie in."""
    threads: Count = 1


class Mutant(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """One known bug, switched on by -DMUTANT_<id>, and the rule it must trip."""

    id: MutantId
    summary: Line
    rule: RuleId
    killed_by: list[KillStrategy]
    """Exactly those of the simple strategies that find the rule, on its workload in the matrix."""
    workload: str | None = None
    """As on the command line: a generator, or a file relative to the clone's folder. None: the allocator's `mutant_workload`."""
    nested: Nested = 0
    """Crashes after the first that it takes to show the bug."""


PASS = "pass"  # noqa: S105
"""In [environment], of which each other key is a variable."""
VARIABLE = re.compile("[A-Za-z_][A-Za-z0-9_]*")


class Description(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    """What allocator.toml says."""

    name: Identifier
    summary: Line
    build: Build
    heap: Heap
    contract: Contract
    environment: dict[str, str | list[str]] = {}
    """Variables of the target and of the command that builds it; `pass`: names of those that it has from its user."""
    language: Literal["c11", "c++20"] | None = None
    """For readers: the end of a source's name says what compiles it."""
    paper: str | None = None
    varies: Line | None = None
    """What it keeps in PM that is another in each run, so that no two traces are the same: ids, times."""
    start: Start = "create"
    """Where power fails first in `faultline run`, unless its user says; of workload `create` always there."""
    mutant_workload: str = "churn"
    """Of mutants that name none."""
    mutant: list[Mutant] = []

    def workload_of(self, mutant: Mutant, of_others: str | None = None) -> str:
        """of_others: instead of `mutant_workload`."""
        return mutant.workload or of_others or self.mutant_workload

    def variables(self) -> dict[str, str]:
        """[environment], with the values that its user has now; a variable that is not set stays so."""
        own = {name: value for name, value in self.environment.items() if isinstance(value, str)}
        return {**{name: os.environ[name] for name in self.environment.get(PASS, []) if name in os.environ}, **own}

    def variable_words(self) -> list[str]:
        """For a key."""
        return [word for pair in sorted(self.variables().items()) for word in pair]

    def mutant_named(self, identifier: str) -> Mutant:
        for mutant in self.mutant:
            if mutant.id == identifier:
                return mutant
        known = ", ".join(mutant.id for mutant in self.mutant) or "none"
        raise BadInputError(f"unknown mutant {identifier!r} of {self.name}", f"its mutants are: {known}")


class Allocator(Description, frozen=True, kw_only=True):
    """What allocator.toml says, and where it lies. folder: that it is in; root: what names of its sources are relative to, its git
    repository, or its own folder where there is none."""

    folder: str
    root: str


EXHAUSTIVE_STATES = 4096
"""Strategy mixed: a crash position with at most this many states is run exhaustively; the certificate says how many were."""
SAMPLES = 16
"""Seeded states at each of the other positions."""


CELL_TIME_S = 600.0
"""Seconds for which a cell of a matrix is explored at most, unless it says otherwise: a broken allocator must not hang a CI job."""
Seconds = Annotated[float, Meta(gt=0, le=1e7)]


class MatrixDefaults(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    ops: Count = 40
    seed: Annotated[int, Meta(ge=0)] = 1
    strategy: Strategy = DEFAULT_STRATEGY
    model: Model = "px86"
    file_system: FileSystem | None = None
    flush: Flush = "clwb"
    exhaustive_states: Annotated[int, Meta(ge=0)] = EXHAUSTIVE_STATES
    samples: Annotated[int, Meta(ge=0)] = SAMPLES
    nested: Nested = 0
    follow_up: bool = True
    replay_engine: ReplayEngine | None = None
    allow_incomplete: bool = False
    time_s: Seconds = CELL_TIME_S
    start: StartPoint = "create"
    probe: Probe = "full"
    long_lives: LongLives = LONG_LIVES


class MatrixKeys(msgspec.Struct, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """How cells are run. What is not given comes from [defaults]."""

    ops: Count | None = None
    seed: Annotated[int, Meta(ge=0)] | None = None
    strategy: Strategy | None = None
    model: Model | None = None
    file_system: FileSystem | None = None
    flush: Flush | None = None
    exhaustive_states: Annotated[int, Meta(ge=0)] | None = None
    samples: Annotated[int, Meta(ge=0)] | None = None
    nested: Nested | None = None
    follow_up: bool | None = None
    replay_engine: ReplayEngine | None = None
    allow_incomplete: bool | None = None
    time_s: Seconds | None = None
    start: StartPoint | None = None
    probe: Probe | None = None
    long_lives: LongLives | None = None


class MatrixCell(MatrixKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """[[cell]]: one clean cell."""

    allocator: Identifier
    workload: str


class MatrixMutants(MatrixKeys, forbid_unknown_fields=True, frozen=True, kw_only=True):
    """[[mutants]]: one cell for each mutant of the allocator, or for each of `ids`. workload: of those that name none; None: as
    allocator.toml says."""

    allocator: Identifier
    workload: str | None = None
    ids: list[MutantId] | None = None


class Matrix(msgspec.Struct, forbid_unknown_fields=True, frozen=True):
    version: Literal[1]
    defaults: MatrixDefaults = MatrixDefaults()
    cell: list[MatrixCell] = []
    mutants: list[MatrixMutants] = []


T = TypeVar("T")


def read_toml(path: Path, shape: type[T]) -> T:
    text = read_text(path)
    try:
        tables = tomllib.loads(text)
    except ValueError as error:  # TOMLDecodeError is one; a number of thousands of digits is another
        raise BadInputError(f"{path}: is not TOML: {error}") from error
    except RecursionError as error:
        raise BadInputError(f"{path}: is nested too deep") from error
    try:
        return msgspec.convert(tables, shape)
    except msgspec.ValidationError as error:
        raise BadInputError(f"{path}: {_explain(str(error))}") from error


class _Versioned(msgspec.Struct):
    version: int = 0


def read_json(path: Path, shape: type[T], expected: str, hint: str, version: int | None = None) -> T:
    """What faultline wrote to a file that its user keeps. expected: what that is, in words; hint: how to get one; version: that it
    must have, which is looked at before all else, if it has any."""
    content = read_input(path, hint)
    try:
        if version is not None:
            found = msgspec.json.decode(content, type=_Versioned).version
            if found != version:
                raise BadInputError(f"{path}: version {found}, expected {version}", hint)
        return msgspec.json.decode(content, type=shape)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise BadInputError(f"{path}: expected {expected}: {error}", hint) from error


def _explain(message: str) -> str:
    """msgspec's "Expected `int`, got `str` - at `$.heap.heap_bytes`" as "heap.heap_bytes: expected `int`, got `str`"."""
    reason, _, where = message.partition(" - at ")
    path = where.strip("`").removeprefix("$").removeprefix(".")
    unknown = re.fullmatch(r"Object contains unknown field `(.*)`", reason)
    missing = re.fullmatch(r"Object missing required field `(.*)`", reason)
    prefix = f"{path}." if path else ""
    if unknown:
        return f"{prefix}{unknown[1]}: unknown key"
    if missing:
        return f"{prefix}{missing[1]}: this key is required and missing"
    return f"{path or 'file'}: {reason[:1].lower()}{reason[1:]}"


def read_allocator(path: Path, root: Path | None = None) -> Allocator:
    """root: None: the git repository that it lies in."""
    description = read_toml(path, Description)
    said = {name: getattr(description, name) for name in description.__struct_fields__}
    allocator = Allocator(**said, folder=str(path.parent), root=str(root or repository_of(path.parent)))

    def expect(holds: bool, key: str, expected: str, value: object) -> None:
        if not holds:
            raise BadInputError(f"{path}: {key}: expected {expected}, got {value!r}")

    build = allocator.build
    expect(build.command is None or bool(build.outputs), "build.outputs", "what the command makes", build.outputs)
    has_any = build.sources or build.outputs or build.libraries
    expect(bool(has_any), "build.sources", "sources, outputs or libraries", build.sources)
    expect(build.command is not None or build.root is None, "build.root", "a command that builds it", build.root)
    _check_environment(allocator.environment, expect)
    heap = allocator.heap
    expect(heap.heap_bytes <= heap.limit_bytes, "heap.limit_bytes", "at least heap_bytes", heap.limit_bytes)
    expect(_is_power_of_two(heap.alignment), "heap.alignment", "a power of two", heap.alignment)
    expect(heap.address % OS_PAGE_BYTES == 0, "heap.address_hint", f"a multiple of {OS_PAGE_BYTES}", heap.address_hint)
    mapping = allocator.contract.mapping_alignment
    expect(_is_power_of_two(mapping), "contract.mapping_alignment", "a power of two", mapping)
    expect(
        heap.address % mapping == 0,
        "heap.address_hint",
        f"a multiple of contract.mapping_alignment, {mapping}",
        heap.address_hint,
    )
    sizes = heap.boundary_sizes
    expect(sizes == sorted(set(sizes)), "heap.boundary_sizes", "growing sizes, each once", sizes)
    expect(sizes[-1] <= heap.limit_bytes, "heap.boundary_sizes", "sizes of at most limit_bytes", sizes[-1])
    ids = [mutant.id for mutant in allocator.mutant]
    for identifier in ids:
        expect(ids.count(identifier) == 1, "mutant.id", "each id once", identifier)
    return allocator


def upgrade_of(allocator: Allocator) -> Allocator | None:
    """What recovers the allocator's heaps, if another build of it does."""
    named = allocator.heap.upgrade
    if named is None:
        return None
    folder = (Path(allocator.folder).resolve() / named).resolve()
    if not (folder / "allocator.toml").is_file():
        raise BadInputError(
            f"{allocator.folder}/allocator.toml: heap.upgrade: expected the folder of another allocator.toml, got {named!r}",
            f"{folder} has none; name the folder of the build that is to recover the heaps, relative to this one",
        )
    return read_allocator(folder / "allocator.toml")


def _check_environment(
    environment: dict[str, str | list[str]], expect: Callable[[bool, str, str, object], None]
) -> None:
    for name, value in environment.items():
        if name == PASS:
            are_names = isinstance(value, list) and all(VARIABLE.fullmatch(passed) for passed in value)
            expect(are_names, f"environment.{PASS}", "a list of names of variables", value)
        else:
            expect(isinstance(value, str) and "\0" not in value, f"environment.{name}", "a text", value)
            expect(VARIABLE.fullmatch(name) is not None, "environment", "names of variables", name)


def repository_of(folder: Path) -> Path:
    """The git repository's top folder; the folder itself in none."""
    return next((one for one in (folder, *folder.parents) if (one / ".git").exists()), folder)


def _is_power_of_two(value: int) -> bool:
    return value & (value - 1) == 0


def allocator_names(root: Path) -> list[str]:
    return sorted(path.parent.name for path in (root / "allocators").glob("*/allocator.toml"))


def names_with_sources(root: Path) -> list[str]:
    """Those that are built here, with hooks, and no libraries of the system."""
    return [name for name in allocator_names(root) if (root / "allocators" / name / "src").is_dir()]


def find_allocator(root: Path, name: str) -> Allocator:
    names = allocator_names(root)
    if name not in names:
        raise BadInputError(f"unknown allocator {name!r}", f"allocators here are: {', '.join(names) or 'none'}")
    path = root / "allocators" / name / "allocator.toml"
    allocator = read_allocator(path, root)
    if allocator.name != name:
        raise BadInputError(f"{path}: name: expected the folder's name {name!r}, got {allocator.name!r}")
    return allocator
