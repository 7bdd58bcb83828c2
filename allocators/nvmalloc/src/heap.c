/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.c - creating, opening and closing a heap; its growth; its root.
 *
 * A file of zeros is a heap without blocks as soon as one of its root lines has the magic, so creation is one store that may persist
 * or not. The file gets its media when it is created or grows (fallocate): a full file system is found out then, not by SIGBUS. It
 * grows by as many OS pages as a request needs (§3.1), or by multiples of what was asked for; what it grew by is unformatted, and
 * needs no other trace.
 *
 * A range of addresses is reserved for as much as the file may grow to; the file is mapped over its beginning.
 */
#include "types.h"

#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "persist.h"
#include "stage.h"

/* ---- volatile ---- */

static void destroy(struct nvmalloc_heap *heap) {
    nvmalloc_destroy_hints(heap);
    free(heap->protection.storing);
    free(heap->waiting.batch);
    free(heap->used);
    free(heap->starts);
    if (heap->lines != NULL)
        munmap(heap->lines, (uint64_t)heap->line_limit * NVMALLOC_LINE_BYTES);
    close(heap->fd);
    pthread_mutex_destroy(&heap->lock);
    free(heap);
}

static uint64_t whole_os_pages(uint64_t bytes) {
    return (bytes + NVMALLOC_OS_PAGE_BYTES - 1) / NVMALLOC_OS_PAGE_BYTES * NVMALLOC_OS_PAGE_BYTES;
}

static uint64_t limit_of(const struct nvmalloc_options *options, uint64_t file_bytes) {
    uint64_t limit = whole_os_pages(options->limit_bytes == 0 ? NVMALLOC_DEFAULT_LIMIT_BYTES : options->limit_bytes);
    return limit > file_bytes ? limit : file_bytes;
}

/* limit_bytes of addresses that nobody can use, at hint if that is free: heaps are relocatable. */
static int reserve_addresses(struct nvmalloc_heap *heap, uint64_t limit_bytes, uintptr_t hint) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *base = MAP_FAILED;
    if (hint != 0)
        base = mmap((void *)hint, limit_bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (base == MAP_FAILED)
        base = mmap(NULL, limit_bytes, PROT_NONE, flags, -1, 0);
    if (base == MAP_FAILED)
        return nvmalloc_fail(NVMALLOC_ERROR, "cannot reserve %llu bytes of addresses: %s", (unsigned long long)limit_bytes,
                             strerror(errno));
    heap->lines = base;
#if defined(MUTANT_POSITION_IS_ADDRESS)
    nvmalloc_first_position = (uint32_t)((uintptr_t)base / NVMALLOC_LINE_BYTES);
#endif
    heap->line_limit = (uint32_t)(limit_bytes / NVMALLOC_LINE_BYTES);
    return NVMALLOC_OK;
}

static int map_file(struct nvmalloc_heap *heap, uint64_t from, uint64_t bytes) {
    if (fl_map((uintptr_t)heap->lines + from, bytes, heap->fd, from, 1, &heap->is_emulated) == MAP_FAILED)
        return nvmalloc_fail(NVMALLOC_ERROR, "cannot map %llu bytes of the heap file: %s", (unsigned long long)bytes,
                             strerror(errno));
    heap->line_count = (uint32_t)((from + bytes) / NVMALLOC_LINE_BYTES);
    return NVMALLOC_OK;
}

/* Bitmaps for as many lines as there may ever be: what is never used costs address space only. */
static int make_bitmaps(struct nvmalloc_heap *heap) {
    uint64_t words = (uint64_t)heap->line_limit / 64 + 1;
    heap->used = calloc(words, sizeof *heap->used);
    heap->starts = calloc(words, sizeof *heap->starts);
    bool is_made = heap->used != NULL && heap->starts != NULL;
    return is_made ? NVMALLOC_OK : nvmalloc_fail(NVMALLOC_ERROR, "out of volatile memory for the bitmaps of the heap");
}

