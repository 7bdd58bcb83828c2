/* SPDX-License-Identifier: Apache-2.0
 *
 * recorder.c - see recorder.h.
 */
#include "recorder.h"

#include <assert.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "persist.h"

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

struct recorder {
    recorder_crash crash;
    void *context;
    char *base; /* of the latest mapping; lines stay as dirty as they were when the file is mapped again */
    size_t bytes; /* mapped so far */
    char *newest;
    struct line *lines;
};

static struct recorder *current;

struct recorder *recorder_new(recorder_crash crash, void *context) {
    struct recorder *recorder = calloc(1, sizeof *recorder);
    recorder->crash = crash;
    recorder->context = context;
    return recorder;
}

void recorder_delete(struct recorder *recorder) {
    for (size_t i = 0; i < recorder->bytes / FL_LINE_BYTES; i++)
        free(recorder->lines[i].versions);
    free(recorder->lines);
    free(recorder->newest);
    free(recorder);
}

struct recorder *recorder_switch(struct recorder *recorder) {
    struct recorder *before = current;
    current = recorder;
    return before;
}

size_t recorder_bytes(const struct recorder *recorder) { return recorder->bytes; }

static void add_version(struct recorder *recorder, size_t number, bool is_torn) {
    struct line *line = &recorder->lines[number];
    size_t offset = number * FL_LINE_BYTES;
    if (line->count == 0) { /* the content so far becomes version 0 */
        line->versions = malloc(sizeof *line->versions);
        memcpy(line->versions[0].content, recorder->newest + offset, FL_LINE_BYTES);
        line->versions[0].is_torn = false;
        line->count = 1;
    }
    line->versions = realloc(line->versions, (line->count + 1) * sizeof *line->versions);
    struct version *version = &line->versions[line->count++];
    memcpy(version->content, recorder->base + offset, FL_LINE_BYTES);
    version->is_torn = is_torn;
    memcpy(recorder->newest + offset, recorder->base + offset, FL_LINE_BYTES);
}

/* Stores that were not announced. */
static void notice_changes(struct recorder *recorder) {
    enum { STEP = 4096 };
    for (size_t from = 0; from < recorder->bytes; from += STEP) {
        if (memcmp(recorder->newest + from, recorder->base + from, STEP) == 0)
            continue;
        for (size_t at = from; at < from + STEP; at += FL_LINE_BYTES)
            if (memcmp(recorder->newest + at, recorder->base + at, FL_LINE_BYTES) != 0)
                add_version(recorder, at / FL_LINE_BYTES, true);
    }
}

static bool is_recorded(const void *address) {
    return current != NULL && current->base != NULL && (const char *)address >= current->base &&
           (const char *)address < current->base + current->bytes;
}

void recorder_position(void) {
    struct recorder *recorder = current;
    if (recorder == NULL)
        return;
    if (recorder->base != NULL)
        notice_changes(recorder);
    current = NULL;
    recorder->crash(recorder, recorder->context);
    current = recorder;
}

/* More of the file: what it holds when it is first mapped is persisted. */
static void grow(struct recorder *recorder, size_t bytes) {
    recorder->newest = realloc(recorder->newest, bytes);
    recorder->lines = realloc(recorder->lines, bytes / FL_LINE_BYTES * sizeof *recorder->lines);
    memset(recorder->lines + recorder->bytes / FL_LINE_BYTES, 0,
           (bytes - recorder->bytes) / FL_LINE_BYTES * sizeof *recorder->lines);
    memcpy(recorder->newest + recorder->bytes, recorder->base + recorder->bytes, bytes - recorder->bytes);
    recorder->bytes = bytes;
}

/* The whole file from its start on, or a part of it where the rest is mapped already. */
void recorder_mapped(void *address, size_t bytes, size_t offset) {
    struct recorder *recorder = current;
    if (recorder == NULL)
        return;
    char *base = (char *)address - offset;
    size_t end = offset + bytes, known = end < recorder->bytes ? end : recorder->bytes;
    assert(offset <= recorder->bytes && (offset == 0 || base == recorder->base) && (offset != 0 || end >= recorder->bytes));
    assert(known <= offset || memcmp(recorder->newest + offset, address, known - offset) == 0);
    recorder->base = base;
    if (end > recorder->bytes)
        grow(recorder, end);
    recorder_position();
}

void recorder_store8(void *address, uint64_t value) {
    assert((uintptr_t)address % sizeof value == 0);
    if (!is_recorded(address)) {
        __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE);
        return;
    }
    notice_changes(current);
    __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE);
    size_t number = (size_t)((char *)address - current->base) / FL_LINE_BYTES;
    if (memcmp(current->newest + number * FL_LINE_BYTES, current->base + number * FL_LINE_BYTES, FL_LINE_BYTES) != 0)
        add_version(current, number, false);
    recorder_position();
}

void recorder_flush_line(const void *address) {
    if (!is_recorded(address))
        return;
    notice_changes(current);
    struct line *line = &current->lines[(size_t)((const char *)address - current->base) / FL_LINE_BYTES];
    line->flushed = line->count == 0 ? 0 : line->count - 1; /* no new image before the fence */
}

void recorder_fence(void) {
    if (current == NULL || current->base == NULL)
        return;
    notice_changes(current);
    for (size_t i = 0; i < current->bytes / FL_LINE_BYTES; i++) {
        struct line *line = &current->lines[i];
        if (line->flushed > line->floor)
            line->floor = line->flushed;
        if (line->count != 0 && line->floor == line->count - 1) { /* clean */
            free(line->versions);
            *line = (struct line){0};
        }
    }
    recorder_position();
}

/* The units of a torn version over the version before it. */
static void tear(const struct version *before, const struct version *version, uint64_t units, uint8_t *content) {
    for (unsigned unit = 0; unit < FL_LINE_BYTES / 8; unit++) {
        const struct version *from = units >> unit & 1 ? version : before;
        memcpy(content + unit * 8, from->content + unit * 8, 8);
    }
}

void recorder_make_image(const struct recorder *recorder, enum recorder_image kind, uint64_t *random, char *image) {
    memcpy(image, recorder->newest, recorder->bytes);
    if (kind == IMAGE_PREFIX)
        return;
    /* How often a line stays at the floor or is the newest differs between images. */
    uint64_t eagerness = next_random(random) % 5;
    for (size_t i = 0; i < recorder->bytes / FL_LINE_BYTES; i++) {
        const struct line *line = &recorder->lines[i];
        if (line->count == 0)
            continue;
        uint8_t *content = (uint8_t *)image + i * FL_LINE_BYTES;
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
}
