/* SPDX-License-Identifier: Apache-2.0 */
#include "base/base.h"
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int error_fd = 2;

void fail(int code, const char *format, ...) {
    char text[2048];
    va_list arguments;
    va_start(arguments, format);
    int length = vsnprintf(text, sizeof text - 1, format, arguments);
    va_end(arguments);
    if (length > (int)sizeof text - 2)
        length = (int)sizeof text - 2;
    for (char *byte = text; *byte != '\0'; byte++)
        if (*byte == '\n')
            *byte = ' ';
    fflush(stdout);
    dprintf(error_fd, "runner: error: %s\n", text);
    exit(code);
}

void *allocate_or_fail(void *old, size_t bytes) {
    void *memory = realloc(old, bytes == 0 ? 1 : bytes);
    if (memory == NULL)
        fail(EXIT_INFRASTRUCTURE, "no memory for %zu bytes", bytes);
    return memory;
}

__attribute__((noinline)) void fill_stack(int byte) {
    char below[1 << 16];
    memset(below, byte, sizeof below);
    __asm__ volatile("" : : "r"(below) : "memory");
}

void *map_or_fail(uint64_t bytes, int flags, int fd, const char *what) {
    flags |= fd < 0 ? MAP_ANONYMOUS | MAP_NORESERVE : 0;
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, fd, 0);
    if (memory == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for %s (%llu KiB): %s", what, (unsigned long long)bytes >> 10, strerror(errno));
    return memory;
}
