# SPDX-License-Identifier: Apache-2.0
"""Whatever stands on the command line: an exit code that means what it says, one line, no traceback, and an end. Exit code 1 means
a finding and nothing else, and there is none in a clean allocator. Seeded: the same inputs in each run, more of them nightly."""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.cli import asked, entry

SEED = 1
EACH_TIME, NIGHTLY = 200, 4000
LIMIT_S = 100
VALUES = (
    *("", " ", "0", "-1", "1", "1.5", "nan", "inf", "-inf", "1e309", "9" * 19, "9" * 400, "0x10", "True", "none"),
    *("\x1b[31mred", "\x07", "a\nb", "\udcff", "é", "a" * 5000, "../..", "/", ".", "~", "--", "-", "%s", "{0}", "*"),
    *(
        "/dev/zero",
        "/dev/full",
        "/dev/null",
        "/dev/stdin",
        "/nosuch/file",
        "@FIFO",
        "@FOLDER",
        "@EMPTY",
        "@BINARY",
        "@DEEP",
    ),
)
QUICK = ("--recoveries", "2", "--allow-incomplete")
COMMANDS: dict[str, tuple[tuple[str, ...], tuple[str, ...]]] = {
    "run": (
        ("nvmalloc", "-w", "ace:1:1", *QUICK),
        (
            *(
                "-w",
                "--ops",
                "--seed",
                "--mutant",
                "--flush",
                "--model",
                "--strategy",
                "--exhaustive-states",
                "--samples",
            ),
            *(
                "--time",
                "--recoveries",
                "--memory",
                "--leaves",
                "--nested",
                "--replay-engine",
                "--start",
                "--stop-at-rule",
            ),
            *(
                "--jobs",
                "--out",
                "--cache",
                "--engine",
                "--heap-folder",
                "--tracer",
                "--baseline",
                "--suppressions",
                "--trace",
                "",
            ),
        ),
    ),
    "matrix": ((), ("-c", "--jobs", "--baseline", "--suppressions", "--shard", "--costs", "--changed", "")),
    "merge": (("nosuch",), ("", "--out")),
    "replay": ((), ("", "--cache", "--engine")),
    "explain": ((), ("", "--engine")),
    "shrink": ((), ("", "--time", "--explorations")),
    "report": (("--compare", "nosuch"), ("", "--out", "--format", "--report-url")),
    "litmus": ((), ("", "--model")),
    "import": (("nosuch", "--out", "trace"), ("", "--out", "--base", "--engine")),
    "export": (("nosuch", "--out", "log"), ("", "--out", "--folder", "--engine")),
    "list": ((), ("", "--engine")),
    "damage": (("nosuch",), ("-w", "--at-most", "--only", "")),
    "mutate": (("nosuch",), ("-w", "--time", "--jobs", "")),
    "trace": (("nosuch", "-w", "smoke"), ("--out", "--protect", "--engine-config", "")),
    "wear": ((), ("", "--out")),
    "bisect": (("nosuch",), ("--good", "--bad", "--witness", "")),
    "build": (("nosuch",), ("", "--cache")),
}
SAFE_MATRIX = ("-c", "/nosuch/matrix.toml")
"""Where an odd value is none, the matrix of the clone would be run."""


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("odd")
    os.mkfifo(folder / "fifo")
    (folder / "folder").mkdir()
    (folder / "empty").write_bytes(b"")
    (folder / "binary").write_bytes(random.Random(SEED).randbytes(5000))
    (folder / "deep").write_text("[" * 100_000)
    return {f"@{name.upper()}": str(folder / name) for name in ("fifo", "folder", "empty", "binary", "deep")}


def command_lines(count: int) -> Iterator[list[str]]:
    chance = random.Random(SEED)
    for _ in range(count):
        name = chance.choice([*COMMANDS, "run", "run"])
        base, options = COMMANDS[name]
        words = [name, *base, *(SAFE_MATRIX if name == "matrix" else ())]
        for option in chance.sample(options, min(len(options), chance.choice([1, 1, 2]))):
            words += [option, chance.choice(VALUES)] if option else [chance.choice(VALUES)]
        yield words


class HangsError(Exception):
    pass


@contextlib.contextmanager
def limited(seconds: int) -> Iterator[None]:
    def ring(*_: object) -> None:
        raise HangsError

    before = signal.signal(signal.SIGALRM, ring)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.slow
@pytest.mark.parametrize(
    "count", [EACH_TIME, pytest.param(NIGHTLY, marks=pytest.mark.nightly)], ids=["each time", "nightly"]
)
def test_every_input_has_an_answer(
    places: dict[str, str],
    count: int,
    capfd: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    wrong = []
    for words in command_lines(count):
        given = [places.get(word, word) for word in words]
        try:
            with limited(LIMIT_S):
                code: object = entry.main(given)
        except SystemExit as ended:
            code = f"SystemExit {ended.code}"
        except BaseException as error:
            code = repr(error)
        said = "".join(capfd.readouterr())
        is_escaped = not any(letter in said for letter in "\x1b\x07")
        if code not in (0, 2, 3) or "Traceback" in said or "internal error" in said or not is_escaped:
            wrong.append((words, code, said[-600:]))
    assert wrong == []


def test_what_nobody_thought_of_is_one_line_and_no_finding(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def fails(*_: object) -> None:
        raise ZeroDivisionError("in a place\nthat works")

    monkeypatch.setenv("TMPDIR", str(tmp_path))
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(asked, "check_model", fails)
    assert entry.main(["run", "nvmalloc", "-w", "smoke"]) == 3
    first, hint = capsys.readouterr().err.splitlines()
    assert first.startswith(r"error: internal error: ZeroDivisionError: in a place\nthat works (test_odd_input.py:")
    (kept,) = tmp_path.glob("faultline-error-*.txt")
    assert hint == f"hint: this is a bug of faultline: report it with {kept}"
    assert "Traceback" in kept.read_text()


@pytest.mark.parametrize(
    ("limit", "redirection"), [("ulimit -n 8", ""), ("ulimit -n 16", ""), ("true", "> /dev/full")], ids=str
)
def test_what_the_system_lacks_is_one_line(scripts: Path, limit: str, redirection: str) -> None:
    script = f"{limit}; exec {scripts}/faultline run nvmalloc -w ace:1:1 --recoveries 2 {redirection}"
    run = subprocess.run(["bash", "-c", script], capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode == 3, run.stdout + run.stderr
    assert "Traceback" not in run.stderr
    assert sum(line.startswith("error: ") for line in run.stderr.splitlines()) == 1, run.stderr


def test_a_folder_is_no_engine(faultline: Faultline, tmp_path: Path) -> None:
    run = faultline("run", "nvmalloc", "-w", "smoke", "--engine", tmp_path)
    assert_one_clear_line(run, 3, f"{tmp_path}: no engine is there")


def test_a_name_that_is_no_utf_8_is_refused_where_results_are_written() -> None:
    command = [sys.executable, "-m", "faultline", "run", "nvmalloc", "-w", "smoke", "--out", b"/tmp/\xff"]
    run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert_one_clear_line(run, 2, "is no UTF-8")


@pytest.mark.nightly
def test_a_cache_may_have_a_space_in_its_name(faultline: Faultline, tmp_path: Path) -> None:
    run = faultline("run", "nvmalloc", "-w", "ace:1:1", "--cache", tmp_path / "a cache")
    assert run.returncode == 0, run.stdout + run.stderr
