/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h - what nvm_malloc's tests share beyond expect.h: heaps, objects with roots.
 */
#ifndef NVM_TESTS_COMMON_H
#define NVM_TESTS_COMMON_H

#include <fcntl.h>
#include <signal.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "types.h"

#define EXPECT_MESSAGE() nvm_message()
#include "content.h"
#include "expect.h"

#define CHUNK 65536u
#define HINT ((uintptr_t)0x200000000000)

static char *file_of(const char *folder) {
    static char path[256];
    snprintf(path, sizeof path, "%s/heap", folder);
    return path;
}

static struct nvm_heap *create(const char *folder, uint64_t chunks) {
    struct nvm_options options = {folder, chunks * CHUNK, CHUNK, HINT, chunks * CHUNK, 0};
    struct nvm_heap *heap;
    if (nvm_heap_create(&options, &heap) != NVM_OK) {
        printf("cannot create a heap: %s\n", nvm_message());
        exit(3);
    }
    return heap;
}

static int open_at(const char *folder, uintptr_t hint, struct nvm_heap **heap) {
    struct nvm_options options = {.folder = folder, .address_hint = hint, .limit_bytes = 1}; /* that is: no growth */
    return nvm_heap_open(&options, heap);
}

static struct nvm_heap *reopen(struct nvm_heap *heap, const char *folder, uintptr_t hint) {
    nvm_heap_close(heap);
    EXPECT(open_at(folder, hint, &heap) == NVM_OK);
    return heap;
}

/* A power failure after which every store is there: the heap file is copied, the heap itself goes on living. */
static const char *copy_of(struct nvm_heap *heap) {
    static char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    FILE *file = fopen(file_of(folder), "w");
    fwrite((const char *)nvm_heap_absolute(heap, 1) - 1, 1, nvm_heap_bytes(heap), file);
    fclose(file);
    return folder;
}

struct totals {
    uint64_t bytes[6], parts[6], at;
    bool has_gap;
};

static void add_part(void *context, const struct nvm_part *part) {
    struct totals *totals = context;
    totals->has_gap |= part->offset != totals->at;
    totals->at = part->offset + part->bytes;
    totals->bytes[part->state] += part->bytes;
    totals->parts[part->state]++;
}

static struct totals totals_of(struct nvm_heap *heap) {
    struct totals totals = {0};
    nvm_heap_walk(heap, add_part, &totals);
    EXPECT(!totals.has_gap && totals.at == nvm_heap_bytes(heap));
    EXPECT(nvm_heap_check(heap) == NVM_OK);
    return totals;
}

static uint64_t *make_roots(struct nvm_heap *heap, uint64_t count) {
    void *roots;
    EXPECT(nvm_heap_reserve_id(heap, "roots", count * 8, &roots) == NVM_OK);
    memset(roots, 0, count * 8);
    nvm_persist(roots, count * 8);
    EXPECT(nvm_heap_activate_id(heap, "roots") == NVM_OK);
    return roots;
}

static void *allocate(struct nvm_heap *heap, uint64_t *root, uint64_t bytes) {
    void *object;
    if (nvm_heap_reserve(heap, bytes, &object) != NVM_OK)
        return NULL;
    memset(object, (int)bytes, bytes);
    nvm_persist(object, bytes);
    return nvm_heap_activate(heap, object, root, object, NULL, NULL) == NVM_OK ? object : NULL;
}

static int free_root(struct nvm_heap *heap, uint64_t *root) {
    return nvm_heap_free(heap, nvm_heap_absolute(heap, *root), root, NULL, NULL, NULL);
}

#endif
