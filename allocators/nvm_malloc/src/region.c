/* SPDX-License-Identifier: Apache-2.0
 *
 * region.c - reserve, activate and free (§3.5): which region an object lies in, and who does what to it under which lock.
 *
 * VHeaders of large and huge objects are freed when the object is activated and made again when it is freed (§3.3); those of
 * runs stay. In a chunk that is not scanned yet, objects are known by their headers on media alone: a run gets its VHeader when
 * a slot of it is freed; a large object is freed on media only, and the scan finds it free.
 */
#include "types.h"

#include <stdlib.h>

#include "persist.h"

/* ---- which region an object lies in ---- */

static int not_an_object(const struct nvm_heap *heap, const void *object) {
    return nvm_fail(NVM_INVALID, "%p (offset %#llx of the heap) is not the start of an object", object,
                    (unsigned long long)((const char *)object - heap->base));
}

/* In an arena chunk. */
static enum nvm_role role_of_block(const struct nvm_heap *heap, uint32_t block) {
    bool is_scanned = nvm_is_scanned(nvm_chunk_of(heap, block)); /* first: a scan that ends in between has set the role by then */
    nvm_widen();
    enum nvm_role role = nvm_role(heap, block);
    if (role != NVM_ROLE_INSIDE || is_scanned)
        return role;
    enum nvm_kind kind = nvm_tag_kind(nvm_load8(&nvm_header_at(heap, block)->tag));
    return kind == NVM_KIND_LARGE ? NVM_ROLE_LARGE : kind == NVM_KIND_RUN ? NVM_ROLE_RUN : NVM_ROLE_INSIDE;
}

static bool find_slot(const struct nvm_heap *heap, uint32_t inside, struct nvm_region *region) {
    const struct nvm_vheader *run = nvm_vheader(heap, region->first);
    region->size_class = run != NULL ? run->size_class : nvm_run_class(nvm_load8(&region->header->run));
    if (inside < NVM_LINE_BYTES || region->size_class >= NVM_SMALL_CLASSES)
        return false;
    uint32_t bytes = nvm_class_bytes(region->size_class);
    region->slot = (uint8_t)((inside - NVM_LINE_BYTES) / bytes);
    return (inside - NVM_LINE_BYTES) % bytes == 0 && region->slot < nvm_class_slots(region->size_class);
}

int nvm_region_of(const struct nvm_heap *heap, const void *object, struct nvm_region *region) {
    uint64_t offset = (uint64_t)((const char *)object - heap->base);
    if ((const char *)object < heap->base || offset >= nvm_heap_bytes(heap))
        return nvm_fail(NVM_INVALID, "%p does not point into the heap", object);
    uint32_t chunk = (uint32_t)(offset / heap->chunk_bytes), block = (uint32_t)(offset / NVM_BLOCK_BYTES);
    enum nvm_chunk_kind kind = nvm_chunk_kind(&heap->chunks[chunk]);
    bool is_huge = kind == NVM_CHUNK_HUGE || kind == NVM_CHUNK_RESERVED;
    *region = (struct nvm_region){.first = is_huge ? chunk : block, .header = nvm_header_at(heap, block)};
    if (is_huge) {
        region->role = kind == NVM_CHUNK_HUGE ? NVM_ROLE_HUGE : NVM_ROLE_RESERVED_HUGE;
        return offset % heap->chunk_bytes == NVM_LINE_BYTES ? NVM_OK : not_an_object(heap, object);
    }
    uint32_t inside = (uint32_t)(offset % NVM_BLOCK_BYTES);
    region->role = kind == NVM_CHUNK_ARENA ? role_of_block(heap, block) : NVM_ROLE_INSIDE;
    if ((region->role == NVM_ROLE_LARGE || region->role == NVM_ROLE_RESERVED) && inside == NVM_LINE_BYTES)
        return NVM_OK;
    if (region->role == NVM_ROLE_RUN && find_slot(heap, inside, region))
        return NVM_OK;
    return not_an_object(heap, object);
}

/* ---- reserve ---- */

