# SPDX-License-Identifier: Apache-2.0
"""`faultline matrix`."""

from __future__ import annotations

import os
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path

import click
import msgspec

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN, BadInputError
from faultline.base.text import count
from faultline.campaign.campaign import Crew
from faultline.campaign.cluster import cluster_at
from faultline.campaign.matrix import cells_of_matrix, read_matrix
from faultline.campaign.part import Places
from faultline.campaign.recorded import read_recorded
from faultline.campaign.results import CellResult, summarise
from faultline.campaign.shards import Shard
from faultline.campaign.where import Where
from faultline.cli.campaigns import Share, run_campaign
from faultline.cli.cells import matrix_path
from faultline.cli.options import (
    DEFAULT_MATRIX,
    DEFAULT_OUT,
    KnownFiles,
    allow_incomplete_option,
    is_given,
    json_option,
    known_options,
    report_url_option,
    verbose_option,
    workshop_options,
)
from faultline.cli.values import CLUSTER, PATH, SHARD
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal import streams


@click.command("matrix")
@click.option("-c", "--config", "path", type=PATH, help=f"[default: what faultline.toml says, else {DEFAULT_MATRIX}]")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Cells at a time.  [default: one a processor]")
@click.option("--out", type=PATH, default=DEFAULT_OUT, show_default=True, help="Reports and database.")
@click.option(
    "--shard", type=SHARD, metavar="I/N", help="Run part I of N alone; `faultline merge` makes one result of all parts."
)
@click.option(
    "--costs",
    type=PATH,
    metavar="RESULTS",
    help="With --shard: an earlier campaign (folder, results.sqlite or results.json), by whose times the parts are made equally"
    " long. The same one for all parts.",
)
@click.option(
    "--changed",
    type=PATH,
    metavar="RESULTS",
    help="Explore only what has changed since an earlier campaign (folder, results.sqlite or results.json): a cell whose build,"
    " workload and engine are the same is taken over.",
)
@click.option(
    "--cluster",
    type=CLUSTER,
    metavar="ADDRESS",
    help="Run the cells on the workers of Dask distributed: tcp://HOST:PORT of its scheduler, or local:N for N processes here.",
)
@allow_incomplete_option
@verbose_option
@known_options
@report_url_option
@workshop_options
@json_option
def command(
    workshop: Workshop,
    path: Path | None,
    shard: Shard | None,
    costs: Path | None,
    changed: Path | None,
    jobs: int | None,
    cluster: Where | None,
    out: Path,
    files: KnownFiles,
    as_json: bool,
    allow_incomplete: bool,
    is_verbose: bool,
    report_url: str,
) -> int:
    """Run all cells of a matrix, clean and mutants, and write the reports."""
    path = path or matrix_path(workshop)
    matrix = read_matrix(path, workshop.engine)
    specs = cells_of_matrix(workshop.allocator, matrix)
    if allow_incomplete:
        specs = [msgspec.structs.replace(spec, allow_incomplete=True) for spec in specs]
    if not specs:
        raise BadInputError(f"{path}: has no cell", "add [[cell]] or [[mutants]]")
    if costs is not None and shard is None:
        raise BadInputError("--costs is about shards, and none is asked for", "give --shard I/N, too")
    share = None if shard is None else Share(shard, read_recorded(costs).results if costs else [])
    before = read_recorded(changed).results if changed else []
    if cluster is not None and is_given("jobs"):
        raise BadInputError("--jobs is about this process, and --cluster has others run the cells", "give one of them")
    jobs = jobs or len(os.sched_getaffinity(0))
    with _crew(cluster, workshop) as crew:
        results = run_campaign(
            workshop,
            "matrix",
            specs,
            jobs,
            out,
            as_json,
            files,
            is_verbose=is_verbose,
            report_url=report_url,
            share=share,
            before=before,
            crew=crew,
        )
    if changed is not None:
        _say_taken_over(changed, results)
    return exit_code_of_matrix(results)


def _crew(cluster: Where | None, workshop: Workshop) -> AbstractContextManager[Crew | None]:
    if cluster is None:
        return nullcontext()
    heaps = workshop.heap_folder
    places = Places(str(workshop.cache.folder), str(workshop.engine.path.absolute()), str(heaps) if heaps else "")
    return cluster_at(cluster, places, streams.note)


def _say_taken_over(path: Path, results: list[CellResult]) -> None:
    names = [result.spec.name for result in results if result.is_reused]
    explored = count(len(results) - len(names), "cell")
    streams.note(f"taken over from {path}: {count(len(names), 'cell')} that did not change; explored: {explored}")
    for name in names:
        streams.note(f"taken over: {name}")


def exit_code_of_matrix(results: list[CellResult]) -> int:
    summary = summarise(results)
    if summary.findings:
        return EXIT_FINDINGS
    if any(result.is_open for result in results):
        return EXIT_UNKNOWN
    return EXIT_OK if summary.mutants_killed == summary.mutants_run else EXIT_FINDINGS
