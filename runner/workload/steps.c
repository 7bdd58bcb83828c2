/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes steps of a workload one by one, each between its operation markers.
 *
 * Operation markers are client requests: a few instructions that do nothing outside Valgrind.
 */
#include "workload/workload.h"
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <valgrind/valgrind.h>

static void mark_begin(const struct step *step) {
    uint64_t bytes = step->field, object = step->other;
    if (operation_of(step->kind)->makes_object)
        bytes = step->bytes, object = step->index + 1;
    else if (step->kind == FL_OP_WRITE)
        bytes = step->bytes, object = step->start;
    markers_say_begin(step);
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_BEGIN, step->kind, step->index, step->slot, bytes, object);
}

static void mark_return(const struct step *step, int status) {
    VALGRIND_DO_CLIENT_REQUEST_STMT(FL_REQUEST_RETURN, step->kind, step->index, status, 0, 0);
    markers_say_return(step, status);
}

size_t left_bytes(const struct workload *workload) { return sizeof(struct left) + workload->slots * sizeof(uint64_t); }

void enter_case(struct execution *execution, uint32_t number) {
    int length = snprintf(execution->case_folder, sizeof execution->case_folder, "%s/case-%u", execution->folder, number);
    if (length >= (int)sizeof execution->case_folder)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", execution->folder);
    execution->options.folder = execution->case_folder;
}

static int open_heap(struct execution *execution) {
    bool is_lazy = execution->workload->is_lazy;
    execution->is_settled = !is_lazy;
    return open_adapter(execution->adapter, &execution->options, is_lazy, &execution->heap);
}

/* What a step does to the adapter. */
static int call_adapter(struct execution *execution, const struct step *step) {
    const struct fl_adapter *adapter = execution->adapter;
    struct fill fill = {.object = step->index + 1, .is_persisted = true};
    switch (step->kind) {
    case FL_OP_CREATE: return adapter->create(&execution->options, &execution->heap);
    case FL_OP_OPEN: return open_heap(execution);
    case FL_OP_CLOSE: return adapter->close(execution->heap);
    case FL_OP_ALLOCATE: return adapter->allocate(execution->heap, step->slot, step->bytes, pattern_fill, &fill);
    case FL_OP_FREE: return adapter->free(execution->heap, step->slot);
    case FL_OP_REALLOCATE:
        return adapter->reallocate(execution->heap, step->slot, execution->left->live_bytes[step->slot], step->bytes, pattern_fill,
                                   &fill);
    case FL_OP_LINK: return adapter->link(execution->heap, step->slot, step->field, step->other);
    case FL_OP_UNLINK: return adapter->unlink(execution->heap, step->slot, step->field);
    case FL_OP_DROP: return adapter->drop(execution->heap, step->slot);
    case FL_OP_LOAD: return adapter->load(execution->heap, step->slot, step->other, step->field);
    case FL_OP_BEGIN: return adapter->begin(execution->heap);
    case FL_OP_COMMIT: return adapter->commit(execution->heap);
    case FL_OP_ABORT: return adapter->abort(execution->heap);
    case FL_OP_WRITE: return adapter->write(execution->heap, step->slot, step->start, step->bytes, pattern_fill, &fill);
    case FL_OP_CASE:
    case FL_OP_COLLECT: break;
    }
    return FL_OK;
}

static void begin_transaction(struct execution *execution) {
    size_t bytes = left_bytes(execution->workload);
    execution->left_at_begin = allocate_or_fail(NULL, bytes);
    memcpy(execution->left_at_begin, execution->left, bytes);
}

static void end_transaction(struct execution *execution, bool has_effect) {
    if (!has_effect)
        memcpy(execution->left, execution->left_at_begin, left_bytes(execution->workload));
    free(execution->left_at_begin);
    execution->left_at_begin = NULL;
}

static void note_effect(struct execution *execution, const struct step *step) {
    if (step->kind == FL_OP_CREATE) {
        execution->is_settled = true;
        memset(execution->left, 0, left_bytes(execution->workload));
    }
    if (step->kind == FL_OP_CLOSE)
        execution->heap = NULL;
    if (step->kind == FL_OP_BEGIN)
        begin_transaction(execution);
    if (step->kind == FL_OP_COMMIT || step->kind == FL_OP_ABORT)
        end_transaction(execution, step->kind == FL_OP_COMMIT);
    const struct operation *operation = operation_of(step->kind);
    if (operation->empties_slot)
        execution->left->live_bytes[step->slot] = 0;
    if (operation->fills_slot || operation->makes_object)
        execution->left->live_bytes[step->slot] = step->bytes;
}

