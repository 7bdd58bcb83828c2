/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h - nvm_malloc's volatile structures.
 *
 * Vocabulary (Tables 4 and 5, §3.3):
 *
 *   chunk       unit of the heap file, 4 MiB unless asked otherwise
 *   block       4 KiB of a chunk; numbered over the whole heap: block b is at offset b * 4 KiB
 *   region      what one header accounts for: free range, large object or run
 *   run         one block of equally sized slots for small objects
 *   VHeader     volatile copy of the header of a free range, a reserved large object or a run; media is not read for what a
 *               VHeader knows. Used large objects have none.
 *   role        what a block is, known for the first block of each region: tells headers from content without reading media
 *   arena       volatile: the free ranges and the bins of non-full runs. One for now; its number is in every header.
 *   on media    a run is on media once its first slot was activated. Until then its header says FREE, one block.
 *   activated   allocated for good: bit set in the run's bitmap, or kind LARGE
 *   reserved    handed out, volatile only: a crash forgets it
 *   give back   to make a range free in the arena, merged with its free neighbours
 *   ring        log of headers that may be in an inconsistent state
 */
#ifndef NVM_TYPES_H
#define NVM_TYPES_H

#include <assert.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "nvm_malloc.h"

/* Assertions by cost: NVM_DEBUG 0 none, 1 (default) arguments and states, 2 also the whole heap after every operation. */
#ifndef NVM_DEBUG
#define NVM_DEBUG 1
#endif
#if NVM_DEBUG >= 1
#define nvm_assert(fact) assert(fact)
#else
#define nvm_assert(fact) ((void)0)
#endif
#if NVM_DEBUG >= 2
#define nvm_assert_heap(heap) assert(nvm_heap_check(heap) == NVM_OK)
#else
#define nvm_assert_heap(heap) ((void)0)
#endif

enum nvm_role {
    NVM_ROLE_INSIDE = 0, /* not the first block of a region */
    NVM_ROLE_METADATA,   /* chunk header, heap block */
    NVM_ROLE_FREE,       /* in the arena's tree */
    NVM_ROLE_RESERVED,   /* large, not activated */
    NVM_ROLE_LARGE,
    NVM_ROLE_RUN,
};

struct nvm_vheader {
    uint32_t block;  /* of its header */
    uint32_t blocks;
    struct nvm_vheader *left, *right; /* free range: tree by (blocks, block) */
    struct nvm_vheader *next, *previous; /* run: its bin's list of non-full runs */
    uint64_t activated; /* run: copy of the bitmap */
    uint64_t reserved;  /* run: slots handed out and not activated */
    uint8_t size_class;
    bool is_on_media;
    bool is_listed;
};

struct nvm_bin {
    struct nvm_vheader *current; /* the run used last, if it is not full */
    struct nvm_vheader *non_full;
};

struct nvm_arena {
    uint16_t id;
    struct nvm_vheader *free_ranges; /* root of the tree */
    struct nvm_bin bins[NVM_SMALL_CLASSES];
};

/* Volatile copy of an object table entry (§3.6). */
struct nvm_name {
    char id[NVM_ID_BYTES + 1];
    uint64_t object;
    enum { NVM_NAME_EMPTY = 0, NVM_NAME_RESERVED, NVM_NAME_USED } state;
    uint32_t next_same_hash; /* number + 1 of the next name in the hash bucket; 0: none */
};

struct nvm_names {
    struct nvm_name *names; /* one for each object table entry of the heap */
    uint32_t *buckets;      /* number + 1 of the first name; 0: none */
    uint32_t count;         /* of names, and of buckets */
};

struct nvm_heap {
    char *base;
    uint64_t heap_bytes;
    uint64_t chunk_bytes;
    uint32_t block_count;
    uint32_t chunk_blocks;
    int is_emulated;
    uint32_t version;
    struct nvm_heap_block *media; /* the heap block */
    struct nvm_arena arena;
    uint8_t *roles;                  /* enum nvm_role, by block */
    struct nvm_vheader **vheaders;   /* by first block; of free ranges by last block too */
    struct nvm_names names;
    uint64_t ring_busy; /* bit i: entry i belongs to a pending operation */
    uint32_t ring_next;
};

