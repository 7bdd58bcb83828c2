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
MATRIX = "faultline-matrix.toml"
WORKFLOWS = {"github": Path(".github/workflows/faultline.yml"), "gitlab": Path("faultline.gitlab-ci.yml")}
"""Where each service has it; a .gitlab-ci.yml includes the second one."""
EXAMPLE_SOURCES = ("shelf.c", "shelf.h")


@click.command("new")
@click.argument("name", required=False)
@click.option("--example", "is_example", is_flag=True, help="With an allocator of 130 lines, which has a bug.")
@click.option("--folder", type=PATH, help="Where its adapter goes.  [default: NAME]")
@click.option(
    "--ci",
    "service",
    type=click.Choice(tuple(WORKFLOWS)),
    help="Whose workflow is written; without NAME it alone is, for the project that is here.  [default: github]",
)
def command(name: str | None, is_example: bool, folder: Path | None, service: str | None) -> int:
    """Write what a new allocator needs: adapter, allocator.toml, faultline.toml, a matrix and a workflow.

    The files go to the current folder, which becomes a project, and to a folder of the allocator. Nothing is overwritten.
    """
    starter = resources.files("faultline.cli") / "starter"
    workflow = {WORKFLOWS[service or "github"]: starter / f"{service or 'github'}.yml"}
    if name is None:
        _check_that_a_workflow_is_meant(service, is_example, folder)
        _write(workflow, {})
        click.echo("next: give FAULTLINE or FAULTLINE_IMAGE, as the file says")
        return EXIT_OK
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
    of_allocator = starter / ("example" if is_example else "skeleton")
    files = {
        Path(FILE): starter / FILE,
        Path(MATRIX): starter / MATRIX,
        **workflow,
        folder / "allocator.toml": starter / "allocator.toml",
        folder / "adapter.c": of_allocator / "adapter.c",
        **{folder / source: of_allocator / source for source in EXAMPLE_SOURCES if is_example},
    }
    _write(files, words)
    write_it = f"write {folder}/adapter.c, and name the sources in {folder}/allocator.toml"
    click.echo(f"next: {f'faultline run {name} -w smoke' if is_example else write_it}")
    return EXIT_OK


def _check_that_a_workflow_is_meant(service: str | None, is_example: bool, folder: Path | None) -> None:
    """No allocator is named."""
    if service is None or is_example or folder is not None:
        raise BadInputError(
            "no NAME of an allocator is given", "without one, --ci alone writes the workflow of a project"
        )
    if not Path(FILE).is_file():
        raise BadInputError(
            f"{FILE}: is not there, and the workflow runs the matrix of the project that is here",
            "run it where faultline.toml is, or give the NAME of a new allocator",
        )


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
