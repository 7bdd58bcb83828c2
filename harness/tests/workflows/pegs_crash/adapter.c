/* How faultline drives pegs: a slot is a peg. */
#include "adapter.h"
#include "pegs.h"
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct fl_heap {
    struct pegs *pegs;
};

static _Thread_local char why[200] = "nothing failed";
static int fail(int status, const char *text) {
    snprintf(why, sizeof why, "%s", text);
    return status;
}
static const char *message(void) { return why; }

static int opened(const struct fl_heap_options *options, int is_new, fl_heap **out) {
    char path[4096];
    fl_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL)
        return fail(FL_ERROR, "no memory");
    snprintf(path, sizeof path, "%s/board", options->folder);
    heap->pegs = is_new ? pegs_create(path, options->heap_bytes, options->slot_count, options->address_hint)
                        : pegs_open(path, options->address_hint);
    if (heap->pegs == NULL) {
        int error = errno;
        free(heap);
        return fail(error == EPROTO ? FL_NOT_A_HEAP : FL_ERROR, strerror(error));
    }
    *out = heap;
    return FL_OK;
}
static int create(const struct fl_heap_options *options, fl_heap **heap) { return opened(options, 1, heap); }
static int open_heap(const struct fl_heap_options *options, fl_heap **heap) { return opened(options, 0, heap); }

static int close_heap(fl_heap *heap) {
    pegs_close(heap->pegs);
    free(heap);
    return FL_OK;
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    void *object = pegs_reserve(heap->pegs, bytes);
    if (object == NULL)
        return fail(FL_OUT_OF_MEMORY, "full");
    fill(context, object, 0, bytes);
    pegs_hang(heap->pegs, slot, object, bytes);
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    pegs_clear(heap->pegs, slot);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    uint64_t kept = old_bytes < new_bytes ? old_bytes : new_bytes;
    void *object = pegs_reserve(heap->pegs, new_bytes);
    if (object == NULL)
        return fail(FL_OUT_OF_MEMORY, "full");
    memcpy(object, pegs_at(heap->pegs, slot, NULL), kept);
    pegs_persist(object, kept);
    if (new_bytes > kept)
        fill(context, object, kept, new_bytes - kept);
    pegs_hang(heap->pegs, slot, object, new_bytes);
    return FL_OK;
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    const char *object = pegs_at(heap->pegs, slot, NULL);
    *location = (struct fl_location){.is_set = object != NULL};
    if (object != NULL)
        location->offset = (uint64_t)(object - (const char *)pegs_base(heap->pegs));
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap, (void)file;
    return "board";
}

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter adapter = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof adapter,
        .name = "pegs",
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_slot,
        .reallocate = reallocate,
        .read_slot = read_slot,
        .file_name = file_name,
        .message = message,
    };
    return &adapter;
}
