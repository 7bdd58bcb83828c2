/* SPDX-License-Identifier: Apache-2.0
 *
 * header.c - header spaces and the header freelist (§5.1), the header map (§5.2). Under the global lock, except mak_map_find.
 *
 * Headers are numbered over all header spaces. Free ones form a list through hb_next; headers that were never in use are
 * not listed but counted by hfl_fresh, so that neither a new header space nor recovery touches them. All of this and
 * the map are auxiliary: eventually visible, rebuilt from the core lines after a failure.
 *
 * The map has two levels, as bdwgc's, which the paper adopts: what a look-up, a purge and a check touch grows with the heap, not with
 * the limit. A bottom index is handed out when a word of it is first set, and stays for this life of the map: until recovery
 * purges it. Blocks without a header in the map: header spaces and the inside of free chunks.
 */
#include "types.h"

/* ---- headers ---- */

uint32_t mak_header_count(void) { return mak.space_count * mak.headers_in_space; }

struct mak_header *mak_header_at(uint32_t number) {
    uint64_t space = mak.media->header_spaces[number / mak.headers_in_space];
    return (struct mak_header *)(uintptr_t)space + number % mak.headers_in_space;
}

/* Growth keeps a header for every block of the heap (chunk.c), so there always is one. */
struct mak_header *mak_header_take(void) {
    struct mak_base *base = mak.media;
    if (base->hfl_first != 0) {
        struct mak_header *header = (struct mak_header *)(uintptr_t)base->hfl_first;
        mak_store_later(&base->hfl_first, header->hb_next);
        return header;
    }
    mak_assert(base->hfl_fresh < mak_header_count());
    struct mak_header *header = mak_header_at((uint32_t)base->hfl_fresh);
    mak_store_later(&base->hfl_fresh, base->hfl_fresh + 1);
    return header;
}

void mak_header_give_back(struct mak_header *header) {
    mak_store_later(&header->hb_next, mak.media->hfl_first);
    mak_store_later(&mak.media->hfl_first, (uint64_t)(uintptr_t)header);
}

/* ---- header map ---- */

static uint64_t *bottom_of(uint32_t block) {
    return (uint64_t *)(uintptr_t)__atomic_load_n(&mak.map[block / MAK_MAP_BOTTOM], __ATOMIC_ACQUIRE);
}

/* The header that accounts for the block; null: none. Of a block that holds an object of the caller, the answer is stable. */
struct mak_header *mak_map_find(uint32_t block) {
    const uint64_t *bottom = bottom_of(block);
    return bottom == NULL ? NULL
                          : (struct mak_header *)(uintptr_t)__atomic_load_n(&bottom[block % MAK_MAP_BOTTOM], __ATOMIC_RELAXED);
}

static uint64_t *bottom_number(uint64_t number) {
    return (uint64_t *)((char *)mak.map + mak_map_top_bytes(mak.limit_bytes)) + number * MAK_MAP_BOTTOM;
}

/* From map_fresh on all are zeros. */
static uint64_t *hand_out_bottom(uint32_t block) {
    uint64_t *bottom = bottom_number(mak.media->map_fresh);
    mak_store_later(&mak.media->map_fresh, mak.media->map_fresh + 1);
    mak_store_later(&mak.map[block / MAK_MAP_BOTTOM], (uint64_t)(uintptr_t)bottom);
    return bottom;
}

/* A line is named once, after the last of its words. */
static void set_range(uint32_t block, uint32_t blocks, uint64_t value) {
    uint64_t *changed = NULL;
    for (uint32_t i = block; i < block + blocks; i++) {
        uint64_t *bottom = bottom_of(i);
        if (bottom == NULL && value != 0)
            bottom = hand_out_bottom(i);
        if (bottom == NULL || bottom[i % MAK_MAP_BOTTOM] == value)
            continue;
        uint64_t *word = &bottom[i % MAK_MAP_BOTTOM];
        if (changed != NULL && (uintptr_t)word / MAK_LINE_BYTES != (uintptr_t)changed / MAK_LINE_BYTES)
            mak_visible_later(changed);
        fl_store8(word, value);
        changed = word;
    }
    if (changed != NULL)
        mak_visible_later(changed);
}

