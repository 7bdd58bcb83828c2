# SPDX-License-Identifier: Apache-2.0
"""`make bench-peers`: faultline beside pmemcheck and pmreorder of PMDK. peers-tracing: how much slower a program is under our
tracer and under pmemcheck; peers-exploring: what our exploration and pmreorder make of the same trace, for a small allocator
(harness/tests/pmemcheck) as it is and with each of its bugs. What is not there is said (ci/peers.py), the rest is measured."""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import peers
from bench_parts import Bench, Clock, Part

from faultline.base.cache import scratch_folder
from faultline.base.config import Allocator
from faultline.base.errors import InfrastructureError
from faultline.pipeline import build
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Certificate, Event, Finding
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.pipeline.rehearsal import target_environment
from faultline.pipeline.target import build_target
from faultline.pipeline.trace import heap_arguments, session_command
from faultline.pipeline.tracers.tracer import Session
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.streams import note
from faultline.workload import catalogue

PBIT = "harness/tests/pmemcheck"
"""Adapter and client of one allocator."""
Row = dict[str, Any]


# ---- tracing -------------------------------------------------------------------------------------------------------------

ROUNDS = 3
"""Of each timing; the median counts. All take turns, so that a busy machine slows all."""
TRACED = {PBIT: 50_000, "nvm_malloc": 20_000, "pmdk": 30_000}
"""Operations of churn, by allocator."""
TINY_TRACED, FEWEST = 100, 1
"""FEWEST: what a run of so many operations takes is taken off: the start of a Valgrind, and the creation of the heap."""
LEAST_S = 1e-3
"""That remains of a time: what is left of a tiny run is within the clock's error."""
NOISY = 10
"""A start this many times as long as what remains: the ratio says nothing, and is marked so."""
OURS, NOTHING = "faultline", "their Valgrind, no tool"
LOGS = {
    "pmemcheck": (),
    "with a store log": ("--log-stores=yes",),
    "with stacks": ("--log-stores=yes", "--log-stores-stacktraces=yes", "--log-stores-stacktraces-depth=4"),
}
NO_REPORT = ("-q", "--print-summary=no")
REGISTERS_ITSELF = ("pmdk",)
"""Of the traced: libpmemobj tells pmemcheck itself what it maps."""


def measure_tracing(bench: Bench) -> Iterator[list[Row]]:
    pmemcheck = bench.look_for(peers.find_pmemcheck)
    rows: list[Row] = []
    for name, operations in TRACED.items():
        operations = TINY_TRACED if bench.is_tiny else operations
        what = f"churn of {operations:,} operations of {subject(bench, name)[1].name}"
        note(f"peers-tracing: {what}")
        row = bench.attempt(what, tracing_one, bench, name, operations, pmemcheck)
        if row is not None:
            rows.append(row)
        yield rows


def tracing_one(bench: Bench, name: str, operations: int, pmemcheck: Path | None) -> Row:
    """times: median seconds of processor time, by what it ran under; native is the program alone. starts: what is taken off."""
    all_of_it, start = (commands_of(bench, name, number, pmemcheck) for number in (operations, FEWEST))
    rounds = 1 if bench.is_tiny else ROUNDS
    times: dict[str, list[float]] = {what: [] for what in all_of_it}
    starts: dict[str, list[float]] = {what: [] for what in all_of_it}
    for _ in range(rounds):
        for what, command in all_of_it.items():
            starts[what].append(timed(bench, start[what]))
            times[what].append(max(timed(bench, command) - starts[what][-1], LEAST_S))
    return {
        "allocator": subject(bench, name)[1].name,
        "operations": operations,
        "rounds": rounds,
        "times": {what: statistics.median(each) for what, each in times.items()},
        "starts": {what: statistics.median(each) for what, each in starts.items()},
    }


