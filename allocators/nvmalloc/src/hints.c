/* SPDX-License-Identifier: Apache-2.0
 *
 * hints.c - segregated free lists in DRAM (§3.1, §7.1): one for each size up to 4 KiB, a common one for larger regions.
 *
 * An entry says where a region was when it was added. The bitmap says whether it still is: what has been allocated or has merged with
 * a neighbour since is dropped when it is met, and when a list is full. Every region is in the list of its size.
 */
#include "types.h"

#include <stdlib.h>
#include <string.h>

static uint32_t list_of(uint32_t lines) { return lines <= NVMALLOC_EXACT_LISTS ? lines - 1 : NVMALLOC_EXACT_LISTS; }

/* The lines are free, and the ones around them are not. */
static bool is_region(const struct nvmalloc_heap *heap, const struct nvmalloc_hint *hint) {
    uint32_t end = hint->start + hint->lines;
    return hint->lines != 0 && end <= heap->top && bits_test(heap->used, hint->start - 1) &&
           bits_next_set(heap->used, hint->start, end) == end && (end == heap->top || bits_test(heap->used, end));
}

static struct nvmalloc_hint *entry(const struct nvmalloc_hints *list, uint32_t index) {
    return &list->entries[(list->first + index) & (list->capacity - 1)];
}

static bool resize(struct nvmalloc_hints *list, uint32_t capacity) {
    struct nvmalloc_hint *entries = malloc(capacity * sizeof *entries);
    if (entries == NULL)
        return false;
    for (uint32_t i = 0; i < list->count; i++)
        entries[i] = *entry(list, i);
    free(list->entries);
    *list = (struct nvmalloc_hints){entries, capacity, 0, list->count};
    return true;
}

/* Drops what is stale, and the second entry of a region. */
static void compact(const struct nvmalloc_heap *heap, struct nvmalloc_hints *list) {
    uint64_t *seen = calloc((heap->top + 63) / 64, sizeof *seen);
    if (seen == NULL)
        return;
    uint32_t kept = 0;
    for (uint32_t i = 0; i < list->count; i++) {
        struct nvmalloc_hint hint = *entry(list, i);
        if (!is_region(heap, &hint) || bits_test(seen, hint.start))
            continue;
        bits_set(seen, hint.start);
        *entry(list, kept++) = hint;
    }
    list->count = kept;
    free(seen);
}

/* At least half of the list is room after a compaction, or it gets twice as large: the work for an entry is constant. */
static bool make_room(const struct nvmalloc_heap *heap, struct nvmalloc_hints *list) {
    if (list->count < list->capacity)
        return true;
    if (list->count > 0)
        compact(heap, list);
    if (2 * list->count < list->capacity)
        return true;
    return resize(list, list->capacity == 0 ? 16 : 2 * list->capacity) || list->count < list->capacity;
}

/* Without volatile memory for it the region is not found until a neighbour is freed or the heap is opened again. */
void nvmalloc_add_hint(struct nvmalloc_heap *heap, uint32_t line) {
    uint32_t start = bits_last_set(heap->used, line) + 1; /* the root lines are used */
    uint32_t end = bits_next_set(heap->used, line, heap->top);
    struct nvmalloc_hints *list = &heap->hints[list_of(end - start)];
    if (make_room(heap, list))
        *entry(list, list->count++) = (struct nvmalloc_hint){start, end - start};
}

void nvmalloc_add_hints(struct nvmalloc_heap *heap, uint32_t from, uint32_t end) {
    for (uint32_t line = bits_next_clear(heap->used, from, end); line < end;) {
        nvmalloc_add_hint(heap, line);
        line = bits_next_clear(heap->used, bits_next_set(heap->used, line, end), end);
    }
}

static void drop_first(struct nvmalloc_hints *list) {
    list->first = (list->first + 1) & (list->capacity - 1);
    list->count--;
}

/* Of the list's regions the first that is large enough. */
static bool take_from(const struct nvmalloc_heap *heap, struct nvmalloc_hints *list, uint32_t lines, struct nvmalloc_hint *taken) {
    while (list->count > 0 && !is_region(heap, entry(list, 0)))
        drop_first(list);
    for (uint32_t i = 0; i < list->count; i++) {
        struct nvmalloc_hint *hint = entry(list, i);
        if (hint->lines < lines)
            continue;
        *taken = *hint;
        hint->lines = 0;
        if (is_region(heap, taken))
            return true;
    }
    return false;
}

bool nvmalloc_take_hint(struct nvmalloc_heap *heap, uint32_t lines, struct nvmalloc_hint *hint) {
    for (uint32_t list = list_of(lines); list <= NVMALLOC_EXACT_LISTS; list++)
        if (take_from(heap, &heap->hints[list], lines, hint))
            return true;
    return false;
}

bool nvmalloc_has_hint(const struct nvmalloc_heap *heap, uint32_t start, uint32_t lines) {
    const struct nvmalloc_hints *list = &heap->hints[list_of(lines)];
    for (uint32_t i = 0; i < list->count; i++)
        if (entry(list, i)->start == start && entry(list, i)->lines == lines)
            return true;
    return false;
}

void nvmalloc_destroy_hints(struct nvmalloc_heap *heap) {
    for (uint32_t list = 0; list <= NVMALLOC_EXACT_LISTS; list++)
        free(heap->hints[list].entries);
}
