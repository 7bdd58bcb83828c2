/* SPDX-License-Identifier: Apache-2.0
 *
 * waiting.c - the don't-allocate list (§3.1): a queue of freed blocks, oldest first, that are not to be allocated for a time T.
 *
 * Timestamp and link lie in the block's own header, and are written with the state. A block's lines stay used, in the bitmap, while it
 * waits; on persistent memory it is a free block like others, so the end of its wait writes nothing, and a failure forgets nothing:
 * the scan finds the timestamps.
 *
 * Timestamps are 32 bits of a clock that wraps (milliseconds: after 49 days). An old block whose timestamp looks young again, or a
 * clock that was set back, make blocks wait up to T once more, or not: nothing else depends on the clock.
 */
#include "types.h"

#include <stdlib.h>
#include <time.h>

#include "persist.h"
#include "stage.h"

uint32_t nvmalloc_now(const struct nvmalloc_heap *heap) {
    if (heap->clock == NVMALLOC_CLOCK_OPERATIONS)
        return heap->operations;
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    return (uint32_t)((uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000);
}

void nvmalloc_tick(struct nvmalloc_heap *heap) { heap->operations++; }

static uint32_t timestamp_of(const struct nvmalloc_heap *heap, uint32_t line) {
    return nvmalloc_wait_timestamp(nvmalloc_load(&nvmalloc_header_at(heap, line)->wait));
}

static bool has_waited(const struct nvmalloc_heap *heap, uint32_t line) {
    return nvmalloc_now(heap) - timestamp_of(heap, line) >= heap->wait_ticks;
}

uint64_t nvmalloc_wait_of_freed(const struct nvmalloc_heap *heap) {
    return nvmalloc_wait_word(nvmalloc_now(heap), heap->waiting.newest);
}

void nvmalloc_add_waiting(struct nvmalloc_heap *heap, uint32_t line) { heap->waiting.newest = line; }

/* Without volatile memory for it the block stays used until the heap is opened again. */
static void push(struct nvmalloc_heap *heap, uint32_t line) {
    struct nvmalloc_waiting *waiting = &heap->waiting;
    if (waiting->batch_count == waiting->batch_capacity) {
        uint32_t capacity = waiting->batch_capacity == 0 ? 64 : 2 * waiting->batch_capacity;
        uint32_t *batch = realloc(waiting->batch, capacity * sizeof *batch);
        if (batch == NULL)
            return;
        waiting->batch = batch;
        waiting->batch_capacity = capacity;
    }
    waiting->batch[waiting->batch_count++] = line;
}

static bool is_waiting(const struct nvmalloc_heap *heap, uint32_t line) {
    return bits_test(heap->starts, line) && bits_test(heap->used, line) && nvmalloc_is_correct(heap, line) &&
           nvmalloc_word_state(nvmalloc_word_at(heap, line)) == NVMALLOC_FREE;
}

/* ---- from the bitmaps ---- */

struct ages {
    const struct nvmalloc_heap *heap;
    uint32_t now;
};

static int by_age(const void *left, const void *right, void *context) {
    const struct ages *ages = context;
    uint32_t a = ages->now - timestamp_of(ages->heap, *(const uint32_t *)left);
    uint32_t b = ages->now - timestamp_of(ages->heap, *(const uint32_t *)right);
    return (a > b) - (a < b);
}

void nvmalloc_rebuild_waiting(struct nvmalloc_heap *heap) {
    struct nvmalloc_waiting *waiting = &heap->waiting;
    waiting->newest = 0;
    waiting->batch_count = 0;
    for (uint32_t line = NVMALLOC_FIRST_LINE; line < heap->top; line = nvmalloc_block_end(heap, line))
        if (is_waiting(heap, line))
            push(heap, line);
    struct ages ages = {heap, nvmalloc_now(heap)};
    if (waiting->batch_count > 1)
        qsort_r(waiting->batch, waiting->batch_count, sizeof *waiting->batch, by_age, &ages);
}

void nvmalloc_resume_waiting(struct nvmalloc_heap *heap) {
    for (uint32_t line = NVMALLOC_FIRST_LINE; line < heap->top; line = nvmalloc_block_end(heap, line)) {
        if (nvmalloc_word_state(nvmalloc_word_at(heap, line)) != NVMALLOC_FREE)
            continue;
        if (has_waited(heap, line)) {
            FL_STAGE("scan: free block, has waited");
        } else {
            FL_STAGE("scan: free block, goes on waiting");
            bits_set_range(heap->used, line, nvmalloc_block_end(heap, line));
        }
    }
#if !defined(MUTANT_WAITING_FORGOTTEN)
    nvmalloc_rebuild_waiting(heap);
#endif
}

/* ---- the oldest ---- */

/* The list has a line that does not wait. Where no block begins, it is the list that is wrong: what lies there is somebody's content. */
static void set_aside(struct nvmalloc_heap *heap, uint32_t line) {
    if (bits_test(heap->starts, line))
        nvmalloc_set_aside(heap, line);
}

/* Follows the links once. Where they lead to no waiting block the bitmaps know which ones there are. */
static void fill_batch(struct nvmalloc_heap *heap) {
    uint32_t line = heap->waiting.newest;
    heap->waiting.newest = 0;
    while (line != 0) {
        if (!is_waiting(heap, line)) { /* the link to it is correct: it has a checksum too */
            set_aside(heap, line);
            nvmalloc_rebuild_waiting(heap);
            return;
        }
        push(heap, line);
        line = nvmalloc_wait_older(nvmalloc_load(&nvmalloc_header_at(heap, line)->wait));
    }
}

/* The block that waits longest; 0: none does. */
static uint32_t oldest(struct nvmalloc_heap *heap) {
    struct nvmalloc_waiting *waiting = &heap->waiting;
    for (;;) {
        if (waiting->batch_count == 0)
            fill_batch(heap);
        if (waiting->batch_count == 0)
            return 0;
        uint32_t line = waiting->batch[waiting->batch_count - 1];
        if (is_waiting(heap, line))
            return line;
        waiting->batch_count--;
        set_aside(heap, line);
    }
}

#if defined(MUTANT_MERGE_ON_MEDIA)
static void merge_with_next(struct nvmalloc_heap *heap, uint32_t line) {
    uint32_t next = nvmalloc_block_end(heap, line);
    if (next == heap->top || bits_test(heap->used, next))
        return;
    struct nvmalloc_header *header = nvmalloc_header_at(heap, line), *second = nvmalloc_header_at(heap, next);
    uint32_t end = nvmalloc_block_end(heap, next);
    nvmalloc_may_store(heap, next);
    fl_store8(&second->word, 0);
    fl_persist(second, sizeof *second);
    nvmalloc_may_store(heap, line);
    fl_store8(&header->word, nvmalloc_make_word(line, end - line, NVMALLOC_FREE, header->wait));
    fl_persist(header, sizeof *header);
    bits_clear(heap->starts, next);
}
#endif

static void end_wait_of_oldest(struct nvmalloc_heap *heap) {
    uint32_t line = heap->waiting.batch[--heap->waiting.batch_count];
#if defined(MUTANT_FREE_PERSISTED_AFTER_WAIT)
    fl_persist(nvmalloc_header_at(heap, line), sizeof(struct nvmalloc_header));
#endif
#if defined(MUTANT_MERGE_ON_MEDIA)
    merge_with_next(heap, line);
#endif
    bits_clear_range(heap->used, line, nvmalloc_block_end(heap, line));
    nvmalloc_add_hint(heap, line);
}

void nvmalloc_end_waits(struct nvmalloc_heap *heap) {
    for (uint32_t line; (line = oldest(heap)) != 0 && has_waited(heap, line);)
        end_wait_of_oldest(heap);
}

bool nvmalloc_cut_wait_short(struct nvmalloc_heap *heap) {
    if (oldest(heap) == 0)
        return false;
    heap->cut_short++;
    end_wait_of_oldest(heap);
    return true;
}
