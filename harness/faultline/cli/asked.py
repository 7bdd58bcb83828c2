# SPDX-License-Identifier: Apache-2.0
"""A cell as options ask for it: those of `faultline run`, which tests have, too (testing/cells.py)."""

from __future__ import annotations

import functools
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

import click
import msgspec

from faultline.base import config
from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.input_files import check_regular
from faultline.campaign import campaign
from faultline.campaign.campaign import Examining
from faultline.cli.cells import cell_spec, usual_start, workload_of
from faultline.cli.options import (
    Command,
    KnownFiles,
    allow_incomplete_option,
    cell_options,
    is_given,
    known_options,
    workshop_options,
)
from faultline.cli.values import PATH, SECONDS, START
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.lists import check_model, check_strategy, models, strategies
from faultline.pipeline.workshop import Workshop


@dataclass(frozen=True)
class AskedCell:
    """A cell, how it is explored, what is done with its findings, and which of them are known."""

    workshop: Workshop
    spec: CellSpec
    examining: Examining
    files: KnownFiles


class ListedOption(click.Option):
    """Its help names what the engine has; it is asked only where help is shown."""

    def get_help_record(self, ctx: click.Context) -> tuple[str, str] | None:
        try:
            listed = self.listed()
        except InfrastructureError:  # not built yet
            listed = {"faultline list": "what there is"}
        self.help = " ".join([self.help or "", *(f"{name}: {text}." for name, text in listed.items())])
        return super().get_help_record(ctx)

    def listed(self) -> dict[str, str]:
        raise NotImplementedError


class ModelOption(ListedOption):
    def listed(self) -> dict[str, str]:
        return {name: model.survives for name, model in models(Engine()).items()}


class StrategyOption(ListedOption):
    def listed(self) -> dict[str, str]:
        return {name: strategy.runs for name, strategy in strategies(Engine()).items()}


GO_ON = "none"
"""As --stop-at-rule: explore everything whatever is found."""


OF_A_CELL: tuple[Command, ...] = (
    cell_options,
    click.option(
        "--model",
        cls=ModelOption,
        metavar="MODEL",
        help="What survives.",
        default="px86",
        show_default=True,
    ),
    click.option(
        "--file-system",
        type=click.Choice(get_args(config.FileSystem)),
        help="What is durable of file operations that have returned. ordered: all of them. posix: those that were synced; a name"
        " or a size that was not may be lost.  [default: what the contract asks for]",
    ),
    click.option(
        "--strategy",
        cls=StrategyOption,
        metavar="STRATEGY",
        default=config.DEFAULT_STRATEGY,
        show_default=True,
        help="Which crash states are run.",
    ),
    click.option(
        "--exhaustive-states",
        type=click.IntRange(0),
        default=config.EXHAUSTIVE_STATES,
        show_default=True,
        help="Strategy mixed: run all states of a crash position that has at most this many.",
    ),
    click.option(
        "--samples",
        type=click.IntRange(0),
        default=config.SAMPLES,
        show_default=True,
        help="Strategies mixed and sample: states drawn at the others.",
    ),
    click.option(
        "--time",
        "time_s",
        type=SECONDS,
        metavar="S",
        help=f"Stop tracing and exploring after S seconds. The first {campaign.EXPLAINED} findings are then explained and shrunk in"
        f" what is left of S, at least a quarter of it, at most {campaign.FOUND_S:.0f} s.",
    ),
    click.option(
        "--recoveries", "recovery_limit", type=click.IntRange(1), metavar="N", help="Run at most N recoveries."
    ),
    click.option(
        "--memory",
        "memory_limit_mib",
        type=click.IntRange(1),
        metavar="MIB",
        help="Strategy complete: each worker remembers at most MIB MiB.  [default: 1024]",
    ),
    click.option(
        "--leaves",
        "leaf_limit",
        type=click.IntRange(1),
        metavar="N",
        help="Strategy complete: remember at most N outcomes.  [default: 20000]",
    ),
    click.option(
        "--nested",
        type=click.IntRange(0, 3),
        default=0,
        help="Strategy complete: crashes after the first, in recoveries and in what follows them.  [default: a mutant's own,"
        " else 0]",
    ),
    click.option(
        "--follow-up/--no-follow-up",
        default=True,
        show_default=True,
        help="With --nested: whether they are explored in what follows recoveries, too.",
    ),
    click.option(
        "--start",
        type=START,
        help="Where power fails first: in the creation of the heap, in what follows it, or in the operation of that number (0:"
        " create) and what follows it.  [default: create, or what allocator.toml says; with --trace: workload]",
    ),
    click.option(
        "--probe",
        type=click.Choice(get_args(config.Probe)),
        default="full",
        show_default=True,
        help="What is done with each recovered heap. full: the whole probe script. first: open, slots, walk and check alone; the"
        " certificate names the rules that are then not judged.",
    ),
    click.option(
        "--long-lives",
        type=click.IntRange(0, config.MOST_LONG_LIVES),
        default=config.LONG_LIVES,
        show_default=True,
        metavar="N",
        help="Strategy complete: where nothing else was found, open N crash states many times, and use them for long.",
    ),
    click.option(
        "--trace",
        type=PATH,
        help="Explore this trace and take none: one that `faultline import` made with --base, or `faultline trace --out` wrote. -w"
        " says which slots there are, and which operations, if the trace has them.",
    ),
    click.option(
        "--replay-engine",
        type=click.Choice(get_args(config.ReplayEngine)),
        help="Strategy complete: what runs recoveries; a slower engine goes on where it does not see all that the target does."
        "  [default: the fastest]",
    ),
    click.option(
        "--stop-at-rule",
        metavar="RULE",
        help=f"Stop at the first finding of this rule; {GO_ON}: at none.  [default: a mutant's own, else {GO_ON}]",
    ),
    click.option(
        "--jobs",
        "-j",
        type=click.IntRange(1, 64),
        default=1,
        show_default=True,
        help="Strategy complete: workers; the result is that of one.",
    ),
    click.option("--no-explain", is_flag=True, help="Try no repairs of findings."),
    click.option("--no-shrink", is_flag=True, help="Look for no smaller witness of findings."),
    allow_incomplete_option,
    known_options,
    workshop_options,
)

