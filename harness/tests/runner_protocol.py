# SPDX-License-Identifier: Apache-2.0
"""The numbers and commands of runner/protocol.h, for tests that talk to the runner's server."""

from __future__ import annotations

import struct
from typing import NamedTuple


class FL:
    """The names there without FL_; X_BYTES is the size of struct fl_x. runner/tests/test_protocol.py compares them."""

    PROTOCOL_VERSION = 16
    REPORT_VERSION = 11
    REPORT_MAGIC = 0x52484C46
    UNIT_BYTES = 8
    COMPARE_ONE_IN = 1000
    COMMAND_BYTES = 40
    COMMAND_CREATE = 1
    COMMAND_RESIZE = 2
    COMMAND_PUNCH = 3
    COMMAND_REMOVE = 4
    COMMAND_RENAME = 5
    COMMAND_WRITE = 6
    COMMAND_MKDIR = 7
    COMMAND_RMDIR = 8
    COMMAND_RUN = 9
    COMMAND_STAGES = 10
    COMMAND_WATCH = 11
    COMMAND_ENGINES = 12
    COMMAND_REPORT = 13
    COMMAND_AFFINITY = 14
    COMMAND_POISON = 16
    COMMAND_STRAY = 17
    PROBE_FIRST = 1
    PROBE_FULL = 2
    PROBE_GENERATION = 3
    PROBE_RECOVERY = 4
    PROBE_DEEP = 5
    RUN_LOADS = 1
    RUN_GUARDED = 2
    RUN_IN_PROCESS = 4
    RUN_EVERY_ACCESS = 8
    RUN_REPORT_APART = 16
    RUN_AFRESH = 32
    RUN_DEATH = 64
    RUN_COMPARED = 128
    EXIT_DISTRUST = 4
    LOADS_OVERFLOW = 1
    LOADS_NOT_HOOKED = 2
    LOADS_SHARED = 4
    LOADS_UNSEEN = 8
    LOADS_DIFFERS = 16
    LOADS_MAPPINGS = 32
    LOADS_DAMAGED = 64
    LOADS_HEADER_BYTES = 32
    LOAD_BYTES = 24
    LOAD_TARGET = 1
    LOAD_CONTENTS = 2
    EVENTS_HEADER_BYTES = 16
    EVENT_BYTES = 32
    DEATH_BYTES = 32
    DEATH_CALL_BYTES = 16
    ENGINES_BYTES = 32
    OUTCOME_DONE = 0
    OUTCOME_SIGNAL = 1
    OUTCOME_HUNG = 2
    OUTCOME_EXITED = 3
    OUTCOME_OVERLOADED = 4
    OUTCOME_BROKEN = 5


class Command(NamedTuple):
    """file, offset and size: of a command that changes the image; probe, flags, seed and generation: of a run."""

    kind: int
    file: int = 0
    offset: int = 0
    size: int = 0
    payload: bytes = b""
    probe: int = 0
    flags: int = 0
    seed: int = 0
    generation: int = 0
    watch: int = 0

    def packed(self) -> bytes:
        if self.kind == FL.COMMAND_RUN:
            arguments = struct.pack("<4IQ", self.probe, self.flags, self.seed, self.generation, 0)
        elif self.kind == FL.COMMAND_WATCH:
            arguments = struct.pack("<3Q", self.watch, 0, 0)
        else:
            arguments = struct.pack("<IIQQ", self.file, 0, self.offset, self.size)
        return struct.pack("<IIQ", self.kind, 0, len(self.payload)) + arguments + self.payload


def commands(stream: bytes) -> list[Command]:
    """Those that are whole."""
    found, at = [], 0
    while at + FL.COMMAND_BYTES <= len(stream):
        kind, _, length = struct.unpack_from("<IIQ", stream, at)
        file, _, offset, size = struct.unpack_from("<IIQQ", stream, at + 16)
        probe, flags, seed, generation = struct.unpack_from("<4I", stream, at + 16)
        payload = stream[at + FL.COMMAND_BYTES : at + FL.COMMAND_BYTES + length]
        if kind == FL.COMMAND_RUN:
            found.append(Command(kind, probe=probe, flags=flags, seed=seed, generation=generation))
        elif kind == FL.COMMAND_WATCH:
            found.append(Command(kind, payload=payload, watch=file | probe << 32))
        else:
            found.append(Command(kind, file, offset, size, payload))
        at += FL.COMMAND_BYTES + length
    return found
