# SPDX-License-Identifier: Apache-2.0
"""`pairwise` on mutants: what needs few lines to be as they must not be, a covering array of that strength finds, at the crash
position where `complete` finds it; and as many states drawn at random find less.

How many lines a bug needs is what `complete` is left with when as many lines as possible are persisted whole: those that must be
lost. Those that must be persisted may be more."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.base.cache import Cache, project_root
from faultline.base.config import Matrix, read_toml
from faultline.base.project import Project
from faultline.campaign.matrix import cells_of_matrix
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.events import Certificate, Event, Finding
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import prepare
from faultline.pipeline.workshop import Workshop

LAST_POSITION = 2**32 - 1
"""Of any trace."""
ROOT = project_root()
MATRIX = cells_of_matrix(Project(ROOT).allocator, read_toml(ROOT / "ci" / "matrix.toml", Matrix))
MUTANTS = [spec for spec in MATRIX if spec.mutant and spec.strategy == "complete" and not spec.nested]
SHOWN = {"MISSING_FENCE_RING", "MISSING_FENCE_LOG", "ARGUMENT_NOT_FLUSHED"}
"""In CI; all of them in the nightly run."""
SEEDS = 4
STRENGTH = 3
"""The largest."""
FEW_LINES = 0.95
"""Of the mutants need no more lines than that, at least."""


@dataclass
class Target:
    """A mutant, traced."""

    workshop: Workshop
    spec: CellSpec

    def __post_init__(self) -> None:
        self.cell = prepare(self.workshop, self.spec, needs_hooks=True)

    def explore(self, position: int | None = None, **spec: object) -> tuple[list[Finding], Certificate]:
        """Of one crash position, or of all until the expected rule is broken."""
        findings: list[Finding] = []
        certificates: list[Certificate] = []

        def handle(event: Event) -> None:
            match event:
                case Finding():
                    findings.append(event)
                case Certificate():
                    certificates.append(event)

        changed = self.cell.with_spec(**{"stop_at_rule": self.spec.expected_rule, **spec})
        left = [] if position is None else [(position, LAST_POSITION)]
        explore(changed, handle, more={"left": left, "last_position": position})
        return findings, certificates[-1]

    def finds(self, position: int, **spec: object) -> tuple[bool, int]:
        """Whether a strategy finds it there, and in how many recoveries."""
        findings, certificate = self.explore(position, **spec)
        return any(finding.rule == self.spec.expected_rule for finding in findings), certificate.recoveries


@dataclass
class Compared:
    """What the strategies find of a mutant at one crash position; recoveries: of the whole array; samples: in how many of SEEDS
    runs of as many states."""

    lines: int
    recoveries: int
    is_found: bool
    samples: int


def compare(root: Path, scripts: Path, spec: CellSpec) -> Compared:
    target = Target(Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine")), spec)
    findings, _ = target.explore()
    found = next(finding for finding in findings if finding.rule == spec.expected_rule)
    strategy = "pairwise" if len(found.lines) <= 2 else "pairwise-3"
    is_found, recoveries = target.finds(found.position, strategy=strategy, stop_at_rule=None)
    drawn = [{"strategy": "sample", "samples": max(1, recoveries), "seed": seed} for seed in range(1, 1 + SEEDS)]
    samples = sum(target.finds(found.position, **changed)[0] for changed in drawn)
    compared = Compared(len(found.lines), recoveries, is_found, samples)
    print(f"{spec.name}: {compared}", flush=True)
    return compared


@pytest.mark.slow
@pytest.mark.parametrize("spec", [pytest.param(spec, id=spec.mutant) for spec in MUTANTS if spec.mutant in SHOWN])
def test_what_needs_few_lines_is_found(root: Path, scripts: Path, spec: CellSpec) -> None:
    compared = compare(root, scripts, spec)
    assert compared.lines <= STRENGTH
    assert compared.is_found


@pytest.mark.nightly
def test_what_needs_few_lines_is_found_in_all_mutants_and_random_states_find_less(root: Path, scripts: Path) -> None:
    compared = {spec.name: compare(root, scripts, spec) for spec in MUTANTS}
    within = {name: one for name, one in compared.items() if one.lines <= STRENGTH}
    found, drawn = SEEDS * len(within), sum(one.samples for one in within.values())
    print(f"{len(within)} of {len(compared)} mutants: arrays find all, as many random states {drawn} times of {found}")
    assert not [name for name, one in within.items() if not one.is_found]
    assert len(within) >= FEW_LINES * len(compared)
    assert drawn < found
