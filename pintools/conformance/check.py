# SPDX-License-Identifier: Apache-2.0
"""Conformance of a tracer: small programs, one an instruction or operation, and the events they must give.

    python pintools/conformance/check.py [--tracer NAME] --tool-dir DIR --work DIR [--only NAME ...]
    python pintools/conformance/check.py --dump TRACE [--sites]

The tracers: `valgrind` (the default), `pin` (the Pin tool, run by the kit in PIN_ROOT) and `drive` (the parts of the Pin tool that
need no kit, driven by single steps).

NAME.c is compiled and run under the tracer twice. Its events, one a line, must equal NAME.expected; the two traces must be
the same bytes; and the files that the trace says (its stores and file operations, applied in order) must be the files that
the program left. This file reads the trace format (../trace.h) on its own, so that a mistake of the engine's reader and one of
a tracer do not hide each other.

What two tracers say differently of one program, because one knows more instructions, is in NAME.pin.expected (the Pin tool, and the
driver of its parts). NAME.expected starts with optional directives:

    # needs: avx          skipped on a CPU without it
    # status: 7           exit status of the program, or `signal 6` (default 0)
    # events: sites       only the functions that the events' sites lie in, each with those that called it, innermost first; one a
    #                     line, repetitions in a row left out
    # events: image       which instructions a library takes is its own business: only the files are compared
    # events: by thread   those of each thread in their order; how threads interleave is the schedule's business
    # events: covered     stores between two other events as the bytes they cover: which instructions is a library's business
    # stores: as lackey   Valgrind's own tool that prints every access sees the same stores, in size and order, a `rep` in units. Of
    #                     the tracer under Valgrind: on another processor the library chooses other instructions
    # environments: A=1 | A=2   to trace in, each (variants of a library's functions)
    # runs: differ        signals between threads: the tracer promises the events, not the same bytes
    # stderr: TEXT        the tracer's standard error contains TEXT
    # seeds: 0 1 2 7      schedules to trace under (default 0). Different seeds must interleave the threads differently
    # loaded runs: 20     then as many under the last seed while all processors are kept busy: the same bytes each time

Fences that locks of the C library and the loader make are left out: they differ between versions.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import itertools
import os
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN_LIMIT_S = 300  # for what hangs: single steps of a long run take 120 s on a slow machine
COMPILER = os.environ.get("CC", "gcc")
FLAGS = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", str(HERE.parent)]

HEADER = struct.Struct("<8sIIQ24s16x")
CHUNK = struct.Struct("<IIQQQ")
RECORD = struct.Struct("<BBHIIIQQ")
CELL_BYTES = 32
HEAP = 0x200000000000  # of program.h
CHUNK_MAGIC = 0x4B4E4843
FOOTER_MAGIC = 0x444E4546
FOOTER_BYTES = 64
VERSION = 6

(PROCESS, PROCESS_END, MODULE, SITE, FILE, STORE, FLUSH, FENCE, FILE_BEGIN, FILE_END, MAP, UNMAP, OPERATION_BEGIN,
 OPERATION_RETURN, UNSUPPORTED) = range(1, 16)  # fmt: skip
PROCESS_DETAILS = {1: "start", 2: "fork", 3: "exec"}
STORES = {1: "plain", 2: "nt", 3: "rmw", 4: "rep"}
FLUSHES = {1: "clflush", 2: "clflushopt", 3: "clwb"}
FENCES = {1: "sfence", 2: "mfence", 3: "rmw"}
FILE_OPERATIONS = {
    1: "create", 2: "truncate", 3: "allocate", 4: "punch", 5: "unlink", 6: "rename", 7: "msync", 8: "fsync", 9: "write",
    10: "mkdir", 11: "rmdir", 12: "sync-folder", 13: "sync-all",
}  # fmt: skip
RENAME, WRITE, MKDIR, RMDIR, SYNC_FOLDER = 6, 9, 10, 11, 12
MAP_FLAGS = {1: "shared", 2: "private", 4: "synced", 8: "writable", 16: "refused"}
OPERATIONS = {
    1: "case", 2: "create", 3: "open", 4: "close", 5: "allocate", 6: "free", 7: "reallocate", 8: "link", 9: "unlink",
    10: "collect", 11: "drop", 12: "load", 13: "begin", 14: "commit", 15: "abort", 16: "write",
}  # fmt: skip
LIBRARIES = ("libc.so", "libc-", "ld-linux", "ld-2")


class TraceError(Exception):
    """The file is not a trace as trace.h describes it."""


@dataclass(frozen=True)
class Record:
    """One record with its payload, of the process whose chunk holds it."""

    process: int
    kind: int
    detail: int
    thread: int
    site: int
    file: int
    size: int
    offset: int
    value: int
    payload: bytes


def checksum(cells: bytes) -> int:
    """fl_checksum of trace.h."""
    total = 0x666C74726163651
    mask = (1 << 64) - 1
    for (word,) in struct.iter_unpack("<Q", cells):
        total = ((total ^ word) * 0x9E3779B97F4A7C15) & mask
        total ^= total >> 32
    return total


def payload_bytes(kind: int, detail: int, size: int) -> int:
    """Bytes that follow a record of this kind."""
    if kind in (MODULE, FILE, UNSUPPORTED):
        return size
    if kind == STORE:
        return size if size > 8 else 0
    if kind in (FILE_BEGIN, FILE_END):
        has_payload = detail in (RENAME, MKDIR, RMDIR, SYNC_FOLDER) or (detail == WRITE and kind == FILE_BEGIN)
        return size if has_payload else 0
    return 0


def read_trace(path: Path) -> Iterator[Record]:
    """All records in the order of the file; raises TraceError if anything is not as trace.h says."""
    data = path.read_bytes()
    if len(data) < HEADER.size:
        raise TraceError(f"{path}: {len(data)} bytes, a trace starts with {HEADER.size}")
    magic, version, record_bytes, _seed, _tracer = HEADER.unpack_from(data)
    if magic != b"FLTRACE\0" or version != VERSION or record_bytes != CELL_BYTES:
        raise TraceError(f"{path}: not a trace of version {VERSION}")
    at = HEADER.size
    while at < len(data):
        if len(data) - at == FOOTER_BYTES and struct.unpack_from("<I", data, at)[0] == FOOTER_MAGIC:
            return
        if len(data) - at < CHUNK.size:
            raise TraceError(f"{path}: truncated at byte {at}")
        chunk_magic, process, count, expected_sum, _ = CHUNK.unpack_from(data, at)
        at += CHUNK.size
        cells = data[at : at + count * CELL_BYTES]
        if chunk_magic != CHUNK_MAGIC or len(cells) != count * CELL_BYTES:
            raise TraceError(f"{path}: no whole chunk at byte {at - CHUNK.size}")
        if checksum(cells) != expected_sum:
            raise TraceError(f"{path}: wrong checksum of the chunk at byte {at - CHUNK.size}")
        yield from read_chunk(path, process, cells)
        at += len(cells)


def read_chunk(path: Path, process: int, cells: bytes) -> Iterator[Record]:
    at = 0
    while at < len(cells):
        kind, detail, thread, site, file, size, offset, value = RECORD.unpack_from(cells, at)
        at += CELL_BYTES
        length = payload_bytes(kind, detail, size)
        padded = (length + CELL_BYTES - 1) // CELL_BYTES * CELL_BYTES
        raw = cells[at : at + padded]
        if len(raw) != padded or any(raw[length:]):
            raise TraceError(f"{path}: payload of a record of kind {kind} is split or not zero padded")
        at += padded
        yield Record(process, kind, detail, thread, site, file, size, offset, value, raw[:length])


@dataclass
class Definitions:
    """Names that one process has defined so far."""

    files: dict[int, str] = field(default_factory=dict)
    modules: dict[int, str] = field(default_factory=dict)
    sites: dict[int, tuple[int, int, int]] = field(default_factory=dict)  # module, offset, caller

    def learn(self, record: Record) -> None:
        if record.kind == FILE:
            self.files[record.file] = record.payload.decode()
        elif record.kind == MODULE:
            path, build_id, rest = record.payload.split(b"\0")
            if rest or any(c not in b"0123456789abcdef" for c in build_id):
                raise TraceError(f"module {record.value}: payload is not path NUL build id NUL")
            self.modules[record.value] = path.decode()
        elif record.kind == SITE:
            if record.value and record.value not in self.modules:
                raise TraceError(f"site {record.site} is defined before its module {record.value}")
            if record.size and record.size not in self.sites:
                raise TraceError(f"site {record.site} is defined before its caller {record.size}")
            self.sites[record.site] = (record.value, record.offset, record.size)

    def file(self, record: Record) -> str:
        if record.file not in self.files:
            raise TraceError(f"file {record.file} is used before it is defined")
        return self.files[record.file]

    def module_of(self, record: Record) -> str:
        if record.site and record.site not in self.sites:
            raise TraceError(f"site {record.site} is used before it is defined")
        module, _, _ = self.sites.get(record.site, (0, 0, 0))
        return self.modules.get(module, "")


@functools.cache
def function_at(module: str, offset: int) -> str:
    """Name of the function that holds a link-time address, by addr2line."""
    answer = subprocess.run(
        ["addr2line", "-f", "-e", module, hex(offset)], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return answer[0] if answer else "?"


def site_text(record: Record, names: Definitions) -> str:
    functions = []
    site = record.site
    while site:
        module, offset, site = names.sites[site]
        functions.append(function_at(names.modules[module], offset) if module else "?")
    return "<".join(functions)


def bytes_text(content: bytes) -> str:
    """In memory order; a long run of one value in short."""
    if len(content) > 64 and content == content[:1] * len(content):
        return f" bytes={content[:1].hex()}*{len(content)}"
    return " bytes=" + content.hex()


def store_text(record: Record, names: Definitions) -> str:
    value = bytes_text(record.payload) if record.size > 8 else f" value=0x{record.value:0{2 * record.size}x}"
    return f"store {STORES[record.detail]} file={names.file(record)} offset={record.offset} size={record.size}{value}"


def file_operation_text(record: Record, names: Definitions) -> str:
    is_begin = record.kind == FILE_BEGIN
    name = FILE_OPERATIONS[record.detail]
    text = f"file-{'begin' if is_begin else 'end'} {name}"
    if record.file:
        text += f" file={names.file(record)}"
    if name in ("truncate", "allocate", "punch", "msync", "write"):
        text += f" offset={record.offset}"
    if is_begin and name in ("allocate", "punch", "msync"):
        text += f" bytes={record.value}"
    if name in ("rename", "mkdir", "rmdir", "sync-folder"):
        text += f" path={record.payload.decode()}"
    if is_begin and name == "write":
        text += f" size={record.size}" + bytes_text(record.payload)
    return text if is_begin else f"{text} error={record.value}"


def mapping_text(record: Record, names: Definitions) -> str:
    flags = "".join(f" {name}" for bit, name in MAP_FLAGS.items() if record.detail & bit)
    kind = "map" if record.kind == MAP else "unmap"
    return f"{kind} file={names.file(record)} offset={record.offset} bytes={record.value}{flags}"


def marker_text(record: Record, _: Definitions) -> str:
    operation = OPERATIONS[record.detail]
    if record.kind == OPERATION_RETURN:
        return f"return {operation} index={record.size} status={record.value}"
    if operation == "case":
        return f"begin case number={record.size}"
    return f"begin {operation} index={record.size} slot={record.file} bytes={record.offset} object={record.value}"


def without_folder(text: str) -> str:
    """Of a file outside of the PM folder: the folder is another one in each run."""
    return re.sub(r"changes /\S+/", "changes ", text)


def process_text(record: Record, _: Definitions) -> str:
    if record.kind == PROCESS_END:
        return f"process-end value={record.value}"
    parent = f" parent={record.offset}" if record.offset else ""
    return f"process {PROCESS_DETAILS[record.detail]}{parent}"


def flush_text(record: Record, names: Definitions) -> str:
    where = f"file={names.file(record)} offset={record.offset}" if record.file else f"elsewhere count={record.value}"
    return f"flush {FLUSHES[record.detail]} {where}"


TEXTS: dict[int, Callable[[Record, Definitions], str]] = {
    PROCESS: process_text,
    PROCESS_END: process_text,
    STORE: store_text,
    FLUSH: flush_text,
    FENCE: lambda r, _: f"fence {FENCES[r.detail]}",
    FILE_BEGIN: file_operation_text,
    FILE_END: file_operation_text,
    MAP: mapping_text,
    UNMAP: mapping_text,
    OPERATION_BEGIN: marker_text,
    OPERATION_RETURN: marker_text,
    UNSUPPORTED: lambda r, _: f"unsupported {without_folder(r.payload.decode(errors='replace'))}",
}


def is_library_fence(record: Record, names: Definitions) -> bool:
    return record.kind == FENCE and Path(names.module_of(record)).name.startswith(LIBRARIES)


def events(path: Path, with_sites: bool = False, with_library: bool = False) -> Iterator[str]:
    """The events of a trace as text, definitions resolved."""
    names: dict[int, Definitions] = {}
    for record in read_trace(path):
        known = names.setdefault(record.process, Definitions())
        if record.kind in (FILE, MODULE, SITE):
            known.learn(record)
            continue
        if record.kind not in TEXTS:
            raise TraceError(f"{path}: record of unknown kind {record.kind}")
        if is_library_fence(record, known) and not with_library:
            continue
        text = TEXTS[record.kind](record, known)
        known.module_of(record)
        if record.thread > 1:
            text += f" thread={record.thread}"
        if record.process > 1:
            text += f" process={record.process}"
        if with_sites and record.site:
            text += f" in={site_text(record, known)}"
        yield text


class Image:
    """The files below the PM folder as a trace tells them: its stores and file operations applied in order."""

    def __init__(self) -> None:
        self.names: dict[str, bytearray] = {}
        self.is_followed = True  # no FL_UNSUPPORTED yet
        self._files: dict[tuple[int, int], tuple[str, bytearray]] = {}  # by process and id
        self._begun: dict[tuple[int, ...], Record] = {}

    def apply(self, record: Record) -> None:
        if record.kind == FILE:
            name = record.payload.decode()
            self._files[record.process, record.file] = (name, self.names.get(name, bytearray()))
        elif record.kind == STORE:
            self._store(record)
        elif record.kind == FILE_BEGIN:
            self._begun[self._key(record)] = record
        elif record.kind == FILE_END:
            begin = self._begun.pop(self._key(record))
            if record.value == 0:
                self._operate(FILE_OPERATIONS[record.detail], begin)
        elif record.kind == UNSUPPORTED:
            self.is_followed = False

    @staticmethod
    def _key(record: Record) -> tuple[int, ...]:
        return record.process, record.thread, record.detail, record.file, record.offset

    def _store(self, record: Record) -> None:
        _, content = self._files[record.process, record.file]
        value = record.payload or record.value.to_bytes(8, "little")[: record.size]
        inside = max(0, min(record.size, len(content) - record.offset))  # beyond the file's end a mapping holds nothing
        content[record.offset : record.offset + inside] = value[:inside]

    def _operate(self, operation: str, begin: Record) -> None:
        first_name, content = self._files.get((begin.process, begin.file), ("", bytearray()))
        end = begin.offset + (begin.size if operation == "write" else begin.value)
        if operation == "create":
            self.names[first_name] = content
        elif operation == "truncate":
            self._resize(content, begin.offset)
        elif operation == "allocate":
            self._resize(content, max(len(content), end))
        elif operation == "punch":
            end = min(len(content), end)
            content[begin.offset : end] = bytes(max(0, end - begin.offset))
        elif operation == "write":
            self._resize(content, max(len(content), end))
            content[begin.offset : end] = begin.payload
        elif operation in ("unlink", "rename"):
            old = next(name for name, other in self.names.items() if other is content)
            del self.names[old]
            if operation == "rename":
                self.names[begin.payload.decode()] = content

    @staticmethod
    def _resize(content: bytearray, size: int) -> None:
        del content[size:]
        content.extend(bytes(size - len(content)))

    def difference_to(self, folder: Path) -> str:
        """Empty if the folder holds just these files."""
        real = {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
        if sorted(real) != sorted(self.names):
            return f"files by the trace: {sorted(self.names)}; files in the folder: {sorted(real)}"
        for name, content in real.items():
            if content != self.names[name]:
                pairs = enumerate(zip(content, self.names[name], strict=False))
                at = next((i for i, (a, b) in pairs if a != b), min(len(content), len(self.names[name])))
                return f"{name}: the trace tells another content than the program left, first at byte {at}"
        return ""


@dataclass
class Expectation:
    """What NAME.expected says."""

    lines: list[str]
    needs: list[str]
    status: int = 0
    events: str = ""
    runs: str = ""
    stderr: str = ""
    stores: str = ""
    environments: list[dict[str, str]] = field(default_factory=lambda: [{}])
    seeds: list[int] = field(default_factory=lambda: [0])
    loaded_runs: int = 0

    @classmethod
    def read(cls, path: Path) -> Expectation:
        result = cls([], [])
        for line in path.read_text().splitlines():
            if line.startswith("#"):
                key, _, value = line[1:].partition(":")
                if key.strip() not in DIRECTIVES:
                    raise TraceError(f"{path}: unknown directive {key.strip()}")
                setattr(result, key.strip().replace(" ", "_"), DIRECTIVES[key.strip()](value.strip()))
            elif line.strip():
                result.lines.append(line)
        return result


def read_status(text: str) -> int:
    return -int(text.split()[1]) if text.startswith("signal") else int(text)


def read_environments(text: str) -> list[dict[str, str]]:
    """Each with the default one before them."""
    return [{}] + [dict([choice.strip().split("=", 1)]) for choice in text.split("|")]


DIRECTIVES: dict[str, Callable[[str], object]] = {
    "needs": str.split,
    "status": read_status,
    "events": str,
    "runs": str,
    "stderr": str,
    "stores": str,
    "environments": read_environments,
    "seeds": lambda text: [int(seed) for seed in text.split()],
    "loaded runs": int,
}


@functools.cache
def cpu_flags() -> frozenset[str]:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("flags"):
            return frozenset(line.split(":")[1].split())
    return frozenset()


def compile_program(name: str, work: Path) -> Path:
    program = work / name
    subprocess.run(
        [COMPILER, *FLAGS, "-o", str(program), str(HERE / f"{name}.c")], check=True, capture_output=True, text=True
    )
    return program


@dataclass(frozen=True)
class Tracer:
    """How a tracer is started. file: what is in its tool_dir; made_by: the command that makes it; installed: what is missing beside
    it (empty: nothing); expected: what the names of expectations of its own end with."""

    name: str
    file: str
    made_by: str
    command: Callable[[Path, Path, Path, int], list[str]]
    """Of tool_dir, trace, PM folder, seed."""
    environment: Callable[[Path], dict[str, str]] = lambda _: {}
    installed: Callable[[], str] = lambda: ""
    expected: str = ""


def valgrind_command(_tool_dir: Path, trace: Path, folder: Path, seed: int) -> list[str]:
    tool = ["--tool=faultline", f"--trace={trace}", f"--pm-folder={folder}", f"--schedule-seed={seed}"]
    return ["valgrind", "-q", *tool]


def pin_options(trace: Path, folder: Path, seed: int) -> list[str]:
    return ["-trace", str(trace), "-pm_folder", str(folder), "-schedule_seed", str(seed), "--"]


def pin_command(tool_dir: Path, trace: Path, folder: Path, seed: int) -> list[str]:
    kit = Path(os.environ["PIN_ROOT"])
    return ["setarch", "-R", str(kit / "pin"), "-t", str(tool_dir / "faultline.so"), *pin_options(trace, folder, seed)]


def drive_command(tool_dir: Path, trace: Path, folder: Path, seed: int) -> list[str]:
    return [str(tool_dir / "drive"), *pin_options(trace, folder, seed)]


TRACERS = {
    tracer.name: tracer
    for tracer in (
        Tracer(
            "valgrind",
            "faultline-amd64-linux",
            "make -C pintools/valgrind",
            valgrind_command,
            environment=lambda tool_dir: {"VALGRIND_LIB": str(tool_dir)},
            installed=lambda: "" if shutil.which("valgrind") else "valgrind is not installed: apt-get install valgrind",
        ),
        Tracer(
            "pin",
            "faultline.so",
            "make -C pintools/pin PIN_ROOT=KIT",
            pin_command,
            installed=lambda: (
                "" if os.environ.get("PIN_ROOT") else "PIN_ROOT is not set: set it to the folder of a Pin kit"
            ),
            expected=".pin",
        ),
        Tracer("drive", "drive", "make -C pintools/pin drive", drive_command, expected=".pin"),
    )
}


def run_under(
    command: list[str], program: Path, folder: Path, environment: dict[str, str]
) -> subprocess.CompletedProcess[str]:
    """The program under a tracer's command line, in a fresh PM folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    return subprocess.run(
        [*command, str(program), str(folder)],
        env=dict(os.environ, **environment),
        capture_output=True,
        text=True,
        timeout=RUN_LIMIT_S,
        check=False,
        cwd=program.parent,
    )


