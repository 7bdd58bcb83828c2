# SPDX-License-Identifier: Apache-2.0
"""`make paper-nvmalloc`: the allocator figures of Moraru et al. (CMU-PDL-11-114, 2011) made again, beside the paper's: wear by the
random allocation test (section 8.1.1, Figure 4) and fragmentation (section 8.1.2, Table 2). Writes pictures, figures.json and
README.md to --out.

Numbers of operations are the paper's. What differs is said in README.md, in words that stand here."""

from __future__ import annotations

import argparse
import json
import os
import statistics
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import bench_allocators
import msgspec

from faultline.base.cache import Cache, project_root, scratch_folder
from faultline.base.project import Project
from faultline.pipeline.driver import build_driver
from faultline.pipeline.engine import Engine
from faultline.pipeline.environment import best_flush
from faultline.pipeline.workshop import Workshop
from faultline.report.terminal.streams import note
from faultline.wear import counting, figures, page, pictures

OPERATIONS = 100_000
WAITS = (0, 1_000, 10_000)
"""T in operations: nothing waits; a hundredth of the run; a tenth of it."""
PAIRS = OPERATIONS // 2
"""Of an allocation and a free."""
OLD_MALLOC = "glibc without tcache"
"""malloc as near to that of the paper as this glibc can be told to be: the per-thread cache is younger."""
SIZES = (("uniform:10:4096", "10 B to 4 KB", 1.3), ("uniform:10:256", "10 B to 256 B", 1.5))
"""Workload, in words, and how many times the writes of NVMalloc malloc makes in the paper."""
PAPER_WRITES = {"glibc": 2.39e6, "nvmalloc": 1.83e6}
"""Of 10 B to 4 KB."""
CHURN_OPERATIONS = 1_000_000
SEEDS = (1, 2, 3, 4, 5)
PAPER_TABLE_2 = {
    3: ((1.63, 0.32), (2.14, 0.26), 1.35),
    2: ((2.08, 0.51), (2.29, 0.41), 1.43),
    1: ((59.18, 10.68), (10.45, 8.75), 1.67),
}
"""By allocations for each free: total and external fragmentation of malloc and of NVMalloc in percent, and the slow-down."""


def main() -> int:
    parser = argparse.ArgumentParser(description="The figures of the NVMalloc paper, ours beside the paper's.")
    parser.add_argument("--out", type=Path, default=Path("out/paper-nvmalloc"), metavar="DIR")
    out = parser.parse_args().out
    out.mkdir(parents=True, exist_ok=True)
    root = project_root()
    workshop = Workshop(root, Cache(root / ".faultline"), Engine(), None)
    wears = [count_wear(workshop, workload, out) for workload, _, _ in SIZES]
    rows = measure_fragmentation(workshop)
    figures = {"wear": [msgspec.to_builtins(each) for each in wears], "fragmentation": rows}
    (out / "figures.json").write_text(json.dumps(figures, indent=2) + "\n", encoding="utf-8")
    (out / "README.md").write_text(readme(wears, rows), encoding="utf-8")
    note(f"{out / 'README.md'}: written")
    return 0


# ---- section 8.1.1, Figure 4 ---------------------------------------------------------------------------------------------


def count_wear(workshop: Workshop, workload: str, out: Path) -> figures.Wear:
    names = ("glibc", *(f"nvmalloc:{wait}" for wait in WAITS))
    subjects = [counting.find_subject(Project(workshop.root), name) for name in names]
    subjects.insert(1, replace(subjects[0], name=OLD_MALLOC, tunables="glibc.malloc.tcache_count=0"))
    cache = counting.CacheModel(figures.DEFAULT_CACHE_BYTES, figures.DEFAULT_CACHE_WAYS)
    found = counting.find_workload(workshop, subjects, workload, OPERATIONS, 1)
    setting = counting.setting_of(subjects, found, figures.DEFAULT_LINE_BYTES, cache)
    runs = []
    for subject in subjects:
        note(f"{subject.name}: {setting.name()}")
        runs.append(counting.count(workshop, subject, found, figures.DEFAULT_LINE_BYTES, cache))
    result = counting.wear_of(
        runs, setting, figures.Medium(figures.DEFAULT_ENDURANCE, figures.DEFAULT_CAPACITY_BYTES), "glibc"
    )
    smallest, largest = workload.split(":")[1:]
    stem = f"{smallest}-{largest}"
    with pictures.styled():
        pictures.save(pictures.overview(result), out, f"wear-{stem}", figures.PICTURE_FORMATS)
    panels = [(panel_title(run), run.counts) for run in runs]
    title = f"Stores to each 64-byte line, {OPERATIONS:,} operations, {smallest} to {largest} bytes (Figure 4)"
    pictures.by_address(panels, title, out, f"figure-4-{stem}")
    return result


