/* SPDX-License-Identifier: Apache-2.0
 *
 * Executes one session of a workload: the steps between two reopens, each case's heap in its own folder `case-N`.
 *
 * A session must know what the one before it left in the slots, which the file alone does not say: an operation that ran out
 * of memory had no effect. Sessions hand that over in a small file beside the folder (`FOLDER.session`, outside the traced
 * folder); the last session removes it.
 */
#include "workload/workload.h"
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

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
    if (workload->is_lazy != options->is_lazy)
        fail(EXIT_BAD_INPUT, "%s: the workload opens %s, the heap %s; %s --lazy", workload->path,
             workload->is_lazy ? "lazily" : "at once", options->is_lazy ? "lazily" : "at once",
             workload->is_lazy ? "pass" : "leave out");
    if (adapter == NULL)
        return; /* it is loaded later, where it executed the workload before */
    if (workload->is_lazy && (adapter->capabilities & FL_CAN_SETTLE) == 0)
        fail(EXIT_BAD_INPUT,
             "%s: the workload opens lazily, and nothing of %s's open can be done later; choose a workload without `opens lazily`",
             workload->path, adapter->name);
    if ((adapter->capabilities & BITS[workload->layout]) != BITS[workload->layout])
        fail(EXIT_BAD_INPUT, "%s: the workload needs `slots COUNT %s`, which %s does not have; choose a workload of root slots",
             workload->path, layout, adapter->name);
    if (workload->has_transactions && (adapter->capabilities & FL_CAN_TRANSACTIONS) == 0)
        fail(EXIT_BAD_INPUT, "%s: the workload has transactions or writes, which %s does not support; choose a workload without",
             workload->path, adapter->name);
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
    struct tally tally = {0};
    if (options->is_tallied)
        execution.tally = &tally;
    if (session == 0)
        make_case_folders(&execution);
    else
        take_over(&execution, session);
    if (options->markers != NULL)
        markers_begin(options->markers, options->folder);
    execute_session(&execution, session);
    hand_over(&execution, session);
    if (options->is_tallied)
        printf("{\"allocations\": %llu, \"frees\": %llu, \"failed\": %llu, \"object_bytes\": %llu}\n",
               (unsigned long long)tally.allocations, (unsigned long long)tally.frees, (unsigned long long)tally.failed,
               (unsigned long long)tally.object_bytes);
    return 0;
}
