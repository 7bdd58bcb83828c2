/* SPDX-License-Identifier: Apache-2.0
 *
 * stores.h - ways to store a word of the heap, store_NAME(heap, word, value), and a wide value, wide_NAME(words, value).
 */
#ifndef FOREIGN_STORES_H
#define FOREIGN_STORES_H

#include "flushes.h"
#include "heap.h"
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/uio.h>

/* ---- instructions ---- */

WAY void store_plain(struct fl_heap *heap, uint64_t *word, uint64_t value) { (void)heap, *(volatile uint64_t *)word = value; }

/* Instructions that Valgrind does not decode: a hint that is none, on every processor; AVX-512; a direct store. */
WAY void store_hint(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __asm__ volatile(".byte 0x0f, 0x18, 0x20" : : "a"(word)); /* nop (%rax): a prefetch of no kind that there is */
    *(volatile uint64_t *)word = value;
}

WAY void store_avx512(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __asm__ volatile("vmovq %1, %%xmm16\n\tvmovq %%xmm16, %0" : "=m"(*word) : "r"(value));
}

WAY void store_movdiri(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __asm__ volatile("movdiri %1, %0" : "=m"(*word) : "r"(value));
}

WAY void store_stream(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    _mm_stream_si64((long long *)word, (long long)value);
}

WAY void store_movnti(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __asm__ volatile("movnti %1, %0" : "=m"(*word) : "r"(value) : "memory");
}

WAY void store_xchg(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __asm__ volatile("xchgq %0, %1" : "+r"(value), "+m"(*word) : : "memory");
}

WAY void store_cmpxchg(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    uint64_t before = *(volatile uint64_t *)word;
    (void)heap;
    __asm__ volatile("lock cmpxchgq %2, %1" : "+a"(before), "+m"(*word) : "r"(value) : "cc", "memory");
}

WAY void store_xadd(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    uint64_t more = value - *(volatile uint64_t *)word;
    (void)heap;
    __asm__ volatile("lock xaddq %0, %1" : "+r"(more), "+m"(*word) : : "cc", "memory");
}

WAY void store_exchange_builtin(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    __atomic_exchange_n(word, value, __ATOMIC_SEQ_CST);
}

/* The word and the one after it, which gets the same value. */
WAY void store_cmpxchg16b(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    uint64_t low = word[0], high = word[1];
    (void)heap;
    __asm__ volatile("lock cmpxchg16b %2"
                     : "+a"(low), "+d"(high), "+m"(*(unsigned __int128 *)(void *)word)
                     : "b"(value), "c"(value)
                     : "cc", "memory");
}

WAY void store_movsb(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    void *to = word;
    const void *from = &value;
    size_t bytes = sizeof value;
    (void)heap;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

WAY void store_stosq(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    void *to = word;
    size_t words = 1;
    (void)heap;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(words) : "a"(value) : "memory");
}

/* ---- libraries ---- */

WAY void store_memcpy(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    volatile size_t bytes = sizeof value;
    (void)heap;
    memcpy(word, &value, bytes);
}

/* By a pointer, which no compiler knows. */
WAY void store_memmove(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    void *(*volatile move)(void *, const void *, size_t) = memmove;
    (void)heap;
    move(word, &value, sizeof value);
}

WAY void store_libpmem(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    pmem_memcpy_persist(word, &value, sizeof value);
}

WAY void store_libpmem_streamed(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    pmem_memcpy(word, &value, sizeof value, PMEM_F_MEM_NONTEMPORAL);
}

WAY void store_libpmem_undrained(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    (void)heap;
    pmem_memcpy_nodrain(word, &value, sizeof value);
}

WAY void store_sscanf(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    char text[24];
    (void)heap;
    snprintf(text, sizeof text, "%llu", (unsigned long long)value);
    must(sscanf(text, "%llu", (unsigned long long *)word) == 1);
}

/* ---- system calls that write the file ---- */

WAY void store_pwrite(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    must(pwrite(heap->fd, &value, sizeof value, offset_of(heap, word)) == sizeof value);
}

WAY void store_pwritev(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec halves[] = {{&value, 4}, {(char *)&value + 4, 4}};
    must(pwritev(heap->fd, halves, 2, offset_of(heap, word)) == sizeof value);
}

WAY void store_write(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    must(lseek(heap->fd, offset_of(heap, word), SEEK_SET) >= 0 && write(heap->fd, &value, sizeof value) == sizeof value);
}

WAY void store_writev(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec whole = {&value, sizeof value};
    must(lseek(heap->fd, offset_of(heap, word), SEEK_SET) >= 0 && writev(heap->fd, &whole, 1) == sizeof value);
}

/* Through a descriptor of its own, which is not synced. */
WAY void store_second_descriptor(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    int fd = open(heap->path, O_WRONLY);
    must(fd >= 0 && pwrite(fd, &value, sizeof value, offset_of(heap, word)) == sizeof value);
    close(fd);
}

WAY void store_duplicate(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    int fd = dup(heap->fd);
    must(fd >= 0 && pwrite(fd, &value, sizeof value, offset_of(heap, word)) == sizeof value);
    close(fd);
}

