# SPDX-License-Identifier: Apache-2.0
"""`make bench-peers` at its smallest: what is missing is said, what others print is read, their states are compared with those that
x86 allows. What needs pmemcheck or pmreorder itself runs where PMEMCHECK_VALGRIND and PMREORDER name them."""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline
from faultline.base.errors import InfrastructureError

PMEMCHECK, PMREORDER = "PMEMCHECK_VALGRIND", "PMREORDER"
NO_PMEMCHECK = f"{PMEMCHECK} names no Valgrind that has pmemcheck (ci/pmemcheck.sh builds one)"
NO_PMREORDER = f"{PMREORDER} names no folder that has pmreorder (a checkout of pmem/pmdk)"


@pytest.fixture(scope="module", autouse=True)
def _bench_modules(root: Path) -> None:
    sys.path.insert(0, str(root / "ci"))


def run_bench(root: Path, out: Path, *parts: str, **variables: str) -> subprocess.CompletedProcess[str]:
    """variables: which peers there are, beside those of the caller only where they are named here."""
    environment = {name: value for name, value in os.environ.items() if name not in (PMEMCHECK, PMREORDER)}
    return subprocess.run(
        [sys.executable, "ci/bench.py", "--tiny", "--out", str(out), *parts],
        cwd=root,
        env={**environment, **variables},
        capture_output=True,
        text=True,
        check=False,
    )


# ---- what is missing -----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_what_is_missing_is_said_and_the_rest_is_measured(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run = run_bench(root, out, "peers-tracing", "peers-exploring")
    assert run.returncode == 3, run.stdout + run.stderr
    lines = run.stdout.splitlines()
    [pmemcheck] = [line for line in lines if line.startswith("peers-tracing: missing: pmemcheck: ")]
    assert PMEMCHECK in pmemcheck
    assert "ci/pmemcheck.sh" in pmemcheck
    [pmreorder] = [line for line in lines if line.startswith("peers-exploring: missing: pmreorder: ")]
    assert PMREORDER in pmreorder
    figures = json.loads(out.read_text())
    assert set(figures["missing"]) == {"peers-tracing", "peers-exploring"}
    assert not figures["failures"]
    assert [row["allocator"] for row in figures["peers-tracing"]] == ["pbit", "nvm_malloc", "pmdk"]
    assert all(set(row["times"]) == {"native", "faultline"} for row in figures["peers-tracing"])
    clean, bug, opened = (row["faultline"]["full"] for row in figures["peers-exploring"])
    for run_of in (clean, opened):
        assert (run_of["verdict"], run_of["complete"], run_of["first_s"]) == ("pass", True, None)
    assert (bug["verdict"], bug["rules"][0]) == ("fail", "FL008")
    assert bug["first_s"] <= bug["wall_s"]


@pytest.mark.parametrize(
    ("variable", "content", "words"),
    [
        (PMEMCHECK, None, ("no program is there",)),
        (PMEMCHECK, "#!/bin/sh\nexit 1\n", ("this Valgrind does not have it",)),
        (PMREORDER, None, ("no pmreorder.py is there", "src/tools/pmreorder")),
    ],
)
def test_what_is_named_and_is_none_is_said(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, variable: str, content: str | None, words: tuple[str, ...]
) -> None:
    import peers

    path = tmp_path / "peer"
    if content is not None:
        path.write_text(content)
        path.chmod(0o755)
    monkeypatch.setenv(variable, str(path))
    with pytest.raises(peers.MissingError) as error:
        peers.find_pmemcheck() if variable == PMEMCHECK else peers.find_pmreorder()
    said = f"{error.value.message} {error.value.hint}"
    for word in (f"{variable}={path}", *words):
        assert word in said