OF_SPEC = frozenset({*CellSpec.__struct_fields__, "time_s"})
"""What _spec_asked takes; other options that a command has are its own."""


def asked_options(command: Command) -> Command:
    """The options of one cell, handed on as one AskedCell."""

    @functools.wraps(command)
    def with_cell(
        workshop: Workshop, jobs: int, files: KnownFiles, no_explain: bool, no_shrink: bool, **cell: Any
    ) -> Any:
        own = {name: cell.pop(name) for name in list(cell) if name not in OF_SPEC}
        spec = _spec_asked(workshop, **cell)
        examining = Examining(explains=not no_explain, shrinks=not no_shrink and not spec.trace)
        return command(asked=AskedCell(replace(workshop, explore_jobs=jobs), spec, examining, files), **own)

    options = with_cell
    for option in reversed(OF_A_CELL):
        options = option(options)
    return options


def _spec_asked(
    workshop: Workshop, time_s: float | None, stop_at_rule: str | None, trace: Path | None, **cell: Any
) -> CellSpec:
    """Raises BadInputError for what is not there: allocator, mutant, workload, model, strategy."""
    check_model(workshop.engine, cell["model"])
    check_strategy(workshop.engine, cell["strategy"])
    is_asked = stop_at_rule not in (None, GO_ON)
    allocator = workshop.allocator(cell["allocator"])
    mutant = None if cell["mutant"] is None else allocator.mutant_named(cell["mutant"])
    cell["workload"] = cell["workload"] or workload_of(allocator, mutant)
    if trace is not None:
        check_regular(trace)
    usual = "workload" if trace is not None else usual_start(allocator, cell["workload"])
    cell["start"] = cell["start"] or usual
    spec = cell_spec(
        **cell, trace=str(trace or ""), stop_at_rule=stop_at_rule if is_asked else None, time_limit_s=time_s
    )
    if mutant is not None:
        nested = spec.nested if is_given("nested") else mutant.nested
        stop = None if stop_at_rule == GO_ON else stop_at_rule or mutant.rule
        spec = msgspec.structs.replace(spec, expected_rule=mutant.rule, nested=nested, stop_at_rule=stop)
    if not spec.follow_up and not spec.nested:
        raise BadInputError("--no-follow-up is about second crashes, and none is explored", "give --nested 1, too")
    return spec
