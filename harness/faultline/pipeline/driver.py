# SPDX-License-Identifier: Apache-2.0
"""The driver of benchmarks and wear (allocators/bench): one program that has all allocators, and malloc beside them."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from faultline.base.cache import Cache
from faultline.base.config import Flush, allocator_names, find_allocator
from faultline.pipeline.build import (
    COMMON_INCLUDE,
    OPTIMISATION,
    Built,
    Recipe,
    flags_of,
    flush_definition,
    is_cxx,
    make,
    matches,
    relative,
)

DRIVER_BASELINE = "glibc"
"""malloc, in the driver like the others, and what they are compared with."""
DRIVER_SOURCES = ("main", "workloads", "resur", "fragment", "churn", "wear", DRIVER_BASELINE)


def allocators_here(root: Path) -> list[str]:
    """Those that the driver has: glibc first, then each with a file of its own in allocators/bench."""
    folder = root / "allocators" / "bench"
    return [DRIVER_BASELINE, *(name for name in allocator_names(root) if any(folder.glob(f"{name}.c*")))]


def build_driver(root: Path, cache: Cache, flush: Flush, *, is_counting: bool = False) -> Built:
    """Each allocator is one object of its own, with the language, the include folders and the flags of its allocator.toml but for
    -D, which make everything small for crash tests. is_counting: flushes and fences."""
    folder = root / "allocators" / "bench"
    common = [
        *(*OPTIMISATION, "-Wall", "-Wextra", "-pthread", "-D_GNU_SOURCE", flush_definition(flush)),
        *(COMMON_INCLUDE, "-Iallocators/bench", *(["-DFL_COUNT"] if is_counting else [])),
    ]
    names = allocators_here(root)
    objects, libraries = [], set()
    for name in names[1:]:
        allocator = find_allocator(root, name)
        own = root / "allocators" / name
        sources = relative(root, [*matches(own, "build.sources", allocator.build.sources), *folder.glob(f"{name}.c*")])
        arguments = (
            *common,
            *(f"-I{(own / include).relative_to(root).as_posix()}" for include in allocator.build.include),
        )
        only_c, only_cxx = (_without_definitions(flags_of(allocator, is_cxx=which)) for which in (False, True))
        link = ("-r", *_without_definitions(allocator.build.flags))
        what = f"{name} for benchmarks"
        recipe = Recipe(what, f"{name}.o", arguments, tuple(sources), link, only_c=only_c, only_cxx=only_cxx)
        objects.append(str(make(root, cache, recipe).path))
        libraries |= {*allocator.build.libraries, *(["stdc++"] if any(map(is_cxx, sources)) else [])}
    arguments = ("-std=gnu11", *common, f"-DBENCH_ALLOCATORS={' '.join(f'X({name})' for name in names)}")
    driver = tuple(f"allocators/bench/{name}.c" for name in DRIVER_SOURCES)
    link = (*objects, "-pthread", *(f"-l{library}" for library in sorted(libraries)))
    return make(root, cache, Recipe("the benchmark driver", "bench", arguments, driver, link))


def _without_definitions(flags: Iterable[str]) -> tuple[str, ...]:
    return tuple(flag for flag in flags if not flag.startswith("-D"))
