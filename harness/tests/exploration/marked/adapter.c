/* SPDX-License-Identifier: Apache-2.0
 *
 * An allocator with a mark of a clean close, for tests of file systems that lose names and sizes.
 *
 *     heap    line 0: magic, number of slots; the map: a byte for each unit, as it was at the last close; the slots:
 *             unit | units << 32, 0 where empty; units of 64 bytes
 *     open    it is there while the heap is open
 *
 * Slots are all that is durable while the heap is open. Where the mark is there when the heap is opened, the map is made of the slots;
 * without it the saved one is believed. -DMUTANT_...: allocator.toml.
 */
#include "adapter.h"
#include "persist.h"
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x64656b72616d)
#define UNIT 64u
#define UNITS 512u

struct head {
    uint64_t magic, slot_count, spare[6];
    uint8_t map[UNITS];
    uint64_t slots[];
};

struct fl_heap {
    struct head *head;
    uint64_t bytes, first;
    uint8_t used[UNITS];
    char folder[4000], path[4100], mark[4100];
};

static char text[200];
static int fail(int status, const char *why) {
    snprintf(text, sizeof text, "%s", why);
    return status;
}

/* ---- files ---- */

static void sync_descriptor(int fd) {
#if defined(MUTANT_SYNCS_ALL)
    (void)fd;
    sync();
#else
    fsync(fd);
#endif
}

