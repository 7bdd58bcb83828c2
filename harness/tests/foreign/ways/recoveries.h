/* SPDX-License-Identifier: Apache-2.0
 *
 * recoveries.h - ways for recovery to bring the record's operation to its end, apply_NAME(heap): the slot is stored and persisted, and
 * then the record is done. With -DFORGETS the slot is not persisted first, which only a second crash shows.
 */
#ifndef FOREIGN_RECOVERIES_H
#define FOREIGN_RECOVERIES_H

#include "flushes.h"
#include "heap.h"
#include "loads.h"
#include "stores.h"
#include <linux/falloc.h>

#define JOIN_(left, right) left##right
#define JOIN(left, right) JOIN_(left, right)

#ifndef PERSIST
#define PERSIST clwb
#endif
static void persist(struct fl_heap *heap, const void *address, size_t bytes) { JOIN(persist_, PERSIST)(heap, address, bytes); }

static void set(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    store_plain(heap, word, value);
    persist(heap, word, sizeof *word);
}

static void apply_slot(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
    uint64_t *slot = &heap->head->slots[record->slot];
#if defined(FORGETS)
    store_plain(heap, slot, record->value);
#else
    set(heap, slot, record->value);
#endif
}

static void be_done(struct fl_heap *heap) { set(heap, &heap->head->record.is_valid, 0); }

WAY void apply_directly(struct fl_heap *heap) {
    apply_slot(heap);
    be_done(heap);
}

/* ---- other threads of control ---- */

WAY void *apply_and_end(void *of) {
    apply_directly(of);
    return NULL;
}

WAY void apply_in_thread(struct fl_heap *heap) { in_thread(apply_and_end, heap); }

WAY void apply_in_child(struct fl_heap *heap) {
    int how;
    pid_t child = fork();
    if (child == 0) {
        apply_directly(heap);
        _exit(0);
    }
    must(child > 0 && waitpid(child, &how, 0) == child && how == 0);
}

static int apply_and_exit(void *heap) {
    apply_directly(heap);
    _exit(0);
}

/* As apply_in_child, of processes that the C library's fork did not start. */
#define APPLY_IN(name, start)                                                                                                      \
    WAY void apply_in_##name(struct fl_heap *heap) {                                                                               \
        int how;                                                                                                                   \
        pid_t child = (pid_t)(start);                                                                                              \
        if (child == 0)                                                                                                            \
            apply_and_exit(heap);                                                                                                  \
        must(child > 0 && waitpid(child, &how, 0) == child && how == 0);                                                           \
    }
APPLY_IN(clone, clone(apply_and_exit, CLONE_STACK, SIGCHLD, heap))
APPLY_IN(clone_number, syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0))
APPLY_IN(clone_instruction, clone_by_instruction())

WAY void apply_looked_at(int number) {
    (void)number;
    apply_directly(looked_at);
}

WAY void apply_in_handler(struct fl_heap *heap) {
    looked_at = heap;
    must(signal(SIGUSR1, apply_looked_at) != SIG_ERR && raise(SIGUSR1) == 0);
}

/* The slots' OS pages may not be written at first. */
WAY void apply_faulting(struct fl_heap *heap) {
    struct sigaction action = {.sa_sigaction = give_back, .sa_flags = SA_SIGINFO}, before;
    must(sigaction(SIGSEGV, &action, &before) == 0 && mprotect(heap->head->slots, OS_PAGE_BYTES, PROT_READ) == 0);
    apply_directly(heap);
    must(sigaction(SIGSEGV, &before, NULL) == 0 && mprotect(heap->head->slots, OS_PAGE_BYTES, PROT_READ | PROT_WRITE) == 0);
}

/* ---- instructions and libraries ---- */

WAY void apply_by_exchange(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
    store_cmpxchg(heap, &heap->head->slots[record->slot], record->value);
#if !defined(FORGETS)
    persist(heap, &heap->head->slots[record->slot], 8);
#endif
    be_done(heap);
}

WAY void apply_by_stream(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
#if defined(FORGETS) /* the fence below would persist what is streamed */
    store_plain(heap, &heap->head->slots[record->slot], record->value);
#else
    store_stream(heap, &heap->head->slots[record->slot], record->value);
    FENCE();
#endif
    store_stream(heap, &record->is_valid, 0);
    FENCE();
}

WAY void apply_by_libpmem(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
#if defined(FORGETS)
    pmem_memcpy(&heap->head->slots[record->slot], &record->value, 8, PMEM_F_MEM_NOFLUSH);
#else
    pmem_memcpy_persist(&heap->head->slots[record->slot], &record->value, 8);
#endif
    pmem_memset_persist(&record->is_valid, 0, 8);
}

/* ---- system calls ---- */

WAY void apply_by_pwrite(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
    store_pwrite(heap, &heap->head->slots[record->slot], record->value);
#if !defined(FORGETS)
    must(fdatasync(heap->fd) == 0);
#endif
    be_done(heap);
}

WAY void apply_by_second_descriptor(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
    int fd = open(heap->path, O_WRONLY);
    must(fd >= 0 && pwrite(fd, &record->value, 8, offset_of(heap, &heap->head->slots[record->slot])) == 8);
#if !defined(FORGETS)
    must(fsync(fd) == 0);
#endif
    close(fd);
    be_done(heap);
}

/* The kernel's copy stays in the cache. */
WAY void apply_by_vm_writev(struct fl_heap *heap) {
    struct record *record = &heap->head->record;
    uint64_t *slot = &heap->head->slots[record->slot];
    store_vm_writev(heap, slot, record->value);
#if defined(FORGETS)
    FENCE();
#else
    persist(heap, slot, sizeof *slot);
#endif
    be_done(heap);
}

/* What is done is punched out of the file. */
WAY void apply_and_punch(struct fl_heap *heap) {
    apply_slot(heap);
    must(fallocate(heap->fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, offsetof(struct head, record), OS_PAGE_BYTES) == 0);
}

/* The file has its blocks already; this changes nothing. */
WAY void apply_and_allocate(struct fl_heap *heap) {
    must(fallocate(heap->fd, 0, 0, (off_t)heap->bytes) == 0);
    apply_directly(heap);
}

#endif
