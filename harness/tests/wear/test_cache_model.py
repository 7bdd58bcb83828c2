# SPDX-License-Identifier: Apache-2.0
"""The cache model of pintools/wear_cache.h against a slow reference: a list of lines a set, the least recently used first, and a
set of dirty lines."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest

FLUSHED, EVICTED, NON_TEMPORAL, END = range(4)
Command = tuple[str, int]


class Reference:
    """written: the write-backs, as pairs of reason and line; those of `end` in the order of lines."""

    def __init__(self, sets: int, ways: int) -> None:
        self.held: list[list[int]] = [[] for _ in range(sets)]
        self.ways = ways
        self.dirty: set[int] = set()
        self.combining: int | None = None
        self.written: list[tuple[int, int]] = []

    def write_if_dirty(self, reason: int, line: int) -> None:
        if line in self.dirty:
            self.dirty.remove(line)
            self.written.append((reason, line))

    def fence(self) -> None:
        if self.combining is not None:
            self.written.append((NON_TEMPORAL, self.combining))
        self.combining = None

    def touch(self, line: int) -> list[int]:
        if self.combining == line:
            self.fence()
        return self.held[line % len(self.held)]

    def drop(self, line: int) -> None:
        mine = self.held[line % len(self.held)]
        if line in mine:
            mine.remove(line)

    def store(self, line: int) -> None:
        mine = self.touch(line)
        self.drop(line)
        if len(mine) == self.ways:
            self.write_if_dirty(EVICTED, mine.pop(0))
        mine.append(line)
        self.dirty.add(line)

    def past(self, line: int) -> None:
        if self.combining == line:
            return
        self.fence()
        self.write_if_dirty(NON_TEMPORAL, line)
        self.drop(line)
        self.combining = line

    def clwb(self, line: int) -> None:
        self.touch(line)
        self.write_if_dirty(FLUSHED, line)

    def clflush(self, line: int) -> None:
        self.clwb(line)
        self.drop(line)

    def end(self) -> None:
        self.fence()
        for line in sorted(self.dirty):
            self.write_if_dirty(END, line)


def reference(commands: list[Command], sets: int, ways: int) -> list[tuple[int, int]]:
    cache = Reference(sets, ways)
    for command, line in commands:
        if command in ("fence", "end"):
            getattr(cache, command)()
        else:
            getattr(cache, command)(line)
    return cache.written


@pytest.fixture(scope="module")
def model(root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    program = tmp_path_factory.mktemp("model") / "model"
    source = root / "harness" / "tests" / "wear" / "cache_model.c"
    flags = ["-std=c11", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fsanitize=address,undefined"]
    subprocess.run(["gcc", *flags, "-I", str(root / "pintools"), "-o", str(program), str(source)], check=True)
    return program


def run(model: Path, commands: list[Command], sets: int, ways: int) -> list[tuple[int, int]]:
    text = "".join(
        f"{command}\n" if command in ("fence", "end") else f"{command} {line}\n" for command, line in commands
    )
    said = subprocess.run([str(model), str(sets), str(ways)], input=text, capture_output=True, text=True, check=True)
    written = [(int(reason), int(line)) for reason, line in (row.split() for row in said.stdout.splitlines())]
    before_end = [pair for pair in written if pair[0] != END]
    return before_end + sorted(pair for pair in written if pair[0] == END)


def drawn(seed: int, lines: int) -> list[Command]:
    chance = random.Random(seed)
    names = ["store"] * 6 + ["past"] * 2 + ["clwb", "clflush", "fence"]
    commands: list[Command] = [(chance.choice(names), chance.randrange(lines)) for _ in range(2000)]
    return [*commands, ("end", 0)]


@pytest.mark.parametrize(("sets", "ways"), [(1, 1), (1, 2), (1, 5), (4, 1), (3, 4), (16, 16)])
def test_the_model_writes_back_what_the_reference_does(model: Path, sets: int, ways: int) -> None:
    for seed in range(6):
        lines = max(2, sets * ways * (seed + 1) // 2)
        commands = drawn(seed, lines)
        found = run(model, commands, sets, ways)
        assert found == reference(commands, sets, ways)
        reasons = {reason for reason, _ in found}
        assert {FLUSHED, NON_TEMPORAL} <= reasons
    assert EVICTED in reasons, "the last seed has more lines than fit"


def test_each_line_is_written_back_at_least_once_and_at_most_once_a_store(model: Path) -> None:
    commands = drawn(11, 40)
    written = [line for _, line in run(model, commands, 2, 4)]
    stored = [line for command, line in commands if command in ("store", "past")]
    assert set(written) == set(stored)
    for line in set(stored):
        assert written.count(line) <= stored.count(line)


def test_keys_of_files_do_not_meet(model: Path) -> None:
    """Line 0 of file 1 and of file 2 fall into one set, and are two lines."""
    one, other = 1 << 44, 2 << 44
    commands: list[Command] = [("store", one), ("store", other), ("clwb", one), ("end", 0)]
    assert run(model, commands, 4, 2) == [(FLUSHED, one), (END, other)]
