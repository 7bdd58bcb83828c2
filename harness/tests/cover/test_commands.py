# SPDX-License-Identifier: Apache-2.0
"""Commands are modules that are loaded when they are asked for."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import click
import pytest

from faultline.cli import commands
from faultline.cli.entry import COMMANDS

HEAVY = ("numpy", "matplotlib", "jinja2", "sqlite3")
"""Take longer to load than all the rest of a small command."""


def loaded_by(*arguments: str) -> set[str]:
    """Modules that a command has loaded when it ends."""
    program = "import sys\nfrom faultline.cli import main\nmain(sys.argv[1:])\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(run.stderr.splitlines())


def test_each_module_of_the_folder_is_a_command() -> None:
    folder = Path(commands.__file__).parent
    found = sorted(path.stem.replace("_", "-") for path in folder.glob("*.py") if path.stem != "__init__")
    assert found == list(COMMANDS)
    for name in COMMANDS:
        command = importlib.import_module(f"faultline.cli.commands.{name.replace('-', '_')}").command
        assert isinstance(command, click.Command)
        assert command.name == name


def test_what_no_command_needs_is_not_loaded() -> None:
    loaded = loaded_by("--version")
    assert not loaded & set(HEAVY)
    assert not [name for name in loaded if name.startswith(("faultline.study", "faultline.campaign", "faultline.wear"))]


@pytest.mark.parametrize("command", ["run", "matrix", "replay", "list"])
def test_a_command_does_not_load_what_draws(command: str) -> None:
    assert not loaded_by(command, "--help") & {"numpy", "matplotlib"}
