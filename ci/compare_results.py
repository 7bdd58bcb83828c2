# SPDX-License-Identifier: Apache-2.0
"""Compares the results.json of two matrices cell by cell: whether a change of the code changed what explorations find.

    python ci/compare_results.py BEFORE.json AFTER.json [--leave-out FACT ...]

One line on stdout for each fact that differs, and for each cell that only one of them has. Exit code 0 if nothing differs, 1 if
something does, 2 on bad input."""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

EXIT_EQUAL, EXIT_DIFFERENT, EXIT_BAD_INPUT = 0, 1, 2
STATES_DIGITS = 6
"""Of the logarithm of the number of states: sums of logarithms may differ in the last digits."""
IDENTITY = (
    *("allocator", "workload", "ops", "seed", "mutant", "flush", "model", "strategy", "nested", "follow_up"),
    *("exhaustive_states", "samples", "stop_at_rule"),
)
"""Of a cell's spec: what makes it the same cell in both files."""

Cell = dict[str, Any]


class BadInputError(Exception):
    """One line and what to do."""

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def certified(cell: Cell, name: str) -> Any:
    """A figure of the certificate; None where there is none."""
    return (cell["certificate"] or {}).get(name)


def states_of(cell: Cell) -> Any:
    digits = certified(cell, "states_log10")
    return None if digits is None else f"10^{round(digits, STATES_DIGITS)}"


FACTS: dict[str, Callable[[Cell], Any]] = {
    "verdict": lambda cell: cell["verdict"],
    "error": lambda cell: cell["error"],
    "complete": lambda cell: certified(cell, "complete"),
    "rules": lambda cell: sorted(finding["rule"] for finding in cell["findings"]),
    "ids": lambda cell: sorted(finding["id"] for finding in cell["findings"]),
    "positions": lambda cell: certified(cell, "crash_positions"),
    "later-positions": lambda cell: certified(cell, "later_positions"),
    "states": states_of,
    "recoveries": lambda cell: certified(cell, "recoveries"),
}


def read_cells(path: Path) -> dict[tuple[Any, ...], Cell]:
    """By identity; equal cells of one file are told apart by their order."""
    hint = "name the results.json that `faultline matrix --out DIR` wrote"
    try:
        document = json.loads(path.read_bytes())
        cells: list[Cell] = document["cells"]
        seen: Counter[tuple[Any, ...]] = Counter()
        found = {}
        for cell in cells:
            identity = tuple(cell["spec"].get(key) for key in IDENTITY)
            found[(*identity, seen[identity])] = cell
            seen[identity] += 1
            str(cell["name"])
            for fact in FACTS.values():
                fact(cell)
    except OSError as error:
        raise BadInputError(f"{path}: cannot be read: {error.strerror}", hint) from error
    except (ValueError, LookupError, TypeError, AttributeError, RecursionError) as error:
        raise BadInputError(f"{path}: is no results.json: {type(error).__name__}: {error}", hint) from error
    if not found:
        raise BadInputError(f"{path}: has no cell", hint)
    return found


def differences(
    before: dict[tuple[Any, ...], Cell], after: dict[tuple[Any, ...], Cell], facts: list[str]
) -> Iterator[str]:
    for identity, old in before.items():
        new = after.get(identity)
        if new is None:
            yield f"{old['name']}: only in the first"
            continue
        for name in facts:
            was, now = FACTS[name](old), FACTS[name](new)
            if was != now:
                yield f"{old['name']}: {name}: {in_words(was)} -> {in_words(now)}"
    for identity, new in after.items():
        if identity not in before:
            yield f"{new['name']}: only in the second"


def in_words(value: Any) -> str:
    if isinstance(value, list):
        return ", ".join(map(str, value)) or "none"
    return "none" if value is None else str(value)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Compare the results of two matrices cell by cell.")
    parser.add_argument("before", type=Path, metavar="BEFORE.json")
    parser.add_argument("after", type=Path, metavar="AFTER.json")
    parser.add_argument(
        "--leave-out", nargs="+", default=[], choices=list(FACTS), metavar="FACT", help=f"of {', '.join(FACTS)}"
    )
    options = parser.parse_args(arguments)
    try:
        before, after = read_cells(options.before), read_cells(options.after)
    except BadInputError as error:
        print(f"error: {error}\nhint: {error.hint}", file=sys.stderr)
        return EXIT_BAD_INPUT
    facts = [name for name in FACTS if name not in options.leave_out]
    lines = list(differences(before, after, facts))
    for line in lines:
        print(line)
    print(f"summary: cells={len(before.keys() & after.keys())} differences={len(lines)} compared={','.join(facts)}")
    return EXIT_DIFFERENT if lines else EXIT_EQUAL


if __name__ == "__main__":
    sys.exit(main())
