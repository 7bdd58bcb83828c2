/* SPDX-License-Identifier: Apache-2.0
 *
 * chunk.c - chunk freelists (§5.6), allocation and deallocation of blocks (§6.2, §6.3, §7.2, §7.3), growth of the heap (§6.4).
 *
 * Every change of core metadata here is one failure-atomic section (§8). Auxiliary metadata (HFL, header map) is changed
 * before or after the section, never inside: the locked instructions of §8.1 would complete flushes that the section must
 * complete by itself.
 */
#include "types.h"

/* ---- chunk freelists ---- */

static uint32_t blocks_of(const struct mak_header *header) { return (uint32_t)(mak_bytes_covered(header) / MAK_BLOCK_BYTES); }

static uint32_t bin_of(uint32_t blocks) {
    return blocks < MAK_EXACT_BINS ? blocks : MAK_EXACT_BINS + (uint32_t)(31 - __builtin_clz(blocks)) - 6;
}

void mak_chunks_clear(void) {
    for (uint32_t bin = 0; bin < MAK_BINS; bin++)
        mak.bins[bin] = 0;
    mak.full_bins[0] = mak.full_bins[1] = 0;
}

void mak_chunk_list(struct mak_header *header) {
    uint32_t block = mak_block_of(header->hb_block), bin = bin_of(blocks_of(header)), next = mak.bins[bin];
    mak_assert(mak.links[block].list == MAK_LISTED_NOWHERE && header->hb_flag == MAK_FREE);
    mak.links[block] = (struct mak_link){next, 0, MAK_LISTED_CHUNK};
    if (next != 0)
        mak.links[next].previous = block;
    mak.bins[bin] = block;
    mak.full_bins[bin / 64] |= (uint64_t)1 << bin % 64;
}

static void unlist(const struct mak_header *header) {
    uint32_t block = mak_block_of(header->hb_block), bin = bin_of(blocks_of(header));
    struct mak_link *link = &mak.links[block];
    mak_assert(link->list == MAK_LISTED_CHUNK);
    if (link->next != 0)
        mak.links[link->next].previous = link->previous;
    if (link->previous != 0)
        mak.links[link->previous].next = link->next;
    else
        mak.bins[bin] = link->next;
    if (mak.bins[bin] == 0)
        mak.full_bins[bin / 64] &= ~((uint64_t)1 << bin % 64);
    *link = (struct mak_link){0, 0, MAK_LISTED_NOWHERE};
}

