# SPDX-License-Identifier: Apache-2.0
"""matrix --shard, merge and --changed: shards are the whole matrix once, what they give is what one machine gives, and what did not
change is not explored again."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as some

import samples
from command_line import Faultline, assert_one_clear_line
from faultline.campaign.results import CellResult, Results
from faultline.campaign.shards import Shard, part_of
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment, Part
from faultline.report.page import page


def specs(count: int) -> list[CellSpec]:
    return [samples.spec(workload=f"ace:{number}", ops=0) for number in range(count)]


def took(spec: CellSpec, seconds: float) -> CellResult:
    return CellResult(spec, verdict="pass", certificate=samples.certificate(), explore_s=seconds)


# ---- which cells ---------------------------------------------------------------------------------------------------------


@given(some.lists(some.floats(0, 1000), max_size=40), some.integers(1, 12), some.booleans())
def test_shards_have_every_cell_once_and_none_is_much_longer(seconds: list[float], count: int, is_known: bool) -> None:
    cells = specs(len(seconds))
    costs = list(map(took, cells, seconds)) if is_known else []
    parts = [part_of(Shard(index, count), cells, costs) for index in range(1, count + 1)]
    assert sorted(position for part in parts for position in part.positions) == list(range(len(cells)))
    assert len({part.key for part in parts}) == 1
    used = seconds if is_known else [1.0] * len(seconds)
    loads = [sum(used[position] for position in part.positions) for part in parts]
    assert max(loads) <= sum(used) / count + max(used, default=0) + 1e-6


def test_the_same_shard_is_the_same_everywhere() -> None:
    cells = specs(7)
    costs = [took(spec, seconds) for spec, seconds in zip(cells, (1, 9, 2, 8, 3, 7, 4), strict=True)]
    assert part_of(Shard(1, 2), cells, costs).positions == [0, 1, 4, 6]
    assert part_of(Shard(2, 2), cells, costs).positions == [2, 3, 5]
    assert part_of(Shard(1, 2), cells, list(reversed(costs))) == part_of(Shard(1, 2), cells, costs)
    assert part_of(Shard(1, 2), cells).positions == [0, 2, 4, 6]


def test_a_cell_without_a_time_costs_as_much_as_the_others() -> None:
    cells = specs(4)
    costs = [took(cells[0], 100), took(cells[1], 100)]
    assert part_of(Shard(1, 2), cells, costs).positions == [0, 2]


# ---- merge ---------------------------------------------------------------------------------------------------------------


def write(folder: Path, results: list[CellResult], part: Part | None, state: Any = "done") -> Path:
    folder.mkdir()
    database = Results(folder / "results.sqlite")
    where = msgspec.structs.replace(samples.ENVIRONMENT, part=part)
    campaign = database.begin("matrix", "key", [result.spec for result in results], where)
    for position, result in enumerate(results):
        database.cell(campaign, position, result)
    database.end(campaign, state)
    database.close()
    return folder


def sharded(tmp_path: Path, results: list[CellResult], count: int, name: str = "shard") -> list[Path]:
    parts = [part_of(Shard(index, count), [result.spec for result in results]) for index in range(1, count + 1)]
    return [
        write(tmp_path / f"{name}{part.index}", [results[position] for position in part.positions], part)
        for part in parts
    ]


@pytest.mark.slow
@pytest.mark.parametrize("count", [1, 3, 8])
def test_merged_shards_are_what_one_machine_gives(faultline: Faultline, tmp_path: Path, count: int) -> None:
    """8: three of the shards have no cell."""
    results = samples.campaign()
    whole = write(tmp_path / "whole", results, None)
    alone = faultline("report", "--out", whole)
    run = faultline("merge", *reversed(sharded(tmp_path, results, count)), "--out", tmp_path / "out")
    assert run.returncode == 1, run.stderr
    assert run.stdout == alone.stdout
    for name in ("cells", "summary", "state", "version"):
        before, after = (json.loads((one / "results.json").read_text())[name] for one in (whole, tmp_path / "out"))
        assert before == after, name
    merged = json.loads((tmp_path / "out" / "results.json").read_text())
    assert merged["environment"]["part"] is None
    assert merged["environment"]["facts"] == samples.ENVIRONMENT.facts
    for name in ("junit.xml", "results.sarif"):
        before, after = ((one / name).read_text() for one in (whole, tmp_path / "out"))
        assert [line for line in before.splitlines() if "2026" not in line and "faultline " not in line] == [
            line for line in after.splitlines() if "2026" not in line and "faultline " not in line
        ]
    assert faultline("report", "--compare", whole, tmp_path / "out").returncode == 0


@pytest.mark.slow
def test_shards_that_do_not_make_a_matrix_are_one_line(faultline: Faultline, tmp_path: Path) -> None:
    """Nothing is written before all of them are in order."""
    one, two, three = sharded(tmp_path, samples.campaign(), 3)
    other, *_ = sharded(tmp_path, samples.campaign()[:4], 3, "other")
    of_two, *_ = sharded(tmp_path, samples.campaign(), 2, "half")
    whole = write(tmp_path / "whole", samples.campaign(), None)
    out = tmp_path / "out"

    def refused(*folders: Path, said: str) -> None:
        assert_one_clear_line(faultline("merge", *folders, "--out", out), 2, said)
        assert not out.exists()

    refused(one, three, said="missing: shard 2/3")
    refused(one, two, three, two, said=f"{two}: is shard 2/3, as {two} is")
    refused(other, two, three, said=f"{two}: is shard 2/3 of another matrix than {other}, which is shard 1/3")
    refused(of_two, two, said="of another matrix")
    refused(whole, said=f"{whole}: is no shard")
    refused(tmp_path / "nosuch", said="is not there")
    assert_one_clear_line(faultline("merge", one, two, three, "--out", one), 2, "is the folder of a shard")
    assert_one_clear_line(faultline("merge"), 2, "DIR")


@pytest.mark.slow
def test_a_shard_that_was_cut_is_one_line(faultline: Faultline, tmp_path: Path) -> None:
    one, two = sharded(tmp_path, samples.campaign(), 2)
    for change in (
        "update campaign set state = 'stopped'",
        "update cell set result = null where position = 1; update campaign set state = 'done'",
    ):
        with sqlite3.connect(two / "results.sqlite") as connection:
            connection.executescript(change)
        connection.close()
        run = faultline("merge", one, two, "--out", tmp_path / "out")
        assert_one_clear_line(run, 2, f"{two}: shard 2/2 was cut: ", "it goes on where it stopped")
    half = two / "results.sqlite"
    half.write_bytes(half.read_bytes()[:5000])
    assert_one_clear_line(faultline("merge", one, two, "--out", tmp_path / "out"), 2, str(two))


def test_shards_of_different_costs_are_one_line(faultline: Faultline, tmp_path: Path) -> None:
    results = samples.campaign()
    one, _ = sharded(tmp_path, results, 2)
    part = part_of(Shard(2, 2), [result.spec for result in results])
    part = msgspec.structs.replace(part, positions=[0, 1])
    other = write(tmp_path / "other", results[:2], part)
    run = faultline("merge", one, other, "--out", tmp_path / "out")
    assert_one_clear_line(run, 2, "do not have each of the 5 cells once", "the same --costs")


@pytest.mark.parametrize("shard", ["0/2", "3/2", "1", "1/0", "a/b", "-1/2", "1/2/3", "1/99999"])
def test_a_shard_that_is_none(faultline: Faultline, shard: str) -> None:
    assert_one_clear_line(faultline("matrix", "--shard", shard), 2, "--shard", "1/4")


def test_options_that_need_a_campaign(faultline: Faultline, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(MATRIX)
    run = faultline("matrix", "-c", matrix, "--costs", tmp_path, "--out", tmp_path / "out")
    assert_one_clear_line(run, 2, "--costs is about shards")
    run = faultline("matrix", "-c", matrix, "--changed", tmp_path / "nosuch", "--out", tmp_path / "out")
    assert_one_clear_line(run, 2, "nosuch: is not there")


def test_the_report_of_a_shard_says_that_it_is_one() -> None:
    part = part_of(Shard(1, 2), [result.spec for result in samples.campaign()])
    [fact, *_] = page([], "done", Environment(part=part)).banner.facts
    assert (fact.label, fact.mark) == ("shard", "open")
    assert fact.text == "1/2: 3 of the 5 cells of the matrix; nothing is said here of the others"


# ---- for real ------------------------------------------------------------------------------------------------------------

MATRIX = """\
version = 1
[[cell]]
allocator = "nvm_malloc"
workload = "create"
[[cell]]
allocator = "nvm_malloc"
workload = "ace:1"
[[mutants]]
allocator = "nvm_malloc"
ids = ["MISSING_FLUSH_LINK"]
"""


def facts(folder: Path) -> list[dict[str, Any]]:
    """Of the cells, without what is a matter of the clock."""
    cells = json.loads((folder / "results.json").read_text())["cells"]
    for cell in cells:
        for name in ("build_s", "trace_s", "explore_s", "is_reused"):
            del cell[name]
        cell["certificate"].update(time_s=0, peak_memory_bytes=0)
        for explained in cell["explanations"]:
            explained["budget_s"] = 0
    return list(cells)


@pytest.mark.slow
def test_two_shards_of_a_matrix_give_what_one_run_gives(faultline: Faultline, tmp_path: Path) -> None:
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(MATRIX)

    def run(name: str, *more: object) -> str:
        done = faultline("matrix", "-c", matrix, "--out", tmp_path / name, "--jobs", 1, *more)
        assert done.returncode == 0, done.stderr
        return done.stderr

    run("whole")
    for index in (1, 2):
        said = run(f"shard{index}", "--shard", f"{index}/2", "--costs", tmp_path / "whole")
        assert f"shard {index}/2: " in said
    merged = faultline("merge", tmp_path / "shard2", tmp_path / "shard1", "--out", tmp_path / "merged")
    assert merged.returncode == 0, merged.stderr
    assert facts(tmp_path / "merged") == facts(tmp_path / "whole")
    said = run("again", "--changed", tmp_path / "merged" / "results.json")
    assert "3 cells that did not change; explored: 0 cells" in said
    assert "taken over: nvm_malloc create" in said
    assert facts(tmp_path / "again") == facts(tmp_path / "whole")
    matrix.write_text(MATRIX.replace("ace:1", "ace:2"))
    said = run("other", "--changed", tmp_path / "whole")
    assert "2 cells that did not change; explored: 1 cell" in said