/* Maps the file and sets up everything volatile but what the scan finds. Takes the file over, failing or not. */
static int new_heap(const struct nvmalloc_options *options, int fd, uint64_t file_bytes, struct nvmalloc_heap **made) {
    struct nvmalloc_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL) {
        close(fd);
        return nvmalloc_fail(NVMALLOC_ERROR, "out of volatile memory for the heap");
    }
    heap->fd = fd;
    heap->clock = options->clock;
    heap->wait_ticks = options->wait_ticks;
    heap->on_damage = options->on_damage;
    heap->context = options->context;
    pthread_mutex_init(&heap->lock, NULL);
    uint64_t grow = whole_os_pages(options->grow_bytes == 0 ? 1 : options->grow_bytes);
    heap->grow_lines = (uint32_t)(grow / NVMALLOC_LINE_BYTES);
    int status = reserve_addresses(heap, limit_of(options, file_bytes), options->address_hint);
    if (status == NVMALLOC_OK)
        status = map_file(heap, 0, file_bytes);
    if (status == NVMALLOC_OK)
        status = make_bitmaps(heap);
    if (status == NVMALLOC_OK)
        *made = heap;
    else
        destroy(heap);
    return status;
}

static int check_options(const struct nvmalloc_options *options, char path[PATH_MAX]) {
    if (options->folder == NULL || options->folder[0] == '\0')
        return nvmalloc_fail(NVMALLOC_INVALID, "no heap folder given");
    if (snprintf(path, PATH_MAX, "%s/%s", options->folder, NVMALLOC_FILE_NAME) >= PATH_MAX)
        return nvmalloc_fail(NVMALLOC_INVALID, "the heap folder's path is longer than %d bytes", PATH_MAX);
    if (options->limit_bytes > NVMALLOC_MAX_LIMIT_BYTES || options->grow_bytes > NVMALLOC_MAX_LIMIT_BYTES)
        return nvmalloc_fail(NVMALLOC_INVALID, "a heap with a limit of %llu bytes, growing by %llu: expected at most %llu",
                             (unsigned long long)options->limit_bytes, (unsigned long long)options->grow_bytes,
                             (unsigned long long)NVMALLOC_MAX_LIMIT_BYTES);
    if (options->wait_ticks > INT32_MAX || options->clock > NVMALLOC_CLOCK_OPERATIONS)
        return nvmalloc_fail(NVMALLOC_INVALID, "freed blocks wait %u ticks of clock %d: expected at most %d of clock 0 or 1",
                             options->wait_ticks, options->clock, INT32_MAX);
    return NVMALLOC_OK;
}

/* ---- the root lines ---- */

/* What a root line says of the root, and what that means. */
#if defined(MUTANT_ROOT_ABSOLUTE)
static uint32_t said_of(const struct nvmalloc_heap *heap, uint32_t line) {
    return line == 0 ? 0 : (uint32_t)((uintptr_t)&heap->lines[line] / NVMALLOC_LINE_BYTES);
}
static uint32_t meant_by(const struct nvmalloc_heap *heap, uint32_t said) {
    return said == 0 ? 0 : said - (uint32_t)((uintptr_t)heap->lines / NVMALLOC_LINE_BYTES);
}
#else
static uint32_t said_of(const struct nvmalloc_heap *heap, uint32_t line) { return (void)heap, line; }
static uint32_t meant_by(const struct nvmalloc_heap *heap, uint32_t said) { return (void)heap, said; }
#endif

static struct nvmalloc_root_line *root_line(const struct nvmalloc_heap *heap, uint32_t copy) {
    return (struct nvmalloc_root_line *)&heap->lines[copy];
}

static void store_root(struct nvmalloc_heap *heap, uint32_t copy, uint32_t line) {
    struct nvmalloc_root_line *root = root_line(heap, copy);
    nvmalloc_may_store(heap, copy);
    fl_store8(&root->root, nvmalloc_make_root(said_of(heap, line), copy));
#if !defined(MUTANT_ROOT_NOT_FLUSHED)
    fl_flush(root, sizeof *root);
#endif
    fl_fence();
}

/* Where a root is set at once, that persists the magic too, which lies on the same line, and this flush and fence do nothing. They are
 * for the heap that is created and not used before power fails. */
static void store_magic(struct nvmalloc_heap *heap, uint32_t copy) {
    fl_store8(&root_line(heap, copy)->magic, NVMALLOC_MAGIC);
    fl_persist(root_line(heap, copy), sizeof(struct nvmalloc_root_line));
}

