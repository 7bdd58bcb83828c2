# SPDX-License-Identifier: Apache-2.0
"""Programs: workloads that a test writes down where it needs them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from itertools import takewhile

from faultline.base.errors import BadInputError
from faultline.workload.file_format import parse, parse_line
from faultline.workload.operations import Workload

HEAD = ("workload 1",)
OF_THE_HEAD = ("opens ", "growths ")
"""How lines begin that stand above the case."""


class Program:
    """What an allocator is made to do, line by line as in a workload file (docs/workloads.md): one case, which begins with an empty
    heap. Its repr is the code that makes it, its text() the workload file.

        Program("allocate 0 64", "reallocate 0 200", "reopen", "free 0")

    Lines `opens lazily` and `growths N` come first. slots: as in the file's second line, `64` or `64 graph`. None: as many as the
    lines name.

    Raises BadInputError for a line that no workload file can have there."""

    def __init__(self, *lines: str, slots: int | str | None = None) -> None:
        self.lines = lines
        self.slots = slots
        many = str(slots) if slots is not None else str(_slots_of(lines))
        head = list(takewhile(lambda line: line.startswith(OF_THE_HEAD), lines))
        self._workload = _parsed([*HEAD, f"slots {many}"], head, ["case", *lines[len(head) :]])

    @property
    def name(self) -> str:
        """Made of what it does: the same lines have the same name."""
        return f"program-{self._workload.key[:8]}"

    @property
    def workload(self) -> Workload:
        return self._workload

    def text(self) -> str:
        """The workload file: `faultline run ALLOCATOR -w FILE` does the same."""
        return self._workload.text()

    def __repr__(self) -> str:
        words = [repr(line) for line in self.lines] + ([] if self.slots is None else [f"slots={self.slots!r}"])
        return f"Program({', '.join(words)})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Program) and self.text() == other.text()

    def __hash__(self) -> int:
        return hash(self.text())


def _slots_of(lines: Iterable[str]) -> int:
    """As many as the lines name; what is wrong with a line is said when the whole is read."""
    highest = 0
    for line in lines:
        try:
            operation = parse_line(line.partition("#")[0].split())
        except (ValueError, IndexError):
            continue
        highest = max(highest, operation.slot, operation.other)
    return highest + 1


def _parsed(before: list[str], head: list[str], rest: list[str]) -> Workload:
    """before, and the first of rest: lines that a program does not name."""

    def line_of(found: re.Match[str]) -> str:
        number = int(found[1]) - len(before)
        return f"Program: line {number if number <= len(head) else number - 1}:"

    try:
        return parse("\n".join([*before, *head, *rest]), "Program")
    except BadInputError as error:
        raise BadInputError(re.sub(r"^Program:(\d+):", line_of, error.message), error.hint) from None
