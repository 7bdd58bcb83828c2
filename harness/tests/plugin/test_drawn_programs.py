# SPDX-License-Identifier: Apache-2.0
"""Programs that Hypothesis draws: what the adapter can and no more, shrunk to the fewest operations, explained once, replayed."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, find, given, settings
from hypothesis import strategies as st
from hypothesis.stateful import rule

from faultline.base.errors import BadInputError
from faultline.testing import Program, ProgramMachine
from faultline.testing.strategies import NEAR_BYTES, Abilities, programs_of, sizes_of
from plugin.users_repository import FINDING, make_allocator, use

PLAIN = Abilities((64, 1000), 8, 4096)
ALL = Abilities((64, 1000), 8, 4096, has_threads=True, has_graphs=True, has_transactions=True)
PATIENT = settings(deadline=None, max_examples=5000, database=None, suppress_health_check=[*HealthCheck])


def kinds_of(program: Program) -> set[str]:
    return {line.split()[0] for line in program.lines}


@settings(PATIENT, max_examples=200)
@given(programs_of(PLAIN, most_operations=6))
def test_a_plain_adapter_gets_plain_programs(program: Program) -> None:
    """That a Program can be made of the lines shows that they are a workload."""
    assert kinds_of(program) <= {"allocate", "free", "reallocate", "reopen"}
    assert 1 <= len(program.lines) <= 6, "as many as were asked for"
    assert eval(repr(program), {"Program": Program}) == program


@settings(PATIENT, max_examples=200)
@given(programs_of(ALL))
def test_an_adapter_that_can_all_gets_one_kind_at_a_time(program: Program) -> None:
    kinds = kinds_of(program)
    families = ({"begin", "commit", "abort", "write"}, {"thread", "join"}, {"link", "unlink", "drop", "load"})
    assert sum(bool(kinds & family) for family in families) <= 1
    assert eval(repr(program), {"Program": Program}) == program


@pytest.mark.slow
@pytest.mark.parametrize(
    ("is_wanted", "smallest"),
    [
        (lambda program: True, [["allocate 0 1"]]),
        (lambda program: "free" in kinds_of(program), [["allocate 0 1", "free 0"]]),
        (lambda program: "reallocate" in kinds_of(program), [["allocate 0 1", "reallocate 0 1"]]),
        (lambda program: "abort" in kinds_of(program), [["begin", "abort"]]),
        (lambda program: "write" in kinds_of(program), [["allocate 0 8", "write 0 0 8"]]),
        (lambda program: "thread 2 free 0" in program.lines, [["thread 2 allocate 0 1", "thread 2 free 0"]]),
        (
            lambda program: len({line.split()[1] for line in program.lines if line.startswith("thread")}) == 2,
            [["thread 1 allocate 0 1", "thread 2 allocate 1 1"]],
        ),
        (lambda program: "link" in kinds_of(program), [["allocate 0 1", "link 0 0 0"]]),
        (lambda program: "load" in kinds_of(program), [["allocate 0 1", "link 0 0 0", "load 1 0 0"]]),
    ],
)
def test_every_kind_is_drawn_and_shrinks_to_the_fewest_operations(
    is_wanted: Callable[[Program], bool], smallest: list[list[str]]
) -> None:
    found = find(programs_of(ALL), is_wanted, settings=PATIENT)
    assert list(found.lines) in smallest


@pytest.mark.parametrize("size", sorted({b + n for b in PLAIN.boundaries for n in (-NEAR_BYTES, 0, NEAR_BYTES)}))
def test_sizes_lie_on_both_sides_of_each_boundary(size: int) -> None:
    assert find(sizes_of(PLAIN), lambda drawn: drawn == size, settings=PATIENT) == size


@settings(PATIENT, max_examples=100)
@given(st.data())
def test_no_size_is_nothing_or_more_than_a_part_of_the_heap(data: st.DataObject) -> None:
    assert 1 <= data.draw(sizes_of(PLAIN)) <= max(PLAIN.largest_bytes, PLAIN.boundaries[-1] + NEAR_BYTES)


# ---- with an allocator ------------------------------------------------------------------------------------------------------

OF_CI_SYSTEMS = (
    "CI",
    "TF_BUILD",
    "BUILDKITE",
    "CIRCLECI",
    "CIRRUS_CI",
    "GITHUB_ACTIONS",
    "GITLAB_CI",
    "TEAMCITY_VERSION",
)
"""Where one of these is set Hypothesis keeps no database."""


def at_a_desk(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in OF_CI_SYSTEMS:
        monkeypatch.delenv(name, raising=False)


def said_of_failure(ended: pytest.RunResult) -> list[str]:
    """Where one of these is set, pytest says it again at the end."""
    return [line.removeprefix("E").strip() for line in ended.outlines if line.startswith("E  ")]


TEST = """
from hypothesis import Phase, given, settings
from faultline.testing import native_settings, programs

