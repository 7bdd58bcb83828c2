/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c - reserve, activate and free (§3.5).
 *
 * Activate and free are one protocol, each numbered step persisted before the next one begins:
 *
 *   1. ring entry                      the header may be inconsistent from here on
 *   2. header: links (and slot), then the tag with state ACTIVATING or FREEING
 *                                      one line, so the state is never there without the links. The point of no return.
 *   3. the links are set; the bitmap   the header's line again, after the state
 *   4. tag with state IDLE             the operation is done; the links in the header are cleared
 *   5. ring entry cleared              completed by a later fence (ring.c)
 *
 * Recovery repeats 3 and 4 (nvm_header_complete) for headers that are not IDLE: all of it may be repeated any number of
 * times. A crash before 2 leaves nothing of the operation.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

/* ---- which region an object lies in ---- */

int nvm_region_of(const struct nvm_heap *heap, const void *object, struct nvm_region *region) {
    uint64_t offset = (uint64_t)((const char *)object - heap->base);
    if ((const char *)object < heap->base || offset >= heap->heap_bytes)
        return nvm_fail(NVM_INVALID, "%p does not point into the heap", object);
    uint32_t block = (uint32_t)(offset / NVM_BLOCK_BYTES);
    uint32_t inside = (uint32_t)(offset % NVM_BLOCK_BYTES);
    *region = (struct nvm_region){.block = block, .role = heap->roles[block], .vheader = heap->vheaders[block]};
    if ((region->role == NVM_ROLE_LARGE || region->role == NVM_ROLE_RESERVED) && inside == NVM_LINE_BYTES)
        return NVM_OK;
    if (region->role == NVM_ROLE_RUN && inside >= NVM_LINE_BYTES) {
        uint32_t bytes = nvm_class_bytes(region->vheader->size_class);
        region->slot = (uint8_t)((inside - NVM_LINE_BYTES) / bytes);
        if ((inside - NVM_LINE_BYTES) % bytes == 0 && region->slot < nvm_class_slots(region->vheader->size_class))
            return NVM_OK;
    }
    return nvm_fail(NVM_INVALID, "%p (offset %#llx of the heap) is not the start of an object", object, (unsigned long long)offset);
}

bool nvm_region_is_activated(const struct nvm_region *region) {
    return region->role == NVM_ROLE_LARGE ||
           (region->role == NVM_ROLE_RUN && (region->vheader->activated >> region->slot & 1) != 0);
}

bool nvm_region_is_reserved(const struct nvm_region *region) {
    return region->role == NVM_ROLE_RESERVED ||
           (region->role == NVM_ROLE_RUN && (region->vheader->reserved >> region->slot & 1) != 0);
}

/* ---- the protocol on media ---- */

/* Step 2. The tag is stored last: R1 makes everything else persist with it. */
static void store_intent(struct nvm_header *header, const struct nvm_links *links, uint64_t tag) {
#if defined(MUTANT_LINK_AFTER_STATE)
    fl_store8(&header->tag, tag);
#endif
    for (int i = 0; i < 2; i++) {
        if (links->link[i].address != 0)
            fl_store8(&header->links[i].target, links->link[i].target);
        fl_store8(&header->links[i].address, links->link[i].address);
    }
#if !defined(MUTANT_LINK_AFTER_STATE)
    fl_store8(&header->tag, tag);
#endif
#if defined(MUTANT_WRONG_FLUSH_ADDRESS)
    fl_flush(&header, sizeof header);
#else
    fl_flush(header, sizeof *header);
#endif
    fl_fence();
}

/* Step 3, the links. True if there were any. */
static bool set_links(struct nvm_heap *heap, const struct nvm_header *header) {
    bool is_any = false;
    for (int i = 0; i < 2; i++) {
        if (header->links[i].address == 0)
            continue;
        uint64_t *word = (uint64_t *)(heap->base + header->links[i].address);
        fl_store8(word, header->links[i].target);
#if !defined(MUTANT_MISSING_FLUSH_LINK)
        fl_flush(word, sizeof *word);
#endif
        is_any = true;
    }
    return is_any;
}

static uint64_t idle_tag(uint64_t tag) {
    bool is_freed = nvm_tag_state(tag) == NVM_STATE_FREEING && nvm_tag_kind(tag) == NVM_KIND_LARGE;
    return nvm_tag(is_freed ? NVM_KIND_FREE : nvm_tag_kind(tag), NVM_STATE_IDLE, nvm_tag_arena(tag), nvm_tag_blocks(tag));
}

