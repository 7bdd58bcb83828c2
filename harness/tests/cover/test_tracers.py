# SPDX-License-Identifier: Apache-2.0
"""A tracer is one class: what it says is how a campaign traces, counts writes, and what doctor looks at."""

from __future__ import annotations

import json
from itertools import takewhile
from pathlib import Path
from typing import Any

import pytest

import faultline as package
from command_line import Faultline, assert_one_clear_line
from faultline.base.cache import Cache, key_of
from faultline.base.errors import InfrastructureError
from faultline.cli import main
from faultline.pipeline.build import Built
from faultline.pipeline.tracers import DEFAULT_TRACER, TRACERS
from faultline.pipeline.tracers.tracer import Session, Tracer

SMOKE = ("run", "nvm_malloc", "-w", "smoke", "--strategy", "prefix", "--json")


class Toy(Tracer):
    """The default tracer, started by a shell that notes each session in a file."""

    name = "toy"
    summary = "for this test"

    def __init__(self, log: Path) -> None:
        self.log = log

    def version(self) -> str:
        return f"toy 1 on {DEFAULT_TRACER.version()}"

    def build(self, root: Path, cache: Cache) -> Built:
        built = DEFAULT_TRACER.build(root, cache)
        return Built(built.path, key_of(self.name, built.key))

    def trace_command(self, built: Built, session: Session) -> list[str]:
        noted = ("sh", "-c", 'echo "session $1" >> "$0"; shift; exec "$@"', str(self.log), str(session.process))
        return [*noted, *DEFAULT_TRACER.trace_command(built, session)]

    def environment(self, built: Built) -> dict[str, str]:
        return DEFAULT_TRACER.environment(built)


class Missing(Toy):
    """Its program is not installed."""

    name = "missing"

    def version(self) -> str:
        raise InfrastructureError("the program of this tracer was not found on PATH", "install it")

    def build(self, root: Path, cache: Cache) -> Built:
        self.version()
        return super().build(root, cache)


class Endless(Toy):
    """Its sessions do not end by themselves."""

    name = "endless"

    def trace_command(self, built: Built, session: Session) -> list[str]:
        return ["sleep", "900"]


@pytest.fixture
def toy(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Toy:
    tracer = Toy(tmp_path / "sessions")
    monkeypatch.setitem(TRACERS, tracer.name, tracer)
    monkeypatch.setitem(TRACERS, Missing.name, Missing(tmp_path / "none"))
    return tracer


@pytest.fixture
def without_traces(root: Path, tmp_path: Path) -> Path:
    """A cache that has the builds of the usual one, and no traces."""
    usual, folder = root / ".faultline", tmp_path / "cache"
    folder.mkdir()
    for name in ("builds", "ccache"):
        (usual / name).mkdir(parents=True, exist_ok=True)
        (folder / name).symlink_to(usual / name)
    return folder


def results(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert main([*SMOKE, *arguments]) == 0
    return json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_a_campaign_traces_with_the_chosen_tracer(
    capsys: pytest.CaptureFixture[str], toy: Toy, without_traces: Path
) -> None:
    """Each session of the workload is one process under it. The same events are the same trace, whoever wrote them down."""
    cache = ("--cache", str(without_traces))
    chosen = results(capsys, "--tracer", "toy", *cache)
    assert toy.log.read_text().splitlines() == ["session 1", "session 2"]
    assert chosen["environment"]["facts"]["toy"] == toy.version()
    default = results(capsys, *cache)
    assert toy.log.read_text().splitlines() == ["session 1", "session 2"]
    assert chosen["cells"][0]["trace_hash"] == default["cells"][0]["trace_hash"]
    assert chosen["cells"][0]["verdict"] == default["cells"][0]["verdict"] == "pass"


def test_the_time_that_is_asked_for_bounds_tracing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, without_traces: Path, tmp_path: Path
) -> None:
    monkeypatch.setitem(TRACERS, Endless.name, Endless(tmp_path / "none"))
    assert main([*SMOKE[:-1], "--tracer", "endless", "--time", "0.5", "--cache", str(without_traces)]) == 3
    said = capsys.readouterr()
    assert "the time that was asked for was over while session 0 of smoke was traced" in said.out + said.err
    assert "give --time more" in said.out + said.err


def test_doctor_looks_at_what_the_chosen_tracer_needs(capsys: pytest.CaptureFixture[str], toy: Toy) -> None:
    main(["doctor", "--json", "--tracer", "toy"])
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert checks["toy"]["detail"] == toy.version()
    assert checks["toy tool"]["is_good"]
    assert DEFAULT_TRACER.name not in checks
    assert main(["doctor", "--json", "--tracer", "missing"]) == 3
    checks = {check["name"]: check for check in json.loads(capsys.readouterr().out)}
    assert (checks["missing"]["is_good"], checks["missing"]["hint"]) == (False, "install it")


def test_a_tracer_that_is_not_installed_is_one_line(
    capsys: pytest.CaptureFixture[str], toy: Toy, without_traces: Path
) -> None:
    assert main([*SMOKE[:-1], "--tracer", "missing", "--cache", str(without_traces)]) == 3
    said = capsys.readouterr().err
    assert "error: the program of this tracer was not found on PATH\nhint: install it\n" in said


@pytest.mark.slow
def test_wear_is_counted_by_the_chosen_tracer_if_it_can(capsys: pytest.CaptureFixture[str], toy: Toy) -> None:
    assert main(["wear", "glibc", "--ops", "8", "--tracer", "toy"]) == 2
    assert "error: tracer toy does not count writes\nhint: leave --tracer out" in capsys.readouterr().err


def test_the_tracers_are_listed(capsys: pytest.CaptureFixture[str], toy: Toy) -> None:
    main(["list"])
    listed = capsys.readouterr().out.split("tracers:\n")[1].splitlines()
    of_tracers = takewhile(lambda line: line.startswith("  "), listed)
    assert [line.split(":")[0].strip() for line in of_tracers] == ["valgrind", "pin", "toy", "missing"]


@pytest.mark.parametrize("command", [SMOKE, ("wear", "glibc"), ("doctor",), ("replay", "fl1.x"), ("mutate", "makalu")])
def test_an_unknown_tracer_is_bad_input(faultline: Faultline, command: tuple[str, ...]) -> None:
    run = faultline(*command, "--tracer", "pinn")
    assert_one_clear_line(run, 2, "unknown tracer 'pinn'", "tracers are: valgrind, pin")


def test_no_module_but_the_tracers_own_names_a_tracer() -> None:
    folder = Path(package.__file__).parent
    own = folder / "pipeline" / "tracers"
    naming = [
        path.relative_to(folder)
        for path in [*folder.rglob("*.py"), *folder.rglob("*.j2")]
        if "valgrind" in path.read_text(encoding="utf-8").lower()
    ]
    assert {path.parent for path in naming} == {own.relative_to(folder)}, naming
