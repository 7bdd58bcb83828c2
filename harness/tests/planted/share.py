# SPDX-License-Identifier: Apache-2.0
"""Which faults the gate plants; the nightly run plants all.

Every fault that a test of Rust notices: that takes a blink. Of the others, first those that the last change may have hidden: the
fault is new, or a file that it edits has changed. Then some drawn by the commit, others at each."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path

from drawn import base, drawn, git
from planted import table
from planted.table import Fault, PythonTest

CHANGED = 6
DRAWN = 3
"""A test of pytest takes some seconds, with the fault and without it."""


def faults_before(root: Path, folder: Path) -> list[Fault]:
    """As the tables had them at the base."""
    faults: list[Fault] = []
    for path in sorted(folder.glob("*.toml")):
        text = git(root, "show", f"{base(root)}:{path.relative_to(root).as_posix()}")
        faults += [table.fault_of(path, entry) for entry in tomllib.loads(text).get("fault", [])]
    return faults


def faults_of_the_gate(root: Path, faults: Sequence[Fault], folder: Path = table.FAULTS) -> list[Fault]:
    slow = [fault for fault in faults if isinstance(fault.test, PythonTest)]
    files, before = set(git(root, "diff", "--name-only", base(root)).splitlines()), faults_before(root, folder)
    changed = drawn(root, [fault for fault in slow if fault.files & files or fault not in before], CHANGED)
    others = drawn(root, [fault for fault in slow if fault not in changed], DRAWN)
    return [fault for fault in faults if fault not in slow or fault in changed or fault in others]
