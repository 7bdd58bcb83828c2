# SPDX-License-Identifier: Apache-2.0
"""The tracers. One more is a module with its class, and an entry here."""

from __future__ import annotations

from faultline.base.errors import BadInputError
from faultline.pipeline.tracers.pin import Pin
from faultline.pipeline.tracers.tracer import Tracer
from faultline.pipeline.tracers.valgrind import Valgrind

TRACERS: dict[str, Tracer] = {tracer.name: tracer for tracer in (Valgrind(), Pin())}
"""By name; the first one is the default."""
DEFAULT_TRACER = next(iter(TRACERS.values()))


def find_tracer(name: str) -> Tracer:
    if name not in TRACERS:
        raise BadInputError(f"unknown tracer {name!r}", f"tracers are: {', '.join(TRACERS)}")
    return TRACERS[name]
