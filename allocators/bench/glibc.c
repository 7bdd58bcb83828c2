/* SPDX-License-Identifier: Apache-2.0
 *
 * glibc.c - the C library's malloc and free: what the others are compared with.
 */
#include <stdlib.h>

#include "bench.h"

static bool create(const char *folder, uint64_t limit_bytes) { return (void)folder, (void)limit_bytes, true; }
static bool close_heap(void) { return true; }
static const char *message(void) { return "malloc returned no memory"; }
static void *allocate(unsigned thread, size_t bytes) { return (void)thread, malloc(bytes); }
static void free_object(unsigned thread, void *object) { (void)thread, free(object); }

const struct bench_allocator bench_glibc = {
    .name = "glibc",
    .create = create,
    .close = close_heap,
    .message = message,
    .allocate = allocate,
    .free = free_object,
};
