/* SPDX-License-Identifier: Apache-2.0
 *
 * recover.c - the offline phase (§9, §11.4), in three steps:
 *
 *   1. log replay         core metadata is consistent again
 *   2. reconstruction     header map, HFL and cleared mark bits, from the core lines of all headers; neighbouring chunks join
 *   3. collection         mark from the roots, free empty blocks; mark bits become visible
 *
 * The region's state says IN_USE all the time, and CLEAN only when close (or the way online) has made everything visible. So a
 * failure anywhere in here starts at step 1 again, which finds the same log entries until the new version is
 * persisted, and none after that, or those of a section of step 2 or 3. All else that these two wrote before, they do not read.
 *
 * An auxiliary word is stored here before it is read, always: what the failure left in it, flushed or not, decides nothing, not
 * even whether the same value is stored once more.
 */
#include "types.h"

#include "stage.h"

/* ---- step 1, §8 ---- */

/* What an entry can restore: all that sections change. */
enum target { NOTHING, RGN_CURR, SPACE_COUNT, SPACE, HB_BLOCK, HB_SZ, HB_FLAG };

static enum target in_header(uint64_t field, uint64_t type) {
    if (field == offsetof(struct mak_header, hb_block) && type == MAK_LOG_ADDR)
        return HB_BLOCK;
    if (field == offsetof(struct mak_header, hb_sz) && type == MAK_LOG_WORD)
        return HB_SZ;
    return field == offsetof(struct mak_header, hb_flag) && type == MAK_LOG_INT ? HB_FLAG : NOTHING;
}

static enum target target_of(const struct mak_log_entry *entry) {
    const struct mak_base *base = mak.media;
    uint64_t offset = entry->addr - (uint64_t)(uintptr_t)mak.base;
    if (offset == offsetof(struct mak_base, rgn_curr) && entry->type == MAK_LOG_ADDR)
        return RGN_CURR;
    if (offset == offsetof(struct mak_base, header_space_count) && entry->type == MAK_LOG_CHAR)
        return SPACE_COUNT;
    if (offset >= offsetof(struct mak_base, header_spaces) && offset < offsetof(struct mak_base, unused_5) && offset % 8 == 0)
        return entry->type == MAK_LOG_ADDR ? SPACE : NOTHING;
    for (uint32_t i = 0; i < base->header_space_count; i++) {
        uint64_t in_space = entry->addr - base->header_spaces[i];
        if (in_space < base->header_space_bytes)
            return in_header(in_space % sizeof(struct mak_header), entry->type);
    }
    return NOTHING;
}

static void name_stage(enum target target) {
    switch (target) {
    case RGN_CURR: FL_STAGE("log: rgn_curr is taken back"); break;
    case SPACE_COUNT: FL_STAGE("log: the count of header spaces is taken back"); break;
    case SPACE: FL_STAGE("log: a header space is taken back"); break;
    case HB_BLOCK: FL_STAGE("log: an hb_block is taken back"); break;
    case HB_SZ: FL_STAGE("log: an hb_sz is taken back"); break;
    case HB_FLAG: FL_STAGE("log: an hb_flag is taken back"); break;
    case NOTHING: break;
    }
}

static void undo(const struct mak_log_entry *entry) {
    void *address = (void *)(uintptr_t)entry->addr;
    switch (entry->type) {
    case MAK_LOG_CHAR: mak_store1(address, (uint8_t)entry->val); break;
    case MAK_LOG_INT: mak_store4(address, (int32_t)entry->val); break;
    default: fl_store8(address, entry->val); break;
    }
#if !defined(MUTANT_REPLAY_NOT_FLUSHED)
    mak_flush(address, 1); /* it lies in one line */
#endif
}

/* Each entry is persisted before the next one is begun, so those of the unfinished section are the first ones. */
static uint32_t unfinished_entries(void) {
    uint32_t count = 0;
    while (count < MAK_LOG_ENTRIES && mak.log[count].version == mak.media->md_log_version)
        count++;
    return count;
}

