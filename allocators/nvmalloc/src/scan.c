/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c - opening a heap: one walk along the chain builds the volatile structures, and isolates damage. A heap without damage is
 * only read.
 *
 * At an incorrect header the chain is lost: nobody knows where the block ends. The scan goes on line by line to the next run of
 * correct headers (§3.2), and what lies between is the damage. Which run is correct is not obvious, because blocks may contain old
 * headers of the blocks whose lines they took (layout.h). A header that says allocated or damaged is never an old one, so it is
 * taken. One that says free may be old, and then its size may reach over blocks that are live now. So a run of free headers is taken
 * only if it arrives at a header that is not free, or at the chain's end, without reaching over any such header. No live block is
 * lost that way; an old header in a damaged block may at most make a part of that very block free.
 *
 * A zero word is the chain's end only if everything behind it is unformatted: zeros that a stray write left are damage, unless they
 * are all that the last block has. And a stray write to unformatted memory costs all lines between it and the chain's end, for they may
 * have been a block whose header it zeroed.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"
#include "stage.h"

static bool is_free(const struct nvmalloc_heap *heap, uint32_t line) {
    return nvmalloc_word_state(nvmalloc_word_at(heap, line)) == NVMALLOC_FREE;
}

/* Looks at content only where the header's word is zero. */
static bool is_zero_line(const struct nvmalloc_heap *heap, uint32_t line) {
    const uint64_t *words = &heap->lines[line].header.word;
    for (uint32_t i = 0; i < NVMALLOC_LINE_BYTES / 8; i++)
        if (nvmalloc_load(&words[i]) != 0)
            return false;
    return true;
}

/* All words of its first line, and the first word of every other one, are zero. */
static bool is_unformatted_from(const struct nvmalloc_heap *heap, uint32_t line) {
#if defined(MUTANT_ZERO_ENDS_CHAIN)
    return line >= heap->line_count || nvmalloc_word_at(heap, line) == 0;
#endif
    if (line < heap->line_count && !is_zero_line(heap, line))
        return false;
    while (line < heap->line_count && nvmalloc_word_at(heap, line) == 0)
        line++;
    return line == heap->line_count;
}

/* ---- damage ---- */

/* What is known about the memory behind a damaged header: it is read a constant number of times, not once for each line of it. */
struct search {
    uint32_t next_live;  /* the first header that is correct and does not say free; the file's end if there is none */
    uint32_t zeros_from; /* no line from here on has a first word that is not zero */
    uint64_t *visited;   /* bitmap: lines from which no correct run begins; null without volatile memory: then it takes longer */
};

static struct search search_behind(const struct nvmalloc_heap *heap, uint32_t line) {
    struct search search = {line + 1, heap->line_count, calloc((uint64_t)heap->line_count / 64 + 1, sizeof *search.visited)};
    while (search.next_live < heap->line_count && (is_free(heap, search.next_live) || !nvmalloc_is_correct(heap, search.next_live)))
        search.next_live++;
    if (search.next_live == heap->line_count)
        while (search.zeros_from > line + 1 && nvmalloc_word_at(heap, search.zeros_from - 1) == 0)
            search.zeros_from--;
    return search;
}

static bool is_visited(struct search *search, uint32_t line) {
    bool is_set = search->visited != NULL && bits_test(search->visited, line);
    if (search->visited != NULL)
        bits_set(search->visited, line);
    return is_set;
}

/* All correct headers before next_live say free. */
static bool begins_correct_run(const struct nvmalloc_heap *heap, struct search *search, uint32_t line) {
    for (; line < search->next_live; line += nvmalloc_word_lines(nvmalloc_word_at(heap, line))) {
        if (line >= search->zeros_from && is_zero_line(heap, line))
            return true;
        if (is_visited(search, line) || !nvmalloc_is_correct(heap, line))
            return false;
    }
#if defined(MUTANT_OLD_HEADERS_TRUSTED)
    return true;
#endif
    return line == search->next_live; /* not over it */
}

static uint32_t isolate(struct nvmalloc_heap *heap, uint32_t line) {
    uint32_t end = line + 1;
    struct search search = search_behind(heap, line);
    while (!begins_correct_run(heap, &search, end))
        end++;
    free(search.visited);
    nvmalloc_isolate(heap, NVMALLOC_DAMAGE_SCAN, line, end);
    return end;
}

/* ---- the chain ---- */

static void add_block(struct nvmalloc_heap *heap, uint32_t line, uint32_t lines) {
    bits_set(heap->starts, line);
    if (!is_free(heap, line)) {
        FL_STAGE("scan: allocated block");
        bits_set_range(heap->used, line, line + lines);
        return;
    }
    uint32_t freed = nvmalloc_wait_timestamp(nvmalloc_load(&nvmalloc_header_at(heap, line)->wait));
    if (freed > heap->operations)
        heap->operations = freed;
}

