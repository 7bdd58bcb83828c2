/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c - the log of pending activations and deallocations (§3.7).
 *
 * Invariant 1: a header that is not IDLE, on any image a crash can leave, has its offset in the ring. So an entry is
 * persisted before the header changes, and cleared after the header is persisted as IDLE.
 * Invariant 2: an entry never points to content. A block stops being a header only by being merged into a range, and
 * give_back fences before anyone can write there; that fence also completes the flush of the cleared entry.
 * An entry that points to an IDLE header is harmless.
 */
#include "types.h"

#include "persist.h"

uint32_t nvm_ring_begin(struct nvm_heap *heap, uint32_t block) {
    nvm_assert(heap->ring_busy != UINT64_MAX);
    while (heap->ring_busy >> heap->ring_next & 1) /* never the entry of another pending operation */
        heap->ring_next = (heap->ring_next + 1) % NVM_RING_ENTRIES;
    uint32_t entry = heap->ring_next;
    heap->ring_next = (entry + 1) % NVM_RING_ENTRIES;
    heap->ring_busy |= (uint64_t)1 << entry;

    fl_store8(&heap->media->ring[entry], nvm_block_offset(block));
    fl_flush(&heap->media->ring[entry], sizeof(uint64_t));
#if !defined(MUTANT_MISSING_FENCE_RING)
    fl_fence();
#endif
    return entry;
}

void nvm_ring_end(struct nvm_heap *heap, uint32_t entry) {
    fl_store8(&heap->media->ring[entry], 0);
    fl_flush(&heap->media->ring[entry], sizeof(uint64_t)); /* no fence: invariant 2 */
    heap->ring_busy &= ~((uint64_t)1 << entry);
}
