/* SPDX-License-Identifier: Apache-2.0
 *
 * main.c - the benchmark driver's command line. One measurement a process; one JSON object on stdout. ci/bench_allocators.py builds and
 * calls it:
 *
 *     bench ALLOCATOR threadtest|larson|prodcon FOLDER THREADS SMALLEST LARGEST CHANCE OBJECTS ROUNDS SECONDS
 *     bench ALLOCATOR resur FOLDER MIB LARGEST PERCENT SEED
 *     bench ALLOCATOR recover FOLDER MIB
 *     bench ALLOCATOR fragment FOLDER MIB SMALLEST LARGEST
 *     bench ALLOCATOR churn FOLDER OPERATIONS PER_FREE SMALLEST LARGEST SEED [WAIT]
 *     bench ALLOCATOR wear FOLDER WORKLOAD-FILE [WAIT]
 *
 * Built with -DBENCH_ALLOCATORS='X(NAME) ...'.
 */
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "bench.h"
#include "persist.h"

#if defined(FL_COUNT)
uint64_t fl_flush_count, fl_fence_count;
#endif

#define X(name) extern const struct bench_allocator bench_##name;
BENCH_ALLOCATORS
#undef X

static const struct bench_allocator *const allocators[] = {
#define X(name) &bench_##name,
    BENCH_ALLOCATORS
#undef X
};

enum { USAGE = 2, RUN_LIMIT_GIB = 4, LARGEST_BYTES = 1 << 28 };

