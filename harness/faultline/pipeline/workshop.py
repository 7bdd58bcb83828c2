# SPDX-License-Identifier: Apache-2.0
"""What every step of a campaign works with."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from faultline.base.cache import Cache
from faultline.pipeline.engine import Engine
from faultline.pipeline.tracers import DEFAULT_TRACER
from faultline.pipeline.tracers.tracer import Tracer


@dataclass(frozen=True)
class Workshop:
    root: Path
    cache: Cache
    engine: Engine
    heap_folder: Path | None = None
    """Where heaps lie while they are traced and explored."""
    explore_jobs: int = 1
    """Workers over the crash positions of one trace; what they find does not depend on how many there are."""
    tracer: Tracer = DEFAULT_TRACER
