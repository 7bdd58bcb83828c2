/* SPDX-License-Identifier: Apache-2.0
 *
 * block.c - allocate and free: the steps on persistent memory that layout.h promises.
 */
#include "types.h"

#include "persist.h"

/* ---- allocate ---- */

/* The headers that the block will cover must be correct free ones: a stray write that hit one may have hit what lies around it. False:
 * one is not, and its lines are not free any more. */
static bool are_free(struct nvmalloc_heap *heap, uint32_t start, uint32_t end) {
    for (uint32_t line = start, next; line < end; line = next) {
        next = nvmalloc_block_end(heap, line);
        bool is_correct = nvmalloc_is_correct(heap, line);
        uint64_t word = nvmalloc_word_at(heap, line);
        if (is_correct && nvmalloc_word_state(word) == NVMALLOC_FREE && nvmalloc_word_lines(word) == next - line)
            continue;
        nvmalloc_set_aside(heap, line);
        return false;
    }
    return true;
}

/* What is left, from line on, of the free block that the new block ends in. It keeps its timestamp. */
static void persist_remainder(struct nvmalloc_heap *heap, uint32_t line) {
#if defined(MUTANT_REMAINDER_MISSING)
    bits_set(heap->starts, line);
    return;
#endif
    uint32_t cut = bits_last_set(heap->starts, line), end = nvmalloc_block_end(heap, line);
#if defined(MUTANT_REMAINDER_TOO_LONG)
    end += line - cut;
#endif
    uint64_t wait = nvmalloc_wait_word(nvmalloc_wait_timestamp(nvmalloc_load(&nvmalloc_header_at(heap, cut)->wait)), 0);
    nvmalloc_store_wait(heap, line, wait);
    nvmalloc_store_word(heap, line, end - line, NVMALLOC_FREE, wait);
#if defined(MUTANT_REMAINDER_NOT_FLUSHED)
    fl_fence();
#elif defined(MUTANT_REMAINDER_NOT_FENCED)
    fl_flush(nvmalloc_header_at(heap, line), sizeof(struct nvmalloc_header));
#else
    nvmalloc_persist_header(heap, line);
#endif
    bits_set(heap->starts, line);
}

/* The line that becomes the chain's end: zero, unless a stray write hit it. */
static void ensure_unformatted(struct nvmalloc_heap *heap, uint32_t line) {
    uint64_t found = line < heap->line_count ? nvmalloc_word_at(heap, line) : 0;
    if (found == 0)
        return;
    nvmalloc_may_store(heap, line);
    fl_store8(&nvmalloc_header_at(heap, line)->word, 0);
    fl_persist(nvmalloc_header_at(heap, line), sizeof(struct nvmalloc_header));
    nvmalloc_tell(heap, NVMALLOC_DAMAGE_UNFORMATTED, line, 0, found);
}

/* The block takes the lines from start, which are free or unformatted, and begin a region or are top. */
static void make_block(struct nvmalloc_heap *heap, uint32_t start, uint32_t lines) {
    uint32_t end = start + lines;
    bool has_remainder = end < heap->top && !bits_test(heap->starts, end);
#if !defined(MUTANT_REMAINDER_LAST)
    if (has_remainder)
        persist_remainder(heap, end);
#endif
    if (end > heap->top)
        ensure_unformatted(heap, end);
    nvmalloc_store_word(heap, start, lines, NVMALLOC_ALLOCATED, 0);
#if defined(MUTANT_ALLOCATED_NOT_FLUSHED)
    fl_fence();
#elif defined(MUTANT_ALLOCATED_NOT_FENCED)
    fl_flush(nvmalloc_header_at(heap, start), sizeof(struct nvmalloc_header));
#else
    nvmalloc_persist_header(heap, start);
#endif
#if defined(MUTANT_REMAINDER_LAST)
    if (has_remainder)
        persist_remainder(heap, end);
#endif
    if (end > heap->top)
        heap->top = end;
    bits_clear_range(heap->starts, start, end);
    bits_set(heap->starts, start);
    bits_set_range(heap->used, start, end);
}

