/* SPDX-License-Identifier: Apache-2.0 */
/* lock cmpxchg in PM: a store if it succeeds, a fence if it fails. Without lock it is no fence. */
#include "program.h"

int main(int argc, char **argv) {
    char *heap = create_and_map_heap(argc, argv);
    uint64_t expected = 0;
    __asm__ volatile("lock cmpxchgq %2, (%1)\n\t"   /* succeeds */
                     "lock cmpxchgq %2, (%1)\n\t"   /* fails, loads rax */
                     "lock cmpxchgl %k3, (%1)\n\t"  /* succeeds */
                     "lock cmpxchgb %b3, 8(%1)\n\t" /* fails */
                     : "+a"(expected)
                     : "r"(heap), "r"(0x55667788L), "r"(0x99L)
                     : "memory");
    return 0;
}
