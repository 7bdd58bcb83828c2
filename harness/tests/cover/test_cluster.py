# SPDX-License-Identifier: Apache-2.0
"""matrix --cluster: workers give what one machine gives, whatever becomes of them, of the client, or of their versions."""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.campaign import alike
from plugin.users_repository import make_allocator

MATRIX = """\
version = 1
[defaults]
strategy = "complete"
[[cell]]
allocator = "toy"
workload = "create"
[[cell]]
allocator = "toy"
workload = "ace:1"
[[cell]]
allocator = "toy"
workload = "smoke"
"""
ENGINE = """#!{python}
import json, os, pathlib, signal, sys, time
if sys.argv[1] == "explore":
    workload = json.load(open(sys.argv[2]))["identity"]["workload"]
    with open({log!r}, "a") as log:
        log.write(workload + "\\n")
    if workload == {deadly!r}:
        os.kill(os.getppid(), signal.SIGKILL)
        signal.pause()
    held = pathlib.Path({log!r} + ".held")
    if held.exists() and len(pathlib.Path({log!r}).read_text().split()) == int(held.read_text()):
        time.sleep(60)
os.execv({engine!r}, [{engine!r}, *sys.argv[1:]])
"""
"""The engine, which writes down what it explores, and kills the worker that started it when that is a certain workload. It waits
for its end where explored.held has the number of this exploration."""


@pytest.fixture
def project(root: Path, tmp_path: Path) -> Path:
    folder = make_allocator(root, tmp_path / "project", is_mended=True)
    (folder / "m.toml").write_text(MATRIX)
    return folder


def make_engine(scripts: Path, folder: Path, deadly: str = "") -> tuple[Path, Path]:
    """It, and the file in which it writes down what it explores."""
    path, log = folder / "engine", folder / "explored"
    engine = str(scripts / "faultline-engine")
    path.write_text(ENGINE.format(python=sys.executable, log=str(log), deadly=deadly, engine=engine))
    path.chmod(0o755)
    log.touch()
    return path, log


def facts(folder: Path) -> list[dict[str, Any]]:
    """Of the cells, without what is a matter of the clock, and of who was there before."""
    cells = json.loads((folder / "results.json").read_text())["cells"]
    for cell in cells:
        for name in ("build_s", "trace_s", "explore_s", "is_reused"):
            del cell[name]
        if cell["certificate"] is not None:
            cell["certificate"].update(time_s=0, peak_memory_bytes=0)
    return list(cells)


def wait_until(is_so: Callable[[], Any], what: str, limit_s: float = 120) -> Any:
    deadline = time.monotonic() + limit_s
    while not (found := is_so()):
        assert time.monotonic() < deadline, what
        time.sleep(0.05)
    return found


def begin(scripts: Path, project: Path, *words: object, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [str(scripts / "faultline"), "matrix", "-c", "m.toml", *map(str, words)],
        cwd=project,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        **options,
    )


# ---- a scheduler and workers of our own ----------------------------------------------------------------------------------


class Started:
    """Processes of a test, each with the groups below it; all are ended."""

    def __init__(self, scripts: Path, folder: Path) -> None:
        self.scripts, self.folder = scripts, folder
        self.processes: list[subprocess.Popen[bytes]] = []

    def start(self, *words: object, before: tuple[str, ...] = (), cwd: Path | None = None) -> subprocess.Popen[bytes]:
        environment = {**os.environ, "DASK_DISTRIBUTED__COMM__TIMEOUTS__TCP": "12s"}
        name = self.folder / f"dask-{len(self.processes)}.log"
        with name.open("wb") as log:
            process = subprocess.Popen(
                [*before, str(self.scripts / "dask"), *map(str, words)],
                cwd=cwd or self.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment,
                start_new_session=True,
            )
        self.processes.append(process)
        return process

    def scheduler(self, host: str = "127.0.0.1", before: tuple[str, ...] = ()) -> str:
        file = self.folder / "scheduler.json"
        words = ("--host", host, "--port", 0, "--dashboard-address", f"{host}:0", "--scheduler-file", file)
        self.start("scheduler", *words, before=before)
        wait_until(lambda: file.is_file() and file.read_text(), "a scheduler")
        return str(json.loads(file.read_text())["address"])

    def worker(self, address: str, project: Path, before: tuple[str, ...] = ()) -> subprocess.Popen[bytes]:
        words = ("--nworkers", 1, "--nthreads", 1, "--no-dashboard", "--local-directory", self.folder)
        process = self.start("worker", address, *words, before=before, cwd=project)
        log = self.folder / f"dask-{len(self.processes) - 1}.log"
        wait_until(lambda: "Registered to" in log.read_text(), f"a worker, whose log is {log}")
        return process

    def end(self) -> None:
        for process in self.processes:
            kill_all_below(process.pid)
            process.wait()


