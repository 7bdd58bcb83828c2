# SPDX-License-Identifier: Apache-2.0
"""Operations and workloads: what an allocator is made to do while it is traced. A workload is a text file that the runner executes
(file_format.py).

A session is a part between two reopens; each is one process. An operation's index counts create, every operation and close over the
whole file (reopen counts as close and open), so that it is a fact of the file alone; an object's id is the index of its allocation
plus one. Which thread runs an operation, and when, changes no index.
"""

from __future__ import annotations

from dataclasses import dataclass

from faultline.base.cache import key_of
from faultline.workload.links import GRAPH_FIELDS

MAX_SLOTS = 65536
MAX_OPERATIONS = (1 << 24) - 2
"""Object ids are 24 bits wide in the pattern (runner/protocol.h), 0 is none."""
MAX_BYTES = 1 << 46
MAX_GROWTHS = 65536
MAX_THREADS = 63
"""Workers; threads have 16 bits in a trace, but no allocator is tried with more."""
LAYOUTS = ("root", "names", "chain", "graph")
"""Slot layouts, as adapter.h has them; root is the default."""

THREAD_OPERATIONS = {"allocate": "SLOT BYTES", "free": "SLOT", "reallocate": "SLOT BYTES"}
"""Operations on a slot, which threads may run, and their arguments."""
GRAPH_OPERATIONS = {
    "link": "SLOT FIELD TARGET",
    "unlink": "SLOT FIELD",
    "drop": "SLOT",
    "load": "SLOT FROM FIELD",
}
"""Those of the graph layout only."""
SLOT_OPERATIONS = {**THREAD_OPERATIONS, **GRAPH_OPERATIONS, "write": "SLOT START LENGTH"}
"""The runner has the same list in runner/workload/operations.c; runner/tests/test_operations.py compares them."""
TRANSACTION_BOUNDS = ("begin", "commit", "abort")
"""Lines around operations that take effect together, or not at all."""
WORD_BYTES = 8
"""What is written begins and ends with a whole word, so that the contents of an object tell of it."""
FILLING = frozenset({"allocate", "load"})
"""Those that need an empty slot and fill it; the others need one that holds an object."""
EMPTYING = frozenset({"free", "drop"})
WITH_OTHER_SLOT = frozenset(kind for kind, words in SLOT_OPERATIONS.items() if {"TARGET", "FROM"} & set(words.split()))
ARGUMENTS: dict[str, tuple[str, int, int, str]] = {
    "SLOT": ("slot", 0, MAX_SLOTS - 1, "slot"),
    "BYTES": ("size_bytes", 1, MAX_BYTES, "bytes"),
    "FIELD": ("field", 0, GRAPH_FIELDS - 1, "field"),
    "TARGET": ("other", 0, MAX_SLOTS - 1, "slot"),
    "FROM": ("other", 0, MAX_SLOTS - 1, "slot"),
    "START": ("start", 0, (1 << 32) - 1, "first byte"),
    "LENGTH": ("size_bytes", WORD_BYTES, (1 << 32) - 1, "length in bytes"),
}
"""By word of the usage: member of Operation, smallest, largest, and what it is called."""


@dataclass(frozen=True)
class Operation:
    """One line of a workload file. kind: case, reopen, join, or one of SLOT_OPERATIONS or TRANSACTION_BOUNDS. thread: 0 is the main
    thread."""

    kind: str
    slot: int = 0
    size_bytes: int = 0
    thread: int = 0
    other: int = 0
    """link: the slot linked to; load: the slot whose object's field is loaded."""
    field: int = 0
    start: int = 0
    """write: the first byte."""

    def line(self) -> str:
        worker = f"thread {self.thread} " if self.thread else ""
        arguments = (str(getattr(self, ARGUMENTS[word][0])) for word in SLOT_OPERATIONS.get(self.kind, "").split())
        return worker + " ".join([self.kind, *arguments])


@dataclass(frozen=True)
class Workload:
    name: str
    slots: int
    operations: tuple[Operation, ...]
    ops: int = 0
    """What the generator was asked for; 0 where the name says it all."""
    seed: int = 0
    layout: str = "root"
    is_lazy: bool = False
    """Its reopens, and recoveries, open lazily."""
    growths: int | None = None
    """How often files may grow, or be made, once a heap is there, before the disk is full; None: it never is."""
    schedule_seed: int = 0
    """Of the traced threads; never 0 where there are any, always 0 where there are none."""

    @property
    def thread_count(self) -> int:
        """Threads that run operations; create, open and close, which the main thread runs, do not count."""
        threads = {operation.thread for operation in self.operations if operation.kind in SLOT_OPERATIONS}
        return max(1, len(threads))

    @property
    def is_threaded(self) -> bool:
        return any(operation.thread for operation in self.operations)

    @property
    def has_transactions(self) -> bool:
        return any(operation.kind in TRANSACTION_BOUNDS or operation.kind == "write" for operation in self.operations)

    @property
    def session_count(self) -> int:
        return 1 + sum(operation.kind == "reopen" for operation in self.operations)

    @property
    def case_count(self) -> int:
        return sum(operation.kind == "case" for operation in self.operations)

    @property
    def operation_count(self) -> int:
        """Operations that get markers, as the runner counts them: create, the lines, close; close and open for a reopen."""
        per_kind = {"case": 2, "reopen": 2, "join": 0}
        return sum(per_kind.get(operation.kind, 1) for operation in self.operations)

    def text(self) -> str:
        head = ["workload 1", f"slots {self.slots}" + ("" if self.layout == "root" else f" {self.layout}")]
        head += ["opens lazily"] if self.is_lazy else []
        head += [] if self.growths is None else [f"growths {self.growths}"]
        return "\n".join([*head, *(operation.line() for operation in self.operations)]) + "\n"

    @property
    def key(self) -> str:
        return key_of(self.text())
