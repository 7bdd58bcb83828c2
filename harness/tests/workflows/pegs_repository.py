# SPDX-License-Identifier: Apache-2.0
"""The example repository: pegs, an allocator that is not faultline's, with its own Makefile and its own suite. Its steps with
faultline are those of docs/ci.md. As its author wrote it, a change of a peg is written back and no fence follows."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from caches import cache_that_shares_builds
from foreign.own_repository import git

HERE = Path(__file__).resolve().parent
FLUSH = "    _mm_clflushopt(&pegs->board->words[peg]);\n"
FENCE = "    _mm_sfence();\n"
FINDING = "FL004-b3c76b8a"
REPAIR = "repair: sfence after the flush at set_word (pegs.c:124); tried: this finding is gone"
CACHED = (".faultline/layout", ".faultline/builds", ".faultline/ccache")
"""What the workflows keep of a cache."""
SMALL_MATRIX = 'version = 1\n[defaults]\nstrategy = "complete"\n' + "".join(
    f'[[cell]]\nallocator = "pegs"\nworkload = "{workload}"\n' for workload in ("smoke", "create")
)
"""Two cells of seconds, one for each of two shards."""


def begin(folder: Path) -> Path:
    """The repository before its author has heard of faultline."""
    shutil.copytree(HERE / "pegs", folder, ignore=shutil.ignore_patterns("__pycache__", "gitignore"))
    shutil.copy(HERE / "pegs" / "gitignore", folder / ".gitignore")
    git(folder, "init", "-q", "-b", "main", ".")
    commit(folder, "pegs")
    return folder


def write_adapter(folder: Path) -> None:
    """What docs/allocators.md asks of the author: adapter, allocator.toml, and a test for pytest."""
    for name in ("adapter.c", "allocator.toml"):
        shutil.copy(HERE / "pegs_crash" / name, folder / "crash" / name)
    shutil.copy(HERE / "pegs_crash" / "test_crash.py", folder / "tests")


def make(root: Path, folder: Path, service: str, is_mended: bool) -> Path:
    """With all steps done, a small matrix, and the cache of a clone that has runner and tracer already."""
    begin(folder)
    new = [sys.executable, "-m", "faultline", "new", "pegs", "--folder", "crash", "--ci", service]
    subprocess.run(new, cwd=folder, check=True, capture_output=True)
    write_adapter(folder)
    (folder / "faultline-matrix.toml").write_text(SMALL_MATRIX)
    with (folder / ".gitignore").open("a") as ignored:
        ignored.write(".faultline\nfaultline-out\n")
    if is_mended:
        mend(folder)
    commit(folder, "faultline")
    cache_that_shares_builds(root, folder / ".faultline")
    return folder


def mend(folder: Path) -> None:
    source = folder / "pegs.c"
    text = source.read_text()
    assert text.count(FLUSH) == 1
    source.write_text(text.replace(FLUSH, FLUSH + FENCE))


def spoil(folder: Path) -> None:
    """Takes the fence away again."""
    source = folder / "pegs.c"
    source.write_text(source.read_text().replace(FLUSH + FENCE, FLUSH))


def commit(folder: Path, subject: str) -> None:
    git(folder, "add", "-A")
    git(folder, "commit", "-q", "-m", subject)
