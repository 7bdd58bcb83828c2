/* SPDX-License-Identifier: Apache-2.0
 *
 * check.c - is the region sound, and what is in it. Both by one thread while no other is inside.
 */
#include "types.h"

#include <stdlib.h>

/* ---- objects in freelists: volatile, but not allocated ---- */

struct free_objects {
    uint64_t *addresses; /* sorted */
    size_t count;
};

static int compare(const void *a, const void *b) {
    uint64_t left = *(const uint64_t *)a, right = *(const uint64_t *)b;
    return left < right ? -1 : left > right;
}

static void add_list(struct free_objects *all, const struct mak_list *list) {
    for (uint32_t i = 0; i < list->count; i++) {
        if (all->addresses != NULL)
            all->addresses[all->count] = (uint64_t)(uintptr_t)list->objects[i];
        all->count++;
    }
}

static void add_lists(struct free_objects *all) {
    all->count = 0;
    for (const struct mak_thread *thread = mak.threads; thread != NULL; thread = thread->next)
        for (uint32_t class = 1; class <= MAK_SMALL_CLASSES; class ++)
            add_list(all, &thread->lists[class]);
    for (uint32_t class = MAK_SMALL_CLASSES + 1; class <= MAK_CLASSES; class ++)
        add_list(all, &mak.classes[class].list);
}

static int collect_free_objects(struct free_objects *all) {
    *all = (struct free_objects){NULL, 0};
    add_lists(all); /* counts */
    all->addresses = malloc((all->count + 1) * sizeof *all->addresses);
    if (all->addresses == NULL)
        return mak_fail(MAK_ERROR, "out of volatile memory for a list of %zu free objects", all->count);
    add_lists(all);
    qsort(all->addresses, all->count, sizeof *all->addresses, compare);
    return MAK_OK;
}

static bool is_in_freelist(const struct free_objects *all, uint64_t address) {
    return bsearch(&address, all->addresses, all->count, sizeof address, compare) != NULL;
}

/* ---- walk ---- */

struct walk {
    void (*visit)(void *context, const struct MAK_part *part);
    void *context;
    struct free_objects free;
};

static void show(const struct walk *walk, enum MAK_part_state state, uint64_t offset, uint64_t bytes) {
    if (bytes != 0)
        walk->visit(walk->context, &(struct MAK_part){state, offset, bytes});
}

static void walk_block(const struct walk *walk, uint64_t offset, const struct mak_header *header) {
    uint32_t count = mak_object_count(header->hb_sz);
    for (uint32_t index = 0; index < count; index++) {
        bool is_marked = (header->hb_mark_bits[index / 64] >> index % 64 & 1) != 0;
        bool is_allocated = is_marked && !is_in_freelist(&walk->free, header->hb_block + index * header->hb_sz);
        show(walk, is_allocated ? MAK_PART_ALLOCATED : MAK_PART_FREE, offset + index * header->hb_sz, header->hb_sz);
    }
    show(walk, MAK_PART_UNUSABLE, offset + count * header->hb_sz, mak_bytes_covered(header) - count * header->hb_sz);
}

int MAK_walk(void (*visit)(void *context, const struct MAK_part *part), void *context) {
    struct walk walk = {visit, context, {NULL, 0}};
    if (mak.phase == MAK_PHASE_CLOSED)
        return mak_fail(MAK_INVALID, "no region is open");
    int status = collect_free_objects(&walk.free);
    if (status != MAK_OK)
        return status;
    show(&walk, MAK_PART_METADATA, 0, (uint64_t)mak.first_block * MAK_BLOCK_BYTES);
    uint32_t end = mak_end_block(), blocks;
    for (uint32_t block = mak.first_block; block < end; block = mak_map_next(block)) {
        const struct mak_header *header = mak_map_find(block);
        uint64_t offset = (uint64_t)block * MAK_BLOCK_BYTES;
        if (header == NULL)
            show(&walk, MAK_PART_METADATA, offset, mak_is_space(block, &blocks) ? mak.media->header_space_bytes : MAK_BLOCK_BYTES);
        else if (header->hb_flag == MAK_FREE)
            show(&walk, MAK_PART_FREE, offset, header->hb_sz);
        else
            walk_block(&walk, offset, header);
    }
    show(&walk, MAK_PART_FREE, (uint64_t)end * MAK_BLOCK_BYTES, mak.file_bytes - (uint64_t)end * MAK_BLOCK_BYTES);
    free(walk.free.addresses);
    return MAK_OK;
}

