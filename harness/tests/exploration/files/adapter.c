/* SPDX-License-Identifier: Apache-2.0
 *
 * A file an object: an allocator for tests of heaps of several files, which are made, grown, cut, punched, renamed, unlinked and
 * mapped all the time. The heap folder:
 *
 *     slots     struct head, then the slots: pointers of two words, a file's number and an offset in it. A slot is null while its
 *               file number is 0: that word is stored last when a slot is set, first when it is cleared
 *     N         object N (1, 2, ...): struct header, then the object, whole lines
 *     N.new     one that is not made yet
 *
 *     allocate    make N.new, header, fill, rename to N, slot
 *     reallocate  longer: file, fill, header. Shorter: header, punch the rest of its last line, file
 *     free        slot, punch, unlink
 *     open        unlinks what no slot leads to, and cuts what is longer than its header says. It counts itself in the head
 *
 * Besides it takes an inventory of the files before and after recovery, which is the message of check: what a recovery sees, and
 * what it sees of its own changes. -DMUTANT_...: allocator.toml.
 */
#include "adapter.h"
#include "inventory.h"
#include "persist.h"
#include <errno.h>
#include <fcntl.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define MAGIC UINT64_C(0x73656c6966)
#define MOST_FILES 32u

#if defined(MUTANT_MANGLE)
#define IS_MANGLING 1
#else
#define IS_MANGLING 0
#endif

#if defined(MUTANT_READS_CLOCK)
#define IS_CLOCK_READ 1
#else
#define IS_CLOCK_READ 0
#endif

#if defined(MUTANT_LOADS_PAST_HOOKS)
#define IS_PAST_HOOKS 1
#else
#define IS_PAST_HOOKS 0
#endif

struct head {
    uint64_t magic, slot_count, opened;
    uint64_t unused[5];
};

struct slot {
    _Alignas(16) uint64_t file; /* 0: null */
    uint64_t offset;
};

struct header {
    uint64_t magic, bytes;
    uint64_t unused[6];
};

struct object {
    int fd; /* -1: there is none */
    uint64_t file_bytes;
    struct header *header; /* the file, mapped */
};

struct fl_heap {
    char folder[4096];
    uint64_t limit_bytes;
    uint64_t slots_bytes;
    struct head *head;
    struct slot *slots;
    struct object objects[MOST_FILES + 1];
};

static char reason[INVENTORY_BYTES] = "no failure";

static int fail_with(const char *what, const char *name) {
    snprintf(reason, sizeof reason, "%s: %s: %s", name, what, strerror(errno));
    return FL_ERROR;
}

static const char *message(void) { return reason; }

static uint64_t whole_lines(uint64_t bytes) { return (bytes + FL_LINE_BYTES - 1) / FL_LINE_BYTES * FL_LINE_BYTES; }

static const char *path_of(const struct fl_heap *heap, const char *name) {
    static char path[4200];
    snprintf(path, sizeof path, "%s/%s", heap->folder, name);
    return path;
}

static const char *name_of(unsigned number) {
    static char name[NAME_BYTES];
    snprintf(name, sizeof name, "%u", number);
    return name;
}

static void *map_file(int fd, uint64_t bytes) {
    int is_emulated;
    void *base = fl_map(0, bytes, fd, 0, 0, &is_emulated);
    return base == MAP_FAILED ? NULL : base;
}

/* ---- files of objects ------------------------------------------------------------------------------------------------------ */

static int open_object(struct fl_heap *heap, unsigned number, const char *name, int flags, uint64_t file_bytes) {
    struct object *object = &heap->objects[number];
    struct stat info;
    object->fd = open(path_of(heap, name), O_RDWR | flags, 0600);
    if (object->fd < 0 || (file_bytes != 0 && ftruncate(object->fd, (off_t)file_bytes) != 0) || fstat(object->fd, &info) != 0)
        return fail_with("cannot be opened", name);
    object->file_bytes = (uint64_t)info.st_size;
    object->header = object->file_bytes < FL_LINE_BYTES ? NULL : map_file(object->fd, object->file_bytes);
    return object->header == NULL ? fail_with("is too short", name) : FL_OK;
}

