/* SPDX-License-Identifier: Apache-2.0
 *
 * nvm_malloc.h - a persistent-memory allocator after Schwalb, Berning, Faust, Dreseler, Plattner: "nvm_malloc: Memory
 * Allocation for NVRAM", ADMS 2015, section 3. (Not NVMalloc of Moraru et al., 2011, whose names begin with nvmalloc: ../nvmalloc.)
 *
 * An allocation takes two steps. reserve hands out memory without a trace on media; the application fills and persists it;
 * activate then makes the allocation durable and, in the same failure-atomic step, sets up to two link pointers to their
 * targets. free undoes both in one step too. So nothing is ever lost: memory is allocated exactly if it is linked.
 *
 *     struct node *e = nvm_reserve(sizeof *e);
 *     e->next = 0;
 *     nvm_persist(e, sizeof *e);
 *     nvm_activate(e, &root->next, e, NULL, NULL);
 *
 * A link pointer is an 8-byte aligned word of an allocation of the same heap. It holds a *relative* pointer, since a heap
 * may be mapped elsewhere next time: read it with nvm_absolute. Targets are given as ordinary pointers into the heap, or
 * NULL.
 *
 * Any number of threads may use a heap. Two rules are theirs: an object is activated, or freed, by one thread at a time, and so
 * is a link pointer's word written. Objects may be freed by other threads than those that allocated them.
 *
 * The heap's file grows by chunks on demand, up to a limit for which addresses are reserved when it is opened.
 */
#ifndef NVM_MALLOC_H
#define NVM_MALLOC_H

#include <stdint.h>

enum nvm_status {
    NVM_OK = 0,
    NVM_OUT_OF_MEMORY = 1, /* no room in the heap or in the object table; nothing changed */
    NVM_TOO_LARGE = 2,     /* more than the heap's limit could ever hold; nothing changed */
    NVM_NOT_A_HEAP = 3,    /* no completely created heap there */
    NVM_CORRUPT = 4,       /* the heap contradicts itself */
    NVM_INVALID = 5,       /* an argument is wrong; nothing changed */
    NVM_ERROR = 6,         /* the operating system failed */
};

/* Why the last call of this thread that failed did so: one line, never null. */
const char *nvm_message(void);

/* ---- Table 3: one heap a process ---- */

/* recover 0: creates a heap of NVM_DEFAULT_HEAP_BYTES in the folder; else opens the one that is there, and a thread goes on
 * recovering it (§3.7). */
int nvm_initialize(const char *working_dir, int recover);
void *nvm_reserve(uint64_t bytes); /* NULL: nvm_message() says why */
int nvm_activate(void *object, void *link_1, const void *target_1, void *link_2, const void *target_2);
/* Of an object that is only reserved: gives it back; the links must be NULL then. NVM_INVALID if the object has a name: that is
 * nvm_free_id's. */
int nvm_free(void *object, void *link_1, const void *target_1, void *link_2, const void *target_2);
void *nvm_reserve_id(const char *id, uint64_t bytes); /* id: 1 to 55 characters */
int nvm_activate_id(const char *id);
int nvm_free_id(const char *id);
void *nvm_get_id(const char *id); /* NULL: no activated object has this id */
void nvm_persist(const void *address, uint64_t bytes);
void nvm_shutdown(void);
void *nvm_absolute(uint64_t relative);        /* 0: NULL */
uint64_t nvm_relative(const void *absolute);  /* NULL: 0 */

#define NVM_DEFAULT_HEAP_BYTES ((uint64_t)64 << 20)
#define NVM_DEFAULT_LIMIT_BYTES ((uint64_t)1 << 40) /* addresses to reserve; the paper's 10 TiB leave little for others */

/* ---- the same by handle ---- */

struct nvm_heap;

enum nvm_lazy { NVM_LAZY_BY_THREAD = 1, NVM_LAZY_BY_STEPS = 2 };

struct nvm_options {
    const char *folder;
    uint64_t heap_bytes;  /* create: a multiple of chunk_bytes */
    uint64_t chunk_bytes; /* create: a power of two, 0: NVM_CHUNK_BYTES */
    uintptr_t address_hint; /* where to map, if that is free; 0: anywhere */
    uint64_t limit_bytes; /* most that the file may grow to; 0: NVM_DEFAULT_LIMIT_BYTES. Never less than the file has already */
    int is_lazy; /* open: return before the chunks are scanned. Requests that lack memory wait for the scan. Whether each name has an
                  * object, which other opens ask last, nvm_heap_check asks. NVM_LAZY_BY_STEPS: no thread scans, but nvm_heap_step, and
                  * requests that lack memory */
};

/* create: the folder must exist and hold no heap. A crash inside leaves a heap that open answers NVM_NOT_A_HEAP. */
int nvm_heap_create(const struct nvm_options *options, struct nvm_heap **heap);
int nvm_heap_open(const struct nvm_options *options, struct nvm_heap **heap);
int nvm_heap_settle(struct nvm_heap *heap); /* waits for the scan, or does it; NVM_CORRUPT if it found damage */
/* Of a heap that was opened with NVM_LAZY_BY_STEPS: scans one chunk. *is_settled: none is left. */
int nvm_heap_step(struct nvm_heap *heap, int *is_settled);
void nvm_heap_close(struct nvm_heap *heap); /* when no other thread uses it any more */

/* Optional: a thread gets its arena at its first request, or here. */
void nvm_thread_attach(struct nvm_heap *heap);
void nvm_thread_detach(struct nvm_heap *heap);

int nvm_heap_reserve(struct nvm_heap *heap, uint64_t bytes, void **object);
int nvm_heap_activate(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2);
int nvm_heap_free(struct nvm_heap *heap, void *object, void *link_1, const void *target_1, void *link_2, const void *target_2);
int nvm_heap_reserve_id(struct nvm_heap *heap, const char *id, uint64_t bytes, void **object);
int nvm_heap_activate_id(struct nvm_heap *heap, const char *id);
int nvm_heap_free_id(struct nvm_heap *heap, const char *id);
void *nvm_heap_get_id(struct nvm_heap *heap, const char *id);

void *nvm_heap_absolute(const struct nvm_heap *heap, uint64_t relative);
uint64_t nvm_heap_relative(const struct nvm_heap *heap, const void *absolute);
uint64_t nvm_heap_bytes(const struct nvm_heap *heap);
int nvm_heap_is_emulated(const struct nvm_heap *heap); /* the file system has no MAP_SYNC */

/* Bytes an activated or reserved object may use; 0: there is no such object. */
uint64_t nvm_heap_usable_bytes(struct nvm_heap *heap, const void *object);

/* ---- looking at a heap ---- */

enum nvm_part_state {
    NVM_PART_METADATA = 1,
    NVM_PART_ALLOCATED,
    NVM_PART_RESERVED,
    NVM_PART_FREE,
    NVM_PART_UNUSABLE, /* tail of a run */
};

struct nvm_part {
    enum nvm_part_state state;
    uint64_t offset; /* from the heap's base */
    uint64_t bytes;
};

/* Both wait for the scan, and are for moments when no other thread uses the heap. */

/* Visits every part in order of offset; together they are the whole file. */
void nvm_heap_walk(struct nvm_heap *heap, void (*visit)(void *context, const struct nvm_part *part), void *context);

/* Compares media and volatile structures: NVM_OK, or NVM_CORRUPT and nvm_message() tells the first contradiction. */
int nvm_heap_check(struct nvm_heap *heap);

#endif
