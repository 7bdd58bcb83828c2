/* SPDX-License-Identifier: Apache-2.0
 *
 * libpmemobj as a distribution ships it, unmodified, by its transactions: each operation is one. The heap is a pool (../pmdk/pool.h).
 *
 *     allocate      the slot is logged, the object allocated and filled; both are there after the commit, or neither
 *     reallocate    the slot is logged, the object reallocated, and what it has more filled
 *     free          the slot and the object's beginning are logged, that is cleared, as by code that takes an object apart, and the object
 *                   is freed. No more than the lane's own log has room for: a free finds no room for a larger one in a full pool
 *
 * The rollback of what a crash leaves in the middle is the library's: pmemobj_open does it.
 */
#include "../pmdk/pool.h"
#include <string.h>

#define CLEARED_BYTES 1000

/* Logged in the transaction that is open, and so as before when it is rolled back. */
static PMEMoid *logged_slot(fl_heap *heap, uint32_t slot) {
    PMEMoid *held = &heap->root->slots[slot];
    pmemobj_tx_add_range_direct(held, sizeof *held);
    return held;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    volatile int status = FL_OK;
    TX_BEGIN(heap->pool) {
        PMEMoid *held = logged_slot(heap, slot), object = pmemobj_tx_alloc(bytes, OBJECT_TYPE);
        fill(context, object_at(heap, object), 0, bytes);
        *held = object;
    }
    TX_ONABORT { status = pool_fail_to_allocate("the transaction of allocate"); }
    TX_END
    return status;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    volatile int status = FL_OK;
    TX_BEGIN(heap->pool) {
        PMEMoid *held = logged_slot(heap, slot), object = *held;
        size_t usable = pmemobj_alloc_usable_size(object), bytes = usable < CLEARED_BYTES ? usable : CLEARED_BYTES;
        pmemobj_tx_add_range(object, 0, bytes);
        memset(object_at(heap, object), 0, bytes);
        pmemobj_tx_free(object);
        *held = OID_NULL;
    }
    TX_ONABORT { status = pool_fail_to_allocate("the transaction of free"); }
    TX_END
    return status;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    volatile int status = FL_OK;
    TX_BEGIN(heap->pool) {
        PMEMoid *held = logged_slot(heap, slot), object = pmemobj_tx_realloc(*held, new_bytes, OBJECT_TYPE);
        if (old_bytes < new_bytes)
            fill(context, object_at(heap, object), old_bytes, new_bytes - old_bytes);
        *held = object;
    }
    TX_ONABORT { status = pool_fail_to_allocate("the transaction of reallocate"); }
    TX_END
    return status;
}

const struct fl_adapter *faultline_adapter(void) { return pool_adapter("pmdk_tx", allocate, free_slot, reallocate); }
