/* SPDX-License-Identifier: Apache-2.0 */
/* The site is the instruction that stored, with the calls that led there; in the C library it is the caller outside of it. */
#include "program.h"

static char *heap;

__attribute__((noinline)) static void stores(void) { *(volatile char *)heap = 1; }
__attribute__((noinline)) static void flushes(void) { __asm__ volatile("clwb (%0)\n\tsfence" : : "r"(heap) : "memory"); }
__attribute__((noinline)) static void copies(const char *from, size_t bytes) {
    memcpy(heap + 64, from, bytes);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}
__attribute__((noinline)) static void copies_too(const char *from, size_t bytes) {
    memcpy(heap + 64, from, bytes);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void prints(int number) {
    snprintf(heap + 128, 2, "%d", number);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void helps(void) {
    stores();
    flushes();
    __asm__ volatile("" ::: "memory");
}
/* The distance to its return address differs from call to call. */
__attribute__((noinline)) static void allocates(size_t bytes) {
    volatile char *room = __builtin_alloca(bytes);
    room[0] = 1;
    helps();
    heap[192] = room[0];
}
/* Deeper than a path goes. */
__attribute__((noinline)) static void descends(int depth) {
    if (depth == 0)
        stores();
    else
        descends(depth - 1);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    stores();
    flushes();
    copies("sixteen bytes...", 16);
    copies_too("sixteen bytes...", 16);
    copies("sixteen bytes...", 16);
    prints(7);
    helps();
    allocates(16);
    allocates(1600);
    descends(1);
    descends(9);
    stores();
    return 0;
}