/* The first bin from this one on that is not empty; MAK_BINS: none. */
static uint32_t next_full_bin(uint32_t bin) {
    for (uint32_t word = bin / 64; word < 2; word++) {
        uint64_t bits = mak.full_bins[word];
        if (word == bin / 64)
            bits &= ~(uint64_t)0 << bin % 64;
        if (bits != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return MAK_BINS;
}

/* The smallest chunk of the bin that is large enough; of equal ones that at the lowest address. */
static struct mak_header *smallest_in(uint32_t bin, uint32_t blocks) {
    struct mak_header *best = NULL;
    if (bin < MAK_EXACT_BINS)
        return mak_map_find(mak.bins[bin]);
    for (uint32_t block = mak.bins[bin]; block != 0; block = mak.links[block].next) {
        struct mak_header *chunk = mak_map_find(block);
        if (blocks_of(chunk) < blocks)
            continue;
        if (best == NULL || chunk->hb_sz < best->hb_sz || (chunk->hb_sz == best->hb_sz && chunk->hb_block < best->hb_block))
            best = chunk;
    }
    return best;
}

static struct mak_header *smallest_chunk(uint32_t blocks) {
    for (uint32_t bin = next_full_bin(bin_of(blocks)); bin < MAK_BINS; bin = next_full_bin(bin + 1)) {
        struct mak_header *chunk = smallest_in(bin, blocks);
        if (chunk != NULL)
            return chunk;
    }
    return NULL;
}

/* How many chunks are listed, and their blocks. */
uint64_t mak_chunks_count(uint64_t *blocks) {
    uint64_t chunks = 0;
    *blocks = 0;
    for (uint32_t bin = 0; bin < MAK_BINS; bin++)
        for (uint32_t block = mak.bins[bin]; block != 0; block = mak.links[block].next) {
            chunks++;
            *blocks += blocks_of(mak_map_find(block));
        }
    return chunks;
}

/* ---- growth, §6.4 ---- */

/* A header space of its own in the region. Zeros, so all its headers are free. */
static bool add_header_space(void) {
    uint64_t address = mak.media->rgn_curr, bytes = mak.media->header_space_bytes;
    if (mak.space_count == MAK_HEADER_SPACES || mak_extend_file(address + bytes - (uint64_t)(uintptr_t)mak.base) != MAK_OK)
        return false;
    mak_section_begin();
    mak_section_store_addr(&mak.media->rgn_curr, address + bytes);
    mak_section_store_addr(&mak.media->header_spaces[mak.space_count], address);
    mak_section_end();
    mak.space_count++;
    return true;
}

/* The chunk that ends at rgn_curr; null: something else does. */
static struct mak_header *last_chunk(void) {
    struct mak_header *header = mak_map_find(mak_end_block() - 1);
    return header != NULL && header->hb_flag == MAK_FREE ? header : NULL;
}

/* Acquires blocks at the end of the region, as a chunk or as more of the last one. */
static struct mak_header *acquire(uint32_t blocks) {
    uint64_t address = mak.media->rgn_curr, bytes = (uint64_t)blocks * MAK_BLOCK_BYTES;
    struct mak_header *last = last_chunk();
#if !defined(MUTANT_FILE_GROWS_LATER)
    if (mak_extend_file(address + bytes - (uint64_t)(uintptr_t)mak.base) != MAK_OK)
        return NULL;
#endif
    struct mak_header *header = last != NULL ? last : mak_header_take();
    if (last != NULL)
        unlist(last);
    mak_section_begin();
    mak_section_store_addr(&mak.media->rgn_curr, address + bytes);
    if (last != NULL) {
        mak_section_store_word(&last->hb_sz, last->hb_sz + bytes);
    } else {
        mak_section_store_addr(&header->hb_block, address);
        mak_section_store_word(&header->hb_sz, bytes);
        mak_section_store_int(&header->hb_flag, MAK_FREE);
    }
    mak_section_end();
#if defined(MUTANT_FILE_GROWS_LATER)
    if (mak_extend_file(address + bytes - (uint64_t)(uintptr_t)mak.base) != MAK_OK)
        return NULL;
#endif
    if (last != NULL)
        mak_map_remove(mak_block_of(address) - 1, 1); /* was its last block */
    mak_map_install(header);
    mak.heap_blocks += blocks;
    mak_chunk_list(header);
    return header;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

/* Header spaces for this many more blocks of heap, if they and the blocks have room below the limit. */
static bool add_headers_for(uint32_t blocks) {
    uint32_t space_blocks = (uint32_t)(mak.media->header_space_bytes / MAK_BLOCK_BYTES);
    uint32_t missing = mak.heap_blocks + blocks - mak_header_count();
    uint32_t spaces = (missing + mak.headers_in_space - 1) / mak.headers_in_space;
    uint32_t available = (uint32_t)(mak.limit_bytes / MAK_BLOCK_BYTES) - mak_end_block();
    if ((uint64_t)spaces * space_blocks + blocks > available)
        return false;
    for (uint32_t i = 0; i < spaces; i++)
        if (!add_header_space())
            return false;
    return true;
}

/* Expands the heap so that it has a chunk of this size; null: it cannot. The paper does not say when header spaces are acquired:
 * here a heap block is never acquired without a header for it, so that cutting a chunk cannot fail half-way, and what a region
 * can hold does not depend on the order of requests. */
static struct mak_header *grow(uint32_t blocks) {
    struct mak_header *last = last_chunk();
    uint32_t needed = last == NULL ? blocks : blocks - blocks_of(last);
    if (needed > mak_header_count() - mak.heap_blocks) {
        if (!add_headers_for(blocks))
            return NULL;
        needed = blocks; /* the header space separates it from the last chunk */
    }
    uint32_t available = (uint32_t)(mak.limit_bytes / MAK_BLOCK_BYTES) - mak_end_block();
    if (needed > available)
        return NULL;
    uint32_t wanted = (uint32_t)(MAK_GROW_BYTES / MAK_BLOCK_BYTES);
    wanted = smaller(smaller(wanted, mak_header_count() - mak.heap_blocks), available);
    struct mak_header *chunk = acquire(wanted > needed ? wanted : needed);
    return chunk != NULL || wanted <= needed ? chunk : acquire(needed); /* the file system may have room for less */
}

/* ---- allocation, §6.2 ---- */

/* The first blocks of the chunk, as a block in use with a header of its own. */
static struct mak_header *cut(struct mak_header *chunk, uint32_t blocks, uint64_t object_bytes) {
    uint64_t address = chunk->hb_block, bytes = (uint64_t)blocks * MAK_BLOCK_BYTES;
    struct mak_header *header = mak_header_take();
    mak_section_begin();
    mak_section_store_addr(&chunk->hb_block, address + bytes);
    mak_section_store_word(&chunk->hb_sz, chunk->hb_sz - bytes);
    mak_section_store_addr(&header->hb_block, address);
    mak_section_store_word(&header->hb_sz, object_bytes);
#if !defined(MUTANT_FLAG_NOT_LOGGED)
    mak_section_store_int(&header->hb_flag, MAK_IN_USE);
#endif
    mak_section_end();
#if defined(MUTANT_FLAG_NOT_LOGGED)
    mak_store4(&header->hb_flag, MAK_IN_USE);
    mak_persist(&header->hb_flag, 4);
#endif
    mak_map_install(chunk);
    mak_chunk_list(chunk);
    return header;
}

static struct mak_header *take_whole(struct mak_header *chunk, uint64_t object_bytes) {
    mak_section_begin();
    mak_section_store_word(&chunk->hb_sz, object_bytes);
    mak_section_store_int(&chunk->hb_flag, MAK_IN_USE);
    mak_section_end();
    return chunk;
}

/* All objects of a new block are the caller's: their mark bits are set (§6.1). */
static void set_all_marks(struct mak_header *header) {
    uint32_t count = mak_object_count(header->hb_sz);
    for (uint32_t word = 0; word < MAK_MARK_WORDS; word++) {
        uint32_t bits = count > word * 64 ? smaller(count - word * 64, 64) : 0;
        fl_store8(&header->hb_mark_bits[word], bits == 64 ? ~(uint64_t)0 : ((uint64_t)1 << bits) - 1);
    }
    fl_store8(&header->hb_n_mark_bits, count);
    mak_visible_later(&header->hb_n_mark_bits);
}

/* Null: out of memory. Takes the global lock. */
struct mak_header *mak_blocks_allocate(uint32_t blocks, uint64_t object_bytes) {
    pthread_mutex_lock(&mak.global);
    struct mak_header *chunk = smallest_chunk(blocks), *header = NULL;
    if (chunk == NULL)
        chunk = grow(blocks);
    if (chunk != NULL) {
        unlist(chunk);
        header = blocks_of(chunk) == blocks ? take_whole(chunk, object_bytes) : cut(chunk, blocks, object_bytes);
        mak_map_install(header);
        set_all_marks(header);
    }
    pthread_mutex_unlock(&mak.global);
    return header;
}

/* ---- deallocation, §7.2 (Figure 5), §7.3 ---- */

static struct mak_header *free_neighbour(uint32_t block) {
    if (block < mak.first_block || block >= mak_end_block())
        return NULL;
    struct mak_header *header = mak_map_find(block);
    return header != NULL && header->hb_flag == MAK_FREE ? header : NULL;
}

#if defined(MUTANT_RELEASE_WITHOUT_LOG)
#define mak_section_begin() ((void)0)
#define mak_section_end() mak_fence()
#define mak_section_store_word(address, value) (fl_store8(address, value), mak_flush(address, 8))
#define mak_section_store_addr(address, value) (fl_store8(address, value), mak_flush(address, 8))
#define mak_section_store_int(address, value) (mak_store4(address, value), mak_flush(address, 4))
#endif

/* In a section. */
static void retire(struct mak_header *header) {
    mak_section_store_word(&header->hb_sz, 0);
    mak_section_store_addr(&header->hb_block, 0);
}

/* The core metadata of a deallocation; the header of the chunk that the block is now part of. Figure 5 has two slips that are
 * mended here: a block that coalesces with the following chunk only must become FREE too, and it starts from its own size in
 * blocks, not from its objects' size. */
static struct mak_header *coalesce(struct mak_header *previous, struct mak_header *current, struct mak_header *next) {
    uint64_t bytes = mak_bytes_covered(current);
    struct mak_header *chunk = previous != NULL ? previous : current;
    mak_section_begin();
    if (previous != NULL) {
        mak_section_store_word(&previous->hb_sz, previous->hb_sz + bytes);
        retire(current);
    } else {
        mak_section_store_word(&current->hb_sz, bytes);
        mak_section_store_int(&current->hb_flag, MAK_FREE);
    }
    if (next != NULL) {
        mak_section_store_word(&chunk->hb_sz, chunk->hb_sz + next->hb_sz);
        retire(next);
    }
    mak_section_end();
    return chunk;
}

/* Makes a block in use (of one class, or of a large object) free and coalesces it with its free neighbours; the chunk's header.
 * Takes the global lock. */
struct mak_header *mak_blocks_free(struct mak_header *current) {
    pthread_mutex_lock(&mak.global);
    uint32_t block = mak_block_of(current->hb_block), blocks = blocks_of(current);
    struct mak_header *previous = free_neighbour(block - 1), *next = free_neighbour(block + blocks);
#if defined(MUTANT_COALESCE_FORGETS_NEXT)
    next = NULL;
#endif
    uint32_t end = block + blocks + (next == NULL ? 0 : blocks_of(next));
    if (previous != NULL)
        unlist(previous);
    if (next != NULL)
        unlist(next);
    struct mak_header *chunk = coalesce(previous, current, next);
    mak_map_remove(block, blocks);
    if (previous != NULL) {
        mak_map_remove(block - 1, 1); /* was its last block */
        mak_header_give_back(current);
    }
    if (next != NULL) {
        mak_map_remove(block + blocks, 1);
        mak_map_remove(end - 1, 1);
        mak_header_give_back(next);
    }
    mak_map_install(chunk);
    mak_chunk_list(chunk);
    pthread_mutex_unlock(&mak.global);
    return chunk;
}
