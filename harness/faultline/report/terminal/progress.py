# SPDX-License-Identifier: Apache-2.0
"""What is running, how far it is, and how long it takes."""

from __future__ import annotations

import threading
import time

from rich.console import Console
from rich.progress import (
    BarColumn,
    MofNCompleteColumn,
    Progress,
    TaskID,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.text import Text

from faultline.campaign.results import CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.events import Progress as EngineProgress
from faultline.report.outcomes import outcome
from faultline.report.terminal import streams

SAID_EVERY_S = 30.0
"""Without a terminal: seconds between two lines of one cell."""


def _bars(console: Console, is_quiet: bool) -> Progress:
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(bar_width=24),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
        console=console,
        disable=is_quiet or not console.is_terminal,
    )


class StepProgress:
    """Progress of a command in steps on stderr: a bar with time left on a terminal, else one line a finished item."""

    def __init__(self, is_quiet: bool = False) -> None:
        console = streams.err()
        self._console = console
        self._is_silent = is_quiet or console.is_terminal
        self._bars = _bars(console, is_quiet)
        self._guard = threading.Lock()
        self._task: TaskID | None = None
        self._done = self._total = 0

    def __enter__(self) -> StepProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def begins(self, step: str, total: int) -> None:
        self._task = self._bars.add_task(step, total=total)
        self._done, self._total = 0, total

    def ends(self, text: str) -> None:
        with self._guard:
            self._done += 1
            if self._task is not None:
                self._bars.advance(self._task)
            if not self._is_silent:
                self._console.print(Text(f"[{self._done}/{self._total}] {text}"), soft_wrap=True)


class CampaignProgress:
    """Progress of a campaign on stderr: bars with time left on a terminal, else one line a finished cell. Use as context."""

    def __init__(self, specs: list[CellSpec], is_quiet: bool = False) -> None:
        console = streams.err()
        self._console = console
        self._is_quiet = is_quiet
        self._specs = specs
        self._guard = threading.Lock()
        self._finished = 0
        self._tasks: dict[int, TaskID] = {}
        self._said: dict[int, float] = {}
        self._bars = _bars(console, is_quiet)
        self._all = self._bars.add_task("cells", total=len(specs), visible=len(specs) > 1)

    def __enter__(self) -> CampaignProgress:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def cell_begins(self, position: int, spec: CellSpec, step: str) -> None:
        with self._guard:
            if position not in self._tasks:
                self._tasks[position] = self._bars.add_task("", total=None)
                self._said[position] = time.monotonic()
            self._bars.update(self._tasks[position], description=f"{spec.name}: {step}")
            self._say(position, step)

    def nothing_to_resume(self, spec: CellSpec) -> None:
        text = f"{spec.name}: nothing to go on with, the same exploration was not stopped last; it begins at its start"
        with self._guard:
            self._console.print(Text(text), soft_wrap=True)

    def cell_progress(self, position: int, progress: EngineProgress) -> None:
        with self._guard:
            if position in self._tasks:
                self._bars.update(self._tasks[position], total=progress.positions, completed=progress.position)
                self._say(
                    position,
                    f"crash position {progress.position:,} of {progress.positions:,}, {progress.recoveries:,} recoveries,"
                    f" findings: {progress.findings}",
                )

    def _say(self, position: int, text: str) -> None:
        """That the cell goes on, in places where nobody sees its bar."""
        if self._console.is_terminal or self._is_quiet or time.monotonic() < self._said[position] + SAID_EVERY_S:
            return
        self._said[position] = time.monotonic()
        self._console.print(Text(f"{self._specs[position].name}: {text}"), soft_wrap=True)

    def cell_ends(self, position: int, result: CellResult) -> None:
        with self._guard:
            self._finished += 1
            if position in self._tasks:
                self._bars.remove_task(self._tasks.pop(position))
            self._bars.update(self._all, completed=self._finished)
            if not self._console.is_terminal and not self._is_quiet:
                self._console.print(
                    Text(f"[{self._finished}/{len(self._specs)}] {result.spec.name}: {outcome(result)}"), soft_wrap=True
                )
