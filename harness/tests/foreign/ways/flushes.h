/* SPDX-License-Identifier: Apache-2.0
 *
 * flushes.h - ways to make a range of the heap durable. Each is persist_NAME(heap, address, bytes), but for those that only flush
 * or only fence, which are for between a and b (adapter.c).
 */
#ifndef FOREIGN_FLUSHES_H
#define FOREIGN_FLUSHES_H

#include "heap.h"
#include "persist.h"
#include <immintrin.h>
#include <libpmem.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

#define EACH_LINE(line, address, bytes)                                                                                            \
    const char *line = line_of(address);                                                                                           \
    line < (const char *)(address) + (bytes);                                                                                      \
    line += LINE_BYTES

static inline const char *line_of(const void *address) { return (const char *)((uintptr_t)address & ~(uintptr_t)(LINE_BYTES - 1)); }

#define FENCE() __asm__ volatile("sfence" : : : "memory")

static inline void must(int is_done) {
    if (!is_done)
        abort();
}

/* ---- instructions ---- */

WAY void persist_by_header(struct fl_heap *heap, const void *address, size_t bytes) { (void)heap, fl_persist(address, bytes); }

WAY void persist_clwb(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clwb %0" : : "m"(*line) : "memory");
    FENCE();
}

WAY void persist_clflushopt(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clflushopt %0" : : "m"(*line) : "memory");
    __asm__ volatile("mfence" : : : "memory");
}

/* Is in order with what comes after it on its own. A return is no such thing: it may then be in the store buffer still. */
WAY void persist_clflush_alone(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clflush %0" : : "m"(*line) : "memory");
}

WAY void persist_clflush(struct fl_heap *heap, const void *address, size_t bytes) {
    persist_clflush_alone(heap, address, bytes);
    FENCE();
}

/* An assembler that does not know clwb is given its bytes. */
WAY void persist_bytes(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile(".byte 0x66; xsaveopt %0" : : "m"(*line) : "memory");
    __asm__ volatile(".byte 0x0f, 0xae, 0xf8" : : : "memory");
}

__attribute__((target("clwb"))) WAY void persist_intrinsics(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        _mm_clwb((void *)(uintptr_t)line);
    _mm_sfence();
}

__attribute__((target("clflushopt"))) WAY void persist_intrinsics_opt(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        _mm_clflushopt((void *)(uintptr_t)line);
    _mm_mfence();
}

WAY void persist_intrinsics_old(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        _mm_clflush(line);
    _mm_sfence();
}

/* By a locked instruction on the stack. */
WAY void persist_locked(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clwb %0" : : "m"(*line) : "memory");
    __asm__ volatile("lock addl $0, -4(%%rsp)" : : : "cc", "memory");
}

/* By a comparison of 16 bytes that are no PM, which fails. */
WAY void persist_locked_wide(struct fl_heap *heap, const void *address, size_t bytes) {
    static unsigned __int128 elsewhere;
    uint64_t low = 1, high = 1;
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clwb %0" : : "m"(*line) : "memory");
    __asm__ volatile("lock cmpxchg16b %2" : "+a"(low), "+d"(high), "+m"(elsewhere) : "b"(0ul), "c"(0ul) : "cc", "memory");
}

/* Stored by one mapping, flushed by the other. */
WAY void persist_alias(struct fl_heap *heap, const void *address, size_t bytes) {
    persist_clflush(heap, aliased(heap, address), bytes);
}

/* Flushed, and never fenced. */
WAY void persist_unfenced(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    for (EACH_LINE(line, address, bytes))
        __asm__ volatile("clwb %0" : : "m"(*line) : "memory");
}

WAY void persist_fence(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap, (void)address, (void)bytes;
    FENCE();
}

WAY void persist_nothing(struct fl_heap *heap, const void *address, size_t bytes) { (void)heap, (void)address, (void)bytes; }

/* The line of the pointer, not of what it points to. */
WAY void persist_pointer(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap, (void)bytes;
    const void *volatile pointer = address;
    __asm__ volatile("clwb %0" : : "m"(pointer) : "memory");
    FENCE();
}

/* b's line, not a's. */
WAY void persist_other_line(struct fl_heap *heap, const void *address, size_t bytes) {
    persist_clflush(heap, (const char *)aliased(heap, address) + LINE_BYTES, bytes);
}

/* ---- libpmem ---- */

WAY void persist_libpmem(struct fl_heap *heap, const void *address, size_t bytes) { (void)heap, pmem_persist(address, bytes); }

WAY void persist_libpmem_parts(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    pmem_flush(address, bytes);
    pmem_drain();
}

