/* SPDX-License-Identifier: Apache-2.0
 *
 * heap.c - creating, opening and closing a heap.
 *
 * create formats a file of zeros and persists the magic after everything else, so that a heap exists completely or not at
 * all. The file gets its media when it is created (fallocate): a full file system is found out then, not by SIGBUS.
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

static void destroy(struct nvm_heap *heap) {
    if (heap->vheaders != NULL)
        for (uint32_t block = 0; block < heap->block_count; block++) {
            struct nvm_vheader *vheader = heap->vheaders[block];
            if (vheader == NULL)
                continue;
            heap->vheaders[vheader->block + vheader->blocks - 1] = NULL;
            free(vheader);
        }
    nvm_names_destroy(heap);
    free(heap->vheaders);
    free(heap->roles);
    if (heap->base != NULL)
        munmap(heap->base, heap->heap_bytes);
    free(heap);
}

static int new_heap(uint64_t heap_bytes, uint64_t chunk_bytes, char *base, int is_emulated, struct nvm_heap **created) {
    struct nvm_heap *heap = calloc(1, sizeof *heap);
    if (heap == NULL) {
        munmap(base, heap_bytes);
        return nvm_fail(NVM_ERROR, "out of volatile memory for the heap");
    }
    heap->base = base;
    heap->is_emulated = is_emulated;
    heap->heap_bytes = heap_bytes;
    heap->chunk_bytes = chunk_bytes;
    heap->block_count = (uint32_t)(heap_bytes / NVM_BLOCK_BYTES);
    heap->chunk_blocks = (uint32_t)(chunk_bytes / NVM_BLOCK_BYTES);
    heap->media = (struct nvm_heap_block *)(base + NVM_BLOCK_BYTES);
    heap->roles = calloc(heap->block_count, sizeof *heap->roles);
    heap->vheaders = calloc(heap->block_count, sizeof(struct nvm_vheader *));
    int status = heap->roles == NULL || heap->vheaders == NULL ? nvm_fail(NVM_ERROR, "out of volatile memory for the block table")
                                                               : nvm_names_init(heap);
    if (status != NVM_OK)
        destroy(heap);
    else
        *created = heap;
    return status;
}

static int map_file(int fd, uint64_t bytes, uintptr_t hint, const char *path, char **base, int *is_emulated) {
    void *mapping = fl_map(hint, bytes, fd, 0, 0, is_emulated);
    if (mapping == MAP_FAILED && hint != 0) /* somebody is there already: heaps are relocatable */
        mapping = fl_map(0, bytes, fd, 0, 0, is_emulated);
    if (mapping == MAP_FAILED)
        return nvm_fail(NVM_ERROR, "%s: cannot map %llu bytes: %s", path, (unsigned long long)bytes, strerror(errno));
    *base = mapping;
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

static void format_chunk(struct nvm_heap *heap, uint32_t chunk) {
    struct nvm_chunk_header *header = &nvm_chunk_at(heap, chunk)->header;
    uint32_t first = chunk * heap->chunk_blocks + 1, blocks = heap->chunk_blocks - 1;
    fl_store8(&header->magic, NVM_CHUNK_MAGIC);
    fl_store8(&header->index, chunk);
    fl_store8(&header->tag, nvm_tag(NVM_KIND_CHUNK_ARENA, NVM_STATE_IDLE, 0, heap->chunk_blocks));
    fl_flush(header, sizeof *header);
    if (chunk == 0) {
        format_region(heap, first, NVM_KIND_HEAP_BLOCK, 1);
        first++;
        blocks--;
    }
    format_region(heap, first, NVM_KIND_FREE, blocks);
}

/* The file is all zeros: object tables and ring are empty already. */
static void format(struct nvm_heap *heap) {
    struct nvm_heap_header *header = &heap->media->heap;
#if defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&header->magic, NVM_HEAP_MAGIC);
    fl_persist(header, sizeof *header);
#endif
    for (uint32_t chunk = 0; chunk < nvm_chunk_count(heap); chunk++)
        format_chunk(heap, chunk);
    fl_store8(&header->format, NVM_FORMAT);
    fl_store8(&header->heap_bytes, heap->heap_bytes);
    fl_store8(&header->chunk_bytes, heap->chunk_bytes);
    fl_store8(&header->ring_entries, NVM_RING_ENTRIES);
    fl_fence(); /* everything but the magic; the rest of its line precedes it anyway */
#if !defined(MUTANT_MAGIC_NOT_LAST)
    fl_store8(&header->magic, NVM_HEAP_MAGIC);
#endif
    fl_persist(header, sizeof *header);
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
    return NVM_OK;
}