WAY void store_dsync(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    int fd = open(heap->path, O_WRONLY | O_DSYNC);
    must(fd >= 0 && pwrite(fd, &value, sizeof value, offset_of(heap, word)) == sizeof value);
    close(fd);
}

/* ---- system calls that write mapped memory ---- */

WAY void store_read(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    int ends[2];
    (void)heap;
    must(pipe(ends) == 0 && write(ends[1], &value, sizeof value) == sizeof value);
    must(read(ends[0], word, sizeof value) == sizeof value);
    close(ends[0]);
    close(ends[1]);
}

WAY void store_readv(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec halves[] = {{word, 4}, {(char *)word + 4, 4}};
    int ends[2];
    (void)heap;
    must(pipe(ends) == 0 && write(ends[1], &value, sizeof value) == sizeof value);
    must(readv(ends[0], halves, 2) == sizeof value);
    close(ends[0]);
    close(ends[1]);
}

WAY void store_recvmsg(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec whole = {word, sizeof value};
    struct msghdr message = {.msg_iov = &whole, .msg_iovlen = 1};
    int ends[2];
    (void)heap;
    must(socketpair(AF_UNIX, SOCK_STREAM, 0, ends) == 0 && send(ends[1], &value, sizeof value, 0) == sizeof value);
    must(recvmsg(ends[0], &message, 0) == sizeof value);
    close(ends[0]);
    close(ends[1]);
}

WAY void store_vm_writev(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec from = {&value, sizeof value}, to = {word, sizeof value};
    (void)heap;
    must(process_vm_writev(getpid(), &from, 1, &to, 1, 0) == sizeof value);
}

WAY void store_vm_readv(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    struct iovec from = {&value, sizeof value}, to = {word, sizeof value};
    (void)heap;
    must(process_vm_readv(getpid(), &to, 1, &from, 1, 0) == sizeof value);
}

WAY void store_by_instruction(struct fl_heap *heap, uint64_t *word, uint64_t value) {
    register off_t offset __asm__("r10") = offset_of(heap, word);
    long answer;
    __asm__ volatile("syscall"
                     : "=a"(answer)
                     : "a"((long)SYS_pwrite64), "D"((long)heap->fd), "S"(&value), "d"(sizeof value), "r"(offset)
                     : "rcx", "r11", "memory");
    must(answer == sizeof value);
}

/* ---- wide values: each of the words gets the value ---- */

WAY void wide_avx(uint64_t *words, uint64_t value) {
    __asm__ volatile("vmovq %0, %%xmm0\n\tvpbroadcastq %%xmm0, %%ymm0\n\tvmovdqu %%ymm0, %1\n\tvzeroupper"
                     :
                     : "r"(value), "m"(*(char(*)[32])words)
                     : "xmm0", "memory");
}

/* The intrinsic needs aligned memory: one half after the other, each in two units. */
WAY void wide_sse(uint64_t *words, uint64_t value) {
    __m128i both = _mm_set1_epi64x((long long)value);
    _mm_storeu_si128((__m128i *)(void *)words, both);
    _mm_storeu_si128((__m128i *)(void *)(words + 2), both);
}

WAY void wide_streamed(uint64_t *words, uint64_t value) {
    __m128i both = _mm_set1_epi64x((long long)value);
    _mm_stream_si128((__m128i *)(void *)words, both);
    _mm_stream_si128((__m128i *)(void *)(words + 2), both);
}

WAY void wide_cmpxchg16b(uint64_t *words, uint64_t value) {
    store_cmpxchg16b(NULL, words, value);
    store_cmpxchg16b(NULL, words + 2, value);
}

WAY void wide_stosq(uint64_t *words, uint64_t value) {
    void *to = words;
    size_t count = WIDE_WORDS;
    __asm__ volatile("rep stosq" : "+D"(to), "+c"(count) : "a"(value) : "memory");
}

WAY void wide_movsb(uint64_t *words, uint64_t value) {
    uint64_t copy[WIDE_WORDS] = {value, value, value, value};
    void *to = words;
    const void *from = copy;
    size_t bytes = sizeof copy;
    __asm__ volatile("rep movsb" : "+D"(to), "+S"(from), "+c"(bytes) : : "memory");
}

WAY void wide_masked(uint64_t *words, uint64_t value) {
    __asm__ volatile("vmovq %0, %%xmm0\n\tvpbroadcastq %%xmm0, %%ymm0\n\tvpcmpeqd %%ymm1, %%ymm1, %%ymm1\n\t"
                     "vpmaskmovq %%ymm0, %%ymm1, %1\n\tvzeroupper"
                     :
                     : "r"(value), "m"(*(char(*)[32])words)
                     : "xmm0", "xmm1", "memory");
}

WAY void wide_libpmem(uint64_t *words, uint64_t value) {
    uint64_t copy[WIDE_WORDS] = {value, value, value, value};
    pmem_memcpy_persist(words, copy, sizeof copy);
}

WAY void wide_memcpy(uint64_t *words, uint64_t value) {
    uint64_t copy[WIDE_WORDS] = {value, value, value, value};
    volatile size_t bytes = sizeof copy;
    memcpy(words, copy, bytes);
}

#endif
