# SPDX-License-Identifier: Apache-2.0
"""Events and results as the engine gives them, for tests of what is made of them."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import msgspec

from faultline.campaign.results import CellResult
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.environment import Environment
from faultline.pipeline.events import Certificate, Engines, Finding, StateSize, TraceEvent, TraceRules
from faultline.pipeline.prepared import PreparedCell
from faultline.study.explanation import Explanation, RepairTrial
from faultline.study.witness import Shrunk

SOURCE_FOLDERS = ("allocators", "include", "pintools", "runner")
"""Of a clone: what allocators, runner and tracers are built from."""


def copy_of_sources(root: Path, folder: Path) -> Path:
    """A clone's sources in the folder, to change as one likes."""
    for part in SOURCE_FOLDERS:
        shutil.copytree(root / part, folder / part)
    return folder


def site(function: str, line: int) -> dict[str, Any]:
    return {"function": function, "file": "allocators/x/src/activate.c", "line": line}


EVENTS: list[dict[str, Any]] = [
    {
        "position": 80,
        "kind": "operation begin",
        "value": "slot 3, 128 bytes",
        "operation": {"index": 4, "name": "allocate"},
    },
    {
        "position": 82,
        "kind": "store",
        "file": "heap",
        "offset": 64,
        "size": 8,
        "value": "0x1080",
        "site": site("nvm_activate", 12),
        "operation": {"index": 4, "name": "allocate"},
        "is_persisted": "no",
    },
    {
        "position": 121,
        "kind": "store",
        "file": "heap",
        "offset": 128,
        "size": 32,
        "value": "[00ff00ff00ff00ff00ff00ff00ff00ff…]",
        "site": site("nvm_activate", 14),
        "operation": {"index": 4, "name": "allocate"},
        "is_persisted": "yes",
        "is_guaranteed": False,
    },
    {"position": 122, "kind": "fence", "site": site("nvm_activate", 15), "operation": {"index": 4, "name": "allocate"}},
    {"position": 123, "kind": "operation return", "value": "ok", "operation": {"index": 4, "name": "allocate"}},
    {"position": 124, "kind": "operation begin", "value": "slot 5", "operation": {"index": 5, "name": "free"}},
]
REPAIR = "clwb after the store at nvm_activate (allocators/x/src/activate.c:12)"
FINDING: dict[str, Any] = {
    "event": "finding",
    "id": "FL004-1a2b3c4d",
    "rule": "FL004",
    "title": "a returned operation is lost",
    "meaning": "the effect of an operation that had returned is gone",
    "fact": "store-lost not-flushed",
    "message": "operation 4 (allocate slot 3, 128 bytes) returned, and slot 3 is null after recovery",
    "token": "fl1abcdef",
    "position": 123,
    "operation": {"index": 4, "kind": "allocate", "slot": 3, "bytes": 128, "pending": False},
    "sites": [{"function": "nvm_activate", "file": "allocators/x/src/activate.c", "line": 12}],
    "callers": [[site("nvm_publish", 40)]],
    "seen": 17,
    "strategy": "floor",
    "model_note": None,
    "lost": {
        "kind": "store",
        "site": {"function": "nvm_activate", "file": "allocators/x/src/activate.c", "line": 12},
        "file": "heap",
        "offset": 64,
        "bytes": 8,
        "held": [],
    },
    "lines": [{"file": "heap", "offset": 64, "choice": "0 of 3 stores"}],
    "events": EVENTS,
    "repairs": [{"text": REPAIR, "edits": [{"edit": "flush-after", "sites": [7]}]}],
}
CERTIFICATE: dict[str, Any] = {
    "event": "certificate",
    "complete": False,
    "why": "96 positions were sampled",
    "crash_positions": 9000,
    "states": "1.2e+09",
    "states_log10": 9.08,
    "recoveries": 4083,
    "memoised": 12,
    "distinct_images": 4000,
    "unknowns": 0,
    "unknown_reasons": [],
    "rules_judged": ["FL001", "FL004"],
    "rules_not_judged": [{"rule": "FL015", "why": "not in this version"}],
    "positions_by_strategy": {"prefix": 9000, "floor": 9000, "exhaustive": 8904, "sample": 96},
    "judgements": 5000,
    "full_probes": 40,
    "engines": {"in_process": 4001, "compared": 9, "isolated": {"starts a thread or a process": 82}},
    "time_s": 1.5,
    "covers": "this workload, interleaving, memory order and instruction dispatch",
    "bounds_hit": ["samples: 16 a position"],
}
TRACE_RULES: dict[str, Any] = {
    "event": "trace_rules",
    "warnings": [
        {
            "id": "FL101-5e6f7a8b",
            "rule": "FL101",
            "title": "never flushed, or never synced",
            "meaning": "a store that is never flushed, or a write that is never synced",
            "concern": "loss",
            "site": site("nvm_activate", 12),
            "count": 7,
            "position": 120,
            "operation": {"index": 4, "name": "allocate"},
        },
        {
            "id": "FL112-9c0d1e2f",
            "rule": "FL112",
            "title": "redundant fence: nothing to order",
            "meaning": "a fence that orders nothing",
            "concern": "cost",
            "site": site("nvm_close", 80),
            "count": 1,
            "position": 900,
        },
    ],
    "costs": [
        {
            "operation": "allocate",
            "operations": 8,
            "stores": 40,
            "bytes": 512,
            "flushes": 20,
            "fences": 16,
            "lines": 18,
            "redundant": 2,
        }
    ],
}
PROGRESS: dict[str, Any] = {"event": "progress", "position": 1, "positions": 9, "recoveries": 3, "findings": 0}


