/* SPDX-License-Identifier: Apache-2.0 */
/* Threads that spin for each other, with and without pause or yield, make progress: a slice has an end. */
#include "program.h"

#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#define THREADS 3
#define ROUNDS 10

static volatile uint64_t *heap;
static pthread_spinlock_t spinlock;
static pthread_mutex_t adaptive = PTHREAD_ADAPTIVE_MUTEX_INITIALIZER_NP;
static atomic_uint turn;

static void store(uint64_t at, uint64_t value) { heap[at] = value; }

static void *work(void *argument) {
    unsigned number = (unsigned)(uintptr_t)argument;
    for (unsigned i = 0; i < ROUNDS; i++) {
        MUST(pthread_spin_lock(&spinlock) == 0);
        store(8 * number, i);
        store(8 * number + 1, i);
        MUST(pthread_spin_unlock(&spinlock) == 0);
        MUST(pthread_mutex_lock(&adaptive) == 0);
        store(8 * number + 2, i);
        MUST(pthread_mutex_unlock(&adaptive) == 0);
        while (atomic_load_explicit(&turn, memory_order_relaxed) % THREADS != number)
            if (number == 1)
                sched_yield();
            else if (number == 2)
                __builtin_ia32_pause();
        store(8 * number + 3, i);
        atomic_store_explicit(&turn, turn + 1, memory_order_release);
    }
    return NULL;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t threads[THREADS];
    MUST(pthread_spin_init(&spinlock, PTHREAD_PROCESS_PRIVATE) == 0);
    for (uintptr_t i = 0; i < THREADS; i++)
        MUST(pthread_create(&threads[i], NULL, work, (void *)i) == 0);
    for (int i = 0; i < THREADS; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    return 0;
}
