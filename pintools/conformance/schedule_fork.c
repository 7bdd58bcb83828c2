/* SPDX-License-Identifier: Apache-2.0 */
/* A thread forks while another waits at a mutex and a third for its end: the child has one thread, creates others, and its
 * schedule is its own. */
#include "program.h"

#include <pthread.h>
#include <sys/wait.h>

static volatile uint64_t *heap;
static pthread_mutex_t mutexes[2] = {PTHREAD_MUTEX_INITIALIZER, PTHREAD_MUTEX_INITIALIZER};
static int of_child;

static void *work(void *argument) {
    uint64_t number = (uint64_t)argument;
    pthread_mutex_t *mutex = &mutexes[of_child];
    for (uint64_t i = 0; i < 10; i++) {
        MUST(pthread_mutex_lock(mutex) == 0);
        heap[8 * number] = i;
        MUST(pthread_mutex_unlock(mutex) == 0);
    }
    return NULL;
}

static void *fork_and_wait(void *argument) {
    pid_t child = fork();
    MUST(child >= 0);
    if (child == 0) {
        pthread_t threads[2];
        of_child = 1; /* the other is locked for good here */
        for (uint64_t i = 0; i < 2; i++)
            MUST(pthread_create(&threads[i], NULL, work, (void *)(16 + i)) == 0);
        for (int i = 0; i < 2; i++)
            MUST(pthread_join(threads[i], NULL) == 0);
        _exit(3);
    }
    int status;
    MUST(waitpid(child, &status, 0) == child && WEXITSTATUS(status) == 3);
    heap[0] = 1;
    return argument;
}

int main(int argc, char **argv) {
    heap = (volatile uint64_t *)create_and_map_heap(argc, argv);
    pthread_t forking, working;
    MUST(pthread_mutex_lock(&mutexes[0]) == 0);
    MUST(pthread_create(&working, NULL, work, (void *)2ul) == 0);
    MUST(pthread_create(&forking, NULL, fork_and_wait, NULL) == 0 && pthread_join(forking, NULL) == 0);
    MUST(pthread_mutex_unlock(&mutexes[0]) == 0 && pthread_join(working, NULL) == 0);
    return 0;
}
