/* SPDX-License-Identifier: Apache-2.0
 *
 * Workers: the threads that run a workload's `thread N` operations. A worker lives from its first use until its heap is closed.
 *
 * The main thread hands out ranges of steps; a worker runs those of its number, in order, and says when it is done. In between
 * nothing passes from thread to thread: a lock taken between two operations would be a fence that no application has, and would
 * hide a missing one.
 */
#include "workload/workload.h"
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

struct worker {
    struct execution *execution;
    uint32_t number;
    pthread_t thread;
    pthread_mutex_t lock;
    pthread_cond_t changed;
    const struct step *from, *to; /* to run; null: idle */
    bool is_started, is_attached, is_ending;
};

struct workers {
    struct worker all[MAX_WORKERS + 1]; /* by number; 0 is not used */
};

/* ---- in the worker ------------------------------------------------------------------------------------------------------- */

static void call_heap(const struct worker *worker, int (*function)(fl_heap *heap), const char *what) {
    const struct fl_adapter *adapter = worker->execution->adapter;
    int status = function(worker->execution->heap);
    if (status != FL_OK)
        fail(EXIT_INFRASTRUCTURE, "%s: %s of thread %u answered %s: %s", adapter->name, what, worker->number, status_name(status),
             adapter->message());
}

/* The next range; false: the heap is about to be closed. */
static bool take_range(struct worker *worker, const struct step **from, const struct step **to) {
    pthread_mutex_lock(&worker->lock);
    while (worker->from == NULL && !worker->is_ending)
        pthread_cond_wait(&worker->changed, &worker->lock);
    *from = worker->from;
    *to = worker->to;
    pthread_mutex_unlock(&worker->lock);
    return *from != NULL;
}

static void set_idle(struct worker *worker, bool is_attached) {
    pthread_mutex_lock(&worker->lock);
    worker->is_attached = is_attached;
    worker->from = NULL;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

static void *work(void *context) {
    struct worker *worker = context;
    const struct step *from, *to;
    call_heap(worker, worker->execution->adapter->thread_attach, "thread_attach");
    set_idle(worker, true);
    while (take_range(worker, &from, &to)) {
        execute_steps(worker->execution, from, to, worker->number);
        set_idle(worker, true);
    }
    call_heap(worker, worker->execution->adapter->thread_detach, "thread_detach");
    return NULL;
}

/* ---- in the main thread ---------------------------------------------------------------------------------------------------- */

static void wait_until_idle(struct worker *worker) {
    pthread_mutex_lock(&worker->lock);
    while (worker->from != NULL || !worker->is_attached)
        pthread_cond_wait(&worker->changed, &worker->lock);
    pthread_mutex_unlock(&worker->lock);
}

/* Returns when it is attached, so that threads always meet the heap in order of their numbers. */
static void start(struct execution *execution, uint32_t number) {
    if (execution->workers == NULL) {
        execution->workers = allocate_or_fail(NULL, sizeof *execution->workers);
        memset(execution->workers, 0, sizeof *execution->workers);
    }
    struct worker *worker = &execution->workers->all[number];
    if (worker->is_started)
        return;
    *worker = (struct worker){.execution = execution, .number = number, .is_started = true};
    pthread_mutex_init(&worker->lock, NULL);
    pthread_cond_init(&worker->changed, NULL);
    int error = pthread_create(&worker->thread, NULL, work, worker);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "thread %u cannot be started: %s", number, strerror(error));
    wait_until_idle(worker);
}

static bool has_steps(const struct step *from, const struct step *to, uint32_t number) {
    for (const struct step *step = from; step < to; step++)
        if (step->thread == number)
            return true;
    return false;
}

void workers_start(struct execution *execution, const struct step *from, const struct step *to) {
    for (uint32_t number = 1; number <= execution->workload->worker_count; number++)
        if (has_steps(from, to, number))
            start(execution, number);
}

static void give(struct worker *worker, const struct step *from, const struct step *to) {
    pthread_mutex_lock(&worker->lock);
    worker->from = from;
    worker->to = to;
    pthread_cond_signal(&worker->changed);
    pthread_mutex_unlock(&worker->lock);
}

/* Before the heap is closed: detaches them and waits for their end. */
static void end_workers(struct execution *execution) {
    for (uint32_t number = 1; execution->workers != NULL && number <= MAX_WORKERS; number++) {
        struct worker *worker = &execution->workers->all[number];
        if (!worker->is_started)
            continue;
        pthread_mutex_lock(&worker->lock);
        worker->is_ending = true;
        pthread_cond_signal(&worker->changed);
        pthread_mutex_unlock(&worker->lock);
        pthread_join(worker->thread, NULL);
    }
    free(execution->workers);
    execution->workers = NULL;
}

uint32_t workers_count(const struct execution *execution) {
    uint32_t count = 0;
    for (uint32_t number = 1; execution->workers != NULL && number <= MAX_WORKERS; number++)
        count += execution->workers->all[number].is_started;
    return count;
}

/* The step that closes the heap is alone in its range: there are no workers when it is executed. */
void workers_run(struct execution *execution, const struct step *from, const struct step *to) {
    workers_start(execution, from, to);
    if (from->kind == FL_OP_CLOSE)
        end_workers(execution);
    for (uint32_t number = 1; number <= execution->workload->worker_count; number++)
        if (has_steps(from, to, number))
            give(&execution->workers->all[number], from, to);
    execute_steps(execution, from, to, 0);
    for (uint32_t number = 1; number <= execution->workload->worker_count; number++)
        if (has_steps(from, to, number))
            wait_until_idle(&execution->workers->all[number]);
}
