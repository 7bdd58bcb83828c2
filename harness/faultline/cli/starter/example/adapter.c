/* How faultline drives shelf. adapter.h says what each function is asked for. */
#include "adapter.h"
#include "persist.h"
#include "shelf.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define HEADER 8 /* in front of each object */

struct fl_heap {
    struct shelf *shelf;
    char path[4096];
};

static _Thread_local char why[200] = "nothing failed";
static int fail(int status, const char *text) {
    snprintf(why, sizeof why, "%s", text);
    return status;
}
static const char *message(void) { return why; }

static int opened(const struct fl_heap_options *options, int is_new, fl_heap **out) {
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return fail(FL_ERROR, "no memory");
    snprintf(heap->path, sizeof heap->path, "%s/shelf", options->folder);
    heap->shelf = is_new ? shelf_create(heap->path, options->heap_bytes, options->slot_count, options->address_hint)
                         : shelf_open(heap->path, options->address_hint);
    if (heap->shelf == NULL) {
        free(heap);
        return fail(errno == EPROTO ? FL_NOT_A_HEAP : FL_ERROR, strerror(errno));
    }
    *out = heap;
    return FL_OK;
}
static int create(const struct fl_heap_options *options, fl_heap **heap) { return opened(options, 1, heap); }
static int open_heap(const struct fl_heap_options *options, fl_heap **heap) { return opened(options, 0, heap); }

static int close_heap(fl_heap *heap) {
    shelf_close(heap->shelf);
    free(heap);
    return FL_OK;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    void *object = shelf_reserve(heap->shelf, bytes);
    if (object == NULL)
        return fail(FL_OUT_OF_MEMORY, "full");
    fill(context, object, 0, bytes); /* before a slot refers to it: fill = "before" */
    shelf_publish(heap->shelf, slot, object);
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    shelf_publish(heap->shelf, slot, NULL);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object = shelf_reserve(heap->shelf, new_bytes);
    if (object == NULL)
        return fail(FL_OUT_OF_MEMORY, "full");
    memcpy(object, shelf_object(heap->shelf, slot), kept);
    fl_persist(object, kept);
    if (new_bytes > kept)
        fill(context, object, kept, new_bytes - kept);
    shelf_publish(heap->shelf, slot, object);
    return FL_OK;
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    const char *object = shelf_object(heap->shelf, slot);
    *location = (struct fl_location){.is_set = object != NULL};
    if (object != NULL)
        location->offset = (uint64_t)(object - (const char *)shelf_base(heap->shelf));
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap, (void)file;
    return "shelf";
}

struct visiting {
    fl_visit visit;
    void *context;
};
static void visit_run(void *context, uint64_t offset, uint64_t bytes, int is_free) {
    const struct visiting *visiting = context;
    struct fl_block block = {0, FL_BLOCK_METADATA, offset, HEADER};
    if (is_free) {
        block = (struct fl_block){0, FL_BLOCK_FREE, offset, bytes};
    } else {
        visiting->visit(visiting->context, &block);
        block = (struct fl_block){0, FL_BLOCK_ALLOCATED, offset + HEADER, bytes - HEADER};
    }
    visiting->visit(visiting->context, &block);
}

static int walk(fl_heap *heap, fl_visit visit, void *context) {
    struct visiting visiting = {visit, context};
    struct fl_block head = {0, FL_BLOCK_METADATA, 0, shelf_first_run(heap->shelf)};
    visit(context, &head);
    shelf_walk(heap->shelf, visit_run, &visiting);
    return FL_OK;
}

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter adapter = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof adapter,
        .name = "@NAME@",
        .capabilities = FL_CAN_WALK,
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_slot,
        .reallocate = reallocate,
        .read_slot = read_slot,
        .file_name = file_name,
        .message = message,
        .walk = walk,
    };
    return &adapter;
}
