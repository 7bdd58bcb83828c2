/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that VEX runs as helpers which write memory, in several parts. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    static const unsigned char pattern[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
    __asm__ volatile("fninit\n\t"
                     "fldpi\n\t"
                     "movdqu (%1), %%xmm3\n\t"
                     "fxsave (%0)\n\t"
                     "fxsave64 1024(%0)\n\t"
                     "fnstenv 2048(%0)\n\t"
                     "fnsave 2560(%0)"
                     :
                     : "r"(heap), "r"(pattern)
                     : "memory", "xmm3");
    return 0;
}
