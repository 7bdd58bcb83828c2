/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - is the heap sound, and what is in it.
 */
#include "types.h"

#include <string.h>

/* ---- one header ---- */

/* Null if the header is sound and idle, as all headers are between operations. */
const char *nvm_header_complaint(const struct nvm_heap *heap, uint32_t block) {
    const struct nvm_header *header = nvm_header_at(heap, block);
    uint32_t blocks = nvm_tag_count(header->tag);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (kind == NVM_KIND_HEAP_BLOCK ? block != 1 : kind < NVM_KIND_FREE || kind > NVM_KIND_RUN)
        return "its kind is unknown";
    if (nvm_tag_state(header->tag) != NVM_STATE_IDLE)
        return "an operation is pending, and the ring does not know it";
    if (nvm_tag_arena(header->tag) != nvm_chunk_arena(nvm_chunk_of(heap, block)))
        return "its arena is not that of its chunk";
    if (blocks == 0 || blocks > nvm_blocks_to_chunk_end(heap, block))
        return "it runs over the end of its chunk";
    if ((kind == NVM_KIND_RUN || kind == NVM_KIND_HEAP_BLOCK) && blocks != 1)
        return "it must cover one block";
    if (kind != NVM_KIND_RUN)
        return NULL;
    if (nvm_run_class(header->run) >= NVM_SMALL_CLASSES)
        return "its size class is unknown";
    if ((header->bitmap & ~nvm_class_mask(nvm_run_class(header->run))) != 0)
        return "its bitmap has more bits than the run has slots";
    return nvm_run_version(header->run) > heap->version ? "it has a version of the future" : NULL;
}

const char *nvm_chunk_complaint(const struct nvm_heap *heap, uint32_t chunk) {
    const struct nvm_chunk_header *header = &nvm_chunk_at(heap, chunk)->header;
    uint32_t count = nvm_tag_count(header->tag);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (header->magic != NVM_CHUNK_MAGIC || header->index != chunk)
        return "it is not a chunk header";
    if (kind < NVM_KIND_CHUNK_ARENA || kind > NVM_KIND_CHUNK_HUGE || (chunk == 0 && kind != NVM_KIND_CHUNK_ARENA))
        return "its kind is unknown";
    if (nvm_tag_state(header->tag) != NVM_STATE_IDLE)
        return "an operation is pending, and the ring does not know it";
    if (count == 0 || count > nvm_chunk_count(heap) - chunk)
        return "it runs over the end of the heap";
    return kind == NVM_KIND_CHUNK_ARENA && count != 1 ? "an arena chunk is one chunk" : NULL;
}

/* ---- the whole heap ---- */

static const char *run_complaint(struct nvm_heap *heap, uint32_t block) {
    const struct nvm_vheader *run = nvm_vheader(heap, block);
    const struct nvm_header *header = nvm_header_at(heap, block);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (run == NULL || run->first != block || run->count != 1)
        return "a run without a VHeader";
    if (run->is_on_media != (kind == NVM_KIND_RUN))
        return "the VHeader and the header do not agree whether it is a run";
    if (!run->is_on_media && (run->activated != 0 || kind != NVM_KIND_FREE || nvm_tag_count(header->tag) != 1))
        return "a run that is not on media is not one free block there";
    if (run->is_on_media && (run->activated != header->bitmap || run->size_class != nvm_run_class(header->run)))
        return "the VHeader and the run header differ";
    if (run->is_on_media && nvm_run_version(header->run) != heap->version)
        return "a run with a VHeader has an old version";
    if ((run->activated & run->reserved) != 0)
        return "a slot is reserved and activated";
    const struct nvm_bin *bin = nvm_run_bin(heap, block, run->size_class);
    bool is_full = (run->activated | run->reserved) == nvm_class_mask(run->size_class);
    if (is_full == (run->is_listed || bin->current == run))
        return is_full ? "a full run is tracked as non-full" : "a run with free slots is not tracked";
    return NULL;
}

static const char *range_complaint(const struct nvm_heap *heap, uint32_t block, uint32_t blocks) {
    const struct nvm_vheader *range = nvm_vheader(heap, block);
    if (nvm_tag_kind(nvm_header_at(heap, block)->tag) != NVM_KIND_FREE || range == NULL || range->first != block ||
        range->count != blocks)
        return "the VHeader and the header of the free range differ";
    if (nvm_role(heap, block) == NVM_ROLE_RESERVED)
        return NULL;
    if (nvm_vheader(heap, block + blocks - 1) != range)
        return "the end of the free range is not known";
    return nvm_blocks_to_chunk_end(heap, block) > blocks && nvm_role(heap, block + blocks) == NVM_ROLE_FREE
               ? "two free ranges are neighbours"
               : NULL;
}

