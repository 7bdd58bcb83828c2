# SPDX-License-Identifier: Apache-2.0
"""Conformance of a tracer: small programs, one an instruction or operation, and the events they must give.

    python pintools/conformance/check.py --tool-dir DIR --work DIR [--only NAME ...]
    python pintools/conformance/check.py --dump TRACE [--sites]

NAME.c is compiled and run under the tracer twice. Its events, one a line, must equal NAME.expected; the two traces must be
the same bytes; and the files that the trace says (its stores and file operations, applied in order) must be the files that
the program left. This file reads the trace format (../trace.h) on its own, so that a mistake of the engine's reader and one of
a tracer do not hide each other.

NAME.expected starts with optional directives:

    # needs: avx          skipped on a CPU without it
    # status: 7           exit status of the program, or `signal 6` (default 0)
    # events: sites       only the functions that the events' sites lie in, one a line, repetitions in a row left out
    # events: image       which instructions a library takes is its own business: only the files are compared
    # events: image       which instructions a library takes is its own business: only the files are compared
    # runs: differ        threads wait for each other, so locks of the C library run in another order each time
    # stderr: TEXT        the tracer's standard error contains TEXT

Fences that locks of the C library and the loader make are left out: they differ between versions.
"""

from __future__ import annotations

import argparse
import difflib
import functools
import itertools
import os
import shutil
import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

HERE = Path(__file__).resolve().parent
RUN_LIMIT_S = 120
COMPILER = os.environ.get("CC", "gcc")
FLAGS = ["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-I", str(HERE.parent)]

HEADER = struct.Struct("<8sIIQ24s16x")
CHUNK = struct.Struct("<IIQQQ")
RECORD = struct.Struct("<BBHIIIQQ")
CELL_BYTES = 32
CHUNK_MAGIC = 0x4B4E4843
FOOTER_MAGIC = 0x444E4546
FOOTER_BYTES = 64
VERSION = 1

(PROCESS, PROCESS_END, MODULE, SITE, FILE, STORE, FLUSH, FENCE, FILE_BEGIN, FILE_END, MAP, UNMAP, OPERATION_BEGIN,
 OPERATION_RETURN, UNSUPPORTED) = range(1, 16)  # fmt: skip
