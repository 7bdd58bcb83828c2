/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.c - see recorder.h.
 */
#include "recorder.h"

#include <assert.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "persist.h"

enum { STEP = 4096, NAME_BYTES = 256 };

struct version {
    uint8_t content[FL_LINE_BYTES];
    bool is_torn; /* made of several stores: its units are unordered */
};

struct line {
    struct version *versions; /* null: one version, the newest */
    uint32_t count;
    uint32_t floor;
    uint32_t flushed; /* becomes the floor at the next fence */
};

struct file {
    char name[NAME_BYTES];
    dev_t device;
    ino_t inode; /* not used again while it is mapped */
    const char *base; /* the recorder's own mapping, for reading */
    size_t bytes; /* mapped so far */
    char *newest;
    struct line *lines;
};

/* Where the heap has a part of a file. */
struct range {
    char *start;
    size_t bytes;
    struct file *file;
    size_t offset;
};

struct recorder {
    recorder_crash crash;
    void *context;
    struct file **files;
    size_t file_count;
    struct range *ranges; /* later ones lie over earlier ones */
    size_t range_count;
};

static struct recorder *current;

struct recorder *recorder_new(recorder_crash crash, void *context) {
    struct recorder *recorder = calloc(1, sizeof *recorder);
    recorder->crash = crash;
    recorder->context = context;
    return recorder;
}

static void forget_range(struct recorder *recorder, size_t number) {
    recorder->range_count--;
    memmove(recorder->ranges + number, recorder->ranges + number + 1, (recorder->range_count - number) * sizeof(struct range));
}

static void forget_file(struct recorder *recorder, size_t number) {
    struct file *file = recorder->files[number];
    for (size_t i = recorder->range_count; i-- > 0;)
        if (recorder->ranges[i].file == file)
            forget_range(recorder, i);
    for (size_t i = 0; i < file->bytes / FL_LINE_BYTES; i++)
        free(file->lines[i].versions);
    if (file->bytes > 0)
        munmap((void *)file->base, file->bytes);
    free(file->lines);
    free(file->newest);
    free(file);
    recorder->file_count--;
    memmove(recorder->files + number, recorder->files + number + 1, (recorder->file_count - number) * sizeof(struct file *));
}

void recorder_delete(struct recorder *recorder) {
    if (current == recorder)
        current = NULL;
    while (recorder->file_count > 0)
        forget_file(recorder, recorder->file_count - 1);
    free(recorder->files);
    free(recorder->ranges);
    free(recorder);
}

struct recorder *recorder_switch(struct recorder *recorder) {
    struct recorder *before = current;
    current = recorder;
    return before;
}

/* ---- versions ---- */

static void add_version(struct file *file, size_t number, bool is_torn) {
    struct line *line = &file->lines[number];
    size_t offset = number * FL_LINE_BYTES;
    if (line->count == 0) { /* the content so far becomes version 0 */
        line->versions = malloc(sizeof *line->versions);
        memcpy(line->versions[0].content, file->newest + offset, FL_LINE_BYTES);
        line->versions[0].is_torn = false;
        line->count = 1;
    }
    line->versions = realloc(line->versions, (line->count + 1) * sizeof *line->versions);
    struct version *version = &line->versions[line->count++];
    memcpy(version->content, file->base + offset, FL_LINE_BYTES);
    version->is_torn = is_torn;
    memcpy(file->newest + offset, file->base + offset, FL_LINE_BYTES);
}

static void make_clean(struct line *line) {
    free(line->versions);
    *line = (struct line){0};
}

/* Stores that were not announced. */
static void notice_changes(void) {
    for (size_t i = 0; i < current->file_count; i++) {
        struct file *file = current->files[i];
        for (size_t from = 0; from < file->bytes; from += STEP) {
            if (memcmp(file->newest + from, file->base + from, STEP) == 0)
                continue;
            for (size_t at = from; at < from + STEP; at += FL_LINE_BYTES)
                if (memcmp(file->newest + at, file->base + at, FL_LINE_BYTES) != 0)
                    add_version(file, at / FL_LINE_BYTES, true);
        }
    }
}