def difference(expected: list[str], actual: list[str]) -> str:
    return "\n".join(difflib.unified_diff(expected, actual, "expected", "traced", lineterm="", n=3))


@dataclass(frozen=True)
class Tracing:
    """One program with what it takes to trace it."""

    program: Path
    expectation: Expectation
    tracer: Tracer
    tool_dir: Path
    work: Path

    @property
    def folder(self) -> Path:
        return self.work / f"{self.program.name}.pm"

    def run(self, seed: int, label: str, environment: dict[str, str]) -> Path:
        """The trace; raises TraceError if the program or the tracer ended otherwise than expected."""
        trace = self.work / f"{self.program.name}.{label}.trace"
        trace.unlink(missing_ok=True)
        command = self.tracer.command(self.tool_dir, trace, self.folder, seed)
        variables = {**environment, **self.tracer.environment(self.tool_dir)}
        finished = run_under(command, self.program, self.folder, variables)
        expected = self.expectation
        if finished.returncode != expected.status:
            raise TraceError(f"exit status {finished.returncode}, expected {expected.status}\n{finished.stderr}")
        if expected.stderr not in finished.stderr or (finished.stderr and not expected.stderr):
            raise TraceError(f"standard error:\n{finished.stderr}expected: {expected.stderr or '(nothing)'}")
        return trace

    def events_difference(self, trace: Path) -> str:
        actual = list(events(trace, self.expectation.events == "sites"))
        if self.expectation.events == "image":
            return ""
        if self.expectation.events == "sites":
            functions = [line.rpartition(" in=")[2] for line in actual if " in=" in line]
            actual = [function for function, _ in itertools.groupby(functions)]
        elif self.expectation.events == "by thread":
            actual.sort(key=thread_of)
        elif self.expectation.events == "covered":
            actual = list(covered(actual))
        return "" if actual == self.expectation.lines else difference(self.expectation.lines, actual)


