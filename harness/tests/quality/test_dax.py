# SPDX-License-Identifier: Apache-2.0
"""`make dax`: its parts without the machine, and at night the machine. What must be told from what is right: a state that the model
does not allow where the machine was, and a heap that has lost what an object held."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import struct
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from faultline.base.cache import Cache
from faultline.base.errors import InfrastructureError
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.pipeline.trace import heap_arguments, session_command
from faultline.pipeline.workshop import Workshop

ROOT = Path(__file__).resolve().parents[3]
NAME_IS_SYNCED = "name-is-durable-after-a-sync-of-its-folder"
FILES = [
    path.stem for path in sorted((ROOT / "crashgen" / "litmus").glob("*.litmus")) if "fs: posix" in path.read_text()
]


@pytest.fixture(scope="module", autouse=True)
def importable() -> Iterator[None]:
    """The modules of ci."""
    sys.path.insert(0, str(ROOT / "ci"))
    yield
    sys.path.remove(str(ROOT / "ci"))


@pytest.fixture
def engine(scripts: Path) -> Engine:
    return Engine(scripts / "faultline-engine")


def test_the_info_block_is_what_the_kernel_looks_for() -> None:
    import dax_machine

    assert dax_machine.fletcher64(struct.pack("<3I", 1, 2, 3)) == 10 << 32 | 6
    block = dax_machine.info_block(64 << 20)
    assert (len(block), block[:16]) == (4096, b"NVDIMM_PFN_INFO\0")
    data, pages, mode = struct.unpack_from("<QQI", block, 56)
    assert (data, pages, mode) == (2 << 20, (62 << 20) // 4096, 1)
    [checksum] = struct.unpack_from("<Q", block, 4088)
    assert checksum == dax_machine.fletcher64(block[:4088] + bytes(8)) != 0


def test_what_the_guest_boots_is_an_archive(tmp_path: Path) -> None:
    """Each record begins at a multiple of 4 bytes, with its folders before it."""
    import dax_machine

    files = dax_machine.Files()
    files.add("a/b/c", b"12345")
    files.links["a/d"] = "b/c"
    packed, at, names = files.packed(), 0, {}
    while (name := "") or at < len(packed):
        numbers = [int(packed[at + 6 + 8 * n : at + 14 + 8 * n], 16) for n in range(13)]
        assert packed[at : at + 6] == b"070701"
        name = packed[at + 110 : at + 110 + numbers[11] - 1].decode()
        content = at + -(-(110 + numbers[11]) // 4) * 4
        names[name] = packed[content : content + numbers[6]]
        at = content + -(-numbers[6] // 4) * 4
    assert list(names) == ["a", "a/b", "a/b/c", "a/d", "TRAILER!!!"]
    assert (names["a/b/c"], names["a/d"]) == (b"12345", b"b/c")


def test_modules_come_after_what_they_need(tmp_path: Path) -> None:
    import dax_machine

    for name, needs in (("top", "mid-dle,low"), ("mid-dle", "low"), ("low", "")):
        (tmp_path / f"{name}.ko").write_bytes(b"ELF\0depends=" + needs.encode() + b"\0name=x\0")
    found = dax_machine.module_files(tmp_path, ("top", "built_in", "mid_dle"))
    assert [name for name, _ in found] == ["low.ko", "mid-dle.ko", "top.ko"]


@pytest.fixture(scope="module")
def steps(tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("dax") / "steps"
    flags = ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-Werror")
    subprocess.run(["gcc", *flags, ROOT / "ci" / "dax" / "steps.c", "-o", program], check=True)
    return program


@pytest.mark.parametrize("name", FILES)
def test_the_steps_of_a_litmus_test_leave_what_the_model_says_of_their_end(
    name: str, steps: Path, engine: Engine, tmp_path: Path
) -> None:
    """On a file system that is not ended. It need not have MAP_SYNC."""
    import dax_litmus

    test = dax_litmus.read_litmus(ROOT / "crashgen" / "litmus" / f"{name}.litmus", engine)
    assert test is not None
    folder = tmp_path / "t"
    folder.mkdir()
    (tmp_path / "variables").write_bytes(bytes(4096))
    script = test.script([0] * len(test.steps)).replace(" synced\n", " plain\n", 1)
    markers = tmp_path / "markers"
    subprocess.run([steps, "run", folder, markers], input=script, text=True, check=True)
    asked = subprocess.run([steps, "look", folder], input=test.questions(), text=True, check=True, capture_output=True)
    ending = dax_litmus.LitmusEnding(test, "ext4", random.Random(1))
    ending.take(markers.read_text(), asked.stdout.encode())
    assert (ending.least, ending.most) == (len(test.steps), len(test.steps))
    assert ending.is_allowed, (ending.state, test.allowed[-1])


def test_a_state_is_compared_with_where_the_machine_was(engine: Engine) -> None:
    import dax_litmus

    test = dax_litmus.read_litmus(ROOT / "crashgen" / "litmus" / f"{NAME_IS_SYNCED}.litmus", engine)
    assert test is not None
    lines = [f"{word} {step}\n" for step in range(5) for word in ("begin", "return")]

    def ending(markers: str) -> Any:
        made = dax_litmus.LitmusEnding(test, "ext4", random.Random(1))
        made.take(markers, b"y=0\nf=none\n")
        return made

    during, after, cut = ending("".join(lines[:7])), ending("".join(lines[:8])), ending("".join(lines[:7]) + "return 3")
    assert (during.is_allowed, after.is_allowed, cut.is_allowed) == (True, False, True)
    compared = dax_litmus.compare(test, "ext4", [during, after])
    assert compared.forbidden == ["y=0 f=none after 4 of 4 steps"]
    assert "y=1 f=4096" in compared.never_came
    assert compared.seen == {"y=0 f=none": 2}


def test_a_step_that_fails_is_one_line(steps: Path, tmp_path: Path) -> None:
    for script, said in (("unlink f\n", "step 0, unlink: No such file"), ("sing f\n", "step 0, sing: not known")):
        run = subprocess.run(
            [steps, "run", tmp_path, tmp_path / "m"], input=script, text=True, check=False, capture_output=True
        )
        assert (run.returncode, run.stderr.count("\n"), said in run.stderr) == (2, 1, True), run.stderr


# ---- heaps -----------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cell(root: Path, scripts: Path) -> PreparedCell:
    workshop = Workshop(root, Cache(root / ".faultline"), Engine(scripts / "faultline-engine"))
    return prepare(workshop, CellSpec("nvm_malloc", "churn", 30, 1, "complete", "px86", "clwb"), needs_hooks=False)


def left_by(cell: PreparedCell, folder: Path, operations: int, workload: Path | None = None) -> Any:
    """As a machine that said that so many operations had returned. workload: that it executed, if not the cell's."""
    import dax_heaps

    target, heap = cell.target, heap_arguments(cell.target.allocator.heap, cell.workload)
    place, markers = folder / "pm", folder / "all-markers"
    place.mkdir(parents=True)
    command = session_command(target, workload or cell.trace.workload_file, 0, place, heap)
    subprocess.run([*command, "--markers", markers], check=True)
    ending = dax_heaps.HeapEnding(cell, "ext4", random.Random(1), folder / "left")
    ending.folder.mkdir()
    shutil.copytree(place / "case-0", ending.folder / "heap")
    probe = [
        target.runner.path,
        "probe",
        "--full",
        "--adapter",
        target.adapter.path,
        "--folder",
        place / "case-0",
        *heap,
    ]
    with (ending.folder / "report").open("wb") as report:
        subprocess.run(probe, check=True, stdout=report)
    said = [line for line in markers.read_text().splitlines(keepends=True) if not line.startswith("mapped")]
    ending.markers = "".join(said[: 1 + 2 * operations])
    (ending.folder / "markers").write_text(ending.markers)
    ending.has_heap = True
    return ending


