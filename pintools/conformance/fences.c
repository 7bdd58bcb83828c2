/* SPDX-License-Identifier: Apache-2.0 */
/* sfence and mfence wherever the program makes them; lfence orders no store and is not recorded. */
#include "program.h"

int main(int argc, char **argv) {
    volatile char *heap = create_and_map_heap(argc, argv);
    heap[0] = 1;
    __asm__ volatile("sfence" ::: "memory");
    heap[1] = 2;
    __asm__ volatile("mfence" ::: "memory");
    heap[2] = 3;
    __asm__ volatile("lfence" ::: "memory");
    heap[3] = 4;
    __asm__ volatile("sfence\n\tsfence" ::: "memory");
    return 0;
}
