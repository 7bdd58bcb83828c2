# SPDX-License-Identifier: Apache-2.0
"""What commands that run campaigns share: running one, and writing its reports."""

from __future__ import annotations

import sys
from pathlib import Path

import click
import msgspec

from faultline.campaign import campaign
from faultline.campaign.campaign import EXAMINING_ALL, Examining
from faultline.campaign.known import write_baseline
from faultline.campaign.recorded import DATABASE_NAME
from faultline.campaign.results import CellResult, Results, summarise
from faultline.cli.cells import with_found_workload
from faultline.cli.options import KnownFiles
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment
from faultline.pipeline.workshop import Workshop
from faultline.report import reports, results_document
from faultline.report.terminal import streams
from faultline.report.terminal.campaigns import print_results
from faultline.report.terminal.progress import CampaignProgress


def run_campaign(
    workshop: Workshop,
    kind: str,
    specs: list[CellSpec],
    jobs: int,
    out: Path | None,
    as_json: bool,
    files: KnownFiles,
    is_resumed: bool = False,
    examining: Examining = EXAMINING_ALL,
    is_verbose: bool = False,
    report_url: str = "",
) -> list[CellResult]:
    """Runs the cells, writes the reports (of what there is, after Ctrl-C too), prints table and summary."""
    specs = [with_found_workload(workshop, spec) for spec in specs]  # names and files are checked before anything runs
    known = files.read(specs)
    database = Results(workshop.cache.database if out is None else out / DATABASE_NAME)
    if kind == "matrix":
        longest = max(spec.time_limit_s or 0 for spec in specs)
        streams.note(f"each cell is explored for {longest:g} s at most (time_s)")
    try:
        with CampaignProgress(specs, is_quiet=as_json) as progress:
            campaign.run_cells(workshop, database, kind, specs, jobs, progress, is_resumed, known, examining)
    finally:
        state, results = database.read()
        environment = msgspec.structs.replace(database.environment(), report_url=report_url)
        database.close()
        if out is not None:
            reports.write_all(out, results, state, environment)
        if as_json:
            click.echo(results_document.render(results, state, environment), nl=False)
        else:
            print_campaign(results, out, is_verbose)
        for line in known.lines(results):
            streams.note(line)
    if files.written is not None:
        streams.note(write_baseline(files.written, results))
    return results


def print_campaign(results: list[CellResult], out: Path | None, is_verbose: bool = False) -> None:
    print_results(results, is_verbose)
    if out is not None:
        streams.note(f"report: {out / 'report.html'}")
    sys.stderr.flush()
    click.echo(summarise(results).line())


def check_database(out: Path | None) -> None:
    """Before anything runs: that of an earlier campaign in the folder can be read."""
    if out is not None and (out / DATABASE_NAME).is_file():
        Results(out / DATABASE_NAME).close()


def write_reports(out: Path, report_url: str = "") -> tuple[list[CellResult], str, Environment]:
    """Those of the campaign whose database is in the folder."""
    database = Results(out / DATABASE_NAME)
    state, results = database.read()
    environment = msgspec.structs.replace(database.environment(), report_url=report_url)
    database.close()
    reports.write_all(out, results, state, environment)
    return results, state, environment
