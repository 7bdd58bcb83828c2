/* SPDX-License-Identifier: Apache-2.0 */
/* The site of a file operation, and of what a system call writes into PM, is who called the C library, or made the call. */
#include "program.h"

#include <sys/syscall.h>

static int file;

__attribute__((noinline)) static void writes(long at) {
    MUST(pwrite(file, "12345678", 8, at) == 8);
    __asm__ volatile("" ::: "memory"); /* no tail call */
}
__attribute__((noinline)) static void syncs(void) {
    MUST(fdatasync(file) == 0);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void reads(char *into) {
    MUST(pread(file, into, 8, 0) == 8);
    __asm__ volatile("" ::: "memory");
}
__attribute__((noinline)) static void writes_itself(void) {
    long result = SYS_pwrite64;
    register long at __asm__("r10") = 24;
    __asm__ volatile("syscall" : "+a"(result) : "D"((long)file), "S"("abcdefgh"), "d"(8L), "r"(at) : "rcx", "r11", "memory");
    MUST(result == 8);
}
__attribute__((noinline)) static void updates(char *heap) {
    writes(8);
    syncs();
    reads(heap + 64);
    __asm__ volatile("" ::: "memory");
}

int main(int argc, char **argv) {
    file = create_heap(argc, argv);
    char *heap = map_at(HEAP, file, 0, HEAP_BYTES);
    writes(0);
    updates(heap);
    writes_itself();
    MUST(close(file) == 0);
    return 0;
}
