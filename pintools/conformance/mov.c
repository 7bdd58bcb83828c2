/* SPDX-License-Identifier: Apache-2.0 */
/* Plain stores of 1, 2, 4 and 8 bytes, from registers and immediates, and to an address within a line. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    uint64_t value = 0x1122334455667788;
    __asm__ volatile("movb %b1, (%0)\n\t"
                     "movw %w1, 2(%0)\n\t"
                     "movl %k1, 4(%0)\n\t"
                     "movq %1, 8(%0)\n\t"
                     "movb $0x5a, 17(%0)\n\t"
                     "movw $0x5a5b, 18(%0)\n\t"
                     "movl $0x5a5b5c5d, 20(%0)\n\t"
                     "movq $-2, 24(%0)\n\t"
                     "incl 20(%0)\n\t"
                     "movq %1, -8(%0, %2, 8)"
                     :
                     : "r"(heap), "r"(value), "r"(6L)
                     : "memory");
    return 0;
}
