# SPDX-License-Identifier: Apache-2.0
"""Bad input and broken surroundings, from the command line, through the real pipeline: one clear line, exit code 2 or 3."""

from __future__ import annotations

import os
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import sysconfig
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.base.config import find_allocator
from faultline.pipeline import trace
from faultline.pipeline.build import Built
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.workload import generators
from samples import SOURCE_FOLDERS

RUN = ("run", "nvm_malloc", "--workload", "smoke", "--samples", "0", "--exhaustive-states", "0")


@pytest.fixture(scope="module")
def own_cache(root: Path, tmp_path_factory: pytest.TempPathFactory, faultline: Faultline) -> Path:
    """A cache with the trace of smoke, which tests may damage."""
    folder = cache_that_shares_builds(root, tmp_path_factory.mktemp("own") / "cache").folder
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--cache", folder)
    assert run.returncode == 0, run.stderr
    return folder


@pytest.fixture(scope="module")
def clone(tmp_path_factory: pytest.TempPathFactory, root: Path) -> Path:
    """Sources without the rest, with a `faultline` of their own in effect through PYTHONPATH."""
    folder = tmp_path_factory.mktemp("clone")
    for part in (*SOURCE_FOLDERS, "harness"):
        shutil.copytree(root / part, folder / part, ignore=shutil.ignore_patterns("__pycache__", "tests"))
    return folder


def in_clone(clone: Path) -> dict[str, dict[str, str]]:
    return {"env": {"PYTHONPATH": str(clone / "harness")}}


# ---- names and files -----------------------------------------------------------------------------------------------------


def test_unknown_allocator(faultline: Faultline) -> None:
    assert_one_clear_line(faultline("run", "nosuch", "-w", "smoke"), 2, "nosuch", "nvm_malloc")


def test_unknown_mutant(faultline: Faultline) -> None:
    assert_one_clear_line(faultline(*RUN, "--mutant", "NOSUCH"), 2, "NOSUCH", "MAGIC_NOT_LAST")


def test_unknown_workload(faultline: Faultline) -> None:
    assert_one_clear_line(faultline("run", "nvm_malloc", "-w", "nosuch"), 2, "nosuch", "ace:N")
    assert_one_clear_line(faultline("run", "nvm_malloc"), 2, "no workload is named", "ace:N")


@pytest.mark.parametrize(
    "arguments",
    [
        ["run"],
        ["nosuch"],
        ["run", "nvm_malloc", "-w", "churn", "--ops", "0"],
        ["matrix", "--jobs", "x"],
    ],
)
def test_usage_errors(faultline: Faultline, arguments: list[str]) -> None:
    assert_one_clear_line(faultline(*arguments), 2, "--help")


def test_error_in_a_workload_file(faultline: Faultline, tmp_path: Path) -> None:
    path = tmp_path / "mine.workload"
    path.write_text("workload 1\nslots 2\ncase\nfree 1\n")
    assert_one_clear_line(faultline("run", "nvm_malloc", "-w", path), 2, f"{path}:4: slot 1 is empty")


