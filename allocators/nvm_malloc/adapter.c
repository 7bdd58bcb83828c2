/* SPDX-License-Identifier: Apache-2.0
 *
 * adapter.c - nvm_malloc under faultline.
 *
 * A heap is ready once the object named ROOTS_ID exists: what creation left behind without it is no heap. The slots are the
 * business of adapter_root.c, adapter_names.c and adapter_chain.c.
 *
 * open waits for the recovery that nvm_malloc would leave to a thread. A lazy open (FL_OPEN_LAZY) leaves it to step, so that exploring
 * a crash state needs no thread; with -DADAPTER_SCANS_BY_THREAD to the thread.
 */
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "adapter.h"
#include "adapter_slots.h"
#include "nvm_malloc.h"

#define ROOTS_ID "faultline.roots"

#if defined(ADAPTER_SCANS_BY_THREAD)
#define LAZY NVM_LAZY_BY_THREAD
#else
#define LAZY NVM_LAZY_BY_STEPS
#endif

static _Thread_local char own_message[256]; /* empty: ask the allocator */

int adapter_fail(int status, const char *text) {
    snprintf(own_message, sizeof own_message, "%s", text);
    return status;
}

static const char *message(void) { return own_message[0] != '\0' ? own_message : nvm_message(); }

int adapter_status(int nvm_status) {
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
    pthread_mutex_destroy(&heap->lock);
    free(heap);
    return FL_OK;
}

static fl_heap *new_heap(void) {
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        adapter_fail(FL_ERROR, "out of volatile memory");
    else
        pthread_mutex_init(&heap->lock, NULL);
    return heap;
}

