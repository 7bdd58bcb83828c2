# SPDX-License-Identifier: Apache-2.0
"""docs/pytest.md is true: its test file and its commands do what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from faultline.testing.plugin import SETTINGS
from page_commands import run_commands
from plugin.users_repository import FINDING

PAGE = "docs/pytest.md"


@pytest.mark.slow
def test_the_pages_commands_do_what_it_says(root: Path, scripts: Path, tmp_path: Path) -> None:
    page = (root / PAGE).read_text()
    cache_that_shares_builds(root, tmp_path / ".faultline")
    (code,) = re.findall(r"^`tests/test_toy.py`:\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(code)
    _, red, _, green = run_commands(page, tmp_path, scripts)
    finding = f"FL004 toy smoke: a returned operation is lost ({FINDING}, seen 2223)"
    stores = "stores: lost: the store at shelf_publish (shelf.c:114); recovery read it at shelf_open (shelf.c:78)"
    for words in (finding, stores, "test_no_crash_loses_anything[toy-smoke]", "\n  replay: faultline replay fl1."):
        assert words in red
    for words in (finding, stores, "test_no_crash_loses_anything[toy-smoke]"):
        assert words in page
    for shown, output in zip(re.findall(r"^    (summary: .*)", page, re.MULTILINE), (red, green), strict=True):
        assert shown in output


def test_the_page_has_every_option(root: Path) -> None:
    options = re.findall(r"--faultline-[a-z-]+", (root / PAGE).read_text())
    assert set(options) == {setting.option for setting in SETTINGS}
