# SPDX-License-Identifier: Apache-2.0
"""`faultline damage`: what allocators that are not ours make of damaged heaps."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline
from foreign.cases import WORKLOAD, Case
from foreign.foreign_project import project_of_case

Damage = Callable[..., dict[str, Any]]
FIRST_OBJECT = 0x4040
"""Behind the slots (ways/heap.h): three of the workload, 1024 of the probe."""


@pytest.fixture
def damage(faultline: Faultline, root: Path, tmp_path: Path) -> Damage:
    cache = cache_that_shares_builds(root, tmp_path / "cache").folder

    def of(
        defines: str,
        *words: str,
        detects: tuple[str, ...] = (),
        isolates: tuple[str, ...] = (),
        code: int = 0,
    ) -> dict[str, Any]:
        place = tmp_path / "place"
        if not place.exists():
            project_of_case(Case("damaged", defines, ""), root, place)
            (place / "ways.workload").write_text(WORKLOAD)
        path = place / "allocators" / "ways" / "allocator.toml"
        promises = ("detects", "isolates")
        kept = [line for line in path.read_text().splitlines() if not line.startswith(promises)]
        promised = [f"detects = {json.dumps(detects)}", f"isolates = {json.dumps(isolates)}"]
        path.write_text("\n".join([*kept, *promised]) + "\n")
        command = ("damage", "allocators/ways", "-w", "ways.workload", "--cache", cache, "--json", *words)
        ended = faultline(*command, cwd=place)
        assert ended.returncode == code, ended.stderr
        return dict(json.loads(ended.stdout)) if ended.stdout else {"said": ended.stderr}

    return of


def outcomes(report: dict[str, Any], kind: str) -> dict[str, int]:
    return {one["kind"]: dict(one["outcomes"]) for one in report["kinds"]}[kind]


def test_each_kind_of_damage_is_done_and_what_becomes_of_it_is_counted(damage: Damage) -> None:
    report = damage("")
    of_bytes = ["bit-flip", "header-flip", "zero-line", "old-line", "poison", "stray-store", "open-stray-store"]
    assert [one["kind"] for one in report["kinds"]] == [*of_bytes, "cut-file", "missing-file"]
    for one in report["kinds"]:
        if one["kind"] == "header-flip":
            assert one["possible"] == 0, "this allocator keeps nothing beside its objects"
            continue
        named = [found for found in report["damages"] if found["kind"] == one["kind"]]
        assert 0 < one["tried"] == sum(one["outcomes"].values()) == len(named) <= one["possible"]
    assert set(outcomes(report, "missing-file")) == {"detected"}
    assert set(outcomes(report, "bit-flip")) >= {"harmless", "detected", "silent"}
    assert (report["broken"], report["why_unknown"]) == ([], [])


@pytest.mark.slow
def test_objects_are_left_alone_also_where_the_allocator_copied_them(damage: Damage) -> None:
    """A reallocation did. No other bytes of the allocator lie where objects do."""
    names = [one["name"] for one in damage("", "--at-most", "100000")["damages"] if one["kind"] == "bit-flip"]
    offsets = [int(name.split(":")[2], 16) for name in names]
    assert offsets
    assert max(offsets) < FIRST_OBJECT


def poisoned(report: dict[str, Any]) -> set[str]:
    return {one["name"].split("@")[0] for one in report["damages"] if one["kind"] == "poison"}


def test_who_loads_of_a_poisoned_page_and_is_not_prepared_dies(damage: Damage) -> None:
    """Pages with something of the allocator's and nothing of an object: the head's, the record's, and the slots'."""
    report = damage("")
    assert poisoned(report) == {f"poison:heap:0x{page:x}" for page in (0, 0x1000, 0x2000)}
    assert {one["outcome"] for one in report["damages"] if one["kind"] == "poison"} == {"dies"}
    dead = {one["message"] for one in report["damages"] if one["kind"] == "poison"}
    assert dead == {"recovery died of signal 7 (SIGBUS)"}


@pytest.mark.parametrize(("way", "code"), [("SCRUBS=by_reads", 0), ("SCRUBS=by_loads", 0), ("", 1)])
def test_an_allocator_can_promise_to_detect_poison(damage: Damage, way: str, code: int) -> None:
    """By what reads of the file answer (EIO), or by catching the signal."""
    report = damage(way, detects=("poison",), code=code)
    assert set(outcomes(report, "poison")) == ({"dies"} if code else {"detected"})


def test_poison_that_a_stream_would_read_is_unknown(damage: Damage) -> None:
    report = damage("SCRUBS=by_stream", detects=("poison",), code=3)
    assert set(outcomes(report, "poison")) == {"unknown"}
    assert report["why_unknown"][0].endswith(": it has a stream of a file with a poisoned page")


@pytest.mark.parametrize(("way", "code"), [("PROTECTS", 0), ("", 1)])
def test_an_allocator_can_promise_to_keep_stray_stores_out(damage: Damage, way: str, code: int) -> None:
    """By write protection between operations. At rest the same words are another matter."""
    report = damage(way, detects=("open-stray-store",), code=code)
    stray = outcomes(report, "open-stray-store")
    assert set(stray) == ({"kept-out"} if way else {"harmless", "detected", "dies"})
    assert set(outcomes(report, "stray-store")) >= {"detected"}
    assert {one["kind"] for one in report["broken"]} == (set() if way else {"open-stray-store"})


@pytest.mark.slow
def test_a_heap_of_which_nothing_can_be_allocated_any_more_is_not_isolated(damage: Damage) -> None:
    """Of 0x50 a word is loaded by allocations alone."""
    report = damage("GATED", "--at-most", "100000", isolates=("bit-flip",), code=1)
    gate = [one for one in report["damages"] if one["name"].startswith("bit-flip:heap:0x50:")]
    assert {one["is_isolated"] for one in gate} == {False}
    assert {one["outcome"] for one in gate} == {"given-up"}
    assert {one["name"] for one in report["broken"]} >= {one["name"] for one in gate}
    assert {one["promise"] for one in report["broken"]} == {"isolated"}


def test_a_kind_that_is_promised_and_is_none_is_said(damage: Damage) -> None:
    report = damage("", detects=("bitflip",), code=3)
    assert report["why_unknown"] == ["bitflip is promised, and there is no such kind of damage"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defines", "at_most", "outcome", "rule"), [("SPINS", "40", "hangs", "FL002"), ("ASSERTS", "1000", "dies", "FL001")]
)
def test_damage_that_ends_a_recovery_is_told_from_what_it_answers(
    damage: Damage, defines: str, at_most: str, outcome: str, rule: str
) -> None:
    bad = [one for one in damage(defines, "--at-most", at_most)["damages"] if one["outcome"] == outcome]
    assert {one["rule"] for one in bad} == {rule}


@pytest.mark.slow
def test_one_damage_alone_is_done_again_by_its_name(damage: Damage) -> None:
    report = damage("")
    assert damage("") == report, "the same seed, the same damages"
    first = next(one for one in report["damages"] if one["outcome"] == "silent")
    assert damage("", "--only", first["name"])["damages"] == [first]
    said = damage("", "--only", "bit-flip:nothing:0x0:0@1", code=2)["said"]
    assert said.startswith("error: bit-flip:nothing:0x0:0@1: no heap of this workload can be damaged so")


@pytest.mark.parametrize(
    ("detects", "code", "broken"),
    [(("missing-file",), 0, set()), (("missing-file", "bit-flip"), 1, {"bit-flip"}), ((), 0, set())],
)
def test_what_the_contract_promises_to_detect_must_not_be_silent(
    damage: Damage, detects: tuple[str, ...], code: int, broken: set[str]
) -> None:
    report = damage("", detects=detects, code=code)
    assert {one["kind"] for one in report["broken"]} == broken
    assert {one["kind"] for one in report["kinds"] if one["promised"]} == set(detects)


def test_a_heap_that_is_broken_before_it_is_damaged_is_said(damage: Damage) -> None:
    report = damage("LOSES=16", detects=("cut-file",), code=3)
    assert report["damages"] == []
    *whys, last = report["why_unknown"]
    assert whys
    assert all(why.startswith("not in order before it is damaged, and left out: crash position ") for why in whys)
    assert last == "cut-file is promised, and no heap had one"
    alone = damage("LOSES=16", "--only", "missing-file:heap@1", code=3)
    assert alone["why_unknown"] == whys


@pytest.mark.slow
def test_the_time_that_is_asked_for_ends_it_and_that_is_said(damage: Damage) -> None:
    """Each hang takes a second."""
    report = damage("SPINS", "--at-most", "100000", "--time", "5", detects=("bit-flip",), code=1)
    assert [why for why in report["why_unknown"] if why.startswith("stopped after ")]
    assert any(one["tried"] < one["possible"] for one in report["kinds"])


@pytest.mark.parametrize("detects", [(), ("missing-file",)])
def test_an_allocator_that_ends_the_process_when_memory_is_out_does_not_die_of_damage(
    damage: Damage, tmp_path: Path, detects: tuple[str, ...]
) -> None:
    damage("ENDS_WHEN_FULL")
    path = tmp_path / "place" / "allocators" / "ways" / "allocator.toml"
    path.write_text(path.read_text() + 'out_of_memory = "ends"\n')
    report = damage("ENDS_WHEN_FULL", detects=detects)
    assert set(outcomes(report, "missing-file")) == {"detected"}
    assert {"harmless", "detected"} <= set(outcomes(report, "bit-flip"))
    assert "dies" not in outcomes(report, "bit-flip")