@pytest.mark.parametrize("below", ["", "src/tools/pmreorder"])
def test_pmreorder_is_found_in_a_checkout_and_in_its_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, below: str
) -> None:
    import peers

    (tmp_path / below).mkdir(parents=True, exist_ok=True)
    (tmp_path / below / "pmreorder.py").touch()
    monkeypatch.setenv(PMREORDER, str(tmp_path))
    assert peers.find_pmreorder() == tmp_path / below / "pmreorder.py"


def test_the_parts_of_peers_run_only_where_they_are_named(root: Path) -> None:
    run = subprocess.run(
        [sys.executable, "ci/bench.py", "--help"], cwd=root, capture_output=True, text=True, check=True
    )
    assert "all but peers-tracing, peers-exploring" in " ".join(run.stdout.split())


# ---- what x86 allows, and what pmreorder checked ------------------------------------------------------------------------

STATES = [
    {"position": 3, "images": ["case-0/heap:4096:1=aa,;"]},
    {"position": 4, "images": ["case-0/heap:4096:;case-0/log:64:0=01,;", "case-0/heap:4096:2=bb,3=cc,;"]},
    {"position": 5, "images": ["case-0/heap:4096:2=bb,3=cc,;"]},
]


def test_images_are_counted_at_the_positions_that_count() -> None:
    import peers

    said = [json.dumps(position) for position in STATES]
    assert peers.count_images(said, "case-0/heap", 3) == 3
    assert peers.count_images(said, "case-0/heap", 4) == 2
    many = json.dumps({"position": 6, "images": None})
    assert peers.count_images([*said, many], "case-0/heap", 4) is None
    assert peers.count_images([many, *said], "case-0/heap", 7) == 0


AA, BB, CC = ("aa" + "00" * 63, "bb" + "00" * 63, "cc" * 64)
ZEROS = "00" * 64


def position(*lines: tuple[int, list[str] | None], file: str = "heap") -> str:
    return json.dumps({"position": 9, "count": "9", "lines": [[file, *line] for line in lines]})


def image(**lines: str) -> str:
    return "".join(f"{name[1:]}={content}," for name, content in lines.items())


def test_an_image_is_possible_where_each_of_its_lines_is() -> None:
    import peers

    both, first, second, other = image(l1=AA, l2=BB), image(l1=AA), image(l2=BB), image(l1=CC)
    stray = image(l1=AA, l7=CC)
    said = [
        position((1, [ZEROS, AA]), (2, [ZEROS]), (5, [ZEROS])),
        position((2, [ZEROS, BB]), (1, [AA])),
        position((3, [BB])),
        position((1, [CC, AA, ZEROS]), file="another"),
    ]
    found = peers.judge(["", both, first, second, other, stray], said, "heap")
    assert found.possible == {"", first, both}, (
        "line 2 persists no earlier than line 1, and line 3 holds something at last"
    )
    assert not found.undecided


def test_where_a_line_holds_more_than_is_listed_an_image_is_undecided() -> None:
    import peers

    said = [position((1, None), (2, [BB])), position((1, [AA]))]
    found = peers.judge([image(l1=CC, l2=BB), image(l1=AA, l2=BB), image(l1=CC)], said, "heap")
    assert found.undecided == {image(l1=CC, l2=BB)}
    assert found.possible == {image(l1=AA, l2=BB)}


def test_the_creation_ends_where_it_returns() -> None:
    import peers

    dump = [
        "# a trace",
        "         6  1.1             0  operation begin     create",
        "       304  1.1             0  operation return    create: ok",
        "       319  1.1             1  operation return    allocate: ok",
    ]
    assert peers.first_position_after_creation(dump) == 304
    with pytest.raises(InfrastructureError, match="no creation"):
        peers.first_position_after_creation(dump[:2])


def checked(*images: tuple[bool, str]) -> Any:
    import peers

    lines = [f"{int(is_bad)} {5_000_000_000 + number} {image}\n" for number, (is_bad, image) in enumerate(images)]
    return peers.Replay([*peers.read_images([*lines, "1 5000"], 4_000_000_000)], 2.0, 1.0, True)


