# SPDX-License-Identifier: Apache-2.0
"""Which cases the gate runs of a test with many cases that show one kind of thing, and which of the slow tests; the nightly run
has the others.

They are drawn by the commit: the same ones each time at one commit, others at the next."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

Thing = TypeVar("Thing")

ONE_IN = 3
"""Of the slow tests of a file that did not change; one at least."""


def git(root: Path, *arguments: str) -> str:
    """What it says; nothing where it cannot."""
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return run.stdout if run.returncode == 0 else ""


def commit(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


def drawn(root: Path, things: Sequence[Thing], count: int) -> list[Thing]:
    """The same ones at the same commit."""
    return random.Random(commit(root)).sample(things, min(count, len(things)))


def base(root: Path) -> str:
    """Where this branch left main; of main itself, the commit before."""
    forked = git(root, "merge-base", "HEAD", "origin/main").strip()
    return forked if forked and forked != commit(root) else "HEAD~1"


def changed_files(root: Path) -> set[Path]:
    """Since the base, and what is not committed yet; none, where git does not know."""
    changed = git(root, "diff", "--name-only", base(root)) + git(root, "ls-files", "--others", "--exclude-standard")
    return {root / name for name in changed.splitlines()}


def leave_the_rest_to_nightly(root: Path, items: Sequence[pytest.Item]) -> None:
    """Marks as nightly what is not drawn of the cases of each test with the mark drawn(count), and of the slow tests of each file.
    Tests of one file that have as many cases as each other draw the same ones: they share what those are made of."""
    families: dict[tuple[Path, str], list[pytest.Item]] = {}
    slow: dict[Path, list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("nightly"):
            continue
        if item.get_closest_marker("drawn"):
            families.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
        elif item.get_closest_marker("slow"):
            slow.setdefault(item.path, []).append(item)
    for family in families.values():
        mark = family[0].get_closest_marker("drawn")
        assert mark
        _leave(family, drawn(root, family, mark.args[0]))
    changed = changed_files(root)
    for path, of_file in slow.items():
        if path not in changed:
            _leave(of_file, drawn(root, of_file, -(-len(of_file) // ONE_IN)))


def _leave(items: Sequence[pytest.Item], chosen: Sequence[pytest.Item]) -> None:
    for item in items:
        if item not in chosen:
            item.add_marker(pytest.mark.nightly)
