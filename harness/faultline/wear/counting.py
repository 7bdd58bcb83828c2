# SPDX-License-Identifier: Apache-2.0
"""A wear run: a workload runs under the tracer, which counts writes (pintools/wear.h) instead of tracing. Any allocator is run
through its adapter, as `faultline run` does. The driver of allocators/bench runs those that it has, with their defaults instead of
the small sizes of crash tests, and malloc beside them. Counts are cached by everything that they are a function of.

Persistent allocators are counted in the files that they map. glibc's malloc and jemalloc, for comparison, are counted in the memory
that their process has from brk and anonymous mmap: objects, and the allocator's own words that lie there. What they keep in
variables of the library (glibc's list heads, say) is not counted; nor is anything else that a process has besides its heap.

A run has one processor, always the same one: some allocators have a heap or a log for each."""

from __future__ import annotations

import os
import platform
import re
import shutil
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import msgspec

from faultline.base.cache import hash_of_file, hint_to_install, key_of, scratch_folder
from faultline.base.config import OS_PAGE_BYTES, Allocator, find_allocator
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.project import Project
from faultline.pipeline.driver import DRIVER_BASELINE, allocators_here, build_driver
from faultline.pipeline.engine import signal_name
from faultline.pipeline.target import build_target
from faultline.pipeline.trace import (
    TRACE_LIMIT_S,
    check_supported,
    environment_for,
    heap_arguments,
    run_traced,
    session_command,
)
from faultline.pipeline.tracers.tracer import WearRun
from faultline.pipeline.workshop import Workshop
from faultline.wear.figures import (
    MOST_ENDURANCE,
    PICTURE_FORMATS,
    VIEWS,
    WEAR_JSON_VERSION,
    AllocatorWear,
    Counts,
    Medium,
    Setting,
    Wear,
    counts_of_all,
    distribution_of,
    lifetime_of,
    ratios,
    read_counts,
)
from faultline.workload import catalogue
from faultline.workload.operations import THREAD_OPERATIONS, Workload

JEMALLOC = "jemalloc"
JEMALLOC_SETTINGS = "dirty_decay_ms:-1,muzzy_decay_ms:-1"
"""Unused memory is not given back after a time: with the default of ten seconds a few writes in a million depend on the clock."""
LIBRARY_FOLDERS = ("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib", "/usr/local/lib")
"""Where distributions have libjemalloc.so.2."""
DEFAULT_WORKLOAD = "uniform:10:4096"
DEFAULT_OPS = 100_000
"""Moraru et al., section 8.1.1."""
LINES = tuple(1 << bits for bits in range(3, 13))
UNITS = {"": 1, "KiB": 1 << 10, "MiB": 1 << 20, "GiB": 1 << 30}
_COUNTS, _SAID, _LOG = ".wear", ".json", ".log"
"""Of each session, behind its number."""


@dataclass(frozen=True)
class Subject:
    """An allocator that can be counted. name: as on the command line; driver: its name in the driver; empty: it runs through its
    adapter; wait: of freed memory, in operations; None: its default."""

    name: str
    driver: str
    allocator: Allocator | None = None
    """Where it runs through its adapter."""
    wait: int | None = None
    preload: Path | None = None
    is_persistent: bool = True
    """Counted in the files that it maps, not in the heap of its process."""
    tunables: str = ""
    """GLIBC_TUNABLES."""

    @property
    def version(self) -> str:
        """Of a library of the system; allocators of the repository have a build key."""
        if self.preload is not None:
            return self.preload.resolve().name
        return "" if self.is_persistent else " ".join(platform.libc_ver())


@dataclass(frozen=True)
class CacheModel:
    """Of the model. bytes: a multiple of ways lines."""

    bytes: int
    ways: int


def read_cache(text: str, line_bytes: int) -> CacheModel:
    """Of SIZE,WAYS: `2MiB,16`. Raises BadInputError when it is no cache of such lines."""
    if line_bytes not in LINES:
        raise BadInputError(f"--line {line_bytes}: expected a power of two from {min(LINES)} to {max(LINES)}")
    found = re.fullmatch(r"([1-9][0-9]{0,9})(KiB|MiB|GiB)?,([1-9][0-9]{0,3})", text)
    if found is None:
        raise BadInputError(f"--cache-model {text}: expected SIZE,WAYS as in 2MiB,16")
    cache = CacheModel(int(found[1]) * UNITS[found[2] or ""], int(found[3]))
    if not 64 <= cache.bytes <= 1 << 32 or cache.ways > 1024 or cache.bytes % (cache.ways * line_bytes) != 0:
        raise BadInputError(
            f"--cache-model {text}: expected a multiple of {cache.ways} lines of {line_bytes} bytes, at most 4 GiB and 1024 ways"
        )
    return cache


