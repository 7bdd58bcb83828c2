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

static struct mak_bin *bin_of_chunk(const struct mak_header *chunk) { return &mak.bins[bin_of(blocks_of(chunk))]; }

void mak_chunks_init(void) {
    for (uint32_t bin = 0; bin < MAK_BINS; bin++) {
        pthread_mutex_init(&mak.bins[bin].lock, NULL);
        mak.bins[bin].first = 0;
    }
    mak.full_bins[0] = mak.full_bins[1] = 0;
    mak.claims = 0;
}

void mak_chunks_destroy(void) {
    for (uint32_t bin = 0; bin < MAK_BINS; bin++)
        pthread_mutex_destroy(&mak.bins[bin].lock);
}

/* Under the global lock. */
void mak_chunk_list(struct mak_header *header) {
    struct mak_bin *bin = bin_of_chunk(header);
    uint32_t block = mak_block_of(header->hb_block), number = (uint32_t)(bin - mak.bins);
    pthread_mutex_lock(&bin->lock);
    mak_assert(mak.links[block].list == MAK_LISTED_NOWHERE && header->hb_flag == MAK_FREE);
    mak.links[block] = (struct mak_link){bin->first, 0, MAK_LISTED_CHUNK};
    if (bin->first != 0)
        mak.links[bin->first].previous = block;
    bin->first = block;
    __atomic_fetch_or(&mak.full_bins[number / 64], (uint64_t)1 << number % 64, __ATOMIC_RELAXED);
    pthread_mutex_unlock(&bin->lock);
}

/* Under the bin's lock. */
static void unlist(struct mak_bin *bin, uint32_t block) {
    uint32_t number = (uint32_t)(bin - mak.bins);
    struct mak_link *link = &mak.links[block];
    mak_assert(link->list == MAK_LISTED_CHUNK);
    if (link->next != 0)
        mak.links[link->next].previous = link->previous;
    if (link->previous != 0)
        mak.links[link->previous].next = link->next;
    else
        bin->first = link->next;
    if (bin->first == 0)
        __atomic_fetch_and(&mak.full_bins[number / 64], ~((uint64_t)1 << number % 64), __ATOMIC_RELEASE);
    *link = (struct mak_link){0, 0, MAK_LISTED_NOWHERE};
}

/* The first bin from this one on that is not empty; MAK_BINS: none. */
static uint32_t next_full_bin(uint32_t bin) {
    for (uint32_t word = bin / 64; word < 2; word++) {
        uint64_t bits = __atomic_load_n(&mak.full_bins[word], __ATOMIC_ACQUIRE);
        if (word == bin / 64)
            bits &= ~(uint64_t)0 << bin % 64;
        if (bits != 0)
            return word * 64 + (uint32_t)__builtin_ctzll(bits);
    }
    return MAK_BINS;
}

/* The smallest chunk of the bin that is large enough; of equal ones that at the lowest address. Under the bin's lock: what is
 * listed does not change. */
static struct mak_header *smallest_in(const struct mak_bin *bin, uint32_t blocks) {
    struct mak_header *best = NULL;
    for (uint32_t block = bin->first; block != 0; block = mak.links[block].next) {
        struct mak_header *chunk = mak_map_find(block);
        if (blocks_of(chunk) < blocks)
            continue;
        if (bin < &mak.bins[MAK_EXACT_BINS])
            return chunk;
        if (best == NULL || chunk->hb_sz < best->hb_sz || (chunk->hb_sz == best->hb_sz && chunk->hb_block < best->hb_block))
            best = chunk;
    }
    return best;
}

static uint32_t claims(void) { return __atomic_load_n(&mak.claims, __ATOMIC_RELAXED); }

/* The smallest chunk of at least so many blocks, §6.2; null: none is listed. */
static struct mak_header *claim(uint32_t blocks) {
    for (uint32_t number = next_full_bin(bin_of(blocks)); number < MAK_BINS; number = next_full_bin(number + 1)) {
        struct mak_bin *bin = &mak.bins[number];
        pthread_mutex_lock(&bin->lock);
        struct mak_header *chunk = smallest_in(bin, blocks);
        if (chunk != NULL) {
            __atomic_fetch_add(&mak.claims, 1, __ATOMIC_RELAXED); /* first: who misses the chunk must see the claim */
            unlist(bin, mak_block_of(chunk->hb_block));
        }
        pthread_mutex_unlock(&bin->lock);
        if (chunk != NULL)
            return chunk;
    }
    return NULL;
}

/* Under the global lock, when what was claimed is in use and its rest listed. */
static void end_claim(void) {
    __atomic_fetch_sub(&mak.claims, 1, __ATOMIC_RELAXED);
    pthread_cond_broadcast(&mak.claim_ended);
}

