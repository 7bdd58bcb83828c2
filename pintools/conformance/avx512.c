/* SPDX-License-Identifier: Apache-2.0 */
/* An instruction that Valgrind does not know: said in one line, and SIGILL for the program. */
#include "program.h"

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    __asm__ volatile("vpxor %%xmm0, %%xmm0, %%xmm0\n\t.byte 0x62, 0xf1, 0x7d, 0x48, 0x7f, 0x00"
                     :
                     : "a"(heap)
                     : "memory"); /* vmovdqa32 %zmm0, (%rax) */
    return 0;
}
