/* SPDX-License-Identifier: Apache-2.0
 *
 * persist.h - mapping, flush and fence: the one place with persistence instructions for the allocators of this repository.
 *
 * The flush instruction is chosen when building, -DFL_FLUSH_CLWB (default), -DFL_FLUSH_CLFLUSHOPT or -DFL_FLUSH_CLFLUSH,
 * never by CPUID: a run tells about the instructions it was built with. Where the processor lacks them, the tracer knows them all the
 * same, and the runner executes clflush (runner/signals/flushes.c).
 *
 *   fl_flush(p, n)    write back every line that [p, p + n) touches; guarantees nothing before fl_fence
 *   fl_fence()        sfence: what this thread flushed is persisted
 *   fl_persist(p, n)  both
 *   fl_map(...)       map a file, MAP_SYNC where the file system has it
 *
 * Built with -DFL_COUNT, for measurements, flushes (by lines) and fences of all threads are counted; the program defines the counters.
 *
 * Source: Intel SDM vol. 2, CLFLUSH, CLFLUSHOPT, CLWB, SFENCE.
 */
#ifndef FAULTLINE_PERSIST_H
#define FAULTLINE_PERSIST_H

#ifndef _GNU_SOURCE
#error "define _GNU_SOURCE before including persist.h"
#endif
#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/mman.h>

#define FL_LINE_BYTES 64u

#ifndef MAP_SHARED_VALIDATE
#define MAP_SHARED_VALIDATE 0x03
#endif
#ifndef MAP_SYNC
#define MAP_SYNC 0x80000
#endif
#ifndef MAP_FIXED_NOREPLACE
#define MAP_FIXED_NOREPLACE 0x100000
#endif

#if defined(FL_COUNT)
extern uint64_t fl_flush_count, fl_fence_count;
#define FL_COUNT_ONE(counter) __atomic_fetch_add(&(counter), 1, __ATOMIC_RELAXED)
#else
#define FL_COUNT_ONE(counter) ((void)0)
#endif

static inline void fl_flush_line(const void *address) {
    FL_COUNT_ONE(fl_flush_count);
#if defined(FL_FLUSH_CLFLUSH)
    __asm__ volatile("clflush %0" : : "m"(*(const char *)address) : "memory");
#elif defined(FL_FLUSH_CLFLUSHOPT)
    __asm__ volatile("clflushopt %0" : : "m"(*(const char *)address) : "memory");
#else
    __asm__ volatile("clwb %0" : : "m"(*(const char *)address) : "memory");
#endif
}

static inline void fl_flush(const void *address, size_t bytes) {
    uintptr_t end = (uintptr_t)address + bytes;
    for (uintptr_t line = (uintptr_t)address & ~(uintptr_t)(FL_LINE_BYTES - 1); line < end; line += FL_LINE_BYTES)
        fl_flush_line((const void *)line);
}

static inline void fl_fence(void) {
    FL_COUNT_ONE(fl_fence_count);
    __asm__ volatile("sfence" : : : "memory");
}

static inline void fl_persist(const void *address, size_t bytes) {
    fl_flush(address, bytes);
    fl_fence();
}

/* An aligned store of 8 bytes that the compiler neither splits nor moves across another one. */
static inline void fl_store8(void *address, uint64_t value) { __atomic_store_n((uint64_t *)address, value, __ATOMIC_RELEASE); }

/* Maps bytes of fd from offset at address (0: anywhere; else exactly there or failure with EEXIST). With MAP_SYNC a flush and a
 * fence keep what is stored, in a part of the file that has just grown, too; without it that needs msync or fsync. A name needs
 * fsync of its folder either way, and a size that something refers to before it is stored to fsync of the file (docs/files.md).
 * *is_emulated is set to 1 when the file system has no MAP_SYNC (tmpfs, ordinary files): emulated PM.
 * Returns MAP_FAILED with errno on failure. */
static inline void *fl_map(uintptr_t address, size_t bytes, int fd, uint64_t offset, int is_fixed_over, int *is_emulated) {
    const int access = PROT_READ | PROT_WRITE, synced = MAP_SHARED_VALIDATE | MAP_SYNC, fixed = address == 0 ? 0 : MAP_FIXED;
    const int is_reserved = address != 0 && !is_fixed_over;
    *is_emulated = 0;
    if (is_reserved) { /* Linux refuses MAP_SYNC beside MAP_FIXED_NOREPLACE, which it takes for a flag that the file system lacks */
        const int own = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED_NOREPLACE;
        void *reserved = mmap((void *)address, bytes, PROT_NONE, own, -1, 0);
        if (reserved == MAP_FAILED)
            return MAP_FAILED;
        if (reserved != (void *)address) { /* before Linux 4.17 the flag is not known */
            munmap(reserved, bytes);
            errno = EEXIST;
            return MAP_FAILED;
        }
    }
    void *base = mmap((void *)address, bytes, access, synced | fixed, fd, (off_t)offset);
    *is_emulated = base == MAP_FAILED && (errno == EOPNOTSUPP || errno == EINVAL);
    if (*is_emulated)
        base = mmap((void *)address, bytes, access, MAP_SHARED | fixed, fd, (off_t)offset);
    if (base == MAP_FAILED && is_reserved) {
        int error = errno;
        munmap((void *)address, bytes);
        errno = error;
    }
    return base;
}

#endif