def commands_of(bench: Bench, name: str, operations: int, pmemcheck: Path | None) -> dict[str, Command]:
    plain = Traced.make(bench, name, operations)
    commands: dict[str, Command] = {"native": plain.native, OURS: plain.ours}
    if pmemcheck is not None:
        told = plain if name in REGISTERS_ITSELF else Traced.make(bench, name, operations, pmemcheck)
        commands[NOTHING] = told.under(pmemcheck, "none")
        commands |= {log: told.under(pmemcheck, "pmemcheck", words) for log, words in LOGS.items()}
    return commands


@dataclass(frozen=True)
class Run:
    """A program to be timed. log: of pmemcheck's stores, to be looked at afterwards."""

    words: list[str]
    environment: dict[str, str]
    log: Path | None = None


Command = Callable[[Path, Path], Run]
"""Of the folder of the heap, and one for what is written beside it."""


@dataclass(frozen=True)
class Traced:
    """A workload of an allocator under the runner."""

    allocator: Allocator
    workshop: Workshop
    program: Callable[[Path], tuple[str, ...]]

    @staticmethod
    def make(bench: Bench, name: str, operations: int, pmemcheck: Path | None = None) -> Traced:
        """pmemcheck: the allocator tells it what it maps."""
        workshop, allocator = subject(bench, name)
        if pmemcheck is not None:
            allocator = registering(allocator, bench.root, pmemcheck)
        target = build_target(workshop, allocator, None, "clwb", needs_hooks=False)
        workload = catalogue.find("churn", operations, 1, allocator.heap, bench.cache, bench.root)
        path = catalogue.store(workload, bench.cache)
        geometry = heap_arguments(allocator.heap, workload)
        return Traced(allocator, workshop, lambda folder: session_command(target, path, 0, folder, geometry))

    def native(self, folder: Path, _: Path) -> Run:
        return Run([*self.program(folder)], target_environment(self.allocator))

    def ours(self, folder: Path, beside: Path) -> Run:
        tracer = self.workshop.tracer
        built = tracer.build(self.workshop.root, self.workshop.cache)
        session = Session(self.program(folder), beside / "trace", folder, built.path.parent)
        environment = {**target_environment(self.allocator), **tracer.environment(built)}
        return Run(tracer.trace_command(built, session), environment)

    def under(self, pmemcheck: Path, tool: str, words: tuple[str, ...] = ()) -> Command:
        options = [f"--tool={tool}", *(NO_REPORT if tool == "pmemcheck" else ("-q",)), *words]

        def run(folder: Path, beside: Path) -> Run:
            log = beside / "log"
            command = [str(pmemcheck), *options, f"--log-file={log}", *self.program(folder)]
            return Run(command, target_environment(self.allocator), log if words else None)

        return run


def subject(bench: Bench, name: str) -> tuple[Workshop, Allocator]:
    workshop = bench.workshop
    if "/" in name:
        return workshop.with_path(str(bench.root / name))
    return workshop, workshop.allocator(name)


def registering(allocator: Allocator, root: Path, pmemcheck: Path) -> Allocator:
    """The same, compiled so that it tells pmemcheck what it maps."""
    flags = ["-include", str(root / PBIT / "register.h"), f"-I{includes_of(pmemcheck)}"]
    compiled = msgspec.structs.replace(allocator.build, flags=[*allocator.build.flags, *flags])
    return msgspec.structs.replace(allocator, build=compiled)


def includes_of(pmemcheck: Path) -> Path:
    """Of the client requests of that Valgrind."""
    return pmemcheck.resolve().parents[1] / "include" / "valgrind"


def timed(bench: Bench, command: Command) -> float:
    """Seconds of processor time, start and end of the process included. Raises InfrastructureError: it failed, or pmemcheck saw no
    store, so that it had nothing to do."""
    with scratch_folder(bench.cache) as place, tempfile.TemporaryDirectory(dir=bench.scratch) as beside:
        run = command(place, Path(beside))
        clock = Clock()
        ended = subprocess.run(run.words, env=run.environment, capture_output=True, text=True, check=False)
        cpu_s = float(clock.row()["cpu_s"])
        if ended.returncode != 0:
            said = ended.stderr.strip()[-300:]
            raise InfrastructureError(f"{' '.join(run.words[:3])} ended with {ended.returncode}: {said}")
        if run.log is not None and not has_stores(run.log):
            raise InfrastructureError(f"{' '.join(run.words[:3])}: its log has no store")
    return cpu_s


