/* SPDX-License-Identifier: Apache-2.0
 *
 * header.c - header spaces and the header freelist (§5.1), the header map (§5.2). Under the global lock, except mak_map_find.
 *
 * Headers are numbered over all header spaces. Free ones form a list through hb_next; headers that were never in use are
 * not listed but counted by hfl_fresh, so that neither a new header space nor recovery touches them. All of this and
 * the map are auxiliary: eventually visible, rebuilt from the core lines after a failure.
 *
 * The map is flat, one word for each block up to the limit (bdwgc's, which the paper adopts, has two levels because its
 * address space has no limit). A word is the header's address, or 0: header spaces and the inside of free chunks.
 */
#include "types.h"

/* ---- headers ---- */

uint32_t mak_header_count(void) { return mak.space_count * mak.headers_in_space; }

struct mak_header *mak_header_at(uint32_t number) {
    uint64_t space = mak.media->header_spaces[number / mak.headers_in_space];
    return (struct mak_header *)(uintptr_t)space + number % mak.headers_in_space;
}

static void store_later(uint64_t *address, uint64_t value) {
    fl_store8(address, value);
    mak_visible_later(address);
}

/* Growth keeps a header for every block of the heap (chunk.c), so there always is one. */
struct mak_header *mak_header_take(void) {
    struct mak_base *base = mak.media;
    if (base->hfl_first != 0) {
        struct mak_header *header = (struct mak_header *)(uintptr_t)base->hfl_first;
        store_later(&base->hfl_first, header->hb_next);
        return header;
    }
    mak_assert(base->hfl_fresh < mak_header_count());
    struct mak_header *header = mak_header_at((uint32_t)base->hfl_fresh);
    store_later(&base->hfl_fresh, base->hfl_fresh + 1);
    return header;
}

void mak_header_give_back(struct mak_header *header) {
    store_later(&header->hb_next, mak.media->hfl_first);
    store_later(&mak.media->hfl_first, (uint64_t)(uintptr_t)header);
}

/* ---- header map ---- */

/* The header that accounts for the block; null: none. Of a block that holds an object of the caller, the answer is stable. */
struct mak_header *mak_map_find(uint32_t block) {
    return (struct mak_header *)(uintptr_t)__atomic_load_n(&mak.map[block], __ATOMIC_RELAXED);
}

static void set_range(uint32_t block, uint32_t blocks, uint64_t value) {
    for (uint32_t i = block; i < block + blocks; i++) {
        if (mak.map[i] == value)
            continue;
        fl_store8(&mak.map[i], value);
        if (i + 1 == block + blocks || (uintptr_t)&mak.map[i + 1] % MAK_LINE_BYTES == 0 || mak.map[i + 1] == value)
            mak_visible_later(&mak.map[i]);
    }
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