def test_a_heap_that_a_machine_left_is_judged_by_its_markers(cell: PreparedCell, tmp_path: Path) -> None:
    import dax_heaps

    whole = left_by(cell, tmp_path / "whole", cell.workload.operation_count)
    good = dax_heaps.judge(cell, "ext4", [whole])
    assert (good.verdict, good.endings, good.unbegun, good.in_operation) == ("pass", 1, 0, 0), good
    early = left_by(cell, tmp_path / "early", 3)
    ahead = dax_heaps.judge(cell, "ext4", [whole, early])
    assert (ahead.verdict, ahead.failed) == ("fail", [early.folder]), "it has objects that nobody has allocated yet"
    assert any(text.startswith("FL005") for text in ahead.broken), ahead.broken


def test_a_lost_object_is_a_finding(cell: PreparedCell, tmp_path: Path) -> None:
    import dax_heaps

    lines = cell.workload.text().splitlines(keepends=True)
    last = max(number for number, line in enumerate(lines) if line.startswith("allocate"))
    (tmp_path / "short").write_text("".join(lines[:last]))
    whole = left_by(cell, tmp_path / "whole", cell.workload.operation_count - 1)
    lacking = left_by(cell, tmp_path / "lacking", cell.workload.operation_count - 1, tmp_path / "short")
    (lacking.folder / "markers").write_text(whole.markers)
    judged = dax_heaps.judge(cell, "ext4", [lacking])
    assert judged.verdict == "fail"
    assert any("is lost" in text for text in judged.broken), judged.broken


def test_an_operation_that_the_trace_does_not_have_is_one_line(cell: PreparedCell, tmp_path: Path) -> None:
    import dax_heaps

    ending = left_by(cell, tmp_path, 2)
    (ending.folder / "markers").write_text("begin 999 free\n")
    with pytest.raises(Exception, match=r"999 free.*the trace has no such operation"):
        dax_heaps.judge(cell, "ext4", [ending])


