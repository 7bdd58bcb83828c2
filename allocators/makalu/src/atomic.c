/* SPDX-License-Identifier: Apache-2.0
 *
 * atomic.c - failure-atomic sections on core metadata (§8, Figure 6), an undo log.
 *
 * Called under the global lock. For each store: the old value goes to the next log entry, which is persisted; then the store,
 * whose flush the next fence completes. The section ends, all or nothing, when the next log version is persisted: entries of
 * older versions mean nothing, so the log need not be cleared.
 *
 * Orders that §8 leaves to its synchronous FLUSH and that Px86 needs said:
 *   - entry persisted before its store: the store's line may be evicted at any time
 *   - all stores persisted before the new version: else a failure would keep half of a section that cannot be undone any more
 *   - within an entry the version comes last; being one line, no fence is needed (MEMORY_FENCE in Figure 6 is the compiler's)
 */
#include "types.h"

void mak_section_begin(void) {
    mak_assert(mak.log_next == 0);
    mak.log_next = 0;
}

static void log_old_value(void *address, uint64_t value, enum mak_log_type type) {
    mak_assert(mak.log_next < MAK_LOG_ENTRIES);
    struct mak_log_entry *entry = &mak.log[mak.log_next++];
    uint64_t version = mak.media->md_log_version;
#if defined(MUTANT_LOG_VERSION_FIRST)
    fl_store8(&entry->version, version);
#endif
    fl_store8(&entry->addr, (uint64_t)(uintptr_t)address);
    fl_store8(&entry->val, value);
    fl_store8(&entry->type, type);
#if !defined(MUTANT_LOG_VERSION_FIRST)
    fl_store8(&entry->version, version);
#endif
    mak_flush(entry, sizeof *entry);
#if !defined(MUTANT_MISSING_FENCE_LOG)
    mak_fence();
#endif
}

void mak_section_store_word(uint64_t *address, uint64_t value) {
    log_old_value(address, *address, MAK_LOG_WORD);
    fl_store8(address, value);
    mak_flush(address, sizeof *address);
}

void mak_section_store_addr(uint64_t *address, uint64_t value) {
    log_old_value(address, *address, MAK_LOG_ADDR);
    fl_store8(address, value);
#if defined(MUTANT_SPACE_NOT_FLUSHED)
    if ((char *)address >= (char *)mak.media->header_spaces && (char *)address < (char *)(mak.media + 1))
        return;
#endif
    mak_flush(address, sizeof *address);
}

void mak_section_store_int(int32_t *address, int32_t value) {
    log_old_value(address, (uint64_t)(uint32_t)*address, MAK_LOG_INT);
    mak_store4(address, value);
    mak_flush(address, sizeof *address);
}

void mak_section_store_char(uint8_t *address, uint8_t value) {
    log_old_value(address, *address, MAK_LOG_CHAR);
    mak_store1(address, value);
    mak_flush(address, sizeof *address);
}

void mak_section_end(void) {
#if !defined(MUTANT_VERSION_BEFORE_STORES)
    mak_fence();
#endif
    fl_store8(&mak.media->md_log_version, mak.media->md_log_version + 1);
#if !defined(MUTANT_VERSION_NOT_FLUSHED)
    mak_flush(&mak.media->md_log_version, 8);
#endif
    /* A section is done when this returns. On x86 the instruction that unlocks the log would do for that, and mutate calls this fence
     * redundant: what a crash undoes then is reached by nothing yet. Another thread's fence in the next section would not do (R5). */
    mak_fence();
    mak.log_next = 0;
}