def read_formats(text: str) -> list[str]:
    """Of --format: names joined by commas."""
    found = [word.strip() for word in text.split(",") if word.strip()]
    for word in found:
        if word not in PICTURE_FORMATS:
            raise BadInputError(f"--format {word}: no such picture format", f"formats are {', '.join(PICTURE_FORMATS)}")
    if not found:
        raise BadInputError("--format: expected a list of picture formats", f"formats are {', '.join(PICTURE_FORMATS)}")
    return list(dict.fromkeys(found))


def read_tolerance(text: str) -> float:
    """Of `5%`: 0.05."""
    found = re.fullmatch(r"([0-9]{1,4}(?:\.[0-9]{1,6})?)%", text)
    if found is None:
        raise BadInputError(f"--tolerance {text}: expected a percentage as in 5%")
    return float(found[1]) / 100


def read_medium(endurance: float, capacity_bytes: int) -> Medium:
    if not 1 <= endurance <= MOST_ENDURANCE:  # nan is neither
        raise BadInputError(f"--endurance {endurance}: expected 1 to {MOST_ENDURANCE:.0e} writes")
    return Medium(endurance, capacity_bytes)


class _Said(msgspec.Struct):
    """The last words of driver or runner."""

    allocations: int
    frees: int
    failed: int
    object_bytes: int

    @classmethod
    def sum_of(cls, sessions: Sequence[_Said]) -> _Said:
        return cls(*(sum(getattr(one, name) for one in sessions) for name in cls.__struct_fields__))


def subject_names(root: Path) -> list[str]:
    glibc, *others = allocators_here(root)
    return [glibc, JEMALLOC, *others]


def find_subjects(
    project: Project, names: Iterable[str], heap_bytes: int | None = None, *, through_adapter: bool = False
) -> list[Subject]:
    """Each once. heap_bytes, through_adapter: as of find_subject."""
    if heap_bytes is not None and heap_bytes % OS_PAGE_BYTES != 0:
        raise BadInputError(f"--heap-bytes {heap_bytes}: expected a multiple of {OS_PAGE_BYTES}")
    subjects = [
        find_subject(project, name, heap_bytes, through_adapter=through_adapter) for name in dict.fromkeys(names)
    ]
    if heap_bytes is not None and not any(subject.allocator for subject in subjects):
        raise BadInputError("--heap-bytes: nothing here runs through its adapter", "--through-adapter makes it so")
    return subjects


def find_subject(
    project: Project, text: str, heap_bytes: int | None = None, *, through_adapter: bool = False
) -> Subject:
    """text: an allocator, or NAME:T for one of the driver whose freed memory waits for T operations. heap_bytes: of an allocator
    that runs through its adapter, instead of what its allocator.toml says; through_adapter: run it so though the driver has it."""
    name, colon, word = text.partition(":")
    if name not in subject_names(project.installation) or (through_adapter and name in _adapted_names(project)):
        return _adapted_subject(project, text, heap_bytes)
    wait = None
    if colon:
        wait = int(word) if word.isascii() and word.isdigit() and len(word) <= 9 else -1
        if wait < 0:
            raise BadInputError(f"{text}: expected {name}:T, T the operations that freed memory waits for")
    if name == JEMALLOC:
        return Subject(text, DRIVER_BASELINE, wait=wait, preload=_find_jemalloc(), is_persistent=False)
    return Subject(text, name, wait=wait, is_persistent=name != DRIVER_BASELINE)


def _adapted_names(project: Project) -> list[str]:
    return [*project.allocators, *project.built_in()]


def _adapted_subject(project: Project, text: str, heap_bytes: int | None) -> Subject:
    try:
        allocator = project.allocator(text)
    except BadInputError as error:
        names = ", ".join(dict.fromkeys([*subject_names(project.installation), *_adapted_names(project)]))
        raise BadInputError(error.message, f"wear can be counted of {names}") from None
    if heap_bytes is not None:
        heap = msgspec.structs.replace(allocator.heap, heap_bytes=heap_bytes, limit_bytes=heap_bytes)
        allocator = msgspec.structs.replace(allocator, heap=heap)
    return Subject(text, "", allocator)


def _find_jemalloc() -> Path:
    for folder in LIBRARY_FOLDERS:
        path = Path(folder) / "libjemalloc.so.2"
        if path.is_file():
            return path
    of_debian = "Debian: apt-get install libjemalloc2"
    hint = hint_to_install(f"make setup installs it ({of_debian})", of_debian)
    raise InfrastructureError("libjemalloc.so.2 was not found", hint)


