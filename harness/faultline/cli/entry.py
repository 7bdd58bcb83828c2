# SPDX-License-Identifier: Apache-2.0
"""The command line. Data on stdout, progress and errors on stderr. Exit codes: 0 no finding (of a matrix: and every mutant
killed), 1 findings (a blind spot of mutate, more than --protect allows), 2 usage or bad input, 3 unknown or infrastructure."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import click
import msgspec
from click.core import ParameterSource
from rich.table import Table
from rich.text import Text

from faultline import __version__
from faultline.base import config
from faultline.base.cache import SCRATCH_FOLDER, Cache, project_root
from faultline.base.errors import (
    EXIT_FINDINGS,
    EXIT_OK,
    EXIT_UNKNOWN,
    BadInputError,
    FaultlineError,
    InfrastructureError,
)
from faultline.campaign import campaign
from faultline.campaign.known import Known, read_known, write_baseline
from faultline.campaign.results import CellResult, Results, summarise
from faultline.pipeline import build, doctor, explore, trace
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine, TraceRules
from faultline.pipeline.environment import Environment
from faultline.pipeline.explore import Workshop
from faultline.report import reports, terminal, trace_rules
from faultline.study import bisect, mutate, replay
from faultline.study.shrink import Budget
from faultline.study.witness import BUDGET_S, EXPLORATIONS
from faultline.wear import counting, figures
from faultline.workload import catalogue, file_format

DEFAULT_OPS = 40
DEFAULT_SEED = 1
DEFAULT_BISECT_WORKLOAD = "churn"
DEFAULT_MATRIX = Path("ci/matrix.toml")
DEFAULT_OUT = Path("out")
DATABASE_NAME = "results.sqlite"
GO_ON = "none"
"""As --stop-at-rule: explore everything whatever is found."""


def main(arguments: list[str] | None = None) -> int:
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a cancelled CI job is a Ctrl-C: keep results, clean up
    try:
        return int(cli.main(arguments, prog_name="faultline", standalone_mode=False) or EXIT_OK)
    except click.exceptions.NoArgsIsHelpError as error:
        click.echo(error.format_message(), err=True)
        return BadInputError.exit_code
    except click.UsageError as error:
        command = error.ctx.command_path if error.ctx else "faultline"
        terminal.print_error(BadInputError(error.format_message(), f"{command} --help"))
        return BadInputError.exit_code
    except click.ClickException as error:
        terminal.print_error(BadInputError(error.format_message()))
        return BadInputError.exit_code
    except FaultlineError as error:
        terminal.print_error(error)
        return error.exit_code
    except (KeyboardInterrupt, click.Abort):
        terminal.print_error(InfrastructureError("interrupted"))
        return EXIT_UNKNOWN
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # the reader left: no traceback at exit
        return EXIT_UNKNOWN


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, prog_name="faultline")
def cli() -> None:
    """Crash-consistency testing and fault injection for persistent-memory allocators."""


# ---- shared options ------------------------------------------------------------------------------------------------------

Command = Callable[..., Any]


flush_option = click.option(
    "--flush",
    type=click.Choice(config.FLUSHES),
    default="clwb",
    show_default=True,
    help="The flush instruction that the allocator is built with.",
)


def workshop_options(command: Command) -> Command:
    """--cache, --engine and --heap-folder, handed on as one Workshop."""

    @click.option("--cache", type=click.Path(path_type=Path), help="Cache of builds and traces.  [default: .faultline]")
    @click.option("--engine", type=click.Path(path_type=Path), help="Engine binary.  [default: beside python]")
    @click.option(
        "--heap-folder", type=click.Path(path_type=Path), help=f"Where heaps lie.  [default: {SCRATCH_FOLDER}]"
    )
    @functools.wraps(command)
    def with_workshop(cache: Path | None, engine: Path | None, heap_folder: Path | None, **rest: Any) -> Any:
        root = project_root()
        _check_heap_folder(heap_folder)
        folder = cache if cache is not None else root / ".faultline"
        workshop = Workshop(root, Cache(folder), Engine(engine), heap_folder and heap_folder.absolute())
        return command(workshop=workshop, **rest)

    return with_workshop


def _check_heap_folder(folder: Path | None) -> None:
    if folder is None:
        return
    if not folder.is_dir():
        what = "is not a folder" if folder.exists() else "does not exist"
        raise BadInputError(f"{folder}: the heap folder {what}", "--heap-folder DIR needs a folder that exists")
    if not os.access(folder, os.W_OK | os.X_OK):
        raise BadInputError(f"{folder}: the heap folder is read-only", "--heap-folder DIR needs one that is writable")


def cell_options(command: Command) -> Command:
    """What names one cell's target and workload."""
    argument = click.argument("allocator")
    default = "of a mutant what allocator.toml has for it; of a clean allocator there is none"
    workload = click.option("--workload", "-w", metavar="W", help=f"One of {WORKLOAD_NAMES}.  [default: {default}]")
    return argument(workload(variant_options(command)))


