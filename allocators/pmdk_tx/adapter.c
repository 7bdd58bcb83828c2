/* SPDX-License-Identifier: Apache-2.0
 *
 * libpmemobj as a distribution ships it, unmodified, by its transactions. The heap is a pool (../pmdk/pool.h). An operation is a
 * transaction of its own, or one of several between begin and commit.
 *
 *     allocate      the object is allocated and filled, the slot logged and set; both are there after the commit, or neither
 *     reallocate    alone by pmemobj_tx_realloc; among others a new object is allocated, which gets what the old one holds, so that a
 *                   failure does not abort the others. What it has more is filled
 *     free          the slot and the object's beginning are logged, that is cleared, as by code that takes an object apart, and the object
 *                   is freed. No more than the lane's own log has room for: a free finds no room for a larger one in a full pool
 *     write         what it overwrites is logged; outside begin and commit it is a plain store
 *
 * The rollback of what a crash leaves in the middle is the library's: pmemobj_open does it.
 */
#include "../pmdk/pool.h"
#include <errno.h>
#include <string.h>

#define CLEARED_BYTES 1000

/* One transaction at a time: begin and commit are around it. */
static bool is_open;

static int begin(fl_heap *heap) {
    int error = pmemobj_tx_begin(heap->pool, NULL, TX_PARAM_NONE);
    if (error == 0) {
        is_open = true;
        return FL_OK;
    }
    pmemobj_tx_end();
    errno = error;
    return pool_fail_to_allocate("pmemobj_tx_begin");
}

/* Of the transaction that is in its work stage, or that an error has aborted. */
static int end(const char *what) {
    is_open = false;
    if (pmemobj_tx_stage() == TX_STAGE_WORK)
        pmemobj_tx_commit();
    errno = pmemobj_tx_end();
    return errno == 0 ? FL_OK : pool_fail_to_allocate(what);
}

static int commit(fl_heap *heap) { return (void)heap, end("pmemobj_tx_commit"); }

static int abort_all(fl_heap *heap) {
    (void)heap;
    is_open = false;
    pmemobj_tx_abort(ECANCELED);
    int error = pmemobj_tx_end();
    return error == ECANCELED ? FL_OK : pool_fail(FL_ERROR, "pmemobj_tx_abort");
}

/* The work of an operation. What fails has no effect, and aborts nothing but a transaction of its own. */
struct work {
    uint32_t slot;
    uint64_t old_bytes, bytes;
    fl_fill fill;
    void *context;
};
typedef int do_work(fl_heap *heap, const struct work *work);

static int in_transaction(fl_heap *heap, do_work *operation, const struct work *work, const char *what) {
    if (is_open)
        return operation(heap, work);
    int status = begin(heap);
    if (status != FL_OK)
        return status;
    status = operation(heap, work);
    if (status != FL_OK && pmemobj_tx_stage() == TX_STAGE_WORK)
        pmemobj_tx_abort(errno == ENOMEM ? ENOMEM : ECANCELED);
    int ended = end(what);
    return status != FL_OK ? status : ended;
}

static bool has_logged(const void *start, size_t bytes) {
    int error = pmemobj_tx_xadd_range_direct(start, bytes, POBJ_XADD_NO_ABORT);
    if (error != 0)
        errno = error;
    return error == 0;
}

static bool has_freed(PMEMoid object) {
    int error = pmemobj_tx_xfree(object, POBJ_XFREE_NO_ABORT);
    if (error != 0)
        errno = error;
    return error == 0;
}

static int put_new(fl_heap *heap, const struct work *work) {
    PMEMoid *held = &heap->root->slots[work->slot], object = pmemobj_tx_xalloc(work->bytes, OBJECT_TYPE, POBJ_XALLOC_NO_ABORT);
    if (OID_IS_NULL(object))
        return pool_fail_to_allocate("pmemobj_tx_xalloc");
    uint64_t kept = work->old_bytes < work->bytes ? work->old_bytes : work->bytes;
    if (kept > 0)
        memcpy(object_at(heap, object), object_at(heap, *held), kept);
    if (kept < work->bytes)
        work->fill(work->context, object_at(heap, object), kept, work->bytes - kept);
    if (!has_logged(held, sizeof *held)) {
        int status = pool_fail_to_allocate("pmemobj_tx_xadd_range_direct");
        pmemobj_tx_xfree(object, POBJ_XFREE_NO_ABORT);
        return status;
    }
    if (work->old_bytes > 0 && !has_freed(*held)) {
        int status = pool_fail_to_allocate("pmemobj_tx_xfree");
        pmemobj_tx_xfree(object, POBJ_XFREE_NO_ABORT);
        return status;
    }
    *held = object;
    return FL_OK;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    const struct work work = {.slot = slot, .bytes = bytes, .fill = fill, .context = context};
    return in_transaction(heap, put_new, &work, "the transaction of allocate");
}

static int take(fl_heap *heap, const struct work *work) {
    PMEMoid *held = &heap->root->slots[work->slot], object = *held;
    size_t usable = pmemobj_alloc_usable_size(object), bytes = usable < CLEARED_BYTES ? usable : CLEARED_BYTES;
    if (!has_logged(held, sizeof *held) || !has_logged(object_at(heap, object), bytes))
        return pool_fail_to_allocate("pmemobj_tx_xadd_range_direct");
    if (!has_freed(object))
        return pool_fail_to_allocate("pmemobj_tx_xfree");
    memset(object_at(heap, object), 0, bytes);
    *held = OID_NULL;
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    return in_transaction(heap, take, &(struct work){.slot = slot}, "the transaction of free");
}

static int resize(fl_heap *heap, const struct work *work) {
    PMEMoid *held = &heap->root->slots[work->slot];
    if (!has_logged(held, sizeof *held))
        return pool_fail_to_allocate("pmemobj_tx_xadd_range_direct");
    PMEMoid object = pmemobj_tx_realloc(*held, work->bytes, OBJECT_TYPE);
    if (OID_IS_NULL(object))
        return pool_fail_to_allocate("pmemobj_tx_realloc");
    if (work->old_bytes < work->bytes)
        work->fill(work->context, object_at(heap, object), work->old_bytes, work->bytes - work->old_bytes);
    *held = object;
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    const struct work work = {.slot = slot, .old_bytes = old_bytes, .bytes = new_bytes, .fill = fill, .context = context};
    return in_transaction(heap, is_open ? put_new : resize, &work, "the transaction of reallocate");
}

static int write(fl_heap *heap, uint32_t slot, uint64_t from, uint64_t bytes, fl_fill fill, void *context) {
    char *object = object_at(heap, heap->root->slots[slot]);
    if (is_open && !has_logged(object + from, bytes))
        return pool_fail_to_allocate("pmemobj_tx_xadd_range_direct");
    fill(context, object, from, bytes);
    return FL_OK;
}

const struct fl_adapter *faultline_adapter(void) {
    static struct fl_adapter table;
    table = *pool_adapter("pmdk_tx", allocate, free_slot, reallocate);
    table.capabilities |= FL_CAN_TRANSACTIONS;
    table.begin = begin;
    table.commit = commit;
    table.abort = abort_all;
    table.write = write;
    return &table;
}
