# SPDX-License-Identifier: Apache-2.0
"""What commands that run campaigns share: running one, and writing its reports."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import click
import msgspec

from faultline.base.errors import BadInputError, InfrastructureError
from faultline.campaign import campaign
from faultline.campaign.campaign import EXAMINING_ALL, CampaignWatcher, Crew, Examining
from faultline.campaign.known import write_baseline
from faultline.campaign.recorded import DATABASE_NAME, read_recorded
from faultline.campaign.results import CellResult, Results, summarise
from faultline.campaign.shards import Shard, part_of
from faultline.cli.asked import AskedCell
from faultline.cli.cells import with_found_workload
from faultline.cli.options import KnownFiles
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment
from faultline.pipeline.workshop import Workshop
from faultline.report import reports, results_document
from faultline.report.terminal import streams
from faultline.report.terminal.campaigns import print_results
from faultline.report.terminal.progress import CampaignProgress


@dataclass(frozen=True)
class Share:
    """costs: results of an earlier campaign, by whose times the shards are made."""

    shard: Shard
    costs: list[CellResult]


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
    share: Share | None = None,
    before: Iterable[CellResult] = (),
    crew: Crew | None = None,
) -> list[CellResult]:
    """Runs the cells, writes the reports (of what there is, after Ctrl-C too), prints table and summary. share: runs only those of
    a shard; before: results of which those are taken over that have not changed; crew: who runs them, if not this process."""
    specs = [with_found_workload(workshop, spec) for spec in specs]  # names and files are checked before anything runs
    known = files.read(specs)
    part = None if share is None else part_of(share.shard, specs, share.costs)
    if part is not None:
        specs = [specs[position] for position in part.positions]
        streams.note(f"shard {part.name}: {len(specs)} of {part.cells} cells")
    database = Results(workshop.cache.database if out is None else out / DATABASE_NAME)
    if kind == "matrix":
        longest = max((spec.time_limit_s or 0 for spec in specs), default=0)
        streams.note(f"each cell is explored for {longest:g} s at most (time_s)")
    results: list[CellResult] = []
    try:
        with CampaignProgress(specs, is_quiet=as_json) as progress:
            campaign.run_cells(
                workshop, database, kind, specs, jobs, progress, is_resumed, known, examining, part, before, crew
            )
    finally:
        if not database.has_begun:  # Ctrl-C came first
            database.close()
        else:
            state, results = database.read()
            environment = msgspec.structs.replace(database.environment(), report_url=report_url)
            database.close()
            if out is not None:
                reports.write_all(out, results, state, environment)
            if as_json:
                click.echo(results_document.render(results, state, environment), nl=False)
            else:
                print_campaign(results, out, is_verbose)
            for line in known.lines(results) if part is None else ():  # what a shard did not find, another one may find
                streams.note(line)
    if files.written is not None:
        streams.note(write_baseline(files.written, results))
    return results


def explore_cell(asked: AskedCell, database: Results, watcher: CampaignWatcher) -> CellResult:
    """As `faultline run` does, and nothing is printed.

    Raises FaultlineError where there is no verdict for want of something, InterruptedCampaignError after Ctrl-C."""
    spec = with_found_workload(asked.workshop, asked.spec)
    known = asked.files.read([spec])
    (result,) = campaign.run_cells(
        asked.workshop, database, "run", [spec], 1, watcher, known=known, examining=asked.examining
    )
    check_has_verdict(result)
    return result


def check_has_verdict(result: CellResult) -> None:
    """Raises the error that is the reason why the cell has none."""
    if result.error is not None:
        kind = BadInputError if result.error_code == BadInputError.exit_code else InfrastructureError
        raise kind(result.error, result.hint)


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
    recorded = read_recorded(out / DATABASE_NAME)
    environment = msgspec.structs.replace(recorded.environment, report_url=report_url)
    reports.write_all(out, recorded.results, recorded.state, environment)
    return recorded.results, recorded.state, environment
