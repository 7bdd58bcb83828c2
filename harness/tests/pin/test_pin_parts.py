# SPDX-License-Identifier: Apache-2.0
"""The parts of the Pin tool that need no kit, run for real: the native driver (pintools/pin/drive) gives them by single steps what
Pin would give them."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from faultline.base.cache import Cache, key_of, project_root
from faultline.cli import main
from faultline.pipeline.build import Built
from faultline.pipeline.tracers import TRACERS
from faultline.pipeline.tracers.pin import Pin
from faultline.pipeline.tracers.tracer import Session

LIMIT_S = 600
CONFORMANCE = Path("pintools", "conformance")
OPEN = {"schedule_spin": "two runs of one seed may differ where the C library spins by the clock (pintools/README.md)"}
NAMES = [
    pytest.param(name, marks=pytest.mark.xfail(reason=OPEN[name], strict=False)) if name in OPEN else name
    for name in sorted(path.stem for path in (project_root() / CONFORMANCE).glob("*.c"))
    if name != "bench_store"
]


@pytest.mark.slow
@pytest.mark.drawn(8)
@pytest.mark.parametrize("name", NAMES)
def test_the_driven_parts_conform(root: Path, driver: Path, tmp_path: Path, name: str) -> None:
    check = [sys.executable, str(root / CONFORMANCE / "check.py"), "--tracer", "drive"]
    command = [*check, "--tool-dir", str(driver), "--work", str(tmp_path), "--only", name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout + run.stderr


def test_names_and_the_writer(root: Path, tmp_path: Path) -> None:
    sources = [
        root / "pintools" / "pin" / name for name in ("classify.cpp", "outputs.cpp", "writer.cpp", "tests/parts.cpp")
    ]
    program, trace = tmp_path / "parts", tmp_path / "trace"
    subprocess.run(["g++", "-std=c++14", "-Wall", "-Wextra", "-Werror", "-o", program, *sources], check=True)
    run = subprocess.run([program, trace, tmp_path / "other"], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout
    dump = [sys.executable, str(root / CONFORMANCE / "check.py"), "--dump", str(trace)]
    said = subprocess.run(dump, capture_output=True, text=True, check=True).stdout.splitlines()
    assert said == [
        "process start",
        "store plain file=heap offset=64 size=1048576 bytes=5a*1048576",
        "store plain file=heap offset=0 size=8 value=0x1122334455667788",
        "process-end value=0",
    ]


class Driven(Pin):
    """The Pin tool's class, with the driver in the place of Pin."""

    name = "driven"

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def version(self) -> str:
        return "driven"

    def build(self, root: Path, cache: Cache) -> Built:
        return Built(self.folder, key_of(self.name, (self.folder / "drive").read_bytes()))

    def trace_command(self, built: Built, session: Session) -> list[str]:
        return [str(built.path / "drive"), *self.options(session)]


def verdicts(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    main(["run", "nvm_malloc", "-w", "smoke", "--strategy", "prefix", "--json", *arguments])
    cell = json.loads(capsys.readouterr().out)["cells"][0]
    return cell["verdict"], sorted({finding["rule"] for finding in cell["findings"]})


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [(), pytest.param(("--mutant", "MISSING_FLUSH_LINK"), marks=pytest.mark.nightly)])
def test_a_campaign_says_the_same_of_its_traces(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, driver: Path, mutant: tuple[str, ...]
) -> None:
    """The whole way, from the runner's markers to the verdict."""
    monkeypatch.setitem(TRACERS, Driven.name, Driven(driver))
    assert verdicts(capsys, *mutant, "--tracer", "driven") == verdicts(capsys, *mutant)


@pytest.mark.parametrize(
    ("arguments", "word"),
    [
        ((), "no program"),
        (("-trace",), "-trace needs a value"),
        (("-color", "1", "--", "true"), "unknown option -color"),
        (("--", "true"), "-trace FILE is missing"),
        (("-trace", "/nonexistent/t", "-pm_folder", "/tmp", "--", "true"), "cannot open the trace"),
        (("-trace", "t", "-pm_folder", "/nonexistent", "--", "true"), "is not a folder"),
        (("-trace", "t", "-pm_folder", "/tmp", "-process", "0", "--", "true"), "a number from 1"),
    ],
)
def test_a_bad_option_is_one_line(driver: Path, tmp_path: Path, arguments: tuple[str, ...], word: str) -> None:
    run = subprocess.run([driver / "drive", *arguments], capture_output=True, text=True, cwd=tmp_path, check=False)
    assert run.returncode == 2
    assert len(run.stderr.splitlines()) == 1
    assert word in run.stderr