/* One magic is enough; the other one follows it. */
static int recover_magic(struct nvmalloc_heap *heap, const char *path) {
    uint64_t magic[NVMALLOC_ROOT_LINES];
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++)
        magic[copy] = nvmalloc_load(&root_line(heap, copy)->magic);
    if (magic[0] != NVMALLOC_MAGIC && magic[1] != NVMALLOC_MAGIC) {
        bool is_version = ((magic[0] ^ NVMALLOC_MAGIC) & NVMALLOC_MAGIC_WITHOUT_VERSION) == 0;
        return nvmalloc_fail(NVMALLOC_NOT_A_HEAP, "%s %s: the magic is %#llx, expected %#llx", path,
                             is_version ? "has another version of the format than this library"
                                        : "holds no heap, or its creation was not completed",
                             (unsigned long long)magic[0], (unsigned long long)NVMALLOC_MAGIC);
    }
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++) {
        if (magic[copy] == NVMALLOC_MAGIC)
            continue;
        FL_STAGE("root: one line has no magic");
        store_magic(heap, copy);
        if (copy == 0 || magic[copy] != 0) /* creation persists the first one first */
            nvmalloc_tell(heap, NVMALLOC_DAMAGE_ROOT, copy, 1, magic[copy]);
    }
    return NVMALLOC_OK;
}

/* What the copies say, and which of them are correct: the checksum fits, or the copy never was stored, nor the one after it. */
static void read_roots(const struct nvmalloc_heap *heap, uint32_t line[], bool is_correct[]) {
    bool is_unset = true;
    for (uint32_t copy = NVMALLOC_ROOT_LINES; copy-- > 0;) {
        uint64_t root = nvmalloc_load(&root_line(heap, copy)->root);
        is_unset &= root == 0;
        uint32_t said = nvmalloc_root_line_of(root);
        line[copy] = meant_by(heap, said);
        is_correct[copy] = is_unset || root == nvmalloc_make_root(said, copy);
    }
}

/* The first line is stored first: where the two differ, and both are correct, it is the newer one. */
static int recover_root(struct nvmalloc_heap *heap) {
    uint32_t line[NVMALLOC_ROOT_LINES];
    bool is_correct[NVMALLOC_ROOT_LINES];
    read_roots(heap, line, is_correct);
    uint32_t root = is_correct[0] ? line[0] : is_correct[1] ? line[1] : 0;
    uint32_t repaired = is_correct[0] || is_correct[1];
    if (root >= heap->line_count)
        return nvmalloc_fail(
            NVMALLOC_CORRUPT, "the heap file is %llu bytes long, but the root is at offset %#llx: was it truncated?",
            (unsigned long long)heap->line_count * NVMALLOC_LINE_BYTES, (unsigned long long)root * NVMALLOC_LINE_BYTES);
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++) {
        if (is_correct[copy] && line[copy] == root)
            continue;
        FL_STAGE("root: the lines differ");
        uint64_t found = nvmalloc_load(&root_line(heap, copy)->root);
        store_root(heap, copy, root);
        if (!is_correct[copy])
            nvmalloc_tell(heap, NVMALLOC_DAMAGE_ROOT, copy, repaired, found);
    }
    return NVMALLOC_OK;
}

int nvmalloc_heap_set_root(struct nvmalloc_heap *heap, const void *object) {
    uint64_t offset = object == NULL ? 0 : (uint64_t)((uintptr_t)object - (uintptr_t)heap->lines);
    if (object != NULL && nvmalloc_heap_usable_bytes(heap, object) == 0)
        return nvmalloc_fail(NVMALLOC_INVALID, "%p is no allocated object of the heap at %p: it cannot be the root", object,
                             (void *)heap->lines);
    nvmalloc_lock(heap);
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++)
        store_root(heap, copy, (uint32_t)(offset / NVMALLOC_LINE_BYTES));
    nvmalloc_unlock(heap);
    return NVMALLOC_OK;
}

void *nvmalloc_heap_root(struct nvmalloc_heap *heap) {
    nvmalloc_lock(heap);
    uint32_t line = meant_by(heap, nvmalloc_root_line_of(nvmalloc_load(&root_line(heap, 0)->root)));
    nvmalloc_unlock(heap);
    return line == 0 ? NULL : (char *)&heap->lines[line] + NVMALLOC_HEADER_BYTES;
}

