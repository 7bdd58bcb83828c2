# SPDX-License-Identifier: Apache-2.0
"""Fuzz targets of the readers in Python: allocator.toml, matrix.toml and workload files. README.md says how they are run.

A target is given bytes and raises when a claim fails. Claims for every reader: it ends; what it refuses it refuses as bad input, in
one line. The two readers of workload files, this one and the runner's, agree on every file."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

ROOT = Path(__file__).resolve().parent.parent
T = TypeVar("T")
READER = ROOT / "fuzz" / "workload_reader.c"
TEXT_BYTES = 1 << 20


def build_reader(folder: Path) -> ctypes.CDLL:
    """The runner's workload reader as a library."""
    library = folder / "workload_reader.so"
    include = [f"-I{ROOT / name}" for name in ("runner", "include", "pintools")]
    subprocess.run(["gcc", "-std=gnu11", "-O1", "-shared", "-fPIC", *include, "-o", library, READER], check=True)
    return ctypes.CDLL(str(library))


class Targets:
    """folder: for the files that readers want."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder / "nvm_malloc"
        self.folder.mkdir()
        self.reader = build_reader(folder)
        self.text = ctypes.create_string_buffer(TEXT_BYTES)
        self.plant = os.environ.get("FUZZ_PLANT", "")

    def planted(self, is_there: bool) -> None:
        """What the planted fault does: see src/plant.rs."""
        if not self.plant or not is_there:
            return
        match self.plant:
            case "panic":
                raise AssertionError("the planted panic")
            case "hang":
                while True:
                    time.sleep(0.1)
            case "memory":
                hoard = []
                while True:
                    hoard.append(b"1" * (1 << 24))

    def allocator(self, data: bytes) -> None:
        from faultline.base import config

        path = self.folder / "allocator.toml"
        path.write_bytes(data)
        allocator = accepted(lambda: config.read_allocator(path))
        if allocator is not None:
            assert allocator.heap.address % 4096 == 0
            assert all(allocator.mutant_named(mutant.id) is mutant for mutant in allocator.mutant)
            self.planted(allocator.heap.smallest_bytes != 64)

    def matrix(self, data: bytes) -> None:
        from faultline.base import config

        path = self.folder / "matrix.toml"
        path.write_bytes(data)
        matrix = accepted(lambda: config.read_toml(path, config.Matrix))
        if matrix is not None:
            assert matrix.version == 1
            self.planted(not matrix.cell)

    def workload(self, data: bytes) -> None:
        from faultline.workload import file_format

        try:
            text = data.decode("utf-8")
        except UnicodeDecodeError:
            return  # refused before either reader sees it
        theirs = self.runner_reads(data)
        workload = accepted(lambda: file_format.parse(text, "f"))
        if workload is None:
            assert theirs.startswith("refused: "), f"only the harness refuses; the runner reads {theirs!r}"
            return
        printed = workload.text()
        again = file_format.parse(printed, "f")
        assert again == workload, "printed and parsed it is another workload"
        assert theirs == self.runner_reads(printed.encode()), (
            "the runner reads another workload than the harness prints"
        )
        operations, sessions, cases = counts(theirs)
        assert (operations, sessions, cases) == (workload.operation_count, workload.session_count, workload.case_count)
        self.planted(workload.session_count > 2)

    def runner_reads(self, data: bytes) -> str:
        written = self.reader.fuzz_workload_text(
            data, ctypes.c_size_t(len(data)), self.text, ctypes.c_size_t(TEXT_BYTES)
        )
        return self.text.raw[:written].decode("utf-8", "replace")


def counts(steps: str) -> tuple[int, int, int]:
    """Operations, sessions and cases of the runner's steps."""
    lines = [line.split() for line in steps.splitlines()[1:]]
    assert lines, f"the runner refuses what the harness reads: {steps}"
    cases = sum(words[0] == "case" for words in lines)
    return len(lines) - cases, max(int(words[4]) for words in lines) + 1, cases


def accepted(read: Callable[[], T]) -> T | None:
    from faultline.base.errors import BadInputError

    try:
        return read()
    except BadInputError as error:
        said = str(error)
        assert said, "a refusal without a word"
        assert said.isprintable(), f"a refusal of more than one line: {said!r}"
        return None


NAMES = ("allocator", "matrix", "workload")


def main() -> None:
    import atheris  # type: ignore[import-untyped]

    name = os.environ["FUZZ_TARGET"]
    with atheris.instrument_imports(include=["faultline", "tomllib"]):
        import tomllib  # noqa: F401

        import faultline.base.config
        import faultline.workload.file_format  # noqa: F401
    with tempfile.TemporaryDirectory() as folder:
        atheris.Setup(sys.argv, getattr(Targets(Path(folder)), name))
        atheris.Fuzz()


if __name__ == "__main__":
    main()
