# SPDX-License-Identifier: Apache-2.0
"""stdout and stderr: consoles, notes, errors."""

from __future__ import annotations

from typing import TextIO

from rich.console import Console
from rich.text import Text

from faultline.base.errors import FaultlineError

COLOURS = {"good": "green", "bad": "bold red", "open": "yellow"}
PLAIN_WIDTH = 160
"""Of tables that go to a file or a pipe: wide enough that no column is folded."""


def out() -> Console:
    console = Console(highlight=False, soft_wrap=False)
    if not console.is_terminal:
        console.width = PLAIN_WIDTH
    return console


def to_text(file: TextIO) -> Console:
    """What out() prints where it is no terminal, for a text that goes elsewhere."""
    return Console(file=file, highlight=False, soft_wrap=False, color_system=None, width=PLAIN_WIDTH)


def err() -> Console:
    return Console(stderr=True, highlight=False)


def print_error(error: FaultlineError) -> None:
    console = err()
    print_line(console, "error: ", "bold red", error.message)
    if error.hint:
        print_line(console, "hint: ", "bold cyan", error.hint)


def print_line(console: Console, head: str, style: str, text: str) -> None:
    console.print(Text.assemble((head, style), text.replace("\n", " ")), soft_wrap=True)


def note(text: str) -> None:
    err().print(Text(text), soft_wrap=True)
