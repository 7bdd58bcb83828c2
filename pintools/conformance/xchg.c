/* SPDX-License-Identifier: Apache-2.0 */
/* xchg with memory is locked without a prefix; between registers it is nothing. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    uint64_t value = 0x1122334455667788, other = 1;
    __asm__ volatile("xchgq %1, (%0)\n\t"
                     "xchgb %b2, 8(%0)\n\t"
                     "xchgq %1, %2"
                     : "+r"(heap), "+q"(value), "+q"(other)
                     :
                     : "memory");
    return !(value == 0 && other == 0);
}