def children_of(process: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        found += [int(path.parent.name)] if int(fields[1]) == process else []
    return found


def all_below(process: int) -> list[int]:
    return [process, *(one for child in children_of(process) for one in all_below(child))]


def kill_all_below(process: int) -> None:
    for one in all_below(process):
        try:
            os.kill(one, signal.SIGKILL)
        except ProcessLookupError:
            continue


def is_busy(worker: subprocess.Popen[bytes]) -> bool:
    """Whether it has started an engine, or what it traces."""
    names = [Path(f"/proc/{one}/cmdline") for one in all_below(worker.pid)]
    words = [name.read_bytes() if name.exists() else b"" for name in names]
    return any(b"faultline-engine\0explore" in word for word in words)


@pytest.fixture
def started(scripts: Path, tmp_path: Path) -> Iterator[Started]:
    processes = Started(scripts, tmp_path)
    yield processes
    processes.end()


# ---- bad input -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("where", ["local:0", "local:999", "local", "tcp://host", "host:8786", "http://host:1", ""])
def test_a_cluster_that_is_none(faultline: Faultline, where: str) -> None:
    assert_one_clear_line(faultline("matrix", "--cluster", where), 2, "--cluster", "tcp://HOST:PORT", "local:N")


def test_machines_are_compared_by_what_a_wheel_has(root: Path) -> None:
    """But for the matrix, which a worker is sent."""
    wheel = runpy.run_path(str(root / "ci" / "packaging" / "faultline_wheel.py"), run_name="imported")
    files = {path for pattern in alike.INSTALLED for path in root.glob(pattern) if path.is_file()}
    packed = {path for pattern in wheel["SOURCES"] for path in root.glob(pattern) if path.is_file()}
    assert packed - files == {root / "ci" / "matrix.toml"}
    assert files <= packed
    assert wheel["LEFT_OUT"] <= alike.LEFT_OUT


def test_jobs_are_of_this_process(faultline: Faultline) -> None:
    assert_one_clear_line(faultline("matrix", "--cluster", "local:2", "--jobs", "2"), 2, "--jobs", "--cluster")


@pytest.mark.slow
def test_a_scheduler_that_is_not_there(faultline: Faultline, tmp_path: Path) -> None:
    run = faultline("matrix", "--cluster", "tcp://127.0.0.1:1", "--out", tmp_path / "out")
    assert_one_clear_line(run, 3, "tcp://127.0.0.1:1: no scheduler answers there", "dask scheduler")
    assert not (tmp_path / "out").exists()


def test_without_distributed(faultline: Faultline, tmp_path: Path) -> None:
    (tmp_path / "distributed.py").write_text("raise ImportError('there is none')\n")
    run = faultline("matrix", "--cluster", "local:1", "--out", tmp_path / "out", env={"PYTHONPATH": str(tmp_path)})
    assert_one_clear_line(run, 3, "--cluster needs Dask distributed", "pip install 'faultline[cluster]'")


# ---- for real ------------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_two_workers_give_what_one_machine_gives_and_a_deadly_part_leaves_the_others_alone(
    faultline: Faultline, scripts: Path, project: Path
) -> None:
    whole = faultline("matrix", "-c", "m.toml", "--out", "whole", cwd=project)
    assert whole.returncode == 0, whole.stderr
    run = faultline("matrix", "-c", "m.toml", "--cluster", "local:2", "--out", "two", cwd=project)
    assert run.returncode == 0, run.stderr
    assert run.stderr.splitlines()[0].startswith("each cell is explored")
    said = re.findall(r"^\[\d/3\] (toy .*)", run.stderr, re.MULTILINE)
    assert sorted(said) == ["toy ace:1: pass", "toy create: pass", "toy smoke: pass"]
    assert len(run.stderr.splitlines()) == 5, "nothing else is said"
    assert facts(project / "two") == facts(project / "whole")

    engine, explored = make_engine(scripts, project, deadly="ace:1")
    words = ("matrix", "-c", "m.toml", "--cluster", "local:2", "--engine", engine, "--out", "deadly")
    run = faultline(*words, cwd=project)
    assert run.returncode == 3, run.stderr
    cells = facts(project / "deadly")
    assert [cell["verdict"] for cell in cells] == ["pass", "unknown", "pass"]
    assert re.fullmatch(r"3 workers were lost in the middle of it: (tcp://127.0.0.1:\d+(, )?){3}", cells[1]["error"])
    assert sorted(explored.read_text().split()) == ["ace:1"] * 3 + ["create", "smoke"]
    assert run.stderr.count(": lost in the middle of toy ace:1, which is given again") == 2


