/* SPDX-License-Identifier: Apache-2.0
 *
 * bits.h - bitmaps: one bit a line, 64 a word.
 */
#ifndef NVMALLOC_BITS_H
#define NVMALLOC_BITS_H

#include <stdbool.h>
#include <stdint.h>

static inline bool bits_test(const uint64_t *bits, uint32_t at) { return (bits[at / 64] >> (at % 64) & 1) != 0; }
static inline void bits_set(uint64_t *bits, uint32_t at) { bits[at / 64] |= (uint64_t)1 << at % 64; }
static inline void bits_clear(uint64_t *bits, uint32_t at) { bits[at / 64] &= ~((uint64_t)1 << at % 64); }

/* The bits of the word that are in [from, end); from lies in the word. */
static inline uint64_t bits_mask(uint32_t from, uint32_t end) {
    uint32_t first = from % 64, count = end - from < 64 - first ? end - from : 64 - first;
    return (count == 64 ? ~(uint64_t)0 : ((uint64_t)1 << count) - 1) << first;
}

static inline void bits_set_range(uint64_t *bits, uint32_t from, uint32_t end) {
    for (; from < end; from = (from / 64 + 1) * 64)
        bits[from / 64] |= bits_mask(from, end);
}

static inline void bits_clear_range(uint64_t *bits, uint32_t from, uint32_t end) {
    for (; from < end; from = (from / 64 + 1) * 64)
        bits[from / 64] &= ~bits_mask(from, end);
}

/* The first set bit in [from, end), or end. */
static inline uint32_t bits_next_set(const uint64_t *bits, uint32_t from, uint32_t end) {
    for (; from < end; from = (from / 64 + 1) * 64) {
        uint64_t found = bits[from / 64] & bits_mask(from, end);
        if (found != 0)
            return from / 64 * 64 + (uint32_t)__builtin_ctzll(found);
    }
    return end;
}

static inline uint32_t bits_next_clear(const uint64_t *bits, uint32_t from, uint32_t end) {
    for (; from < end; from = (from / 64 + 1) * 64) {
        uint64_t found = ~bits[from / 64] & bits_mask(from, end);
        if (found != 0)
            return from / 64 * 64 + (uint32_t)__builtin_ctzll(found);
    }
    return end;
}

/* The last set bit at or below from. There must be one. */
static inline uint32_t bits_last_set(const uint64_t *bits, uint32_t from) {
    uint64_t word = bits[from / 64] & (~(uint64_t)0 >> (63 - from % 64));
    uint32_t at = from / 64;
    while (word == 0)
        word = bits[--at];
    return at * 64 + 63 - (uint32_t)__builtin_clzll(word);
}

#endif
