# SPDX-License-Identifier: Apache-2.0
"""The cell that a command line names."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from faultline.base import config
from faultline.base.errors import BadInputError
from faultline.cli.options import DEFAULT_MATRIX, WORKLOAD_NAMES
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.prepared import find_workload
from faultline.pipeline.workshop import Workshop
from faultline.workload import catalogue


def cell_spec(allocator: str, workload: str, ops: int, seed: int, mutant: str | None, **rest: Any) -> CellSpec:
    return CellSpec(allocator, workload, ops if catalogue.takes_ops(workload) else 0, seed, mutant=mutant, **rest)


def workload_of(allocator: config.Allocator, mutant: config.Mutant | None) -> str:
    """Where none is given."""
    if mutant is None:
        raise BadInputError("no workload is named", f"-w takes one of {WORKLOAD_NAMES}")
    return allocator.workload_of(mutant)


def usual_start(allocator: config.Allocator, workload: str) -> config.Start:
    """Where no --start is given."""
    return "create" if workload == "create" else allocator.start


def with_found_workload(workshop: Workshop, spec: CellSpec) -> CellSpec:
    """A user's workload file under the name that tokens and results keep: file:KEY, its copy in the cache."""
    found = find_workload(workshop, spec)
    is_file = found.name != spec.workload and found.name.startswith("file:")
    return msgspec.structs.replace(spec, workload=found.name, path=spec.workload if is_file else spec.path)


def matrix_path(workshop: Workshop) -> Path:
    """Of the project, else of the built-in allocators."""
    return workshop.project.matrix or workshop.root / DEFAULT_MATRIX
