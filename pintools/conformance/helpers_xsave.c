/* SPDX-License-Identifier: Apache-2.0 */
/* xsave of all state that Valgrind's CPU has. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const unsigned char pattern[32] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16};
    __asm__ volatile("vmovdqu (%1), %%ymm3\n\t"
                     "xsave 64(%0)\n\t"
                     "xsave64 2048(%0)\n\t"
                     "vzeroupper"
                     :
                     : "r"(heap), "r"(pattern), "a"(7), "d"(0)
                     : "memory", "xmm3");
    return 0;
}
