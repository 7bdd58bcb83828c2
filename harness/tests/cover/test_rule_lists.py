# SPDX-License-Identifier: Apache-2.0
"""A rule is one entry: of the table in oracle/src/rule.rs, or of the one in crashgen/src/trace_rules.rs. What else lists rules is
made from that or is checked here. UPDATE_SNAPSHOTS=1 rewrites the tables of docs/allocators.md."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path

import pytest

import samples
from command_line import Faultline
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Rule

TABLES = {"heap": "| rule | broken when |", "trace": "| rule | warns of |"}
SOURCES = ("oracle/src", "crashgen/src", "crashgen/engine/src", "harness/faultline")


@pytest.fixture(scope="module")
def rules(scripts: Path) -> list[Rule]:
    return Engine(scripts / "faultline-engine").rules()


def with_rows(page: str, head: str, rows: list[str]) -> str:
    """The page with these rows in the table that has this head."""
    table = re.compile(re.escape(f"{head}\n|---|---|\n") + r"(?:\|.*\n)*")
    assert len(table.findall(page)) == 1
    text = "\n".join([head, "|---|---|", *rows, ""])
    return table.sub(lambda _: text, page)


def test_the_page_on_allocators_has_every_rule_and_what_it_means(root: Path, rules: list[Rule]) -> None:
    path = root / "docs" / "allocators.md"
    written = path.read_text(encoding="utf-8")
    for judges, head in TABLES.items():
        written = with_rows(
            written, head, [f"| {rule.id} | {rule.meaning} |" for rule in rules if rule.judges == judges]
        )
    if os.environ.get("UPDATE_SNAPSHOTS"):
        path.write_text(written, encoding="utf-8")
    assert path.read_text(encoding="utf-8") == written, "UPDATE_SNAPSHOTS=1 writes the tables"


def test_rules_are_listed(faultline: Faultline, rules: list[Rule]) -> None:
    assert rules == sorted(rules, key=lambda rule: (rule.judges, rule.id))
    assert {rule.judges for rule in rules} == {"heap", "trace"}
    lines = faultline("list").stdout.splitlines()
    assert [f"  {rule.id}: {rule.meaning}" for rule in rules] == lines[-len(rules) :]
    listed = json.loads(faultline("list", "--json").stdout)["rules"]
    assert [(rule["id"], rule["title"]) for rule in listed] == [(rule.id, rule.title) for rule in rules]


def test_titles_and_meanings_are_written_in_one_place(root: Path, rules: list[Rule]) -> None:
    found: dict[str, set[str]] = {text: set() for rule in rules for text in (rule.title, rule.meaning)}
    for folder in SOURCES:
        for path in sorted((root / folder).rglob("*")):
            if path.suffix in (".rs", ".py", ".j2"):
                source = path.read_text(encoding="utf-8")
                for text in found:
                    if f'"{text}"' in source:
                        found[text].add(path.relative_to(root).as_posix())
    tables = {"heap": "oracle/src/rule.rs", "trace": "crashgen/src/trace_rules.rs"}
    for rule in rules:
        assert (found[rule.title], found[rule.meaning]) == ({tables[rule.judges]}, {tables[rule.judges]}), rule.id


def test_samples_are_as_the_engine_says_it(rules: list[Rule]) -> None:
    texts = {rule.id: (rule.title, rule.meaning) for rule in rules}
    shown = [samples.FINDING, *samples.TRACE_RULES["warnings"]]
    assert [(one["title"], one["meaning"]) for one in shown] == [texts[one["rule"]] for one in shown]


@pytest.mark.parametrize(
    ("allocator", "promises"),
    [
        ("makalu", []),
        (
            "nvmalloc",
            [
                "FL016: promised and not judged: detects header-flip",
                "FL016: promised and not judged: isolates header-flip",
            ],
        ),
    ],
)
def test_a_certificate_names_what_the_contract_promises_and_nothing_judged(
    faultline: Faultline, allocator: str, promises: list[str]
) -> None:
    (cell,) = json.loads(faultline("run", allocator, "-w", "smoke", "--json").stdout)["cells"]
    named = [f"{skipped['rule']}: {skipped['why']}" for skipped in cell["certificate"]["rules_not_judged"]]
    assert [line for line in named if ": promised and not judged" in line] == promises
