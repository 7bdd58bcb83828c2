/* SPDX-License-Identifier: Apache-2.0
 *
 * libpmemobj as a distribution ships it, unmodified, by its atomic interface. The heap is a pool (pool.h).
 *
 *     allocate      pmemobj_alloc into the slot: its constructor fills the object before it is published
 *     reallocate    a new object is reserved and filled; one publication sets the slot to it and frees the old one
 *     free          pmemobj_free of the slot
 */
#include "persist.h"
#include "pool.h"
#include <string.h>

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
    if (pmemobj_alloc(heap->pool, &heap->root->slots[slot], bytes, OBJECT_TYPE, construct, &filling) != 0)
        return pool_fail_to_allocate("pmemobj_alloc");
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
    PMEMoid after = pmemobj_reserve(heap->pool, &actions[0], new_bytes, OBJECT_TYPE);
    if (OID_IS_NULL(after))
        return pool_fail_to_allocate("pmemobj_reserve");
    fill_moved(heap, before, after, old_bytes, new_bytes, fill, context);
    pmemobj_set_value(heap->pool, &actions[1], &held->off, after.off);
    pmemobj_set_value(heap->pool, &actions[2], &held->pool_uuid_lo, after.pool_uuid_lo);
    pmemobj_defer_free(heap->pool, before, &actions[3]);
    return pmemobj_publish(heap->pool, actions, 4) == 0 ? FL_OK : pool_fail(FL_ERROR, "pmemobj_publish");
}

const struct fl_adapter *faultline_adapter(void) { return pool_adapter("pmdk", allocate, free_slot, reallocate); }