/* ---- create ---- */

/* Persists the new file's size and its name in the folder. */
static int persist_file(const char *folder, const char *path, int fd) {
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    bool is_persisted = folder_fd >= 0 && fsync(fd) == 0;
#if !defined(MUTANT_NAME_NOT_SYNCED)
    is_persisted = is_persisted && fsync(folder_fd) == 0;
#endif
    int status = is_persisted
                     ? NVMALLOC_OK
                     : nvmalloc_fail(NVMALLOC_ERROR, "%s: the new heap file cannot be persisted: %s", path, strerror(errno));
    if (folder_fd >= 0)
        close(folder_fd);
    return status;
}

/* A new file with all its media, or none. */
static int create_file(const char *folder, const char *path, uint64_t bytes, int *fd) {
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == EEXIST)
        return nvmalloc_fail(NVMALLOC_ERROR, "%s exists already: open it, or remove it to create a new heap", path);
    if (*fd < 0)
        return nvmalloc_fail(NVMALLOC_ERROR, "%s: cannot create the heap file: %s", path, strerror(errno));
    int error = posix_fallocate(*fd, 0, (off_t)bytes);
    int status = error == 0 ? persist_file(folder, path, *fd)
                            : nvmalloc_fail(NVMALLOC_ERROR, "%s: cannot get %llu bytes from the file system: %s", path,
                                            (unsigned long long)bytes, strerror(error));
    if (status != NVMALLOC_OK) {
        close(*fd);
        unlink(path);
    }
    return status;
}

int nvmalloc_heap_create(const struct nvmalloc_options *options, struct nvmalloc_heap **heap) {
    char path[PATH_MAX];
    int fd = -1;
    *heap = NULL;
    int status = check_options(options, path);
    uint64_t bytes = whole_os_pages(options->heap_bytes == 0 ? 1 : options->heap_bytes);
    if (status == NVMALLOC_OK && (options->heap_bytes > NVMALLOC_MAX_LIMIT_BYTES || bytes > limit_of(options, 0)))
        status = nvmalloc_fail(NVMALLOC_INVALID, "a heap of %llu bytes with a limit of %llu",
                               (unsigned long long)options->heap_bytes, (unsigned long long)limit_of(options, 0));
    if (status == NVMALLOC_OK)
        status = create_file(options->folder, path, bytes, &fd);
    if (status != NVMALLOC_OK)
        return status;
    struct nvmalloc_heap *made;
    status = new_heap(options, fd, bytes, &made);
    if (status != NVMALLOC_OK) {
        unlink(path);
        return status;
    }
    for (uint32_t copy = 0; copy < NVMALLOC_ROOT_LINES; copy++)
        store_magic(made, copy);
    status = nvmalloc_scan(made); /* of a heap without blocks */
    if (status == NVMALLOC_OK && options->is_protected)
        status = nvmalloc_begin_protection(made);
    if (status == NVMALLOC_OK) {
        *heap = made;
        return status;
    }
    destroy(made);
    unlink(path);
    return status;
}

/* ---- open ---- */

static int open_file(const char *folder, const char *path, int *fd, uint64_t *bytes) {
    struct stat stat_folder, stat_file;
    if (stat(folder, &stat_folder) != 0)
        return nvmalloc_fail(NVMALLOC_ERROR, "%s: cannot use the heap folder: %s", folder, strerror(errno));
    if (!S_ISDIR(stat_folder.st_mode))
        return nvmalloc_fail(NVMALLOC_ERROR, "%s is not a folder", folder);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return nvmalloc_fail(NVMALLOC_NOT_A_HEAP, "%s does not exist: create the heap first", path);
    if (*fd < 0)
        return nvmalloc_fail(NVMALLOC_ERROR, "%s: cannot open the heap file for reading and writing: %s", path, strerror(errno));
    if (fstat(*fd, &stat_file) != 0 || !S_ISREG(stat_file.st_mode)) {
        close(*fd);
        return nvmalloc_fail(NVMALLOC_ERROR, "%s is not a regular file", path);
    }
    *bytes = (uint64_t)stat_file.st_size;
    if (*bytes != 0 && *bytes % NVMALLOC_OS_PAGE_BYTES == 0 && *bytes <= NVMALLOC_MAX_LIMIT_BYTES)
        return NVMALLOC_OK;
    close(*fd);
    return nvmalloc_fail(
        NVMALLOC_NOT_A_HEAP,
        "%s is %llu bytes long, but heap files have whole OS pages of %u bytes: not a heap, never completely created, or truncated",
        path, (unsigned long long)*bytes, NVMALLOC_OS_PAGE_BYTES);
}

