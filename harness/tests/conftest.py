# SPDX-License-Identifier: Apache-2.0
"""Shared fixtures. `faultline` starts the installed command as users do; `fake_engine` stands in for the engine where a test
is about what the harness makes of its answers."""

from __future__ import annotations

import json
import os
import shutil
import signal
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline
from drawn import leave_the_rest_to_nightly
from faultline.base.cache import Cache, project_root

COMMAND_LIMIT_S = 600

# A shell that starts something behind it lets it ignore Ctrl-C, and so do all programs that it starts; here they are sent it.
signal.signal(signal.SIGINT, signal.default_int_handler)


LONGEST = "test_matrix.py"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """The longest file begins first: workers that are out of files wait for it otherwise. Who names a test gets it."""
    if not any("::" in argument for argument in config.args):
        leave_the_rest_to_nightly(project_root(), items)
    items.sort(key=lambda item: item.path.name != LONGEST)


@pytest.fixture(scope="session")
def root() -> Path:
    return project_root()


@pytest.fixture
def cache(tmp_path: Path) -> Cache:
    return Cache(tmp_path / "cache")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """On a memory file system where there is one: that is where heaps lie in earnest."""
    shared = Path("/dev/shm")
    path = (shared if os.access(shared, os.W_OK) else tmp_path) / f"faultline-test-{os.getpid()}"
    path.mkdir()
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="session")
def scripts() -> Path:
    """Where `faultline` and `faultline-engine` are; planted/builds.py has others tested instead."""
    return Path(os.environ.get("FAULTLINE_TEST_SCRIPTS") or sysconfig.get_path("scripts"))


@pytest.fixture(scope="session")
def faultline(scripts: Path) -> Faultline:
    def run(*arguments: str | Path, **options: Any) -> subprocess.CompletedProcess[str]:
        environment = {**os.environ, **options.pop("env", {})}
        return subprocess.run(
            [str(scripts / "faultline"), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=options.pop("limit_s", COMMAND_LIMIT_S),
            stdin=subprocess.DEVNULL,
            env=environment,
            check=False,
            **options,
        )

    return run


FAKE_ENGINE = """#!{python}
import json, os, signal, sys, time
script = json.load(open({script!r}))
if sys.argv[1] == "--version":
    print("faultline-engine fake")
    sys.exit(0)
if sys.argv[1] == "lists" and "lists" not in script:
    strategies = [{{"name": name, "runs": "it", "follows_loads": name == "complete"}} for name in ("complete", "mixed")]
    print(json.dumps({{"models": [{{"name": "px86", "survives": "what was fenced"}}], "strategies": strategies}}))
    sys.exit(0)
step = script.get(sys.argv[1], {{}})
if sys.argv[1] in ("explore", "replay"):
    with open(sys.argv[2]) as config, open({script!r} + ".config", "w") as copy:
        copy.write(config.read())
for line in step.get("print", []):
    print(line if isinstance(line, str) else json.dumps(line), flush=True)
if "on_interrupt" in step:
    def interrupted(*_):
        for line in step["on_interrupt"]:
            print(json.dumps(line), flush=True)
        sys.exit(3)
    signal.signal(signal.SIGINT, interrupted)
    open({script!r} + ".sleeps", "w").close()
    time.sleep(60)
if "error" in step:
    print(step["error"], file=sys.stderr)
if "signal" in step:
    os.kill(os.getpid(), step["signal"])
sys.exit(step.get("exit", 0))
"""


@pytest.fixture
def fake_engine(tmp_path: Path) -> Iterator[Callable[[dict[str, Any]], Path]]:
    """fake_engine({"explore": {"print": [events], "exit": 1, "error": text, "signal": n, "on_interrupt": [events]}})."""

    def make(script: dict[str, Any]) -> Path:
        path = tmp_path / "fake-engine"
        (tmp_path / "script.json").write_text(json.dumps(script))
        path.write_text(FAKE_ENGINE.format(python=sys.executable, script=str(tmp_path / "script.json")))
        path.chmod(path.stat().st_mode | stat.S_IXUSR)
        return path

    return make
