/* SPDX-License-Identifier: Apache-2.0
 *
 * test_threads.c - several threads, and the recovery thread. Built as test_growth.c is, but with NVM_DEBUG=1, -DNVM_ARENAS=3, and
 * also with -fsanitize=thread. With -DNVM_WIDEN threads come in between one another's steps much more often.
 */
#include "common.h"

enum { THREADS = 6, LIMIT = 12, MAILBOXES = 48 };

static struct nvm_heap *open_by(const char *folder, bool is_new, enum nvm_scan_by scan_by) {
    int is_lazy = scan_by == NVM_SCAN_BY_OPEN ? 0 : scan_by == NVM_SCAN_BY_STEPS ? NVM_LAZY_BY_STEPS : NVM_LAZY_BY_THREAD;
    struct nvm_options options = {folder, CHUNK, CHUNK, 0, LIMIT * CHUNK, is_lazy};
    struct nvm_heap *heap = NULL;
    int status = is_new ? nvm_heap_create(&options, &heap) : nvm_heap_open(&options, &heap);
    if (status != NVM_OK) {
        printf("cannot %s a heap: %s\n", is_new ? "create" : "open", nvm_message());
        exit(3);
    }
    return heap;
}

static struct nvm_heap *open_shared(const char *folder, bool is_new, bool is_lazy) {
    return open_by(folder, is_new, is_lazy ? NVM_SCAN_BY_THREAD : NVM_SCAN_BY_OPEN);
}

/* What every thread of a test gets. */
struct worker {
    struct nvm_heap *heap;
    uint64_t *roots;
    uint64_t random;
    uint32_t number;
    uint64_t bytes, count;
};

static void run_threads(struct nvm_heap *heap, uint64_t *roots, uint64_t bytes, void *(*work)(void *), struct worker *workers,
                        uint32_t count) {
    pthread_t threads[128];
    for (uint32_t i = 0; i < count; i++) {
        workers[i] = (struct worker){heap, roots, 77 + i, i, bytes, workers[i].count};
        if (pthread_create(&threads[i], NULL, work, &workers[i]) != 0)
            exit(3);
    }
    for (uint32_t i = 0; i < count; i++)
        pthread_join(threads[i], NULL);
}

static pthread_mutex_t failures = PTHREAD_MUTEX_INITIALIZER;

static void expect_in_thread(bool is_true, const char *claim, int line) {
    pthread_mutex_lock(&failures);
    expect(is_true, claim, line);
    pthread_mutex_unlock(&failures);
}
#define EXPECT_HERE(fact) expect_in_thread(fact, #fact, __LINE__)

/* ---- threads that allocate and free each other's objects ---- */

static struct mailbox {
    pthread_mutex_t lock;
    uint64_t bytes, seed;
} mailboxes[MAILBOXES];

static uint64_t mixed_bytes(uint64_t random) {
    uint64_t kind = random % 16;
    return 1 + (random >> 8) % (kind == 0 ? 2 * CHUNK : kind < 4 ? CHUNK / 2 : 800);
}

static void put_in_mailbox(struct worker *worker, struct mailbox *mailbox, uint64_t *root) {
    void *object;
    uint64_t bytes = mixed_bytes(next_random(&worker->random));
    if (nvm_heap_reserve(worker->heap, bytes, &object) != NVM_OK)
        return;
    if (next_random(&worker->random) % 8 == 0) { /* changed its mind */
        EXPECT_HERE(nvm_heap_free(worker->heap, object, NULL, NULL, NULL, NULL) == NVM_OK);
        return;
    }
    mailbox->bytes = bytes;
    mailbox->seed = next_random(&worker->random);
    fill(object, mailbox->seed, bytes);
    nvm_persist(object, bytes);
    EXPECT_HERE(nvm_heap_activate(worker->heap, object, root, object, NULL, NULL) == NVM_OK);
}

static void *use_mailboxes(void *context) {
    struct worker *worker = context;
    nvm_thread_attach(worker->heap);
    for (int step = 0; step < 400; step++) {
        uint64_t i = next_random(&worker->random) % MAILBOXES;
        struct mailbox *mailbox = &mailboxes[i];
        uint64_t *root = &worker->roots[i];
        pthread_mutex_lock(&mailbox->lock);
        if (mailbox->bytes == 0) {
            put_in_mailbox(worker, mailbox, root);
        } else {
            void *object = nvm_heap_absolute(worker->heap, *root);
            EXPECT_HERE(is_filled(object, mailbox->seed, mailbox->bytes));
            EXPECT_HERE(nvm_heap_free(worker->heap, object, root, NULL, NULL, NULL) == NVM_OK && *root == 0);
            mailbox->bytes = 0;
        }
        pthread_mutex_unlock(&mailbox->lock);
    }
    nvm_thread_detach(worker->heap);
    return NULL;
}

