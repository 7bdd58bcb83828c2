# SPDX-License-Identifier: Apache-2.0
"""`faultline bisect-step`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from faultline.cli.values import PATH
from faultline.study import bisect


@click.command("bisect-step", hidden=True)
@click.argument("task", type=PATH)
def command(task: Path) -> int:
    """One commit of `faultline bisect`, for git bisect run."""
    try:
        return bisect.step(msgspec.json.decode(task.read_bytes(), type=bisect.Task))
    except KeyboardInterrupt:
        return bisect.EXIT_STOP
    except Exception as error:  # git takes every code below 128 for an answer about the commit
        click.echo(f"error: {error}", err=True)
        return bisect.EXIT_STOP
