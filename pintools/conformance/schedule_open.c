/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads meet at the two ends of a FIFO, whose open waits for the other: by a path, and relative to a folder. */
#include "program.h"

#include <pthread.h>

static volatile uint64_t *heap;
static int folder;
static char path[] = "/tmp/schedule-open-XXXXXX/fifo";

static int open_end(uint64_t is_relative, int flags) { return is_relative ? openat(folder, "fifo", flags) : open(path, flags); }

static void *read_one(void *argument) {
    char byte;
    int descriptor = open_end((uint64_t)argument, O_RDONLY);
    MUST(descriptor >= 0 && read(descriptor, &byte, 1) == 1 && close(descriptor) == 0);
    heap[0] = byte;
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    char *slash = strrchr(path, '/');
    *slash = '\0';
    MUST(mkdtemp(path) != NULL && (folder = open(path, O_RDONLY | O_DIRECTORY)) >= 0);
    MUST(mkfifoat(folder, "fifo", 0600) == 0);
    *slash = '/';
    for (uint64_t is_relative = 0; is_relative < 2; is_relative++) {
        pthread_t reader;
        MUST(pthread_create(&reader, NULL, read_one, (void *)is_relative) == 0);
        int descriptor = open_end(is_relative, O_WRONLY);
        heap[8] = is_relative;
        MUST(descriptor >= 0 && write(descriptor, "x", 1) == 1 && close(descriptor) == 0);
        MUST(pthread_join(reader, NULL) == 0);
    }
    MUST(unlink(path) == 0);
    *slash = '\0';
    MUST(rmdir(path) == 0 && heap[0] == 'x' && heap[8] == 1);
    return 0;
}
