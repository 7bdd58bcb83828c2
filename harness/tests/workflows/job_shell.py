# SPDX-License-Identifier: Apache-2.0
"""What a job of a CI service has in these tests: a clone, a POSIX shell, and programs in the place of those that reach out."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from caches import cache_that_shares_builds
from foreign.own_repository import git

LIMIT_S = 600
STAND_IN = """\
#!{python}
import json, os, shutil, sys
name, words = os.path.basename(sys.argv[0]), sys.argv[1:]
with open({calls!r}, "a") as calls:
    calls.write(json.dumps([name, *words]) + "\\n")
if name == "gh" and "--paginate" in words and os.path.exists({comment!r}):
    print(open({comment!r}).read())
if name == "curl" and "--location" in words:
    sys.exit(22 if not os.path.exists({results!r}) else bool(shutil.copy({results!r}, words[words.index("--output") + 1])) - 1)
"""


@dataclass
class Ended:
    """Of a shell: its exit code, and what it said on both streams."""

    code: int
    said: str


@dataclass
class Place:
    """Where one service keeps things between its jobs. root: the clone of faultline. scripts: where its command is, if anywhere."""

    folder: Path
    root: Path
    scripts: Path | None
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir()
        programs = self.folder / "bin"
        programs.mkdir()
        text = STAND_IN.format(
            python=sys.executable, calls=str(self.calls_file), comment=str(self.comment), results=str(self.results)
        )
        for name in ("apt-get", "curl", "gh", "pip", "sudo"):
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)

    @property
    def calls_file(self) -> Path:
        return self.folder / "calls"

    @property
    def comment(self) -> Path:
        """Holds the number of the comment that is there already."""
        return self.folder / "comment"

    @property
    def results(self) -> Path:
        """What GitLab answers when it is asked for results.json of a branch."""
        return self.folder / "results.json"

    def calls(self) -> list[list[str]]:
        """What was asked of the programs that stand in for others."""
        return (
            [json.loads(line) for line in self.calls_file.read_text().splitlines()] if self.calls_file.exists() else []
        )

    def clone(self, repository: Path, name: str) -> Path:
        """What a job checks out. Runner and tracer are those of the clone of faultline."""
        work = self.folder / "jobs" / name
        git(self.folder, "clone", "-q", str(repository), str(work))
        cache_that_shares_builds(self.root, work / ".faultline")
        return work

    def run(self, script: str, folder: Path, environment: Mapping[str, str]) -> Ended:
        """By sh, which stops at the first command that fails: it is what images have that have no bash."""
        path = os.pathsep.join([str(self.folder / "bin"), *([] if self.scripts is None else [str(self.scripts)]), PATH])
        run = subprocess.run(
            ["sh", "-e", "-c", script],
            cwd=folder,
            env={"PATH": path, "HOME": os.environ["HOME"], "CI": "true", **environment},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            stdin=subprocess.DEVNULL,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        self.log.append(f"$ {script}\n{run.stdout}exit code {run.returncode}\n")
        return Ended(run.returncode, run.stdout)


def _path_without_faultline() -> str:
    """Tests run by .venv/bin/python from a shell in which .venv may be active."""
    folders = os.environ["PATH"].split(os.pathsep)
    return os.pathsep.join(folder for folder in folders if not (Path(folder) / "faultline").exists())


PATH = _path_without_faultline()
