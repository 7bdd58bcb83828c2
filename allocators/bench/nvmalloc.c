/* SPDX-License-Identifier: Apache-2.0
 *
 * nvmalloc.c - NVMalloc (Moraru et al.) in the benchmark driver. It has one root: the objects that roots and words name are found through an
 * object of BENCH_ROOTS offsets, which is the root. Freed memory waits for WAIT_OPERATIONS, allocations and frees, by the logical clock, so
 * that runs are deterministic. The paper's T is 100 ms; its malloc and free took about half a microsecond then, so that these would be
 * many more: what T does is shown for several (`make paper-nvmalloc`).
 */
#include "nvmalloc.h"
#include "bench.h"
#include "persist.h"

enum { WAIT_OPERATIONS = 1000 };

static struct nvmalloc_heap *heap;
static uint64_t *roots; /* offsets */
static uint32_t wait_operations = WAIT_OPERATIONS;
static const char *own_message;

static struct nvmalloc_options options_for(const char *folder, uint64_t limit_bytes) {
    return (struct nvmalloc_options){.folder = folder,
                                     .limit_bytes = limit_bytes,
                                     .address_hint = BENCH_ADDRESS,
                                     .clock = NVMALLOC_CLOCK_OPERATIONS,
                                     .wait_ticks = wait_operations};
}

static bool create(const char *folder, uint64_t limit_bytes) {
    struct nvmalloc_options options = options_for(folder, limit_bytes);
    void *object;
    if (nvmalloc_heap_create(&options, &heap) != NVMALLOC_OK ||
        nvmalloc_heap_allocate(heap, BENCH_ROOTS * sizeof *roots, &object) != NVMALLOC_OK)
        return false;
    roots = object;
    for (unsigned root = 0; root < BENCH_ROOTS; root++)
        roots[root] = 0;
    fl_persist(roots, BENCH_ROOTS * sizeof *roots);
    return nvmalloc_heap_set_root(heap, roots) == NVMALLOC_OK;
}

static bool close_heap(void) { return nvmalloc_heap_close(heap), true; }
static const char *message(void) { return own_message != NULL ? own_message : nvmalloc_message(); }

static void *allocate(unsigned thread, size_t bytes) {
    void *object;
    (void)thread;
    return nvmalloc_heap_allocate(heap, bytes, &object) == NVMALLOC_OK ? object : NULL;
}

static void free_object(unsigned thread, void *object) {
    (void)thread;
    if (nvmalloc_heap_free(heap, object) != NVMALLOC_OK)
        bench_fail("free", nvmalloc_message());
}

static uint64_t word_of(const void *object) { return nvmalloc_heap_offset(heap, object); }
static void *object_of(uint64_t word) { return nvmalloc_heap_address(heap, word); }

static void set_root(unsigned root, void *object) {
    fl_store8(&roots[root], word_of(object));
    fl_persist(&roots[root], sizeof roots[root]);
}

static void *get_root(unsigned root) { return object_of(roots[root]); }

static bool recover(const char *folder, uint64_t limit_bytes) {
    struct nvmalloc_options options = options_for(folder, limit_bytes);
    if (nvmalloc_heap_open(&options, &heap) != NVMALLOC_OK)
        return false;
    roots = nvmalloc_heap_root(heap);
    own_message = roots == NULL ? "the root is lost" : NULL;
    return roots != NULL;
}

static bool check(void) { return nvmalloc_heap_check(heap) == NVMALLOC_OK; }
static void set_wait(uint64_t operations) { wait_operations = (uint32_t)operations; }

const struct bench_allocator bench_nvmalloc = {
    .name = "nvmalloc",
    .create = create,
    .close = close_heap,
    .message = message,
    .allocate = allocate,
    .free = free_object,
    .word_of = word_of,
    .object_of = object_of,
    .set_root = set_root,
    .get_root = get_root,
    .recover = recover,
    .check = check,
    .set_wait = set_wait,
};
