# SPDX-License-Identifier: Apache-2.0
"""The image that holds faultline (ci/Dockerfile, ci/docker.sh): what can be read of it, and what is said where no engine is. With
an engine it is built and run: the same verdicts inside as outside."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline, assert_one_clear_line
from faultline.base import cache
from plugin.users_repository import FINDING, make_allocator, mend

BUILD_LIMIT_S = 3600
STRANGER = 12345
"""No user of the image has this number, and none of the host."""
IMAGE = "FAULTLINE_TEST_IMAGE"
"""Names an image of these sources that was built before."""
Run = subprocess.CompletedProcess[str]


# ---- without an engine ---------------------------------------------------------------------------------------------------


NO_RIGHT = "permission denied while trying to connect to the Docker daemon socket at unix:///var/run/docker.sock"
NO_ENGINE = "Cannot connect to the Docker daemon at unix:///var/run/docker.sock. Is the docker daemon running?"
OF_THE_SCRIPT = "bash dirname sed tail grep id mktemp rm awk cat"
"""What ci/docker.sh starts before it builds anything."""


@pytest.fixture
def script(root: Path, tmp_path: Path) -> Callable[..., Run]:
    """ci/docker.sh where nothing is on PATH but what it starts itself, and a docker that does what is given."""
    tools = tmp_path / "tools"
    tools.mkdir()
    (tmp_path / "left").mkdir()
    for name in OF_THE_SCRIPT.split():
        (tools / name).symlink_to(str(shutil.which(name)))

    def run(*words: str, docker: str | None = None) -> Run:
        if docker is not None:
            (tools / "docker").write_text(f"#!/bin/bash\n{docker}\n")
            (tools / "docker").chmod(0o755)
        own = {"PATH": str(tools), "HOME": str(tmp_path), "TMPDIR": str(tmp_path / "left")}
        command = [str(root / "ci" / "docker.sh"), *words]
        return subprocess.run(command, env=own, capture_output=True, text=True, timeout=60, check=False)

    return run


def test_without_docker_one_line_says_so(script: Callable[..., Run]) -> None:
    assert_one_clear_line(script(), 3, "docker was not found", "hint: install Docker")


@pytest.mark.parametrize(
    ("said", "words"),
    [
        (NO_RIGHT, ("you may not use the Docker engine: permission denied", "hint: run this as root, or as a member")),
        (NO_ENGINE, ("no Docker engine answers: Cannot connect", "hint: start it")),
    ],
)
def test_an_engine_that_does_not_answer_is_one_line(
    script: Callable[..., Run], said: str, words: tuple[str, ...]
) -> None:
    assert_one_clear_line(script(docker=f"echo '{said}' >&2; exit 1"), 3, *words)


@pytest.mark.parametrize("words", [("Upper",), ("a b",), ("--help",), ("one", "two")])
def test_what_is_no_name_of_an_image_is_bad_input(script: Callable[..., Run], words: tuple[str, ...]) -> None:
    assert_one_clear_line(script(*words, docker="exit 1"), 2, "ci/docker.sh" if len(words) > 1 else "is no name")


def test_what_cannot_be_pulled_and_cannot_be_made_is_one_line(script: Callable[..., Run], tmp_path: Path) -> None:
    """An engine answers, and no image is to be had. Nothing stays but the log."""
    docker = '[ "$1" = version ] || { echo "no such host" >&2; exit 1; }'
    run = script(docker=docker)
    assert run.stderr.splitlines()[0].startswith("image: ")
    run.stderr = "".join(line for line in run.stderr.splitlines(keepends=True) if not line.startswith("image: "))
    assert_one_clear_line(run, 3, "debootstrap was not found")
    assert [path.suffix for path in (tmp_path / "left").iterdir()] == [".log"]


# ---- what can be read ----------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def stage(root: Path) -> list[tuple[str, str]]:
    """The instructions of the image itself, the last stage: word and what follows."""
    text = re.sub(r"^#.*\n", "", (root / "ci" / "Dockerfile").read_text(), flags=re.MULTILINE).replace("\\\n", " ")
    found = [tuple(line.split(None, 1)) for line in text.splitlines() if line.strip()]
    last = max(at for at, (word, _) in enumerate(found) if word == "FROM")
    return [(word, " ".join(rest.split())) for word, rest in found[last:]]


def test_the_image_runs_faultline_and_not_as_root(stage: list[tuple[str, str]]) -> None:
    words = [word for word, _ in stage]
    users = [rest for word, rest in stage if word == "USER"]
    assert users == ["faultline"]
    assert words.index("USER") > max(at for at, word in enumerate(words) if word == "RUN")
    assert [rest for word, rest in stage if word in ("ENTRYPOINT", "CMD")] == ['["faultline"]']


def test_the_image_has_what_faultline_starts_and_nothing_unlisted(root: Path, stage: list[tuple[str, str]]) -> None:
    (install,) = (rest for word, rest in stage if word == "RUN" and " install " in rest)
    packages = re.search(r"--no-install-recommends ((?:[a-z0-9.+-]+ )+)&&.* download ([a-z]+) &&", install)
    assert packages, install
    there = {*packages[1].split(), packages[2]}
    lines = (root / "ci" / "packages.txt").read_text().splitlines()
    listed = {line.split()[0] for line in lines if line and not line.startswith("#")}
    assert there - listed == {"python3"}
    assert {*cache.PACKAGES.split(), "git", "valgrind", "libxxhash-dev", "pkg-config"} <= there


def test_the_context_of_the_build_holds_what_the_wheel_is_made_of(root: Path) -> None:
    """.dockerignore leaves out all that it does not name."""
    lines = (root / ".dockerignore").read_text().splitlines()
    assert "*" in lines
    kept = [line.removeprefix("!/") for line in lines if line.startswith("!/")]
    assert [name for name in kept if not (root / name).exists()] == []
    members = re.search(r"^members = (\[.*\])$", (root / "Cargo.toml").read_text(), re.MULTILINE)
    assert members
    sys.path.insert(0, str(root / "ci" / "packaging"))
    try:
        from faultline_wheel import SOURCES
    finally:
        sys.path.remove(str(root / "ci" / "packaging"))
    dockerfile = (root / "ci" / "Dockerfile").read_text()
    needed = {*json.loads(members[1]), *(pattern.split("*")[0].rstrip("/") for pattern in SOURCES), "harness/faultline"}
    needed |= {"pyproject.toml", "README.md", "Cargo.lock", *re.findall(r"requirements[\w-]*\.txt", dockerfile)}
    assert sorted(name for name in needed if not any(f"{name}/".startswith(f"{one}/") for one in kept)) == []


# ---- with an engine ------------------------------------------------------------------------------------------------------


def docker(*words: str | Path, **options: Any) -> Run:
    limits = {"capture_output": True, "text": True, "timeout": 600, "stdin": subprocess.DEVNULL, "check": False}
    return subprocess.run(["docker", *map(str, words)], **{**limits, **options})


@pytest.fixture(scope="module")
def image(root: Path) -> Iterator[str]:
    if shutil.which("docker") is None or docker("version").returncode != 0:
        pytest.skip("no Docker engine answers here (docker version)")
    given = os.environ.get(IMAGE)
    if given:
        yield given
        return
    name = f"faultline-test:{os.getpid()}"
    command = [str(root / "ci" / "docker.sh"), name]
    run = subprocess.run(command, capture_output=True, text=True, timeout=BUILD_LIMIT_S, check=False)
    if run.returncode == 3 and " was not found" in run.stderr:
        pytest.skip(run.stderr.splitlines()[-2].removeprefix("error: "))
    assert run.returncode == 0, run.stderr
    assert re.match(rf"{name}: \d+ MB, built in \d+ s\n", run.stdout), run.stdout
    yield name
    docker("rmi", name)


@pytest.fixture
def inside(image: str) -> Callable[..., Run]:
    """faultline in the image, as a stranger, without a network; the folder is mounted read-only."""

    def run(folder: Path, *words: str | Path, more: tuple[str, ...] = (), shm: str = "1g") -> Run:
        where = (
            "--network",
            "none",
            "--user",
            f"{STRANGER}:{STRANGER}",
            "-v",
            f"{folder}:/work:ro",
            f"--shm-size={shm}",
        )
        return docker("run", "--rm", *where, *more, image, *words)

    return run


@pytest.fixture
def repository(root: Path, tmp_path: Path) -> Path:
    return make_allocator(root, tmp_path / "a user's", is_mended=False)


def judged(run: Run) -> dict[str, Any]:
    """What must be the same wherever it runs: all but time, memory and tokens, which name the build of the compilers there."""
    (cell,) = json.loads(run.stdout)["cells"]
    of_machine = ("time_s", "peak_memory_bytes")
    return {
        "verdict": cell["verdict"],
        "findings": [(finding["id"], finding["message"], finding["seen"]) for finding in cell["findings"]],
        "certificate": {name: value for name, value in cell["certificate"].items() if name not in of_machine},
    }


CELL = ("run", "toy", "-w", "smoke")
SUMMARY = re.compile(r"^summary: .*$", re.MULTILINE)


@pytest.mark.nightly
def test_verdicts_ids_and_certificates_are_the_same_inside_as_outside(
    inside: Callable[..., Run], repository: Path, faultline: Faultline
) -> None:
    """Red, and green after the repair."""
    for code in (1, 0):
        outside = faultline(*CELL, "--json", cwd=repository)
        here = inside(repository, *CELL, "--json")
        assert (outside.returncode, here.returncode) == (code, code), outside.stderr + here.stderr
        assert judged(here) == judged(outside)
        text, text_inside = faultline(*CELL, cwd=repository).stdout, inside(repository, *CELL).stdout
        assert SUMMARY.findall(text_inside) == SUMMARY.findall(text) != []
        if code == 1:
            assert FINDING in text_inside
            token = re.search(r"^  replay: faultline replay (fl1\.\S+)$", text_inside, re.MULTILINE)
            assert token, text_inside
            assert inside(repository, "replay", token[1]).returncode == 1
            mend(repository)
    assert not (repository / "results.sqlite").exists()


@pytest.mark.nightly
def test_exit_codes_pass_through_and_bad_input_is_one_line(inside: Callable[..., Run], repository: Path) -> None:
    assert_one_clear_line(inside(repository, "run", "nosuch", "-w", "smoke"), 2, "unknown allocator 'nosuch'")
    assert_one_clear_line(inside(repository, *CELL, "--time", "no"), 2, "--time")
    nothing = inside(repository)
    assert (nothing.returncode, "Usage: faultline" in nothing.stderr) == (2, True), nothing.stdout + nothing.stderr


@pytest.mark.nightly
def test_a_memory_file_system_that_is_too_small_is_one_line(inside: Callable[..., Run], repository: Path) -> None:
    run = inside(repository, *CELL, shm="64k")
    assert_one_clear_line(run, 3, "/dev/shm", "--shm-size")


@pytest.mark.nightly
def test_the_doctor_is_content_and_says_what_docker_takes(inside: Callable[..., Run], repository: Path) -> None:
    run = inside(repository, "doctor", "--json")
    checks = {check["name"]: check for check in json.loads(run.stdout)}
    assert [check for check in checks.values() if not check["is_good"]] == []
    assert "personality" in checks["addresses"]["detail"]
    free = inside(repository, "doctor", "--json", more=("--security-opt", "seccomp=unconfined"))
    found = {check["name"]: check["detail"] for check in json.loads(free.stdout)}
    assert found["addresses"] == "the same in each recovery"
    small = inside(repository, "doctor", shm="64m")
    assert small.returncode == 3
    assert "--shm-size" in " ".join(small.stdout.split())


@pytest.mark.nightly
def test_results_lie_where_a_folder_is_mounted_for_them(
    inside: Callable[..., Run], repository: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    out.mkdir()
    shutil.chown(out, STRANGER, STRANGER)
    run = inside(repository, "matrix", "--out", "/out", more=("-v", f"{out}:/out"))
    assert run.returncode == 1, run.stderr
    assert {"report.html", "junit.xml", "results.sarif", "results.json"} <= {path.name for path in out.iterdir()}
    assert {path.stat().st_uid for path in out.iterdir()} == {STRANGER}
