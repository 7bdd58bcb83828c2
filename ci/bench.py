# SPDX-License-Identifier: Apache-2.0
"""`make bench [PARTS="..."]`: what tracing costs, how many recoveries a second the engines run, how fast allocators are
and recover, what complete exploration costs and gains by workers, how long mutants take to an explained finding, how long the
matrix takes. Each part is printed when it ends: a table, or one line a figure with its goal where there is one. A part that does
not end is stopped at its limit, and what it has is printed. --out FILE has the same as JSON. Exit code 3 when a part did not come
to its end, or a program of others that it compares with is not there. The parts of `make bench-peers` are measured where they are
named."""

from __future__ import annotations

import argparse
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import bench_allocators
import bench_basics
import bench_complete
import bench_explore
import bench_mutants
import bench_pallocator
import bench_peers
import bench_programs
from bench_parts import Bench, Part, run_part

from faultline.base.cache import Cache, project_root, scratch_folder
from faultline.base.errors import EXIT_OK, EXIT_UNKNOWN
from faultline.pipeline import environment
from faultline.pipeline.engine import Engine

PARTS: dict[str, Part] = {
    part.name: part
    for part in (
        bench_basics.TRACING,
        bench_basics.REPLAY,
        bench_basics.WEAR,
        *bench_allocators.PARTS,
        *bench_pallocator.PARTS,
        bench_complete.PART,
        *bench_explore.PARTS,
        *bench_mutants.PARTS,
        bench_basics.MATRIX,
        *bench_peers.PARTS,
        *bench_programs.PARTS,
    )
}

WITHOUT = f"all but {', '.join(part.name for part in PARTS.values() if not part.is_default)}"


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Measure tracing, recoveries a second, allocators, exploration.")
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of {', '.join(PARTS)}; {WITHOUT} if none is given")
    parser.add_argument("--json", action="store_true", help="JSON on stdout, at the end")
    parser.add_argument("--out", type=Path, metavar="FILE", help="JSON there, too; after each part")
    parser.add_argument(
        "--limit",
        type=float,
        metavar="S",
        help="stop each part after S seconds; by default each has a limit of its own",
    )
    parser.add_argument(
        "--tiny", action="store_true", help="what measures allocators, complete: as little as possible, as a test"
    )
    options = parser.parse_args(arguments)
    unknown = sorted(set(options.parts) - set(PARTS))
    if unknown:
        parser.error(f"unknown part {unknown[0]!r}: the parts are {', '.join(PARTS)}")
    parts = [part for part in PARTS.values() if (part.name in options.parts if options.parts else part.is_default)]
    root, engine = project_root(), Engine()
    cache = Cache(root / ".faultline")
    with scratch_folder(cache) as scratch:
        bench = Bench(root, cache, engine, scratch, options.tiny)
        figures = measure(parts, bench, options.limit, options.out, is_quiet=options.json)
    if options.json:
        print(json.dumps(figures, indent=2))
    return EXIT_UNKNOWN if any(figures[what] for what in ("stopped", "failures", "missing")) else EXIT_OK


def measure(
    parts: Sequence[Part], bench: Bench, limit_s: float | None, out: Path | None, is_quiet: bool
) -> dict[str, Any]:
    """By part; stopped: why a part did not come to its end; failures: measurements of a part that failed; missing: programs
    of others that it did without. After Ctrl-C the other parts are left out. is_quiet: nothing on stdout."""
    facts = environment.describe(bench.workshop).facts
    facts["load before"] = f"{os.getloadavg()[0]:.1f} processes wanted a processor in the last minute"
    figures: dict[str, Any] = {"environment": facts, "stopped": {}, "failures": {}, "missing": {}}
    say([f"{facts['processor']}; {facts['heaps']}; {facts['load before']}"], is_quiet)
    for part in parts:
        measured = run_part(part, bench, limit_s)
        if measured.figures is not None:
            figures[part.name] = measured.figures
        if measured.stopped:
            figures["stopped"][part.name] = measured.stopped
        if measured.failures:
            figures["failures"][part.name] = measured.failures
        if measured.missing:
            figures["missing"][part.name] = measured.missing
        say(measured.lines(part, bench.is_tiny), is_quiet)
        write(out, figures)
        if measured.stopped == "interrupted":
            break
    return figures


def say(lines: list[str], is_quiet: bool) -> None:
    if lines and not is_quiet:
        print("\n".join(lines), flush=True)


def write(path: Path | None, figures: dict[str, Any]) -> None:
    if path is not None:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