def panel_title(run: counting.CountedRun) -> str:
    total = int(run.counts.lines["stores"].sum())
    name = run.subject.name if run.subject.driver == "glibc" else f"nvmalloc, T = {run.subject.wait:,} operations"
    return f"{name}: {total:,} stores to {len(run.counts.lines):,} lines"


# ---- section 8.1.2, Table 2 ----------------------------------------------------------------------------------------------


def measure_fragmentation(workshop: Workshop) -> list[dict[str, Any]]:
    """A row for each ratio and seed; both allocators do the same operations, in turns."""
    program = build_driver(workshop.root, workshop.cache, best_flush()).path
    rows = []
    with scratch_folder(workshop.cache) as scratch:
        for per_free in PAPER_TABLE_2:
            for seed in SEEDS:
                note(f"fragmentation, free / allocate 1/{per_free}, seed {seed}")
                answers = {name: churn(program, name, per_free, seed, scratch) for name in ("glibc", "nvmalloc")}
                rows.append({"per_free": per_free, "seed": seed, **answers})
    return rows


def churn(program: Path, name: str, per_free: int, seed: int, scratch: Path) -> dict[str, Any]:
    wait = [0] if name == "nvmalloc" else []
    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        said = bench_allocators.ask(program, name, "churn", folder, CHURN_OPERATIONS, per_free, 10, 4096, seed, *wait)
    extent = said["extent_bytes"]
    return {**said, "total": 100 * (1 - said["live_bytes"] / extent), "external": 100 * said["external_bytes"] / extent}


# ---- in words ------------------------------------------------------------------------------------------------------------


def readme(wears: list[figures.Wear], rows: list[dict[str, Any]]) -> str:
    wear_rows, fragmentation_rows = "\n".join(wear_table(wears)), "\n".join(fragmentation_table(rows))
    return f"""# NVMalloc's figures, made again

Moraru et al., CMU-PDL-11-114 (2011), beside what `make paper-nvmalloc` counted here. Every N is the paper's.

## Wear (section 8.1.1, Figure 4)

{OPERATIONS:,} operations, half allocations, half frees of random objects; every object is written whole, once. Stores to each
64-byte line, consecutive ones coalesced. N: operations here / in the paper.

{wear_rows}

![stores by address](figure-4-10-4096.png)

![histogram and tail](wear-10-4096.png)

and `figure-4-10-256`, `wear-10-256`: the same for small objects.

## Fragmentation (section 8.1.2, Table 2)

{CHURN_OPERATIONS:,} operations, 10 B to 4 KB; T = 0, as there. Percent of the address range ever handed out, at the end: total
(external), median of {len(SEEDS)} seeds; in brackets the least and the most total. Slow-down: processor time of nvmalloc / of
malloc, median.

{fragmentation_rows}

## What differs, and why

- **malloc** is that of {os.confstr("CS_GNU_LIBC_VERSION")}; the paper's is glibc 2.12.1, before the per-thread cache (2.26), which
  puts a list and a key into freed objects, keeps some of them from being merged and split, and its heads, which nearly every call
  writes, into the heap itself. `without tcache` is the same malloc with `glibc.malloc.tcache_count=0`, nearer to the paper's.
- **The tracer** is the Valgrind tool, theirs was Pin. It counts stores into what brk and anonymous mmap gave the process. malloc's
  own variables (list heads) are not in there; the paper, too, records "stores to the allocated memory". In front of the
  heap lies a pool of the C++ library, which the driver is linked with: the empty stretch in the picture.
{small_objects(wears)}
- **How objects are written**: word by word, from first to last, so that a line of an object is one write. A memset of the C
  library may write a line twice, and count more.
- **T** is in operations here, so that a run is the same each time; the paper's is 100 ms, 2 s under Pin. Its text does not name
  the settings of Figure 4, nor that of its 1.83 million writes. T changes where writes go and hardly how many there are.
- **nvmalloc** here has a header of 16 bytes and writes it durably at each allocation and free (option (a) of section 7.1); the
  paper does not say how long its header is, and its test does not flush.
- **Fragmentation** is not defined in the paper. Here: total, the share of the range from the lowest to the highest byte ever handed
  out that no live object asked for; external, the part of it in gaps of 128 bytes or more (allocators/bench/churn.c).
- **Free / allocate 1/1** is a random walk: what is live at the end is chance, and so is its share of the range that the peak
  needed. The paper gives one figure, and not how often it ran.
{unexplained(rows)}
- **Slow-down**: nvmalloc is durable when a call returns, with flushes and fences; the paper measured on DRAM without. The machine
  is another one, and busy with other work.
- Figure 5 (B+ tree) and Tables 3 and 4 (memcached, B+ tree) are about applications and are not made.
"""