/* The first lines of a region, if there is one that is large enough; else 0. */
static uint32_t find_region(struct nvmalloc_heap *heap, uint32_t lines) {
    for (struct nvmalloc_hint hint; nvmalloc_take_hint(heap, lines, &hint);) {
        if (are_free(heap, hint.start, hint.start + lines))
            return hint.start;
        nvmalloc_add_hints(heap, hint.start, hint.start + hint.lines); /* what the damage left of it */
    }
    return 0;
}

/* Unformatted lines, after what is free at the end of the chain. *start 0: there are not enough of them. */
static int extend_chain(struct nvmalloc_heap *heap, uint32_t lines, uint32_t *start) {
    for (;;) {
        uint32_t tail = bits_last_set(heap->used, heap->top - 1) + 1;
        *start = 0;
        if (lines > heap->line_limit - tail)
            return NVMALLOC_OK;
        int status = nvmalloc_grow_to(heap, tail + lines);
        if (status != NVMALLOC_OK)
            return status;
        *start = tail;
        if (are_free(heap, tail, heap->top))
            return NVMALLOC_OK;
        nvmalloc_add_hints(heap, tail, heap->top);
    }
}

static int find_lines(struct nvmalloc_heap *heap, uint32_t lines, uint32_t *start) {
    int status;
    do {
        *start = find_region(heap, lines);
        status = *start == 0 ? extend_chain(heap, lines, start) : NVMALLOC_OK;
        if (*start != 0 || (status != NVMALLOC_OK && status != NVMALLOC_OUT_OF_MEMORY))
            return status;
    } while (nvmalloc_cut_wait_short(heap));
    if (status != NVMALLOC_OK)
        return status;
    return nvmalloc_fail(NVMALLOC_OUT_OF_MEMORY, "no %llu bytes free in a heap of %llu that may grow to %llu",
                         (unsigned long long)lines * NVMALLOC_LINE_BYTES,
                         (unsigned long long)heap->line_count * NVMALLOC_LINE_BYTES,
                         (unsigned long long)heap->line_limit * NVMALLOC_LINE_BYTES);
}

static int allocate(struct nvmalloc_heap *heap, uint32_t lines, uint32_t *start) {
    nvmalloc_tick(heap);
    nvmalloc_end_waits(heap);
    int status = find_lines(heap, lines, start);
    if (status != NVMALLOC_OK)
        return status;
    make_block(heap, *start, lines);
    uint32_t end = *start + lines;
    if (end < heap->top && !bits_test(heap->used, end))
        nvmalloc_add_hint(heap, end);
    return NVMALLOC_OK;
}

int nvmalloc_heap_allocate(struct nvmalloc_heap *heap, uint64_t bytes, void **object) {
    uint64_t most = (uint64_t)(heap->line_limit - NVMALLOC_FIRST_LINE) * NVMALLOC_LINE_BYTES - NVMALLOC_HEADER_BYTES;
    if (bytes > most)
        return nvmalloc_fail(NVMALLOC_TOO_LARGE, "%llu bytes wanted, but the heap's limit leaves room for %llu",
                             (unsigned long long)bytes, (unsigned long long)most);
#if defined(MUTANT_SIZE_WITHOUT_HEADER)
    uint32_t lines = bytes == 0 ? 1 : (uint32_t)((bytes + NVMALLOC_LINE_BYTES - 1) / NVMALLOC_LINE_BYTES), start = 0;
#else
    uint32_t lines = (uint32_t)((bytes + NVMALLOC_HEADER_BYTES + NVMALLOC_LINE_BYTES - 1) / NVMALLOC_LINE_BYTES), start = 0;
#endif
    nvmalloc_lock(heap);
    int status = allocate(heap, lines, &start);
    nvmalloc_unlock(heap);
    if (status == NVMALLOC_OK)
        *object = (char *)&heap->lines[start] + NVMALLOC_HEADER_BYTES;
    return status;
}

/* ---- free ---- */

/* The line of the object's block, if one begins there that is no free one; else 0. */
static uint32_t line_of(const struct nvmalloc_heap *heap, const void *object) {
    uint64_t offset = (uint64_t)((uintptr_t)object - (uintptr_t)heap->lines);
    if (offset % NVMALLOC_LINE_BYTES != NVMALLOC_HEADER_BYTES || offset / NVMALLOC_LINE_BYTES >= heap->top)
        return 0;
    uint32_t line = (uint32_t)(offset / NVMALLOC_LINE_BYTES);
    bool is_block = line >= NVMALLOC_FIRST_LINE && bits_test(heap->starts, line) && bits_test(heap->used, line);
    return is_block ? line : 0;
}