static int reserve_small(struct nvm_heap *heap, struct nvm_arena *arena, uint64_t bytes, void **object) {
    uint32_t size_class = (uint32_t)((bytes - 1) / NVM_LINE_BYTES);
    struct nvm_vheader *run;
    uint8_t slot;
    int status = nvm_run_reserve(heap, arena, size_class, &run, &slot);
    if (status == NVM_OK)
        *object = heap->base + nvm_block_offset(run->first) + NVM_LINE_BYTES + (uint64_t)slot * nvm_class_bytes(size_class);
    return status;
}

static int reserve_large(struct nvm_heap *heap, struct nvm_arena *arena, uint64_t bytes, void **object) {
    struct nvm_vheader *range;
    uint32_t blocks = (uint32_t)((bytes + NVM_LINE_BYTES + NVM_BLOCK_BYTES - 1) / NVM_BLOCK_BYTES);
    int status = nvm_range_take(heap, arena, blocks, NVM_ROLE_RESERVED, &range);
    if (status == NVM_OK)
        *object = heap->base + nvm_block_offset(range->first) + NVM_LINE_BYTES;
    return status;
}

static int reserve_huge(struct nvm_heap *heap, uint64_t bytes, void **object) {
    struct nvm_vheader *range;
    uint32_t count = (uint32_t)((bytes + NVM_LINE_BYTES + heap->chunk_bytes - 1) / heap->chunk_bytes);
    int status = nvm_chunk_take(heap, count, &range);
    if (status == NVM_OK)
        *object = (char *)nvm_chunk_at(heap, range->first) + NVM_LINE_BYTES;
    return status;
}

/* Table 5. */
static int reserve_in(struct nvm_heap *heap, struct nvm_arena *arena, uint64_t bytes, void **object) {
    return bytes <= NVM_SMALL_MAX          ? reserve_small(heap, arena, bytes, object)
           : bytes < heap->chunk_bytes / 2 ? reserve_large(heap, arena, bytes, object)
                                           : reserve_huge(heap, bytes, object);
}

/* Neither the thread's arena nor free chunks nor growth have it: whatever is free anywhere may serve. */
static int reserve_somewhere(struct nvm_heap *heap, uint32_t own, uint64_t bytes, void **object) {
    pthread_mutex_lock(&heap->shortage_lock);
    nvm_run_reclaim_empty(heap);
    for (uint32_t chunk = 1; chunk < nvm_chunk_count(heap); chunk++)
        if (nvm_chunk_kind(&heap->chunks[chunk]) == NVM_CHUNK_ARENA)
            nvm_range_release_chunk(heap, chunk);
    int status = NVM_OUT_OF_MEMORY;
    for (uint32_t i = 0; i < NVM_ARENAS && status == NVM_OUT_OF_MEMORY; i++)
        status = reserve_in(heap, &heap->arenas[(own + i) % NVM_ARENAS], bytes, object);
    pthread_mutex_unlock(&heap->shortage_lock);
    return status;
}

int nvm_region_reserve(struct nvm_heap *heap, uint64_t bytes, void **object) {
    if (bytes == 0)
        return nvm_fail(NVM_INVALID, "an object of 0 bytes was requested");
    uint64_t huge_bytes = heap->limit_bytes - heap->chunk_bytes; /* with header: chunk 0 is an arena's */
    if (bytes >= heap->chunk_bytes / 2 && (bytes > huge_bytes || bytes + NVM_LINE_BYTES > huge_bytes))
        return nvm_fail(NVM_TOO_LARGE, "%llu bytes requested, and the heap may never have more than %llu",
                        (unsigned long long)bytes, (unsigned long long)heap->limit_bytes);
    struct nvm_arena *arena = nvm_arena_of_thread(heap);
    bool is_all_known = nvm_scan_is_settled(heap);
    int status = reserve_in(heap, arena, bytes, object);
    if (status == NVM_OUT_OF_MEMORY) { /* there may be memory that is not known yet, or damage that the scan has found */
        int scan_status = nvm_scan_wait(heap);
        if (scan_status != NVM_OK)
            return scan_status;
        if (!is_all_known)
            status = reserve_in(heap, arena, bytes, object);
    }
    return status == NVM_OUT_OF_MEMORY ? reserve_somewhere(heap, arena->id, bytes, object) : status;
}

