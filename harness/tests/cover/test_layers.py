# SPDX-License-Identifier: Apache-2.0
"""The packages of the harness import each other in one direction, and no two of its modules import each other."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

import pytest

import faultline

PACKAGE = Path(faultline.__file__).parent
LAYERS = ("base", "workload", "pipeline", "study", "wear", "campaign", "report", "cli", "testing")
"""Each imports only those before it."""
NEIGHBOURS = {("study", "wear"), ("wear", "study")}
"""Do not import each other at all."""


def module_of(path: Path) -> str:
    parts = path.relative_to(PACKAGE.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


MODULES = {module_of(path): path for path in sorted(PACKAGE.rglob("*.py"))}


def imported_by(tree: ast.AST) -> Iterator[str]:
    """Modules of faultline, imported inside functions and for type checkers, too."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "imports are absolute"
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if name in MODULES or node.module in MODULES:
                    yield name if name in MODULES else str(node.module)


IMPORTS = {module: set(imported_by(ast.parse(path.read_text()))) for module, path in MODULES.items()}


def layer_of(module: str) -> str:
    return module.split(".")[1] if "." in module else ""


def backward(imports: dict[str, set[str]]) -> list[str]:
    """Imports of a later layer, or of a neighbour."""
    return [
        f"{module} imports {other}"
        for module, others in imports.items()
        for other in sorted(others)
        if layer_of(module) in LAYERS and layer_of(other) in LAYERS
        if LAYERS.index(layer_of(other)) > LAYERS.index(layer_of(module))
        or (layer_of(module), layer_of(other)) in NEIGHBOURS
    ]


def test_packages_import_each_other_in_one_direction() -> None:
    assert backward(IMPORTS) == []


def test_every_module_lies_in_a_package() -> None:
    packages = {path.name for path in PACKAGE.iterdir() if (path / "__init__.py").is_file()}
    assert packages == set(LAYERS), "a package that LAYERS does not know"
    assert {path.name for path in PACKAGE.glob("*.py")} == {"__init__.py", "__main__.py"}


def test_no_modules_import_each_other_in_a_circle() -> None:
    list(TopologicalSorter(IMPORTS).static_order())  # raises CycleError


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("from faultline.report import junit", ["faultline.base.cache imports faultline.report.junit"]),
        ("def f():\n    from faultline.cli.entry import main", ["faultline.base.cache imports faultline.cli.entry"]),
        ("import faultline.base.errors", []),
    ],
)
def test_an_import_of_a_later_layer_is_seen(source: str, expected: list[str]) -> None:
    assert backward({"faultline.base.cache": set(imported_by(ast.parse(source)))}) == expected
