# SPDX-License-Identifier: Apache-2.0
"""`faultline export`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from faultline.base.errors import EXIT_OK, BadInputError
from faultline.base.input_files import check_regular
from faultline.cli.options import json_option, workshop_options
from faultline.cli.output import check_regular_output, print_json
from faultline.cli.values import PATH
from faultline.pipeline.workshop import Workshop

SEPARATORS = ";|\n\r"
"""What a path must not have: the log has no way to write it."""


class ExportedFile(msgspec.Struct):
    """A file as the log names it, and the bytes that it must have at least when pmreorder begins."""

    path: str
    bytes: int


class Exported(msgspec.Struct):
    """What the engine says of a trace that it wrote as a log. notes: what the log lacks, one line each."""

    events: int
    files: list[ExportedFile]
    notes: list[str]


@click.command("export")
@click.argument("trace", type=PATH)
@click.option("--out", type=PATH, required=True, help="Write the log to this file.")
@click.option(
    "--folder",
    type=PATH,
    default=Path(),
    help="Where the files lie that pmreorder shall work on.  [default: the current folder]",
)
@workshop_options
@json_option
def command(workshop: Workshop, trace: Path, out: Path, folder: Path, as_json: bool) -> int:
    """Write a trace as a store log of pmemcheck, so that pmreorder reads it.

    TRACE is what `faultline trace --out` or `faultline import` wrote. pmreorder works on files that are there: as they were
    where the trace begins, and as large as the output says. What the log lacks is told.
    """
    check_regular_output(out, "the log")
    check_regular(trace)
    place = str(folder.absolute())
    if any(character in SEPARATORS for character in place):
        raise BadInputError(
            f"{place!r}: a log cannot name a folder with ; or |", "choose another one with --folder DIR"
        )
    builds = workshop.cache.folder / "builds"
    exported = workshop.engine.ask_json(
        Exported, "export", str(trace), str(out), "--folder", place, "--module-root", str(builds)
    )
    if as_json:
        print_json({"log": str(out), "exported": exported})
        return EXIT_OK
    click.echo(f"log: {out}")
    click.echo(f"events: {exported.events}")
    for file in exported.files:
        click.echo(f"file: {file.path}, {file.bytes} bytes")
    for note in exported.notes:
        click.echo(f"note: {note}")
    return EXIT_OK