WORKLOAD_NAMES = ", ".join(catalogue.GENERATORS)


def variant_options(command: Command) -> Command:
    """Which workload of the name, which build of the allocator, and who traces it."""
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
        click.option("--mutant", "-m", metavar="M", help="Switch on this known bug."),
        flush_option,
        click.option(
            "--tracer", type=click.Choice(config.TRACERS), default="valgrind", show_default=True, expose_value=False
        ),
    )
    for option in reversed(options):
        command = option(command)
    return command


def known_options(command: Command) -> Command:
    """--baseline, --suppressions and --write-baseline, handed on as one KnownFiles."""

    @click.option(
        "--baseline",
        type=click.Path(path_type=Path),
        help="Findings that FILE has do not fail: results.json of an earlier campaign, or what --write-baseline wrote.",
    )
    @click.option(
        "--suppressions",
        type=click.Path(path_type=Path),
        help="Findings that FILE (TOML) names do not fail, each for a reason and until a date.",
    )
    @click.option(
        "--write-baseline", type=click.Path(path_type=Path), help="Write the findings of this campaign to FILE."
    )
    @functools.wraps(command)
    def with_files(baseline: Path | None, suppressions: Path | None, write_baseline: Path | None, **rest: Any) -> Any:
        return command(files=KnownFiles(baseline, suppressions, write_baseline), **rest)

    return with_files


@dataclass(frozen=True)
class KnownFiles:
    baseline: Path | None
    suppressions: Path | None
    written: Path | None

    def read(self, specs: list[CellSpec]) -> Known:
        """Before anything runs."""
        if self.written is not None:
            _check_writable(self.written, "the baseline")
        return read_known(self.baseline, self.suppressions, specs)


json_option = click.option("--json", "as_json", is_flag=True, help="JSON on stdout instead of tables.")


def _cell_spec(allocator: str, workload: str, ops: int, seed: int, mutant: str | None, **rest: Any) -> CellSpec:
    return CellSpec(allocator, workload, ops if catalogue.takes_ops(workload) else 0, seed, mutant=mutant, **rest)


def _workload_of(allocator: config.Allocator, mutant: config.Mutant | None) -> str:
    """Where none is given."""
    if mutant is None:
        raise BadInputError("no workload is named", f"-w takes one of {WORKLOAD_NAMES}")
    return allocator.workload_of(mutant)


def print_json(value: object) -> None:
    click.echo(msgspec.json.format(msgspec.json.encode(value), indent=2).decode())


# ---- looking around ------------------------------------------------------------------------------------------------------


@cli.command("doctor")
@workshop_options
@json_option
def doctor_command(workshop: Workshop, as_json: bool) -> int:
    """Check that everything is there that a campaign needs."""
    checks = doctor.examine(workshop.root, workshop.cache, workshop.engine, workshop.heap_folder)
    if as_json:
        print_json(checks)
    else:
        table = Table(box=None, pad_edge=False, show_header=False)
        for check in checks:
            word = Text("ok", style="green") if check.is_good else Text("missing", style="bold red")
            table.add_row(word, check.name, Text(check.detail))
            if check.hint:
                table.add_row("", "", Text(f"hint: {check.hint}", style="cyan"))
        terminal.out().print(table)
    return EXIT_OK if all(check.is_good for check in checks) else EXIT_UNKNOWN


@cli.command("list")
@workshop_options
@click.option("--workload-format", is_flag=True, help="Print what a workload file looks like.")
@json_option
def list_command(workshop: Workshop, workload_format: bool, as_json: bool) -> int:
    """List allocators, their mutants, workloads, strategies and models."""
    if workload_format:
        click.echo(file_format.FORMAT.strip())
        return EXIT_OK
    found = [config.find_allocator(workshop.root, name) for name in config.allocator_names(workshop.root)]
    if as_json:
        names = {"workloads": catalogue.GENERATORS, "strategies": config.STRATEGIES, "models": config.MODELS}
        print_json({"allocators": found, **names, "flushes": config.FLUSHES})
        return EXIT_OK
    for allocator in found:
        click.echo(f"{allocator.name}: {allocator.summary}")
        for mutant in allocator.mutant:
            click.echo(f"  {mutant.id} ({mutant.rule}): {mutant.summary}")
    click.echo("workloads:")
    for name, summary in catalogue.GENERATORS.items():
        click.echo(f"  {name}: {summary}")
    click.echo(f"strategies: {', '.join(config.STRATEGIES)}")
    click.echo(f"models: {', '.join(config.MODELS)}")
    return EXIT_OK


# ---- steps ---------------------------------------------------------------------------------------------------------------


