# SPDX-License-Identifier: Apache-2.0
"""What people and machines see, as files: a change shows up in review. UPDATE_SNAPSHOTS=1 rewrites them."""

from __future__ import annotations

import io
import os
from pathlib import Path

import pytest
from rich.console import Console

import samples
from faultline.base.errors import BadInputError
from faultline.report import junit, reports, results_document, sarif
from faultline.report.terminal import streams
from faultline.report.terminal.campaigns import print_results
from faultline.report.terminal.findings import print_events
from faultline.workload import generators, graph_generators, sequences
from faultline.workload.operations import Workload

HERE = Path(__file__).parent


def check(name: str, text: str) -> None:
    path = HERE / name
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(text)
    assert path.read_text() == text


def shown(monkeypatch: pytest.MonkeyPatch, show) -> str:  # type: ignore[no-untyped-def]
    """What show() prints through out() and err(), as it looks in a pipe."""
    stream = io.StringIO()

    def console() -> Console:
        return Console(file=stream, highlight=False, width=streams.PLAIN_WIDTH)

    monkeypatch.setattr(streams, "out", console)
    monkeypatch.setattr(streams, "err", console)
    show()
    return "\n".join(line.rstrip() for line in stream.getvalue().split("\n"))


def test_results_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    check("results.txt", shown(monkeypatch, lambda: print_results(samples.campaign())))


def test_the_events_of_a_finding_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    check("events.txt", shown(monkeypatch, lambda: print_events(streams.out(), samples.finding())))


def test_errors_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    error = BadInputError("m.toml: cell[0].workload: this key is required and missing", "see ci/matrix.toml\nfor one")
    check("error.txt", shown(monkeypatch, lambda: streams.print_error(error)))


def test_junit() -> None:
    check("junit.xml", junit.render(samples.campaign()))


def test_sarif() -> None:
    check("results.sarif", sarif.render(samples.campaign()))


def test_results_json() -> None:
    check("results.json", results_document.render(samples.campaign(), "done", samples.ENVIRONMENT))


def test_html() -> None:
    check("report.html", reports.html(samples.campaign(), "done", samples.ENVIRONMENT))


def test_smoke() -> None:
    check("smoke.workload", generators.smoke().text())


def test_ace() -> None:
    check("ace-2.workload", sequences.ace(2, [64, 2048]).text())


@pytest.mark.parametrize(
    "workload",
    [
        generators.sizes([64, 2048]),
        generators.reopen(8, 1),
        generators.fill(1 << 20),
        generators.threads(16, 1),
        generators.over_layout("chain", 4, 1),
        generators.over_layout("names", 4, 1),
        graph_generators.graph(40, 1),
        graph_generators.resur(40, 1, 1 << 19),
        generators.big(40, 1, 1 << 19),
        generators.defrag(1 << 19),
        generators.split(4096, 1 << 15),
    ],
    ids=lambda workload: workload.name,
)
def test_generated_workloads(workload: Workload) -> None:
    """Tokens name them by ops and seed: a generator that gives something else breaks the tokens that are out there."""
    check(f"{workload.name}.workload", workload.text())