static void note_tally(struct tally *tally, const struct step *step, int status) {
    const struct operation *operation = operation_of(step->kind);
    bool is_allocation = operation->makes_object;
    if (tally == NULL || (!is_allocation && step->kind != FL_OP_FREE))
        return;
    if (status != FL_OK) {
        tally->failed++;
        return;
    }
    tally->allocations += is_allocation;
    tally->frees += step->kind != FL_OP_ALLOCATE;
    tally->object_bytes += is_allocation ? step->bytes : 0;
}

/* An earlier operation that ran out of memory left it nothing to work on, or, of a free in a transaction, an object where it needs
 * none. In the graph layout that may be far from it. */
static bool is_skipped(const struct execution *execution, const struct step *step) {
    uint64_t needed = step->kind == FL_OP_FREE || step->kind == FL_OP_REALLOCATE ? 1
                      : step->kind == FL_OP_WRITE                                ? step->start + step->bytes
                                                                                 : 0;
    bool is_taken = step->kind == FL_OP_ALLOCATE && execution->left->live_bytes[step->slot] != 0;
    return is_taken || execution->left->live_bytes[step->slot] < needed || (has_slot(step->kind) && execution->left->is_case_over);
}

/* The operation may answer that there is no room, and has no effect then. In a transaction each may: all are logged. */
static bool may_lack_room(const struct execution *execution, const struct step *step) {
    return operation_of(step->kind)->may_lack_room || (execution->left_at_begin != NULL && has_slot(step->kind));
}

/* Between the main thread's operations: one between those of workers would be a fence that no application has. */
static void go_on_lazily(struct execution *execution, const struct step *step) {
    if (execution->is_settled || execution->heap == NULL || step->thread != 0 || execution->left_at_begin != NULL)
        return;
    if (execution->later != NULL)
        execution->later(execution, step, true);
    disk_counts(true);
    int status = lazy_step(execution->adapter, execution->heap, &execution->is_settled);
    disk_counts(false);
    if (status != FL_OK && execution->refused != NULL)
        execution->refused(execution, step, status);
    if (status != FL_OK)
        fail(EXIT_INFRASTRUCTURE, "%s: step after operation %u answered %s: %s", execution->adapter->name, step->index,
             status_name(status), execution->adapter->message());
    if (execution->later != NULL)
        execution->later(execution, step, false);
}

/* In the step's own thread. */
static void execute_step(struct execution *execution, const struct step *step) {
    if (is_skipped(execution, step))
        return;
    if (step->kind == FL_OP_CASE || step->kind == FL_OP_OPEN)
        enter_case(execution, step->case_number);
    mark_begin(step);
    if (step->kind == FL_OP_CASE)
        return;
    if (execution->before != NULL)
        execution->before(execution, step);
    bool makes_heap = step->kind == FL_OP_CREATE || step->kind == FL_OP_OPEN;
    if (makes_heap)
        disk_has(execution->workload->growths); /* once it is there */
    disk_counts(!makes_heap);
    int status = call_adapter(execution, step);
    disk_counts(false);
    mark_return(step, status);
    note_tally(execution->tally, step, status);
    bool is_refused = status != FL_OK && (status != FL_OUT_OF_MEMORY || !may_lack_room(execution, step));
    if (is_refused && execution->refused != NULL)
        execution->refused(execution, step, status);
    if (status == FL_OK)
        note_effect(execution, step);
    else if (is_refused)
        fail(EXIT_INFRASTRUCTURE, "%s: operation %u (%s of slot %u, %llu bytes) answered %s: %s", execution->adapter->name,
             step->index, operation_of(step->kind)->word, step->slot, (unsigned long long)step->bytes, status_name(status),
             execution->adapter->message());
    else if (step->kind == FL_OP_COMMIT)
        end_transaction(execution, false);
    else if (execution->workload->layout == FL_SLOTS_GRAPH)
        execution->left->is_case_over = true;
    if (execution->after != NULL && execution->left_at_begin == NULL)
        execution->after(execution, step);
    if (step->kind != FL_OP_OPEN) /* the first operation finds all of the work undone */
        go_on_lazily(execution, step);
}

void execute_steps(struct execution *execution, const struct step *from, const struct step *to, uint32_t thread) {
    for (const struct step *step = from; step < to; step++)
        if (step->thread == thread)
            execute_step(execution, step);
}