def has_stores(log: Path) -> bool:
    with log.open("rb") as file:
        return b"|STORE;" in file.read(1 << 20)


def tracing_in_words(rows: list[Row], _: bool) -> list[str]:
    return [line for row in rows for line in tracing_row_in_words(row)]


def tracing_row_in_words(row: Row) -> list[str]:
    times, starts = row["times"], row["starts"]
    head = f"peers-tracing: {row['allocator']:<10} churn of {row['operations']:,}"
    each = ", ".join(ratio_text(row, what) for what in times if what != "native")
    taken_off = ", ".join(f"{took:.1f} s" for took in starts.values())
    return [
        f"{head}, processor time, median of {row['rounds']}: native {times['native']:.2f} s; {each}",
        f"{head}, start and creation, which are taken off: {taken_off}",
    ]


def ratio_text(row: Row, what: str) -> str:
    times, starts = row["times"], row["starts"]
    unsure = " (uncertain: its start takes far longer)" if starts[what] > NOISY * times[what] else ""
    return f"{what} {times[what] / times['native']:.1f}x{unsure}"


# ---- exploring -----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Explored:
    """What is explored. workload and operations: as small as a barrier of pmreorder has to be, objects above all; limit_s: of one
    run of pmreorder, beyond which the row says that it did not come to its end."""

    name: str
    workload: str
    operations: int
    limit_s: float
    mutants: tuple[str | None, ...] = (None,)


def explored_allocators(is_tiny: bool) -> tuple[Explored, ...]:
    """pbit: objects of 32 bytes are four stores between two fences, 65 sequences of ReorderFull; eight would be 109,601."""
    bugs = ("MISSING_FENCE", "TORN", "MISSING_FLUSH", "EARLY_SLOT")
    if is_tiny:
        return (Explored(PBIT, "uniform:32:32", 4, 60, (None, bugs[0])), Explored("nvm_malloc", "uniform:64:64", 2, 2))
    return (
        Explored(PBIT, "uniform:32:32", 100, 300, (None, *bugs)),
        Explored("nvm_malloc", "uniform:64:64", 20, 60),
        Explored("pmdk", "uniform:64:64", 2, 60),
    )


CLEAN = "as it is"
PROBE_SLOTS = 1024
"""That heaps have beside the workload's: FL_PROBE_SLOTS of runner/workload/workload.h."""
FOLDER = "files"
"""Where pmreorder's files lie."""


def measure_exploring(bench: Bench) -> Iterator[list[Row]]:
    """A row an allocator, as it is and with each bug."""
    pmreorder = bench.look_for(peers.find_pmreorder)
    rows: list[Row] = []
    for asked in explored_allocators(bench.is_tiny):
        for mutant in asked.mutants:
            what = f"{subject(bench, asked.name)[1].name} {mutant or CLEAN}"
            note(f"peers-exploring: {what}")
            row = bench.attempt(what, exploring_one, bench, asked, mutant, pmreorder)
            if row is not None:
                rows.append(row)
            yield rows


def exploring_one(bench: Bench, asked: Explored, mutant: str | None, pmreorder: Path | None) -> Row:
    """pmreorder: by engine, what peers.compared says; missing: without pmreorder."""
    workshop, allocator = subject(bench, asked.name)
    options: dict[str, Any] = {"mutant": mutant, "start": "workload"}  # pmreorder does not check creations either
    spec = CellSpec(allocator.name, asked.workload, asked.operations, 1, "complete", "px86", "clwb", **options)
    cell = prepare(workshop, spec)
    row: Row = {"allocator": allocator.name, "mutant": mutant, "operations": asked.operations, "limit_s": asked.limit_s}
    row["faultline"] = {probe: explored(cell, probe) for probe in ("first", "full")}
    if pmreorder is not None:
        row |= replayed(bench, cell, pmreorder, asked.limit_s)
    return row