static int walk_chain(struct nvmalloc_heap *heap) {
    uint32_t line = NVMALLOC_FIRST_LINE;
    while (!is_unformatted_from(heap, line)) {
        uint64_t word = nvmalloc_word_at(heap, line);
        uint32_t lines = nvmalloc_word_lines(word);
        if (nvmalloc_checksum_fits(line, nvmalloc_header_at(heap, line)) && lines > heap->line_count - line)
            return nvmalloc_fail(NVMALLOC_CORRUPT,
                                 "the heap file is %llu bytes long, but the block at offset %#llx has %llu: was it truncated?",
                                 (unsigned long long)heap->line_count * NVMALLOC_LINE_BYTES,
                                 (unsigned long long)line * NVMALLOC_LINE_BYTES, (unsigned long long)lines * NVMALLOC_LINE_BYTES);
        if (!nvmalloc_is_correct(heap, line)) {
            line = isolate(heap, line);
            continue;
        }
        add_block(heap, line, lines);
        line += lines;
    }
    if (line < heap->line_count)
        FL_STAGE("scan: unformatted memory behind the chain");
    else
        FL_STAGE("scan: the chain ends with the file");
    heap->top = line;
    return NVMALLOC_OK;
}

#if defined(MUTANT_RECOVERY_MERGES)
/* Of two free neighbours the second one's header goes, then the first one grows. */
static void merge_neighbours(struct nvmalloc_heap *heap) {
    for (uint32_t line = NVMALLOC_FIRST_LINE, next; (next = nvmalloc_block_end(heap, line)) < heap->top; line = next) {
        if (!is_free(heap, line) || !is_free(heap, next))
            continue;
        struct nvmalloc_header *first = nvmalloc_header_at(heap, line), *second = nvmalloc_header_at(heap, next);
        uint32_t end = nvmalloc_block_end(heap, next);
        fl_store8(&second->word, 0);
        fl_persist(second, sizeof *second);
        fl_store8(&first->word, nvmalloc_make_word(line, end - line, NVMALLOC_FREE, first->wait));
        fl_persist(first, sizeof *first);
        bits_clear(heap->starts, next);
        next = line;
    }
}
#elif defined(MUTANT_RECOVERY_TRIMS)
/* A free block at the chain's end becomes unformatted again: its words go, the header's first. */
static void trim_end(struct nvmalloc_heap *heap) {
    uint32_t last = heap->top == NVMALLOC_FIRST_LINE ? 0 : bits_last_set(heap->starts, heap->top - 1);
    if (last == 0 || !is_free(heap, last))
        return;
    for (uint32_t line = last; line < heap->top; line++) {
        for (uint32_t word = 0; word < NVMALLOC_LINE_BYTES / 8; word++)
            fl_store8((uint64_t *)&heap->lines[line] + word, 0);
        fl_persist(&heap->lines[line], NVMALLOC_LINE_BYTES);
    }
    bits_clear(heap->starts, last);
    heap->top = last;
}
#elif defined(MUTANT_RECOVERY_RESTARTS_CLOCK)
/* Free blocks count as freed before all that is to come: the timestamp goes, then the checksum that covers it is made anew. */
static void restart_clock(struct nvmalloc_heap *heap) {
    for (uint32_t line = NVMALLOC_FIRST_LINE, next; line < heap->top; line = next) {
        next = nvmalloc_block_end(heap, line);
        if (!is_free(heap, line))
            continue;
        struct nvmalloc_header *header = nvmalloc_header_at(heap, line);
        fl_store8(&header->wait, 0);
        fl_store8(&header->word, nvmalloc_make_word(line, next - line, NVMALLOC_FREE, 0));
        fl_persist(header, sizeof *header);
    }
    heap->operations = 0;
}
#endif

int nvmalloc_scan(struct nvmalloc_heap *heap) {
    bits_set_range(heap->used, 0, NVMALLOC_FIRST_LINE);
    int status = walk_chain(heap);
    if (status != NVMALLOC_OK)
        return status;
#if defined(MUTANT_RECOVERY_MERGES)
    merge_neighbours(heap);
#elif defined(MUTANT_RECOVERY_TRIMS)
    trim_end(heap);
#elif defined(MUTANT_RECOVERY_RESTARTS_CLOCK)
    restart_clock(heap);
#endif
    nvmalloc_resume_waiting(heap);
    nvmalloc_add_hints(heap, NVMALLOC_FIRST_LINE, heap->top);
    return NVMALLOC_OK;
}
