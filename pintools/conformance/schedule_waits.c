/* SPDX-License-Identifier: Apache-2.0 */
/* Threads wait for each other in system calls: a pipe, sleeps, a process; one is never joined, one outlives main's return. */
#include "program.h"

#include <pthread.h>
#include <sys/wait.h>
#include <time.h>

#define ROUNDS 8

static volatile uint64_t *heap;
static int there[2], back[2];

static void *echo(void *argument) {
    (void)argument;
    char byte;
    while (read(there[0], &byte, 1) == 1) {
        heap[8] = byte;
        heap[9] = byte;
        MUST(write(back[1], &byte, 1) == 1);
    }
    return NULL;
}

static void *doze(void *argument) {
    uint64_t number = (uint64_t)argument;
    for (uint64_t i = 0; i < ROUNDS; i++) {
        struct timespec time = {.tv_sec = 0, .tv_nsec = 200000 * number};
        MUST(nanosleep(&time, NULL) == 0);
        heap[16 + 8 * number] = i;
    }
    return NULL;
}

static void *store_once(void *argument) {
    heap[40] = (uint64_t)argument;
    return NULL;
}

static void *read_forever(void *argument) {
    char byte;
    (void)argument;
    return (void *)read(back[0], &byte, 1);
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    MUST(pipe(there) == 0 && pipe(back) == 0);
    pthread_t echoing, dozing[2], other;
    MUST(pthread_create(&echoing, NULL, echo, NULL) == 0);
    for (char i = 0; i < ROUNDS; i++) {
        char byte;
        heap[0] = i;
        MUST(write(there[1], &i, 1) == 1 && read(back[0], &byte, 1) == 1 && byte == i);
    }
    MUST(close(there[1]) == 0 && pthread_join(echoing, NULL) == 0);
    for (uint64_t i = 1; i <= 2; i++)
        MUST(pthread_create(&dozing[i - 1], NULL, doze, (void *)i) == 0);
    for (int i = 0; i < 2; i++)
        MUST(pthread_join(dozing[i], NULL) == 0);
    MUST(pthread_create(&other, NULL, store_once, (void *)7ul) == 0 && pthread_detach(other) == 0);
    while (heap[40] != 7)
        ;
    MUST(pthread_create(&other, NULL, read_forever, NULL) == 0);
    heap[0] = 100;
    return 0;
}