/* ---- activate ---- */

static int not_reserved(void) { return nvm_fail(NVM_INVALID, "the object is not reserved, so it cannot be activated"); }

static int activate_slot(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links) {
    struct nvm_vheader *run = nvm_vheader(heap, region->first);
    uint64_t bit = (uint64_t)1 << region->slot;
    if (run == NULL || (run->reserved & bit) == 0)
        return not_reserved();
    uint16_t arena = nvm_chunk_arena(nvm_chunk_of(heap, region->first));
    nvm_protocol_run(heap, region->header, nvm_tag(NVM_KIND_RUN, NVM_STATE_ACTIVATING, arena, 1),
                     nvm_run_word(region->size_class, region->slot, heap->version), links);
    run->is_on_media = true;
    run->reserved &= ~bit;
    run->activated |= bit;
    return NVM_OK;
}

/* Nothing needs tracking until it is freed (§3.3). */
static void activate_large(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links) {
    struct nvm_vheader *range = nvm_vheader(heap, region->first);
    uint16_t arena = nvm_chunk_arena(nvm_chunk_of(heap, region->first));
    nvm_protocol_run(heap, region->header, nvm_tag(NVM_KIND_LARGE, NVM_STATE_ACTIVATING, arena, range->count), 0, links);
    nvm_set_role(heap, region->first, NVM_ROLE_LARGE, NULL);
    free(range);
}

static void activate_huge(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links) {
    struct nvm_chunk *chunk = &heap->chunks[region->first];
    struct nvm_vheader *range = chunk->range;
    nvm_protocol_run(heap, region->header, nvm_tag(NVM_KIND_CHUNK_HUGE, NVM_STATE_ACTIVATING, 0, range->count), 0, links);
    chunk->range = NULL;
    nvm_set_chunk_kind(chunk, NVM_CHUNK_HUGE);
    free(range);
}

int nvm_region_activate(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links) {
    if (region->role == NVM_ROLE_RUN) {
        struct nvm_bin *bin = nvm_run_bin(heap, region->first, region->size_class);
        pthread_mutex_lock(&bin->lock);
        int status = activate_slot(heap, region, links);
        pthread_mutex_unlock(&bin->lock);
        return status;
    }
    if (region->role == NVM_ROLE_RESERVED)
        activate_large(heap, region, links);
    else if (region->role == NVM_ROLE_RESERVED_HUGE)
        activate_huge(heap, region, links);
    else
        return not_reserved();
    return NVM_OK;
}

bool nvm_region_is_reserved(struct nvm_heap *heap, const struct nvm_region *region) {
    if (region->role != NVM_ROLE_RUN)
        return region->role == NVM_ROLE_RESERVED || region->role == NVM_ROLE_RESERVED_HUGE;
    struct nvm_bin *bin = nvm_run_bin(heap, region->first, region->size_class);
    pthread_mutex_lock(&bin->lock);
    const struct nvm_vheader *run = nvm_vheader(heap, region->first);
    bool is_reserved = run != NULL && (run->reserved >> region->slot & 1) != 0;
    pthread_mutex_unlock(&bin->lock);
    return is_reserved;
}

/* ---- free ---- */

static bool has_links(const struct nvm_links *links) { return links->link[0].address != 0 || links->link[1].address != 0; }

static int links_of_reserved(void) {
    return nvm_fail(NVM_INVALID, "the object is only reserved: giving it back cannot set link pointers");
}

/* Steps of an activated object's free on media, told to the one who keeps its name. */
struct freeing {
    const struct nvm_region *region;
    const struct nvm_links *links;
    void (*on_media)(void *context, bool is_freed);
    void *context;
};

static void free_on_media(struct nvm_heap *heap, const struct freeing *freeing, uint64_t tag, uint64_t run_word) {
    if (freeing->on_media != NULL)
        freeing->on_media(freeing->context, false);
    nvm_protocol_run(heap, freeing->region->header, tag, run_word, freeing->links);
    if (freeing->on_media != NULL)
        freeing->on_media(freeing->context, true);
}

