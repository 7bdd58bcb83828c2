/* SPDX-License-Identifier: Apache-2.0
 *
 * range.c - free ranges: taking blocks from them, giving blocks back (§3.4, §3.5.1).
 *
 * All that happens to a free range on media is that its tag is stored: one atomic word. A split needs two headers, and
 * their order matters: the remainder's header is persisted before the old one shrinks, because only then the chain of
 * headers leads to it. The other way round a crash leaves a chain that runs into content.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

static void put_in_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    heap->roles[range->block] = NVM_ROLE_FREE;
    heap->vheaders[range->block] = range;
    heap->vheaders[range->block + range->blocks - 1] = range;
    nvm_tree_insert(&heap->arena.free_ranges, range);
}

static void take_from_tree(struct nvm_heap *heap, struct nvm_vheader *range) {
    nvm_tree_remove(&heap->arena.free_ranges, range);
    heap->vheaders[range->block + range->blocks - 1] = NULL;
    heap->vheaders[range->block] = NULL;
    heap->roles[range->block] = NVM_ROLE_INSIDE;
}

static uint64_t free_tag(const struct nvm_heap *heap, uint32_t blocks) {
    return nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, heap->arena.id, blocks);
}

static void store_and_flush_tag(struct nvm_heap *heap, uint32_t block, uint64_t tag) {
    struct nvm_header *header = nvm_header_at(heap, block);
    fl_store8(&header->tag, tag);
    fl_flush(header, sizeof *header);
}

static void split_on_media(struct nvm_heap *heap, const struct nvm_vheader *range, uint32_t blocks) {
#if defined(MUTANT_SPLIT_ORDER)
    store_and_flush_tag(heap, range->block, free_tag(heap, blocks));
    fl_fence();
    store_and_flush_tag(heap, range->block + blocks, free_tag(heap, range->blocks - blocks));
    fl_fence();
#else
    store_and_flush_tag(heap, range->block + blocks, free_tag(heap, range->blocks - blocks));
#if !defined(MUTANT_MISSING_FENCE_SPLIT)
    fl_fence();
#endif
    store_and_flush_tag(heap, range->block, free_tag(heap, blocks));
    fl_fence(); /* the remainder may be activated next: it must be reachable by then */
#endif
}

/* A VHeader of exactly so many blocks that is in no tree and has no role yet. */
int nvm_range_take(struct nvm_heap *heap, uint32_t blocks, struct nvm_vheader **taken) {
    struct nvm_vheader *range = nvm_tree_best_fit(heap->arena.free_ranges, blocks);
    if (range == NULL && nvm_run_reclaim_empty(heap))
        range = nvm_tree_best_fit(heap->arena.free_ranges, blocks);
    if (range == NULL)
        return nvm_fail(NVM_OUT_OF_MEMORY, "no free range of %u blocks of 4 KiB is left in the heap", blocks);

    if (range->blocks > blocks) {
        struct nvm_vheader *rest = calloc(1, sizeof *rest);
        if (rest == NULL)
            return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
        split_on_media(heap, range, blocks);
        take_from_tree(heap, range);
        rest->block = range->block + blocks;
        rest->blocks = range->blocks - blocks;
        range->blocks = blocks;
        put_in_tree(heap, rest);
    } else {
        take_from_tree(heap, range);
    }
    *taken = range;
    return NVM_OK;
}

/* Recovery: makes a range known that is free on media and has no free neighbour. */
void nvm_range_adopt(struct nvm_heap *heap, struct nvm_vheader *range) { put_in_tree(heap, range); }

/* The blocks must be free or an idle, empty run on media, and known to nobody else. Takes the VHeader over. */
void nvm_range_give_back(struct nvm_heap *heap, struct nvm_vheader *range) {
    struct nvm_vheader *before = heap->vheaders[range->block - 1]; /* block 0 of a chunk never has one */
    uint32_t end = range->block + range->blocks;
    struct nvm_vheader *after = end < heap->block_count ? heap->vheaders[end] : NULL;
    heap->vheaders[range->block] = NULL;
    heap->roles[range->block] = NVM_ROLE_INSIDE;

    if (after != NULL && heap->roles[after->block] == NVM_ROLE_FREE) {
        take_from_tree(heap, after);
        range->blocks += after->blocks;
        free(after);
    }
    if (before != NULL && heap->roles[before->block] == NVM_ROLE_FREE) {
        take_from_tree(heap, before);
        range->block = before->block;
        range->blocks += before->blocks;
        free(before);
    }
    struct nvm_header *header = nvm_header_at(heap, range->block);
    if (header->tag != free_tag(heap, range->blocks)) {
        fl_store8(&header->tag, free_tag(heap, range->blocks));
        fl_flush(header, sizeof *header);
        fl_fence(); /* headers that were merged away may be overwritten from here on */
    }
    put_in_tree(heap, range);
}
