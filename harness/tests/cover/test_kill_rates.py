# SPDX-License-Identifier: Apache-2.0
"""The kill rate that a matrix says is that of the very build it explored."""

from __future__ import annotations

import json
import xml.etree.ElementTree as ET
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec
import pytest

import samples
from faultline.base.cache import Cache, project_root
from faultline.base.config import find_allocator
from faultline.campaign.results import CellResult, kill_rates_of, summarise
from faultline.pipeline.build import Built
from faultline.pipeline.target import Target
from faultline.pipeline.workshop import Workshop
from faultline.report import junit, reports, sarif
from faultline.report.terminal.campaigns import print_results
from faultline.study import kill_rates
from faultline.study.kill_rates import KillRate

RATE = KillRate("nvm_malloc", ["smoke", "churn"], places=36, killed=30, redundant=4, blind=2, unknown=0)


def test_it_says_where_fewer_operations_stand_for_a_workload() -> None:
    assert RATE.text().endswith("0 unknown (2 workloads)")
    shorter = msgspec.structs.replace(RATE, shortened=1)
    assert shorter.text().endswith("0 unknown (2 workloads, 1 place in fewer operations of one)")


def test_the_summary_has_that_of_all_allocators_in_one_word() -> None:
    whole = KillRate("makalu", ["smoke"], places=20, killed=10, redundant=10, blind=0, unknown=0)
    assert kill_rates.share_text([RATE, whole]) == "95.2%"  # 40 of 42
    assert kill_rates.share_text([whole, None, None]) == "100.0%(1/3)"
    assert kill_rates.share_text([None]) == "unmeasured"
    cells = [CellResult(samples.spec(allocator="makalu"), kill_rate=whole), CellResult(samples.spec(mutant="M"))]
    assert summarise(cells).line().endswith(" unknown=2 kill_rate=100.0%")
    assert "kill_rate" not in summarise(cells[1:]).line(), "no build of an allocator as it is"


def test_reports_for_machines_have_it() -> None:
    cells = [CellResult(samples.spec(), kill_rate=RATE), CellResult(samples.spec(allocator="other"))]
    suites = ET.fromstring(junit.render(cells))
    said = {one.get("name"): one.get("value") for one in suites.iter("property")}
    assert said == {
        f"kill rate of {samples.spec().allocator}": RATE.text(),
        "kill rate of other": "not measured of this build",
    }
    [run] = json.loads(sarif.render(cells))["runs"]
    assert run["properties"]["killRates"] == {
        name.removeprefix("kill rate of "): text for name, text in said.items() if name
    }


def test_it_is_kept_by_build(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kill_rates.keep(cache, "one", RATE)
    assert kill_rates.find(cache, "one") == RATE
    assert kill_rates.find(cache, "other") is None
    later = msgspec.structs.replace(RATE, killed=32, blind=0)
    kill_rates.keep(cache, "one", later)
    assert kill_rates.find(cache, "one") == later


def test_that_of_fewer_workloads_does_not_replace_one_of_more(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kill_rates.keep(cache, "one", RATE)
    kill_rates.keep(cache, "one", KillRate("nvm_malloc", ["smoke"], 36, 36, 0, 0, 0))
    assert kill_rates.find(cache, "one") == RATE


def test_it_is_of_the_tester_as_well_as_of_the_adapter(tmp_path: Path) -> None:
    """Another engine, runner, tracer or contract kills other places."""
    engine = tmp_path / "engine"

    def key(engine_bytes: bytes = b"engine", **changes: Any) -> str:
        engine.write_bytes(engine_bytes)
        parts = {name: Built(tmp_path, name) for name in ("adapter", "runner", "tracer")}
        parts |= {name: Built(tmp_path, value) for name, value in changes.items() if name in parts}
        allocator = find_allocator(project_root(), "nvm_malloc")
        if "contract" in changes:
            allocator = msgspec.structs.replace(allocator, contract=changes["contract"])
        workshop = cast(Workshop, SimpleNamespace(engine=SimpleNamespace(path=engine)))
        return kill_rates.build_key(workshop, Target(allocator, None, "clwb", **parts))

    contract = find_allocator(project_root(), "makalu").contract
    others = [key(b"other"), key(adapter="a"), key(runner="r"), key(tracer="t"), key(contract=contract)]
    assert len({key(), *others}) == 6
    assert key() == key()


def test_what_cannot_be_read_was_not_measured(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kill_rates.keep(cache, "one", RATE)
    for text in ("", "{", '{"allocator": "nvm_malloc"}'):
        (tmp_path / kill_rates.FOLDER / "one.json").write_text(text)
        assert kill_rates.find(cache, "one") is None
    (tmp_path / kill_rates.FOLDER / "two.json").mkdir()
    assert kill_rates.find(cache, "two") is None


def test_it_is_the_share_of_what_is_needed() -> None:
    assert RATE.share == pytest.approx(30 / 32)
    assert not RATE.is_whole
    assert RATE.text().startswith("93.8% of the flushes and fences it needs")


def test_it_is_that_of_clean_cells() -> None:
    results = [
        CellResult(samples.spec()),
        CellResult(samples.spec(workload="churn"), kill_rate=RATE),
        CellResult(samples.spec(allocator="other")),
        CellResult(samples.spec(allocator="third", mutant="M", expected_rule="FL004"), kill_rate=RATE),
    ]
    assert kill_rates_of(results) == {("nvm_malloc", "clwb"): RATE, ("other", "clwb"): None}


def test_that_of_one_flush_instruction_is_not_said_of_another(capsys: pytest.CaptureFixture[str]) -> None:
    results = [CellResult(samples.spec(), kill_rate=RATE), CellResult(samples.spec(flush="clflush"))]
    print_results(results)
    measure = "faultline mutate nvm_malloc --workload W --flush clflush"
    assert f"nvm_malloc clflush: kill rate not measured of this build: {measure}" in capsys.readouterr().out
    html = reports.html(results, "done")
    assert "not measured of this build of nvm_malloc clflush" in html
    assert f"<li>{measure}</li>" in html


def test_summaries_and_reports_say_it_or_that_it_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    results = [CellResult(samples.spec(), kill_rate=RATE), CellResult(samples.spec(allocator="other"))]
    print_results(results)
    said = capsys.readouterr().out
    assert "nvm_malloc: kill rate 93.8% of the flushes" in said
    assert "other: kill rate not measured of this build: faultline mutate other" in said
    html = reports.html(results, "done")
    assert "nvm_malloc: 93.8% of the flushes" in html
    assert "not measured of this build of other" in html
