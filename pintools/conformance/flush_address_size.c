/* SPDX-License-Identifier: Apache-2.0 */
/* The address-size prefix cuts the operand's address to 32 bits. */
#include "program.h"

#define LOW ((char *)0x60000000)

int main(int argc, char **argv) {
    int descriptor = create_heap(argc, argv);
    map_at(LOW, descriptor, 0, HEAP_BYTES);
    __asm__ volatile("clwb 64(%k0)\n\t"
                     "clflushopt 128(%k0)\n\t"
                     "clflush 192(%k0)"
                     :
                     : "r"((long)LOW | 0x500000000)
                     : "memory");
    return 0;
}
