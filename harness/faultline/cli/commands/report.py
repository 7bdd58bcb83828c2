# SPDX-License-Identifier: Apache-2.0
"""`faultline report`."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

import click

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN, BadInputError
from faultline.campaign.recorded import DATABASE_NAME, read_recorded
from faultline.cli.campaigns import print_campaign, write_reports
from faultline.cli.options import DEFAULT_OUT, is_given, json_option, report_url_option
from faultline.cli.output import print_json
from faultline.cli.values import PATH
from faultline.report import comparison_texts, results_document
from faultline.report.comparison import Comparison, compare
from faultline.report.terminal.comparison import print_comparison

Format = Literal["text", "markdown", "html"]


@click.command("report")
@click.option("--out", type=PATH, default=DEFAULT_OUT, show_default=True, help="Folder of the campaign.")
@click.option(
    "--compare",
    "compared",
    type=PATH,
    nargs=2,
    metavar="BEFORE AFTER",
    help="Say what is new, fixed or changed between two campaigns, and write no report. Each is the folder of a campaign, its"
    " results.sqlite or its results.json. Exit code 1: a new finding, or a mutant that survives now; 3: a cell that has no"
    " verdict now.",
)
@click.option(
    "--format",
    "shape",
    type=click.Choice(["text", "markdown", "html"]),
    default="text",
    show_default=True,
    help="With --compare: text for a person, Markdown for a comment on a pull request, or an HTML page, on stdout.",
)
@report_url_option
@json_option
def command(out: Path, compared: tuple[Path, Path] | None, shape: Format, report_url: str, as_json: bool) -> int:
    """Write the reports of the last campaign again, from its database, or compare two campaigns."""
    if compared is not None:
        if is_given("out"):
            raise BadInputError("--compare writes to stdout, and reads no --out", "leave --out away")
        return _compare(*compared, shape, report_url, as_json)
    if is_given("shape"):
        raise BadInputError("--format is of a comparison, and none is asked for", "give --compare BEFORE AFTER, too")
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


def _compare(before: Path, after: Path, shape: Format, report_url: str, as_json: bool) -> int:
    earlier, later = read_recorded(before), read_recorded(after)
    later.environment.report_url = report_url or later.environment.report_url
    found = compare(earlier, later)
    if as_json:
        print_json(found)
    elif shape == "text":
        print_comparison(found)
    else:
        click.echo((comparison_texts.markdown if shape == "markdown" else comparison_texts.html)(found), nl=False)
    return exit_code_of(found)


def exit_code_of(comparison: Comparison) -> int:
    if comparison.is_worse:
        return EXIT_FINDINGS
    return EXIT_UNKNOWN if comparison.is_open else EXIT_OK
