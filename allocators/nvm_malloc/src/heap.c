/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.c - creating, opening and closing a heap.
 *
 * create formats a file of zeros and persists the magic after everything else, so that a heap exists completely or not at
 * all. The file gets its media when it is created or grows (fallocate): a full file system is found out then, not by SIGBUS.
 *
 * A range of addresses is reserved for as much as the file may grow to (§3.1); the file is mapped over its beginning, and new
 * chunks are mapped after it.
 */
#include "types.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "persist.h"

/* ---- volatile ---- */

static void destroy_vheaders(struct nvm_heap *heap, struct nvm_chunk *chunk) {
    if (nvm_chunk_kind(chunk) == NVM_CHUNK_ARENA)
        for (uint32_t block = 0; block < heap->chunk_blocks; block++) {
            struct nvm_vheader *vheader = chunk->vheaders[block];
            if (vheader == NULL)
                continue;
            chunk->vheaders[block + vheader->count - 1] = NULL; /* a free range is there twice */
            free(vheader);
        }
    if (nvm_chunk_kind(chunk) == NVM_CHUNK_FREE || nvm_chunk_kind(chunk) == NVM_CHUNK_RESERVED)
        free(chunk->range);
    free(chunk->roles);
    free(chunk->vheaders);
}

static uint64_t chunk_table_bytes(const struct nvm_heap *heap) { return nvm_chunk_limit(heap) * sizeof *heap->chunks; }

static void destroy(struct nvm_heap *heap) {
    nvm_scan_stop(heap);
    if (heap->chunks != NULL) {
        for (uint32_t chunk = 0; chunk < heap->chunk_count; chunk++)
            destroy_vheaders(heap, &heap->chunks[chunk]);
        munmap(heap->chunks, chunk_table_bytes(heap));
    }
    nvm_names_destroy(heap);
    nvm_arenas_destroy(heap);
    if (heap->base != NULL)
        munmap(heap->base, heap->limit_bytes);
    if (heap->fd >= 0)
        close(heap->fd);
    free(heap);
}

/* Sets up everything but the media. Takes the file over, failing or not. */
static int new_heap(int fd, struct nvm_heap **created) {
    struct nvm_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL) {
        close(fd);
        return nvm_fail(NVM_ERROR, "out of volatile memory for the heap");
    }
    heap->fd = fd;
    *created = heap;
    int status = nvm_arenas_init(heap);
    if (status != NVM_OK) {
        close(fd);
        free(heap);
        return status;
    }
    nvm_scan_init(heap);
    status = nvm_names_init(heap);
    if (status != NVM_OK)
        destroy(heap);
    return status;
}

/* The table of chunks, for as many as there may ever be: what is never used costs address space only. */
static int make_chunk_table(struct nvm_heap *heap, uint64_t chunk_bytes) {
    heap->chunk_bytes = chunk_bytes;
    heap->chunk_blocks = (uint32_t)(chunk_bytes / NVM_BLOCK_BYTES);
    heap->media = (struct nvm_heap_block *)(heap->base + NVM_BLOCK_BYTES);
    void *table = mmap(NULL, chunk_table_bytes(heap), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (table == MAP_FAILED)
        return nvm_fail(NVM_ERROR, "out of volatile memory for the table of chunks");
    heap->chunks = table;
    return NVM_OK;
}

/* limit_bytes of addresses that nobody can use, at hint if that is free: heaps are relocatable. */
static int reserve_addresses(struct nvm_heap *heap, uint64_t limit_bytes, uintptr_t hint) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *base = MAP_FAILED;
    if (hint != 0)
        base = mmap((void *)hint, limit_bytes, PROT_NONE, flags | MAP_FIXED_NOREPLACE, -1, 0);
    if (base == MAP_FAILED)
        base = mmap(NULL, limit_bytes, PROT_NONE, flags, -1, 0);
    if (base == MAP_FAILED)
        return nvm_fail(NVM_ERROR, "cannot reserve %llu bytes of addresses: %s", (unsigned long long)limit_bytes, strerror(errno));
    heap->base = base;
    heap->limit_bytes = limit_bytes;
    return NVM_OK;
}

static uint64_t limit_of(const struct nvm_options *options, uint64_t file_bytes) {
    uint64_t limit = options->limit_bytes == 0 ? NVM_DEFAULT_LIMIT_BYTES : options->limit_bytes;
    return limit > file_bytes ? limit : file_bytes;
}

