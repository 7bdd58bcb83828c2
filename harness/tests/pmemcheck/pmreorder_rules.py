# SPDX-License-Identifier: Apache-2.0
"""What pmreorder asks of a log, after its sources (operationfactory.py, memoryoperations.py, opscontext.py): a second reader, so
that what we write is not judged by our own reader alone."""

from __future__ import annotations

from dataclasses import dataclass, field

ENDS = (".BEGIN", ".END")


@dataclass
class Operations:
    """What it makes of a log. stores: address, value, size; flushes: address, size; files: name, address, size, offset."""

    stores: list[tuple[int, bytes, int]] = field(default_factory=list)
    flushes: list[tuple[int, int]] = field(default_factory=list)
    files: list[tuple[str, int, int, int]] = field(default_factory=list)
    fences: int = 0
    markers: list[str] = field(default_factory=list)
    stacks: list[list[str]] = field(default_factory=list)


def read(text: str) -> Operations:
    """Raises ValueError where pmreorder ends with an exception."""
    records = text.split("|")
    start = max((at for at, record in enumerate(records) if "START" in record), default=0)
    stop = max((at for at, record in enumerate(records) if "STOP" in record), default=0)
    found = Operations()
    open_markers: list[str] = []
    for record in records[start + 1 : stop]:
        _add(found, record.split(";"), open_markers)
    return found


def _add(found: Operations, fields: list[str], open_markers: list[str]) -> None:
    match fields:
        case ["STORE", address, value, size, *stack]:
            found.stores.append((int(address, 16), _value(value, size), int(size, 16)))
            found.stacks.append(stack)
        case ["FLUSH", address, size, *_]:
            found.flushes.append((int(address, 16), int(size, 16)))
        case ["FENCE", *_]:
            found.fences += 1
        case ["REGISTER_FILE", name, address, size, offset, *_]:
            found.files.append((name, int(address, 16), int(size, 16), int(offset, 16)))
        case [name, *_]:
            _mark(found, name, open_markers)


def _value(value: str, size: str) -> bytes:
    try:
        return int(value, 16).to_bytes(int(size, 16), byteorder="little")
    except OverflowError as error:
        raise ValueError(f"{value} does not fit {size} bytes") from error


def _mark(found: Operations, name: str, open_markers: list[str]) -> None:
    """A marker that nobody configured takes the engine of the one around it; markers must not cross."""
    if not name.endswith(ENDS):
        raise ValueError(f"{name}: no operation, and no marker")
    if name.endswith(".BEGIN"):
        open_markers.append(name)
    elif not open_markers or open_markers.pop().removesuffix(".BEGIN") != name.removesuffix(".END"):
        raise ValueError(f"{name} ends what is not the last to begin")
    found.markers.append(name)
