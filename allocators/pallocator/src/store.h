/* SPDX-License-Identifier: Apache-2.0
 *
 * store.h - stores to persistent memory: aligned words, in the order written; nothing here flushes but what says so.
 */
#ifndef PALLOCATOR_STORE_H
#define PALLOCATOR_STORE_H

#include "layout.h"
#include "persist.h"

namespace pallocator {

inline void store(uint64_t &word, uint64_t value) { fl_store8(&word, value); }

/* Stored and flushed; the caller fences. */
inline void store_flushed(uint64_t &word, uint64_t value) {
    store(word, value);
    fl_flush(&word, sizeof word);
}

/* The file last: null becomes valid in one store, valid null too. */
inline void store(PPtrBase &pointer, const PPtrBase &value) {
#ifdef MUTANT_FILE_BEFORE_OFFSET
    store(pointer.file, value.file);
    if (!value.is_null())
        store(pointer.offset, value.offset);
#else
    if (!value.is_null())
        store(pointer.offset, value.offset);
    store(pointer.file, value.file);
#endif
}

inline void store_flushed(PPtrBase &pointer, const PPtrBase &value) {
    store(pointer, value);
    fl_flush(&pointer, sizeof pointer);
}

/* BlockEntry of a page, 2 bytes in a word of four. */
inline uint16_t load_entry(const PageHeader &page, uint16_t block) {
    return static_cast<uint16_t>(page.entries[block / 4] >> block % 4 * 16);
}

inline void store_entry_flushed(PageHeader &page, uint16_t block, uint16_t value) {
    uint64_t &word = page.entries[block / 4];
    unsigned shift = block % 4 * 16u;
    store_flushed(word, (word & ~(UINT64_C(0xffff) << shift)) | uint64_t{value} << shift);
}

template <typename T> T as(uint64_t word) { return std::bit_cast<T>(word); }
template <typename T> uint64_t word_of(const T &value) { return std::bit_cast<uint64_t>(value); }

} // namespace pallocator
#endif
