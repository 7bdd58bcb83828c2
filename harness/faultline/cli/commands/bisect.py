# SPDX-License-Identifier: Apache-2.0
"""`faultline bisect`."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import msgspec

from faultline.base import config
from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN, BadInputError
from faultline.cli.cells import cell_spec, usual_start, with_found_workload
from faultline.cli.options import (
    WORKLOAD_NAMES,
    allocator_argument,
    is_given,
    json_option,
    variant_options,
    workload_option,
    workshop_options,
)
from faultline.cli.output import print_json
from faultline.cli.values import SECONDS
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal import streams
from faultline.report.terminal.bisection import print_bisection
from faultline.study import bisect, replay
from faultline.study.history import Repository

DEFAULT_WORKLOAD = "churn"


@click.command("bisect")
@allocator_argument
@click.option("--good", required=True, metavar="REV", help="A revision that does not have the bug.")
@click.option("--bad", required=True, metavar="REV", help="A later one that has it.")
@click.option(
    "--witness",
    metavar="TOKEN",
    help="Of the finding.  [default: the first one that the bad end has and the good one not]",
)
@workload_option(f"Without --witness: what to explore, one of {WORKLOAD_NAMES}.  [default: {DEFAULT_WORKLOAD}]")
@variant_options
@click.option(
    "--time",
    "time_s",
    type=SECONDS,
    metavar="S",
    help="Stop the exploration of a commit after S seconds: one that shows no finding by then is skipped.",
)
@click.option(
    "--jobs", "-j", type=click.IntRange(1, 64), default=1, show_default=True, help="Workers of an exploration."
)
@workshop_options
@json_option
def command(
    workshop: Workshop,
    allocator: str,
    good: str,
    bad: str,
    witness: str | None,
    workload: str | None,
    time_s: float | None,
    jobs: int,
    as_json: bool,
    **variant: Any,
) -> int:
    """Find the first commit that has a bug, with git bisect.

    The history is that of the repository in which the allocator's folder lies. It is gone through in a worktree of its own, which
    is removed afterwards. At each commit the allocator is built, the witness's workload traced, and all crash states explored: a
    commit that shows the finding (its rule, and its lost store or another one of that function) is bad, one that was explored
    completely and breaks nothing that the good end does not is good, and any other, as one that does not build, is skipped. Exit
    code 3 when only skipped commits are left.
    """
    workshop = replace(workshop, explore_jobs=jobs)
    found = workshop.allocator(allocator)
    repository = Repository(Path(found.folder), found.name)
    ends = repository.commit(good), repository.commit(bad)
    repository.check_range(*ends)
    repository.check_clean()
    if witness is None:
        name = workload or DEFAULT_WORKLOAD
        way = {**variant, "strategy": config.DEFAULT_STRATEGY, "model": "px86", "start": usual_start(found, name)}
        spec = cell_spec(found.name, name, **way)
        spec, target = with_found_workload(workshop, spec), None
        if spec.mutant is not None:
            found.mutant_named(spec.mutant)
    else:
        given = [name for name in ("workload", "ops", "seed", "mutant", "flush") if is_given(name)]
        if given:
            raise BadInputError(f"--witness names the whole cell, and --{given[0]} is given, too", "leave one out")
        spec, target = _of_witness(workshop, witness, found.name)
    spec = msgspec.structs.replace(spec, time_limit_s=time_s)

    def say(text: str) -> None:
        if not as_json:
            streams.note(text)

    bisection = bisect.bisect(workshop, repository, spec, ends, target, say)
    if as_json:
        print_json(bisection)
    else:
        print_bisection(bisection)
    return EXIT_OK if bisection.first_bad else EXIT_UNKNOWN


def _of_witness(workshop: Workshop, text: str, allocator: str) -> tuple[CellSpec, bisect.TargetFinding]:
    token = workshop.engine.ask_json(replay.Token, "token", text)
    if token.allocator != allocator:
        raise BadInputError(f"the token is of {token.allocator}, and not of {allocator}", "name the token's allocator")
    spec = CellSpec(
        *(token.allocator, token.workload, token.ops, token.seed, config.DEFAULT_STRATEGY, token.model, token.flush),
        mutant=token.mutant,
        file_system=token.file_system,
        nested=len(token.later),
    )
    return spec, bisect.TargetFinding(token.rule or "", token.site)
