/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - looking at a heap: every part of it, counts, and whether media and volatile structures agree.
 */
#include "types.h"

/* ---- walk ---- */

static enum nvmalloc_part_state part_state(const struct nvmalloc_heap *heap, uint32_t line) {
    switch (nvmalloc_word_state(nvmalloc_word_at(heap, line))) {
    case NVMALLOC_ALLOCATED: return NVMALLOC_PART_ALLOCATED;
    case NVMALLOC_DAMAGED: return NVMALLOC_PART_DAMAGED;
    default: return NVMALLOC_PART_FREE;
    }
}

struct walk {
    void (*visit)(void *context, const struct nvmalloc_part *part);
    void *context;
};

static void visit(const struct walk *walk, enum nvmalloc_part_state state, uint64_t offset, uint64_t bytes) {
    if (bytes != 0)
        walk->visit(walk->context, &(struct nvmalloc_part){state, offset, bytes});
}

static void visit_block(const struct walk *walk, enum nvmalloc_part_state state, uint32_t line, uint32_t end) {
    uint64_t offset = (uint64_t)line * NVMALLOC_LINE_BYTES, bytes = (uint64_t)(end - line) * NVMALLOC_LINE_BYTES;
    visit(walk, NVMALLOC_PART_METADATA, offset, NVMALLOC_HEADER_BYTES);
    visit(walk, state, offset + NVMALLOC_HEADER_BYTES, bytes - NVMALLOC_HEADER_BYTES);
}

static void walk_heap(struct nvmalloc_heap *heap, const struct walk *walk) {
    visit(walk, NVMALLOC_PART_METADATA, 0, NVMALLOC_FIRST_LINE * NVMALLOC_LINE_BYTES);
    for (uint32_t line = NVMALLOC_FIRST_LINE, end; line < heap->top; line = end) {
        end = nvmalloc_block_end(heap, line);
        enum nvmalloc_part_state state = part_state(heap, line);
        if (state == NVMALLOC_PART_FREE && !bits_test(heap->used, line)) {
            end = bits_next_set(heap->used, line, heap->top); /* the whole region: headers in it are free memory too */
            visit(walk, state, (uint64_t)line * NVMALLOC_LINE_BYTES, (uint64_t)(end - line) * NVMALLOC_LINE_BYTES);
        } else {
            visit_block(walk, state, line, end);
        }
    }
    visit(walk, NVMALLOC_PART_FREE, (uint64_t)heap->top * NVMALLOC_LINE_BYTES,
          (uint64_t)(heap->line_count - heap->top) * NVMALLOC_LINE_BYTES);
}

void nvmalloc_heap_walk(struct nvmalloc_heap *heap, void (*visit_part)(void *context, const struct nvmalloc_part *part),
                        void *context) {
    nvmalloc_lock(heap);
    walk_heap(heap, &(struct walk){visit_part, context});
    nvmalloc_unlock(heap);
}

/* ---- counts ---- */

static void count_blocks(const struct nvmalloc_heap *heap, struct nvmalloc_counts *counts) {
    for (uint32_t line = NVMALLOC_FIRST_LINE, end; line < heap->top; line = end) {
        end = nvmalloc_block_end(heap, line);
        enum nvmalloc_part_state state = part_state(heap, line);
        uint64_t bytes = (uint64_t)(end - line) * NVMALLOC_LINE_BYTES;
        bool is_waiting = state == NVMALLOC_PART_FREE && bits_test(heap->used, line);
        counts->allocated_bytes += state == NVMALLOC_PART_ALLOCATED ? bytes : 0;
        counts->allocated_blocks += state == NVMALLOC_PART_ALLOCATED;
        counts->waiting_bytes += is_waiting ? bytes : 0;
        counts->waiting_blocks += is_waiting;
        counts->damaged_bytes += state == NVMALLOC_PART_DAMAGED ? bytes : 0;
        counts->damaged_blocks += state == NVMALLOC_PART_DAMAGED;
        counts->free_bytes += state == NVMALLOC_PART_FREE && !is_waiting ? bytes : 0;
    }
}

void nvmalloc_heap_counts(struct nvmalloc_heap *heap, struct nvmalloc_counts *counts) {
    nvmalloc_lock(heap);
    *counts = (struct nvmalloc_counts){.formatted_bytes = (uint64_t)heap->top * NVMALLOC_LINE_BYTES, .cut_short = heap->cut_short};
    count_blocks(heap, counts);
    nvmalloc_unlock(heap);
}

/* ---- check ---- */

static int contradiction(const char *what, uint32_t line) {
    return nvmalloc_fail(NVMALLOC_CORRUPT, "offset %#llx: %s", (unsigned long long)line * NVMALLOC_LINE_BYTES, what);
}

static int check_block(const struct nvmalloc_heap *heap, uint32_t line, uint32_t end) {
    if (!nvmalloc_is_correct(heap, line))
        return contradiction("the header is damaged", line);
    if (nvmalloc_word_lines(nvmalloc_word_at(heap, line)) != end - line)
        return contradiction("the header has another size than the bitmap", line);
    bool is_used = bits_test(heap->used, line);
    if (is_used ? bits_next_clear(heap->used, line, end) != end : bits_next_set(heap->used, line, end) != end)
        return contradiction("the bitmap says that a part of the block is in use and a part is free", line);
    bool is_free = nvmalloc_word_state(nvmalloc_word_at(heap, line)) == NVMALLOC_FREE;
    return is_used || is_free ? NVMALLOC_OK : contradiction("the block is in use, but the bitmap says it is free", line);
}

static int check_region(const struct nvmalloc_heap *heap, uint32_t line) {
    if (bits_test(heap->used, line) || !bits_test(heap->used, line - 1))
        return NVMALLOC_OK;
    bool is_listed = nvmalloc_has_hint(heap, line, bits_next_set(heap->used, line, heap->top) - line);
    return is_listed ? NVMALLOC_OK : contradiction("the free region is in no list", line);
}

static int check(const struct nvmalloc_heap *heap) {
    for (uint32_t line = NVMALLOC_FIRST_LINE, end; line < heap->top; line = end) {
        end = nvmalloc_block_end(heap, line);
        int status = check_block(heap, line, end);
        if (status == NVMALLOC_OK)
            status = check_region(heap, line);
        if (status != NVMALLOC_OK)
            return status;
    }
    bool is_end = heap->top == heap->line_count || nvmalloc_word_at(heap, heap->top) == 0;
    return is_end ? NVMALLOC_OK : contradiction("the chain of blocks ends here, but memory is not unformatted", heap->top);
}

int nvmalloc_heap_check(struct nvmalloc_heap *heap) {
    nvmalloc_lock(heap);
    int status = check(heap);
    nvmalloc_unlock(heap);
    return status;
}
