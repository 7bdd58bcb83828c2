/* SPDX-License-Identifier: Apache-2.0 */
/* Threads meet at a barrier each round; between two meetings they store in any order. */
#include "program.h"

#include <pthread.h>

#define THREADS 4
#define ROUNDS 12

static volatile uint64_t *heap;
static pthread_barrier_t barrier;

static void *work(void *argument) {
    uint64_t number = (uint64_t)argument;
    for (uint64_t i = 1; i <= ROUNDS; i++) {
        heap[8 * number] = i;
        heap[8 * number + 1] = i;
        pthread_barrier_wait(&barrier);
        for (int other = 0; other < THREADS; other++)
            MUST(heap[8 * other] == i);
        pthread_barrier_wait(&barrier);
    }
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t threads[THREADS];
    MUST(pthread_barrier_init(&barrier, NULL, THREADS) == 0);
    for (uint64_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    return 0;
}
