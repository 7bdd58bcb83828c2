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
    uint32_t blocks = nvm_tag_blocks(header->tag);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (kind == NVM_KIND_HEAP_BLOCK ? block != 1 : kind < NVM_KIND_FREE || kind > NVM_KIND_RUN)
        return "its kind is unknown";
    if (nvm_tag_state(header->tag) != NVM_STATE_IDLE)
        return "an operation is pending, and the ring does not know it";
    if (nvm_tag_arena(header->tag) != heap->arena.id)
        return "its arena does not exist";
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
    /* The version is counted up after the scan, but heap->version is the new one already. */
    return nvm_run_version(header->run) > heap->version ? "it has a version of the future" : NULL;
}

/* ---- the whole heap ---- */

static const char *run_complaint(const struct nvm_heap *heap, uint32_t block) {
    const struct nvm_vheader *run = heap->vheaders[block];
    const struct nvm_header *header = nvm_header_at(heap, block);
    enum nvm_kind kind = nvm_tag_kind(header->tag);
    if (run == NULL || run->block != block || run->blocks != 1)
        return "a run without a VHeader";
    if (run->is_on_media != (kind == NVM_KIND_RUN))
        return "the VHeader and the header do not agree whether it is a run";
    if (!run->is_on_media && (run->activated != 0 || kind != NVM_KIND_FREE || nvm_tag_blocks(header->tag) != 1))
        return "a run that is not on media is not one free block there";
    if (run->is_on_media && (run->activated != header->bitmap || run->size_class != nvm_run_class(header->run)))
        return "the VHeader and the run header differ";
    if ((run->activated & run->reserved) != 0)
        return "a slot is reserved and activated";
    const struct nvm_bin *bin = &heap->arena.bins[run->size_class];
    bool is_full = (run->activated | run->reserved) == nvm_class_mask(run->size_class);
    if (is_full == (run->is_listed || bin->current == run))
        return is_full ? "a full run is tracked as non-full" : "a run with free slots is not tracked";
    return NULL;
}

static const char *region_complaint(const struct nvm_heap *heap, uint32_t block) {
    const struct nvm_vheader *vheader = heap->vheaders[block];
    uint64_t tag = nvm_header_at(heap, block)->tag;
    uint32_t blocks = nvm_tag_blocks(tag);
    const char *complaint = nvm_header_complaint(heap, block);
    if (complaint != NULL)
        return complaint;
    switch ((enum nvm_role)heap->roles[block]) {
    case NVM_ROLE_METADATA: return nvm_tag_kind(tag) == NVM_KIND_HEAP_BLOCK ? NULL : "not the heap block";
    case NVM_ROLE_LARGE: return nvm_tag_kind(tag) == NVM_KIND_LARGE && vheader == NULL ? NULL : "not a large object";
    case NVM_ROLE_RUN: return run_complaint(heap, block);
    case NVM_ROLE_FREE:
    case NVM_ROLE_RESERVED:
        if (nvm_tag_kind(tag) != NVM_KIND_FREE || vheader == NULL || vheader->block != block || vheader->blocks != blocks)
            return "the VHeader and the header of the free range differ";
        if (heap->roles[block] == NVM_ROLE_RESERVED)
            return NULL;
        if (heap->vheaders[block + blocks - 1] != vheader)
            return "the end of the free range is not known";
        return block % heap->chunk_blocks + blocks < heap->chunk_blocks && heap->roles[block + blocks] == NVM_ROLE_FREE
                   ? "two free ranges are neighbours"
                   : NULL;
    case NVM_ROLE_INSIDE: break;
    }
    return "the chain of headers leads into a region";
}

/* Checks order and content of the tree below root; adds its ranges to *count. */
static bool is_sound_tree(const struct nvm_heap *heap, const struct nvm_vheader *root, uint32_t *count) {
    if (root == NULL)
        return true;
    *count += 1;
    return heap->roles[root->block] == NVM_ROLE_FREE && heap->vheaders[root->block] == root &&
           (root->left == NULL || root->left->blocks <= root->blocks) &&
           (root->right == NULL || root->right->blocks >= root->blocks) && is_sound_tree(heap, root->left, count) &&
           is_sound_tree(heap, root->right, count);
}

static int check_chain(const struct nvm_heap *heap, uint32_t chunk, uint32_t *free_ranges) {
    uint32_t first = chunk * heap->chunk_blocks, end = first + heap->chunk_blocks;
    if (nvm_chunk_at(heap, chunk)->header.magic != NVM_CHUNK_MAGIC || heap->roles[first] != NVM_ROLE_METADATA)
        return nvm_fail(NVM_CORRUPT, "the header of chunk %u is damaged", chunk);
    for (uint32_t block = first + 1; block < end; block += nvm_tag_blocks(nvm_header_at(heap, block)->tag)) {
        const char *complaint = region_complaint(heap, block);
        if (complaint != NULL)
            return nvm_fail(NVM_CORRUPT, "the header at %#llx: %s", (unsigned long long)nvm_block_offset(block), complaint);
        *free_ranges += heap->roles[block] == NVM_ROLE_FREE;
        for (uint32_t i = 1; i < nvm_tag_blocks(nvm_header_at(heap, block)->tag); i++)
            if (heap->roles[block + i] != NVM_ROLE_INSIDE)
                return nvm_fail(NVM_CORRUPT, "a region begins inside the one at %#llx",
                                (unsigned long long)nvm_block_offset(block));
    }
    return NVM_OK;
}

