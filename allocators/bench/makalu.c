/* SPDX-License-Identifier: Apache-2.0
 *
 * makalu.c - Makalu in the benchmark driver.
 */
#include "makalu.h"
#include "bench.h"

static bool create(const char *folder, uint64_t limit_bytes) {
    const struct MAK_options options = {folder, BENCH_HEAP_BYTES, limit_bytes, BENCH_ADDRESS};
    return MAK_start(&options) == MAK_OK;
}

static bool close_heap(void) { return MAK_close() == MAK_OK; }
static void *allocate(unsigned thread, size_t bytes) { return (void)thread, MAK_malloc(bytes); }
static void free_object(unsigned thread, void *object) { (void)thread, MAK_free(object); }
static void set_root(unsigned root, void *object) { MAK_set_root(root, object); }
static void *get_root(unsigned root) { return MAK_get_root(root); }
static bool recover(const char *folder, uint64_t limit_bytes) { return (void)limit_bytes, MAK_start_off(folder) == MAK_OK; }
static bool collect(void) { return MAK_collect() == MAK_OK; }
static bool check(void) { return MAK_check() == MAK_OK; }

const struct bench_allocator bench_makalu = {
    .name = "makalu",
    .create = create,
    .close = close_heap,
    .message = MAK_message,
    .allocate = allocate,
    .free = free_object,
    .set_root = set_root,
    .get_root = get_root,
    .recover = recover,
    .collect = collect,
    .check = check,
};
