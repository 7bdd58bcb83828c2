# SPDX-License-Identifier: Apache-2.0
"""From what a test asks for to the result of the cell, by the way of `faultline run`: the options are read by the same parser, with
the defaults of the project's faultline.toml, and the cell is run by the same function."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from faultline.base.cache import project_root
from faultline.base.errors import BadInputError
from faultline.base.project import Project, find_project, looks_like_path
from faultline.cli.asked import AskedCell, asked_options
from faultline.cli.entry import cli, defaults_of
from faultline.testing.program import Program
from faultline.workload import catalogue

OF_COMMANDS_ALONE = frozenset({"write_baseline"})
"""Parameters that a test cannot have."""
HINT = "`faultline run --help` lists them; --no-shrink is no_shrink=True"


def _command() -> click.Command:
    @click.command("crash_consistent", add_help_option=False)
    @asked_options
    def command(asked: AskedCell) -> AskedCell:
        return asked

    assert isinstance(command, click.Command)
    command.params = [one for one in command.params if one.name not in OF_COMMANDS_ALONE]
    return command


_COMMAND = _command()


run_settings: dict[str, Any] = {}
"""Options of this run of pytest, which count where a test says nothing."""


def asked_cell(folder: Path, options: Mapping[str, Any]) -> AskedCell:
    """folder: of the test: what is a path is looked for there first, and the project is the first one upwards. options: by name, as
    of `faultline run`, with `allocator`; None: as if it was not named. A workload may be a Program.

    Raises FaultlineError."""
    project = find_project(folder, project_root())
    defaults = dict(defaults_of(project, cli).get("run", {}))
    given = {**run_settings, **{name: value for name, value in options.items() if value is not None}}
    program = given.get("workload")
    if isinstance(program, Program):
        given["workload"] = f"file:{program.workload.key}"
    elif program is not None:
        given["workload"] = _workload(program, folder)
    allocator = _allocator(given.pop("allocator", None), project, folder)
    words = [*_words(given, defaults), "--", allocator]
    try:
        with _COMMAND.make_context("crash_consistent", words, obj=project, default_map=defaults) as context:
            asked = _COMMAND.invoke(context)
    except click.UsageError as error:
        raise BadInputError(error.format_message(), HINT) from error
    assert isinstance(asked, AskedCell)
    if isinstance(program, Program):
        catalogue.store(program.workload, asked.workshop.cache)
    return asked


def _words(given: Mapping[str, Any], defaults: dict[str, Any]) -> list[str]:
    """As on a command line. What is False is no word: then what faultline.toml says of it is taken away."""
    options = {word: one for one in _COMMAND.params for word in (*one.opts, *one.secondary_opts) if word[:2] == "--"}
    words = []
    for name, value in given.items():
        word = f"--{name.replace('_', '-')}"
        option = options.get(word)
        if not isinstance(option, click.Option):
            raise BadInputError(f"{name}: no option of this name", HINT)
        if not option.is_flag:
            words.append(f"{word}={value}")
        elif not isinstance(value, bool):
            raise BadInputError(f"{name}: expected True or False, got {value!r}", HINT)
        elif value:
            words.append(word)
        else:
            opposite = [one for one in (*option.opts, *option.secondary_opts) if one != word and one[:2] == "--"]
            words += opposite
            defaults.pop(str(option.name), None)
    return words


def _allocator(named: Any, project: Project, folder: Path) -> str:
    if not isinstance(named, str | os.PathLike):
        raise BadInputError(f"allocator: expected a name or a path, got {named!r}", "allocator='NAME'")
    text = str(named)
    if isinstance(named, str) and not (looks_like_path(text) or (folder / text).is_dir()):
        return text
    return text if project.get(text) is not None else _path(text, folder)


def _workload(named: Any, folder: Path) -> str:
    if not isinstance(named, str | os.PathLike):
        raise BadInputError(
            f"workload: expected a name, a path or a Program, got {named!r}", "Program('allocate 0 64', 'free 0')"
        )
    return str(named) if str(named) in catalogue.GENERATORS else _path(str(named), folder)


def _path(text: str, folder: Path) -> str:
    """What lies there, as short as it can be named from here; else as it was named."""
    if not text or "\0" in text or not (folder / text).exists():
        return text
    found = Path(os.path.normpath(folder / text))
    here = Path.cwd()
    return f"./{found.relative_to(here)}" if found.is_relative_to(here) else str(found)
