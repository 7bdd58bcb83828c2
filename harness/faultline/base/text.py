# SPDX-License-Identifier: Apache-2.0
"""Words for people."""

from __future__ import annotations

import re

_ESCAPE = re.compile(
    r"""\\(?:["\\/tn]|u000[9a]|(?P<control>[bfr]|u00(?:[01][0-9a-f]|7f|[89][0-9a-f])))""", re.IGNORECASE
)
_RAW_CONTROL = re.compile("[\x7f-\x9f]")


def count(number: int, one: str, many: str | None = None) -> str:
    """1 cell, 2 cells, 1,200 cells."""
    return f"{number:,} {one if number == 1 else many or one + 's'}"


def without_controls(json_text: str) -> str:
    """JSON whose strings hold no control characters but tabs and line ends: in the place of each stands its escape, for people to
    read. What a target prints or names must not drive a terminal, nor break a report."""
    json_text = _RAW_CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", json_text)
    return _ESCAPE.sub(lambda found: f"\\{found[0]}" if found["control"] else found[0], json_text)
