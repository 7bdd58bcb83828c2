/* SPDX-License-Identifier: Apache-2.0
 *
 * makalu.h - a persistent-memory allocator after Bhandari, Chakrabarti, Boehm: "Makalu: Fast Recoverable Allocation of
 * Non-volatile Memory", OOPSLA 2016, sections 5 to 11.
 *
 * malloc and free as everybody knows them, almost without flushes. What a power failure leaves behind is repaired offline: a
 * garbage collection finds what the persistent roots reach, and frees the rest. So an object survives exactly if it can be
 * reached from a root by pointers that are persisted:
 *
 *     struct node *e = MAK_malloc(sizeof *e);
 *     e->next = NULL;
 *     persist(e, sizeof *e);              // contents are the application's business
 *     list->first = e;                    // publishes; list is reachable from a root
 *     persist(&list->first, 8);
 *
 * The life of a region (§11):
 *
 *     MAK_start ----------------------------------> online -- MAK_close --> closed
 *     closed -- MAK_restart ----------------------> online
 *     after a failure -- MAK_start_off --> offline -- MAK_collect --> collected -- MAK_close --> closed
 *                                                                              -- MAK_restart_in_place --> online
 *
 * One region a process at a time, as in the paper. A region is mapped at the address it was created for, always: pointers into
 * it are ordinary pointers. When that range is taken, nothing is done and the message says so.
 *
 * Threads: MAK_malloc, MAK_calloc, MAK_realloc, MAK_free, MAK_safe_free and the roots may be called by any number of threads
 * while the region is online; everything else by one thread while no other is inside.
 */
#ifndef MAKALU_H
#define MAKALU_H

#include <stddef.h>
#include <stdint.h>

enum MAK_status {
    MAK_OK = 0,
    MAK_OUT_OF_MEMORY = 1,
    MAK_NOT_A_REGION = 2, /* no completely created region there */
    MAK_DIRTY = 3,        /* MAK_restart: the region was not closed; use MAK_start_off */
    MAK_CORRUPT = 4,      /* the region contradicts itself */
    MAK_INVALID = 5,      /* an argument or the moment is wrong; nothing changed */
    MAK_ADDRESS_TAKEN = 6, /* the region's address range is in use in this process */
    MAK_ERROR = 7,        /* the operating system failed */
};

/* Why the last call of this thread that failed did so: one line, never null. */
const char *MAK_message(void);

/* ---- Table 1: for the runtime that owns the region (NVMPL) ---- */

struct MAK_options {
    const char *folder;    /* exists; holds no region */
    uint64_t heap_bytes;   /* size of the file at first; 0: MAK_DEFAULT_HEAP_BYTES */
    uint64_t limit_bytes;  /* most it may grow to; 0: MAK_DEFAULT_LIMIT_BYTES. This much address space is reserved. */
    uintptr_t address;     /* where this region is mapped for ever; 0: MAK_DEFAULT_ADDRESS */
};

#define MAK_DEFAULT_HEAP_BYTES ((uint64_t)4 << 20)
#define MAK_DEFAULT_LIMIT_BYTES ((uint64_t)1 << 30)
#define MAK_DEFAULT_ADDRESS ((uintptr_t)0x200000000000)

/* A crash before it returns leaves what the other calls answer MAK_NOT_A_REGION: remove the file and start again (§11.1). */
int MAK_start(const struct MAK_options *options);
int MAK_restart(const char *folder);   /* of a region that was closed, or not used since it was opened (§11.1, §11.2) */
int MAK_start_off(const char *folder); /* replays the log, rebuilds auxiliary metadata (§9.1); allowed after a close too */
int MAK_collect(void);                 /* offline only (§9.2) */
int MAK_close(void);

/* §3.4, §10.1: from now on MAK_free only reports the object; MAK_safe_free frees it. NULL: MAK_free frees. Reset by close. */
void MAK_set_free_cb(void (*callback)(void *object));
void MAK_safe_free(void *object);

/* ---- Table 1: for the programmer ---- */

/* Contents are not made durable, those of MAK_calloc neither. NULL: MAK_message() says why. 0 bytes are taken for 1. */
void *MAK_malloc(size_t bytes);
void *MAK_calloc(size_t count, size_t bytes);
void *MAK_realloc(void *object, size_t bytes);
/* What is not an object of this region is left alone, and MAK_message() says so. */
void MAK_free(void *object);

/* Roots 0 to 511, NULL at first. Setting one is durable and atomic. */
int MAK_set_root(unsigned root, void *object);
void *MAK_get_root(unsigned root);

/* ---- beyond the paper ---- */

/* From collected to online, as MAK_close and MAK_restart would, but the region stays mapped. */
int MAK_restart_in_place(void);

/* Tells the region that it is in use, as the first allocation, deallocation or root of a life does by itself. An application
 * that unlinks an object before it called any of these in this life calls this before: else a failure in between leaves a
 * region that counts as closed, with that object allocated for good. */
int MAK_go_online(void);

/* A thread gives its freelists back. Happens by itself when a thread ends. */
void MAK_thread_exit(void);

/* Threads that MAK_collect marks with; 0: one for each processor. MAK_MARK_THREADS when built is the default. */
void MAK_set_mark_threads(unsigned threads);

uint64_t MAK_usable_bytes(const void *object); /* 0: there is no such object */
int MAK_is_object(const void *object);          /* the start of an object that is allocated, or in a freelist */
/* The object that MAK_collect takes the word for a pointer to or into; NULL: it is no pointer to it. */
void *MAK_object_at(uint64_t word);
void *MAK_base(void);
const char *MAK_folder(void); /* of the region that is open */
uint64_t MAK_file_bytes(void);

enum MAK_part_state {
    MAK_PART_METADATA = 1,
    MAK_PART_ALLOCATED,
    MAK_PART_FREE,
    MAK_PART_UNUSABLE, /* tail of a block */
};

struct MAK_part {
    enum MAK_part_state state;
    uint64_t offset; /* from the region's base */
    uint64_t bytes;
};

/* Visits every part in order of offset; together they are the whole file. Objects in freelists are free. */
int MAK_walk(void (*visit)(void *context, const struct MAK_part *part), void *context);

/* Compares media and volatile structures: MAK_OK, or MAK_CORRUPT and MAK_message() tells the first contradiction. */
int MAK_check(void);

#endif
