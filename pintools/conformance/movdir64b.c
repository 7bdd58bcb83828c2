/* SPDX-License-Identifier: Apache-2.0 */
/* A store of 64 bytes at once, which Valgrind does not know: said in one line, and SIGILL for the program. */
#include "program.h"

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    __asm__ volatile(".byte 0x66, 0x0f, 0x38, 0xf8, 0x42, 0" : : "a"(heap), "d"(heap) : "memory"); /* movdir64b 0(%rdx), %rax */
    return 0;
}
