# SPDX-License-Identifier: Apache-2.0
"""What commands write: JSON on stdout, files that the user names."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import click
import msgspec

from faultline.base.errors import BadInputError


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


def file_to_compare_with(protect: Path | None, is_updated: bool) -> Path | None:
    """None when the file is to be written. One that is not there is a mistake: with a wrong name nothing would be protected."""
    if not is_updated:
        return protect
    check_writable(needs_protect(protect, "--update says that --protect FILE is written anew"), "the file of --protect")
    return None


def needs_protect(protect: Path | None, why: str) -> Path:
    if protect is None:
        raise BadInputError(why, "name it with --protect FILE")
    return protect


def check_writable(path: Path, what: str) -> None:
    """Before anything runs: what is found is not lost to a wrong name."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadInputError(f"{path}: {what} cannot be written there", "name a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"{path}: {what} cannot be written there: it is read-only", "name a file that is writable")


def check_regular_output(path: Path, what: str) -> None:
    """As check_writable, of a file that the engine writes: it would wait for who reads a pipe."""
    check_writable(path, what)
    if path.exists() and not path.is_file():
        raise BadInputError(f"{path}: {what} cannot be written there: it is no regular file", "name another file")


def write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


def copy(source: Path, path: Path) -> None:
    try:
        shutil.copyfile(source, path)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error
