/* SPDX-License-Identifier: Apache-2.0
 *
 * mark.c - the mark phase of the offline collection (§9.2): parallel, fully conservative.
 *
 * Every aligned word that lies in a block in use is taken for a pointer, to the start of an object or into it: §9.2 gives the
 * collector no types. An object is marked once, by whoever sets its bit, and its words are looked at once.
 *
 * Each thread has a stack of ranges to scan, of a fixed size; what does not fit goes to the pool that all share, and is taken
 * from there by threads that have nothing. When the pool is full too, the object stays marked but is not scanned:
 * then, when all stacks are empty, all marked objects are scanned again, until no stack ran over. Each such pass marks at
 * least one new object or is the last, so a tiny stack costs time only (as bdwgc has it, [12, 13]).
 *
 * With one thread the result and the order of all stores depend on the region alone.
 */
#include "types.h"

#include <stdlib.h>
#include <unistd.h>

#include "stage.h"

struct range {
    uint64_t *start;
    uint64_t words;
};

/* A longer object is scanned in pieces, so that several threads can share it. */
enum { PIECE_WORDS = 8192, MAX_THREADS = 64 };

struct marker {
    struct range stack[MAK_MARK_STACK];
    uint32_t count;
    struct range ahead[MAK_MARK_AHEAD]; /* ring: off the stack, on their way into the cache */
    uint32_t ahead_first, ahead_count;
    bool is_overflown; /* an object was marked and not scanned */
};

static struct {
    pthread_mutex_t lock;
    pthread_cond_t changed;
    struct range *ranges; /* MAK_MARK_POOL */
    uint32_t count;
    uint32_t idle, threads;
    bool is_parallel;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER, .changed = PTHREAD_COND_INITIALIZER};

static unsigned wanted_threads = MAK_MARK_THREADS;

void MAK_set_mark_threads(unsigned threads) { wanted_threads = threads; }

static uint32_t thread_count(void) {
    long processors = wanted_threads != 0 ? (long)wanted_threads : sysconf(_SC_NPROCESSORS_ONLN);
    return processors < 1 ? 1 : processors > MAX_THREADS ? MAX_THREADS : (uint32_t)processors;
}

/* ---- stacks ---- */

/* Half of a full stack goes to the pool, as far as there is room. */
static void spill(struct marker *marker) {
    pthread_mutex_lock(&pool.lock);
    uint32_t moved = marker->count / 2 + 1;
    if (moved > MAK_MARK_POOL - pool.count)
        moved = MAK_MARK_POOL - pool.count;
    for (uint32_t i = 0; i < moved; i++)
        pool.ranges[pool.count++] = marker->stack[--marker->count];
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
}

static void push(struct marker *marker, uint64_t *start, uint64_t words) {
    if (marker->count == MAK_MARK_STACK)
        spill(marker);
    if (marker->count == MAK_MARK_STACK) {
        marker->is_overflown = true;
        return;
    }
    marker->stack[marker->count++] = (struct range){start, words};
}

/* Somebody waits: a range for them is worth the lock. */
static void share(struct marker *marker) {
    if (pool.is_parallel && marker->count > 1 && __atomic_load_n(&pool.idle, __ATOMIC_RELAXED) != 0)
        spill(marker);
}

/* ---- marking ---- */

/* True if the bit was clear. */
static bool set_mark(struct mak_header *header, uint32_t index) {
    uint64_t *word = &header->hb_mark_bits[index / 64], bit = (uint64_t)1 << index % 64;
    if ((__atomic_load_n(word, __ATOMIC_RELAXED) & bit) != 0)
        return false;
    if (!pool.is_parallel) {
        fl_store8(word, *word | bit);
        return true;
    }
    return (__atomic_fetch_or(word, bit, __ATOMIC_RELAXED) & bit) == 0;
}

/* The object that the word points to or into, if it is a pointer at all. */
static bool find_object(uint64_t word, struct mak_header **header, uint32_t *index) {
    if (word < mak_address_of(mak.first_block) || word >= mak_address_of(mak_end_block()))
        return false;
    *header = mak_map_find(mak_block_of(word));
    if (*header == NULL || (*header)->hb_flag != MAK_IN_USE)
        return false;
    *index = (uint32_t)((word - (*header)->hb_block) / (*header)->hb_sz);
    return *index < mak_object_count((*header)->hb_sz);
}

void *MAK_object_at(uint64_t word) {
    struct mak_header *header;
    uint32_t index;
    bool is_pointer = mak.phase != MAK_PHASE_CLOSED && find_object(word, &header, &index);
    return is_pointer ? (void *)(uintptr_t)(header->hb_block + index * header->hb_sz) : NULL;
}

static void mark_word(struct marker *marker, uint64_t word) {
    struct mak_header *header;
    uint32_t index;
    if (find_object(word, &header, &index) && set_mark(header, index))
        push(marker, (uint64_t *)(uintptr_t)(header->hb_block + index * header->hb_sz), header->hb_sz / 8);
}