@pytest.mark.slow
def test_a_worker_of_another_version_is_refused(faultline: Faultline, started: Started, project: Path) -> None:
    other = project.parent / "other"
    shutil.copytree(project, other, symlinks=True)
    source = other / "toy" / "shelf.c"
    source.write_text(source.read_text() + "\n")
    address = started.scheduler()
    started.worker(address, other)
    words = ("matrix", "-c", "m.toml", "--cluster", address, "--out", "out")
    run = faultline(*words, cwd=project)
    assert run.returncode == 3
    error = next(line for line in run.stderr.splitlines() if line.startswith("error: "))
    found = re.search(r"no worker can run parts: tcp://\S+: sources of toy: (\w{12}) there, (\w{12}) here", error)
    assert found is not None, run.stderr
    assert found[1] != found[2]
    assert facts(project / "out") == []
    started.worker(address, project)
    run = faultline(*words, cwd=project)
    assert run.returncode == 0, run.stderr
    assert [cell["verdict"] for cell in facts(project / "out")] == ["pass"] * 3
    assert run.stderr.count(": refused: sources of toy: ") == 1


@pytest.mark.slow
def test_a_client_that_is_stopped_goes_on_where_it_was(scripts: Path, project: Path, started: Started) -> None:
    """Killed, and ended by a terminal's Ctrl-C, which reaches workers on this machine, too."""
    engine, explored = make_engine(scripts, project)

    def stopped(number: int, cells: int, begun: int) -> str:
        """By the signal, when so many cells have come to their end and the next one is explored, the begun one of all runs."""
        explored.with_name(f"{explored.name}.held").write_text(str(begun))
        client = begin(scripts, project, "--cluster", "local:1", "--engine", engine, "--out", "out")
        below: list[int] = []
        try:
            assert client.stderr is not None
            said = ""
            while said.count("] toy ") < cells:
                said += client.stderr.readline()
            wait_until(lambda: len(explored.read_text().split()) == begun, "the next cell")
            below = all_below(client.pid)
            os.killpg(client.pid, number)
            said += client.communicate(timeout=60)[1]
        finally:
            kill_all_below(client.pid)
        assert client.returncode == (3 if number == signal.SIGINT else -number)
        wait_until(lambda: not [one for one in below if Path(f"/proc/{one}").exists()], "nothing is left running", 20)
        return said

    stopped(signal.SIGKILL, 1, begun=2)
    assert explored.read_text().split() == ["create", "ace:1"]
    said = stopped(signal.SIGINT, 2, begun=4)
    assert "error: interrupted; what was found so far is in out/results.sqlite" in said
    assert explored.read_text().split() == ["create", "ace:1", "ace:1", "smoke"], "the first one is not explored again"
    client = begin(scripts, project, "--cluster", "local:1", "--engine", engine, "--out", "out")
    assert client.wait(120) == 0
    assert [cell["verdict"] for cell in facts(project / "out")] == ["pass"] * 3
    assert sorted(explored.read_text().split()) == ["ace:1", "ace:1", "create", "smoke", "smoke"]


@pytest.mark.slow
def test_a_scheduler_that_is_lost_costs_nothing_that_was_done(scripts: Path, project: Path, started: Started) -> None:
    address = started.scheduler()
    started.worker(address, project)
    client = begin(scripts, project, "--cluster", address, "--out", "out")
    assert client.stderr is not None
    try:
        said = ""
        while "] toy create: pass" not in said:
            line = client.stderr.readline()
            assert line, said
            said += line
        kill_all_below(started.processes[0].pid)
        said += client.communicate(timeout=120)[1]
    finally:
        kill_all_below(client.pid)
    assert client.returncode == 3
    assert f"error: {address}: the scheduler is lost: " in said
    assert "hint: the same command goes on where it stopped" in said
    assert "Traceback" not in said
    assert facts(project / "out")[0]["verdict"] == "pass"