/* Of its fence mutate tells no loss: entries are written and fenced before their section ends, and until then to undo this one again
 * does no harm. */
static void next_version(void) {
    fl_store8(&mak.media->md_log_version, mak.media->md_log_version + 1);
    mak_persist(&mak.media->md_log_version, 8);
}

int mak_replay_log(void) {
    uint32_t count = unfinished_entries();
    if (count == 0) {
        FL_STAGE("log: no unfinished section");
        return MAK_OK;
    }
    for (uint32_t i = 0; i < count; i++)
        if (target_of(&mak.log[i]) == NOTHING)
            return mak_fail(MAK_CORRUPT, "%s: log entry %u restores %#llx as type %llu, where no such core metadata is", mak.path,
                            i, (unsigned long long)mak.log[i].addr, (unsigned long long)mak.log[i].type);
#if defined(MUTANT_REPLAY_VERSION_FIRST)
    next_version();
#endif
#if defined(MUTANT_REPLAY_FORWARD)
    for (uint32_t i = 0; i < count; i++) {
#elif defined(MUTANT_REPLAY_FORGETS_LAST)
    for (uint32_t i = count - 1; i-- > 0;) {
#else
    for (uint32_t i = count; i-- > 0;) {
#endif
        name_stage(target_of(&mak.log[i]));
        undo(&mak.log[i]);
    }
    mak_fence(); /* before the version, or the log would be forgotten with its effects half there */
#if defined(MUTANT_REPLAY_KEEPS_VERSION)
    (void)next_version;
#elif !defined(MUTANT_REPLAY_VERSION_FIRST)
    next_version();
#endif
    return MAK_OK;
}

/* ---- step 2, §9.1 ---- */

static int count_spaces(void) {
    uint64_t bytes = mak.media->header_space_bytes, start = (uint64_t)(uintptr_t)mak.base;
    uint64_t used = mak.media->rgn_curr - start; /* the log may have set it: what it was when the region was opened says nothing */
    if (used <= mak_first_space_offset(mak.limit_bytes) || used > mak.limit_bytes || used % MAK_BLOCK_BYTES != 0)
        return mak_fail(MAK_CORRUPT, "%s: after the log was taken back the heap ends at %#llx, which is not in the region",
                        mak.path, (unsigned long long)mak.media->rgn_curr);
    for (uint32_t i = 0; i < mak.media->header_space_count; i++) {
        uint64_t space = mak.media->header_spaces[i];
        if (space % MAK_BLOCK_BYTES != 0 || space < start + mak_first_space_offset(mak.limit_bytes) ||
            space + bytes > mak.media->rgn_curr)
            return mak_fail(MAK_CORRUPT, "%s: header space %u is at %#llx, which is not in the region", mak.path, i,
                            (unsigned long long)space);
    }
    mak.space_count = mak.media->header_space_count;
    mak.heap_blocks = mak_end_block() - mak.first_block - (mak.space_count - 1) * (uint32_t)(bytes / MAK_BLOCK_BYTES);
    return MAK_OK;
}

/* Null: sound in itself. */
const char *mak_header_complaint(const struct mak_header *header) {
    uint64_t end = mak.media->rgn_curr;
    if (header->hb_flag != MAK_FREE && header->hb_flag != MAK_IN_USE)
        return "its flag is unknown";
    if (header->hb_block % MAK_BLOCK_BYTES != 0 || header->hb_block < mak_address_of(mak.first_block) || header->hb_block >= end)
        return "its block is not in the heap";
    if (header->hb_sz == 0 ||
        header->hb_sz % (mak_bytes_covered(header) == header->hb_sz ? MAK_BLOCK_BYTES : MAK_GRANULE_BYTES) != 0)
        return "its size is not possible";
    return mak_bytes_covered(header) > end - header->hb_block ? "its block runs over the end of the heap" : NULL;
}

/* A chunk has no marks: they are set when it is in use. */
static void clear_marks(struct mak_header *header) {
    if (header->hb_flag == MAK_FREE)
        return;
    for (uint32_t word = 0; word < MAK_MARK_WORDS; word++)
        fl_store8(&header->hb_mark_bits[word], 0);
    fl_store8(&header->hb_n_mark_bits, 0);
    mak_visible_later(&header->hb_n_mark_bits);
}

/* Blocks of two headers must not overlap: their words in the map are free before. */
static int install(struct mak_header *header, uint32_t number) {
    const char *complaint = mak_header_complaint(header);
    uint32_t block = complaint != NULL ? 0 : mak_block_of(header->hb_block);
    uint32_t blocks = complaint != NULL ? 0 : (uint32_t)(mak_bytes_covered(header) / MAK_BLOCK_BYTES);
    for (uint32_t i = block; i < block + blocks; i++)
        if (mak_map_find(i) != NULL)
            complaint = "another header accounts for its block";
    if (complaint != NULL)
        return mak_fail(MAK_CORRUPT, "%s: header %u: %s", mak.path, number, complaint);
    mak_map_install(header);
#if !defined(MUTANT_MARKS_KEPT)
    clear_marks(header);
#else
    (void)clear_marks;
#endif
    return MAK_OK;
}

/* Lists the free headers below the fresh ones, the lowest first. */
static void rebuild_header_freelist(uint32_t fresh) {
    uint64_t first = 0;
    for (uint32_t number = fresh; number-- > 0;) {
        struct mak_header *header = mak_header_at(number);
#if defined(MUTANT_HFL_TAKES_USED)
        if (header->hb_flag == MAK_IN_USE && header->hb_block != 0)
            continue;
#else
        if (header->hb_block != 0)
            continue;
#endif
        FL_STAGE("headers: a free one goes to the freelist");
        mak_store_later(&header->hb_next, first);
        first = (uint64_t)(uintptr_t)header;
    }
    mak_store_later(&mak.media->hfl_first, first);
    mak_store_later(&mak.media->hfl_fresh, fresh);
}

int mak_rebuild(void) {
    int status = count_spaces();
    if (status != MAK_OK)
        return status;
#if !defined(MUTANT_MAP_TRUSTED)
    mak_map_purge();
    uint32_t fresh = 0;
    for (uint32_t number = 0; number < mak_header_count(); number++) {
        struct mak_header *header = mak_header_at(number);
        if (header->hb_block == 0)
            continue;
        fresh = number + 1;
        status = install(header, number);
        if (status != MAK_OK)
            return status;
    }
    rebuild_header_freelist(fresh);
#else
    (void)rebuild_header_freelist, (void)install;
    for (uint32_t number = 0; number < mak_header_count(); number++)
        if (mak_header_at(number)->hb_block != 0)
            clear_marks(mak_header_at(number));
#endif
    status = mak_build_lists(false);
    if (status == MAK_OK)
        mak_chunks_join();
    return status;
}

/* ---- volatile lists, §5.6, §5.8 ---- */

/* Walks the heap by the map: chunks, blocks in use and header spaces lie end to end. */
int mak_build_lists(bool with_reclaim_lists) {
    uint32_t end = mak_end_block(), spaces = 1, blocks;
    int status = mak.space_count == 0 ? count_spaces() : MAK_OK;
    const char *map_complaint = status != MAK_OK ? NULL : mak_map_complaint();
    if (map_complaint != NULL)
        status = mak_fail(MAK_CORRUPT, "%s: the header map: %s", mak.path, map_complaint);
    if (status != MAK_OK)
        return status;
    for (uint32_t block = mak.first_block; block < end; block = mak_map_next(block)) {
        struct mak_header *header = mak_map_find(block);
        if (header == NULL && mak_is_space(block, &blocks)) {
            spaces++;
            continue;
        }
        const char *complaint = header == NULL                            ? "no header accounts for it"
                                : mak_block_of(header->hb_block) != block ? "the header map leads to another block's header"
                                                                          : mak_header_complaint(header);
        if (complaint != NULL)
            return mak_fail(MAK_CORRUPT, "%s: the heap block at %#llx: %s", mak.path, (unsigned long long)block * MAK_BLOCK_BYTES,
                            complaint);
        if (header->hb_flag == MAK_FREE)
            mak_chunk_list(header);
        else if (with_reclaim_lists && header->hb_sz <= MAK_MEDIUM_MAX && header->hb_n_mark_bits < mak_object_count(header->hb_sz))
            mak_reclaim_list(header);
    }
    return spaces == mak.space_count
               ? MAK_OK
               : mak_fail(MAK_CORRUPT, "%s: the heap holds %u header spaces, the list %u", mak.path, spaces, mak.space_count);
}

/* ---- step 3, §9.2 ---- */

/* Counts the marks of a block; true if there are none. */
static bool is_empty(struct mak_header *header) {
    uint64_t marks = 0;
    for (uint32_t word = 0; word < MAK_MARK_WORDS; word++)
        marks += (uint64_t)__builtin_popcountll(header->hb_mark_bits[word]);
    if (marks != header->hb_n_mark_bits)
        fl_store8(&header->hb_n_mark_bits, marks);
    mak_visible_later(&header->hb_n_mark_bits);
    return marks == 0;
}

static uint32_t free_empty_block(struct mak_header *header) {
    uint32_t block = mak_block_of(header->hb_block), next = mak_map_next(block);
    struct mak_header *before = mak_map_find(block - 1), *after = next < mak_end_block() ? mak_map_find(next) : NULL;
    bool joins_before = block > mak.first_block && before != NULL && before->hb_flag == MAK_FREE;
    bool joins_after = after != NULL && after->hb_flag == MAK_FREE;
    if (joins_before && joins_after)
        FL_STAGE("collection: an empty block joins two chunks");
    else if (joins_before)
        FL_STAGE("collection: an empty block joins the chunk before it");
    else if (joins_after)
        FL_STAGE("collection: an empty block joins the chunk after it");
    else
        FL_STAGE("collection: an empty block becomes a chunk");
    struct mak_header *chunk = mak_blocks_free(header);
    return mak_block_of(chunk->hb_block + chunk->hb_sz);
}

static void free_empty_blocks(void) {
    for (uint32_t block = mak.first_block; block < mak_end_block();) {
        struct mak_header *header = mak_map_find(block);
        bool is_garbage = header != NULL && header->hb_flag == MAK_IN_USE && is_empty(header);
        block = is_garbage ? free_empty_block(header) : mak_map_next(block);
    }
}

static void clear_all_marks(void) {
    for (uint32_t block = mak.first_block; block < mak_end_block(); block = mak_map_next(block))
        if (mak_map_find(block) != NULL)
            clear_marks(mak_map_find(block));
}

int MAK_collect(void) {
    if (mak.phase != MAK_PHASE_OFFLINE && mak.phase != MAK_PHASE_COLLECTED)
        return mak_fail(MAK_INVALID, "garbage is collected offline only: call MAK_start_off first");
    if (mak.phase == MAK_PHASE_COLLECTED)
        clear_all_marks();
    mak.phase = MAK_PHASE_OFFLINE;
#if defined(MUTANT_CLEAN_BEFORE_COLLECTED)
    fl_store8(&mak.media->state, MAK_STATE_CLEAN);
    mak_persist(&mak.media->state, 8);
#endif
    int status = mak_mark();
    if (status != MAK_OK)
        return status;
    free_empty_blocks();
#if !defined(MUTANT_COLLECTION_NOT_FLUSHED)
    mak_visible_now();
#else
    mak_visible_forget();
#endif
    mak.phase = MAK_PHASE_COLLECTED;
    return MAK_OK;
}