def thread_of(line: str) -> tuple[int, int]:
    """Process and thread of an event's text; the main thread's is left out there."""
    numbers = dict(word.split("=", 1) for word in line.split() if word.startswith(("thread=", "process=")))
    return int(numbers.get("process", 1)), int(numbers.get("thread", 1))


def covered(lines: list[str]) -> Iterator[str]:
    """Runs of stores replaced by the ranges of the file that they cover."""
    for is_run, group in itertools.groupby(lines, key=lambda line: line.startswith("store ")):
        if not is_run:
            yield from group
            continue
        stores = [dict(word.split("=", 1) for word in line.split() if "=" in word) for line in group]
        end, start = -1, -1
        for offset, size in sorted((int(store["offset"]), int(store["size"])) for store in stores):
            if offset > end:
                if end >= 0:
                    yield f"covered offset={start} size={end - start}"
                start, end = offset, offset
            end = max(end, offset + size)
        yield f"covered offset={start} size={end - start}"


def expectation_of(name: str, tracer: Tracer) -> Expectation:
    own = HERE / f"{name}{tracer.expected}.expected"
    return Expectation.read(own if own.exists() else HERE / f"{name}.expected")


def check_program(name: str, tracer: Tracer, tool_dir: Path, work: Path) -> str:
    """Empty if the program gives its expected events, and the same bytes for the same seed; else what is wrong."""
    tracing = Tracing(compile_program(name, work), expectation_of(name, tracer), tracer, tool_dir, work)
    for environment in tracing.expectation.environments:
        wrong = environment_difference(tracing, environment)
        if wrong:
            return " ".join([*map("=".join, environment.items()), wrong])
    return ""