static int map_file(struct nvm_heap *heap, uint64_t bytes, const char *path) {
    if (fl_map((uintptr_t)heap->base, bytes, heap->fd, 0, 1, &heap->is_emulated) == MAP_FAILED)
        return nvm_fail(NVM_ERROR, "%s: cannot map %llu bytes: %s", path, (unsigned long long)bytes, strerror(errno));
    return NVM_OK;
}

static int path_of(const struct nvm_options *options, char path[PATH_MAX]) {
    if (options->folder == NULL || options->folder[0] == '\0')
        return nvm_fail(NVM_INVALID, "no heap folder given");
    int length = snprintf(path, PATH_MAX, "%s/%s", options->folder, NVM_FILE_NAME);
    return length < PATH_MAX ? NVM_OK : nvm_fail(NVM_INVALID, "the heap folder's path is longer than %d bytes", PATH_MAX);
}

/* ---- create ---- */

static void format_region(struct nvm_heap *heap, uint32_t block, enum nvm_kind kind, uint32_t blocks) {
    struct nvm_header *header = nvm_header_at(heap, block);
    fl_store8(&header->tag, nvm_tag(kind, NVM_STATE_IDLE, 0, blocks));
    fl_flush(header, sizeof *header);
}

/* The file is all zeros: object table and ring are empty already. */
static void format(struct nvm_heap *heap, uint32_t chunks) {
    struct nvm_heap_header *header = &heap->media->heap;
#if defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&header->magic, NVM_HEAP_MAGIC);
    fl_persist(header, sizeof *header);
#endif
    nvm_format_chunks(heap, 0, 1, nvm_tag(NVM_KIND_CHUNK_ARENA, NVM_STATE_IDLE, 0, 1));
    format_region(heap, 1, NVM_KIND_HEAP_BLOCK, 1);
    format_region(heap, 2, NVM_KIND_FREE, heap->chunk_blocks - 2);
    if (chunks > 1)
        nvm_format_chunks(heap, 1, chunks - 1, nvm_tag(NVM_KIND_CHUNK_FREE, NVM_STATE_IDLE, 0, chunks - 1));
    fl_store8(&header->format, NVM_FORMAT);
    fl_store8(&header->heap_bytes, chunks * heap->chunk_bytes);
    fl_store8(&header->chunk_bytes, heap->chunk_bytes);
    fl_store8(&header->ring_entries, NVM_RING_ENTRIES);
    fl_fence(); /* everything but the magic; the rest of its line precedes it anyway */
#if !defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&header->magic, NVM_HEAP_MAGIC);
#endif
    fl_persist(header, sizeof *header); /* mutate tells no loss: nvm_recover comes next and persists this line, too */
}

static int check_create_options(struct nvm_options *options) {
    if (options->chunk_bytes == 0)
        options->chunk_bytes = NVM_CHUNK_BYTES;
    if (options->chunk_bytes < NVM_CHUNK_BYTES_MIN || options->chunk_bytes > NVM_CHUNK_BYTES_MAX ||
        (options->chunk_bytes & (options->chunk_bytes - 1)) != 0)
        return nvm_fail(NVM_INVALID, "chunks of %llu bytes: expected a power of two from %llu to %llu",
                        (unsigned long long)options->chunk_bytes, (unsigned long long)NVM_CHUNK_BYTES_MIN,
                        (unsigned long long)NVM_CHUNK_BYTES_MAX);
    if (options->heap_bytes == 0 || options->heap_bytes % options->chunk_bytes != 0 ||
        options->heap_bytes / NVM_BLOCK_BYTES > UINT32_MAX)
        return nvm_fail(NVM_INVALID, "a heap of %llu bytes: expected a multiple of the chunk size, %llu bytes",
                        (unsigned long long)options->heap_bytes, (unsigned long long)options->chunk_bytes);
    if (options->limit_bytes != 0 && options->limit_bytes < options->heap_bytes)
        return nvm_fail(NVM_INVALID, "a heap of %llu bytes with a limit of %llu", (unsigned long long)options->heap_bytes,
                        (unsigned long long)options->limit_bytes);
    return NVM_OK;
}

/* Persists the new file's size and its name in the folder. */
static int persist_file(const char *folder, const char *path, int fd) {
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
#if defined(MUTANT_NAME_NOT_SYNCED)
    bool is_name_persisted = folder_fd >= 0;
#else
    bool is_name_persisted = folder_fd >= 0 && fsync(folder_fd) == 0;
#endif
    int status = is_name_persisted && fsync(fd) == 0
                     ? NVM_OK
                     : nvm_fail(NVM_ERROR, "%s: the new heap file cannot be persisted: %s", path, strerror(errno));
    if (folder_fd >= 0)
        close(folder_fd);
    return status;
}

