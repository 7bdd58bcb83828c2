/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes steps of a workload one by one, each between its operation markers.
 *
 * Operation markers are client requests: a few instructions that do nothing outside Valgrind.
 */
#include "workload/workload.h"
#include "trace.h"
#include <stdio.h>
#include <string.h>
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

size_t left_bytes(const struct workload *workload) { return sizeof(struct left) + workload->slots * sizeof(uint64_t); }

void enter_case(struct execution *execution, uint32_t number) {
    int length = snprintf(execution->case_folder, sizeof execution->case_folder, "%s/case-%u", execution->folder, number);
    if (length >= (int)sizeof execution->case_folder)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", execution->folder);
    execution->options.folder = execution->case_folder;
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
