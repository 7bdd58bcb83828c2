/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_chain.c - slots as the nodes of one doubly linked list, Listing 1 grown up.
 *
 * A node is a line in front of what the application sees, which so stays aligned to lines as nvm_malloc promises:
 *
 *     | slot number, next, previous, unused | object ...
 *
 * Allocation appends: activate sets both neighbours' words, &last->next and &anchor->previous. Free does the same for the two
 * neighbours of the node that leaves. Reallocation stages the new node, with the old one's neighbours in it; the old one's free
 * then sets both neighbours' words to the new node. That takes both links, so staging is cleared after it: a staged node that
 * is in the list when the heap is opened is only forgotten there, another one is freed.
 */
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_slots.h"
#include "persist.h"

struct node {
    struct chain_links links;
    uint64_t slot;
    uint64_t unused[5];
    uint8_t object[];
};

_Static_assert(sizeof(struct node) == CHAIN_NODE_BYTES, "the object after it is aligned to a line");
_Static_assert(offsetof(struct node, links) == 0, "nodes and the anchor are reached by their links");

static struct chain_links *anchor_of(fl_heap *heap) { return &heap->roots->chain; }

static uint64_t relative(fl_heap *heap, const void *pointer) { return nvm_heap_relative(heap->heap, pointer); }

/* The links that a relative pointer leads to: a node's or the anchor's. Null: damaged. */
static struct chain_links *follow(fl_heap *heap, uint64_t offset) {
    if (offset == relative(heap, anchor_of(heap)))
        return anchor_of(heap);
    if (offset == 0 || offset % CHAIN_NODE_BYTES != 0 || offset >= nvm_heap_bytes(heap->heap))
        return NULL;
    void *node = nvm_heap_absolute(heap->heap, offset);
    return nvm_heap_usable_bytes(heap->heap, node) > CHAIN_NODE_BYTES ? node : NULL;
}

/* The node after these links; null at the end of the list. *status: FL_CORRUPT if the list is damaged. */
static struct node *next_node(fl_heap *heap, const struct chain_links *links, int *status) {
    struct chain_links *next = follow(heap, links->next);
    if (next == NULL || next->previous != relative(heap, links)) {
        *status = adapter_fail(FL_CORRUPT, "the list of nodes is damaged: a node's neighbour is no node, or does not lead back");
        return NULL;
    }
    if (next == anchor_of(heap))
        return NULL;
    struct node *node = (struct node *)next;
    if (node->slot < heap->roots->layout_slots)
        return node;
    *status = adapter_fail(FL_CORRUPT, "the list of nodes is damaged: a node has a slot number that does not exist");
    return NULL;
}

/* Calls visit for each node, until it returns true. */
static int for_each(fl_heap *heap, bool (*visit)(void *context, struct node *node), void *context) {
    int status = FL_OK;
    uint64_t count = 0;
    struct node *node = next_node(heap, anchor_of(heap), &status);
    while (node != NULL && !visit(context, node)) {
        if (++count > heap->roots->layout_slots)
            return adapter_fail(FL_CORRUPT, "the list of nodes is damaged: it has more nodes than slots");
        node = next_node(heap, &node->links, &status);
    }
    return status;
}

struct search {
    uint64_t slot;
    struct node *node;
};

static bool is_of_slot(void *context, struct node *node) {
    struct search *search = context;
    if (node->slot == search->slot)
        search->node = node;
    return search->node != NULL;
}

/* *node: null if the slot is empty. */
static int find(fl_heap *heap, uint32_t slot, struct node **node) {
    struct search search = {slot, NULL};
    int status = for_each(heap, is_of_slot, &search);
    *node = search.node;
    return status;
}

/* A reserved node between two links, content included. */
static int make(fl_heap *heap, uint32_t slot, uint64_t bytes, struct chain_links links, struct node **made) {
    void *object;
    int status = adapter_status(nvm_heap_reserve(heap->heap, CHAIN_NODE_BYTES + bytes, &object));
    if (status != FL_OK)
        return status;
    *made = object;
    **made = (struct node){.links = links, .slot = slot};
    nvm_persist(*made, sizeof **made);
    return FL_OK;
}

static int append(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    struct chain_links *anchor = anchor_of(heap);
    struct node *node;
    int status = find(heap, slot, &node);
    if (status != FL_OK || node != NULL)
        return status != FL_OK ? status : adapter_fail(FL_ERROR, "the slot is in use");
    struct chain_links *last = nvm_heap_absolute(heap->heap, anchor->previous);
    status = make(heap, slot, bytes, (struct chain_links){relative(heap, anchor), anchor->previous}, &node);
    if (status != FL_OK)
        return status;
    fill(context, node->object, 0, bytes);
    return adapter_status(nvm_heap_activate(heap->heap, node, &last->next, node, &anchor->previous, node));
}

