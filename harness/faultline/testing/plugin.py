# SPDX-License-Identifier: Apache-2.0
"""The pytest plugin: the mark `crash_consistent`, the fixture `explore`, options and ini keys, the summary. docs/pytest.md.

pytest loads this module at each start, in every project of an environment that has faultline. It imports nothing but pytest; what
explores is imported when the first test asks for it."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import pytest

if TYPE_CHECKING:
    from faultline.campaign.results import CellResult
    from faultline.testing.explorer import Explorer

MARK = "crash_consistent"
CELL = "_faultline_cell"
SESSION = "faultline-session"
REPORTED = "faultline_reported"
"""Of reports of tests: JSON of the cells that the test explored."""
HELP_OF_MARK = (
    f"{MARK}(allocator, workload, **options): explores every crash state of the cell before the test's body runs. The options are"
    " those of `faultline run` (model, strategy, nested, ops, seed, mutant, time, ...); lists stand for their values, all with all."
)


# ---- options -------------------------------------------------------------------------------------------------------------


def _seconds(text: str) -> str:
    try:
        value = float(text)
    except ValueError:
        value = math.nan
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text!r}: expected seconds, more than 0")
    return text


def _whole(lowest: int, highest: int) -> Callable[[str], str]:
    def check(text: str) -> str:
        if not (text.isascii() and text.isdigit() and lowest <= int(text) <= highest):
            raise argparse.ArgumentTypeError(f"{text!r}: expected a number from {lowest} to {highest}")
        return text

    return check


def _path(text: str) -> str:
    if not text:
        raise argparse.ArgumentTypeError("an empty name names no file")
    return text


@dataclass(frozen=True)
class Setting:
    """An option of pytest, and the ini key of the same name. metavar: None of a switch."""

    name: str
    help: str
    metavar: str | None = None
    check: Callable[[str], str] = _path

    @property
    def key(self) -> str:
        """Of ini files; and of pytest's own options."""
        return f"faultline_{self.name}"

    @property
    def option(self) -> str:
        return f"--{self.key.replace('_', '-')}"


SETTINGS = (
    Setting("time", "stop tracing and exploring a cell after S seconds", "S", _seconds),
    Setting("allow_incomplete", "a cell that a limit ended is skipped, with the reason; without this it fails"),
    Setting("nested", "crashes after the first that are explored, of cells that do not say", "N", _whole(0, 3)),
    Setting("jobs", "workers over the crash states of one cell", "N", _whole(1, 64)),
    Setting("no_explain", "try no repairs of findings"),
    Setting("no_shrink", "look for no smaller witness of findings"),
    Setting("baseline", "findings that FILE has are expected failures", "FILE"),
    Setting("suppressions", "findings that FILE (TOML) names are expected failures", "FILE"),
    Setting("cache", "cache of builds and traces (default: .faultline of the project)", "DIR"),
    Setting("out", "write report.html and the other reports of all cells here", "DIR"),
)
OF_SUMMARY = frozenset({"out"})
"""Those that are about no cell."""


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("faultline", "faultline: crash consistency")
    for setting in SETTINGS:
        if setting.metavar is None:
            group.addoption(setting.option, dest=setting.key, action="store_true", default=None, help=setting.help)
            parser.addini(setting.key, setting.help, type="bool", default=False)
        else:
            group.addoption(
                setting.option,
                dest=setting.key,
                type=setting.check,
                metavar=setting.metavar,
                default=None,
                help=setting.help,
            )
            parser.addini(setting.key, setting.help, default=None)


def _settings(config: pytest.Config) -> dict[str, Any]:
    """What the command line says, else what the ini file does. Paths are absolute: of the command line below the folder where
    pytest was started, of the ini file below its own.

    Raises UsageError."""
    found: dict[str, Any] = {}
    for setting in SETTINGS:
        value, folder = config.getoption(setting.key), config.invocation_params.dir
        if value is None:
            value = _of_ini(config, setting)
            folder = config.inipath.parent if config.inipath else folder
        if value in (None, False):
            continue
        found[setting.name] = str(folder / value) if setting.check is _path and setting.metavar else value
    return found


def _of_ini(config: pytest.Config, setting: Setting) -> Any:
    try:
        value = config.getini(setting.key)
        if value is None or setting.metavar is None:
            return value
        return setting.check(str(value))
    except (argparse.ArgumentTypeError, TypeError, ValueError) as error:
        said = str(error).removeprefix(f"{config.inipath}: ")
        raise pytest.UsageError(f"{config.inipath}: {setting.key}: {said}") from None


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", HELP_OF_MARK)
    config.pluginmanager.register(Session(_settings(config)), SESSION)