def explored(cell: PreparedCell, probe: str) -> Row:
    """probe: how much of its script each recovery runs; first_s: until the first finding, None: there is none."""
    rules: list[str] = []
    times: list[float] = []
    certificate = Certificate(complete=False)

    def heard(event: Event) -> None:
        nonlocal certificate
        if isinstance(event, Finding):
            rules.append(event.rule)
            times.append(time.monotonic() - began)
        elif isinstance(event, Certificate):
            certificate = event

    began, clock = time.monotonic(), Clock()
    verdict = explore(cell, heard, more={"probe": probe})
    spent = clock.row()
    return {
        **spent,
        "verdict": verdict,
        "findings": len(rules),
        "rules": sorted(set(rules)),
        "first_s": times[0] if times else None,
        "engine": certificate.engine,
        "crash_positions": certificate.crash_positions,
        "states": certificate.states,
        "recoveries": certificate.recoveries,
        "recoveries_per_s": certificate.recoveries / max(spent["cpu_s"], 1e-3),
        "complete": certificate.complete,
        "why": certificate.why,
    }


def replayed(bench: Bench, cell: PreparedCell, pmreorder: Path, limit_s: float) -> Row:
    """possible_images: that the crash states of the trace leave behind, None: more than can be listed."""
    engine, trace = bench.engine, str(cell.trace.path)
    builds = str(bench.cache.folder / "builds")
    first = peers.first_position_after_creation(engine.ask("dump", trace, "--module-root", builds).splitlines())
    checker, variables = checker_of(bench, cell), cell.target.allocator.variables()
    runs: dict[str, peers.Replay] = {}
    for name in peers.ENGINES:
        note(f"  {name}")
        with scratch_folder(bench.cache) as place:
            log = place / "log"
            words = ("--folder", str(place / FOLDER), "--module-root", builds)
            [file] = engine.ask_json(Exported, "export", trace, str(log), *words).files
            text, stores = peers.without_creation(log.read_text())
            log.write_text(text)
            make_heap(Path(file.path), file.bytes, stores)
            runs[name] = peers.replay(pmreorder, log, name, checker, place / "images", limit_s, variables)
            heap = str(Path(file.path).relative_to(place / FOLDER))
    images = {one.image for run in runs.values() for one in run.checked}
    judge = peers.judge(images, engine.ask("states", trace, "--lines", str(first)).splitlines(), heap)
    return {
        "pmreorder": {name: peers.compared(run, judge) for name, run in runs.items()},
        "possible_images": peers.count_images(engine.ask("states", trace).splitlines(), heap, first),
    }


def make_heap(path: Path, size: int, stores: list[tuple[int, bytes]]) -> None:
    """As the creation has left it, everything persisted. stores: offset and bytes."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as file:
        file.truncate(size)
        for offset, content in stores:
            file.seek(offset)
            file.write(content)


def checker_of(bench: Bench, cell: PreparedCell) -> list[str]:
    """pmreorder's: the client of pbit, with the same bug as the allocator; of others what opens a copy by the adapter."""
    target, mutant = cell.target, cell.spec.mutant
    if target.allocator.name == "pbit":
        flags = ("-O1", "-g", "-Iinclude", "-DWITHOUT_PMEMCHECK", *((f"-DMUTANT_{mutant}",) if mutant else ()))
        recipe = build.Recipe("client", "client", flags, (f"{PBIT}/client.c",), ())
        return [str(build.make(bench.root, bench.cache, recipe).path), "check"]
    flags = ("-O1", "-g", "-Iinclude")
    recipe = build.Recipe("checker", "checker", flags, (f"{PBIT}/checker.c",), ("-ldl",))
    heap = target.allocator.heap
    sizes = (heap.heap_bytes, heap.limit_bytes, cell.workload.slots + PROBE_SLOTS, heap.address_hint)
    return [str(build.make(bench.root, bench.cache, recipe).path), str(target.adapter.path), *map(str, sizes)]


# ---- the table -----------------------------------------------------------------------------------------------------------

