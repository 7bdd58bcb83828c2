# SPDX-License-Identifier: Apache-2.0
"""Trace rules on real traces: what a mutant forgets is named at its place, and what operations pay does not grow unseen. The rules
themselves are tested in crashgen/src/trace_rules.rs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline, assert_one_clear_line

RULES = ("trace", "nvm_malloc", "-w", "smoke", "--rules")


def rules_of(faultline: Faultline, *more: str) -> dict[str, Any]:
    run = faultline(*RULES, "--json", *more)
    assert run.returncode == 0, run.stderr
    found: dict[str, Any] = json.loads(run.stdout)
    return found


@pytest.mark.parametrize(
    ("mutant", "rules", "function"),
    [
        ("MISSING_FLUSH_LINK", {"FL101", "FL103"}, "set_links"),
        ("MISSING_FLUSH_IDLE", {"FL101", "FL103"}, "nvm_header_complete"),
    ],
)
def test_a_mutant_breaks_rules_where_its_flush_is_missing(
    faultline: Faultline, mutant: str, rules: set[str], function: str
) -> None:
    def broken(*more: str) -> set[tuple[str, str]]:
        warnings = rules_of(faultline, *more)["warnings"]
        return {(warning["rule"], warning["site"]["function"]) for warning in warnings}

    new = broken("--mutant", mutant) - broken()
    assert {rule for rule, place in new if place == function} & rules, new


def test_costs_are_those_of_the_dump(faultline: Faultline) -> None:
    """Counted again from the text of the same trace."""
    costs = {cost["operation"]: cost for cost in rules_of(faultline)["costs"]["costs"]}
    dump = faultline("trace", "nvm_malloc", "-w", "smoke", "--dump").stdout.splitlines()
    names: dict[str, str] = {}
    flushes: dict[str, int] = {}
    for line in dump:
        operation, kind, rest = line[20:29].strip(), line[31:49].strip(), line[51:]
        if kind == "operation begin":
            names[operation] = rest.split()[0].rstrip(",")
        elif kind == "clwb" and operation in names:
            flushes[names[operation]] = flushes.get(names[operation], 0) + 1
    assert flushes
    assert {name: cost["flushes"] for name, cost in costs.items() if cost["flushes"]} == flushes


def test_protect_fails_when_an_operation_pays_more(faultline: Faultline, tmp_path: Path) -> None:
    kept = tmp_path / "costs.json"
    written = faultline(*RULES, "--protect", kept, "--update")
    assert (written.returncode, written.stderr) == (
        0,
        f"{kept}: written, what operations of nvm_malloc smoke pay now\n",
    )
    same = faultline(*RULES, "--protect", kept)
    assert (same.returncode, same.stderr) == (0, "")
    cheaper = json.loads(kept.read_text())
    free = next(cost for cost in cheaper["costs"]["costs"] if cost["operation"] == "free")
    free["flushes"] -= 1
    kept.write_text(json.dumps(cheaper))
    run = faultline(*RULES, "--protect", kept)
    assert run.returncode == 1
    assert [line for line in run.stdout.splitlines() if line.startswith("grown: free: flushes ")]
    assert json.loads(kept.read_text()) == cheaper, "what fails is not written"
    assert faultline(*RULES, "--protect", kept, "--update").returncode == 0
    assert faultline(*RULES, "--protect", kept).returncode == 0


def test_what_cannot_be_compared_is_one_clear_line(faultline: Faultline, tmp_path: Path) -> None:
    kept = tmp_path / "costs.json"
    nowhere = tmp_path / "no" / "costs.json"
    assert_one_clear_line(
        faultline(*RULES, "--protect", nowhere, "--update"), 2, "costs.json: the file of --protect cannot be written"
    )
    assert_one_clear_line(faultline(*RULES, "--protect", kept), 2, "costs.json: cannot be read", "with --update")
    assert not kept.exists(), "a wrong name protects nothing"
    assert_one_clear_line(faultline(*RULES, "--update"), 2, "--protect FILE")
    kept.write_text("{}")
    assert_one_clear_line(faultline(*RULES, "--protect", kept), 2, "expected what --protect writes", "--update")
    kept.write_text(faultline("trace", "nvm_malloc", "-w", "chain", "--rules", "--json").stdout)
    assert_one_clear_line(faultline(*RULES, "--protect", kept), 2, "nvm_malloc chain", "nvm_malloc smoke")
    assert_one_clear_line(faultline(*RULES, "--dump"), 2, "--dump prints events")
