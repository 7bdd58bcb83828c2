/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes one session of a workload: the steps between two reopens, each case's heap in its own folder `case-N`.
 *
 * Operation markers are client requests: a few instructions that do nothing outside Valgrind.
 *
 * A session must know what the one before it left in the slots, which the file alone does not say: an operation that ran out
 * of memory had no effect. Sessions hand that over in a small file beside the folder (`FOLDER.session`, outside the traced
 * folder); the last session removes it.
 */
#include "runner.h"
#include "trace.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>
#include <valgrind/valgrind.h>

static const enum fl_operation MARKERS[] = {
    [STEP_CASE] = FL_OP_CASE,
    [STEP_CREATE] = FL_OP_CREATE,
    [STEP_OPEN] = FL_OP_OPEN,
    [STEP_CLOSE] = FL_OP_CLOSE,
    [STEP_ALLOCATE] = FL_OP_ALLOCATE,
    [STEP_FREE] = FL_OP_FREE,
    [STEP_REALLOCATE] = FL_OP_REALLOCATE,
    [STEP_LINK] = FL_OP_LINK,
    [STEP_UNLINK] = FL_OP_UNLINK,
    [STEP_DROP] = FL_OP_DROP,
    [STEP_LOAD] = FL_OP_LOAD,
};
static const char *const NAMES[] = {
    [STEP_CASE] = "case",
    [STEP_CREATE] = "create",
    [STEP_OPEN] = "open",
    [STEP_CLOSE] = "close",
    [STEP_ALLOCATE] = "allocate",
    [STEP_FREE] = "free",
    [STEP_REALLOCATE] = "reallocate",
    [STEP_LINK] = "link",
    [STEP_UNLINK] = "unlink",
    [STEP_DROP] = "drop",
    [STEP_LOAD] = "load",
};

static void mark_begin(const struct step *step) {
    bool makes_object = step->kind == STEP_ALLOCATE || step->kind == STEP_REALLOCATE;
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, MARKERS[step->kind], step->index, step->slot,
                                    makes_object ? step->bytes : step->field, makes_object ? step->index + 1 : step->other);
}

static void mark_return(const struct step *step, int status) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_RETURN, MARKERS[step->kind], step->index, status, 0, 0);
}

struct fl_heap_options heap_options(const struct options *options) {
    return (struct fl_heap_options){
        .folder = options->folder,
        .heap_bytes = options->heap_bytes,
        .limit_bytes = options->limit_bytes,
        .slot_count = (uint32_t)options->slots + FL_PROBE_SLOTS,
        .address_hint = (uintptr_t)options->address_hint,
        .slot_layout = options->slot_layout,
        .layout_slots = options->slot_layout == FL_SLOTS_ROOT ? 0 : (uint32_t)options->slots,
    };
}

static void check_needs(const struct options *options, const struct workload *workload, const struct fl_adapter *adapter) {
    static const uint64_t BITS[] = {
        [FL_SLOTS_ROOT] = 0, [FL_SLOTS_NAMES] = FL_CAN_NAMES, [FL_SLOTS_CHAIN] = FL_CAN_CHAIN, [FL_SLOTS_GRAPH] = FL_CAN_LINK};
    const char *layout = layout_name(workload->layout);
    if (workload->layout != options->slot_layout)
        fail(EXIT_BAD_INPUT, "%s: the workload's slots are `%s`, the heap's `%s`; pass --slot-layout %s", workload->path, layout,
             layout_name(options->slot_layout), layout);
    if ((adapter->capabilities & BITS[workload->layout]) != BITS[workload->layout])
        fail(EXIT_BAD_INPUT, "%s: the workload needs `slots COUNT %s`, which %s does not have; choose a workload of root slots",
             workload->path, layout, adapter->name);
    if (workload->worker_count > 0 && (adapter->capabilities & FL_CAN_THREADS) == 0)
        fail(EXIT_BAD_INPUT, "%s: the workload has threads, which %s does not support; choose a workload without `thread`",
             workload->path, adapter->name);
}

