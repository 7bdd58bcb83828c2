/* SPDX-License-Identifier: Apache-2.0
 *
 * The objects that slots reach through fields, in the graph layout: breadth first, each once; then those in the other slots, where
 * a follow-up may have left some. After a wrong recovery a field may hold anything: only what lies in an allocated heap block is
 * taken for an object and asked for its fields.
 */
#include "probe/probe.h"
#include <stdlib.h>

#define TABLE_SIZE (2 * FL_MAX_OBJECTS) /* a power of two */

struct search {
    struct objects *objects;
    const struct blocks *blocks;
    uint32_t *table; /* by hash of the location: number in the list + 1; 0: none */
};

/* Where the location is in the table, or belongs. */
static uint32_t *place_of(const struct search *search, const struct fl_location *location) {
    uint64_t hash = (location->offset ^ (uint64_t)location->file << 56) * 0x9e3779b97f4a7c15ull;
    for (uint32_t at = (uint32_t)(hash >> 32) % TABLE_SIZE;; at = (at + 1) % TABLE_SIZE) {
        uint32_t number = search->table[at];
        const struct fl_location *there = number == 0 ? NULL : &search->objects->list[number - 1].location;
        if (there == NULL || (there->file == location->file && there->offset == location->offset))
            return &search->table[at];
    }
}

static void meet(struct search *search, const struct fl_location *location) {
    struct objects *objects = search->objects;
    if (blocks_find_allocated(search->blocks, location) == NULL)
        return;
    uint32_t *place = place_of(search, location);
    if (*place != 0)
        return;
    if (objects->count == FL_MAX_OBJECTS) {
        objects->is_bounded = true;
        return;
    }
    objects->list[objects->count++] = (struct object){.location = *location};
    *place = objects->count;
}

static int meet_slots(struct search *search, const struct fl_adapter *adapter, fl_heap *heap, uint32_t first, uint32_t end) {
    for (uint32_t slot = first; slot < end; slot++) {
        struct fl_location location = {0};
        int status = adapter->read_slot(heap, slot, &location);
        if (status != FL_OK)
            return status;
        meet(search, &location);
    }
    return FL_OK;
}

static int meet_fields(struct search *search, const struct fl_adapter *adapter, fl_heap *heap) {
    struct objects *objects = search->objects;
    for (uint32_t number = 0; number < objects->count; number++)
        for (uint32_t field = 0; field < FL_GRAPH_FIELDS; field++) {
            struct object *object = &objects->list[number];
            int status = adapter->read_field(heap, &object->location, field, &object->fields[field]);
            if (status != FL_OK)
                return status;
            meet(search, &object->fields[field]);
        }
    return FL_OK;
}

int objects_reach(struct objects *objects, const struct blocks *blocks, const struct fl_adapter *adapter, fl_heap *heap,
                  uint32_t graph_slots, uint32_t slots) {
    struct search search = {objects, blocks, calloc(TABLE_SIZE, sizeof(uint32_t))};
    objects->count = 0;
    objects->is_bounded = false;
    if (objects->list == NULL)
        objects->list = malloc(FL_MAX_OBJECTS * sizeof *objects->list);
    if (objects->list == NULL || search.table == NULL)
        report_broken("no memory to keep the objects in");
    int status = meet_slots(&search, adapter, heap, 0, graph_slots);
    if (status == FL_OK)
        status = meet_fields(&search, adapter, heap);
    if (status == FL_OK) /* these have no fields */
        status = meet_slots(&search, adapter, heap, graph_slots, slots);
    free(search.table);
    return status;
}
