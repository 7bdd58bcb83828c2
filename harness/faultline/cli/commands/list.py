# SPDX-License-Identifier: Apache-2.0
"""`faultline list`."""

from __future__ import annotations

import click

from faultline.base import config
from faultline.base.errors import EXIT_OK
from faultline.cli.options import json_option, workshop_options
from faultline.cli.output import print_json
from faultline.pipeline.lists import models, strategies
from faultline.pipeline.tracers import TRACERS
from faultline.pipeline.workshop import Workshop
from faultline.report import results_document
from faultline.workload import catalogue, file_format


@click.command("list")
@workshop_options
@click.option(
    "--built-in", is_flag=True, help="The allocators that faultline brings with it, not those of faultline.toml."
)
@click.option("--workload-format", is_flag=True, help="Print what a workload file looks like.")
@click.option("--results-schema", is_flag=True, help="Print the JSON schema of results.json.")
@json_option
def command(workshop: Workshop, built_in: bool, workload_format: bool, results_schema: bool, as_json: bool) -> int:
    """List allocators, their mutants, workloads, strategies, models, tracers and rules."""
    if workload_format or results_schema:
        click.echo(file_format.FORMAT.strip() if workload_format else results_document.schema().strip())
        return EXIT_OK
    project = workshop.project
    names = project.built_in() if built_in else project.names()
    found = [workshop.allocator(name) for name in names]
    if as_json:
        print_json(
            {
                "allocators": found,
                "workloads": catalogue.GENERATORS,
                "strategies": list(strategies(workshop.engine)),
                "models": list(models(workshop.engine)),
                "flushes": config.FLUSHES,
                "tracers": {one.name: one.summary for one in TRACERS.values()},
                "rules": workshop.engine.rules(),
            }
        )
        return EXIT_OK
    for allocator in found:
        click.echo(f"{allocator.name}: {allocator.summary}")
        for mutant in allocator.mutant:
            click.echo(f"  {mutant.id} ({mutant.rule}): {mutant.summary}")
    click.echo("workloads:")
    for name, summary in catalogue.GENERATORS.items():
        click.echo(f"  {name}: {summary}")
    click.echo(f"strategies: {', '.join(strategies(workshop.engine))}")
    click.echo(f"models: {', '.join(models(workshop.engine))}")
    click.echo("tracers:")
    for tracer in TRACERS.values():
        click.echo(f"  {tracer.name}: {tracer.summary}")
    click.echo("rules, and when they are broken; trace rules warn:")
    for rule in workshop.engine.rules():
        click.echo(f"  {rule.id}: {rule.meaning}")
    return EXIT_OK
