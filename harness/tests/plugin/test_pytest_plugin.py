# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin as its users meet it: in a repository of their own, by pytest's command line, an allocator that is theirs."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from command_line import Faultline
from plugin.users_repository import FINDING, RED_MARK, make_allocator, mend, use

pytestmark = pytest.mark.slow
ONE_CELL = """
import pytest

@pytest.mark.crash_consistent(allocator="toy", workload="{workload}"{more})
def test_toy():
    pass
"""
LIMIT_S = 120
"""Of what takes seconds on a machine that is not busy."""
QUICK = ", no_explain=True, no_shrink=True"


@pytest.fixture(scope="module")
def green(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An allocator that is right."""
    return make_allocator(root, tmp_path_factory.mktemp("users") / "green", is_mended=True)


@pytest.fixture(scope="module")
def red(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One that loses data."""
    return make_allocator(root, tmp_path_factory.mktemp("users") / "red", is_mended=False)


def run(pytester: pytest.Pytester, *words: str | Path) -> pytest.RunResult:
    """pytest in a process of its own, as its users start it: the plugin comes by its entry point."""
    return pytester.runpytest_subprocess("-p", "no:cacheprovider", *words)


def summary_of(result: pytest.RunResult) -> str:
    (line,) = (line for line in result.outlines if line.startswith("summary: "))
    return line


# ---- the cost of being installed --------------------------------------------------------------------------------------------


def test_a_run_without_marks_imports_nothing_but_the_plugin(pytester: pytest.Pytester) -> None:
    pytester.makepyfile("""
        import sys

        def test_modules():
            print("modules:", *sorted(sys.modules))
    """)

    def modules(*words: str) -> set[str]:
        ended = run(pytester, "-s", *words)
        ended.assert_outcomes(passed=1)
        assert not any("faultline" in line and "===" in line for line in ended.outlines), "no summary of nothing"
        return set(next(line for line in ended.outlines if "modules: " in line).partition("modules: ")[2].split())

    there = modules()
    assert there - modules("-p", "no:faultline") == {"faultline", "faultline.testing", "faultline.testing.plugin"}
    assert not there & {"click", "msgspec", "rich", "numpy", "jinja2", "matplotlib", "hypothesis", "sqlite3"}


def test_collecting_marks_loads_nothing_that_explores(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(ONE_CELL.format(workload="smoke", more=""))
    pytester.makeconftest("""
        import sys

        def pytest_collection_finish():
            assert not {"click", "msgspec", "rich"} & set(sys.modules)
            assert "faultline.testing.marks" in sys.modules
    """)
    ended = run(pytester, "--collect-only", "-q")
    assert ended.ret == 0, ended.stdout.str()
    ended.stdout.fnmatch_lines(["*::test_toy[[]toy-smoke]"])


def test_help_and_markers_say_what_there_is(pytester: pytest.Pytester) -> None:
    said = run(pytester, "--help").stdout.str()
    group = said[said.index("faultline: crash consistency:") :]
    options = re.findall(r"^  (--faultline-[a-z-]+)", group, re.MULTILINE)
    assert len(options) >= 10
    for option in options:
        assert re.search(rf"^  {option[2:].replace('-', '_')} ", said, re.MULTILINE), f"no ini key of {option}"
    run(pytester, "--markers").stdout.fnmatch_lines(
        ["@pytest.mark.crash_consistent(allocator, workload, [*][*]options)*"]
    )


# ---- red, mended, green -----------------------------------------------------------------------------------------------------


def test_a_bug_is_red_with_the_command_lines_words_and_lf_runs_it_again_until_it_is_mended(
    pytester: pytest.Pytester, root: Path, faultline: Faultline
) -> None:
    own = make_allocator(root, pytester.path / "own", is_mended=False)
    tests = own / "tests"
    tests.mkdir()
    (tests / "test_toy.py").write_text(
        "import pytest\n\n"
        '@pytest.mark.crash_consistent(allocator="toy", workload=["create", "one.workload"])\n'
        "def test_toy():\n"
        '    print("the body runs")\n'
    )
    (tests / "one.workload").write_text("workload 1\nslots 1\ncase\nallocate 0 64\n")
    pytester.makeini("[pytest]")
    red = pytester.runpytest_subprocess("-rPf", tests)
    red.assert_outcomes(passed=1, failed=1)
    assert red.ret == pytest.ExitCode.TESTS_FAILED
    assert red.stdout.str().count("the body runs") == 1, "not after what is found"
    said = red.stdout.str()
    assert "Traceback" not in said
    assert "During handling" not in said
    by_hand = faultline("run", "toy", "-w", "tests/one.workload", cwd=own)
    assert by_hand.returncode == 1
    lines = by_hand.stdout.splitlines()
    begin = next(number for number, line in enumerate(lines) if line.startswith(RED_MARK))
    end = next(number for number, line in enumerate(lines) if line.startswith("  replay: "))
    words = [line.partition(":")[0].strip() for line in lines[begin + 2 : end + 1]]
    assert words == ["when", "stores", "repair", "shrunk", "replay"]
    for line in lines[begin : end + 1]:
        is_timed = line.startswith(("  repair: ", "  shrunk: "))  # on a busy machine it is cut short
        assert any(line == one or (is_timed and one.startswith(line[:10])) for one in red.outlines), line
    red.stdout.fnmatch_lines(["FAILED own/tests/test_toy.py::test_toy[[]toy-one.workload]*"])
    assert summary_of(red).startswith("summary: cells=2 findings=1 mutants=0/0 states=")
    again = pytester.runpytest_subprocess("--lf", tests)
    again.assert_outcomes(failed=1)
    mend(own)
    mended = pytester.runpytest_subprocess("--lf", "-v", tests)
    mended.assert_outcomes(passed=1)
    assert "complete=1/1 incomplete=0 unknown=0" in summary_of(mended)
    assert any(re.match(r"toy +one.workload +- +pass ", line) for line in mended.outlines), "-v: a line for each cell"


def test_workers_of_xdist_give_the_totals_of_one_process(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    pytester.makepyfile("""
        import pytest

        @pytest.mark.crash_consistent("toy", ["create", "smoke"])
        def test_toy():
            pass

        @pytest.mark.parametrize("seed", [1, 2])
        def test_seeds(explore, seed):
            assert explore("toy", "churn", ops=4, seed=seed).certificate.complete
    """)
    alone = run(pytester)
    alone.assert_outcomes(passed=4)
    shared = run(pytester, "-n", "2")
    shared.assert_outcomes(passed=4)
    assert summary_of(alone) == summary_of(shared)
    assert summary_of(alone).startswith("summary: cells=4 findings=0 ")
    assert "complete=4/4" in summary_of(alone)


# ---- which cells ------------------------------------------------------------------------------------------------------------


def test_ids_are_made_of_names_and_chosen_by_k(pytester: pytest.Pytester) -> None:
    (pytester.path / "deep").mkdir()
    pytester.makepyfile("""
        import pytest
        from pathlib import Path
        from faultline.testing import Program

        pytestmark = pytest.mark.crash_consistent(allocator="pm/heap/allocator.toml", nested=1)

        @pytest.mark.crash_consistent(workload=["smoke", Path("deep/two.workload"), "uniform:10:20"])
        def test_workloads(): pass

        @pytest.mark.crash_consistent("other", "smoke", model=["px86", "eadr"], nested=[0, 1])
        class TestModels:
            def test_all(self): pass

            @pytest.mark.crash_consistent(workload=Program("allocate 0 8", "free 0"), model="px86", nested=None)
            @pytest.mark.parametrize("number", [1, 2])
            def test_program(self, number): pass
    """)

    def ids(*words: str) -> list[str]:
        ended = run(pytester, "--collect-only", "-q", *words)
        assert ended.ret == 0, ended.stdout.str()
        return [line.rpartition("::")[2] for line in ended.outlines if "::" in line]

    assert ids() == [
        *(f"test_workloads[heap-{workload}]" for workload in ("smoke", "two.workload", "uniform:10:20")),
        *(f"test_all[other-smoke-model-{model}-nested-{number}]" for model in ("px86", "eadr") for number in (0, 1)),
        *(f"test_program[other-program-15060e6f-{number}]" for number in (1, 2)),
    ]
    assert ids("-k", "smoke and not eadr and not heap") == ids("-k", "TestModels and px86")
    assert ids("-k", "two.workload") == ["test_workloads[heap-two.workload]"]


@pytest.mark.parametrize(
    ("mark", "words"),
    [
        ("workload='smoke'", "names no allocator: expected crash_consistent(allocator=..., workload=...)"),
        ("'toy', 'smoke', 'px86'", "3 values without names: expected at most allocator and workload"),
        ("'toy', allocator='toy'", "allocator is given twice"),
        ("'toy', []", "workload is an empty list: nothing would be explored"),
    ],
)
def test_a_mark_that_names_no_cell_is_one_line_of_collection(pytester: pytest.Pytester, mark: str, words: str) -> None:
    pytester.makepyfile(f"import pytest\n@pytest.mark.crash_consistent({mark})\ndef test_it(): pass\n")
    ended = run(pytester)
    ended.assert_outcomes(errors=1)
    assert words in ended.stdout.str()
    assert "Traceback" not in ended.stdout.str()
    assert "plugin.py" not in ended.stdout.str()


def test_two_marks_on_one_function_are_refused_and_those_of_a_class_are_not(pytester: pytest.Pytester) -> None:
    mark = "@pytest.mark.crash_consistent('toy', 'smoke')\n"
    pytester.makepyfile(f"import pytest\n{mark}{mark}def test_it(): pass\n")
    assert "two marks crash_consistent on one test" in run(pytester).stdout.str()
    pytester.makepyfile(
        f"import pytest\n{mark}class TestA:\n    pass\n{mark}class TestB(TestA):\n    def test_it(self): pass\n"
    )
    assert run(pytester, "--collect-only").ret == 0


def test_what_no_cell_is_made_of_is_one_line_and_never_green(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    pytester.makepyfile("""
        import pytest, unittest
        marked = pytest.mark.crash_consistent

        @marked("toi", "smoke")
        def test_allocator(): pass

        @marked("toy", "smok")
        def test_workload(): pass

        @marked("toy")
        def test_no_workload(): pass

        @marked("toy", "smoke", nested=7)
        def test_nested(): pass

        @marked("toy", "smoke", depth=7)
        def test_depth(): pass

        @marked("toy", "smoke", out="reports")
        def test_out(): pass

        @marked("toy", "smoke", write_baseline="known.json")
        def test_baseline(): pass

        @marked("toy", "smoke", no_shrink="yes")
        def test_switch(): pass

        @marked(7, "smoke")
        def test_number(): pass

        @marked("toy", "smoke", engine="/nothing/there")
        def test_engine(): pass

        class TestOld(unittest.TestCase):
            @marked("toy", "smoke")
            def test_method(self): pass

        def test_fixture(explore):
            explore("toy", "smok")
    """)
    ended = run(pytester)
    ended.assert_outcomes(failed=12)
    said = ended.stdout.str()
    for words in (
        "error: unknown allocator 'toi'",
        "error: unknown workload 'smok': no generator of this name and no such file",
        "error: no workload is named",
        "error: Invalid value for '--nested': 7 is not in the range 0<=x<=3.",
        "error: depth: no option of this name",
        "error: out: no option of this name",
        "error: write_baseline: no option of this name",
        "error: no_shrink: expected True or False, got 'yes'",
        "error: allocator: expected a name or a path, got 7",
        "error: /nothing/there: no engine is there",
        "crash_consistent explores nothing here: pytest makes no parametrised tests of this one",
        "E       faultline.testing.outcomes.UndecidedError: error: unknown workload 'smok'",
    ):
        assert words in said, words
    assert "Traceback" not in said
    assert not any(line.startswith("summary: ") for line in ended.outlines), "nothing was explored"


def test_paths_lie_beside_the_test_and_the_project_is_the_tests(pytester: pytest.Pytester, green: Path) -> None:
    """Wherever pytest is started."""
    inner = pytester.mkdir("inner")
    (inner / "faultline.toml").write_text(
        f'version = 1\ncache = "{green / ".faultline"}"\n[options.run]\nworkload = "create"\nno-explain = true\n'
    )
    (inner / "one.workload").write_text("workload 1\nslots 1\ncase\nallocate 0 8\n")
    (inner / "pm").symlink_to(green / "toy")
    (inner / "test_inner.py").write_text(
        "import pytest\n"
        "@pytest.mark.crash_consistent('pm', ['one.workload', None], no_explain=False)\n"
        "def test_it(): pass\n"
        "def test_path(explore, request):\n"
        "    result = explore(request.path.parent / 'pm' / 'allocator.toml', request.path.parent / 'one.workload')\n"
        "    assert result.spec.path == './inner/one.workload'\n"
    )
    ended = run(pytester, "-v", "inner")
    ended.assert_outcomes(passed=3)
    ended.stdout.fnmatch_lines(
        ["*test_it[[]pm-one.workload]*", "*test_it[[]pm]*", "toy*one.workload*pass*", "toy*create*pass*"]
    )


# ---- what is not green ------------------------------------------------------------------------------------------------------


def test_incomplete_fails_or_is_skipped_with_the_reason(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    why = "toy create: incomplete: stopped at crash position * of *: limit of 2 recoveries*"
    pytester.makepyfile(
        ONE_CELL.format(workload="create", more=", recoveries=2")
        + "def test_fixture(explore):\n    explore('toy', 'create', recoveries=2)\n"
    )
    failing = run(pytester)
    failing.assert_outcomes(failed=2)
    failing.stdout.fnmatch_lines(
        [why, "*in pytest: --faultline-time S gives it more time, --faultline-allow-incomplete makes*"]
    )
    skipped = run(pytester, "--faultline-allow-incomplete", "-rs")
    skipped.assert_outcomes(skipped=2)
    skipped.stdout.fnmatch_lines([f"SKIPPED*{why}"])
    assert "incomplete=2 unknown=0" in summary_of(skipped)
    pytester.makeini("[pytest]\nfaultline_allow_incomplete = true\n")
    run(pytester).assert_outcomes(skipped=2)


def test_known_findings_are_expected_failures(pytester: pytest.Pytester, red: Path, faultline: Faultline) -> None:
    use(pytester, red)
    known = pytester.path / "known.json"
    cell = ("run", "toy", "-w", "smoke", "--no-explain", "--no-shrink")
    faultline(*cell, "--write-baseline", known, cwd=pytester.path)
    pytester.makeini("[pytest]\nfaultline_baseline = known.json\n")
    pytester.makepyfile(ONE_CELL.format(workload="smoke", more=QUICK))
    expected = run(pytester, "-rx")
    expected.assert_outcomes(xfailed=1)
    expected.stdout.fnmatch_lines([f"XFAIL *toy smoke: known: *{FINDING} (in the baseline*"])
    assert "findings=0" in summary_of(expected)
    run(pytester, "--runxfail").assert_outcomes(failed=1)


def test_a_mutant_is_found_where_the_test_asks_for_it(pytester: pytest.Pytester, root: Path) -> None:
    """Built-in allocators are there, too, without a project."""
    pytester.makepyfile("""
        import pytest
        from faultline.testing import CrashConsistencyError

        def test_the_tests_notice_a_lost_flush(explore):
            with pytest.raises(CrashConsistencyError, match="FL010 nvm_malloc smoke MISSING_FLUSH_LINK") as found:
                explore("nvm_malloc", "smoke", mutant="MISSING_FLUSH_LINK", no_explain=True, no_shrink=True)
            assert found.value.result.findings[0].rule == "FL010"
    """)
    ended = run(pytester, "--faultline-cache", root / ".faultline")
    ended.assert_outcomes(passed=1)
    assert "mutants=1/1" in summary_of(ended)


# ---- the fixture ------------------------------------------------------------------------------------------------------------


def test_a_program_fails_as_code_and_as_a_workload_file(
    pytester: pytest.Pytester, red: Path, faultline: Faultline
) -> None:
    use(pytester, red)
    pytester.makepyfile("""
        from faultline.testing import Program

        def test_program(explore):
            explore("toy", Program("allocate 3 64", "reopen"), no_explain=True, no_shrink=True)
    """)
    ended = run(pytester)
    ended.assert_outcomes(failed=1)
    said = [line.removeprefix("E").strip() for line in ended.outlines if line.startswith("E  ")]
    assert said[0].startswith("faultline.testing.outcomes.CrashConsistencyError: FL004 toy file:")
    assert "program: Program('allocate 3 64', 'reopen')" in said
    at = said.index("as a workload file:") + 1
    written = said[at : at + 5]
    assert written == ["workload 1", "slots 4", "case", "allocate 3 64", "reopen"]
    assert not any("harness/faultline" in line for line in ended.outlines), "no frames of ours"
    (pytester.path / "found.workload").write_text("\n".join(written) + "\n")
    again = faultline("run", "toy", "-w", "found.workload", "--no-explain", "--no-shrink", cwd=pytester.path)
    assert again.returncode == 1
    assert FINDING in again.stdout


def test_the_fixture_serves_fixtures_of_modules_and_hypothesis(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    pytester.makepyfile("""
        import pytest
        from hypothesis import given, settings, strategies as st
        from faultline.testing import Program

        @pytest.fixture(scope="module")
        def certificate(explore):
            return explore("toy", "create").certificate

        def test_module(certificate):
            assert certificate.complete

        @settings(max_examples=2, deadline=None)
        @given(st.sampled_from([8, 64]))
        def test_sizes(explore, size):
            explore("toy", Program(f"allocate 0 {size}"))
    """)
    ended = run(pytester)
    ended.assert_outcomes(passed=2)
    assert re.match(r"summary: cells=[23] ", summary_of(ended))


# ---- options ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("option", "value", "words"),
    [
        ("time", "soon", "'soon': expected seconds, more than 0"),
        ("time", "0", "'0': expected seconds, more than 0"),
        ("nested", "4", "'4': expected a number from 0 to 3"),
        ("jobs", "none", "'none': expected a number from 1 to 64"),
    ],
)
def test_a_wrong_option_is_one_line_before_anything_runs(
    pytester: pytest.Pytester, option: str, value: str, words: str
) -> None:
    pytester.makepyfile("def test_it(): pass")
    ended = run(pytester, f"--faultline-{option}", value)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    assert f"argument --faultline-{option}: {words}" in ended.stderr.str()
    pytester.makeini(f"[pytest]\nfaultline_{option} = {value}\n")
    ended = run(pytester)
    assert ended.ret == pytest.ExitCode.USAGE_ERROR
    assert f"tox.ini: faultline_{option}: {words}" in ended.stderr.str()


def test_a_test_says_more_than_the_command_line_and_that_more_than_a_file(
    pytester: pytest.Pytester, green: Path
) -> None:
    use(pytester, green, "[options.run]\nnested = 3\ntime = 60\n")
    pytester.makeini("[pytest]\nfaultline_nested = 2\nfaultline_time = 50\n")
    pytester.makepyfile("""
        def test_it(explore):
            spec = explore("toy", "create", nested=0).spec
            assert (spec.nested, spec.time_limit_s) == (0, 40.0)

        def test_where_nothing_is_said(explore):
            assert explore("toy", "create").spec.nested == 1
    """)
    run(pytester, "--faultline-nested", "1", "--faultline-time", "40").assert_outcomes(passed=2)


def test_reports_of_all_tests_are_written_where_they_are_asked_for(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    pytester.makepyfile(ONE_CELL.format(workload="create", more=""))
    ended = run(pytester, "--faultline-out", "reports", "-n", "1")
    ended.assert_outcomes(passed=1)
    folder = pytester.path / "reports"
    assert f"report: {folder}/report.html" in ended.outlines
    document = json.loads((folder / "results.json").read_text())
    assert [cell["name"] for cell in document["cells"]] == ["toy create"]
    assert document["environment"]["started_utc"]
    (pytester.path / "file").write_text("")
    wrong = run(pytester, "--faultline-out", "file/reports")
    assert any(line.startswith("error: ") and "the report cannot be written" in line for line in wrong.outlines)


# ---- Ctrl-C -----------------------------------------------------------------------------------------------------------------


def test_ctrl_c_ends_an_exploration_and_the_run(pytester: pytest.Pytester, green: Path) -> None:
    use(pytester, green)
    pytester.makepyfile(
        ONE_CELL.format(workload="churn", more=", ops=3000, nested=3, strategy='exhaustive'")
        + "\n@pytest.fixture(autouse=True)\ndef begun():\n    open('begun', 'w').close()\n\ndef test_next(): pass\n"
    )
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider"]
    with subprocess.Popen(command, cwd=pytester.path, stdout=subprocess.PIPE, text=True) as process:
        try:
            until = time.monotonic() + LIMIT_S
            while not (pytester.path / "begun").exists() and time.monotonic() < until:
                time.sleep(0.1)
            time.sleep(5)  # what is then done cannot be ended by itself
            os.kill(process.pid, signal.SIGINT)
            said, _ = process.communicate(timeout=LIMIT_S)
        finally:
            process.kill()
    assert process.returncode == pytest.ExitCode.INTERRUPTED
    assert "KeyboardInterrupt" in said
    assert "no tests ran" in said
