/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter_root.c - slots as words of the roots.
 *
 * A link pointer to the slot's word makes an operation atomic. Reallocation publishes the new object in the staging word; one
 * free then moves it to the slot, clears staging and frees the old one. A crash between leaves it staged, and it is freed.
 */
#include <stdbool.h>
#include <string.h>

#include "adapter_slots.h"

/* The slot's word; null with a message if it is not (or is) empty. */
static uint64_t *slot_word(fl_heap *heap, uint32_t slot, bool is_live) {
    uint64_t *word = &heap->roots->slots[slot];
    if ((*word != 0) == is_live)
        return word;
    adapter_fail(0, is_live ? "the slot is empty" : "the slot is in use");
    return NULL;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, false);
    void *object;
    if (word == NULL)
        return FL_ERROR;
    int status = adapter_status(nvm_heap_reserve(heap->heap, bytes, &object));
    if (status != FL_OK)
        return status;
    fill(context, object, 0, bytes);
    return adapter_status(nvm_heap_activate(heap->heap, object, word, object, NULL, NULL));
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t *word = slot_word(heap, slot, true);
    if (word == NULL)
        return FL_ERROR;
    return adapter_status(nvm_heap_free(heap->heap, nvm_heap_absolute(heap->heap, *word), word, NULL, NULL, NULL));
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, true), *staging = &heap->roots->staging;
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object;
    if (word == NULL)
        return FL_ERROR;
    int status = adapter_status(nvm_heap_reserve(heap->heap, new_bytes, &object));
    if (status != FL_OK)
        return status;
    void *old = nvm_heap_absolute(heap->heap, *word);
    memcpy(object, old, kept);
    nvm_persist(object, kept);
    if (kept < new_bytes)
        fill(context, object, kept, new_bytes - kept);
    pthread_mutex_lock(&heap->lock);
    status = adapter_status(nvm_heap_activate(heap->heap, object, staging, object, NULL, NULL));
    if (status == FL_OK)
        status = adapter_status(nvm_heap_free(heap->heap, old, word, object, staging, NULL));
    pthread_mutex_unlock(&heap->lock);
    return status;
}

static int read_slot(fl_heap *heap, uint32_t slot, uint64_t *offset) {
    *offset = heap->roots->slots[slot];
    return FL_OK;
}

static int repair(fl_heap *heap, bool *is_changed) {
    uint64_t *staging = &heap->roots->staging;
    if (*staging == 0)
        return FL_OK;
    *is_changed = true;
    return adapter_status(nvm_heap_free(heap->heap, nvm_heap_absolute(heap->heap, *staging), staging, NULL, NULL, NULL));
}

static int check(fl_heap *heap) { return (void)heap, FL_OK; }

const struct slots root_slots = {allocate, free_slot, reallocate, read_slot, repair, check};
