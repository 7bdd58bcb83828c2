/* SPDX-License-Identifier: Apache-2.0
 *
 * What a checker of pmreorder was asked, for ci/peers.py. Each call appends a line to the file that IMAGES names: whether the image is
 * bad (0 or 1), nanoseconds of the monotonic clock, and the image as `faultline-engine states` prints one: NUMBER=HEX, for each line of
 * 64 bytes that is not zero. Without IMAGES nothing is written. */
#ifndef IMAGES_H
#define IMAGES_H

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define IMAGES_LINE_BYTES 64u

static inline void images_note(const void *image, uint64_t bytes, int is_bad) {
    static const char zeros[IMAGES_LINE_BYTES];
    const char *path = getenv("IMAGES");
    FILE *file = path == NULL ? NULL : fopen(path, "a");
    struct timespec now;
    if (path == NULL)
        return;
    if (file == NULL)
        perror(path), exit(3);
    clock_gettime(CLOCK_MONOTONIC, &now);
    fprintf(file, "%d %lld ", is_bad, (long long)now.tv_sec * 1000000000 + now.tv_nsec);
    for (uint64_t line = 0; line < bytes / IMAGES_LINE_BYTES; line++) {
        const unsigned char *content = (const unsigned char *)image + line * IMAGES_LINE_BYTES;
        if (memcmp(content, zeros, IMAGES_LINE_BYTES) == 0)
            continue;
        fprintf(file, "%llu=", (unsigned long long)line);
        for (unsigned at = 0; at < IMAGES_LINE_BYTES; at++)
            fprintf(file, "%02x", content[at]);
        fputc(',', file);
    }
    fputc('\n', file);
    if (fclose(file) != 0)
        perror(path), exit(3);
}

#endif