/* A new file with all its media, or none. */
static int create_file(const char *folder, const char *path, uint64_t bytes, int *fd) {
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == EEXIST)
        return nvm_fail(NVM_ERROR, "%s exists already: open it, or remove it to create a new heap", path);
    if (*fd < 0)
        return nvm_fail(NVM_ERROR, "%s: cannot create the heap file: %s", path, strerror(errno));
    int error = posix_fallocate(*fd, 0, (off_t)bytes);
    int status = error == 0 ? persist_file(folder, path, *fd)
                            : nvm_fail(NVM_ERROR, "%s: cannot get %llu bytes from the file system: %s", path,
                                       (unsigned long long)bytes, strerror(error));
    if (status != NVM_OK) {
        close(*fd);
        unlink(path);
    }
    return status;
}

static int create_on(struct nvm_heap *heap, const struct nvm_options *options, const char *path) {
    uint64_t limit = limit_of(options, options->heap_bytes);
    int status = reserve_addresses(heap, limit - limit % options->chunk_bytes, options->address_hint);
    if (status == NVM_OK)
        status = map_file(heap, options->heap_bytes, path);
    if (status == NVM_OK)
        status = make_chunk_table(heap, options->chunk_bytes);
    if (status != NVM_OK)
        return status;
    heap->chunk_count = (uint32_t)(options->heap_bytes / options->chunk_bytes);
    format(heap, heap->chunk_count);
    nvm_arena_of_thread(heap); /* who creates a heap has its first arena */
    return nvm_recover(heap, false); /* builds what is volatile */
}

int nvm_heap_create(const struct nvm_options *asked, struct nvm_heap **heap) {
    struct nvm_options options = *asked;
    char path[PATH_MAX];
    int fd = -1;
    *heap = NULL;
    int status = path_of(&options, path);
    if (status == NVM_OK)
        status = check_create_options(&options);
    if (status == NVM_OK)
        status = create_file(options.folder, path, options.heap_bytes, &fd);
    if (status != NVM_OK)
        return status;
    struct nvm_heap *made;
    status = new_heap(fd, &made);
    if (status == NVM_OK) {
        status = create_on(made, &options, path);
        if (status != NVM_OK)
            destroy(made);
    }
    if (status == NVM_OK)
        *heap = made;
    else
        unlink(path);
    return status;
}

/* ---- open ---- */

static int open_file(const char *folder, const char *path, int *fd, uint64_t *bytes) {
    struct stat stat_folder, stat_file;
    if (stat(folder, &stat_folder) != 0)
        return nvm_fail(NVM_ERROR, "%s: cannot use the heap folder: %s", folder, strerror(errno));
    if (!S_ISDIR(stat_folder.st_mode))
        return nvm_fail(NVM_ERROR, "%s is not a folder", folder);
    *fd = open(path, O_RDWR | O_CLOEXEC);
    if (*fd < 0 && errno == ENOENT)
        return nvm_fail(NVM_NOT_A_HEAP, "%s does not exist: create the heap first", path);
    if (*fd < 0)
        return nvm_fail(NVM_ERROR, "%s: cannot open the heap file for reading and writing: %s", path, strerror(errno));
    if (fstat(*fd, &stat_file) != 0 || !S_ISREG(stat_file.st_mode)) {
        close(*fd);
        return nvm_fail(NVM_ERROR, "%s is not a regular file", path);
    }
    *bytes = (uint64_t)stat_file.st_size;
    if (*bytes < 2 * NVM_BLOCK_BYTES) {
        close(*fd);
        return nvm_fail(NVM_NOT_A_HEAP, "%s is %llu bytes long, too short for a heap: its creation was not completed", path,
                        (unsigned long long)*bytes);
    }
    return NVM_OK;
}

static int check_heap_header(const struct nvm_heap_header *header, uint64_t file_bytes, const char *path) {
    if (header->magic != NVM_HEAP_MAGIC)
        return nvm_fail(NVM_NOT_A_HEAP, "%s holds no heap, or its creation was not completed: the magic is %#llx, not %#llx", path,
                        (unsigned long long)header->magic, NVM_HEAP_MAGIC);
    if (header->format != NVM_FORMAT || header->ring_entries != NVM_RING_ENTRIES)
        return nvm_fail(NVM_CORRUPT, "%s has format %llu with %llu ring entries, expected format %u with %u", path,
                        (unsigned long long)header->format, (unsigned long long)header->ring_entries, NVM_FORMAT, NVM_RING_ENTRIES);
    if (header->heap_bytes > file_bytes)
        return nvm_fail(NVM_CORRUPT, "%s is %llu bytes long, but its heap has %llu: was it truncated?", path,
                        (unsigned long long)file_bytes, (unsigned long long)header->heap_bytes);
    struct nvm_options options = {.heap_bytes = header->heap_bytes, .chunk_bytes = header->chunk_bytes};
    if (header->chunk_bytes == 0 || check_create_options(&options) != NVM_OK)
        return nvm_fail(NVM_CORRUPT, "%s has a damaged header: chunks of %llu bytes in a heap of %llu", path,
                        (unsigned long long)header->chunk_bytes, (unsigned long long)header->heap_bytes);
    return NVM_OK;
}

