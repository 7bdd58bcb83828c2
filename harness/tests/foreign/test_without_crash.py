# SPDX-License-Identifier: Apache-2.0
"""A target that fails though power does not is told so (FL017), and not that its recovery is wrong."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from faultline.campaign.campaign import SilentWatcher, run_cells
from faultline.campaign.causes import causes_of
from faultline.campaign.results import CellResult, Results
from faultline.pipeline import rehearsal, trace
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from foreign.cases import ONE_SESSION, WORKLOAD, Case
from foreign.foreign_project import project_of_case

Run = Callable[..., CellResult]


@pytest.fixture
def run(root: Path, scripts: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Run:
    monkeypatch.setattr(trace, "LATE_S", 5)
    monkeypatch.setattr(rehearsal, "CPU_LIMIT_MS", 1000)
    monkeypatch.setattr(rehearsal, "WALL_LIMIT_MS", 10_000)
    cache = cache_that_shares_builds(root, tmp_path / "cache")

    def of(defines: str, workload: str = WORKLOAD, contract: str = "", stop_at_rule: str | None = None) -> CellResult:
        place = project_of_case(Case("without_crash", defines, ""), root, tmp_path / "place")
        with (place / "allocators" / "ways" / "allocator.toml").open("a") as description:
            description.write(contract)
        (place / "ways.workload").write_text(workload)
        workshop = Workshop(place, cache, Engine(scripts / "faultline-engine"))
        results = Results(tmp_path / "results.sqlite")
        spec = CellSpec(
            "ways", str(place / "ways.workload"), 0, 1, "complete", "px86", "clwb", stop_at_rule=stop_at_rule
        )
        [result] = run_cells(workshop, results, "run", [spec], 1, SilentWatcher())
        results.close()
        return result

    return of


def rules_of(result: CellResult) -> set[str]:
    return {finding.rule for finding in result.findings}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defines", "operation", "how", "function"),
    [
        ("FAILS=in_free", "operation 5 (free, slot 0)", "died of SIGSEGV", "fail_segv"),
        ("FAILS=in_free FAILS_BY=abort", "operation 5 (free, slot 0)", "died of SIGABRT", "fail_abort"),
        ("FAILS=in_allocate FAILS_BY=exit", "operation 1 (allocate, slot 0, 64 bytes)", "called exit", ""),
        ("FAILS=in_free FAILS_BY=loop", "operation 5 (free, slot 0)", "did not return", "fail_loop"),
        ("FAILS=in_free FAILS_BY=sleep", "operation 5 (free, slot 0)", "did not return", "fail_sleep"),
        ("FAILS=in_free FAILS_BY=refuse", "operation 5 (free, slot 0)", "answered error: not today", ""),
        ("FAILS=in_close FAILS_BY=abort", "operation 3 (close)", "died of SIGABRT", "fail_abort"),
        ("FAILS=in_open FAILS_BY=abort", "operation 4 (open)", "died of SIGABRT", "fail_abort"),
    ],
)
def test_a_failure_in_an_operation_is_a_finding_without_a_crash(
    run: Run, defines: str, operation: str, how: str, function: str
) -> None:
    result = run(defines)
    [finding] = result.findings
    assert (result.verdict, finding.rule) == ("fail", "FL017")
    assert finding.message == f"{operation} {how}, and power did not fail; it printed: about to fail"
    assert (finding.died.at.function if finding.died else "") == function
    assert result.certificate is not None
    assert (result.certificate.complete, result.certificate.rules_judged) == (False, ["FL017"])
    assert result.replay_lines(finding) == [f"replay: {result.spec.command_line()}"]


def test_what_a_failed_assertion_prints_is_told(run: Run) -> None:
    """Its line begins with the name of the program, which is the runner."""
    [finding] = run("FAILS=in_open FAILS_BY=assert").findings
    assert "adapter.c:" in finding.message
    assert 'fail_assert: Assertion `!"a state that is not possible"\' failed.' in finding.message


PRINTED = "; it printed: about to fail"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defines", "step", "how", "function", "printed"),
    [
        ("FAILS=when_full FAILS_BY=abort", "the drain", "died of signal 6 (SIGABRT)", "fail_abort", PRINTED),
        ("FAILS=when_full FAILS_BY=exit", "the drain", "called exit", "", PRINTED),
        ("FAILS=when_full FAILS_BY=loop", "the drain", "did not end within its limit", "fail_loop", PRINTED),
        ("FAILS=when_full FAILS_BY=refuse", "the drain", "answered error", "", ""),
        (
            "FAILS=in_free FAILS_BY=abort FAILS_FROM=3",
            "the freeing of all",
            "died of signal 6 (SIGABRT)",
            "fail_abort",
            PRINTED,
        ),
    ],
)
def test_what_a_crash_did_not_do_is_one_finding_and_none_of_a_crash_state(
    run: Run, defines: str, step: str, how: str, function: str, printed: str
) -> None:
    """The workload is done without it, and the probe is not, whether power fails or not."""
    result = run(defines, ONE_SESSION if "loop" in defines else WORKLOAD)  # each hang takes a second
    assert result.certificate is not None
    assert (result.verdict, rules_of(result)) == ("fail", {"FL017"}), result.findings
    [cause] = causes_of([result])
    finding = cause.first.finding
    life = "the open of the closed heap (life 3)" if printed else "the operation"
    words = "" if printed else ": not today"
    assert finding.message == f"after operation 0, {step} after {life} {how}{words}, and power did not fail{printed}"
    assert (finding.died.at.function if finding.died else "") == function
    assert (finding.token, finding.operation_text()) == ("", "operation 0: create (returned)")
    assert result.replay_lines(finding) == [f"replay: {result.spec.command_line()}"]
    assert "FL017" in result.certificate.rules_judged
    said = f"as the heap without a crash does (FL017): {step} after recovery of a fresh copy (life 3) {how}"
    assert any(bound.endswith(said) for bound in result.certificate.bounds_hit), result.certificate.bounds_hit
    assert not result.certificate.complete


@pytest.mark.slow
def test_what_a_crash_did_is_found_all_the_same(run: Run) -> None:
    assert rules_of(run("FAILS=when_full FAILS_BY=abort BETWEEN=nothing")) == {"FL003", "FL017"}


def test_a_campaign_that_stops_at_the_first_finding_stops_before_any_crash(run: Run) -> None:
    result = run("FAILS=when_full FAILS_BY=abort BETWEEN=nothing", stop_at_rule="any")
    assert (result.verdict, rules_of(result)) == ("fail", {"FL017"})
    assert result.certificate is not None
    assert (result.certificate.recoveries, result.certificate.complete) == (0, False)
    assert "stopped at the first finding" in result.certificate.bounds_hit


ENDS = 'out_of_memory = "ends"\n'


@pytest.mark.slow
@pytest.mark.parametrize("how", ["abort", "exit"])
def test_an_allocator_may_end_the_process_when_it_is_full(run: Run, how: str) -> None:
    full = f"FAILS=when_full FAILS_BY={how}"
    result = run(full, contract=ENDS)
    assert (result.verdict, result.findings) == ("pass", [])
    assert result.certificate is not None
    assert result.certificate.complete
    said = {f"{one['rule']}: {one['why']}" for one in result.certificate.rules_not_judged}
    assert any("FL012: what follows when memory is out: the process ends" in one for one in said)


@pytest.mark.slow
def test_an_allocator_that_ends_the_process_may_not_do_so_in_recovery(run: Run) -> None:
    full = "FAILS=when_full FAILS_BY=abort"
    assert rules_of(run(f"{full} BETWEEN=nothing", contract=ENDS)) == {"FL003"}


@pytest.mark.slow
def test_a_target_that_fails_under_the_tracer_alone_is_unknown(run: Run) -> None:
    result = run("FAILS=in_free TRACED_ONLY")
    assert (result.verdict, result.findings) == ("unknown", [])
    assert "crashed with SIGSEGV while session 1" in str(result.error)
    assert str(result.error).endswith("without the tracer it did not")


@pytest.mark.slow
def test_what_a_target_printed_before_it_left_the_tracer_is_told(run: Run) -> None:
    """A reservation that the tracer has no room for, for instance."""
    result = run("FAILS=in_create FAILS_BY=exit_255 TRACED_ONLY")
    assert (result.verdict, result.findings) == ("unknown", [])
    assert str(result.error).endswith("was traced; without the tracer it did not; it printed: about to fail")


def test_a_heap_that_is_not_made_is_no_finding(run: Run) -> None:
    """Its sizes may be wrong, or the folder: the allocator says so, and may be right."""
    result = run("FAILS=in_create FAILS_BY=refuse")
    assert (result.verdict, result.findings) == ("unknown", [])
    assert "operation 0 (create of slot 0, 0 bytes) answered error: not today" in str(result.error)


def test_a_target_that_dies_when_it_makes_a_heap_is_a_finding(run: Run) -> None:
    [finding] = run("FAILS=in_create").findings
    assert finding.message == "operation 0 (create) died of SIGSEGV, and power did not fail; it printed: about to fail"
