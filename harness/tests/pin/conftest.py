# SPDX-License-Identifier: Apache-2.0
"""The native driver of the Pin tool's parts, built once."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest


@pytest.fixture(scope="session")
def driver(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that it is in."""
    folder = tmp_path_factory.mktemp("driver")
    command = ["make", "-j2", "--no-print-directory", "-C", str(root / "pintools" / "pin"), "drive", f"OUT={folder}"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    return folder