/* How many bytes a chunk has is known only when the file is mapped; the reserved range ends with a whole chunk. */
static void cut_addresses(struct nvm_heap *heap, uint64_t chunk_bytes) {
    uint64_t limit = heap->limit_bytes - heap->limit_bytes % chunk_bytes;
    if (limit != heap->limit_bytes)
        munmap(heap->base + limit, heap->limit_bytes - limit);
    heap->limit_bytes = limit;
}

static enum nvm_scan_by scan_by(const struct nvm_options *options) {
    return !options->is_lazy ? NVM_SCAN_BY_OPEN : options->is_lazy == NVM_LAZY_BY_STEPS ? NVM_SCAN_BY_STEPS : NVM_SCAN_BY_THREAD;
}

static uint64_t whole_os_pages(uint64_t bytes) { return (bytes + NVM_BLOCK_BYTES - 1) / NVM_BLOCK_BYTES * NVM_BLOCK_BYTES; }

static int open_on(struct nvm_heap *heap, const struct nvm_options *options, uint64_t file_bytes, const char *path) {
    int status = reserve_addresses(heap, whole_os_pages(limit_of(options, file_bytes)), options->address_hint);
    if (status == NVM_OK)
        status = map_file(heap, file_bytes, path);
    if (status != NVM_OK)
        return status;
    const struct nvm_heap_header *header = &((const struct nvm_heap_block *)(heap->base + NVM_BLOCK_BYTES))->heap;
    status = check_heap_header(header, file_bytes, path);
    if (status != NVM_OK)
        return status;
    cut_addresses(heap, header->chunk_bytes);
    status = make_chunk_table(heap, header->chunk_bytes);
    if (status == NVM_OK)
        status = nvm_adopt_growth(heap, file_bytes);
    nvm_arena_of_thread(heap);
    return status == NVM_OK ? nvm_recover(heap, scan_by(options)) : status;
}

int nvm_heap_open(const struct nvm_options *options, struct nvm_heap **heap) {
    char path[PATH_MAX];
    int fd = -1;
    uint64_t bytes = 0;
    *heap = NULL;
    int status = path_of(options, path);
    if (status == NVM_OK)
        status = open_file(options->folder, path, &fd, &bytes);
    if (status != NVM_OK)
        return status;
    struct nvm_heap *opened;
    status = new_heap(fd, &opened);
    if (status != NVM_OK)
        return status;
    status = open_on(opened, options, bytes, path);
    if (status == NVM_OK)
        *heap = opened;
    else
        destroy(opened);
    return status;
}

int nvm_heap_settle(struct nvm_heap *heap) { return nvm_scan_wait(heap); }

int nvm_heap_step(struct nvm_heap *heap, int *is_settled) {
    nvm_scan_step(heap);
    *is_settled = nvm_scan_is_settled(heap);
    return *is_settled ? nvm_scan_wait(heap) : NVM_OK;
}

/* Nothing on media tells a closed heap from a crashed one: open treats both alike. */
void nvm_heap_close(struct nvm_heap *heap) { destroy(heap); }

void nvm_thread_attach(struct nvm_heap *heap) { nvm_arena_of_thread(heap); }
void nvm_thread_detach(struct nvm_heap *heap) { pthread_setspecific(heap->thread_arena, NULL); }

/* ---- pointers ---- */

void *nvm_heap_absolute(const struct nvm_heap *heap, uint64_t relative) { return relative == 0 ? NULL : heap->base + relative; }

uint64_t nvm_heap_relative(const struct nvm_heap *heap, const void *absolute) {
    return absolute == NULL ? 0 : (uint64_t)((const char *)absolute - heap->base);
}

uint64_t nvm_heap_bytes(const struct nvm_heap *heap) { return nvm_chunk_count(heap) * heap->chunk_bytes; }
int nvm_heap_is_emulated(const struct nvm_heap *heap) { return heap->is_emulated; }
