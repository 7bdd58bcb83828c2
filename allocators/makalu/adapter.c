/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - Makalu under faultline.
 *
 * The slots are the words of one object, which persistent root 0 reaches: they hold ordinary pointers, so the collector follows
 * them. A heap is ready once the root is set: what creation left behind without it is no heap. Allocation and publication are
 * two steps: malloc, fill, then one persisted store to the slot; free clears the slot first. A failure in between leaves an
 * object that nothing reaches, which open collects. In the graph layout objects have fields in front (adapter_graph.c).
 *
 * open takes the region as it is if it was closed; else it recovers, collects and goes online.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter_heap.h"
#include "persist.h"

static _Thread_local char own_message[256]; /* empty: ask the allocator */

int fail(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

static const char *message(void) { return own_message[0] != '\0' ? own_message : MAK_message(); }

int status_of(int mak_status) {
    static const int table[] = {[MAK_OK] = FL_OK,
                                [MAK_OUT_OF_MEMORY] = FL_OUT_OF_MEMORY,
                                [MAK_NOT_A_REGION] = FL_NOT_A_HEAP,
                                [MAK_DIRTY] = FL_ERROR,
                                [MAK_CORRUPT] = FL_CORRUPT,
                                [MAK_INVALID] = FL_ERROR,
                                [MAK_ADDRESS_TAKEN] = FL_ERROR,
                                [MAK_ERROR] = FL_ERROR};
    own_message[0] = '\0';
    return table[mak_status];
}

static uint64_t slots_bytes(uint64_t count) { return sizeof(struct slots) + count * sizeof(uint64_t); }

void store_word(uint64_t *word, const void *object) {
    fl_store8(word, (uint64_t)(uintptr_t)object);
    fl_persist(word, sizeof *word);
}

/* ---- create, open, close ---- */

static int close_heap(fl_heap *heap) {
    free(heap);
    run_deferred_frees();
    return status_of(MAK_close());
}

static fl_heap *new_heap(const struct fl_heap_options *options) {
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        fail(0, "out of volatile memory");
    else
        heap->graph_slots = options->slot_layout == FL_SLOTS_GRAPH ? options->layout_slots : 0;
    return heap;
}

/* The region forgets it when it is closed. */
static void set_free_callback(const fl_heap *heap) {
    if (heap->graph_slots > 0)
        defer_frees();
}

static int make_slots(fl_heap *heap, uint32_t count) {
    heap->slots = MAK_malloc(slots_bytes(count));
    if (heap->slots == NULL)
        return status_of(MAK_OUT_OF_MEMORY);
    memset(heap->slots, 0, slots_bytes(count));
    heap->slots->count = count;
    fl_flush(heap->slots, slots_bytes(count)); /* the root's fence is theirs too; if power fails before it, the count may be 0 */
    return status_of(MAK_set_root(0, heap->slots));
}

static int create(const struct fl_heap_options *options, fl_heap **created) {
    const struct MAK_options mak = {options->folder, options->heap_bytes, options->limit_bytes, options->address_hint};
    fl_heap *heap = new_heap(options);
    if (heap == NULL)
        return FL_ERROR;
    int status = status_of(MAK_start(&mak));
    if (status != FL_OK) {
        free(heap);
        return status;
    }
    set_free_callback(heap);
    status = make_slots(heap, options->slot_count);
    if (status != FL_OK)
        close_heap(heap);
    else
        *created = heap;
    return status;
}

static int open_region(const char *folder, bool *has_recovered) {
    int status = MAK_restart(folder);
    *has_recovered = status == MAK_DIRTY;
    if (!*has_recovered)
        return status;
    status = MAK_start_off(folder);
    if (status == MAK_OK)
        status = MAK_collect();
    if (status == MAK_OK)
        status = MAK_restart_in_place();
    return status;
}

static int find_slots(fl_heap *heap, uint32_t count) {
    heap->slots = MAK_get_root(0);
    if (heap->slots == NULL)
        return fail(FL_NOT_A_HEAP, "root 0 of the region is not set: the creation of the slots was not completed");
    uint64_t bytes = MAK_usable_bytes(heap->slots);
    if (bytes < sizeof(struct slots))
        return fail(FL_CORRUPT, "root 0 of the region refers to no object");
    if (heap->slots->count == 0)
        return fail(FL_NOT_A_HEAP, "the slots have no count: their creation was not completed");
    if (slots_bytes(count) > bytes || heap->slots->count != count)
        return fail(FL_ERROR, "the heap was created with another number of slots");
    return FL_OK;
}

static int open_heap(const struct fl_heap_options *options, fl_heap **opened) {
    fl_heap *heap = new_heap(options);
    if (heap == NULL)
        return FL_ERROR;
    int status = status_of(open_region(options->folder, &heap->has_recovered));
    if (status != FL_OK) {
        int saved = status;
        char text[sizeof own_message];
        snprintf(text, sizeof text, "%s", MAK_message());
        MAK_close(); /* the recovery may have come half-way */
        free(heap);
        return fail(saved, text);
    }
    status = find_slots(heap, options->slot_count);
    if (status != FL_OK) {
        free(heap);
        MAK_close();
    } else {
        set_free_callback(heap);
        *opened = heap;
    }
    return status;
}

/* ---- objects ---- */

uint64_t *slot_word(fl_heap *heap, uint32_t slot, int is_live) {
    if (slot >= heap->slots->count)
        return fail(0, "no such slot"), NULL;
    if ((heap->slots->words[slot] != 0) != is_live)
        return fail(0, is_live ? "the slot is empty" : "the slot is in use"), NULL;
    return &heap->slots->words[slot];
}

/* Memory that deferred frees hold back is there too. */
static void *allocate_object(uint64_t bytes) {
    void *object = MAK_malloc(bytes);
    if (object != NULL)
        return object;
    run_deferred_frees();
    return MAK_malloc(bytes);
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, 0);
    if (word == NULL)
        return FL_ERROR;
    uint64_t front = front_bytes(heap, slot);
    char *object = allocate_object(front + bytes);
    if (object == NULL)
        return status_of(MAK_OUT_OF_MEMORY);
    if (front > 0) {
        memset(object, 0, front);
        fl_flush(object, front); /* fill persists, and its fence is theirs too */
    }
    fill(context, object + front, 0, bytes);
    store_word(word, object);
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t *word = slot_word(heap, slot, 1);
    if (word == NULL)
        return FL_ERROR;
    int status = status_of(MAK_go_online()); /* before the object is unlinked */
    if (status != FL_OK)
        return status;
    void *object = object_in(word);
    store_word(word, NULL);
    MAK_free(object);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t *word = slot_word(heap, slot, 1);
    uint64_t front = front_bytes(heap, slot), kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    if (word == NULL)
        return FL_ERROR;
    char *object = allocate_object(front + new_bytes);
    void *old = object_in(word);
    if (object == NULL)
        return status_of(MAK_OUT_OF_MEMORY);
    memcpy(object, old, front + kept);
    fl_persist(object, front + kept);
    if (kept < new_bytes)
        fill(context, object + front, kept, new_bytes - kept);
    store_word(word, object);
    MAK_free(old);
    return FL_OK;
}