static const char *region_complaint(struct nvm_heap *heap, uint32_t block) {
    uint64_t tag = nvm_header_at(heap, block)->tag;
    const char *complaint = nvm_header_complaint(heap, block);
    if (complaint != NULL)
        return complaint;
    switch (nvm_role(heap, block)) {
    case NVM_ROLE_METADATA: return nvm_tag_kind(tag) == NVM_KIND_HEAP_BLOCK ? NULL : "not the heap block";
    case NVM_ROLE_LARGE:
        return nvm_tag_kind(tag) == NVM_KIND_LARGE && nvm_vheader(heap, block) == NULL ? NULL : "not a large object";
    case NVM_ROLE_RUN: return run_complaint(heap, block);
    case NVM_ROLE_FREE:
    case NVM_ROLE_RESERVED: return range_complaint(heap, block, nvm_tag_count(tag));
    default: return "the chain of headers leads into a region";
    }
}

/* What a tree of free ranges must consist of. */
struct forest {
    const struct nvm_heap *heap;
    uint32_t in_trees;     /* ranges found in trees */
    uint32_t free_ranges;  /* ranges found on media */
};

static bool is_known_free(const struct nvm_heap *heap, const struct nvm_vheader *range, bool is_chunks) {
    if (is_chunks)
        return nvm_chunk_kind(&heap->chunks[range->first]) == NVM_CHUNK_FREE && heap->chunks[range->first].range == range;
    return nvm_role(heap, range->first) == NVM_ROLE_FREE && nvm_vheader(heap, range->first) == range;
}

/* Checks order and content of the tree below root. */
static bool is_sound_tree(struct forest *forest, const struct nvm_vheader *root, bool is_chunks) {
    if (root == NULL)
        return true;
    forest->in_trees++;
    return is_known_free(forest->heap, root, is_chunks) && (root->left == NULL || root->left->count <= root->count) &&
           (root->right == NULL || root->right->count >= root->count) && is_sound_tree(forest, root->left, is_chunks) &&
           is_sound_tree(forest, root->right, is_chunks);
}

static int check_arena_chunk(struct nvm_heap *heap, uint32_t chunk, uint32_t *free_ranges) {
    uint32_t first = chunk * heap->chunk_blocks, end = first + heap->chunk_blocks;
    if (nvm_role(heap, first) != NVM_ROLE_METADATA ||
        nvm_chunk_arena(&heap->chunks[chunk]) != nvm_tag_arena(nvm_header_at(heap, first)->tag))
        return nvm_fail(NVM_CORRUPT, "the header of chunk %u and its volatile copy differ", chunk);
    for (uint32_t block = first + 1; block < end; block += nvm_tag_count(nvm_header_at(heap, block)->tag)) {
        const char *complaint = region_complaint(heap, block);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header at %#llx: %s", (unsigned long long)nvm_block_offset(block), complaint);
        *free_ranges += nvm_role(heap, block) == NVM_ROLE_FREE;
        for (uint32_t i = 1; i < nvm_tag_count(nvm_header_at(heap, block)->tag); i++)
            if (nvm_role(heap, block + i) != NVM_ROLE_INSIDE)
                return nvm_fail(NVM_CORRUPT, "a region begins inside the one at %#llx",
                                (unsigned long long)nvm_block_offset(block));
    }
    return NVM_OK;
}

static const char *whole_chunks_complaint(const struct nvm_heap *heap, uint32_t number, enum nvm_kind kind, uint32_t count) {
    const struct nvm_chunk *chunk = &heap->chunks[number];
    enum nvm_chunk_kind known = nvm_chunk_kind(chunk);
    if (kind == NVM_KIND_CHUNK_HUGE)
        return known == NVM_CHUNK_HUGE && chunk->range == NULL ? NULL : "not a huge object";
    if ((known != NVM_CHUNK_FREE && known != NVM_CHUNK_RESERVED) || chunk->range == NULL || chunk->range->first != number ||
        chunk->range->count != count)
        return "the VHeader and the header of the free chunks differ";
    if (known == NVM_CHUNK_FREE && (heap->chunks[number + count - 1].range != chunk->range))
        return "the end of the free chunks is not known";
    return known == NVM_CHUNK_FREE && number + count < nvm_chunk_count(heap) &&
                   nvm_chunk_kind(&heap->chunks[number + count]) == NVM_CHUNK_FREE
               ? "two sequences of free chunks are neighbours"
               : NULL;
}