def environment_difference(tracing: Tracing, environment: dict[str, str]) -> str:
    seeds = tracing.expectation.seeds
    first: dict[int, bytes] = {}
    for seed, again in itertools.product(seeds, (1, 2)):
        trace = tracing.run(seed, f"{seed}.{again}", environment)
        wrong = tracing.events_difference(trace) or image_difference(trace, tracing.folder)
        if wrong:
            return f"seed {seed}: {wrong}"
        content = trace.read_bytes()
        if HEADER.unpack_from(content)[3] != seed:
            return f"seed {seed}: the header names another schedule seed"
        if first.setdefault(seed, content) != content and tracing.expectation.runs != "differ":
            return f"seed {seed}: two runs gave different traces"
    if len(seeds) > 1 and len({content[HEADER.size :] for content in first.values()}) == 1:
        return f"seeds {seeds} all gave one interleaving"
    if tracing.expectation.stores == "as lackey" and tracing.tracer.name == "valgrind":
        return lackey_difference(read_trace(trace), lackey_stores(tracing, environment))
    return loaded_difference(tracing, seeds[-1], first[seeds[-1]])


def lackey_stores(tracing: Tracing, environment: dict[str, str]) -> list[tuple[int, int]]:
    """Offset and size of each store to the file "heap", mapped once and whole at HEAP, as Valgrind's own tool sees it."""
    log = tracing.work / f"{tracing.program.name}.lackey"
    lackey = ["valgrind", "-q", "--tool=lackey", "--trace-mem=yes", f"--log-file={log}"]
    run_under(lackey, tracing.program, tracing.folder, environment)
    size = (tracing.folder / "heap").stat().st_size
    stores = []
    with log.open() as lines:
        for line in lines:
            if line.startswith((" S 20", " M 20")):
                address, bytes_ = line[3:].split(",")
                if HEAP <= int(address, 16) < HEAP + size:
                    stores.append((int(address, 16) - HEAP, int(bytes_)))
    log.unlink()
    return stores


