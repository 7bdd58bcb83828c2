# SPDX-License-Identifier: Apache-2.0
"""What explorations can show, as the engine writes it (crashgen/engine/src/explore/outcomes.rs)."""

from __future__ import annotations

from pathlib import Path

PAIR_BYTES = 16


def outcomes(path: Path) -> set[bytes]:
    content = path.read_bytes()
    return {content[at : at + PAIR_BYTES] for at in range(0, len(content), PAIR_BYTES)}
