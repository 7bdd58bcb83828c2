/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h - what nvmalloc's tests share beyond expect.h: heaps, damage that was told, patterns.
 */
#ifndef NVMALLOC_TESTS_COMMON_H
#define NVMALLOC_TESTS_COMMON_H

#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "types.h"

#define EXPECT_MESSAGE() nvmalloc_message()
#include "content.h"
#include "expect.h"

#if defined(__SANITIZE_THREAD__)
#define HINT ((uintptr_t)0x4000000000) /* its shadow lies at the other address; tests compare addresses of two openings */
#else
#define HINT ((uintptr_t)0x200000000000)
#endif
#define KIB ((uint64_t)1024)

struct told {
    uint32_t count;
    struct nvmalloc_damage last;
};

static void note_damage(void *context, const struct nvmalloc_damage *damage) {
    struct told *told = context;
    told->count++;
    told->last = *damage;
}

static char *file_of(const char *folder) {
    static char path[256];
    snprintf(path, sizeof path, "%s/heap", folder);
    return path;
}

static struct nvmalloc_options options_of(const char *folder, uint32_t wait_ticks, struct told *told) {
    return (struct nvmalloc_options){.folder = folder,
                                     .heap_bytes = 4 * KIB,
                                     .limit_bytes = 256 * KIB,
                                     .address_hint = HINT,
                                     .clock = NVMALLOC_CLOCK_OPERATIONS,
                                     .wait_ticks = wait_ticks,
                                     .on_damage = told == NULL ? NULL : note_damage,
                                     .context = told};
}

static struct nvmalloc_heap *create(const struct nvmalloc_options *options) {
    struct nvmalloc_heap *heap;
    if (nvmalloc_heap_create(options, &heap) != NVMALLOC_OK) {
        printf("cannot create a heap: %s\n", nvmalloc_message());
        exit(3);
    }
    return heap;
}

/* Null if it cannot be opened. */
static struct nvmalloc_heap *open_heap(const struct nvmalloc_options *options) {
    struct nvmalloc_heap *heap;
    return nvmalloc_heap_open(options, &heap) == NVMALLOC_OK ? heap : NULL;
}

/* Null: out of memory. */
static void *allocate(struct nvmalloc_heap *heap, uint64_t bytes) {
    void *object;
    return nvmalloc_heap_allocate(heap, bytes, &object) == NVMALLOC_OK ? object : NULL;
}

struct totals {
    uint64_t bytes[NVMALLOC_PART_DAMAGED + 1], at;
    bool has_gap;
};

static void add_part(void *context, const struct nvmalloc_part *part) {
    struct totals *totals = context;
    totals->has_gap |= part->offset != totals->at;
    totals->at = part->offset + part->bytes;
    totals->bytes[part->state] += part->bytes;
}

static struct totals totals_of(struct nvmalloc_heap *heap) {
    struct totals totals = {0};
    nvmalloc_heap_walk(heap, add_part, &totals);
    EXPECT(!totals.has_gap && totals.at == nvmalloc_heap_bytes(heap));
    EXPECT(nvmalloc_heap_check(heap) == NVMALLOC_OK);
    return totals;
}

static struct nvmalloc_counts counts_of(struct nvmalloc_heap *heap) {
    struct nvmalloc_counts counts;
    nvmalloc_heap_counts(heap, &counts);
    return counts;
}

#endif
