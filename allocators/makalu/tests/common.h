/* SPDX-License-Identifier: Apache-2.0
 *
 * common.h - what makalu's tests share beyond expect.h: regions, failures after which every store is there, totals of a walk.
 */
#ifndef MAK_TESTS_COMMON_H
#define MAK_TESTS_COMMON_H

#include <string.h>

#include "layout.h"
#include "makalu.h"

#define EXPECT_MESSAGE() MAK_message()
#include "expect.h"

#if defined(__SANITIZE_THREAD__)
#define ADDRESS ((uintptr_t)0x7ea000000000) /* where ThreadSanitizer lets programs have memory */
#else
#define ADDRESS ((uintptr_t)0x200000000000)
#endif

enum { INITIAL = 256 << 10, LIMIT = 4 << 20 };

static const char *file_of(const char *folder) {
    static char path[256];
    snprintf(path, sizeof path, "%s/region", folder);
    return path;
}

static void start(char folder[128], uint64_t heap_bytes, uint64_t limit_bytes) {
    snprintf(folder, 128, "%s", new_folder());
    struct MAK_options options = {folder, heap_bytes, limit_bytes, ADDRESS};
    if (MAK_start(&options) != MAK_OK) {
        printf("cannot start a region: %s\n", MAK_message());
        exit(3);
    }
}

/* The file as it is now, if every store is there. The caller frees it. */
static void *copy_region(uint64_t *bytes) {
    *bytes = MAK_file_bytes();
    void *image = malloc(*bytes);
    memcpy(image, MAK_base(), *bytes);
    return image;
}

/* The image, which this frees, becomes another region; the old one is closed and forgotten. */
static void fail_at_and_start_off(char folder[128], void *image, uint64_t bytes) {
    MAK_close();
    snprintf(folder, 128, "%s", new_folder());
    write_file(file_of(folder), image, bytes);
    free(image);
    EXPECT(MAK_restart(folder) == MAK_DIRTY);
    EXPECT(MAK_start_off(folder) == MAK_OK);
    EXPECT(MAK_check() == MAK_OK);
}

/* A failure now, after which every store is there. */
static void fail_and_start_off(char folder[128]) {
    uint64_t bytes;
    void *image = copy_region(&bytes);
    fail_at_and_start_off(folder, image, bytes);
}

static void fail_and_recover(char folder[128]) {
    fail_and_start_off(folder);
    EXPECT(MAK_collect() == MAK_OK);
    EXPECT(MAK_check() == MAK_OK);
    EXPECT(MAK_restart_in_place() == MAK_OK);
    EXPECT(MAK_check() == MAK_OK);
}

struct totals {
    uint64_t bytes[5], parts[5], at;
    bool has_gap;
};

static void add_part(void *context, const struct MAK_part *part) {
    struct totals *totals = context;
    totals->has_gap |= part->offset != totals->at;
    totals->at = part->offset + part->bytes;
    totals->bytes[part->state] += part->bytes;
    totals->parts[part->state]++;
}

static struct totals totals_of_region(void) {
    struct totals totals = {0};
    EXPECT(MAK_check() == MAK_OK);
    EXPECT(MAK_walk(add_part, &totals) == MAK_OK);
    EXPECT(!totals.has_gap && totals.at == MAK_file_bytes());
    return totals;
}

#endif
