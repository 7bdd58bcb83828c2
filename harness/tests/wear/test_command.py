# SPDX-License-Identifier: Apache-2.0
"""`faultline wear` as users start it: what it writes, the gate, and bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base.cache import Cache
from faultline.base.errors import BadInputError
from faultline.base.project import Project
from faultline.pipeline.engine import Engine
from faultline.pipeline.workshop import Workshop
from faultline.wear import counting

SMALL = ("--ops", "60", "-w", "uniform:10:400")


@pytest.fixture(scope="module")
def out(faultline: Faultline, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wear")
    limits = folder / "limits.json"
    ended = faultline(
        "wear", "glibc", "jemalloc", "nvm_malloc", *SMALL, "--out", folder, "--protect", limits, "--update"
    )
    assert ended.returncode == 0, ended.stderr
    (folder / "said").write_text(ended.stdout)
    return folder


@pytest.mark.slow
def test_all_files_are_written_and_say_the_same(out: Path) -> None:
    assert {path.name for path in out.iterdir()} >= {
        "wear.json",
        "wear.csv",
        "wear.png",
        "wear.svg",
        "report.html",
        "limits.json",
    }
    wear = json.loads((out / "wear.json").read_text())
    assert [each["allocator"] for each in wear["allocators"]] == ["glibc", "jemalloc", "nvm_malloc"]
    rows = [row.split(",") for row in (out / "wear.csv").read_text().splitlines()[1:]]
    said = (out / "said").read_text()
    for each in wear["allocators"]:
        mine = [row for row in rows if row[0] == each["allocator"]]
        for column, view in ((3, "stores"), (4, "write_backs")):
            assert sum(int(row[column]) for row in mine) == each[view]["total"]
            assert max(int(row[column]) for row in mine) == each[view]["maximum"]
        assert sum(each["write_back_reasons"].values()) == each["write_backs"]["total"]
        assert (each["allocations"], each["frees"], each["failed"]) == (30, 30, 0)
        assert f"{each['stores']['total']:,}" in said
        assert f"{each['stores']['total']:,}" in (out / "report.html").read_text()
        object_lines = each["object_bytes"] / 64
        assert each["stores"]["total"] > object_lines, "every object is written whole"
        assert max(1, each["hottest"][0]["stores"]) == each["stores"]["maximum"]


@pytest.mark.slow
def test_the_gate_fails_when_more_is_written_and_not_before(faultline: Faultline, out: Path, tmp_path: Path) -> None:
    same = faultline("wear", "nvm_malloc", *SMALL, "--protect", out / "limits.json")
    assert same.returncode == 0, same.stderr
    assert "grown" not in same.stdout
    limits = json.loads((out / "limits.json").read_text())
    total = limits["limits"]["nvm_malloc"]["stores"]["total"]
    limits["limits"]["nvm_malloc"]["stores"]["total"] = int(total / 1.04)
    tight = tmp_path / "tight.json"
    tight.write_text(json.dumps(limits))
    grown = faultline("wear", "nvm_malloc", *SMALL, "--protect", tight)
    assert grown.returncode == 1
    assert f"grown: nvm_malloc: total stores {int(total / 1.04):,} to {total:,} (+" in grown.stdout
    words = [line.removeprefix("grown: ") for line in grown.stdout.splitlines() if line.startswith("grown: ")]
    in_json = faultline("wear", "nvm_malloc", *SMALL, "--protect", tight, "--json")
    assert in_json.returncode == 1
    assert json.loads(in_json.stdout)["grown"] == words
    assert faultline("wear", "nvm_malloc", *SMALL, "--protect", tight, "--tolerance", "5%").returncode == 0
    assert json.loads(tight.read_text()) == limits, "written with --update only"


@pytest.mark.slow
def test_the_report_of_a_campaign_has_the_wear_page(faultline: Faultline, tmp_path: Path) -> None:
    assert faultline("wear", "glibc", *SMALL, "--out", tmp_path, "--format", "svg").returncode == 0
    assert not (tmp_path / "wear.png").exists()
    matrix = tmp_path / "matrix.toml"
    matrix.write_text(
        "version = 1\n[[cell]]\nallocator = 'nvm_malloc'\nworkload = 'churn'\nops = 2\nstrategy = 'floor'\n"
    )
    assert faultline("matrix", "-c", matrix, "--out", tmp_path).returncode == 0
    page = (tmp_path / "report.html").read_text()
    assert 'id="wear"' in page
    assert 'id="certificates"' in page
    assert faultline("wear", "jemalloc", *SMALL, "--out", tmp_path).returncode == 0
    again = (tmp_path / "report.html").read_text()
    assert 'id="certificates"' in again
    assert "libjemalloc" in again
    (tmp_path / "wear.json").write_text("{")
    assert faultline("report", "--out", tmp_path).returncode == 0, "a bad file beside a campaign loses no report"
    without = (tmp_path / "report.html").read_text()
    assert "no wear page: " in without
    assert 'id="certificates"' in without


def test_a_damaged_campaign_beside_it_is_refused_before_anything_is_counted(
    faultline: Faultline, tmp_path: Path
) -> None:
    (tmp_path / "results.sqlite").write_text("no database")
    (tmp_path / "report.html").write_text("the campaign's")
    ended = faultline("wear", "glibc", *SMALL, "--out", tmp_path)
    assert (ended.returncode, "results.sqlite: is not a results database" in ended.stderr) == (2, True), ended.stderr
    assert (tmp_path / "report.html").read_text() == "the campaign's"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["report.html", "results.sqlite"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["nosuch"], ["unknown allocator 'nosuch'", "glibc, jemalloc"]),
        (["glibc:x"], ["glibc:x: expected glibc:T"]),
        (["glibc", "--baseline", "makalu"], ["--baseline makalu", "name one of glibc"]),
        (["glibc", "--format", "png,gif"], ["--format gif: no such picture format", "png, svg"]),
        (["glibc", "--line", "48"], ["--line 48", "power of two"]),
        (["glibc", "--cache-model", "1MiB"], ["--cache-model 1MiB", "SIZE,WAYS"]),
        (["glibc", "--cache-model", "100,3"], ["--cache-model 100,3", "multiple of 3 lines of 64 bytes"]),
        (["glibc", "--protect", "nosuch.json", "--tolerance", "5"], ["--tolerance 5", "as in 5%"]),
        (["glibc", "--update"], ["name it with --protect FILE"]),
        (["glibc", "--protect", "nosuch.json"], ["nosuch.json: cannot be read", "--update"]),
        (["glibc", "-w", "threads"], ["has threads", "one thread"]),
        (["glibc", "-w", "reopen"], ["has reopen", "one heap, one process", "--through-adapter"]),
        (["nvm_malloc", "--through-adapter", "-w", "threads"], ["has threads", "one thread"]),
        (["nvm_malloc", "makalu", "--through-adapter", "-w", "fill"], ["made for the heap of one allocator"]),
        (["nvm_malloc", "--heap-bytes", "65536"], ["--heap-bytes", "--through-adapter"]),
        (["nvm_malloc", "--through-adapter", "--heap-bytes", "5000"], ["--heap-bytes 5000", "multiple of 4096"]),
        (["glibc", "-w", "graph"], ["one heap, one process"]),
        (["glibc", "-w", "ace:2"], ["made for the heap of one allocator"]),
        (["glibc", "-w", "nosuch"], ["unknown workload"]),
        (["glibc", "--endurance", "0"], ["--endurance 0.0: expected 1 to 1e+18 writes"]),
        (["glibc", "--endurance", "inf"], ["--endurance inf: expected"]),
        (["glibc", "--endurance", "nan"], ["--endurance nan: expected"]),
        (["glibc", "--capacity", "9223372036854775808"], ["--capacity"]),
        (["glibc", "--format", ","], ["--format: expected a list", "png, svg"]),
        (["glibc", "--tolerance", "5%"], ["--tolerance", "name it with --protect FILE"]),
        ([], ["ALLOCATOR"]),
    ],
)  # fmt: skip
def test_bad_input_is_one_clear_line(faultline: Faultline, arguments: list[str], words: list[str]) -> None:
    assert_one_clear_line(faultline("wear", *arguments), 2, *words)


def test_a_file_of_another_setting_is_refused_before_anything_runs(faultline: Faultline, out: Path) -> None:
    limits = out / "limits.json"
    for other, words in (
        (["nvm_malloc", *SMALL, "--line", "128"], "lines of 64 bytes, here 128"),
        (["nvm_malloc", *SMALL, "--seed", "2"], "here uniform:10:400 --ops 60 --seed 2"),
        (["makalu", *SMALL], "has no makalu"),
    ):
        assert_one_clear_line(faultline("wear", *other, "--protect", limits), 2, str(limits), words)
    damaged = out / "damaged.json"
    damaged.write_text(limits.read_text()[:-20])
    assert_one_clear_line(
        faultline("wear", "nvm_malloc", *SMALL, "--protect", damaged), 2, str(damaged), "with --update it is written"
    )


def test_a_workload_without_writes_has_no_wear(faultline: Faultline, tmp_path: Path) -> None:
    workload = tmp_path / "nothing.workload"
    workload.write_text("workload 1\nslots 1\ncase\n")
    assert_one_clear_line(faultline("wear", "glibc", "-w", workload), 2, "has no operations")


def test_a_target_without_writes_to_persistent_memory_has_no_wear(root: Path) -> None:
    """malloc, looked for in files that it does not map."""
    workshop = Workshop(root, Cache(root / ".faultline"), Engine(None), None)
    workload = counting.find_workload(workshop, [], "uniform:10:400", 60, 1)
    subject = counting.Subject("glibc", "glibc", is_persistent=True)
    with pytest.raises(BadInputError, match=r"glibc: workload uniform:10:400 made no write to persistent memory"):
        counting.count(workshop, subject, workload, 64, counting.CacheModel(1 << 20, 16))


def test_the_driver_takes_no_memory_from_malloc(root: Path) -> None:
    """stdio would, for what the driver says at its end: its buffer would be in the heap that is counted."""
    workshop = Workshop(root, Cache(root / ".faultline"), Engine(None), None)
    workload = counting.find_workload(workshop, [], "uniform:10:40", 4, 1)
    subject = counting.find_subject(Project(root), "glibc")
    counts = counting.count(workshop, subject, workload, 64, counting.CacheModel(1 << 20, 16)).counts
    assert len(counts.hottest) == len(counts.lines), "all lines say who stores to them"
    sites = {
        site.place.partition(" (")[0] for line in counts.hottest for site in line.sites if "(wear.c:" in site.place
    }
    assert sites == {"write_whole", "allocate", "free_object"}


def test_an_allocator_whose_memory_does_not_wait_says_so(faultline: Faultline) -> None:
    ended = faultline("wear", "nvm_malloc:5", *SMALL)
    assert ended.returncode == 2
    assert "error: nvm_malloc: freed memory does not wait" in ended.stderr
