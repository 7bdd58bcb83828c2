/* SPDX-License-Identifier: Apache-2.0
 *
 * types.h - Makalu's volatile structures.
 *
 * Vocabulary (§2.3, §5):
 *
 *   region      what is mapped: metadata, header spaces and heap; one file
 *   block       heap block, 4 KiB, numbered over the region: block b is at rgn_base + b * 4 KiB
 *   chunk       one or more adjacent free blocks with one header
 *   class       object size in granules of 16 bytes, 1..128; small up to 25 (400 bytes), medium above
 *   header      what persists about a chunk or about a block in use; lives in a header space
 *   HFL         freelist of headers; behind its end, headers that were never in use (fresh)
 *   header map  header address by block, in two levels: of free chunks for the first and the last block, of what is in use for every block
 *   freelist    volatile stack of free objects of one class: a thread's (small) or everybody's (medium). Their mark bits are set.
 *   reclaim list  volatile list of blocks of one class with objects whose mark bits are clear (§5.8)
 *   sweep       takes all objects with clear mark bits of a block into a freelist (§6.1)
 *   section     failure-atomic section (§8)
 *   life        from start or restart to close
 *
 * Locks, taken in this order: class lock (mark bits and reclaim list of one class, freelist of a medium class); global lock
 * (core metadata in sections, HFL, header map); bin lock (one chunk freelist). A chunk is taken out of a freelist under the bin
 * lock alone (§6.2). From then until its section it is claimed: its header still says FREE, but no list has it, and whoever
 * frees a neighbour leaves it alone; if power fails meanwhile, recovery joins the two. What is put into a chunk freelist is put
 * there under the global lock too.
 */
#ifndef MAK_TYPES_H
#define MAK_TYPES_H

#include <assert.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "flush.h"
#include "layout.h"
#include "makalu.h"
#include "persist.h"

/* Assertions by cost: MAK_DEBUG 0 none, 1 (default) arguments and states, 2 also the whole region after operations. */
#ifndef MAK_DEBUG
#define MAK_DEBUG 1
#endif
#if MAK_DEBUG >= 1
#define mak_assert(fact) assert(fact)
#else
#define mak_assert(fact) ((void)0)
#endif

/* Least that the heap grows by, if the limit allows it. */
#ifndef MAK_GROW_BYTES
#define MAK_GROW_BYTES ((uint64_t)1 << 20)
#endif
/* Empty blocks that all classes together keep for their next sweeps. §7.2 says that they can be freed, not when; freeing every one at once
 * would cost a loop that allocates and frees two sections for each block. They are freed when there is one more, before
 * out-of-memory, and at close. */
#ifndef MAK_EMPTY_BLOCKS
#define MAK_EMPTY_BLOCKS 2048u
#endif
/* Entries of the table of lines to flush later (§8.1); a power of two. */
#ifndef MAK_VISIBLE_LINES
#define MAK_VISIBLE_LINES 4096u
#endif
/* Ranges that a marking thread keeps by itself, and that all keep together. Full stacks cost time, never objects. */
#ifndef MAK_MARK_STACK
#define MAK_MARK_STACK 4096u
#endif
#ifndef MAK_MARK_POOL
#define MAK_MARK_POOL 65536u
#endif
/* Ranges that a marking thread scans soon and has asked the memory for. 1 is strictly depth first. */
#ifndef MAK_MARK_AHEAD
#define MAK_MARK_AHEAD 16u
#endif
#ifndef MAK_MARK_THREADS
#define MAK_MARK_THREADS 0u
#endif

/* Where another thread may come in between, tests built with MAK_WIDEN let it. */
#if defined(MAK_WIDEN)
void mak_widen(void); /* the test's own */
#else
#define mak_widen() ((void)0)
#endif

#define MAK_SMALL_CLASSES (MAK_SMALL_MAX / MAK_GRANULE_BYTES)
#define MAK_CLASSES (MAK_MEDIUM_MAX / MAK_GRANULE_BYTES)
#define MAK_EXACT_BINS 64u /* chunks of 1..63 blocks have a freelist each, larger ones one for each power of two */
#define MAK_BINS (MAK_EXACT_BINS + 32u)

_Static_assert(MAK_HEADER_SPACE_BYTES >= MAK_BLOCK_BYTES, "a header space has headers");
_Static_assert((MAK_VISIBLE_LINES & (MAK_VISIBLE_LINES - 1)) == 0, "a power of two");

enum mak_phase {
    MAK_PHASE_CLOSED = 0,
    MAK_PHASE_OFFLINE, /* recovered, mark bits are clear */
    MAK_PHASE_COLLECTED, /* mark bits are right */
    MAK_PHASE_ONLINE,
};

/* Where a block in use or a chunk is listed; by the number of its first block. */
struct mak_link {
    uint32_t next, previous; /* block numbers; 0: none */
    uint8_t list; /* enum mak_listed */
};
enum mak_listed { MAK_LISTED_NOWHERE = 0, MAK_LISTED_CHUNK, MAK_LISTED_RECLAIM };

/* Chunk freelist (§5.6). */
struct mak_bin {
    pthread_mutex_t lock;
    uint32_t first; /* block; 0: empty */
} __attribute__((aligned(64)));

/* Object freelist (§5.7): a stack, oldest first. */
struct mak_list {
    uint32_t count;
    void **objects; /* room for mak_list_capacity */
};

struct mak_class {
    pthread_mutex_t lock;
    uint32_t reclaim; /* first block of the reclaim list; 0: none */
    struct mak_list list; /* medium classes */
} __attribute__((aligned(64)));

