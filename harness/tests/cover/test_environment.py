# SPDX-License-Identifier: Apache-2.0
"""Where a campaign ran: found out without failing it, kept with its results."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import samples
from faultline.base.cache import Cache
from faultline.campaign.results import Results
from faultline.pipeline import doctor, environment
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop


def test_the_facts_are_there(root: Path, cache: Cache, fake_engine: Callable[[dict[str, Any]], Path]) -> None:
    facts = environment.describe(Workshop(root, cache, Engine(fake_engine({})))).facts
    assert facts["engine"] == "faultline-engine fake"
    assert "PM" in facts["heaps"] or "MAP_SYNC" in facts["heaps"]
    assert all(facts.values()), facts
    assert not [name for name in ("valgrind", "gcc", "kernel", "processor") if "unknown" in facts[name]]


@pytest.mark.parametrize(
    ("flags", "flushes"),
    [
        ("fpu clflush clwb clflushopt", ("clwb", "clflushopt", "clflush")),
        ("fpu clflush clflushopt", ("clflushopt", "clflush")),
        ("", ("clflush",)),
    ],
)
def test_the_flushes_of_the_processor(
    root: Path, cache: Cache, monkeypatch: pytest.MonkeyPatch, flags: str, flushes: tuple[str, ...]
) -> None:
    monkeypatch.setattr(environment, "_of_first_processor", lambda field: {"flags": flags}.get(field, ""))
    assert environment.flushes() == flushes
    assert environment.best_flush() == flushes[0]
    told = environment.describe(Workshop(root, cache, Engine())).facts["flushes"]
    assert told.startswith(", ".join(flushes))
    assert ("is a clflush" in told) == ("clwb" not in flags)


@pytest.mark.parametrize("flags", ["clflush clflushopt clwb", "clflush clflushopt"])
def test_doctor_tries_whether_a_flush_that_lacks_can_be_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, flags: str
) -> None:
    def check() -> doctor.Check:
        return doctor._check("flushes", doctor._flushes)

    monkeypatch.setattr(environment, "_of_first_processor", lambda field: {"flags": flags}.get(field, ""))
    assert check().is_good
    for memory in (Path("/dev/null"), tmp_path / "hidden"):
        monkeypatch.setattr(doctor, "OWN_MEMORY", memory)
        found = check()
        assert found.is_good == ("clwb" in flags), found
        if not found.is_good:
            assert "a recovery with clwb, which this processor lacks" in found.detail
            assert found.hint == "build for a flush that it has: --flush clflushopt"


def test_what_cannot_be_found_out_is_unknown(tmp_path: Path, cache: Cache) -> None:
    facts = environment.describe(Workshop(tmp_path, cache, Engine(tmp_path / "none"), tmp_path / "no folder")).facts
    for name in ("engine", "revision", "heaps"):
        assert facts[name].startswith("unknown: "), facts


def test_the_revision_says_when_the_tree_is_not_as_committed(tmp_path: Path) -> None:
    def git(*words: str) -> None:
        name = ["-c", "user.name=n", "-c", "user.email=e"]
        subprocess.run(["git", "-C", str(tmp_path), *name, *words], check=True, capture_output=True)

    git("init")
    (tmp_path / "file").write_text("a")
    git("add", "file")
    git("commit", "-m", "m")
    clean = environment.revision(tmp_path)
    assert len(clean) == 12
    (tmp_path / "file").write_text("b")
    assert environment.revision(tmp_path) == f"{clean}, with uncommitted changes"


def test_the_longest_mount_point_names_the_file_system(tmp_path: Path) -> None:
    assert environment.file_system_of(Path("/proc/self")).startswith("proc (")
    assert environment.file_system_of(tmp_path).endswith(f"({tmp_path})")


def test_the_environment_is_kept_with_the_campaign(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.sqlite")
    results.begin("run", "k", [samples.spec()], samples.ENVIRONMENT)
    kept = results.environment()
    assert (kept.command, kept.facts) == (samples.ENVIRONMENT.command, samples.ENVIRONMENT.facts)
    assert kept.started_utc
    results.begin("run", "k", [samples.spec()])
    assert results.environment().facts == {}


@pytest.mark.parametrize("is_refused", [False, True])
def test_doctor_says_where_addresses_cannot_be_fixed(monkeypatch: pytest.MonkeyPatch, is_refused: bool) -> None:
    """As a container's seccomp profile refuses it: personality answers -1. What was set for the question is taken back."""
    asked: list[int] = []

    def personality(value: Any) -> int:
        asked.append(value.value)
        return -1 if is_refused and value.value not in (0, doctor.ASK_PERSONALITY) else 0

    monkeypatch.setattr(doctor.ctypes, "CDLL", lambda *_, **__: SimpleNamespace(personality=personality))
    found = doctor._check("addresses", doctor._addresses)
    assert found.is_good
    assert ("personality is refused here" in found.detail) == is_refused
    assert asked == [doctor.ASK_PERSONALITY, doctor.ADDR_NO_RANDOMIZE, *([] if is_refused else [0])]
