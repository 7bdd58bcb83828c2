/* SPDX-License-Identifier: Apache-2.0 */
/* AVX-512 stores that a mask chooses the elements of, and direct stores: just what was selected, where it lies together as one. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const uint32_t pattern[16] = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17,
                                         0x18, 0x19, 0x1a, 0x1b, 0x1c, 0x1d, 0x1e, 0x1f};
    static const int32_t places[16] = {0, 32, -16, 1, 2, 3, 64, 80, 96, 112, 5, 6, 7, 8, 9, 10};
    heap[0] = 1;
    __asm__ volatile("vmovdqu32 (%1), %%zmm17\n\t"
                     "vmovdqu32 (%2), %%zmm5\n\t"
                     "kmovw %3, %%k1\n\t"
                     "kmovw %4, %%k2\n\t"
                     "vmovdqu32 %%zmm17, 64(%0) %{%%k1%}\n\t"
                     "vmovdqu8 %%xmm17, 128(%0) %{%%k1%}\n\t"
                     "vmovapd %%ymm17, 192(%0) %{%%k2%}\n\t"
                     "vpcompressd %%zmm17, 320(%0) %{%%k1%}\n\t"
                     "vpmovdb %%zmm17, 384(%0) %{%%k1%}\n\t"
                     "vpscatterdd %%zmm17, 1024(%0, %%zmm5, 4) %{%%k1%}\n\t"
                     "vmovntdq %%zmm17, 448(%0)\n\t"
                     "movdiri %%rax, 512(%0)\n\t"
                     "vzeroupper"
                     :
                     : "r"(heap), "r"(pattern), "r"(places), "r"(0x8037), "r"(0), "a"(0x1122334455667788)
                     : "memory", "xmm5");
    return 0;
}
