# SPDX-License-Identifier: Apache-2.0
"""One build of the edited tree: the engine, the test binaries of its crates, the runner. What a test needs of them is built
when it is asked for."""

from __future__ import annotations

import functools
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

from faultline.base.cache import Cache
from faultline.pipeline.build import build_runner
from planted import edited_tree
from planted.edited_tree import VARIABLE
from planted.table import PythonTest, RustTest, Table

BUILD_LIMIT_S = 1800
CHECK_LIMIT_S = 300
CRATES = ("crashgen", "faultline-engine", "oracle")
PROFILE = ('inherits="dev"', "debug=false", "opt-level=1", 'package."*".opt-level=0')
"""Quick to build, and the random traces do not take minutes."""


class Planted:
    """The programs with all faults in them, and tests that run on them."""

    def __init__(self, root: Path, table: Table, scripts: Path) -> None:
        self.root = root
        self.folder = root / "target" / "planted"
        self.tree = self.folder / "tree"
        with edited_tree.locked(self.folder):
            edited_tree.write(root, table, self.tree)
        self.scripts = scripts
        (scripts / "faultline-engine").symlink_to(self.folder / "build" / "planted" / "faultline-engine")
        self.passed: dict[RustTest | PythonTest, bool] = {}

    @functools.cached_property
    def runner(self) -> Path:
        return build_runner(self.tree, Cache(self.root / ".faultline")).path

    @functools.cached_property
    def binaries(self) -> dict[str, tuple[Path, Path]]:
        """Each test binary with its crate's folder, by the name of its target. The engine is built beside them."""
        cargo = shutil.which("cargo") or str(
            Path(os.environ.get("CARGO_HOME", Path.home() / ".cargo")) / "bin" / "cargo"
        )
        command = [cargo, "test", "--quiet", "--no-run", "--locked", "--profile", "planted", "--message-format", "json"]
        for setting in PROFILE:
            command += ["--config", f"profile.planted.{setting}"]
        for crate in CRATES:
            command += ["--package", crate]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(self.folder / "build")}
        with edited_tree.locked(self.folder):
            run = subprocess.run(
                command,
                cwd=self.tree,
                env=environment,
                capture_output=True,
                text=True,
                timeout=BUILD_LIMIT_S,
                check=False,
            )
        messages = [json.loads(line) for line in run.stdout.splitlines()]
        said = [message["message"] for message in messages if message.get("message")]
        errors = "\n".join(text["rendered"] for text in said if text["level"] == "error")
        assert run.returncode == 0, f"the edited tree does not compile:\n{errors}{run.stderr}"
        tests = [message for message in messages if message.get("executable") and message["profile"]["test"]]
        return {
            test["target"]["name"]: (Path(test["executable"]), Path(test["manifest_path"]).parent) for test in tests
        }

    def run(self, command: list[str | Path], folder: Path, fault: str | None) -> subprocess.CompletedProcess[str]:
        environment = {key: value for key, value in os.environ.items() if key != VARIABLE}
        environment |= {"FAULTLINE_TEST_SCRIPTS": str(self.scripts), "FAULTLINE_TEST_RUNNER": str(self.runner)}
        environment |= {VARIABLE: fault} if fault else {}
        return subprocess.run(
            list(map(str, command)),
            cwd=folder,
            env=environment,
            capture_output=True,
            text=True,
            timeout=CHECK_LIMIT_S,
            check=False,
        )

    def passes(self, test: RustTest | PythonTest, fault: str | None = None) -> bool:
        """Anything but a pass or a failure of the test itself is an error."""
        match test:
            case RustTest(binary, path):
                program, folder = self.binaries[binary]
                run = self.run([program, path, "--exact"], folder, fault)
                passed, failed = "test result: ok. 1 passed", "test result: FAILED. 0 passed; 1 failed"
            case PythonTest(file, name):
                assert self.binaries
                options = ["-q", "-x", "-p", "no:cacheprovider", "--tb=no", "-m", ""]
                run = self.run([sys.executable, "-m", "pytest", *options, f"{file}::{name}"], self.root, fault)
                passed, failed = "\n1 passed", "\n1 failed"
        assert (passed in run.stdout) != (failed in run.stdout), run.stdout + run.stderr
        return passed in run.stdout

    def passes_without_a_fault(self, test: RustTest | PythonTest) -> bool:
        if test not in self.passed:
            self.passed[test] = self.passes(test)
        return self.passed[test]

    def is_missed_by_the_oracles_tests(self, site: str) -> bool:
        """Whether no test binary of the oracle fails while the site says nothing; the quick one first."""
        for binary in ("rules", "graphs", "corruptions", "random_heaps"):
            path, folder = self.binaries[binary]
            if self.run([path], folder, f"site:{site}").returncode != 0:
                return False
        return True
