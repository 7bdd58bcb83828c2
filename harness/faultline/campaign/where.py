# SPDX-License-Identifier: Apache-2.0
"""Which cluster is to run cells."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Where:
    """address: of its scheduler; empty: so many worker processes on this machine."""

    address: str = ""
    workers: int = 0

    @property
    def name(self) -> str:
        return self.address or f"local:{self.workers}"
