# SPDX-License-Identifier: Apache-2.0
"""What one cell runs: allocator, workload, strategy, model and limits."""

from __future__ import annotations

from pathlib import PurePath

import msgspec

from faultline.base.config import (
    DEFAULT_STRATEGY,
    EXHAUSTIVE_STATES,
    LONG_LIVES,
    SAMPLES,
    FileSystem,
    Flush,
    Model,
    Probe,
    ReplayEngine,
    StartPoint,
    Strategy,
)


class CellSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What one cell runs. expected_rule: of a mutant; stop_at_rule: end at its first finding."""

    allocator: str
    workload: str
    ops: int
    seed: int
    strategy: Strategy
    model: Model
    flush: Flush
    file_system: FileSystem | None = None
    """What is durable of file operations that have returned; None: what the contract asks for."""
    exhaustive_states: int = EXHAUSTIVE_STATES
    samples: int = SAMPLES
    mutant: str | None = None
    expected_rule: str | None = None
    stop_at_rule: str | None = None
    time_limit_s: float | None = None
    recovery_limit: int | None = None
    """Recoveries it may run."""
    leaf_limit: int | None = None
    """Strategy complete: leaves it may keep at a time; None: the engine's own limit."""
    memory_limit_mib: int | None = None
    """Strategy complete: what it may keep of loads, choices of lines and heap reports; None: the engine's own limit."""
    nested: int = 0
    """Strategy complete: crashes after the first that are explored, in recoveries and in what follows them."""
    follow_up: bool = True
    """Of nested: in what follows recoveries, too."""
    replay_engine: ReplayEngine | None = None
    """Strategy complete: what runs recoveries, `in-process` or `traced`; None: the fastest engine that sees all of the target."""
    allow_incomplete: bool = False
    """A limit that ends it is no reason to fail: it is not shown as green all the same."""
    start: StartPoint = "create"
    """Where the first crash positions are: in the creation of the heap, in what follows it, or from an operation on."""
    probe: Probe = "full"
    """How much of the probe script each recovery runs: open, slots, walk and check, or all of it."""
    long_lives: int = LONG_LIVES
    """Strategy complete: crash states that are opened many times and used for long, where nothing else was found."""
    path: str = ""
    """Of a user's workload file, as it was named; workload is then file:KEY."""
    trace: str = ""
    """A trace file that is explored in the place of one that is taken; the workload says which slots and operations it is of."""

    @property
    def workload_name(self) -> str:
        """For people."""
        return PurePath(self.path).name if self.path else self.workload

    @property
    def workload_text(self) -> str:
        """churn 300, flush instruction and model where they are not the usual ones."""
        size = f" {self.ops}" if self.ops else ""
        return f"{self.workload_name}{size}{self._unusual()}"

    def _unusual(self) -> str:
        values = (self.flush, self.model, self.file_system)
        return "".join(f" {value}" for value in values if value not in ("clwb", "px86", None))

    @property
    def name(self) -> str:
        """As tables and reports call it: nvm_malloc, churn, ops and seed where they matter, mutant."""
        size = f" --ops {self.ops} --seed {self.seed}" if self.ops else ""
        variant = self._unusual()
        variant += f" --start {self.start}" if self.start != "create" and not self.trace else ""
        variant += " --probe first" if self.probe == "first" else ""
        variant += f" --trace {PurePath(self.trace).name}" if self.trace else ""
        mutant = f" {self.mutant}" if self.mutant else ""
        return f"{self.allocator} {self.workload_name}{size}{variant}{mutant}"

    def replay_command(self, token: str) -> str:
        """token: of a finding of this cell."""
        return f"faultline replay {token}" if token else self.command_line()

    def command_line(self) -> str:
        """The command that runs this cell alone."""
        words = ["faultline", "run", self.allocator, "--workload", self.path or self.workload]
        if self.ops:
            words += ["--ops", str(self.ops), "--seed", str(self.seed)]
        usual_start = "create" if self.workload == "create" else None  # else allocator.toml may say which
        unusual = (
            ("--mutant", self.mutant, None),
            ("--flush", self.flush, "clwb"),
            ("--model", self.model, "px86"),
            ("--file-system", self.file_system, None),
            ("--strategy", self.strategy, DEFAULT_STRATEGY),
            ("--exhaustive-states", self.exhaustive_states, EXHAUSTIVE_STATES),
            ("--samples", self.samples, SAMPLES),
            ("--recoveries", self.recovery_limit, None),
            ("--leaves", self.leaf_limit, None),
            ("--memory", self.memory_limit_mib, None),
            ("--start", self.start, usual_start),
            ("--nested", self.nested, 0),
            ("--probe", self.probe, "full"),
            ("--long-lives", self.long_lives, LONG_LIVES),
            ("--replay-engine", self.replay_engine, None),
            ("--trace", self.trace, ""),
        )
        for option, value, usual in unusual:
            words += [] if value in (usual, None) else [option, str(value)]
        words += [] if self.follow_up else ["--no-follow-up"]
        words += ["--allow-incomplete"] if self.allow_incomplete else []
        return " ".join(words)
