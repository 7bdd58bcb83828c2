/* SPDX-License-Identifier: Apache-2.0
 *
 * default.c - the interface of Table 3: one default heap for the process.
 */
#include "types.h"

#include "persist.h"

static struct nvm_heap *default_heap;

int nvm_initialize(const char *working_dir, int recover) {
    if (default_heap != NULL)
        return nvm_fail(NVM_INVALID, "nvm_malloc is initialized already: call nvm_shutdown first");
    struct nvm_options options = {.folder = working_dir, .heap_bytes = NVM_DEFAULT_HEAP_BYTES, .is_lazy = NVM_LAZY_BY_THREAD};
    return recover ? nvm_heap_open(&options, &default_heap) : nvm_heap_create(&options, &default_heap);
}

void nvm_shutdown(void) {
    if (default_heap != NULL)
        nvm_heap_close(default_heap);
    default_heap = NULL;
}

static int not_initialized(void) { return nvm_fail(NVM_INVALID, "nvm_malloc is not initialized: call nvm_initialize first"); }

void *nvm_reserve(uint64_t bytes) {
    void *object = NULL;
    int status = default_heap == NULL ? not_initialized() : nvm_heap_reserve(default_heap, bytes, &object);
    return status == NVM_OK ? object : NULL;
}

int nvm_activate(void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    return default_heap == NULL ? not_initialized() : nvm_heap_activate(default_heap, object, link_1, target_1, link_2, target_2);
}

int nvm_free(void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    return default_heap == NULL ? not_initialized() : nvm_heap_free(default_heap, object, link_1, target_1, link_2, target_2);
}

void *nvm_reserve_id(const char *id, uint64_t bytes) {
    void *object = NULL;
    int status = default_heap == NULL ? not_initialized() : nvm_heap_reserve_id(default_heap, id, bytes, &object);
    return status == NVM_OK ? object : NULL;
}

int nvm_activate_id(const char *id) { return default_heap == NULL ? not_initialized() : nvm_heap_activate_id(default_heap, id); }

int nvm_free_id(const char *id) { return default_heap == NULL ? not_initialized() : nvm_heap_free_id(default_heap, id); }

void *nvm_get_id(const char *id) {
    if (default_heap != NULL)
        return nvm_heap_get_id(default_heap, id);
    not_initialized();
    return NULL;
}

void nvm_persist(const void *address, uint64_t bytes) {
#if defined(MUTANT_PERSIST_FIRST_LINE)
    fl_flush(address, bytes == 0 ? 0 : 1);
#else
    fl_flush(address, bytes);
#endif
    fl_fence(); /* what is persisted may be published without us; if not, activation fences, and mutate tells no loss */
}

void *nvm_absolute(uint64_t relative) { return default_heap == NULL ? NULL : nvm_heap_absolute(default_heap, relative); }

uint64_t nvm_relative(const void *absolute) { return default_heap == NULL ? 0 : nvm_heap_relative(default_heap, absolute); }
