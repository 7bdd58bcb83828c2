# SPDX-License-Identifier: Apache-2.0
"""The fork server's protocol, for tests of what recorded runs list (runner/protocol.h)."""

from __future__ import annotations

import functools
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

CREATE, WRITE, MKDIR, RUN, WATCH, ENGINES, REPORT, SEAT = 1, 6, 7, 9, 11, 12, 13, 14
TELL_DEATH = 64
FIRST, FULL, GENERATION, RECOVERY = 1, 2, 3, 4
LOADS, GUARDED, IN_PROCESS, REPORT_APART, AFRESH, COMPARED = 1, 3, 4, 16, 32, 128
OVERFLOW, NOT_HOOKED, SHARED, UNSEEN, DIFFERS, MAPPINGS, DAMAGED = 1, 2, 4, 8, 16, 32, 64
TARGET, CONTENTS = 1, 2
UNIT_BYTES = 8
OS_PAGE_BYTES = 4096


@dataclass(frozen=True)
class Load:
    kind: int
    life: int
    file: int
    unit: int
    site: int = field(default=0, compare=False)
    """Offset in the adapter's file."""


@dataclass
class Run:
    report: bytes
    flags: int = 0
    loads: Sequence[Load] = ()
    text: str = ""
    unseen: int = 0
    seen: int = 0

    @property
    def outcome(self) -> int:
        return int(struct.unpack_from("<I", self.report, 16)[0])

    @property
    def status_of_open(self) -> int:
        """Of the first section."""
        return int(struct.unpack_from("<I", self.report, 32 + 4)[0])

    def units(self, kind: int = TARGET) -> list[int]:
        return [load.unit for load in self.loads if load.kind == kind]


@dataclass
class Death:
    """Of a run that was asked to tell where it dies; calls: (module's path, offset in it), innermost first."""

    outcome: int
    signal: int
    touched: int
    file: int
    offset: int
    calls: list[tuple[str, int]]


class Told:
    """events: (kind, detail, file, offset, site, payload) each."""

    def __init__(self, answer: bytes) -> None:
        version, self.flags, count, _ = struct.unpack_from("<4I", answer)
        assert version == 3
        self.events: list[tuple[int, int, int, int, int, bytes]] = []
        at = 16
        for _ in range(count):
            kind, detail, file, offset, length, site = struct.unpack_from("<BBxxIQII", answer, at)
            self.events.append((kind, detail, file, offset, site, answer[at + 24 : at + 24 + length]))
            at += 24 + (length + 7) // 8 * 8
        assert at == len(answer)


class Server:
    """wrapper: what the runner is started under."""

    def __init__(self, runner: Path, adapter: Path, folder: Path, *options: str, wrapper: Sequence[str] = ()) -> None:
        command = [*wrapper, str(runner), "serve", "--adapter", str(adapter), "--folder", str(folder), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.watches = 0
        self.remembered = 0

    def send(self, kind: int, file: int = 0, offset: int = 0, size: int = 0, payload: bytes = b"") -> None:
        assert self.process.stdin
        self.process.stdin.write(struct.pack("<IIQQQ", kind, file, offset, size, len(payload)) + payload)

    def create(self, content: bytes, name: str = "heap", file: int = 0) -> None:
        self.send(CREATE, file, size=len(content), payload=name.encode())
        for offset in range(0, len(content), OS_PAGE_BYTES):
            piece = content[offset : offset + OS_PAGE_BYTES]
            if any(piece):
                self.send(WRITE, file, offset, payload=piece)

    def watch(self, *ranges: tuple[int, int, int], number: int = 0) -> None:
        """(file, first unit, count) each. number: 0 for one that was not used before."""
        self.watches += 1
        self.send(
            WATCH,
            offset=number or self.watches << 32,
            payload=b"".join(struct.pack("<IIQQ", file, 0, first, count) for file, first, count in ranges),
        )

    def answer(self) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        assert len(head) == 4, self.process.stderr.read().decode() if self.process.stderr else ""
        return self.process.stdout.read(struct.unpack("<I", head)[0])

    def run(self, flags: int = LOADS, probe: int = FIRST) -> Run:
        self.send(RUN, offset=flags, size=probe)
        run = Run(self.report_apart() if flags & REPORT_APART else self.answer())
        if flags & LOADS:
            answer = self.answer()
            version, run.flags, count, text_bytes, run.unseen, run.seen = struct.unpack_from("<4I2Q", answer)
            assert version == 9
            entries = struct.iter_unpack("<BBxxIQIxxxx", answer[32 : 32 + 24 * count])
            run.loads = [Load(*entry) for entry in entries]
            run.text = answer[32 + 24 * count :].decode()
            assert len(run.text) == text_bytes
        return run

    def death(self, probe: int = FIRST) -> Death:
        self.send(RUN, offset=TELL_DEATH, size=probe)
        run, answer = Run(self.answer()), self.answer()
        version, signal, touched, file, offset, count, _ = struct.unpack_from("<4IQ2I", answer)
        assert version == 1
        paths = answer[32 + 16 * count :].decode().split("\0")
        calls = [
            (paths[module], offset) for offset, module, _ in struct.iter_unpack("<Q2I", answer[32 : 32 + 16 * count])
        ]
        return Death(run.outcome, signal, touched, file, offset, calls)

    def report_apart(self) -> bytes:
        """Of the run whose answer comes next; only its length is sent."""
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.flush()
        (length,) = struct.unpack("<I", self.process.stdout.read(4))
        with self.report_file.open("rb") as file:
            return file.read(length)

    @functools.cached_property
    def report_file(self) -> Path:
        """To be asked for before a run."""
        self.send(REPORT)
        return Path(self.answer().decode())

    def engines(self) -> tuple[int, int, int, dict[str, int]]:
        """Runs in-process, of them compared, isolated instead, and these by reason; and sets `remembered`."""
        self.send(ENGINES)
        answer = self.answer()
        reasons, at = {}, 32
        while at < len(answer):
            end = answer.index(b"\0", at + 8)
            reasons[answer[at + 8 : end].decode()] = int(struct.unpack_from("<Q", answer, at)[0])
            at = end + 1
        in_process, compared, isolated, self.remembered = struct.unpack_from("<4Q", answer)
        return in_process, compared, isolated, reasons

    def tell(self, generation: int = 1, probe: int = GENERATION) -> Told:
        """Recovery and follow-up, told event by event."""
        self.send(RUN, file=generation, offset=LOADS, size=probe)
        self.answer()
        self.answer()
        return Told(self.answer())

    def close(self) -> tuple[int, str]:
        _, errors = self.process.communicate()
        return self.process.returncode, errors.decode()
