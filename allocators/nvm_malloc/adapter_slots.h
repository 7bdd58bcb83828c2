/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_slots.h - the slot layouts of nvm_malloc's adapter, one file each.
 *
 * All of them start at one named object, the roots. A layout makes allocation, free and reallocation one failure-atomic step
 * each, by what nvm_malloc offers for that. Reallocation needs a new object beside the old one, and so a moment with both:
 * whatever a crash leaves of that, repair() undoes or finishes when the heap is opened.
 */
#ifndef NVM_ADAPTER_SLOTS_H
#define NVM_ADAPTER_SLOTS_H

#include <pthread.h>
#include <stdbool.h>

#include "adapter.h"
#include "nvm_malloc.h"

/* In the list of the chain layout: the neighbours, relative. The roots are the list's anchor, so that every node has two. */
struct chain_links {
    uint64_t next, previous;
};

struct roots {
    uint64_t slot_count;
    uint64_t layout, layout_slots;
    uint64_t staging; /* new object of a reallocation that is under way; relative */
    struct chain_links chain;
    uint64_t slots[]; /* relative pointers */
};

struct fl_heap {
    struct nvm_heap *heap;
    struct roots *roots;
    pthread_mutex_t lock; /* of staging, of which there is one, and of the chain: an application locks its own data */
};

struct slots {
    int (*allocate)(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context);
    int (*free)(fl_heap *heap, uint32_t slot);
    int (*reallocate)(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context);
    int (*read)(fl_heap *heap, uint32_t slot, uint64_t *offset); /* 0: empty */
    /* Sets *is_changed if there was anything to do. */
    int (*repair)(fl_heap *heap, bool *is_changed);
    int (*check)(fl_heap *heap);
};

extern const struct slots root_slots, named_slots, chained_slots;

/* Sets the message. */
int adapter_fail(int status, const char *text);
/* FL_OK, or the adapter's status for the allocator's, whose message stays. */
int adapter_status(int nvm_status);

/* chain: offsets of the nodes, ascending; *count of them. FL_CORRUPT if the list is damaged. To be freed. */
int chain_nodes(fl_heap *heap, uint64_t **nodes, uint64_t *count);
#define CHAIN_NODE_BYTES 64u

#endif
