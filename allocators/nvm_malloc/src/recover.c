/* SPDX-License-Identifier: Apache-2.0
 *
 * recover.c - what open does before the heap can be used (§3.7).
 *
 *   1. growth that was interrupted is done (chunk.c)
 *   2. headers in the ring that are not idle: their operation is completed
 *   3. the version is counted up: it tells this opening's run headers from earlier ones', and so must be persisted before any
 *      run header has it
 *   4. the chain of chunk headers is read, and object table entries that are not settled are decided by whether their object
 *      is activated
 *   5. free chunks that are neighbours become one, and known
 *   6. every arena chunk is scanned for free ranges and runs (scan.c): now, or by the recovery thread while the heap is used
 *
 * 1 to 5 touch a header a chunk, the object tables, and what the ring names: time that does not grow with the content of the
 * chunks. The result depends on what is allocated, and not on what happened before.
 *
 * What recovery reads may be a store of a process that was killed before it flushed the line: lines stay dirty across exit.
 * Everything that a decision rests on is therefore flushed, and fenced before anything that follows from it: the ring and the
 * headers it names, chunk headers, object tables. Headers of free ranges need it not: whoever takes from a range stores its
 * header, and until then both the chain before the split or merge and the one after it are sound.
 *
 * Crash-safe and repeatable: 1 repeats steps of growth, 2 is the last part of the operation itself, 3 and 4 are single atomic stores
 * (in the order that names.c explains), 5 and 6 store one tag for each sequence of free neighbours, and any subset of these
 * stores is a sound chain.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"
#include "stage.h"

/* ---- 2: the ring ---- */

static bool is_sound_link(const struct nvm_heap *heap, const struct nvm_link *link) {
#if defined(MUTANT_LOG_ABSOLUTE)
    const struct nvm_link relative = {.address = link->address - (uint64_t)heap->base, .target = link->target};
    link = link->address == 0 ? link : &relative;
#endif
    return link->address == 0 || (link->address % sizeof(uint64_t) == 0 && link->address >= NVM_BLOCK_BYTES &&
                                  link->address <= nvm_heap_bytes(heap) - sizeof(uint64_t) && link->target < nvm_heap_bytes(heap));
}

/* Kind and count fit the place. */
static bool is_sound_region(const struct nvm_heap *heap, uint32_t block, const struct nvm_header *header) {
    uint32_t count = nvm_tag_count(header->tag);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (block % heap->chunk_blocks == 0)
        return kind == NVM_KIND_CHUNK_HUGE && count >= 1 && count <= nvm_chunk_count(heap) - block / heap->chunk_blocks;
    return (kind == NVM_KIND_LARGE || (kind == NVM_KIND_RUN && nvm_run_class(header->run) < NVM_SMALL_CLASSES &&
                                       nvm_run_slot(header->run) < nvm_class_slots(nvm_run_class(header->run)))) &&
           count >= 1 && count <= nvm_blocks_to_chunk_end(heap, block);
}

/* A header that is not idle and that completing it cannot turn into a worse one. */
static bool is_sound_pending(const struct nvm_heap *heap, uint32_t block) {
    const struct nvm_header *header = nvm_header_at(heap, block);
    enum nvm_state state = nvm_tag_state(header->tag);
    return (state == NVM_STATE_ACTIVATING || state == NVM_STATE_FREEING) && is_sound_region(heap, block, header) &&
           is_sound_link(heap, &header->links[0]) && is_sound_link(heap, &header->links[1]);
}

#define LINK_STAGES(what, links)                                                                                                   \
    do {                                                                                                                           \
        if ((links) == 0)                                                                                                          \
            FL_STAGE("ring: " what ", no link");                                                                                   \
        else if ((links) == 1)                                                                                                     \
            FL_STAGE("ring: " what ", one link");                                                                                  \
        else                                                                                                                       \
            FL_STAGE("ring: " what ", two links");                                                                                 \
    } while (0)

static void name_stage(const struct nvm_header *header) {
    int links = (header->links[0].address != 0) + (header->links[1].address != 0);
    bool is_activating = nvm_tag_state(header->tag) == NVM_STATE_ACTIVATING;
    switch (nvm_tag_kind(header->tag)) {
    case NVM_KIND_RUN:
        if (is_activating)
            LINK_STAGES("pending activation in a run", links);
        else
            LINK_STAGES("pending free in a run", links);
        break;
    case NVM_KIND_LARGE:
        if (is_activating)
            LINK_STAGES("pending activation of a large object", links);
        else
            LINK_STAGES("pending free of a large object", links);
        break;
    default:
        if (is_activating)
            LINK_STAGES("pending activation of a huge object", links);
        else
            LINK_STAGES("pending free of a huge object", links);
    }
}

