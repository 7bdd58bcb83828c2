# SPDX-License-Identifier: Apache-2.0
"""A campaign that is ended at any time, by Ctrl-C, by kill or by a machine that goes down, and begun again finds the same as one
that was not."""

from __future__ import annotations

import json
import random
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

MATRIX = """\
version = 1
[defaults]
ops = 12
seed = 1
strategy = "complete"
[[cell]]
allocator = "nvm_malloc"
workload = "churn"
[[cell]]
allocator = "nvmalloc"
workload = "churn"
"""
MUTANTS = """\
[[mutants]]
allocator = "nvmalloc"
"""
"""Two of them survive so short a workload: the campaign's exit code is 1."""
SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGKILL)
FACTS = ("verdict", "error", "findings", "explanations")
CERTIFIED = ("complete", "crash_positions", "states", "rules_judged", "unknowns", "bounds_hit", "positions_by_strategy")
MOST_ENDS = 3
"""Of one campaign, before it is left to end by itself."""


def facts(results: Path) -> list[dict[str, Any]]:
    """What results.json says of each cell, but for times and for what was explored twice."""
    told = []
    for cell in json.loads(results.read_text())["cells"]:
        found = {name: cell[name] for name in FACTS}
        found["findings"] = sorted((one["id"], one["rule"], one["message"]) for one in cell["findings"])
        found["explanations"] = sorted(one["finding"] for one in cell["explanations"])
        told.append({**found, **{name: cell["certificate"][name] for name in CERTIFIED}})
    return told


class Campaigns:
    def __init__(self, scripts: Path, root: Path, place: Path, text: str, code: int) -> None:
        self.config = place / "matrix.toml"
        self.config.write_text(text)
        self.code = code
        self.command = [str(scripts / "faultline"), "matrix", "--config", str(self.config), "--out"]
        self.root = root
        self.ended(place / "first", [])  # builds what is not built
        started = time.monotonic()
        self.whole = self.ended(place / "whole", [])
        self.seconds = time.monotonic() - started

    def ended(self, out: Path, ends: list[tuple[float, signal.Signals]]) -> list[dict[str, Any]]:
        """ends: after which part of a campaign's time each try is sent which signal; the last try is sent none."""
        for part, sent in ends:
            with subprocess.Popen(
                [*self.command, str(out)], cwd=self.root, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
            ) as run:
                try:
                    _, said = run.communicate(timeout=part * self.seconds)
                except subprocess.TimeoutExpired:
                    run.send_signal(sent)
                    _, said = run.communicate(timeout=120)
                assert run.returncode in (self.code, 3, -sent), said.decode()
                assert b"Traceback" not in said
        last = subprocess.run([*self.command, str(out)], cwd=self.root, capture_output=True, timeout=300, check=False)
        assert last.returncode == self.code, last.stderr.decode()
        return facts(out / "results.json")


def end_and_compare(campaigns: Campaigns, place: Path, seeds: range) -> None:
    for seed in seeds:
        drawn = random.Random(seed)
        ends = [(drawn.random(), drawn.choice(SIGNALS)) for _ in range(drawn.randint(1, MOST_ENDS))]
        assert campaigns.ended(place / f"out-{seed}", ends) == campaigns.whole, f"seed {seed}: {ends}"


@pytest.mark.slow
def test_a_campaign_that_was_ended_finds_the_same(scripts: Path, root: Path, tmp_path: Path) -> None:
    end_and_compare(Campaigns(scripts, root, tmp_path, MATRIX, 0), tmp_path, range(3))


@pytest.mark.nightly
def test_a_campaign_with_findings_that_was_ended_often_finds_the_same(
    scripts: Path, root: Path, tmp_path: Path
) -> None:
    end_and_compare(Campaigns(scripts, root, tmp_path, MATRIX + MUTANTS, 1), tmp_path, range(40))
