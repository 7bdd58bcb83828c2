/* SPDX-License-Identifier: Apache-2.0
 *
 * expect.h - what allocators' own test programs share: expectations, folders of their own, whole files.
 *
 *     #define EXPECT_MESSAGE() nvm_message()   // why the allocator's last call failed, shown beside what is not true
 *     #include "expect.h"
 *
 *     int main(void) {
 *         begin_tests("nvm");
 *         EXPECT(1 + 1 == 2);
 *         return end_tests();                  // prints `N passed, M failed`; 0 if M is 0
 *     }
 */
#ifndef FAULTLINE_TESTING_EXPECT_H
#define FAULTLINE_TESTING_EXPECT_H

#pragma GCC diagnostic ignored "-Wunused-function" /* no test needs all of it */
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include "random.h"

static unsigned passed, failed;

static void expect(bool is_true, const char *claim, int line) {
    if (is_true) {
        passed++;
        return;
    }
    failed++;
    printf("line %d: not true: %s (last message: %s)\n", line, claim, EXPECT_MESSAGE());
}
#define EXPECT(fact) expect(fact, #fact, __LINE__)

/* What the test itself needs and cannot have. */
static void give_up(const char *what) {
    perror(what);
    exit(3);
}

/* ---- folders and files ---- */

static char top[64]; /* everything lies below */

static void begin_tests(const char *name) {
    snprintf(top, sizeof top, "%s/%s-test-XXXXXX", access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp", name);
    setvbuf(stdout, NULL, _IOLBF, 0); /* what failed is seen even if a sanitizer ends the program */
    if (mkdtemp(top) == NULL)
        give_up(top);
}

static int end_tests(void) {
    char command[128];
    snprintf(command, sizeof command, "rm -rf %s", top);
    if (system(command) != 0)
        return 3;
    printf("%u passed, %u failed\n", passed, failed);
    return failed != 0;
}

/* An empty one; valid until the next call. */
static const char *new_folder(void) {
    static char path[128];
    static unsigned count;
    snprintf(path, sizeof path, "%s/%u", top, count++);
    if (mkdir(path, 0777) != 0)
        give_up(path);
    return path;
}

/* The caller frees it. */
static void *read_file(const char *path, uint64_t *bytes) {
    FILE *file = fopen(path, "r");
    struct stat info;
    if (file == NULL || fstat(fileno(file), &info) != 0)
        give_up(path);
    *bytes = (uint64_t)info.st_size;
    void *content = malloc(*bytes + 1);
    if (content == NULL || fread(content, 1, *bytes, file) != *bytes)
        give_up(path);
    fclose(file);
    return content;
}

static void write_file(const char *path, const void *content, uint64_t bytes) {
    FILE *file = fopen(path, "w");
    if (file == NULL || fwrite(content, 1, bytes, file) != bytes || fclose(file) != 0)
        give_up(path);
}

#endif