static int check_chunks(struct nvm_heap *heap, uint32_t *free_ranges) {
    int status = NVM_OK;
    for (uint32_t i = 0, count; i < nvm_chunk_count(heap) && status == NVM_OK; i += count) {
        uint64_t tag = nvm_chunk_at(heap, i)->header.tag;
        const char *complaint = nvm_chunk_complaint(heap, i);
        bool is_arena = nvm_tag_kind(tag) == NVM_KIND_CHUNK_ARENA;
        count = nvm_tag_count(tag);
        if (complaint == NULL && is_arena != (nvm_chunk_kind(&heap->chunks[i]) == NVM_CHUNK_ARENA))
            complaint = "the header and what is known of the chunk differ";
        if (complaint == NULL && !is_arena)
            complaint = whole_chunks_complaint(heap, i, nvm_tag_kind(tag), count);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header of chunk %u: %s", i, complaint);
        *free_ranges += nvm_chunk_kind(&heap->chunks[i]) == NVM_CHUNK_FREE;
        for (uint32_t inside = 1; inside < count; inside++)
            if (nvm_chunk_kind(&heap->chunks[i + inside]) != NVM_CHUNK_INSIDE)
                return nvm_fail(NVM_CORRUPT, "a region begins inside the one at chunk %u", i);
        if (is_arena)
            status = check_arena_chunk(heap, i, free_ranges);
    }
    return status;
}

static int check_name(struct nvm_heap *heap, uint32_t number) {
    const struct nvm_entry *entry = nvm_entry_at(heap, number);
    bool is_taken = (heap->chunks[number / NVM_TABLE_ENTRIES].entries >> number % NVM_TABLE_ENTRIES & 1) != 0;
    if (entry->state == NVM_ENTRY_EMPTY)
        return NVM_OK; /* a reserved name's is taken, all the same */
    char id[NVM_ID_BYTES + 1] = "";
    memcpy(id, entry->id, NVM_ID_BYTES);
    const struct nvm_name *name = nvm_names_find(heap, id);
    struct nvm_region region;
    if (entry->state != NVM_ENTRY_USED || !is_taken || name == NULL || !name->is_used || name->number != number ||
        name->object != nvm_object_of(heap, entry))
        return nvm_fail(NVM_CORRUPT, "object table entry %u differs from its volatile copy", number);
    if (nvm_region_of(heap, nvm_heap_absolute(heap, name->object), &region) != NVM_OK || nvm_region_is_reserved(heap, &region) ||
        nvm_heap_usable_bytes(heap, nvm_heap_absolute(heap, name->object)) == 0)
        return nvm_fail(NVM_CORRUPT, "object table entry %u ('%s') names no allocated object", number, name->id);
    return NVM_OK;
}

/* Every used name has an object: what a scan of the chunks found to be one. */
int nvm_names_check(struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t chunk = 0; chunk < nvm_chunk_count(heap) && status == NVM_OK; chunk++)
        if (nvm_chunk_kind(&heap->chunks[chunk]) == NVM_CHUNK_ARENA)
            for (uint32_t i = 0; i < NVM_TABLE_ENTRIES && status == NVM_OK; i++)
                status = check_name(heap, chunk * NVM_TABLE_ENTRIES + i);
    return status;
}

static int check_ring(const struct nvm_heap *heap) {
    for (uint32_t i = 0; i < NVM_RING_ENTRIES; i++)
        if (heap->media->ring[i] != 0)
            return nvm_fail(NVM_CORRUPT, "ring entry %u is %#llx although no operation is pending", i,
                            (unsigned long long)heap->media->ring[i]);
    return NVM_OK;
}

/* The runs that allocations would be served from are those that the blocks know, each once. */
static int check_bin(const struct nvm_heap *heap, const struct nvm_bin *bin, uint32_t size_class) {
    const struct nvm_vheader *previous = NULL;
    for (const struct nvm_vheader *run = bin->non_full; run != NULL; previous = run, run = run->next)
        if (nvm_vheader(heap, run->first) != run || !run->is_listed || run->previous != previous || run->size_class != size_class)
            return nvm_fail(NVM_CORRUPT, "the run at %#llx is listed twice, or in the wrong bin",
                            (unsigned long long)nvm_block_offset(run->first));
    return NVM_OK;
}

static int check_bins(const struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t i = 0; i < NVM_ARENAS; i++)
        for (uint32_t size_class = 0; size_class < NVM_SMALL_CLASSES && status == NVM_OK; size_class++)
            status = check_bin(heap, &heap->arenas[i].bins[size_class], size_class);
    return status;
}

