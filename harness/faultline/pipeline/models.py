# SPDX-License-Identifier: Apache-2.0
"""Persistency models. The engine has the list of them (crashgen/src/model/models). The front asks for it, and keeps none."""

from __future__ import annotations

import functools
from pathlib import Path

import msgspec

from faultline.base.errors import BadInputError
from faultline.pipeline.engine import Engine


class _Model(msgspec.Struct):
    name: str
    survives: str


class _Lists(msgspec.Struct):
    models: list[_Model]


def models(engine: Engine) -> dict[str, str]:
    """What survives under each, in a few words, by name; the default first."""
    return _models(str(engine.path))


@functools.cache
def _models(engine: str) -> dict[str, str]:
    return {model.name: model.survives for model in Engine(Path(engine)).ask_json(_Lists, "lists").models}


def check_model(engine: Engine, name: str) -> None:
    """Refuses what is no model, in the engine's words."""
    if name not in models(engine):
        *others, last = models(engine)
        raise BadInputError(f'model "{name}": expected {", ".join(others)} or {last}')
