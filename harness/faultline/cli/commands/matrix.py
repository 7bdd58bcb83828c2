# SPDX-License-Identifier: Apache-2.0
"""`faultline matrix`."""

from __future__ import annotations

import os
from pathlib import Path

import click
import msgspec

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN, BadInputError
from faultline.campaign.matrix import cells_of_matrix, read_matrix
from faultline.campaign.results import CellResult, summarise
from faultline.cli.campaigns import run_campaign
from faultline.cli.cells import matrix_path
from faultline.cli.options import (
    DEFAULT_MATRIX,
    DEFAULT_OUT,
    KnownFiles,
    allow_incomplete_option,
    json_option,
    known_options,
    report_url_option,
    verbose_option,
    workshop_options,
)
from faultline.cli.values import PATH
from faultline.pipeline.workshop import Workshop


@click.command("matrix")
@click.option("-c", "--config", "path", type=PATH, help=f"[default: what faultline.toml says, else {DEFAULT_MATRIX}]")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Cells at a time.  [default: one a processor]")
@click.option("--out", type=PATH, default=DEFAULT_OUT, show_default=True, help="Reports and database.")
@allow_incomplete_option
@verbose_option
@known_options
@report_url_option
@workshop_options
@json_option
def command(
    workshop: Workshop,
    path: Path | None,
    jobs: int | None,
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
    jobs = jobs or len(os.sched_getaffinity(0))
    results = run_campaign(
        workshop, "matrix", specs, jobs, out, as_json, files, is_verbose=is_verbose, report_url=report_url
    )
    return exit_code_of_matrix(results)


def exit_code_of_matrix(results: list[CellResult]) -> int:
    summary = summarise(results)
    if summary.findings:
        return EXIT_FINDINGS
    if any(result.is_open for result in results):
        return EXIT_UNKNOWN
    return EXIT_OK if summary.mutants_killed == summary.mutants_run else EXIT_FINDINGS
