# SPDX-License-Identifier: Apache-2.0
"""Words for people."""

from __future__ import annotations


def count(number: int, one: str, many: str | None = None) -> str:
    """1 cell, 2 cells, 1,200 cells."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"
