/* SPDX-License-Identifier: Apache-2.0
 *
 * range.c - an arena's free ranges: taking blocks from them, giving blocks back (§3.4, §3.5.1).
 *
 * All that happens to a free range on media is that its tag is stored: one atomic word. A split needs two headers, and
 * their order matters: the remainder's header is persisted before the old one shrinks, because only then the chain of
 * headers leads to it. The other way round a crash leaves a chain that runs into content.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

/* ---- with the arena's lock ---- */

/* put_in_tree, take_from_tree, free_at and the merging in give_back have their like in chunk.c, for chunks: what is wrong in one is
 * likely to be wrong in the other. */

static void put_in_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    nvm_set_vheader(heap, range->first + range->count - 1, range);
    nvm_set_role(heap, range->first, NVM_ROLE_FREE, range);
    nvm_tree_insert(&nvm_arena_of(heap, range->first)->free_ranges, range);
}

static void take_from_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    nvm_tree_remove(&nvm_arena_of(heap, range->first)->free_ranges, range);
    nvm_set_vheader(heap, range->first + range->count - 1, NULL);
    nvm_set_role(heap, range->first, NVM_ROLE_INSIDE, NULL);
}

static uint64_t free_tag(const struct nvm_heap *heap, uint32_t block, uint32_t count) {
    return nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, nvm_chunk_arena(nvm_chunk_of(heap, block)), count);
}

static void store_and_flush_tag(struct nvm_heap *heap, uint32_t block, uint32_t count) {
    struct nvm_header *header = nvm_header_at(heap, block);
    fl_store8(&header->tag, free_tag(heap, block, count));
    fl_flush(header, sizeof *header);
}

static void split_on_media(struct nvm_heap *heap, const struct nvm_vheader *range, uint32_t blocks) {
#if defined(MUTANT_SPLIT_ORDER)
    store_and_flush_tag(heap, range->first, blocks);
    fl_fence();
    store_and_flush_tag(heap, range->first + blocks, range->count - blocks);
    fl_fence();
#else
    store_and_flush_tag(heap, range->first + blocks, range->count - blocks);
#if !defined(MUTANT_MISSING_FENCE_SPLIT)
    fl_fence();
#endif
    store_and_flush_tag(heap, range->first, blocks);
    fl_fence(); /* the remainder must be reachable when it is activated; nvm_ring_begin fences by then, too: mutate tells no loss */
#endif
}

static int add_chunk(struct nvm_heap *heap, struct nvm_arena *arena) {
    struct nvm_vheader *range;
    int status = nvm_chunk_to_arena(heap, arena, &range);
    if (status == NVM_OK)
        put_in_tree(heap, range);
    return status;
}

static int take(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t blocks, struct nvm_vheader **taken) {
    struct nvm_vheader *range = nvm_tree_best_fit(arena->free_ranges, blocks);
    if (range == NULL) {
        int status = add_chunk(heap, arena);
        if (status != NVM_OK)
            return status;
        range = nvm_tree_best_fit(arena->free_ranges, blocks);
    }
    if (range->count > blocks) {
        struct nvm_vheader *rest = calloc(1, sizeof *rest);
        if (rest == NULL)
            return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
        split_on_media(heap, range, blocks);
        take_from_tree(heap, range);
        rest->first = range->first + blocks;
        rest->count = range->count - blocks;
        range->count = blocks;
        put_in_tree(heap, rest);
    } else {
        take_from_tree(heap, range);
    }
    *taken = range;
    return NVM_OK;
}

/* The free range that begins or ends with this block, or null. VHeaders of anything else are not looked at: their owners may free
 * them meanwhile. */
static struct nvm_vheader *free_at(const struct nvm_heap *heap, uint32_t block) {
    enum nvm_role role = nvm_role(heap, block);
    return role == NVM_ROLE_FREE || role == NVM_ROLE_INSIDE ? nvm_vheader(heap, block) : NULL;
}