static void close_object(struct object *object) {
    if (object->header != NULL)
        munmap(object->header, object->file_bytes);
    if (object->fd >= 0)
        close(object->fd);
    *object = (struct object){.fd = -1};
}

static int resize_object(struct object *object, uint64_t bytes) {
    uint64_t file_bytes = FL_LINE_BYTES + whole_lines(bytes);
    if (file_bytes == object->file_bytes)
        return FL_OK;
    munmap(object->header, object->file_bytes);
    object->header = NULL;
    if (ftruncate(object->fd, (off_t)file_bytes) != 0)
        return fail_with("cannot be resized", "an object");
    object->file_bytes = file_bytes;
    object->header = map_file(object->fd, file_bytes);
    return object->header == NULL ? fail_with("cannot be mapped", "an object") : FL_OK;
}

static int punch(struct object *object, uint64_t from, uint64_t to) {
    if (from < to && fallocate(object->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, (off_t)from, (off_t)(to - from)) != 0)
        return fail_with("cannot be punched", "an object");
    return FL_OK;
}

static void set_bytes(struct object *object, uint64_t bytes) {
    fl_store8(&object->header->bytes, bytes);
    fl_persist(object->header, sizeof *object->header);
}

static int remove_object(struct fl_heap *heap, unsigned number) {
    struct object *object = &heap->objects[number];
    int status = punch(object, FL_LINE_BYTES, object->file_bytes);
    close_object(object);
    if (status == FL_OK && unlink(path_of(heap, name_of(number))) != 0)
        return fail_with("cannot be unlinked", name_of(number));
    return status;
}

static void set_slot(struct slot *slot, uint64_t file, uint64_t offset) {
#if defined(MUTANT_WIDE_SLOT)
    typedef long long pair __attribute__((vector_size(16)));
    *(volatile pair *)slot = (pair){(long long)file, (long long)offset};
#elif defined(MUTANT_FILE_NUMBER_FIRST)
    fl_store8(&slot->file, file);
    fl_persist(slot, sizeof *slot);
    fl_store8(&slot->offset, offset);
#else
    fl_store8(file == 0 ? &slot->file : &slot->offset, file == 0 ? 0 : offset);
    fl_persist(slot, sizeof *slot);
    fl_store8(file == 0 ? &slot->offset : &slot->file, file == 0 ? 0 : file);
#endif
    fl_persist(slot, sizeof *slot);
}

/* ---- heaps ------------------------------------------------------------------------------------------------------------------ */

static struct fl_heap *new_heap(const struct fl_heap_options *options) {
    struct fl_heap *heap = calloc(1, sizeof *heap);
    snprintf(heap->folder, sizeof heap->folder, "%s", options->folder);
    heap->limit_bytes = options->limit_bytes;
    heap->slots_bytes = whole_lines(sizeof(struct head) + options->slot_count * sizeof(struct slot));
    for (unsigned number = 0; number <= MOST_FILES; number++)
        heap->objects[number].fd = -1;
    return heap;
}

static int close_heap(struct fl_heap *heap) {
    for (unsigned number = 0; number <= MOST_FILES; number++)
        close_object(&heap->objects[number]);
    if (heap->head != NULL)
        munmap(heap->head, heap->slots_bytes);
    free(heap);
    return FL_OK;
}

static int map_slots(struct fl_heap *heap, const char *name, int flags) {
    int fd = open(path_of(heap, name), O_RDWR | flags, 0600);
    if (fd < 0 || ((flags & O_CREAT) != 0 && ftruncate(fd, (off_t)heap->slots_bytes) != 0))
        return fail_with("cannot be opened", name);
    heap->head = map_file(fd, heap->slots_bytes);
    close(fd);
    heap->slots = (struct slot *)(heap->head + 1);
    return heap->head == NULL ? fail_with("cannot be mapped", name) : FL_OK;
}

