# SPDX-License-Identifier: Apache-2.0
"""`faultline wear`."""

from __future__ import annotations

from pathlib import Path

import click
import msgspec

from faultline.base.errors import EXIT_FINDINGS, EXIT_OK, BadInputError
from faultline.campaign.recorded import DATABASE_NAME
from faultline.cli import completion
from faultline.cli.campaigns import check_database, write_reports
from faultline.cli.options import DEFAULT_SEED, is_given, json_option, workshop_options
from faultline.cli.output import file_to_compare_with, needs_protect, print_json, write
from faultline.cli.values import PATH
from faultline.pipeline.workshop import Workshop
from faultline.report import reports
from faultline.report.terminal import streams
from faultline.report.terminal.wear import print_wear
from faultline.wear import counting, figures


@click.command("wear")
@click.argument("allocators", shell_complete=completion.allocators, nargs=-1, required=True, metavar="ALLOCATOR...")
@click.option(
    "--workload",
    "-w",
    default=counting.DEFAULT_WORKLOAD,
    show_default=True,
    metavar="W",
    help="One of run's with one thread; for malloc and the driver churn, uniform:A:B or a FILE of one case and session.",
)
@click.option(
    "--ops",
    type=click.IntRange(1),
    default=counting.DEFAULT_OPS,
    show_default=True,
    help="Operations of a generated workload.",
)
@click.option(
    "--seed", type=click.IntRange(0, 2**63 - 1), default=DEFAULT_SEED, show_default=True, help="Of the workload."
)
@click.option(
    "--through-adapter",
    is_flag=True,
    help="Run all through their adapters, also those that allocators/bench has a driver for.",
)
@click.option(
    "--heap-bytes",
    type=click.IntRange(4096, 2**46),
    metavar="BYTES",
    help="Heap of what runs through an adapter.  [default: as its allocator.toml says]",
)
@click.option("--baseline", metavar="ALLOCATOR", help="What ratios are to.  [default: the first]")
@click.option(
    "--line",
    "line_bytes",
    type=int,
    default=figures.DEFAULT_LINE_BYTES,
    show_default=True,
    metavar="BYTES",
    help="What is written at a time.",
)
@click.option(
    "--cache-model",
    default=f"{figures.DEFAULT_CACHE_BYTES >> 10}KiB,{figures.DEFAULT_CACHE_WAYS}",
    show_default=True,
    metavar="SIZE,WAYS",
    help="The cache between stores and medium.",
)
@click.option(
    "--endurance",
    type=float,
    default=figures.DEFAULT_ENDURANCE,
    show_default=True,
    help="Writes that a cell lasts, for lifetimes.",
)
@click.option(
    "--capacity",
    "capacity_bytes",
    type=click.IntRange(4096, 2**63 - 1),
    default=figures.DEFAULT_CAPACITY_BYTES,
    show_default=True,
    metavar="BYTES",
    help="What ideal levelling spreads writes over.",
)
@click.option(
    "--format", "formats", default="png,svg", show_default=True, metavar="LIST", help="Of the pictures: png, svg."
)
@click.option(
    "--out",
    type=PATH,
    help="Write wear.json, wear.csv (each line), pictures and the wear page of report.html to this folder.",
)
@click.option(
    "--protect",
    type=PATH,
    help="Fail when a total or a maximum is more than FILE says, or more allocations fail.",
)
@click.option(
    "--tolerance", default="0%", show_default=True, metavar="P%", help="With --protect: how much more is no failure."
)
@click.option("--update", "is_updated", is_flag=True, help="With --protect: write FILE, what is written now.")
@click.option("--fresh", is_flag=True, help="Count again even if the counts are in the cache.")
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocators: tuple[str, ...],
    workload: str,
    ops: int,
    seed: int,
    through_adapter: bool,
    heap_bytes: int | None,
    baseline: str | None,
    line_bytes: int,
    cache_model: str,
    endurance: float,
    capacity_bytes: int,
    formats: str,
    out: Path | None,
    protect: Path | None,
    tolerance: str,
    is_updated: bool,
    fresh: bool,
    as_json: bool,
) -> int:
    """Count how often each line of memory is written: wear of each allocator by the same workload.

    ALLOCATOR is one with an adapter, or glibc or jemalloc (malloc in DRAM); NAME:T for one whose freed memory waits for T
    operations. Counted are stores, consecutive ones to a line coalesced, and write-backs through a model of a cache. docs/wear.md
    says how, and what lifetimes mean.
    """
    subjects = counting.find_subjects(workshop.project, allocators, heap_bytes, through_adapter=through_adapter)
    names = [subject.name for subject in subjects]
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise BadInputError(f"--baseline {baseline}: is not counted here", f"name one of {', '.join(names)}")
    pictures = counting.read_formats(formats)
    cache = counting.read_cache(cache_model, line_bytes)
    share = counting.read_tolerance(tolerance)
    if is_given("tolerance"):
        needs_protect(protect, "--tolerance says how much more than --protect FILE is no failure")
    medium = counting.read_medium(endurance, capacity_bytes)
    found = counting.find_workload(workshop, subjects, workload, ops, seed)
    setting = counting.setting_of(subjects, found, line_bytes, cache)
    before = _earlier_wear(protect, is_updated, setting, names)
    check_database(out)
    runs = []
    for subject in subjects:
        streams.note(f"{subject.name}: {setting.name()}")
        runs.append(counting.count(workshop, subject, found, line_bytes, cache, fresh=fresh))
    result = counting.wear_of(runs, setting, medium, baseline)
    if out is not None:
        reports.write_wear(out, result, [(run.subject.name, run.counts) for run in runs], pictures)
        if (out / DATABASE_NAME).is_file():
            write_reports(out)  # the page joins those of the campaign
        else:
            reports.write_wear_page(out, result)
    grown = figures.growth(before, result, share) if before is not None else []
    if as_json:
        print_json({**msgspec.to_builtins(result), "grown": grown})
    else:
        print_wear(result)
        for line in grown:
            click.echo(f"grown: {line}")
    if out is not None:
        streams.note(f"wear: {out / 'report.html'}")
    if protect is not None and before is None:
        write(protect, msgspec.json.format(msgspec.json.encode(figures.protected_of(result))) + b"\n")
        streams.note(f"{protect}: written, what {', '.join(names)} may write")
    return EXIT_FINDINGS if grown else EXIT_OK


def _earlier_wear(
    protect: Path | None, is_updated: bool, setting: figures.Setting, names: list[str]
) -> figures.Protected | None:
    earlier = file_to_compare_with(protect, is_updated)
    if earlier is None:
        return None
    before = figures.read_protected(earlier)
    figures.check_comparable(earlier, before, setting, names)
    return before
