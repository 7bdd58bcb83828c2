/* SPDX-License-Identifier: Apache-2.0
 *
 * program.h - what the conformance programs share: a PM file "heap" of HEAP_BYTES in the folder argv[1], mapped at HEAP.
 */
#ifndef PROGRAM_H
#define PROGRAM_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <fcntl.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <valgrind/valgrind.h>

#include "trace.h"

#define HEAP ((char *)0x200000000000)
#define HEAP_BYTES 8192

/* The tests are about what a program does, so a call that fails is the test's mistake: say which and stop. */
#define MUST(call)                                                                                                                 \
    do {                                                                                                                           \
        if (!(call)) {                                                                                                             \
            perror(#call);                                                                                                         \
            exit(99);                                                                                                              \
        }                                                                                                                          \
    } while (0)

static inline char *map_at(char *address, int descriptor, off_t offset, size_t bytes) {
    char *base = mmap(address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED_NOREPLACE, descriptor, offset);
    MUST(base == address);
    return base;
}

static inline int create_heap(int argc, char **argv) {
    MUST(argc == 2 && chdir(argv[1]) == 0);
    int descriptor = open("heap", O_RDWR | O_CREAT | O_EXCL, 0600);
    MUST(descriptor >= 0 && ftruncate(descriptor, HEAP_BYTES) == 0);
    return descriptor;
}

static inline char *create_and_map_heap(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    char *heap = map_at(HEAP, descriptor, 0, HEAP_BYTES);
    MUST(close(descriptor) == 0);
    return heap;
}

#endif