@cli.command("build")
@click.argument("allocators", nargs=-1)
@click.option("--mutant", "-m", metavar="M", help="Only this mutant.")
@click.option("--mutants", is_flag=True, help="Their mutants too.")
@flush_option
@workshop_options
@json_option
def build_command(
    workshop: Workshop,
    allocators: tuple[str, ...],
    mutant: str | None,
    mutants: bool,
    flush: config.Flush,
    as_json: bool,
) -> int:
    """Build allocators (all without names), each with hooks, too, the runner and the Valgrind tool."""
    rows: list[dict[str, str | None]] = []

    def add(what: str, variant: str | None, built: build.Built) -> None:
        rows.append({"what": what, "mutant": variant, "build": built.key, "path": str(built.path)})

    for name in allocators or config.allocator_names(workshop.root):
        allocator = config.find_allocator(workshop.root, name)
        variants = [mutant] if mutant else [None, *(known.id for known in allocator.mutant if mutants)]
        for variant in variants:
            for is_hooked in (False, True):
                built = build.build_adapter(workshop.root, workshop.cache, allocator, variant, flush, is_hooked)
                add(name + " with hooks" * is_hooked, variant, built)
    add("runner", None, build.build_runner(workshop.root, workshop.cache))
    add("valgrind tool", None, build.build_tracer(workshop.root, workshop.cache))
    if as_json:
        print_json(rows)
    else:
        for row in rows:
            click.echo(f"{row['what']}{' ' + row['mutant'] if row['mutant'] else ''} {row['build']} {row['path']}")
    return EXIT_OK


