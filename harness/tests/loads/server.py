# SPDX-License-Identifier: Apache-2.0
"""The fork server's protocol, for tests of what recorded runs list (runner/protocol.h)."""

from __future__ import annotations

import functools
import struct
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

from runner_protocol import FL, Command

FIRST, FULL, GENERATION, RECOVERY = FL.PROBE_FIRST, FL.PROBE_FULL, FL.PROBE_GENERATION, FL.PROBE_RECOVERY
LOADS, GUARDED, IN_PROCESS = FL.RUN_LOADS, FL.RUN_LOADS | FL.RUN_GUARDED, FL.RUN_IN_PROCESS
REPORT_APART, AFRESH, COMPARED = FL.RUN_REPORT_APART, FL.RUN_AFRESH, FL.RUN_COMPARED
NOT_HOOKED, SHARED, UNSEEN = FL.LOADS_NOT_HOOKED, FL.LOADS_SHARED, FL.LOADS_UNSEEN
DIFFERS, MAPPINGS, DAMAGED = FL.LOADS_DIFFERS, FL.LOADS_MAPPINGS, FL.LOADS_DAMAGED
TARGET, CONTENTS = FL.LOAD_TARGET, FL.LOAD_CONTENTS
UNIT_BYTES = FL.UNIT_BYTES
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
    hung: int
    calls: list[tuple[str, int]]


class RecoveryTrace:
    """events: (kind, detail, file, offset, site, payload) each."""

    def __init__(self, answer: bytes) -> None:
        version, self.flags, count, _ = struct.unpack_from("<4I", answer)
        assert version == FL.PROTOCOL_VERSION
        self.events: list[tuple[int, int, int, int, int, bytes]] = []
        at = 16
        for _ in range(count):
            kind, detail, file, offset, length, site = struct.unpack_from("<BBxxIQII8x", answer, at)
            self.events.append(
                (kind, detail, file, offset, site, answer[at + FL.EVENT_BYTES : at + FL.EVENT_BYTES + length])
            )
            at += FL.EVENT_BYTES + (length + 7) // 8 * 8
        assert at == len(answer)


class Server:
    """wrapper: what the runner is started under."""

    def __init__(self, runner: Path, adapter: Path, folder: Path, *options: str, wrapper: Sequence[str] = ()) -> None:
        command = [*wrapper, str(runner), "serve", "--adapter", str(adapter), "--folder", str(folder), *options]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        self.watches = 0
        self.remembered = 0

    def send(self, command: Command) -> None:
        assert self.process.stdin
        self.process.stdin.write(command.packed())

    def write(self, offset: int, content: bytes, file: int = 0) -> None:
        self.send(Command(FL.COMMAND_WRITE, file, offset, payload=content))

    def send_run(self, flags: int, probe: int = FIRST, seed: int = 0, generation: int = 0) -> None:
        self.send(Command(FL.COMMAND_RUN, probe=probe, flags=flags, seed=seed, generation=generation))

    def create(self, content: bytes, name: str = "heap", file: int = 0) -> None:
        self.send(Command(FL.COMMAND_CREATE, file, size=len(content), payload=name.encode()))
        for offset in range(0, len(content), OS_PAGE_BYTES):
            piece = content[offset : offset + OS_PAGE_BYTES]
            if any(piece):
                self.write(offset, piece, file)

    def watch(self, *ranges: tuple[int, int, int], number: int = 0) -> None:
        """(file, first unit, count) each. number: 0 for one that was not used before."""
        self.watches += 1
        payload = b"".join(struct.pack("<IIQQ", file, 0, first, count) for file, first, count in ranges)
        self.send(Command(FL.COMMAND_WATCH, payload=payload, watch=number or self.watches << 32))

    def answer(self) -> bytes:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.flush()
        head = self.process.stdout.read(4)
        assert len(head) == 4, self.process.stderr.read().decode() if self.process.stderr else ""
        return self.process.stdout.read(struct.unpack("<I", head)[0])

    def run(self, flags: int = LOADS, probe: int = FIRST) -> Run:
        self.send_run(flags, probe)
        run = Run(self.report_apart() if flags & REPORT_APART else self.answer())
        if flags & LOADS:
            answer = self.answer()
            version, run.flags, count, text_bytes, run.unseen, run.seen = struct.unpack_from("<4I2Q", answer)
            assert version == FL.PROTOCOL_VERSION
            entries = struct.iter_unpack("<BBxxIQIxxxx", answer[32 : 32 + 24 * count])
            run.loads = [Load(*entry) for entry in entries]
            run.text = answer[32 + 24 * count :].decode()
            assert len(run.text) == text_bytes
        return run

    def death(self, probe: int = FIRST) -> Death:
        self.send_run(FL.RUN_DEATH, probe)
        run, answer = Run(self.answer()), self.answer()
        version, signal, touched, file, offset, count, hung = struct.unpack_from("<4IQ2I", answer)
        assert version == FL.PROTOCOL_VERSION
        paths = answer[32 + 16 * count :].decode().split("\0")
        calls = [
            (paths[module], offset) for offset, module, _ in struct.iter_unpack("<Q2I", answer[32 : 32 + 16 * count])
        ]
        return Death(run.outcome, signal, touched, file, offset, hung, calls)

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
        self.send(Command(FL.COMMAND_REPORT))
        return Path(self.answer().decode())

    def engines(self) -> tuple[int, int, int, dict[str, int]]:
        """Runs in-process, of them compared, isolated instead, and these by reason; and sets `remembered`."""
        self.send(Command(FL.COMMAND_ENGINES))
        answer = self.answer()
        reasons, at = {}, 32
        while at < len(answer):
            end = answer.index(b"\0", at + 8)
            reasons[answer[at + 8 : end].decode()] = int(struct.unpack_from("<Q", answer, at)[0])
            at = end + 1
        in_process, compared, isolated, self.remembered = struct.unpack_from("<4Q", answer)
        return in_process, compared, isolated, reasons

    def trace_recovery(self, generation: int = 1, probe: int = GENERATION) -> RecoveryTrace:
        """What recovery and follow-up do to PM."""
        self.send_run(LOADS, probe, generation=generation)
        self.answer()
        self.answer()
        return RecoveryTrace(self.answer())

    def close(self) -> tuple[int, str]:
        _, errors = self.process.communicate()
        return self.process.returncode, errors.decode()
