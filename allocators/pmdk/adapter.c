/* SPDX-License-Identifier: Apache-2.0
 *
 * libpmemobj as a distribution ships it, unmodified, by its atomic interface. The heap is one pool, file `pool`. A slot is a PMEMoid of
 * an array in the root object.
 *
 *     create, open  pmemobj_create, pmemobj_open; open recovers
 *     close         pmemobj_close, and then pmemobj_check, which wants a pool that nobody has open
 *     allocate      pmemobj_alloc into the slot: its constructor fills the object before it is published
 *     reallocate    a new object is reserved and filled; one publication sets the slot to it and frees the old one
 *     free          pmemobj_free of the slot
 *     walk          the objects, by pmemobj_first and pmemobj_next. The library tells of nothing else: neither of what is free nor of
 *                   its metadata
 *
 * What the library reads from its environment it reads when it is loaded, before a line of this file runs: [environment] of
 * allocator.toml sets it.
 */
#include "adapter.h"
#include "persist.h"
#include <errno.h>
#include <libpmemobj.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "pool"
#define LAYOUT "slots"
#define TYPE 1 /* of all objects */

struct root {
    uint64_t slot_count;
    PMEMoid slots[];
};

struct fl_heap {
    PMEMobjpool *pool;
    PMEMoid root_oid;
    struct root *root;
    char path[PATH_MAX];
};

static _Thread_local char reason[400];

static int fail(int status, const char *what) {
    snprintf(reason, sizeof reason, "%s: %s", what, pmemobj_errormsg());
    return status;
}

static int fail_to_allocate(const char *what) { return fail(errno == ENOMEM ? FL_OUT_OF_MEMORY : FL_ERROR, what); }

static const char *message(void) { return reason; }

/* An offset in a PMEMoid is one from the start of the pool, and so of its file. */
static void *object_at(const fl_heap *heap, PMEMoid oid) { return (char *)heap->pool + oid.off; }

static PMEMoid oid_at(const fl_heap *heap, uint64_t offset) { return (PMEMoid){heap->root_oid.pool_uuid_lo, offset}; }

/* ---- the heap ---- */

static fl_heap *heap_in(const char *folder) {
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL || snprintf(heap->path, sizeof heap->path, "%s/" FILE_NAME, folder) >= (int)sizeof heap->path) {
        snprintf(reason, sizeof reason, "%s: %s", folder, heap == NULL ? "no memory" : "the path is too long");
        free(heap);
        return NULL;
    }
    return heap;
}

static int give_up(fl_heap *heap, int status) {
    if (heap->pool != NULL)
        pmemobj_close(heap->pool);
    free(heap);
    return status;
}

static int find_slots(fl_heap *heap, size_t root_bytes, fl_heap **out) {
    heap->root_oid = pmemobj_root(heap->pool, root_bytes);
    if (OID_IS_NULL(heap->root_oid))
        return give_up(heap, fail(FL_ERROR, "pmemobj_root"));
    heap->root = object_at(heap, heap->root_oid);
    *out = heap;
    return FL_OK;
}

static int create(const struct fl_heap_options *options, fl_heap **out) {
    fl_heap *heap = heap_in(options->folder);
    if (heap == NULL)
        return FL_ERROR;
    heap->pool = pmemobj_create(heap->path, LAYOUT, options->heap_bytes, 0600);
    if (heap->pool == NULL)
        return give_up(heap, fail(FL_ERROR, "pmemobj_create"));
    return find_slots(heap, sizeof(struct root) + options->slot_count * sizeof(PMEMoid), out);
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    fl_heap *heap = heap_in(options->folder);
    if (heap == NULL)
        return FL_ERROR;
    heap->pool = pmemobj_open(heap->path, LAYOUT);
    if (heap->pool == NULL)
        return give_up(heap, fail(errno == ENOENT ? FL_NOT_A_HEAP : FL_ERROR, "pmemobj_open"));
    size_t root_bytes = pmemobj_root_size(heap->pool);
    if (root_bytes == 0) {
        snprintf(reason, sizeof reason, "%s: the pool has no root object", heap->path);
        return give_up(heap, FL_NOT_A_HEAP);
    }
    return find_slots(heap, root_bytes, out);
}