def lackey_difference(records: Iterator[Record], seen: list[tuple[int, int]]) -> str:
    units = iter(seen)
    for number, record in enumerate(record for record in records if record.kind == STORE):
        parts = [next(units, (-1, 0))]
        while STORES[record.detail] == "rep" and parts[-1][1] and sum(size for _, size in parts) < record.size:
            parts.append(next(units, (-1, 0)))
        found = min(offset for offset, _ in parts), sum(size for _, size in parts)
        if found != (record.offset, record.size):
            return f"store {number}: offset {record.offset}, {record.size} bytes; lackey saw {parts[:4]}"
    return f"lackey saw {1 + len(list(units))} more stores" if next(units, None) else ""


def loaded_difference(tracing: Tracing, seed: int, content: bytes) -> str:
    """Empty if the trace is the same bytes in each of the loaded runs."""
    if not tracing.expectation.loaded_runs:
        return ""
    busy = [sys.executable, "-c", "while True: pass"]
    load = [subprocess.Popen(busy) for _ in range(2 * len(os.sched_getaffinity(0)))]
    try:
        for run in range(1, tracing.expectation.loaded_runs + 1):
            if tracing.run(seed, "loaded", {}).read_bytes() != content:
                return f"seed {seed}: run {run} on a busy machine gave a different trace"
    finally:
        for process in load:
            process.kill()
            process.wait()
    return ""


