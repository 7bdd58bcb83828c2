/* SPDX-License-Identifier: Apache-2.0
 *
 * persist.h - in the place of include/persist.h: the same functions, which tell recorder.c what happens.
 */
#ifndef FAULTLINE_PERSIST_H
#define FAULTLINE_PERSIST_H

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define FL_LINE_BYTES 64u

#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#ifdef __cplusplus
extern "C" {
#endif
void recorder_mapped(void *address, size_t bytes, int fd, size_t offset);
void recorder_store8(void *address, uint64_t value);
void recorder_flush_line(const void *address);
void recorder_fence(void);
#ifdef __cplusplus
}
#endif

static inline void fl_flush(const void *address, size_t bytes) {
    uintptr_t end = (uintptr_t)address + bytes;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(FL_LINE_BYTES - 1); line < end; line += FL_LINE_BYTES)
        recorder_flush_line((const void *)line);
}

static inline void fl_fence(void) { recorder_fence(); }

static inline void fl_persist(const void *address, size_t bytes) {
    fl_flush(address, bytes);
    fl_fence();
}

static inline void fl_store8(void *address, uint64_t value) { recorder_store8(address, value); }

static inline void *fl_map(uintptr_t address, size_t bytes, int fd, uint64_t offset, int is_fixed_over, int *is_emulated) {
    int fixed = address == 0 ? 0 : is_fixed_over ? MAP_FIXED : MAP_FIXED_NOREPLACE;
    void *base = mmap((void *)address, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | fixed, fd, (off_t)offset);
    *is_emulated = 1;
    if (base != MAP_FAILED)
        recorder_mapped(base, bytes, fd, offset);
    return base;
}

#endif