/* ---- check ---- */

struct check {
    struct free_objects free;
    uint64_t chunks, chunk_blocks, headers, listed_objects;
};

static const char *chunk_complaint(struct check *check, uint32_t block, const struct mak_header *header) {
    uint32_t blocks = (uint32_t)(header->hb_sz / MAK_BLOCK_BYTES), next = block + blocks;
    check->chunks++;
    check->chunk_blocks += blocks;
    if (mak.links[block].list != MAK_LISTED_CHUNK)
        return "a chunk that is in no freelist";
    if (mak_map_find(next - 1) != header)
        return "the header map does not know the chunk's last block";
    for (uint32_t inside = block + 1; inside + 1 < next; inside++)
        if (mak_map_find(inside) != NULL)
            return "the header map knows a block inside the chunk";
    const struct mak_header *after = next < mak_end_block() ? mak_map_find(next) : NULL;
    return after != NULL && after->hb_flag == MAK_FREE ? "two chunks are neighbours" : NULL;
}

/* Mark bits mean something when the region is online or collected. */
static const char *marks_complaint(struct check *check, uint32_t block, const struct mak_header *header) {
    uint64_t count = mak_object_count(header->hb_sz), marks = 0;
    for (uint32_t bit = 0; bit < MAK_MARK_WORDS * 64; bit++) {
        bool is_marked = (header->hb_mark_bits[bit / 64] >> bit % 64 & 1) != 0;
        if (bit >= count && is_marked)
            return "a mark bit without an object";
        marks += is_marked;
        if (bit >= count || !is_in_freelist(&check->free, header->hb_block + bit * header->hb_sz))
            continue;
        check->listed_objects++;
        if (!is_marked)
            return "an object in a freelist has no mark bit: a sweep would take it again";
    }
    if (marks != header->hb_n_mark_bits)
        return "the count of mark bits is wrong";
    bool is_listed = mak.links[block].list == MAK_LISTED_RECLAIM;
    if (marks == 0 && !is_listed)
        return "an empty block is neither freed nor kept for a sweep";
    return is_listed && marks == count ? "a full block is in a reclaim list" : NULL;
}

static const char *in_use_complaint(struct check *check, uint32_t block, const struct mak_header *header) {
    uint32_t blocks = (uint32_t)(mak_bytes_covered(header) / MAK_BLOCK_BYTES);
    for (uint32_t inside = block; inside < block + blocks; inside++)
        if (mak_map_find(inside) != header)
            return "the header map does not know all its blocks";
    if (mak.links[block].list == MAK_LISTED_CHUNK)
        return "a block in use is in a chunk freelist";
    return mak.phase == MAK_PHASE_OFFLINE ? NULL : marks_complaint(check, block, header);
}

static const char *block_complaint(struct check *check, uint32_t block) {
    uint32_t blocks;
    const struct mak_header *header = mak_map_find(block);
    if (header == NULL)
        return mak_is_space(block, &blocks) ? NULL : "no header accounts for it";
    if (mak_block_of(header->hb_block) != block)
        return "the header map leads to another block's header";
    const char *complaint = mak_header_complaint(header);
    if (complaint != NULL)
        return complaint;
    check->headers++;
    return header->hb_flag == MAK_FREE ? chunk_complaint(check, block, header) : in_use_complaint(check, block, header);
}

/* Every header is in use, in the freelist, or fresh. */
static int check_headers(const struct check *check) {
    uint64_t in_use = 0, listed = 0, fresh = mak.media->hfl_fresh;
    for (uint32_t number = 0; number < mak_header_count(); number++) {
        bool is_used = mak_header_at(number)->hb_block != 0;
        in_use += is_used;
        if (is_used && number >= fresh)
            return mak_fail(MAK_CORRUPT, "header %u counts as fresh and is in use", number);
    }
    for (uint64_t at = mak.media->hfl_first; at != 0 && listed <= fresh; listed++) {
        const struct mak_header *header = (const struct mak_header *)(uintptr_t)at;
        if (header->hb_block != 0)
            return mak_fail(MAK_CORRUPT, "the header at %#llx is in use and in the freelist", (unsigned long long)at);
        at = header->hb_next;
    }
    if (in_use != check->headers || in_use + listed != fresh)
        return mak_fail(MAK_CORRUPT, "%llu headers: %llu in use, %llu of them in the map, %llu in the freelist",
                        (unsigned long long)fresh, (unsigned long long)in_use, (unsigned long long)check->headers,
                        (unsigned long long)listed);
    return MAK_OK;
}