static int free_slot(struct nvm_heap *heap, struct nvm_bin *bin, const struct freeing *freeing) {
    const struct nvm_region *region = freeing->region;
    struct nvm_vheader *run;
    uint64_t bit = (uint64_t)1 << region->slot;
    int status = nvm_run_known(heap, region->first, &run);
    if (status != NVM_OK)
        return status;
    if ((run->reserved & bit) != 0) {
        if (has_links(freeing->links))
            return links_of_reserved();
        run->reserved &= ~bit;
    } else if ((run->activated & bit) != 0) {
#if defined(MUTANT_ARENA_OF_CALLER)
        uint16_t arena = nvm_arena_of_thread(heap)->id;
#else
        uint16_t arena = nvm_chunk_arena(nvm_chunk_of(heap, region->first));
#endif
        free_on_media(heap, freeing, nvm_tag(NVM_KIND_RUN, NVM_STATE_FREEING, arena, 1),
                      nvm_run_word(region->size_class, region->slot, heap->version));
        run->activated &= ~bit;
    } else {
        return nvm_fail(NVM_INVALID, "the object is not allocated: freed twice?");
    }
    nvm_run_relist(bin, run);
    return NVM_OK;
}

/* tag: the header's, idle. */
static uint64_t freeing_tag(uint64_t tag) {
    return nvm_tag(nvm_tag_kind(tag), NVM_STATE_FREEING, nvm_tag_arena(tag), nvm_tag_count(tag));
}

/* Without a VHeader if the scan has yet to come to it. True if that was so. */
static bool free_before_scan(struct nvm_heap *heap, const struct freeing *freeing) {
    const struct nvm_chunk *chunk = nvm_chunk_of(heap, freeing->region->first);
    if (nvm_is_scanned(chunk))
        return false;
#if defined(MUTANT_FREE_IGNORES_SCAN)
    return false;
#endif
    pthread_mutex_lock(&heap->scan_lock);
    bool is_before = !nvm_is_scanned(chunk);
    if (is_before)
        free_on_media(heap, freeing, freeing_tag(freeing->region->header->tag), 0);
    pthread_mutex_unlock(&heap->scan_lock);
    return is_before;
}

static int free_large_or_huge(struct nvm_heap *heap, const struct freeing *freeing) {
    const struct nvm_region *region = freeing->region;
    if (region->role == NVM_ROLE_LARGE && free_before_scan(heap, freeing))
        return NVM_OK;
    struct nvm_vheader *range = calloc(1, sizeof *range); /* before anything happens on media */
    if (range == NULL)
        return nvm_fail(NVM_ERROR, "out of volatile memory for a VHeader");
    uint64_t tag = region->header->tag;
    range->first = region->first;
    range->count = nvm_tag_count(tag);
    free_on_media(heap, freeing, freeing_tag(tag), 0);
    if (region->role == NVM_ROLE_HUGE)
        nvm_chunk_give_back(heap, range);
    else
        nvm_range_give_back(heap, range);
    return NVM_OK;
}

int nvm_region_free(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links,
                    void (*on_media)(void *context, bool is_freed), void *context) {
    const struct freeing freeing = {region, links, on_media, context};
    if (region->role == NVM_ROLE_RUN) {
        struct nvm_bin *bin = nvm_run_bin(heap, region->first, region->size_class);
        pthread_mutex_lock(&bin->lock);
        int status = free_slot(heap, bin, &freeing);
        pthread_mutex_unlock(&bin->lock);
        return status;
    }
    if (region->role == NVM_ROLE_LARGE || region->role == NVM_ROLE_HUGE)
        return free_large_or_huge(heap, &freeing);
    if (has_links(links))
        return links_of_reserved();
    if (region->role == NVM_ROLE_RESERVED)
        nvm_range_give_back(heap, nvm_vheader(heap, region->first));
    else
        nvm_chunk_give_back(heap, heap->chunks[region->first].range);
    return NVM_OK;
}

/* ---- the interface ---- */

