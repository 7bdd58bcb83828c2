# SPDX-License-Identifier: Apache-2.0
"""What the runner's tests build, and where their heaps lie."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from faultline.pipeline.build import runner_recipe

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.fixture(scope="session")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("built")


@pytest.fixture(scope="session")
def runner(built: Path) -> Path:
    if given := os.environ.get("FAULTLINE_TEST_RUNNER"):  # of harness/tests/planted/builds.py
        return Path(given)
    path = built / "runner"
    sources = [str(ROOT / source) for source in runner_recipe(ROOT).sources]
    warnings = ["-Wall", "-Wextra", "-Werror"]
    includes = [f"-I{ROOT / folder}" for folder in ("include", "runner", "pintools")]
    command = ["gcc", "-std=gnu11", "-O2", "-g", *warnings, "-D_GNU_SOURCE", "-DFL_LOCKED_FLUSHES", *includes]
    command += [*sources, "-o", str(path)]
    subprocess.run([*command, "-rdynamic", "-fvisibility=hidden", "-ldl", "-lpthread"], check=True)
    return path


@pytest.fixture(scope="session")
def alone(built: Path) -> Callable[[str, str], ctypes.CDLL]:
    """One source of the runner by itself, in this process, with a stub for what it calls of the others."""

    def build(source: str, stub: str) -> ctypes.CDLL:
        name = Path(source).stem
        rest, path = built / f"{name}-stub.c", built / f"{name}.so"
        rest.write_text(f"#include <stdlib.h>\n{stub}\n")
        folders = ("include", "runner", "pintools")
        command = ["gcc", "-std=gnu11", "-shared", "-fPIC", *(f"-I{ROOT / folder}" for folder in folders)]
        command += [str(ROOT / "runner" / source), str(rest), "-o", str(path)]
        subprocess.run(command, check=True)
        return ctypes.CDLL(str(path))

    return build


@pytest.fixture(scope="session")
def adapter(built: Path) -> Callable[..., Path]:
    def build(behaviour: str = "NONE", *flags: str) -> Path:
        path = built / ("-".join([behaviour, *flags]).replace("/", "_") + ".so")
        if not path.exists():
            command = ["gcc", "-std=gnu11", "-O0", "-g", "-w", "-fPIC", "-shared", "-pthread"]
            command += ["-I", str(ROOT / "include"), f"-DBEHAVIOUR={behaviour}", *flags]
            subprocess.run([*command, str(HERE / "test_adapter.c"), "-o", str(path)], check=True)
        return path

    return build


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """On a memory file system where there is one: that is where heaps lie in earnest."""
    shared = Path("/dev/shm")
    path = (shared if os.access(shared, os.W_OK) else tmp_path) / f"runner-test-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)