def test_error_in_a_matrix_file(faultline: Faultline, tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    path.write_text("version = 1\n[[cell]]\nallocator = 'nvm_malloc'\n")
    run = faultline("matrix", "-c", path, "--out", tmp_path / "out")
    assert_one_clear_line(run, 2, f"{path}: cell[0].workload: this key is required and missing")
    path.write_text("version = 1\n")
    assert_one_clear_line(faultline("matrix", "-c", path, "--out", tmp_path / "out"), 2, "has no cell")
    assert_one_clear_line(faultline("matrix", "-c", tmp_path / "nosuch"), 2, "nosuch: cannot be read")


@pytest.mark.slow
def test_error_in_an_allocator_file(faultline: Faultline, clone: Path, own_cache: Path) -> None:
    path = clone / "allocators" / "nvm_malloc" / "allocator.toml"
    good = path.read_text()
    path.write_text(good.replace("alignment = 64", 'alignment = "64"'))
    run = faultline(*RUN, "--cache", own_cache, **in_clone(clone))
    path.write_text(good)
    assert_one_clear_line(run, 2, f"{path}: heap.alignment: expected `int`, got `str`")


def test_a_report_without_results(faultline: Faultline, tmp_path: Path) -> None:
    assert_one_clear_line(faultline("report", "--out", tmp_path), 2, "no results there")
    tmp_path.joinpath("results.sqlite").write_text("no database\n" * 100)
    assert_one_clear_line(faultline("report", "--out", tmp_path), 2, "is not a results database")


@pytest.mark.parametrize("url", ["report.html", "file:///tmp", "https://", "https://a b", "https://[x"])
def test_an_address_that_is_none(faultline: Faultline, tmp_path: Path, url: str) -> None:
    run = faultline("report", "--out", tmp_path, "--report-url", url)
    assert_one_clear_line(run, 2, "--report-url", "https://")


@pytest.mark.parametrize("command", ["replay", "explain", "shrink"])
def test_a_token_that_is_none(faultline: Faultline, command: str) -> None:
    assert_one_clear_line(faultline(command, "fl1.nonsense"), 2)
    assert_one_clear_line(faultline(command, "nonsense"), 2)


@pytest.mark.parametrize(
    "words",
    [("litmus", "@"), ("import", "@", "--out", "trace"), ("trace", "@", "--dump"), ("report", "--compare", "@", "@")],
    ids=lambda words: words[0],
)
def test_a_pipe_that_nobody_writes_to_is_not_waited_for(
    faultline: Faultline, tmp_path: Path, words: tuple[str, ...]
) -> None:
    os.mkfifo(tmp_path / "pipe")
    run = faultline(*(word.replace("@", str(tmp_path / "pipe")) for word in words), limit_s=60, cwd=tmp_path)
    assert_one_clear_line(run, 2, "pipe", "regular file")


def test_a_litmus_file_that_is_missing(faultline: Faultline, tmp_path: Path) -> None:
    run = faultline("litmus", tmp_path / "nosuch")
    assert run.returncode == 2
    assert "nosuch" in run.stderr


# ---- traces --------------------------------------------------------------------------------------------------------------


def truncated(trace: bytes) -> bytes:
    return trace[: len(trace) // 2]


def without_footer(trace: bytes) -> bytes:
    return trace[:-64]


def corrupt(trace: bytes) -> bytes:
    middle = len(trace) // 2
    return trace[:middle] + bytes([trace[middle] ^ 0xFF]) + trace[middle + 1 :]


def wrong_version(trace: bytes) -> bytes:
    return trace[:8] + struct.pack("<I", 999) + trace[12:]


def no_trace(trace: bytes) -> bytes:
    return b"#!/bin/sh\n" * 100


def empty(trace: bytes) -> bytes:
    return b""


@pytest.mark.parametrize("damage", [truncated, without_footer, corrupt, wrong_version, no_trace, empty])
def test_a_damaged_trace(faultline: Faultline, own_cache: Path, damage) -> None:  # type: ignore[no-untyped-def]
    [path] = (own_cache / "traces").glob("*.trace")
    good = path.read_bytes()
    path.write_bytes(damage(good))
    run = faultline("run", "nvm_malloc", "-w", "smoke", "--cache", own_cache)
    path.write_bytes(good)
    assert_one_clear_line(run, 2, path.name)
    assert "panicked" not in run.stderr
    assert run.stdout.splitlines()[-1].startswith("summary: cells=1 findings=0 mutants=0/0 ")
    assert " unknown=1 " in run.stdout.splitlines()[-1]


# ---- targets -------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_adapter_without_its_symbol(faultline: Faultline, clone: Path, own_cache: Path) -> None:
    path = clone / "allocators" / "nvm_malloc" / "adapter.c"
    good = path.read_text()
    path.write_text(good.replace("faultline_adapter(void)", "no_adapter(void)"))
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--cache", own_cache, **in_clone(clone))
    path.write_text(good)
    assert_one_clear_line(run, 2, "nvm_malloc", "faultline_adapter")


def test_an_adapter_of_another_abi_version(faultline: Faultline, clone: Path, own_cache: Path) -> None:
    path = clone / "allocators" / "nvm_malloc" / "adapter.c"
    good = path.read_text()
    assert "FL_ADAPTER_ABI" in good
    path.write_text(good.replace("FL_ADAPTER_ABI", "999"))
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--cache", own_cache, **in_clone(clone))
    path.write_text(good)
    assert_one_clear_line(run, 2, "nvm_malloc", "999", "expected")


def test_a_target_that_crashes_while_it_is_traced(faultline: Faultline, clone: Path, own_cache: Path) -> None:
    path = clone / "allocators" / "nvm_malloc" / "src" / "heap.c"
    good = path.read_text()
    broken = '\n__attribute__((constructor)) static void crash(void) { if (getenv("VALGRIND_LIB")) *(volatile int *)8 = 1; }\n'
    path.write_text("#include <stdlib.h>\n" + good + broken)
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--cache", own_cache, **in_clone(clone))
    path.write_text(good)
    assert_one_clear_line(run, 3, "nvm_malloc crashed with SIGSEGV", "session 0 of workload smoke", ".log")


# ---- surroundings --------------------------------------------------------------------------------------------------------


def test_a_heap_folder_that_is_missing(faultline: Faultline, tmp_path: Path) -> None:
    assert_one_clear_line(
        faultline(*RUN, "--heap-folder", tmp_path / "nosuch"), 2, "nosuch: the heap folder does not exist"
    )
    (tmp_path / "file").write_text("")
    assert_one_clear_line(faultline(*RUN, "--heap-folder", tmp_path / "file"), 2, "the heap folder is not a folder")


def test_a_heap_folder_that_cannot_be_written(faultline: Faultline, own_cache: Path) -> None:
    """/proc is read-only for every user."""
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--fresh", "--cache", own_cache, "--heap-folder", "/proc")
    assert_one_clear_line(run, 3, "/proc: no heap folder can be made there")


def test_a_heap_folder_that_is_full(faultline: Faultline, own_cache: Path) -> None:
    """A limit of the file size stands for a full file system: the heap does not get its bytes."""

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 15, 1 << 15))

    command = ("trace", "nvm_malloc", "-w", "smoke", "--fresh", "--cache", own_cache)
    assert faultline(*command).returncode == 0  # what is built is larger than the limit
    assert_one_clear_line(faultline(*command, preexec_fn=limit), 3, "/dev/shm: the heap folder is full", "ulimit")