void recorder_position(void) {
    struct recorder *recorder = current;
    if (recorder == NULL)
        return;
    notice_changes();
    current = NULL;
    recorder->crash(recorder, recorder->context);
    current = recorder;
}

/* ---- files ---- */

static struct file *file_behind(int fd, const char *path) {
    struct stat info;
    int failed = fstat(fd, &info);
    assert(failed == 0);
    for (size_t i = 0; i < current->file_count; i++)
        if (current->files[i]->device == info.st_dev && current->files[i]->inode == info.st_ino)
            return current->files[i];
    const char *slash = strrchr(path, '/');
    struct file *file = calloc(1, sizeof *file);
    snprintf(file->name, sizeof file->name, "%s", slash == NULL ? path : slash + 1);
    file->device = info.st_dev;
    file->inode = info.st_ino;
    current->files = realloc(current->files, (current->file_count + 1) * sizeof(struct file *));
    return current->files[current->file_count++] = file;
}

/* To this many bytes. What the file holds there is persisted. */
static void grow(struct file *file, int fd, size_t bytes) {
    if (bytes <= file->bytes)
        return;
    if (file->bytes > 0)
        munmap((void *)file->base, file->bytes);
    file->base = mmap(NULL, bytes, PROT_READ, MAP_SHARED, fd, 0);
    assert(file->base != MAP_FAILED && bytes % STEP == 0);
    file->newest = realloc(file->newest, bytes);
    memcpy(file->newest + file->bytes, file->base + file->bytes, bytes - file->bytes);
    size_t known = file->bytes / FL_LINE_BYTES, lines = bytes / FL_LINE_BYTES;
    file->lines = realloc(file->lines, lines * sizeof *file->lines);
    memset(file->lines + known, 0, (lines - known) * sizeof *file->lines);
    file->bytes = bytes;
}

/* The heap has mapped anew all of what was there, or all of that part of the file. */
static bool is_replaced(const struct range *old, const struct range *new) {
    bool is_covered = new->start <= old->start && old->start + old->bytes <= new->start + new->bytes;
    bool is_elsewhere = old->file == new->file &&new->offset <= old->offset && old->offset + old->bytes <= new->offset + new->bytes;
    return is_covered || is_elsewhere;
}

/* The whole file from its start on, or a part of it where the rest is known already. */
void recorder_mapped(void *address, size_t bytes, int fd, size_t offset) {
    if (current == NULL)
        return;
    char link[64], path[4096];
    snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
    ssize_t length = readlink(link, path, sizeof path - 1);
    assert(length > 0);
    path[length] = '\0';
    struct file *file = file_behind(fd, path);
    assert(offset <= file->bytes);
    grow(file, fd, offset + bytes);
    for (size_t i = current->range_count; i-- > 0;)
        if (is_replaced(&current->ranges[i], &(struct range){address, bytes, file, offset}))
            forget_range(current, i);
    current->ranges = realloc(current->ranges, (current->range_count + 1) * sizeof *current->ranges);
    current->ranges[current->range_count++] = (struct range){address, bytes, file, offset};
    recorder_position();
}

void recorder_add(const char *path) {
    if (current == NULL)
        return;
    int fd = open(path, O_RDONLY | O_CLOEXEC);
    struct stat info;
    int failed = fd < 0 ? -1 : fstat(fd, &info);
    assert(failed == 0);
    grow(file_behind(fd, path), fd, (size_t)info.st_size);
    close(fd);
}

static size_t number_of(const char *name) {
    size_t number = 0;
    while (number < current->file_count && strcmp(current->files[number]->name, name) != 0)
        number++;
    return number;
}

void recorder_punched(const char *name, size_t offset, size_t bytes) {
    if (current == NULL)
        return;
    size_t number = number_of(name);
    assert(number < current->file_count);
    struct file *file = current->files[number];
    memset(file->newest + offset, 0, bytes);
    for (size_t line = offset / FL_LINE_BYTES; line < (offset + bytes) / FL_LINE_BYTES; line++)
        make_clean(&file->lines[line]);
}

void recorder_unlinked(const char *name) {
    if (current == NULL)
        return;
    size_t number = number_of(name);
    if (number < current->file_count)
        forget_file(current, number);
}