def done(verdict: str) -> dict[str, Any]:
    return {"event": "done", "verdict": verdict, "findings": int(verdict == "fail"), "trace_hash": "ab"}


def spec(**changes: Any) -> CellSpec:
    keys: dict[str, Any] = {
        "allocator": "nvm_malloc",
        "workload": "churn",
        "ops": 40,
        "seed": 1,
        "strategy": "mixed",
        "model": "px86",
        "flush": "clwb",
    }
    return CellSpec(**{**keys, **changes})


def cell(of: CellSpec | None = None, target: Any = None, workshop: Any = None, **changes: Any) -> PreparedCell:
    """For what builds and traces nothing."""
    found = msgspec.structs.replace(of or spec(), **changes)
    shop = workshop or SimpleNamespace(explore_jobs=1)
    return PreparedCell(
        cast(Any, shop), found, target or cast(Any, SimpleNamespace(hooked=None)), *[cast(Any, None)] * 2
    )


def finding(**changes: Any) -> Finding:
    return msgspec.structs.replace(msgspec.convert(FINDING, Finding), **changes)


def explanation() -> Explanation:
    """Of that finding."""
    trial = RepairTrial(REPAIR, "helps", recoveries=360, is_complete=True)
    when = "power fails at position 123, operation 4: allocate, slot 3, 128 bytes (returned)"
    return Explanation(FINDING["id"], when, "nvm_activate (allocators/x/src/activate.c:12)", "", [trial])


def shrunk() -> Shrunk:
    """Of that finding."""
    witness = finding(token="fl1small", position=40)
    lines, size = ["allocate 0 1"], StateSize(1, 2, 40)
    return Shrunk(FINDING["id"], witness, lines, 1, 4, size, StateSize(3, 9, 44), 7, True, [])


def event(**keys: Any) -> TraceEvent:
    return TraceEvent(**keys)


FALLBACK = "strategy complete is not possible: the adapter was built without hooks"
ENVIRONMENT = Environment(
    command="faultline matrix --out out",
    started_utc="2026-11-21 09:00:00",
    facts={"faultline": "0.1.0", "revision": "0123456789ab", "heaps": "tmpfs (/dev/shm), emulated PM: no MAP_SYNC"},
)


def certificate(**changes: Any) -> Certificate:
    keys = {key: value for key, value in CERTIFICATE.items() if key != "event"}
    return Certificate(**{**keys, "engines": Engines(**keys["engines"]), **changes})


def trace_rules() -> TraceRules:
    return msgspec.convert(TRACE_RULES, TraceRules)


def campaign() -> list[CellResult]:
    """One of each outcome."""
    times = {"build_s": 0.5, "trace_s": 1.25, "explore_s": 2.0, "trace_hash": "ab" * 32, "build": "0123456789abcdef"}
    mutant = {"mutant": "MISSING_FLUSH", "expected_rule": "FL004", "stop_at_rule": "FL004"}
    return [
        CellResult(spec(), "k1", "pass", certificate=certificate(), trace_rules=trace_rules(), **times),
        CellResult(
            spec(workload="smoke", ops=0, strategy="complete"),
            "k2",
            "fail",
            findings=[finding()],
            explanations=[explanation()],
            shrunk=[shrunk()],
            certificate=certificate(strategy="mixed", fallback=FALLBACK),
            **times,
        ),
        CellResult(
            spec(workload="ace:2", ops=0),
            "k3",
            error="nvm_malloc crashed with SIGSEGV while session 0 of workload ace:2 was traced",
            hint="its output: traces/k3.log",
            error_code=3,
        ),
        CellResult(spec(**mutant), "k4", "fail", findings=[finding()], certificate=certificate(), **times),
        CellResult(spec(**{**mutant, "mutant": "SURVIVOR"}), "k5", "pass", certificate=certificate(), **times),
    ]
