# SPDX-License-Identifier: Apache-2.0
"""`faultline doctor`: whether everything is there that a campaign needs. Each check says what it found; a failed one
says what to do."""

from __future__ import annotations

import ctypes
import mmap
import shutil
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from faultline.base import config
from faultline.base.cache import hint_of_room
from faultline.base.errors import FaultlineError, InfrastructureError
from faultline.pipeline import build, packages
from faultline.pipeline.environment import described_flushes, flushes, heap_folder_of, persistent_memory
from faultline.pipeline.workshop import Workshop

SCRATCH_BYTES_WANTED = 256 << 20
"""Room for the heaps, images and private copies of two cells at a time."""


ASK_PERSONALITY = 0xFFFFFFFF
ADDR_NO_RANDOMIZE = 0x0040000
OWN_MEMORY = Path("/proc/self/mem")
"""Through which the runner changes a flush that the processor lacks (runner/signals/flushes.c)."""


@dataclass(frozen=True)
class Check:
    name: str
    is_good: bool
    detail: str
    hint: str | None = None


def examine(workshop: Workshop) -> list[Check]:
    root, cache = workshop.root, workshop.cache
    heaps = workshop.heap_folder or heap_folder_of(cache)
    return [
        _check("gcc", lambda: build.version_of("gcc")),
        _check("g++", lambda: build.version_of("g++")),
        _check("ccache", lambda: build.version_of("ccache")),
        *(_check(name, find) for name, find in workshop.tracer.checks(root, cache).items()),
        _check("runner", lambda: str(build.build_runner(root, cache).path)),
        _check("engine", lambda: workshop.engine.ask("--version").strip()),
        _check("allocators", lambda: _allocators(workshop)),
        _check("libraries", lambda: _libraries(workshop)),
        _check("cache", lambda: _writable(cache.folder)),
        _check("heap folder", lambda: _scratch(heaps)),
        _check("flushes", _flushes),
        _check("addresses", _addresses),
        _check("persistent memory", lambda: _map_sync(heaps)),
    ]


def _check(name: str, find: Callable[[], str]) -> Check:
    try:
        return Check(name, True, find())
    except FaultlineError as error:
        return Check(name, False, error.message, error.hint)


def _allocators(workshop: Workshop) -> str:
    found = [workshop.allocator(name) for name in workshop.project.names()]
    if not found:
        raise InfrastructureError(f"{workshop.root / 'allocators'}: no allocator.toml below it")
    return ", ".join(f"{allocator.name} ({len(allocator.mutant)} mutants)" for allocator in found)


def _libraries(workshop: Workshop) -> str:
    """An allocator whose library is missing is not built; that is no fault of the installation."""
    asking = [one for one in map(workshop.allocator, workshop.project.names()) if one.build.packages]
    said = (f"{one.name}: {packages.missing(one) or ', '.join(one.build.packages)}" for one in asking)
    return "; ".join(said) or "no allocator asks for one"


def _writable(folder: Path) -> str:
    try:
        with tempfile.NamedTemporaryFile(dir=folder):
            pass
    except OSError as error:
        raise InfrastructureError(
            f"{folder}: not writable: {error.strerror}", "choose another one with --cache DIR"
        ) from error
    return str(folder)


def _scratch(folder: Path) -> str:
    free = shutil.disk_usage(folder).free
    if free < SCRATCH_BYTES_WANTED:
        raise InfrastructureError(
            f"{folder}: {free >> 20} MiB free, {SCRATCH_BYTES_WANTED >> 20} MiB wanted",
            hint_of_room(folder),
        )
    return f"{folder}, {free >> 20} MiB free"


def _flushes() -> str:
    """Kernels can be told to refuse writes to code (proc_mem.force_override), and sandboxes hide the file."""
    lacking = [flush for flush in config.FLUSHES if flush not in flushes()]
    if lacking and not _can_change_code():
        raise InfrastructureError(
            f"{OWN_MEMORY}: code cannot be changed there, and a recovery with {' or '.join(lacking)}, which this processor lacks,"
            f" ends by SIGILL",
            f"build for a flush that it has: --flush {flushes()[0]}",
        )
    return described_flushes()


def _can_change_code() -> bool:
    page = mmap.mmap(-1, mmap.PAGESIZE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    address = ctypes.addressof(ctypes.c_char.from_buffer(page))
    if ctypes.CDLL(None).mprotect(ctypes.c_void_p(address), ctypes.c_size_t(len(page)), mmap.PROT_READ) != 0:
        return False
    try:
        with OWN_MEMORY.open("r+b", buffering=0) as memory:
            memory.seek(address)
            memory.write(b"\x90")
    except OSError:
        return False
    return page[:1] == b"\x90"


def _addresses() -> str:
    """What runner/main.c asks for. Docker's seccomp profile refuses it; no verdict depends on it."""
    libc = ctypes.CDLL(None, use_errno=True)
    old = libc.personality(ctypes.c_ulong(ASK_PERSONALITY))
    if old >= 0 and libc.personality(ctypes.c_ulong(old | ADDR_NO_RANDOMIZE)) >= 0:
        libc.personality(ctypes.c_ulong(old))
        return "the same in each recovery"
    return (
        "of code and stacks they differ from one runner to the next, because personality is refused here (seccomp): "
        "where a target looks at its own, counts of recoveries may differ from run to run"
    )


def _map_sync(folder: Path) -> str:
    """Tests need no more than emulated PM."""
    return f"{folder}: {persistent_memory(folder)}"
