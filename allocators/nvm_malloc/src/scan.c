/* SPDX-License-Identifier: Apache-2.0
 *
 * scan.c - the scan of arena chunks for free ranges and runs (§3.7): by open, by the recovery thread, or step by step for who has none.
 *
 * A chunk is scanned as a whole, with the scan's lock. Nobody allocates in it before its free ranges are in the arena's tree, so
 * its chain of headers stays as it is, except for what frees do meanwhile:
 *   - in a run: under its bin's lock. Whoever comes first makes the VHeader, the run header's version tells (run.c).
 *   - of a large object: with the scan's lock too; the scan finds it free, or has been here before.
 * Empty runs become free and neighbouring free ranges one; a chunk without content becomes a free chunk.
 */
#include "types.h"

#include <stdlib.h>
#include <string.h>

#include "persist.h"
#include "stage.h"

/* ---- one chunk ---- */

/* Free ranges found so far, linked by next; known to nobody else yet. */
struct found {
    struct nvm_vheader *ranges;
    uint32_t free_from; /* block where free neighbours that are not among ranges begin; 0: there are none */
};

static int close_free(struct nvm_heap *heap, struct found *found, uint32_t end) {
    if (found->free_from == 0)
        return NVM_OK;
    struct nvm_vheader *range = calloc(1, sizeof *range);
    if (range == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    range->first = found->free_from;
    range->count = end - found->free_from;
    range->next = found->ranges;
    found->ranges = range;
    found->free_from = 0;

    struct nvm_header *header = nvm_header_at(heap, range->first);
    uint64_t tag = nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, nvm_chunk_arena(nvm_chunk_of(heap, range->first)), range->count);
    if (header->tag == tag) {
        FL_STAGE("scan: a free range");
        return NVM_OK;
    }
    FL_STAGE("scan: free neighbours become one");
    fl_store8(&header->tag, tag);
    fl_persist(header, sizeof *header); /* what lay between them may be overwritten when this is published. On x86 publish's lock
                                         * fences, too: mutate tells no loss of the fence */
    return NVM_OK;
}

/* A run that somebody has objects in, or knows. *is_empty: nobody does, its block is free. */
static int scan_run(struct nvm_heap *heap, uint32_t block, bool *is_empty) {
    struct nvm_header *header = nvm_header_at(heap, block);
    struct nvm_bin *bin = nvm_run_bin(heap, block, nvm_run_class(nvm_load8(&header->run)));
    struct nvm_vheader *run;
    int status = NVM_OK;
    pthread_mutex_lock(&bin->lock);
    const char *complaint = nvm_header_complaint(heap, block);
    bool is_known = nvm_run_version(header->run) == heap->version;
    *is_empty = !is_known && header->bitmap == 0;
#if defined(MUTANT_SCAN_FORGETS_KNOWN_RUN)
    *is_empty = header->bitmap == 0;
#endif
    if (complaint != NULL)
        status =
            nvm_fail(NVM_CORRUPT, "the header at %#llx is damaged: %s", (unsigned long long)nvm_block_offset(block), complaint);
    else if (*is_empty)
        FL_STAGE("scan: an empty run");
    else
        status = nvm_run_known(heap, block, &run);
    if (status == NVM_OK && !*is_empty && !is_known) {
        if (run->activated == nvm_class_mask(run->size_class))
            FL_STAGE("scan: a full run");
        else
            FL_STAGE("scan: a run with free slots");
    }
    pthread_mutex_unlock(&bin->lock);
    return status;
}

