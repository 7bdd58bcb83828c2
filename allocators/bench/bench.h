/* SPDX-License-Identifier: Apache-2.0
 *
 * bench.h - the benchmark driver: one program, a table of allocators. An allocator takes part by a file NAME.c (or .cpp) here that
 * defines `const struct bench_allocator bench_NAME`; `make bench` finds it and builds the allocator with its own defaults,
 * not with the small sizes that allocator.toml has for crash tests.
 */
#ifndef FAULTLINE_BENCH_H
#define FAULTLINE_BENCH_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#if defined(__cplusplus)
extern "C" {
#endif

#define BENCH_ROOTS 512u   /* Makalu §13.2 */
#define BENCH_THREADS 64u  /* most */
#define BENCH_HEAP_BYTES ((uint64_t)64 << 20) /* at first; heaps grow */
#define BENCH_ADDRESS ((uintptr_t)0x200000000000) /* where heaps are mapped: pointers in objects outlive a crash */

/* One heap a process. Functions that return bool: false means that message() says why. */
struct bench_allocator {
    const char *name;
    bool (*create)(const char *folder, uint64_t limit_bytes);
    bool (*close)(void);
    const char *(*message)(void);

    /* thread: 0 to BENCH_THREADS - 1; one thread at a time uses a number. Null: out of memory. */
    void *(*allocate)(unsigned thread, size_t bytes);
    void (*free)(unsigned thread, void *object);

    /* From here on null if nothing survives the process. How a pointer is kept in an object; null: as its address. */
    uint64_t (*word_of)(const void *object);
    void *(*object_of)(uint64_t word);
    void (*set_root)(unsigned root, void *object); /* durable when it returns */
    void *(*get_root)(unsigned root);
    bool (*recover)(const char *folder, uint64_t limit_bytes); /* of a heap that nobody closed */
    bool (*collect)(void);                                     /* null: the allocator collects no garbage */
    bool (*check)(void);                                       /* the allocator's own */
    void (*set_wait)(uint64_t operations); /* before create: how long freed memory waits; null: it does not */
    uint64_t (*defragmented)(void); /* bytes so far; null: the allocator does not defragment */
};

/* Of the objects, from smallest to largest: all are equally likely, or, with a chance above 0, binomially distributed in steps of a
 * line: each step is taken with that chance (PAllocator §5). */
struct bench_sizes {
    uint64_t smallest, largest;
    double chance;
};

struct bench_phase {
    uint64_t operations;
    double cpu_s; /* of the threads in it */
};

struct bench_work {
    const struct bench_allocator *allocator;
    unsigned threads;
    struct bench_sizes sizes;
    uint64_t objects; /* what a round is: see workloads.c */
    uint64_t rounds; /* of each thread; 0: as many as begin within `seconds` */
    double seconds;
};

/* Of the rounds, without the one before them that warms the allocator up. */
struct bench_result {
    uint64_t operations; /* an allocation is one, a deallocation is one */
    double wall_s, cpu_s;
    uint64_t flushes, fences; /* in programs built with FL_COUNT */
    struct bench_phase allocating, freeing; /* where a workload has them apart */
};

/* operations in all; per_free: of how many allocations comes one free, on average. */
struct bench_churn {
    uint64_t operations, per_free, smallest, largest, seed;
    uint64_t limit_bytes;
};

/* workloads.c: §13.1. False: no such workload. */
bool bench_run(const char *workload, const struct bench_work *work, struct bench_result *result);

/* resur.c: §13.2. Exit codes; bench_resur ends by abort. */
int bench_resur(const struct bench_allocator *allocator, const char *folder, uint64_t mib, uint64_t largest, uint64_t percent,
                uint64_t seed);
int bench_recover(const struct bench_allocator *allocator, const char *folder, uint64_t mib);

/* fragment.c: PAllocator §5, Table 2. Exit code. */
int bench_fragment(const struct bench_allocator *allocator, const char *folder, uint64_t mib, uint64_t smallest, uint64_t largest);

/* wear.c: Moraru et al., section 8.1.1. Exit code. */
int bench_wear(const struct bench_allocator *allocator, const char *folder, uint64_t limit_bytes, const char *workload);

/* churn.c: Moraru et al., Table 2. Exit code. */
int bench_churn(const struct bench_allocator *allocator, const char *folder, const struct bench_churn *churn);

double bench_now_s(void);
double bench_cpu_s(void); /* of all threads of the process, ended ones too */
double bench_thread_cpu_s(void);
uint64_t bench_random(uint64_t *state);
void bench_fail(const char *what, const char *why) __attribute__((noreturn));

#if defined(__cplusplus)
}
#endif

#endif
