/* SPDX-License-Identifier: Apache-2.0
 *
 * nvmalloc.h - a wear-aware, damage-resistant persistent-memory allocator after NVMalloc: Moraru, Andersen, Kaminsky, Binkert,
 * Tolia, Munz, Ranganathan: "Persistent, Protected and Cached: Building Blocks for Main Memory Data Stores", CMU-PDL-11-114, 2011,
 * sections 3 and 7.1. (Not nvm_malloc of Schwalb et al., ADMS 2015, whose names begin with nvm_: that one is in ../nvm_malloc.)
 *
 * malloc and free, and these three promises beside:
 *
 *   wear       A freed heap block is not handed out again for a time T, and what changes often is kept in DRAM: on persistent
 *              memory a heap block has one header, written when the block is allocated and when it is freed.
 *   damage     Every header has a checksum over size, state and position. A header that a stray write has hit is found when the
 *              heap is opened, or when its block is allocated or freed; it costs the heap blocks that were hit and no other, and
 *              the application is told. One write is not found: zeros over the last block's first line, where every other line of
 *              that block begins with 8 zeros too, look like memory that never was used.
 *   crashes    What has returned is durable: a block that nvmalloc returned is allocated, one that nvfree took is free. What was
 *              under way when power failed has happened whole or not at all. There is no step that allocates and publishes at
 *              once (the paper has none): a failure between the return of nvmalloc and the store that makes the block reachable
 *              leaks that block, and so does one between the store that makes it unreachable and nvfree.
 *
 * After a failure the application finds its data from one root. A heap may be mapped elsewhere next time: what persists are
 * offsets, not addresses.
 *
 *     struct nvmalloc_options options = {.folder = "/mnt/pmem/app", .heap_bytes = 1 << 20, .wait_ticks = NVMALLOC_WAIT_MS};
 *     nvmalloc_start(&options);                       // opens the heap, or creates it
 *     struct list *list = nvroot();
 *     if (list == NULL) {
 *         list = nvcalloc(1, sizeof *list);
 *         nvpersist(list, sizeof *list);
 *         nvset_root(list);
 *     }
 *     struct node *node = nvmalloc(sizeof *node);
 *     node->next = list->first;
 *     nvpersist(node, sizeof *node);                  // whole before it is reachable
 *     list->first = nvoffset(node);
 *     nvpersist(&list->first, sizeof list->first);
 *
 * Any number of threads may use a heap.
 */
#ifndef NVMALLOC_H
#define NVMALLOC_H

#include <stddef.h>
#include <stdint.h>

enum nvmalloc_status {
    NVMALLOC_OK = 0,
    NVMALLOC_OUT_OF_MEMORY = 1, /* nothing changed, but freed heap blocks may no longer be waiting */
    NVMALLOC_TOO_LARGE = 2,     /* more than the heap's limit could ever hold; nothing changed */
    NVMALLOC_NOT_A_HEAP = 3,    /* no completely created heap there */
    NVMALLOC_CORRUPT = 4,       /* damage that cannot be kept to the blocks it hit; of free: the block's header is damaged */
    NVMALLOC_INVALID = 5,       /* an argument is wrong; nothing changed */
    NVMALLOC_ERROR = 6,         /* the operating system failed */
};

/* Why the last call of this thread that failed did so: one line, never null. */
const char *nvmalloc_message(void);

/* ---- damage ---- */

enum nvmalloc_damage_place {
    NVMALLOC_DAMAGE_SCAN = 1, /* found when the heap was opened */
    NVMALLOC_DAMAGE_ALLOCATE,
    NVMALLOC_DAMAGE_FREE,
    NVMALLOC_DAMAGE_ROOT, /* one of the two root lines; repaired from the other, unless that is damaged too: then bytes is 0 */
    NVMALLOC_DAMAGE_UNFORMATTED, /* memory that never was part of a block; repaired */
    NVMALLOC_DAMAGE_INVALID_FREE, /* no damage of the heap: nvfree was given something that is no allocated block */
};

struct nvmalloc_damage {
    enum nvmalloc_damage_place place;
    uint64_t offset; /* of the damaged header, from the heap's beginning */
    /* What the damage costs: no allocation uses these bytes any more, now or after the heap is opened again. Their content is left as
     * it is; when it is of no use any more, nvfree of offset + NVMALLOC_HEADER_BYTES gives them back. Found when the heap is opened,
     * they may be less than the object had: what is left of it behind them is free (scan.c says why). */
    uint64_t bytes;
    uint64_t header; /* the first word, as it was found */
};

/* Is called with the heap's lock held: it must not call this library. */
typedef void (*nvmalloc_on_damage)(void *context, const struct nvmalloc_damage *damage);

/* ---- a heap by its handle ---- */

#define NVMALLOC_WAIT_MS 100u /* T, section 8.1.1 */
#define NVMALLOC_HEADER_BYTES 16u /* in front of every object */
#define NVMALLOC_DEFAULT_LIMIT_BYTES ((uint64_t)16 << 30)
#define NVMALLOC_MAX_LIMIT_BYTES ((uint64_t)64 << 30)

struct nvmalloc_heap;

enum nvmalloc_clock {
    NVMALLOC_CLOCK_MILLISECONDS = 0, /* wall-clock time, so that waiting goes on while the heap is closed */
    NVMALLOC_CLOCK_OPERATIONS, /* each allocation and each free is a tick: runs are deterministic */
};