void execute_prepare(struct execution *execution, const struct options *options, const struct workload *workload,
                     const struct fl_adapter *adapter) {
    if (workload->slots > options->slots)
        fail(EXIT_BAD_INPUT, "%s: the workload has %u slots, the heap only %llu; pass --slots %u", workload->path, workload->slots,
             (unsigned long long)options->slots, workload->slots);
    check_needs(options, workload, adapter);
    *execution = (struct execution){
        .adapter = adapter,
        .workload = workload,
        .options = heap_options(options),
        .folder = options->folder,
    };
    execution->left = allocate_or_fail(NULL, left_bytes(workload));
    memset(execution->left, 0, left_bytes(workload));
}

size_t left_bytes(const struct workload *workload) { return sizeof(struct left) + workload->slots * sizeof(uint64_t); }

void enter_case(struct execution *execution, uint32_t number) {
    int length = snprintf(execution->case_folder, sizeof execution->case_folder, "%s/case-%u", execution->folder, number);
    if (length >= (int)sizeof execution->case_folder)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", execution->folder);
    execution->options.folder = execution->case_folder;
}

/* All at once, before the first marker, so that no case's trace holds the making of another one's folder. */
void make_case_folders(const struct execution *execution) {
    char path[4096];
    for (uint32_t number = 0; number < execution->workload->case_count; number++) {
        snprintf(path, sizeof path, "%s/case-%u", execution->folder, number);
        if (mkdir(path, 0777) != 0)
            fail(errno == EEXIST ? EXIT_BAD_INPUT : EXIT_INFRASTRUCTURE, "%s: cannot make the case's folder: %s%s", path,
                 strerror(errno), errno == EEXIST ? "; pass an empty folder" : "");
    }
}

/* What a step does to the adapter. */
static int call_adapter(struct execution *execution, const struct step *step) {
    const struct fl_adapter *adapter = execution->adapter;
    struct fill fill = {.object = step->index + 1, .is_persisted = true};
    switch (step->kind) {
    case STEP_CREATE: return adapter->create(&execution->options, &execution->heap);
    case STEP_OPEN: return adapter->open(&execution->options, &execution->heap);
    case STEP_CLOSE: return adapter->close(execution->heap);
    case STEP_ALLOCATE: return adapter->allocate(execution->heap, step->slot, step->bytes, pattern_fill, &fill);
    case STEP_FREE: return adapter->free(execution->heap, step->slot);
    case STEP_REALLOCATE:
        return adapter->reallocate(execution->heap, step->slot, execution->left->live_bytes[step->slot], step->bytes, pattern_fill,
                                   &fill);
    case STEP_LINK: return adapter->link(execution->heap, step->slot, step->field, step->other);
    case STEP_UNLINK: return adapter->unlink(execution->heap, step->slot, step->field);
    case STEP_DROP: return adapter->drop(execution->heap, step->slot);
    case STEP_LOAD: return adapter->load(execution->heap, step->slot, step->other, step->field);
    case STEP_CASE: break;
    }
    return FL_OK;
}

static void note_effect(struct execution *execution, const struct step *step) {
    if (step->kind == STEP_CREATE)
        memset(execution->left, 0, left_bytes(execution->workload));
    if (step->kind == STEP_CLOSE)
        execution->heap = NULL;
    if (step->kind == STEP_FREE || step->kind == STEP_DROP)
        execution->left->live_bytes[step->slot] = 0;
    if (step->kind == STEP_ALLOCATE || step->kind == STEP_REALLOCATE || step->kind == STEP_LOAD)
        execution->left->live_bytes[step->slot] = step->bytes;
}

/* An earlier operation that ran out of memory left it nothing to work on. In the graph layout that may be far from it. */
static bool is_skipped(const struct execution *execution, const struct step *step) {
    bool needs_object = step->kind == STEP_FREE || step->kind == STEP_REALLOCATE;
    return (needs_object && execution->left->live_bytes[step->slot] == 0) ||
           (step->kind >= STEP_ALLOCATE && execution->left->is_case_over);
}

