/* SPDX-License-Identifier: Apache-2.0
 *
 * workloads.c - the three benchmarks of Makalu §13.1, there with objects of 64 bytes, and those of PAllocator §5, which are two of them
 * with objects of other sizes: its standalone and its random allocations and deallocations are threadtest, each phase by itself or
 * both together. A thread's work comes in rounds:
 *
 *   threadtest  allocate objects / threads objects, then free them in the order in which they came
 *   larson      a thread has `objects` objects; a round replaces that many of them, chosen at random. After LARSON_ROUNDS rounds
 *               a new thread inherits them: objects are freed by other threads than those that allocated them
 *   prodcon     pairs of threads: one allocates `objects` objects, the other one frees them. Between them is a ring, which waits
 *               by yielding: the paper's queues, which block, would cost more than the allocators that are compared
 *
 * The first word of each object is written. One round before the others warms the allocator up and is not in the result.
 */
#include <pthread.h>
#include <sched.h>
#include <stdlib.h>
#include <string.h>

#include "bench.h"
#include "persist.h"

enum { LARSON_ROUNDS = 1000, RING_ENTRIES = 4096, SIZES = 4096, STEP_BYTES = 64 };

struct shared {
    const struct bench_work *work;
    pthread_barrier_t warm, start, end, over; /* of all threads and the one that measures */
    double deadline_s;
    uint64_t sizes[SIZES]; /* drawn before anything is measured; taken in turn */
    uint64_t operations; /* atomic */
};

struct ring {
    void *entries[RING_ENTRIES];
    uint64_t written __attribute__((aligned(64)));
    uint64_t read __attribute__((aligned(64)));
};

struct worker {
    struct shared *shared;
    unsigned number;
    void **objects; /* larson's */
    uint64_t random, rounds; /* of larson: done so far */
    uint64_t next_size;
    struct bench_phase allocating, freeing;
    struct ring *ring; /* prodcon's, of the pair */
};

static void *allocate(struct worker *worker) {
    const struct bench_allocator *allocator = worker->shared->work->allocator;
    uint64_t *object = allocator->allocate(worker->number, worker->shared->sizes[worker->next_size++ % SIZES]);
    if (object == NULL)
        bench_fail(allocator->name, allocator->message());
    *object = worker->number;
    return object;
}

static void release(const struct worker *worker, void *object) { worker->shared->work->allocator->free(worker->number, object); }

static void wait_for(pthread_barrier_t *barrier) { pthread_barrier_wait(barrier); }

static bool is_over(const struct shared *shared, uint64_t rounds) {
    const struct bench_work *work = shared->work;
    return work->rounds != 0 ? rounds == work->rounds : rounds != 0 && bench_now_s() >= shared->deadline_s;
}

static void add_operations(struct shared *shared, uint64_t operations) {
    __atomic_fetch_add(&shared->operations, operations, __ATOMIC_RELAXED);
}

static void *memory(size_t bytes) {
    void *got = calloc(1, bytes);
    if (got == NULL)
        bench_fail("the benchmark", "out of memory");
    return got;
}

static pthread_t start_thread(void *(*run)(void *), void *argument) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, run, argument) != 0)
        bench_fail("the benchmark", "a thread cannot be started");
    return thread;
}

/* ---- threadtest ---- */

static void threadtest_round(struct worker *worker, uint64_t objects) {
    double begin_s = bench_thread_cpu_s();
    for (uint64_t i = 0; i < objects; i++)
        worker->objects[i] = allocate(worker);
    double middle_s = bench_thread_cpu_s();
    for (uint64_t i = 0; i < objects; i++)
        release(worker, worker->objects[i]);
    worker->allocating.cpu_s += middle_s - begin_s;
    worker->freeing.cpu_s += bench_thread_cpu_s() - middle_s;
    worker->allocating.operations += objects;
    worker->freeing.operations += objects;
}

static void *threadtest(void *argument) {
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    uint64_t objects = shared->work->objects / shared->work->threads, rounds = 0;
    worker->objects = memory(objects * sizeof *worker->objects);
    threadtest_round(worker, objects);
    worker->allocating = worker->freeing = (struct bench_phase){0, 0};
    wait_for(&shared->warm);
    wait_for(&shared->start);
    for (; !is_over(shared, rounds); rounds++)
        threadtest_round(worker, objects);
    add_operations(shared, 2 * rounds * objects);
    wait_for(&shared->end);
    wait_for(&shared->over);
    free(worker->objects);
    return NULL;
}

/* ---- larson ---- */

static void larson_round(struct worker *worker) {
    uint64_t objects = worker->shared->work->objects;
    for (uint64_t i = 0; i < objects; i++) {
        void **place = &worker->objects[bench_random(&worker->random) % objects];
        release(worker, *place);
        *place = allocate(worker);
    }
}

/* One of the threads that inherit the objects from each other. */
static void *larson_life(void *argument) {
    struct worker *worker = argument;
    uint64_t end = worker->rounds + LARSON_ROUNDS;
    for (; worker->rounds != end && !is_over(worker->shared, worker->rounds); worker->rounds++)
        larson_round(worker);
    return NULL;
}

/* Never runs an allocator's code between the barriers: its successors do. */
static void *larson(void *argument) {
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    uint64_t objects = shared->work->objects;
    worker->objects = memory(objects * sizeof *worker->objects);
    for (uint64_t i = 0; i < objects; i++)
        worker->objects[i] = allocate(worker);
    larson_round(worker);
    wait_for(&shared->warm);
    wait_for(&shared->start);
    while (!is_over(shared, worker->rounds))
        pthread_join(start_thread(larson_life, worker), NULL);
    add_operations(shared, 2 * worker->rounds * objects);
    wait_for(&shared->end);
    wait_for(&shared->over);
    for (uint64_t i = 0; i < objects; i++)
        release(worker, worker->objects[i]);
    free(worker->objects);
    return NULL;
}

