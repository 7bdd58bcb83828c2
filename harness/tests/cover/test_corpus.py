# SPDX-License-Identifier: Apache-2.0
"""Every input of fuzz/corpus through the readers in Python and C. `cargo test` puts the same inputs through those in Rust."""

from __future__ import annotations

import importlib.util
import random
import subprocess
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

FOLDERS = ("trace", "token", "litmus", "log", "report", "config", "workload", "allocator", "matrix")


@pytest.fixture(scope="module")
def python_targets(root: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location("python_targets", root / "fuzz" / "python_targets.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def targets(python_targets: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Any:
    return python_targets.Targets(tmp_path_factory.mktemp("targets"))


def inputs(root: Path, folder: str) -> list[Path]:
    return sorted((root / "fuzz" / "corpus" / folder).iterdir())


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("name", ["allocator", "matrix", "workload"])
def test_every_claim_holds_on_every_input(root: Path, targets: Any, name: str, folder: str) -> None:
    for path in inputs(root, folder):
        try:
            getattr(targets, name)(path.read_bytes())
        except Exception as error:
            raise AssertionError(f"{path}: {error}") from error


def test_the_corpus_has_accepted_and_refused_workloads(root: Path, targets: Any) -> None:
    read = [targets.runner_reads(path.read_bytes()) for path in inputs(root, "workload")]
    refused = sum(text.startswith("refused: ") for text in read)
    assert refused >= 5
    assert len(read) - refused >= 5


def test_a_disagreement_of_the_two_workload_readers_is_seen(targets: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    accepted, refused = b"workload 1\nslots 4\ncase\n", b"workload 1\nslots 4\nallocate 0 8\n"
    targets.workload(accepted)
    targets.workload(refused)
    real = targets.runner_reads
    monkeypatch.setattr(targets, "runner_reads", lambda data: real(refused if data == accepted else accepted))
    for data in (accepted, refused):
        with pytest.raises(AssertionError):
            targets.workload(data)


def random_line(chance: random.Random) -> str:
    slots, fields = [chance.randrange(4) for _ in range(2)], chance.randrange(2)
    kinds = [
        "allocate {0} 8",
        "free {0}",
        "reallocate {0} 9",
        "link {0} {2} {1}",
        "unlink {0} {2}",
        "drop {0}",
        "load {0} {1} {2}",
    ]
    return chance.choice([*kinds, kinds[3], kinds[3], "case", "reopen"]).format(*slots, fields) + "\n"


@pytest.mark.parametrize("seed", range(20))
def test_the_two_readers_follow_the_same_links(targets: Any, seed: int) -> None:
    """Random lines, those that are refused taken back: each is refused by both or by none."""
    chance = random.Random(seed)
    text = "workload 1\nslots 4 graph\ncase\n"
    refused = 0
    for _ in range(150):
        line = random_line(chance)
        targets.workload((text + line).encode())
        is_refused = targets.runner_reads((text + line).encode()).startswith("refused: ")
        refused += is_refused
        text += "" if is_refused else line
    assert 20 < refused < 130


def test_the_runners_reader_under_address_sanitizer(root: Path, tmp_path: Path) -> None:
    program = tmp_path / "reader"
    include = [f"-I{root / name}" for name in ("runner", "include", "pintools")]
    sanitizers = ["-g", "-O1", "-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-DFUZZ_MAIN"]
    source = root / "fuzz" / "workload_reader.c"
    subprocess.run(["gcc", "-std=gnu11", *sanitizers, *include, "-o", program, source], check=True)
    files = [path for folder in FOLDERS for path in inputs(root, folder)]
    run = subprocess.run([program, *files], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stderr
