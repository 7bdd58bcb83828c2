# SPDX-License-Identifier: Apache-2.0
"""The kinds of operations are listed once for C, once for Rust and once for Python, by the numbers of the trace; they agree."""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest

from faultline.workload.operations import (
    EMPTYING,
    FILLING,
    GRAPH_OPERATIONS,
    SLOT_OPERATIONS,
    THREAD_OPERATIONS,
    TRANSACTION_BOUNDS,
    WITH_OTHER_SLOT,
)

ROOT = Path(__file__).resolve().parents[2]
MOST_OPERANDS = 3
NOT_MADE = {"collect"}
"""In the trace format, and no runner marks them."""


class OperationOfC(ctypes.Structure):
    """struct operation of workload/operations.h."""

    _fields_ = (
        ("kind", ctypes.c_int),
        ("word", ctypes.c_char_p),
        ("operands", ctypes.c_int * MOST_OPERANDS),
        ("fills_slot", ctypes.c_bool),
        ("empties_slot", ctypes.c_bool),
        ("makes_object", ctypes.c_bool),
        ("may_lack_room", ctypes.c_bool),
        ("is_of_graph", ctypes.c_bool),
        ("is_of_threads", ctypes.c_bool),
        ("bounds_transaction", ctypes.c_bool),
    )


@dataclass
class Operation:
    number: int
    operands: str
    facts: OperationOfC


@pytest.fixture(scope="session")
def runners(alone: Callable[[str, str], ctypes.CDLL]) -> dict[str, Operation]:
    """By word."""
    library = alone("workload/operations.c", "")
    count = ctypes.c_size_t.in_dll(library, "OPERATION_COUNT").value
    library.operand_name.restype = ctypes.c_char_p
    table = (OperationOfC * count).in_dll(library, "OPERATIONS")
    found = {}
    for row in table:
        operands = " ".join(library.operand_name(operand).decode() for operand in row.operands if operand)
        found[row.word.decode()] = Operation(row.kind, operands, row)
    return found


def in_trace() -> dict[str, int]:
    text = (ROOT / "pintools/trace.h").read_text()
    body = re.search(r"enum fl_operation \{(.*?)\}", text, re.DOTALL)
    assert body
    names = re.findall(r"\bFL_OP_(\w+)", re.sub(r"/\*.*?\*/", "", body[1], flags=re.DOTALL))
    return {name.lower(): number for number, name in enumerate(names, 1)}


def test_the_runner_has_each_operation_of_the_trace(runners: dict[str, Operation]) -> None:
    numbers = {word: number for word, number in in_trace().items() if word not in NOT_MADE}
    assert {word: operation.number for word, operation in runners.items()} == numbers


def test_the_harness_has_the_runners_operations(runners: dict[str, Operation]) -> None:
    on_slots = {word: operation for word, operation in runners.items() if operation.operands}
    assert {word: operation.operands for word, operation in on_slots.items()} == SLOT_OPERATIONS

    def those(fact: str) -> set[str]:
        return {word for word, operation in on_slots.items() if getattr(operation.facts, fact)}

    bounds = {word for word, operation in runners.items() if operation.facts.bounds_transaction}
    assert bounds == set(TRANSACTION_BOUNDS)
    assert those("fills_slot") == FILLING
    assert those("empties_slot") == EMPTYING
    assert those("is_of_threads") == set(THREAD_OPERATIONS)
    assert those("is_of_graph") == set(GRAPH_OPERATIONS)
    assert set(GRAPH_OPERATIONS) >= WITH_OTHER_SLOT


def test_the_engine_has_the_runners_operations(runners: dict[str, Operation]) -> None:
    text = (ROOT / "crashgen/operations/src/lib.rs").read_text()
    rows = re.findall(r"\(OperationKind::\w+, (\d+), \"(\w+)\", About::(\w+)\)", text)
    of_runner = {word: operation for word, operation in runners.items() if word != "case"}
    assert {word: int(number) for number, word, _ in rows} == {
        word: operation.number for word, operation in of_runner.items()
    }
    about = {word: what for _, word, what in rows}
    for word, operation in of_runner.items():
        expected = "Slot" if operation.operands else "Heap"
        if "FIELD" in operation.operands:
            expected = "FieldAndSlot" if word in WITH_OTHER_SLOT else "Field"
        if "START" in operation.operands:
            expected = "Part"
        assert about[word] == ("NewObject" if operation.facts.makes_object else expected), word
