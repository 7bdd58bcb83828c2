/* SPDX-License-Identifier: Apache-2.0
 *
 * recover.c - what open does before the heap can be used (§3.7).
 *
 *   1. headers in the ring that are not idle: their operation is completed
 *   2. object table entries that are not settled: decided by whether their object is activated
 *   3. every chunk is scanned for free ranges and runs. A lazy recovery thread would do this later, a chunk at a time; here
 *      open does it. Empty runs become free and neighbouring free ranges become one, so that the result depends on what is
 *      allocated, and not on what happened before.
 *   4. the version, which tells this opening's run headers from earlier ones', is counted up
 *
 * Crash-safe and repeatable: 1 is the last part of the operation itself, 2 and 4 are single atomic stores (in the order that
 * names.c explains), 3 stores one tag for each run of free neighbours, and any subset of these stores is a sound chain.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

/* ---- 1: the ring ---- */

static bool is_sound_link(const struct nvm_heap *heap, const struct nvm_link *link) {
    return link->address == 0 || (link->address % sizeof(uint64_t) == 0 && link->address >= NVM_BLOCK_BYTES &&
                                  link->address <= heap->heap_bytes - sizeof(uint64_t) && link->target < heap->heap_bytes);
}

/* A header that is not idle and that completing it cannot turn into a worse one. */
static bool is_sound_pending(const struct nvm_heap *heap, uint32_t block) {
    const struct nvm_header *header = nvm_header_at(heap, block);
    uint32_t blocks = nvm_tag_blocks(header->tag);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    enum nvm_state state = nvm_tag_state(header->tag);
    return (state == NVM_STATE_ACTIVATING || state == NVM_STATE_FREEING) &&
           (kind == NVM_KIND_LARGE || (kind == NVM_KIND_RUN && nvm_run_class(header->run) < NVM_SMALL_CLASSES &&
                                       nvm_run_slot(header->run) < nvm_class_slots(nvm_run_class(header->run)))) &&
           blocks >= 1 && blocks <= nvm_blocks_to_chunk_end(heap, block) && is_sound_link(heap, &header->links[0]) &&
           is_sound_link(heap, &header->links[1]);
}

static void complete_pending(struct nvm_heap *heap, struct nvm_header *header) {
#if defined(MUTANT_RECOVERY_FORGETS_FREE)
    uint64_t tag = header->tag;
    if (nvm_tag_state(tag) == NVM_STATE_FREEING) {
        fl_store8(&header->tag, nvm_tag(nvm_tag_kind(tag), NVM_STATE_IDLE, nvm_tag_arena(tag), nvm_tag_blocks(tag)));
        fl_persist(header, sizeof *header);
        return;
    }
#endif
    nvm_header_complete(heap, header);
}

static int replay_ring(struct nvm_heap *heap) {
    bool is_any = false;
    for (uint32_t i = 0; i < NVM_RING_ENTRIES; i++) {
        uint64_t offset = heap->media->ring[i];
        if (offset == 0)
            continue;
        uint32_t block = (uint32_t)(offset / NVM_BLOCK_BYTES);
        if (offset >= heap->heap_bytes || offset % NVM_BLOCK_BYTES != 0 || block % heap->chunk_blocks == 0 || block == 1)
            return nvm_fail(NVM_CORRUPT, "ring entry %u is %#llx, which is no header's offset", i, (unsigned long long)offset);
        struct nvm_header *header = nvm_header_at(heap, block);
        if (nvm_tag_state(header->tag) != NVM_STATE_IDLE) {
            if (!is_sound_pending(heap, block))
                return nvm_fail(NVM_CORRUPT, "the pending header at %#llx is damaged", (unsigned long long)offset);
            complete_pending(heap, header);
        }
        fl_store8(&heap->media->ring[i], 0);
        fl_flush(&heap->media->ring[i], sizeof(uint64_t));
        is_any = true;
    }
    if (is_any)
        fl_fence();
    return NVM_OK;
}

/* ---- 3: the chunks ---- */