WAY void persist_libpmem_flush(struct fl_heap *heap, const void *address, size_t bytes) { (void)heap, pmem_flush(address, bytes); }

WAY void persist_libpmem_msync(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    must(pmem_msync(address, bytes) == 0);
}

/* ---- system calls ---- */

static inline void *os_page_of(const void *address) { return (void *)((uintptr_t)address & ~(uintptr_t)(OS_PAGE_BYTES - 1)); }

static inline size_t bytes_from_os_page(const void *address, size_t bytes) {
    return (size_t)((const char *)address - (const char *)os_page_of(address)) + bytes;
}

WAY void persist_msync(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    must(msync(os_page_of(address), bytes_from_os_page(address, bytes), MS_SYNC) == 0);
}

/* No guarantee. */
WAY void persist_msync_later(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)heap;
    must(msync(os_page_of(address), bytes_from_os_page(address, bytes), MS_ASYNC) == 0);
}

WAY void persist_fsync(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)address, (void)bytes;
    must(fsync(heap->fd) == 0);
}

WAY void persist_fdatasync(struct fl_heap *heap, const void *address, size_t bytes) {
    (void)address, (void)bytes;
    must(fdatasync(heap->fd) == 0);
}

/* ---- another thread ---- */

struct flusher {
    struct fl_heap *heap;
    const void *address;
    size_t bytes;
};

WAY void *flush_and_fence(void *of) {
    const struct flusher *flusher = of;
    persist_clwb(flusher->heap, flusher->address, flusher->bytes);
    return NULL;
}

WAY void *flush_only(void *of) {
    const struct flusher *flusher = of;
    persist_unfenced(flusher->heap, flusher->address, flusher->bytes);
    return NULL;
}

static inline void in_thread(void *(*what)(void *), void *of) {
    pthread_t thread;
    must(pthread_create(&thread, NULL, what, of) == 0 && pthread_join(thread, NULL) == 0);
}

WAY void persist_in_thread(struct fl_heap *heap, const void *address, size_t bytes) {
    struct flusher flusher = {heap, address, bytes};
    in_thread(flush_and_fence, &flusher);
}

/* A thread completes only what it has flushed itself, and does so at its end: the C library locks there. */
WAY void persist_in_parts(struct fl_heap *heap, const void *address, size_t bytes) {
    struct flusher flusher = {heap, address, bytes};
    in_thread(flush_only, &flusher);
    FENCE();
}

/* ---- a thread that flushes for the others as long as the heap is open ---- */

static struct {
    pthread_t thread;
    pthread_mutex_t guard;
    pthread_cond_t has_changed;
    struct flusher *work;
    int is_there, is_over;
} background = {.guard = PTHREAD_MUTEX_INITIALIZER, .has_changed = PTHREAD_COND_INITIALIZER};

WAY void *flush_for_others(void *nothing) {
    must(pthread_mutex_lock(&background.guard) == 0);
    while (!background.is_over) {
        if (background.work != NULL) {
            flush_and_fence(background.work);
            background.work = NULL;
            pthread_cond_broadcast(&background.has_changed);
        } else {
#if defined(POLLS)
            must(pthread_mutex_unlock(&background.guard) == 0);
            nanosleep(&(struct timespec){.tv_nsec = POLLS}, NULL);
            must(pthread_mutex_lock(&background.guard) == 0);
#else
            pthread_cond_wait(&background.has_changed, &background.guard);
#endif
        }
    }
    must(pthread_mutex_unlock(&background.guard) == 0);
    return nothing;
}

WAY void persist_in_background(struct fl_heap *heap, const void *address, size_t bytes) {
    struct flusher flusher = {heap, address, bytes};
    must(pthread_mutex_lock(&background.guard) == 0);
    background.work = &flusher;
    pthread_cond_broadcast(&background.has_changed);
    while (background.work != NULL)
        pthread_cond_wait(&background.has_changed, &background.guard);
    must(pthread_mutex_unlock(&background.guard) == 0);
}

WAY void start_background(void) {
    background.is_over = 0;
    background.is_there = pthread_create(&background.thread, NULL, flush_for_others, NULL) == 0;
    must(background.is_there);
}

WAY void end_background(void) {
    if (!background.is_there)
        return;
    must(pthread_mutex_lock(&background.guard) == 0);
    background.is_over = 1;
    pthread_cond_broadcast(&background.has_changed);
    must(pthread_mutex_unlock(&background.guard) == 0);
    must(pthread_join(background.thread, NULL) == 0);
    background.is_there = 0;
}

#endif