/* ---- looking ---- */

struct fl_location location_of(uint64_t address, uint64_t front_bytes) {
    uint64_t offset = address + front_bytes - (uint64_t)(uintptr_t)MAK_base();
    return (struct fl_location){.file = 0, .is_set = address != 0, .offset = address == 0 ? 0 : offset};
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    if (slot >= heap->slots->count)
        return fail(FL_ERROR, "no such slot");
    *location = location_of(heap->slots->words[slot], front_bytes(heap, slot));
    return FL_OK;
}

static int word_target(fl_heap *heap, uint64_t word, struct fl_location *target) {
    (void)heap;
    *target = location_of((uint64_t)(uintptr_t)MAK_object_at(word), 0);
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap;
    return file == 0 ? "region" : NULL;
}

struct walk {
    uint64_t slots; /* offset of the object that is ours */
    fl_visit visit;
    void *context;
    struct fl_block *containing; /* bounds: the part that holds this offset */
    uint64_t wanted;
};

static void visit_part(void *context, const struct MAK_part *part) {
    static const uint32_t states[] = {[MAK_PART_METADATA] = FL_BLOCK_METADATA,
                                      [MAK_PART_ALLOCATED] = FL_BLOCK_ALLOCATED,
                                      [MAK_PART_FREE] = FL_BLOCK_FREE,
                                      [MAK_PART_UNUSABLE] = FL_BLOCK_UNUSABLE};
    struct walk *walk = context;
    struct fl_block block = {0, states[part->state], part->offset, part->bytes};
    if (part->offset == walk->slots)
        block.state = FL_BLOCK_METADATA;
    if (walk->visit != NULL)
        walk->visit(walk->context, &block);
    else if (walk->wanted >= part->offset && walk->wanted < part->offset + part->bytes)
        *walk->containing = block;
}

static uint64_t offset_of_slots(fl_heap *heap) { return (uint64_t)((char *)heap->slots - (char *)MAK_base()); }

static int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    struct walk walk = {offset_of_slots(heap), visit, context, NULL, 0};
    return status_of(MAK_walk(visit_part, &walk));
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    struct walk walk = {offset_of_slots(heap), NULL, NULL, block, object->offset};
    if (object->file != 0 || !object->is_set || object->offset >= MAK_file_bytes())
        return fail(FL_ERROR, "the location is not in the heap");
    return status_of(MAK_walk(visit_part, &walk));
}

static int has_recovered(const fl_heap *heap) { return heap->has_recovered; }

static int check(fl_heap *heap) { return (void)heap, status_of(MAK_check()); }

/* Offline only (§9.2): the region is closed, collected and opened again. */
static int collect(fl_heap *heap) {
    char folder[4096];
    snprintf(folder, sizeof folder, "%s", MAK_folder());
    run_deferred_frees();
    int status = MAK_close();
    if (status == MAK_OK)
        status = MAK_start_off(folder);
    if (status == MAK_OK)
        status = MAK_collect();
    if (status == MAK_OK)
        status = MAK_restart_in_place();
    if (status == MAK_OK) {
        heap->slots = MAK_get_root(0);
        set_free_callback(heap);
    }
    return status_of(status);
}

static int thread_attach(fl_heap *heap) { return (void)heap, FL_OK; /* a thread's first call does it */ }

static int thread_detach(fl_heap *heap) {
    (void)heap;
    MAK_thread_exit();
    return FL_OK;
}

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .name = "makalu",
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_COLLECT | FL_CAN_THREADS | FL_CAN_LINK,
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
        .collect = collect,
        .thread_attach = thread_attach,
        .thread_detach = thread_detach,
        .link = link_field,
        .unlink = unlink_field,
        .drop = drop_slot,
        .load = load_field,
        .read_field = read_field,
        .word_target = word_target,
        .has_recovered = has_recovered,
    };
    return &table;
}