/* ---- prodcon ---- */

static void put(struct ring *ring, void *object) {
    uint64_t written = ring->written;
    while (written - __atomic_load_n(&ring->read, __ATOMIC_ACQUIRE) == RING_ENTRIES)
        sched_yield();
    ring->entries[written % RING_ENTRIES] = object;
    __atomic_store_n(&ring->written, written + 1, __ATOMIC_RELEASE);
}

static void *get(struct ring *ring) {
    uint64_t read = ring->read;
    while (__atomic_load_n(&ring->written, __ATOMIC_ACQUIRE) == read)
        sched_yield();
    void *object = ring->entries[read % RING_ENTRIES];
    __atomic_store_n(&ring->read, read + 1, __ATOMIC_RELEASE);
    return object;
}

static void *produce(void *argument) {
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    uint64_t objects = shared->work->objects, rounds = 0;
    for (uint64_t i = 0; i < objects; i++)
        put(worker->ring, allocate(worker));
    wait_for(&shared->warm);
    wait_for(&shared->start);
    for (; !is_over(shared, rounds); rounds++)
        for (uint64_t i = 0; i < objects; i++)
            put(worker->ring, allocate(worker));
    put(worker->ring, NULL);
    add_operations(shared, 2 * rounds * objects);
    wait_for(&shared->end);
    wait_for(&shared->over);
    return NULL;
}

static void *consume(void *argument) {
    struct worker *worker = argument;
    struct shared *shared = worker->shared;
    for (uint64_t i = 0; i < shared->work->objects; i++)
        release(worker, get(worker->ring));
    wait_for(&shared->warm);
    wait_for(&shared->start);
    for (void *object; (object = get(worker->ring)) != NULL;)
        release(worker, object);
    wait_for(&shared->end);
    wait_for(&shared->over);
    return NULL;
}

/* ---- measuring ---- */

static struct bench_result read_meters(void) {
    struct bench_result now = {.wall_s = bench_now_s(), .cpu_s = bench_cpu_s()};
#if defined(FL_COUNT)
    now.flushes = __atomic_load_n(&fl_flush_count, __ATOMIC_RELAXED);
    now.fences = __atomic_load_n(&fl_fence_count, __ATOMIC_RELAXED);
#endif
    return now;
}

static struct bench_result difference(struct bench_result before, struct bench_result after) {
    return (struct bench_result){
        .wall_s = after.wall_s - before.wall_s,
        .cpu_s = after.cpu_s - before.cpu_s,
        .flushes = after.flushes - before.flushes,
        .fences = after.fences - before.fences,
    };
}

static void measure(struct shared *shared, struct bench_result *result) {
    wait_for(&shared->warm);
    struct bench_result before = read_meters();
    shared->deadline_s = before.wall_s + shared->work->seconds;
    wait_for(&shared->start);
    wait_for(&shared->end);
    *result = difference(before, read_meters());
    wait_for(&shared->over);
}

static const struct {
    const char *name;
    void *(*even)(void *), *(*odd)(void *); /* by the worker's number */
} workloads[] = {{"threadtest", threadtest, threadtest}, {"larson", larson, larson}, {"prodcon", produce, consume}};

static void draw_sizes(const struct bench_sizes *wanted, uint64_t sizes[SIZES]) {
    uint64_t random = 1, span = wanted->largest - wanted->smallest;
    for (unsigned i = 0; i < SIZES; i++) {
        uint64_t more = 0;
        if (wanted->chance <= 0)
            more = bench_random(&random) % (span + 1);
        else
            for (uint64_t step = 0; step < span / STEP_BYTES; step++)
                more += (double)(bench_random(&random) >> 11) * 0x1p-53 < wanted->chance ? STEP_BYTES : 0;
        sizes[i] = wanted->smallest + more;
    }
}

static void add_phase(struct bench_phase *sum, const struct bench_phase *phase) {
    sum->operations += phase->operations;
    sum->cpu_s += phase->cpu_s;
}

bool bench_run(const char *workload, const struct bench_work *work, struct bench_result *result) {
    size_t which = 0;
    while (which < sizeof workloads / sizeof *workloads && strcmp(workloads[which].name, workload) != 0)
        which++;
    if (which == sizeof workloads / sizeof *workloads)
        return false;
    static struct shared shared;
    shared.work = work;
    draw_sizes(&work->sizes, shared.sizes);
    struct worker workers[BENCH_THREADS];
    pthread_t threads[BENCH_THREADS];
    struct ring *rings = memory((work->threads + 1) / 2 * sizeof *rings);
    pthread_barrier_t *barriers[] = {&shared.warm, &shared.start, &shared.end, &shared.over};
    for (size_t i = 0; i < sizeof barriers / sizeof *barriers; i++)
        pthread_barrier_init(barriers[i], NULL, work->threads + 1);
    for (unsigned i = 0; i < work->threads; i++) {
        workers[i] = (struct worker){
            .shared = &shared, .number = i, .random = i + 1, .next_size = i * SIZES / work->threads, .ring = &rings[i / 2]};
        threads[i] = start_thread(i % 2 == 0 ? workloads[which].even : workloads[which].odd, &workers[i]);
    }
    measure(&shared, result);
    for (unsigned i = 0; i < work->threads; i++) {
        pthread_join(threads[i], NULL);
        add_phase(&result->allocating, &workers[i].allocating);
        add_phase(&result->freeing, &workers[i].freeing);
    }
    result->operations = shared.operations;
    free(rings);
    return true;
}