static void drop_heap(fl_heap *heap) {
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

/* ---- create ---- */

static int make_roots(fl_heap *heap, const struct fl_heap_options *options) {
    uint64_t bytes = roots_bytes(options->slot_count);
    void *object;
    int status = adapter_status(nvm_heap_reserve_id(heap->heap, ROOTS_ID, bytes, &object));
    if (status != FL_OK)
        return status;
    heap->roots = object;
    memset(heap->roots, 0, bytes);
    heap->roots->slot_count = options->slot_count;
    heap->roots->layout = options->slot_layout;
    heap->roots->layout_slots = options->slot_layout == FL_SLOTS_ROOT ? 0 : options->layout_slots;
    heap->roots->chain.next = heap->roots->chain.previous = nvm_heap_relative(heap->heap, &heap->roots->chain);
    nvm_persist(heap->roots, bytes);
    return adapter_status(nvm_heap_activate_id(heap->heap, ROOTS_ID));
}

static int check_options(const struct fl_heap_options *options) {
    if (options->heap_bytes > options->limit_bytes)
        return adapter_fail(FL_ERROR, "heap_bytes is more than limit_bytes");
    if (options->slot_layout > FL_SLOTS_CHAIN || options->layout_slots > options->slot_count)
        return adapter_fail(FL_ERROR, "no such slot layout, or more slots in it than there are");
    return FL_OK;
}

static int create(const struct fl_heap_options *options, fl_heap **created) {
    const struct nvm_options nvm = {.folder = options->folder,
                                    .heap_bytes = options->heap_bytes,
                                    .address_hint = options->address_hint,
                                    .limit_bytes = options->limit_bytes};
    int status = check_options(options);
    fl_heap *heap = status == FL_OK ? new_heap() : NULL;
    if (heap == NULL)
        return FL_ERROR;
    status = adapter_status(nvm_heap_create(&nvm, &heap->heap));
    if (status != FL_OK) {
        drop_heap(heap);
        return status;
    }
    status = make_roots(heap, options);
    if (status != FL_OK)
        close_heap(heap);
    else
        *created = heap;
    return status;
}

/* ---- open ---- */

static int find_roots(fl_heap *heap, const struct fl_heap_options *options) {
    heap->roots = nvm_heap_get_id(heap->heap, ROOTS_ID);
    if (heap->roots == NULL)
        return adapter_fail(FL_NOT_A_HEAP, "the heap has no object named " ROOTS_ID ": its creation was not completed");
    if (heap->roots->slot_count != options->slot_count ||
        roots_bytes(options->slot_count) > nvm_heap_usable_bytes(heap->heap, heap->roots))
        return adapter_fail(FL_ERROR, "the heap was created with another number of slots");
    bool is_same = heap->roots->layout == options->slot_layout &&
                   (options->slot_layout == FL_SLOTS_ROOT || heap->roots->layout_slots == options->layout_slots);
    return is_same ? FL_OK : adapter_fail(FL_ERROR, "the heap was created with another slot layout");
}

static const struct slots *layout_of(const fl_heap *heap) {
    static const struct slots *const layouts[] = {
        [FL_SLOTS_ROOT] = &root_slots, [FL_SLOTS_NAMES] = &named_slots, [FL_SLOTS_CHAIN] = &chained_slots};
    return layouts[heap->roots->layout];
}

static int open_heap(const struct fl_heap_options *options, fl_heap **opened) {
    const struct nvm_options nvm = {.folder = options->folder,
                                    .address_hint = options->address_hint,
                                    .limit_bytes = options->limit_bytes,
                                    .is_lazy = (options->flags & FL_OPEN_LAZY) != 0 ? LAZY : 0};
    fl_heap *heap = new_heap();
    if (heap == NULL)
        return FL_ERROR;
    int status = adapter_status(nvm_heap_open(&nvm, &heap->heap));
    if (status != FL_OK) {
        drop_heap(heap);
        return status;
    }
    bool is_changed = false;
    status = find_roots(heap, options);
    if (status == FL_OK)
        status = layout_of(heap)->repair(heap, &is_changed);
    if (status == FL_OK && is_changed) {
        close_heap(heap); /* opening again turns the run that this may have emptied into free memory */
        return open_heap(options, opened);
    }
    if (status != FL_OK)
        close_heap(heap);
    else
        *opened = heap;
    return status;
}

/* ---- slots ---- */

/* The layout that the slot is kept in; null with a message: there is no such slot. */
static const struct slots *slots_of(const fl_heap *heap, uint32_t slot) {
    if (slot >= heap->roots->slot_count)
        return adapter_fail(0, "no such slot"), NULL;
    return slot < heap->roots->layout_slots ? layout_of(heap) : &root_slots;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    const struct slots *slots = slots_of(heap, slot);
    return slots == NULL ? FL_ERROR : slots->allocate(heap, slot, bytes, fill, context);
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    const struct slots *slots = slots_of(heap, slot);
    return slots == NULL ? FL_ERROR : slots->free(heap, slot);
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    const struct slots *slots = slots_of(heap, slot);
    return slots == NULL ? FL_ERROR : slots->reallocate(heap, slot, old_bytes, new_bytes, fill, context);
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    const struct slots *slots = slots_of(heap, slot);
    uint64_t offset = 0;
    int status = slots == NULL ? FL_ERROR : slots->read(heap, slot, &offset);
    *location = (struct fl_location){.file = 0, .is_set = offset != 0, .offset = offset};
    return status;
}

/* Those of the root layout are one array. */
static int read_slots(fl_heap *heap, uint32_t first, uint32_t count, fl_visit_slot visit, void *context) {
    uint32_t own = (uint32_t)heap->roots->layout_slots, end = first + count;
    for (; first < end && first < own; first++) {
        struct fl_location location;
        int status = read_slot(heap, first, &location);
        if (status != FL_OK)
            return status;
        if (location.is_set)
            visit(context, first, &location);
    }
    if (first < end && end > heap->roots->slot_count)
        return adapter_fail(FL_ERROR, "no such slot");
    const uint64_t *words = heap->roots->slots;
    for (; first < end; first++) {
        uint64_t offset = words[first];
        if (offset != 0)
            visit(context, first, &(struct fl_location){.file = 0, .is_set = true, .offset = offset});
    }
    return FL_OK;
}

/* ---- looking at the heap ---- */

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap;
    return file == 0 ? "heap" : NULL;
}

