# SPDX-License-Identifier: Apache-2.0
"""What Valgrind cannot run is said in one line: what, where, what to do, and which engine goes on. The target is not blamed."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from faultline.campaign.results import CellResult
from faultline.report.terminal.campaigns import print_results
from foreign.cases import Case
from foreign.foreign_project import explore_case, project_of_case

SHORT = "workload 1\nslots 1\ncase\nallocate 0 64\n"
Run = Callable[..., CellResult]


@pytest.fixture
def run(root: Path, scripts: Path, tmp_path: Path) -> Run:
    cache = cache_that_shares_builds(root, tmp_path / "cache")

    def of(defines: str, engine: str | None = None, time_s: float | None = None) -> CellResult:
        place = project_of_case(Case("not_run", defines, ""), root, tmp_path / "place")
        return explore_case(place, cache, scripts, SHORT, replay_engine=engine, time_limit_s=time_s)

    return of


@pytest.mark.slow
@pytest.mark.parametrize(
    ("store", "what", "advice"),
    [
        ("hint", r"an instruction \(0f 18 20 ", "-march=x86-64-v3"),
        ("avx512", r"an AVX-512 instruction \(62 ", "-mno-avx512f"),
        ("movdiri", r"a direct store \(4. 0f 38 f9 ", "-mno-movdiri -mno-movdir64b"),
    ],
)
def test_an_instruction_that_the_tracer_does_not_know_is_named(run: Run, store: str, what: str, advice: str) -> None:
    """It is no finding that the tracer does not know it, nor that the processor does not: all know the first one."""
    result = run(f"STORE={store}")
    assert (result.verdict, result.findings) == ("unknown", [])
    assert re.fullmatch(
        rf"ways: {what}[0-9a-f ]+\) at \w+ \(stores\.h:\d+\) that Valgrind does not know; build the target without it "
        rf"\({advice}\) \(while session 0 of workload \S+ was traced\)",
        str(result.error),
    ), result.error


@pytest.mark.slow
@pytest.mark.parametrize(("more", "verdict"), [("", "pass"), (" BETWEEN=nothing", "fail")])
def test_a_recovery_that_the_tracer_cannot_run_goes_on_in_the_next_engine(
    run: Run, capsys: pytest.CaptureFixture[str], more: str, verdict: str
) -> None:
    result = run(f"LOAD=hint{more}", engine="traced")
    certificate = result.certificate
    assert certificate is not None
    assert (result.verdict, certificate.engine, certificate.complete) == (verdict, "isolated", False)
    assert {finding.rule for finding in result.findings} <= {"FL003"}
    print_results([result])
    line = (
        r"strategy mixed ran in the isolated engine: strategy complete is not possible: the tracer cannot follow recovery: "
        r"an instruction \(0f 18 20 [0-9a-f ]{8}\) at \w+ \(loads\.h:\d+\) that Valgrind does not know; build the target "
        r"without it \(-march=x86-64-v3\)"
    )
    assert re.search(line, capsys.readouterr().out.replace("\n", " "))


@pytest.mark.slow
def test_the_referee_is_not_asked_of_what_it_cannot_run(run: Run) -> None:
    result = run("LOAD=hint BETWEEN=nothing")
    certificate = result.certificate
    assert certificate is not None
    assert (result.verdict, certificate.engine, certificate.complete) == ("fail", "in-process", True)


@pytest.mark.nightly
def test_a_recovery_that_spins_under_the_tracer_ends_within_the_time(run: Run) -> None:
    """It makes no system call and no access to memory. One run took 50 s of processor time, of which there are several."""
    started = time.monotonic()
    result = run("SPINS BETWEEN=nothing", engine="traced", time_s=20)
    took_s = time.monotonic() - started
    [finding] = result.findings
    assert (result.verdict, finding.rule) == ("fail", "FL002")
    assert finding.died is not None
    assert (finding.died.at.function, finding.died.hung) == ("recover", "1 s of processor time")
    assert took_s < 20 + 100, "builds, and other processes of a busy machine, are a part of it"
