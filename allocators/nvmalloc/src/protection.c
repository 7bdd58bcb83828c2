/* SPDX-License-Identifier: Apache-2.0
 *
 * protection.c - between operations no page of the heap can be stored to (§4): a store that goes astray ends the process, and does not
 * reach persistent memory.
 *
 * A page can be stored to while somebody says that he stores there: the application by nvmalloc_heap_unprotect and _protect, and this
 * library from its first store to the page until its operation ends. So stores to one page cost two system calls an operation, however
 * many they are. What the paper's kernel module does besides, to do them later and in batches, is no matter of a library.
 *
 * Each page that can be stored to may need an entry of its own in the kernel's list of mappings. When that is full, all of the heap can
 * be stored to from then on, and nvmalloc_heap_is_protected says so.
 */
#include "types.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define LINES_OF_PAGE (NVMALLOC_OS_PAGE_BYTES / NVMALLOC_LINE_BYTES)

static int change(struct nvmalloc_heap *heap, uint32_t page, uint32_t count, int protection) {
    return mprotect(&heap->lines[page * LINES_OF_PAGE], (uint64_t)count * NVMALLOC_OS_PAGE_BYTES, protection);
}

static uint32_t pages_of(const struct nvmalloc_heap *heap) { return heap->line_count / LINES_OF_PAGE; }

/* All of the file is one mapping again, which needs no more of them. */
static void give_up(struct nvmalloc_heap *heap) {
    change(heap, 0, pages_of(heap), PROT_READ | PROT_WRITE);
    heap->protection.is_on = false;
}

static void begin_storing(struct nvmalloc_heap *heap, uint32_t page) {
    if (heap->protection.storing[page]++ == 0 && heap->protection.is_on && change(heap, page, 1, PROT_READ | PROT_WRITE) != 0)
        give_up(heap);
}

static void end_storing(struct nvmalloc_heap *heap, uint32_t page) {
    if (--heap->protection.storing[page] == 0 && heap->protection.is_on && change(heap, page, 1, PROT_READ) != 0)
        give_up(heap);
}

int nvmalloc_begin_protection(struct nvmalloc_heap *heap) {
    struct nvmalloc_protection *protection = &heap->protection;
    protection->storing = calloc(heap->line_limit / LINES_OF_PAGE + 1, sizeof *protection->storing);
    if (protection->storing == NULL)
        return nvmalloc_fail(NVMALLOC_ERROR, "out of volatile memory for the protection of the heap");
    if (change(heap, 0, pages_of(heap), PROT_READ) != 0)
        return nvmalloc_fail(NVMALLOC_ERROR, "cannot protect the heap: %s", strerror(errno));
    protection->is_on = true;
    return NVMALLOC_OK;
}

void nvmalloc_protect_growth(struct nvmalloc_heap *heap, uint32_t from) {
    uint32_t page = from / LINES_OF_PAGE;
    if (heap->protection.is_on && change(heap, page, pages_of(heap) - page, PROT_READ) != 0)
        give_up(heap);
}

void nvmalloc_may_store(struct nvmalloc_heap *heap, uint32_t line) {
    struct nvmalloc_protection *protection = &heap->protection;
    uint32_t page = line / LINES_OF_PAGE;
    if (!protection->is_on)
        return;
    for (uint32_t i = 0; i < protection->own_count; i++)
        if (protection->own[i] == page)
            return;
    if (protection->own_count == NVMALLOC_OWN_PAGES)
        nvmalloc_end_stores(heap);
    begin_storing(heap, page);
    protection->own[protection->own_count++] = page;
}

void nvmalloc_end_stores(struct nvmalloc_heap *heap) {
    while (heap->protection.own_count > 0)
        end_storing(heap, heap->protection.own[--heap->protection.own_count]);
}

/* ---- of the application ---- */

struct pages {
    uint32_t first, end;
};

/* Those that the bytes lie in; none, where the heap is not protected. */
static int find_pages(const struct nvmalloc_heap *heap, const void *address, uint64_t bytes, struct pages *pages) {
    uint64_t offset = nvmalloc_heap_offset(heap, address), file_bytes = (uint64_t)heap->line_count * NVMALLOC_LINE_BYTES;
    *pages = (struct pages){0, 0};
    if (address == NULL || offset > file_bytes || bytes > file_bytes - offset)
        return nvmalloc_fail(NVMALLOC_INVALID, "%llu bytes at %p are not in the heap at %p", (unsigned long long)bytes, address,
                             (void *)heap->lines);
    if (bytes > 0 && heap->protection.storing != NULL)
        *pages = (struct pages){(uint32_t)(offset / NVMALLOC_OS_PAGE_BYTES),
                                (uint32_t)((offset + bytes - 1) / NVMALLOC_OS_PAGE_BYTES + 1)};
    return NVMALLOC_OK;
}

static int unprotect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes) {
    struct pages pages;
    int status = find_pages(heap, address, bytes, &pages);
    for (uint32_t page = pages.first; page < pages.end; page++)
        begin_storing(heap, page);
    return status;
}

static int protect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes) {
    struct pages pages;
    int status = find_pages(heap, address, bytes, &pages);
    for (uint32_t page = pages.first; page < pages.end; page++)
        if (heap->protection.storing[page] == 0)
            return nvmalloc_fail(NVMALLOC_INVALID, "%llu bytes at %p are protected already", (unsigned long long)bytes, address);
    for (uint32_t page = pages.first; page < pages.end; page++)
        end_storing(heap, page);
    return status;
}

int nvmalloc_heap_unprotect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes) {
    nvmalloc_lock(heap);
    int status = unprotect(heap, address, bytes);
    nvmalloc_unlock(heap);
    return status;
}

int nvmalloc_heap_protect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes) {
    nvmalloc_lock(heap);
    int status = protect(heap, address, bytes);
    nvmalloc_unlock(heap);
    return status;
}

int nvmalloc_heap_is_protected(struct nvmalloc_heap *heap) {
    nvmalloc_lock(heap);
    int is_protected = heap->protection.is_on;
    nvmalloc_unlock(heap);
    return is_protected;
}
