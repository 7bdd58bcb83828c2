# SPDX-License-Identifier: Apache-2.0
"""The other parts' own tests that are no pytest: conformance of the tracer, unit and crash tests of allocators."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from conftest import Faultline
from faultline.build import build_tracer
from faultline.cache import Cache

LIMIT_S = 600


def check(command: list[str], folder: Path) -> str:
    run = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 0, run.stdout[-4000:] + run.stderr[-4000:]
    return run.stdout


@pytest.mark.slow
def test_the_tracer_conforms(root: Path, tmp_path: Path) -> None:
    tool = build_tracer(root, Cache(root / ".faultline")).path
    command = [sys.executable, "pintools/conformance/check.py", "--tool-dir", str(tool), "--work", str(tmp_path)]
    check(command, root)


COMMON = ("gcc", "-std=gnu11", "-D_GNU_SOURCE", "-Wall", "-Wextra", "-Werror")
SANITIZERS = ("-fsanitize=address,undefined", "-fno-sanitize-recover=all")


@pytest.mark.parametrize("sanitizers", [(), SANITIZERS], ids=["plain", "sanitized"])
def test_nvm_malloc_passes_its_unit_tests(root: Path, tmp_path: Path, sanitizers: tuple[str, ...]) -> None:
    folder = root / "allocators" / "nvm_malloc"
    flags = ("-DNVM_DEBUG=2", "-O1", "-g", *sanitizers, "-Isrc", "-I../include")
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), "adapter.c", "tests/test_nvm_malloc.c"]
    check([*COMMON, *flags, *sources, "-o", str(tmp_path / "test")], folder)
    assert " 0 failed" in check([str(tmp_path / "test")], folder)


@pytest.mark.slow
def test_nvm_malloc_survives_crashes_by_its_own_second_opinion(root: Path, tmp_path: Path) -> None:
    folder = root / "allocators" / "nvm_malloc"
    flags = ("-O2", "-DNVM_CHUNK_BYTES=65536", "-Itests/recorded", "-Itests", "-Isrc", "-I../include")
    tests = ["tests/recorder.c", "tests/test_crash.c"]
    sources = [*sorted(map(str, (folder / "src").glob("*.c"))), "adapter.c", *tests]
    check([*COMMON, *flags, *sources, "-o", str(tmp_path / "test")], folder)
    check([str(tmp_path / "test")], folder)


def test_litmus_passes_through(root: Path, faultline: Faultline) -> None:
    files = sorted((root / "crashgen").rglob("*.litmus"))
    assert len(files) >= 25
    run = faultline("litmus", *files)
    assert run.returncode == 0, run.stdout + run.stderr


def test_doctor_finds_everything(faultline: Faultline) -> None:
    run = faultline("doctor")
    assert run.returncode == 0, run.stdout