/* The chunk that this block is the first or the last one of, out of its freelist; null: there is none, or it is claimed. Under
 * the global lock. */
static struct mak_header *take_chunk_at(uint32_t block) {
    struct mak_header *chunk = block < mak.first_block || block >= mak_end_block() ? NULL : mak_map_find(block);
    if (chunk == NULL || chunk->hb_flag != MAK_FREE)
        return NULL;
    struct mak_bin *bin = bin_of_chunk(chunk);
    uint32_t first = mak_block_of(chunk->hb_block);
    pthread_mutex_lock(&bin->lock);
    bool is_listed = mak.links[first].list == MAK_LISTED_CHUNK;
    if (is_listed)
        unlist(bin, first);
    pthread_mutex_unlock(&bin->lock);
    return is_listed ? chunk : NULL;
}

/* How many chunks are listed, and their blocks. */
uint64_t mak_chunks_count(uint64_t *blocks) {
    uint64_t chunks = 0;
    *blocks = 0;
    for (uint32_t bin = 0; bin < MAK_BINS; bin++)
        for (uint32_t block = mak.bins[bin].first; block != 0; block = mak.links[block].next) {
            chunks++;
            *blocks += blocks_of(mak_map_find(block));
        }
    return chunks;
}

/* ---- growth, §6.4 ---- */

/* A header space of its own in the region, whose file has room for it. Zeros, so all its headers are free. */
static void add_header_space(void) {
    uint64_t address = mak.media->rgn_curr, bytes = mak.media->header_space_bytes;
    mak_section_begin();
    mak_section_store_addr(&mak.media->rgn_curr, address + bytes);
    mak_section_store_addr(&mak.media->header_spaces[mak.space_count], address);
    mak_section_store_char(&mak.media->header_space_count, (uint8_t)(mak.space_count + 1));
    mak_section_end();
    mak.space_count++;
}

/* The file as long as it has to be for so many more blocks. */
static bool extend_file(uint32_t blocks) {
    return mak_extend_file((uint64_t)(mak_end_block() + blocks) * MAK_BLOCK_BYTES) == MAK_OK;
}

/* Acquires blocks at the end of the region, whose file has room for them, as a chunk or as more of the last one; claimed. */
static struct mak_header *acquire(struct mak_header *last, uint32_t blocks) {
    uint64_t address = mak.media->rgn_curr, bytes = (uint64_t)blocks * MAK_BLOCK_BYTES;
    struct mak_header *header = last != NULL ? last : mak_header_take();
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
    if (!extend_file(0))
        return NULL;
#endif
    if (last != NULL)
        mak_map_remove(mak_block_of(address) - 1, 1); /* was its last block */
    mak_map_install(header);
    mak.heap_blocks += blocks;
    __atomic_fetch_add(&mak.claims, 1, __ATOMIC_RELAXED);
    return header;
}

static uint32_t smaller(uint32_t a, uint32_t b) { return a < b ? a : b; }

static uint32_t blocks_of_space(void) { return (uint32_t)(mak.media->header_space_bytes / MAK_BLOCK_BYTES); }

/* How many more header spaces so many more blocks of heap need. */
static uint32_t missing_spaces(uint32_t blocks) {
    uint32_t headers = mak_header_count() - mak.heap_blocks;
    return headers >= blocks ? 0 : (blocks - headers + mak.headers_in_space - 1) / mak.headers_in_space;
}

/* The file grows for all of what is acquired, or nothing is: of `wanted` blocks of heap, or of the `needed` ones, for the file
 * system may have room for less. How many; 0: not even that. */
static uint32_t make_room(uint32_t spaces, uint32_t needed, uint32_t wanted) {
    uint32_t before = spaces * blocks_of_space();
#if defined(MUTANT_FILE_GROWS_LATER)
    if (extend_file(before))
        return wanted;
#endif
    return extend_file(before + wanted) ? wanted : needed < wanted && extend_file(before + needed) ? needed : 0;
}

/* Expands the heap so that it has a chunk of this size; null: it cannot. The paper does not say when header spaces are acquired:
 * here a heap block is never acquired without a header for it, so that cutting a chunk cannot fail half-way, and what a region
 * can hold does not depend on the order of requests. The file grows once, before both: between a header space and the heap
 * behind it nothing outside the region tells that the space is there. */
