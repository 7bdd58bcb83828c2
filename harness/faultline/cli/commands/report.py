# SPDX-License-Identifier: Apache-2.0
"""`faultline report`."""

from __future__ import annotations

from pathlib import Path

import click

from faultline.base.errors import EXIT_OK, BadInputError
from faultline.cli.campaigns import DATABASE_NAME, print_campaign, write_reports
from faultline.cli.options import DEFAULT_OUT, json_option, report_url_option
from faultline.cli.values import PATH
from faultline.report import results_document


@click.command("report")
@click.option("--out", type=PATH, default=DEFAULT_OUT, show_default=True, help="Folder of the campaign.")
@report_url_option
@json_option
def command(out: Path, report_url: str, as_json: bool) -> int:
    """Write the reports of the last campaign again, from its database."""
    if not (out / DATABASE_NAME).is_file():
        raise BadInputError(
            f"{out / DATABASE_NAME}: no results there", "run `faultline matrix` first, or name its --out"
        )
    results, state, environment = write_reports(out, report_url)
    if as_json:
        click.echo(results_document.render(results, state, environment), nl=False)
    else:
        print_campaign(results, out)
    return EXIT_OK
