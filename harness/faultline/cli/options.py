# SPDX-License-Identifier: Apache-2.0
"""Options that several commands share."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from faultline.base import config
from faultline.base.cache import SCRATCH_FOLDER, Cache, project_root
from faultline.base.errors import BadInputError
from faultline.base.project import Project, cache_folder, find_project, looks_like_path
from faultline.campaign.known import KnownFindings, read_known
from faultline.cli import completion
from faultline.cli.output import check_writable
from faultline.cli.values import PATH, SECONDS, URL
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.tracers import DEFAULT_TRACER, find_tracer
from faultline.pipeline.workshop import Workshop
from faultline.workload import catalogue

DEFAULT_OPS = 40
DEFAULT_SEED = 1
DEFAULT_MATRIX = Path("ci/matrix.toml")
DEFAULT_OUT = Path("out")

Command = Callable[..., Any]


flush_option = click.option(
    "--flush",
    type=click.Choice(config.FLUSHES),
    default="clwb",
    show_default=True,
    help="The flush instruction that the allocator is built with.",
)


def workshop_options(command: Command) -> Command:
    """--cache, --engine, --heap-folder and --tracer, handed on as one Workshop."""

    @click.option("--cache", type=PATH, help="Cache of builds and traces.  [default: .faultline of the project]")
    @click.option("--engine", type=PATH, help="Engine binary.  [default: beside python]")
    @click.option("--heap-folder", type=PATH, help=f"Where heaps lie.  [default: {SCRATCH_FOLDER}]")
    @click.option("--tracer", default=DEFAULT_TRACER.name, show_default=True, metavar="T", help="Who traces.")
    @functools.wraps(command)
    def with_workshop(
        cache: Path | None, engine: Path | None, heap_folder: Path | None, tracer: str, **rest: Any
    ) -> Any:
        chosen = find_tracer(tracer)
        project = click.get_current_context().find_object(Project)
        project = project or find_project(Path.cwd(), project_root())
        root = project.installation
        _check_heap_folder(heap_folder)
        folder = cache or cache_folder(project)
        heaps = heap_folder and heap_folder.absolute()
        workshop = Workshop(root, Cache(folder), Engine(engine), heaps, tracer=chosen, given=project)
        workshop, rest = _with_paths(workshop, rest)
        return command(workshop=workshop, **rest)

    return with_workshop


def _with_paths(workshop: Workshop, rest: dict[str, Any]) -> tuple[Workshop, dict[str, Any]]:
    """Allocators that are named by their paths go on by their names."""

    def named(text: str) -> str:
        nonlocal workshop
        if not looks_like_path(text) or workshop.project.get(text) is not None:
            return text
        workshop, allocator = workshop.with_path(text)
        return allocator.name

    changed: dict[str, Any] = {}
    if "allocator" in rest and not is_trace(rest):
        changed["allocator"] = named(rest["allocator"])
    if "allocators" in rest:
        changed["allocators"] = tuple(map(named, rest["allocators"]))
    return workshop, {**rest, **changed}


def is_trace(rest: dict[str, Any]) -> bool:
    """`faultline trace` takes a file, too, and no workload then."""
    return "dump" in rest and rest["workload"] is None


def _check_heap_folder(folder: Path | None) -> None:
    if folder is None:
        return
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise BadInputError(f"{folder}: the heap folder {what}", "--heap-folder DIR needs a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInputError(f"{folder}: the heap folder is read-only", "--heap-folder DIR needs one that is writable")


allocator_argument = click.argument("allocator", shell_complete=completion.allocators)


def workload_option(help_text: str, *name: str, **more: Any) -> Callable[[Command], Command]:
    """name: of the parameter, if it is another one."""
    return click.option(
        "--workload", "-w", *name, metavar="W", shell_complete=completion.workloads, help=help_text, **more
    )


def time_option(default_s: float, help_text: str) -> Callable[[Command], Command]:
    """Of a command that stops by itself after some time."""
    return click.option(
        "--time", "time_s", type=SECONDS, default=default_s, show_default=True, metavar="S", help=help_text
    )


def cell_options(command: Command) -> Command:
    """What names one cell's target and workload."""
    default = "of a mutant what allocator.toml has for it; of a clean allocator there is none"
    workload = workload_option(f"One of {WORKLOAD_NAMES}.  [default: {default}]")
    return allocator_argument(workload(variant_options(command)))


WORKLOAD_NAMES = ", ".join(catalogue.GENERATORS)


def variant_options(command: Command) -> Command:
    """Which workload of the name, and which build of the allocator."""
    options = (
        click.option(
            "--ops",
            type=click.IntRange(1),
            default=DEFAULT_OPS,
            show_default=True,
            help=f"Operations of {', '.join(sorted(catalogue.TAKES_OPS))}, uniform:A:B.",
        ),
        click.option(
            "--seed",
            type=click.IntRange(0, 2**63 - 1),
            default=DEFAULT_SEED,
            show_default=True,
            help="Of the workload, and of the schedule of its threads.",
        ),
        click.option(
            "--mutant", "-m", metavar="M", shell_complete=completion.mutants, help="Switch on this known bug."
        ),
        flush_option,
    )
    for option in reversed(options):
        command = option(command)
    return command


baseline_option = click.option(
    "--baseline",
    type=PATH,
    help="Findings that FILE has do not fail: results.json of an earlier campaign, or what --write-baseline wrote.",
)
suppressions_option = click.option(
    "--suppressions",
    type=PATH,
    help="Findings that FILE (TOML) names do not fail, each for a reason and until a date.",
)


def known_options(command: Command) -> Command:
    """--baseline, --suppressions and --write-baseline, handed on as one KnownFiles."""

    @baseline_option
    @suppressions_option
    @click.option("--write-baseline", type=PATH, help="Write the findings of this campaign to FILE.")
    @functools.wraps(command)
    def with_files(
        baseline: Path | None, suppressions: Path | None, write_baseline: Path | None = None, **rest: Any
    ) -> Any:
        return command(files=KnownFiles(baseline, suppressions, write_baseline), **rest)

    return with_files


@dataclass(frozen=True)
class KnownFiles:
    baseline: Path | None
    suppressions: Path | None
    written: Path | None

    def read(self, specs: list[CellSpec]) -> KnownFindings:
        """Before anything runs."""
        if self.written is not None:
            check_writable(self.written, "the baseline")
        return read_known(self.baseline, self.suppressions, specs)


allow_incomplete_option = click.option(
    "--allow-incomplete",
    is_flag=True,
    help="Exit code 0 where a limit ended an exploration without a finding (3 otherwise).",
)
verbose_option = click.option(
    "--verbose",
    "-v",
    "is_verbose",
    is_flag=True,
    help="Print long lists whole: recovery stages that were never entered.",
)
report_url_option = click.option(
    "--report-url",
    type=URL,
    default="",
    envvar="FAULTLINE_REPORT_URL",
    help="Where report.html will be read: results.sarif and junit.xml link to it.  [default: $FAULTLINE_REPORT_URL]",
)
json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of tables.")


def is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source not in (None, ParameterSource.DEFAULT, ParameterSource.DEFAULT_MAP)
