# SPDX-License-Identifier: Apache-2.0
"""The cells of a matrix file."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from faultline.base.config import (
    Allocator,
    Matrix,
    MatrixCell,
    MatrixDefaults,
    MatrixKeys,
    MatrixMutants,
    read_toml,
)
from faultline.base.errors import BadInputError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.lists import check_model, check_strategy
from faultline.workload import catalogue

Find = Callable[[str], Allocator]


def read_matrix(path: Path, engine: Engine) -> Matrix:
    """Read strictly; models and strategies are those that the engine has."""
    matrix = read_toml(path, Matrix)
    defaults = matrix.defaults
    keys: dict[str, MatrixDefaults | MatrixKeys] = {"defaults": defaults}
    keys |= {f"cell[{at}]": cell for at, cell in enumerate(matrix.cell)}
    keys |= {f"mutants[{at}]": group for at, group in enumerate(matrix.mutants)}
    for where, chosen in keys.items():
        try:
            check_model(engine, chosen.model or defaults.model)
            check_strategy(engine, chosen.strategy or defaults.strategy)
        except BadInputError as error:
            raise BadInputError(f"{path}: {where}: {error}") from error
    return matrix


def cells_of_matrix(find: Find, matrix: Matrix) -> list[CellSpec]:
    """Clean cells first, then mutants, in the order of the file. find: an allocator by its name."""
    specs = [_clean_cell(find, matrix, cell) for cell in matrix.cell]
    for group in matrix.mutants:
        specs += _mutant_cells(find, matrix, group)
    return specs


def _clean_cell(find: Find, matrix: Matrix, cell: MatrixCell) -> CellSpec:
    allocator = find(cell.allocator)
    return CellSpec(allocator.name, **_workload_keys(matrix, cell, cell.workload))


def _mutant_cells(find: Find, matrix: Matrix, group: MatrixMutants) -> list[CellSpec]:
    allocator = find(group.allocator)
    chosen = allocator.mutant if group.ids is None else [allocator.mutant_named(identifier) for identifier in group.ids]
    return [
        CellSpec(
            allocator.name,
            **{
                **_workload_keys(matrix, group, allocator.workload_of(mutant, group.workload)),
                **({"nested": mutant.nested, "follow_up": True, "strategy": "complete"} if mutant.nested else {}),
            },
            mutant=mutant.id,
            expected_rule=mutant.rule,
            stop_at_rule=mutant.rule,
        )
        for mutant in chosen
    ]


def _workload_keys(matrix: Matrix, cell: MatrixCell | MatrixMutants, workload: str) -> dict[str, Any]:
    """ops and seed only where the workload is made of them, so that equal cells are equal."""
    defaults = matrix.defaults
    has_ops = catalogue.takes_ops(workload)

    def chosen(key: str) -> Any:
        value = getattr(cell, key)
        return getattr(defaults, key) if value is None else value

    return {
        "workload": workload,
        "ops": chosen("ops") if has_ops else 0,
        "seed": chosen("seed"),
        "strategy": chosen("strategy"),
        "model": chosen("model"),
        "file_system": chosen("file_system"),
        "flush": chosen("flush"),
        "exhaustive_states": chosen("exhaustive_states"),
        "samples": chosen("samples"),
        "nested": chosen("nested"),
        "follow_up": chosen("follow_up") or not chosen("nested"),
        "replay_engine": chosen("replay_engine"),
        "allow_incomplete": chosen("allow_incomplete"),
        "time_limit_s": chosen("time_s"),
        "start": chosen("start"),
        "probe": chosen("probe"),
        "long_lives": chosen("long_lives"),
    }
