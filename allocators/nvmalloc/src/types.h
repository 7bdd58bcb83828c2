/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h - nvmalloc's volatile structures and the functions between its files. All of it can be rebuilt from persistent memory.
 *
 * Vocabulary:
 *
 *   line      64 bytes of the heap file, numbered from 0; sizes are in lines
 *   block     what one header describes; the blocks are one chain (layout.h)
 *   top       the first line that never was part of a block: the chain's end
 *   free      of a line: a request may get it. Lines of allocated, waiting and damaged blocks, and the root lines, are used.
 *   region    a longest run of free lines below top: one free block of the chain, or several
 *   hint      entry of a segregated free list: there was a region here of that size. Every region has one; a hint may be stale, which
 *             the bitmap tells (§3.1)
 *   waiting   freed less than T ago: in the don't-allocate list
 *
 *   heap.c     create, open, close, growth, the root
 *   scan.c     open: builds the volatile structures, isolates damage
 *   block.c    allocate and free
 *   waiting.c  the don't-allocate list
 *   hints.c    segregated free lists
 *   damage.c   what is done with an incorrect header
 *   header.c   headers and their checksum
 *   check.c    looking at a heap
 *   protection.c  which pages can be stored to
 *   default.c  the names of malloc
 *
 * One lock a heap: every exported function takes it, every other function is called with it.
 */
#ifndef NVMALLOC_TYPES_H
#define NVMALLOC_TYPES_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "bits.h"
#include "layout.h"
#include "nvmalloc.h"

struct nvmalloc_hint {
    uint32_t start;
    uint32_t lines; /* 0: taken out */
};

/* A queue, in a ring of a power of two entries: the regions that are free longest go first. */
struct nvmalloc_hints {
    struct nvmalloc_hint *entries;
    uint32_t capacity, first, count;
};

#define NVMALLOC_EXACT_LISTS 64u /* §7.1: one for each size up to 4 KiB, then a common one */

/* Blocks freed since `batch` was filled are linked from the newest one to older ones, on persistent memory: that needs no write to any
 * other block than the one freed. When the batch is used up, the links are followed once, and the oldest block lies on top. */
struct nvmalloc_waiting {
    uint32_t newest; /* line; 0: none */
    uint32_t *batch;
    uint32_t batch_count, batch_capacity;
};

#define NVMALLOC_OWN_PAGES 16u

/* Of pages of the file, numbered from 0. */
struct nvmalloc_protection {
    bool is_on;
    uint32_t *storing; /* how many say that they store to the page; null: the heap is not protected */
    uint32_t own[NVMALLOC_OWN_PAGES]; /* this library's operation does */
    uint32_t own_count;
};

struct nvmalloc_heap {
    pthread_mutex_t lock;
    struct nvmalloc_line *lines; /* the mapped file */
    uint32_t line_count; /* of the file */
    uint32_t line_limit; /* addresses are reserved for these */
    uint32_t grow_lines;
    int fd;
    int is_emulated;
    uint32_t top;
    uint64_t *used; /* bitmap of lines */
    uint64_t *starts; /* bitmap: first lines of the blocks of the chain */
    struct nvmalloc_hints hints[NVMALLOC_EXACT_LISTS + 1];
    struct nvmalloc_waiting waiting;
    enum nvmalloc_clock clock;
    uint32_t wait_ticks;
    uint32_t operations; /* the clock of NVMALLOC_CLOCK_OPERATIONS; wraps */
    uint64_t cut_short;
    struct nvmalloc_protection protection;
    nvmalloc_on_damage on_damage;
    void *context;
};

/* Sets the message, returns the status. */
int nvmalloc_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* ---- protection.c */
int nvmalloc_begin_protection(struct nvmalloc_heap *heap); /* the whole heap's */
void nvmalloc_protect_growth(struct nvmalloc_heap *heap,
                             uint32_t from); /* the file has lines from there on that are not protected yet */
void nvmalloc_may_store(struct nvmalloc_heap *heap, uint32_t line); /* before each store to it: until the operation ends */
void nvmalloc_end_stores(struct nvmalloc_heap *heap);

