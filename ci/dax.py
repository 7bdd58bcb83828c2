# SPDX-License-Identifier: Apache-2.0
"""`make dax`: litmus tests of files, and heaps of allocators, on real file systems with DAX in a machine that ends at random
moments.

A machine that ends keeps every store that it executed. So this shows mappings with MAP_SYNC, growth, names and journals as they
are, and no flush that is missing. The seed says which moments are drawn, and not where the machine is then: no ending can be made
again.

Exit code 0: all is as the model and the contracts say; 1: something is not; 2: a wrong argument; 3: the machine does not work, or
something is unknown.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import asdict
from itertools import product
from pathlib import Path

from dax_endings import run_endings
from dax_heaps import HeapEnding, HeapsOf, judge
from dax_litmus import Compared, Litmus, LitmusEnding, compare, read_litmus
from dax_machine import DISK_BYTES, FILE_SYSTEMS, HERE, base_files, find_kernel, machine_for, make_disk, run
from msgspec.structs import replace

from faultline.base.cache import Cache, project_root
from faultline.base.errors import EXIT_BAD_INPUT, EXIT_FINDINGS, EXIT_OK, EXIT_UNKNOWN, BadInputError, FaultlineError
from faultline.campaign.matrix import cells_of_matrix, read_matrix
from faultline.pipeline.cell import CellSpec
from faultline.pipeline.engine import Engine
from faultline.pipeline.prepared import PreparedCell, prepare
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.streams import note

PARTS = ("litmus", "heaps")
OPS = 40
"""Of a generated workload that is asked for."""
PLANTED = ("harness/tests/exploration/marked", "churn", "MAPPED_WITHOUT_SYNC")
"""Allocator, workload and mutant of a fault that the machine must find: about two of three endings show it."""
PLANTED_ENDINGS = 5
"""On each file system."""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, default=1, help="of pauses and moments (default 1)")
    parser.add_argument("--endings", type=int, default=7, help="of each litmus test on each file system (default 7)")
    parser.add_argument("--heap-endings", type=int, default=2, help="of each workload on each file system (default 2)")
    parser.add_argument(
        "--file-system", action="append", metavar="KIND", help=f"{' or '.join(FILE_SYSTEMS)} (default: both)"
    )
    parser.add_argument("--part", action="append", choices=PARTS, help="default: both")
    parser.add_argument(
        "--allocator", action="append", metavar="NAME|PATH", help="only these (default: those of ci/matrix.toml)"
    )
    parser.add_argument("--workload", help="with --allocator: this one, and not those of ci/matrix.toml")
    parser.add_argument("--mutant", help="with --allocator and --workload: of it")
    parser.add_argument("--out", type=Path, default=Path("out/dax"), metavar="DIR")
    arguments = parser.parse_args()
    try:
        return run_all(arguments)
    except FaultlineError as error:
        print(f"error: {error}", file=sys.stderr)
        if error.hint:
            print(f"hint: {error.hint}", file=sys.stderr)
        return EXIT_BAD_INPUT if isinstance(error, BadInputError) else EXIT_UNKNOWN


def run_all(arguments: argparse.Namespace) -> int:
    begin = time.monotonic()
    check(arguments)
    kinds = arguments.file_system or list(FILE_SYSTEMS)
    workshop = Workshop(project_root(), Cache(project_root() / ".faultline"), Engine())
    parts = arguments.part or PARTS
    tests = litmus_tests(workshop.root, workshop.engine) if "litmus" in parts else []
    cells = heap_cells(arguments, workshop) if "heaps" in parts else []
    place = workshop.cache.folder / "dax"
    place.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=place, prefix="endings-") as folder:
        scratch = Path(folder)
        kernel = find_kernel(place / "kernel")
        machine, word = machine_for(kernel, base_files(kernel, {"bin/steps": steps_program(scratch)}), scratch)
        note(f"machine: {word}, {DISK_BYTES >> 20} MiB of NVDIMM, {', '.join(kinds)} with DAX")
        templates = {kind: scratch / f"{kind}.template" for kind in kinds}
        for kind, template in templates.items():
            make_disk(template, kind)
        on_litmus = [
            LitmusEnding(test, kind, random.Random(f"{arguments.seed} {kind} {test.name} {number}"))
            for number, test, kind in product(range(arguments.endings), tests, kinds)
        ]
        on_heaps = [
            HeapEnding(cell, kind, random.Random(f"{arguments.seed} {kind} {cell.spec.name} {number}"), scratch / name)
            for at, (cell, kind) in enumerate(product(cells, kinds))
            for number in range(PLANTED_ENDINGS if is_planted(cell.spec) else arguments.heap_endings)
            for name in [f"heap-{at}-{number}"]
        ]
        note(f"{len(on_litmus)} endings of {len(tests)} litmus tests, {len(on_heaps)} of {len(cells)} workloads")
        run_endings(machine, [*on_litmus, *on_heaps], templates, scratch)
        compared = compare_all(on_litmus)
        heaps = []
        for cell, kind in product(cells, kinds):
            of_cell = [one for one in on_heaps if one.cell is cell and one.file_system == kind]
            heaps.append(judge(cell, kind, of_cell, is_planted=is_planted(cell.spec)))
        keep_failed(arguments.out, heaps)
    print_all(compared, heaps)
    seconds = round(time.monotonic() - begin)
    found = {
        "machine": word,
        "seed": arguments.seed,
        "seconds": seconds,
        "litmus": [asdict(one) for one in compared],
        "heaps": [
            {**asdict(one), "failed": [folder.name for folder in one.failed], "verdict": one.verdict} for one in heaps
        ],
    }
    (arguments.out / "dax.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    print(f"{len(on_litmus) + len(on_heaps)} endings in {seconds} s; {arguments.out / 'dax.json'}")
    return verdict_of(compared, heaps)


def check(arguments: argparse.Namespace) -> None:
    for kind in arguments.file_system or ():
        if kind not in FILE_SYSTEMS:
            raise BadInputError(f"--file-system {kind}: it has no DAX; expected {' or '.join(FILE_SYSTEMS)}")
    for name in ("endings", "heap_endings"):
        if getattr(arguments, name) < 1:
            raise BadInputError(f"--{name.replace('_', '-')} {getattr(arguments, name)}: expected at least 1")
    if arguments.workload and not arguments.allocator:
        raise BadInputError("--workload: of which allocator?", "--allocator NAME says it")
    if arguments.mutant and not arguments.workload:
        raise BadInputError("--mutant: with which workload?", "--allocator NAME --workload WORKLOAD say it")


def is_planted(spec: CellSpec) -> bool:
    path, workload, mutant = PLANTED
    return (spec.allocator, spec.workload, spec.mutant) == (Path(path).name, workload, mutant)


def steps_program(place: Path) -> Path:
    program, flags = place / "steps", ("-std=gnu11", "-D_GNU_SOURCE", "-O1", "-Wall", "-Wextra", "-static")
    run("gcc", *flags, HERE / "steps.c", "-o", program, what="ci/dax/steps.c")
    return program


def keep_failed(out: Path, heaps: Sequence[HeapsOf]) -> None:
    """What the machine left where a rule is broken: no ending can be made again."""
    shutil.rmtree(out / "failed", ignore_errors=True)
    out.mkdir(parents=True, exist_ok=True)
    for folder in (folder for heap in heaps for folder in heap.failed):
        shutil.copytree(folder, out / "failed" / folder.name)


def litmus_tests(root: Path, engine: Engine) -> list[Litmus]:
    read = [read_litmus(path, engine) for path in sorted((root / "crashgen" / "litmus").glob("*.litmus"))]
    return [test for test in read if test is not None]


def heap_cells(arguments: argparse.Namespace, workshop: Workshop) -> list[PreparedCell]:
    """Those of ci/matrix.toml that one thread executes, each once, and the planted one; or what was asked for."""
    names = []
    for text in arguments.allocator or ():
        if "/" in text:
            workshop, allocator = workshop.with_path(text)
        else:
            allocator = workshop.allocator(text)
        names.append(allocator.name)
    if arguments.workload:
        specs = [asked(name, arguments.workload, arguments.mutant) for name in names]
    elif names:
        specs = [spec for spec in cells_of_files(workshop) if spec.allocator in names]
        if not specs:
            hint = "--workload says what is executed"
            raise BadInputError(f"{', '.join(names)}: no cell of ci/matrix.toml is theirs", hint)
    else:
        path, workload, mutant = PLANTED
        workshop, planted = workshop.with_path(str(workshop.root / path))
        specs = [*cells_of_files(workshop), asked(planted.name, workload, mutant)]
    cells = []
    for number, spec in enumerate(specs, 1):
        note(f"{number} of {len(specs)}: {spec.name}")
        cell = prepare(workshop, spec, needs_hooks=False)
        if not cell.workload.is_threaded:
            cells.append(cell)
    if not cells:
        raise BadInputError(
            "nothing is left: what the machine executes has one thread", "--workload says what is executed"
        )
    return cells


def asked(allocator: str, workload: str, mutant: str | None) -> CellSpec:
    return CellSpec(allocator, workload, OPS, 1, "complete", "px86", "clwb", mutant=mutant)


def cells_of_files(workshop: Workshop) -> list[CellSpec]:
    """Of ci/matrix.toml. How they are explored does not matter here."""
    specs: list[CellSpec] = []
    for spec in cells_of_matrix(workshop.allocator, read_matrix(workshop.root / "ci" / "matrix.toml", workshop.engine)):
        same = replace(spec, nested=0, follow_up=True, strategy="complete", file_system=None, start="create")
        if spec.mutant is None and spec.model == "px86" and same not in specs:
            specs.append(same)
    return specs


def compare_all(endings: Sequence[LitmusEnding]) -> list[Compared]:
    by_test: dict[tuple[str, str], list[LitmusEnding]] = defaultdict(list)
    for ending in endings:
        by_test[ending.file_system, ending.test.name].append(ending)
    return [compare(ones[0].test, kind, ones) for (kind, _), ones in sorted(by_test.items())]


def print_all(compared: Sequence[Compared], heaps: Sequence[HeapsOf]) -> None:
    for one in compared:
        states = "; ".join(f"{state} ({count})" for state, count in one.seen.items())
        verdict = f"NOT ALLOWED: {'; '.join(one.forbidden)}" if one.forbidden else "ok"
        print(f"{one.file_system} {one.test}: {verdict}, {one.endings} endings")
        print(f"  came: {states}")
        if one.never_came:
            print(f"  allowed, never came: {'; '.join(one.never_came)}")
    for heap in heaps:
        mapped = f"{heap.synced} mapped with MAP_SYNC (DAX)" + (f", {heap.others} without" if heap.others else "")
        counts = f"{heap.endings} endings, {heap.in_operation} in an operation, {heap.unbegun} before the heap"
        expected = " as planted" if heap.is_planted and heap.verdict == "fail" else ""
        print(f"{heap.file_system} {heap.cell}: {heap.verdict}{expected}, {counts}, {mapped}")
        for text in [*heap.broken, *heap.unknown]:
            print(f"  {text}")


def verdict_of(compared: Sequence[Compared], heaps: Sequence[HeapsOf]) -> int:
    """A planted fault that is not found is as bad as a finding elsewhere."""
    planted = [heap for heap in heaps if heap.is_planted]
    others = [heap for heap in heaps if not heap.is_planted]
    is_missed = bool(planted) and not any(heap.verdict == "fail" for heap in planted)
    if is_missed:
        print(f"{planted[0].cell}: NOT FOUND, though most endings show it")
    if is_missed or any(one.forbidden for one in compared) or any(heap.verdict == "fail" for heap in others):
        return EXIT_FINDINGS
    return EXIT_UNKNOWN if any(heap.verdict == "unknown" for heap in others) else EXIT_OK


if __name__ == "__main__":
    sys.exit(main())