static int adopt_free(struct nvm_heap *heap, uint32_t block, uint32_t blocks) {
    struct nvm_vheader *range = calloc(1, sizeof *range);
    if (range == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    range->block = block;
    range->blocks = blocks;
    nvm_range_adopt(heap, range);

    struct nvm_header *header = nvm_header_at(heap, block);
    uint64_t tag = nvm_tag(NVM_KIND_FREE, NVM_STATE_IDLE, heap->arena.id, blocks);
    if (header->tag != tag) {
        fl_store8(&header->tag, tag);
        fl_flush(header, sizeof *header);
    }
    return NVM_OK;
}

static int adopt_run(struct nvm_heap *heap, uint32_t block) {
    const struct nvm_header *header = nvm_header_at(heap, block);
    struct nvm_vheader *run = calloc(1, sizeof *run);
    if (run == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    run->block = block;
    run->blocks = 1;
    run->size_class = nvm_run_class(header->run);
    run->activated = header->bitmap;
    run->is_on_media = true;
    nvm_run_adopt(heap, run);
    return NVM_OK;
}

/* Rebuilds what is volatile about one chunk. Fenced by the caller. */
static int scan_chunk(struct nvm_heap *heap, uint32_t chunk) {
    const struct nvm_chunk_header *chunk_header = &nvm_chunk_at(heap, chunk)->header;
    uint32_t first = chunk * heap->chunk_blocks, end = first + heap->chunk_blocks;
    if (chunk_header->magic != NVM_CHUNK_MAGIC || chunk_header->index != chunk ||
        chunk_header->tag != nvm_tag(NVM_KIND_CHUNK_ARENA, NVM_STATE_IDLE, heap->arena.id, heap->chunk_blocks))
        return nvm_fail(NVM_CORRUPT, "the header of chunk %u is damaged", chunk);
    heap->roles[first] = NVM_ROLE_METADATA;

    uint32_t free_from = end; /* where the free neighbours before this block begin; end: there are none */
    int status = NVM_OK;
    for (uint32_t block = first + 1; block < end && status == NVM_OK;) {
        const char *complaint = nvm_header_complaint(heap, block);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header at %#llx is damaged: %s", (unsigned long long)nvm_block_offset(block),
                            complaint);
        const struct nvm_header *header = nvm_header_at(heap, block);
        enum nvm_kind kind = nvm_tag_kind(header->tag);
        uint32_t blocks = nvm_tag_blocks(header->tag);
        bool is_free = kind == NVM_KIND_FREE || (kind == NVM_KIND_RUN && header->bitmap == 0);
        if (is_free && free_from == end)
            free_from = block;
        if (!is_free && free_from != end) {
            status = adopt_free(heap, free_from, block - free_from);
            free_from = end;
        }
        if (!is_free && kind == NVM_KIND_RUN && status == NVM_OK)
            status = adopt_run(heap, block);
        if (kind == NVM_KIND_LARGE)
            heap->roles[block] = NVM_ROLE_LARGE;
        if (kind == NVM_KIND_HEAP_BLOCK)
            heap->roles[block] = NVM_ROLE_METADATA;
        block += blocks;
    }
    if (status == NVM_OK && free_from != end)
        status = adopt_free(heap, free_from, end - free_from);
    return status;
}

int nvm_recover(struct nvm_heap *heap) {
    int status = replay_ring(heap);
    if (status == NVM_OK)
        status = nvm_names_load(heap);
    heap->version = (uint32_t)heap->media->heap.version + 1;
    for (uint32_t chunk = 0; chunk < nvm_chunk_count(heap) && status == NVM_OK; chunk++)
        status = scan_chunk(heap, chunk);
    if (status == NVM_OK)
        status = nvm_names_check(heap);
    if (status != NVM_OK)
        return status;
    fl_store8(&heap->media->heap.version, heap->version);
    fl_flush(&heap->media->heap, sizeof heap->media->heap);
    fl_fence();
    return NVM_OK;
}
