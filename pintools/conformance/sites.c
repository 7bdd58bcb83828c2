/* SPDX-License-Identifier: Apache-2.0 */
/* The site is the instruction that stored; in the C library it is the caller outside of it. */
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

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    stores();
    flushes();
    copies("sixteen bytes...", 16);
    copies_too("sixteen bytes...", 16);
    copies("sixteen bytes...", 16);
    prints(7);
    return 0;
}
