# SPDX-License-Identifier: Apache-2.0
"""The command line. Data on stdout, progress and errors on stderr. Exit codes: 0 no finding (of a matrix: and every mutant
killed), 1 findings (a blind spot of mutate, more than --protect allows), 2 usage or bad input, 3 unknown or infrastructure."""

from __future__ import annotations

import contextlib
import importlib
import keyword
import os
import signal
import sys
import tempfile
import traceback
from pathlib import Path
from typing import Any

import click

from faultline import __version__
from faultline.base.cache import project_root
from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN, BadInputError, FaultlineError, InfrastructureError
from faultline.base.project import Project, find_project
from faultline.report.terminal import streams

COMMANDS = (
    "bisect",
    "bisect-step",
    "build",
    "damage",
    "doctor",
    "explain",
    "export",
    "import",
    "list",
    "litmus",
    "matrix",
    "merge",
    "mutate",
    "new",
    "replay",
    "report",
    "run",
    "shrink",
    "trace",
    "wear",
)
"""Each is a module of faultline.cli.commands."""
HINT_OF_SYSTEM = "free what is lacking (room on the disk, descriptors, memory), and run it again"


def main(arguments: list[str] | None = None) -> int:
    """One of the exit codes, whatever happens: 1 is a finding and nothing else."""
    try:
        code = _run(arguments)
        sys.stdout.flush()
    except BrokenPipeError:
        _drop_output()  # the reader left: no traceback at exit
        return EXIT_UNKNOWN
    except OSError as error:
        _drop_output()
        return _said(
            InfrastructureError(f"{error.filename or 'the output'}: {error.strerror or error}", HINT_OF_SYSTEM)
        )
    except Exception as error:
        return _said(_internal(error))
    return code


def _said(error: FaultlineError) -> int:
    with contextlib.suppress(OSError):  # where nothing can be written, the exit code is all that is left
        streams.print_error(error)
    return error.exit_code


def _drop_output() -> None:
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _internal(error: Exception) -> FaultlineError:
    """Where it was raised is said; everything else is in a file."""
    place = traceback.extract_tb(error.__traceback__)[-1]
    message = f"internal error: {type(error).__name__}: {error} ({Path(place.filename).name}:{place.lineno})"
    try:
        descriptor, name = tempfile.mkstemp(prefix="faultline-error-", suffix=".txt")
        with os.fdopen(descriptor, "w", errors="backslashreplace") as file:
            traceback.print_exception(error, file=file)
    except OSError:
        return InfrastructureError(message, "this is a bug of faultline: report it")
    return InfrastructureError(message, f"this is a bug of faultline: report it with {name}")


def _run(arguments: list[str] | None) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled CI job is a Ctrl-C: keep results, clean up
    try:
        return int(cli.main(arguments, prog_name="faultline", standalone_mode=False) or EXIT_OK)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return BadInputError.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "faultline"
        streams.print_error(BadInputError(error.format_message(), f"{command} --help"))
        return BadInputError.exit_code
    except click.ClickException as error:
        streams.print_error(BadInputError(error.format_message()))
        return BadInputError.exit_code
    except FaultlineError as error:
        streams.print_error(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        streams.print_error(InfrastructureError("interrupted"))
        return EXIT_UNKNOWN


def module_of(command: str) -> str:
    """Its name in faultline.cli.commands; a word of Python cannot be one."""
    return command.replace("-", "_") + ("_" if keyword.iskeyword(command) else "")


class Commands(click.Group):
    """Loads a command when it is asked for: the others, and what they import, take longer to load than most commands to run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"faultline.cli.commands.{module_of(cmd_name)}")
        found = module.command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="faultline")
@click.pass_context
def cli(context: click.Context) -> None:
    """Crash-consistency testing and fault injection for persistent-memory allocators."""
    if context.invoked_subcommand != "bisect-step":  # it runs in a checkout of another commit
        context.obj = find_project(Path.cwd(), project_root())
        context.default_map = defaults_of(context.obj, cli)


def defaults_of(project: Project, group: click.Group) -> dict[str, dict[str, Any]]:
    """What faultline.toml says of options, by command and parameter.

    Raises BadInputError for a command or an option that is not there, and for a value that the option does not take."""
    found: dict[str, dict[str, Any]] = {}
    if project.out is not None:
        found = {name: {"out": str(project.out)} for name in ("matrix", "report")}
    for name, options in project.options.items():
        command = group.get_command(click.Context(group), name) if name in COMMANDS else None
        if command is None:
            raise BadInputError(
                f"{project.file}: options.{name}: no command has this name", "faultline --help lists them"
            )
        parameters = {word: one for one in command.params for word in one.opts if isinstance(one, click.Option)}
        for option, value in options.items():
            parameter = parameters.get(f"--{option}")
            where = f"{project.file}: options.{name}.{option}"
            if parameter is None:
                raise BadInputError(
                    f"{where}: faultline {name} has no --{option}", f"faultline {name} --help lists them"
                )
            try:
                parameter.type_cast_value(click.Context(command), value)
            except click.UsageError as error:
                raise BadInputError(f"{where}: {error.message}") from error
            found.setdefault(name, {})[str(parameter.name)] = value
    return found
