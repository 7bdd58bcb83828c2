/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.h - the heap of adapter.c, as the ways to store, persist, load and recover (the other headers) see it.
 *
 *     OS page 0   line 0: magic, slot_count, identity, sum, opens, kept, version   line 1: a, count_again    line 2: b    line 3: lock
 *                 lines 8 to 11: two copies of a wide value, each across two lines
 *     OS page 1   the redo record, and the undo log
 *     from 2 on   slots: unit | units << 32, 0 where empty; then units of 64 bytes
 */
#ifndef FOREIGN_HEAP_H
#define FOREIGN_HEAP_H

#include "adapter.h"
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

#define LINE_BYTES 64u
#define OS_PAGE_BYTES 4096u
#define WIDE_WORDS 4u

/* A function of which a case uses some and leaves out others. */
#define WAY static __attribute__((unused))

struct record {
    uint64_t is_valid, slot, value;
};

/* What an object held: of cases that take one apart before they free it. */
struct undo {
    uint64_t is_valid, run, spare[6];
    char held[LINE_BYTES * 8];
};

/* 16 bytes into its space: 48 bytes of one line are left, so that 32 bytes from there on are in one, and from 48 on in two. */
struct wide {
    uint64_t before[6];
    _Alignas(16) uint64_t words[WIDE_WORDS];
    uint64_t after[6];
};

struct head {
    uint64_t magic, slot_count, identity[2], sum, opens, kept, version;
    uint64_t a, count_again, spare_a[6];
    uint64_t b, spare_b[7];
    uint64_t spin, spare_spin[7];
    pthread_mutex_t lock;
    _Alignas(512) struct wide wide[2];
    _Alignas(OS_PAGE_BYTES) struct record record;
    _Alignas(LINE_BYTES) struct undo undo;
    _Alignas(OS_PAGE_BYTES) uint64_t slots[];
};
_Static_assert(offsetof(struct head, wide[0].words) % LINE_BYTES == 48, "a wide value lies in two lines");

struct fl_heap {
    struct head *head;
    struct head *alias; /* another mapping of the same file, in cases that have one */
    uint64_t bytes, first, units;
    uint64_t taken, last; /* how many runs since it was opened, and which came last */
    uint8_t *used; /* by unit */
    uint64_t found; /* slots whose units are in it */
    bool is_lazy, has_applied, has_finder;
    pthread_t finder;
    int fd;
    char path[4200];
};

/* Where something of the heap is in its file. */
static inline off_t offset_of(const struct fl_heap *heap, const void *address) {
    return (const char *)address - (const char *)heap->head;
}

/* The same place in the other mapping. */
static inline void *aliased(const struct fl_heap *heap, const void *address) {
    return (char *)heap->alias + offset_of(heap, address);
}

#endif
