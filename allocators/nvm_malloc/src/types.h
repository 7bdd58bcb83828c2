/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h - nvm_malloc's volatile structures, and who may touch them.
 *
 * Vocabulary (Tables 4 and 5, §3.3):
 *
 *   chunk       unit of the heap file, 4 MiB unless asked otherwise
 *   block       4 KiB of a chunk; numbered over the whole heap: block b is at offset b * 4 KiB
 *   region      what one header accounts for: free range, large object, run; free chunks, huge object
 *   run         one block of equally sized slots for small objects
 *   VHeader     volatile copy of the header of a free range, a reserved large or huge object or a run; media is not read for
 *               what a VHeader knows. Used large and huge objects have none: it is made again when they are freed.
 *   role        what a block is, known for the first block of each region: tells headers from content without reading media
 *   arena       volatile: the free ranges and the bins of non-full runs of the chunks that carry its number (§3.4). Threads get
 *               their arenas in turn
 *   on media    a run is on media once its first slot was activated. Until then its header says FREE, one block.
 *   activated   allocated for good: bit set in the run's bitmap, or kind LARGE or HUGE
 *   reserved    handed out, volatile only: a crash forgets it
 *   give back   to make a range free, merged with its free neighbours
 *   scanned     the chunk's VHeaders are there. Chunks that open found are scanned by open or, lazily, by a thread (§3.7)
 *   ring        log of headers that may be in an inconsistent state
 *
 * A block belongs to the arena of its chunk, whoever allocates there. When a thread's arena, the free chunks and the file's limit
 * give nothing, all empty runs become free, all arena chunks without content become free chunks, and then the other arenas are
 * asked. So whether a request fits depends on where the live objects are, and not on which thread did what. That is said of one
 * request at a time: others that come meanwhile find an arena's empty runs all free or none, but they may take chunks that are
 * being released before their neighbours are free as well.
 *
 * Locks, in the order they are taken:
 *
 *   names.lock     the hash table of names, and operations on named objects
 *   shortage_lock  one thread at a time looks for memory everywhere
 *   scan_lock      one chunk being scanned; large objects being freed in a chunk that is not scanned yet
 *   bin.lock       the bin's list, the VHeaders of its runs, and their headers on media, link pointers included (§3.5.2)
 *   arena.lock     the arena's free ranges, their VHeaders and headers
 *   chunk_lock     free chunks, growth, kinds of chunks, which entries of the object table are in use
 *   ring_lock      which ring entries are in use
 *   names.by_object_lock  the hash table of named objects
 *
 * A large or huge object's header belongs to the thread that activates or frees it: two that do so at once are wrong.
 * Words that are read without their lock (roles, kinds, pointers to VHeaders, the size of the heap) are atomic.
 */
#ifndef NVM_TYPES_H
#define NVM_TYPES_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "layout.h"
#include "nvm_malloc.h"

#ifndef NVM_ARENAS
#define NVM_ARENAS 20 /* §3.4: a compile-time constant */
#endif

/* Assertions by cost: NVM_DEBUG 0 none, 1 (default) arguments and states, 2 also the whole heap after every operation, which is
 * for one thread only. */
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

/* Where another thread may come in between, tests built with NVM_WIDEN let it. */
#if defined(NVM_WIDEN)
void nvm_widen(void); /* the test's own */
#else
#define nvm_widen() ((void)0)
#endif

enum nvm_role {
    NVM_ROLE_INSIDE = 0, /* not the first block of a region, or not scanned yet */
    NVM_ROLE_METADATA,   /* chunk header, heap block */
    NVM_ROLE_FREE,       /* in the arena's tree */
    NVM_ROLE_RESERVED,   /* large, not activated */
    NVM_ROLE_LARGE,
    NVM_ROLE_RUN,
    NVM_ROLE_RESERVED_HUGE, /* roles of chunks rather than blocks: struct nvm_region only */
    NVM_ROLE_HUGE,
};

struct nvm_vheader {
    uint32_t first; /* block of its header; of free chunks and huge objects: the chunk */
    uint32_t count; /* blocks, or chunks */
    struct nvm_vheader *left, *right;    /* free range: tree by (count, first) */
    struct nvm_vheader *next, *previous; /* run: its bin's list of non-full runs */
    uint64_t activated; /* run: copy of the bitmap */
    uint64_t reserved;  /* run: slots handed out and not activated */
    uint8_t size_class;
    bool is_on_media;
    bool is_listed;
};

struct nvm_bin {
    pthread_mutex_t lock;
    struct nvm_vheader *current; /* the run used last, if it is not full */
    struct nvm_vheader *non_full;
};

