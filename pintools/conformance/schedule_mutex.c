/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that contend for a mutex: who waits and who is woken is the schedule's choice, not the kernel's. */
#include "program.h"

#include <pthread.h>

#define THREADS 3
#define ROUNDS 12

static volatile uint64_t *heap;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

static void *work(void *argument) {
    uint64_t number = (uint64_t)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        heap[0] = number;
        heap[8] = number;
        MUST(heap[0] == number); /* nobody else is in here */
        __asm__ volatile("clwb %0\n\tsfence" : : "m"(heap[0]) : "memory");
        MUST(pthread_mutex_unlock(&mutex) == 0);
        heap[16 + 8 * number] = i;
    }
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t threads[THREADS];
    for (uint64_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    heap[0] = 99;
    return 0;
}
