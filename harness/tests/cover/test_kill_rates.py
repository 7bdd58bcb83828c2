# SPDX-License-Identifier: Apache-2.0
"""The kill rate that a matrix says is that of the very build it explored."""

from __future__ import annotations

from pathlib import Path

import pytest

import samples
from faultline import kill_rates, report, terminal
from faultline.cache import Cache
from faultline.kill_rates import KillRate
from faultline.results import CellResult, kill_rates_of

RATE = KillRate("nvm_malloc", ["smoke", "churn"], places=36, killed=30, redundant=4, blind=2, unknown=0)


def test_it_is_kept_by_build(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kill_rates.keep(cache, "one", RATE)
    assert kill_rates.find(cache, "one") == RATE
    assert kill_rates.find(cache, "other") is None
    later = KillRate("nvm_malloc", ["smoke"], places=36, killed=36, redundant=0, blind=0, unknown=0)
    kill_rates.keep(cache, "one", later)
    assert kill_rates.find(cache, "one") == later


def test_what_cannot_be_read_was_not_measured(tmp_path: Path) -> None:
    cache = Cache(tmp_path)
    kill_rates.keep(cache, "one", RATE)
    for text in ("", "{", '{"allocator": "nvm_malloc"}'):
        (tmp_path / kill_rates.FOLDER / "one.json").write_text(text)
        assert kill_rates.find(cache, "one") is None


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
    assert kill_rates_of(results) == {"nvm_malloc": RATE, "other": None}


def test_summaries_and_reports_say_it_or_that_it_is_not_there(capsys: pytest.CaptureFixture[str]) -> None:
    results = [CellResult(samples.spec(), kill_rate=RATE), CellResult(samples.spec(allocator="other"))]
    terminal.print_results(results)
    said = capsys.readouterr().out
    assert "nvm_malloc: kill rate 93.8% of the flushes" in said
    assert "other: kill rate not measured of this build: faultline mutate other" in said
    html = report.html(results, "done")
    assert "nvm_malloc: 93.8% of the flushes" in html
    assert "not measured of this build of other" in html