def test_a_bad_state_counts_as_found_only_where_x86_leaves_it_behind() -> None:
    import peers

    possible, forbidden, bug = image(l1=AA), image(l1=CC), image(l1=BB)
    found = checked((False, possible), (True, forbidden), (True, bug), (False, possible), (False, image(l9=BB)))
    judge = peers.judge((one.image for one in found.checked), [position((1, [AA, BB]))], "heap")
    row = peers.compared(found, judge)
    assert (row["states"], row["images"], row["possible_images"]) == (5, 4, 2)
    assert (row["forbidden"], row["undecided"], row["bad"], row["true_bad"]) == (2, 0, 2, 1)
    assert row["first_true_s"] == pytest.approx(1.000000002)
    assert row["states_per_s"] == 5
    assert peers.compared(checked((True, forbidden)), judge)["first_true_s"] is None


def test_an_undecided_state_is_neither_forbidden_nor_found() -> None:
    import peers

    found = checked((True, image(l1=CC)))
    row = peers.compared(found, peers.judge([image(l1=CC)], [position((1, None))], "heap"))
    assert (row["forbidden"], row["undecided"], row["bad"], row["true_bad"]) == (0, 1, 1, 0)


def test_a_log_is_cut_where_the_creation_returns() -> None:
    import peers

    head = "START|REGISTER_FILE;/pm/heap;0x1000;0x2000;0x0"
    creation = (
        "|faultline_create.BEGIN;0|STORE;0x1008;0xab;0x2;by create|FLUSH;0x1000;0x40|FENCE|faultline_create.END;0;0"
    )
    rest = "|faultline_allocate.BEGIN;1;0;32;2|STORE;0x1010;0x1;0x8|FLUSH;0x1000;0x40|FENCE|faultline_allocate.END;1;0|STOP\n"
    assert peers.without_creation(head + creation + rest) == (head + rest, [(8, b"\xab\x00")])
    for log in (head + rest, head + head + creation + rest):
        with pytest.raises(InfrastructureError, match="one of each was expected"):
            peers.without_creation(log)


SAID = """WARNING: File /dev/shm/files/case-0/heap (base: 0x100000000000, size: 0x9000) inconsistent
WARNING: Call trace:
Store [0]:
    by\tpbit_set_slot (pbit.h:91)

WARNING: File /dev/shm/files/case-0/heap (base: 0x100000000000, size: 0x9000) inconsistent
WARNING: Call trace:
"""


def ended(code: int, out: str, errors: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], code, out, errors)


def test_pmreorder_must_have_been_told_what_its_checker_answered() -> None:
    import peers

    peers.check_said("ReorderFull", ended(1, SAID), 2)
    peers.check_said("ReorderFull", ended(0, ""), 0)
    for run, bad in [(ended(1, SAID), 3), (ended(0, SAID), 2), (ended(1, ""), 0)]:
        with pytest.raises(InfrastructureError, match="ReorderFull: it says"):
            peers.check_said("ReorderFull", run, bad)
    with pytest.raises(InfrastructureError, match="ReorderFull: KeyError: 'x'"):
        peers.check_said("ReorderFull", ended(1, "", f"{peers.TRACEBACK}\n  File\nKeyError: 'x'\n"), 0)