int nvm_heap_check(struct nvm_heap *heap) {
    struct forest forest = {.heap = heap};
    int status = nvm_heap_settle(heap);
    if (status != NVM_OK)
        return status;
    if (heap->media->heap.magic != NVM_HEAP_MAGIC || heap->media->heap.heap_bytes != nvm_heap_bytes(heap) ||
        heap->media->heap.version != heap->version)
        return nvm_fail(NVM_CORRUPT, "the heap header is damaged");
    status = check_chunks(heap, &forest.free_ranges);
    if (status == NVM_OK)
        status = nvm_names_check(heap);
    if (status == NVM_OK)
        status = check_ring(heap);
    if (status == NVM_OK)
        status = check_bins(heap);
    if (status != NVM_OK)
        return status;
    bool is_sound = is_sound_tree(&forest, heap->free_chunks, true);
    for (uint32_t i = 0; i < NVM_ARENAS; i++)
        is_sound = is_sound && is_sound_tree(&forest, heap->arenas[i].free_ranges, false);
    if (!is_sound || forest.in_trees != forest.free_ranges)
        return nvm_fail(NVM_CORRUPT, "the trees hold %u free ranges, the heap %u", forest.in_trees, forest.free_ranges);
    return NVM_OK;
}

/* ---- walk ---- */

struct walk {
    void (*visit)(void *context, const struct nvm_part *part);
    void *context;
};

static void show(const struct walk *walk, enum nvm_part_state state, uint64_t offset, uint64_t bytes) {
    if (bytes != 0)
        walk->visit(walk->context, &(struct nvm_part){state, offset, bytes});
}

static void walk_run(const struct walk *walk, const struct nvm_vheader *run) {
    uint64_t offset = nvm_block_offset(run->first) + NVM_LINE_BYTES;
    uint32_t bytes = nvm_class_bytes(run->size_class), slots = nvm_class_slots(run->size_class);
    for (uint32_t slot = 0; slot < slots; slot++, offset += bytes)
        show(walk,
             (run->activated >> slot & 1) != 0  ? NVM_PART_ALLOCATED
             : (run->reserved >> slot & 1) != 0 ? NVM_PART_RESERVED
                                                : NVM_PART_FREE,
             offset, bytes);
    show(walk, NVM_PART_UNUSABLE, offset, NVM_RUN_BYTES - slots * bytes);
}

static void walk_region(const struct walk *walk, enum nvm_part_state state, uint64_t offset, uint64_t bytes) {
    show(walk, NVM_PART_METADATA, offset, NVM_LINE_BYTES);
    show(walk, state, offset + NVM_LINE_BYTES, bytes - NVM_LINE_BYTES);
}

static void walk_arena_chunk(const struct walk *walk, const struct nvm_heap *heap, uint32_t chunk) {
    uint32_t first = chunk * heap->chunk_blocks;
    for (uint32_t block = first, blocks; block < first + heap->chunk_blocks; block += blocks) {
        enum nvm_role role = nvm_role(heap, block);
        blocks = block == first || role == NVM_ROLE_RUN ? 1 : nvm_tag_count(nvm_header_at(heap, block)->tag);
        nvm_assert(role != NVM_ROLE_INSIDE && blocks >= 1);
        if (role == NVM_ROLE_METADATA) {
            show(walk, NVM_PART_METADATA, nvm_block_offset(block), NVM_BLOCK_BYTES);
        } else if (role == NVM_ROLE_RUN) {
            show(walk, NVM_PART_METADATA, nvm_block_offset(block), NVM_LINE_BYTES);
            walk_run(walk, nvm_vheader(heap, block));
        } else {
            walk_region(walk,
                        role == NVM_ROLE_LARGE      ? NVM_PART_ALLOCATED
                        : role == NVM_ROLE_RESERVED ? NVM_PART_RESERVED
                                                    : NVM_PART_FREE,
                        nvm_block_offset(block), nvm_block_offset(blocks));
        }
    }
}

void nvm_heap_walk(struct nvm_heap *heap, void (*visit)(void *context, const struct nvm_part *part), void *context) {
    const struct walk walk = {visit, context};
    nvm_heap_settle(heap);
    for (uint32_t chunk = 0, count; chunk < nvm_chunk_count(heap); chunk += count) {
        enum nvm_chunk_kind kind = nvm_chunk_kind(&heap->chunks[chunk]);
        count = nvm_tag_count(nvm_chunk_at(heap, chunk)->header.tag);
        if (kind == NVM_CHUNK_ARENA)
            walk_arena_chunk(&walk, heap, chunk);
        else
            walk_region(&walk,
                        kind == NVM_CHUNK_HUGE       ? NVM_PART_ALLOCATED
                        : kind == NVM_CHUNK_RESERVED ? NVM_PART_RESERVED
                                                     : NVM_PART_FREE,
                        chunk * heap->chunk_bytes, count * heap->chunk_bytes);
    }
}
