# SPDX-License-Identifier: Apache-2.0
"""`faultline mutate`."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import click
import msgspec

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN, BadInputError
from faultline.campaign.known import read_known
from faultline.campaign.matrix import cells_of_matrix, read_matrix
from faultline.cli.cells import cell_spec, matrix_path, usual_start, with_found_workload
from faultline.cli.options import (
    allocator_argument,
    baseline_option,
    is_given,
    json_option,
    suppressions_option,
    variant_options,
    workload_option,
    workshop_options,
)
from faultline.cli.output import print_json
from faultline.cli.values import SECONDS
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.mutation import print_mutation
from faultline.report.terminal.progress import StepProgress
from faultline.study import mutate


@click.command("mutate")
@allocator_argument
@workload_option(
    "One of those that `run` takes; may be given several times.  [default: those of the matrix]", "names", multiple=True
)
@variant_options
@click.option("--only", metavar="TEXT", help="Only places whose name has TEXT in it.")
@click.option("--time", "time_s", type=SECONDS, metavar="S", help="Stop a trial after S seconds.")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Trials at a time.  [default: one a processor]")
@baseline_option
@suppressions_option
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocator: str,
    names: tuple[str, ...],
    only: str | None,
    time_s: float | None,
    jobs: int | None,
    baseline: Path | None,
    suppressions: Path | None,
    as_json: bool,
    **variant: Any,
) -> int:
    """Take every flush and every fence out of the trace in turn, and explore what is left.

    A place is a line of source that the workloads come to; a helper (`helpers` of allocator.toml) is one for each line that
    calls it. killed: without it a rule is broken. redundant: complete explorations of these workloads prove that recovery shows
    no other heap without it (contents apart), after one crash of each, and after a second one of those that the matrix runs
    with second crashes in what follows recoveries, too (a limit may end some of them, not all); where there are none, of one. A
    generated workload that a limit ends without the place is tried with half as many operations, a quarter and so on, and the
    output says so. What survives a workload is taken out of the next one together. blind spot: recovery shows something new and no
    rule minds; the first crash state that shows it is printed, and how its heap differs. unknown: not every state was explored, or
    something else kept one from being judged. What only a recovery from a crash comes to is taken out of recoveries, by second
    crashes of the workloads that the matrix runs so; it has no count.
    An allocator that is not clean yet is tried with --baseline or --suppressions: its known findings kill nothing. A place whose
    loss nothing but a known finding may tell is unknown.
    Exit code 1 when there is a blind spot, 3 when something is unknown.
    """
    given = [name for name in ("mutant", "ops", "seed", "flush") if is_given(name)]
    if given and not names:
        raise BadInputError(f"--{given[0]} is about a workload, and none is named", "name one with -w")
    if names:
        found = workshop.allocator(allocator)
        way = {**variant, "strategy": "complete", "model": "px86"}
        specs = [cell_spec(found.name, name, **way, start=usual_start(found, name)) for name in names]
    else:
        path = matrix_path(workshop)
        matrix = read_matrix(path, workshop.engine)
        found = workshop.allocator(allocator)
        cells = cells_of_matrix(workshop.allocator, matrix)
        specs = mutate.specs_of_matrix(cells, found.name)
        if not specs:
            raise BadInputError(f"{path} has no clean cell of {allocator}", "name a workload with -w")
    specs = [with_found_workload(workshop, spec) for spec in specs]
    known = read_known(baseline, suppressions, specs).ids_of(specs[0])
    with StepProgress(is_quiet=as_json) as progress:
        mutation = mutate.mutate(workshop, specs, only, time_s, jobs or len(os.sched_getaffinity(0)), progress, known)
    if as_json:
        print_json({**msgspec.to_builtins(mutation), "fates": {place.name: place.fate for place in mutation.places}})
    else:
        print_mutation(mutation)
        click.echo(mutation.line())
    if mutation.count("blind spot"):
        return EXIT_FINDINGS
    return EXIT_UNKNOWN if mutation.count("unknown") else EXIT_OK
