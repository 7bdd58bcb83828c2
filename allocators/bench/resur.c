/* SPDX-License-Identifier: Apache-2.0
 *
 * resur.c - the benchmark of Makalu §13.2. Objects of random size are allocated, SZ MiB of them. A coin decides: an object becomes
 * the first of the list of one of 512 roots, or is freed at once; PAllocator §5 keeps all. Then the process aborts, and another one recovers the heap
 * and looks whether exactly the lists are there.
 */
#include <stdio.h>
#include <stdlib.h>
#include <sys/resource.h>

#include "bench.h"
#include "persist.h"

/* The front of each object in a list. */
struct node {
    uint64_t next;  /* word of the next node; 0: none */
    uint64_t check; /* of its own word and the object's bytes */
    uint64_t bytes;
};

static uint64_t limit_of(uint64_t mib) { return (2 * mib + 256) << 20; /* what is freed at once is used again */ }

static uint64_t word_of(const struct bench_allocator *allocator, const void *object) {
    return object == NULL ? 0 : allocator->word_of == NULL ? (uint64_t)(uintptr_t)object : allocator->word_of(object);
}

static struct node *node_of(const struct bench_allocator *allocator, uint64_t word) {
    return word == 0 ? NULL : allocator->object_of == NULL ? (struct node *)(uintptr_t)word : allocator->object_of(word);
}

static uint64_t check_of(const struct bench_allocator *allocator, const struct node *node) {
    return word_of(allocator, node) * 31 ^ node->bytes;
}

static struct node *new_node(const struct bench_allocator *allocator, uint64_t bytes) {
    struct node *node = allocator->allocate(0, bytes);
    if (node == NULL)
        bench_fail(allocator->name, allocator->message());
    return node;
}

static void retain(const struct bench_allocator *allocator, struct node *node, uint64_t bytes, unsigned root) {
    node->next = word_of(allocator, allocator->get_root(root));
    node->bytes = bytes;
    node->check = check_of(allocator, node);
    fl_persist(node, sizeof *node);
    allocator->set_root(root, node);
}

int bench_resur(const struct bench_allocator *allocator, const char *folder, uint64_t mib, uint64_t largest, uint64_t percent,
                uint64_t seed) {
    uint64_t allocations = 0, retained = 0, retained_bytes = 0;
    if (!allocator->create(folder, limit_of(mib)))
        bench_fail("create", allocator->message());
    double begin_s = bench_now_s(), begin_cpu_s = bench_cpu_s();
    for (uint64_t allocated = 0; allocated < mib << 20; allocations++) {
        uint64_t random = bench_random(&seed), bytes = sizeof(struct node) + (random >> 16) % (largest - sizeof(struct node) + 1);
        struct node *node = new_node(allocator, bytes);
        allocated += bytes;
        if ((random >> 48) % 100 >= percent) {
            allocator->free(0, node);
            continue;
        }
        retain(allocator, node, bytes, (unsigned)random % BENCH_ROOTS);
        retained++;
        retained_bytes += bytes;
    }
    printf("{\"online_s\": %.6f, \"online_cpu_s\": %.6f, \"allocations\": %llu, \"objects\": %llu, \"bytes\": %llu}\n",
           bench_now_s() - begin_s, bench_cpu_s() - begin_cpu_s, (unsigned long long)allocations, (unsigned long long)retained,
           (unsigned long long)retained_bytes);
    fflush(stdout);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
    abort();
}

struct lists {
    uint64_t objects, bytes, longest;
};

static struct lists follow(const struct bench_allocator *allocator) {
    struct lists found = {0, 0, 0};
    for (unsigned root = 0; root < BENCH_ROOTS; root++) {
        uint64_t length = 0;
        for (const struct node *node = allocator->get_root(root); node != NULL; length++) {
            if (node->check != check_of(allocator, node))
                bench_fail("an object of a list", "its content changed");
            found.bytes += node->bytes;
            node = node_of(allocator, node->next);
        }
        found.objects += length;
        found.longest = length > found.longest ? length : found.longest;
    }
    return found;
}

int bench_recover(const struct bench_allocator *allocator, const char *folder, uint64_t mib) {
    double begin_s = bench_now_s(), begin_cpu_s = bench_cpu_s();
    if (!allocator->recover(folder, limit_of(mib)))
        bench_fail("recover", allocator->message());
    double recovered_s = bench_now_s(), recovered_cpu_s = bench_cpu_s();
    if (allocator->collect != NULL && !allocator->collect())
        bench_fail("collect", allocator->message());
    bool is_collected = allocator->collect != NULL;
    double collected_s = is_collected ? bench_now_s() : recovered_s,
           collected_cpu_s = is_collected ? bench_cpu_s() : recovered_cpu_s;
    struct lists found = follow(allocator);
    if (!allocator->check())
        bench_fail("check", allocator->message());
    if (!allocator->close())
        bench_fail("close", allocator->message());
    printf("{\"recover_s\": %.6f, \"recover_cpu_s\": %.6f, \"collect_s\": %.6f, \"collect_cpu_s\": %.6f,", recovered_s - begin_s,
           recovered_cpu_s - begin_cpu_s, collected_s - recovered_s, collected_cpu_s - recovered_cpu_s);
    printf(" \"objects\": %llu, \"bytes\": %llu, \"longest\": %llu}\n", (unsigned long long)found.objects,
           (unsigned long long)found.bytes, (unsigned long long)found.longest);
    return 0;
}