double bench_now_s(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

double bench_cpu_s(void) {
    struct timespec used;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

double bench_thread_cpu_s(void) {
    struct timespec used;
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &used);
    return (double)used.tv_sec + (double)used.tv_nsec / 1e9;
}

uint64_t bench_random(uint64_t *state) { /* splitmix64 */
    uint64_t x = *state += 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
    x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
    return x ^ (x >> 31);
}

void bench_fail(const char *what, const char *why) {
    fprintf(stderr, "bench: error: %s: %s\n", what, why);
    exit(1);
}

static int usage(void) {
    fputs(
        "bench: error: expected ALLOCATOR threadtest|larson|prodcon FOLDER THREADS SMALLEST LARGEST CHANCE OBJECTS ROUNDS SECONDS,"
        " ALLOCATOR resur FOLDER MIB LARGEST PERCENT SEED, ALLOCATOR recover FOLDER MIB"
        ", ALLOCATOR fragment FOLDER MIB SMALLEST LARGEST, ALLOCATOR churn FOLDER OPERATIONS PER_FREE SMALLEST LARGEST SEED [WAIT]"
        " or ALLOCATOR wear FOLDER WORKLOAD-FILE [WAIT]\n",
        stderr);
    return USAGE;
}

static const struct bench_allocator *find_allocator(const char *name) {
    for (size_t i = 0; i < sizeof allocators / sizeof *allocators; i++)
        if (strcmp(allocators[i]->name, name) == 0)
            return allocators[i];
    return NULL;
}

/* Of argument `index`, a whole number from `least` to `most`. */
static uint64_t number(char **arguments, int index, uint64_t least, uint64_t most) {
    char *end;
    errno = 0;
    unsigned long long value = strtoull(arguments[index], &end, 10);
    if (errno != 0 || *end != '\0' || end == arguments[index] || arguments[index][0] == '-' || value < least || value > most) {
        fprintf(stderr, "bench: error: %s: expected a number from %llu to %llu\n", arguments[index], (unsigned long long)least,
                (unsigned long long)most);
        exit(USAGE);
    }
    return value;
}

static int run(const struct bench_allocator *allocator, char **arguments) {
    struct bench_result result;
    struct bench_work work = {
        .allocator = allocator,
        .threads = (unsigned)number(arguments, 4, 1, BENCH_THREADS),
        .sizes.smallest = number(arguments, 5, 8, LARGEST_BYTES),
        .sizes.largest = number(arguments, 6, 8, LARGEST_BYTES),
        .sizes.chance = strtod(arguments[7], NULL),
        .objects = number(arguments, 8, BENCH_THREADS, 1u << 30),
        .rounds = number(arguments, 9, 0, UINT32_MAX),
        .seconds = strtod(arguments[10], NULL),
    };
    if (work.sizes.largest < work.sizes.smallest)
        bench_fail("sizes", "the largest object is smaller than the smallest");
    if (strcmp(arguments[2], "prodcon") == 0 && work.threads % 2 != 0)
        bench_fail("prodcon", "the number of threads must be even");
    if (!allocator->create(arguments[3], (uint64_t)RUN_LIMIT_GIB << 30))
        bench_fail("create", allocator->message());
    if (!bench_run(arguments[2], &work, &result))
        return usage();
    if (allocator->check != NULL && !allocator->check())
        bench_fail("check", allocator->message());
    if (!allocator->close())
        bench_fail("close", allocator->message());
    printf("{\"operations\": %llu, \"wall_s\": %.6f, \"cpu_s\": %.6f, \"flushes\": %llu, \"fences\": %llu,",
           (unsigned long long)result.operations, result.wall_s, result.cpu_s, (unsigned long long)result.flushes,
           (unsigned long long)result.fences);
    printf(" \"allocations\": %llu, \"allocating_cpu_s\": %.6f, \"frees\": %llu, \"freeing_cpu_s\": %.6f}\n",
           (unsigned long long)result.allocating.operations, result.allocating.cpu_s, (unsigned long long)result.freeing.operations,
           result.freeing.cpu_s);
    return 0;
}

/* Argument `index`, if it is there: how long freed memory waits, in operations. */
static void set_wait(const struct bench_allocator *allocator, char **arguments, int count, int index) {
    if (count <= index)
        return;
    if (allocator->set_wait == NULL)
        fprintf(stderr, "bench: error: %s: freed memory does not wait\n", allocator->name), exit(USAGE);
    allocator->set_wait(number(arguments, index, 0, INT32_MAX));
}

static int wear(const struct bench_allocator *allocator, char **arguments, int count) {
    if (count < 5 || count > 6)
        return usage();
    set_wait(allocator, arguments, count, 5);
    return bench_wear(allocator, arguments[3], (uint64_t)RUN_LIMIT_GIB << 30, arguments[4]);
}

static int churn(const struct bench_allocator *allocator, char **arguments, int count) {
    if (count < 9 || count > 10)
        return usage();
    set_wait(allocator, arguments, count, 9);
    const struct bench_churn wanted = {
        .operations = number(arguments, 4, 1, 1u << 30),
        .per_free = number(arguments, 5, 1, 1u << 20),
        .smallest = number(arguments, 6, 1, LARGEST_BYTES),
        .largest = number(arguments, 7, 1, LARGEST_BYTES),
        .seed = number(arguments, 8, 0, UINT32_MAX),
        .limit_bytes = (uint64_t)RUN_LIMIT_GIB << 30,
    };
    if (wanted.largest < wanted.smallest)
        bench_fail("sizes", "the largest object is smaller than the smallest");
    return bench_churn(allocator, arguments[3], &wanted);
}

int main(int count, char **arguments) {
    if (count < 5)
        return usage();
    const struct bench_allocator *allocator = find_allocator(arguments[1]);
    if (allocator == NULL)
        bench_fail(arguments[1], "no such allocator in this build");
    if (strcmp(arguments[2], "wear") == 0)
        return wear(allocator, arguments, count);
    if (strcmp(arguments[2], "churn") == 0)
        return churn(allocator, arguments, count);
    bool is_resur = strcmp(arguments[2], "resur") == 0, is_recover = strcmp(arguments[2], "recover") == 0;
    bool is_fragment = strcmp(arguments[2], "fragment") == 0;
    if ((is_resur || is_recover || is_fragment) && allocator->recover == NULL)
        bench_fail(arguments[1], "nothing survives its process");
    if (is_resur && count == 8)
        return bench_resur(allocator, arguments[3], number(arguments, 4, 1, 1u << 20), number(arguments, 5, 64, 1u << 20),
                           number(arguments, 6, 1, 100), number(arguments, 7, 0, UINT32_MAX));
    if (is_fragment && count == 7)
        return bench_fragment(allocator, arguments[3], number(arguments, 4, 1, 1u << 20), number(arguments, 5, 64, LARGEST_BYTES),
                              number(arguments, 6, 64, LARGEST_BYTES));
    if (is_recover && count == 5)
        return bench_recover(allocator, arguments[3], number(arguments, 4, 1, 1u << 20));
    return count == 11 && !is_resur && !is_recover && !is_fragment ? run(allocator, arguments) : usage();
}
