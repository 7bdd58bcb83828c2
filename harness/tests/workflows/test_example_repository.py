# SPDX-License-Identifier: Apache-2.0
"""An allocator that is not faultline's goes from nothing to red to green by the steps of docs/ci.md alone: through pytest, through
shards, and through the image that FAULTLINE_IMAGE names. Times are printed (pytest -rP), and none is asserted."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from faultline.cli.commands.new import WORKFLOWS
from page_commands import run_commands, section
from workflows import pegs_repository

BEGIN = "From nothing"


@pytest.fixture
def page(root: Path) -> str:
    return (root / "docs" / "ci.md").read_text()


@pytest.fixture
def repository(root: Path, tmp_path: Path, scripts: Path, page: str) -> Iterator[Path]:
    """With the steps of the page that are the same for all ways. FAULTLINE_FRESH=1: nothing is built yet."""
    began = time.monotonic()
    folder = pegs_repository.begin(tmp_path / "pegs")
    run_commands(section(page, BEGIN), folder, scripts)
    pegs_repository.write_adapter(folder)
    pegs_repository.commit(folder, "faultline")
    if not os.environ.get("FAULTLINE_FRESH"):
        cache_that_shares_builds(root, folder / ".faultline")
    yield folder
    print(f"from nothing to green: {time.monotonic() - began:.0f} s")


def timed(page: str, way: str, folder: Path, scripts: Path) -> list[str]:
    """The steps of one way, until it is red and until it is green."""
    steps = section(page, way)
    red, mend, green = re.split(r"^(    \$ sed .*)$", steps, flags=re.MULTILINE)
    said = []
    for name, commands in (("red", red), ("green", mend + green)):
        began = time.monotonic()
        said += run_commands(commands, folder, scripts)
        print(f"{way.lower()}: {name}: {time.monotonic() - began:.0f} s")
    assert pegs_repository.FENCE.strip() in (folder / "pegs.c").read_text()
    return said


def test_the_page_has_the_files_of_the_example(page: str) -> None:
    (code,) = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    assert code == (pegs_repository.HERE / "pegs_crash" / "test_crash.py").read_text()
    lines = len((pegs_repository.HERE / "pegs_crash" / "adapter.c").read_text().splitlines())
    assert f"`crash/adapter.c`, which has {lines} lines here" in page
    for words in (pegs_repository.FINDING, pegs_repository.REPAIR):
        assert words in section(page, "Through pytest")


@pytest.mark.slow
def test_the_example_is_red_and_green_in_its_own_suite(repository: Path, scripts: Path) -> None:
    """What the page does, without explanation; test_through_pytest has the whole in the nightly run."""
    assert (repository / WORKFLOWS["github"]).is_file()
    quick = "--faultline-no-explain --faultline-no-shrink"
    steps = f"    $ pytest tests {quick}    # exit code 1\n"
    (red,) = run_commands(steps, repository, scripts)
    assert f"a returned operation is lost ({pegs_repository.FINDING}" in red
    assert "1 failed, 4 passed" in red, "the author's own three tests never noticed it"
    assert all((repository / path).exists() for path in pegs_repository.CACHED)
    pegs_repository.mend(repository)
    (green,) = run_commands(f"    $ pytest tests {quick}\n", repository, scripts)
    assert "5 passed" in green
    assert "complete=2/2" in green


@pytest.mark.nightly
def test_through_pytest(repository: Path, scripts: Path, page: str) -> None:
    red, _, green = timed(page, "Through pytest", repository, scripts)
    assert pegs_repository.FINDING in red
    assert pegs_repository.REPAIR in red
    assert "complete=2/2" in green


@pytest.mark.nightly
def test_through_shards(repository: Path, scripts: Path, page: str) -> None:
    *_, red, _, _, _, green, comparison = timed(page, "Through shards", repository, scripts)
    assert pegs_repository.FINDING in red
    assert "findings=0" in green
    assert "complete=2/2" in green
    assert re.search(rf"fixed[^#]*{pegs_repository.FINDING}", comparison)


@pytest.mark.nightly
def test_through_the_image(repository: Path, scripts: Path, page: str) -> None:
    image = os.environ.get("FAULTLINE_IMAGE")
    if not image or shutil.which("docker") is None:
        pytest.skip("no FAULTLINE_IMAGE is set" if not image else "no docker is here")
    if subprocess.run(["docker", "image", "inspect", image], capture_output=True, check=False).returncode != 0:
        pytest.skip(f"docker has no image {image}, or no engine runs")
    red, _, green = timed(page, "Through an image", repository, scripts)
    assert pegs_repository.FINDING in red
    assert pegs_repository.REPAIR in red
    assert "complete=1/1" in green
