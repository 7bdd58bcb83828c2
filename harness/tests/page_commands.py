# SPDX-License-Identifier: Apache-2.0
"""The commands of a page of the documentation, done as it says."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path


def section(page: str, heading: str) -> str:
    """What stands below it, up to the next one."""
    _, _, below = page.partition(f"\n## {heading}\n")
    assert below, f"no heading {heading}"
    return below.partition("\n## ")[0]


def run_commands(page: str, folder: Path, scripts: Path) -> list[str]:
    """In the folder, one after the other; each ends with the exit code that stands behind it, else with 0. What each printed on
    stdout. scripts: where `faultline` is."""
    environment = {**os.environ, "PATH": f"{scripts}:{os.environ['PATH']}"}
    said = []
    for command, expected in re.findall(r"^    \$ (.*?)(?: +# exit code (\d))?$", page, re.MULTILINE):
        run = subprocess.run(
            ["bash", "-c", command], cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
        assert run.returncode == int(expected or 0), f"{command}: {run.stdout}{run.stderr}"
        said.append(run.stdout)
    return said