/* ---- what persist.h tells ---- */

static struct line *line_at(const void *address, struct file **file, size_t *number) {
    for (size_t i = current == NULL ? 0 : current->range_count; i-- > 0;) {
        const struct range *range = &current->ranges[i];
        if ((const char *)address < range->start || (const char *)address >= range->start + range->bytes)
            continue;
        *file = range->file;
        *number = (range->offset + (size_t)((const char *)address - range->start)) / FL_LINE_BYTES;
        return &range->file->lines[*number];
    }
    return NULL;
}

void recorder_store8(void *address, uint64_t value) {
    struct file *file;
    size_t number;
    assert((uintptr_t)address % sizeof value == 0);
    bool is_recorded = line_at(address, &file, &number) != NULL;
    if (is_recorded)
        notice_changes();
    __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE);
    if (!is_recorded)
        return;
    size_t offset = number * FL_LINE_BYTES;
    if (memcmp(file->newest + offset, file->base + offset, FL_LINE_BYTES) != 0)
        add_version(file, number, false);
    recorder_position();
}

void recorder_flush_line(const void *address) {
    struct file *file;
    size_t number;
    struct line *line = line_at(address, &file, &number);
    if (line == NULL)
        return;
    notice_changes();
    line->flushed = line->count == 0 ? 0 : line->count - 1; /* no new image before the fence */
}

void recorder_fence(void) {
    if (current == NULL)
        return;
    notice_changes();
    for (size_t i = 0; i < current->file_count; i++) {
        struct file *file = current->files[i];
        for (struct line *line = file->lines; line < file->lines + file->bytes / FL_LINE_BYTES; line++) {
            if (line->flushed > line->floor)
                line->floor = line->flushed;
            if (line->count != 0 && line->floor == line->count - 1)
                make_clean(line);
        }
    }
    recorder_position();
}

/* ---- images ---- */

size_t recorder_bytes(const struct recorder *recorder) {
    size_t bytes = 0;
    for (size_t i = 0; i < recorder->file_count; i++)
        bytes += recorder->files[i]->bytes;
    return bytes;
}

const char *recorder_file(const struct recorder *recorder, size_t number, size_t *bytes) {
    if (number >= recorder->file_count)
        return NULL;
    *bytes = recorder->files[number]->bytes;
    return recorder->files[number]->name;
}

/* The units of a torn version over the version before it. */
static void tear(const struct version *before, const struct version *version, uint64_t units, uint8_t *content) {
    for (unsigned unit = 0; unit < FL_LINE_BYTES / 8; unit++) {
        const struct version *from = units >> unit & 1 ? version : before;
        memcpy(content + unit * 8, from->content + unit * 8, 8);
    }
}

static void make_line(const struct line *line, enum recorder_image kind, uint64_t eagerness, uint64_t *random, uint8_t *content) {
    uint32_t cut = line->floor, choices = line->count - line->floor;
    if (kind == IMAGE_RANDOM) {
        uint64_t way = next_random(random) % 4;
        if (way < eagerness)
            cut = line->count - 1;
        if (way == 3)
            cut = line->floor + (uint32_t)(next_random(random) % choices);
    }
    memcpy(content, line->versions[cut].content, FL_LINE_BYTES);
    if (kind == IMAGE_RANDOM && cut > line->floor && line->versions[cut].is_torn)
        tear(&line->versions[cut - 1], &line->versions[cut], next_random(random), content);
}

void recorder_make_image(const struct recorder *recorder, enum recorder_image kind, uint64_t *random, char *image) {
    /* How often a line stays at the floor or is the newest differs between images. */
    uint64_t eagerness = kind == IMAGE_PREFIX ? 0 : next_random(random) % 5;
    for (size_t i = 0; i < recorder->file_count; i++) {
        const struct file *file = recorder->files[i];
        memcpy(image, file->newest, file->bytes);
        for (size_t number = 0; kind != IMAGE_PREFIX && number < file->bytes / FL_LINE_BYTES; number++)
            if (file->lines[number].count != 0)
                make_line(&file->lines[number], kind, eagerness, random, (uint8_t *)image + number * FL_LINE_BYTES);
        image += file->bytes;
    }
}