static void complete_pending(struct nvm_heap *heap, struct nvm_header *header) {
    name_stage(header);
#if defined(MUTANT_RECOVERY_FORGETS_FREE)
    uint64_t tag = header->tag;
    if (nvm_tag_state(tag) == NVM_STATE_FREEING) {
        fl_store8(&header->tag, nvm_tag(nvm_tag_kind(tag), NVM_STATE_IDLE, nvm_tag_arena(tag), nvm_tag_count(tag)));
        fl_persist(header, sizeof *header);
        return;
    }
#endif
#if defined(MUTANT_ABSOLUTE_ON_REPLAY)
    for (int i = 0; i < 2; i++)
        if (header->links[i].address != 0 && header->links[i].target != 0)
            header->links[i].target += (uint64_t)heap->base;
#endif
#if defined(MUTANT_REPLAY_ONE_LINK)
    fl_store8(&header->links[1].address, 0);
#endif
#if defined(MUTANT_REPLAY_IDLE_FIRST)
    uint64_t intent = header->tag;
    fl_store8(&header->tag, nvm_idle_tag(intent));
    fl_persist(header, sizeof *header);
    fl_store8(&header->tag, intent); /* in the cache only: the rest is as ever */
#endif
    nvm_header_complete(heap, header);
}

#if defined(MUTANT_RUN_LISTED_TWICE)
static uint32_t pending_blocks[NVM_RING_ENTRIES], pending_count;
#endif

static int replay_entry(struct nvm_heap *heap, uint32_t entry, uint64_t offset) {
    uint32_t block = (uint32_t)(offset / NVM_BLOCK_BYTES);
    if (offset >= nvm_heap_bytes(heap) || offset % NVM_BLOCK_BYTES != 0 || block <= 1)
        return nvm_fail(NVM_CORRUPT, "ring entry %u is %#llx, which is no header's offset", entry, (unsigned long long)offset);
    struct nvm_header *header = nvm_header_at(heap, block);
    /* Before its links are set, or the entry is cleared. What power failure left is persisted: mutate, which kills no process, tells
     * no loss of this flush and fence. */
    fl_persist(header, sizeof *header);
    if (nvm_tag_state(header->tag) == NVM_STATE_IDLE) {
        FL_STAGE("ring: an entry whose header is idle");
        return NVM_OK;
    }
    if (!is_sound_pending(heap, block))
        return nvm_fail(NVM_CORRUPT, "the pending header at %#llx is damaged", (unsigned long long)offset);
    complete_pending(heap, header);
#if defined(MUTANT_RUN_LISTED_TWICE)
    pending_blocks[pending_count++ % NVM_RING_ENTRIES] = block;
#endif
    return NVM_OK;
}

static int replay_ring(struct nvm_heap *heap) {
    uint32_t used = 0;
    int status = NVM_OK;
    fl_persist(heap->media->ring, sizeof heap->media->ring); /* cleared ones, too: a killed process leaves some, mutate has none */
    for (uint32_t i = 0; i < NVM_RING_ENTRIES && status == NVM_OK; i++) {
        if (heap->media->ring[i] == 0)
            continue;
        used++;
        uint64_t offset = heap->media->ring[i];
#if defined(MUTANT_REPLAY_CLEARS_ENTRY_FIRST)
        fl_store8(&heap->media->ring[i], 0);
        fl_persist(&heap->media->ring[i], sizeof(uint64_t));
#endif
#if defined(MUTANT_REPLAY_LINKS_NOT_FLUSHED)
        nvm_is_replaying = true;
#endif
        status = replay_entry(heap, i, offset);
#if defined(MUTANT_REPLAY_LINKS_NOT_FLUSHED)
        nvm_is_replaying = false;
#endif
        if (status == NVM_OK) {
            fl_store8(&heap->media->ring[i], 0); /* one that stays would be replayed over what the block holds by then */
#if !defined(MUTANT_REPLAYED_ENTRY_STAYS)
            fl_flush(&heap->media->ring[i], sizeof(uint64_t));
#endif
        }
    }
    if (used == 0)
        FL_STAGE("ring: clean");
    else
        fl_fence(); /* what replay did ends here; count_version fences next, so mutate tells no loss */
    if (used > 1)
        FL_STAGE("ring: several entries");
    return status;
}

/* ---- 4: the chain of chunks, and the names ---- */

static uint32_t chunks_at(const struct nvm_heap *heap, uint32_t chunk) {
    return nvm_tag_count(nvm_chunk_at(heap, chunk)->header.tag);
}

