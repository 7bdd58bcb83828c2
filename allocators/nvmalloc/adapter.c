/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - nvmalloc under faultline.
 *
 * The slots are words of one object, which the root leads to; they hold offsets. A heap is ready once the root is set: what creation
 * left behind without it is no heap. Allocation and publication are two steps, as with any malloc: nvmalloc, one persisted store to
 * the slot, and only then the content, so that nothing but nvmalloc's own fence stands between the header and the slot. free empties
 * the slot first.
 *
 * nvmalloc_protected is the same with PROTECTED: the heap is protected (section 4), and whoever stores says so first.
 *
 * The clock counts operations, so that runs are deterministic, and blocks wait for a few of them only.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "nvmalloc.h"
#include "persist.h"

#define WAIT_OPERATIONS 3u
#if defined(PROTECTED)
#define NAME "nvmalloc_protected"
#define IS_PROTECTED 1
#else
#define NAME "nvmalloc"
#define IS_PROTECTED 0
#endif

struct slots {
    uint64_t count;
    uint64_t words[]; /* offsets; 0: empty */
};

struct fl_heap {
    struct nvmalloc_heap *heap;
    struct slots *slots;
};

static _Thread_local char own_message[256]; /* empty: ask the allocator */

static int fail(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

static const char *message(void) { return own_message[0] != '\0' ? own_message : nvmalloc_message(); }

static int status_of(int nvmalloc_status) {
    static const int table[] = {[NVMALLOC_OK] = FL_OK,
                                [NVMALLOC_OUT_OF_MEMORY] = FL_OUT_OF_MEMORY,
                                [NVMALLOC_TOO_LARGE] = FL_OUT_OF_MEMORY,
                                [NVMALLOC_NOT_A_HEAP] = FL_NOT_A_HEAP,
                                [NVMALLOC_CORRUPT] = FL_CORRUPT,
                                [NVMALLOC_INVALID] = FL_ERROR,
                                [NVMALLOC_ERROR] = FL_ERROR};
    own_message[0] = '\0';
    return table[nvmalloc_status];
}

static uint64_t slots_bytes(uint64_t count) { return sizeof(struct slots) + count * sizeof(uint64_t); }

static int store_word(fl_heap *heap, uint64_t *word, uint64_t offset) {
    int status = nvmalloc_heap_unprotect(heap->heap, word, sizeof *word);
    if (status != NVMALLOC_OK)
        return status_of(status);
    fl_store8(word, offset);
    fl_persist(word, sizeof *word);
    return status_of(nvmalloc_heap_protect(heap->heap, word, sizeof *word));
}

/* ---- create, open, close ---- */

static struct nvmalloc_options options_of(const struct fl_heap_options *options) {
    return (struct nvmalloc_options){.folder = options->folder,
                                     .heap_bytes = options->heap_bytes,
                                     .limit_bytes = options->limit_bytes,
                                     .address_hint = options->address_hint,
                                     .clock = NVMALLOC_CLOCK_OPERATIONS,
                                     .wait_ticks = WAIT_OPERATIONS,
                                     .is_protected = IS_PROTECTED};
}

static int close_heap(fl_heap *heap) {
    nvmalloc_heap_close(heap->heap);
    free(heap);
    return FL_OK;
}

static int make_slots(fl_heap *heap, uint32_t count) {
    void *object = NULL;
    int status = status_of(nvmalloc_heap_allocate(heap->heap, slots_bytes(count), &object));
    if (status != FL_OK)
        return status;
    status = status_of(nvmalloc_heap_unprotect(heap->heap, object, slots_bytes(count)));
    if (status != FL_OK)
        return status;
    heap->slots = object;
    memset(heap->slots, 0, slots_bytes(count));
    heap->slots->count = count;
    fl_flush(heap->slots, slots_bytes(count)); /* set_root fences; until it returns the count may be missing */
    status = status_of(nvmalloc_heap_protect(heap->heap, object, slots_bytes(count)));
    return status != FL_OK ? status : status_of(nvmalloc_heap_set_root(heap->heap, heap->slots));
}

static int find_slots(fl_heap *heap, uint32_t count) {
    heap->slots = nvmalloc_heap_root(heap->heap);
    if (heap->slots == NULL || heap->slots->count == 0)
        return fail(FL_NOT_A_HEAP, "the heap has no slots: their creation was not completed");
    if (nvmalloc_heap_usable_bytes(heap->heap, heap->slots) < slots_bytes(count) || heap->slots->count != count)
        return fail(FL_ERROR, "the heap was created with another number of slots");
    return FL_OK;
}

static int begin(const struct fl_heap_options *options, bool is_new, fl_heap **begun) {
    const struct nvmalloc_options nvmalloc = options_of(options);
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return fail(FL_ERROR, "out of volatile memory");
    int status = status_of(is_new ? nvmalloc_heap_create(&nvmalloc, &heap->heap) : nvmalloc_heap_open(&nvmalloc, &heap->heap));
    if (status != FL_OK) {
        free(heap);
        return status;
    }
    status = is_new ? make_slots(heap, options->slot_count) : find_slots(heap, options->slot_count);
    if (status != FL_OK)
        close_heap(heap);
    else
        *begun = heap;
    return status;
}

static int create(const struct fl_heap_options *options, fl_heap **created) { return begin(options, true, created); }
static int open_heap(const struct fl_heap_options *options, fl_heap **opened) { return begin(options, false, opened); }

/* ---- objects ---- */

/* The slot's word; null with a message if there is no such slot or it is (not) empty as expected. */
static uint64_t *slot_word(fl_heap *heap, uint32_t slot, bool is_live) {
    if (slot >= heap->slots->count)
        return fail(0, "no such slot"), NULL;
    if ((heap->slots->words[slot] != 0) != is_live)
        return fail(0, is_live ? "the slot is empty" : "the slot is in use"), NULL;
    return &heap->slots->words[slot];
}

static int fill_object(fl_heap *heap, void *object, uint64_t from, uint64_t bytes, fl_fill fill, void *context) {
    int status = nvmalloc_heap_unprotect(heap->heap, (char *)object + from, bytes);
    if (status != NVMALLOC_OK)
        return status_of(status);
    fill(context, object, from, bytes);
    return status_of(nvmalloc_heap_protect(heap->heap, (char *)object + from, bytes));
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, false);
    void *object = NULL;
    int status = word == NULL ? FL_ERROR : status_of(nvmalloc_heap_allocate(heap->heap, bytes, &object));
    if (status != FL_OK)
        return status;
    status = store_word(heap, word, nvmalloc_heap_offset(heap->heap, object));
    return status != FL_OK ? status : fill_object(heap, object, 0, bytes, fill, context);
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t *word = slot_word(heap, slot, true);
    if (word == NULL)
        return FL_ERROR;
    void *object = nvmalloc_heap_address(heap->heap, *word);
    int status = store_word(heap, word, 0);
    return status != FL_OK ? status : status_of(nvmalloc_heap_free(heap->heap, object));
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, true), kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object = NULL;
    int status = word == NULL ? FL_ERROR : status_of(nvmalloc_heap_allocate(heap->heap, new_bytes, &object));
    if (status != FL_OK)
        return status;
    void *old = nvmalloc_heap_address(heap->heap, *word);
    status = status_of(nvmalloc_heap_unprotect(heap->heap, object, kept));
    if (status != FL_OK)
        return status;
    memcpy(object, old, kept);
    fl_persist(object, kept);
    status = status_of(nvmalloc_heap_protect(heap->heap, object, kept));
    if (status == FL_OK && kept < new_bytes)
        status = fill_object(heap, object, kept, new_bytes - kept, fill, context);
    if (status == FL_OK)
        status = store_word(heap, word, nvmalloc_heap_offset(heap->heap, object));
    return status != FL_OK ? status : status_of(nvmalloc_heap_free(heap->heap, old));
}

