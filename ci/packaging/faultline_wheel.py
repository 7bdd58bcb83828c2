# SPDX-License-Identifier: Apache-2.0
"""The build backend (PEP 517) of pyproject.toml: maturin's wheel, with what it does not do itself.

maturin builds engine and assembler and takes the Python package. Added are the entry points, which maturin refuses beside programs
of Rust: the command `faultline` and the pytest plugin. In wheels that leave the clone, so are the sources that faultline compiles
where it is used: faultline/installed, laid out as a clone is."""

from __future__ import annotations

import base64
import hashlib
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import maturin

ROOT = Path(__file__).resolve().parents[2]
SOURCES = (
    "include/*.h",
    "runner/**/*.[ch]",
    "pintools/*.h",
    "pintools/pin/*",
    "pintools/valgrind/*",
    "allocators/**/*",
    "ci/matrix.toml",
)
"""What is compiled for users, and the built-in allocators with their matrix."""
LEFT_OUT = {"tests", "testing"}
INSTALLED = "faultline/installed"
ENTRY_POINTS = """\
[console_scripts]
faultline = faultline.cli:main

[pytest11]
faultline = faultline.testing.plugin
"""
DATE = (1980, 1, 1, 0, 0, 0)
"""Of what is added: the same sources give the same bytes."""

get_requires_for_build_wheel = maturin.get_requires_for_build_wheel
get_requires_for_build_editable = maturin.get_requires_for_build_editable


def build_wheel(folder: str, config: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """The wheel's name, in folder."""
    name = maturin.build_wheel(folder, config, metadata)
    _add(
        Path(folder) / name,
        {f"{INSTALLED}/{path.relative_to(ROOT).as_posix()}": path.read_bytes() for path in sources()},
    )
    return name


def build_editable(folder: str, config: dict[str, Any] | None = None, metadata: str | None = None) -> str:
    """The sources are those of the clone."""
    name = maturin.build_editable(folder, config, metadata)
    _add(Path(folder) / name, {})
    return name


def build_sdist(folder: str, config: dict[str, Any] | None = None) -> str:
    raise NotImplementedError("faultline has no source distribution: build a wheel from a clone")


def sources() -> Iterator[Path]:
    for pattern in SOURCES:
        for path in sorted(ROOT.glob(pattern)):
            if path.is_file() and not LEFT_OUT & set(path.relative_to(ROOT).parts):
                yield path


def _add(wheel: Path, files: dict[str, bytes]) -> None:
    with zipfile.ZipFile(wheel) as archive:
        record = next(name for name in archive.namelist() if name.endswith(".dist-info/RECORD"))
        kept = [(entry, archive.read(entry)) for entry in archive.infolist() if entry.filename != record]
        listed = archive.read(record).decode()
    files = {**files, record.replace("RECORD", "entry_points.txt"): ENTRY_POINTS.encode()}
    lines = [line for line in listed.splitlines() if not line.startswith(f"{record},")]
    lines += [f"{name},sha256={_digest(content)},{len(content)}" for name, content in files.items()]
    files[record] = "".join(f"{line}\n" for line in [*lines, f"{record},,"]).encode()
    with zipfile.ZipFile(wheel, "w", zipfile.ZIP_DEFLATED) as archive:
        for entry, content in kept:
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, DATE)
            entry.external_attr = 0o100644 << 16
            archive.writestr(entry, content, zipfile.ZIP_DEFLATED)


def _digest(content: bytes) -> str:
    return base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
