/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h - what nvm_malloc's tests share: expectations, heaps in folders of their own, objects with roots.
 */
#ifndef NVM_TESTS_COMMON_H
#define NVM_TESTS_COMMON_H

#pragma GCC diagnostic ignored "-Wunused-function" /* no test needs all of it */
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

#define CHUNK 65536u
#define HINT ((uintptr_t)0x200000000000)

static unsigned passed, failed;

static void expect(bool is_true, const char *claim, int line) {
    if (is_true) {
        passed++;
        return;
    }
    failed++;
    printf("line %d: not true: %s (last message: %s)\n", line, claim, nvm_message());
}
#define EXPECT(fact) expect(fact, #fact, __LINE__)

static uint64_t next_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

/* ---- folders and heaps ---- */

static char top[64];

static const char *new_folder(void) {
    static char path[128];
    static unsigned count;
    snprintf(path, sizeof path, "%s/%u", top, count++);
    mkdir(path, 0777);
    return path;
}

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

static void fill(void *object, uint64_t seed, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        ((uint8_t *)object)[i] = (uint8_t)next_random(&seed);
}

static bool is_filled(const void *object, uint64_t seed, uint64_t bytes) {
    for (uint64_t i = 0; i < bytes; i++)
        if (((const uint8_t *)object)[i] != (uint8_t)next_random(&seed))
            return false;
    return true;
}

static void begin_tests(void) {
    snprintf(top, sizeof top, "%s/nvm-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp");
    setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is seen even if a sanitizer ends the program */
    if (mkdtemp(top) == NULL) {
        perror(top);
        exit(3);
    }
}

static int end_tests(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", top);
    if (system(command) != 0)
        return 3;
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}

#endif
