# SPDX-License-Identifier: Apache-2.0
"""What there is to choose from. The engine has the lists (`faultline-engine lists`). The front asks for them, and keeps none."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from faultline.base.errors import BadInputError
from faultline.pipeline.engine import Engine


class Model(msgspec.Struct):
    """A persistency model (crashgen/src/model/models)."""

    name: str
    survives: str


class Strategy(msgspec.Struct):
    """How crash states are chosen (crashgen/src/strategy)."""

    name: str
    runs: str
    follows_loads: bool


class _Lists(msgspec.Struct):
    models: list[Model] = []
    strategies: list[Strategy] = []


def models(engine: Engine) -> dict[str, Model]:
    """By name, the default first."""
    return {model.name: model for model in _lists(str(engine.path)).models}


def strategies(engine: Engine) -> dict[str, Strategy]:
    """By name, the default first."""
    return {strategy.name: strategy for strategy in _lists(str(engine.path)).strategies}


@functools.cache
def _lists(engine: str) -> _Lists:
    return Engine(Path(engine)).ask_json(_Lists, "lists")


def check_model(engine: Engine, name: str) -> None:
    """Refuses what is no model, in the engine's words."""
    _check("model", name, list(models(engine)))


def check_strategy(engine: Engine, name: str) -> None:
    """Refuses what is no strategy, in the engine's words."""
    _check("strategy", name, list(strategies(engine)))


def follows_loads(engine: Engine, strategy: str) -> bool:
    """Whether the strategy needs a build whose loads are seen."""
    check_strategy(engine, strategy)
    return strategies(engine)[strategy].follows_loads


def _check(kind: str, name: str, names: list[str]) -> None:
    if name not in names:
        *others, last = names
        raise BadInputError(f'{kind} "{name}": expected {", ".join(others)} or {last}')
