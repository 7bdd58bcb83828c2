# SPDX-License-Identifier: Apache-2.0
"""What tests of the command line share. (Not in a conftest.py: there are several, and a test can import from the last one only.)"""

from __future__ import annotations

import subprocess
from collections.abc import Callable

Faultline = Callable[..., subprocess.CompletedProcess[str]]
"""The fixture `faultline`: runs the command with these arguments."""


def assert_one_clear_line(run: subprocess.CompletedProcess[str], code: int, *words: str) -> None:
    """Bad input: the exit code, one `error:` line with all the words, at most one `hint:` line, and no traceback."""
    said = run.stderr
    assert run.returncode == code, f"exit code {run.returncode}, expected {code}\n{run.stdout}{said}"
    lines = [line for line in said.splitlines() if not line.startswith("[")]
    assert "Traceback" not in said + run.stdout
    assert lines[0].startswith("error: "), said
    assert len(lines) == 1 or (len(lines) == 2 and lines[1].startswith("hint: ")), said
    for word in words:
        assert word in said, f"{word!r} is not in {said!r}"