static int scan_block(struct nvm_heap *heap, uint32_t block, uint32_t *blocks, struct found *found) {
    uint64_t tag = nvm_load8(&nvm_header_at(heap, block)->tag);
    enum nvm_kind kind = nvm_tag_kind(tag);
    bool is_free = kind == NVM_KIND_FREE;
    int status = NVM_OK;
    *blocks = nvm_tag_count(tag);
    if (kind == NVM_KIND_RUN && nvm_run_class(nvm_load8(&nvm_header_at(heap, block)->run)) < NVM_SMALL_CLASSES) {
        status = scan_run(heap, block, &is_free);
    } else {
        const char *complaint = nvm_header_complaint(heap, block);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header at %#llx is damaged: %s", (unsigned long long)nvm_block_offset(block),
                            complaint);
    }
    if (status != NVM_OK)
        return status;
    if (is_free) {
        if (found->free_from == 0)
            found->free_from = block;
        return NVM_OK;
    }
    if (kind == NVM_KIND_LARGE) {
        FL_STAGE("scan: a large object");
        nvm_set_role(heap, block, NVM_ROLE_LARGE, NULL);
    }
    if (kind == NVM_KIND_HEAP_BLOCK)
        nvm_set_role(heap, block, NVM_ROLE_METADATA, NULL);
    return close_free(heap, found, block);
}

/* The chunk's free ranges become memory. */
static void publish(struct nvm_heap *heap, uint32_t chunk, struct found *found) {
    struct nvm_arena *arena = nvm_arena_of(heap, chunk * heap->chunk_blocks);
#if defined(MUTANT_FULL_CHUNK_NOT_SCANNED)
    if (found->ranges == NULL)
        return;
#endif
    pthread_mutex_lock(&arena->lock);
    while (found->ranges != NULL) {
        struct nvm_vheader *range = found->ranges;
        found->ranges = range->next;
        range->next = NULL;
        nvm_range_adopt(heap, range);
    }
    __atomic_store_n(&heap->chunks[chunk].is_scanned, 1, __ATOMIC_RELEASE);
    pthread_mutex_unlock(&arena->lock);
}

static int scan_chunk(struct nvm_heap *heap, uint32_t chunk) {
    uint32_t first = chunk * heap->chunk_blocks, end = first + heap->chunk_blocks;
    struct found found = {NULL, 0};
    int status = NVM_OK;
    pthread_mutex_lock(&heap->scan_lock);
    for (uint32_t block = first + 1, blocks; block < end && status == NVM_OK; block += blocks)
        status = scan_block(heap, block, &blocks, &found);
    if (status == NVM_OK)
        status = close_free(heap, &found, end);
    if (status == NVM_OK)
        publish(heap, chunk, &found);
    pthread_mutex_unlock(&heap->scan_lock);
    while (found.ranges != NULL) { /* the scan failed */
        struct nvm_vheader *range = found.ranges;
        found.ranges = range->next;
        free(range);
    }
    if (status == NVM_OK && chunk != 0 && nvm_range_release_chunk(heap, chunk))
        FL_STAGE("scan: an arena chunk without content becomes a free chunk");
    return status;
}

/* ---- all chunks, by open, by the recovery thread, or step by step ---- */

static bool is_stopped(struct nvm_heap *heap) {
    pthread_mutex_lock(&heap->scan.lock);
    bool is_stopped = heap->scan.is_stopped;
    pthread_mutex_unlock(&heap->scan.lock);
    return is_stopped;
}

/* The first chunk from there on that has to be scanned; the number of chunks: there is none. */
static uint32_t unscanned_from(struct nvm_heap *heap, uint32_t chunk) {
    while (chunk < nvm_chunk_count(heap) &&
           (nvm_chunk_kind(&heap->chunks[chunk]) != NVM_CHUNK_ARENA || nvm_is_scanned(&heap->chunks[chunk])))
        chunk++;
    return chunk;
}

static int scan_all(struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t chunk = 0; status == NVM_OK && !is_stopped(heap); chunk++) {
        chunk = unscanned_from(heap, chunk);
        if (chunk >= nvm_chunk_count(heap))
            break;
        status = scan_chunk(heap, chunk);
    }
    return status;
}

