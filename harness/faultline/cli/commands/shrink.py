# SPDX-License-Identifier: Apache-2.0
"""`faultline shrink`."""

from __future__ import annotations

import click

from faultline.base.errors import EXIT_FINDINGS
from faultline.cli.options import json_option, time_option, workshop_options
from faultline.cli.output import print_json
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal import streams
from faultline.report.terminal.findings import print_events, print_finding
from faultline.study import replay
from faultline.study.shrink import Budget
from faultline.study.witness import BUDGET_S, EXPLORATIONS


@click.command("shrink")
@click.argument("token")
@time_option(BUDGET_S, "Stop after about S seconds.")
@click.option(
    "--explorations",
    type=click.IntRange(1),
    default=EXPLORATIONS,
    show_default=True,
    metavar="N",
    help="Trace and explore at most N times.",
)
@workshop_options
@json_option
def command(workshop: Workshop, token: str, time_s: float, explorations: int, as_json: bool) -> int:
    """Find the smallest workload and crash state that show the same finding.

    Same finding: same rule, same place in the source. Fewest operations, then smallest sizes and fewest slots; fewest lines lost,
    then fewest that hold more than what is guaranteed, then the earliest crash position. The result replays by its own token.
    """

    def say(text: str) -> None:
        streams.note(f"trying: {text}")

    spec, shrunk = replay.shrink_token(workshop, token, Budget(time_s, explorations), None if as_json else say)
    if as_json:
        print_json(shrunk)
    else:
        print_finding(streams.out(), spec, shrunk.witness, shrunk=shrunk)
        print_events(streams.out(), shrunk.witness)
    return EXIT_FINDINGS
