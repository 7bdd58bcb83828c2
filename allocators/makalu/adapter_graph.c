/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_graph.c - the graph layout: FL_GRAPH_FIELDS ordinary pointers at the start of each object, which the collector follows.
 *
 * Frees are deferred in this layout, as a runtime with failure-atomic sections of its own does it (§3.4, §10.1): MAK_free reports the
 * object, and MAK_safe_free frees it some frees later, when memory runs out, or before the heap is closed. A failure in between
 * leaves an object that nothing reaches.
 */
#include <string.h>

#include "adapter_heap.h"

enum { DEFERRED_FREES = 3 };

/* Of the one region of this process, oldest first. */
static struct {
    void *objects[DEFERRED_FREES];
    unsigned count;
} deferred;

static void run_oldest(void) {
    MAK_safe_free(deferred.objects[0]);
    deferred.count--;
    memmove(deferred.objects, deferred.objects + 1, deferred.count * sizeof *deferred.objects);
}

static void defer(void *object) {
    if (deferred.count == DEFERRED_FREES)
        run_oldest();
    deferred.objects[deferred.count++] = object;
}

void defer_frees(void) { MAK_set_free_cb(defer); }

void run_deferred_frees(void) {
    while (deferred.count > 0)
        run_oldest();
}

/* A pointer field of the slot's object; null with a message. */
static uint64_t *field_of(fl_heap *heap, uint32_t slot, uint32_t field) {
    uint64_t *word = slot_word(heap, slot, 1);
    if (word == NULL)
        return NULL;
    if (slot >= heap->graph_slots || field >= FL_GRAPH_FIELDS)
        return fail(0, "the object has no such field"), NULL;
    return (uint64_t *)object_in(word) + field;
}

/* What takes a pointer away may be the first change of this life. */
static int replace(uint64_t *word, const void *object) {
    int status = word == NULL ? FL_ERROR : status_of(MAK_go_online());
    if (status == FL_OK)
        store_word(word, object);
    return status;
}

int link_field(fl_heap *heap, uint32_t slot, uint32_t field, uint32_t target_slot) {
    uint64_t *target = slot_word(heap, target_slot, 1);
    return target == NULL ? FL_ERROR : replace(field_of(heap, slot, field), object_in(target));
}

int unlink_field(fl_heap *heap, uint32_t slot, uint32_t field) { return replace(field_of(heap, slot, field), NULL); }

int drop_slot(fl_heap *heap, uint32_t slot) { return replace(slot_word(heap, slot, 1), NULL); }

int load_field(fl_heap *heap, uint32_t slot, uint32_t from_slot, uint32_t field) {
    const uint64_t *from = field_of(heap, from_slot, field);
    if (from == NULL)
        return FL_ERROR;
    if (*from == 0)
        return fail(FL_ERROR, "the field is null");
    return replace(slot_word(heap, slot, 0), object_in(from));
}

int read_field(fl_heap *heap, const struct fl_location *object, uint32_t field, struct fl_location *target) {
    (void)heap;
    if (object->file != 0 || object->offset < FIELDS_BYTES || object->offset > MAK_file_bytes() || field >= FL_GRAPH_FIELDS)
        return fail(FL_ERROR, "the object has no such field");
    uint64_t word;
    memcpy(&word, (const char *)MAK_base() + object->offset - FIELDS_BYTES + field * sizeof word, sizeof word);
    *target = location_of(word, FIELDS_BYTES);
    return FL_OK;
}