# ---- the command -----------------------------------------------------------------------------------------------------------


def dax(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, str(ROOT / "ci" / "dax.py"), *words]
    return subprocess.run(command, env=os.environ | environment, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--file-system", "btrfs"), 2, "--file-system btrfs: it has no DAX; expected ext4 or xfs"),
        (("--part", "heaps", "--allocator", "no_such"), 2, "no_such"),
        (("--endings", "0"), 2, "--endings 0: expected at least 1"),
        (("--workload", "churn"), 2, "--workload: of which allocator?"),
        (("--allocator", "nvm_malloc", "--mutant", "X"), 2, "--mutant: with which workload?"),
    ],
)
def test_a_wrong_argument_is_one_line(words: tuple[str, ...], code: int, said: str, tmp_path: Path) -> None:
    run = dax(*words, "--out", str(tmp_path))
    errors = [line for line in run.stderr.splitlines() if not line.startswith("hint: ")]
    assert (run.returncode, len(errors), said in run.stderr) == (code, 1, True), run.stderr


def test_what_the_host_lacks_is_one_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dax_machine

    def error_of(call: Any, *arguments: Any) -> str:
        with pytest.raises(InfrastructureError) as raised:
            call(*arguments)
        assert "\n" not in str(raised.value)
        return str(raised.value)

    monkeypatch.setenv("PATH", str(tmp_path))
    assert "no kernel package: apt-cache is not there" in error_of(dax_machine.find_kernel, tmp_path / "kernel")
    kernel = dax_machine.Kernel(tmp_path / "k", tmp_path)
    assert "no qemu-system-x86_64 is there" in error_of(dax_machine.machine_for, kernel, dax_machine.Files(), tmp_path)
    monkeypatch.setattr(dax_machine, "DISK_BYTES", 1 << 60)
    assert re.search("no room for the disk: .* MiB are free", error_of(dax_machine.make_disk, tmp_path / "d", "ext4"))


def test_a_guest_that_does_not_boot_is_said_with_its_last_lines(tmp_path: Path) -> None:
    import dax_machine

    for name in ("console", "markers", "answer", "qemu"):
        (tmp_path / name).write_text("one\n\x1b[2JKernel panic: no init\n" if name == "console" else "")
    with subprocess.Popen(["sleep", "60"]) as process:
        guest = dax_machine.Guest(process, tmp_path)
        with pytest.raises(
            InfrastructureError, match=r"did not say 'ready' within 0\.1 s: one \| Kernel panic: no init"
        ):
            guest.expect("ready", limit_s=0.1)
        (tmp_path / "markers").write_text("no-dax EXT4-fs: DAX unsupported\n")
        with pytest.raises(InfrastructureError, match="the guest says: no-dax EXT4-fs"):
            guest.expect("ready")
        process.kill()
        process.wait()
        with pytest.raises(InfrastructureError, match="the guest ended: one"):
            guest.expect("ready")


def test_a_planted_fault_that_is_missed_is_no_pass(capsys: pytest.CaptureFixture[str]) -> None:
    import dax
    import dax_heaps

    def heap(broken: list[str], unknown: list[str] | None = None, *, is_planted: bool = False) -> Any:
        return dax_heaps.HeapsOf("ext4", "cell", is_planted, 1, 0, 0, 1, 0, broken, [], unknown or [])

    found, missed = heap(["FL003: no magic"], is_planted=True), heap([], is_planted=True)
    assert dax.verdict_of([], [heap([]), found, missed]) == 0, "one of its file systems shows it"
    assert dax.verdict_of([], [heap([]), missed]) == 1
    assert "NOT FOUND" in capsys.readouterr().out
    assert dax.verdict_of([], [heap(["FL003: no magic"]), found]) == 1
    assert dax.verdict_of([], [heap([], ["too slow"]), found]) == 3


@pytest.mark.nightly
def test_the_machine_grants_map_sync_and_finds_what_is_planted(tmp_path: Path) -> None:
    run = dax("--part", "heaps", "--allocator", "nvm_malloc", "--workload", "smoke", "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    heaps = json.loads((tmp_path / "dax.json").read_text())["heaps"]
    assert {heap["file_system"] for heap in heaps} == {"ext4", "xfs"}
    assert all(heap["synced"] > 0 and heap["others"] == 0 for heap in heaps), heaps
    marked = ("--allocator", "harness/tests/exploration/marked", "--workload", "churn")
    run = dax("--part", "heaps", *marked, "--mutant", "MAPPED_WITHOUT_SYNC", "--out", str(tmp_path))
    assert run.returncode == 0, run.stderr
    heaps = json.loads((tmp_path / "dax.json").read_text())["heaps"]
    assert any(heap["verdict"] == "fail" and heap["failed"] for heap in heaps), heaps
    assert all(heap["synced"] == 0 for heap in heaps), heaps
    kept = next((tmp_path / "failed").iterdir())
    assert {"markers", "report", "heap"} <= {path.name for path in kept.iterdir()}
