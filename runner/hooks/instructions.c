/* SPDX-License-Identifier: Apache-2.0
 *
 * What becomes of an instruction that announced itself (hooks.h). An announcement comes right before its instruction, so what the
 * instruction will do can be said: also whether a compare-exchange stores, and how far a repeated string instruction goes.
 *
 * What cannot be said is *unseen*: the run says so (FL_LOADS_UNSEEN), with the place, and is not done in-process.
 */
#include "hooks/hooks.h"
#include "base/traced.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>

#define DIRECTION_FLAG 0x400u

/* ---- what hooks do not see ------------------------------------------------------------------------------------------------------ */

void loads_unseen(const void *caller, const char *what) {
    char text[200];
    Dl_info module = {0};
    const char *name = "?", *slash;
    if (is_traced || (!loads_is_recording() && !inprocess_is_running()))
        return;
    if (dladdr(caller, &module) != 0 && module.dli_fname != NULL)
        name = (slash = strrchr(module.dli_fname, '/')) != NULL ? slash + 1 : module.dli_fname;
    snprintf(text, sizeof text, "%s+0x%llx: %s", name, (unsigned long long)((uintptr_t)caller - 1 - (uintptr_t)module.dli_fbase),
             what);
    inprocess_leave("comes to a place that hooks do not see");
    loads_unknown(FL_LOADS_UNSEEN, text);
}

static bool is_pm(const void *address, uint64_t bytes) {
    uintptr_t start = (uintptr_t)address, end = start + bytes;
    bool is_there = fl_hook_near.bytes > 0;
    return is_there && start < fl_hook_near.start + fl_hook_near.bytes && (end > fl_hook_near.start || end < start);
}

/* System calls that access no memory of their caller, or what a pointer leads to that is given to them. */
static void make_system_call(const struct hook_call *call) {
    static const uint16_t WITHOUT_MEMORY[] = {SYS_getpid,  SYS_gettid, SYS_getppid, SYS_getuid,
                                              SYS_geteuid, SYS_getgid, SYS_getegid, SYS_sched_yield};
    static const uint16_t BY_POINTER[] = {SYS_clock_gettime, SYS_gettimeofday, SYS_time, SYS_getcpu, SYS_nanosleep, SYS_futex};
    const uint64_t arguments[] = {call->rdi, call->rsi, call->rdx, call->r10, call->r8, call->r9};
    char text[64];
    for (size_t i = 0; i < sizeof WITHOUT_MEMORY / sizeof *WITHOUT_MEMORY; i++)
        if (call->rax == WITHOUT_MEMORY[i])
            return;
    bool is_given_pm = false, is_by_pointer = false;
    for (size_t i = 0; i < sizeof arguments / sizeof *arguments; i++)
        is_given_pm |= is_pm((const void *)arguments[i], 1);
    for (size_t i = 0; i < sizeof BY_POINTER / sizeof *BY_POINTER; i++)
        is_by_pointer |= call->rax == BY_POINTER[i];
    if (is_by_pointer && !is_given_pm)
        return;
    snprintf(text, sizeof text, "a system call by an instruction, number %llu", (unsigned long long)call->rax);
    loads_unseen(call->caller, text);
}

/* ---- loads and stores ------------------------------------------------------------------------------------------------------------ */

static void load(const struct hook_call *call, const void *address, uint64_t bytes) {
    loads_caller = call->caller;
    loads_read(address, bytes);
    loads_caller = NULL;
}

static void store(const struct hook_call *call, const void *address, uint64_t bytes) {
    loads_caller = call->caller;
    loads_written(address, bytes);
    loads_caller = NULL;
    if (events_by_hooks())
        events_will_execute_store(address, bytes, call->caller);
}

static void store_some(const struct hook_call *call) {
    loads_caller = call->caller;
    loads_stored(call->address, call->bytes);
    loads_caller = NULL;
    if (events_by_hooks())
        loads_unseen(call->caller, "a store of some of its bytes");
}

static void update(const struct hook_call *call) {
    loads_caller = call->caller;
    loads_updated(call->address, call->bytes);
    loads_caller = NULL;
}

