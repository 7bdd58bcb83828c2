# SPDX-License-Identifier: Apache-2.0
"""`faultline explain`."""

from __future__ import annotations

import click

from faultline.cli.commands.replay import replay_token
from faultline.cli.options import json_option, time_option, workshop_options
from faultline.pipeline.workshop import Workshop
from faultline.study.explanation import BUDGET_S


@click.command("explain")
@click.argument("token")
@time_option(BUDGET_S, "Try repairs for at most S seconds.")
@workshop_options
@json_option
def command(workshop: Workshop, token: str, time_s: float, as_json: bool) -> int:
    """Say what a failing crash state lacks, and which flush or fence forbids it.

    The state is replayed; then repairs are tried one after the other: the trace is explored again, all of it, as if the source had
    that flush or fence, until the finding is gone.
    """
    return replay_token(workshop, token, as_json, time_s)
