/* SPDX-License-Identifier: Apache-2.0 */
/* Programs of test_counting.py, chosen by argv[2]; each is a few stores to a PM file of three OS pages, mapped at HEAP, or to memory. */
#define _GNU_SOURCE
#include <emmintrin.h>
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

enum { HEAP_BYTES = 12288 };

static int descriptor;
static volatile char *heap;

static void store8(uint64_t offset) { *(volatile uint64_t *)(heap + offset) = offset + 1; }

static void fence(void) { __asm__ volatile("sfence" ::: "memory"); }

static void clwb(uint64_t offset) { __asm__ volatile("clwb %0" : "+m"(heap[offset])); }

static void clflush(uint64_t offset) { __asm__ volatile("clflush %0" : "+m"(heap[offset])); }

static void non_temporal(uint64_t offset) { _mm_stream_si32((int *)(uintptr_t)(heap + offset), 7); }

static void nothing(void) {}

/* Lines 0, 1, 0: the second and third store to line 0 are one. */
static void coalesced(void) {
    store8(0);
    store8(64);
    store8(0);
    store8(8);
    store8(0);
}

/* One store to lines 2 and 3, then one to each. */
static void across(void) {
    store8(3 * 64 - 4);
    store8(3 * 64);
    store8(2 * 64);
}

/* Stores to other memory do not come between. */
static void interrupted(void) {
    static volatile uint64_t elsewhere;
    for (int i = 0; i < 10; i++) {
        store8(256);
        elsewhere++;
    }
}

/* Line 0: dirty, flushed; flushed clean; dirty, flushed; dirty at the end. Line 1: never flushed. */
static void flushed(void) {
    store8(0);
    clwb(0);
    clwb(0);
    store8(0);
    clflush(0);
    store8(0);
    store8(64);
    fence();
}

/* Two words of the 64 bytes that one flush instruction writes back. */
static void flushed_together(void) {
    store8(0);
    store8(56);
    clwb(8);
    fence();
    store8(0);
}

/* Line 0 combines to one write-back, twice because of the fence; line 1 is dirty in the cache before. */
static void past(void) {
    non_temporal(0);
    non_temporal(4);
    non_temporal(8);
    fence();
    non_temporal(12);
    store8(64);
    non_temporal(72);
}

/* 192 bytes at once are three lines, however many instructions write them. */
static void repeated(void) {
    void *to = (void *)(uintptr_t)heap;
    uint64_t count = 192;
    __asm__ volatile("rep stosb" : "+D"(to), "+c"(count) : "a"(5) : "memory");
}

/* write(2) to the file, and read(2) into the mapping. */
static void kernel(void) {
    char bytes[128] = {1};
    int ends[2];
    if (pwrite(descriptor, bytes, sizeof bytes, 4096) != sizeof bytes || pipe(ends) != 0 || write(ends[1], bytes, 64) != 64 ||
        read(ends[0], (char *)(uintptr_t)heap + 8192, 64) != 64)
        exit(9);
}

static void forked(void) {
    store8(0);
    pid_t child = fork();
    store8(64);
    if (child == 0)
        _exit(0);
    waitpid(child, NULL, 0);
}

/* The cache of the test has one set of two ways: line 1 throws out line 0, whose place line 2 takes. */
static void evicted(void) {
    store8(0);
    store8(64);
    store8(0);
    store8(128);
    store8(64);
}

/* What brk and anonymous mmap give, and what they do not: static memory, a stack, shared memory. */
static void memory(void) {
    static volatile char own[64];
    volatile char *mapped = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    volatile char *shared = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    volatile char *top = sbrk(8192);
    volatile char stack[64];
    for (int i = 0; i < 3; i++) {
        own[0]++;
        shared[0]++;
        stack[i]++;
        mapped[0]++;
        top[4096]++;
    }
    munmap((void *)(uintptr_t)mapped, 4096);
}

/* More than Valgrind has for brk. */
static void large(void) {
    if (sbrk(64 << 20) != (void *)-1)
        exit(9);
}

/* The kernel writes to the file in a way that is not followed. */
static void not_followed(void) {
    loff_t from = 0, to = 4096;
    store8(0);
    if (copy_file_range(descriptor, &from, descriptor, &to, 64, 0) < 0)
        exit(9);
}

int main(int argc, char **argv) {
    static const struct {
        const char *name;
        void (*run)(void);
    } programs[] = {{"nothing", nothing},
                    {"coalesced", coalesced},
                    {"across", across},
                    {"interrupted", interrupted},
                    {"flushed", flushed},
                    {"past", past},
                    {"repeated", repeated},
                    {"kernel", kernel},
                    {"forked", forked},
                    {"evicted", evicted},
                    {"memory", memory},
                    {"large", large},
                    {"flushed_together", flushed_together},
                    {"not_followed", not_followed}};
    if (argc != 3 || chdir(argv[1]) != 0 || (descriptor = open("heap", O_RDWR | O_CREAT, 0600)) < 0 ||
        ftruncate(descriptor, HEAP_BYTES) != 0)
        return 9;
    heap = mmap(NULL, HEAP_BYTES, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    for (size_t i = 0; i < sizeof programs / sizeof *programs; i++)
        if (strcmp(programs[i].name, argv[2]) == 0) {
            programs[i].run();
            return 0;
        }
    return 9;
}
