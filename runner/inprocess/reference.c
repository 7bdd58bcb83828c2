/* SPDX-License-Identifier: Apache-2.0
 *
 * What the image should be: a copy of it in memory that server and worker share and that no target knows. In-process runs store
 * to the image itself, and a store that no hook announces is not taken back. The comparison with the reference finds it.
 *
 * There is a reference from the first in-process run until files change. The engine's writes go to it as well. Names and sizes
 * of files are compared with what the server listed.
 */
#include "inprocess/inprocess.h"
#include "files/files.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES 65536u

struct reference {
    int fd;
    uint64_t bytes;
    uint8_t *memory;
    uint8_t *has_data; /* one byte a chunk: some of it does, or did; behind the memory */
};

static struct reference *references; /* by file number */
static uint32_t reference_count;

bool reference_is_there(void) { return references != NULL; }

static uint64_t chunks_of(const struct reference *reference) { return (reference->bytes + CHUNK_BYTES - 1) / CHUNK_BYTES; }

/* A chunk of the file; whether it is not as in the reference. It is made so, or the reference made like it. */
static bool look_at(const struct reference *reference, uint64_t offset, uint64_t count, bool is_new) {
    static uint8_t chunk[CHUNK_BYTES];
    uint8_t *known = reference->memory + offset;
    if (pread(reference->fd, is_new ? known : chunk, count, (off_t)offset) != (ssize_t)count)
        fail(EXIT_INFRASTRUCTURE, "the image cannot be read: %s", strerror(errno));
    if (is_new || memcmp(chunk, known, count) == 0)
        return false;
    if (pwrite(reference->fd, known, count, (off_t)offset) != (ssize_t)count)
        fail(EXIT_INFRASTRUCTURE, "the image cannot get its bytes back: %s", strerror(errno));
    return true;
}

static void find_data(const struct reference *reference) {
    for (off_t from = 0, to; (uint64_t)from < reference->bytes; from = to) {
        from = lseek(reference->fd, from, SEEK_DATA);
        to = from < 0 ? -1 : lseek(reference->fd, from, SEEK_HOLE);
        if (to < 0)
            return;
        for (uint64_t chunk = (uint64_t)from / CHUNK_BYTES; chunk < chunks_of(reference) && chunk * CHUNK_BYTES < (uint64_t)to;
             chunk++)
            reference->has_data[chunk] = 1;
    }
}

/* What never held data is as it was. */
static bool look_at_all(bool is_new) {
    bool differs = false;
    for (uint32_t number = 0; number < reference_count; number++) {
        const struct reference *reference = &references[number];
        find_data(reference);
        for (uint64_t chunk = 0; chunk < chunks_of(reference); chunk++) {
            uint64_t at = chunk * CHUNK_BYTES, left = reference->bytes - at;
            if (reference->has_data[chunk])
                differs |= look_at(reference, at, left < CHUNK_BYTES ? left : CHUNK_BYTES, is_new);
        }
    }
    return differs;
}

static uint64_t mapped_bytes(const struct reference *reference) { return reference->bytes + chunks_of(reference); }

void reference_begin(uint32_t count, int (*descriptor)(uint32_t file)) {
    references = allocate_or_fail(NULL, count * sizeof *references);
    reference_count = count;
    for (uint32_t number = 0; number < count; number++) {
        struct reference *reference = &references[number];
        struct stat info;
        *reference = (struct reference){.fd = descriptor(number)};
        if (reference->fd < 0 || fstat(reference->fd, &info) != 0 || info.st_size == 0)
            continue;
        reference->bytes = (uint64_t)info.st_size;
        reference->memory =
            mmap(NULL, mapped_bytes(reference), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reference->memory == MAP_FAILED)
            fail(EXIT_INFRASTRUCTURE, "no memory for a second copy of the image: %s", strerror(errno));
        reference->has_data = reference->memory + reference->bytes;
    }
    look_at_all(true);
}

void reference_write(uint32_t number, uint64_t offset, const void *bytes, size_t count) {
    if (number >= reference_count || count == 0 || offset + count > references[number].bytes)
        return;
    memcpy(references[number].memory + offset, bytes, count);
    for (uint64_t chunk = offset / CHUNK_BYTES; chunk <= (offset + count - 1) / CHUNK_BYTES; chunk++)
        references[number].has_data[chunk] = 1;
}

bool reference_differs(void) { return look_at_all(false); }

bool reference_has_other_files(void) {
    const struct tree *known = vfs_tree();
    struct tree now;
    bool differs = tree_list(vfs_folder(), &now) != 0 || now.count != known->count;
    for (size_t i = 0; !differs && i < known->count; i++) {
        const struct tree_entry *one = &known->entries[i], *other = &now.entries[i];
        differs = one->inode != other->inode || one->bytes != other->bytes || strcmp(one->path, other->path) != 0;
    }
    tree_free(&now);
    return differs;
}

void reference_end(void) {
    for (uint32_t number = 0; number < reference_count; number++)
        if (references[number].bytes > 0)
            munmap(references[number].memory, mapped_bytes(&references[number]));
    free(references);
    references = NULL;
    reference_count = 0;
}