static int create(const struct fl_heap_options *options, struct fl_heap **made) {
    struct fl_heap *heap = *made = new_heap(options);
    char finished[4200];
    if (map_slots(heap, "slots.new", O_CREAT | O_TRUNC) != FL_OK)
        return FL_ERROR;
    heap->head->slot_count = options->slot_count;
    fl_store8(&heap->head->magic, MAGIC);
    fl_persist(heap->head, sizeof *heap->head);
    snprintf(finished, sizeof finished, "%s/slots", heap->folder);
    return rename(path_of(heap, "slots.new"), finished) == 0 ? FL_OK : fail_with("cannot be renamed", "slots.new");
}

static int is_wanted(const struct fl_heap *heap, unsigned number) {
    for (uint64_t slot = 0; slot < heap->head->slot_count; slot++)
        if (heap->slots[slot].file == number)
            return 1;
    return 0;
}

#if defined(MUTANT_READS_WHAT_WAS_CUT)
static uint64_t last_of(const struct object *object) {
    const volatile uint8_t *bytes = (const uint8_t *)(object->header + 1);
    return object->header->bytes == 0 ? 0 : bytes[object->header->bytes - 1];
}
#endif

static int recover_object(struct fl_heap *heap, const char *name) {
    char *end;
    unsigned number = (unsigned)strtoul(name, &end, 10);
    if (*end != '\0' || number == 0 || number > MOST_FILES) /* N.new */
        return unlink(path_of(heap, name)) == 0 ? FL_OK : fail_with("cannot be unlinked", name);
    struct object *object = &heap->objects[number];
    int status = open_object(heap, number, name, 0, 0);
    if (status != FL_OK || object->header->magic != MAGIC)
        return status != FL_OK ? status : fail_with("has no header", name);
#if defined(MUTANT_READS_WHAT_WAS_CUT)
    if (last_of(object) == 0)
        return fail_with("ends with a zero", name);
#endif
#if !defined(MUTANT_KEEPS_FREED)
    if (!is_wanted(heap, number))
        return remove_object(heap, number);
#endif
    if (FL_LINE_BYTES + whole_lines(object->header->bytes) > object->file_bytes)
        return fail_with("is shorter than its header says", name);
#if !defined(MUTANT_KEEPS_TAIL)
    status = resize_object(object, object->header->bytes);
#endif
    return status;
}

static int recover(struct fl_heap *heap) {
    struct names names;
    list_names(heap->folder, &names);
    fl_store8(&heap->head->opened, heap->head->opened + 1);
    fl_persist(heap->head, sizeof *heap->head);
    int status = FL_OK;
    for (size_t i = 0; status == FL_OK && i < names.count; i++)
        if (strcmp(names.list[i], "slots") != 0)
            status = recover_object(heap, names.list[i]);
    return status;
}

/* Every kind of change that a recovery can make, one a file. */
static int mangle(const struct fl_heap *heap) {
    struct names names;
    list_names(heap->folder, &names);
    for (size_t i = 0; i < names.count; i++) {
        char path[4200], other[4300];
        struct stat info;
        snprintf(path, sizeof path, "%s/%s", heap->folder, names.list[i]);
        snprintf(other, sizeof other, "%s.moved", path);
        int fd = open(path, O_RDWR);
        if (fd < 0 || fstat(fd, &info) != 0)
            return fail_with("cannot be opened", path);
        if (info.st_size > 0) {
            uint8_t *bytes = map_file(fd, (uint64_t)info.st_size);
            bytes[info.st_size / 2] ^= 0xff;
            if (i % 5 == 0 && ftruncate(fd, info.st_size / 2) != 0)
                return fail_with("cannot be cut", path);
            if (i % 5 == 1 && fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, 0, info.st_size / 3 + 1) != 0)
                return fail_with("cannot be punched", path);
            munmap(bytes, (size_t)info.st_size);
        }
        close(fd);
        if ((i % 5 == 2 && rename(path, other) != 0) || (i % 5 == 3 && unlink(path) != 0))
            return fail_with("cannot be renamed or unlinked", path);
    }
    int fd = open(path_of(heap, "left"), O_RDWR | O_CREAT, 0600);
    if (fd < 0 || ftruncate(fd, 100) != 0 || pwrite(fd, "left", 4, 60) != 4)
        return fail_with("cannot be made", "left");
    close(fd);
    return FL_OK;
}

