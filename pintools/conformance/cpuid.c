/* SPDX-License-Identifier: Apache-2.0 */
/* Code that asks CPUID for clwb and clflushopt finds them, whatever Valgrind's CPU lacks. */
#include "program.h"

#include <cpuid.h>

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    unsigned a, b = 0, c, d;
    MUST(__get_cpuid_count(7, 0, &a, &b, &c, &d));
    heap[0] = (b >> 23) & 1; /* CLFLUSHOPT */
    heap[1] = (b >> 24) & 1; /* CLWB */
    __cpuid_count(0, 0, a, b, c, d);
    heap[2] = b == 0x756e6547 || b == 0x68747541; /* other leaves are as they were: GenuineIntel, AuthenticAMD */
    return 0;
}
