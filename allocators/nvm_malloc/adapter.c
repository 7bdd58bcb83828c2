/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - nvm_malloc under faultline.
 *
 * The slots are the words of one named object. A heap is ready once that name exists: what creation left behind without it is
 * no heap. Link pointers make every operation atomic; reallocate, which has a new object and an old one, publishes the new
 * one in the hidden staging word first, and one free then moves it to the slot, clears staging and frees the old one.
 * open frees what a crash left in staging.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "nvm_malloc.h"
#include "persist.h"

#define ROOTS_ID "faultline.roots"

struct roots {
    uint64_t slot_count;
    uint64_t staging;
    uint64_t slots[]; /* relative pointers */
};

struct fl_heap {
    struct nvm_heap *heap;
    struct roots *roots;
};

static _Thread_local char own_message[256]; /* empty: ask the allocator */

static int fail(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

static const char *message(void) { return own_message[0] != '\0' ? own_message : nvm_message(); }

static int status_of(int nvm_status) {
    static const int table[] = {[NVM_OK] = FL_OK,
                                [NVM_OUT_OF_MEMORY] = FL_OUT_OF_MEMORY,
                                [NVM_TOO_LARGE] = FL_OUT_OF_MEMORY,
                                [NVM_NOT_A_HEAP] = FL_NOT_A_HEAP,
                                [NVM_CORRUPT] = FL_CORRUPT,
                                [NVM_INVALID] = FL_ERROR,
                                [NVM_ERROR] = FL_ERROR};
    own_message[0] = '\0';
    return table[nvm_status];
}

static uint64_t roots_bytes(uint64_t slot_count) { return sizeof(struct roots) + slot_count * sizeof(uint64_t); }

static int close_heap(fl_heap *heap) {
    nvm_heap_close(heap->heap);
    free(heap);
    return FL_OK;
}

static int make_roots(fl_heap *heap, uint32_t slot_count) {
    void *object;
    int status = status_of(nvm_heap_reserve_id(heap->heap, ROOTS_ID, roots_bytes(slot_count), &object));
    if (status != FL_OK)
        return status;
    heap->roots = object;
    memset(heap->roots, 0, roots_bytes(slot_count));
    heap->roots->slot_count = slot_count;
    nvm_persist(heap->roots, roots_bytes(slot_count));
    return status_of(nvm_heap_activate_id(heap->heap, ROOTS_ID));
}

static int create(const struct fl_heap_options *options, fl_heap **created) {
    const struct nvm_options nvm = {options->folder, options->heap_bytes, 0, options->address_hint};
    if (options->heap_bytes > options->limit_bytes)
        return fail(FL_ERROR, "heap_bytes is more than limit_bytes");
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return fail(FL_ERROR, "out of volatile memory");
    int status = status_of(nvm_heap_create(&nvm, &heap->heap));
    if (status != FL_OK) {
        free(heap);
        return status;
    }
    status = make_roots(heap, options->slot_count);
    if (status != FL_OK)
        close_heap(heap);
    else
        *created = heap;
    return status;
}

static int find_roots(fl_heap *heap, uint32_t slot_count) {
    heap->roots = nvm_heap_get_id(heap->heap, ROOTS_ID);
    if (heap->roots == NULL)
        return fail(FL_NOT_A_HEAP, "the heap has no object named " ROOTS_ID ": its creation was not completed");
    if (heap->roots->slot_count != slot_count || roots_bytes(slot_count) > nvm_heap_usable_bytes(heap->heap, heap->roots))
        return fail(FL_ERROR, "the heap was created with another number of slots");
    return FL_OK;
}

static int free_staged(fl_heap *heap) {
    void *staged = nvm_heap_absolute(heap->heap, heap->roots->staging);
    return status_of(nvm_heap_free(heap->heap, staged, &heap->roots->staging, NULL, NULL, NULL));
}

static int open_heap(const struct fl_heap_options *options, fl_heap **opened) {
    const struct nvm_options nvm = {.folder = options->folder, .address_hint = options->address_hint};
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return fail(FL_ERROR, "out of volatile memory");
    int status = status_of(nvm_heap_open(&nvm, &heap->heap));
    if (status != FL_OK) {
        free(heap);
        return status;
    }
    status = find_roots(heap, options->slot_count);
    if (status == FL_OK && heap->roots->staging != 0) {
        status = free_staged(heap);
        close_heap(heap); /* opening again turns the run that this may have emptied into free memory */
        return status == FL_OK ? open_heap(options, opened) : status;
    }
    if (status != FL_OK)
        close_heap(heap);
    else
        *opened = heap;
    return status;
}

/* The slot's word; null with a message if there is no such slot or it is (not) empty as expected. */
static uint64_t *slot_word(fl_heap *heap, uint32_t slot, int is_live) {
    uint64_t *word = &heap->roots->slots[slot];
    if (slot >= heap->roots->slot_count)
        return fail(0, "no such slot"), NULL;
    if ((*word != 0) != is_live)
        return fail(0, is_live ? "the slot is empty" : "the slot is in use"), NULL;
    return word;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, 0);
    void *object;
    if (word == NULL)
        return FL_ERROR;
    int status = status_of(nvm_heap_reserve(heap->heap, bytes, &object));
    if (status != FL_OK)
        return status;
    fill(context, object, 0, bytes);
    return status_of(nvm_heap_activate(heap->heap, object, word, object, NULL, NULL));
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t *word = slot_word(heap, slot, 1);
    if (word == NULL)
        return FL_ERROR;
    return status_of(nvm_heap_free(heap->heap, nvm_heap_absolute(heap->heap, *word), word, NULL, NULL, NULL));
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, 1), *staging = &heap->roots->staging;
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object;
    if (word == NULL)
        return FL_ERROR;
    int status = status_of(nvm_heap_reserve(heap->heap, new_bytes, &object));
    if (status != FL_OK)
        return status;
    void *old = nvm_heap_absolute(heap->heap, *word);
    memcpy(object, old, kept);
    nvm_persist(object, kept);
    if (kept < new_bytes)
        fill(context, object, kept, new_bytes - kept);
    status = status_of(nvm_heap_activate(heap->heap, object, staging, object, NULL, NULL));
    if (status != FL_OK)
        return status;
    return status_of(nvm_heap_free(heap->heap, old, word, object, staging, NULL));
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    if (slot >= heap->roots->slot_count)
        return fail(FL_ERROR, "no such slot");
    uint64_t offset = heap->roots->slots[slot];
    *location = (struct fl_location){.file = 0, .is_set = offset != 0, .offset = offset};
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap;
    return file == 0 ? "heap" : NULL;
}

