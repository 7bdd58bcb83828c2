# SPDX-License-Identifier: Apache-2.0
"""docs/pytest.md is true: its test file and its commands do what it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from faultline.testing.plugin import SETTINGS
from plugin.users_repository import FINDING

PAGE = "docs/pytest.md"


@pytest.mark.slow
def test_the_pages_commands_do_what_it_says(root: Path, scripts: Path, tmp_path: Path) -> None:
    """Each ends with the exit code that stands behind it, else with 0."""
    page = (root / PAGE).read_text()
    cache_that_shares_builds(root, tmp_path / ".faultline")
    (code,) = re.findall(r"^`tests/test_toy.py`:\n\n```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "tests").mkdir()
    (tmp_path / "tests" / "test_toy.py").write_text(code)
    commands = re.findall(r"^    \$ (.*?)(?: +# exit code (\d))?$", page, re.MULTILINE)
    assert len(commands) == 4
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    said = []
    for command, expected in commands:
        ended = subprocess.run(
            ["bash", "-c", command], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
        )
        assert ended.returncode == int(expected or 0), f"{command}: {ended.stdout}{ended.stderr}"
        said.append(ended.stdout)
    _, red, _, green = said
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
