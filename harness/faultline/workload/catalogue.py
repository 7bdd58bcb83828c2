# SPDX-License-Identifier: Apache-2.0
"""How a name becomes a workload: a generator, a file of the user's, a file that the cache keeps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

from faultline.base.cache import Cache, project_root
from faultline.base.config import Heap
from faultline.base.errors import BadInputError
from faultline.base.input_files import read_text
from faultline.workload.file_format import parse
from faultline.workload.generators import (
    MAX_DEFRAG_SHARE,
    MIN_DEFRAG_SHARE,
    REOPENS,
    SPLIT_HEAP_SHARE,
    big,
    churn,
    create,
    defrag,
    fill,
    over_layout,
    reopen,
    sizes,
    smoke,
    split,
    threads,
    uniform,
)
from faultline.workload.graph_generators import graph, resur
from faultline.workload.operations import MAX_BYTES, MAX_GROWTHS, MAX_OPERATIONS, Workload
from faultline.workload.sequences import MAX_ACE_OPERATIONS, ace, ace_case_count, spread
from faultline.workload.transaction_generators import TX_FEW, tx

GENERATORS = {
    "create": "the heap is created, and nothing else",
    "smoke": "a dozen fixed operations of every kind, with a reopen",
    "churn": "--ops operations of --seed: allocate, free, reallocate over a size mix, bounded live set",
    "chain": "churn over the nodes of one linked list",
    "names": "churn over named allocations",
    "sizes": "both sides of every size-class boundary, and one object through all size classes",
    "reopen": "churn with several close/open cycles",
    "fill": "to out-of-memory and back, then again; long: every byte of the heap is stored",
    "threads": "--ops operations of --seed by two threads, each other's objects too, under a seeded schedule",
    "graph": "--ops operations of --seed on objects that point to each other: cycles, drops, loads, several lives",
    "resur": "--ops operations of --seed: lists that grow in front, objects freed at once, some lists dropped (Makalu's resur)",
    "big": "--ops operations of --seed on large objects, from a 128th to an eighth of the heap",
    "defrag": "full, half of it freed object by object, full again with objects of twice the size, and so on",
    "defrag:N": "the same with objects of an Nth of the heap at first, not a 128th: fewer of them",
    "split": "large objects of every number of pieces: each is freed, split in two, and joined again",
    "ace:N": "every sequence of up to N operations over the allocator's boundary sizes, each on a heap of its own",
    "ace:N:K": "the same over K of the sizes: ace:3:2 is what CI has time for",
    "uniform:A:B": "--ops operations of --seed: half allocate A to B bytes, uniformly, half free a random object (nvmalloc's)",
    "tx:N": "N transactions of --seed, of a few operations each; some are aborted. Needs an allocator with transactions",
    "tx:N:M": "the same of M operations each: tx:1:3000 is one long transaction",
    "lazy:NAME": "workload NAME, whose reopens and recoveries return before all is done. Needs an allocator that recovers lazily",
    "full:N:NAME": "workload NAME on a disk that is full after N growths of files, counted from create and each open",
    "FILE": "a workload file of your own",
}
TAKES_OPS = frozenset({"churn", "chain", "names", "reopen", "threads", "graph", "resur", "big"})
"""Workloads that --ops counts the operations of; uniform:A:B is one, too."""
MADE_FOR_HEAP = frozenset({"sizes", "fill", "resur", "big", "defrag", "split", "ace"})
"""Workloads that follow from the [heap] of one allocator, and those with numbers behind their names."""


LAZY = "lazy:"
FULL = "full:"


def _as_generated(name: str) -> str:
    """Without what is done to it afterwards."""
    while name.startswith((LAZY, FULL)):
        name = name.removeprefix(LAZY) if name.startswith(LAZY) else name.removeprefix(FULL).partition(":")[2]
    return name


def takes_ops(name: str) -> bool:
    name = _as_generated(name)
    return name in TAKES_OPS or name.startswith("uniform:")


def is_made_for_heap(name: str) -> bool:
    return _as_generated(name).partition(":")[0] in MADE_FOR_HEAP


def find(name: str, ops: int, seed: int, heap: Heap, cache: Cache, below: Path | None = None) -> Workload:
    """The workload called name: a generator, a stored file (file:KEY, as tokens say it), or a path. seed: of the generator, and
    of the schedule of its threads; below: where a path leads that is not below the current folder. None: the installation."""
    workload = _find(name, ops, seed, heap, cache, below or project_root())
    return replace(workload, schedule_seed=seed or 1) if workload.is_threaded else workload


def _find(name: str, ops: int, seed: int, heap: Heap, cache: Cache, below: Path) -> Workload:
    if takes_ops(name):
        _limit(2 + 2 * (REOPENS + 1) + ops, f"{name} --ops {ops}")
    generators: dict[str, Callable[[], Workload]] = {
        "create": create,
        "smoke": smoke,
        "churn": lambda: churn(ops, seed),
        "chain": lambda: over_layout("chain", ops, seed),
        "names": lambda: over_layout("names", ops, seed),
        "sizes": lambda: sizes(heap.boundary_sizes),
        "reopen": lambda: reopen(ops, seed),
        "fill": lambda: fill(heap.limit_bytes),
        "threads": lambda: threads(ops, seed),
        "graph": lambda: graph(ops, seed),
        "resur": lambda: resur(ops, seed, heap.limit_bytes),
        "big": lambda: big(ops, seed, heap.limit_bytes),
        "defrag": lambda: defrag(heap.limit_bytes),
        "split": lambda: split(heap.boundary_sizes[-1], heap.limit_bytes // SPLIT_HEAP_SHARE),
    }
    if name in generators:
        return generators[name]()
    if name.startswith((LAZY, FULL)):
        return _find_changed(name, ops, seed, heap, cache, below)
    if name.startswith("ace:"):
        return _find_ace(name, heap)
    if name.startswith("defrag:"):
        return _find_defrag(name, heap)
    if name.startswith("uniform:"):
        return _find_uniform(name, ops, seed)
    if name.startswith("tx:"):
        return _find_tx(name, seed)
    if name.startswith("file:"):
        return _stored_file(name.removeprefix("file:"), cache)
    return _user_file(Path(name), cache, below)


def _find_changed(name: str, ops: int, seed: int, heap: Heap, cache: Cache, below: Path) -> Workload:
    """A generated workload with one more line in its head. A file says it itself."""
    count, _, rest = name.removeprefix(FULL).partition(":") if name.startswith(FULL) else ("", "", name[len(LAZY) :])
    if not _is_generated(_as_generated(rest)):
        raise _no_workload(name)
    changed: dict[str, Any] = {"growths": _growths(name, count)} if name.startswith(FULL) else {"is_lazy": True}
    found = _find(rest, ops, seed, heap, cache, below)
    if found.name != rest:
        raise _no_workload(name)
    return replace(found, name=name, **changed)


def _growths(name: str, count: str) -> int:
    is_number = count.isascii() and count.isdigit() and len(count) <= len(str(MAX_GROWTHS))
    if not (is_number and int(count) <= MAX_GROWTHS):
        raise BadInputError(f"workload {name!r}: expected {FULL}N:NAME with N from 0 to {MAX_GROWTHS}")
    return int(count)


def _no_workload(name: str) -> BadInputError:
    return BadInputError(
        f"workload {name!r}: expected the name of a workload after {LAZY} or {FULL}N:, as `faultline list` names them",
        "a workload file says it itself: `opens lazily` or `growths N` below `slots COUNT`",
    )


def _is_generated(name: str) -> bool:
    word, colon, _ = name.partition(":")
    if colon:
        return any(one.startswith(f"{word}:") for one in GENERATORS)
    return name in GENERATORS and name != "FILE"


def _find_ace(name: str, heap: Heap) -> Workload:
    all_sizes = heap.boundary_sizes
    words = name.removeprefix("ace:").split(":")
    numbers = [int(word) if word in map(str, range(10)) else 0 for word in words]
    depth, count = numbers[0], numbers[1] if len(numbers) > 1 else len(all_sizes)
    if len(numbers) > 2 or not (1 <= depth <= MAX_ACE_OPERATIONS and 1 <= count <= len(all_sizes)):
        raise BadInputError(
            f"workload {name!r}: expected ace:1 to ace:{MAX_ACE_OPERATIONS}, or ace:N:K with K from 1 to {len(all_sizes)} "
            "of the allocator's boundary sizes"
        )
    _limit(ace_case_count(depth, count) * (2 + depth), name)
    return replace(ace(depth, spread(all_sizes, count)), name=name)


def _find_defrag(name: str, heap: Heap) -> Workload:
    word = name.removeprefix("defrag:")
    share = int(word) if word.isascii() and word.isdigit() and len(word) <= len(str(MAX_DEFRAG_SHARE)) else 0
    if not MIN_DEFRAG_SHARE <= share <= MAX_DEFRAG_SHARE:
        raise BadInputError(f"workload {name!r}: expected defrag:{MIN_DEFRAG_SHARE} to defrag:{MAX_DEFRAG_SHARE}")
    return replace(defrag(heap.limit_bytes, share), name=name)


def _find_tx(name: str, seed: int) -> Workload:
    numbers = [_whole(word) for word in name.removeprefix("tx:").split(":")]
    if len(numbers) > 2 or not all(numbers):
        raise BadInputError(f"workload {name!r}: expected tx:TRANSACTIONS, or tx:TRANSACTIONS:OPERATIONS of each")
    count, per = numbers[0], numbers[1] if len(numbers) > 1 else None
    _limit(count * (3 + (per or TX_FEW)), name)
    return tx(count, per, seed)


def _whole(word: str) -> int:
    """0: it is no whole number, or a larger one than anything here has use for."""
    return int(word) if word.isascii() and word.isdigit() and len(word) <= len(str(MAX_BYTES)) else 0


def _find_uniform(name: str, ops: int, seed: int) -> Workload:
    sizes = [_whole(word) for word in name.removeprefix("uniform:").split(":")]
    if len(sizes) != 2 or not 1 <= sizes[0] <= sizes[1] <= MAX_BYTES:
        raise BadInputError(
            f"workload {name!r}: expected uniform:SMALLEST:LARGEST in bytes, the smallest at least 1, as in uniform:10:4096"
        )
    return uniform(ops, seed, *sizes)


def _limit(operations: int, name: str) -> None:
    if operations > MAX_OPERATIONS:
        raise BadInputError(f"workload {name}: up to {operations} operations, expected at most {MAX_OPERATIONS}")


def _stored_file(key: str, cache: Cache) -> Workload:
    path = cache.folder / "workloads" / key
    if not key.isalnum() or not path.is_file():
        raise BadInputError(
            f"workload file:{key}: not in the cache {cache.folder}",
            "run the workload file once here (faultline run ... --workload FILE), or name its cache with --cache",
        )
    workload = parse(read_text(path, "a workload file is plain text"), str(path))
    if workload.key != key:
        raise BadInputError(
            f"{path}: holds operations of the key {workload.key}: it is damaged, or another version of faultline wrote it",
            "remove it, and run the workload file once here (faultline run ... --workload FILE)",
        )
    return workload


def _user_file(path: Path, cache: Cache, below: Path) -> Workload:
    """Below the current folder, or below another one: allocators and matrices name files so, wherever they are run."""
    if not path.exists() and (below / path).exists():
        path = below / path
    if not path.exists():
        raise BadInputError(
            f"unknown workload {str(path)!r}: no generator of this name and no such file",
            f"workloads are: {', '.join(GENERATORS)}",
        )
    workload = parse(read_text(path, "a workload file is plain text"), str(path))
    store(workload, cache)
    return workload


def store(workload: Workload, cache: Cache) -> Path:
    """The workload as a file that the runner reads; its name in the cache is the workload's key."""
    return cache.text_entry("workloads", workload.key, workload.text())
