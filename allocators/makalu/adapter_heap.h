/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_heap.h - what the parts of makalu's adapter share.
 *
 *   adapter.c        the heap, its slots, allocation, looking
 *   adapter_graph.c  the graph layout: fields of objects, and frees that are deferred
 */
#ifndef FAULTLINE_MAKALU_ADAPTER_HEAP_H
#define FAULTLINE_MAKALU_ADAPTER_HEAP_H

#include <stdbool.h>

#include "adapter.h"
#include "makalu.h"

#define FIELDS_BYTES ((uint64_t)FL_GRAPH_FIELDS * sizeof(uint64_t))

struct slots {
    uint64_t count;
    uint64_t words[]; /* addresses */
};

struct fl_heap {
    struct slots *slots;
    uint32_t graph_slots; /* the first ones; their objects have fields */
    bool has_recovered;   /* open found a region that was not closed */
};

/* Whoever loads the adapter may have functions of these names. */
#pragma GCC visibility push(hidden)

/* ---- adapter.c */
int fail(int status, const char *text);
int status_of(int mak_status);
/* The slot's word; null with a message if there is no such slot or it is (not) empty as expected. */
uint64_t *slot_word(fl_heap *heap, uint32_t slot, int is_live);
/* One store of a pointer, persisted. */
void store_word(uint64_t *word, const void *object);
/* Of what an application sees of the object at the address, which has that many bytes in front of it. Address 0: null. */
struct fl_location location_of(uint64_t address, uint64_t front_bytes);

static inline void *object_in(const uint64_t *word) { return (void *)(uintptr_t)*word; }

/* Bytes in front of what the application sees of the slot's object. */
static inline uint64_t front_bytes(const fl_heap *heap, uint32_t slot) { return slot < heap->graph_slots ? FIELDS_BYTES : 0; }

/* ---- adapter_graph.c */
int link_field(fl_heap *heap, uint32_t slot, uint32_t field, uint32_t target_slot);
int unlink_field(fl_heap *heap, uint32_t slot, uint32_t field);
int drop_slot(fl_heap *heap, uint32_t slot);
int load_field(fl_heap *heap, uint32_t slot, uint32_t from_slot, uint32_t field);
int read_field(fl_heap *heap, const struct fl_location *object, uint32_t field, struct fl_location *target);
/* From now on MAK_free defers. */
void defer_frees(void);
void run_deferred_frees(void);

#pragma GCC visibility pop

#endif
