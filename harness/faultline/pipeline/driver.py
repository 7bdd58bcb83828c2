# SPDX-License-Identifier: Apache-2.0
"""The driver of benchmarks and wear (allocators/bench): one program that has all allocators, and malloc beside them."""

from __future__ import annotations

from pathlib import Path

from faultline.base.cache import Cache
from faultline.base.config import Flush, allocator_names, find_allocator
from faultline.pipeline.build import (
    COMMON_INCLUDE,
    OPTIMISATION,
    Built,
    Recipe,
    compiler_of,
    flush_definition,
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
        compiler, standard = compiler_of(allocator)
        own = root / "allocators" / name
        sources = relative(root, [*matches(own, "build.sources", allocator.build.sources), *folder.glob(f"{name}.c*")])
        flags = [flag for flag in allocator.build.flags if not flag.startswith("-D")]
        arguments = (
            *(f"-std={standard}", *common, *flags),
            *(f"-I{(own / include).relative_to(root).as_posix()}" for include in allocator.build.include),
        )
        recipe = Recipe(f"{name} for benchmarks", f"{name}.o", compiler, arguments, tuple(sources), ("-r", *flags))
        built = make(root, cache, recipe)
        objects.append(str(built.path))
        libraries |= {*allocator.build.libraries, *(["stdc++"] if compiler == "g++" else [])}
    arguments = ("-std=gnu11", *common, f"-DBENCH_ALLOCATORS={' '.join(f'X({name})' for name in names)}")
    driver = tuple(f"allocators/bench/{name}.c" for name in DRIVER_SOURCES)
    link = (*objects, "-pthread", *(f"-l{library}" for library in sorted(libraries)))
    return make(root, cache, Recipe("the benchmark driver", "bench", "gcc", arguments, driver, link))