static void compare_mailboxes(struct nvm_heap *heap) {
    const uint64_t *roots = nvm_heap_get_id(heap, "roots");
    uint64_t live = 1;
    for (int i = 0; i < MAILBOXES; i++) {
        EXPECT((roots[i] != 0) == (mailboxes[i].bytes != 0));
        live += roots[i] != 0;
        EXPECT(roots[i] == 0 || is_filled(nvm_heap_absolute(heap, roots[i]), mailboxes[i].seed, mailboxes[i].bytes));
    }
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == live);
}

/* While the workers run. */
static void *go_on_stepping(void *context) {
    struct nvm_heap *heap = context;
    for (int is_settled = 0; !is_settled;)
        EXPECT_HERE(nvm_heap_step(heap, &is_settled) == NVM_OK);
    return NULL;
}

static void threads_free_each_others_objects(enum nvm_scan_by scan_by) {
    struct worker workers[THREADS] = {0};
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    make_roots(heap, MAILBOXES);
    for (int i = 0; i < MAILBOXES; i++) {
        mailboxes[i] = (struct mailbox){.bytes = 0};
        pthread_mutex_init(&mailboxes[i].lock, NULL);
    }
    for (int round = 0; round < 3; round++) {
        pthread_t stepping;
        bool is_stepped = scan_by == NVM_SCAN_BY_STEPS && round > 0;
        if (is_stepped && pthread_create(&stepping, NULL, go_on_stepping, heap) != 0)
            exit(3);
        run_threads(heap, nvm_heap_get_id(heap, "roots"), 0, use_mailboxes, workers, THREADS); /* while it is being scanned */
        if (is_stepped)
            pthread_join(stepping, NULL);
        EXPECT(nvm_heap_settle(heap) == NVM_OK);
        compare_mailboxes(heap);
        nvm_heap_close(heap);
        heap = open_by(folder, false, scan_by);
    }
    nvm_heap_close(heap);
}

/* ---- fill to out of memory, and back ---- */

#if defined(NVM_WIDEN)
enum { ROOTS = 3000, ROUNDS = 12 };
#else
enum { ROOTS = 3000, ROUNDS = 3 };
#endif

static void *fill_up(void *context) {
    struct worker *worker = context;
    uint64_t *roots = worker->roots + worker->number * ROOTS;
    worker->count = 0;
    while (worker->count < ROOTS && allocate(worker->heap, &roots[worker->count], worker->bytes) != NULL)
        worker->count++;
    return NULL;
}

/* Frees what the next thread allocated. */
static void *free_others(void *context) {
    struct worker *worker = context;
    uint64_t *roots = worker->roots + (worker->number + 1) % THREADS * ROOTS;
    for (uint64_t i = 0; i < ROOTS; i++)
        if (roots[i] != 0)
            EXPECT_HERE(free_root(worker->heap, &roots[i]) == NVM_OK);
    return NULL;
}

static void all_memory_is_anybodys_when_it_is_short(void) {
    static const uint64_t sizes[] = {300, 1984, 5000, 20000, CHUNK / 2, CHUNK};
    struct worker workers[THREADS] = {0};
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t first[6] = {0};
    make_roots(heap, THREADS * ROOTS); /* a huge object itself */
    for (int round = 0; round < ROUNDS; round++)
        for (size_t s = 0; s < 6; s++) {
            uint64_t *roots = nvm_heap_get_id(heap, "roots"), count = 0;
            run_threads(heap, roots, sizes[s], fill_up, workers, THREADS);
            for (int i = 0; i < THREADS; i++)
                count += workers[i].count;
            EXPECT(count > 0 && (round == 0 || count == first[s])); /* whoever got it */
            first[s] = count;
            totals_of(heap);
            if (s == 2) {
                nvm_heap_close(heap);
                heap = open_shared(folder, false, round == 1);
                roots = nvm_heap_get_id(heap, "roots");
            }
            run_threads(heap, roots, 0, free_others, workers, THREADS);
            totals_of(heap);
        }
    void *object;
    EXPECT(nvm_heap_reserve(heap, (LIMIT - 1 - 3) * CHUNK - 64, &object) == NVM_OK); /* all but chunk 0 and the roots' */
    nvm_heap_close(heap);
}

