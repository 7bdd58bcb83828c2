/* SPDX-License-Identifier: Apache-2.0
 *
 * What an in-process run stored to the files of the image, so that it can be taken back: of each line its bytes before the first
 * store, of each file that got another size its size. The log lies in memory that worker and server share, so the server can
 * take back what a run did that died.
 *
 * Only what is announced is noted: stores by hooks, by the C library's copies, by the runner, by the kernel when it reads into
 * memory or writes to a file, and what a file loses when it is cut or punched. Two things need no note. What lies beyond a
 * file's size in the image goes when the size comes back. What lies beyond the smallest size that a file had comes back as
 * zeros, but for what was noted when it was cut; so holes are not noted, neither then nor when they are punched. What was a hole
 * may be zeros that the file system holds afterwards.
 */
#include "undo/undo.h"
#include <errno.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LINE_BYTES 64u
#define MOST_LINES (1u << 22) /* in one run: 320 MiB of log */
#define MOST_RESIZED 64u

struct line {
    uint32_t file, bytes;
    uint64_t offset;
    uint8_t before[LINE_BYTES];
};

struct resized {
    uint32_t file;
    uint64_t bytes; /* in the image */
    uint64_t smallest; /* that it had or may get, at most `bytes`: from there on, only noted lines have to come back */
};

struct shared {
    uint32_t line_count, resized_count;
    struct resized resized[MOST_RESIZED];
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

#define FOR "in-process runs"

void undo_map(void) { undo.shared = map_or_fail(sizeof *undo.shared, MAP_SHARED, -1, FOR); }

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
    file->memory = map_or_fail(bytes, MAP_SHARED, fd, FOR);
    file->is_noted = map_or_fail(bytes / LINE_BYTES + 1, MAP_PRIVATE, -1, FOR);
}

uint8_t *undo_memory(uint32_t number, uint64_t *bytes) {
    *bytes = number < undo.file_count ? undo.files[number].bytes : 0;
    return *bytes == 0 ? NULL : undo.files[number].memory;
}

const uint8_t *undo_notes(uint32_t number) { return number < undo.file_count ? undo.files[number].is_noted : NULL; }

/* Null: it has the size that it has in the image. */
static struct resized *find_resized(uint32_t number) {
    for (uint32_t i = 0; i < undo.shared->resized_count; i++)
        if (undo.shared->resized[i].file == number)
            return &undo.shared->resized[i];
    return NULL;
}

/* readable: bytes of the file that its mapping shows; behind them it is zero. */
static void note_lines(uint32_t number, uint64_t offset, uint64_t bytes, uint64_t readable) {
    static const uint8_t zeros[LINE_BYTES];
    if (number >= undo.file_count)
        return;
    struct undo_file *file = &undo.files[number];
    uint64_t end = offset + bytes < file->bytes ? offset + bytes : file->bytes;
    if (offset + bytes > file->bytes && find_resized(number) == NULL)
        inprocess_leave("stores behind the end of a file");
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
        memcpy(line->before, at < readable ? file->memory + at : zeros, line->bytes);
        __atomic_store_n(&undo.shared->line_count, undo.shared->line_count + 1, __ATOMIC_RELEASE);
    }
}

void undo_note(uint32_t number, uint64_t offset, uint64_t bytes) { note_lines(number, offset, bytes, UINT64_MAX); }

