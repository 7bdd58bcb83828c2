# SPDX-License-Identifier: Apache-2.0
"""The heap of accesses.c."""

from __future__ import annotations

from collections.abc import Callable

from loads.server import Server

HEAP_BYTES = 65536
UNITS = HEAP_BYTES // 8
BASE = 512
"""Unit of byte 4096, which the accesses are relative to."""
GEOMETRY = ("--heap-bytes", str(HEAP_BYTES), "--limit-bytes", str(HEAP_BYTES), "--slots", "1", "--address-hint", "0")
Started = Callable[..., Server]
"""(access, is_hooked, heap): a server with that target and heap; all units are hot."""