/* A thread's freelists. */
struct mak_thread {
    struct mak_thread *next, *previous; /* all threads of this life */
    struct mak_list lists[MAK_SMALL_CLASSES + 1]; /* by class */
};

struct mak {
    enum mak_phase phase;
    uint64_t life; /* counts openings: a thread's freelists are of one life */
    bool is_in_use; /* copy of the state on media */

    char *base;
    uint64_t limit_bytes;
    uint64_t file_bytes; /* all mapped */
    int fd;
    char folder[4096], path[4096];

    struct mak_base *media;
    struct mak_log_entry *log;
    uint64_t *roots;
    uint64_t *map; /* top index */

    pthread_mutex_t global;
    uint32_t log_next; /* entries of the running section */
    uint32_t space_count;
    uint32_t headers_in_space;
    uint32_t first_block; /* behind the first header space */
    uint32_t heap_blocks; /* up to rgn_curr, without header spaces */
    struct mak_bin bins[MAK_BINS];
    uint64_t full_bins[2]; /* bit i: bins[i] is not empty; atomic, changed under the bin's lock */
    uint32_t claims; /* chunks that are claimed; atomic, falls only under the global lock */
    pthread_cond_t claim_ended;
    struct mak_link *links; /* by block */

    struct mak_class classes[MAK_CLASSES + 1]; /* by class; 0 is not used */
    uint32_t empty_blocks; /* in reclaim lists, without any mark bit; atomic */
    pthread_mutex_t threads_lock;
    struct mak_thread *threads;
    void (*free_callback)(void *object);
};

extern struct mak mak;

static inline uint64_t mak_address_of(uint32_t block) { return (uint64_t)(uintptr_t)mak.base + (uint64_t)block * MAK_BLOCK_BYTES; }
static inline uint32_t mak_block_of(uint64_t address) {
    return (uint32_t)((address - (uint64_t)(uintptr_t)mak.base) / MAK_BLOCK_BYTES);
}
/* rgn_curr as a block. Read without the global lock where an old value does no harm. */
static inline uint32_t mak_end_block(void) { return mak_block_of(__atomic_load_n(&mak.media->rgn_curr, __ATOMIC_RELAXED)); }

static inline uint32_t mak_class_of(uint64_t bytes) { return (uint32_t)((bytes + MAK_GRANULE_BYTES - 1) / MAK_GRANULE_BYTES); }
static inline uint32_t mak_class_bytes(uint32_t class) { return class * MAK_GRANULE_BYTES; }
/* §7.1: twice the size of the block. */
static inline uint32_t mak_list_capacity(uint32_t class) { return 2 * MAK_BLOCK_BYTES / mak_class_bytes(class); }

/* A 4-byte core word. */
static inline void mak_store4(int32_t *address, int32_t value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }
/* A 1-byte one. */
static inline void mak_store1(uint8_t *address, uint8_t value) { __atomic_store_n(address, value, __ATOMIC_RELEASE); }

/* message.c */
int mak_fail(int status, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* atomic.c: §8 */
void mak_section_begin(void);
void mak_section_store_word(uint64_t *address, uint64_t value);
void mak_section_store_addr(uint64_t *address, uint64_t value);
void mak_section_store_int(int32_t *address, int32_t value);
void mak_section_store_char(uint8_t *address, uint8_t value);
void mak_section_end(void);

/* visible.c: §8.1 */
void mak_visible_later(const void *address);
void mak_store_later(uint64_t *address, uint64_t value);
void mak_visible_now(void);
void mak_visible_forget(void);

/* header.c: §5.1 header spaces and HFL, §5.2 header map */
struct mak_header *mak_header_at(uint32_t number);
struct mak_header *mak_header_take(void);
void mak_header_give_back(struct mak_header *header);
struct mak_header *mak_map_find(uint32_t block);
const char *mak_map_complaint(void);
void mak_map_purge(void);
void mak_map_install(struct mak_header *header);
void mak_map_remove(uint32_t block, uint32_t blocks);
uint32_t mak_map_next(uint32_t block);
bool mak_is_space(uint32_t block, uint32_t *blocks);
uint32_t mak_header_count(void);

/* chunk.c: §5.6, §6.2 to §6.4, §7.2, §7.3 */
void mak_chunks_init(void);
void mak_chunks_destroy(void);
void mak_chunk_list(struct mak_header *header);
struct mak_header *mak_blocks_allocate(uint32_t blocks, uint64_t object_bytes);
struct mak_header *mak_blocks_free(struct mak_header *header);
void mak_chunks_join(void);
uint64_t mak_chunks_count(uint64_t *blocks);

/* object.c: §5.7, §5.8, §6, §7 */
int mak_objects_init(void);
void mak_objects_destroy(void);
void mak_reclaim_list(struct mak_header *header);
void mak_give_back(uint32_t class, void **objects, uint32_t count);
void mak_free_empty_blocks(uint32_t class);
bool mak_locate(const void *object, struct mak_header **header, uint32_t *index);
void mak_go_in_use(void);

/* thread.c */
struct mak_thread *mak_thread(void);
void mak_threads_give_back(void);
void mak_thread_give_back(struct mak_thread *thread);

/* mark.c: §9.2 */
int mak_mark(void);

/* region.c */
int mak_extend_file(uint64_t bytes);

/* recover.c: §9 */
int mak_replay_log(void);
int mak_rebuild(void);
int mak_build_lists(bool with_reclaim_lists);

/* check.c */
const char *mak_header_complaint(const struct mak_header *header);

#endif
