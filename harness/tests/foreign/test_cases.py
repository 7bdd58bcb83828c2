# SPDX-License-Identifier: Apache-2.0
"""An allocator of somebody else gets the right answer, however it stores, persists, loads and recovers."""

from __future__ import annotations

import time
import unicodedata
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import mkdtemp

import pytest

import samples
from caches import cache_that_shares_builds
from faultline.campaign.results import CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import build_cell, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.report import junit, reports, results_document, sarif
from faultline.report.terminal.campaigns import print_results
from faultline.workload import file_format
from foreign.answer import Answer
from foreign.cases import CASES, ONE_SESSION, Case
from foreign.foreign_project import project_of_case

EACH_TIME = """
    clwb clwb_forgets clflush_alone intrinsics alias other_line pointer libpmem_forgets locked_wide msync_unordered fsync
    no_flush_eadr store_stream_unordered store_b_xchg store_pwrite store_pwrite_unordered store_second_descriptor
    store_libpmem_streamed store_read store_dsync store_vm_writev_unordered
    wide_avx_torn wide_cmpxchg16b_torn wide_stosq
    load_assembly_unordered load_movsb_unordered load_gather load_memcpy_pointer_unordered load_pread_unordered
    load_by_instruction_unordered load_pipe load_vm_readv_unordered
    load_thread_unordered load_signal_unordered load_faulting load_zlib_unordered
    load_by_name_unordered load_clone_number_unordered load_clone_instruction_unordered load_then_exec_number_unordered
    apply_in_thread_forgets apply_and_punch_forgets apply_by_pwrite apply_in_child_forgets
    apply_in_clone apply_in_clone_instruction msync_forgets store_sscanf
    mutex getrandom jumps arena arena_opened_traced background uncleared uncleared_locals uncleared_deep_locals
    takes keeps_function keeps_data_traced too_large aside aside_opened aside_mapped
"""
"""Those that stand for a kind; the others are asked in the nightly run."""
STARTS_S = 10.0
"""For what is not bounded: a trace, and the starts of processes on a busy machine."""
DRAWN = 24
"""Of those, asked each time."""


def marks_of(case: Case) -> list[pytest.MarkDecorator]:
    return [] if case.name in EACH_TIME.split() else [pytest.mark.nightly]


def wrongs(answer: Answer, case: Case) -> list[str]:
    """What is not as the case says."""
    certificate = answer.certificate
    why = certificate.why or certificate.fallback or certificate.engine_why or ""
    said = [f"verdict {answer.verdict}, not {case.verdict}"] * (answer.verdict != case.verdict)
    is_expected = bool(answer.rules & case.rules) if case.rules else not answer.rules
    said += [f"rules {sorted(answer.rules)}, not {sorted(case.rules)}"] * (not is_expected)
    flushed_elsewhere = {(rule, place) for rule, place in answer.warnings if rule == "FL104"}
    is_warned = flushed_elsewhere <= case.warnings <= answer.warnings
    said += [f"warnings {sorted(answer.warnings)}, not {sorted(case.warnings)}"] * (not is_warned)
    said += [f"complete {certificate.complete}"] * (case.complete not in (None, certificate.complete))
    said += [f"engine {certificate.engine}"] * (case.engine not in (None, certificate.engine))
    said += [f"hangs {sorted(answer.hung)}, not {case.hung}"] * (case.hung not in ("", *answer.hung))
    said += ["no store is called torn"] * (case.torn and not answer.is_torn)
    return [*said, why] if said else []


