/* SPDX-License-Identifier: Apache-2.0
 *
 * What an in-process run stored to the image, so that it can be taken back: of each line, its bytes before the first store; of each
 * file that grew, its size. The log lies in memory that the worker shares with the server, so that a run that dies is taken back
 * by the server.
 *
 * Only what is announced is noted: stores by hooks, by the C library's copies, by the runner and by the kernel's reads. What lies
 * beyond a file's size in the image need not be noted: it goes with the size.
 */
#include "inprocess.h"
#include "planted.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE_BYTES 64u
#define MOST_LINES (1u << 22) /* in one run: 320 MiB of log */
#define MOST_GROWN 64u

struct line {
    uint32_t file, bytes;
    uint64_t offset;
    uint8_t before[LINE_BYTES];
};

struct shared {
    uint32_t line_count, grown_count;
    struct {
        uint32_t file;
        uint64_t bytes;
    } grown[MOST_GROWN];
    struct line lines[MOST_LINES];
};

struct undo_file {
    int fd;
    uint64_t bytes;   /* in the image */
    uint8_t *memory;  /* all of them */
    uint8_t *is_noted; /* by line */
};

static struct {
    struct shared *shared;
    struct undo_file *files; /* the worker's */
    uint32_t file_count;
} undo;

static void *map_or_fail(uint64_t bytes, int flags, int fd) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for in-process runs (%llu MiB): %s", (unsigned long long)bytes >> 20, strerror(errno));
    return memory;
}

void undo_map(void) { undo.shared = map_or_fail(sizeof *undo.shared, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1); }

void undo_add_file(uint32_t number, int fd, uint64_t bytes) {
    if (number >= undo.file_count) {
        undo.files = allocate_or_fail(undo.files, (number + 1) * sizeof *undo.files);
        memset(undo.files + undo.file_count, 0, (number + 1 - undo.file_count) * sizeof *undo.files);
        undo.file_count = number + 1;
    }
    struct undo_file *file = &undo.files[number];
    *file = (struct undo_file){.fd = fd, .bytes = bytes};
    if (bytes == 0)
        return;
    file->memory = map_or_fail(bytes, MAP_SHARED, fd);
    file->is_noted = map_or_fail(bytes / LINE_BYTES + 1, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1);
}

uint8_t *undo_memory(uint32_t number, uint64_t *bytes) {
    *bytes = number < undo.file_count ? undo.files[number].bytes : 0;
    return *bytes == 0 ? NULL : undo.files[number].memory;
}

const uint8_t *undo_notes(uint32_t number) { return number < undo.file_count ? undo.files[number].is_noted : NULL; }

bool undo_file(uint32_t number, int *fd, uint64_t *bytes) {
    if (number >= undo.file_count)
        return false;
    *fd = undo.files[number].fd;
    *bytes = undo.files[number].bytes;
    return true;
}

void undo_note(uint32_t number, uint64_t offset, uint64_t bytes) {
    if (number >= undo.file_count)
        return;
    struct undo_file *file = &undo.files[number];
    uint64_t end = offset + bytes < file->bytes ? offset + bytes : file->bytes;
    for (uint64_t at = offset - offset % LINE_BYTES; at < end; at += LINE_BYTES) {
        uint8_t *is_noted = &file->is_noted[at / LINE_BYTES];
        if (*is_noted)
            continue;
        if (undo.shared->line_count == MOST_LINES)
            inprocess_leave("stores to more lines than the undo log holds");
        *is_noted = 1;
        struct line *line = &undo.shared->lines[undo.shared->line_count];
        line->file = number;
        line->bytes = file->bytes - at < LINE_BYTES ? (uint32_t)(file->bytes - at) : LINE_BYTES;
        line->offset = at;
        memcpy(line->before, file->memory + at, line->bytes);
        __atomic_store_n(&undo.shared->line_count, undo.shared->line_count + 1, __ATOMIC_RELEASE);
    }
}

void undo_note_growth(uint32_t number) {
    if (number >= undo.file_count)
        inprocess_leave("makes files larger that the image does not have");
    for (uint32_t i = 0; i < undo.shared->grown_count; i++)
        if (undo.shared->grown[i].file == number)
            return;
    if (undo.shared->grown_count == MOST_GROWN)
        inprocess_leave("makes more than 64 files larger");
    undo.shared->grown[undo.shared->grown_count].file = number;
    undo.shared->grown[undo.shared->grown_count].bytes = undo.files[number].bytes;
    __atomic_store_n(&undo.shared->grown_count, undo.shared->grown_count + 1, __ATOMIC_RELEASE);
}

uint64_t undo_image_bytes(uint32_t number) { return number < undo.file_count ? undo.files[number].bytes : 0; }

bool undo_has_grown(void) { return undo.shared->grown_count > 0; }

static void forget(void) { undo.shared->line_count = undo.shared->grown_count = 0; }

void undo_apply(void) {
    uint32_t count = undo.shared->line_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct line *line = &undo.shared->lines[i];
        struct undo_file *file = &undo.files[line->file];
        file->is_noted[line->offset / LINE_BYTES] = 0;
        if (i + 1 < count || !planted("forget-a-line"))
            memcpy(file->memory + line->offset, line->before, line->bytes);
    }
    for (uint32_t i = 0; i < undo.shared->grown_count; i++)
        if (syscall(SYS_ftruncate, undo.files[undo.shared->grown[i].file].fd, undo.shared->grown[i].bytes) != 0)
            fail(EXIT_INFRASTRUCTURE, "the image cannot get its size back: %s", strerror(errno));
    forget();
}

void undo_apply_for_the_dead(int (*descriptor)(uint32_t file)) {
    for (uint32_t i = 0; i < undo.shared->line_count && i < MOST_LINES; i++) {
        const struct line *line = &undo.shared->lines[i];
        if (pwrite(descriptor(line->file), line->before, line->bytes, (off_t)line->offset) != (ssize_t)line->bytes)
            fail(EXIT_INFRASTRUCTURE, "the image cannot get its bytes back: %s", strerror(errno));
    }
    for (uint32_t i = 0; i < undo.shared->grown_count && i < MOST_GROWN; i++)
        if (ftruncate(descriptor(undo.shared->grown[i].file), (off_t)undo.shared->grown[i].bytes) != 0)
            fail(EXIT_INFRASTRUCTURE, "the image cannot get its size back: %s", strerror(errno));
    forget();
}
