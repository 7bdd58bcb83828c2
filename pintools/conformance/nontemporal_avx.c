/* SPDX-License-Identifier: Apache-2.0 */
/* The VEX-encoded non-temporal stores, two- and three-byte prefixes. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const uint32_t pattern[8] = {0x10, 0x11, 0x12, 0x13, 0x14, 0x15, 0x16, 0x17};
    register char *high __asm__("r11") = heap;
    __asm__ volatile("vmovdqu (%1), %%ymm3\n\t"
                     "vmovntdq %%ymm3, (%0)\n\t"
                     "vmovntps %%ymm3, 32(%2)\n\t"
                     "vmovntpd %%ymm3, 64(%0)\n\t"
                     "vmovntdq %%xmm3, 96(%2)\n\t"
                     "vmovdqa %%xmm3, 112(%2)\n\t"
                     "vzeroupper"
                     :
                     : "r"(heap), "r"(pattern), "r"(high)
                     : "memory", "xmm3");
    return 0;
}