struct walk {
    fl_heap *heap;
    fl_visit visit;
    void *context;
    uint64_t *nodes; /* chain layout: offsets, ascending */
    uint64_t node_count, next_node;
};

static void visit_part(void *context, const struct nvm_part *part) {
    static const uint32_t states[] = {[NVM_PART_METADATA] = FL_BLOCK_METADATA,
                                      [NVM_PART_ALLOCATED] = FL_BLOCK_ALLOCATED,
                                      [NVM_PART_RESERVED] = FL_BLOCK_RESERVED,
                                      [NVM_PART_FREE] = FL_BLOCK_FREE,
                                      [NVM_PART_UNUSABLE] = FL_BLOCK_UNUSABLE};
    struct walk *walk = context;
    struct fl_block block = {0, states[part->state], part->offset, part->bytes};
    if (part->offset == nvm_heap_relative(walk->heap->heap, walk->heap->roots))
        block.state = FL_BLOCK_METADATA;
    while (walk->next_node < walk->node_count && walk->nodes[walk->next_node] < part->offset)
        walk->next_node++;
    if (walk->next_node < walk->node_count && walk->nodes[walk->next_node] == part->offset && block.state == FL_BLOCK_ALLOCATED) {
        walk->visit(walk->context, &(struct fl_block){0, FL_BLOCK_METADATA, part->offset, CHAIN_NODE_BYTES});
        block.offset += CHAIN_NODE_BYTES; /* the application's part */
        block.bytes -= CHAIN_NODE_BYTES;
    }
    walk->visit(walk->context, &block);
}

static int walk_heap(fl_heap *heap, fl_visit visit, void *context) {
    struct walk walk = {.heap = heap, .visit = visit, .context = context};
    int status = adapter_status(nvm_heap_settle(heap->heap));
    if (status == FL_OK && heap->roots->layout == FL_SLOTS_CHAIN)
        status = chain_nodes(heap, &walk.nodes, &walk.node_count);
    if (status == FL_OK)
        nvm_heap_walk(heap->heap, visit_part, &walk);
    free(walk.nodes);
    return status;
}

struct bounds {
    uint64_t wanted;
    struct fl_block *block;
};

static void find_block(void *context, const struct fl_block *block) {
    const struct bounds *bounds = context;
    if (bounds->wanted >= block->offset && bounds->wanted - block->offset < block->bytes)
        *bounds->block = *block;
}

static int bounds(fl_heap *heap, const struct fl_location *object, struct fl_block *block) {
    struct bounds bounds = {object->offset, block};
    if (object->file != 0 || !object->is_set || object->offset >= nvm_heap_bytes(heap->heap))
        return adapter_fail(FL_ERROR, "the location is not in the heap");
    return walk_heap(heap, find_block, &bounds);
}

static int check(fl_heap *heap) {
    int status = adapter_status(nvm_heap_check(heap->heap));
    return status != FL_OK ? status : layout_of(heap)->check(heap);
}

static int settle(fl_heap *heap) { return adapter_status(nvm_heap_settle(heap->heap)); }
static int step(fl_heap *heap, int *is_settled) { return adapter_status(nvm_heap_step(heap->heap, is_settled)); }

static int thread_attach(fl_heap *heap) { return nvm_thread_attach(heap->heap), FL_OK; }
static int thread_detach(fl_heap *heap) { return nvm_thread_detach(heap->heap), FL_OK; }

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .name = "nvm_malloc",
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_BOUNDS | FL_CAN_SETTLE | FL_CAN_THREADS | FL_CAN_RELOCATE |
                        FL_CAN_NAMES | FL_CAN_CHAIN,
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
        .settle = settle,
        .step = LAZY == NVM_LAZY_BY_STEPS ? step : NULL,
        .thread_attach = thread_attach,
        .thread_detach = thread_detach,
    };
    return &table;
}