static void settle(struct nvm_heap *heap, int status) {
    struct nvm_scan *scan = &heap->scan;
    pthread_mutex_lock(&scan->lock);
    scan->status = status;
    if (status != NVM_OK)
        memcpy(scan->message, nvm_message(), strnlen(nvm_message(), sizeof scan->message - 1) + 1);
    __atomic_store_n(&scan->is_settled, true, __ATOMIC_RELEASE);
    pthread_cond_broadcast(&scan->settled);
    pthread_mutex_unlock(&scan->lock);
}

static void *recovery_thread(void *context) {
    struct nvm_heap *heap = context;
    settle(heap, scan_all(heap));
    return NULL;
}

void nvm_scan_init(struct nvm_heap *heap) {
    pthread_mutex_init(&heap->scan.step_lock, NULL);
    pthread_mutex_init(&heap->scan.lock, NULL);
    pthread_cond_init(&heap->scan.settled, NULL);
}

/* By a thread, or by steps: the scan goes on when this returns. */
int nvm_scan_start(struct nvm_heap *heap, enum nvm_scan_by scan_by) {
    heap->scan.is_stepped = scan_by == NVM_SCAN_BY_STEPS;
    if (heap->scan.is_stepped)
        return NVM_OK;
    if (scan_by == NVM_SCAN_BY_THREAD && pthread_create(&heap->scan.thread, NULL, recovery_thread, heap) == 0) {
        heap->scan.has_thread = true;
        return NVM_OK;
    }
    int status = scan_all(heap);
    settle(heap, status);
    return status;
}

bool nvm_scan_is_settled(struct nvm_heap *heap) { return __atomic_load_n(&heap->scan.is_settled, __ATOMIC_ACQUIRE); }

/* One chunk of a scan by steps; the step after which none is left settles it, and so does one that finds damage. */
void nvm_scan_step(struct nvm_heap *heap) {
    struct nvm_scan *scan = &heap->scan;
    pthread_mutex_lock(&scan->step_lock);
    if (scan->is_stepped && !nvm_scan_is_settled(heap)) {
        uint32_t chunk = unscanned_from(heap, scan->next_chunk);
        int status = chunk < nvm_chunk_count(heap) ? scan_chunk(heap, chunk) : NVM_OK;
        scan->next_chunk = chunk + 1;
#if defined(MUTANT_SCAN_SETTLES_EARLY)
        scan->next_chunk++;
#endif
        if (status != NVM_OK || unscanned_from(heap, scan->next_chunk) >= nvm_chunk_count(heap))
            settle(heap, status);
    }
    pthread_mutex_unlock(&scan->step_lock);
}

/* Until the scan is done, which a scan by steps is here. NVM_CORRUPT if it found damage. */
int nvm_scan_wait(struct nvm_heap *heap) {
    struct nvm_scan *scan = &heap->scan;
    while (scan->is_stepped && !nvm_scan_is_settled(heap))
        nvm_scan_step(heap);
    pthread_mutex_lock(&scan->lock);
    while (!scan->is_settled)
        pthread_cond_wait(&scan->settled, &scan->lock);
    int status = scan->status;
    if (status != NVM_OK)
        nvm_fail(status, "%s", scan->message);
    pthread_mutex_unlock(&scan->lock);
    return status;
}

/* The thread ends at the next chunk. What it has not scanned is scanned when the heap is opened again. */
void nvm_scan_stop(struct nvm_heap *heap) {
    if (heap->scan.has_thread) {
        pthread_mutex_lock(&heap->scan.lock);
        heap->scan.is_stopped = true;
        pthread_mutex_unlock(&heap->scan.lock);
        pthread_join(heap->scan.thread, NULL);
        heap->scan.has_thread = false;
    }
    pthread_mutex_destroy(&heap->scan.step_lock);
    pthread_mutex_destroy(&heap->scan.lock);
    pthread_cond_destroy(&heap->scan.settled);
}
