/* SPDX-License-Identifier: Apache-2.0
 *
 * A pool of libpmemobj as a heap, for adapters that differ in how they allocate. The heap is one pool, file `pool`. A slot is a PMEMoid
 * of an array in the root object.
 *
 *     create, open  pmemobj_create, pmemobj_open; open recovers
 *     close         pmemobj_close, and then pmemobj_check, which wants a pool that nobody has open
 *     walk          the objects, by pmemobj_first and pmemobj_next. The library tells of nothing else: neither of what is free nor of
 *                   its metadata
 *
 * What the library reads from its environment it reads when it is loaded, before a line of an adapter runs: [environment] of
 * allocator.toml sets it.
 */
#ifndef PMDK_POOL_H
#define PMDK_POOL_H

#include "adapter.h"
#include <libpmemobj.h>
#include <limits.h>
#include <stdbool.h>
#include <stdint.h>

#define OBJECT_TYPE 1 /* of all objects */

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

/* An offset in a PMEMoid is one from the start of the pool, and so of its file. */
static inline void *object_at(const fl_heap *heap, PMEMoid oid) { return (char *)heap->pool + oid.off; }

/* status; fl_adapter.message answers `what` and the library's own words. */
int pool_fail(int status, const char *what);

/* The same, of an allocation that errno says why it failed. */
int pool_fail_to_allocate(const char *what);

/* An adapter that allocates by these functions. */
const struct fl_adapter *
pool_adapter(const char *name, int (*allocate)(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context),
             int (*free_slot)(fl_heap *heap, uint32_t slot),
             int (*reallocate)(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context));

#endif