# ---- collecting ----------------------------------------------------------------------------------------------------------


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    marks = list(metafunc.definition.iter_markers_with_node(MARK))
    if not marks:
        return
    from faultline.testing.marks import MarkError, marked_cells

    try:
        cells = marked_cells(marks)
    except MarkError as error:
        raise pytest.fail.Exception(str(error), pytrace=False) from None
    metafunc.fixturenames.append(CELL)
    metafunc.parametrize(CELL, cells, ids=[cell.id for cell in cells], indirect=True)


@pytest.fixture
def _faultline_cell(request: pytest.FixtureRequest) -> Any:
    """What the mark asks for; nothing needs to ask for it."""
    return request.param


# ---- running -------------------------------------------------------------------------------------------------------------


class Explore:
    """The fixture `explore`: explore(allocator, workload, **options) explores one cell, as `faultline run` does."""

    def __init__(self, session: Session) -> None:
        self._session = session

    def __call__(self, allocator: Any, workload: Any = None, **options: Any) -> CellResult:
        """allocator: a name, or a path; workload: a name, the path of a workload file, or a faultline.testing.Program. Paths are
        looked for beside the test first. options: those of `faultline run`: model="eadr", nested=1, no_shrink=True.

        The result of a cell that passes, with its certificate. Raises CrashConsistencyError with the command line's explanation
        where something is found, UndecidedError where there is no verdict; both are in faultline.testing."""
        __tracebackhide__ = True
        return self._session.explore({"allocator": allocator, "workload": workload, **options})


@pytest.fixture(scope="session")
def explore(pytestconfig: pytest.Config) -> Explore:
    """explore(allocator, workload, **options): explores every crash state of the cell. Fails with what `faultline run` says."""
    session = pytestconfig.pluginmanager.get_plugin(SESSION)
    assert isinstance(session, Session)
    return Explore(session)


class Session:
    """One run of pytest, or one worker of it."""

    running: ClassVar[Session | None] = None
    """Whose test is being run."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.out = settings.get("out")
        self._settings = {name: value for name, value in settings.items() if name not in OF_SUMMARY}
        self._explorer: Explorer | None = None
        self._item: pytest.Item | None = None
        self._reported: list[str] = []

    def explore(self, options: dict[str, Any]) -> CellResult:
        __tracebackhide__ = True
        from faultline.testing.explorer import Explorer

        self._explorer = self._explorer or Explorer(self._settings)
        folder = self._item.path.parent if self._item else Path.cwd()
        return self._explorer.explore(folder, options)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Generator[None, Any, Any]:
        before, Session.running = Session.running, self
        self._item = item
        try:
            return (yield)
        finally:
            self._item = None
            Session.running = before

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self, item: pytest.Item) -> Generator[None, Any, Any]:
        if item.get_closest_marker(MARK) is not None:
            self._explore_marked(item)
        try:
            return (yield)
        except Exception as error:
            self.explain(error)
            raise

    def explain(self, error: BaseException) -> None:
        """Of a test that Hypothesis ended."""
        if self._explorer is not None:
            self._explorer.explain_examples(error)

    def _explore_marked(self, item: pytest.Item) -> None:
        callspec = getattr(item, "callspec", None)
        cell = callspec.params.get(CELL) if callspec else None
        if cell is None:
            pytest.fail(
                f"{MARK} explores nothing here: pytest makes no parametrised tests of this one (a method of unittest.TestCase, or a"
                " mark that was added after collection). Use a function, or the fixture explore",
                pytrace=False,
            )
        from faultline.testing.outcomes import CrashConsistencyError, UndecidedError

        try:
            self.explore(dict(cell.options))
        except (CrashConsistencyError, UndecidedError) as error:
            raise pytest.fail.Exception(str(error), pytrace=False) from None

    # ---- reporting -----------------------------------------------------------------------------------------------------

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_makereport(self) -> Generator[None, pytest.TestReport, pytest.TestReport]:
        """Results travel with the report: of a worker of pytest-xdist to who writes the summary."""
        report = yield
        reported = self._explorer.take_reported() if self._explorer else []
        if reported:
            setattr(report, REPORTED, reported)
        return report

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._reported += getattr(report, REPORTED, ())

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if not self._reported:
            return
        from faultline.testing import summary

        terminalreporter.write_sep("=", "faultline")
        self._say(terminalreporter, summary.summary(self._reported, terminalreporter.config.getoption("verbose") > 0))
        if self.out is not None:
            self._say(terminalreporter, [summary.report_line(Path(self.out), self._reported)])

    @staticmethod
    def _say(terminalreporter: pytest.TerminalReporter, lines: Iterable[str]) -> None:
        for line in lines:
            terminalreporter.write_line(line)


def running() -> Session:
    """The session whose test is being run. Raises RuntimeError where pytest runs none."""
    if Session.running is None:
        raise RuntimeError(
            "no test of pytest is being run, or `-p no:faultline` left its plugin out: pytest runs what explores"
        )
    return Session.running