/* The accumulator is what is there. detail: it is rdx:rax, each half as wide. */
static bool will_exchange(const struct hook_call *call) {
    uint8_t wanted[16];
    bool is_pair = call->detail != 0;
    size_t half = is_pair ? call->bytes / 2 : call->bytes;
    memcpy(wanted, &call->rax, half);
    if (is_pair)
        memcpy(wanted + half, &call->rdx, half);
    loads_open(call->address, call->bytes);
    return memcmp(wanted, call->address, call->bytes) == 0;
}

static void lock(const struct hook_call *call) {
    bool is_near = loads_are_near(call->address);
    if (is_near)
        update(call);
    if (events_by_hooks())
        events_will_exchange(call->address, call->bytes, is_near && (call->kind == HOOK_LOCKED || will_exchange(call)),
                             call->caller);
}

/* ---- string instructions ---------------------------------------------------------------------------------------------------------- */

/* The first byte of count elements of which the first one is there. */
static const uint8_t *start_of(const struct hook_call *call, uint64_t pointer, uint64_t count) {
    bool is_backward = (call->flags & DIRECTION_FLAG) != 0;
    return (const uint8_t *)(is_backward ? pointer - (count - 1) * call->bytes : pointer);
}

static void load_element(const struct hook_call *call, const uint8_t *element) {
    if (!loads_are_near(element))
        return;
    load(call, element, call->bytes);
    loads_open(element, call->bytes);
}

/* Element after element, until one decides. */
static void search(const struct hook_call *call, bool is_compare, unsigned repeat, uint64_t count) {
    int64_t step = (call->flags & DIRECTION_FLAG) != 0 ? -(int64_t)call->bytes : call->bytes;
    const uint8_t *left = (const uint8_t *)call->rsi, *right = (const uint8_t *)call->rdi;
    for (; count > 0; count--, left += step, right += step) {
        load_element(call, right);
        if (is_compare)
            load_element(call, left);
        bool is_equal = memcmp(is_compare ? (const void *)left : &call->rax, right, call->bytes) == 0;
        if (repeat == 0 || is_equal != (repeat == 1))
            return;
    }
}

static void string(const struct hook_call *call) {
    enum hook_string kind = (enum hook_string)(call->detail & 7);
    unsigned repeat = call->detail >> 3;
    uint64_t count = repeat == 0 ? 1 : call->rcx, bytes = count * call->bytes;
    if (count == 0)
        return;
    if (kind == STRING_SCAN || kind == STRING_COMPARE) {
        search(call, kind == STRING_COMPARE, repeat, count);
        return;
    }
    const uint8_t *from = start_of(call, call->rsi, count), *to = start_of(call, call->rdi, count);
    if (kind != STRING_STORE && is_pm(from, bytes))
        load(call, from, bytes);
    if (kind != STRING_LOAD && is_pm(to, bytes))
        store(call, to, bytes);
}

/* ---- all of them ------------------------------------------------------------------------------------------------------------------- */

static void act(struct hook_call *call) {
    switch ((enum hook_kind)call->kind) {
    case HOOK_LOAD: load(call, call->address, call->bytes); break;
    case HOOK_STORE: store(call, call->address, call->bytes); break;
    case HOOK_STORE_SOME: store_some(call); break;
    case HOOK_UPDATE:
        update(call);
        if (events_by_hooks())
            events_will_execute_store(call->address, call->bytes, call->caller);
        break;
    case HOOK_STREAM:
        loads_caller = call->caller;
        loads_written(call->address, call->bytes);
        loads_caller = NULL;
        if (events_by_hooks())
            events_will_stream(call->address, call->bytes, call->caller);
        break;
    case HOOK_LOCKED:
    case HOOK_LOCKED_IF: lock(call); break;
    case HOOK_UNKNOWN:
        if (is_pm(call->address, call->bytes))
            loads_unseen(call->caller, "an instruction that is not followed");
        break;
    case HOOK_STRING: string(call); break;
    case HOOK_FENCE: events_fenced((enum fl_event_fence)call->detail, call->caller); break;
    case HOOK_FLUSH: events_flushed((enum fl_event_flush)call->detail, call->address, call->caller); break;
    case HOOK_UNSEEN: loads_unseen(call->caller, call->address); break;
    case HOOK_SYSTEM_CALL: make_system_call(call); break;
    }
}

void hook_instruction(struct hook_call *call) {
    loads_is_by_instruction = true;
    act(call);
    loads_is_by_instruction = false;
}