def find_workload(workshop: Workshop, subjects: Sequence[Subject], name: str, ops: int, seed: int) -> Workload:
    """One that is the same for all of the subjects, and that each can run: the driver, and malloc in it, can run less than an
    adapter."""
    adapted = [subject.allocator for subject in subjects if subject.allocator is not None]
    if catalogue.is_made_for_heap(name) and (len(subjects) > 1 or not adapted):
        raise BadInputError(
            f"workload {name} is made for the heap of one allocator, wear compares several",
            f"churn, uniform:A:B and workload files are the same for all; {DEFAULT_WORKLOAD} is the default",
        )
    heap = adapted[0].heap if adapted else find_allocator(workshop.root, allocators_here(workshop.root)[1]).heap
    found = catalogue.find(name, ops, seed, heap, workshop.cache)
    for allocator in adapted:
        check_supported(allocator, found)
    if found.is_threaded:
        raise BadInputError(f"workload {name} has threads: a wear run has one thread", "choose one without `thread`")
    if len(adapted) < max(1, len(subjects)):
        _check_driver_can(found, name)
    return found


def _check_driver_can(found: Workload, name: str) -> None:
    rest = found.operations[1:]
    others = {operation.kind for operation in rest} - set(THREAD_OPERATIONS)
    why = None
    if not rest:
        why = "has no operations"
    elif "case" in others:
        why = "has several cases"
    elif found.is_lazy or found.growths is not None:
        why = "opens lazily" if found.is_lazy else "meets a full disk"
    elif others or found.layout != "root":
        why = f"has {min(others)}" if others else f"has slots of layout {found.layout}"
    if why is not None:
        raise BadInputError(
            f"workload {name} {why}: a run of the driver is one heap, one process and one thread",
            "choose one of allocate, free and reallocate only, such as churn or uniform:A:B; or --through-adapter",
        )


def setting_of(subjects: Sequence[Subject], workload: Workload, line_bytes: int, cache: CacheModel) -> Setting:
    return Setting(
        workload.name,
        workload.ops,
        workload.seed,
        workload.key,
        len(workload.operations) - 1,
        line_bytes,
        cache.bytes,
        cache.ways,
        {one.name: one.allocator.heap.limit_bytes for one in subjects if one.allocator is not None},
    )


@dataclass(frozen=True)
class CountedRun:
    """build: key of what ran."""

    subject: Subject
    build: str
    counts: Counts
    said: _Said


def count(
    workshop: Workshop, subject: Subject, workload: Workload, line_bytes: int, cache: CacheModel, *, fresh: bool = False
) -> CountedRun:
    """fresh: count even if it is cached."""
    tracer = workshop.tracer.build(workshop.root, workshop.cache)
    geometry = [str(line_bytes), str(cache.bytes), str(cache.ways)]
    program = _program(workshop, subject, workload)
    variables = subject.allocator.variable_words() if subject.allocator else []
    key = key_of(program.key, tracer.key, workload.key, *geometry, *variables)

    def fill(folder: Path) -> None:
        with scratch_folder(workshop.cache, workshop.heap_folder) as heap:
            for session in range(workload.session_count):
                counts = folder / f"{session}{_COUNTS}"
                is_memory = not subject.is_persistent
                command = program.command(heap, session)
                asked = WearRun(command, counts, heap, line_bytes, cache.bytes, cache.ways, is_memory)
                one_processor = ("taskset", "--cpu-list", str(min(os.sched_getaffinity(0))))
                traced = [*one_processor, *workshop.tracer.wear_command(tracer, asked)]
                environment = {**environment_for(workshop.tracer, tracer, subject.allocator), **program.environment}
                _execute(subject, traced, environment, folder, session)

    if fresh:
        shutil.rmtree(workshop.cache.folder / "wear" / key, ignore_errors=True)
    entry = workshop.cache.folder_entry("wear", key, fill)
    sessions = [f"{session}" for session in range(workload.session_count)]
    counted = [read_counts(entry / (name + _COUNTS), is_memory=not subject.is_persistent) for name in sessions]
    said = [msgspec.json.decode((entry / (name + _SAID)).read_bytes(), type=_Said) for name in sessions]
    counts = counts_of_all(counted)
    if len(counts.lines) == 0:
        where = "persistent memory" if subject.is_persistent else "its heap"
        raise BadInputError(
            f"{subject.name}: workload {workload.name} made no write to {where}: there is no wear to count",
            "choose a workload that allocates",
        )
    return CountedRun(subject, program.build, counts, _Said.sum_of(said))