def image_difference(trace: Path, folder: Path) -> str:
    image = Image()
    for record in read_trace(trace):
        image.apply(record)
    return image.difference_to(folder) if image.is_followed else ""


def names() -> list[str]:
    """All programs of the suite."""
    return sorted(path.stem for path in HERE.glob("*.expected") if "." not in path.stem)


def check(
    tool_dir: Path, work: Path, only: list[str] | None = None, tracer: str = "valgrind"
) -> Iterator[tuple[str, bool | None, str]]:
    """Yields (name, ok, difference) for each program; ok is None if this CPU cannot run it."""
    work.mkdir(parents=True, exist_ok=True)
    one = functools.partial(check_one, TRACERS[tracer], tool_dir.resolve(), work.resolve())
    with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
        yield from pool.map(one, only or names())


def check_one(tracer: Tracer, tool_dir: Path, work: Path, name: str) -> tuple[str, bool | None, str]:
    try:
        missing = [flag for flag in expectation_of(name, tracer).needs if flag not in cpu_flags()]
        if missing:
            return name, None, f"skipped: this CPU has no {' '.join(missing)}"
        wrong = check_program(name, tracer, tool_dir, work)
    except subprocess.CalledProcessError as error:
        wrong = f"does not compile:\n{error.stderr}"
    except subprocess.TimeoutExpired:
        wrong = f"still running after {RUN_LIMIT_S} s"
    except TraceError as error:
        wrong = str(error)
    return name, not wrong, wrong