/* ---- names ---- */

static void *use_names(void *context) {
    struct worker *worker = context;
    char id[32];
    void *object;
    for (uint32_t i = 0; i < 60; i++) {
        snprintf(id, sizeof id, "thread %u, %u", worker->number, i % 20);
        if (nvm_heap_get_id(worker->heap, id) != NULL)
            EXPECT_HERE(nvm_heap_free_id(worker->heap, id) == NVM_OK);
        else
            EXPECT_HERE(nvm_heap_reserve_id(worker->heap, id, 30 * i + 1, &object) == NVM_OK &&
                        nvm_heap_activate_id(worker->heap, id) == NVM_OK && nvm_heap_get_id(worker->heap, id) == object);
    }
    return NULL;
}

static void threads_have_names(void) {
    struct worker workers[THREADS] = {0};
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    run_threads(heap, NULL, 0, use_names, workers, THREADS);
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == THREADS * 20);
    nvm_heap_close(heap);
    heap = open_shared(folder, false, true);
    run_threads(heap, NULL, 0, use_names, workers, THREADS);
    EXPECT(nvm_heap_settle(heap) == NVM_OK && totals_of(heap).parts[NVM_PART_ALLOCATED] == 0);
    nvm_heap_close(heap);
}

/* ---- the ring: more operations at once than it has entries ---- */

static void *allocate_and_free(void *context) {
    struct worker *worker = context;
    uint64_t *root = &worker->roots[worker->number];
    for (int i = 0; i < 12; i++)
        EXPECT_HERE(allocate(worker->heap, root, 64 + worker->number * 64) != NULL && free_root(worker->heap, root) == NVM_OK);
    return NULL;
}

static void more_threads_than_ring_entries(void) {
    enum { MANY = 100 };
    static struct worker workers[MANY];
    struct nvm_heap *heap = open_shared(new_folder(), true, false);
    uint64_t *roots = make_roots(heap, MANY);
    run_threads(heap, roots, 0, allocate_and_free, workers, MANY);
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == 1);
    nvm_heap_close(heap);
}

/* ---- arenas ---- */

static void *note_arena(void *context) {
    struct worker *worker = context;
    void *object;
    EXPECT_HERE(nvm_heap_reserve(worker->heap, 64, &object) == NVM_OK);
    uint64_t block = nvm_heap_relative(worker->heap, object) / NVM_BLOCK_BYTES;
    worker->count = nvm_chunk_arena(nvm_chunk_of(worker->heap, (uint32_t)block));
    return NULL;
}

static void threads_get_arenas_in_turn(void) {
    struct worker workers[THREADS] = {0};
    struct nvm_heap *heap = open_shared(new_folder(), true, false);
    uint64_t threads_of[NVM_ARENAS] = {0};
    run_threads(heap, NULL, 0, note_arena, workers, THREADS);
    for (int i = 0; i < THREADS; i++)
        threads_of[workers[i].count]++;
    for (int i = 0; i < NVM_ARENAS; i++)
        EXPECT(threads_of[i] == THREADS / NVM_ARENAS);
    nvm_heap_close(heap);
}

/* ---- the recovery thread ---- */

static void *free_every_second(void *context) {
    struct worker *worker = context;
    for (uint64_t i = worker->number; i < ROOTS; i += THREADS)
        if (i % 2 == 0 && worker->roots[i] != 0)
            EXPECT_HERE(free_root(worker->heap, &worker->roots[i]) == NVM_OK);
    return NULL;
}

/* Objects of all classes and large ones in several chunks; some threads free while the scan runs. */
static void frees_and_the_scan_agree(uint64_t random) {
    struct worker workers[THREADS] = {0};
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t *roots = make_roots(heap, ROOTS), count = 0, freed = 0;
    while (count < ROOTS &&
           allocate(heap, &roots[count], next_random(&random) % 10 == 0 ? 5000 : 1 + next_random(&random) % 700) != NULL)
        count++;
    for (int round = 0; round < 3; round++) {
        nvm_heap_close(heap);
        heap = open_shared(folder, false, true);
        run_threads(heap, nvm_heap_get_id(heap, "roots"), 0, free_every_second, workers, THREADS);
        roots = nvm_heap_get_id(heap, "roots");
        EXPECT(nvm_heap_settle(heap) == NVM_OK);
        totals_of(heap);
        for (uint64_t i = 0; i < count; i++)
            if (roots[i] == 0 && next_random(&random) % 2 == 0)
                allocate(heap, &roots[i], 1 + next_random(&random) % 3000);
        totals_of(heap);
    }
    roots = nvm_heap_get_id(heap, "roots");
    for (uint64_t i = 0; i < count; i++)
        if (roots[i] != 0)
            freed += free_root(heap, &roots[i]) == NVM_OK;
    EXPECT(freed > 0 && totals_of(heap).parts[NVM_PART_ALLOCATED] == 1);
    nvm_heap_close(heap);
}

