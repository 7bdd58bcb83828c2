/* SPDX-License-Identifier: Apache-2.0
 *
 * flush.c - flush and fence of the allocator's own metadata, counted for measurements (§13.1, Figure 8) if asked for.
 */
#include "types.h"

#if defined(MAK_COUNT)
static uint64_t flushes, fences;
#define COUNT(counter, by) __atomic_fetch_add(&counter, by, __ATOMIC_RELAXED)
struct MAK_counts MAK_counts(void) {
    return (struct MAK_counts){__atomic_load_n(&flushes, __ATOMIC_RELAXED), __atomic_load_n(&fences, __ATOMIC_RELAXED)};
}
#else
#define COUNT(counter, by) ((void)0)
struct MAK_counts MAK_counts(void) { return (struct MAK_counts){0, 0}; }
#endif

void mak_flush(const void *address, size_t bytes) {
    COUNT(flushes, ((uintptr_t)address % MAK_LINE_BYTES + bytes + MAK_LINE_BYTES - 1) / MAK_LINE_BYTES);
    fl_flush(address, bytes);
}

void mak_fence(void) {
    COUNT(fences, 1);
    fl_fence();
}

void mak_persist(const void *address, size_t bytes) {
    mak_flush(address, bytes);
    mak_fence();
}
