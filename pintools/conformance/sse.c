/* SPDX-License-Identifier: Apache-2.0 */
/* 16-byte stores, aligned and not, and the narrower ones from vector registers. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const unsigned char pattern[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    __asm__ volatile("movdqu (%1), %%xmm3\n\t"
                     "movaps %%xmm3, (%0)\n\t"
                     "movdqa %%xmm3, 16(%0)\n\t"
                     "movups %%xmm3, 56(%0)\n\t"
                     "movdqu %%xmm3, 81(%0)\n\t"
                     "movsd %%xmm3, 128(%0)\n\t"
                     "movss %%xmm3, 136(%0)\n\t"
                     "movhps %%xmm3, 144(%0)\n\t"
                     "movq %%xmm3, 152(%0)\n\t"
                     "movd %%xmm3, 160(%0)"
                     :
                     : "r"(heap), "r"(pattern)
                     : "memory", "xmm3");
    return 0;
}
