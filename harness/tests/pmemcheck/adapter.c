/* SPDX-License-Identifier: Apache-2.0
 *
 * How faultline drives pbit. */
#define _GNU_SOURCE
#include "adapter.h"
#include "pbit.h"
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

struct fl_heap {
    struct pbit_heap *head;
    uint64_t bytes;
};

static _Thread_local const char *said = "";
static int fail(int status, const char *text) { return said = text, status; }
static const char *message(void) { return said; }

static void *map(const struct fl_heap_options *options, int flags, uint64_t *bytes) {
    char path[4096];
    struct stat info;
    int is_emulated;
    snprintf(path, sizeof path, "%s/heap", options->folder);
    int fd = open(path, O_RDWR | flags, 0600);
    if (fd < 0 || (flags && ftruncate(fd, (off_t)*bytes) != 0) || fstat(fd, &info) != 0)
        return MAP_FAILED;
    *bytes = (uint64_t)info.st_size;
    void *base = *bytes == 0 ? MAP_FAILED : fl_map(options->address_hint, *bytes, fd, 0, 0, &is_emulated);
    close(fd);
    return base;
}

static int made(void *base, uint64_t bytes, fl_heap **heap) {
    *heap = malloc(sizeof **heap);
    **heap = (struct fl_heap){base, bytes};
    return FL_OK;
}

static int create(const struct fl_heap_options *options, fl_heap **heap) {
    uint64_t bytes = pbit_file_bytes(options->slot_count);
    void *base = map(options, O_CREAT, &bytes);
    if (base == MAP_FAILED)
        return fail(FL_ERROR, "cannot create");
    pbit_create(base, options->slot_count);
    return made(base, bytes, heap);
}

static int open_heap(const struct fl_heap_options *options, fl_heap **heap) {
    uint64_t bytes = 0;
    struct pbit_heap *head = map(options, 0, &bytes);
    if (head == MAP_FAILED)
        return fail(FL_NOT_A_HEAP, "no file, or an empty one");
    if (head->magic != PBIT_MAGIC || head->slot_count != options->slot_count) {
        munmap(head, bytes);
        return fail(FL_NOT_A_HEAP, "no magic, or other slots");
    }
    return made(head, bytes, heap);
}

static int close_heap(fl_heap *heap) { return munmap(heap->head, heap->bytes), free(heap), FL_OK; }

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    return pbit_allocate(heap->head, slot, bytes, fill, context) == 0 ? FL_OK : fail(FL_OUT_OF_MEMORY, "full");
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    if (pbit_block_of(heap->head, heap->head->slots[slot].offset) < 0)
        return fail(FL_ERROR, "the slot leads to no heap block");
    return pbit_free(heap->head, slot), FL_OK;
}

/* In place: all heap blocks have one size. */
static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t bytes, fl_fill fill, void *context) {
    struct pbit_slot *changed = &heap->head->slots[slot];
    if (bytes > PBIT_BLOCK_BYTES)
        return fail(FL_OUT_OF_MEMORY, "too large");
    if (bytes > old_bytes)
        fill(context, (char *)heap->head + changed->offset, old_bytes, bytes - old_bytes);
    fl_store8(&changed->tag, pbit_tag(changed->offset, bytes));
    fl_persist(&changed->tag, 8);
    return FL_OK;
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    uint64_t offset = heap->head->slots[slot].offset;
    *location = (struct fl_location){0, offset != 0, offset};
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "heap" : NULL; }

static int walk(fl_heap *heap, fl_visit visit, void *context) {
    visit(context, &(struct fl_block){0, FL_BLOCK_METADATA, 0, heap->head->blocks_at});
    for (uint32_t block = 0; block < PBIT_BLOCKS; block++) {
        int state = heap->head->bits >> block & 1 ? FL_BLOCK_ALLOCATED : FL_BLOCK_FREE;
        uint64_t at = heap->head->blocks_at + block * PBIT_BLOCK_BYTES;
        visit(context, &(struct fl_block){0, state, at, PBIT_BLOCK_BYTES});
    }
    return FL_OK;
}

static int check(fl_heap *heap) {
    const char *wrong = pbit_check(heap->head);
    return wrong == NULL ? FL_OK : fail(FL_CORRUPT, wrong);
}

__attribute__((visibility("default"))) const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter adapter = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof adapter,
        .name = "pbit",
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK,
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
        .check = check,
    };
    return &adapter;
}
