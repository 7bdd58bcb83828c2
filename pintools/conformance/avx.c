/* SPDX-License-Identifier: Apache-2.0 */
/* 32-byte stores are one record; vmaskmov stores only the elements whose mask is set, as one store where they touch. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const uint32_t pattern[8] = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17};
    static const uint32_t mask[8] = {0x80000000, 0x80000000, 0x80000000, 0, 0, 0xffffffff, 0, 0x80000000};
    static const uint32_t nothing[8];
    __asm__ volatile("vmovdqu (%1), %%ymm3\n\t"
                     "vmovdqu (%2), %%ymm4\n\t"
                     "vmovdqu (%3), %%ymm5\n\t"
                     "vmovdqa %%ymm3, (%0)\n\t"
                     "vmovups %%ymm3, 72(%0)\n\t"
                     "vmovdqa %%xmm3, 128(%0)\n\t"
                     "vextracti128 $1, %%ymm3, 144(%0)\n\t"
                     "vmaskmovps %%ymm3, %%ymm4, 192(%0)\n\t"
                     "vmaskmovps %%ymm3, %%ymm5, 224(%0)\n\t"
                     "vpmaskmovq %%xmm3, %%xmm4, 256(%0)\n\t"
                     "vzeroupper"
                     :
                     : "r"(heap), "r"(pattern), "r"(mask), "r"(nothing)
                     : "memory", "xmm3", "xmm4", "xmm5");
    return 0;
}
