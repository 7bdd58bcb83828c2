# SPDX-License-Identifier: Apache-2.0
"""`faultline new`."""

from __future__ import annotations

import re
from importlib import resources
from importlib.resources.abc import Traversable
from pathlib import Path

import click

from faultline.base.errors import EXIT_OK, BadInputError, InfrastructureError
from faultline.base.project import FILE
from faultline.cli.values import PATH

NAME = re.compile(r"[a-z][a-z0-9_]{0,30}")
MATRIX, WORKFLOW = "faultline-matrix.toml", "faultline-workflow.yml"
EXAMPLE_SOURCES = ("shelf.c", "shelf.h")


@click.command("new")
@click.argument("name")
@click.option("--example", "is_example", is_flag=True, help="With an allocator of 130 lines, which has a bug.")
@click.option("--folder", type=PATH, help="Where its adapter goes.  [default: NAME]")
def command(name: str, is_example: bool, folder: Path | None) -> int:
    """Write what a new allocator needs: adapter, allocator.toml, faultline.toml, a matrix and a workflow.

    The files go to the current folder, which becomes a project, and to a folder of the allocator. Nothing is overwritten.
    """
    if NAME.fullmatch(name) is None:
        raise BadInputError(f"{name}: is no name of an allocator", "small letters, digits and _, a letter first")
    folder = folder or Path(name)
    words = {
        "@NAME@": name,
        "@FOLDER@": folder.as_posix(),
        "@SUMMARY@": "shelf, the example" if is_example else "one line for people",
        "@SOURCES@": '"shelf.c"' if is_example else "",
        "@ACCOUNTING@": "full" if is_example else "none",
    }
    starter = resources.files("faultline.cli") / "starter"
    of_allocator = starter / ("example" if is_example else "skeleton")
    files = {
        Path(FILE): starter / FILE,
        Path(MATRIX): starter / MATRIX,
        Path(WORKFLOW): starter / WORKFLOW,
        folder / "allocator.toml": starter / "allocator.toml",
        folder / "adapter.c": of_allocator / "adapter.c",
        **{folder / source: of_allocator / source for source in EXAMPLE_SOURCES if is_example},
    }
    _write(files, words)
    write_it = f"write {folder}/adapter.c, and name the sources in {folder}/allocator.toml"
    click.echo(f"next: {f'faultline run {name} -w smoke' if is_example else write_it}")
    return EXIT_OK


def _write(files: dict[Path, Traversable], words: dict[str, str]) -> None:
    there = next((path for path in files if path.exists()), None)
    if there is not None:
        raise BadInputError(f"{there}: is there already", "begin in an empty folder, or move it away")
    for path, template in files.items():
        text = template.read_text(encoding="utf-8")
        for mark, word in words.items():
            text = text.replace(mark, word)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
        except OSError as error:
            raise InfrastructureError(
                f"{path}: cannot be written: {error.strerror}", "choose another folder"
            ) from error
        click.echo(path)