static void clear_words(uint64_t *words, uint64_t count) {
    for (uint64_t i = 0; i < count; i++) {
        fl_store8(&words[i], 0);
        if (i + 1 == count || (uintptr_t)&words[i + 1] % MAK_LINE_BYTES == 0)
            mak_visible_later(&words[i]);
    }
}

/* Forgets everything: no bottom index is handed out (§9.1), and all that ever were are zeros. They were no more than the words of
 * the top index that the heap reaches: the map learns of a block when rgn_curr, behind it, is persisted. */
void mak_map_purge(void) {
    uint64_t tops = (mak_end_block() + MAK_MAP_BOTTOM - 1) / MAK_MAP_BOTTOM;
    clear_words(mak.map, tops);
#if !defined(MUTANT_BOTTOM_NOT_CLEARED)
    clear_words(bottom_number(0), tops * MAK_MAP_BOTTOM);
#endif
    mak_store_later(&mak.media->map_fresh, 0);
}

/* Of a free chunk the words between the first and the last block must be 0 already. */
void mak_map_install(struct mak_header *header) {
    uint32_t block = mak_block_of(header->hb_block), blocks = (uint32_t)(mak_bytes_covered(header) / MAK_BLOCK_BYTES);
    uint64_t value = (uint64_t)(uintptr_t)header;
    if (header->hb_flag == MAK_IN_USE) {
        set_range(block, blocks, value);
        return;
    }
    set_range(block, 1, value);
    set_range(block + blocks - 1, 1, value);
}

void mak_map_remove(uint32_t block, uint32_t blocks) { set_range(block, blocks, 0); }

static bool is_header(uint64_t address) {
    for (uint32_t i = 0; i < mak.space_count; i++)
        if (address - mak.media->header_spaces[i] < mak.media->header_space_bytes)
            return (address - mak.media->header_spaces[i]) % sizeof(struct mak_header) == 0;
    return false;
}

static const char *bottom_complaint(uint64_t top) {
    const uint64_t *bottom = (const uint64_t *)(uintptr_t)mak.map[top];
    uint64_t bytes = MAK_MAP_BOTTOM * sizeof *bottom, offset = (uint64_t)((const char *)bottom - (const char *)bottom_number(0));
    if (offset % bytes != 0 || offset / bytes >= mak.media->map_fresh)
        return "the top index leads to no bottom index";
    uint64_t known = 0; /* of neighbours in use, mostly one header */
    for (uint32_t i = 0; i < MAK_MAP_BOTTOM; i++) {
        if (bottom[i] != known && bottom[i] != 0 && !is_header(bottom[i]))
            return "a bottom index leads to no header";
        known = bottom[i];
    }
    return NULL;
}

/* Null: each bottom index that is handed out belongs to one word of the top index, and what it names are headers. */
const char *mak_map_complaint(void) {
    uint64_t tops = mak_map_tops(mak.limit_bytes), used = 0;
    if (mak.media->map_fresh > tops)
        return "more bottom indices are handed out than there are";
    for (uint64_t top = 0; top < tops; top++) {
        const char *complaint = mak.map[top] == 0 ? NULL : bottom_complaint(top);
        if (complaint != NULL)
            return complaint;
        used += mak.map[top] != 0;
    }
    return used == mak.media->map_fresh ? NULL : "a bottom index was handed out and is not in the top index";
}

/* The iterator: the block after what begins at this one; both headers and header spaces are steps. */
uint32_t mak_map_next(uint32_t block) {
    const struct mak_header *header = mak_map_find(block);
    uint32_t blocks = 1;
    if (header != NULL)
        blocks = (uint32_t)(mak_bytes_covered(header) / MAK_BLOCK_BYTES);
    else
        mak_is_space(block, &blocks);
    return block + blocks;
}

/* Whether a header space begins at the block. */
bool mak_is_space(uint32_t block, uint32_t *blocks) {
    for (uint32_t i = 0; i < mak.space_count; i++)
        if (mak_block_of(mak.media->header_spaces[i]) == block) {
            *blocks = (uint32_t)(mak.media->header_space_bytes / MAK_BLOCK_BYTES);
            return true;
        }
    return false;
}