struct nvm_arena {
    uint16_t id;
    pthread_mutex_t lock;
    struct nvm_vheader *free_ranges; /* root of the tree */
    struct nvm_bin bins[NVM_SMALL_CLASSES];
};

enum nvm_chunk_kind {
    NVM_CHUNK_INSIDE = 0, /* not the first of its region, or not in the file */
    NVM_CHUNK_ARENA,
    NVM_CHUNK_FREE,     /* in the tree of free chunks */
    NVM_CHUNK_RESERVED, /* huge, not activated */
    NVM_CHUNK_HUGE,
};

struct nvm_chunk {
    uint8_t kind;     /* enum nvm_chunk_kind */
    uint8_t is_scanned;
    uint16_t arena;   /* as on media: a heap may have been used with more arenas than this library has */
    uint64_t entries; /* bit i: object table entry i is in use, or reserved */
    struct nvm_vheader *range;     /* FREE: of the first chunk and of the last; RESERVED: of the first */
    uint8_t *roles;                /* ARENA: enum nvm_role, by block of the chunk */
    struct nvm_vheader **vheaders; /* ARENA: by first block; of free ranges by last block too */
};

/* Volatile copy of an object table entry (§3.6). */
struct nvm_name {
    char id[NVM_ID_BYTES + 1];
    uint32_t number; /* of the entry: chunk * 63 + entry in the chunk */
    bool is_used;    /* else reserved */
    uint64_t object;
    struct nvm_name *next;           /* in the hash bucket of its id */
    struct nvm_name *next_by_object; /* in that of its object */
};

struct nvm_names {
    pthread_mutex_t lock;
    pthread_mutex_t by_object_lock; /* of by_object and its chains: every free looks there, so it is held for a moment only */
    struct nvm_name **buckets;      /* by id */
    struct nvm_name **by_object;    /* as many */
    uint32_t bucket_count;
    uint32_t count;
};

/* The recovery thread, or its steps. */
struct nvm_scan {
    pthread_t thread;
    pthread_mutex_t step_lock; /* of next_chunk; taken after the names' lock, before all others */
    uint32_t next_chunk;       /* nothing before it has to be scanned */
    pthread_mutex_t lock; /* of the members below; taken last */
    pthread_cond_t settled;
    bool has_thread, is_stepped;
    bool is_stopped; /* close asks it to end */
    bool is_settled;
    int status;
    char message[512];
};

struct nvm_heap {
    char *base;
    int fd;
    uint64_t limit_bytes; /* of the file, and of the reserved address range: whole chunks */
    uint64_t chunk_bytes;
    uint32_t chunk_blocks;
    uint32_t chunk_count; /* in the file */
    int is_emulated;
    uint32_t version;
    struct nvm_heap_block *media; /* the heap block */
    struct nvm_chunk *chunks;     /* as many as the limit allows */
    struct nvm_vheader *free_chunks; /* root of the tree */
    struct nvm_arena arenas[NVM_ARENAS];
    pthread_key_t thread_arena; /* each thread's: number + 1 */
    uint32_t next_arena;
    struct nvm_names names;
    struct nvm_scan scan;
    pthread_mutex_t shortage_lock, scan_lock, chunk_lock, ring_lock;
    uint64_t ring_busy; /* bit i: entry i belongs to a pending operation */
    uint32_t ring_next;
};

/* An object and the region it lies in. */
struct nvm_region {
    uint32_t first;     /* block of the header; HUGE: chunk */
    enum nvm_role role; /* RUN, LARGE, RESERVED or the HUGE ones */
    uint8_t size_class; /* RUN */
    uint8_t slot;       /* RUN */
    struct nvm_header *header;
};

/* Up to two links, relative. */
struct nvm_links {
    struct nvm_link link[2];
};

/* ---- where things are ---- */