int nvmalloc_heap_open(const struct nvmalloc_options *options, struct nvmalloc_heap **heap) {
    char path[PATH_MAX];
    int fd = -1;
    uint64_t bytes = 0;
    *heap = NULL;
    int status = check_options(options, path);
    if (status == NVMALLOC_OK)
        status = open_file(options->folder, path, &fd, &bytes);
    struct nvmalloc_heap *opened = NULL;
    if (status == NVMALLOC_OK)
        status = new_heap(options, fd, bytes, &opened);
    if (status != NVMALLOC_OK)
        return status;
    status = recover_magic(opened, path);
    if (status == NVMALLOC_OK)
        status = nvmalloc_scan(opened);
    if (status == NVMALLOC_OK)
        status = recover_root(opened);
    if (status == NVMALLOC_OK && options->is_protected)
        status = nvmalloc_begin_protection(opened);
    if (status != NVMALLOC_OK) {
        destroy(opened);
        return status;
    }
    *heap = opened;
    return NVMALLOC_OK;
}

/* Nothing on media tells a closed heap from a crashed one: open treats both alike. */
void nvmalloc_heap_close(struct nvmalloc_heap *heap) { destroy(heap); }

/* ---- growth ---- */

int nvmalloc_grow_to(struct nvmalloc_heap *heap, uint32_t lines) {
    if (lines <= heap->line_count)
        return NVMALLOC_OK;
    uint64_t from = heap->line_count, steps = (lines - from + heap->grow_lines - 1) / heap->grow_lines;
    uint64_t end = from + steps * heap->grow_lines < heap->line_limit ? from + steps * heap->grow_lines : heap->line_limit;
    off_t at = (off_t)(from * NVMALLOC_LINE_BYTES), more = (off_t)((end - from) * NVMALLOC_LINE_BYTES);
    int error = posix_fallocate(heap->fd, at, more);
    if (error != 0)
        return nvmalloc_fail(NVMALLOC_OUT_OF_MEMORY, "the heap file cannot grow from %lld bytes by %lld: %s", (long long)at,
                             (long long)more, strerror(error));
#if defined(MUTANT_GROWTH_NOT_SYNCED)
    bool is_persisted = true;
#else
    bool is_persisted = fsync(heap->fd) == 0;
#endif
    int status = is_persisted ? map_file(heap, (uint64_t)at, (uint64_t)more)
                              : nvmalloc_fail(NVMALLOC_ERROR, "the heap file's growth to %lld bytes cannot be persisted: %s",
                                              (long long)(at + more), strerror(errno));
    if (status == NVMALLOC_OK)
        nvmalloc_protect_growth(heap, (uint32_t)from);
    if (status != NVMALLOC_OK && ftruncate(heap->fd, at) != 0)
        return nvmalloc_fail(NVMALLOC_ERROR, "the heap file cannot be cut back to %lld bytes: %s", (long long)at, strerror(errno));
    return status;
}

/* ---- addresses ---- */

uint64_t nvmalloc_heap_offset(const struct nvmalloc_heap *heap, const void *address) {
    return address == NULL ? 0 : (uint64_t)((uintptr_t)address - (uintptr_t)heap->lines);
}

void *nvmalloc_heap_address(const struct nvmalloc_heap *heap, uint64_t offset) {
    return offset == 0 ? NULL : (char *)heap->lines + offset;
}

uint64_t nvmalloc_heap_bytes(struct nvmalloc_heap *heap) {
    nvmalloc_lock(heap);
    uint64_t bytes = (uint64_t)heap->line_count * NVMALLOC_LINE_BYTES;
    nvmalloc_unlock(heap);
    return bytes;
}

int nvmalloc_heap_is_emulated(const struct nvmalloc_heap *heap) { return heap->is_emulated; }