PROCESS_DETAILS = {1: "start", 2: "fork", 3: "exec"}
STORES = {1: "plain", 2: "nt", 3: "rmw", 4: "rep"}
FLUSHES = {1: "clflush", 2: "clflushopt", 3: "clwb"}
FENCES = {1: "sfence", 2: "mfence", 3: "rmw"}
FILE_OPERATIONS = {
    1: "create", 2: "truncate", 3: "allocate", 4: "punch", 5: "unlink", 6: "rename", 7: "msync", 8: "fsync", 9: "write",
    10: "mkdir", 11: "rmdir",
}  # fmt: skip
RENAME, WRITE, MKDIR, RMDIR = 6, 9, 10, 11
MAP_FLAGS = {1: "shared", 2: "private", 4: "synced", 8: "writable"}
OPERATIONS = {
    1: "case", 2: "create", 3: "open", 4: "close", 5: "allocate", 6: "free", 7: "reallocate", 8: "link", 9: "unlink",
    10: "collect",
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
        has_payload = detail in (RENAME, MKDIR, RMDIR) or (detail == WRITE and kind == FILE_BEGIN)
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
    sites: dict[int, tuple[int, int]] = field(default_factory=dict)

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
            self.sites[record.site] = (record.value, record.offset)

    def file(self, record: Record) -> str:
        if record.file not in self.files:
            raise TraceError(f"file {record.file} is used before it is defined")
        return self.files[record.file]

    def module_of(self, record: Record) -> str:
        if record.site and record.site not in self.sites:
            raise TraceError(f"site {record.site} is used before it is defined")
        module, _ = self.sites.get(record.site, (0, 0))
        return self.modules.get(module, "")


@functools.cache
def function_at(module: str, offset: int) -> str:
    """Name of the function that holds a link-time address, by addr2line."""
    answer = subprocess.run(
        ["addr2line", "-f", "-e", module, hex(offset)], capture_output=True, text=True, check=False
    ).stdout.splitlines()
    return answer[0] if answer else "?"


def site_text(record: Record, names: Definitions) -> str:
    module, offset = names.sites.get(record.site, (0, 0))
    return function_at(names.modules[module], offset) if module else "?"


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
    if name in ("rename", "mkdir", "rmdir"):
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


def process_text(record: Record, _: Definitions) -> str:
    if record.kind == PROCESS_END:
        return f"process-end value={record.value}"
    parent = f" parent={record.offset}" if record.offset else ""
    return f"process {PROCESS_DETAILS[record.detail]}{parent}"


TEXTS: dict[int, Callable[[Record, Definitions], str]] = {
    PROCESS: process_text,
    PROCESS_END: process_text,
    STORE: store_text,
    FLUSH: lambda r, names: f"flush {FLUSHES[r.detail]} file={names.file(r)} offset={r.offset}",
    FENCE: lambda r, _: f"fence {FENCES[r.detail]}",
    FILE_BEGIN: file_operation_text,
    FILE_END: file_operation_text,
    MAP: mapping_text,
    UNMAP: mapping_text,
    OPERATION_BEGIN: marker_text,
    OPERATION_RETURN: marker_text,
    UNSUPPORTED: lambda r, _: f"unsupported {r.payload.decode(errors='replace')}",
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

    @classmethod
    def read(cls, path: Path) -> Expectation:
        result = cls([], [])
        for line in path.read_text().splitlines():
            if not line.startswith("#"):
                if line.strip():
                    result.lines.append(line)
                continue
            key, _, value = line[1:].partition(":")
            value = value.strip()
            if key.strip() == "needs":
                result.needs = value.split()
            elif key.strip() == "status":
                result.status = -int(value.split()[1]) if value.startswith("signal") else int(value)
            elif key.strip() == "events":
                result.events = value
            elif key.strip() == "runs":
                result.runs = value
            elif key.strip() == "stderr":
                result.stderr = value
        return result


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


def trace_program(program: Path, tool_dir: Path, trace: Path, folder: Path) -> subprocess.CompletedProcess[str]:
    trace.unlink(missing_ok=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir()
    command = [
        "valgrind",
        "-q",
        "--tool=faultline",
        f"--trace={trace}",
        f"--pm-folder={folder}",
        str(program),
        str(folder),
    ]
    environment = dict(os.environ, VALGRIND_LIB=str(tool_dir))
    return subprocess.run(
        command, env=environment, capture_output=True, text=True, timeout=RUN_LIMIT_S, check=False, cwd=program.parent
    )


def difference(expected: list[str], actual: list[str]) -> str:
    return "\n".join(difflib.unified_diff(expected, actual, "expected", "traced", lineterm="", n=3))


def check_program(name: str, tool_dir: Path, work: Path) -> str:
    """Empty if the program gives its expected events, twice the same bytes; else what is wrong."""
    expectation = Expectation.read(HERE / f"{name}.expected")
    program = compile_program(name, work)
    traces = [work / f"{name}.{run}.trace" for run in (1, 2)]
    for trace in traces:
        finished = trace_program(program, tool_dir, trace, work / f"{name}.pm")
        if finished.returncode != expectation.status:
            return f"exit status {finished.returncode}, expected {expectation.status}\n{finished.stderr}"
        if expectation.stderr not in finished.stderr or (finished.stderr and not expectation.stderr):
            return f"standard error:\n{finished.stderr}expected: {expectation.stderr or '(nothing)'}"
    actual = list(events(traces[0], expectation.events == "sites"))
    if expectation.events == "sites":
        functions = [line.rpartition(" in=")[2] for line in actual if " in=" in line]
        actual = [function for function, _ in itertools.groupby(functions)]
    if actual != expectation.lines and expectation.events != "image":
        return difference(expectation.lines, actual)
    if expectation.runs != "differ" and traces[0].read_bytes() != traces[1].read_bytes():
        return "two runs gave different traces"
    return image_difference(traces[1], work / f"{name}.pm")


def image_difference(trace: Path, folder: Path) -> str:
    image = Image()
    for record in read_trace(trace):
        image.apply(record)
    return image.difference_to(folder) if image.is_followed else ""


def names() -> list[str]:
    """All programs of the suite."""
    return sorted(path.stem for path in HERE.glob("*.expected"))


def check(tool_dir: Path, work: Path, only: list[str] | None = None) -> Iterator[tuple[str, bool | None, str]]:
    """Yields (name, ok, difference) for each program; ok is None if this CPU cannot run it."""
    work.mkdir(parents=True, exist_ok=True)
    for name in only or names():
        missing = [flag for flag in Expectation.read(HERE / f"{name}.expected").needs if flag not in cpu_flags()]
        if missing:
            yield name, None, f"skipped: this CPU has no {' '.join(missing)}"
            continue
        try:
            wrong = check_program(name, tool_dir.resolve(), work.resolve())
        except subprocess.CalledProcessError as error:
            wrong = f"does not compile:\n{error.stderr}"
        except subprocess.TimeoutExpired:
            wrong = f"still running after {RUN_LIMIT_S} s"
        except TraceError as error:
            wrong = str(error)
        yield name, not wrong, wrong


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
    parser.add_argument("--tool-dir", type=Path, help="folder with faultline-amd64-linux and Valgrind's own files")
    parser.add_argument("--work", type=Path, help="folder for programs and traces")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="only these programs")
    parser.add_argument("--dump", type=Path, metavar="TRACE", help="print a trace's events and stop")
    parser.add_argument("--sites", action="store_true", help="with --dump: the function of each event")
    options = parser.parse_args()
    if options.dump:
        return dump(options.dump, options.sites)
    if not options.tool_dir or not options.work:
        return stop("--tool-dir and --work are needed (or --dump TRACE)")
    if not (options.tool_dir / "faultline-amd64-linux").exists():
        return stop(
            f"{options.tool_dir}/faultline-amd64-linux is not there; make -C pintools/valgrind OUT={options.tool_dir}"
        )
    if not shutil.which("valgrind"):
        return stop("valgrind is not installed: apt-get install valgrind")
    unknown = sorted(set(options.only or []) - set(names()))
    if unknown:
        return stop(f"no program {' '.join(unknown)}; there are: {' '.join(names())}")
    passed = failed = skipped = 0
    for name, ok, wrong in check(options.tool_dir, options.work, options.only):
        passed, failed, skipped = passed + (ok is True), failed + (ok is False), skipped + (ok is None)
        if ok is not True:
            print(f"{'FAILED' if ok is False else 'skipped'} {name}\n{wrong}")
    print(f"{passed} passed, {failed} failed" + (f", {skipped} skipped" if skipped else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