@settings(native_settings, max_examples={count}{more})
@given(program=programs("toy", most_operations=2))
def test_any_program(explore, program):
    assert explore("toy", program).certificate.complete
"""


@pytest.mark.slow
def test_a_failing_program_is_shrunk_by_hypothesis_explained_once_and_replayed(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_desk(monkeypatch)
    use(pytester, make_allocator(root, pytester.path / "own", is_mended=False))
    pytester.makepyfile(TEST.format(count=10, more=""))
    found = pytester.runpytest_subprocess()
    found.assert_outcomes(failed=1)
    said = said_of_failure(found)
    assert any(FINDING in line for line in said)
    assert "program: Program('allocate 0 1')" in said, "the fewest operations"
    assert "program=Program('allocate 0 1')," in said
    explained = [line for line in said if line.startswith(("repair: ", "shrunk: "))]
    assert len(explained) == 2, "once, at the end"
    assert not any("harness/faultline" in line for line in found.outlines), "no lines of ours"
    pytester.makepyfile(TEST.format(count=10, more=", phases=[Phase.reuse]"))
    again = pytester.runpytest_subprocess()
    again.assert_outcomes(failed=1)
    assert any("program: Program('allocate 0 1')" in line for line in again.outlines), "of the database"


@pytest.mark.slow
def test_no_program_is_red_where_nothing_is_wrong(pytester: pytest.Pytester, root: Path) -> None:
    use(pytester, make_allocator(root, pytester.path / "own", is_mended=True))
    pytester.makepyfile(TEST.format(count=4, more=", database=None"))
    ended = pytester.runpytest_subprocess()
    ended.assert_outcomes(passed=1)
    (line,) = (line for line in ended.outlines if line.startswith("summary: "))
    cells = re.match(r"summary: cells=(\d+) findings=0 ", line)
    assert cells
    assert f"complete={cells[1]}/{cells[1]}" in line


def test_without_hypothesis_the_plugin_works_and_strategies_say_what_is_missing(pytester: pytest.Pytester) -> None:
    pytester.makeconftest("import sys\nsys.modules['hypothesis'] = None\n")
    pytester.makepyfile(
        test_other="def test_it(explore):\n    assert callable(explore)\n",
        test_programs="from faultline.testing import programs\nanything = programs('toy')\n",
        test_sizes="from faultline.testing import sizes\nanything = sizes('toy')\n",
        test_settings="from faultline.testing import native_settings\n",
    )
    ended = pytester.runpytest_subprocess("-p", "no:hypothesispytest", "--continue-on-collection-errors")
    ended.assert_outcomes(passed=1, errors=3)
    for name in ("programs", "sizes", "native_settings"):
        line = f"E   ImportError: faultline.testing.{name} needs Hypothesis, which is not installed: pip install hypothesis"
        assert line in ended.outlines


# ---- rules of their own -----------------------------------------------------------------------------------------------------

FEW = """
from hypothesis import settings
from faultline.testing import machine_settings
TestShelf.settings = settings(machine_settings, max_examples=5, stateful_step_count=3)
"""


def machine_of_the_page(root: Path) -> str:
    page = (root / "docs" / "pytest.md").read_text()
    (code,) = re.findall(r"^    from hypothesis.stateful .*?TestCase$", page, re.MULTILINE | re.DOTALL)
    return textwrap.dedent(code)


@pytest.mark.slow
def test_a_machine_with_rules_of_its_own_shrinks_to_the_fewest_and_is_explained_once(
    pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at_a_desk(monkeypatch)
    use(pytester, make_allocator(root, pytester.path / "own", is_mended=False))
    pytester.makepyfile(machine_of_the_page(root) + FEW)
    found = pytester.runpytest_subprocess()
    found.assert_outcomes(failed=1)
    said = said_of_failure(found)
    assert any(FINDING in line for line in said)
    assert "program: Program('allocate 0 1')" in said, "the fewest operations"
    steps = [line for line in said if line.startswith("state.")]
    assert steps == ["state.teardown()"], "and the steps that make it"
    assert any(line.endswith("state.put(size=1)") for line in said)
    assert len([line for line in said if line.startswith(("repair: ", "shrunk: "))]) == 2, "once, at the end"


@pytest.mark.slow
def test_the_machine_of_the_page_is_green_on_a_mended_allocator(pytester: pytest.Pytester, root: Path) -> None:
    use(pytester, make_allocator(root, pytester.path / "own", is_mended=True))
    pytester.makepyfile(machine_of_the_page(root) + FEW)
    ended = pytester.runpytest_subprocess()
    ended.assert_outcomes(passed=1)
    (line,) = (line for line in ended.outlines if line.startswith("summary: "))
    assert re.match(r"summary: cells=[1-5] findings=0 ", line)


class Transactions(ProgramMachine):
    allocator = "toy"

    @rule()
    def nothing(self) -> None:
        """A machine has a rule."""


def test_a_machine_writes_what_a_workload_file_can_have() -> None:
    machine = Transactions()
    assert [machine.allocate(64), machine.allocate(8)] == [0, 1]
    machine.free(0)
    assert machine.allocate(32) == 0, "the first that is empty"
    machine.do("begin")
    assert machine.is_in_transaction
    machine.reallocate(1, 200)
    assert dict(machine.live) == {0: 32, 1: 200}
    lines = ["allocate 0 64", "allocate 1 8", "free 0", "allocate 0 32", "begin", "reallocate 1 200", "commit"]
    assert list(machine.program.lines) == lines, "what is open is committed"


@pytest.mark.parametrize("line", ["free 0", "commit", "allocate 0", "fry 0"])
def test_a_line_that_is_not_possible_is_said_and_not_written(line: str) -> None:
    machine = Transactions()
    with pytest.raises(BadInputError, match=re.escape(line)):
        machine.do(line)
    machine.do("allocate 0 8")
    assert list(machine.program.lines) == ["allocate 0 8"]


def test_a_machine_of_a_graph_has_links() -> None:
    class Graph(Transactions):
        layout = "graph"

    machine = Graph()
    for line in ("allocate 0 64", "allocate 2 64", "link 0 1 2"):
        machine.do(line)
    assert machine.program.text().splitlines()[1] == "slots 3 graph"


def test_a_rule_that_fails_is_the_failure_and_nothing_is_explored(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        "from hypothesis.stateful import rule\n"
        "from faultline.testing import ProgramMachine\n"
        "class Wrong(ProgramMachine):\n"
        "    allocator = 'nowhere'\n"
        "    @rule()\n"
        "    def fail(self):\n"
        "        self.do('allocate 0 8')\n"
        "        raise ValueError('of the rule')\n"
        "TestWrong = Wrong.TestCase\n"
    )
    ended = pytester.runpytest_subprocess()
    ended.assert_outcomes(failed=1)
    assert any("ValueError: of the rule" in line for line in ended.outlines)
    assert not any("nowhere" in line and "error:" in line for line in ended.outlines)