static void scan(struct marker *marker, struct range range) {
    if (range.words > PIECE_WORDS) {
#if !defined(MUTANT_REST_NOT_SCANNED)
        push(marker, range.start + PIECE_WORDS, range.words - PIECE_WORDS);
#endif
        range.words = PIECE_WORDS;
    }
    for (uint64_t i = 0; i < range.words; i++)
        mark_word(marker, range.start[i]);
}

/* Ranges from the pool; false: all threads have nothing, so marking is done. */
static bool take(struct marker *marker) {
    pthread_mutex_lock(&pool.lock);
    __atomic_store_n(&pool.idle, pool.idle + 1, __ATOMIC_RELAXED);
    while (pool.count == 0 && pool.idle < pool.threads)
        pthread_cond_wait(&pool.changed, &pool.lock);
    bool is_more = pool.count != 0;
    if (is_more) {
        __atomic_store_n(&pool.idle, pool.idle - 1, __ATOMIC_RELAXED);
        for (uint32_t i = 0; i <= MAK_MARK_STACK / 2 && pool.count != 0 && (i < 16 || !pool.is_parallel); i++)
            marker->stack[marker->count++] = pool.ranges[--pool.count];
    } else {
        pthread_cond_broadcast(&pool.changed);
    }
    pthread_mutex_unlock(&pool.lock);
    return is_more;
}

/* Lists hang from many roots, and the next object of a list is anywhere: so several are followed in turns, and their objects come
 * from memory meanwhile. False: there is nothing to scan. */
static bool look_ahead(struct marker *marker) {
    while (marker->ahead_count < MAK_MARK_AHEAD && marker->count != 0) {
        struct range range = marker->stack[--marker->count];
        __builtin_prefetch(range.start);
        marker->ahead[(marker->ahead_first + marker->ahead_count++) % MAK_MARK_AHEAD] = range;
    }
    return marker->ahead_count != 0;
}

static struct range next_ahead(struct marker *marker) {
    struct range range = marker->ahead[marker->ahead_first];
    marker->ahead_first = (marker->ahead_first + 1) % MAK_MARK_AHEAD;
    marker->ahead_count--;
    return range;
}

static void drain(struct marker *marker) {
    do {
        while (look_ahead(marker)) {
            scan(marker, next_ahead(marker));
            share(marker);
        }
    } while (take(marker));
}

/* ---- passes ---- */

static void *run_marker(void *context) {
    drain(context);
    return NULL;
}

/* All threads, until there is nothing left to scan. */
static void drain_all(struct marker *markers) {
    pthread_t threads[MAX_THREADS];
    uint32_t wanted = pool.threads, started = 1;
    pool.idle = 0;
    for (; started < wanted; started++)
        if (pthread_create(&threads[started], NULL, run_marker, &markers[started]) != 0)
            break;
    pthread_mutex_lock(&pool.lock);
    pool.threads = started; /* the system may not give all */
    pthread_cond_broadcast(&pool.changed);
    pthread_mutex_unlock(&pool.lock);
    drain(&markers[0]);
    for (uint32_t i = 1; i < started; i++)
        pthread_join(threads[i], NULL);
}

/* Was an object marked that no stack had room for? */
static bool was_overflown(struct marker *markers, uint32_t count) {
    bool is_any = false;
    for (uint32_t i = 0; i < count; i++) {
        is_any |= markers[i].is_overflown;
        markers[i].is_overflown = false;
    }
    return is_any;
}

/* By one thread: it is the rare case, and depth is what it is about. */
static void scan_marked_objects(struct marker *markers) {
    pool.threads = 1;
    pool.is_parallel = false;
    for (uint32_t block = mak.first_block; block < mak_end_block(); block = mak_map_next(block)) {
        struct mak_header *header = mak_map_find(block);
        if (header == NULL || header->hb_flag != MAK_IN_USE)
            continue;
        for (uint32_t index = 0; index < mak_object_count(header->hb_sz); index++)
            if ((header->hb_mark_bits[index / 64] >> index % 64 & 1) != 0)
                scan(&markers[0],
                     (struct range){(uint64_t *)(uintptr_t)(header->hb_block + index * header->hb_sz), header->hb_sz / 8});
        drain_all(markers);
    }
}

/* All mark bits are clear before. */
int mak_mark(void) {
    uint32_t threads = thread_count();
    struct marker *markers = calloc(threads, sizeof *markers);
    pool.ranges = malloc(MAK_MARK_POOL * sizeof *pool.ranges);
    if (markers == NULL || pool.ranges == NULL) {
        free(markers);
        free(pool.ranges);
        return mak_fail(MAK_ERROR, "out of volatile memory for mark stacks");
    }
    pool.count = 0;
    pool.threads = threads;
    pool.is_parallel = threads > 1;
    for (uint32_t root = 0; root < MAK_ROOTS; root++)
        mark_word(&markers[0], mak.roots[root]);
    drain_all(markers);
#if !defined(MUTANT_FULL_MARK_STACK_STOPS)
    while (was_overflown(markers, threads)) {
        FL_STAGE("mark: a stack ran over, marked objects are scanned again");
        scan_marked_objects(markers);
    }
#else
    (void)was_overflown, (void)scan_marked_objects;
#endif
    free(markers);
    free(pool.ranges);
    return MAK_OK;
}
