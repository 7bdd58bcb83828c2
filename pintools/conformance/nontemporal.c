/* SPDX-License-Identifier: Apache-2.0 */
/* Every non-temporal store of SSE, movnti and MMX. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const unsigned char pattern[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    __asm__ volatile("movdqu (%1), %%xmm3\n\t"
                     "movdqu (%1), %%xmm12\n\t"
                     "movq (%1), %%mm1\n\t"
                     "movnti %k2, (%0)\n\t"
                     "movnti %2, 8(%0)\n\t"
                     "movntdq %%xmm3, 16(%0)\n\t"
                     "movntps %%xmm3, 32(%0)\n\t"
                     "movntpd %%xmm12, 48(%0)\n\t"
                     "movntq %%mm1, 64(%0)\n\t"
                     "emms"
                     :
                     : "r"(heap), "r"(pattern), "r"(0x1122334455667788)
                     : "memory", "xmm3", "xmm12", "mm1");
    return 0;
}