/* The node leaves the list, which closes over it with these two. */
static int unlink_node(fl_heap *heap, struct node *node, void *next_of_previous, void *previous_of_next) {
    struct chain_links *previous = nvm_heap_absolute(heap->heap, node->links.previous);
    struct chain_links *next = nvm_heap_absolute(heap->heap, node->links.next);
    return adapter_status(nvm_heap_free(heap->heap, node, &previous->next, next_of_previous, &next->previous, previous_of_next));
}

static int find_live(fl_heap *heap, uint32_t slot, struct node **node) {
    int status = find(heap, slot, node);
    return status == FL_OK && *node == NULL ? adapter_fail(FL_ERROR, "the slot is empty") : status;
}

static int remove_node(fl_heap *heap, uint32_t slot) {
    struct node *node;
    int status = find_live(heap, slot, &node);
    if (status != FL_OK)
        return status;
    return unlink_node(heap, node, nvm_heap_absolute(heap->heap, node->links.next),
                       nvm_heap_absolute(heap->heap, node->links.previous));
}

static void clear_staging(fl_heap *heap) {
    fl_store8(&heap->roots->staging, 0);
    nvm_persist(&heap->roots->staging, sizeof(uint64_t));
}

static int replace(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    struct node *old, *node;
    int status = find_live(heap, slot, &old);
    if (status == FL_OK)
        status = make(heap, slot, new_bytes, old->links, &node);
    if (status != FL_OK)
        return status;
    memcpy(node->object, old->object, kept);
    nvm_persist(node->object, kept);
    if (kept < new_bytes)
        fill(context, node->object, kept, new_bytes - kept);
    status = adapter_status(nvm_heap_activate(heap->heap, node, &heap->roots->staging, node, NULL, NULL));
    if (status == FL_OK)
        status = unlink_node(heap, old, node, node);
    if (status == FL_OK)
        clear_staging(heap);
    return status;
}

/* ---- the list is one object to the application: one thread at a time ---- */

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    pthread_mutex_lock(&heap->lock);
    int status = append(heap, slot, bytes, fill, context);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    pthread_mutex_lock(&heap->lock);
    int status = remove_node(heap, slot);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    pthread_mutex_lock(&heap->lock);
    int status = replace(heap, slot, old_bytes, new_bytes, fill, context);
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static int read_slot(fl_heap *heap, uint32_t slot, uint64_t *offset) {
    struct node *node;
    pthread_mutex_lock(&heap->lock);
    int status = find(heap, slot, &node);
    *offset = status != FL_OK || node == NULL ? 0 : relative(heap, node) + CHAIN_NODE_BYTES;
    pthread_mutex_unlock(&heap->lock);
    return status;
}

/* ---- after a crash ---- */

static bool is_staged(void *context, struct node *node) {
    struct search *search = context; /* slot: the staged node's offset */
    if ((uint64_t)((char *)node - (char *)search->node) == search->slot)
        search->slot = 0;
    return search->slot == 0;
}

static int repair(fl_heap *heap, bool *is_changed) {
    if (heap->roots->staging == 0)
        return FL_OK;
    struct search search = {heap->roots->staging, (struct node *)((char *)heap->roots - relative(heap, heap->roots))};
    int status = for_each(heap, is_staged, &search);
    if (status != FL_OK)
        return status;
    if (search.slot != 0)
        return root_slots.repair(heap, is_changed);
    clear_staging(heap);
    return FL_OK;
}

/* ---- what is in the list ---- */

struct listing {
    fl_heap *heap;
    uint64_t *offsets;
    uint64_t count;
};

static bool list_node(void *context, struct node *node) {
    struct listing *listing = context;
    if (listing->count < listing->heap->roots->layout_slots)
        listing->offsets[listing->count++] = relative(listing->heap, node);
    return false;
}

static int compare_offsets(const void *a, const void *b) {
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return (x > y) - (x < y);
}

int chain_nodes(fl_heap *heap, uint64_t **nodes, uint64_t *count) {
    struct listing listing = {heap, calloc(heap->roots->layout_slots + 1, sizeof(uint64_t)), 0};
    *nodes = listing.offsets;
    if (listing.offsets == NULL)
        return adapter_fail(FL_ERROR, "out of volatile memory");
    int status = for_each(heap, list_node, &listing);
    qsort(listing.offsets, listing.count, sizeof *listing.offsets, compare_offsets);
    *count = listing.count;
    return status;
}

static bool never(void *context, struct node *node) { return (void)context, (void)node, false; }

static int check(fl_heap *heap) { return for_each(heap, never, NULL); }

const struct slots chained_slots = {allocate, free_slot, reallocate, read_slot, repair, check};
