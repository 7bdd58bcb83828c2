# SPDX-License-Identifier: Apache-2.0
"""Persistency models: the engine has the list, and every command takes the models of that list and no others."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline
from faultline.base.errors import BadInputError
from faultline.campaign.matrix import read_matrix
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.lists import check_model, models

LITMUS = "name: n\nlines: x\nT0: x = 1\nallowed: x=0 ; x=1\n"
CELL = 'version = 1\n[[cell]]\nallocator = "nvm_malloc"\nworkload = "smoke"\n'
MUTANTS = 'version = 1\n[[mutants]]\nallocator = "nvm_malloc"\n'


@pytest.fixture(scope="module")
def engine(scripts: Path) -> Engine:
    return Engine(scripts / "faultline-engine")


@pytest.fixture(scope="module")
def refusal(engine: Engine) -> str:
    """What is said of a model that is none, in the engine's own words."""
    with pytest.raises(BadInputError) as caught:
        engine.ask("litmus", "no-file", "--model", "arm")
    return str(caught.value)


def refuse(faultline: Faultline, *arguments: str | Path) -> str:
    """The error line without its `error: `."""
    run = faultline(*arguments)
    assert (run.returncode, run.stdout) == (2, ""), run.stderr
    return run.stderr.splitlines()[0].removeprefix("error: ")


def test_the_front_lists_the_models_of_the_engine(faultline: Faultline, engine: Engine) -> None:
    listed = json.loads(faultline("list", "--json").stdout)["models"]
    assert listed == list(models(engine))
    assert listed[0] == "px86"
    assert len(listed) > 4
    shown = faultline("run", "--help").stdout
    assert all(name in shown for name in listed)


def test_a_refusal_names_every_model(refusal: str, engine: Engine) -> None:
    assert refusal.startswith('model "arm": expected ')
    assert all(name in refusal for name in models(engine))


def test_litmus_takes_every_model(faultline: Faultline, engine: Engine, tmp_path: Path) -> None:
    (tmp_path / "one.litmus").write_text(LITMUS)
    for name in models(engine):
        run = faultline("litmus", tmp_path / "one.litmus", "--model", name)
        assert run.returncode in (0, 1), f"{name}: {run.stderr}"


def test_every_command_refuses_a_model_in_the_same_words(faultline: Faultline, refusal: str, tmp_path: Path) -> None:
    test, matrix = tmp_path / "one.litmus", tmp_path / "matrix.toml"
    test.write_text(LITMUS)
    assert refuse(faultline, "litmus", test, "--model", "arm") == refusal
    assert refuse(faultline, "run", "nvm_malloc", "-w", "smoke", "--model", "arm") == refusal
    for text, where in (
        ('version = 1\n[defaults]\nmodel = "arm"\n', "defaults"),
        (CELL + CELL.partition("\n")[2] + 'model = "arm"\n', "cell[1]"),
        (MUTANTS + 'model = "arm"\n', "mutants[0]"),
    ):
        matrix.write_text(text)
        assert refuse(faultline, "matrix", "-c", matrix, "--out", tmp_path) == f"{matrix}: {where}: {refusal}"


def test_the_engine_refuses_a_configuration_in_the_same_words(engine: Engine, refusal: str, tmp_path: Path) -> None:
    """What the front lets through, of another version for instance."""
    (tmp_path / "config.json").write_text(json.dumps({"version": 2, "model": "arm"}))
    with pytest.raises(BadInputError, match=r"config\.json") as caught:
        engine.ask("places", str(tmp_path / "config.json"))
    assert refusal in str(caught.value)


def test_a_token_of_another_model_is_refused_before_anything_is_built(
    faultline: Faultline, refusal: str, fake_engine: Callable[[dict[str, Any]], Path]
) -> None:
    """As a version gives it that has more models."""
    known = [
        {"name": name, "survives": "it"} for name in refusal.partition("expected ")[2].replace(" or ", ", ").split(", ")
    ]
    token = {"allocator": "nvm_malloc", "workload": "smoke", "trace_hash": "0" * 64, "model": "arm"}
    path = fake_engine({"token": {"print": [token]}, "lists": {"print": [{"models": known}]}})
    assert refuse(faultline, "replay", "fl1.x", "--engine", path) == refusal


def test_a_matrix_may_choose_every_model(engine: Engine, tmp_path: Path) -> None:
    path = tmp_path / "matrix.toml"
    for name in models(engine):
        check_model(engine, name)
        path.write_text(CELL + f'model = "{name}"\n')
        assert read_matrix(path, engine).cell[0].model == name


def test_the_page_on_models_has_a_row_for_each(engine: Engine, root: Path) -> None:
    rows = [line for line in (root / "docs" / "model.md").read_text().splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == list(models(engine))


def test_the_rows_of_two_models_are_told_apart() -> None:
    def text(model: str, flush: str) -> str:
        return CellSpec("toy", "churn", 300, 1, "complete", model, flush).workload_text

    assert text("px86", "clwb") == "churn 300"
    assert text("eadr", "clwb") == "churn 300 eadr"
    assert text("process-crash", "clflush") == "churn 300 clflush process-crash"