void undo_note_write(uint32_t number, uint64_t bytes_now, uint64_t offset, uint64_t bytes) {
    if (offset + bytes > bytes_now)
        undo_note_resize(number, bytes_now, offset + bytes);
    note_lines(number, offset, bytes, (bytes_now + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES);
}

/* Only what holds data. */
void undo_note_zeroing(uint32_t number, uint64_t offset, uint64_t bytes) {
    if (number >= undo.file_count)
        inprocess_leave("changes files that came later");
    const struct undo_file *file = &undo.files[number];
    if (offset >= file->bytes)
        return;
    off_t end = (off_t)(bytes < file->bytes - offset ? offset + bytes : file->bytes), to;
    for (off_t from = (off_t)offset; from < end; from = to) {
        from = syscall(SYS_lseek, file->fd, from, SEEK_DATA);
        to = from < 0 ? -1 : syscall(SYS_lseek, file->fd, from, SEEK_HOLE);
        if (to < 0 || from >= end)
            return; /* no data is left */
        undo_note(number, (uint64_t)from, (uint64_t)((to < end ? to : end) - from));
    }
}

static void note_size(uint32_t number, uint64_t bytes) {
    struct shared *shared = undo.shared;
    uint64_t image = undo.files[number].bytes, smallest = bytes < image ? bytes : image;
    struct resized *known = find_resized(number);
    if (known != NULL) {
        known->smallest = smallest < known->smallest ? smallest : known->smallest;
        return;
    }
    if (shared->resized_count == MOST_RESIZED)
        inprocess_leave("changes the sizes of more than 64 files");
    shared->resized[shared->resized_count] = (struct resized){number, image, smallest};
    __atomic_store_n(&shared->resized_count, shared->resized_count + 1, __ATOMIC_RELEASE);
}

void undo_note_resize(uint32_t number, uint64_t bytes_now, uint64_t bytes) {
    if (number >= undo.file_count)
        inprocess_leave("changes files that came later");
    if (bytes < bytes_now)
        undo_note_zeroing(number, bytes, bytes_now - bytes);
    note_size(number, bytes);
}

uint64_t undo_unit(uint32_t number, uint64_t unit) {
    const struct undo_file *file = number < undo.file_count ? &undo.files[number] : NULL;
    uint64_t value = 0, at = unit * FL_UNIT_BYTES;
    if (file != NULL && at < file->bytes)
        memcpy(&value, file->memory + at, file->bytes - at < FL_UNIT_BYTES ? file->bytes - at : FL_UNIT_BYTES);
    return value;
}

void undo_each_change(void (*visit)(uint32_t number, uint64_t unit, uint64_t value)) {
    for (uint32_t i = 0; i < undo.shared->line_count; i++) {
        const struct line *line = &undo.shared->lines[i];
        for (uint32_t at = 0; at < line->bytes; at += FL_UNIT_BYTES) {
            uint64_t unit = (line->offset + at) / FL_UNIT_BYTES, before = 0;
            memcpy(&before, line->before + at, line->bytes - at < FL_UNIT_BYTES ? line->bytes - at : FL_UNIT_BYTES);
            uint64_t value = undo_unit(line->file, unit);
            if (value != before)
                visit(line->file, unit, value);
        }
    }
}

uint64_t undo_image_bytes(uint32_t number) { return number < undo.file_count ? undo.files[number].bytes : 0; }

bool undo_has_resized(void) { return undo.shared->resized_count > 0; }

static void forget(void) { undo.shared->line_count = undo.shared->resized_count = 0; }

static void put_size_back(int fd, uint32_t number) {
    uint64_t bytes = undo.shared->resized[number].bytes, smallest = undo.shared->resized[number].smallest;
    if ((smallest < bytes && syscall(SYS_ftruncate, fd, smallest) != 0) || syscall(SYS_ftruncate, fd, bytes) != 0)
        fail(EXIT_INFRASTRUCTURE, "the image cannot get its size back: %s", strerror(errno));
}

/* Sizes come before lines: what was cut off has to be there again. */
void undo_apply(void) {
    names_take_back();
    for (uint32_t i = 0; i < undo.shared->resized_count; i++)
        put_size_back(undo.files[undo.shared->resized[i].file].fd, i);
    uint32_t count = undo.shared->line_count;
    for (uint32_t i = 0; i < count; i++) {
        const struct line *line = &undo.shared->lines[i];
        struct undo_file *file = &undo.files[line->file];
        file->is_noted[line->offset / LINE_BYTES] = 0;
        memcpy(file->memory + line->offset, line->before, line->bytes);
    }
    forget();
}

void undo_apply_for_the_dead(int (*descriptor)(uint32_t file)) {
    names_take_back();
    for (uint32_t i = 0; i < undo.shared->resized_count && i < MOST_RESIZED; i++)
        put_size_back(descriptor(undo.shared->resized[i].file), i);
    for (uint32_t i = 0; i < undo.shared->line_count && i < MOST_LINES; i++) {
        const struct line *line = &undo.shared->lines[i];
        if (pwrite(descriptor(line->file), line->before, line->bytes, (off_t)line->offset) != (ssize_t)line->bytes)
            fail(EXIT_INFRASTRUCTURE, "the image cannot get its bytes back: %s", strerror(errno));
    }
    forget();
}