/* The word lies in an object of an arena chunk, or in a huge one, or it could destroy metadata. */
static bool is_in_object(const struct nvm_heap *heap, uint64_t offset) {
    uint32_t chunk = (uint32_t)(offset / heap->chunk_bytes), block = (uint32_t)(offset / NVM_BLOCK_BYTES);
    while (chunk > 0 && nvm_chunk_kind(&heap->chunks[chunk]) == NVM_CHUNK_INSIDE)
        chunk--;
    enum nvm_chunk_kind kind = nvm_chunk_kind(&heap->chunks[chunk]);
    if (kind != NVM_CHUNK_ARENA)
        return (kind == NVM_CHUNK_HUGE || kind == NVM_CHUNK_RESERVED) && offset - chunk * heap->chunk_bytes >= NVM_LINE_BYTES;
    enum nvm_role role = nvm_role(heap, block);
    return role != NVM_ROLE_METADATA && role != NVM_ROLE_FREE &&
           (role == NVM_ROLE_INSIDE || offset % NVM_BLOCK_BYTES >= NVM_LINE_BYTES);
}

static int check_link(const struct nvm_heap *heap, const void *link, const void *target, struct nvm_link *relative) {
    *relative = (struct nvm_link){0, 0};
    if (link == NULL)
        return NVM_OK;
    uint64_t offset = (uint64_t)((const char *)link - heap->base), heap_bytes = nvm_heap_bytes(heap);
    uint64_t target_offset = (uint64_t)((const char *)target - heap->base);
    if ((const char *)link < heap->base || offset + sizeof(uint64_t) > heap_bytes || offset % sizeof(uint64_t) != 0)
        return nvm_fail(NVM_INVALID, "link pointer %p is not an 8-byte aligned word of the heap", link);
    if (!is_in_object(heap, offset))
        return nvm_fail(NVM_INVALID, "link pointer %p is not inside an object", link);
    if (target != NULL && ((const char *)target < heap->base || target_offset >= heap_bytes))
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

int nvm_heap_reserve(struct nvm_heap *heap, uint64_t bytes, void **object) {
    int status = nvm_region_reserve(heap, bytes, object);
    nvm_assert_heap(heap);
    return status;
}

int nvm_heap_activate(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    struct nvm_region region;
    struct nvm_links links;
    int status = check_arguments(heap, object, link_1, target_1, link_2, target_2, &region, &links);
    if (status == NVM_OK)
        status = nvm_region_activate(heap, &region, &links);
    nvm_assert_heap(heap);
    return status;
}

int nvm_heap_free(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2) {
    struct nvm_region region;
    struct nvm_links links;
    int status = check_arguments(heap, object, link_1, target_1, link_2, target_2, &region, &links);
    if (status == NVM_OK && nvm_names_has_object(heap, nvm_heap_relative(heap, object)))
        status = nvm_fail(NVM_INVALID, "the object has a name, and is freed by its id only");
    if (status == NVM_OK)
        status = nvm_region_free(heap, &region, &links, NULL, NULL);
    nvm_assert_heap(heap);
    return status;
}

static uint32_t header_count(const struct nvm_region *region) { return nvm_tag_count(nvm_load8(&region->header->tag)); }

uint64_t nvm_heap_usable_bytes(struct nvm_heap *heap, const void *object) {
    struct nvm_region region;
    if (nvm_region_of(heap, object, &region) != NVM_OK)
        return 0;
    if (region.role == NVM_ROLE_HUGE || region.role == NVM_ROLE_RESERVED_HUGE)
        return header_count(&region) * heap->chunk_bytes - NVM_LINE_BYTES;
    if (region.role != NVM_ROLE_RUN)
        return nvm_block_offset(header_count(&region)) - NVM_LINE_BYTES;
    struct nvm_bin *bin = nvm_run_bin(heap, region.first, region.size_class);
    pthread_mutex_lock(&bin->lock);
    const struct nvm_vheader *run = nvm_vheader(heap, region.first);
    uint64_t used = run != NULL ? run->activated | run->reserved : region.header->bitmap;
    pthread_mutex_unlock(&bin->lock);
    return (used >> region.slot & 1) != 0 ? nvm_class_bytes(region.size_class) : 0;
}
