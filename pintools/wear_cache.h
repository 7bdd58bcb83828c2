/* SPDX-License-Identifier: Apache-2.0
 *
 * wear_cache.h - which stores reach the medium: a model of one write-back cache in front of it.
 *
 * Set-associative, least recently used goes first, a missed store fetches its line. What it knows of is stores and flushes of
 * watched memory: loads and other memory take no room in it, so it is a cache that the heap has for itself. A line is
 * written back
 *
 *   - by clwb, clflushopt and clflush, if it is dirty; the latter two also take it out,
 *   - when it is dirty and has to make room,
 *   - by non-temporal stores, which go past the cache: one buffer combines those that follow each other on one line, until one
 *     to another line, a store to it that is not non-temporal, a flush of it or a fence; a copy of the line in the cache is written
 *     back before, if dirty, and goes,
 *   - at the end, if it is dirty: power goes off in good order.
 *
 * A clean line is never written back, so a redundant flush wears nothing. `written` must be defined before this file is included.
 */
#ifndef FAULTLINE_WEAR_CACHE_H
#define FAULTLINE_WEAR_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "wear.h"

#define WEAR_NO_LINE UINT64_MAX
#define WEAR_DIRTY 1u
#define WEAR_FILE_SHIFT 44 /* line numbers are below 2^44: addresses have 47 bits, lines 8 bytes or more */

/* entries: ways of set 0, of set 1, ...; most recently used first; a line's key shifted up by one, with its dirty bit; the empty ones
 * are WEAR_NO_LINE. Keys are below 2^63. */
struct wear_cache {
    uint64_t set_count;
    uint32_t ways;
    uint64_t *entries;
    uint64_t combining; /* key of the line in the buffer of non-temporal stores */
};

static void wear_written(uint64_t key, enum fl_wear_reason reason); /* of the file that includes this one */

static inline uint64_t wear_key(uint32_t file, uint64_t number) { return (uint64_t)file << WEAR_FILE_SHIFT | number; }

static inline void wear_cache_init(struct wear_cache *cache, uint64_t set_count, uint32_t ways, uint64_t *entries) {
    cache->set_count = set_count;
    cache->ways = ways;
    cache->entries = entries;
    cache->combining = WEAR_NO_LINE;
    for (uint64_t i = 0; i < set_count * ways; i++)
        entries[i] = WEAR_NO_LINE;
}

static inline uint64_t *wear_set_of(const struct wear_cache *cache, uint64_t key) {
    return cache->entries + key % cache->set_count * cache->ways;
}

/* The way that holds the line, or the last one. */
static inline uint32_t wear_find(const struct wear_cache *cache, const uint64_t *set, uint64_t key, bool *is_found) {
    for (uint32_t way = 0; way < cache->ways; way++) {
        *is_found = set[way] != WEAR_NO_LINE && set[way] >> 1 == key;
        if (*is_found)
            return way;
    }
    return cache->ways - 1;
}

/* Closes the gap at `way` from behind. */
static inline void wear_take_out(const struct wear_cache *cache, uint64_t *set, uint32_t way) {
    for (; way + 1 < cache->ways; way++)
        set[way] = set[way + 1];
    set[way] = WEAR_NO_LINE;
}

static inline void wear_combined(struct wear_cache *cache) {
    if (cache->combining != WEAR_NO_LINE)
        wear_written(cache->combining, FL_WEAR_NT);
    cache->combining = WEAR_NO_LINE;
}

static inline void wear_cache_store(struct wear_cache *cache, uint64_t key) {
    bool is_found;
    uint64_t *set = wear_set_of(cache, key);
    uint32_t way = wear_find(cache, set, key, &is_found);
    if (cache->combining == key)
        wear_combined(cache);
    if (!is_found && set[way] != WEAR_NO_LINE && (set[way] & WEAR_DIRTY))
        wear_written(set[way] >> 1, FL_WEAR_EVICTION);
    for (; way > 0; way--)
        set[way] = set[way - 1];
    set[0] = key << 1 | WEAR_DIRTY;
}

static inline void wear_cache_store_past(struct wear_cache *cache, uint64_t key) {
    bool is_found;
    uint64_t *set = wear_set_of(cache, key);
    if (cache->combining == key)
        return;
    wear_combined(cache);
    uint32_t way = wear_find(cache, set, key, &is_found);
    if (is_found) {
        if (set[way] & WEAR_DIRTY)
            wear_written(key, FL_WEAR_NT);
        wear_take_out(cache, set, way);
    }
    cache->combining = key;
}

static inline void wear_cache_flush(struct wear_cache *cache, uint64_t key, bool stays) {
    bool is_found;
    uint64_t *set = wear_set_of(cache, key);
    if (cache->combining == key)
        wear_combined(cache);
    uint32_t way = wear_find(cache, set, key, &is_found);
    if (!is_found)
        return;
    if (set[way] & WEAR_DIRTY)
        wear_written(key, FL_WEAR_FLUSH);
    set[way] &= ~(uint64_t)WEAR_DIRTY;
    if (!stays)
        wear_take_out(cache, set, way);
}

static inline void wear_cache_fence(struct wear_cache *cache) { wear_combined(cache); }

static inline void wear_cache_end(struct wear_cache *cache) {
    wear_combined(cache);
    for (uint64_t i = 0; i < cache->set_count * cache->ways; i++) {
        if (cache->entries[i] != WEAR_NO_LINE && (cache->entries[i] & WEAR_DIRTY))
            wear_written(cache->entries[i] >> 1, FL_WEAR_END);
        cache->entries[i] = WEAR_NO_LINE;
    }
}

#endif
