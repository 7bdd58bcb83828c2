# SPDX-License-Identifier: Apache-2.0
"""FL015: a heap that may be mapped anywhere is recovered at other addresses than it was made at. An address in PM is found, and
nothing else is called one."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline
from foreign.cases import Case
from foreign.foreign_project import project_of_case

WORKLOAD = "workload 1\nslots 2\ncase\nallocate 0 64\nallocate 1 200\nfree 0\n"
ABSOLUTE, LOST = "LOG_ABSOLUTE", "MISSING_FLUSH_LINK"
ELSEWHERE = "mapped at another address, FL003: "


@pytest.fixture(scope="module")
def workload(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("relocation") / "two.workload"
    path.write_text(WORKLOAD)
    return path


def cell_of(faultline: Faultline, *words: str | Path) -> dict[str, Any]:
    run = faultline("run", *words, "--no-explain", "--no-shrink", "--json")
    (cell,) = json.loads(run.stdout)["cells"]
    return dict(cell)


def promised(cell: dict[str, Any]) -> list[str]:
    """Why FL015 was promised and not judged."""
    whys = [one["why"] for one in cell["certificate"]["rules_not_judged"] if one["rule"] == "FL015"]
    return [why.partition(" (at ")[0] for why in whys if why.startswith("promised and not judged: ")]


@pytest.mark.parametrize("more", [(), ("--strategy", "prefix"), ("--strategy", "floor")], ids=" ".join)
def test_an_address_in_the_log_is_found_and_its_token_shows_it_again(
    faultline: Faultline, workload: Path, more: tuple[str, ...]
) -> None:
    cell = cell_of(faultline, "nvm_malloc", "-w", workload, "--mutant", ABSOLUTE, *more)
    (finding,) = cell["findings"]
    assert finding["rule"] == "FL015"
    assert finding["message"].startswith(ELSEWHERE)
    again = faultline("replay", finding["token"])
    assert again.returncode == 1
    assert finding["id"] in again.stdout
    assert ELSEWHERE in again.stdout


def test_a_lost_store_breaks_its_own_rule_there_too(faultline: Faultline, workload: Path) -> None:
    cell = cell_of(faultline, "nvm_malloc", "-w", workload, "--mutant", LOST)
    assert "FL010" in {finding["rule"] for finding in cell["findings"]}
    assert "FL015" not in {finding["rule"] for finding in cell["findings"]}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("promise", "capability", "rules"), [(True, True, ["FL015"]), (False, True, []), (True, False, [])]
)
def test_it_is_judged_where_the_contract_promises_it_and_the_adapter_can(
    faultline: Faultline,
    root: Path,
    tmp_path: Path,
    workload: Path,
    *,
    promise: bool,
    capability: bool,
    rules: list[str],
) -> None:
    other = _other(root, tmp_path, "relocatable = true", f"relocatable = {str(promise).lower()}")
    if not capability:
        _replace(other / "adapter.c", "FL_CAN_RELOCATE |", "0 |")
    cell = cell_of(faultline, other, "-w", workload, "--mutant", ABSOLUTE, "--cache", tmp_path / ".faultline")
    assert [finding["rule"] for finding in cell["findings"]] == rules
    why = ["promised and not judged: relocatable, without FL_CAN_RELOCATE"]
    assert promised(cell) == (why if promise and not rules else [])
    assert ("FL015" in cell["certificate"]["rules_judged"]) == (promised(cell) == [])


@pytest.mark.slow
@pytest.mark.parametrize("hint", ["0x100000000000", "0x7e0000000000"], ids=["low", "near the end of addresses"])
def test_there_is_room_for_other_addresses_wherever_a_heap_is_made(
    faultline: Faultline, root: Path, tmp_path: Path, workload: Path, hint: str
) -> None:
    """An allocator that maps there or not at all."""
    other = _other(root, tmp_path, 'address_hint = "0x200000000000"', f'address_hint = "{hint}"')
    _replace(other / "src" / "heap.c", "if (base == MAP_FAILED)\n        base =", "if (hint == 0)\n        base =")
    cell = cell_of(faultline, other, "-w", workload, "--cache", tmp_path / ".faultline")
    assert cell["verdict"] == "pass", cell["findings"]
    assert "FL015" in cell["certificate"]["rules_judged"]


@pytest.mark.slow
@pytest.mark.parametrize(("alignment", "rules"), [(4096, {"FL015"}), (65536, set()), (1 << 30, set())])
def test_an_allocator_that_holds_at_multiples_of_an_alignment_says_so(
    faultline: Faultline, root: Path, tmp_path: Path, workload: Path, alignment: int, rules: set[str]
) -> None:
    """One that refuses to open a heap at any other address."""
    promise = f"relocatable = true\nmapping_alignment = {alignment}"
    other = _other(root, tmp_path, "relocatable = true", promise)
    refuses = 'if ((uintptr_t)base % 65536 != 0)\n        return nvm_fail(NVM_ERROR, "%s", "not here");\n    heap->base = base;'
    _replace(other / "src" / "heap.c", "heap->base = base;", refuses)
    cell = cell_of(faultline, other, "-w", workload, "--cache", tmp_path / ".faultline")
    assert {finding["rule"] for finding in cell["findings"]} == rules
    assert "FL015" in cell["certificate"]["rules_judged"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("define", "engine", "broken"),
    [
        ("KEEPS_FUNCTION", "in-process", "FL001: recovery died of signal 11"),
        ("KEEPS_FUNCTION", "traced", "FL001: recovery died of signal 11"),
        ("KEEPS_DATA", "traced", "FL003: recovery answered corrupt"),
    ],
)
def test_an_address_of_code_in_pm_is_found_and_its_token_shows_it_again(
    faultline: Faultline, root: Path, tmp_path: Path, workload: Path, define: str, engine: str, broken: str
) -> None:
    place = project_of_case(Case("keeps", define, ""), root, tmp_path / "project") / "allocators" / "ways"
    cache = cache_that_shares_builds(root, tmp_path / ".faultline").folder
    cell = cell_of(faultline, place, "-w", workload, "--replay-engine", engine, "--cache", cache)
    assert {finding["rule"] for finding in cell["findings"]} == {"FL015"}
    assert "FL015" in cell["certificate"]["rules_judged"]
    finding = cell["findings"][0]
    assert finding["message"].startswith(f"with its code at another address, {broken}")
    again = faultline("replay", finding["token"], "--cache", cache, cwd=place.parent)
    assert again.returncode == 1, again.stderr
    assert finding["id"] in again.stdout
    assert "with its code at another address" in again.stdout


@pytest.mark.slow
def test_an_adapter_that_does_not_map_where_it_is_told_to_is_named(
    faultline: Faultline, root: Path, tmp_path: Path
) -> None:
    (tmp_path / "one.workload").write_text("workload 1\nslots 1\ncase\nallocate 0 64\n")
    files = root / "harness" / "tests" / "exploration" / "files"
    cell = cell_of(faultline, files, "-w", tmp_path / "one.workload")
    assert promised(cell) == ["promised and not judged: the adapter does not map at address_hint"]
    assert cell["findings"] == []


def _other(root: Path, folder: Path, old: str, new: str) -> Path:
    """nvm_malloc in the folder, with another name and something else in its allocator.toml; the cache beside it has its builds."""
    place = folder / "nvm_malloc"
    shutil.copytree(root / "allocators" / "nvm_malloc", place)
    cache_that_shares_builds(root, folder / ".faultline")
    _replace(place / "allocator.toml", 'name = "nvm_malloc"', 'name = "other"')
    _replace(place / "allocator.toml", old, new)
    return place


def _replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert len(re.findall(re.escape(old), text)) == 1
    path.write_text(text.replace(old, new))
