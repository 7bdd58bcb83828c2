# SPDX-License-Identifier: Apache-2.0
"""Traces that a user gives in the place of one that is taken: imported from another tool's log, or kept from an earlier run."""

from __future__ import annotations

import shutil
from pathlib import Path

import msgspec

from faultline.base.cache import Cache
from faultline.base.errors import BadInputError
from faultline.base.input_files import check_regular
from faultline.pipeline.trace import Trace
from faultline.pipeline.workshop import Workshop
from faultline.workload import catalogue
from faultline.workload.operations import Workload

IMPORTED = "pmemcheck"
"""The tracer of a trace that was made of a log (crashgen/src/pmemcheck)."""
CHANGES_OF_FILES = "file operation begin"
"""As trace-info counts them: a base is what files are created with."""


class TraceFacts(msgspec.Struct):
    """What `faultline-engine trace-info` says of a trace, as far as it is asked here. counts: of events, by kind."""

    hash: str
    tracer: str
    counts: dict[str, int]
    has_unknown_operations: bool


def given_trace(workshop: Workshop, workload: Workload, path: Path) -> Trace:
    """The trace in that file, which must be of the workload. It is kept in the cache, where tokens find it by its hash.

    Raises BadInputError: no trace, one whose files are not known, or one of other operations."""
    check_regular(path)
    facts = workshop.engine.ask_json(TraceFacts, "trace-info", str(path), "--json")
    if facts.tracer == IMPORTED and CHANGES_OF_FILES not in facts.counts:
        raise BadInputError(
            f"{path}: the log that it was made of does not say what its files held",
            "import the log again with --base IMAGE: what they held where it begins",
        )
    begun = facts.counts.get("operation begin", 0)
    if not facts.has_unknown_operations and begun != workload.operation_count:
        raise BadInputError(
            f"{path}: the trace has {begun} operations, and workload {workload.name} has {workload.operation_count}",
            "give the workload that the trace is of with -w",
        )

    def fill(entry: Path) -> None:
        shutil.copyfile(path, entry)

    kept = workshop.cache.file_entry("imported", f"{facts.hash}.trace", fill, fresh=True)
    return Trace(kept, facts.hash, catalogue.store(workload, workshop.cache), True, 0.0)


def kept_trace(cache: Cache, named: str) -> Path | None:
    """The trace with this hash, or these first digits of it, that was given before."""
    found = sorted((cache.folder / "imported").glob(f"{named}*.trace")) if named.isalnum() else []
    return found[0] if found else None