/* What exploration by loads must notice, and what changes nothing else: loads that depend on more than loads, or have no hook. */
static void misbehave(struct fl_heap *heap) {
    struct timespec now = {0};
    uint64_t word = 0;
    int fd = open(path_of(heap, "slots"), O_RDWR);
    if (fd >= 0 && IS_CLOCK_READ && clock_gettime(CLOCK_MONOTONIC, &now) == 0 && now.tv_nsec / 64 % 2 == 0)
        (void)!pread(fd, &word, sizeof word, (off_t)(sizeof(struct head) + offsetof(struct slot, offset)));
    if (fd >= 0 && IS_PAST_HOOKS) { /* pread64 */
        register uint64_t offset __asm__("r10") = sizeof(struct head);
        long answer;
        __asm__ volatile("syscall"
                         : "=a"(answer)
                         : "a"(17), "D"((long)fd), "S"(&word), "d"(sizeof word), "r"(offset)
                         : "rcx", "r11", "memory");
    }
    if (fd >= 0)
        close(fd);
}

static int open_heap(const struct fl_heap_options *options, struct fl_heap **opened) {
    struct fl_heap *heap = *opened = new_heap(options);
    int status = FL_OK;
    if (IS_CLOCK_READ || IS_PAST_HOOKS)
        misbehave(heap);
    inventory_begin();
    inventory_add(heap->folder, "before:");
    if (IS_MANGLING) {
        status = mangle(heap);
    } else if (access(path_of(heap, "slots"), F_OK) != 0) {
        snprintf(reason, sizeof reason, "there is no file slots");
        status = FL_NOT_A_HEAP;
    } else if ((status = map_slots(heap, "slots", 0)) == FL_OK) {
        status = recover(heap);
    }
    inventory_add(heap->folder, " after:");
    return status;
}

/* ---- operations -------------------------------------------------------------------------------------------------------------- */

static uint64_t heap_bytes(const struct fl_heap *heap) {
    uint64_t sum = heap->slots_bytes;
    for (unsigned number = 1; number <= MOST_FILES; number++)
        sum += heap->objects[number].file_bytes;
    return sum;
}

static int allocate(struct fl_heap *heap, uint32_t slot, uint64_t bytes, fl_fill fill, void *context) {
    char temporary[NAME_BYTES], made[4200];
    unsigned number = 1;
    while (number <= MOST_FILES && heap->objects[number].fd >= 0)
        number++;
    if (number > MOST_FILES || heap_bytes(heap) + FL_LINE_BYTES + whole_lines(bytes) > heap->limit_bytes)
        return FL_OUT_OF_MEMORY;
    struct object *object = &heap->objects[number];
    snprintf(temporary, sizeof temporary, "%u.new", number);
    snprintf(made, sizeof made, "%s/%u", heap->folder, number);
    if (open_object(heap, number, temporary, O_CREAT | O_EXCL, FL_LINE_BYTES + whole_lines(bytes)) != FL_OK)
        return FL_ERROR;
#if defined(MUTANT_RENAME_BEFORE_HEADER)
    if (rename(path_of(heap, temporary), made) != 0)
        return fail_with("cannot be renamed", temporary);
#endif
    fl_store8(&object->header->magic, MAGIC);
    set_bytes(object, bytes);
#if !defined(MUTANT_FILL_AFTER)
    fill(context, object->header + 1, 0, bytes);
#endif
#if !defined(MUTANT_RENAME_BEFORE_HEADER)
    if (rename(path_of(heap, temporary), made) != 0)
        return fail_with("cannot be renamed", temporary);
#endif
    set_slot(&heap->slots[slot], number, sizeof(struct header));
#if defined(MUTANT_FILL_AFTER)
    fill(context, object->header + 1, 0, bytes);
#endif
    return FL_OK;
}

