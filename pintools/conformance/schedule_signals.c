/* SPDX-License-Identifier: Apache-2.0 */
/* Signals interrupt threads that wait at a mutex, at a pipe, in a sleep; a wait is canceled. Nothing hangs, nothing is lost. */
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <signal.h>
#include <time.h>

#define ROUNDS 20

static volatile uint64_t *heap;
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t never = PTHREAD_COND_INITIALIZER;
static int ends[2];
static volatile int is_over;

static void on_signal(int number) { (void)number; }

static void *wait_at_mutex(void *argument) {
    for (uint64_t i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        heap[8] = i;
        MUST(pthread_mutex_unlock(&mutex) == 0);
    }
    return argument;
}

static void *wait_at_pipe(void *argument) {
    char byte;
    ssize_t got;
    while ((got = read(ends[0], &byte, 1)) != 0) {
        MUST(got == 1 || errno == EINTR);
        heap[16] += got == 1;
    }
    return argument;
}

static void *wait_in_sleep(void *argument) {
    struct timespec time = {.tv_sec = 0, .tv_nsec = 1000000};
    while (!is_over)
        MUST(nanosleep(&time, NULL) == 0 || errno == EINTR);
    heap[24] = 1;
    return argument;
}

static void *wait_to_be_canceled(void *argument) {
    pthread_mutex_t own = PTHREAD_MUTEX_INITIALIZER;
    pthread_mutex_lock(&own);
    for (;;)
        pthread_cond_wait(&never, &own);
    return argument;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    struct sigaction interrupts = {.sa_handler = on_signal}, restarts = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &interrupts, NULL) == 0 && sigaction(SIGUSR2, &restarts, NULL) == 0 && pipe(ends) == 0);
    void *(*functions[4])(void *) = {wait_at_mutex, wait_at_pipe, wait_in_sleep, wait_to_be_canceled};
    pthread_t threads[4];
    for (int i = 0; i < 4; i++)
        MUST(pthread_create(&threads[i], NULL, functions[i], NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        MUST(pthread_mutex_lock(&mutex) == 0);
        struct timespec time = {.tv_sec = 0, .tv_nsec = 2000000};
        nanosleep(&time, NULL);
        for (int thread = 0; thread < 4; thread++)
            pthread_kill(threads[thread], i % 2 ? SIGUSR1 : SIGUSR2); /* ESRCH: it has ended */
        MUST(write(ends[1], "x", 1) == 1);
        MUST(pthread_mutex_unlock(&mutex) == 0);
    }
    is_over = 1;
    MUST(close(ends[1]) == 0 && pthread_cancel(threads[3]) == 0);
    for (int i = 0; i < 4; i++)
        MUST(pthread_join(threads[i], NULL) == 0);
    MUST(heap[16] == ROUNDS);
    return 0;
}