struct walk {
    uint64_t roots; /* offset of the object that is ours */
    fl_visit visit;
    void *context;
    struct fl_block *containing; /* bounds: the block that holds this offset */
    uint64_t wanted;
};

static void visit_part(void *context, const struct nvm_part *part) {
    static const uint32_t states[] = {[NVM_PART_METADATA] = FL_BLOCK_METADATA,
                                      [NVM_PART_ALLOCATED] = FL_BLOCK_ALLOCATED,
                                      [NVM_PART_RESERVED] = FL_BLOCK_RESERVED,
                                      [NVM_PART_FREE] = FL_BLOCK_FREE,
                                      [NVM_PART_UNUSABLE] = FL_BLOCK_UNUSABLE};
    struct walk *walk = context;
    struct fl_block block = {0, states[part->state], part->offset, part->bytes};
    if (part->offset == walk->roots)
        block.state = FL_BLOCK_METADATA;
    if (walk->visit != NULL)
        walk->visit(walk->context, &block);
    else if (walk->wanted >= part->offset && walk->wanted < part->offset + part->bytes)
        *walk->containing = block;
}

static int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    struct walk walk = {nvm_heap_relative(heap->heap, heap->roots), visit, context, NULL, 0};
    nvm_heap_walk(heap->heap, visit_part, &walk);
    return FL_OK;
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    struct walk walk = {nvm_heap_relative(heap->heap, heap->roots), NULL, NULL, block, object->offset};
    if (object->file != 0 || !object->is_set || object->offset >= nvm_heap_bytes(heap->heap))
        return fail(FL_ERROR, "the location is not in the heap");
    nvm_heap_walk(heap->heap, visit_part, &walk);
    return FL_OK;
}

static int check(fl_heap *heap) { return status_of(nvm_heap_check(heap->heap)); }

static int settle(fl_heap *heap) { return (void)heap, FL_OK; /* open scans everything */ }

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .name = "nvm_malloc",
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_SETTLE | FL_CAN_REOPEN_IN_PROCESS | FL_CAN_RELOCATE,
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_slot,
        .reallocate = reallocate,
        .read_slot = read_slot,
        .file_name = file_name,
        .message = message,
        .walk = walk_heap,
        .check = check,
        .bounds = bounds,
        .settle = settle,
    };
    return &table;
}
