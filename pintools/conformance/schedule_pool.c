/* SPDX-License-Identifier: Apache-2.0 */
/* A pool of threads takes jobs from a queue (mutex, condition variables, semaphore), allocates, and stores lock-free too. */
#include "program.h"

#include <pthread.h>
#include <semaphore.h>

#define THREADS 4
#define JOBS 48
#define QUEUE 4

static volatile uint64_t *heap;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t filled = PTHREAD_COND_INITIALIZER, emptied = PTHREAD_COND_INITIALIZER;
static unsigned queue[QUEUE], taken, put;
static sem_t done;

static unsigned take(void) {
    MUST(pthread_mutex_lock(&mutex) == 0);
    while (taken == put)
        MUST(pthread_cond_wait(&filled, &mutex) == 0);
    unsigned job = queue[taken++ % QUEUE];
    MUST(pthread_cond_signal(&emptied) == 0);
    MUST(pthread_mutex_unlock(&mutex) == 0);
    return job;
}

static void give(unsigned job) {
    MUST(pthread_mutex_lock(&mutex) == 0);
    while (put - taken == QUEUE)
        MUST(pthread_cond_wait(&emptied, &mutex) == 0);
    queue[put++ % QUEUE] = job;
    MUST(pthread_cond_signal(&filled) == 0);
    MUST(pthread_mutex_unlock(&mutex) == 0);
}

static void *work(void *argument) {
    uint64_t number = (uint64_t)argument;
    unsigned job;
    while ((job = take()) != 0) {
        char *memory = malloc(100 * job);
        MUST(memory != NULL);
        __atomic_fetch_add(&heap[0], 1, __ATOMIC_SEQ_CST);
        heap[8 + job] = number;
        free(memory);
        MUST(sem_post(&done) == 0);
    }
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t threads[THREADS];
    MUST(sem_init(&done, 0, 0) == 0);
    for (uint64_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)(i + 1)) == 0);
    for (unsigned job = 1; job <= JOBS; job++)
        give(job);
    for (unsigned job = 1; job <= JOBS; job++)
        MUST(sem_wait(&done) == 0);
    for (int i = 0; i < THREADS; i++)
        give(0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    MUST(heap[0] == JOBS);
    return 0;
}
