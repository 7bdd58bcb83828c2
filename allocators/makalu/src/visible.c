/* SPDX-License-Identifier: Apache-2.0
 *
 * visible.c - eventual visibility of auxiliary metadata (§8.1): a fixed-size hash table of lines that were changed and not
 * flushed yet. A line is flushed when another one needs its place, or at close. Until then it may be on media or not:
 * nobody reads auxiliary metadata after a failure.
 *
 * Callers store first and then name the line. Taking a place is one locked exchange, always, even if the line is there
 * already: it makes the stores visible to whoever takes the place next and flushes for us (a plain look could run ahead of
 * our own stores). The flush of a line that had to go is fenced at once by the thread that made it: a flush is guaranteed
 * by a fence of its own thread only (R5), and the one that closes is another.
 */
#include "types.h"

static uint64_t lines[MAK_VISIBLE_LINES];

static uint64_t *place_of(uint64_t line) {
    uint64_t hash = line / MAK_LINE_BYTES * 0x9e3779b97f4a7c15ull;
    return &lines[hash >> 32 & (MAK_VISIBLE_LINES - 1)];
}

void mak_visible_later(const void *address) {
    uint64_t line = (uint64_t)(uintptr_t)address & ~(uint64_t)(MAK_LINE_BYTES - 1);
    uint64_t before = __atomic_exchange_n(place_of(line), line, __ATOMIC_ACQ_REL);
#if !defined(MUTANT_COLLISION_NOT_FLUSHED)
    if (before != 0 && before != line) /* on x86 this thread's next exchange fences, too: mutate tells no loss of the fence */
        mak_persist((const void *)(uintptr_t)before, MAK_LINE_BYTES);
#else
    (void)before;
#endif
}

/* An auxiliary word. */
void mak_store_later(uint64_t *address, uint64_t value) {
    fl_store8(address, value);
    mak_visible_later(address);
}

/* Before a graceful close (and at the end of a collection), by the only thread that is inside: everything is visible when it
 * returns. */
void mak_visible_now(void) {
    for (uint32_t i = 0; i < MAK_VISIBLE_LINES; i++) {
        uint64_t line = __atomic_load_n(&lines[i], __ATOMIC_ACQUIRE);
        if (line == 0)
            continue;
        __atomic_store_n(&lines[i], 0, __ATOMIC_RELAXED);
        mak_flush((const void *)(uintptr_t)line, MAK_LINE_BYTES);
    }
    mak_fence();
}

/* The region is gone, closed without grace. */
void mak_visible_forget(void) {
    for (uint32_t i = 0; i < MAK_VISIBLE_LINES; i++)
        __atomic_store_n(&lines[i], 0, __ATOMIC_RELAXED);
}