static int check_name(const struct nvm_heap *heap, uint32_t number) {
    const struct nvm_entry *entry = nvm_entry_at(heap, number);
    const struct nvm_name *name = &heap->names.names[number];
    struct nvm_region region;
    if (entry->state == NVM_ENTRY_EMPTY && name->state != NVM_NAME_USED)
        return NVM_OK;
    if (entry->state != NVM_ENTRY_USED || name->state != NVM_NAME_USED || entry->object != name->object ||
        strncmp(entry->id, name->id, NVM_ID_BYTES) != 0 || nvm_names_find(heap, name->id) != name)
        return nvm_fail(NVM_CORRUPT, "object table entry %u differs from its volatile copy", number);
    if (nvm_region_of(heap, nvm_heap_absolute(heap, name->object), &region) != NVM_OK || !nvm_region_is_activated(&region))
        return nvm_fail(NVM_CORRUPT, "object table entry %u ('%s') names no allocated object", number, name->id);
    return NVM_OK;
}

/* Every used name has an object: what a scan of the chunks found to be one. */
int nvm_names_check(const struct nvm_heap *heap) {
    int status = NVM_OK;
    for (uint32_t number = 0; number < heap->names.count && status == NVM_OK; number++)
        status = check_name(heap, number);
    return status;
}

int nvm_heap_check(const struct nvm_heap *heap) {
    uint32_t free_ranges = 0, in_tree = 0;
    int status = NVM_OK;
    if (heap->media->heap.magic != NVM_HEAP_MAGIC || heap->media->heap.heap_bytes != heap->heap_bytes ||
        heap->media->heap.version != heap->version)
        return nvm_fail(NVM_CORRUPT, "the heap header is damaged");
    for (uint32_t chunk = 0; chunk < nvm_chunk_count(heap) && status == NVM_OK; chunk++)
        status = check_chain(heap, chunk, &free_ranges);
    if (status == NVM_OK)
        status = nvm_names_check(heap);
    if (status != NVM_OK)
        return status;
    for (uint32_t i = 0; i < NVM_RING_ENTRIES; i++)
        if (heap->media->ring[i] != 0)
            return nvm_fail(NVM_CORRUPT, "ring entry %u is %#llx although no operation is pending", i,
                            (unsigned long long)heap->media->ring[i]);
    if (!is_sound_tree(heap, heap->arena.free_ranges, &in_tree) || in_tree != free_ranges)
        return nvm_fail(NVM_CORRUPT, "the tree holds %u free ranges, the heap %u", in_tree, free_ranges);
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
    uint64_t offset = nvm_block_offset(run->block) + NVM_LINE_BYTES;
    uint32_t bytes = nvm_class_bytes(run->size_class), slots = nvm_class_slots(run->size_class);
    for (uint32_t slot = 0; slot < slots; slot++, offset += bytes)
        show(walk,
             (run->activated >> slot & 1) != 0  ? NVM_PART_ALLOCATED
             : (run->reserved >> slot & 1) != 0 ? NVM_PART_RESERVED
                                                : NVM_PART_FREE,
             offset, bytes);
    show(walk, NVM_PART_UNUSABLE, offset, NVM_RUN_BYTES - slots * bytes);
}

void nvm_heap_walk(const struct nvm_heap *heap, void (*visit)(void *context, const struct nvm_part *part), void *context) {
    const struct walk walk = {visit, context};
    for (uint32_t block = 0, blocks; block < heap->block_count; block += blocks) {
        const struct nvm_vheader *vheader = heap->vheaders[block];
        enum nvm_role role = (enum nvm_role)heap->roles[block];
        blocks = vheader != NULL             ? vheader->blocks
                 : role == NVM_ROLE_METADATA ? 1
                                             : nvm_tag_blocks(nvm_header_at(heap, block)->tag);
        nvm_assert(role != NVM_ROLE_INSIDE && blocks >= 1);
        if (role == NVM_ROLE_METADATA) {
            show(&walk, NVM_PART_METADATA, nvm_block_offset(block), NVM_BLOCK_BYTES);
            continue;
        }
        show(&walk, NVM_PART_METADATA, nvm_block_offset(block), NVM_LINE_BYTES);
        if (role == NVM_ROLE_RUN)
            walk_run(&walk, vheader);
        else
            show(&walk,
                 role == NVM_ROLE_LARGE      ? NVM_PART_ALLOCATED
                 : role == NVM_ROLE_RESERVED ? NVM_PART_RESERVED
                                             : NVM_PART_FREE,
                 nvm_block_offset(block) + NVM_LINE_BYTES, nvm_block_offset(blocks) - NVM_LINE_BYTES);
    }
}