static void free_block(struct nvmalloc_heap *heap, uint32_t line) {
    uint32_t end = nvmalloc_block_end(heap, line);
    uint64_t wait = nvmalloc_wait_of_freed(heap);
#if defined(MUTANT_STATE_BEFORE_WAIT)
    nvmalloc_store_word(heap, line, end - line, NVMALLOC_FREE, wait);
    nvmalloc_store_wait(heap, line, wait);
#else
    nvmalloc_store_wait(heap, line, wait);
    nvmalloc_store_word(heap, line, end - line, NVMALLOC_FREE, wait);
#endif
#if defined(MUTANT_FREE_NOT_FLUSHED)
    fl_fence();
#elif defined(MUTANT_FREE_NOT_FENCED)
    fl_flush(nvmalloc_header_at(heap, line), sizeof(struct nvmalloc_header));
#elif !defined(MUTANT_FREE_PERSISTED_AFTER_WAIT)
    nvmalloc_persist_header(heap, line);
#endif
    nvmalloc_add_waiting(heap, line);
    nvmalloc_end_waits(heap);
}

static int refuse(struct nvmalloc_heap *heap, const void *object) {
    nvmalloc_tell(heap, NVMALLOC_DAMAGE_INVALID_FREE, 0, 0, 0);
    return nvmalloc_fail(NVMALLOC_INVALID, "%p is no allocated object of the heap at %p: freed twice?", object,
                         (void *)heap->lines);
}

static int free_object(struct nvmalloc_heap *heap, void *object) {
    uint32_t line = line_of(heap, object);
    if (line == 0)
        return refuse(heap, object);
    uint64_t word = nvmalloc_word_at(heap, line);
    uint32_t end = nvmalloc_block_end(heap, line);
    if (nvmalloc_is_correct(heap, line) && nvmalloc_word_state(word) == NVMALLOC_FREE)
        return refuse(heap, object); /* it waits */
    nvmalloc_tick(heap);
    if (!nvmalloc_is_correct(heap, line)) {
        nvmalloc_isolate(heap, NVMALLOC_DAMAGE_FREE, line, end);
        nvmalloc_rebuild_waiting(heap); /* it may have waited: then it was freed twice, and leaves the list */
        return nvmalloc_fail(NVMALLOC_CORRUPT,
                             "the header of the block at offset %#llx is damaged: %#llx. Its %llu bytes are not used any more",
                             (unsigned long long)line * NVMALLOC_LINE_BYTES, (unsigned long long)word,
                             (unsigned long long)(end - line) * NVMALLOC_LINE_BYTES);
    }
    if (nvmalloc_word_lines(word) != end - line)
        return nvmalloc_fail(NVMALLOC_CORRUPT,
                             "the block at offset %#llx has %u lines by its header, %u by the bitmap in DRAM: open the heap again",
                             (unsigned long long)line * NVMALLOC_LINE_BYTES, nvmalloc_word_lines(word), end - line);
    free_block(heap, line);
    return NVMALLOC_OK;
}

int nvmalloc_heap_free(struct nvmalloc_heap *heap, void *object) {
    if (object == NULL)
        return NVMALLOC_OK;
    nvmalloc_lock(heap);
    int status = free_object(heap, object);
    nvmalloc_unlock(heap);
    return status;
}

uint64_t nvmalloc_heap_usable_bytes(struct nvmalloc_heap *heap, const void *object) {
    nvmalloc_lock(heap);
    uint32_t line = object == NULL ? 0 : line_of(heap, object);
    bool is_live = line != 0 && nvmalloc_word_state(nvmalloc_word_at(heap, line)) == NVMALLOC_ALLOCATED;
    uint64_t bytes = is_live ? (uint64_t)(nvmalloc_block_end(heap, line) - line) * NVMALLOC_LINE_BYTES - NVMALLOC_HEADER_BYTES : 0;
    nvmalloc_unlock(heap);
    return bytes;
}