/* ---- looking ---- */

static struct fl_location location_of(uint64_t offset) {
    return (struct fl_location){.file = 0, .is_set = offset != 0, .offset = offset};
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    if (slot >= heap->slots->count)
        return fail(FL_ERROR, "no such slot");
    *location = location_of(heap->slots->words[slot]);
    return FL_OK;
}

static int read_slots(fl_heap *heap, uint32_t first, uint32_t count, fl_visit_slot visit, void *context) {
    if (first + count > heap->slots->count)
        return fail(FL_ERROR, "no such slot");
    const uint64_t *words = heap->slots->words;
    for (uint32_t slot = first; slot < first + count; slot++) {
        struct fl_location location = location_of(words[slot]);
        if (location.is_set)
            visit(context, slot, &location);
    }
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap;
    return file == 0 ? "heap" : NULL;
}

struct walk {
    uint64_t slots; /* offset of the object that is ours */
    fl_visit visit;
    void *context;
    struct fl_block *containing; /* bounds: the part that holds this offset */
    uint64_t wanted;
};

static void visit_part(void *context, const struct nvmalloc_part *part) {
    static const uint32_t states[] = {[NVMALLOC_PART_METADATA] = FL_BLOCK_METADATA,
                                      [NVMALLOC_PART_ALLOCATED] = FL_BLOCK_ALLOCATED,
                                      [NVMALLOC_PART_FREE] = FL_BLOCK_FREE,
                                      [NVMALLOC_PART_DAMAGED] = FL_BLOCK_UNUSABLE};
    struct walk *walk = context;
    struct fl_block block = {0, states[part->state], part->offset, part->bytes};
    if (part->offset == walk->slots)
        block.state = FL_BLOCK_METADATA;
    if (walk->visit != NULL)
        walk->visit(walk->context, &block);
    else if (walk->wanted >= part->offset && walk->wanted < part->offset + part->bytes)
        *walk->containing = block;
}

static int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    struct walk walk = {nvmalloc_heap_offset(heap->heap, heap->slots), visit, context, NULL, 0};
    nvmalloc_heap_walk(heap->heap, visit_part, &walk);
    return FL_OK;
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    struct walk walk = {nvmalloc_heap_offset(heap->heap, heap->slots), NULL, NULL, block, object->offset};
    if (object->file != 0 || !object->is_set || object->offset >= nvmalloc_heap_bytes(heap->heap))
        return fail(FL_ERROR, "the location is not in the heap");
    nvmalloc_heap_walk(heap->heap, visit_part, &walk);
    return FL_OK;
}

/* Nobody damages headers here but the allocator itself, or whoever asks whether it notices. */
static int check(fl_heap *heap) {
    struct nvmalloc_counts counts;
    nvmalloc_heap_counts(heap->heap, &counts);
    if (counts.damaged_blocks > 0)
        return fail(FL_CORRUPT, "the heap has damaged headers");
    return status_of(nvmalloc_heap_check(heap->heap));
}

static int thread_attach(fl_heap *heap) { return (void)heap, FL_OK; }
static int thread_detach(fl_heap *heap) { return (void)heap, FL_OK; }

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .name = NAME,
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_THREADS | FL_CAN_RELOCATE,
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_slot,
        .reallocate = reallocate,
        .read_slot = read_slot,
        .read_slots = read_slots,
        .file_name = file_name,
        .message = message,
        .walk = walk_heap,
        .check = check,
        .bounds = bounds,
        .thread_attach = thread_attach,
        .thread_detach = thread_detach,
    };
    return &table;
}
