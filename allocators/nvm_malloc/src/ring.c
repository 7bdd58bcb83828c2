/* SPDX-License-Identifier: Apache-2.0
 *
 * ring.c - the log of pending activations and deallocations (§3.7).
 *
 * Invariant 1: a header that is not IDLE, on any image a crash can leave, has its offset in the ring. So an entry is
 * persisted before the header changes, and cleared after the header is persisted as IDLE; and an operation never gets the entry
 * of another pending one, however many have passed since that one began.
 * Invariant 2: an entry never points to content. A region stops being one only after the operation that freed it, or gave it
 * its present owner, has returned: by then the cleared entry is persisted.
 * An entry that points to an IDLE header is harmless.
 */
#include "types.h"

#include <sched.h>

#include "persist.h"

#if defined(MUTANT_RING_TOO_SHORT)
#define ENTRIES 1u
#else
#define ENTRIES NVM_RING_ENTRIES
#endif

/* More operations at once than entries: the others wait. */
static uint32_t take_entry(struct nvm_heap *heap) {
    pthread_mutex_lock(&heap->ring_lock);
#if !defined(MUTANT_RING_TOO_SHORT)
    while (heap->ring_busy == UINT64_MAX) {
        pthread_mutex_unlock(&heap->ring_lock);
        sched_yield();
        pthread_mutex_lock(&heap->ring_lock);
    }
    while (heap->ring_busy >> heap->ring_next & 1)
        heap->ring_next = (heap->ring_next + 1) % ENTRIES;
#endif
    uint32_t entry = heap->ring_next;
    heap->ring_next = (entry + 1) % ENTRIES;
    heap->ring_busy |= (uint64_t)1 << entry;
    pthread_mutex_unlock(&heap->ring_lock);
    return entry;
}

uint32_t nvm_ring_begin(struct nvm_heap *heap, uint64_t offset) {
    uint32_t entry = take_entry(heap);
    fl_store8(&heap->media->ring[entry], offset);
    fl_flush(&heap->media->ring[entry], sizeof(uint64_t));
#if !defined(MUTANT_MISSING_FENCE_RING)
    fl_fence();
#endif
    return entry;
}

void nvm_ring_end(struct nvm_heap *heap, uint32_t entry) {
    fl_store8(&heap->media->ring[entry], 0);
    fl_flush(&heap->media->ring[entry], sizeof(uint64_t));
    fl_fence(); /* invariant 2, before another thread takes the entry. On x86 the lock does it, too: mutate tells no loss */
    pthread_mutex_lock(&heap->ring_lock);
    heap->ring_busy &= ~((uint64_t)1 << entry);
    pthread_mutex_unlock(&heap->ring_lock);
}
