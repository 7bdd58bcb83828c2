# SPDX-License-Identifier: Apache-2.0
"""A cache that another version of faultline wrote: each part of it is made again, or refused in one line, and nothing in it is
taken for a result."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import msgspec
import pytest

import samples
from caches import cache_that_shares_builds
from command_line import Faultline, assert_one_clear_line
from faultline.base import cache as cache_module
from faultline.base.cache import LAYOUT, LAYOUT_FILE, SUMS, Cache
from faultline.base.config import find_allocator
from faultline.base.errors import BadInputError
from faultline.campaign.results import Results
from faultline.pipeline import trace
from faultline.pipeline.build import Built
from faultline.pipeline.given_trace import TraceFacts, given_trace
from faultline.pipeline.inputs import Inputs
from faultline.pipeline.target import Target
from faultline.pipeline.workshop import Workshop
from faultline.study.bisect import Explored
from faultline.study.kill_rates import KillRate
from faultline.study.mutate import PlaceTrial
from faultline.workload import catalogue
from faultline.workload.generators import smoke

RATE = KillRate("nvm_malloc", ["smoke"], places=36, killed=30, redundant=4, blind=2, unknown=0)


@pytest.mark.parametrize("command", [("run", "nvm_malloc", "-w", "smoke"), ("build", "nvm_malloc"), ("wear", "glibc")])
def test_a_cache_of_a_newer_layout_is_refused_and_left_as_it_is(
    faultline: Faultline, tmp_path: Path, command: tuple[str, ...]
) -> None:
    (tmp_path / LAYOUT_FILE).write_text(f"{LAYOUT + 1}\n")
    run = faultline(*command, "--cache", tmp_path)
    assert_one_clear_line(
        run, 2, f"{tmp_path}: a cache of layout {LAYOUT + 1}", f"reads layout {LAYOUT}", "--cache DIR"
    )
    assert [one.name for one in tmp_path.iterdir()] == [LAYOUT_FILE]


@pytest.mark.parametrize("said", [b"", b"one", b"-1", b"\xff", b"1" * 5000])
def test_a_cache_that_does_not_say_its_layout_is_refused(tmp_path: Path, said: bytes) -> None:
    (tmp_path / LAYOUT_FILE).write_bytes(said)
    with pytest.raises(BadInputError, match=f"{LAYOUT_FILE}: expected the number of a layout"):
        Cache(tmp_path)


def test_a_cache_says_its_layout(tmp_path: Path) -> None:
    """Also one that is older than layouts have numbers."""
    (tmp_path / "builds").mkdir()
    for said in (None, "0\n"):
        if said:
            (tmp_path / LAYOUT_FILE).write_text(said)
        Cache(tmp_path)
        assert (tmp_path / LAYOUT_FILE).read_text() == f"{LAYOUT}\n"
    assert not list(tmp_path.glob("*.tmp"))


# ---- what is kept of results ---------------------------------------------------------------------------------------------

KEPT = [
    RATE,
    Inputs(read=["a.c"], hiding=[]),
    Explored([samples.finding()], samples.certificate()),
    PlaceTrial("smoke", 1, "pass", is_complete=True),
    samples.shrunk(),
]


def bare(text: str) -> str:
    """As it was kept before it said what it is of."""
    return json.dumps(json.loads(text)["kept"])


def of_another_version(text: str) -> str:
    return json.dumps({**json.loads(text), "faultline": "999.0"})


def of_another_shape(text: str) -> str:
    return json.dumps({**json.loads(text), "shape": "0123456789abcdef"})


def half(text: str) -> str:
    return text[: len(text) // 2]


@pytest.mark.parametrize("age", [bare, of_another_version, of_another_shape, half])
@pytest.mark.parametrize("kept", KEPT, ids=lambda one: type(one).__name__)
def test_what_another_version_kept_is_nothing(cache: Cache, kept: msgspec.Struct, age: Callable[[str], str]) -> None:
    cache.keep("mutations", "one", kept)
    assert cache.kept("mutations", "one", type(kept)) == kept
    path = cache.folder / "mutations" / "one"
    path.write_text(age(path.read_text()))
    assert cache.kept("mutations", "one", type(kept)) is None
    path.write_bytes(b'{"faultline": "\xff"}')
    assert cache.kept("mutations", "one", type(kept)) is None


def test_the_shape_is_that_of_all_that_is_inside(cache: Cache) -> None:
    """A new key with a default would else be read out of what never said it."""

    inner = msgspec.defstruct("Inner", [("one", int)])
    outer = msgspec.defstruct("Outer", [("inner", inner)])
    cache.keep("mutations", "one", outer(inner(1)))
    inner = msgspec.defstruct("Inner", [("one", int), ("is_new", bool, False)])
    outer = msgspec.defstruct("Outer", [("inner", inner)])
    assert cache.kept("mutations", "one", outer) is None


# ---- folders and files ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("sums", [None, "", "layout 0\n"])
@pytest.mark.parametrize("part", ["builds", "wear"])
def test_a_folder_of_another_layout_is_made_again(
    cache: Cache, part: str, sums: str | None, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """sums: the head of those that it has; None: it has none."""

    def make(folder: Path) -> None:
        (folder / "made").write_text("now")

    entry = cache.folder_entry(part, "key", make)
    told = (entry / SUMS).read_text().partition("\n")[2]
    (entry / SUMS).unlink()
    if sums is not None:
        (entry / SUMS).write_text(sums + told)
    for keeps in (lambda: cache.folder_entry(part, "key", make), lambda: kept_anew(cache, part, make)):
        (entry / "made").write_text("then")
        monkeypatch.setattr(cache_module, "_verified", set())  # as in the next process
        assert keeps() == entry
        assert (entry / "made").read_text() == "now"
    said = capsys.readouterr().err.splitlines()[0]
    assert said.endswith(f"{'is damaged' if sums is None else 'was made by another version'}, and is made again]")


def kept_anew(cache: Cache, part: str, make: Callable[[Path], None]) -> Path:
    """As builds are, when nothing says what they read."""
    with cache.new_folder(part) as temporary:
        make(temporary)
        return cache.keep_folder(part, "key", temporary)


def test_the_trace_of_another_layout_is_not_found(monkeypatch: pytest.MonkeyPatch, root: Path) -> None:
    built = Built(Path(), "key")
    target = Target(find_allocator(root, "nvm_malloc"), None, "clwb", adapter=built, runner=built, tracer=built)
    now = trace.trace_key(target, smoke())
    monkeypatch.setattr(trace, "LAYOUT", LAYOUT + 1)
    assert trace.trace_key(target, smoke()) != now


def test_a_trace_that_is_given_is_kept_anew(cache: Cache, tmp_path: Path) -> None:
    """What is kept under its hash may be damaged."""
    path = tmp_path / "mine.trace"
    path.write_text("now")
    facts = TraceFacts("0123", "valgrind", {"operation begin": smoke().operation_count}, has_unknown_operations=False)
    engine = SimpleNamespace(ask_json=lambda *_: facts)
    workshop = cast(Workshop, SimpleNamespace(cache=cache, engine=engine))
    (cache.folder / "imported" / "0123.trace").write_text("then")
    assert given_trace(workshop, smoke(), path).path.read_text() == "now"


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("workload 2\nslots 1\ncase\n", "expected `workload 1`"),
        ("workload 1\nslots 1\ncase\nevaporate 0\n", "evaporate"),
        ("workload 1\nslots 1\ncase\nallocate 0 8\n", "another version of faultline wrote it"),
        ("workload 1\n\udcff", "is not UTF-8"),
    ],
)
def test_a_workload_of_another_version_is_refused(cache: Cache, root: Path, text: str, words: str) -> None:
    """Tokens name it by its key: what it holds is what was asked for, or nothing is run."""
    path = cache.folder / "workloads" / "0123456789abcdef"
    path.write_bytes(text.encode(errors="surrogateescape"))
    heap = find_allocator(root, "nvm_malloc").heap
    with pytest.raises(BadInputError, match=words) as refused:
        catalogue.find(f"file:{path.name}", 0, 0, heap, cache)
    assert str(path) in refused.value.message


def test_an_environment_of_another_shape_is_refused(tmp_path: Path) -> None:
    results = Results(tmp_path / "results.sqlite")
    results.begin("run", "key", [samples.spec()], samples.ENVIRONMENT)
    results.close()
    with sqlite3.connect(tmp_path / "results.sqlite") as connection:
        connection.execute("update campaign set environment = '[1]'")
    with pytest.raises(BadInputError, match="results of another faultline: "):
        Results(tmp_path / "results.sqlite").environment()


# ---- the whole cache -----------------------------------------------------------------------------------------------------


MADE = ("adapter.so", "runner")


@pytest.mark.slow
def test_a_cell_has_the_same_result_in_a_cache_of_another_version(
    faultline: Faultline, root: Path, tmp_path: Path
) -> None:
    """Of which nothing is whole but its names, and the tracer, which takes longest to build."""
    shared = cache_that_shares_builds(root, tmp_path / "cache").folder
    cell = ("run", "nvm_malloc", "-w", "create", "--json", "--cache", shared)
    before = faultline(*cell)
    assert before.returncode == 0, before.stderr
    builds = (shared / "builds").resolve()
    (shared / "builds").unlink()
    (shared / "builds").mkdir()
    for path in builds.iterdir():
        if any((path / name).is_file() for name in MADE):
            age(path, shared / "builds" / path.name)
        else:
            (shared / "builds" / path.name).symlink_to(path)
    for path in builds.glob("*.inputs"):
        (shared / "builds" / path.name).unlink()
        (shared / "builds" / path.name).write_text(bare(path.read_text()))
    for trace_file in (shared / "traces").glob("*.trace"):
        trace_file.rename(trace_file.with_name(f"{'0' * 16}.trace"))
    (shared / LAYOUT_FILE).unlink()
    (shared / "results.sqlite").unlink()
    after = faultline(*cell)
    assert after.returncode == 0, after.stderr
    assert "Traceback" not in after.stderr
    said = [json.loads(one.stdout)["cells"][0] for one in (before, after)]
    for key in ("verdict", "trace_hash", "build", "key", "findings"):
        assert said[0][key] == said[1][key], key


def age(path: Path, to: Path) -> None:
    """With other files, and without a layout."""
    to.mkdir()
    for name in (*MADE, SUMS):
        (to / name).write_text("of another time")
