/* SPDX-License-Identifier: Apache-2.0
 *
 * libpmemobj as a distribution ships it, by its atomic API. A slot is a PMEMoid of an array in the root object.
 *
 *     allocate      pmemobj_alloc into the slot; its constructor fills the object before it is published
 *     free          pmemobj_free of the slot
 *     reallocate    a new object is reserved and filled; one publication then sets the slot and frees the old object
 *     open          recovers: pmemobj_open
 *
 * The library asks the environment when it is loaded whether it is to trust the file system to be PM, so it is loaded here, after the
 * environment is set: it flushes then, where it would call msync.
 */
#include "adapter.h"
#include "persist.h"
#include <dlfcn.h>
#include <errno.h>
#include <libpmemobj.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define LAYOUT "slots"

struct root {
    uint64_t slot_count;
    PMEMoid slots[];
};

struct fl_heap {
    PMEMobjpool *pool;
    struct root *root;
};

/* ---- the library ---- */

#define FUNCTIONS(use)                                                                                                             \
    use(pmemobj_create) use(pmemobj_open) use(pmemobj_close) use(pmemobj_root) use(pmemobj_root_size) use(pmemobj_alloc)           \
        use(pmemobj_free) use(pmemobj_reserve) use(pmemobj_defer_free) use(pmemobj_set_value) use(pmemobj_publish)                 \
            use(pmemobj_alloc_usable_size) use(pmemobj_errormsg) use(pmemobj_ctl_set)

#define POINTER_TO(name) __typeof__(&name) name##_;
#define FIND(name) library.name##_ = (__typeof__(&name))dlsym(file, #name);
static struct {
    FUNCTIONS(POINTER_TO)
} library;

__attribute__((constructor)) static void load_library(void) {
    setenv("PMEM_IS_PMEM_FORCE", "1", 1);
    void *file = dlopen("libpmemobj.so.1", RTLD_NOW);
    if (file == NULL) {
        fprintf(stderr, "%s\n", dlerror());
        abort();
    }
    FUNCTIONS(FIND)
    int at_create = 0; /* no shutdown state: that asks for the device below the file system */
    library.pmemobj_ctl_set_(NULL, "sds.at_create", &at_create);
}

static _Thread_local char reason[300];
static int fail(int status, const char *what) {
    snprintf(reason, sizeof reason, "%s: %s", what, library.pmemobj_errormsg_());
    return status;
}
static const char *message(void) { return reason; }

/* An offset of an object is one from the start of its pool. */
static void *at(PMEMobjpool *pool, PMEMoid oid) { return (char *)pool + oid.off; }

/* ---- the heap ---- */

static const char *path_in(const char *folder) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/pool", folder);
    return path;
}

static int with_root(PMEMobjpool *pool, size_t bytes, fl_heap **out) {
    PMEMoid root = library.pmemobj_root_(pool, bytes);
    if (OID_IS_NULL(root)) {
        fail(FL_ERROR, "no root object");
        return library.pmemobj_close_(pool), FL_ERROR;
    }
    fl_heap *heap = *out = malloc(sizeof *heap);
    *heap = (struct fl_heap){pool, at(pool, root)};
    return FL_OK;
}

static int create(const struct fl_heap_options *options, fl_heap **out) {
    PMEMobjpool *pool = library.pmemobj_create_(path_in(options->folder), LAYOUT, options->heap_bytes, 0600);
    if (pool == NULL)
        return fail(FL_ERROR, "pmemobj_create");
    return with_root(pool, sizeof(struct root) + options->slot_count * sizeof(PMEMoid), out);
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    PMEMobjpool *pool = library.pmemobj_open_(path_in(options->folder), LAYOUT);
    if (pool == NULL)
        return fail(errno == ENOENT ? FL_NOT_A_HEAP : FL_ERROR, "pmemobj_open");
    size_t bytes = library.pmemobj_root_size_(pool);
    if (bytes == 0) {
        library.pmemobj_close_(pool);
        return fail(FL_NOT_A_HEAP, "no root object");
    }
    return with_root(pool, bytes, out);
}

static int close_heap(fl_heap *heap) {
    library.pmemobj_close_(heap->pool);
    free(heap);
    return FL_OK;
}

/* ---- objects ---- */

struct filling {
    fl_fill fill;
    void *context;
    uint64_t bytes;
};

static int construct(PMEMobjpool *pool, void *object, void *of) {
    const struct filling *filling = of;
    (void)pool;
    filling->fill(filling->context, object, 0, filling->bytes);
    return 0;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    struct filling filling = {fill, context, bytes};
    if (library.pmemobj_alloc_(heap->pool, &heap->root->slots[slot], bytes, 1, construct, &filling) != 0)
        return fail(errno == ENOMEM ? FL_OUT_OF_MEMORY : FL_ERROR, "pmemobj_alloc");
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    library.pmemobj_free_(&heap->root->slots[slot]);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    struct pobj_action actions[4];
    PMEMoid *held = &heap->root->slots[slot], before = *held;
    PMEMoid after = library.pmemobj_reserve_(heap->pool, &actions[0], new_bytes, 1);
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    if (OID_IS_NULL(after))
        return fail(errno == ENOMEM ? FL_OUT_OF_MEMORY : FL_ERROR, "pmemobj_reserve");
    memcpy(at(heap->pool, after), at(heap->pool, before), kept);
    fl_persist(at(heap->pool, after), kept);
    if (kept < new_bytes)
        fill(context, at(heap->pool, after), kept, new_bytes - kept);
    library.pmemobj_set_value_(heap->pool, &actions[1], &held->off, after.off);
    library.pmemobj_set_value_(heap->pool, &actions[2], &held->pool_uuid_lo, after.pool_uuid_lo);
    library.pmemobj_defer_free_(heap->pool, before, &actions[3]);
    return library.pmemobj_publish_(heap->pool, actions, 4) == 0 ? FL_OK : fail(FL_ERROR, "pmemobj_publish");
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    PMEMoid oid = heap->root->slots[slot];
    *location = (struct fl_location){0, oid.off != 0, oid.off};
    return FL_OK;
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    PMEMoid oid = library.pmemobj_root_(heap->pool, 1);
    oid.off = object->offset;
    *block = (struct fl_block){0, FL_BLOCK_ALLOCATED, object->offset, library.pmemobj_alloc_usable_size_(oid)};
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "pool" : NULL; }

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {.abi_version = FL_ADAPTER_ABI,
                                            .struct_size = sizeof table,
                                            .name = "libpmemobj",
                                            .capabilities = FL_CAN_BOUNDS,
                                            .create = create,
                                            .open = open_heap,
                                            .close = close_heap,
                                            .allocate = allocate,
                                            .free = free_slot,
                                            .reallocate = reallocate,
                                            .read_slot = read_slot,
                                            .file_name = file_name,
                                            .message = message,
                                            .bounds = bounds};
    return &table;
}