def unexplained(rows: list[dict[str, Any]]) -> str:
    """What chance does not explain: here both allocators do the same operations."""
    apart = max(abs(row["glibc"]["total"] - row["nvmalloc"]["total"]) for row in rows if row["per_free"] == 1)
    (malloc, malloc_external), (nvmalloc, _), _ = PAPER_TABLE_2[1]
    return f"""- **Not explained**: by the same operations, the totals of malloc and nvmalloc at 1/1 are at most {apart:.1f} points
  apart here, and {malloc - nvmalloc:.1f} in the paper, where most of malloc's {malloc} % is not external either
  ({malloc_external} %). Chance does not do that: the paper measured something else, or each allocator by a run of its own. It
  does not say which."""


def small_objects(wears: list[figures.Wear]) -> str:
    """Why the ratio of small objects is another one, as far as figures tell: what the paper's allocators store more than these, of
    both of them."""
    large, small = ([each.stores.total for each in result.allocators] for result in wears)
    more_malloc, more_old = (PAPER_WRITES["glibc"] - total for total in large[:2])
    more = PAPER_WRITES["nvmalloc"] - large[-1]
    here = f"{small[0] / small[-1]:.1f} to {small[1] / small[-1]:.1f}"
    then = sorted(((small[0] + more_malloc) / (small[-1] + more), (small[1] + more_old) / (small[-1] + more)))
    return f"""- **Small objects**: malloc makes {here} times the stores of nvmalloc here, 1.5 times in the paper. Per
  allocation and free at 10 B to 4 KB, the paper's NVMalloc makes {more / PAIRS:.1f} stores more than nvmalloc here, and its
  malloc {more_old / PAIRS:.1f} to {more_malloc / PAIRS:.1f} more. That is little there, and much where an object has three lines:
  with as many more of both at 10 B to 256 B, malloc would make {then[0]:.1f} to {then[1]:.1f} times the stores. That is a part of
  the difference; the rest, and what the stores are, the paper does not say. The per-thread cache is not the reason:
  without it malloc stores more."""


def wear_table(wears: list[figures.Wear]) -> list[str]:
    lines = [
        "| sizes | allocator | N here / paper | stores | in the paper | glibc / it | without tcache / it | in the paper "
        "| maximum | p99 | CV | Gini |",
        "|---" * 12 + "|",
    ]
    for result, (_, sizes, paper_ratio) in zip(wears, SIZES, strict=True):
        malloc_totals = [each.stores.total for each in result.allocators[:2]]
        for each in result.allocators:
            name, _, wait = each.allocator.partition(":")
            is_malloc = not wait
            has_paper = sizes == SIZES[0][1] and wait != "0"
            paper = f"{PAPER_WRITES['glibc' if is_malloc else name] / 1e6:.2f} M" if has_paper else "-"
            ratios = [f"{other / each.stores.total:.2f}" for other in malloc_totals]
            paper_says = "1" if is_malloc else f"{paper_ratio}"
            (row,) = (row for row in page.rows_of(result)["stores"] if row.allocator == each.allocator)
            who = f"nvmalloc, T = {int(wait):,} operations" if wait else each.allocator
            done = each.allocations + each.frees
            lines.append(
                f"| {sizes} | {who} | {done:,} / {OPERATIONS:,} | {each.stores.total / 1e6:.2f} M | {paper} | {' | '.join(ratios)} "
                f"| {paper_says} | {row.maximum} | {row.p99} | {row.variation} | {row.gini} |"
            )
    return lines


def fragmentation_table(rows: list[dict[str, Any]]) -> list[str]:
    lines = [
        "| free / allocate | N here / paper | malloc | in the paper | nvmalloc | in the paper | slow-down | in the paper |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for per_free, (malloc, nvmalloc, slow) in PAPER_TABLE_2.items():
        mine = [row for row in rows if row["per_free"] == per_free]
        done = {row[name]["allocations"] + row[name]["frees"] for row in mine for name in ("glibc", "nvmalloc")}
        slowdown = statistics.median(row["nvmalloc"]["cpu_s"] / row["glibc"]["cpu_s"] for row in mine)
        lines.append(
            f"| 1/{per_free} | {max(done):,} / {CHURN_OPERATIONS:,} | {shares(mine, 'glibc')} | {malloc[0]} % ({malloc[1]} %) "
            f"| {shares(mine, 'nvmalloc')} | {nvmalloc[0]} % ({nvmalloc[1]} %) | {slowdown:.2f} | {slow} |"
        )
    return lines


def shares(rows: list[dict[str, Any]], name: str) -> str:
    totals = [row[name]["total"] for row in rows]
    external = statistics.median(row[name]["external"] for row in rows)
    return f"{statistics.median(totals):.2f} % ({external:.2f} %) [{min(totals):.1f} to {max(totals):.1f}]"


if __name__ == "__main__":
    raise SystemExit(main())
