/* SPDX-License-Identifier: Apache-2.0 */
/* Locked read-modify-writes outside PM are fences, failed or not. */
#include "program.h"

int main(int argc, char **argv) {
    create_and_map_heap(argc, argv);
    uint64_t memory[4] __attribute__((aligned(16))) = {0}, value = 1;
    __asm__ volatile("lock addq $1, (%1)\n\t"
                     "xchgq %0, 8(%1)\n\t"
                     "xorl %%eax, %%eax\n\t"
                     "lock cmpxchgq %0, (%1)\n\t" /* fails: it is 1 */
                     "lock cmpxchgq %0, (%1)"     /* succeeds */
                     : "+r"(value)
                     : "r"(memory)
                     : "rax", "memory");
    return 0;
}
