# SPDX-License-Identifier: Apache-2.0
"""Libraries that an allocator asks its system for: one line says what is missing, and what needs none of it goes on."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base import config
from faultline.base.errors import InfrastructureError
from faultline.pipeline import packages

TOY = """Name: toy
Description: a library of this test
Version: 2.0
Libs: -ltoy
"""


@pytest.fixture
def project(tmp_path: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Of the allocators `asking`, which asks for toy, and `plain`; the system has toy 2.0."""
    (tmp_path / "asking").mkdir()
    plain = shutil.copytree(root / "allocators" / "nvmalloc", tmp_path / "plain") / "allocator.toml"
    plain.write_text(plain.read_text().replace('"nvmalloc"', '"plain"', 1))
    (tmp_path / "faultline.toml").write_text('version = 1\nallocators = ["asking", "plain"]\n')
    (tmp_path / "toy.pc").write_text(TOY)
    monkeypatch.setenv("PKG_CONFIG_PATH", str(tmp_path))
    packages._lack_of.cache_clear()
    yield tmp_path
    packages._lack_of.cache_clear()


def ask_for(project: Path, root: Path, *names: str) -> Path:
    text = (root / "allocators" / "pmdk" / "allocator.toml").read_text().replace('"pmdk"', '"asking"', 1)
    asked = ", ".join(f'"{name}"' for name in names)
    text = text.replace('packages = ["libpmemobj >= 1.12", "libpmemobj < 2"]', f"packages = [{asked}]")
    path = project / "asking" / "allocator.toml"
    path.write_text(text.replace('libraries = ["pmemobj"]\n', 'sources = ["adapter.c"]\n'))
    (project / "asking" / "adapter.c").write_text("int nothing;\n")
    return path


@pytest.mark.parametrize(
    ("asked", "lacking"),
    [
        (["toy"], None),
        (["toy >= 1.5", "toy < 3"], None),
        (["toy >= 1.5", "toy < 2"], "expected toy < 2, found version 2.0"),
        (["toy", "nosuch"], "expected nosuch, found none"),
    ],
)
def test_what_is_missing_is_named_with_what_is_there(
    project: Path, root: Path, asked: list[str], lacking: str | None
) -> None:
    assert packages.missing(config.read_allocator(ask_for(project, root, *asked))) == lacking


def test_a_missing_library_is_bad_input_in_one_line(project: Path, root: Path, faultline: Faultline) -> None:
    path = ask_for(project, root, "toy < 2")
    for command in (["run", "asking", "-w", "smoke"], ["build", "asking"]):
        run = faultline(*command, "--cache", root / ".faultline", cwd=project)
        assert_one_clear_line(run, 2, f"{path}: build.packages: expected toy < 2, found version 2.0", "make setup")


@pytest.mark.slow
def test_what_asks_for_nothing_is_built_and_the_other_is_named(project: Path, root: Path, faultline: Faultline) -> None:
    ask_for(project, root, "nosuch >= 1")
    run = faultline("build", "--cache", root / ".faultline", cwd=project)
    assert run.returncode == 0, run.stderr
    assert "asking is not built: expected nosuch >= 1, found none" in run.stderr
    assert "plain " in run.stdout
    assert "asking" not in run.stdout
    doctor = faultline("doctor", "--cache", root / ".faultline", cwd=project)
    assert "asking: expected nosuch >= 1, found none" in " ".join(doctor.stdout.split())


def test_without_pkg_config_nobody_knows(project: Path, root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    allocator = config.read_allocator(ask_for(project, root, "toy"))
    monkeypatch.setenv("PATH", str(project))
    with pytest.raises(InfrastructureError, match="pkg-config was not found"):
        packages.missing(allocator)


@pytest.mark.parametrize("asked", ["toy>=1", "toy = ", "toy ; true", "--version"])
def test_a_package_is_a_name_and_a_version(project: Path, root: Path, faultline: Faultline, asked: str) -> None:
    ask_for(project, root, asked)
    run = faultline("build", "asking", cwd=project)
    assert run.returncode == 2
    assert "build.packages[0]" in run.stderr