@cli.command("trace")
@click.argument("allocator", metavar="ALLOCATOR | FILE")
@click.option("--workload", "-w", metavar="W", help=f"One of {WORKLOAD_NAMES}.")
@variant_options
@click.option("--out", type=click.Path(path_type=Path), help="Copy the trace to this file.")
@click.option("--fresh", is_flag=True, help="Trace again even if the trace is in the cache.")
@click.option(
    "--dump", is_flag=True, help="Print the trace as text: that of a workload, or of a FILE that --out wrote."
)
@click.option(
    "--rules", is_flag=True, help="Print the trace rules FL1xx that the workload breaks, and what each operation pays."
)
@click.option(
    "--protect",
    type=click.Path(path_type=Path),
    help="Fail when an operation pays more than FILE says.",
)
@click.option("--update", "is_updated", is_flag=True, help="With --protect: write FILE, what operations pay now.")
@click.option("--engine-config", type=click.Path(path_type=Path), help="Write what the engine would be started with.")
@workshop_options
@json_option
def trace_command(
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

    With --rules the trace rules are judged: stores that are never flushed (FL101), flushed and not fenced (FL102), persisted only
    after their operation returned (FL103); flushes and fences that do nothing (FL111 to FL113). They are warnings. Below them
    stands what an operation of each kind pays on average. --protect FILE ends with exit code 1 when one pays more than FILE says;
    --update writes FILE, for the first time too, and when they pay less.
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
    spec = _cell_spec(allocator, workload, **variant, strategy=config.DEFAULT_STRATEGY, model="px86")
    found = config.find_allocator(workshop.root, spec.allocator)
    made = catalogue.find(spec.workload, spec.ops, spec.seed, found.heap, workshop.cache)
    target = trace.build_target(workshop.root, workshop.cache, found, spec.mutant, spec.flush)
    traced = trace.trace(workshop.cache, workshop.engine, target, made, heap_folder=workshop.heap_folder, fresh=fresh)
    if engine_config is not None:
        scratch = workshop.heap_folder or SCRATCH_FOLDER
        _write(engine_config, msgspec.json.encode(explore.engine_config(spec, target, traced, made, scratch)))
    path = traced.path
    if out is not None:
        _copy(path, out)
        path = out
    if dump:
        return _dump(workshop, path)
    if rules or protect:
        return _rules(workshop, path, found, spec.name, earlier, protect, as_json)
    facts = {
        "trace": str(path),
        "hash": traced.hash,
        "bytes": path.stat().st_size,
        "sessions": made.session_count,
        "cases": made.case_count,
        "operations": made.operation_count,
        "is_cached": traced.is_cached,
    }
    if as_json:
        print_json(facts)
    else:
        for name, value in facts.items():
            click.echo(f"{name}: {value}")
    return EXIT_OK


def _earlier_costs(protect: Path | None, is_updated: bool) -> trace_rules.Costs | None:
    earlier = _file_to_compare_with(protect, is_updated)
    return None if earlier is None else trace_rules.read_costs(earlier)


def _file_to_compare_with(protect: Path | None, is_updated: bool) -> Path | None:
    """None when the file is to be written. One that is not there is a mistake: with a wrong name nothing would be protected."""
    if not is_updated:
        return protect
    _check_writable(
        _needs_protect(protect, "--update says that --protect FILE is written anew"), "the file of --protect"
    )
    return None


def _needs_protect(protect: Path | None, why: str) -> Path:
    if protect is None:
        raise BadInputError(why, "name it with --protect FILE")
    return protect


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
        terminal.print_trace_rules(found)
        for line in grown:
            click.echo(f"grown: {line}")
    if protect is not None and earlier is None:
        _write(protect, msgspec.json.format(msgspec.json.encode({"costs": costs})) + b"\n")
        terminal.note(f"{protect}: written, what operations of {cell} pay now")
    return EXIT_FINDINGS if grown else EXIT_OK


def _dump(workshop: Workshop, trace: Path) -> int:
    """Symbols come from the builds that are in the cache; without them a site is its module's name."""
    return workshop.engine.pass_through("dump", str(trace), "--module-root", str(workshop.cache.folder / "builds"))


def _check_writable(path: Path, what: str) -> None:
    """Before anything runs: what is found is not lost to a wrong name."""
    folder = path.absolute().parent
    if path.is_dir() or not folder.is_dir():
        raise BadInputError(f"{path}: {what} cannot be written there", "name a file in a folder that exists")
    if not os.access(path if path.exists() else folder, os.W_OK):
        raise BadInputError(f"{path}: {what} cannot be written there: it is read-only", "name a file that is writable")


def _write(path: Path, content: bytes) -> None:
    try:
        path.write_bytes(content)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


def _copy(source: Path, path: Path) -> None:
    try:
        shutil.copyfile(source, path)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be written: {error.strerror}") from error


# ---- campaigns -----------------------------------------------------------------------------------------------------------


@cli.command("run")
@cell_options
@click.option(
    "--model",
    type=click.Choice(config.MODELS),
    default="px86",
    show_default=True,
    help="What survives. px86: what was flushed and fenced, and any of the rest that x86 can have written back. px86-returned: all"
    " that was stored, once the operation has returned. eadr: what is visible. process-crash: every store. strict: stores in"
    " program order.",
)
@click.option(
    "--strategy",
    type=click.Choice(config.STRATEGIES),
    default=config.DEFAULT_STRATEGY,
    show_default=True,
    help="Which crash states are run. complete: all, by what recovery loads, or mixed where its loads cannot be seen. prefix:"
    " at each crash position everything before it. floor: only what is guaranteed. exhaustive: every combination, where there are"
    " at most 16 million. sample: some, drawn at random. mixed: prefix, floor, and exhaustive where a position has few states,"
    " sample elsewhere. pairwise, pairwise-3: all combinations of any two, three lines.",
)
@click.option(
    "--exhaustive-states",
    type=click.IntRange(0),
    default=config.EXHAUSTIVE_STATES,
    show_default=True,
    help="Strategy mixed: run all states of a crash position that has at most this many.",
)
@click.option(
    "--samples",
    type=click.IntRange(0),
    default=config.SAMPLES,
    show_default=True,
    help="Strategies mixed and sample: states drawn at the others.",
)
@click.option(
    "--time",
    "time_s",
    type=click.FloatRange(0, min_open=True),
    metavar="S",
    help=f"Stop exploring after S seconds. The first {campaign.EXPLAINED} findings are then explained and shrunk, which takes up to"
    f" {campaign.FOUND_S:.0f} s.",
)
@click.option("--recoveries", "recovery_limit", type=click.IntRange(1), metavar="N", help="Run at most N recoveries.")
@click.option(
    "--memory",
    "memory_limit_mib",
    type=click.IntRange(1),
    metavar="MIB",
    help="Strategy complete: each worker remembers at most MIB MiB.  [default: 1024]",
)
@click.option(
    "--leaves",
    "leaf_limit",
    type=click.IntRange(1),
    metavar="N",
    help="Strategy complete: remember at most N outcomes.  [default: 20000]",
)
@click.option(
    "--resume", "is_resumed", is_flag=True, help="Go on where the same exploration, with the same --out, was stopped."
)
@click.option(
    "--nested",
    type=click.IntRange(0, 3),
    default=0,
    help="Strategy complete: crashes after the first, in recoveries and in what follows them.  [default: a mutant's own, else 0]",
)
@click.option(
    "--follow-up/--no-follow-up",
    default=True,
    show_default=True,
    help="With --nested: whether they are explored in what follows recoveries, too.",
)
@click.option(
    "--stop-at-rule",
    metavar="RULE",
    help=f"Stop at the first finding of this rule; {GO_ON}: at none.  [default: a mutant's own, else {GO_ON}]",
)
@click.option(
    "--jobs",
    "-j",
    type=click.IntRange(1, 64),
    default=1,
    show_default=True,
    help="Strategy complete: workers; the result is that of one.",
)
@click.option("--out", type=click.Path(path_type=Path), help="Write report.html and the other reports here.")
@known_options
@workshop_options
@json_option
def run_command(
    workshop: Workshop,
    time_s: float | None,
    stop_at_rule: str | None,
    is_resumed: bool,
    jobs: int,
    out: Path | None,
    files: KnownFiles,
    as_json: bool,
    **cell: Any,
) -> int:
    """Run one cell: trace a workload and explore its crash states."""
    workshop = replace(workshop, explore_jobs=jobs)
    is_asked = stop_at_rule not in (None, GO_ON)
    allocator = config.find_allocator(workshop.root, cell["allocator"])
    mutant = None if cell["mutant"] is None else allocator.mutant_named(cell["mutant"])
    cell["workload"] = cell["workload"] or _workload_of(allocator, mutant)
    spec = _cell_spec(**cell, stop_at_rule=stop_at_rule if is_asked else None, time_limit_s=time_s)
    if mutant is not None:
        nested = spec.nested if _is_given("nested") else mutant.nested
        stop = None if stop_at_rule == GO_ON else stop_at_rule or mutant.rule
        spec = msgspec.structs.replace(spec, expected_rule=mutant.rule, nested=nested, stop_at_rule=stop)
    if not spec.follow_up and not spec.nested:
        raise BadInputError("--no-follow-up is about second crashes, and none is explored", "give --nested 1, too")
    results = _run_campaign(workshop, "run", [spec], 1, out, as_json, files, is_resumed)
    if results[0].error is not None:
        kind = BadInputError if results[0].error_code == BadInputError.exit_code else InfrastructureError
        raise kind(results[0].error, results[0].hint)
    return EXIT_FINDINGS if results[0].new_findings else EXIT_UNKNOWN if results[0].is_unknown else EXIT_OK


@cli.command("matrix")
@click.option("-c", "--config", "path", type=click.Path(path_type=Path), help=f"[default: {DEFAULT_MATRIX}]")
@click.option("--jobs", "-j", type=click.IntRange(1), help="Cells at a time.  [default: one a processor]")
@click.option(
    "--out", type=click.Path(path_type=Path), default=DEFAULT_OUT, show_default=True, help="Reports and database."
)
@known_options
@workshop_options
@json_option
def matrix_command(
    workshop: Workshop, path: Path | None, jobs: int | None, out: Path, files: KnownFiles, as_json: bool
) -> int:
    """Run all cells of a matrix, clean and mutants, and write the reports."""
    path = path if path is not None else workshop.root / DEFAULT_MATRIX
    matrix = config.read_toml(path, config.Matrix)
    specs = campaign.cells_of_matrix(workshop.root, matrix)
    if not specs:
        raise BadInputError(f"{path}: has no cell", "add [[cell]] or [[mutants]]")
    results = _run_campaign(workshop, "matrix", specs, jobs or len(os.sched_getaffinity(0)), out, as_json, files)
    return exit_code_of_matrix(results)


def exit_code_of_matrix(results: list[CellResult]) -> int:
    summary = summarise(results)
    if summary.findings:
        return EXIT_FINDINGS
    if summary.unknown:
        return EXIT_UNKNOWN
    return EXIT_OK if summary.mutants_killed == summary.mutants_run else EXIT_FINDINGS


def _run_campaign(
    workshop: Workshop,
    kind: str,
    specs: list[CellSpec],
    jobs: int,
    out: Path | None,
    as_json: bool,
    files: KnownFiles,
    is_resumed: bool = False,
) -> list[CellResult]:
    """Runs the cells, writes the reports (of what there is, after Ctrl-C too), prints table and summary."""
    specs = [_with_found_workload(workshop, spec) for spec in specs]  # names and files are checked before anything runs
    known = files.read(specs)
    database = Results(workshop.cache.database if out is None else out / DATABASE_NAME)
    try:
        with terminal.CampaignProgress(specs, is_quiet=as_json) as progress:
            campaign.run_cells(workshop, database, kind, specs, jobs, progress, is_resumed, known)
    finally:
        state, results = database.read()
        environment = database.environment()
        database.close()
        if out is not None:
            reports.write_all(out, results, state, environment)
        if as_json:
            click.echo(reports.results_json(results, state, environment), nl=False)
        else:
            _print_campaign(results, out)
        for line in known.lines(results):
            terminal.note(line)
    if files.written is not None:
        terminal.note(write_baseline(files.written, results))
    return results


def _with_found_workload(workshop: Workshop, spec: CellSpec) -> CellSpec:
    """A user's workload file under the name that tokens and results keep: file:KEY, its copy in the cache."""
    heap = config.find_allocator(workshop.root, spec.allocator).heap
    found = catalogue.find(spec.workload, spec.ops, spec.seed, heap, workshop.cache)
    is_file = found.name != spec.workload and found.name.startswith("file:")
    return msgspec.structs.replace(spec, workload=found.name, path=spec.workload if is_file else spec.path)


def _print_campaign(results: list[CellResult], out: Path | None) -> None:
    terminal.print_results(results)
    if out is not None:
        terminal.note(f"report: {out / 'report.html'}")
    sys.stderr.flush()
    click.echo(summarise(results).line())


@cli.command("wear")
@click.argument("allocators", nargs=-1, required=True, metavar="ALLOCATOR...")
@click.option(
    "--workload",
    "-w",
    default=counting.DEFAULT_WORKLOAD,
    show_default=True,
    metavar="W",
    help="churn, uniform:A:B or a FILE of one case, session and thread: what every allocator can run.",
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
    type=click.Path(path_type=Path),
    help="Write wear.json, wear.csv (each line), pictures and the wear page of report.html to this folder.",
)
@click.option(
    "--protect",
    type=click.Path(path_type=Path),
    help="Fail when a total or a maximum is more than FILE says, or more allocations fail.",
)
@click.option(
    "--tolerance", default="0%", show_default=True, metavar="P%", help="With --protect: how much more is no failure."
)
@click.option("--update", "is_updated", is_flag=True, help="With --protect: write FILE, what is written now.")
@click.option("--fresh", is_flag=True, help="Count again even if the counts are in the cache.")
@workshop_options
@json_option
def wear_command(
    workshop: Workshop,
    allocators: tuple[str, ...],
    workload: str,
    ops: int,
    seed: int,
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

    ALLOCATOR is one of this repository, or glibc or jemalloc (malloc in DRAM); NAME:T for one whose freed memory waits for T
    operations. Counted are stores, consecutive ones to a line coalesced, and write-backs through a model of a cache. docs/wear.md
    says how, and what lifetimes mean.
    """
    subjects = [counting.find_subject(workshop.root, name) for name in dict.fromkeys(allocators)]
    names = [subject.name for subject in subjects]
    baseline = names[0] if baseline is None else baseline
    if baseline not in names:
        raise BadInputError(f"--baseline {baseline}: is not counted here", f"name one of {', '.join(names)}")
    pictures = counting.read_formats(formats)
    cache = counting.read_cache(cache_model, line_bytes)
    share = counting.read_tolerance(tolerance)
    if _is_given("tolerance"):
        _needs_protect(protect, "--tolerance says how much more than --protect FILE is no failure")
    medium = counting.read_medium(endurance, capacity_bytes)
    found = counting.find_workload(workshop, workload, ops, seed)
    setting = counting.setting_of(found, line_bytes, cache)
    before = _earlier_wear(protect, is_updated, setting, names)
    runs = []
    for subject in subjects:
        terminal.note(f"{subject.name}: {setting.name()}")
        runs.append(counting.count(workshop, subject, found, line_bytes, cache, fresh=fresh))
    result = counting.wear_of(runs, setting, medium, baseline)
    if out is not None:
        reports.write_wear(out, result, [(run.subject.name, run.counts) for run in runs], pictures)
        if (out / DATABASE_NAME).is_file():
            _write_reports(out)  # the page joins those of the campaign
        else:
            reports.write_wear_page(out, result)
    grown = figures.growth(before, result, share) if before is not None else []
    if as_json:
        print_json({**msgspec.to_builtins(result), "grown": grown})
    else:
        terminal.print_wear(result)
        for line in grown:
            click.echo(f"grown: {line}")
    if out is not None:
        terminal.note(f"wear: {out / 'report.html'}")
    if protect is not None and before is None:
        _write(protect, msgspec.json.format(msgspec.json.encode(figures.protected_of(result))) + b"\n")
        terminal.note(f"{protect}: written, what {', '.join(names)} may write")
    return EXIT_FINDINGS if grown else EXIT_OK


def _earlier_wear(
    protect: Path | None, is_updated: bool, setting: figures.Setting, names: list[str]
) -> figures.Protected | None:
    earlier = _file_to_compare_with(protect, is_updated)
    if earlier is None:
        return None
    before = figures.read_protected(earlier)
    figures.check_comparable(earlier, before, setting, names)
    return before


@cli.command("report")
@click.option(
    "--out", type=click.Path(path_type=Path), default=DEFAULT_OUT, show_default=True, help="Folder of the campaign."
)
@json_option
def report_command(out: Path, as_json: bool) -> int:
    """Write the reports of the last campaign again, from its database."""
    if not (out / DATABASE_NAME).is_file():
        raise BadInputError(
            f"{out / DATABASE_NAME}: no results there", "run `faultline matrix` first, or name its --out"
        )
    results, state, environment = _write_reports(out)
    if as_json:
        click.echo(reports.results_json(results, state, environment), nl=False)
    else:
        _print_campaign(results, out)
    return EXIT_OK


def _write_reports(out: Path) -> tuple[list[CellResult], str, Environment]:
    """Those of the campaign whose database is in the folder."""
    database = Results(out / DATABASE_NAME)
    state, results = database.read()
    environment = database.environment()
    database.close()
    reports.write_all(out, results, state, environment)
    return results, state, environment


@cli.command("mutate")
@click.argument("allocator")
@click.option(
    "--workload",
    "-w",
    "names",
    multiple=True,
    metavar="W",
    help="One of those that `run` takes; may be given several times.  [default: those of ci/matrix.toml]",
)
@variant_options
@click.option("--only", metavar="TEXT", help="Only places whose name has TEXT in it.")
@click.option(
    "--time", "time_s", type=click.FloatRange(0, min_open=True), metavar="S", help="Stop a trial after S seconds."
)
@click.option("--jobs", "-j", type=click.IntRange(1), help="Trials at a time.  [default: one a processor]")
@workshop_options
@json_option
def mutate_command(
    workshop: Workshop,
    allocator: str,
    names: tuple[str, ...],
    only: str | None,
    time_s: float | None,
    jobs: int | None,
    as_json: bool,
    **variant: Any,
) -> int:
    """Take every flush and every fence out of the trace in turn, and explore what is left.

    A place is a line of source that the workloads come to; a helper (`helpers` of allocator.toml) is one for each line that
    calls it. killed: without it a rule is broken. redundant: complete explorations of these workloads prove that recovery shows
    no other heap without it (contents apart), after one crash of each, and after a second one of those that the matrix runs
    with second crashes in what follows recoveries, too (a limit may end some of them, not all); where there are none, of one. A
    generated workload that a limit ends without the place is tried with half as many operations, a quarter and so on, and that
    is told. What survives a workload is taken out of the next one together. blind spot: recovery shows something new and no
    rule minds; the first crash state that shows it is told, and how its heap differs. unknown: not every state was explored, or
    something else kept one from being judged. What only a recovery from a crash comes to is taken out of recoveries, by second
    crashes of the workloads that the matrix runs so; it has no count.
    Exit code 1 when there is a blind spot, 3 when something is unknown.
    """
    given = [name for name in ("mutant", "ops", "seed", "flush") if _is_given(name)]
    if given and not names:
        raise BadInputError(f"--{given[0]} is about a workload, and none is named", "name one with -w")
    if names:
        specs = [_cell_spec(allocator, name, **variant, strategy="complete", model="px86") for name in names]
    else:
        matrix = config.read_toml(workshop.root / DEFAULT_MATRIX, config.Matrix)
        found = config.find_allocator(workshop.root, allocator)
        cells = campaign.cells_of_matrix(workshop.root, matrix)
        specs = mutate.specs_of_matrix(cells, found.name)
        if not specs:
            raise BadInputError(f"{DEFAULT_MATRIX} has no clean cell of {allocator}", "name a workload with -w")
    specs = [_with_found_workload(workshop, spec) for spec in specs]
    with terminal.StepProgress(is_quiet=as_json) as progress:
        mutation = mutate.mutate(workshop, specs, only, time_s, jobs or len(os.sched_getaffinity(0)), progress)
    if as_json:
        print_json({**msgspec.to_builtins(mutation), "fates": {place.name: place.fate for place in mutation.places}})
    else:
        terminal.print_mutation(mutation)
        click.echo(mutation.line())
    if mutation.count("blind spot"):
        return EXIT_FINDINGS
    return EXIT_UNKNOWN if mutation.count("unknown") else EXIT_OK


def _is_given(option: str) -> bool:
    source = click.get_current_context().get_parameter_source(option)
    return source is not None and source is not ParameterSource.DEFAULT


# ---- single states -------------------------------------------------------------------------------------------------------


@cli.command("replay")
@click.argument("token")
@workshop_options
@json_option
def replay_command(workshop: Workshop, token: str, as_json: bool) -> int:
    """Recover and judge the crash state that a token names."""
    return _replay(workshop, token, as_json, is_explained=False)


@cli.command("explain")
@click.argument("token")
@workshop_options
@json_option
def explain_command(workshop: Workshop, token: str, as_json: bool) -> int:
    """Say what a failing crash state lacks, and which flush or fence forbids it.

    The state is replayed; then repairs are tried one after the other, for at most a minute: the trace is explored again, all of it,
    as if the source had that flush or fence, until the finding is gone.
    """
    return _replay(workshop, token, as_json, is_explained=True)


def _replay(workshop: Workshop, token: str, as_json: bool, is_explained: bool) -> int:
    def say(text: str) -> None:
        terminal.note(f"trying: {text}")

    replayed = replay.replay(workshop, token, is_explained, None if as_json else say)
    if as_json:
        print_json(replayed)
    else:
        spec = replayed.spec
        for finding in replayed.findings:
            explained = next((one for one in replayed.explanations if one.finding == finding.id), None)
            terminal.print_finding(terminal.out(), spec, finding, explained)
            terminal.print_events(terminal.out(), finding)
        click.echo(f"verdict: {replayed.verdict}")
    return {"pass": EXIT_OK, "fail": EXIT_FINDINGS, "unknown": EXIT_UNKNOWN}[replayed.verdict]


@cli.command("shrink")
@click.argument("token")
@click.option(
    "--time",
    "time_s",
    type=click.FloatRange(0, min_open=True),
    default=BUDGET_S,
    show_default=True,
    metavar="S",
    help="Stop after about S seconds.",
)
@click.option(
    "--explorations",
    type=click.IntRange(1),
    default=EXPLORATIONS,
    show_default=True,
    metavar="N",
    help="Trace and explore at most N times.",
)
@workshop_options
@json_option
def shrink_command(workshop: Workshop, token: str, time_s: float, explorations: int, as_json: bool) -> int:
    """Find the smallest workload and crash state that show the same finding.

    Same finding: same rule, same place in the source. Fewest operations, then smallest sizes and fewest slots; fewest lines lost,
    then fewest that hold more than what is guaranteed, then the earliest crash position. The result replays by its own token.
    """

    def say(text: str) -> None:
        terminal.note(f"trying: {text}")

    spec, shrunk = replay.shrink_token(workshop, token, Budget(time_s, explorations), None if as_json else say)
    if as_json:
        print_json(shrunk)
    else:
        terminal.print_finding(terminal.out(), spec, shrunk.witness, shrunk=shrunk)
        terminal.print_events(terminal.out(), shrunk.witness)
    return EXIT_FINDINGS


@cli.command("bisect")
@click.argument("allocator")
@click.option("--good", required=True, metavar="REV", help="A revision that does not have the bug.")
@click.option("--bad", required=True, metavar="REV", help="A later one that has it.")
@click.option(
    "--witness",
    metavar="TOKEN",
    help="Of the finding.  [default: the first one that the bad end has and the good one not]",
)
@click.option(
    "--workload",
    "-w",
    metavar="W",
    help=f"Without --witness: what to explore, one of {WORKLOAD_NAMES}.  [default: {DEFAULT_BISECT_WORKLOAD}]",
)
@variant_options
@click.option(
    "--jobs", "-j", type=click.IntRange(1, 64), default=1, show_default=True, help="Workers of an exploration."
)
@workshop_options
@json_option
def bisect_command(
    workshop: Workshop,
    allocator: str,
    good: str,
    bad: str,
    witness: str | None,
    workload: str | None,
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
    found = config.find_allocator(workshop.root, allocator)
    repository = bisect.Repository(workshop.root, found.name)
    ends = repository.commit(good), repository.commit(bad)
    repository.check_range(*ends)
    repository.check_clean()
    if witness is None:
        spec = _cell_spec(
            found.name, workload or DEFAULT_BISECT_WORKLOAD, **variant, strategy=config.DEFAULT_STRATEGY, model="px86"
        )
        spec, sought = _with_found_workload(workshop, spec), None
        if spec.mutant is not None:
            found.mutant_named(spec.mutant)
    else:
        given = [name for name in ("workload", "ops", "seed", "mutant", "flush") if _is_given(name)]
        if given:
            raise BadInputError(f"--witness names the whole cell, and --{given[0]} is given, too", "leave one out")
        spec, sought = _of_witness(workshop, witness, found.name)

    def say(text: str) -> None:
        if not as_json:
            terminal.note(text)

    bisection = bisect.bisect(workshop, repository, spec, ends, sought, say)
    if as_json:
        print_json(bisection)
    else:
        terminal.print_bisection(bisection)
    return EXIT_OK if bisection.first_bad else EXIT_UNKNOWN


def _of_witness(workshop: Workshop, text: str, allocator: str) -> tuple[CellSpec, bisect.Sought]:
    token = workshop.engine.ask_json(replay.Token, "token", text)
    if token.allocator != allocator:
        raise BadInputError(f"the token is of {token.allocator}, and not of {allocator}", "name the token's allocator")
    spec = CellSpec(
        *(token.allocator, token.workload, token.ops, token.seed, config.DEFAULT_STRATEGY, token.model, token.flush),
        mutant=token.mutant,
        nested=len(token.later),
    )
    return spec, bisect.Sought(token.rule or "", token.site)


@cli.command("bisect-step", hidden=True)
@click.argument("task", type=click.Path(path_type=Path))
def bisect_step_command(task: Path) -> int:
    """One commit of `faultline bisect`, for git bisect run."""
    try:
        return bisect.step(msgspec.json.decode(task.read_bytes(), type=bisect.Task))
    except KeyboardInterrupt:
        return bisect.EXIT_STOP
    except Exception as error:  # git takes every code below 128 for an answer about the commit
        click.echo(f"error: {error}", err=True)
        return bisect.EXIT_STOP


@cli.command(
    "litmus", context_settings={"ignore_unknown_options": True, "help_option_names": []}, add_help_option=False
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def litmus_command(arguments: tuple[str, ...]) -> int:
    """Compare the reachable persisted states of litmus tests with what they allow. (FILE... [--print])"""
    return Engine().pass_through("litmus", *arguments)


__all__ = ["cli", "main"]
