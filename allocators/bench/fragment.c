/* SPDX-License-Identifier: Apache-2.0
 *
 * fragment.c - the fragmentation stress of PAllocator §5 (Table 2), scaled. There a heap of 359 GB is filled with 256 GB of objects of
 * 64 KB. Then, again and again: every other object is freed until half of the memory is, and as much is allocated in
 * objects of twice the size, until an allocation fails or the objects have reached 2 GB. Here the heap may have 359 / 256 of MIB.
 *
 * Every object carries a stamp at both ends, looked at when it is freed and at the end: what is defragmented must not be in use.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"

enum { PAPER_HEAP = 359, PAPER_FILL = 256 };

struct held {
    uint64_t *object;
    uint64_t bytes;
};

struct stress {
    const struct bench_allocator *allocator;
    struct held *held;
    uint64_t count, capacity;
    uint64_t bytes; /* of those that are held */
    uint64_t allocations;
    uint64_t largest; /* object so far, bytes */
};

static uint64_t stamp_of(const struct held *held) { return (uint64_t)(uintptr_t)held->object * 31 ^ held->bytes; }

static uint64_t *last_word(const struct held *held) { return held->object + held->bytes / sizeof(uint64_t) - 1; }

static bool allocate(struct stress *stress, uint64_t bytes) {
    struct held held = {stress->allocator->allocate(0, bytes), bytes};
    if (held.object == NULL)
        return false;
    if (stress->count == stress->capacity) {
        stress->capacity = stress->capacity * 2 + 1024;
        stress->held = realloc(stress->held, stress->capacity * sizeof *stress->held);
        if (stress->held == NULL)
            bench_fail("the benchmark", "out of memory");
    }
    *held.object = *last_word(&held) = stamp_of(&held);
    stress->held[stress->count++] = held;
    stress->bytes += bytes;
    stress->allocations++;
    stress->largest = bytes;
    return true;
}

static void check(const struct held *held) {
    if (*held->object != stamp_of(held) || *last_word(held) != stamp_of(held))
        bench_fail("an object", "its content changed");
}

/* False: an allocation failed. */
static bool fill(struct stress *stress, uint64_t to_bytes, uint64_t bytes) {
    while (stress->bytes + bytes <= to_bytes)
        if (!allocate(stress, bytes))
            return false;
    return true;
}

/* Every other object, in the order in which they came, again from the front if that was not enough. */
static void free_half(struct stress *stress, uint64_t to_bytes) {
    while (stress->bytes > to_bytes) {
        uint64_t kept = 0;
        for (uint64_t i = 0; i < stress->count; i++) {
            struct held *held = &stress->held[i];
            if (i % 2 == 0 || stress->bytes <= to_bytes) {
                stress->held[kept++] = *held;
                continue;
            }
            check(held);
            stress->allocator->free(0, held->object);
            stress->bytes -= held->bytes;
        }
        stress->count = kept;
    }
}

int bench_fragment(const struct bench_allocator *allocator, const char *folder, uint64_t mib, uint64_t smallest, uint64_t largest) {
    struct stress stress = {.allocator = allocator};
    uint64_t fill_bytes = mib << 20, limit_bytes = fill_bytes / PAPER_FILL * PAPER_HEAP, bytes = smallest;
    if (!allocator->create(folder, limit_bytes))
        bench_fail("create", allocator->message());
    bool is_filled = fill(&stress, fill_bytes, bytes), goes_on = is_filled;
    uint64_t filled = stress.allocations;
    double begin_s = bench_now_s(), begin_cpu_s = bench_cpu_s();
    while (goes_on && bytes < largest) {
        free_half(&stress, fill_bytes / 2);
        bytes *= 2;
        goes_on = fill(&stress, fill_bytes, bytes);
    }
    double wall_s = bench_now_s() - begin_s, cpu_s = bench_cpu_s() - begin_cpu_s;
    for (uint64_t i = 0; i < stress.count; i++)
        check(&stress.held[i]);
    if (allocator->check != NULL && !allocator->check())
        bench_fail("check", allocator->message());
    printf("{\"limit_bytes\": %llu, \"is_filled\": %s, \"fill_allocations\": %llu, \"allocations\": %llu,",
           (unsigned long long)limit_bytes, is_filled ? "true" : "false", (unsigned long long)filled,
           (unsigned long long)(stress.allocations - filled));
    printf(" \"largest_bytes\": %llu, \"failed_bytes\": %llu, \"live_bytes\": %llu, \"defragmented_bytes\": %llu,",
           (unsigned long long)stress.largest, (unsigned long long)(goes_on ? 0 : bytes), (unsigned long long)stress.bytes,
           (unsigned long long)(allocator->defragmented == NULL ? 0 : allocator->defragmented()));
    printf(" \"wall_s\": %.6f, \"cpu_s\": %.6f}\n", wall_s, cpu_s);
    free(stress.held);
    if (!allocator->close())
        bench_fail("close", allocator->message());
    return 0;
}
