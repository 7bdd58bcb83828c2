/* SPDX-License-Identifier: Apache-2.0 */
/* A thread waits at a shared semaphore for another process, and its sibling runs until it is back. */
#include "program.h"

#include <pthread.h>
#include <semaphore.h>
#include <sys/wait.h>

static volatile uint64_t *heap;
static sem_t *posted;
static volatile int is_done;

static void count_in(volatile uint64_t *word) {
    for (uint64_t i = 0; i < 10; i++)
        *word = i;
}

static void *wait_for_child(void *argument) {
    count_in(&heap[0]);
    MUST(sem_wait(posted) == 0);
    is_done = 1;
    return argument;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    posted = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    MUST(posted != MAP_FAILED && sem_init(posted, 1, 0) == 0);
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        usleep(100000); /* the other waits by then, and is not idle */
        MUST(sem_post(posted) == 0);
        _exit(0);
    }
    pthread_t thread;
    int status;
    MUST(pthread_create(&thread, NULL, wait_for_child, NULL) == 0);
    count_in(&heap[8]);
    while (!is_done)
        continue;
    MUST(pthread_join(thread, NULL) == 0 && waitpid(child, &status, 0) == child && status == 0);
    return 0;
}