/* Steps 3 and 4, from what the header says. */
void nvm_header_complete(struct nvm_heap *heap, struct nvm_header *header) {
    uint64_t tag = header->tag;
    bool has_links = set_links(heap, header);
    if (nvm_tag_kind(tag) == NVM_KIND_RUN) {
        uint64_t bit = (uint64_t)1 << nvm_run_slot(header->run);
        bool is_activating = nvm_tag_state(tag) == NVM_STATE_ACTIVATING;
        fl_store8(&header->bitmap, is_activating ? header->bitmap | bit : header->bitmap & ~bit);
    }
    if (has_links) {
#if !defined(MUTANT_MISSING_FENCE_LINK)
        fl_fence(); /* IDLE makes recovery forget the links, so they must be there */
#endif
    }
    fl_store8(&header->tag, idle_tag(tag));
    for (int i = 0; i < 2; i++)
        if (header->links[i].address != 0)
            fl_store8(&header->links[i].address, 0);
#if !defined(MUTANT_MISSING_FLUSH_IDLE)
    fl_flush(header, sizeof *header);
#endif
    fl_fence(); /* the caller returns, and may overwrite the links by itself */
}

static void run_protocol(struct nvm_heap *heap, uint32_t block, const struct nvm_links *links, uint64_t tag, uint64_t run_word) {
    struct nvm_header *header = nvm_header_at(heap, block);
    uint32_t entry = nvm_ring_begin(heap, block);
    if (nvm_tag_kind(tag) == NVM_KIND_RUN) {
        if (nvm_tag_kind(header->tag) == NVM_KIND_FREE) /* the first slot: the block becomes a run now */
            fl_store8(&header->bitmap, 0);
        fl_store8(&header->run, run_word);
    }
    store_intent(header, links, tag);
    nvm_header_complete(heap, header);
    nvm_ring_end(heap, entry);
}

void nvm_region_activate(struct nvm_heap *heap, struct nvm_region *region, const struct nvm_links *links) {
    nvm_assert(nvm_region_is_reserved(region));
    struct nvm_vheader *vheader = region->vheader;
    bool is_run = region->role == NVM_ROLE_RUN;
    uint64_t tag = nvm_tag(is_run ? NVM_KIND_RUN : NVM_KIND_LARGE, NVM_STATE_ACTIVATING, heap->arena.id, vheader->blocks);
    run_protocol(heap, region->block, links, tag, nvm_run_word(vheader->size_class, region->slot, heap->version));
    if (is_run) {
        vheader->is_on_media = true;
        vheader->reserved &= ~((uint64_t)1 << region->slot);
        vheader->activated |= (uint64_t)1 << region->slot;
    } else { /* nothing needs tracking until it is freed (§3.3) */
        free(vheader);
        region->vheader = heap->vheaders[region->block] = NULL;
        region->role = heap->roles[region->block] = NVM_ROLE_LARGE;
    }
}

