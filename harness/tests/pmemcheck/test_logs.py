# SPDX-License-Identifier: Apache-2.0
"""The store log of pmemcheck in both directions, and what is found in it. The logs here are real: pmemcheck 1.0 wrote them for
client.c, and only the path of the file was changed."""

from __future__ import annotations

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from command_line import Faultline, assert_one_clear_line
from pmemcheck import pmreorder_rules

HERE = Path(__file__).resolve().parent
PBIT = HERE / "allocator.toml"
SLOTS = 8
BLOCKS_AT = 20480
FILE_BYTES = BLOCKS_AT + 64 * 256
NO_OPERATIONS = f"workload 1\nslots {SLOTS}\ncase\n"
SOME = f"workload 1\nslots {SLOTS}\ncase\nallocate 0 32\nallocate 3 200\nfree 0\nallocate 5 16\nreallocate 3 256\n"
PMEMCHECK = os.environ.get("PMEMCHECK_VALGRIND")
NO_PMEMCHECK = "PMEMCHECK_VALGRIND names no Valgrind that has pmemcheck (ci/pmemcheck.sh builds one)"


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """What `client init` makes: an empty heap."""
    file = tmp_path / "base"
    head = b"".join(word.to_bytes(8, "little") for word in (0x5042495431, SLOTS + 1024, BLOCKS_AT))
    file.write_bytes(head + bytes(FILE_BYTES - len(head)))
    return file


@pytest.fixture
def workload(tmp_path: Path) -> Path:
    file = tmp_path / "none.workload"
    file.write_text(NO_OPERATIONS)
    return file


def imported(faultline: Faultline, log: Path, trace: Path, *options: str | Path) -> dict[str, Any]:
    run = faultline("import", log, "--out", trace, "--json", *options)
    assert run.returncode == 0, run.stderr
    facts: dict[str, Any] = json.loads(run.stdout)
    return facts


def events_of(faultline: Faultline, trace: Path, is_placed: bool = True) -> list[str]:
    """Each event's kind and detail, and where it is in the source."""
    run = faultline("trace", trace, "--dump")
    assert run.returncode == 0, run.stderr
    lines = [line.split(maxsplit=3)[3] for line in run.stdout.splitlines() if not line.startswith("#")]
    return lines if is_placed else [re.sub(r"  at .*", "", line) for line in lines]


@pytest.mark.parametrize("name", ["clean", "torn", "missing-fence", "bare"])
def test_a_log_gives_the_events_that_it_names(faultline: Faultline, tmp_path: Path, name: str) -> None:
    facts = imported(faultline, HERE / f"{name}.log", tmp_path / "trace")
    lines = [*facts["imported"]["notes"], *events_of(faultline, tmp_path / "trace")]
    expected = HERE / f"{name}.events"
    if os.environ.get("UPDATE_SNAPSHOTS"):
        expected.write_text("\n".join(lines) + "\n")
    assert lines == expected.read_text().splitlines()


def test_a_torn_store_is_wide_only_where_one_instruction_made_it(faultline: Faultline, tmp_path: Path) -> None:
    texts = {}
    for name in ("clean", "torn"):
        imported(faultline, HERE / f"{name}.log", tmp_path / name)
        stores = [line for line in events_of(faultline, tmp_path / name) if re.search(r"pbit_set_slot|_mm_store", line)]
        texts[name] = {re.sub(r".*, (\d+ bytes) = .*", r"\1", line) for line in stores}
    assert texts == {"clean": {"8 bytes"}, "torn": {"16 bytes"}}


@pytest.mark.parametrize(
    ("name", "rule", "where"),
    [
        ("clean", None, ""),
        ("missing-fence", "FL008", "pbit_allocate (pbit.h:"),
        ("torn", "FL011", "torn (only bytes 0 to 7 persisted)"),
    ],
)
@pytest.mark.slow
def test_a_log_with_a_base_is_explored_and_its_bug_is_found(
    faultline: Faultline, tmp_path: Path, base: Path, workload: Path, name: str, rule: str | None, where: str
) -> None:
    trace = tmp_path / "trace"
    imported(faultline, HERE / f"{name}.log", trace, "--base", base)
    run = faultline("run", PBIT, "-w", workload, "--trace", trace, "--no-explain")
    assert run.returncode == (1 if rule else 0), run.stdout + run.stderr
    assert "complete=1/1" in run.stdout, run.stdout
    if rule:
        assert f"{rule} pbit" in run.stdout, run.stdout
        assert where in run.stdout, run.stdout
        token = re.search(r"replay: faultline replay (fl1\.\S+)", run.stdout)
        assert token, run.stdout
        replayed = faultline("replay", token.group(1))
        assert replayed.returncode == 1, replayed.stdout + replayed.stderr
        assert rule in replayed.stdout


