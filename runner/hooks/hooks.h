/* SPDX-License-Identifier: Apache-2.0
 *
 * hooks/hooks.h - what the assembler of builds with hooks (runner/assembler) announces of instructions. Numbers: instruction.rs, emit.rs.
 */
#ifndef FAULTLINE_HOOKS_H
#define FAULTLINE_HOOKS_H

#include "base/base.h"

enum hook_kind {
    HOOK_LOAD = 1,
    HOOK_STORE,      /* of all bytes */
    HOOK_STORE_SOME, /* of some bytes, or none */
    HOOK_UPDATE,     /* load, then store */
    HOOK_STREAM,     /* non-temporal store */
    HOOK_LOCKED,     /* locked load and store */
    HOOK_LOCKED_IF,  /* the same, a compare-exchange */
    HOOK_UNKNOWN,    /* nobody knows which of these, or how many of the bytes */
    HOOK_STRING,     /* by rsi and rdi. detail: enum hook_string, and the repeat prefix from bit 3 on */
    HOOK_FENCE,      /* detail: enum fl_event_fence */
    HOOK_UNSEEN,     /* address: of a text that says what it is */
    HOOK_SYSTEM_CALL,
    HOOK_FLUSH, /* detail: enum fl_event_flush. Whether it is to be executed: rcx afterwards */
};
enum hook_string { STRING_MOVE = 1, STRING_STORE, STRING_LOAD, STRING_SCAN, STRING_COMPARE };

/* As entry.c has it on the stack: the registers of the target, before the instruction. */
struct hook_call {
    uint32_t kind : 8, bytes : 16, detail : 8, zero;
    const void *address;
    uint64_t flags, r11, r10, r9, r8, rdx, rcx, rax;
    const void *caller; /* the announcement's end: right before the instruction */
    uint64_t rsi, rdi;  /* but for HOOK_FLUSH */
};
_Static_assert(sizeof(struct hook_call) == 13 * 8, "entry.c pushes it");

/* ---- leaving.c */
/* Calls by a library with hooks that leave it are looked at from now on. */
void leaving_watch(void *library);

/* ---- instructions.c */
/* The target comes to a place that hooks do not see; caller: behind it. */
void loads_unseen(const void *caller, const char *what);
/* With the vector registers saved. */
void hook_instruction(struct hook_call *call);

#endif
