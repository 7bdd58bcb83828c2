/* SPDX-License-Identifier: Apache-2.0
 *
 * What the image was told to be, apart from the image: a copy in memory that server and worker share, and that no target knows.
 * In-process runs store to the image itself, and a store that no hook announces is not taken back: here it is found.
 *
 * There is a reference from the first in-process run on until files change. Both make their writes to it as well.
 */
#include "inprocess.h"
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define CHUNK_BYTES 65536u

struct reference {
    int fd;
    uint64_t bytes;
    uint8_t *memory;
};

static struct reference *references; /* by file number */
static uint32_t reference_count;

bool reference_is_there(void) { return references != NULL; }

/* A chunk of the file that holds data; whether it is not as in the reference. It is made so, or the reference made like it. */
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

/* Holes stay holes: a file that holds no data there is as it was, since in-process runs punch none. */
static bool look_at_all(bool is_new) {
    bool differs = false;
    for (uint32_t number = 0; number < reference_count; number++) {
        const struct reference *reference = &references[number];
        for (off_t from = 0, to; (uint64_t)from < reference->bytes; from = to) {
            from = lseek(reference->fd, from, SEEK_DATA);
            to = from < 0 ? -1 : lseek(reference->fd, from, SEEK_HOLE);
            if (to < 0)
                break;
            uint64_t end = (uint64_t)to < reference->bytes ? (uint64_t)to : reference->bytes;
            for (uint64_t at = (uint64_t)from; at < end; at += CHUNK_BYTES)
                differs |= look_at(reference, at, end - at < CHUNK_BYTES ? end - at : CHUNK_BYTES, is_new);
        }
    }
    return differs;
}

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
        reference->memory = mmap(NULL, reference->bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (reference->memory == MAP_FAILED)
            fail(EXIT_INFRASTRUCTURE, "no memory for a second copy of the image: %s", strerror(errno));
    }
    look_at_all(true);
}

void reference_write(uint32_t number, uint64_t offset, const void *bytes, size_t count) {
    if (number < reference_count && offset + count <= references[number].bytes)
        memcpy(references[number].memory + offset, bytes, count);
}

bool reference_differs(void) { return look_at_all(false); }

void reference_end(void) {
    for (uint32_t number = 0; number < reference_count; number++)
        if (references[number].bytes > 0)
            munmap(references[number].memory, references[number].bytes);
    free(references);
    references = NULL;
    reference_count = 0;
}