static void merge_volatile(struct nvm_heap *heap, struct nvm_vheader *range, struct nvm_vheader *neighbour) {
    if (neighbour == NULL)
        return;
    take_from_tree(heap, neighbour);
    if (neighbour->first < range->first)
        range->first = neighbour->first;
    range->count += neighbour->count;
    free(neighbour);
}

/* ---- the interface ---- */

/* A VHeader of exactly so many blocks that is in no tree. It gets its role before the lock is released: without one it would look
 * like the end of a free range to whoever gives back a neighbour. */
int nvm_range_take(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t blocks, enum nvm_role role,
                   struct nvm_vheader **taken) {
    pthread_mutex_lock(&arena->lock);
    int status = take(heap, arena, blocks, taken);
    if (status == NVM_OK)
        nvm_set_role(heap, (*taken)->first, role, *taken);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

int nvm_range_add_chunk(struct nvm_heap *heap, struct nvm_arena *arena) {
    pthread_mutex_lock(&arena->lock);
    int status = add_chunk(heap, arena);
    pthread_mutex_unlock(&arena->lock);
    return status;
}

/* Recovery, with the arena's lock: makes a range known that is free on media and has no free neighbour. */
void nvm_range_adopt(struct nvm_heap *heap, struct nvm_vheader *range) { put_in_tree(heap, range); }

static void give_back(struct nvm_heap *heap, struct nvm_vheader *range) {
    uint32_t end = range->first + range->count;
    struct nvm_vheader *before = free_at(heap, range->first - 1); /* a chunk's block 0 is metadata */
    struct nvm_vheader *after = end % heap->chunk_blocks != 0 ? free_at(heap, end) : NULL;
    nvm_set_role(heap, range->first, NVM_ROLE_INSIDE, NULL);
    merge_volatile(heap, range, after);
    merge_volatile(heap, range, before);
    if (nvm_load8(&nvm_header_at(heap, range->first)->tag) != free_tag(heap, range->first, range->count)) {
        store_and_flush_tag(heap, range->first, range->count);
        fl_fence(); /* headers that were merged away may be overwritten from here on */
    }
    put_in_tree(heap, range);
}

/* The blocks must be free or an idle, empty run on media, and known to nobody else. Takes the VHeader over. */
void nvm_range_give_back(struct nvm_heap *heap, struct nvm_vheader *range) {
    struct nvm_arena *arena = nvm_arena_of(heap, range->first);
    pthread_mutex_lock(&arena->lock);
    give_back(heap, range);
    pthread_mutex_unlock(&arena->lock);
}

/* A list of the arena's, linked by next, at once: nobody takes of some before their neighbours are free as well. */
void nvm_range_give_back_all(struct nvm_heap *heap, struct nvm_arena *arena, struct nvm_vheader *ranges) {
    pthread_mutex_lock(&arena->lock);
    while (ranges != NULL) {
        struct nvm_vheader *range = ranges;
        ranges = range->next;
        range->next = NULL;
        give_back(heap, range);
        nvm_widen();
    }
    pthread_mutex_unlock(&arena->lock);
}

/* Makes an arena chunk without content a free chunk. True if it was one. */
bool nvm_range_release_chunk(struct nvm_heap *heap, uint32_t number) {
    struct nvm_chunk *chunk = &heap->chunks[number];
    uint16_t id = nvm_chunk_arena(chunk);
    struct nvm_arena *arena = &heap->arenas[id % NVM_ARENAS];
    bool is_released = false;
    pthread_mutex_lock(&arena->lock); /* its chunks become others only with this lock */
    if (nvm_chunk_kind(chunk) == NVM_CHUNK_ARENA && nvm_chunk_arena(chunk) == id && nvm_is_scanned(chunk)) {
        struct nvm_vheader *range = free_at(heap, number * heap->chunk_blocks + 1);
        if (range != NULL && range->count == heap->chunk_blocks - 1) {
            take_from_tree(heap, range);
            is_released = nvm_chunk_from_arena(heap, number, range);
            if (!is_released)
                put_in_tree(heap, range);
        }
    }
    pthread_mutex_unlock(&arena->lock);
    return is_released;
}
