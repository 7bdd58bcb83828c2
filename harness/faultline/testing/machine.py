# SPDX-License-Identifier: Apache-2.0
"""A state machine of Hypothesis whose rules write a program; the program is explored when the machine has ended."""

from __future__ import annotations

import functools
import sys
import unittest
from collections.abc import Mapping
from typing import Any, ClassVar

from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine

from faultline.base.errors import BadInputError
from faultline.testing import plugin
from faultline.testing.program import Program
from faultline.testing.strategies import MOST_OPERATIONS, native_settings
from faultline.workload.file_format import parse_line
from faultline.workload.slots import SlotStates

machine_settings = settings(native_settings, stateful_step_count=MOST_OPERATIONS)
"""What a machine's TestCase has. `TestShelf.settings = settings(machine_settings, max_examples=20)` is the same with fewer."""


class _TestCaseOfMachine:
    """Hypothesis' own TestCase with settings for native runs. What a machine finds is explained once, at its end."""

    def __get__(self, machine: object, kind: type[ProgramMachine]) -> type[unittest.TestCase]:
        return _test_case(kind)


@functools.cache
def _test_case(kind: type[ProgramMachine]) -> type[unittest.TestCase]:
    base: Any = super(ProgramMachine, kind).TestCase

    class TestCase(base):  # type: ignore[misc]
        settings = machine_settings

        @functools.wraps(base.runTest)
        def runTest(self) -> None:  # noqa: N802 - the name that unittest has for it
            try:
                super().runTest()
            except Exception as error:
                plugin.running().explain(error)
                raise

    TestCase.__name__, TestCase.__qualname__ = base.__name__, base.__qualname__
    return TestCase


class ProgramMachine(RuleBasedStateMachine):
    """Rules write operations down: allocate, free, reallocate, reopen, or any line of a workload file with `do`. Nothing runs until
    all rules have run; then the whole program is explored, as `explore` does. An open transaction is committed first. Where a
    rule fails nothing is explored.

        class Shelf(ProgramMachine):
            allocator = "toy"
            objects = Bundle("objects")

            @rule(target=objects, size=sizes("toy"))
            def put(self, size):
                return self.allocate(size)

            @rule(slot=consumes(objects))
            def take(self, slot):
                self.free(slot)

        TestShelf = Shelf.TestCase

    allocator: a name, or a path that lies beside the test. options: as of `explore`. layout: of the slots, "root" or "graph".
    Needs pytest, whose options count here, too."""

    allocator: ClassVar[str]
    options: ClassVar[Mapping[str, Any]] = {}
    layout: ClassVar[str] = "root"

    TestCase = _TestCaseOfMachine()  # type: ignore[assignment]

    def __init__(self) -> None:
        super().__init__()
        self._lines: list[str] = []
        self._slots = SlotStates(self.layout == "graph")

    @property
    def live(self) -> Mapping[int, int]:
        """Bytes of the objects, by slot, as if every allocation succeeded."""
        return dict(self._slots.live)

    @property
    def is_in_transaction(self) -> bool:
        return self._slots.at_begin is not None

    @property
    def program(self) -> Program:
        """What was written down so far."""
        lines = [*self._lines, "commit"] if self.is_in_transaction else self._lines
        return Program(*lines, slots=f"{self._slot_count()} graph" if self.layout == "graph" else None)

    def do(self, line: str) -> None:
        """An operation, as a line of a workload file (docs/workloads.md).

        Raises BadInputError for a line that no workload file can have there."""
        try:
            self._slots.check(parse_line(line.split()))
        except (ValueError, IndexError) as error:
            raise BadInputError(f"{line}: {error}", "docs/workloads.md has the lines of a workload file") from None
        self._lines.append(line)

    def allocate(self, size_bytes: int) -> int:
        """The slot: the first that is empty."""
        slot = next(slot for slot in range(len(self._slots.live) + 1) if slot not in self._slots.live)
        self.do(f"allocate {slot} {size_bytes}")
        return slot

    def free(self, slot: int) -> None:
        self.do(f"free {slot}")

    def reallocate(self, slot: int, size_bytes: int) -> None:
        self.do(f"reallocate {slot} {size_bytes}")

    def reopen(self) -> None:
        """Close and open: recovery runs."""
        self.do("reopen")

    def teardown(self) -> None:
        """Explores the program, unless what ends the machine is an error: a rule failed, or Hypothesis gave this one up."""
        __tracebackhide__ = True
        if self._lines and sys.exc_info()[0] is None:
            session = plugin.running()
            session.explore({"allocator": self.allocator, "workload": self.program, **self.options})

    def _slot_count(self) -> int:
        operations = [parse_line(line.split()) for line in self._lines]
        return 1 + max((max(one.slot, one.other) for one in operations), default=0)
