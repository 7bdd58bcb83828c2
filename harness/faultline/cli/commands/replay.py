# SPDX-License-Identifier: Apache-2.0
"""`faultline replay`."""

from __future__ import annotations

import click

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN
from faultline.cli.options import json_option, workshop_options
from faultline.cli.output import print_json
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal import streams
from faultline.report.terminal.findings import print_events, print_finding
from faultline.report.terminal.streams import print_line
from faultline.study import replay


@click.command("replay")
@click.argument("token")
@workshop_options
@json_option
def command(workshop: Workshop, token: str, as_json: bool) -> int:
    """Recover and judge the crash state that a token names."""
    return replay_token(workshop, token, as_json)


def replay_token(workshop: Workshop, token: str, as_json: bool, explaining_s: float | None = None) -> int:
    def say(text: str) -> None:
        streams.note(f"trying: {text}")

    replayed = replay.replay(workshop, token, explaining_s, None if as_json else say)
    if as_json:
        print_json(replayed)
    else:
        spec = replayed.spec
        for finding in replayed.findings:
            explained = next((one for one in replayed.explanations if one.finding == finding.id), None)
            print_finding(streams.out(), spec, finding, explained)
            print_events(streams.out(), finding)
        if replayed.note:
            print_line(streams.out(), "note: ", "yellow", replayed.note)
        click.echo(f"verdict: {replayed.verdict}")
    return {"pass": EXIT_OK, "fail": EXIT_FINDINGS}.get(replayed.verdict, EXIT_UNKNOWN)
