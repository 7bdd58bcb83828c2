# SPDX-License-Identifier: Apache-2.0
"""`faultline run`."""

from __future__ import annotations

from pathlib import Path

import click

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN
from faultline.cli.asked import AskedCell, asked_options
from faultline.cli.campaigns import check_has_verdict, run_campaign
from faultline.cli.options import json_option, report_url_option, verbose_option
from faultline.cli.values import PATH


@click.command("run")
@asked_options
@click.option(
    "--resume", "is_resumed", is_flag=True, help="Go on where the same exploration, with the same --out, was stopped."
)
@click.option("--out", type=PATH, help="Write report.html and the other reports here.")
@verbose_option
@report_url_option
@json_option
def command(
    asked: AskedCell, is_resumed: bool, out: Path | None, as_json: bool, is_verbose: bool, report_url: str
) -> int:
    """Run one cell: trace a workload and explore its crash states."""
    workshop, files = asked.workshop, asked.files
    results = run_campaign(
        workshop, "run", [asked.spec], 1, out, as_json, files, is_resumed, asked.examining, is_verbose, report_url
    )
    check_has_verdict(results[0])
    return EXIT_FINDINGS if results[0].new_findings else EXIT_UNKNOWN if results[0].is_open else EXIT_OK
