/* SPDX-License-Identifier: Apache-2.0 */
/* Two threads hand a ball over by condition variables, a third waits for the end with a time-out that never comes. */
#include "program.h"

#include <pthread.h>
#include <time.h>

#define ROUNDS 30

static volatile uint64_t *heap;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed = PTHREAD_COND_INITIALIZER, ended = PTHREAD_COND_INITIALIZER;
static int ball, is_over;

static void *play(void *argument) {
    int side = (int)(uintptr_t)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        while (ball != side)
            MUST(pthread_cond_wait(&changed, &mutex) == 0);
        heap[8 * side] = i;
        ball = !side;
        MUST(pthread_cond_broadcast(&changed) == 0);
        MUST(pthread_mutex_unlock(&mutex) == 0);
        heap[64 + 8 * side] = i;
    }
    return NULL;
}

static void *wait_for_end(void *argument) {
    (void)argument;
    struct timespec limit;
    MUST(clock_gettime(CLOCK_REALTIME, &limit) == 0);
    limit.tv_sec += 600;
    MUST(pthread_mutex_lock(&mutex) == 0);
    while (!is_over)
        MUST(pthread_cond_timedwait(&ended, &mutex, &limit) == 0);
    heap[128] = 1;
    MUST(pthread_mutex_unlock(&mutex) == 0);
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t players[2], waiter;
    MUST(pthread_create(&waiter, NULL, wait_for_end, NULL) == 0);
    for (uintptr_t side = 0; side < 2; side++)
        MUST(pthread_create(&players[side], NULL, play, (void *)side) == 0);
    for (int side = 0; side < 2; side++)
        MUST(pthread_join(players[side], NULL) == 0);
    MUST(pthread_mutex_lock(&mutex) == 0);
    is_over = 1;
    MUST(pthread_cond_signal(&ended) == 0);
    MUST(pthread_mutex_unlock(&mutex) == 0);
    MUST(pthread_join(waiter, NULL) == 0);
    return 0;
}
