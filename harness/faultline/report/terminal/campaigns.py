# SPDX-License-Identifier: Apache-2.0
"""What a campaign found: the verdict table, what needs a look, what is said of each allocator."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table
from rich.text import Text

from faultline.campaign.causes import Cause, causes_of
from faultline.campaign.results import CellResult, kill_rates_of
from faultline.report.coverage import recovery_coverage
from faultline.report.outcomes import mark, outcome, scientific
from faultline.report.reasons import reason_of
from faultline.report.terminal import streams
from faultline.report.terminal.findings import print_finding
from faultline.report.terminal.streams import COLOURS, print_line
from faultline.report.trace_rules import warning_lines
from faultline.study import kill_rates

UNKNOWN_OPERATIONS = "the trace does not say what the program did"
"""Why the oracle does not judge a rule (oracle/src/judge/without_operations.rs)."""


def print_results(results: list[CellResult], is_verbose: bool = False) -> None:
    """The verdict table, then what needs a look: findings, survivors and errors, each with what to do next. The findings of a
    killed mutant are expected: they are in the reports, and shown here when it is the only cell.
    is_verbose: long lists are whole."""
    console = streams.out()
    console.print(verdict_table(results))
    for result in results:
        print_cell(console, result, is_alone=len(results) == 1)
    print_causes(console, [one for one in results if outcome(one) != "killed" or len(results) == 1])
    for result in results:
        if result.spec.mutant and outcome(result) == "survived":
            print_line(console, f"{result.spec.name}: ", "bold red", f"survived, expected {result.spec.expected_rule}")
            print_line(console, "  again: ", "cyan", result.spec.command_line())
    _print_allocators(console, results, is_verbose)


def print_causes(console: Console, results: list[CellResult]) -> None:
    """What was found, each cause whole: finding, explanation, repair, replay."""
    for cause in causes_of(results):
        _print_cause(console, cause)


def print_cell(console: Console, result: CellResult, is_alone: bool) -> None:
    """Why it has no verdict, how it was explored, and behind which findings it looked."""
    is_commands_own = result.error is not None and is_alone  # the command ends with it
    reason = None if is_commands_own else reason_of(result)
    if reason is not None:
        print_line(console, f"{result.spec.name}: ", "yellow", f"{reason.word}: {reason.why}")
        if reason.next:
            print_line(console, "  hint: ", "cyan", reason.next)
    if result.recovered_by:
        print_line(console, f"{result.spec.name}: ", "", f"the build of {result.recovered_by} recovered the heaps")
    if result.certificate is not None and result.certificate.fallback is not None:
        certificate = result.certificate
        ran = f"strategy {certificate.strategy} ran in the {certificate.engine} engine: {certificate.fallback}"
        print_line(console, f"{result.spec.name}: ", "yellow", ran)
    elif result.certificate is not None and result.certificate.engine_why:
        ran = f"recoveries ran in the {result.certificate.engine} engine: {result.certificate.engine_why}"
        print_line(console, f"{result.spec.name}: ", "", ran)
    if is_alone and result.certificate is not None and (ran_in := result.certificate.engines.text()):
        print_line(console, "recoveries: ", "", ran_in)
    if skipped := rules_of_operations(result):
        print_line(
            console, f"{result.spec.name}: ", "yellow", f"not judged: {', '.join(skipped)}: {UNKNOWN_OPERATIONS}"
        )
    for behind in result.certificate.behind if result.certificate is not None else []:
        print_line(console, f"{result.spec.name}: ", "", f"the certificate looks {behind.text()}")


def rules_of_operations(result: CellResult) -> list[str]:
    """Those that were not judged because nobody says which operations there were."""
    skipped = result.certificate.rules_not_judged if result.certificate is not None else []
    return sorted(one["rule"] for one in skipped if one["why"] == UNKNOWN_OPERATIONS)


def _print_cause(console: Console, cause: Cause) -> None:
    """The finding nearest to the cause; of the others a line each."""
    result, finding = cause.first.result, cause.first.finding
    explained, shrunk = result.explanation_of(finding), result.shrunk_of(finding)
    print_finding(console, result.spec, finding, explained, shrunk, result.not_shrunk.get(finding.id))
    if cause.first.more:
        print_line(console, "  seen in: ", "cyan", ", ".join(more.spec.name for more in cause.first.more))
    for other in cause.others:
        print_line(
            console, "  also: ", "cyan", f"{other.text()}: {other.result.spec.replay_command(other.finding.token)}"
        )


def _print_allocators(console: Console, results: list[CellResult], is_verbose: bool) -> None:
    for line in warning_lines(results):
        print_line(console, "", "", line)
    for coverage in recovery_coverage(results):
        print_line(console, f"{coverage.allocator}: ", "yellow" if coverage.never else "", coverage.line(is_verbose))
    for build, rate in kill_rates_of(results).items():
        head = f"{kill_rates.name(*build)}: "
        if rate is not None:
            print_line(console, head, "" if rate.is_whole else "yellow", f"kill rate {rate.text()}")
        elif len(results) > 1:
            measure = kill_rates.command(*build)
            print_line(console, head, "yellow", f"kill rate {kill_rates.text_of(None)}: {measure}")


def verdict_table(results: list[CellResult]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for heading in ("allocator", "workload", "mutant"):
        table.add_column(heading, overflow="fold")
    for heading in ("verdict", "rules"):
        table.add_column(heading)
    for heading in ("positions", "states", "recoveries", "time"):
        table.add_column(heading, justify="right", no_wrap=True)
    for result in results:
        table.add_row(*_row(result))
    return table


def _row(result: CellResult) -> list[Text]:
    spec, certificate = result.spec, result.certificate
    rules = sorted({finding.rule for finding in result.findings})
    cells = [
        Text(spec.allocator),
        Text(spec.workload_text),
        Text(spec.mutant or "-"),
        Text(outcome(result), style=COLOURS[mark(result)]),
        Text(" ".join(rules) or "-"),
        Text(f"{certificate.crash_positions:,}" if certificate else "-"),
        Text(scientific(certificate.states) if certificate else "-"),
        Text(f"{certificate.recoveries:,}" if certificate else "-"),
    ]
    seconds = result.build_s + result.trace_s + result.explore_s
    return [*cells, Text("reused" if result.is_reused else f"{seconds:.1f} s")]
