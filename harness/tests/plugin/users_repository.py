# SPDX-License-Identifier: Apache-2.0
"""The repository of somebody who has faultline installed: the example of `faultline new`, whose allocator loses data, and tests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from caches import cache_that_shares_builds

STORE = "fl_store8(&shelf->head->slots[slot], object == NULL ? 0 : (uint64_t)((char *)object - (char *)shelf->head));\n"
REPAIR = "    fl_persist(&shelf->head->slots[slot], 8);\n"
FINDING = "FL004-31672dd3"
"""What the allocator shows as it is."""
RED_MARK = "FL004 toy one.workload: a returned operation is lost"


def make_allocator(root: Path, folder: Path, is_mended: bool) -> Path:
    """`faultline new toy --example` in the folder, with a cache that shares what the clone has built."""
    folder.mkdir()
    subprocess.run(
        [sys.executable, "-m", "faultline", "new", "toy", "--example"], cwd=folder, check=True, capture_output=True
    )
    cache_that_shares_builds(root, folder / ".faultline")
    if is_mended:
        mend(folder)
    return folder


def mend(folder: Path) -> None:
    source = folder / "toy" / "shelf.c"
    text = source.read_text()
    assert text.count(STORE) == 1
    source.write_text(text.replace(STORE, STORE + REPAIR))


def use(pytester: pytest.Pytester, folder: Path, more: str = "") -> None:
    """Makes the folder of the test a project with that allocator. more: of faultline.toml."""
    project = f'version = 1\nallocators = ["{folder / "toy"}"]\ncache = "{folder / ".faultline"}"\n{more}'
    (pytester.path / "faultline.toml").write_text(project)
