# SPDX-License-Identifier: Apache-2.0
"""`complete` on real allocators against `exhaustive`: at every crash position with few enough states, the heap reports of all of
them, run with the adapter that people use, are those of the leaves that the search found with the hooked one."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest

from faultline import campaign, tracing, workloads
from faultline.cache import Cache, scratch_folder
from faultline.config import find_allocator
from faultline.engine import Engine
from faultline.results import CellSpec

STATES = 512
"""Crash positions with more states are left out: a state costs a recovery. Those are mostly the ones inside a fill."""
LEAST_COMPARED = 300
"""Crash positions that are compared at least: 330 and more of 488 to 682 were."""
LIMIT_S = 600


def yardstick(
    root: Path, scripts: Path, allocator_name: str, ops: int, seed: int, mutant: str | None
) -> dict[str, int]:
    cache, engine = Cache(root / ".faultline"), Engine(scripts / "faultline-engine")
    allocator = find_allocator(root, allocator_name)
    spec = CellSpec(allocator_name, "churn", ops, seed, strategy="complete", model="px86", flush="clwb", mutant=mutant)
    workload = workloads.find(spec.workload, ops, seed, allocator.heap, cache)
    target = tracing.build_target(root, cache, allocator, mutant, spec.flush, needs_hooks=True)
    traced = tracing.trace(cache, engine, target, workload)
    with scratch_folder(cache, None) as folder:
        config = campaign.write_config(folder, spec, target, traced, workload)
        command = [engine.path, "yardstick", config, "--states", str(STATES)]
        run = subprocess.run(command, capture_output=True, text=True, timeout=LIMIT_S, check=False)
    assert run.returncode in (0, 1), run.stderr
    found: dict[str, int] = json.loads(run.stdout)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("mutant", [None, "MISSING_FLUSH_LINK", "MISSING_FENCE_RING"])
@pytest.mark.parametrize("seed", [1, 2])
def test_complete_has_the_heap_reports_of_all_states(root: Path, scripts: Path, seed: int, mutant: str | None) -> None:
    found = yardstick(root, scripts, "nvm_malloc", 4, seed, mutant)
    assert (found["differing"], found["doubts"]) == (0, []), found
    assert found["compared"] > LEAST_COMPARED
    assert found["complete_recoveries"] < found["exhaustive_recoveries"]
