/* SPDX-License-Identifier: Apache-2.0 */
/* Double-width compare-exchanges: one store of 16 (8) bytes, or a fence. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    uint64_t low = 0, high = 0;
    __asm__ volatile("lock cmpxchg16b (%2)\n\t" /* succeeds */
                     "lock cmpxchg16b (%2)\n\t" /* fails, loads rdx:rax */
                     "lock cmpxchg16b 64(%2)\n\t" /* fails */
                     "xorl %%eax, %%eax\n\t"
                     "xorl %%edx, %%edx\n\t"
                     "lock cmpxchg8b 128(%2)\n\t" /* succeeds */
                     : "+a"(low), "+d"(high)
                     : "r"(heap), "b"(0x1122334455667788), "c"(0x99aabbccddeeff00)
                     : "memory");
    return 0;
}