/* An object and the region it lies in. */
struct nvm_region {
    uint32_t block;               /* of the header */
    enum nvm_role role;           /* RUN, LARGE or RESERVED */
    struct nvm_vheader *vheader;  /* null for LARGE */
    uint8_t slot;                 /* RUN */
};

/* Up to two links, relative. */
struct nvm_links {
    struct nvm_link link[2];
};

static inline struct nvm_header *nvm_header_at(const struct nvm_heap *heap, uint32_t block) {
    return (struct nvm_header *)(heap->base + (uint64_t)block * NVM_BLOCK_BYTES);
}
static inline struct nvm_chunk_block *nvm_chunk_at(const struct nvm_heap *heap, uint32_t chunk) {
    return (struct nvm_chunk_block *)(heap->base + (uint64_t)chunk * heap->chunk_bytes);
}
static inline uint32_t nvm_chunk_count(const struct nvm_heap *heap) { return heap->block_count / heap->chunk_blocks; }
static inline uint64_t nvm_block_offset(uint32_t block) { return (uint64_t)block * NVM_BLOCK_BYTES; }
/* Blocks of the chunk from this block to the chunk's end. */
static inline uint32_t nvm_blocks_to_chunk_end(const struct nvm_heap *heap, uint32_t block) {
    return heap->chunk_blocks - block % heap->chunk_blocks;
}

/* message.c */
int nvm_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* tree.c: free ranges by size, then address */
void nvm_tree_insert(struct nvm_vheader **root, struct nvm_vheader *range);
void nvm_tree_remove(struct nvm_vheader **root, struct nvm_vheader *range);
struct nvm_vheader *nvm_tree_best_fit(struct nvm_vheader *root, uint32_t blocks);

/* range.c: free ranges and large objects */
int nvm_range_take(struct nvm_heap *heap, uint32_t blocks, struct nvm_vheader **range);
void nvm_range_adopt(struct nvm_heap *heap, struct nvm_vheader *range);
void nvm_range_give_back(struct nvm_heap *heap, struct nvm_vheader *range);

/* run.c: small objects */
int nvm_run_reserve(struct nvm_heap *heap, uint32_t size_class, struct nvm_vheader **run, uint8_t *slot);
void nvm_run_adopt(struct nvm_heap *heap, struct nvm_vheader *run);
void nvm_run_relist(struct nvm_heap *heap, struct nvm_vheader *run);
bool nvm_run_reclaim_empty(struct nvm_heap *heap);

/* ring.c: the log of §3.7 */
uint32_t nvm_ring_begin(struct nvm_heap *heap, uint32_t block);
void nvm_ring_end(struct nvm_heap *heap, uint32_t entry);

/* region.c: §3.5 */
int nvm_region_of(const struct nvm_heap *heap, const void *object, struct nvm_region *region);
bool nvm_region_is_activated(const struct nvm_region *region);
bool nvm_region_is_reserved(const struct nvm_region *region);
void nvm_region_activate(struct nvm_heap *heap, struct nvm_region *region, const struct nvm_links *links);
void nvm_region_free_on_media(struct nvm_heap *heap, struct nvm_region *region, const struct nvm_links *links);
void nvm_region_release(struct nvm_heap *heap, struct nvm_region *region);
int nvm_region_prepare_release(struct nvm_heap *heap, struct nvm_region *region);
void nvm_header_complete(struct nvm_heap *heap, struct nvm_header *header);

/* names.c: §3.6 */
int nvm_names_init(struct nvm_heap *heap);
void nvm_names_destroy(struct nvm_heap *heap);
struct nvm_entry *nvm_entry_at(const struct nvm_heap *heap, uint32_t number);
int nvm_names_load(struct nvm_heap *heap);
const struct nvm_name *nvm_names_find(const struct nvm_heap *heap, const char *id);

/* recover.c: §3.7 */
int nvm_recover(struct nvm_heap *heap);

/* check.c */
int nvm_names_check(const struct nvm_heap *heap);
const char *nvm_header_complaint(const struct nvm_heap *heap, uint32_t block);

#endif