static inline void nvmalloc_lock(struct nvmalloc_heap *heap) { pthread_mutex_lock(&heap->lock); }
static inline void nvmalloc_unlock(struct nvmalloc_heap *heap) {
    nvmalloc_end_stores(heap);
    pthread_mutex_unlock(&heap->lock);
}

/* ---- header.c */
uint64_t nvmalloc_make_word(uint32_t line, uint32_t lines, enum nvmalloc_state state, uint64_t wait);
#if defined(MUTANT_POSITION_IS_ADDRESS)
extern uint32_t nvmalloc_first_position;
#endif
uint64_t nvmalloc_make_root(uint32_t line, uint32_t copy);
/* A header that a block at this line may have: the checksum fits, and the block ends within the file. */
bool nvmalloc_is_correct(const struct nvmalloc_heap *heap, uint32_t line);
/* Without regard to the file's end. */
bool nvmalloc_checksum_fits(uint32_t line, const struct nvmalloc_header *header);
uint32_t nvmalloc_crc32c(uint32_t crc, uint64_t word); /* by the processor's instruction where it has one */
uint32_t nvmalloc_crc32c_table(uint32_t crc, uint64_t word); /* for the others */

static inline struct nvmalloc_header *nvmalloc_header_at(const struct nvmalloc_heap *heap, uint32_t line) {
    return &heap->lines[line].header;
}
#include "words.h"

/* The block in the chain ends here. */
static inline uint32_t nvmalloc_block_end(const struct nvmalloc_heap *heap, uint32_t start) {
    return bits_next_set(heap->starts, start + 1, heap->top);
}

/* ---- heap.c */
/* The file has at least that many lines from now on. */
int nvmalloc_grow_to(struct nvmalloc_heap *heap, uint32_t lines);

/* ---- scan.c */
int nvmalloc_scan(struct nvmalloc_heap *heap);

/* ---- waiting.c */
uint32_t nvmalloc_now(const struct nvmalloc_heap *heap);
void nvmalloc_tick(struct nvmalloc_heap *heap);
uint64_t nvmalloc_wait_of_freed(const struct nvmalloc_heap *heap); /* for the header of a block that is being freed */
void nvmalloc_add_waiting(struct nvmalloc_heap *heap, uint32_t line);
/* Makes blocks free that have waited for T. */
void nvmalloc_end_waits(struct nvmalloc_heap *heap);
/* Makes the oldest one free, though it has not. False: none waits. */
bool nvmalloc_cut_wait_short(struct nvmalloc_heap *heap);
/* The list is what the bitmaps say: blocks that are used, and free on persistent memory. */
void nvmalloc_rebuild_waiting(struct nvmalloc_heap *heap);
/* After a scan: which free blocks go on waiting. */
void nvmalloc_resume_waiting(struct nvmalloc_heap *heap);

/* ---- hints.c */
/* The region that line is in gets a hint. */
void nvmalloc_add_hint(struct nvmalloc_heap *heap, uint32_t line);
/* All regions that begin in [from, end). */
void nvmalloc_add_hints(struct nvmalloc_heap *heap, uint32_t from, uint32_t end);
/* Takes a region of at least that many lines out of the lists: false if there is none. */
bool nvmalloc_take_hint(struct nvmalloc_heap *heap, uint32_t lines, struct nvmalloc_hint *hint);
bool nvmalloc_has_hint(const struct nvmalloc_heap *heap, uint32_t start, uint32_t lines);
void nvmalloc_destroy_hints(struct nvmalloc_heap *heap);

/* ---- damage.c */
void nvmalloc_tell(struct nvmalloc_heap *heap, enum nvmalloc_damage_place place, uint32_t line, uint32_t lines, uint64_t header);
/* Marks [line, end) as damaged, on persistent memory too, and tells the application. */
void nvmalloc_isolate(struct nvmalloc_heap *heap, enum nvmalloc_damage_place place, uint32_t line, uint32_t end);
/* A block of which header and bitmaps say different things, found on allocate: its lines are used from now on. If the header is
 * incorrect it is isolated; if it is correct then it is right, for it has a checksum and the bitmaps have none. */
void nvmalloc_set_aside(struct nvmalloc_heap *heap, uint32_t line);

#endif