def stop(message: str) -> int:
    print(f"check.py: error: {message}", file=sys.stderr)
    return 2


def dump(path: Path, with_sites: bool) -> int:
    try:
        for line in events(path, with_sites, with_library=True):
            print(line)
    except BrokenPipeError:  # the reader of our output has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except OSError as error:
        return stop(f"cannot read {path}: {error.strerror}")
    except TraceError as error:
        return stop(str(error))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description="Checks a tracer against the conformance suite.")
    parser.add_argument("--tracer", choices=list(TRACERS), default="valgrind", help="which one (default: valgrind)")
    parser.add_argument("--tool-dir", type=Path, help="folder that the tracer's Makefile filled")
    parser.add_argument("--work", type=Path, help="folder for programs and traces")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these programs")
    parser.add_argument("--dump", type=Path, metavar="TRACE", help="print a trace's events and stop")
    parser.add_argument("--sites", action="store_true", help="with --dump: the function of each event")
    options = parser.parse_args()
    if options.dump:
        return dump(options.dump, options.sites)
    if not options.tool_dir or not options.work:
        return stop("--tool-dir and --work are needed (or --dump TRACE)")
    tracer = TRACERS[options.tracer]
    if not (options.tool_dir / tracer.file).exists():
        return stop(f"{options.tool_dir}/{tracer.file} is not there; {tracer.made_by} OUT={options.tool_dir}")
    if tracer.installed():
        return stop(tracer.installed())
    unknown = sorted(set(options.only or []) - set(names()))
    if unknown:
        return stop(f"no program {' '.join(unknown)}; there are: {' '.join(names())}")
    passed = failed = skipped = 0
    for name, ok, wrong in check(options.tool_dir, options.work, options.only, tracer.name):
        passed, failed, skipped = passed + (ok is True), failed + (ok is False), skipped + (ok is None)
        if ok is not True:
            print(f"{'FAILED' if ok is False else 'skipped'} {name}\n{wrong}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
