# SPDX-License-Identifier: Apache-2.0
"""The cases: how the allocator of ways/ is compiled, and the right answer, whatever engine gives it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from faultline.pipeline.events import Verdict

SECOND_CRASH = {"nested": 1, "follow_up": False}
WORKLOAD = "workload 1\nslots 3\ncase\nallocate 0 64\nallocate 1 200\nreopen\nfree 0\nreallocate 1 100\n"
THREADS = (
    "workload 1\nslots 3\ncase\nthread 1 allocate 0 64\nallocate 1 200\nreopen\nthread 1 free 0\nreallocate 1 100\n"
)
ONE_SESSION = "workload 1\nslots 1\ncase\nallocate 0 64\n"
POINTER_FLUSHED = frozenset({("FL104", "persist_pointer")})
PMEM: Mapping[str, Any] = {"libraries": ("pmem",), "engine": "traced"}


@dataclass(frozen=True)
class Case:
    """defines: switches of ways/adapter.c; libraries: prebuilt ones; options: of the cell."""

    name: str
    defines: str
    about: str
    verdict: Verdict = "pass"
    rules: frozenset[str] = frozenset()
    """One of them is found; none: nothing is."""
    complete: bool | None = True
    """None: either."""
    engine: str | None = None
    """What ran recoveries; None: any of them may."""
    libraries: tuple[str, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict)
    workload: str = WORKLOAD
    warnings: frozenset[tuple[str, str]] = frozenset()
    """Trace rules that are broken, each with the function that does; others may be, too. FL104 is not, unless it is here."""
    hung: str = ""
    """Where a recovery hangs, and for how long; empty: whatever is said of it."""
    torn: bool = False
    """A finding names a torn store."""


def right(name: str, defines: str, about: str, **more: Any) -> Case:
    return Case(name, defines, about, **more)


def wrong(name: str, defines: str, about: str, *rules: str, **more: Any) -> Case:
    return Case(name, defines, about, "fail", frozenset(rules or ("FL003",)), **more)


def ordered(name: str, defines: str, about: str, **more: Any) -> Iterator[Case]:
    """Right, with a second crash, in recoveries too; wrong without the order of a and b."""
    yield right(name, defines, about, **{**more, "options": SECOND_CRASH})
    yield wrong(f"{name}_unordered", f"{defines} BETWEEN=nothing", f"{about}, but not between a and b", **more)


def twice(name: str, defines: str, about: str, **more: Any) -> Iterator[Case]:
    """As `ordered`; wrong without the flush in recovery, too."""
    yield from ordered(name, defines, about, **more)
    forgetting = {**more, "options": SECOND_CRASH}
    yield wrong(f"{name}_forgets", f"{defines} FORGETS", f"{about}, but not of recovery's slot", "FL014", **forgetting)


def ways_to_persist() -> Iterator[Case]:
    yield from twice("header", "PERSIST=by_header", "persist.h", engine="in-process")
    yield from twice("clwb", "PERSIST=clwb", "clwb and sfence in inline assembly", engine="in-process")
    yield from twice("clflushopt", "PERSIST=clflushopt", "clflushopt and mfence in inline assembly")
    yield from twice("clflush", "PERSIST=clflush", "clflush and sfence in inline assembly")
    yield right("clflush_alone", "BETWEEN=clflush_alone", "clflush, which is in order with the next store")
    returned = "FL003", "FL004", "FL005"
    yield wrong("clflush_returned", "PERSIST=clflush_alone", "the same, which a return does not wait for", *returned)
    yield from twice("bytes", "PERSIST=bytes", "clwb and sfence spelled by their bytes")
    yield from twice("intrinsics", "PERSIST=intrinsics", "_mm_clwb, _mm_sfence", engine="in-process")
    yield from twice("intrinsics_opt", "PERSIST=intrinsics_opt", "_mm_clflushopt, _mm_mfence")
    yield from twice("intrinsics_old", "PERSIST=intrinsics_old", "_mm_clflush, _mm_sfence")
    yield from twice("locked", "PERSIST=locked", "a locked addition to the stack in place of the fence")
    yield from twice("locked_wide", "PERSIST=locked_wide", "a comparison of 16 bytes that fails in place of the fence")
    yield from twice("alias", "PERSIST=alias ALIAS", "clflush by another mapping")
    yield from twice("libpmem", "PERSIST=libpmem", "pmem_persist", **PMEM)
    yield from twice("libpmem_parts", "PERSIST=libpmem_parts", "pmem_flush, pmem_drain", **PMEM)
    yield from twice("libpmem_msync", "PERSIST=libpmem_msync", "pmem_msync", **PMEM)
    yield from twice("msync", "PERSIST=msync", "msync only", engine="in-process")
    yield from ordered("fsync", "PERSIST=fsync", "fsync only")
    yield from ordered("fdatasync", "PERSIST=fdatasync", "fdatasync only")
    yield right(
        "fsync_forgets", "PERSIST=fsync FORGETS", "the next fsync persists what recovery forgets", options=SECOND_CRASH
    )
    yield right("thread", "BETWEEN=in_thread", "another thread flushes and fences")
    yield right("thread_parts", "BETWEEN=in_parts", "another thread flushes; the locks at its end complete that")
    background = "BACKGROUND BETWEEN=in_background"
    yield right(
        "background", background, "a thread flushes and fences as long as the heap is open", options=SECOND_CRASH
    )
    yield right("background_polls", f"{background} POLLS=100000", "it looks for work ten thousand times a second")
    yield right("background_workers", f"{background} WORKERS", "beside threads of the workload", workload=THREADS)
    in_vain = "it flushes, and recovery's slot is forgotten"
    yield wrong("background_forgets", f"{background} FORGETS", in_vain, "FL014", options=SECOND_CRASH)
    yield wrong("background_unordered", "BACKGROUND BETWEEN=nothing", "it is there, and is not asked")
    yield wrong("other_line", "ALIAS BETWEEN=other_line", "clflush by another mapping, of the wrong line")
    yield wrong(
        "pointer", "BETWEEN=pointer", "clwb of the variable that points to a, not of a", warnings=POINTER_FLUSHED
    )
    yield wrong("unfenced", "BETWEEN=unfenced", "clwb without a fence")
    yield wrong("fence_only", "BETWEEN=fence", "a fence without clwb")
    yield wrong("libpmem_flush", "BETWEEN=libpmem_flush", "pmem_flush without pmem_drain", **PMEM)
    yield wrong("msync_later", "BETWEEN=msync_later", "MS_ASYNC is no guarantee")
    no_flush = "FL003", "FL004", "FL005", "FL008", "FL009"
    yield wrong("no_flush", "PERSIST=fence", "nothing is flushed", *no_flush)
    yield right("no_flush_eadr", "PERSIST=fence", "which is right where caches persist", options={"model": "eadr"})


def ways_to_undo() -> Iterator[Case]:
    """Objects that end in a line of their own, in a whole word and in a part of one: what recovery put back is what counts."""
    for bytes_, probe in ((64, "full"), (200, "first"), (65, "full"), (65, "first"), (71, "full"), (131, "first")):
        workload = f"workload 1\nslots 2\ncase\nallocate 0 {bytes_}\nreopen\nfree 0\nallocate 1 {bytes_}\n"
        more: dict[str, Any] = {"workload": workload, "options": {"probe": probe}}
        name = f"undo_{bytes_}_{probe}"
        yield right(name, "UNDO", f"{bytes_} bytes are logged and cleared before they are freed", **more)
        yield wrong(f"{name}_late", "UNDO LOGS_LATE", "the log is not persisted first", "FL009", complete=None, **more)
        last = (bytes_ - 1) // 64 * 64
        stays = f"UNDO STAYS_APART={(bytes_ + 63) // 64 * 64 - last}u"
        yield wrong(f"{name}_forgets", stays, "recovery does not put back the last line", "FL009", **more)


def ways_to_store() -> Iterator[Case]:
    for name, defines, about, more in (
        ("xchg", "STORE=xchg", "xchg", {}),
        ("cmpxchg", "STORE=cmpxchg", "lock cmpxchg", {}),
        ("xadd", "STORE=xadd", "lock xadd", {}),
        ("exchange", "STORE=exchange_builtin", "the compiler's exchange", {}),
        ("cmpxchg16b", "STORE=cmpxchg16b", "lock cmpxchg16b", {}),
        ("movsb", "STORE=movsb", "rep movsb", {}),
        ("stosq", "STORE=stosq", "rep stosq", {}),
        ("memcpy", "STORE=memcpy", "the C library's memcpy", {}),
        ("memmove", "STORE=memmove", "the same by a pointer", {}),
        ("sscanf", "STORE=sscanf", "sscanf into PM", {}),
        ("undrained", "STORE=libpmem_undrained BETWEEN=libpmem", "pmem_memcpy_nodrain, then pmem_persist", PMEM),
    ):
        yield right(f"store_{name}", defines, about, **more)
        yield wrong(f"store_{name}_unordered", f"{defines} BETWEEN=nothing", f"{about}, not flushed", **more)
    for name, defines, about, between, more in (
        ("stream", "STORE=stream", "_mm_stream_si64", "fence", {}),
        ("movnti", "STORE=movnti", "movnti in inline assembly", "fence", {}),
        ("pwrite", "STORE=pwrite", "pwrite", "fdatasync", {}),
        ("pwritev", "STORE=pwritev", "pwritev", "fsync", {}),
        ("write", "STORE=write", "write", "msync", {}),
        ("writev", "STORE=writev", "writev", "fsync", {}),
        ("second_descriptor", "STORE=second_descriptor", "pwrite by a second descriptor", "fdatasync", {}),
        ("duplicate", "STORE=duplicate", "pwrite by a duplicate of the descriptor", "fsync", {}),
        ("by_instruction", "STORE=by_instruction", "pwrite by the syscall instruction", "fsync", {}),
        ("read", "STORE=read", "read from a pipe into PM", "msync", {}),
        ("readv", "STORE=readv", "readv from a pipe into PM", "fsync", {}),
        ("recvmsg", "STORE=recvmsg", "recvmsg into PM", "fsync", {}),
        ("vm_writev", "STORE=vm_writev", "process_vm_writev into PM", "msync", {}),
        ("vm_readv", "STORE=vm_readv", "process_vm_readv into PM", "msync", {}),
    ):
        yield right(f"store_{name}", f"{defines} BETWEEN={between}", f"{about}, and {between}", **more)
        yield wrong(f"store_{name}_unordered", f"{defines} BETWEEN=nothing", f"{about}, and nothing", **more)
    for name, about in (("read", "read from a pipe into PM"), ("vm_writev", "process_vm_writev into PM")):
        yield right(f"store_{name}_flushed", f"STORE={name} BETWEEN=clwb", f"{about}, clwb and a fence")
        yield wrong(f"store_{name}_fenced", f"STORE={name} BETWEEN=fence", f"{about}, and a fence alone")
    yield right("store_dsync", "STORE=dsync BETWEEN=nothing", "pwrite by a descriptor with O_DSYNC")
    yield right("store_libpmem", "STORE=libpmem BETWEEN=nothing", "pmem_memcpy_persist", **PMEM)
    yield right("store_libpmem_streamed", "STORE=libpmem_streamed BETWEEN=nothing", "pmem_memcpy, non-temporal", **PMEM)
    yield right("store_b_xchg", "STORE_B=xchg BETWEEN=unfenced", "xchg of b completes the flush of a")
    yield right("store_b_cmpxchg", "STORE_B=cmpxchg BETWEEN=unfenced", "lock cmpxchg of b completes it")
    yield right("store_b_xadd", "STORE_B=xadd BETWEEN=unfenced", "lock xadd of b completes it")
    for name in ("avx", "sse", "streamed", "cmpxchg16b", "stosq", "movsb", "masked", "memcpy", "libpmem"):
        more = PMEM if name == "libpmem" else {}
        yield right(f"wide_{name}", f"WIDE={name}", f"32 bytes across two lines, {name}", **more)
        taken, is_torn = "the same, taken for one unit", name in ("avx", "cmpxchg16b")
        yield wrong(f"wide_{name}_torn", f"WIDE={name} WIDE_IN_PLACE", taken, torn=is_torn, **more)


def ways_to_load() -> Iterator[Case]:
    for name, about in (
        ("assembly", "inline assembly, after a loop over the same OS page"),
        ("movsb", "rep movsb"),
        ("movsq", "rep movsq"),
        ("cmpsb", "repe cmpsb"),
        ("gather", "vpgatherqq in inline assembly"),
        ("gather_intrinsic", "_mm_i64gather_epi64"),
        ("avx", "32 bytes at a time"),
        ("cmpxchg16b", "a comparison of 16 bytes that fails"),
        ("xadd", "lock xadd of nothing"),
        ("memcpy", "the C library's memcpy"),
        ("memcpy_pointer", "the same by a pointer"),
        ("memcmp", "the C library's memcmp"),
        ("printf", "snprintf of PM"),
        ("bsearch", "the C library's bsearch"),
        ("pread", "pread"),
        ("preadv", "preadv"),
        ("read", "read"),
        ("second_descriptor", "pread by a second descriptor"),
        ("stream", "fread"),
        ("by_instruction", "pread by the syscall instruction"),
        ("pipe", "write of PM into a pipe"),
        ("vm_readv", "process_vm_readv of PM"),
        ("vm_writev", "process_vm_writev of PM"),
        ("sendfile", "sendfile"),
        ("signal", "a signal handler"),
        ("thread", "a thread of recovery"),
        ("child", "a child process of recovery"),
        ("faulting", "a load that faults, and is repeated when a handler has given the OS page back"),
        ("jumping", "a load that faults, and is left by a jump out of the handler"),
    ):
        yield right(f"load_{name}", f"LOAD={name}", f"recovery loads by {about}")
        yield wrong(f"load_{name}_unordered", f"LOAD={name} BETWEEN=nothing", "the same, of what is not ordered")
    zlib = {"libraries": ("z",), "engine": "traced"}
    yield right("load_zlib", "LOAD=zlib WITH_ZLIB", "recovery loads by zlib's crc32", **zlib)
    yield wrong(
        "load_zlib_unordered", "LOAD=zlib WITH_ZLIB BETWEEN=nothing", "the same, of what is not ordered", **zlib
    )
    by_name = "LOAD=by_name WITH_ZLIB WITH_LOOK_UP"
    yield right("load_by_name", by_name, "the same by dlsym", **zlib)
    yield wrong("load_by_name_unordered", f"{by_name} BETWEEN=nothing", "and that of what is not ordered", **zlib)
    for name, about in (
        ("program", "another program, by popen"),
        ("forked_program", "another program, by vfork"),
        ("clone", "a child process by the C library's clone"),
        ("clone_shared", "the same, which shares its memory"),
        ("clone_number", "a child process by syscall and the number of clone"),
        ("clone3_number", "a child process by syscall and the number of clone3"),
    ):
        # Of a second session in the trace nobody would know what the program stores.
        more: dict[str, Any] = {"complete": False, "engine": "isolated", "workload": ONE_SESSION}
        yield right(f"load_{name}", f"LOAD={name}", f"recovery loads by {about}", **more)
        unordered = f"LOAD={name} BETWEEN=nothing"
        yield wrong(f"load_{name}_unordered", unordered, "the same, of what is not ordered", **more)
        traced = {**more, "options": {"replay_engine": "traced"}}
        yield right(f"load_{name}_traced", f"LOAD={name}", "the same, in the traced engine first", **traced)
    yield right("load_bare_fork", "LOAD=bare_fork", "recovery loads by a child process of _Fork")
    yield wrong("load_bare_fork_unordered", "LOAD=bare_fork BETWEEN=nothing", "the same, of what is not ordered")
    # No engine follows that process. What a long life shows is true all the same.
    define, about = "LOAD=clone_instruction", "recovery loads by a child process of the syscall instruction"
    yield Case("load_clone_instruction", define, about, "unknown", complete=False, workload=ONE_SESSION)
    unordered = f"{define} BETWEEN=nothing"
    yield wrong(
        "load_clone_instruction_unordered", unordered, f"{about}, not ordered", complete=False, workload=ONE_SESSION
    )
    for name, about in (("then_exec", "recovery becomes another program"), ("then_exec_number", "the same by number")):
        yield right(f"load_{name}", f"LOAD={name}", f"{about} where b is ahead, which it never is")
        unordered = f"LOAD={name} BETWEEN=nothing"
        yield wrong(f"load_{name}_unordered", unordered, "the same, and it is", "FL001", complete=None)
    always: dict[str, Any] = {"complete": False, "workload": ONE_SESSION}
    yield wrong("load_exec", "LOAD=exec", "recovery becomes another program each time", "FL017", **always)
    yield right("load_alias", "LOAD=alias ALIAS", "recovery loads by another mapping")
    yield wrong("load_alias_unordered", "LOAD=alias ALIAS BETWEEN=nothing", "the same, of what is not ordered")


def ways_to_recover() -> Iterator[Case]:
    for name, about, libraries in (
        ("in_thread", "a thread", ()),
        ("in_handler", "a signal handler", ()),
        ("faulting", "a store that faults, and is repeated when a handler has made the OS page writable", ()),
        ("in_child", "a child process", ()),
        ("by_pwrite", "pwrite and fdatasync", ()),
        ("by_second_descriptor", "pwrite by a second descriptor, and fsync", ()),
        ("by_exchange", "lock cmpxchg", ()),
        ("by_stream", "non-temporal stores", ()),
        ("by_libpmem", "libpmem's functions", ("pmem",)),
        ("by_vm_writev", "process_vm_writev, a flush and a fence", ()),
        ("and_punch", "punching the record away", ()),
        ("and_allocate", "fallocate of the whole file first", ()),
    ):
        more: dict[str, Any] = {"options": SECOND_CRASH, "libraries": libraries}
        yield right(f"apply_{name}", f"APPLY={name}", f"recovery applies its record by {about}", **more)
        forgets = f"APPLY={name} FORGETS"
        yield wrong(
            f"apply_{name}_forgets", forgets, "the same, not persisted before the record is done", "FL014", **more
        )
    for name, about in (("clone", "the C library's clone"), ("clone_number", "syscall and the number of clone")):
        define, about = f"APPLY=in_{name}", f"recovery applies its record by a child process of {about}"
        yield right(f"apply_in_{name}", define, about, complete=False, engine="isolated")
    define, about = "APPLY=in_clone_instruction", "the same by the syscall instruction"
    yield Case("apply_in_clone_instruction", define, about, "unknown", complete=False)


def other_habits() -> Iterator[Case]:
    hanging: dict[str, Any] = {"options": {"time_limit_s": 40.0}, "complete": None, "workload": ONE_SESSION}
    yield right("mutex", "MUTEX", "a pthread mutex in PM, made anew by recovery")
    asleep: dict[str, Any] = {
        **hanging,
        "options": {"time_limit_s": 120.0},
        "hung": "lock: 5 s asleep",
    }  # each look at it
    yield wrong("mutex_stays", "MUTEX STAYS_LOCKED", "the same, not made anew", "FL002", **asleep)
    yield right("spin", "SPIN", "a spin lock in PM, released by recovery")
    busy = "load_plain: 1 s of processor time"
    yield wrong("spin_stays", "SPIN STAYS_LOCKED", "the same, not released", "FL002", **hanging, hung=busy)
    yield right("getrandom", "IDENTITY=getrandom", "getrandom into the mapped head, in create")
    yield wrong("getrandom_late", "IDENTITY=getrandom IDENTITY_LATE", "the same, when the heap is complete already")
    yield right("urandom", "IDENTITY_FILE", "read of /dev/urandom into the mapped head, in create")
    yield wrong("urandom_late", "IDENTITY_FILE IDENTITY_LATE", "the same, when the heap is complete already")
    yield right("early", "EARLY", "the head is read by pread before it is mapped")
    yield wrong("uncleared", "UNCLEARED", "memory from malloc is taken for zeros", "FL003", "FL010", "FL012")
    for name, bytes_ in (("uncleared_locals", 1024), ("uncleared_deep_locals", 60000)):
        about = f"the same of a local array of {bytes_} bytes"
        yield wrong(name, f"UNCLEARED_LOCALS={bytes_}", about, "FL003", "FL010", "FL012")
    yield wrong("too_large", "TWICE", "a file of twice the limit", "FL011")
    yield right("aside", 'ASIDE=\\"owner\\"', "a file beside the heap's says whose it is")
    yield right("aside_opened", 'ASIDE=\\"owner\\" OPENED', "the same, which only an open makes")
    yield wrong("aside_mapped", 'ASIDE=\\"more\\" MAPPED', "a file of the heap that no walk names", "FL011")
    for name, define in (("function", "KEEPS_FUNCTION"), ("data", "KEEPS_DATA")):
        about = f"PM has the address of a {name} of the program" if name == "function" else "the same of a constant"
        yield wrong(f"keeps_{name}", define, about, "FL015")
        traced: dict[str, Any] = {"engine": "traced", "options": {"replay_engine": "traced"}}
        yield wrong(f"keeps_{name}_traced", define, about, "FL015", **traced)
    about = "a bug that the tracer hides, and a word that may be an address of code"
    yield wrong("hidden_by_the_tracer", "BETWEEN=nothing TRACER_HIDES GATE=0x5000000", about, "FL003")
    yield right("jumps", "JUMPS", "operations that jump out")
    yield right("forks", "FORKS", "a child process while the heap is open")
    yield right("reserves", "RESERVES=(1ul<<36)", "a reservation of 64 GiB")
    for name, define, about in (
        ("arena", "ARENA=(100ul<<30)", "a reservation of 100 GiB, wherever there is room"),
        ("arena_opened", "ARENA=(100ul<<30) ARENA_OPENED", "the same, which only an open makes"),
    ):
        yield right(name, define, about)
        yield right(f"{name}_traced", define, about, engine="traced", options={"replay_engine": "traced"})
    yield right("takes", "TAKES", "a place that is taken is refused with EEXIST")
    yield wrong("loses", "LOSES=16", "each open loses a little", "FL010", "FL011", "FL012")


CASES = (
    *ways_to_persist(),
    *ways_to_undo(),
    *ways_to_store(),
    *ways_to_load(),
    *ways_to_recover(),
    *other_habits(),
)
