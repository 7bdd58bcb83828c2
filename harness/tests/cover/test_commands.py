# SPDX-License-Identifier: Apache-2.0
"""Commands are modules that are loaded when they are asked for."""

from __future__ import annotations

import importlib
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest

from faultline.cli import commands
from faultline.cli.entry import COMMANDS, module_of

HEAVY = ("numpy", "matplotlib", "jinja2", "sqlite3")
"""Take longer to load than all the rest of a small command."""


def loaded_by(*arguments: str) -> set[str]:
    """Modules that a command has loaded when it ends."""
    program = "import sys\nfrom faultline.cli import main\nmain(sys.argv[1:])\nprint('\\n'.join(sys.modules), file=sys.stderr)"
    run = subprocess.run([sys.executable, "-c", program, *arguments], capture_output=True, text=True, check=True)
    return set(run.stderr.splitlines())


def test_each_module_of_the_folder_is_a_command() -> None:
    folder = Path(commands.__file__).parent
    found = {path.stem for path in folder.glob("*.py") if path.stem != "__init__"}
    assert found == {module_of(name) for name in COMMANDS}
    assert list(COMMANDS) == sorted(COMMANDS)
    for name in COMMANDS:
        command = importlib.import_module(f"faultline.cli.commands.{module_of(name)}").command
        assert isinstance(command, click.Command)
        assert command.name == name


def test_what_no_command_needs_is_not_loaded() -> None:
    loaded = loaded_by("--version")
    assert not loaded & set(HEAVY)
    assert not [name for name in loaded if name.startswith(("faultline.study", "faultline.campaign", "faultline.wear"))]


@pytest.mark.parametrize("command", ["run", "matrix", "replay", "list"])
def test_a_command_does_not_load_what_draws(command: str) -> None:
    assert not loaded_by(command, "--help") & {"numpy", "matplotlib"}


def completed(folder: Path, *words: str) -> list[str]:
    """What a shell offers for the last word; `file`: its files."""
    asked = {"_FAULTLINE_COMPLETE": "bash_complete", "COMP_WORDS": " ".join(words), "COMP_CWORD": str(len(words) - 1)}
    command = [sys.executable, "-P", "-c", "from faultline.cli import main; main([])"]
    run = subprocess.run(command, cwd=folder, env=os.environ | asked, capture_output=True, text=True, check=True)
    return [line.removeprefix("plain,").rstrip(",") for line in run.stdout.split()]


@pytest.mark.slow
def test_a_shell_completes_names(root: Path, tmp_path: Path) -> None:
    """Of the project's allocators, too, and by the path of one."""
    (tmp_path / "faultline.toml").write_text('version = 1\nallocators = ["mine"]\n')
    (tmp_path / "mine").mkdir()
    text, *_ = (root / "allocators" / "nvm_malloc" / "allocator.toml").read_text().split("[[mutant]]")
    text = text.replace('name = "nvm_malloc"', 'name = "nvm_mine"', 1)
    mutant = '[[mutant]]\nid = "LATE"\nsummary = "x"\nrule = "FL004"\nkilled_by = []\n'
    (tmp_path / "mine" / "allocator.toml").write_text(f"{text}{mutant}")
    assert completed(tmp_path, "faultline", "run", "nvm_") == ["nvm_mine", "nvm_malloc", "nvm_malloc_tx"]
    assert completed(tmp_path, "faultline", "wear", "nvmalloc", "mak") == ["makalu"]
    assert completed(tmp_path, "faultline", "run", "nowhere/") == ["file"]
    assert completed(tmp_path, "faultline", "run", "nvm_mine", "-w", "ch") == ["churn", "chain"]
    assert completed(tmp_path, "faultline", "bisect", "nvm_mine", "-w", "./a.workload") == ["file"]
    for target in ("nvm_mine", "./mine"):
        assert completed(tmp_path, "faultline", "run", target, "-m", "L") == ["LATE"]
    assert completed(tmp_path, "faultline", "build", "nvm_malloc", "-m", "MISSING_FENCE_R") == ["MISSING_FENCE_RING"]


def test_a_shell_completes_files_where_a_project_cannot_be_read(tmp_path: Path) -> None:
    (tmp_path / "faultline.toml").write_text("version = 99\n")
    assert completed(tmp_path, "faultline", "run", "nvm") == ["file"]
    assert completed(tmp_path, "faultline", "run", "nvm_malloc", "-m", "M") == []
