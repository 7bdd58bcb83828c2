/* SPDX-License-Identifier: Apache-2.0 */
/* maskmovdqu and maskmovq store the bytes whose mask has its high bit set, each run of them on its own, non-temporally. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const unsigned char pattern[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    static const unsigned char mask[16] = {0x80, 0xff, 0, 0x7f, 0, 0, 0x80, 0x80, 0x80, 0x80, 0, 0, 0, 0, 0, 0x80};
    static const unsigned char nothing[16];
    __asm__ volatile("movdqu (%1), %%xmm3\n\t"
                     "movdqu (%2), %%xmm9\n\t"
                     "movdqu (%3), %%xmm5\n\t"
                     "movq (%1), %%mm1\n\t"
                     "movq (%2), %%mm2\n\t"
                     "maskmovdqu %%xmm9, %%xmm3\n\t"
                     "maskmovdqu %%xmm5, %%xmm3\n\t"
                     "addq $64, %%rdi\n\t"
                     "maskmovq %%mm2, %%mm1\n\t"
                     "emms"
                     : "+D"(heap)
                     : "r"(pattern), "r"(mask), "r"(nothing)
                     : "memory", "xmm3", "xmm9", "xmm5", "mm1", "mm2");
    return 0;
}
