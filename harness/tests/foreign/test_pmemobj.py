# SPDX-License-Identifier: Apache-2.0
"""libpmemobj as the distribution ships it (allocators/pmdk): what it does to a heap is explored whole by the traced engine. What is
found is said as it is."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from exploration.files_project import link_tool
from faultline.base.cache import Cache
from faultline.base.config import find_allocator
from faultline.pipeline import packages
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.explore import explore
from faultline.pipeline.prepared import PreparedCell, build_cell, find_workload, trace_cell
from faultline.pipeline.workshop import Workshop
from faultline.workload import file_format
from foreign.answer import Answer

CREATED_ONLY = "workload 1\nslots 1\ncase\nallocate 0 64\n"
SHORT = "workload 1\nslots 1\ncase\nallocate 0 112\nfree 0\n"

TRANSACTION = "workload 1\nslots 2\ncase\nallocate 0 112\nbegin\nwrite 0 16 32\nallocate 1 112\ncommit\n"

Prepare = Callable[..., PreparedCell]


@pytest.fixture
def prepared(root: Path, scripts: Path) -> Prepare:
    return preparing(root, Cache(root / ".faultline"), scripts)


def preparing(root: Path, cache: Cache, scripts: Path) -> Prepare:
    """Of the allocators below root."""
    lacking = packages.missing(find_allocator(root, "pmdk_tx"))
    if lacking:
        pytest.skip(lacking)
    workshop = Workshop(root, cache, Engine(scripts / "faultline-engine"))

    def prepare(allocator: str, workload: str, text: str = "", **more: object) -> PreparedCell:
        spec = CellSpec(allocator, workload, more.pop("ops", 0), 1, "complete", "px86", "clwb", **more)  # type: ignore[arg-type]
        parsed = file_format.parse(text, workload) if text else find_workload(workshop, spec)
        return trace_cell(workshop, spec, build_cell(workshop, spec), parsed)

    return prepare


def explored(cell: PreparedCell) -> Answer:
    answer = Answer()
    answer.verdict = explore(cell, answer.hear)
    return answer


@pytest.mark.slow
def test_an_allocation_and_a_free_are_explored_whole(prepared: Prepare) -> None:
    answer = explored(prepared("pmdk", "short", SHORT, start="workload", probe="first"))
    assert (answer.verdict, answer.rules) == ("pass", set())
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    judged = answer.certificate.rules_judged
    assert {"FL004", "FL005", "FL008", "FL010"} <= set(judged)
    not_judged = {rule["rule"]: rule["why"] for rule in answer.certificate.rules_not_judged}
    assert "first part" in not_judged["FL012"]


@pytest.mark.slow
@pytest.mark.parametrize("is_logged", [True, False])
def test_a_transaction_that_logs_what_it_overwrites_is_right_and_one_that_does_not_is_found(
    root: Path, scripts: Path, tmp_path: Path, is_logged: bool
) -> None:
    for name in ("pmdk", "pmdk_tx"):
        shutil.copytree(root / "allocators" / name, tmp_path / "allocators" / name)
    link_tool(root, tmp_path)
    adapter = tmp_path / "allocators" / "pmdk_tx" / "adapter.c"
    logs = "if (is_open && !has_logged(object + from, bytes))"
    text = adapter.read_text()
    assert logs in text
    adapter.write_text(text if is_logged else text.replace(logs, "if (false)"))
    cache = cache_that_shares_builds(root, tmp_path / "cache")
    prepare = preparing(tmp_path, cache, scripts)
    answer = explored(prepare("pmdk_tx", "transaction", TRANSACTION, start="workload", probe="first"))
    expected = ("pass", set()) if is_logged else ("fail", {"FL009", "FL019"})
    assert (answer.verdict, answer.rules) == expected
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    assert "FL019" in answer.certificate.rules_judged or not is_logged


def test_a_workload_starts_where_allocator_toml_says_in_every_command(
    prepared: Prepare, faultline: Faultline, tmp_path: Path
) -> None:
    """Else mutate and bisect explore the creation, and the command that they name to look at it does not."""
    assert prepared
    (tmp_path / "short.workload").write_text(SHORT)
    run = faultline("mutate", "pmdk", "-w", tmp_path / "short.workload", "--time", "0.001")
    assert_one_clear_line(run, 2, "pmdk short.workload --start workload does not pass completely", "a larger --time")


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("allocator", "workload", "ops", "probe", "recoveries"),
    [
        ("pmdk", "smoke", 0, "full", 30),
        ("pmdk", "churn", 40, "full", 200),
        ("pmdk_movnt", "smoke", 0, "first", 1000),
        ("pmdk_tx", "churn", 20, "first", 500),
        ("pmdk_tx", "tx:40", 0, "first", 500),
    ],
)
def test_what_it_does_to_a_heap_is_explored_whole(
    prepared: Prepare, allocator: str, workload: str, ops: int, probe: str, recoveries: int
) -> None:
    answer = explored(prepared(allocator, workload, ops=ops, start="workload", probe=probe))
    assert (answer.verdict, answer.rules) == ("pass", set())
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    assert answer.certificate.recoveries > recoveries


@pytest.mark.nightly
def test_a_creation_is_explored_whole_and_dies_of_an_empty_pool(prepared: Prepare) -> None:
    """80,000 crash positions. pmemobj_open of a file of no bytes, which is there before it is made longer, is a bus error."""
    answer = explored(prepared("pmdk", "created", CREATED_ONLY, probe="first"))
    assert (answer.verdict, answer.rules) == ("fail", {"FL001"})
    assert (answer.certificate.complete, answer.certificate.engine) == (True, "traced")
    assert "SIGBUS" in answer.messages[0]


IN_SMALL_FILE_SYSTEM = 'mount -t tmpfs -o size=4m small "$0" && exec "$@" --heap-folder "$0"'


def test_a_pool_on_a_full_file_system_is_one_clear_line(prepared: Prepare, scripts: Path, tmp_path: Path) -> None:
    """A real one, in a name space of its own: posix_fallocate finds no room for the pool."""
    alone = ("unshare", "--user", "--map-root-user", "--mount")
    if subprocess.run([*alone, "true"], capture_output=True, check=False).returncode != 0:
        pytest.skip("this system lets nobody mount a file system in a name space")
    small = tmp_path / "small"
    small.mkdir()
    command = [scripts / "faultline", "trace", "pmdk", "-w", "create", "--fresh"]
    run = subprocess.run(
        [*alone, "sh", "-c", IN_SMALL_FILE_SYSTEM, small, *command], capture_output=True, text=True, check=False
    )
    assert_one_clear_line(run, 3, f"{small} has 4194304 bytes free, and the heap may need 8388608", "--heap-folder")
    assert "No space left on device" in run.stderr