@dataclass(frozen=True)
class _Program:
    """What runs the sessions of a workload on a subject. build: its key; key: of all that its writes are a function of, but for
    the workload; command: of the heap's folder and the session."""

    build: str
    key: str
    command: Callable[[Path, int], tuple[str, ...]]
    environment: dict[str, str] = field(default_factory=dict)


def _program(workshop: Workshop, subject: Subject, workload: Workload) -> _Program:
    workload_file = catalogue.store(workload, workshop.cache)
    if subject.allocator is not None:
        target = build_target(workshop, subject.allocator, None, "clwb")
        heap = heap_arguments(subject.allocator.heap, workload)

        def of_runner(folder: Path, session: int) -> tuple[str, ...]:
            return (*session_command(target, workload_file, session, folder, heap), "--tally")

        return _Program(target.adapter.key, key_of(target.adapter.key, target.runner.key, *heap), of_runner)
    driver = build_driver(workshop.root, workshop.cache, "clwb")
    wait = () if subject.wait is None else (str(subject.wait),)
    library = key_of(hash_of_file(subject.preload), JEMALLOC_SETTINGS) if subject.preload else subject.version
    environment = {"GLIBC_TUNABLES": subject.tunables} if subject.tunables else {}
    if subject.preload is not None:
        environment |= {"LD_PRELOAD": str(subject.preload), "MALLOC_CONF": JEMALLOC_SETTINGS}

    def of_driver(folder: Path, _session: int) -> tuple[str, ...]:
        return (str(driver.path), subject.driver, "wear", str(folder), str(workload_file), *wait)

    key = key_of(driver.key, subject.driver, *wait, subject.tunables, library)
    return _Program(driver.key, key, of_driver, environment)


def _execute(subject: Subject, command: list[str], environment: dict[str, str], folder: Path, session: int) -> None:
    log = folder / f"{session}{_LOG}"
    with log.open("wb") as output:
        code = run_traced(command, output, environment)
    if code is None:
        raise InfrastructureError(f"{subject.name} ran for more than {TRACE_LIMIT_S} s while wear was counted")
    said = log.read_text(encoding="utf-8", errors="replace").splitlines()
    if code != 0:
        errors = [line.partition(mark)[2] for line in said for mark in ("error: ", "faultline: ") if mark in line]
        why = errors[-1] if errors else signal_name(-code) if code < 0 else f"exit code {code}"
        if code == BadInputError.exit_code:
            alone = f"name the allocator alone: {subject.name.partition(':')[0]}"
            raise BadInputError(why, alone if subject.wait is not None else None)
        raise InfrastructureError(f"{subject.name}: the wear run failed: {why}")
    (folder / f"{session}{_SAID}").write_text(said[-1], encoding="utf-8")


def wear_of(runs: list[CountedRun], setting: Setting, medium: Medium, baseline: str) -> Wear:
    """In the order of runs."""
    entries = [_entry(run, setting, medium) for run in runs]
    other = next(entry for entry in entries if entry.allocator == baseline)
    for entry in entries:
        entry.ratios = ratios(entry, other)
    return Wear(WEAR_JSON_VERSION, setting, medium.endurance, medium.capacity_bytes, baseline, entries)


def _entry(run: CountedRun, setting: Setting, medium: Medium) -> AllocatorWear:
    counts, said = run.counts, run.said
    written = len(counts.lines) * counts.line_bytes
    if written > medium.capacity_bytes:
        raise BadInputError(
            f"{run.subject.name} has written {written} bytes of memory, more than --capacity {medium.capacity_bytes}",
            "give a capacity that holds the heap",
        )
    views = {view: distribution_of(counts.lines[view]) for view in VIEWS}
    return AllocatorWear(
        allocator=run.subject.name,
        build=run.build,
        version=run.subject.version,
        is_persistent=run.subject.is_persistent,
        allocations=said.allocations,
        frees=said.frees,
        failed=said.failed,
        object_bytes=said.object_bytes,
        executed=counts.executed,
        flushes=counts.flushes,
        fences=counts.fences,
        write_back_reasons=counts.write_back_reasons,
        is_brk_refused=counts.is_brk_refused,
        stores=views["stores"],
        write_backs=views["write_backs"],
        lifetimes={
            view: lifetime_of(distribution, setting.operations, counts.line_bytes, medium)
            for view, distribution in views.items()
        },
        ratios={},
        hottest=counts.hottest,
    )
