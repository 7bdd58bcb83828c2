# SPDX-License-Identifier: Apache-2.0
"""Files that an allocator made outside of its heap folder, remembered from run to run: one that is still there answers a recovery
that asks for it, and no crash image holds the answer."""

from __future__ import annotations

import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from faultline.base.cache import Cache

FOLDER = "outside"
CHANGES = re.compile(r"it changes (/.*), which is no file of the heap")
"""As runner and tracer say it."""


def left_by(cache: Cache, allocator: str) -> list[str]:
    """Those that are there now."""
    return [name for name in sorted(_remembered(cache, allocator)) if Path(name).is_file()]


def remember(cache: Cache, allocator: str, reasons: Iterable[Any]) -> None:
    """reasons: of a certificate, why something is unknown."""
    found = {match[1] for reason in reasons if (match := CHANGES.search(str(reason)))}
    known = _remembered(cache, allocator)
    if not found <= known:
        text = "\0".join(sorted(known | found))
        cache.file_entry(FOLDER, allocator, lambda path: _write(path, text), fresh=True)


def _write(path: Path, text: str) -> None:
    path.write_text(text, errors="surrogateescape")


def _remembered(cache: Cache, allocator: str) -> set[str]:
    try:
        text = (cache.folder / FOLDER / allocator).read_text(errors="surrogateescape")
    except FileNotFoundError:
        return set()
    return set(text.split("\0"))
