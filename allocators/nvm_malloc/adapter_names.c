/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_names.c - slots as named allocations (§3.6): slot 7 is the object called "slot.7.a", or "slot.7.b".
 *
 * Names cannot be moved to another object, hence two for each slot: reallocation activates the new object under the name that
 * is not in use, and frees the other. A crash between leaves both, complete: either will do, and b is freed.
 */
#include <stdbool.h>
#include <stdio.h>
#include <string.h>

#include "adapter_slots.h"

struct slot_id {
    char text[32];
};

static struct slot_id id_of(uint32_t slot, char variant) {
    struct slot_id id;
    snprintf(id.text, sizeof id.text, "slot.%u.%c", slot, variant);
    return id;
}

/* The variant in use, 0 if the slot is empty. */
static char find(fl_heap *heap, uint32_t slot, void **object) {
    for (char variant = 'a'; variant <= 'b'; variant++) {
        struct slot_id id = id_of(slot, variant);
        *object = nvm_heap_get_id(heap->heap, id.text);
        if (*object != NULL)
            return variant;
    }
    return 0;
}

static int make(fl_heap *heap, struct slot_id id, uint64_t bytes, const void *kept, uint64_t kept_bytes, fl_fill fill,
                void *context) {
    void *object;
    int status = adapter_status(nvm_heap_reserve_id(heap->heap, id.text, bytes, &object));
    if (status != FL_OK)
        return status;
    if (kept_bytes != 0) {
        memcpy(object, kept, kept_bytes);
        nvm_persist(object, kept_bytes);
    }
    if (kept_bytes < bytes)
        fill(context, object, kept_bytes, bytes - kept_bytes);
    return adapter_status(nvm_heap_activate_id(heap->heap, id.text));
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    void *object;
    if (find(heap, slot, &object) != 0)
        return adapter_fail(FL_ERROR, "the slot is in use");
    return make(heap, id_of(slot, 'a'), bytes, NULL, 0, fill, context);
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    void *object;
    char variant = find(heap, slot, &object);
    if (variant == 0)
        return adapter_fail(FL_ERROR, "the slot is empty");
    return adapter_status(nvm_heap_free_id(heap->heap, id_of(slot, variant).text));
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    void *old;
    char variant = find(heap, slot, &old);
    if (variant == 0)
        return adapter_fail(FL_ERROR, "the slot is empty");
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    int status = make(heap, id_of(slot, variant == 'a' ? 'b' : 'a'), new_bytes, old, kept, fill, context);
    return status != FL_OK ? status : adapter_status(nvm_heap_free_id(heap->heap, id_of(slot, variant).text));
}

static int read_slot(fl_heap *heap, uint32_t slot, uint64_t *offset) {
    void *object;
    find(heap, slot, &object);
    *offset = nvm_heap_relative(heap->heap, object);
    return FL_OK;
}

static int repair(fl_heap *heap, bool *is_changed) {
    int status = root_slots.repair(heap, is_changed);
    for (uint32_t slot = 0; slot < heap->roots->layout_slots && status == FL_OK; slot++) {
        struct slot_id a = id_of(slot, 'a'), b = id_of(slot, 'b');
        if (nvm_heap_get_id(heap->heap, a.text) == NULL || nvm_heap_get_id(heap->heap, b.text) == NULL)
            continue;
        *is_changed = true;
        status = adapter_status(nvm_heap_free_id(heap->heap, b.text));
    }
    return status;
}

static int check(fl_heap *heap) { return (void)heap, FL_OK; }

const struct slots named_slots = {allocate, free_slot, reallocate, read_slot, repair, check};
