/* How faultline drives @NAME@. adapter.h says what each function is asked for; each is to be written. */
#include "adapter.h"
#include "persist.h"

struct fl_heap {
    int unused; /* what one open heap needs: a mapping, a path */
};

static int not_written(void) { return FL_ERROR; }
static const char *message(void) { return "this function of the adapter is not written yet"; }

/* Makes a heap in options->folder, of options->heap_bytes, mapped at options->address_hint, with options->slot_count slots. */
static int create(const struct fl_heap_options *options, fl_heap **heap) {
    (void)options, (void)heap;
    return not_written();
}
/* Opens it again, after a close or a crash: your recovery. FL_NOT_A_HEAP where create did not end. */
static int open_heap(const struct fl_heap_options *options, fl_heap **heap) {
    (void)options, (void)heap;
    return not_written();
}
static int close_heap(fl_heap *heap) {
    (void)heap;
    return not_written();
}
/* An object of so many bytes in an empty slot. fill writes its content: before it is published, or after (contract, `fill`). */
static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    (void)heap, (void)slot, (void)bytes, (void)fill, (void)context;
    return not_written();
}
static int free_slot(fl_heap *heap, uint32_t slot) {
    (void)heap, (void)slot;
    return not_written();
}
/* Keeps the first bytes, makes them durable where it moves them, and calls fill for the rest. */
static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t new_bytes, fl_fill fill, void *context) {
    (void)heap, (void)slot, (void)old_bytes, (void)new_bytes, (void)fill, (void)context;
    return not_written();
}
/* Where the slot's object is: number of the file, and offset in it. */
static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    (void)heap, (void)slot;
    *location = (struct fl_location){0};
    return not_written();
}
/* The file's path in options->folder. */
static const char *file_name(fl_heap *heap, uint32_t file) {
    (void)heap, (void)file;
    return "heap";
}

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter adapter = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof adapter,
        .name = "@NAME@",
        .capabilities = 0, /* FL_CAN_WALK makes most of what is judged */
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