def test_a_full_memory_file_system_kills_by_sigbus_and_is_said_to_be_full(
    root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A sparse heap on tmpfs finds out at a store. With room left, SIGBUS is the target's own crash."""
    built = Built(tmp_path, "key")
    target = trace.Target(find_allocator(root, "nvm_malloc"), None, "clwb", built, built, built)

    def said(free: int) -> str:
        monkeypatch.setattr(trace.shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
        paths = (tmp_path / "workload", tmp_path / "heaps", tmp_path / "trace", tmp_path / "log")
        tracing = trace._Tracing(DEFAULT_TRACER, target, generators.smoke(), *paths, deadline=None)
        return tracing._error(0, -signal.SIGBUS, "", is_whole=False).message

    assert f"{tmp_path}: the heap folder is full (4096 bytes free)" in said(4096)
    assert "crashed with SIGBUS" in said(1 << 30)


def without(tool: str, tmp_path: Path) -> dict[str, str]:
    """PATH with everything that /usr/bin has but the tool."""
    folder = tmp_path / "bin"
    folder.mkdir()
    for path in Path("/usr/bin").iterdir():
        if path.name != tool:
            (folder / path.name).symlink_to(path)
    return {"PATH": str(folder)}


def test_valgrind_that_is_missing(faultline: Faultline, tmp_path: Path, own_cache: Path) -> None:
    environment = without("valgrind", tmp_path)
    run = faultline("trace", "nvm_malloc", "-w", "smoke", "--cache", own_cache, env=environment)
    assert_one_clear_line(run, 3, "valgrind was not found on PATH", "make setup")
    doctor = faultline("doctor", env=environment)
    assert doctor.returncode == 3
    assert "valgrind was not found on PATH" in doctor.stdout


def test_a_cache_that_cannot_be_made(faultline: Faultline, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert_one_clear_line(faultline(*RUN, "--cache", tmp_path / "file"), 3, "--cache DIR")


def test_set_up_names_what_is_missing_when_it_may_not_install(tmp_path: Path, root: Path) -> None:
    """Without apt-get the script cannot install; it names the packages and stops."""
    environment = without("apt-get", tmp_path)
    (tmp_path / "bin" / "valgrind").unlink()
    shutil.copytree(root / "ci", tmp_path / "clone" / "ci")
    run = subprocess.run(
        ["/bin/bash", str(tmp_path / "clone" / "ci" / "setup.sh")],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 3
    assert "error: system packages are missing: valgrind" in run.stderr


def test_set_up_takes_nothing_from_the_environment_that_it_makes(tmp_path: Path, root: Path) -> None:
    """With .venv active its python3 comes first on PATH, and would make its own successor. Here it has the only cargo."""
    shutil.copytree(root / "ci", tmp_path / "clone" / "ci")
    active = tmp_path / "clone" / ".venv" / "bin"
    active.mkdir(parents=True)
    (active / "cargo").write_text("#!/bin/sh\necho cargo 0.0.1\n")
    (active / "cargo").chmod(0o755)
    path = f"{active}:{active}:{without('cargo', tmp_path)['PATH']}:{active}"
    run = subprocess.run(
        ["/bin/bash", str(tmp_path / "clone" / "ci" / "setup.sh")],
        env={"PATH": path, "HOME": str(tmp_path)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 3
    assert "error: cargo was not found" in run.stderr


@pytest.mark.slow
@pytest.mark.parametrize("sent", [signal.SIGINT, signal.SIGTERM])
def test_ctrl_c_keeps_results_and_ends_with_3(scripts: Path, tmp_path: Path, sent: signal.Signals) -> None:
    command = [
        scripts / "faultline",
        "run",
        "nvm_malloc",
        "-w",
        "churn",
        "--ops",
        "400",
        "--mutant",
        "MISSING_FLUSH_LINK",
        "--stop-at-rule",
        "none",
    ]
    heaps = tmp_path / "heaps"
    heaps.mkdir()
    process = subprocess.Popen(
        [*map(str, command), "--out", str(tmp_path), "--heap-folder", str(heaps)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    wait_for_a_finding(tmp_path / "results.sqlite")
    process.send_signal(sent)
    out, err = process.communicate(timeout=60)
    assert process.returncode == 3, err
    assert "error: interrupted" in err
    assert "Traceback" not in err
    assert "stopped" in out
    assert "replay: faultline replay fl1" in out
    assert "stopped" in (tmp_path / "report.html").read_text()
    assert not list(heaps.iterdir())


def test_an_engine_does_not_outlive_a_run_that_is_killed() -> None:
    """Nor while it has nothing to say: what it says would end it, for nobody reads that."""
    process = subprocess.Popen([sys.executable, "-c", HOLDS_A_CHILD], stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    held = os.pidfd_open(int(process.stdout.readline()))
    assert select.select([held], [], [], 0)[0] == []
    process.kill()
    process.communicate()
    assert select.select([held], [], [], 30)[0] == [held]
    os.close(held)


def test_an_engine_does_not_outlive_a_run_that_is_killed_while_it_begins(tmp_path: Path) -> None:
    setpriv, begun = tmp_path / "setpriv", tmp_path / "begun"
    os.mkfifo(begun)
    begins = os.open(begun, os.O_RDWR)
    setpriv.write_text(f'#!/bin/sh\necho $$ > {begun}\nsleep 0.5\nexec {shutil.which("setpriv")} "$@"\n')
    setpriv.chmod(0o755)
    environment = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    process = subprocess.Popen([sys.executable, "-c", HOLDS_A_CHILD], stdout=subprocess.PIPE, env=environment)
    assert select.select([begins], [], [], 30)[0] == [begins]
    held = os.pidfd_open(int(os.read(begins, 64)))
    process.kill()
    process.communicate()
    assert select.select([held], [], [], 30)[0] == [held]
    os.close(held)
    os.close(begins)


HOLDS_A_CHILD = """
import subprocess
import time
from faultline.base.processes import child
with child(["sleep", "300"], subprocess.DEVNULL, subprocess.DEVNULL) as process:
    print(process.pid, flush=True)
    time.sleep(300)
"""


def wait_for_a_finding(database: Path) -> None:
    import sqlite3

    for _ in range(1200):
        time.sleep(0.1)
        if database.exists():
            try:
                with sqlite3.connect(f"file:{database}?mode=ro", uri=True) as connection:
                    if connection.execute("select count(*) from finding").fetchone()[0]:
                        return
            except sqlite3.OperationalError:
                continue
    pytest.fail("no finding within two minutes")


def test_no_colour_when_it_is_not_a_terminal(faultline: Faultline) -> None:
    for run in (
        faultline("doctor"),
        faultline("run", "nosuch", "-w", "smoke"),
        faultline("list", env={"NO_COLOR": "1"}),
    ):
        assert "\x1b[" not in run.stdout + run.stderr


def test_the_engine_is_where_the_command_is() -> None:
    assert os.access(Path(sysconfig.get_path("scripts")) / "faultline-engine", os.X_OK)