static inline uint64_t nvm_load8(const uint64_t *word) { return __atomic_load_n(word, __ATOMIC_ACQUIRE); }
static inline uint32_t nvm_chunk_count(const struct nvm_heap *heap) {
    return __atomic_load_n(&heap->chunk_count, __ATOMIC_ACQUIRE);
}
static inline uint32_t nvm_chunk_limit(const struct nvm_heap *heap) { return (uint32_t)(heap->limit_bytes / heap->chunk_bytes); }
static inline uint64_t nvm_block_offset(uint32_t block) { return (uint64_t)block * NVM_BLOCK_BYTES; }
static inline struct nvm_header *nvm_header_at(const struct nvm_heap *heap, uint32_t block) {
    return (struct nvm_header *)(heap->base + nvm_block_offset(block));
}
static inline struct nvm_chunk_block *nvm_chunk_at(const struct nvm_heap *heap, uint32_t chunk) {
    return (struct nvm_chunk_block *)(heap->base + (uint64_t)chunk * heap->chunk_bytes);
}
/* Of the chunk that the block lies in. */
static inline struct nvm_chunk *nvm_chunk_of(const struct nvm_heap *heap, uint32_t block) {
    return &heap->chunks[block / heap->chunk_blocks];
}
static inline uint16_t nvm_chunk_arena(const struct nvm_chunk *chunk) { return __atomic_load_n(&chunk->arena, __ATOMIC_RELAXED); }
static inline struct nvm_arena *nvm_arena_of(struct nvm_heap *heap, uint32_t block) {
    return &heap->arenas[nvm_chunk_arena(nvm_chunk_of(heap, block)) % NVM_ARENAS];
}
static inline uint32_t nvm_blocks_to_chunk_end(const struct nvm_heap *heap, uint32_t block) {
    return heap->chunk_blocks - block % heap->chunk_blocks;
}
static inline enum nvm_chunk_kind nvm_chunk_kind(const struct nvm_chunk *chunk) {
    return (enum nvm_chunk_kind)__atomic_load_n(&chunk->kind, __ATOMIC_ACQUIRE);
}
static inline void nvm_set_chunk_kind(struct nvm_chunk *chunk, enum nvm_chunk_kind kind) {
    __atomic_store_n(&chunk->kind, (uint8_t)kind, __ATOMIC_RELEASE);
}
static inline bool nvm_is_scanned(const struct nvm_chunk *chunk) {
    return __atomic_load_n(&chunk->is_scanned, __ATOMIC_ACQUIRE) != 0;
}

/* Of a block in an arena chunk. */
static inline enum nvm_role nvm_role(const struct nvm_heap *heap, uint32_t block) {
    return (enum nvm_role)__atomic_load_n(&nvm_chunk_of(heap, block)->roles[block % heap->chunk_blocks], __ATOMIC_ACQUIRE);
}
static inline struct nvm_vheader *nvm_vheader(const struct nvm_heap *heap, uint32_t block) {
    return __atomic_load_n(&nvm_chunk_of(heap, block)->vheaders[block % heap->chunk_blocks], __ATOMIC_ACQUIRE);
}
static inline void nvm_set_vheader(struct nvm_heap *heap, uint32_t block, struct nvm_vheader *vheader) {
    __atomic_store_n(&nvm_chunk_of(heap, block)->vheaders[block % heap->chunk_blocks], vheader, __ATOMIC_RELEASE);
}
/* In a scanned chunk, from INSIDE or to it: with the arena's lock, or a pointer without its role is taken for a free range's. */
static inline void nvm_set_role(struct nvm_heap *heap, uint32_t block, enum nvm_role role, struct nvm_vheader *vheader) {
    nvm_set_vheader(heap, block, vheader);
    nvm_widen();
    __atomic_store_n(&nvm_chunk_of(heap, block)->roles[block % heap->chunk_blocks], (uint8_t)role, __ATOMIC_RELEASE);
}

/* message.c */
int nvm_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* tree.c: free ranges by size, then address */
void nvm_tree_insert(struct nvm_vheader **root, struct nvm_vheader *range);
void nvm_tree_remove(struct nvm_vheader **root, struct nvm_vheader *range);
struct nvm_vheader *nvm_tree_best_fit(struct nvm_vheader *root, uint32_t count);

/* arena.c */
int nvm_arenas_init(struct nvm_heap *heap);
void nvm_arenas_destroy(struct nvm_heap *heap);
struct nvm_arena *nvm_arena_of_thread(struct nvm_heap *heap);

/* chunk.c: free chunks, huge objects, growth */
void nvm_format_chunks(struct nvm_heap *heap, uint32_t first, uint32_t count, uint64_t tag);
int nvm_chunk_map(struct nvm_heap *heap, uint32_t first, uint32_t count);
int nvm_chunk_prepare(struct nvm_heap *heap, uint32_t chunk);
int nvm_chunk_take(struct nvm_heap *heap, uint32_t count, struct nvm_vheader **range);
int nvm_chunk_to_arena(struct nvm_heap *heap, struct nvm_arena *arena, struct nvm_vheader **range);
void nvm_chunk_adopt(struct nvm_heap *heap, struct nvm_vheader *range);
void nvm_chunk_give_back(struct nvm_heap *heap, struct nvm_vheader *range);
bool nvm_chunk_from_arena(struct nvm_heap *heap, uint32_t chunk, struct nvm_vheader *range);