/* The library looks at every log of the pool whenever it opens it, whatever the close before that left there. */
static int has_recovered(const fl_heap *heap) { return (void)heap, 1; }

static int check_closed(const char *path) {
    int is_consistent = pmemobj_check(path, LAYOUT);
    if (is_consistent == 1)
        return FL_OK;
    return fail(is_consistent == 0 ? FL_CORRUPT : FL_ERROR, "pmemobj_check");
}

static int close_heap(fl_heap *heap) {
    pmemobj_close(heap->pool);
    int status = check_closed(heap->path);
    free(heap);
    return status;
}

static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? FILE_NAME : NULL; }

/* ---- objects ---- */

struct filling {
    fl_fill fill;
    void *context;
    uint64_t bytes;
};

static int construct(PMEMobjpool *pool, void *object, void *argument) {
    const struct filling *filling = argument;
    (void)pool;
    filling->fill(filling->context, object, 0, filling->bytes);
    return 0;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    struct filling filling = {fill, context, bytes};
    if (pmemobj_alloc(heap->pool, &heap->root->slots[slot], bytes, TYPE, construct, &filling) != 0)
        return fail_to_allocate("pmemobj_alloc");
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    pmemobj_free(&heap->root->slots[slot]);
    return FL_OK;
}

static void fill_moved(const fl_heap *heap, PMEMoid from, PMEMoid to, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill,
                       void *context) {
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    memcpy(object_at(heap, to), object_at(heap, from), kept);
    fl_persist(object_at(heap, to), kept);
    if (kept < new_bytes)
        fill(context, object_at(heap, to), kept, new_bytes - kept);
}

/* pmemobj_realloc has no constructor: what it adds to an object would be published before it is filled. */
static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    struct pobj_action actions[4];
    PMEMoid *held = &heap->root->slots[slot], before = *held;
    PMEMoid after = pmemobj_reserve(heap->pool, &actions[0], new_bytes, TYPE);
    if (OID_IS_NULL(after))
        return fail_to_allocate("pmemobj_reserve");
    fill_moved(heap, before, after, old_bytes, new_bytes, fill, context);
    pmemobj_set_value(heap->pool, &actions[1], &held->off, after.off);
    pmemobj_set_value(heap->pool, &actions[2], &held->pool_uuid_lo, after.pool_uuid_lo);
    pmemobj_defer_free(heap->pool, before, &actions[3]);
    return pmemobj_publish(heap->pool, actions, 4) == 0 ? FL_OK : fail(FL_ERROR, "pmemobj_publish");
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    PMEMoid oid = heap->root->slots[slot];
    *location = (struct fl_location){0, oid.off != 0, oid.off};
    return FL_OK;
}

static struct fl_block block_of(PMEMoid oid) {
    return (struct fl_block){0, FL_BLOCK_ALLOCATED, oid.off, pmemobj_alloc_usable_size(oid)};
}

static int walk(fl_heap *heap, fl_visit visit, void *context) {
    for (PMEMoid oid = pmemobj_first(heap->pool); !OID_IS_NULL(oid); oid = pmemobj_next(oid)) {
        struct fl_block block = block_of(oid);
        visit(context, &block);
    }
    return FL_OK;
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    *block = block_of(oid_at(heap, object->offset));
    return FL_OK;
}

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {.abi_version = FL_ADAPTER_ABI,
                                            .struct_size = sizeof table,
                                            .name = "pmdk",
                                            .capabilities = FL_CAN_WALK | FL_CAN_BOUNDS,
                                            .create = create,
                                            .open = open_heap,
                                            .close = close_heap,
                                            .allocate = allocate,
                                            .free = free_slot,
                                            .reallocate = reallocate,
                                            .read_slot = read_slot,
                                            .file_name = file_name,
                                            .message = message,
                                            .walk = walk,
                                            .bounds = bounds,
                                            .has_recovered = has_recovered};
    return &table;
}
