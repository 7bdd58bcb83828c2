# SPDX-License-Identifier: Apache-2.0
"""Faults planted in the tester itself: a tester that is never seen to fail proves nothing.

A fault is an edit of a copy of the sources (edited_tree.py); the sources that people build hold none. faults/*.toml has all:

    [[fault]]
    name = "any-fence"                                # unique
    what = "A fence of any thread completes ..."      # what is wrong with the tester
    test = "litmus: every_litmus_test_..."            # a test that must fail: BINARY: PATH of Rust, FILE::TEST of pytest
    file = "crashgen/src/..."
    text = 'floors.keep(...);'                        # exactly once in the file
    instead = '...'                                   # what stands there with the fault

In the place of `instead`, `with` gives the text of the copy, whatever fault a process has: PLANTED in it is true where it has this
one. A fault of several edits has a [[fault.edit]] of file, text, and instead or with for each. [[edit]] without a fault, always
`with`, is in the copy for faults to use.

One copy holds all faults, and FAULTLINE_PLANTED names the one that a process has. So several faults may edit the same text, if each
says what stands there `instead`; texts that overlap otherwise are refused.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path

FAULTS = Path(__file__).resolve().parent / "faults"
MARK = "PLANTED"


class TableError(Exception):
    """A table does not say what a fault is, or the sources have changed below it."""


@dataclass(frozen=True)
class Edit:
    """Of one text in one file. Where a process has the fault, `instead` stands there; or what PLANTED chooses in `template`."""

    fault: str
    file: str
    text: str
    instead: str | None = None
    template: str | None = None


@dataclass(frozen=True)
class RustTest:
    """A test of a crate's test binary."""

    binary: str
    path: str


@dataclass(frozen=True)
class PythonTest:
    file: str
    test: str


@dataclass(frozen=True)
class Fault:
    name: str
    what: str
    test: RustTest | PythonTest
    edits: tuple[Edit, ...]

    @property
    def files(self) -> set[str]:
        return {edit.file for edit in self.edits}


@dataclass(frozen=True)
class Table:
    faults: tuple[Fault, ...]
    shared: tuple[Edit, ...]
    """In the copy whatever fault is chosen."""

    @property
    def edits(self) -> list[Edit]:
        return [*self.shared, *(edit for fault in self.faults for edit in fault.edits)]


def read(folder: Path = FAULTS) -> Table:
    faults: list[Fault] = []
    shared: list[Edit] = []
    for path in sorted(folder.glob("*.toml")):
        table = tomllib.loads(path.read_text())
        refuse_others(path, table, {"edit", "fault"})
        shared += [edit_of(path, "", entry) for entry in table.get("edit", [])]
        faults += [fault_of(path, entry) for entry in table.get("fault", [])]
    names = [fault.name for fault in faults]
    if twice := {name for name in names if names.count(name) > 1}:
        raise TableError(f"{', '.join(sorted(twice))}: the name of two faults")
    return Table(tuple(faults), tuple(shared))


def fault_of(path: Path, entry: dict) -> Fault:
    refuse_others(path, entry, {"name", "what", "test", "file", "text", "instead", "with", "edit"})
    name = entry["name"]
    edits = tuple(edit_of(path, name, edit) for edit in entry.get("edit", [entry]))
    return Fault(name, entry["what"], test_of(path, entry["test"]), edits)


def test_of(path: Path, text: str) -> RustTest | PythonTest:
    if ".py::" in text:
        return PythonTest(*text.split("::", 1))
    binary, colon, test = text.partition(": ")
    if not colon:
        raise TableError(f"{path.name}: test {text!r}: expected BINARY: PATH or FILE::TEST")
    return RustTest(binary, test)


def edit_of(path: Path, fault: str, entry: dict) -> Edit:
    edit = Edit(fault, entry["file"], entry["text"], entry.get("instead"), entry.get("with"))
    where = f"{path.name}: {fault or edit.file}"
    if (edit.instead is None) == (edit.template is None):
        raise TableError(f"{where}: expected one of instead and with")
    if not fault and (edit.template is None or MARK in edit.template):
        raise TableError(f"{where}: an edit that belongs to no fault is the same for all: with, and no {MARK}")
    return edit


def refuse_others(path: Path, entry: dict, known: set[str]) -> None:
    if others := entry.keys() - known:
        raise TableError(f"{path.name}: {', '.join(sorted(others))}: expected {', '.join(sorted(known))}")