def test_what_operations_alone_tell_is_named_as_not_judged(
    faultline: Faultline, tmp_path: Path, base: Path, workload: Path
) -> None:
    trace = tmp_path / "trace"
    imported(faultline, HERE / "clean.log", trace, "--base", base)
    run = faultline("run", PBIT, "-w", workload, "--trace", trace, "--json")
    [cell] = json.loads(run.stdout)["cells"]
    why = {entry["rule"]: entry["why"] for entry in cell["certificate"]["rules_not_judged"]}
    assert {rule for rule, text in why.items() if "does not say what the program did" in text} >= {
        "FL004",
        "FL005",
        "FL009",
        "FL010",
    }
    assert "FL008" in cell["certificate"]["rules_judged"]


def test_without_a_base_nothing_is_explored(faultline: Faultline, tmp_path: Path, workload: Path) -> None:
    trace = tmp_path / "trace"
    imported(faultline, HERE / "clean.log", trace)
    run = faultline("run", PBIT, "-w", workload, "--trace", trace)
    assert run.returncode == 2, run.stdout + run.stderr
    assert "does not say what its files held" in run.stderr
    assert "--base" in run.stderr


def test_the_trace_rules_judge_a_log(faultline: Faultline, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text((HERE / "clean.log").read_text().replace("|FLUSH;0x483c0c0;0x40", "", 1))
    facts = imported(faultline, log, tmp_path / "trace")
    lost = [warning for warning in facts["warnings"] if warning["concern"] == "loss"]
    assert {warning["rule"] for warning in lost} == {"FL101"}
    assert {warning["site"]["function"] for warning in lost} == {"pbit_set_slot"}


# ---- our traces as logs ---------------------------------------------------------------------------------------------------


@pytest.fixture
def traced(faultline: Faultline, tmp_path: Path) -> tuple[Path, Path]:
    """A trace of pbit with operations, and its workload."""
    workload, trace = tmp_path / "some.workload", tmp_path / "own.trace"
    workload.write_text(SOME)
    run = faultline("trace", PBIT, "-w", workload, "--out", trace)
    assert run.returncode == 0, run.stderr
    return trace, workload


def exported(faultline: Faultline, trace: Path, log: Path) -> dict[str, Any]:
    run = faultline("export", trace, "--out", log, "--folder", "/pm", "--json")
    assert run.returncode == 0, run.stderr
    facts: dict[str, Any] = json.loads(run.stdout)["exported"]
    return facts


def carried(events: list[str]) -> list[str]:
    """Of events, what a log can carry: no file operations, no kinds of fences and flushes."""
    kept = [event for event in events if not re.match(r"(create|truncate|case|msync|fsync)\b.*heap", event)]
    return [re.sub(r"  +", " ", event) for event in kept]


def test_pmreorder_reads_what_we_write(faultline: Faultline, tmp_path: Path, traced: tuple[Path, Path]) -> None:
    facts = exported(faultline, traced[0], tmp_path / "log")
    read = pmreorder_rules.read((tmp_path / "log").read_text())
    [(name, address, size, offset)] = read.files
    assert (name, offset) == ("/pm/case-0/heap", 0)
    assert facts["files"] == [{"path": name, "bytes": size}]
    assert size >= FILE_BYTES
    assert all(address <= at and at + bytes_ <= address + size for at, _, bytes_ in read.stores)
    assert all(at % 64 == 0 and bytes_ == 64 for at, bytes_ in read.flushes)
    assert [marker for marker in read.markers if "allocate.BEGIN" in marker] == [
        "faultline_allocate.BEGIN",
        "faultline_allocate.BEGIN",
        "faultline_allocate.BEGIN",
        "faultline_reallocate.BEGIN",
    ]
    assert any("pbit_allocate" in frame for stack in read.stacks for frame in stack)
    heap = bytearray(size)
    for at, value, bytes_ in read.stores:
        heap[at - address : at - address + bytes_] = value
    assert int.from_bytes(heap[:8], "little") == 0x5042495431


def test_a_trace_comes_back_from_a_log_with_all_that_a_log_carries(
    faultline: Faultline, tmp_path: Path, traced: tuple[Path, Path]
) -> None:
    log, again = tmp_path / "log", tmp_path / "again"
    exported(faultline, traced[0], log)
    facts = imported(faultline, log, again)
    assert facts["imported"]["has_operations"]
    log_again = tmp_path / "log again"
    exported(faultline, again, log_again)
    texts = [path.read_text() for path in (log, log_again)]
    # A file is as large as it is told: where nothing resizes it, as what is stored in it.
    plain = [re.sub(r";0x[0-9a-f]+: [^|]*|(?<=heap;0x100000000000);0x[0-9a-f]+", "", text) for text in texts]
    assert plain[0] == plain[1]
    operations = [
        [line for line in events_of(faultline, trace) if line.startswith(("operation", "begin", "return"))]
        for trace in (traced[0], again)
    ]
    assert operations[0] == operations[1]
    assert operations[0]


@pytest.mark.slow
def test_an_imported_trace_with_operations_is_judged_by_all_rules(
    faultline: Faultline, tmp_path: Path, traced: tuple[Path, Path]
) -> None:
    log, again, empty = tmp_path / "log", tmp_path / "again", tmp_path / "empty"
    exported(faultline, traced[0], log)
    empty.write_bytes(bytes(FILE_BYTES))
    imported(faultline, log, again, "--base", empty)
    options = ("--trace", again, "--json")
    run = faultline("run", PBIT, "-w", traced[1], *options)
    assert run.returncode == 0, run.stdout + run.stderr
    [cell] = json.loads(run.stdout)["cells"]
    assert {"FL004", "FL005", "FL010", "FL012"} <= set(cell["certificate"]["rules_judged"])
    other = tmp_path / "other.workload"
    other.write_text(SOME + "free 5\n")
    run = faultline("run", PBIT, "-w", other, *options[:2])
    assert run.returncode == 2, run.stdout + run.stderr
    assert re.search(r"the trace has 7 operations, and workload \S+ has 8", run.stderr), run.stderr


# ---- bad input ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda text: text[:-5], ("cut", "STOP", "take it again")),
        (
            lambda text: "==1== pmemcheck-1.0, a simple persistent store checker\n" + text,
            ("without -q", "take it again"),
        ),
        (lambda text: text.replace("|FENCE", "|COMMIT", 1), ("record 1", "COMMIT", "another version")),
        (lambda text: text.replace("0x8;", "0x9;", 1), ("record", "1 to 8 bytes")),
        (lambda text: "", ("not a store log of pmemcheck", "START")),
    ],
)
def test_a_bad_log_is_refused_in_one_line(
    faultline: Faultline, tmp_path: Path, change: Any, words: tuple[str, ...]
) -> None:
    log = tmp_path / "log"
    log.write_text(change((HERE / "clean.log").read_text()))
    assert_one_clear_line(faultline("import", log, "--out", tmp_path / "trace"), 2, str(log), *words)
    assert not (tmp_path / "trace").exists()