static int free_object(struct fl_heap *heap, uint32_t slot) {
    unsigned number = (unsigned)heap->slots[slot].file;
#if defined(MUTANT_UNLINK_FIRST)
    close_object(&heap->objects[number]);
    int status = unlink(path_of(heap, name_of(number)));
    set_slot(&heap->slots[slot], 0, 0);
    return status == 0 ? FL_OK : fail_with("cannot be unlinked", name_of(number));
#elif defined(MUTANT_PUNCH_FIRST)
    int status = punch(&heap->objects[number], FL_LINE_BYTES, heap->objects[number].file_bytes);
    set_slot(&heap->slots[slot], 0, 0);
    return status != FL_OK ? status : remove_object(heap, number);
#else
    set_slot(&heap->slots[slot], 0, 0);
    return remove_object(heap, number);
#endif
}

static int grow(struct fl_heap *heap, struct object *object, uint64_t old_bytes, uint64_t bytes, fl_fill fill, void *context) {
    if (heap_bytes(heap) - object->file_bytes + FL_LINE_BYTES + whole_lines(bytes) > heap->limit_bytes)
        return FL_OUT_OF_MEMORY;
    int status = resize_object(object, bytes);
    if (status != FL_OK)
        return status;
    fill(context, object->header + 1, old_bytes, bytes - old_bytes);
    set_bytes(object, bytes);
    return FL_OK;
}

static int shrink(struct object *object, uint64_t bytes) {
#if defined(MUTANT_TRUNCATE_FIRST) || defined(MUTANT_READS_WHAT_WAS_CUT)
    int status = resize_object(object, bytes);
    if (status == FL_OK)
        set_bytes(object, bytes);
    return status;
#else
    set_bytes(object, bytes);
    int status = punch(object, FL_LINE_BYTES + bytes, FL_LINE_BYTES + whole_lines(bytes));
    return status != FL_OK ? status : resize_object(object, bytes);
#endif
}

static int reallocate(struct fl_heap *heap, uint32_t slot, uint64_t old_bytes, uint64_t bytes, fl_fill fill, void *context) {
    struct object *object = &heap->objects[heap->slots[slot].file];
    return bytes > old_bytes ? grow(heap, object, old_bytes, bytes, fill, context) : shrink(object, bytes);
}

/* ---- looking ------------------------------------------------------------------------------------------------------------------ */

static int read_slot(struct fl_heap *heap, uint32_t slot, struct fl_location *location) {
    if (!IS_MANGLING && heap->slots[slot].file != 0)
        *location = (struct fl_location){(uint32_t)heap->slots[slot].file, 1, heap->slots[slot].offset};
    return FL_OK;
}

static const char *file_name(struct fl_heap *heap, uint32_t file) { return (void)heap, file == 0 ? "slots" : name_of(file); }

static int walk(struct fl_heap *heap, fl_visit visit, void *context) {
    if (IS_MANGLING)
        return FL_OK;
    visit(context, &(struct fl_block){0, FL_BLOCK_METADATA, 0, heap->slots_bytes});
    for (unsigned number = 1; number <= MOST_FILES; number++) {
        const struct object *object = &heap->objects[number];
        if (object->fd < 0)
            continue;
        visit(context, &(struct fl_block){number, FL_BLOCK_METADATA, 0, FL_LINE_BYTES});
        uint64_t bytes = whole_lines(object->header->bytes);
        visit(context, &(struct fl_block){number, FL_BLOCK_ALLOCATED, FL_LINE_BYTES, bytes});
    }
    return FL_OK;
}

/* No answer, and the inventory with it. */
static int check(struct fl_heap *heap) {
    (void)heap;
    memcpy(reason, inventory_text(), sizeof reason);
    return FL_UNSUPPORTED_CALL;
}

const struct fl_adapter *faultline_adapter(void) {
    static const struct fl_adapter adapter = {
        .abi_version = FL_ADAPTER_ABI,
        .struct_size = sizeof(struct fl_adapter),
        .name = "files",
        .capabilities = FL_CAN_WALK | FL_CAN_CHECK | FL_CAN_RELOCATE,
        .create = create,
        .open = open_heap,
        .close = close_heap,
        .allocate = allocate,
        .free = free_object,
        .reallocate = reallocate,
        .read_slot = read_slot,
        .file_name = file_name,
        .message = message,
        .walk = walk,
        .check = check,
    };
    return &adapter;
}