static bool may_run_out_of_memory(const struct step *step) { return step->kind == STEP_ALLOCATE || step->kind == STEP_REALLOCATE; }

/* In the step's own thread. */
static void execute_step(struct execution *execution, const struct step *step) {
    if (is_skipped(execution, step))
        return;
    if (step->kind == STEP_CASE || step->kind == STEP_OPEN)
        enter_case(execution, step->case_number);
    if (step->kind == STEP_CLOSE)
        workers_end(execution);
    mark_begin(step);
    if (step->kind == STEP_CASE)
        return;
    int status = call_adapter(execution, step);
    mark_return(step, status);
    if (status == FL_OK)
        note_effect(execution, step);
    else if (status != FL_OUT_OF_MEMORY || !may_run_out_of_memory(step))
        fail(EXIT_INFRASTRUCTURE, "%s: operation %u (%s of slot %u, %llu bytes) answered %s: %s", execution->adapter->name,
             step->index, NAMES[step->kind], step->slot, (unsigned long long)step->bytes, status_name(status),
             execution->adapter->message());
    else if (execution->workload->layout == FL_SLOTS_GRAPH)
        execution->left->is_case_over = true;
    if (execution->after != NULL)
        execution->after(execution, step);
}

void execute_steps(struct execution *execution, const struct step *from, const struct step *to, uint32_t thread) {
    for (const struct step *step = from; step < to; step++)
        if (step->thread == thread)
            execute_step(execution, step);
}

void execute_session(struct execution *execution, uint32_t session) {
    const struct workload *workload = execution->workload;
    const struct step *end = workload->steps + workload->step_count, *to;
    for (const struct step *from = workload->steps; from < end; from = to) {
        for (to = from; to < end && to->segment == from->segment;)
            to++;
        if (from->session == session)
            workers_run(execution, from, to);
    }
}

/* ---- what one session hands to the next ---------------------------------------------------------------------------- */

static void session_path(const struct execution *execution, char path[4096]) {
    snprintf(path, 4096, "%s.session", execution->folder);
}

static void hand_over(const struct execution *execution, uint32_t session) {
    char path[4096];
    session_path(execution, path);
    if (session + 1 == execution->workload->session_count) {
        unlink(path);
        return;
    }
    FILE *file = fopen(path, "w");
    if (file == NULL)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be written: %s", path, strerror(errno));
    fprintf(file, "%u %u\n", session, execution->left->is_case_over);
    for (uint32_t slot = 0; slot < execution->workload->slots; slot++)
        if (execution->left->live_bytes[slot] != 0)
            fprintf(file, "%u %llu\n", slot, (unsigned long long)execution->left->live_bytes[slot]);
    if (fclose(file) != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be written: %s", path, strerror(errno));
}

static void take_over(struct execution *execution, uint32_t session) {
    char path[4096];
    session_path(execution, path);
    FILE *file = fopen(path, "r");
    unsigned before;
    if (file == NULL || fscanf(file, "%u %u", &before, &execution->left->is_case_over) != 2 || before + 1 != session)
        fail(EXIT_BAD_INPUT, "%s: does not say what session %u left; run the sessions in order, on one folder", path, session - 1);
    unsigned slot;
    unsigned long long bytes;
    while (fscanf(file, "%u %llu", &slot, &bytes) == 2)
        if (slot < execution->workload->slots)
            execution->left->live_bytes[slot] = bytes;
    fclose(file);
}

int run_workload(const struct options *options) {
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    struct workload *workload = workload_read(options->workload);
    if (options->session >= workload->session_count)
        fail(EXIT_BAD_INPUT, "--session %llu: %s has %u session%s, counted from 0", (unsigned long long)options->session,
             workload->path, workload->session_count, workload->session_count == 1 ? "" : "s");
    uint32_t session = (uint32_t)options->session;
    struct execution execution;
    execute_prepare(&execution, options, workload, adapter);
    if (session == 0)
        make_case_folders(&execution);
    else
        take_over(&execution, session);
    execute_session(&execution, session);
    hand_over(&execution, session);
    return 0;
}
