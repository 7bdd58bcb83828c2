# SPDX-License-Identifier: Apache-2.0
"""`faultline merge`."""

from __future__ import annotations

import shlex
from pathlib import Path

import click

from faultline.base.cache import key_of
from faultline.campaign.recorded import DATABASE_NAME, read_recorded
from faultline.campaign.results import Results
from faultline.campaign.shards import folder_of, merged
from faultline.cli.campaigns import print_campaign, write_reports
from faultline.cli.commands.matrix import exit_code_of_matrix
from faultline.cli.options import DEFAULT_OUT, json_option, report_url_option
from faultline.cli.values import PATH
from faultline.report import results_document


@click.command("merge")
@click.argument("folders", type=PATH, nargs=-1, required=True, metavar="DIR...")
@click.option("--out", type=PATH, default=DEFAULT_OUT, show_default=True, help="Reports and database of the whole.")
@report_url_option
@json_option
def command(folders: tuple[Path, ...], out: Path, report_url: str, as_json: bool) -> int:
    """Make one result of all shards of a matrix: the same as of one machine. DIR is a shard's folder."""
    shards = [read_recorded(folder) for folder in folders]
    results, environment = merged(shards, shlex.join(["faultline", "merge", *map(str, folders), "--out", str(out)]))
    database = Results(folder_of(out, folders) / DATABASE_NAME)
    try:
        campaign = database.begin("matrix", key_of("merged"), [result.spec for result in results], environment)
        for position, result in enumerate(results):
            database.cell(campaign, position, result)
            for finding in result.findings:
                database.finding(campaign, position, finding)
        database.end(campaign, "done")
    finally:
        database.close()
    results, state, environment = write_reports(out, report_url)
    if as_json:
        click.echo(results_document.render(results, state, environment), nl=False)
    else:
        print_campaign(results, out)
    return exit_code_of_matrix(results)
