# SPDX-License-Identifier: Apache-2.0
"""`faultline litmus`."""

from __future__ import annotations

import click

from faultline.pipeline.engine import Engine


@click.command(
    "litmus", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def command(arguments: tuple[str, ...]) -> int:
    """Compare the reachable persisted states of litmus tests with what they allow. (FILE... [--print])"""
    return Engine().pass_through("litmus", *arguments)
