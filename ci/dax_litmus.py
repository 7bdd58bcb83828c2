# SPDX-License-Identifier: Apache-2.0
"""The litmus tests of files (crashgen/litmus) on a real file system: each state that the machine leaves must be one that the model
allows."""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from dax_endings import BEFORE, NEXT, Moment, checked
from dax_machine import Files

from faultline.base.errors import BadInputError
from faultline.pipeline.engine import Engine

LINE_BYTES = 64
UNIT_BYTES = 8
LONGEST_PAUSE_MS = 2500
"""Between two steps, half of the times; longer than journals wait."""
LONGEST_DELAY_S = 2.5
VARIABLES = "../variables"
"""The file that variables lie in, of tests that do not say which: it is there before."""
VARIABLES_BYTES = 4096
WORDS_OF_FILES = ("create", "truncate", "extend", "unlink", "mkdir", "rmdir", "rename")
State = frozenset[str]
"""NAME=VALUE of each variable and each file."""


@dataclass(frozen=True)
class Litmus:
    """As much of a test as the machine needs; the model reads it itself."""

    name: str
    variables: dict[str, int]
    """Byte offsets."""
    lies_in: str
    is_synced: bool
    steps: tuple[str, ...]
    allowed: tuple[frozenset[State], ...]
    """By the model, by the steps that have ended."""

    @property
    def names(self) -> list[str]:
        """Files and folders whose states it has."""
        words = [step.split() for step in self.steps]
        named = [path for kind, *paths in words if kind in WORDS_OF_FILES for path in paths if not path.isdigit()]
        return list(dict.fromkeys(named))

    def script(self, pauses_ms: Sequence[int]) -> str:
        """What ci/dax/steps.c executes. pauses_ms: in front of each step."""
        lines = [f"variables {self.lies_in} {'synced' if self.is_synced else 'plain'}"]
        for pause, step in zip(pauses_ms, self.steps, strict=True):
            words = [str(self.variables.get(word, word)) for word in step.split()]
            lines += [f"pause {pause}"] if pause else []
            lines.append(" ".join(words))
        return "\n".join(lines) + "\n"

    def questions(self) -> str:
        asked = [f"variable {name} {self.lies_in} {offset}" for name, offset in self.variables.items()]
        return "\n".join([*asked, *(f"name {name}" for name in self.names)]) + "\n"


def read_litmus(path: Path, engine: Engine) -> Litmus | None:
    """None: it is not about what file systems lose."""
    text = re.sub(r"#.*", "", path.read_text(encoding="utf-8"))
    lines = [
        (key.strip(), value.strip()) for key, _, value in (line.partition(":") for line in text.splitlines()) if value
    ]
    keys = dict(lines)
    if keys.get("fs") != "posix":
        return None
    place = next(key for key in keys if key.split()[0] == "lines")
    lies_in = place.removeprefix("lines").removeprefix(" of ").strip()
    groups = [group.split() for group in keys[place].split("|")]
    variables = {
        name: LINE_BYTES * line + UNIT_BYTES * unit
        for line, names in enumerate(groups)
        for unit, name in enumerate(names)
    }
    threads = {key for key, _ in lines if re.fullmatch(r"T\d+", key)}
    if threads != {"T0"}:
        raise BadInputError(f"{path}: steps of several threads, and the machine executes those of one")
    states = [line.split() for line in engine.ask("litmus", "--by-step", str(path)).splitlines()]
    steps = tuple(value for key, value in lines if key == "T0")
    return Litmus(
        keys["name"],
        variables,
        lies_in or VARIABLES,
        keys.get("unsynced") is None,
        steps,
        tuple(
            frozenset(frozenset(state) for ended, *state in states if int(ended) == step)
            for step in range(len(steps) + 1)
        ),
    )


@dataclass
class LitmusEnding:
    """A test, executed until the machine ends."""

    test: Litmus
    file_system: str
    draw: random.Random
    state: State = frozenset()
    """That was left."""
    least: int = 0
    """Steps that had ended, by the markers that came out."""
    most: int = 0
    """That had begun."""

    @property
    def title(self) -> str:
        return f"{self.file_system} {self.test.name}"

    def run_order(self, files: Files) -> tuple[str, str]:
        draw = self.draw
        pauses = [draw.choice((0, draw.randint(100, LONGEST_PAUSE_MS))) for _ in self.test.steps]
        files.add("steps", self.test.script(pauses))
        first = f"mkdir {NEXT}/t; head -c {VARIABLES_BYTES} /dev/zero > {NEXT}/variables"
        return first, checked(f"steps run {NEXT}/t /dev/ttyS1 </steps")

    def look_order(self, files: Files, _: str) -> str:
        files.add("questions", self.test.questions())
        return checked(f"steps look {BEFORE}/t </questions >/dev/ttyS2")

    def moment(self) -> Moment:
        return Moment.drawn(self.draw, 2 * len(self.test.steps) + 1, LONGEST_DELAY_S)

    def take(self, markers: str, answer: bytes) -> None:
        self.state = frozenset(answer.decode(errors="replace").split())
        words = [line.split() for line in markers.splitlines(keepends=True) if line.endswith("\n")]
        begun = [int(number) for kind, number in (pair for pair in words if len(pair) == 2) if kind == "begin"]
        ended = [int(number) for kind, number in (pair for pair in words if len(pair) == 2) if kind == "return"]
        self.least = max(ended, default=-1) + 1
        self.most = max(begun, default=-1) + 1

    @property
    def is_allowed(self) -> bool:
        """Where the machine was when it ended."""
        return any(self.state in states for states in self.test.allowed[self.least : self.most + 1])


@dataclass(frozen=True)
class Compared:
    """Of one test on one file system. Each state as text, and how often it came."""

    file_system: str
    test: str
    endings: int
    seen: dict[str, int]
    forbidden: list[str]
    """That came, and that the model does not allow there: after so many steps that had ended, of those that had begun."""
    never_came: list[str]
    """That the model allows."""


def compare(test: Litmus, file_system: str, endings: Sequence[LitmusEnding]) -> Compared:
    """endings: all of the test on that file system."""
    order = {name: at for at, name in enumerate([*test.variables, *test.names])}

    def text(state: State) -> str:
        return " ".join(sorted(state, key=lambda word: order.get(word.partition("=")[0], len(order))))

    seen = Counter(ending.state for ending in endings)
    allowed = frozenset().union(*test.allowed)
    forbidden = [ending for ending in endings if not ending.is_allowed]
    return Compared(
        file_system,
        test.name,
        len(endings),
        {text(state): count for state, count in sorted(seen.items(), key=lambda item: (-item[1], text(item[0])))},
        sorted({f"{text(ending.state)} after {ending.least} of {ending.most} steps" for ending in forbidden}),
        sorted(text(state) for state in allowed if state not in seen),
    )
