/* SPDX-License-Identifier: Apache-2.0
 *
 * churn.c - the fragmentation benchmark of Moraru et al., section 8.1.2 and Table 2: so many operations, each an allocation of a uniformly
 * distributed size or, by chance, one for per_free allocations, the free of a live object chosen at random. A free that finds
 * none is an allocation. Allocated as often as freed, the live set is a random walk, and small against the operations.
 *
 * The paper does not say what it calls total and external fragmentation. Here both are told by addresses alone, in one way for all allocators, at
 * the end and of the address range that the allocator has handed out so far (from the first byte of its lowest object to the last byte
 * of its highest one):
 *
 *   total     the share of it that no live object asked for
 *   external  the share of it in gaps between live objects that are GAP_BYTES or more: room for another object. What is in smaller gaps is
 *             headers, footers and rounding, and now and then a free heap block for the smallest objects, which is not told from those
 *
 * GAP_BYTES is more than any of these allocators puts around an object of up to 4 KB, jemalloc's size classes excepted (up to 511 bytes).
 * Nothing is written into the objects but their first word.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "bench.h"

enum { GAP_BYTES = 128 };

struct object {
    unsigned char *start;
    uint64_t bytes;
};

/* Not from malloc: its heap is what is measured. */
static struct object *table_of(uint64_t count) {
    void *table = mmap(NULL, count * sizeof(struct object), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (table == MAP_FAILED)
        bench_fail("the benchmark", "out of memory");
    return table;
}

static int by_address(const void *one, const void *other) {
    const struct object *a = one, *b = other;
    return a->start < b->start ? -1 : a->start > b->start;
}

struct extent {
    uintptr_t start, end; /* of all objects so far */
};

struct gaps {
    uint64_t live_bytes, external_bytes;
};

/* A gap before the first and behind the last live object counts, too: objects lay there once. */
static struct gaps measure(struct object *live, uint64_t count, const struct extent *extent) {
    struct gaps gaps = {0, 0};
    uintptr_t end = extent->start;
    for (uint64_t i = 0; i <= count; i++) {
        uintptr_t start = i < count ? (uintptr_t)live[i].start : extent->end;
        if (start >= end + GAP_BYTES)
            gaps.external_bytes += start - end;
        if (i == count)
            break;
        if (start < end)
            bench_fail("the allocator", "two live objects overlap");
        gaps.live_bytes += live[i].bytes;
        end = start + live[i].bytes;
    }
    return gaps;
}

static void allocate(const struct bench_allocator *allocator, struct object *object, uint64_t bytes, struct extent *extent) {
    object->bytes = bytes;
    object->start = allocator->allocate(0, bytes);
    if (object->start == NULL)
        bench_fail(allocator->name, allocator->message());
    *object->start = 1;
    if ((uintptr_t)object->start < extent->start)
        extent->start = (uintptr_t)object->start;
    if ((uintptr_t)object->start + bytes > extent->end)
        extent->end = (uintptr_t)object->start + bytes;
}

int bench_churn(const struct bench_allocator *allocator, const char *folder, const struct bench_churn *churn) {
    uint64_t random = churn->seed, count = 0, allocations = 0, frees = 0, peak_bytes = 0, live_bytes = 0;
    struct extent extent = {UINTPTR_MAX, 0};
    if (!allocator->create(folder, churn->limit_bytes))
        bench_fail("create", allocator->message());
    struct object *live = table_of(churn->operations);
    double begin_cpu_s = bench_cpu_s();
    for (uint64_t i = 0; i < churn->operations; i++) {
        bool is_free = bench_random(&random) % (churn->per_free + 1) == 0;
        if (is_free && count > 0) {
            uint64_t which = bench_random(&random) % count;
            live_bytes -= live[which].bytes;
            allocator->free(0, live[which].start);
            live[which] = live[--count];
            frees++;
            continue;
        }
        uint64_t bytes = churn->smallest + bench_random(&random) % (churn->largest - churn->smallest + 1);
        allocate(allocator, &live[count], bytes, &extent);
        live_bytes += live[count++].bytes;
        peak_bytes = live_bytes > peak_bytes ? live_bytes : peak_bytes;
        allocations++;
    }
    double cpu_s = bench_cpu_s() - begin_cpu_s;
    qsort(live, count, sizeof *live, by_address);
    struct gaps gaps = measure(live, count, &extent);
    printf("{\"allocations\": %llu, \"frees\": %llu, \"live_objects\": %llu, \"live_bytes\": %llu, \"peak_bytes\": %llu,",
           (unsigned long long)allocations, (unsigned long long)frees, (unsigned long long)count,
           (unsigned long long)gaps.live_bytes, (unsigned long long)peak_bytes);
    printf(" \"extent_bytes\": %llu, \"external_bytes\": %llu, \"cpu_s\": %.6f}\n", (unsigned long long)(extent.end - extent.start),
           (unsigned long long)gaps.external_bytes, cpu_s);
    return allocator->close() ? 0 : 1;
}