struct nvmalloc_options {
    const char *folder;
    uint64_t heap_bytes; /* create: size of the file to begin with; rounded up to whole OS pages of 4 KiB, at least one */
    uint64_t
        limit_bytes; /* most that the file may grow to; 0: NVMALLOC_DEFAULT_LIMIT_BYTES. Never less than the file has already */
    uint64_t grow_bytes; /* the file grows by multiples of this; rounded up to whole OS pages, 0: one (section 3.1) */
    uintptr_t address_hint; /* where to map, if that is free; 0: anywhere */
    enum nvmalloc_clock clock;
    uint32_t wait_ticks; /* T: how long a freed heap block waits, at most 2^31 - 1. 0: not at all */
    nvmalloc_on_damage on_damage; /* may be null */
    void *context;
    /* Section 4: no page of the heap can be stored to but while the library does, or somebody has asked to (nvmalloc_heap_unprotect). A
     * store that goes astray is a SIGSEGV. Costs system calls: two for each page of an operation. */
    int is_protected;
};

/* create: the folder must exist and hold no heap. A crash inside leaves a heap, or what open answers NVMALLOC_NOT_A_HEAP. */
int nvmalloc_heap_create(const struct nvmalloc_options *options, struct nvmalloc_heap **heap);
int nvmalloc_heap_open(const struct nvmalloc_options *options, struct nvmalloc_heap **heap);
void nvmalloc_heap_close(struct nvmalloc_heap *heap); /* when no other thread uses it any more */

/* Objects are aligned to 16 bytes. Before it answers out of memory, allocate takes blocks that wait, the oldest first. */
int nvmalloc_heap_allocate(struct nvmalloc_heap *heap, uint64_t bytes, void **object);
int nvmalloc_heap_free(struct nvmalloc_heap *heap, void *object);
uint64_t nvmalloc_heap_usable_bytes(struct nvmalloc_heap *heap, const void *object); /* 0: there is no such object */

/* Durable and whole when it returns. NULL: no root. */
int nvmalloc_heap_set_root(struct nvmalloc_heap *heap, const void *object);
void *nvmalloc_heap_root(struct nvmalloc_heap *heap);

uint64_t nvmalloc_heap_offset(const struct nvmalloc_heap *heap, const void *address); /* NULL: 0 */
void *nvmalloc_heap_address(const struct nvmalloc_heap *heap, uint64_t offset); /* 0: NULL */
uint64_t nvmalloc_heap_bytes(struct nvmalloc_heap *heap); /* of the file */
int nvmalloc_heap_is_emulated(const struct nvmalloc_heap *heap); /* the file system has no MAP_SYNC */

/* Of a protected heap: the application stores to these bytes from now on, until it says nvmalloc_heap_protect of the same ones. Each of two
 * who do says both, also of one object. The pages that the bytes lie in can be stored to as a whole meanwhile. */
int nvmalloc_heap_unprotect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes);
int nvmalloc_heap_protect(struct nvmalloc_heap *heap, const void *address, uint64_t bytes);
int nvmalloc_heap_is_protected(struct nvmalloc_heap *heap); /* no more, when the system has no room for more mappings */

struct nvmalloc_counts {
    uint64_t formatted_bytes; /* of the file: what was part of a block at least once, root lines included */
    uint64_t allocated_bytes, waiting_bytes, free_bytes,
        damaged_bytes; /* blocks, headers included; free: without the waiting ones */
    uint64_t allocated_blocks, waiting_blocks, damaged_blocks;
    uint64_t cut_short; /* blocks that did not wait for T, since memory was short; since the heap was opened */
};
void nvmalloc_heap_counts(struct nvmalloc_heap *heap, struct nvmalloc_counts *counts);

enum nvmalloc_part_state {
    NVMALLOC_PART_METADATA = 1,
    NVMALLOC_PART_ALLOCATED,
    NVMALLOC_PART_FREE, /* waiting blocks, and those that later requests may get, neighbours together */
    NVMALLOC_PART_DAMAGED,
};

struct nvmalloc_part {
    enum nvmalloc_part_state state;
    uint64_t offset;
    uint64_t bytes;
};

/* Visits every part in order of offset; together they are the whole file. */
void nvmalloc_heap_walk(struct nvmalloc_heap *heap, void (*visit)(void *context, const struct nvmalloc_part *part), void *context);

/* Compares media and volatile structures: NVMALLOC_OK, or NVMALLOC_CORRUPT and nvmalloc_message() tells the first contradiction. */
int nvmalloc_heap_check(struct nvmalloc_heap *heap);

/* ---- one heap a process, by the names of malloc (nvmalloc_dropin.h turns those into these) ---- */

int nvmalloc_start(const struct nvmalloc_options *options); /* opens the heap in the folder; creates it if there is none */
void nvmalloc_stop(void);
void *nvmalloc(size_t bytes); /* NULL: errno is ENOMEM, and nvmalloc_message() says why */
void nvfree(void *object); /* what is no allocated block is told to on_damage, and otherwise ignored */
void *nvcalloc(size_t count, size_t bytes);
/* A new object, then the old one is freed: only for objects that no persistent pointer leads to. Others: nvmalloc, copy, nvpersist,
 * store the pointer, nvfree. */
void *nvrealloc(void *object, size_t bytes);
size_t nvmalloc_usable_size(void *object);
void nvpersist(const void *address, size_t bytes);
int nvunprotect(const void *address, size_t bytes); /* of a heap that is protected: around each store to an object */
int nvprotect(const void *address, size_t bytes);
void *nvroot(void);
int nvset_root(const void *object);
uint64_t nvoffset(const void *address);
void *nvaddress(uint64_t offset);

#endif