/* range.c: free ranges of blocks, large objects */
int nvm_range_take(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t blocks, enum nvm_role role, struct nvm_vheader **range);
void nvm_range_adopt(struct nvm_heap *heap, struct nvm_vheader *range);
void nvm_range_give_back(struct nvm_heap *heap, struct nvm_vheader *range);
void nvm_range_give_back_all(struct nvm_heap *heap, struct nvm_arena *arena, struct nvm_vheader *ranges);
int nvm_range_add_chunk(struct nvm_heap *heap, struct nvm_arena *arena);
bool nvm_range_release_chunk(struct nvm_heap *heap, uint32_t chunk);

/* run.c: small objects */
int nvm_run_reserve(struct nvm_heap *heap, struct nvm_arena *arena, uint32_t size_class, struct nvm_vheader **run, uint8_t *slot);
struct nvm_bin *nvm_run_bin(struct nvm_heap *heap, uint32_t block, uint32_t size_class);
int nvm_run_known(struct nvm_heap *heap, uint32_t block, struct nvm_vheader **run);
void nvm_run_relist(struct nvm_bin *bin, struct nvm_vheader *run);
void nvm_run_reclaim_empty(struct nvm_heap *heap);
#if defined(MUTANT_RUN_LISTED_TWICE)
void nvm_run_list_pending(struct nvm_heap *heap, uint32_t block);
#endif

/* ring.c: the log of §3.7 */
uint32_t nvm_ring_begin(struct nvm_heap *heap, uint64_t offset);
void nvm_ring_end(struct nvm_heap *heap, uint32_t entry);

/* protocol.c: §3.5 on media */
void nvm_protocol_run(struct nvm_heap *heap, struct nvm_header *header, uint64_t tag, uint64_t run_word,
                      const struct nvm_links *links);
void nvm_header_complete(struct nvm_heap *heap, struct nvm_header *header);
uint64_t nvm_idle_tag(uint64_t tag); /* the tag once the operation that it announces is done */
#if defined(MUTANT_REPLAY_LINKS_NOT_FLUSHED)
extern bool nvm_is_replaying;
#endif

/* region.c */
int nvm_region_of(const struct nvm_heap *heap, const void *object, struct nvm_region *region);
int nvm_region_reserve(struct nvm_heap *heap, uint64_t bytes, void **object);
bool nvm_region_is_reserved(struct nvm_heap *heap, const struct nvm_region *region);
int nvm_region_activate(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links);
/* Frees what is activated, gives back what is reserved. on_media, if not null, is called when the object is activated and will
 * be freed for certain, and again when it is free on media, before anybody else can get its memory. */
int nvm_region_free(struct nvm_heap *heap, const struct nvm_region *region, const struct nvm_links *links,
                    void (*on_media)(void *context, bool is_freed), void *context);

/* names.c: §3.6 */
int nvm_names_init(struct nvm_heap *heap);
void nvm_names_destroy(struct nvm_heap *heap);
struct nvm_entry *nvm_entry_at(const struct nvm_heap *heap, uint32_t number);
uint64_t nvm_object_of(const struct nvm_heap *heap, const struct nvm_entry *entry); /* relative */
int nvm_names_load(struct nvm_heap *heap, uint32_t chunk);
const struct nvm_name *nvm_names_find(const struct nvm_heap *heap, const char *id);
bool nvm_names_has_object(struct nvm_heap *heap, uint64_t object);

/* recover.c, scan.c: §3.7 */
enum nvm_scan_by { NVM_SCAN_BY_OPEN, NVM_SCAN_BY_THREAD, NVM_SCAN_BY_STEPS };
int nvm_recover(struct nvm_heap *heap, enum nvm_scan_by scan_by);
int nvm_adopt_growth(struct nvm_heap *heap, uint64_t file_bytes);
void nvm_scan_init(struct nvm_heap *heap);
int nvm_scan_start(struct nvm_heap *heap, enum nvm_scan_by scan_by);
void nvm_scan_step(struct nvm_heap *heap);
int nvm_scan_wait(struct nvm_heap *heap);
bool nvm_scan_is_settled(struct nvm_heap *heap);
void nvm_scan_stop(struct nvm_heap *heap);

/* check.c */
int nvm_names_check(struct nvm_heap *heap);
const char *nvm_header_complaint(const struct nvm_heap *heap, uint32_t block);
const char *nvm_chunk_complaint(const struct nvm_heap *heap, uint32_t chunk);

#endif
