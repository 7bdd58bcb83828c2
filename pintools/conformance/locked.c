/* SPDX-License-Identifier: Apache-2.0 */
/* Locked read-modify-writes in PM: each is one store, with the value it left, and no fence record beside it. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    uint64_t value = 7;
    __asm__ volatile("lock addq %1, (%0)\n\t"
                     "lock addl $1, 8(%0)\n\t"
                     "lock incw 12(%0)\n\t"
                     "lock decb 14(%0)\n\t"
                     "lock orq $0x70, (%0)\n\t"
                     "lock notl 8(%0)\n\t"
                     "lock negq (%0)\n\t"
                     "lock btsq $3, 64(%0)\n\t"
                     "lock xaddq %1, 64(%0)\n\t"
                     : "+r"(heap), "+r"(value)
                     :
                     : "memory");
    return value != 8;
}
