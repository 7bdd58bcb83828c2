# SPDX-License-Identifier: Apache-2.0
"""What a tracer is to the harness: one class. A tracer runs a program and writes down what it does to persistent memory
(pintools/README.md says what a tracer must do). CONTRIBUTING.md shows how to add one."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faultline.base.cache import Cache
from faultline.base.errors import BadInputError
from faultline.pipeline.build import Built


@dataclass(frozen=True)
class Session:
    """One process to trace. program: its command line; trace: the file that its events are appended to; process: its number in the
    trace, from 1; schedule_seed: chooses the interleaving of its threads."""

    program: tuple[str, ...]
    trace: Path
    pm_folder: Path
    """Files below it are persistent memory."""
    module_root: Path
    """Programs and libraries below it are named relative to it, so that another clone or cache gives the same trace."""
    process: int = 1
    schedule_seed: int = 0


@dataclass(frozen=True)
class WearRun:
    """One process whose writes are counted (pintools/wear.h). counts: the file that is written; line_bytes, cache_bytes and
    cache_ways: of the cache model; is_memory: what is counted is the process's own heap, not the files below pm_folder."""

    program: tuple[str, ...]
    counts: Path
    pm_folder: Path
    line_bytes: int
    cache_bytes: int
    cache_ways: int
    is_memory: bool


class Tracer(ABC):
    """name: as `--tracer` takes it; summary: one line for people."""

    name: str
    summary: str

    @abstractmethod
    def version(self) -> str:
        """Of the program that has to be installed. Raises InfrastructureError, with what to do, when it is not."""

    @abstractmethod
    def build(self, root: Path, cache: Cache) -> Built:
        """What has to be compiled, from the sources of the clone at root. The key changes with everything that the tracer's events
        depend on, its name and version too."""

    @abstractmethod
    def trace_command(self, built: Built, session: Session) -> list[str]:
        """The command line that traces the session. Its exit code is the program's."""

    def serve_command(self, built: Built) -> list[str]:  # noqa: ARG002
        """What the runner's fork server is started under, so that all that recoveries do is seen (runner/recording.h). Empty: this
        tracer cannot."""
        return []

    def wear_command(self, built: Built, run: WearRun) -> list[str]:  # noqa: ARG002
        """The command line that counts the run's writes. Raises BadInputError when this tracer counts none."""
        raise BadInputError(f"tracer {self.name} does not count writes", "leave --tracer out: the default tracer does")

    def environment(self, built: Built) -> dict[str, str]:  # noqa: ARG002
        """Variables that the command needs. The traced process sees them, so they must be the same each time."""
        return {}

    def checks(self, root: Path, cache: Cache) -> dict[str, Callable[[], str]]:
        """What `faultline doctor` looks at: by name, what says what was found, or raises FaultlineError with what to do."""
        return {self.name: self.version, f"{self.name} tool": lambda: str(self.build(root, cache).path)}
