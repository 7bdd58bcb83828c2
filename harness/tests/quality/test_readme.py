# SPDX-License-Identifier: Apache-2.0
"""The finding in README.md is what the command above it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from command_line import Faultline


@pytest.mark.nightly
def test_the_finding_in_the_readme_is_real(root: Path, faultline: Faultline) -> None:
    page = (root / "README.md").read_text(encoding="utf-8")
    block = re.search(r"^    \$ \.venv/bin/faultline (run .*)\n((?:    .*\n)+)", page, re.MULTILINE)
    assert block
    said = faultline(*block[1].split()).stdout
    shown = [line.removeprefix("    ").split(" fl1.")[0] for line in block[2].splitlines()]
    assert len(shown) >= 6
    assert [line for line in shown if line not in said] == []