@pytest.mark.slow
def test_what_lines_may_hold_and_images_are_the_same_states(
    faultline: Faultline, scripts: Path, root: Path, tmp_path: Path
) -> None:
    """The engine says both; the product of the first must be the second, at each position."""
    import peers

    workload, trace = tmp_path / "some.workload", tmp_path / "trace"
    workload.write_text("workload 1\nslots 8\ncase\nallocate 0 32\nallocate 3 200\nfree 0\nallocate 5 16\n")
    run = faultline(
        "trace", root / "harness" / "tests" / "pmemcheck", "--mutant", "TORN", "-w", workload, "--out", trace
    )
    assert run.returncode == 0, run.stderr
    dump = faultline("trace", trace, "--dump").stdout.splitlines()
    first = peers.first_position_after_creation(dump)

    def said(*words: str) -> list[dict[str, Any]]:
        done = subprocess.run(
            [str(scripts / "faultline-engine"), "states", str(trace), *words],
            capture_output=True,
            text=True,
            check=True,
        )
        return [json.loads(line) for line in done.stdout.splitlines()]

    images = {position["position"]: position["images"] for position in said()}
    holds: dict[int, list[str]] = {}
    most = 0
    for position in said("--lines", str(first)):
        holds.update({number: contents for _, number, contents in position["lines"]})
        numbers = sorted(holds)
        product = {
            "".join(
                f"{number}={content}," for number, content in zip(numbers, state, strict=True) if content.strip("0")
            )
            for state in itertools.product(*(holds[number] for number in numbers))
        }
        expected = {peers.lines_of(image, "case-0/heap") for image in images[position["position"]]}
        assert product == expected, position["position"]
        most = max(most, len(product))
    assert most > 100, "several lines were open at once"


# ---- the real ones -------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(PMREORDER not in os.environ, reason=NO_PMREORDER)
def test_pmreorder_and_we_explore_one_trace(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run = run_bench(root, out, "peers-exploring", **{PMREORDER: os.environ[PMREORDER]})
    assert run.returncode == 0, run.stdout + run.stderr
    import peers

    clean, bug, opened = json.loads(out.read_text())["peers-exploring"]
    for row in (clean, bug, opened):
        assert list(row["pmreorder"]) == list(peers.ENGINES)
        for found in row["pmreorder"].values():
            assert found["undecided"] == 0
            assert 0 < found["possible_images"] <= min(found["images"], row["possible_images"])
            assert found["images"] - found["possible_images"] <= found["forbidden"] < found["states"]
    for row in (clean, opened):
        assert not any(found["true_bad"] for found in row["pmreorder"].values()), "a bad state of a correct allocator"
        in_order = row["pmreorder"]["NoReorderDoCheck"]
        assert (in_order["forbidden"], in_order["bad"]) == (0, 0), "what is stored in the program's order is possible"
    assert clean["pmreorder"]["ReorderFull"]["bad"] > 0, "a tag behind its offset, which one line forbids"
    found = bug["pmreorder"]["ReorderFull"]
    assert found["is_whole"]
    assert found["true_bad"] > 0
    assert found["first_true_s"] < found["wall_s"]


def test_a_time_that_its_start_buries_is_marked() -> None:
    import bench_peers

    row = {
        "allocator": "pmdk",
        "operations": 3000,
        "rounds": 3,
        "times": {"native": 0.02, "faultline": 0.16, "pmemcheck": 0.4},
        "starts": {"native": 0.01, "faultline": 0.7, "pmemcheck": 10.5},
    }
    first, second = bench_peers.tracing_in_words([row], False)
    assert "faultline 8.0x, pmemcheck 20.0x (uncertain: its start takes far longer)" in first
    assert second.endswith("taken off: 0.0 s, 0.7 s, 10.5 s")


@pytest.mark.skipif(PMEMCHECK not in os.environ, reason=NO_PMEMCHECK)
def test_pmemcheck_runs_what_we_trace(root: Path, tmp_path: Path) -> None:
    out = tmp_path / "figures.json"
    run = run_bench(root, out, "peers-tracing", **{PMEMCHECK: os.environ[PMEMCHECK]})
    assert run.returncode == 0, run.stdout + run.stderr
    import bench_peers

    expected = ["native", bench_peers.OURS, bench_peers.NOTHING, *bench_peers.LOGS]
    for row in json.loads(out.read_text())["peers-tracing"]:
        assert list(row["times"]) == expected
        assert all(took > 0 for took in row["times"].values())
