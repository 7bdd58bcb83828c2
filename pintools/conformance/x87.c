/* SPDX-License-Identifier: Apache-2.0 */
/* Instructions that VEX runs as helpers with memory effects, and stores of the x87 unit. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    __asm__ volatile("fninit\n\t"
                     "fld1\n\t"
                     "fstl (%0)\n\t"
                     "fsts 8(%0)\n\t"
                     "fistl 12(%0)\n\t"
                     "fstpt 16(%0)\n\t"
                     "fnstcw 32(%0)\n\t"
                     "stmxcsr 36(%0)"
                     :
                     : "r"(heap)
                     : "memory");
    return 0;
}
