# SPDX-License-Identifier: Apache-2.0
"""A repository of somebody else: an allocator in a folder whose name has a space, a faultline.toml, and a bug in its history."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

SOURCES = Path(__file__).resolve().parent.parent / "exploration" / "own"
FOLDER = "pm heap"
PROJECT = f"""\
version = 1
allocators = ["{FOLDER}"]
matrix = "cells.toml"
out = "reports"

[options.run]
workload = "smoke"
"""
MATRIX = """\
version = 1

[[cell]]
allocator = "own"
workload = "smoke"

[[mutants]]
allocator = "own"
workload = "smoke"
"""
ORDERED = "    persist(&head->a, 8);\n"
"""What orders a before b in the source, and what the bug takes away."""


def git(folder: Path, *words: str) -> str:
    person = ("-c", "user.name=A Person", "-c", "user.email=person@example.org")
    return subprocess.run(["git", *person, *words], cwd=folder, check=True, capture_output=True, text=True).stdout


def make_repository(place: Path) -> Path:
    """In the folder place: three commits, tagged good, bad and worse; the bug comes with the second one, and the first one is
    checked out."""
    folder = place / FOLDER
    shutil.copytree(SOURCES, folder)
    description = folder / "allocator.toml"
    clean, *mutants = description.read_text().split("[[mutant]]")
    kept = [mutant for mutant in mutants if '"PAIR_TORN"' in mutant]
    description.write_text("[[mutant]]".join([clean, *kept]))
    (place / "faultline.toml").write_text(PROJECT)
    (place / "cells.toml").write_text(MATRIX)
    (place / ".gitignore").write_text(".faultline/\nreports/\n")
    git(place, "init", "-q", "-b", "main", ".")
    source = folder / "adapter.c"
    good = source.read_text()
    assert good.count(ORDERED) == 1
    bad = good.replace(ORDERED, "")
    for tag, text in (("good", good), ("bad", bad), ("worse", bad.replace("/* ---- a, then b ---- */", ""))):
        source.write_text(text)
        git(place, "add", "-A")
        git(place, "commit", "-q", "-m", f"{tag} commit")
        git(place, "tag", tag)
    git(place, "checkout", "-q", "good")
    return place
