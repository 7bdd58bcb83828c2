# SPDX-License-Identifier: Apache-2.0
"""`faultline build`."""

from __future__ import annotations

import itertools
from pathlib import Path

import click

from faultline.base import config
from faultline.base.errors import EXIT_OK
from faultline.cli import completion
from faultline.cli.options import flush_option, json_option, workshop_options
from faultline.cli.output import print_json
from faultline.pipeline import build, packages
from faultline.pipeline.workshop import Workshop


@click.command("build")
@click.argument("allocators", shell_complete=completion.allocators, nargs=-1)
@click.option("--mutant", "-m", metavar="M", shell_complete=completion.mutants, help="Only this mutant.")
@click.option("--mutants", is_flag=True, help="Their mutants too.")
@click.option("--tools", is_flag=True, help="No allocator: the runner and what the tracer needs.")
@flush_option
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocators: tuple[str, ...],
    mutant: str | None,
    mutants: bool,
    tools: bool,
    flush: config.Flush,
    as_json: bool,
) -> int:
    """Build allocators (all without names), each with hooks, too, and what recovers its heaps (`upgrade`), the runner and what the
    tracer needs."""
    rows: list[dict[str, str | None]] = []

    def add(what: str, variant: str | None, built: build.Built) -> None:
        rows.append({"what": what, "mutant": variant, "build": built.key, "path": str(built.path)})

    for name in () if tools else allocators or workshop.project.names():
        allocator = workshop.allocator(name)
        if not allocators and (lacking := packages.missing(allocator)):
            click.echo(f"{name} is not built: {lacking}", err=True)
            continue
        newer = config.upgrade_of(allocator)
        variants = [mutant] if mutant else [None, *(known.id for known in allocator.mutant if mutants)]
        for variant, is_hooked in itertools.product(variants, (False, True)):
            hooks = " with hooks" * is_hooked
            built = build.build_adapter(Path(allocator.root), workshop.cache, allocator, variant, flush, is_hooked)
            add(f"{name}{hooks}", variant, built)
            if newer:
                its = variant if variant in {known.id for known in newer.mutant} else None
                built = build.build_adapter(Path(newer.root), workshop.cache, newer, its, flush, is_hooked)
                add(f"upgrade of {name}{hooks}", its, built)
    add("runner", None, build.build_runner(workshop.root, workshop.cache))
    add(f"{workshop.tracer.name} tool", None, workshop.tracer.build(workshop.root, workshop.cache))
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['what']}{' ' + row['mutant'] if row['mutant'] else ''} {row['build']} {row['path']}")
    return EXIT_OK
