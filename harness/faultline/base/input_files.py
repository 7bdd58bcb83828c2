# SPDX-License-Identifier: Apache-2.0
"""Reads what a user names. A device or a pipe has no end, and some files have far too much of it."""

from __future__ import annotations

import stat
from pathlib import Path

from faultline.base.errors import BadInputError, one_line

MOST_BYTES = 64 << 20
"""The results of a matrix of a thousand cells are a tenth of that."""


def read_input(path: Path, hint: str | None = None) -> bytes:
    """Raises BadInputError where it cannot be read, is no regular file, or has more than MOST_BYTES."""
    check_regular(path, hint)
    name = one_line(str(path))
    try:
        with path.open("rb") as file:
            content = file.read(MOST_BYTES + 1)
        if len(content) > MOST_BYTES:
            raise BadInputError(f"{name}: expected at most {MOST_BYTES:,} bytes", hint)
        return content
    except OSError as error:
        raise BadInputError(f"{name}: cannot be read: {error.strerror}", hint) from error


def check_regular(path: Path, hint: str | None = None) -> None:
    """Raises BadInputError where who reads the file would find nothing, or wait for ever."""
    name = one_line(str(path))
    try:
        if not stat.S_ISREG(path.stat().st_mode):
            raise BadInputError(f"{name}: is no regular file", hint)
    except OSError as error:
        raise BadInputError(f"{name}: cannot be read: {error.strerror}", hint) from error
    except ValueError as error:  # a null byte in its name
        raise BadInputError(f"{name}: is no name of a file: {error}", hint) from error


def read_text(path: Path, hint: str = "save it as UTF-8") -> str:
    content = read_input(path)
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise BadInputError(f"{one_line(str(path))}: is not UTF-8 text (byte {error.start})", hint) from error