/* A new file with all its media, or none. */
static int create_file(const char *folder, const char *path, uint64_t bytes, int *fd) {
    *fd = open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
    if (*fd < 0 && errno == EEXIST)
        return nvm_fail(NVM_ERROR, "%s exists already: open it, or remove it to create a new heap", path);
    if (*fd < 0)
        return nvm_fail(NVM_ERROR, "%s: cannot create the heap file: %s", path, strerror(errno));
    int error = posix_fallocate(*fd, 0, (off_t)bytes);
    if (error != 0) {
        close(*fd);
        unlink(path);
        return nvm_fail(NVM_ERROR, "%s: cannot get %llu bytes from the file system: %s", path, (unsigned long long)bytes,
                        strerror(error));
    }
    int folder_fd = open(folder, O_RDONLY | O_DIRECTORY | O_CLOEXEC); /* the file's name must survive as well */
    if (folder_fd >= 0) {
        fsync(*fd);
        fsync(folder_fd);
        close(folder_fd);
    }
    return NVM_OK;
}

int nvm_heap_create(const struct nvm_options *asked, struct nvm_heap **heap) {
    struct nvm_options options = *asked;
    char path[PATH_MAX];
    char *base;
    int fd = -1, is_emulated;
    *heap = NULL;
    int status = path_of(&options, path);
    if (status == NVM_OK)
        status = check_create_options(&options);
    if (status == NVM_OK)
        status = create_file(options.folder, path, options.heap_bytes, &fd);
    if (status != NVM_OK)
        return status;
    status = map_file(fd, options.heap_bytes, options.address_hint, path, &base, &is_emulated);
    close(fd);
    if (status == NVM_OK)
        status = new_heap(options.heap_bytes, options.chunk_bytes, base, is_emulated, heap);
    if (status == NVM_OK) {
        format(*heap);
        status = nvm_recover(*heap); /* builds what is volatile */
        if (status != NVM_OK)
            destroy(*heap);
    }
    if (status != NVM_OK) {
        *heap = NULL;
        unlink(path);
    }
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
    if (header->heap_bytes != file_bytes)
        return nvm_fail(NVM_CORRUPT, "%s is %llu bytes long, but its heap has %llu: was it truncated?", path,
                        (unsigned long long)file_bytes, (unsigned long long)header->heap_bytes);
    struct nvm_options options = {.heap_bytes = header->heap_bytes, .chunk_bytes = header->chunk_bytes};
    if (header->chunk_bytes == 0 || check_create_options(&options) != NVM_OK)
        return nvm_fail(NVM_CORRUPT, "%s has a damaged header: chunks of %llu bytes in a heap of %llu", path,
                        (unsigned long long)header->chunk_bytes, (unsigned long long)header->heap_bytes);
    return NVM_OK;
}

int nvm_heap_open(const struct nvm_options *options, struct nvm_heap **heap) {
    char path[PATH_MAX];
    char *base;
    int fd = -1, is_emulated;
    uint64_t bytes = 0;
    *heap = NULL;
    int status = path_of(options, path);
    if (status == NVM_OK)
        status = open_file(options->folder, path, &fd, &bytes);
    if (status != NVM_OK)
        return status;
    status = map_file(fd, bytes, options->address_hint, path, &base, &is_emulated);
    close(fd);
    if (status != NVM_OK)
        return status;
    const struct nvm_heap_header *header = &((const struct nvm_heap_block *)(base + NVM_BLOCK_BYTES))->heap;
    status = check_heap_header(header, bytes, path);
    if (status != NVM_OK) {
        munmap(base, bytes);
        return status;
    }
    status = new_heap(bytes, header->chunk_bytes, base, is_emulated, heap);
    if (status != NVM_OK)
        return status;
    status = nvm_recover(*heap);
    if (status != NVM_OK) {
        destroy(*heap);
        *heap = NULL;
    }
    return status;
}

/* Nothing on media tells a closed heap from a crashed one: open treats both alike. */
void nvm_heap_close(struct nvm_heap *heap) {
    nvm_assert_heap(heap);
    fl_fence(); /* the last cleared ring entry */
    destroy(heap);
}

/* ---- pointers ---- */

void *nvm_heap_absolute(const struct nvm_heap *heap, uint64_t relative) { return relative == 0 ? NULL : heap->base + relative; }

uint64_t nvm_heap_relative(const struct nvm_heap *heap, const void *absolute) {
    return absolute == NULL ? 0 : (uint64_t)((const char *)absolute - heap->base);
}

uint64_t nvm_heap_bytes(const struct nvm_heap *heap) { return heap->heap_bytes; }
int nvm_heap_is_emulated(const struct nvm_heap *heap) { return heap->is_emulated; }
