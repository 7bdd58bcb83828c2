/* SPDX-License-Identifier: Apache-2.0 */
/* A signal whose handler asks for it restarts a read and a futex wait, unseen by the client; another ends them with EINTR. */
#include "program.h"

#include <errno.h>
#include <pthread.h>
#include <sched.h>
#include <semaphore.h>
#include <signal.h>

#define ROUNDS 300

static volatile uint64_t *heap;
static int ends[2], silent[2];
static volatile int got, is_interrupted;
static sem_t posted;

static void on_signal(int number) { (void)number; }

static void *read_all(void *argument) {
    char byte;
    ssize_t bytes;
    while ((bytes = read(ends[0], &byte, 1)) == 1)
        heap[0] = ++got;
    MUST(bytes == 0);
    return argument;
}

static void *wait_for_posts(void *argument) {
    for (int i = 0; i < ROUNDS; i++) {
        MUST(sem_wait(&posted) == 0);
        heap[8] = i;
    }
    return argument;
}

static void *read_silence(void *argument) {
    char byte;
    MUST(read(silent[0], &byte, 1) < 0 && errno == EINTR);
    is_interrupted = 1;
    return argument;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    struct sigaction interrupts = {.sa_handler = on_signal}, restarts = {.sa_handler = on_signal, .sa_flags = SA_RESTART};
    MUST(sigaction(SIGUSR1, &interrupts, NULL) == 0 && sigaction(SIGUSR2, &restarts, NULL) == 0);
    MUST(pipe(ends) == 0 && pipe(silent) == 0 && sem_init(&posted, 0, 0) == 0);
    pthread_t reader, waiter, third;
    MUST(pthread_create(&reader, NULL, read_all, NULL) == 0 && pthread_create(&waiter, NULL, wait_for_posts, NULL) == 0);
    for (int i = 0; i < ROUNDS; i++) {
        MUST(write(ends[1], "x", 1) == 1 && pthread_kill(reader, SIGUSR2) == 0 && pthread_kill(waiter, SIGUSR2) == 0);
        while (i % 3 == 0 && got < i)
            sched_yield();
        MUST(sem_post(&posted) == 0);
    }
    MUST(close(ends[1]) == 0 && pthread_join(reader, NULL) == 0 && pthread_join(waiter, NULL) == 0 && got == ROUNDS);
    MUST(pthread_create(&third, NULL, read_silence, NULL) == 0);
    while (!is_interrupted) {
        pthread_kill(third, SIGUSR1); /* until it is in its read */
        sched_yield();
    }
    MUST(pthread_join(third, NULL) == 0);
    return 0;
}
