# SPDX-License-Identifier: Apache-2.0
"""`faultline doctor`."""

from __future__ import annotations

import click
from rich.table import Table
from rich.text import Text

from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN
from faultline.cli.options import json_option, workshop_options
from faultline.cli.output import print_json
from faultline.pipeline import doctor
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal import streams


@click.command("doctor")
@workshop_options
@json_option
def command(workshop: Workshop, as_json: bool) -> int:
    """Check that everything is there that a campaign needs."""
    checks = doctor.examine(workshop)
    if as_json:
        print_json(checks)
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            word = Text("ok", style="green") if check.is_good else Text("missing", style="bold red")
            table.add_row(word, check.name, Text(check.detail))
            if check.hint:
                table.add_row("", "", Text(f"hint: {check.hint}", style="cyan"))
        streams.out().print(table)
    return EXIT_OK if all(check.is_good for check in checks) else EXIT_UNKNOWN
