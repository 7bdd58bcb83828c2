/* SPDX-License-Identifier: Apache-2.0
 *
 * pbit: 64 heap blocks of one size, a word of bits, and slots. An allocation sets the block's bit, then the slot: its tag and its offset
 * lie in one line, and the offset comes last. The adapter drives it under faultline, client.c under pmemcheck.
 *
 * MUTANT_MISSING_FENCE: the slot may persist before the bit. MUTANT_MISSING_FLUSH: the bit is never flushed. MUTANT_EARLY_SLOT: the
 * slot is stored before the bit and flushed after it; only an eviction brings it to PM first. MUTANT_TORN: tag and offset are one store
 * of 16 bytes, taken for atomic.
 */
#ifndef PBIT_H
#define PBIT_H

#include "persist.h"
#include <emmintrin.h>
#include <stdint.h>
#include <string.h>

#define PBIT_MAGIC 0x5042495431ull
#define PBIT_BLOCKS 64u
#define PBIT_BLOCK_BYTES 256u
#define PBIT_FULL (~0ull)

struct pbit_slot {
    uint64_t offset, tag;
} __attribute__((aligned(16)));

struct pbit_heap {
    uint64_t magic, slot_count, blocks_at, reserved[5];
    uint64_t bits, reserved_too[7];
    struct pbit_slot slots[];
};

/* Writes the object's bytes and persists them. */
typedef void (*pbit_fill)(void *context, void *object, uint64_t from, uint64_t bytes);

static inline uint64_t pbit_tag(uint64_t offset, uint64_t bytes) { return (offset * 0x9e3779b97f4a7c15ull & ~0xffffull) | bytes; }
static inline uint64_t pbit_blocks_at(uint64_t slots) {
    return (sizeof(struct pbit_heap) + slots * sizeof(struct pbit_slot) + 4095) & ~4095ull;
}
static inline uint64_t pbit_file_bytes(uint64_t slots) { return pbit_blocks_at(slots) + PBIT_BLOCKS * PBIT_BLOCK_BYTES; }

static inline void pbit_create(struct pbit_heap *heap, uint64_t slots) {
    uint64_t bytes = sizeof *heap + slots * sizeof(struct pbit_slot);
    memset((void *)heap, 0, bytes);
    heap->slot_count = slots;
    heap->blocks_at = pbit_blocks_at(slots);
    fl_persist(heap, bytes);
    fl_store8(&heap->magic, PBIT_MAGIC); /* last: without it this is no heap */
    fl_persist(&heap->magic, 8);
}

/* The number of the heap block at this offset; -1: there is none. */
static inline int pbit_block_of(const struct pbit_heap *heap, uint64_t offset) {
    uint64_t at = offset - heap->blocks_at;
    if (offset < heap->blocks_at || at % PBIT_BLOCK_BYTES != 0 || at / PBIT_BLOCK_BYTES >= PBIT_BLOCKS)
        return -1;
    return (int)(at / PBIT_BLOCK_BYTES);
}

/* What is wrong with a recovered heap; null: nothing. */
static inline const char *pbit_check(const struct pbit_heap *heap) {
    uint64_t seen = 0;
    for (uint64_t slot = 0; slot < heap->slot_count; slot++) {
        uint64_t offset = heap->slots[slot].offset, tag = heap->slots[slot].tag;
        if (offset == 0)
            continue;
        int block = pbit_block_of(heap, offset);
        if (block < 0)
            return "a slot leads to no heap block";
        if ((heap->bits >> block & 1) == 0)
            return "a slot leads to a heap block that is free";
        if (seen >> block & 1)
            return "two slots lead to one heap block";
        seen |= 1ull << block;
        if (tag != pbit_tag(offset, tag & 0xffff) || (tag & 0xffff) > PBIT_BLOCK_BYTES)
            return "a slot's tag does not match";
    }
    return NULL;
}

static inline void pbit_set_slot(struct pbit_slot *slot, uint64_t offset, uint64_t tag) {
#ifdef MUTANT_TORN
    _mm_store_si128((__m128i *)slot, _mm_set_epi64x((long long)tag, (long long)offset));
    __asm__ volatile("" ::: "memory");
#else
    fl_store8(&slot->tag, tag);
    fl_store8(&slot->offset, offset);
#endif
}

static inline int pbit_allocate(struct pbit_heap *heap, uint64_t slot, uint64_t bytes, pbit_fill fill, void *context) {
    if (bytes > PBIT_BLOCK_BYTES || heap->bits == PBIT_FULL)
        return -1;
    int block = __builtin_ctzll(~heap->bits);
    uint64_t offset = heap->blocks_at + (uint64_t)block * PBIT_BLOCK_BYTES;
    fill(context, (char *)heap + offset, 0, bytes);
#ifdef MUTANT_EARLY_SLOT
    pbit_set_slot(&heap->slots[slot], offset, pbit_tag(offset, bytes));
#endif
    fl_store8(&heap->bits, heap->bits | 1ull << block);
#ifndef MUTANT_MISSING_FLUSH
    fl_flush(&heap->bits, 8);
#endif
#ifndef MUTANT_MISSING_FENCE
    fl_fence();
#endif
#ifndef MUTANT_EARLY_SLOT
    pbit_set_slot(&heap->slots[slot], offset, pbit_tag(offset, bytes));
#endif
    fl_flush(&heap->slots[slot], sizeof heap->slots[slot]);
    fl_fence();
    return 0;
}

static inline void pbit_free(struct pbit_heap *heap, uint64_t slot) {
    int block = pbit_block_of(heap, heap->slots[slot].offset);
    fl_store8(&heap->slots[slot].offset, 0);
    fl_persist(&heap->slots[slot].offset, 8);
    fl_store8(&heap->bits, heap->bits & ~(1ull << block));
    fl_persist(&heap->bits, 8);
}

#endif
