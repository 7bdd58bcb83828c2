# SPDX-License-Identifier: Apache-2.0
"""What `@pytest.mark.crash_consistent(...)` asks for: its cells, and their ids. Imports nothing that takes time: pytest reads marks
when it collects."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

import pytest

NAME = "crash_consistent"
BY_PLACE = ("allocator", "workload")
"""What may stand without its name, in this order."""


class MarkError(Exception):
    """A mark that names no cell."""


@dataclass(frozen=True)
class MarkedCell:
    """options: by name, as of `faultline run`; a list is none of the values. id: what pytest calls it between brackets."""

    options: Mapping[str, Any]
    id: str


def marked_cells(marks: Iterable[tuple[object, pytest.Mark]]) -> list[MarkedCell]:
    """marks: with the node that each is of, the nearest first. What a nearer one says counts: that of a function before that of
    its class, that before the module's. Each option that is a list stands for its values, all with all.

    Raises MarkError."""
    options: dict[str, Any] = {}
    marks = list(marks)
    for node, mark in reversed(marks):
        if isinstance(node, pytest.Function) and sum(other is node for other, _ in marks) > 1:
            raise MarkError(f"two marks {NAME} on one test: give one of them, with lists: workload=['smoke', 'churn']")
        options.update(_named(mark))
    if "allocator" not in options:
        raise MarkError(f"{NAME} names no allocator: expected {NAME}(allocator=..., workload=...)")
    in_order = [*(name for name in BY_PLACE if name in options), *sorted(options.keys() - set(BY_PLACE))]
    axes = {name: list(options[name]) for name in in_order if isinstance(options[name], list | tuple)}
    for name, values in axes.items():
        if not values:
            raise MarkError(f"{NAME}: {name} is an empty list: nothing would be explored")
    chosen = itertools.product(*axes.values())
    return [_cell(options, dict(zip(axes, values, strict=True))) for values in chosen]


def _named(mark: pytest.Mark) -> dict[str, Any]:
    if len(mark.args) > len(BY_PLACE):
        raise MarkError(f"{NAME}: {len(mark.args)} values without names: expected at most {' and '.join(BY_PLACE)}")
    by_place = dict(zip(BY_PLACE, mark.args, strict=False))
    for name in by_place.keys() & mark.kwargs.keys():
        raise MarkError(f"{NAME}: {name} is given twice")
    return {**by_place, **mark.kwargs}


def _cell(options: Mapping[str, Any], chosen: Mapping[str, Any]) -> MarkedCell:
    options = {**options, **chosen}
    words = [_word(options[name]) for name in BY_PLACE if options.get(name) is not None]
    words += [f"{name}-{_word(value)}" for name, value in chosen.items() if name not in BY_PLACE]
    return MarkedCell(options, "-".join(words))


def _word(value: Any) -> str:
    """Short, and the same in each run: of a path the last part that says something, of a program a name made of its lines."""
    if isinstance(value, str | PurePath):
        path = PurePath(value)
        return path.parent.name if path.name == "allocator.toml" and path.parent.name else path.name or str(value)
    return str(getattr(value, "name", value))
