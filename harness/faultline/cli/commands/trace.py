# SPDX-License-Identifier: Apache-2.0
"""`faultline trace`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
import msgspec

from faultline.base import config
from faultline.base.cache import SCRATCH_FOLDER
from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, BadInputError
from faultline.base.input_files import check_regular
from faultline.cli import completion
from faultline.cli.cells import cell_spec
from faultline.cli.options import WORKLOAD_NAMES, json_option, variant_options, workload_option, workshop_options
from faultline.cli.output import copy, file_to_compare_with, print_json, write
from faultline.cli.values import PATH
from faultline.pipeline import explore
from faultline.pipeline.events import TraceRules
from faultline.pipeline.prepared import build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.report import trace_rules
from faultline.report.terminal import streams
from faultline.report.terminal.trace_rules import print_trace_rules


@click.command("trace")
@click.argument("allocator", metavar="ALLOCATOR | FILE", shell_complete=completion.allocators)
@workload_option(f"One of {WORKLOAD_NAMES}.")
@variant_options
@click.option("--out", type=PATH, help="Copy the trace to this file.")
@click.option("--fresh", is_flag=True, help="Trace again even if the trace is in the cache.")
@click.option(
    "--dump", is_flag=True, help="Print the trace as text: that of a workload, or of a FILE that --out wrote."
)
@click.option(
    "--rules", is_flag=True, help="Print the trace rules FL1xx that the workload breaks, and what each operation pays."
)
@click.option(
    "--protect",
    type=PATH,
    help="Fail when an operation pays more than FILE says.",
)
@click.option("--update", "is_updated", is_flag=True, help="With --protect: write FILE, what operations pay now.")
@click.option("--engine-config", type=PATH, help="Write what the engine would be started with.")
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocator: str,
    workload: str | None,
    out: Path | None,
    fresh: bool,
    dump: bool,
    rules: bool,
    protect: Path | None,
    is_updated: bool,
    engine_config: Path | None,
    as_json: bool,
    **variant: Any,
) -> int:
    """Trace a workload: record every store, flush and fence.

    With --dump the trace is printed as text, one line an event. The columns are stable: the crash position after the event (power
    that fails at position N, as findings and tokens name it, fails after the line N), process.thread, the operation that the
    thread is in, the kind of event, what it was, and where in the source: "at FUNCTION (FILE:LINE)". Lines of `#` are comments.

    With --rules the trace rules are judged, which `faultline list` lists: they warn of stores that a power failure may lose, and of
    flushes and fences that do nothing. Below the warnings stands what an operation of each kind pays on average. --protect FILE
    ends with exit code 1 when one pays more than FILE says; --update writes FILE, for the first time too, and when they pay less.
    """
    if dump and (as_json or rules or protect):
        other = "--json prints facts" if as_json else "--rules and --protect what is paid"
        raise BadInputError(f"--dump prints events as text, {other}", "give one of them")
    earlier = _earlier_costs(protect, is_updated)
    if workload is None:
        if not dump:
            raise BadInputError(
                "what is traced needs a workload", "name one with -w, or print a trace file with --dump"
            )
        return _dump(workshop, Path(allocator))
    spec = cell_spec(allocator, workload, **variant, strategy=config.DEFAULT_STRATEGY, model="px86")
    target = build_cell(workshop, spec, needs_hooks=False)
    cell = trace_cell(workshop, spec, target, find_workload(workshop, spec), fresh=fresh)
    if engine_config is not None:
        scratch = workshop.heap_folder or SCRATCH_FOLDER
        write(engine_config, msgspec.json.encode(explore.engine_config(cell, scratch)))
    path = cell.trace.path
    if out is not None:
        copy(path, out)
        path = out
    if dump:
        return _dump(workshop, path)
    if rules or protect:
        return _rules(workshop, path, target.allocator, spec.name, earlier, protect, as_json)
    facts = {
        "trace": str(path),
        "hash": cell.trace.hash,
        "bytes": path.stat().st_size,
        "sessions": cell.workload.session_count,
        "cases": cell.workload.case_count,
        "operations": cell.workload.operation_count,
        "is_cached": cell.trace.is_cached,
        **({"varies": target.allocator.varies} if target.allocator.varies else {}),
    }
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            click.echo(f"{name}: {value}")
    return EXIT_OK


def _earlier_costs(protect: Path | None, is_updated: bool) -> trace_rules.Costs | None:
    earlier = file_to_compare_with(protect, is_updated)
    return None if earlier is None else trace_rules.read_costs(earlier)


def _rules(
    workshop: Workshop,
    trace: Path,
    allocator: config.Allocator,
    cell: str,
    earlier: trace_rules.Costs | None,
    protect: Path | None,
    as_json: bool,
) -> int:
    arguments = ["rules", str(trace), "--module-root", str(workshop.cache.folder / "builds")]
    if allocator.contract.durable == "on-close":
        arguments.append("--durable-on-close")
    found = workshop.engine.ask_json(TraceRules, *arguments)
    costs = trace_rules.Costs(cell, found.costs)
    grown = trace_rules.growth(earlier, costs) if earlier else []
    if as_json:
        print_json({"trace": str(trace), "costs": costs, "warnings": found.warnings, "grown": grown})
    else:
        print_trace_rules(found)
        for line in grown:
            click.echo(f"grown: {line}")
    if protect is not None and earlier is None:
        write(protect, msgspec.json.format(msgspec.json.encode({"costs": costs})) + b"\n")
        streams.note(f"{protect}: written, what operations of {cell} pay now")
    return EXIT_FINDINGS if grown else EXIT_OK


def _dump(workshop: Workshop, trace: Path) -> int:
    """Symbols come from the builds that are in the cache; without them a site is its module's name."""
    check_regular(trace)
    return workshop.engine.pass_through("dump", str(trace), "--module-root", str(workshop.cache.folder / "builds"))
