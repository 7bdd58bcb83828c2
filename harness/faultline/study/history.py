# SPDX-License-Identifier: Apache-2.0
"""The git repository that an allocator comes from, and the lines that a commit changes."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from faultline.base.errors import BadInputError, InfrastructureError
from faultline.base.project import HEADER_FOLDERS, headers_of


class Repository:
    """The git repository that holds an allocator's folder: its user's, or a clone of this project. name: of the allocator, where
    it is not the folder's."""

    def __init__(self, folder: Path, name: str | None = None) -> None:
        self.name = name or folder.name
        folder = folder.resolve()
        self.top = folder
        top = self._git("rev-parse", "--show-toplevel")
        if top.returncode != 0:
            raise BadInputError(
                f"{folder}: is in no git repository that can be read: {last_line(top.stderr)}",
                "bisect needs the history of its sources",
            )
        self.top = Path(top.stdout.rstrip("\n"))
        self.folder = folder.relative_to(self.top.resolve()).as_posix()
        self.headers = HEADER_FOLDERS if headers_of(self.top) else ()

    @property
    def sources(self) -> list[str]:
        """Of a clone of this project the allocator's folder and the headers of adapters. In a repository of its own an allocator
        may be built from any file."""
        return [self.folder, *self.headers] if self.headers else ["."]

    def ask(self, *arguments: str, inside: Path | None = None) -> str | None:
        """What git says; None when it refuses."""
        run = self._git(*arguments, inside=inside)
        return run.stdout.rstrip("\n") if run.returncode == 0 else None

    def demand(self, *arguments: str, inside: Path | None = None) -> str:
        """What git says. Raises InfrastructureError when it refuses."""
        run = self._git(*arguments, inside=inside)
        if run.returncode != 0:
            said = last_line(run.stderr) or f"exit code {run.returncode}"
            raise InfrastructureError(f"{inside or self.top}: git {arguments[0]} failed: {said}")
        return run.stdout.rstrip("\n")

    def _git(self, *arguments: str, inside: Path | None = None) -> subprocess.CompletedProcess[str]:
        try:
            return subprocess.run(
                ["git", "-c", "core.hooksPath=/dev/null", "-c", "core.quotePath=false", *arguments],
                cwd=inside or self.top,
                env=git_environment(),
                capture_output=True,
                text=True,
                errors="replace",
                check=False,
                stdin=subprocess.DEVNULL,
            )
        except OSError as error:
            raise InfrastructureError(
                f"git cannot be started: {error.filename}: {error.strerror}", "bisect needs git on PATH"
            ) from error

    def commit(self, revision: str) -> str:
        found = self.ask("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if not found:
            raise BadInputError(f"{revision!r} is no commit of {self.top}", "git log shows them")
        return found

    def check_range(self, good: str, bad: str) -> None:
        if good == bad:
            raise BadInputError(f"--good and --bad are both {good[:12]}", "the bad end comes after the good one")
        if self.ask("merge-base", "--is-ancestor", good, bad) is None:
            raise BadInputError(
                f"the good end {good[:12]} is no ancestor of the bad end {bad[:12]}", "are they the other way round?"
            )
        for what, commit in (("good", good), ("bad", bad)):
            if self.ask("cat-file", "-e", f"{commit}:{self.folder}/allocator.toml") is None:
                raise BadInputError(
                    f"the {what} end {commit[:12]} has no {self.folder}/allocator.toml",
                    "name a commit that has it, or give the history one: docs/foreign.md, Which commit it was",
                )

    def is_first(self, commit: str) -> bool:
        """Whether no commit before it has the allocator."""
        return not self.ask("rev-list", "--max-count=1", f"{commit}^@", "--", f"{self.folder}/allocator.toml")

    def check_clean(self) -> None:
        """Of other commits are built only what they hold: a change that is nowhere committed would be forgotten. Files that git
        does not know count in the allocator's folder."""
        changed = self.demand("status", "--porcelain", "--untracked-files=no", "--", *self.sources)
        unknown = self.demand("status", "--porcelain", "--untracked-files=normal", "--", self.folder, *self.headers)
        files = [line[3:] for line in dict.fromkeys((*unknown.splitlines(), *changed.splitlines()))]
        if files:
            more = f" and {len(files) - 1} more" if len(files) > 1 else ""
            raise BadInputError(
                f"{self.top}: {files[0]}{more} has changes that are not committed", "commit or stash them first"
            )

    @contextmanager
    def worktree(self, commit: str) -> Iterator[Path]:
        """A checkout in a folder of its own, gone with everything that git knows of it when the block ends."""
        parent = Path(tempfile.mkdtemp(prefix="faultline-bisect-"))
        path = parent / "checkout"
        try:
            self.demand("worktree", "add", "--detach", "--force", str(path), commit)
            yield path
        finally:
            self.ask("worktree", "remove", "--force", "--force", str(path))
            shutil.rmtree(parent, ignore_errors=True)

    def diff_of(self, commit: str) -> str:
        """What it changes of the sources, without context and the same under everyone's configuration of git."""
        return self.demand(
            *("diff", "-U0", "--inter-hunk-context=0", "--no-color", "--no-ext-diff", "--no-textconv", "--no-renames"),
            *("--src-prefix=a/", "--dst-prefix=b/", f"{commit}^", commit, "--", *self.sources),
        )


def git_environment() -> dict[str, str]:
    """Whoever runs us inside of git (a hook) has named another repository in it. Without optional locks, git status leaves the
    user's index as it is."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return {**kept, "LC_ALL": "C", "GIT_TERMINAL_PROMPT": "0", "GIT_OPTIONAL_LOCKS": "0"}


def last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return lines[-1].strip() if lines else ""


@dataclass(frozen=True)
class Change:
    """Lines that a commit takes and gives, of one place. function: as git names it."""

    file: str
    line: int
    function: str
    lines: list[str]


def parse_diff(text: str) -> list[Change]:
    """Of a diff without context. Lines of a file's head, +++ and ---, stand before its first hunk."""
    changes: list[Change] = []
    file = ""
    is_head = True
    for line in text.split("\n"):
        hunk = re.match(r"@@ -\d+(?:,\d+)? \+(\d+)(?:,\d+)? @@ ?(.*)", line)
        if line.startswith("diff --git "):
            file = line.rpartition(" b/")[2]
            is_head = True
        elif hunk:
            changes.append(Change(file, int(hunk[1]), hunk[2].strip(), []))
            is_head = False
        elif line.startswith(("+", "-")) and not is_head:
            changes[-1].lines.append(line)
    return changes
