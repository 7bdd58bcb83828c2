/* SPDX-License-Identifier: Apache-2.0 */
#include "pool.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FILE_NAME "pool"
#define LAYOUT "slots"

static _Thread_local char reason[400];

int pool_fail(int status, const char *what) {
    snprintf(reason, sizeof reason, "%s: %s", what, pmemobj_errormsg());
    return status;
}

int pool_fail_to_allocate(const char *what) { return pool_fail(errno == ENOMEM ? FL_OUT_OF_MEMORY : FL_ERROR, what); }

static const char *message(void) { return reason; }

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
        return give_up(heap, pool_fail(FL_ERROR, "pmemobj_root"));
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
        return give_up(heap, pool_fail(FL_ERROR, "pmemobj_create"));
    return find_slots(heap, sizeof(struct root) + options->slot_count * sizeof(PMEMoid), out);
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    fl_heap *heap = heap_in(options->folder);
    if (heap == NULL)
        return FL_ERROR;
    heap->pool = pmemobj_open(heap->path, LAYOUT);
    if (heap->pool == NULL)
        return give_up(heap, pool_fail(errno == ENOENT ? FL_NOT_A_HEAP : FL_ERROR, "pmemobj_open"));
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
    return pool_fail(is_consistent == 0 ? FL_CORRUPT : FL_ERROR, "pmemobj_check");
}

static int close_heap(fl_heap *heap) {
    pmemobj_close(heap->pool);
    int status = check_closed(heap->path);
    free(heap);
    return status;
}

static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? FILE_NAME : NULL; }

/* ---- what it holds ---- */

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

const struct fl_adapter *
pool_adapter(const char *name, int (*allocate)(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context),
             int (*free_slot)(fl_heap *heap, uint32_t slot),
             int (*reallocate)(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context)) {
    static struct fl_adapter table;
    table = (struct fl_adapter){.abi_version = FL_ADAPTER_ABI,
                                .struct_size = sizeof table,
                                .name = name,
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
