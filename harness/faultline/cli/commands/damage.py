# SPDX-License-Identifier: Apache-2.0
"""`faultline damage`."""

from __future__ import annotations

from typing import Any

import click

from faultline.base.config import DEFAULT_STRATEGY
from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN
from faultline.cli.cells import cell_spec
from faultline.cli.options import (
    WORKLOAD_NAMES,
    allocator_argument,
    json_option,
    time_option,
    variant_options,
    workload_option,
    workshop_options,
)
from faultline.cli.output import print_json
from faultline.pipeline.prepared import build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.damage import print_damage
from faultline.study.damage import damage

AT_MOST = 100
TIME_S = 600.0


@click.command("damage")
@allocator_argument
@workload_option(f"One of {WORKLOAD_NAMES}.", default="churn", show_default=True)
@variant_options
@click.option(
    "--at-most",
    type=click.IntRange(1),
    default=AT_MOST,
    show_default=True,
    metavar="N",
    help="Damages of each kind at each crash position; of more, N are drawn with --seed.",
)
@time_option(TIME_S, "Stop after S seconds: each damage that makes recovery hang takes one or more.")
@click.option("--only", metavar="DAMAGE", help="This one alone, as the output names it.")
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocator: str,
    workload: str,
    at_most: int,
    time_s: float,
    only: str | None,
    as_json: bool,
    **variant: Any,
) -> int:
    """Damage heaps, and say what recovery makes of it.

    The heaps are those of four crash positions of the workload, the last one among them, with every store persisted. One thing is
    damaged at a time: a bit is flipped, anywhere or in the header of a heap block, a line is zeros, a line is as it was before it
    was written last (the write was lost), a page is poisoned (a load of it is a SIGBUS), a word is what a stray store left, at
    rest or as soon as the heap is open, a file is cut short or missing. Objects are left alone: no allocator knows what is in them.

    Each damaged heap is run through the probe script. harmless: no rule minds. kept out: a stray store
    cannot be made, since its page is protected or not mapped. detected: open or the allocator's check answers an
    error. given up: objects or room are gone, and the rest is right. silent: something is wrong, and nothing says so. dies,
    hangs: recovery or the use of the heap does.

    isolated: what is damaged is given up at most, and all else is right and works.

    What the contract promises to detect (`detects`) must not be silent, die or hang, and what it promises to isolate (`isolates`)
    must be isolated: exit code 1 (FL016). An allocator that promises nothing has no verdict.
    """
    spec = cell_spec(allocator, workload, **variant, strategy=DEFAULT_STRATEGY, model="px86", time_limit_s=time_s)
    target = build_cell(workshop, spec, needs_hooks=False)
    report = damage(trace_cell(workshop, spec, target, find_workload(workshop, spec)), at_most, only)
    if as_json:
        print_json(report)
    else:
        print_damage(report)
    if report.broken:
        return EXIT_FINDINGS
    is_asked = report.is_promised or (only is not None and not report.damages)
    return EXIT_UNKNOWN if report.why_unknown and is_asked else EXIT_OK
