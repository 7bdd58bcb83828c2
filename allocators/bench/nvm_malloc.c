/* SPDX-License-Identifier: Apache-2.0
 *
 * nvm_malloc.c - nvm_malloc in the benchmark driver. An allocation is reserve and activate, with one link pointer: what is not
 * linked is lost to the application. The link pointers are words of one object, a line for each thread.
 */
#include "nvm_malloc.h"
#include "bench.h"
#include "persist.h"

struct anchor {
    void *self; /* where it was mapped when it was made */
    uint64_t roots[BENCH_ROOTS]; /* addresses */
    struct {
        uint64_t word;
        uint64_t unused[FL_LINE_BYTES / 8 - 1];
    } links[BENCH_THREADS] __attribute__((aligned(FL_LINE_BYTES)));
};

static struct nvm_heap *heap;
static struct anchor *anchor;
static const char *own_message;

static struct nvm_options options_for(const char *folder, uint64_t limit_bytes) {
    return (struct nvm_options){
        .folder = folder, .heap_bytes = BENCH_HEAP_BYTES, .address_hint = BENCH_ADDRESS, .limit_bytes = limit_bytes};
}

static bool create(const char *folder, uint64_t limit_bytes) {
    struct nvm_options options = options_for(folder, limit_bytes);
    void *object = NULL;
    if (nvm_heap_create(&options, &heap) != NVM_OK || nvm_heap_reserve_id(heap, "anchor", sizeof *anchor, &object) != NVM_OK)
        return false;
    anchor = object;
    *anchor = (struct anchor){.self = anchor};
    fl_persist(anchor, sizeof *anchor);
    return nvm_heap_activate_id(heap, "anchor") == NVM_OK;
}

static bool close_heap(void) { return nvm_heap_close(heap), true; }
static const char *message(void) { return own_message != NULL ? own_message : nvm_message(); }

static void *allocate(unsigned thread, size_t bytes) {
    void *object = NULL;
    if (nvm_heap_reserve(heap, bytes, &object) != NVM_OK ||
        nvm_heap_activate(heap, object, &anchor->links[thread].word, object, NULL, NULL) != NVM_OK)
        return NULL;
    return object;
}

static void free_object(unsigned thread, void *object) {
    if (nvm_heap_free(heap, object, &anchor->links[thread].word, NULL, NULL, NULL) != NVM_OK)
        bench_fail("free", nvm_message());
}

static void set_root(unsigned root, void *object) {
    fl_store8(&anchor->roots[root], (uint64_t)(uintptr_t)object);
    fl_persist(&anchor->roots[root], sizeof anchor->roots[root]);
}

static void *get_root(unsigned root) { return (void *)(uintptr_t)anchor->roots[root]; }

static bool recover(const char *folder, uint64_t limit_bytes) {
    struct nvm_options options = options_for(folder, limit_bytes);
    if (nvm_heap_open(&options, &heap) != NVM_OK)
        return false;
    anchor = nvm_heap_get_id(heap, "anchor");
    own_message = anchor == NULL ? "the anchor is lost" : anchor->self != anchor ? "mapped at another address than before" : NULL;
    return own_message == NULL;
}

static bool check(void) { return nvm_heap_check(heap) == NVM_OK; }

const struct bench_allocator bench_nvm_malloc = {
    .name = "nvm_malloc",
    .create = create,
    .close = close_heap,
    .message = message,
    .allocate = allocate,
    .free = free_object,
    .set_root = set_root,
    .get_root = get_root,
    .recover = recover,
    .check = check,
};