# ---- machines with addresses of their own --------------------------------------------------------------------------------


class Network:
    """Namespaces on one bridge: a hub with the scheduler and the client, and one for each worker."""

    def __init__(self, workers: int) -> None:
        self.names: list[str] = []
        self.hub = self._add("h")
        self._in(self.hub, "link add bridge type bridge")
        self._in(self.hub, "addr add 10.99.0.1/24 dev bridge")
        self._in(self.hub, "link set bridge up")
        self._in(self.hub, "link set lo up")
        self.workers = [self._worker(number) for number in range(1, workers + 1)]

    def _worker(self, number: int) -> str:
        name = self._add(f"w{number}")
        self._in(self.hub, f"link add v{number} type veth peer name eth0 netns {name}")
        self._in(self.hub, f"link set v{number} master bridge up")
        self._in(name, f"addr add 10.99.0.{number + 1}/24 dev eth0")
        self._in(name, "link set eth0 up")
        self._in(name, "link set lo up")
        return name

    def cut_off(self, number: int) -> None:
        self._in(self.hub, f"link set v{number} down")

    def _add(self, name: str) -> str:
        self.names.append(f"faultline-{os.getpid()}-{name}")
        subprocess.run(["ip", "netns", "add", self.names[-1]], check=True, capture_output=True)
        return self.names[-1]

    @staticmethod
    def _in(name: str, words: str) -> None:
        subprocess.run(["ip", "-n", name, *words.split()], check=True, capture_output=True)

    @staticmethod
    def within(name: str) -> tuple[str, ...]:
        return ("ip", "netns", "exec", name)

    def remove(self) -> None:
        for name in self.names:
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


@pytest.fixture
def network() -> Iterator[Network]:
    made = Network.__new__(Network)
    try:
        made.__init__(3)  # type: ignore[misc]
    except (OSError, subprocess.CalledProcessError) as error:
        made.remove()
        pytest.skip(f"no network namespaces here: {error}")
    yield made
    made.remove()


CELLS = [f'[[cell]]\nallocator = "toy"\nworkload = "churn"\nops = 12\nseed = {seed}\n' for seed in range(1, 7)]


@pytest.mark.nightly
def test_three_machines_one_dies_one_is_cut_off_and_the_client_is_restarted(
    faultline: Faultline, scripts: Path, root: Path, project: Path, started: Started, network: Network
) -> None:
    (project / "m.toml").write_text(MATRIX + "".join(CELLS))
    whole = faultline("matrix", "-c", "m.toml", "--out", "whole", cwd=project)
    assert whole.returncode == 0, whole.stderr
    address = started.scheduler("10.99.0.1", network.within(network.hub))
    workers = []
    for name in network.workers:
        folder = project.parent / name
        shutil.copytree(project, folder, ignore=shutil.ignore_patterns(".faultline", "whole"))
        cache_that_shares_builds(root, folder / ".faultline")
        workers.append(started.worker(address, folder, network.within(name)))

    def client() -> subprocess.Popen[str]:
        words = ["--cluster", address, "--out", "out"]
        command = [*network.within(network.hub), str(scripts / "faultline"), "matrix", "-c", "m.toml", *words]
        return subprocess.Popen(
            command, cwd=project, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, start_new_session=True
        )

    first = client()
    assert first.stderr is not None
    try:
        wait_until(lambda: is_busy(workers[0]), "the first worker is in the middle of a part")
        kill_all_below(workers[0].pid)
        wait_until(lambda: is_busy(workers[1]), "the second one is")
        network.cut_off(2)
        said = ""
        while said.count("lost in the middle of") < 2 or "] toy " not in said:
            line = first.stderr.readline()
            assert line, said
            said += line
        wait_until(lambda: is_busy(workers[2]), "the third one is")
    finally:
        kill_all_below(first.pid)
        first.communicate()
    before = len(re.findall(r"^\[\d/9\] ", said, re.MULTILINE))
    assert 1 <= before < 9
    second = client()
    said = second.communicate(timeout=600)[1]
    assert second.returncode == 0, said
    assert facts(project / "out") == facts(project / "whole")
    cells = json.loads((project / "out" / "results.json").read_text())["cells"]
    assert before <= sum(cell["is_reused"] for cell in cells) <= before + 1, "what was done is not done again"