static int read_chain(struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t i = 0; i < nvm_chunk_count(heap) && status == NVM_OK; i += chunks_at(heap, i)) {
        const char *complaint = nvm_chunk_complaint(heap, i);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header of chunk %u is damaged: %s", i, complaint);
        uint64_t tag = nvm_chunk_at(heap, i)->header.tag;
        /* load_names fences. Mutate tells no loss of the flush: it has no process that was killed. */
        fl_flush(&nvm_chunk_at(heap, i)->header, sizeof(struct nvm_chunk_header));
        if (nvm_tag_kind(tag) != NVM_KIND_CHUNK_ARENA)
            continue;
        heap->chunks[i].arena = nvm_tag_arena(tag);
        status = nvm_chunk_prepare(heap, i);
        if (status == NVM_OK)
            nvm_set_chunk_kind(&heap->chunks[i], NVM_CHUNK_ARENA);
    }
    return status;
}

static int load_names(struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t i = 0; i < nvm_chunk_count(heap) && status == NVM_OK; i += chunks_at(heap, i))
        if (nvm_chunk_kind(&heap->chunks[i]) == NVM_CHUNK_ARENA)
            status = nvm_names_load(heap, i);
    return status;
}

/* ---- 5: free chunks and huge objects ---- */

static int adopt_free_chunks(struct nvm_heap *heap, uint32_t first, uint32_t end) {
    struct nvm_vheader *range = calloc(1, sizeof *range);
    if (range == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    range->first = first;
    range->count = end - first;
    nvm_chunk_adopt(heap, range);
    if (chunks_at(heap, first) == end - first) {
        FL_STAGE("chunks: free");
    } else {
        FL_STAGE("chunks: free neighbours become one");
        nvm_format_chunks(heap, first, end - first, nvm_tag(NVM_KIND_CHUNK_FREE, NVM_STATE_IDLE, 0, end - first));
        fl_fence(); /* before any of them is taken: whoever does that fences before it says so, so mutate tells no loss */
    }
    return NVM_OK;
}

static int adopt_chunks(struct nvm_heap *heap) {
    uint32_t count = nvm_chunk_count(heap), free_from = count; /* where the free neighbours before begin; count: there are none */
    int status = NVM_OK;
    for (uint32_t i = 0, chunks; i < count && status == NVM_OK; i += chunks) {
        enum nvm_kind kind = nvm_tag_kind(nvm_chunk_at(heap, i)->header.tag);
        chunks = chunks_at(heap, i);
        if (kind == NVM_KIND_CHUNK_FREE && free_from == count)
            free_from = i;
        if (kind != NVM_KIND_CHUNK_FREE && free_from != count) {
            status = adopt_free_chunks(heap, free_from, i);
            free_from = count;
        }
        if (kind == NVM_KIND_CHUNK_HUGE) {
            FL_STAGE("chunks: a huge object");
            nvm_set_chunk_kind(&heap->chunks[i], NVM_CHUNK_HUGE);
        }
    }
    return status == NVM_OK && free_from != count ? adopt_free_chunks(heap, free_from, count) : status;
}

/* ---- all of it ---- */

static void count_version(struct nvm_heap *heap) {
    fl_store8(&heap->media->heap.version, heap->version);
    fl_flush(&heap->media->heap, sizeof heap->media->heap);
    fl_fence(); /* before anything of this version: the next fence of recovery comes before that, too, so mutate tells no loss */
}

int nvm_recover(struct nvm_heap *heap, enum nvm_scan_by scan_by) {
    int status = replay_ring(heap);
    if (status != NVM_OK)
        return status;
    heap->version = (uint32_t)heap->media->heap.version + 1;
#if !defined(MUTANT_VERSION_AFTER_SCAN)
    count_version(heap);
#endif
    status = read_chain(heap);
    if (status == NVM_OK)
        status = load_names(heap);
    if (status == NVM_OK)
        status = adopt_chunks(heap);
#if defined(MUTANT_RUN_LISTED_TWICE)
    for (; status == NVM_OK && pending_count > 0; pending_count--)
        if (pending_blocks[pending_count - 1] % heap->chunk_blocks != 0)
            nvm_run_list_pending(heap, pending_blocks[pending_count - 1]);
#endif
    if (status == NVM_OK)
        status = nvm_scan_start(heap, scan_by);
    if (status == NVM_OK && scan_by == NVM_SCAN_BY_OPEN)
        status = nvm_names_check(heap);
#if defined(MUTANT_VERSION_AFTER_SCAN)
    if (status == NVM_OK)
        count_version(heap);
#endif
    return status;
}
