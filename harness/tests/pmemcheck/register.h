/* SPDX-License-Identifier: Apache-2.0
 *
 * pmemcheck records stores only to what a program registers with it. Included before all else (gcc -include), this registers each file
 * that an allocator maps, so that one that was not written for pmemcheck can run under it. */
#ifndef REGISTER_H
#define REGISTER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include <stddef.h>
#include <sys/mman.h>

#include "pmemcheck.h"

static inline void *map_and_register(void *address, size_t bytes, int protection, int flags, int fd, off_t offset) {
    void *base = mmap(address, bytes, protection, flags, fd, offset);
    if (base != MAP_FAILED && fd >= 0) {
        VALGRIND_PMC_REGISTER_PMEM_MAPPING(base, bytes);
        VALGRIND_PMC_REGISTER_PMEM_FILE(fd, base, bytes, offset);
    }
    return base;
}

#define mmap map_and_register

#endif
