/* SPDX-License-Identifier: Apache-2.0
 *
 * What a workload file alone says of its objects in the graph layout, as if every allocate succeeded: which object each slot and
 * each field holds. An object that neither slots nor fields reach any more is garbage: its fields hold nothing up.
 */
#include "workload/workload.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Objects are numbered from 1 in the order of their allocations; 0: null. */
struct linked_object {
    uint64_t bytes;
    uint32_t fields[FL_GRAPH_FIELDS];
    uint32_t slots;  /* that hold it */
    uint32_t holds;  /* fields that hold it, of garbage too */
    uint32_t search; /* that met it last */
};

struct links {
    uint32_t slot_count;
    uint32_t *slots;
    struct linked_object *objects;
    uint32_t count, capacity;
    uint32_t *stack; /* of a search: each object once */
    uint32_t search;
};

struct links *links_new(uint32_t slots) {
    struct links *links = allocate_or_fail(NULL, sizeof *links);
    *links = (struct links){.slot_count = slots};
    links->slots = allocate_or_fail(NULL, slots * sizeof *links->slots);
    links_forget(links);
    return links;
}

void links_forget(struct links *links) {
    memset(links->slots, 0, links->slot_count * sizeof *links->slots);
    links->count = 1;
    links->search = 0;
}

void links_free(struct links *links) {
    if (links == NULL)
        return;
    free(links->slots);
    free(links->objects);
    free(links->stack);
    free(links);
}

static struct linked_object *object_in(const struct links *links, uint32_t slot) { return &links->objects[links->slots[slot]]; }

uint64_t links_bytes(const struct links *links, uint32_t slot) { return object_in(links, slot)->bytes; }

bool links_is_set(const struct links *links, uint32_t slot, uint32_t field) { return object_in(links, slot)->fields[field] != 0; }

static void put(struct links *links, uint32_t slot, uint32_t object) {
    links->slots[slot] = object;
    links->objects[object].slots++;
}

static void hold(struct links *links, struct linked_object *holder, uint32_t field, uint32_t object) {
    if (holder->fields[field] != 0)
        links->objects[holder->fields[field]].holds--;
    if (object != 0)
        links->objects[object].holds++;
    holder->fields[field] = object;
}

void links_allocate(struct links *links, uint32_t slot, uint64_t bytes) {
    if (links->count >= links->capacity) {
        links->capacity = links->capacity == 0 ? 256 : links->capacity * 2;
        links->objects = allocate_or_fail(links->objects, links->capacity * sizeof *links->objects);
        links->stack = allocate_or_fail(links->stack, links->capacity * sizeof *links->stack);
    }
    links->objects[links->count] = (struct linked_object){.bytes = bytes};
    put(links, slot, links->count++);
}

void links_reallocate(struct links *links, uint32_t slot, uint64_t bytes) { object_in(links, slot)->bytes = bytes; }

void links_free_object(struct links *links, uint32_t slot) {
    for (uint32_t field = 0; field < FL_GRAPH_FIELDS; field++)
        hold(links, object_in(links, slot), field, 0);
    links_drop(links, slot);
}

void links_link(struct links *links, uint32_t slot, uint32_t field, uint32_t target_slot) {
    hold(links, object_in(links, slot), field, links->slots[target_slot]);
}

void links_unlink(struct links *links, uint32_t slot, uint32_t field) { hold(links, object_in(links, slot), field, 0); }

void links_drop(struct links *links, uint32_t slot) {
    object_in(links, slot)->slots--;
    links->slots[slot] = 0;
}

void links_load(struct links *links, uint32_t slot, uint32_t from_slot, uint32_t field) {
    put(links, slot, object_in(links, from_slot)->fields[field]);
}

/* ---- what still holds an object --------------------------------------------------------------------------------------- */

struct holder {
    uint32_t object, field;
};

/* The first holder of the wanted object among what the start reaches and no start of this search did before. */
static bool find_holder(struct links *links, uint32_t start, uint32_t wanted, struct holder *holder) {
    uint32_t depth = 0;
    if (links->objects[start].search != links->search)
        links->stack[depth++] = start;
    links->objects[start].search = links->search;
    while (depth > 0) {
        *holder = (struct holder){.object = links->stack[--depth]};
        const uint32_t *fields = links->objects[holder->object].fields;
        for (; holder->field < FL_GRAPH_FIELDS; holder->field++) {
            uint32_t target = fields[holder->field];
            if (target == wanted)
                return true;
            if (target == 0 || links->objects[target].search == links->search)
                continue;
            links->objects[target].search = links->search;
            links->stack[depth++] = target;
        }
    }
    return false;
}

bool links_find_holder(struct links *links, uint32_t slot, char text[LINKS_TEXT_BYTES]) {
    uint32_t wanted = links->slots[slot];
    for (uint32_t other = 0; links->objects[wanted].slots > 1 && other < links->slot_count; other++)
        if (other != slot && links->slots[other] == wanted) {
            snprintf(text, LINKS_TEXT_BYTES, "is in slot %u too: drop that first", other);
            return true;
        }
    if (links->objects[wanted].holds == 0)
        return false;
    links->search++;
    for (uint32_t root = 0; root < links->slot_count; root++) {
        struct holder holder;
        if (links->slots[root] == 0 || !find_holder(links, links->slots[root], wanted, &holder))
            continue;
        if (holder.object == links->slots[root])
            snprintf(text, LINKS_TEXT_BYTES, "is still linked from slot %u's field %u: unlink it first", root, holder.field);
        else
            snprintf(text, LINKS_TEXT_BYTES, "is still linked from field %u of an object that slot %u reaches: unlink it first",
                     holder.field, root);
        return true;
    }
    return false;
}