static struct mak_header *grow(uint32_t blocks) {
    struct mak_header *last = take_chunk_at(mak_end_block() - 1);
    uint32_t needed = last == NULL ? blocks : blocks - blocks_of(last);
    if (missing_spaces(needed) > 0 && last != NULL) { /* a header space comes in between */
        mak_chunk_list(last);
        last = NULL;
        needed = blocks;
    }
    uint32_t spaces = missing_spaces(needed), headers = mak_header_count() + spaces * mak.headers_in_space - mak.heap_blocks;
    uint64_t taken = (uint64_t)spaces * blocks_of_space() + mak_end_block(), limit = mak.limit_bytes / MAK_BLOCK_BYTES;
    struct mak_header *chunk = NULL;
    if (spaces <= MAK_HEADER_SPACES - mak.space_count && taken + needed <= limit) {
        uint32_t most = smaller(smaller((uint32_t)(MAK_GROW_BYTES / MAK_BLOCK_BYTES), headers), (uint32_t)(limit - taken));
        uint32_t acquired = make_room(spaces, needed, most > needed ? most : needed);
        for (uint32_t i = 0; acquired > 0 && i < spaces; i++)
            add_header_space();
        chunk = acquired > 0 ? acquire(last, acquired) : NULL;
    }
    if (chunk == NULL && last != NULL)
        mak_chunk_list(last);
    return chunk;
}

/* ---- coalescing, §7.2 (Figure 5) ---- */

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

#undef mak_section_begin
#undef mak_section_end
#undef mak_section_store_word
#undef mak_section_store_addr
#undef mak_section_store_int

/* The same with header map and HFL. All three are in no freelist; the result neither. */
static struct mak_header *join(struct mak_header *previous, struct mak_header *current, struct mak_header *next) {
    uint32_t block = mak_block_of(current->hb_block), blocks = blocks_of(current);
    uint32_t end = block + blocks + (next == NULL ? 0 : blocks_of(next));
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
    return chunk;
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
    struct mak_header *next = take_chunk_at(mak_block_of(chunk->hb_block + chunk->hb_sz));
    if (next != NULL) /* was freed since the chunk was claimed */
        chunk = join(chunk, next, NULL);
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

/* A claimed chunk; null: out of memory. Under the global lock. Before the heap grows it waits for what others have claimed: the
 * rest of that may be enough. */
static struct mak_header *claim_or_grow(uint32_t blocks) {
    for (;;) {
        struct mak_header *chunk = claim(blocks);
        if (chunk != NULL)
            return chunk;
        if (claims() == 0)
            return grow(blocks);
        pthread_cond_wait(&mak.claim_ended, &mak.global);
    }
}

/* Null: out of memory. Takes the global lock. */
struct mak_header *mak_blocks_allocate(uint32_t blocks, uint64_t object_bytes) {
    struct mak_header *chunk = claim(blocks), *header = NULL;
    mak_widen();
    pthread_mutex_lock(&mak.global);
    if (chunk == NULL)
        chunk = claim_or_grow(blocks);
    if (chunk != NULL) {
        header = blocks_of(chunk) == blocks ? take_whole(chunk, object_bytes) : cut(chunk, blocks, object_bytes);
        mak_map_install(header);
        set_all_marks(header);
        end_claim();
    }
    pthread_mutex_unlock(&mak.global);
    return header;
}

/* ---- deallocation, §7.2 (Figure 5), §7.3 ---- */

/* Makes a block in use (of one class, or of a large object) free and coalesces it with its free neighbours; the chunk's header.
 * Takes the global lock. */
struct mak_header *mak_blocks_free(struct mak_header *current) {
    pthread_mutex_lock(&mak.global);
    uint32_t block = mak_block_of(current->hb_block);
    struct mak_header *previous = take_chunk_at(block - 1);
#if !defined(MUTANT_COALESCE_FORGETS_NEXT)
    struct mak_header *next = take_chunk_at(block + blocks_of(current));
#else
    struct mak_header *next = NULL;
#endif
    struct mak_header *chunk = join(previous, current, next);
    mak_chunk_list(chunk);
    pthread_mutex_unlock(&mak.global);
    return chunk;
}

/* ---- recovery, §9.1 ---- */

/* What is freed beside a claimed chunk is a chunk of its own until that is cut; if power fails before, both are here. So are the
 * rest of a chunk that was cut and the chunk behind it, between the two sections of cut, and what the heap grew by behind a
 * claimed chunk. No named stage: only threads lead here, and which of their crash states do is left to chance. All chunks are
 * listed, none is claimed. */
void mak_chunks_join(void) {
    pthread_mutex_lock(&mak.global);
    for (uint32_t block = mak.first_block; block < mak_end_block(); block = mak_map_next(block)) {
        struct mak_header *chunk = take_chunk_at(block), *next;
        if (chunk == NULL)
            continue;
        while ((next = take_chunk_at(mak_map_next(block))) != NULL)
            chunk = join(chunk, next, NULL);
        mak_chunk_list(chunk);
    }
    pthread_mutex_unlock(&mak.global);
}