static int check_base_metadata(void) {
    const struct mak_base *base = mak.media;
    if (base->magic != MAK_MAGIC || base->rgn_base != (uint64_t)(uintptr_t)mak.base || base->limit_bytes != mak.limit_bytes ||
        mak.file_bytes < base->rgn_curr - base->rgn_base)
        return mak_fail(MAK_CORRUPT, "the base metadata is damaged");
    if ((base->state == MAK_STATE_IN_USE) != mak.is_in_use)
        return mak_fail(MAK_CORRUPT, "the region's state is %#llx", (unsigned long long)base->state);
    for (uint32_t i = 0; i < MAK_LOG_ENTRIES; i++)
        if (mak.log[i].version >= base->md_log_version)
            return mak_fail(MAK_CORRUPT, "log entry %u has version %llu, and no section runs", i,
                            (unsigned long long)mak.log[i].version);
    uint64_t heap_blocks = mak_end_block() - mak.first_block - (mak.space_count - 1) * (base->header_space_bytes / MAK_BLOCK_BYTES);
    if (mak.heap_blocks != heap_blocks || mak.heap_blocks > mak_header_count())
        return mak_fail(MAK_CORRUPT, "the heap has %llu blocks, %u are known, with %u headers", (unsigned long long)heap_blocks,
                        mak.heap_blocks, mak_header_count());
    return MAK_OK;
}

static int check_map(void) {
    const char *complaint = mak_map_complaint();
    return complaint == NULL ? MAK_OK : mak_fail(MAK_CORRUPT, "the header map: %s", complaint);
}

static int check_free_objects(const struct free_objects *all) {
    for (size_t i = 1; i < all->count; i++)
        if (all->addresses[i] == all->addresses[i - 1])
            return mak_fail(MAK_CORRUPT, "the object at %#llx is in two freelists: freed twice?",
                            (unsigned long long)all->addresses[i]);
    return MAK_OK;
}

static int check_blocks(struct check *check) {
    uint32_t end = mak_end_block(), block = mak.first_block;
    for (; block < end; block = mak_map_next(block)) {
        const char *complaint = block_complaint(check, block);
        if (complaint != NULL)
            return mak_fail(MAK_CORRUPT, "the heap block at %#llx: %s", (unsigned long long)block * MAK_BLOCK_BYTES, complaint);
    }
    uint64_t listed_blocks, listed = mak_chunks_count(&listed_blocks);
    if (block != end)
        return mak_fail(MAK_CORRUPT, "the last heap block runs over the end of the heap");
    if (listed != check->chunks || listed_blocks != check->chunk_blocks)
        return mak_fail(MAK_CORRUPT, "the freelists hold %llu chunks, the heap %llu", (unsigned long long)listed,
                        (unsigned long long)check->chunks);
    if (mak.phase != MAK_PHASE_OFFLINE && check->listed_objects != check->free.count)
        return mak_fail(MAK_CORRUPT, "the freelists hold %zu objects, the heap has %llu of them", check->free.count,
                        (unsigned long long)check->listed_objects);
    return MAK_OK;
}

int MAK_check(void) {
    struct check check = {0};
    if (mak.phase == MAK_PHASE_CLOSED)
        return mak_fail(MAK_INVALID, "no region is open");
    int status = check_base_metadata();
    if (status == MAK_OK)
        status = check_map();
    if (status == MAK_OK)
        status = collect_free_objects(&check.free);
    if (status == MAK_OK)
        status = check_free_objects(&check.free);
    if (status == MAK_OK)
        status = check_blocks(&check);
    if (status == MAK_OK)
        status = check_headers(&check);
    free(check.free.addresses);
    return status;
}