#if defined(NVM_WIDEN)
/* What this thread does between another's steps, instead of sleeping. */
static __thread struct nvm_heap *to_settle;

void nvm_widen(void) {
    if (to_settle != NULL)
        nvm_heap_settle(to_settle);
    else
        usleep(1);
}

/* All of the scan takes place while a free finds out what it is given. */
static void the_scan_may_end_during_a_free(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t *roots = make_roots(heap, ROOTS), count = 0;
    while (allocate(heap, &roots[count], 5000) != NULL)
        count++;
    for (uint64_t i = 0; i < 5; i++) {
        nvm_heap_close(heap);
        heap = open_shared(folder, false, true);
        roots = nvm_heap_get_id(heap, "roots");
        to_settle = heap;
        EXPECT(free_root(heap, &roots[count - 1 - i]) == NVM_OK); /* in the chunk that is scanned last */
        to_settle = NULL;
    }
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == count + 1 - 5);
    nvm_heap_close(heap);
}
#endif

static void requests_wait_for_the_scan(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t *roots = make_roots(heap, ROOTS), count = 0;
    while (allocate(heap, &roots[count], 1984) != NULL) /* to the limit: no chunk can be added */
        count++;
    for (uint64_t i = 0; i < count; i += 2)
        free_root(heap, &roots[i]);
    for (int round = 0; round < 20; round++) {
        nvm_heap_close(heap);
        heap = open_shared(folder, false, true);
        roots = nvm_heap_get_id(heap, "roots");
        EXPECT(allocate(heap, &roots[0], 1984) != NULL); /* what the scan finds is the only memory there is */
        EXPECT(free_root(heap, &roots[0]) == NVM_OK);
    }
    nvm_heap_close(heap); /* while it may still be scanning */
    heap = open_shared(folder, false, true);
    nvm_heap_close(heap);
}

/* One object of each kind is freed, or refused, before its chunk is scanned: as if the scan were very slow. */
static void frees_come_before_the_scan(void) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t *roots = make_roots(heap, 10);
    EXPECT(allocate(heap, &roots[0], 100) != NULL && allocate(heap, &roots[1], 100) != NULL);
    EXPECT(allocate(heap, &roots[2], 9000) != NULL && allocate(heap, &roots[3], 9000) != NULL);
    EXPECT(allocate(heap, &roots[4], CHUNK) != NULL);
    nvm_heap_close(heap);
    heap = open_shared(folder, false, false);
    roots = nvm_heap_get_id(heap, "roots");
    /* What a scan that has not begun would find: volatile structures of chunk 0 as open made them. */
    struct nvm_chunk *chunk = &heap->chunks[0];
    struct nvm_vheader *range = heap->arenas[0].free_ranges;
    EXPECT(range != NULL && range->left == NULL && range->right == NULL);
    heap->arenas[0].free_ranges = NULL;
    struct nvm_bin *bin = &heap->arenas[0].bins[1];
    free(bin->non_full);
    free(range);
    bin->non_full = NULL;
    memset(chunk->roles + 2, 0, heap->chunk_blocks - 2);
    memset(chunk->vheaders, 0, heap->chunk_blocks * sizeof *chunk->vheaders);
    chunk->is_scanned = 0;
    heap->version++;

    char *small = nvm_heap_absolute(heap, roots[0]), *large = nvm_heap_absolute(heap, roots[2]);
    EXPECT(nvm_heap_usable_bytes(heap, small) == 128 && nvm_heap_usable_bytes(heap, large) == 3 * 4096 - 64);
    EXPECT(nvm_heap_free(heap, small + 64, NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(nvm_heap_free(heap, small + 256, NULL, NULL, NULL, NULL) == NVM_INVALID); /* a slot that is free */
    EXPECT(nvm_heap_free(heap, large + 4096, NULL, NULL, NULL, NULL) == NVM_INVALID);
    EXPECT(free_root(heap, &roots[0]) == NVM_OK && bin->non_full != NULL && bin->non_full->activated == 5);
    EXPECT(free_root(heap, &roots[2]) == NVM_OK && heap->arenas[0].free_ranges == NULL);
    EXPECT(free_root(heap, &roots[4]) == NVM_OK);
    heap->scan.is_settled = false;
    EXPECT(nvm_scan_start(heap, NVM_SCAN_BY_THREAD) == NVM_OK && nvm_heap_settle(heap) == NVM_OK);
    heap->media->heap.version = heap->version;
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == 3);
    EXPECT(free_root(heap, &roots[1]) == NVM_OK && free_root(heap, &roots[3]) == NVM_OK);
    totals_of(heap);
    nvm_heap_close(heap);
}

