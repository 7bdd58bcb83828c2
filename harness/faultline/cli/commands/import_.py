# SPDX-License-Identifier: Apache-2.0
"""`faultline import`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN
from faultline.base.input_files import check_regular
from faultline.cli.options import json_option, workshop_options
from faultline.cli.output import check_regular_output, print_json
from faultline.cli.values import PATH
from faultline.pipeline.events import TraceRules
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.trace_rules import print_trace_rules


class Imported(msgspec.Struct):
    """What the engine says of a log. has_operations: markers say what the program did; is_whole: the log tells of nothing that is
    missing; notes: what was taken for what, one line each."""

    hash: str
    events: int
    files: list[str]
    has_operations: bool
    is_whole: bool
    notes: list[str]


@click.command("import")
@click.argument("log", type=PATH)
@click.option("--out", type=PATH, required=True, help="Write the trace to this file.")
@click.option(
    "--base",
    type=PATH,
    help="What the files held where the log begins: a file, or the folder that they lie in. `run --trace` needs it.",
)
@workshop_options
@json_option
def command(workshop: Workshop, log: Path, out: Path, base: Path | None, as_json: bool) -> int:
    """Make a trace of a store log of pmemcheck, and judge it by the trace rules.

    The log is what pmemcheck writes with -q --log-stores=yes --log-stores-stacktraces=yes --expect-fence-after-clflush=yes
    --log-file=LOG. What it does not say is taken for the weakest that fits, and told.

    `faultline run ALLOCATOR -w WORKLOAD --trace TRACE` explores the crash states of a trace that was made with --base.

    Exit code 3 where the log lacks stores: pmemcheck says so among the records, or they lie in no registered file.
    """
    check_regular_output(out, "the trace")
    check_regular(log)
    if base is not None and not base.is_dir():
        check_regular(base)
    arguments = ["import", str(log), str(out), *(("--base", str(base)) if base is not None else ())]
    imported = workshop.engine.ask_json(Imported, *arguments)
    rules = workshop.engine.ask_json(TraceRules, "rules", str(out))
    if as_json:
        print_json({"trace": str(out), "imported": imported, "warnings": rules.warnings, "costs": rules.costs})
    else:
        click.echo(f"trace: {out}")
        click.echo(f"hash: {imported.hash}")
        click.echo(f"events: {imported.events}")
        click.echo(f"files: {', '.join(imported.files)}")
        operations = (
            "as the log's markers say" if imported.has_operations else "not known: the log has no markers of ours"
        )
        click.echo(f"operations: {operations}")
        for note in imported.notes:
            click.echo(f"note: {note}")
        print_trace_rules(rules)
    return EXIT_OK if imported.is_whole else EXIT_UNKNOWN
