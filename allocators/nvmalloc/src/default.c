/* SPDX-License-Identifier: Apache-2.0
 *
 * default.c - one heap a process, by the names of malloc.
 */
#include "types.h"

#include <errno.h>
#include <string.h>

#include "persist.h"

static struct nvmalloc_heap *heap;

int nvmalloc_start(const struct nvmalloc_options *options) {
    if (heap != NULL)
        return nvmalloc_fail(NVMALLOC_INVALID, "nvmalloc is started already: call nvmalloc_stop first");
    int status = nvmalloc_heap_open(options, &heap);
    if (status != NVMALLOC_NOT_A_HEAP)
        return status;
    char why[256];
    strncpy(why, nvmalloc_message(), sizeof why - 1);
    why[sizeof why - 1] = '\0';
    status = nvmalloc_heap_create(options, &heap); /* fails if there is a file, which is no heap */
    return status == NVMALLOC_OK ? status : nvmalloc_fail(NVMALLOC_NOT_A_HEAP, "%s", why);
}

void nvmalloc_stop(void) {
    if (heap != NULL)
        nvmalloc_heap_close(heap);
    heap = NULL;
}

static int not_started(void) { return nvmalloc_fail(NVMALLOC_INVALID, "nvmalloc is not started: call nvmalloc_start first"); }

void *nvmalloc(size_t bytes) {
    void *object = NULL;
    int status = heap == NULL ? not_started() : nvmalloc_heap_allocate(heap, bytes, &object);
    if (status != NVMALLOC_OK)
        errno = ENOMEM;
    return object;
}

void nvfree(void *object) {
    int saved = errno;
    if (heap == NULL)
        not_started();
    else
        nvmalloc_heap_free(heap, object);
    errno = saved;
}

void *nvcalloc(size_t count, size_t bytes) {
    size_t all;
    if (__builtin_mul_overflow(count, bytes, &all)) {
        nvmalloc_fail(NVMALLOC_TOO_LARGE, "%zu times %zu bytes wanted", count, bytes);
        errno = ENOMEM;
        return NULL;
    }
    void *object = nvmalloc(all);
    if (object == NULL || nvunprotect(object, all) != NVMALLOC_OK)
        return NULL;
    memset(object, 0, all);
    nvprotect(object, all);
    return object;
}

void *nvrealloc(void *object, size_t bytes) {
    size_t usable = nvmalloc_usable_size(object);
    if (object != NULL && bytes != 0 && bytes <= usable)
        return object;
    if (object != NULL && bytes == 0) {
        nvfree(object);
        return NULL;
    }
    if (object != NULL && usable == 0) { /* no object of this heap: nothing is known about its size */
        nvmalloc_fail(NVMALLOC_INVALID, "%p is no allocated object", object);
        errno = ENOMEM;
        return NULL;
    }
    void *moved = nvmalloc(bytes);
    if (moved == NULL || object == NULL)
        return moved;
    if (nvunprotect(moved, usable) != NVMALLOC_OK)
        return NULL;
    memcpy(moved, object, usable);
    nvpersist(moved, usable);
    nvprotect(moved, usable);
    nvfree(object);
    return moved;
}

size_t nvmalloc_usable_size(void *object) { return heap == NULL ? 0 : nvmalloc_heap_usable_bytes(heap, object); }

int nvunprotect(const void *address, size_t bytes) {
    return heap == NULL ? not_started() : nvmalloc_heap_unprotect(heap, address, bytes);
}
int nvprotect(const void *address, size_t bytes) {
    return heap == NULL ? not_started() : nvmalloc_heap_protect(heap, address, bytes);
}

void nvpersist(const void *address, size_t bytes) { fl_persist(address, bytes); }

void *nvroot(void) { return heap == NULL ? NULL : nvmalloc_heap_root(heap); }
int nvset_root(const void *object) { return heap == NULL ? not_started() : nvmalloc_heap_set_root(heap, object); }
uint64_t nvoffset(const void *address) { return heap == NULL ? 0 : nvmalloc_heap_offset(heap, address); }
void *nvaddress(uint64_t offset) { return heap == NULL ? NULL : nvmalloc_heap_address(heap, offset); }
