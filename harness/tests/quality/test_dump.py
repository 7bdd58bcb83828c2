# SPDX-License-Identifier: Apache-2.0
"""The text form of a trace. Its lines are pinned in crashgen/engine/src/commands/dump.rs; here it is what users get."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from command_line import Faultline, assert_one_clear_line

DUMP = ("trace", "nvm_malloc", "-w", "smoke", "--dump")
LINE = re.compile(
    r" *(?P<position>\d+)  (?P<thread>\d+\.\d+) +(?P<operation>\d+|-)  (?P<kind>[a-zA-Z -]{18}|[a-zA-Z -]+)(  (?P<rest>.*))?"
)


@pytest.fixture(scope="module")
def dump(faultline: Faultline) -> str:
    run = faultline(*DUMP)
    assert (run.returncode, run.stderr) == (0, "")
    return run.stdout


def test_every_event_has_its_line_and_its_position(faultline: Faultline, dump: str) -> None:
    comments, *_ = dump.splitlines()
    facts = json.loads(faultline("trace", "nvm_malloc", "-w", "smoke", "--json").stdout)
    assert facts["hash"] in comments
    events = [line for line in dump.splitlines() if not line.startswith("#")]
    positions = [int(match["position"]) for match in map(LINE.fullmatch, events) if match]
    assert positions == list(range(1, len(events) + 1))
    assert f"{len(events)} events" in comments


def test_stores_and_flushes_of_the_allocator_have_function_file_and_line(dump: str) -> None:
    """The allocator's own, and the runner's: what the loader and the C library do has no source here."""
    kinds = ("store", "clwb")
    lines = [line for line in dump.splitlines() if line[31:49].strip() in kinds]
    assert len(lines) > 300
    without = [line for line in lines if not re.search(r"  at \w+ \((allocators|runner)/\S+\.[ch]:\d+\)$", line)]
    assert without == []


def test_operations_read_as_the_workload_does(dump: str) -> None:
    begins = re.findall(r"operation begin +(.*)", dump)
    returns = re.findall(r"operation return +(.*)", dump)
    assert begins[:3] == ["create", "allocate slot 0, 64 bytes, object 2", "allocate slot 1, 24 bytes, object 3"]
    assert [text.partition(":")[0] for text in returns] == [re.split("[ ,]", text)[0] for text in begins]
    assert {text.partition(": ")[2] for text in returns} == {"ok"}


def test_a_trace_file_dumps_as_its_workload_did(faultline: Faultline, dump: str, tmp_path: Path) -> None:
    path = tmp_path / "mine.trace"
    assert faultline("trace", "nvm_malloc", "-w", "smoke", "--out", path).returncode == 0
    again = faultline("trace", path, "--dump")
    assert (again.returncode, again.stdout) == (0, dump)


def test_a_reader_may_leave_early(scripts: Path) -> None:
    command = f"set -o pipefail; '{scripts / 'faultline'}' {' '.join(DUMP)} | head -n 1"
    run = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=False)
    assert (run.returncode, run.stderr) == (0, "")
    assert run.stdout.startswith("# trace ")


def test_what_is_no_trace_is_one_clear_line(faultline: Faultline, root: Path, tmp_path: Path) -> None:
    assert_one_clear_line(faultline("trace", root / "README.md", "--dump"), 2, "README.md: not a trace")
    assert_one_clear_line(faultline("trace", tmp_path / "missing", "--dump"), 2, "missing: cannot be read")
    assert_one_clear_line(faultline(*DUMP, "--json"), 2, "--dump prints events as text, --json prints facts")
    assert_one_clear_line(faultline("trace", "nvm_malloc"), 2, "needs a workload", "-w")
