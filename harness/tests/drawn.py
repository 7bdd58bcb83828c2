# SPDX-License-Identifier: Apache-2.0
"""Which cases the gate runs of a test with many cases that show one kind of thing; the nightly run runs all.

They are drawn by the commit: the same ones each time at one commit, others at the next."""

from __future__ import annotations

import random
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import TypeVar

import pytest

Thing = TypeVar("Thing")


def git(root: Path, *arguments: str) -> str:
    """What it says; nothing where it cannot."""
    run = subprocess.run(["git", *arguments], cwd=root, capture_output=True, text=True, check=False)
    return run.stdout if run.returncode == 0 else ""


def commit(root: Path) -> str:
    return git(root, "rev-parse", "HEAD").strip()


def drawn(root: Path, things: Sequence[Thing], count: int) -> list[Thing]:
    """The same ones at the same commit."""
    return random.Random(commit(root)).sample(things, min(count, len(things)))


def leave_the_rest_to_nightly(root: Path, items: Sequence[pytest.Item]) -> None:
    """Marks as nightly what is not drawn of the cases of each test with the mark drawn(count). Tests of one file that have as many
    cases as each other draw the same ones: they share what those are made of."""
    families: dict[tuple[Path, str], list[pytest.Item]] = {}
    for item in items:
        if item.get_closest_marker("drawn") and not item.get_closest_marker("nightly"):
            families.setdefault((item.path, getattr(item, "originalname", item.name)), []).append(item)
    for family in families.values():
        mark = family[0].get_closest_marker("drawn")
        assert mark
        chosen = drawn(root, family, mark.args[0])
        for item in family:
            if item not in chosen:
                item.add_marker(pytest.mark.nightly)
