# SPDX-License-Identifier: Apache-2.0
"""The command line. Data on stdout, progress and errors on stderr. Exit codes: 0 no finding (of a matrix: and every mutant
killed), 1 findings (a blind spot of mutate, more than --protect allows), 2 usage or bad input, 3 unknown or infrastructure."""

from __future__ import annotations

import importlib
import os
import signal
import sys

import click

from faultline import __version__
from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN, BadInputError, FaultlineError, InfrastructureError
from faultline.report.terminal import streams

COMMANDS = (
    "bisect",
    "bisect-step",
    "build",
    "doctor",
    "explain",
    "list",
    "litmus",
    "matrix",
    "mutate",
    "replay",
    "report",
    "run",
    "shrink",
    "trace",
    "wear",
)
"""Each is a module of faultline.cli.commands."""


def main(arguments: list[str] | None = None) -> int:
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
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: no traceback at exit
        return EXIT_UNKNOWN


class Commands(click.Group):
    """Loads a command when it is asked for: the others, and what they import, take longer to load than most commands to run."""

    def list_commands(self, ctx: click.Context) -> list[str]:  # noqa: ARG002
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:  # noqa: ARG002
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"faultline.cli.commands.{cmd_name.replace('-', '_')}")
        found = module.command
        assert isinstance(found, click.Command)
        return found


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="faultline")
def cli() -> None:
    """Crash-consistency testing and fault injection for persistent-memory allocators."""
