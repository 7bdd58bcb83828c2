# SPDX-License-Identifier: Apache-2.0
"""The tester tested: faults planted in it, one at a time, each noticed by a test of the ordinary suite that knows of no faults.

The test passes on the build that holds all faults (builds.py) when none is chosen, and fails when the fault is. Besides, each place
in the oracle that says something is silenced in turn, and some test of the oracle must miss it. The gate plants a share of the
faults (share.py), `make nightly` all of them."""

from __future__ import annotations

import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import pytest

from drawn import drawn
from faultline.base.cache import Cache, project_root
from faultline.pipeline.build import build_runner
from planted import edited_tree, table
from planted.builds import Planted
from planted.edited_tree import VARIABLE
from planted.share import faults_of_the_gate
from planted.table import Edit, Fault, PythonTest, TableError

ROOT = project_root()
TABLE = table.read()
SITES_OF_THE_GATE = 4
PRODUCT = ("crashgen", "oracle", "runner", "include", "pintools", "allocators", "harness/faultline")
"""What people build and run."""


@pytest.fixture(scope="module")
def planted(tmp_path_factory: pytest.TempPathFactory) -> Planted:
    return Planted(ROOT, TABLE, tmp_path_factory.mktemp("planted"))


def name_of(fault: Fault) -> str:
    return fault.name


def test_each_text_that_a_fault_edits_is_there_once() -> None:
    assert edited_tree.edited_files(ROOT, TABLE)


def test_each_test_that_notices_a_fault_is_there() -> None:
    """Those of Rust are run each time."""
    tests = {fault.test for fault in TABLE.faults if isinstance(fault.test, PythonTest)}
    names = [f"{test.file}::{test.test}" for test in tests]
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", "", "-p", "no:cacheprovider", *names]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert f"\n{len(names)} tests collected" in run.stdout, run.stdout + run.stderr


def notice(planted: Planted, fault: Fault) -> None:
    assert planted.passes_without_a_fault(fault.test)
    assert not planted.passes(fault.test, fault.name), f"{fault.test} passes with {fault.name}: {fault.what}"


@pytest.mark.parametrize("fault", faults_of_the_gate(ROOT, TABLE.faults), ids=name_of)
def test_a_planted_fault_of_the_share_is_noticed(planted: Planted, fault: Fault) -> None:
    notice(planted, fault)


@pytest.mark.nightly
@pytest.mark.parametrize("fault", TABLE.faults, ids=name_of)
def test_a_planted_fault_is_noticed(planted: Planted, fault: Fault) -> None:
    notice(planted, fault)


def sites(tree: Path) -> list[str]:
    """FILE:LINE of each place in the oracle that reports a violation or says that something is unknown."""
    folder = tree / "oracle" / "src"
    found = []
    for path in [folder / "judge.rs", *sorted((folder / "judge").glob("*.rs"))]:
        helper = ""
        for number, line in enumerate(path.read_text().splitlines(), 1):
            if started := re.match(r" *(?:pub\(super\) )?fn (\w+)", line):
                helper = started[1]
            if re.search(r"\.(violate\w*|unknown)\(", line) and not helper.startswith("violate"):
                found.append(f"{path.name}:{number}")
    assert len(found) > 30
    return found


def test_some_of_what_the_oracle_says_is_missed_when_it_is_not_said(planted: Planted) -> None:
    found = drawn(ROOT, sites(planted.tree), SITES_OF_THE_GATE)
    assert [site for site in found if planted.is_missed_by_the_oracles_tests(site)] == []


@pytest.mark.nightly
def test_each_thing_that_the_oracle_says_is_missed_when_it_is_not_said(planted: Planted) -> None:
    assert [site for site in sites(planted.tree) if planted.is_missed_by_the_oracles_tests(site)] == []


def test_nothing_that_people_run_has_a_planted_fault() -> None:
    command = ["git", "grep", "-il", "planted", "--", *PRODUCT, ":(exclude)*/tests/*"]
    assert subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False).stdout == ""
    engine = Path(sysconfig.get_path("scripts")) / "faultline-engine"
    for program in (engine, build_runner(ROOT, Cache(ROOT / ".faultline")).path):
        content = program.read_bytes()
        assert [name for name in [VARIABLE, *map(name_of, TABLE.faults)] if name.encode() in content] == []


# What becomes of a source.


def edits(*pairs: tuple[str, str], file: str = "a.c") -> list[Edit]:
    return [Edit(f"fault-{number}", file, text, instead) for number, (text, instead) in enumerate(pairs)]


def test_an_expression_is_chosen() -> None:
    assert edited_tree.edited("a.c", "if (a < b)", edits(("a < b", "true"))) == (
        'if ((planted("fault-0") ? (true) : (a < b)))'
    )
    assert edited_tree.edited("a.rs", "if a < b {", edits(("a < b", "true"), file="a.rs")) == (
        'if (if crate::planted::is("fault-0") { true } else { a < b }) {'
    )


def test_a_statement_is_chosen() -> None:
    assert edited_tree.edited("a.c", "if (a) f(); else g();", edits(("f();", ""))) == (
        'if (a) { if (planted("fault-0")) {  } else { f(); } } else g();'
    )


def test_faults_may_share_a_text() -> None:
    assert edited_tree.edited("a.c", "a", edits(("a", "b"), ("a", "c"))) == (
        '(planted("fault-0") ? (b) : ((planted("fault-1") ? (c) : (a))))'
    )


def test_a_template_stands_in_the_copy() -> None:
    edit = Edit("late", "a.c", "for (;;)", template="for (; !PLANTED;)")
    assert edited_tree.edited("a.c", "for (;;)", [edit]) == 'for (; !planted("late");)'


@pytest.mark.parametrize(
    ("source", "texts", "refusal"),
    [
        ("b", ["a"], "the text of fault-0 is there 0 times"),
        ("a a", ["a"], "the text of fault-0 is there 2 times"),
        ("a b c", ["a b", "b c"], "fault-0 and fault-1 overlap"),
    ],
)
def test_a_text_that_is_not_there_once_is_refused(source: str, texts: list[str], refusal: str) -> None:
    with pytest.raises(TableError, match=refusal):
        edited_tree.edited("a.c", source, edits(*((text, "") for text in texts)))


def test_every_problem_of_a_table_is_said(tmp_path: Path) -> None:
    faults = [("gone", "gone.c", "a"), ("other", "other.c", "a")]
    (tmp_path / "other.c").write_text("b")
    entries = [f'[[fault]]\nname = "{n}"\nwhat = ""\ntest = "x: y"\nfile = "{f}"\ntext = "{t}"' for n, f, t in faults]
    (tmp_path / "faults.toml").write_text("\n".join(f'{entry}\ninstead = ""\n' for entry in entries))
    with pytest.raises(
        TableError, match=r"(?s)gone\.c: gone edit it, and it is not there.*other\.c: the text of other"
    ):
        edited_tree.edited_files(tmp_path, table.read(tmp_path))