/* A heap without room for another object of a block; how many it has. */
static uint64_t fill_with_blocks(const char *folder) {
    struct nvm_heap *heap = open_shared(folder, true, false);
    uint64_t *roots = make_roots(heap, ROOTS), count = 0;
    while (allocate(heap, &roots[count], 4000) != NULL)
        count++;
    nvm_heap_close(heap);
    return count;
}

/* is_settled: the scan has found it before anybody asks. */
static void damage_that_the_scan_finds_is_told(bool is_settled) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    fill_with_blocks(folder);
    int fd = open(file_of(folder), O_RDWR);
    uint64_t tag = 0x63;
    EXPECT(pwrite(fd, &tag, 8, 5 * CHUNK + 4096 + 56) == 8);
    close(fd);
    struct nvm_heap *heap = open_shared(folder, false, true);
    void *object;
    if (is_settled)
        EXPECT(nvm_heap_settle(heap) == NVM_CORRUPT);
    EXPECT(nvm_heap_reserve(heap, 4000, &object) == NVM_CORRUPT && strstr(nvm_message(), "damaged") != NULL);
    EXPECT(nvm_heap_settle(heap) == NVM_CORRUPT && nvm_heap_check(heap) == NVM_CORRUPT);
    nvm_heap_close(heap);
}

/* One chunk a step. Frees come before it, a request that lacks memory does what is left. */
static void the_scan_may_go_step_by_step(bool is_short_of_memory) {
    char folder[128];
    snprintf(folder, sizeof folder, "%s", new_folder());
    uint64_t count = fill_with_blocks(folder);
    struct nvm_heap *heap = open_by(folder, false, NVM_SCAN_BY_STEPS);
    uint64_t *roots = nvm_heap_get_id(heap, "roots");
    int steps = 1, is_settled = 0;
    EXPECT(free_root(heap, &roots[count - 1]) == NVM_OK);
    EXPECT(nvm_heap_step(heap, &is_settled) == NVM_OK && !is_settled);
    EXPECT(free_root(heap, &roots[0]) == NVM_OK);
    if (is_short_of_memory) {
        EXPECT(allocate(heap, &roots[0], 4000) != NULL && allocate(heap, &roots[count - 1], 4000) != NULL);
        EXPECT(nvm_heap_step(heap, &is_settled) == NVM_OK && is_settled);
    }
    for (; !is_settled; steps++)
        EXPECT(nvm_heap_step(heap, &is_settled) == NVM_OK);
    EXPECT(is_short_of_memory || steps > LIMIT / 2); /* some chunks are the roots' */
    EXPECT(nvm_heap_settle(heap) == NVM_OK && nvm_heap_check(heap) == NVM_OK);
    EXPECT(totals_of(heap).parts[NVM_PART_ALLOCATED] == 1 + count - (is_short_of_memory ? 0 : 2));
    nvm_heap_close(heap);
}

int main(void) {
    begin_tests("nvm");
    the_scan_may_go_step_by_step(false);
    the_scan_may_go_step_by_step(true);
    threads_free_each_others_objects(NVM_SCAN_BY_OPEN);
    threads_free_each_others_objects(NVM_SCAN_BY_THREAD);
    threads_free_each_others_objects(NVM_SCAN_BY_STEPS);
    all_memory_is_anybodys_when_it_is_short();
    threads_have_names();
    more_threads_than_ring_entries();
    threads_get_arenas_in_turn();
    for (uint64_t seed = 1; seed <= 4; seed++)
        frees_and_the_scan_agree(seed);
#if defined(NVM_WIDEN)
    the_scan_may_end_during_a_free();
#endif
    requests_wait_for_the_scan();
    frees_come_before_the_scan();
    damage_that_the_scan_finds_is_told(false);
    damage_that_the_scan_finds_is_told(true);
    return end_tests();
}