def test_other_bad_input_is_refused_in_one_line(faultline: Faultline, tmp_path: Path, base: Path) -> None:
    log, trace = HERE / "clean.log", tmp_path / "trace"
    assert_one_clear_line(faultline("import", tmp_path / "none", "--out", trace), 2, "none", "cannot be read")
    assert_one_clear_line(faultline("import", log, "--out", tmp_path / "no" / "t"), 2, "cannot be written")
    assert_one_clear_line(faultline("import", log, "--out", trace, "--base", tmp_path), 2, "heap", "--base")
    assert_one_clear_line(faultline("export", base, "--out", tmp_path / "log"), 2, "not a trace")
    os.mkfifo(tmp_path / "pipe")
    for words in (("import", tmp_path / "pipe", "--out", trace), ("import", log, "--out", tmp_path / "pipe")):
        assert_one_clear_line(faultline(*words), 2, "pipe", "no regular file")
    imported(faultline, log, trace)
    assert_one_clear_line(faultline("export", trace, "--out", tmp_path / "l", "--folder", "a|b"), 2, "a|b", "--folder")


def test_stores_that_the_log_lacks_are_unknown_and_never_passed_over(faultline: Faultline, tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text(
        (HERE / "clean.log")
        .read_text()
        .replace("REGISTER_FILE;/pm/heap;0x483c000;0x9000", "REGISTER_FILE;/pm/heap;0x483c000;0x1000")
    )
    run = faultline("import", log, "--out", tmp_path / "trace")
    assert run.returncode == 3, run.stdout + run.stderr
    assert "stores lie in no registered file" in run.stdout


# ---- the real one ---------------------------------------------------------------------------------------------------------


@pytest.mark.skipif(PMEMCHECK is None, reason=NO_PMEMCHECK)
@pytest.mark.parametrize(("name", "mutant"), [("clean", None), ("torn", "TORN"), ("missing-fence", "MISSING_FENCE")])
def test_pmemcheck_still_writes_these_logs(
    faultline: Faultline, tmp_path: Path, root: Path, name: str, mutant: str | None
) -> None:
    assert PMEMCHECK is not None
    include = Path(PMEMCHECK).parents[1] / "include" / "valgrind"
    client, heap, log = tmp_path / "client", tmp_path / "heap", tmp_path / "log"
    define = [f"-DMUTANT_{mutant}"] if mutant else []
    compiler = ["gcc", "-g", "-O1", *define, f"-I{root / 'include'}", f"-I{include}"]
    subprocess.run([*compiler, str(HERE / "client.c"), "-o", str(client)], check=True)
    subprocess.run([str(client), "init", str(heap)], check=True)
    options = ["-q", "--log-stores=yes", "--print-summary=no", "--expect-fence-after-clflush=yes"]
    places = ["--log-stores-stacktraces=yes", "--log-stores-stacktraces-depth=2", "--read-inline-info=yes"]
    command = [PMEMCHECK, "--tool=pmemcheck", *options, *places, f"--log-file={log}", str(client), "run", str(heap)]
    subprocess.run(command, check=True)
    traces = [tmp_path / "golden", tmp_path / "real"]
    for source, trace in zip((HERE / f"{name}.log", log), traces, strict=True):
        imported(faultline, source, trace)
    golden, real = (events_of(faultline, trace, is_placed=False) for trace in traces)
    at = next(number for number, event in enumerate(golden) if event.startswith("store"))
    assert real[-len(golden[at:]) :] == golden[at:]
