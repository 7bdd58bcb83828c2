# SPDX-License-Identifier: Apache-2.0
"""`faultline explain`."""

from __future__ import annotations

import click

from faultline.cli.commands.replay import replay_token
from faultline.cli.options import json_option, workshop_options
from faultline.pipeline.workshop import Workshop


@click.command("explain")
@click.argument("token")
@workshop_options
@json_option
def command(workshop: Workshop, token: str, as_json: bool) -> int:
    """Say what a failing crash state lacks, and which flush or fence forbids it.

    The state is replayed; then repairs are tried one after the other, for at most a minute: the trace is explored again, all of it,
    as if the source had that flush or fence, until the finding is gone.
    """
    return replay_token(workshop, token, as_json, is_explained=True)
