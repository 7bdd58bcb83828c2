/* SPDX-License-Identifier: Apache-2.0 */
/* Threads are numbered in order of creation, and a number is never used twice. */
#include "program.h"

#include <pthread.h>

static volatile char *heap;

static void *store(void *value) {
    heap[64] = (char)(long)value;
    __asm__ volatile("clwb %0\n\tsfence" : : "m"(heap[64]) : "memory");
    return NULL;
}

int main(int argc, char **argv) {
    heap = create_and_map_heap(argc, argv);
    for (long i = 1; i <= 2; i++) {
        pthread_t thread;
        heap[0] = i;
        MUST(pthread_create(&thread, NULL, store, (void *)i) == 0 && pthread_join(thread, NULL) == 0);
    }
    heap[0] = 3;
    return 0;
}