HEADS = (
    ("states", 10),
    ("a s", 9),
    ("images", 8),
    ("possible", 10),
    ("forbidden", 11),
    ("bad", 8),
    ("true", 7),
    ("first s", 9),
)


def exploring_in_words(rows: list[Row], _: bool) -> list[str]:
    lines = [
        "peers-exploring: states that recovery or checker ran on; those a second of processor time; distinct images; those of them",
        "that x86 leaves behind (of all that it does); states that x86 forbids; states called bad (faultline: findings); those",
        "that x86 leaves behind; seconds until the first of those. faultline takes its states from the model: none is forbidden",
        f"  {'':<40}" + "".join(f"{head:>{width}}" for head, width in HEADS),
    ]
    for row in rows:
        lines.append(f"  {row['allocator']} {row['mutant'] or CLEAN}, {row['operations']} operations")
        for probe, run in row["faultline"].items():
            who = f"faultline, {probe} probe, {run['engine']}"
            lines.append(f"    {who:<38}{our_cells(run)}")
        for name, run in row.get("pmreorder", {}).items():
            lines.append(f"    {name:<38}{their_cells(run, row)}")
    return lines + found_in_words(rows)


def our_cells(run: Row) -> str:
    cells = (
        run["recoveries"],
        round(run["recoveries_per_s"]),
        "",
        "",
        0,
        run["findings"],
        run["findings"],
        run["first_s"],
    )
    whole = "complete" if run["complete"] else f"not complete: {run['why']}"
    return f"{aligned(cells)}  {' '.join((run['verdict'], *run['rules']))}, {whole}"


def their_cells(run: Row, row: Row) -> str:
    all_images = "" if row["possible_images"] is None else f"/{row['possible_images']}"
    cells = (
        run["states"],
        round(run["states_per_s"]),
        run["images"],
        f"{run['possible_images']}{all_images}",
        run["forbidden"],
        run["bad"],
        run["true_bad"],
        run["first_true_s"],
    )
    said = [f"{run['undecided']:,} undecided"] if run["undecided"] else []
    said += [] if run["is_whole"] else [f"stopped: limit of {row['limit_s']} s"]
    return f"{aligned(cells)}  {'; '.join(said)}".rstrip()


def aligned(cells: tuple[Any, ...]) -> str:
    return "".join(f"{cell_text(cell):>{width}}" for cell, (_, width) in zip(cells, HEADS, strict=True))


def cell_text(cell: Any) -> str:
    if isinstance(cell, float):
        return f"{cell:.2f}"
    return "-" if cell is None else f"{cell:,}" if isinstance(cell, int) else cell


def found_in_words(rows: list[Row]) -> list[str]:
    """Bugs found, and allocators without a planted one that are called bad for a state that x86 forbids: by each tool."""
    bugs = [row for row in rows if row["mutant"]]
    clean = [row for row in rows if not row["mutant"]]
    found = {"faultline": [[bool(row["faultline"]["full"]["rules"]) for row in bugs], [False for _ in clean]]}
    for name in peers.ENGINES if all("pmreorder" in row for row in rows) else ():
        runs = [[row["pmreorder"][name] for row in some] for some in (bugs, clean)]
        found[name] = [[run["true_bad"] > 0 for run in runs[0]], [run["bad"] > run["true_bad"] for run in runs[1]]]
    return [
        f"  {name}: {sum(of_bugs)} of {len(of_bugs)} bugs found; forbidden states called bad: of {sum(of_clean)} of {len(of_clean)}"
        " allocators without a bug"
        for name, (of_bugs, of_clean) in found.items()
    ]


class ExportedFile(msgspec.Struct):
    path: str
    bytes: int


class Exported(msgspec.Struct):
    """Of what the engine says when it has written a trace as a log, what is asked here."""

    files: list[ExportedFile]


TRACING = Part("peers-tracing", 3600, measure_tracing, tracing_in_words, is_default=False)
EXPLORING = Part("peers-exploring", 3600, measure_exploring, exploring_in_words, is_default=False)
PARTS = (TRACING, EXPLORING)