@pytest.fixture
def ask(root: Path, scripts: Path, tmp_path: Path) -> Callable[[Case], Answer]:
    cache = cache_that_shares_builds(root, tmp_path / "cache")

    def explored(case: Case) -> Answer:
        place = project_of_case(case, root, Path(mkdtemp(dir=tmp_path)))
        workshop = Workshop(place, cache, Engine(scripts / "faultline-engine"))
        options = {"strategy": "complete", "model": "px86", "flush": "clwb", **case.options}
        spec = CellSpec("ways", "ways", 0, 1, **options)
        cell = trace_cell(workshop, spec, build_cell(workshop, spec), file_format.parse(case.workload, "ways"))
        answer = Answer()
        answer.verdict = explore(cell, answer.hear)
        return answer

    return explored


def test_cases_have_names_of_their_own() -> None:
    names = [case.name for case in CASES]
    assert len(names) == len(set(names))
    assert set(names) >= set(EACH_TIME.split())


@pytest.mark.slow
def test_a_recovery_that_believes_a_file_outside_of_its_heap_is_never_green(
    ask: Callable[[Case], Answer], tmp_path: Path
) -> None:
    """Nor when the next campaign, of changed sources, finds the file there."""
    side = tmp_path / "side.flag"

    def reasons(more: str) -> list[str]:
        define = f'SIDE_FILE=\\"{side}\\" BETWEEN=nothing {more}'
        answer = ask(Case("side_file", define, "state that no crash image holds"))
        assert answer.verdict == "unknown"
        return [str(reason) for reason in answer.certificate.unknown_reasons]

    assert any(f"it changes {side}, which is no file of the heap" in reason for reason in reasons("FIRST"))
    assert any(f"an earlier run made {side}" in reason for reason in reasons("SECOND"))


@pytest.mark.slow
@pytest.mark.parametrize("engine", ["traced", "isolated"])
def test_a_recovery_that_hangs_when_the_time_is_over_is_unknown(ask: Callable[[Case], Answer], engine: str) -> None:
    """Asleep for 5 s it would hang (FL002); it has less."""
    limit_s, options = 2.0, {"replay_engine": engine}
    case = Case(
        "late", "MUTEX STAYS_LOCKED", "a lock that a crash leaves locked", options=options, workload=ONE_SESSION
    )
    ask(replace(case, options={**options, "recovery_limit": 1}))  # what is compiled first takes its time
    begun = time.monotonic()
    answer = ask(replace(case, options={**options, "time_limit_s": limit_s}))
    assert time.monotonic() - begun < 3 * limit_s + STARTS_S
    assert answer.verdict in ("unknown", "incomplete")
    assert answer.rules == set()
    certificate = answer.certificate
    assert not certificate.complete
    reasons = [certificate.why, *certificate.unknown_reasons]
    assert [reason for reason in reasons if "2 s limit" in str(reason) or "the time that was asked for" in str(reason)]


@pytest.mark.slow
def test_what_a_target_says_drives_no_terminal(
    ask: Callable[[Case], Answer], capsys: pytest.CaptureFixture[str]
) -> None:
    answer = ask(Case("rings", r"BETWEEN=nothing RINGS=\"\\033[31m\\007\"", "bells and colours in what it says"))
    assert "recovery answered corrupt, but the heap was created: \\u001b[31m\\u0007b is ahead of a" in answer.messages
    result = CellResult(samples.spec(), verdict=answer.verdict, findings=answer.findings)
    print_results([result])
    shown = capsys.readouterr().out
    page = reports.html([result], "done", samples.ENVIRONMENT)
    texts = [shown, page, junit.render([result]), sarif.render([result])]
    texts.append(results_document.render([result], "done", samples.ENVIRONMENT))
    for text in texts:
        assert "[31m" in text
        assert not [letter for letter in text if unicodedata.category(letter) == "Cc" and letter not in "\n\t"]


@pytest.mark.drawn(DRAWN)
@pytest.mark.parametrize(
    "case",
    [pytest.param(case, id=case.name, marks=marks_of(case)) for case in CASES],
)
def test_a_foreign_allocator_gets_the_right_answer(ask: Callable[[Case], Answer], case: Case) -> None:
    assert wrongs(ask(case), case) == [], case.about