static void sync_folder(const struct fl_heap *heap) {
    int fd = open(heap->folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (fd < 0)
        return;
    sync_descriptor(fd);
    close(fd);
}

static int make_mark(const struct fl_heap *heap) {
    int fd = open(heap->mark, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0)
        return fail(FL_ERROR, "no mark can be made");
    close(fd);
#if !defined(MUTANT_MARK_NOT_SYNCED)
    sync_folder(heap);
#endif
    return FL_OK;
}

static void take_mark_away(const struct fl_heap *heap) {
    if (unlink(heap->mark) == 0)
        sync_folder(heap);
}

static struct head *map_heap(int fd, const struct fl_heap_options *options) {
#if defined(MUTANT_MAPPED_WITHOUT_SYNC) || defined(MUTANT_SIZE_NOT_SYNCED)
    void *base = mmap((void *)options->address_hint, options->heap_bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
#else
    int is_emulated;
    void *base = fl_map(options->address_hint, options->heap_bytes, fd, 0, 0, &is_emulated);
#endif
    return base == MAP_FAILED ? NULL : base;
}

/* ---- the heap ---- */

static struct fl_heap *begin(const struct fl_heap_options *options) {
    struct fl_heap *heap = calloc(1, sizeof *heap);
    snprintf(heap->folder, sizeof heap->folder, "%s", options->folder);
    snprintf(heap->path, sizeof heap->path, "%s/heap", options->folder);
    snprintf(heap->mark, sizeof heap->mark, "%s/open", options->folder);
    heap->bytes = options->heap_bytes;
    heap->first = (sizeof(struct head) + options->slot_count * 8ull + UNIT - 1) / UNIT;
    return heap;
}

static int end(struct fl_heap *heap, int status) {
    if (heap->head != NULL)
        munmap(heap->head, heap->bytes);
    free(heap);
    return status;
}

static int create(const struct fl_heap_options *options, fl_heap **out) {
    struct fl_heap *heap = *out = begin(options);
    int fd = open(heap->path, O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    if (fd < 0 || ftruncate(fd, 0) != 0 || ftruncate(fd, (off_t)heap->bytes) != 0)
        return end(heap, fail(FL_ERROR, "no file can be made"));
#if !defined(MUTANT_SIZE_NOT_SYNCED)
    sync_descriptor(fd);
#endif
#if !defined(MUTANT_MARK_SYNCS_BOTH)
    sync_folder(heap);
#endif
    heap->head = map_heap(fd, options);
    close(fd);
    if (heap->head == NULL)
        return end(heap, fail(FL_ERROR, "the file cannot be mapped"));
    if (make_mark(heap) != FL_OK)
        return end(heap, FL_ERROR);
    heap->head->slot_count = options->slot_count;
    fl_persist(heap->head, sizeof *heap->head);
    fl_store8(&heap->head->magic, MAGIC);
    fl_persist(heap->head, 8);
    return FL_OK;
}

static int recover(struct fl_heap *heap) {
    for (uint64_t i = 0; i < heap->head->slot_count; i++) {
        uint64_t unit = heap->head->slots[i] & 0xffffffff, count = heap->head->slots[i] >> 32;
        if (unit + count > UNITS)
            return fail(FL_CORRUPT, "a slot leads out of the heap");
        memset(heap->used + unit, 1, count);
    }
    return FL_OK;
}

static int open_heap(const struct fl_heap_options *options, fl_heap **out) {
    struct fl_heap *heap = *out = begin(options);
    int fd = open(heap->path, O_RDWR | O_CLOEXEC);
    struct stat info;
    if (fd < 0)
        return end(heap, fail(FL_NOT_A_HEAP, "no file"));
    bool is_whole = fstat(fd, &info) == 0 && (uint64_t)info.st_size >= heap->bytes;
    if (is_whole)
        heap->head = map_heap(fd, options);
    close(fd);
    if (heap->head == NULL || heap->head->magic != MAGIC)
        return end(heap, fail(FL_NOT_A_HEAP, is_whole ? "no magic" : "a short file"));
    if (access(heap->mark, F_OK) != 0) { /* it was closed */
        memcpy(heap->used, heap->head->map, sizeof heap->used);
        int status = make_mark(heap);
        return status == FL_OK ? FL_OK : end(heap, status);
    }
    int status = recover(heap);
    return status == FL_OK ? FL_OK : end(heap, status);
}

static int close_heap(struct fl_heap *heap) {
#if defined(MUTANT_CLOSED_FIRST)
    take_mark_away(heap);
#endif
    memcpy(heap->head->map, heap->used, sizeof heap->used);
    fl_persist(heap->head->map, sizeof heap->used);
#if !defined(MUTANT_CLOSED_FIRST)
    take_mark_away(heap);
#endif
    return end(heap, FL_OK);
}

static uint64_t take(struct fl_heap *heap, uint64_t bytes) {
    uint64_t count = bytes == 0 ? 1 : (bytes + UNIT - 1) / UNIT, free_units = 0;
    for (uint64_t unit = heap->first; unit < UNITS; unit++) {
        free_units = heap->used[unit] ? 0 : free_units + 1;
        if (free_units == count) {
            memset(heap->used + unit + 1 - count, 1, count);
            return (unit + 1 - count) | count << 32;
        }
    }
    return 0;
}

static void give(struct fl_heap *heap, uint64_t run) { memset(heap->used + (run & 0xffffffff), 0, run >> 32); }
static char *at(struct fl_heap *heap, uint64_t run) { return (char *)heap->head + (run & 0xffffffff) * UNIT; }

static void set_slot(struct fl_heap *heap, uint32_t slot, uint64_t run) {
    fl_store8(&heap->head->slots[slot], run);
    fl_persist(&heap->head->slots[slot], 8);
}

static int allocate(fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t run = take(heap, bytes);
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    fill(context, at(heap, run), 0, bytes);
    set_slot(heap, slot, run);
    return FL_OK;
}

static int free_slot(fl_heap *heap, uint32_t slot) {
    uint64_t run = heap->head->slots[slot];
    set_slot(heap, slot, 0);
    give(heap, run);
    return FL_OK;
}

static int reallocate(fl_heap *heap, uint32_t slot, uint64_t old, uint64_t bytes, fl_fill fill, void *context) {
    uint64_t before = heap->head->slots[slot], run = take(heap, bytes), kept = old < bytes ? old : bytes;
    if (run == 0)
        return fail(FL_OUT_OF_MEMORY, "full");
    memcpy(at(heap, run), at(heap, before), kept);
    fl_persist(at(heap, run), kept);
    if (bytes > kept)
        fill(context, at(heap, run), kept, bytes - kept);
    set_slot(heap, slot, run);
    give(heap, before);
    return FL_OK;
}

static int read_slot(fl_heap *heap, uint32_t slot, struct fl_location *location) {
    uint64_t run = heap->head->slots[slot];
    *location = (struct fl_location){0, run != 0, (run & 0xffffffff) * UNIT};
    return FL_OK;
}

static const char *file_name(fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "heap" : NULL; }
static const char *message(void) { return text; }

const struct fl_adapter *faultline_adapter(void);
const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter table = {.abi_version = FL_ADAPTER_ABI,
                                            .struct_size = sizeof table,
                                            .name = "marked",
                                            .create = create,
                                            .open = open_heap,
                                            .close = close_heap,
                                            .allocate = allocate,
                                            .free = free_slot,
                                            .reallocate = reallocate,
                                            .read_slot = read_slot,
                                            .file_name = file_name,
                                            .message = message};
    return &table;
}