/* Before free_on_media, after which failing is too late: the VHeader that the freed range will need. */
int nvm_region_prepare_release(struct nvm_heap *heap, struct nvm_region *region) {
    if (region->role != NVM_ROLE_LARGE)
        return NVM_OK;
    region->vheader = calloc(1, sizeof *region->vheader);
    if (region->vheader == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    region->vheader->block = region->block;
    region->vheader->blocks = nvm_tag_blocks(nvm_header_at(heap, region->block)->tag);
    return NVM_OK;
}

/* The object is free on media afterwards, but nobody gets its memory before release. */
void nvm_region_free_on_media(struct nvm_heap *heap, struct nvm_region *region, const struct nvm_links *links) {
    nvm_assert(nvm_region_is_activated(region));
    struct nvm_vheader *vheader = region->vheader;
    bool is_run = region->role == NVM_ROLE_RUN;
    uint64_t tag = nvm_tag(is_run ? NVM_KIND_RUN : NVM_KIND_LARGE, NVM_STATE_FREEING, heap->arena.id, vheader->blocks);
    run_protocol(heap, region->block, links, tag, nvm_run_word(vheader->size_class, region->slot, heap->version));
}

/* Volatile: an object that is free on media, or was only reserved, can be handed out again. */
void nvm_region_release(struct nvm_heap *heap, struct nvm_region *region) {
    if (region->role == NVM_ROLE_RUN) {
        uint64_t bit = (uint64_t)1 << region->slot;
        region->vheader->reserved &= ~bit;
        region->vheader->activated &= ~bit;
        nvm_run_relist(heap, region->vheader);
    } else {
        nvm_range_give_back(heap, region->vheader);
    }
}

/* ---- arguments ---- */

/* A link pointer lies in the activated or reserved object of the same heap, or it could destroy metadata. */
static int check_link(const struct nvm_heap *heap, const void *link, const void *target, struct nvm_link *relative) {
    *relative = (struct nvm_link){0, 0};
    if (link == NULL)
        return NVM_OK;
    uint64_t offset = (uint64_t)((const char *)link - heap->base);
    uint64_t target_offset = (uint64_t)((const char *)target - heap->base);
    if ((const char *)link < heap->base || offset + sizeof(uint64_t) > heap->heap_bytes || offset % sizeof(uint64_t) != 0)
        return nvm_fail(NVM_INVALID, "link pointer %p is not an 8-byte aligned word of the heap", link);
    uint32_t block = (uint32_t)(offset / NVM_BLOCK_BYTES);
    if (heap->roles[block] == NVM_ROLE_METADATA || heap->roles[block] == NVM_ROLE_FREE ||
        (heap->roles[block] != NVM_ROLE_INSIDE && offset % NVM_BLOCK_BYTES < NVM_LINE_BYTES))
        return nvm_fail(NVM_INVALID, "link pointer %p is not inside an object", link);
    if (target != NULL && ((const char *)target < heap->base || target_offset >= heap->heap_bytes))
        return nvm_fail(NVM_INVALID, "target %p of a link pointer does not point into the heap", target);
    relative->address = offset;
    relative->target = target == NULL ? 0 : target_offset;
    return NVM_OK;
}

/* What activate and free are given: the object's region and the links, relative. */
static int check_arguments(const struct nvm_heap *heap, const void *object, void *link_1, const void *target_1, void *link_2,
                           const void *target_2, struct nvm_region *region, struct nvm_links *links) {
    int status = nvm_region_of(heap, object, region);
    if (status == NVM_OK)
        status = check_link(heap, link_1, target_1, &links->link[0]);
    return status != NVM_OK ? status : check_link(heap, link_2, target_2, &links->link[1]);
}

/* ---- the interface ---- */

int nvm_heap_reserve(struct nvm_heap *heap, uint64_t bytes, void **object) {
    if (bytes == 0)
        return nvm_fail(NVM_INVALID, "an object of 0 bytes was requested");
    if (bytes >= heap->chunk_bytes / 2)
        return nvm_fail(NVM_TOO_LARGE,
                        "%llu bytes requested: huge objects, of half a chunk (%llu bytes) or more, are not there yet",
                        (unsigned long long)bytes, (unsigned long long)heap->chunk_bytes / 2);
    struct nvm_vheader *vheader;
    uint8_t slot = 0;
    uint32_t slot_bytes = 0;
    int status;
    if (bytes <= NVM_SMALL_MAX) {
        uint32_t size_class = (uint32_t)((bytes - 1) / NVM_LINE_BYTES);
        slot_bytes = nvm_class_bytes(size_class);
        status = nvm_run_reserve(heap, size_class, &vheader, &slot);
    } else {
        status = nvm_range_take(heap, (uint32_t)((bytes + NVM_LINE_BYTES + NVM_BLOCK_BYTES - 1) / NVM_BLOCK_BYTES), &vheader);
        if (status == NVM_OK) {
            heap->roles[vheader->block] = NVM_ROLE_RESERVED;
            heap->vheaders[vheader->block] = vheader;
        }
    }
    if (status != NVM_OK)
        return status;
    *object = heap->base + nvm_block_offset(vheader->block) + NVM_LINE_BYTES + (uint64_t)slot * slot_bytes;
    nvm_assert_heap(heap);
    return NVM_OK;
}

int nvm_heap_activate(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    struct nvm_region region;
    struct nvm_links links;
    int status = check_arguments(heap, object, link_1, target_1, link_2, target_2, &region, &links);
    if (status != NVM_OK)
        return status;
    if (!nvm_region_is_reserved(&region))
        return nvm_fail(NVM_INVALID, "%p is not reserved, so it cannot be activated", object);
    nvm_region_activate(heap, &region, &links);
    nvm_assert_heap(heap);
    return NVM_OK;
}

int nvm_heap_free(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    struct nvm_region region;
    struct nvm_links links;
    int status = check_arguments(heap, object, link_1, target_1, link_2, target_2, &region, &links);
    if (status != NVM_OK)
        return status;
    if (nvm_region_is_reserved(&region)) {
        if (link_1 != NULL || link_2 != NULL)
            return nvm_fail(NVM_INVALID, "%p is only reserved: giving it back cannot set link pointers", object);
    } else if (nvm_region_is_activated(&region)) {
        status = nvm_region_prepare_release(heap, &region);
        if (status != NVM_OK)
            return status;
        nvm_region_free_on_media(heap, &region, &links);
    } else {
        return nvm_fail(NVM_INVALID, "%p is not allocated: freed twice?", object);
    }
    nvm_region_release(heap, &region);
    nvm_assert_heap(heap);
    return NVM_OK;
}

uint64_t nvm_heap_usable_bytes(const struct nvm_heap *heap, const void *object) {
    struct nvm_region region;
    if (nvm_region_of(heap, object, &region) != NVM_OK)
        return 0;
    if (region.role == NVM_ROLE_RUN)
        return nvm_region_is_activated(&region) || nvm_region_is_reserved(&region) ? nvm_class_bytes(region.vheader->size_class)
                                                                                   : 0;
    uint32_t blocks =
        region.role == NVM_ROLE_RESERVED ? region.vheader->blocks : nvm_tag_blocks(nvm_header_at(heap, region.block)->tag);
    return nvm_block_offset(blocks) - NVM_LINE_BYTES;
}
