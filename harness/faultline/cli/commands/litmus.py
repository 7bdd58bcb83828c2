# SPDX-License-Identifier: Apache-2.0
"""`faultline litmus`."""

from __future__ import annotations

import contextlib
from pathlib import Path

import click

from faultline.base.input_files import check_regular
from faultline.pipeline.engine import Engine


@click.command(
    "litmus", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Compare the reachable persisted states of litmus tests with what they allow. (FILE... [--print])"""
    for argument in arguments:
        with contextlib.suppress(OSError, ValueError):  # no name of a file: the engine says so
            if Path(argument).exists():
                check_regular(Path(argument))
    return Engine().pass_through("litmus", *arguments)
