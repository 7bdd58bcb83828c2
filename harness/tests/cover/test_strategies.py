# SPDX-License-Identifier: Apache-2.0
"""Strategies: the engine has the list, and every command takes the strategies of that list and no others."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from command_line import Faultline
from faultline.base.config import DEFAULT_STRATEGY
from faultline.base.errors import BadInputError
from faultline.campaign.matrix import read_matrix
from faultline.pipeline.engine import Engine
from faultline.pipeline.lists import check_strategy, strategies

CELL = 'version = 1\n[[cell]]\nallocator = "nvm_malloc"\nworkload = "smoke"\n'


@pytest.fixture(scope="module")
def engine(scripts: Path) -> Engine:
    return Engine(scripts / "faultline-engine")


@pytest.fixture(scope="module")
def refusal(engine: Engine, tmp_path_factory: pytest.TempPathFactory) -> str:
    """What the engine says of a strategy that is none: the end of its refusal of a configuration."""
    path = tmp_path_factory.mktemp("config") / "config.json"
    path.write_text(json.dumps({"version": 2, "strategy": "best"}))
    with pytest.raises(BadInputError) as caught:
        engine.ask("places", str(path))
    return str(caught.value).removeprefix(f"{path}: ").partition(" at line")[0]


def refuse(faultline: Faultline, *arguments: str | Path) -> str:
    """The error line without its `error: `."""
    run = faultline(*arguments)
    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    return run.stderr.splitlines()[0].removeprefix("error: ")


def test_the_front_lists_the_strategies_of_the_engine(faultline: Faultline, engine: Engine) -> None:
    listed = json.loads(faultline("list", "--json").stdout)["strategies"]
    assert listed == list(strategies(engine))
    assert listed[0] == DEFAULT_STRATEGY
    assert len(listed) > 7
    shown = " ".join(faultline("run", "--help").stdout.split())
    assert all(f"{name}: {strategy.runs}." in shown for name, strategy in strategies(engine).items())


def test_the_default_follows_loads(engine: Engine) -> None:
    """What needs a build with hooks is asked of the list, not of a name."""
    assert [name for name, strategy in strategies(engine).items() if strategy.follows_loads] == [DEFAULT_STRATEGY]


@pytest.mark.slow
def test_every_command_refuses_a_strategy_in_the_same_words(
    faultline: Faultline, engine: Engine, refusal: str, tmp_path: Path
) -> None:
    assert refusal.startswith('strategy "best": expected ')
    assert all(name in refusal for name in strategies(engine))
    assert refuse(faultline, "run", "nvm_malloc", "-w", "smoke", "--strategy", "best") == refusal
    matrix = tmp_path / "matrix.toml"
    for text, where in (
        ('version = 1\n[defaults]\nstrategy = "best"\n', "defaults"),
        (CELL + 'strategy = "best"\n', "cell[0]"),
        ('version = 1\n[[mutants]]\nallocator = "nvm_malloc"\nstrategy = "best"\n', "mutants[0]"),
    ):
        matrix.write_text(text)
        assert refuse(faultline, "matrix", "-c", matrix, "--out", tmp_path) == f"{matrix}: {where}: {refusal}"


def test_a_token_is_replayed_and_no_name_asks_for_that(engine: Engine) -> None:
    """Replay is a strategy like the others, and a token chooses it."""
    with pytest.raises(BadInputError):
        check_strategy(engine, "replay")


def test_a_matrix_may_choose_every_strategy(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    for name in strategies(engine):
        path.write_text(CELL + f'strategy = "{name}"\n')
        assert read_matrix(path, engine).cell[0].strategy == name
