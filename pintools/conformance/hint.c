/* SPDX-License-Identifier: Apache-2.0 */
/* A hint of no kind that there is: every processor runs it, and Valgrind does not: said in one line, and SIGILL for the program. */
#include "program.h"

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    __asm__ volatile(".byte 0x0f, 0x18, 0xa0, 0, 0, 0, 0" : : "a"(heap) : "memory"); /* nop 0(%rax) */
    return 0;
}
