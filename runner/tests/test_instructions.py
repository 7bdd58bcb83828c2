# SPDX-License-Identifier: Apache-2.0
"""The assembler of builds with hooks (runner/assembler): what it announces of each spelling of an instruction, and that an
announcement leaves no trace in registers, flags, red zone, vectors and memory. The instructions are executed, with and without
announcements, from random states (instructions/driver.c)."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from faultline.pipeline.build import assembled_by, assembler

HERE = Path(__file__).resolve().parent / "instructions"
ROOT = HERE.parents[2]
ROUNDS = 300
REGISTERS = ["rax", "rbx", "rcx", "rdx", "rsi", "rdi", "rbp", "r8", "r9", "r10", "r11", "r12", "r13", "r14", "r15"]
FLAGS, RED_ZONE, STACK, MXCSR, VECTORS = 120, 128, 256, 264, 272

LOAD, STORE, SOME, UPDATE, STREAM, LOCKED, LOCKED_IF, UNKNOWN, FLUSH = 1, 2, 3, 4, 5, 6, 7, 8, 13
CLFLUSH, CLFLUSHOPT, CLWB = 1, 2, 3
SFENCE, MFENCE = "fence:1", "fence:2"
M, FROM = 1024, 2048
"""Where rdi and rsi lead to; rbp: 3072. rbx is 2, rcx is 3."""


def at(kind: int, offset: int | str, size: int, detail: int = 0) -> str:
    return f"{kind}:{M + offset if isinstance(offset, int) else offset}:{size}:{detail}"


def flush(detail: int, offset: int | str = 0) -> str:
    return at(FLUSH, offset, 0, detail)


MOVS, STOS, LODS, SCAS, CMPS = 1, 2, 3, 4, 5
REP, REPNE = 8, 16


def string(detail: int, size: int, source: int = FROM, to: int = M) -> str:
    return f"string:{detail}:{size}:{source}:{to}"


CORPUS: dict[str, tuple[str, list[str]]] = {
    # flushes and fences
    "clflush": ("clflush (%rdi)", [flush(CLFLUSH)]),
    "clflushopt": ("clflushopt 64(%rdi,%rbx,8)", [flush(CLFLUSHOPT, 80)]),
    "clwb": ("clwb 8(%r8)", [flush(CLWB, 8)]),
    "clwb_of_rbp": ("clwb (%rbp)", [flush(CLWB, 2048)]),
    "clwb_of_the_stack": ("clwb 16(%rsp,%rbx,8)", [flush(CLWB, "stack+32")]),
    "clwb_of_rcx": ("leaq (%rdi), %rcx; clwb (%rcx)", [flush(CLWB)]),
    "clwb_twice": ("clwb (%rdi); clwb 64(%rdi)", [flush(CLWB), flush(CLWB, 64)]),
    "clflushopt_by_prefix": (".byte 0x66; clflush 8(%rdi)", [flush(CLFLUSHOPT, 8)]),
    "clwb_by_prefix": (".byte 0x66; xsaveopt (%rdi)", [flush(CLWB)]),
    "clwb_by_bytes": (".byte 0x66, 0x0f, 0xae, 0x37", [flush(CLWB)]),
    "clwb_and_sfence_by_bytes": (".byte 0x66, 0x0f, 0xae, 0x37, 0x0f, 0xae, 0xf8", [flush(CLWB), SFENCE]),
    "clwb_of_intel": (
        ".intel_syntax noprefix; clwb byte ptr [rdi + rbx*4 + 8]; .att_syntax prefix",
        [flush(CLWB, 16)],
    ),
    "clwb_relative": ("clwb the_state(%rip)", []),
    "sfence": ("sfence", [SFENCE]),
    "mfence": ("mfence", [MFENCE]),
    "lfence": ("lfence", []),
    # non-temporal stores
    "movnti": ("movnti %rax, 8(%rdi)", [at(STREAM, 8, 8)]),
    "movntil": ("movntil %r12d, 4(%rdi)", [at(STREAM, 4, 4)]),
    "movntdq": ("movntdq %xmm3, 16(%rdi)", [at(STREAM, 16, 16)]),
    "movntps": ("movntps %xmm3, (%rdi)", [at(STREAM, 0, 16)]),
    "movntpd": ("movntpd %xmm3, (%rdi)", [at(STREAM, 0, 16)]),
    "vmovntdq": ("vmovntdq %ymm3, 32(%rdi)", [at(STREAM, 32, 32)]),
    "vmovntps": ("vmovntps %ymm3, 32(%rdi)", [at(STREAM, 32, 32)]),
    # locked
    "xchg": ("xchgq %rax, (%rdi)", [at(LOCKED, 0, 8)]),
    "xchg_of_registers": ("xchgq %rax, %rdx", []),
    "xchgb": ("xchgb %al, 3(%rdi)", [at(LOCKED, 3, 1)]),
    "lock_xadd": ("lock xaddq %rax, (%rdi)", [at(LOCKED, 0, 8)]),
    "lock_incl": ("lock incl (%rdi)", [at(LOCKED, 0, 4)]),
    "lock_apart": ("lock; incl (%rdi)", [at(LOCKED, 0, 4)]),
    "lock_by_byte": (".byte 0xf0; incl (%rdi)", [at(LOCKED, 0, 4)]),
    "lock_or_of_the_stack": ("lock orq $0, (%rsp)", ["6:0:8:0"]),
    "lock_cmpxchg": ("lock cmpxchgq %rdx, (%rdi)", [at(LOCKED_IF, 0, 8)]),
    "lock_cmpxchg_done": (
        "movq (%rdi), %rax; lock cmpxchgq %rdx, (%rdi)",
        [at(LOAD, 0, 8), at(LOCKED_IF, 0, 8)],
    ),
    "lock_cmpxchg8b": ("lock cmpxchg8b (%rdi)", [at(LOCKED_IF, 0, 8, 1)]),
    "lock_cmpxchg16b": ("lock cmpxchg16b 16(%rdi)", [at(LOCKED_IF, 16, 16, 1)]),
    "lock_cmpxchg16b_done": (
        "movq (%rdi), %rax; movq 8(%rdi), %rdx; lock cmpxchg16b (%rdi)",
        [at(LOAD, 0, 8), at(LOAD, 8, 8), at(LOCKED_IF, 0, 16, 1)],
    ),
    "cmpxchg": ("cmpxchgq %rdx, (%rdi)", [at(UPDATE, 0, 8)]),
    # loads and stores
    "movq_store": ("movq %rax, 8(%rdi)", [at(STORE, 8, 8)]),
    "movb_store": ("movb $5, (%rdi,%rbx)", [at(STORE, 2, 1)]),
    "movq_load": ("movq (%rdi), %rdi", [at(LOAD, 0, 8)]),
    "movzbl_load": ("movzbl 7(%rdi), %eax", [at(LOAD, 7, 1)]),
    "movq_load_of_intel": (
        ".intel_syntax noprefix; mov rax, [rdi+8]; mov qword ptr [rdi], rax; .att_syntax prefix",
        [at(LOAD, 8, 8), at(STORE, 0, 8)],
    ),
    "cmp_load": ("cmpq %rax, (%rdi)", [at(LOAD, 0, 8)]),
    "cmov_load": ("cmovcq (%rdi), %rax", [at(LOAD, 0, 8)]),
    "addq": ("addq %rax, (%rdi)", [at(UPDATE, 0, 8)]),
    "setc": ("setc (%rdi)", [at(STORE, 0, 1)]),
    "push_memory": ("pushq (%rdi); leaq 8(%rsp), %rsp; movq %rax, -8(%rsp)", [at(LOAD, 0, 8)]),
    "bt_of_a_number": ("btq $5, (%rdi)", [at(LOAD, 0, 8)]),
    "bts_of_a_register": ("btsq %rbx, (%rdi)", ["unseen:a bit of a bit string, wherever that lies"]),
    "xlat": ("leaq (%rdi), %rbx; movb $3, %al; xlatb; movl $2, %ebx", [at(LOAD, 3, 1)]),
    "fstp": ("fld1; fstpl (%rdi)", [at(STORE, 0, 8)]),
    "movups_store": ("movups %xmm7, 4(%rdi)", [at(STORE, 4, 16)]),
    "movhps_store": ("movhps %xmm7, 8(%rdi)", [at(STORE, 8, 8)]),
    "movhps_load": ("movhps 8(%rdi), %xmm7", [at(LOAD, 8, 8)]),
    "vmovdqu_across_lines": ("vmovdqu %ymm9, 40(%rdi)", [at(STORE, 40, 32)]),
    "vmovdqu_load": ("vmovdqu 40(%rdi), %ymm9", [at(LOAD, 40, 32)]),
    "vpaddd_load": ("vpaddd (%rdi), %ymm1, %ymm9", [at(LOAD, 0, 32)]),
    "vpmaskmovq_store": ("vpmaskmovq %ymm1, %ymm2, (%rdi)", [at(SOME, 0, 32)]),
    "maskmovdqu": ("maskmovdqu %xmm1, %xmm2", [at(SOME, 0, 16)]),
    "vpgatherqq": (
        "vpxor %ymm1, %ymm1, %ymm1; vpcmpeqd %ymm2, %ymm2, %ymm2; vpgatherqq %ymm2, (%rdi,%ymm1,8), %ymm0",
        ["unseen:a gather or scatter"],
    ),
    "fxsave": ("fxsave64 (%rdi)", [at(SOME, 0, 512)]),
    # strings
    "rep_movsb": ("rep movsb", [string(MOVS | REP, 1)]),
    "rep_movsq": ("rep movsq", [string(MOVS | REP, 8)]),
    "rep_apart": ("rep; movsl", [string(MOVS | REP, 4)]),
    "rep_movsb_backward": ("std; rep movsb; cld", [string(MOVS | REP, 1)]),
    "movsb": ("movsb", [string(MOVS, 1)]),
    "rep_stosq": ("rep stosq", [string(STOS | REP, 8)]),
    "lodsb": ("lodsb", [string(LODS, 1)]),
    "repne_scasb": ("repne scasb", [string(SCAS | REPNE, 1)]),
    "repe_cmpsb": ("repe cmpsb", [string(CMPS | REP, 1)]),
    # statements
    "repeated": (
        ".rept 2; movq %rax, (%rdi); addq $8, %rdi; .endr",
        [at(STORE, 0, 8), at(STORE, 8, 8)],
    ),
    "of_a_macro": (
        ".macro store_NUMBER where; movq %rax, \\where; movq %rdx, 8\\where; .endm; store_NUMBER (%rdi)",
        [at(STORE, 0, 8), at(STORE, 8, 8)],
    ),
    "labelled": ("1: movq %rax, (%rdi); decq %rcx; jnz 1b", 3 * [at(STORE, 0, 8)]),
    "looped": ("1: movq %rax, (%rdi,%rcx,8); movq (%rdi), %rdx; sfence; mfence; clwb (%rdi); loop 1b", []),
    "jrcxz": ("xorl %ecx, %ecx; jrcxz 2f; " + 9 * "movq %rax, (%rdi); " + "2: movq %rax, 8(%rdi)", [at(STORE, 8, 8)]),
    # what is no PM, and what is no access
    "relative": ("movq the_state(%rip), %rax", []),
    "of_the_thread": ("movq %fs:0, %rax", []),
    "of_the_stack": ("movq %rax, -64(%rsp)", []),
    "lea": ("leaq 8(%rdi), %rax", []),
    "prefetch": ("prefetcht0 (%rdi)", []),
    "nop": ("nopl 8(%rdi)", []),
    # the kernel
    "system_call": ("movl $39, %eax; syscall; xorl %ecx, %ecx; xorl %r11d, %r11d", ["syscall:39"]),
}
LOOPED = [at(STORE, 24, 8), at(LOAD, 0, 8), SFENCE, MFENCE, flush(CLWB)]
CORPUS["looped"] = (CORPUS["looped"][0], [*LOOPED, at(STORE, 16, 8), *LOOPED[1:], at(STORE, 8, 8), *LOOPED[1:]])


def function(prefix: str, number: int, text: str) -> str:
    lines = [f".globl {prefix}{number}", f".type {prefix}{number}, @function", f"{prefix}{number}:"]
    kept = ("rbx", "rbp", "r12", "r13", "r14", "r15")
    lines += [f"pushq %{name}" for name in kept]
    lines += [f"vmovdqu the_state+{VECTORS + 32 * i}(%rip), %ymm{i}" for i in range(16)]
    lines += [f"ldmxcsr the_state+{MXCSR}(%rip)", f"pushq the_state+{FLAGS}(%rip)", "popfq"]
    for i in range(16):
        lines += [f"movq the_state+{RED_ZONE + 8 * i}(%rip), %rax", f"movq %rax, {8 * i - 128}(%rsp)"]
    lines += [f"movq the_state+{8 * i}(%rip), %{name}" for i, name in enumerate(REGISTERS)]
    lines += [text.replace("NUMBER", str(number))]
    lines += [f"movq %{name}, the_state+{8 * i}(%rip)" for i, name in enumerate(REGISTERS)]
    lines += [f"movq %rsp, the_state+{STACK}(%rip)"]
    for i in range(16):
        lines += [f"movq {8 * i - 128}(%rsp), %rax", f"movq %rax, the_state+{RED_ZONE + 8 * i}(%rip)"]
    lines += ["pushfq", f"popq the_state+{FLAGS}(%rip)", "cld", f"stmxcsr the_state+{MXCSR}(%rip)"]
    lines += [f"vmovdqu %ymm{i}, the_state+{VECTORS + 32 * i}(%rip)" for i in range(16)]
    lines += ["vzeroupper", *(f"popq %{name}" for name in reversed(kept)), "ret"]
    return "\n".join(f'"{line.replace(chr(92), chr(92) * 2)}\\n"' for line in lines)


def sources(prefix: str) -> str:
    functions = [f"__asm__({function(prefix, i, text)});" for i, (text, _) in enumerate(CORPUS.values())]
    return "\n".join(['#include "state.h"', *functions, ""])


def table() -> str:
    declared = [f"void plain{i}(void), announced{i}(void);" for i in range(len(CORPUS))]
    items = [f'{{"{name}", plain{i}, announced{i}}},' for i, name in enumerate(CORPUS)]
    return "\n".join(['#include "state.h"', *declared, "const struct corpus corpus[] = {", *items, "{0}};", ""])


def compilers() -> list[str]:
    return [name for name in ("gcc", "clang") if subprocess.run(["which", name], capture_output=True).returncode == 0]


def features() -> set[str]:
    text = Path("/proc/cpuinfo").read_text()
    return set(next(line for line in text.splitlines() if line.startswith("flags")).split())


def built(folder: Path, compiler: str) -> Path:
    (folder / "plain.c").write_text(sources("plain"))
    (folder / "announced.c").write_text(sources("announced"))
    (folder / "table.c").write_text(table())
    include = [f"-I{HERE}", f"-I{ROOT / 'runner'}", f"-I{ROOT / 'include'}"]
    flags = ["-std=gnu11", "-O2", "-g", "-Wall", "-Wextra", "-mavx2", *include]
    announced = [assembled_by(assembler()), *(["-fno-integrated-as"] if compiler == "clang" else [])]
    for source, more in (
        (folder / "plain.c", []),
        (folder / "announced.c", announced),
        (folder / "table.c", []),
        (HERE / "driver.c", []),
        (ROOT / "runner/hooks/entry.c", ["-mno-avx"]),
    ):
        which = "gcc" if source.name == "entry.c" else compiler
        command = [which, *flags, *more, "-c", "-o", folder / f"{source.stem}.o", source]
        subprocess.run(command, check=True)
    objects = [folder / f"{name}.o" for name in ("plain", "announced", "table", "driver", "entry")]
    subprocess.run([compiler, "-no-pie", "-o", folder / "driver", *objects], check=True)
    return folder / "driver"


@pytest.mark.parametrize("compiler", compilers())
def test_each_instruction_is_announced_as_what_it_does_and_leaves_what_it_leaves_without(
    tmp_path: Path, compiler: str
) -> None:
    if not {"avx2", "clwb", "clflushopt"} <= features():
        pytest.skip("this processor lacks instructions of the corpus")
    run = subprocess.run([built(tmp_path, compiler), str(ROUNDS)], capture_output=True, text=True, timeout=120)
    assert run.returncode == 0, run.stdout[-500:] + run.stderr
    found = {}
    for line in run.stdout.splitlines():
        name, _, rest = line.partition(" ")
        found[name] = rest
    expected = {name: " ".join(announced) for name, (_, announced) in CORPUS.items()}
    assert {name: found.get(name) for name in expected if found.get(name) != expected[name]} == {}
