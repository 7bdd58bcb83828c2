/* SPDX-License-Identifier: Apache-2.0
 *
 * Rehearsal: the workload without a tracer and without a crash, each session in a process of its own, to say in which operation
 * the target fails. Limits are those of one operation. Written to standard output, a line each:
 *
 *     OUTCOME NUMBER            done, signal, exited, hung or refused; NUMBER is the signal or the status, else 0. unknown: it could
 *                               not be followed
 *     operation INDEX KIND SLOT BYTES SESSION   each that had begun and not returned
 *     call OFFSET MODULE        of the target when it died or hung, the innermost one first
 *     status TEXT               what was answered instead
 *     message TEXT              of the allocator, about its refusal
 */
#include "serve/serve.h"
#include "probe/probe.h"
#include "signals/signals.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>

/* By the session's process, for the parent. */
struct seen {
    uint32_t pending[MAX_WORKERS + 1]; /* by thread: the step's number in the workload + 1; 0: none */
    uint32_t is_later;                 /* it is a piece of what a lazy open left, after that operation */
    uint64_t begun_ms;                 /* the newest operation */
    int32_t status;                    /* not FL_OK: an operation was refused */
    char message[512];
};

static struct {
    struct execution execution;
    struct seen *seen;
    uint32_t session;
    FILE *answer; /* targets have another standard output */
} rehearsal;

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

static uint32_t number_of(const struct execution *execution, const struct step *step) {
    return (uint32_t)(step - execution->workload->steps) + 1;
}

static void note_before(struct execution *execution, const struct step *step) {
    rehearsal.seen->begun_ms = now_ms();
    rehearsal.seen->pending[step->thread] = number_of(execution, step);
    child_limit_cpu();
}

static void note_after(struct execution *execution, const struct step *step) {
    (void)execution;
    rehearsal.seen->pending[step->thread] = 0;
}

static void note_later(struct execution *execution, const struct step *step, bool begins) {
    rehearsal.seen->is_later = begins;
    (begins ? note_before : note_after)(execution, step);
}

static void note_refused(struct execution *execution, const struct step *step, int status) {
    memset(rehearsal.seen->pending, 0, sizeof rehearsal.seen->pending);
    rehearsal.seen->pending[step->thread] = number_of(execution, step);
    rehearsal.seen->status = status;
    snprintf(rehearsal.seen->message, sizeof rehearsal.seen->message, "%s", execution->adapter->message());
}

static void run_one_session(void *context) { execute_session(context, rehearsal.session); }

static bool is_pending(void) {
    for (uint32_t thread = 0; thread <= MAX_WORKERS; thread++)
        if (rehearsal.seen->pending[thread] != 0)
            return true;
    return false;
}

/* A process that was ended at the wall limit, and not by the processor's time, may only have had much to do: its last operation must
 * have begun long ago. */
static bool has_hung(const struct death_report *report, uint64_t wall_ms) {
    return report->death.hung == FL_HUNG_BUSY || now_ms() - rehearsal.seen->begun_ms >= wall_ms / 2;
}

static const char *word_of(enum fl_outcome outcome, const struct death_report *report, uint64_t wall_ms) {
    if (outcome == FL_OUTCOME_DONE)
        return "done";
    if (!is_pending())
        return "unknown"; /* not an operation's failure */
    if (rehearsal.seen->status != FL_OK)
        return "refused";
    switch (outcome) {
    case FL_OUTCOME_SIGNAL: return "signal";
    case FL_OUTCOME_EXITED: return "exited";
    case FL_OUTCOME_HUNG: return has_hung(report, wall_ms) ? "hung" : "unknown";
    default: return "unknown";
    }
}

static void print_operation(const struct step *step) {
    fprintf(rehearsal.answer, "operation %u %s %u %llu %u\n", step->index, operation_of(step->kind)->word, step->slot,
            (unsigned long long)step->bytes, rehearsal.session);
}

static void print_refusal(void) {
    for (char *byte = rehearsal.seen->message; *byte != '\0'; byte++)
        if (*byte == '\n')
            *byte = ' ';
    fprintf(rehearsal.answer, "status %s\nmessage %s\n", status_name(rehearsal.seen->status), rehearsal.seen->message);
}

/* False: the target failed, or could not be followed. */
static bool rehearse_session(const struct options *options) {
    uint32_t signal;
    *rehearsal.seen = (struct seen){0};
    *report_result() = (struct life_result){0};
    deaths_want(true);
    enum fl_outcome outcome = child_run(run_one_session, &rehearsal.execution, &signal);
    if (child_stop_requested())
        fail(EXIT_INFRASTRUCTURE, "interrupted");
    static struct death_report report;
    deaths_describe(&report);
    const char *word = word_of(outcome, &report, options->wall_limit_ms);
    if (outcome == FL_OUTCOME_DONE)
        return true;
    bool is_refused = strcmp(word, "refused") == 0;
    fprintf(rehearsal.answer, "%s %u\n", word, is_refused ? (uint32_t)rehearsal.seen->status : signal);
    for (uint32_t thread = 0; thread <= MAX_WORKERS; thread++)
        if (rehearsal.seen->pending[thread] != 0)
            print_operation(&rehearsal.execution.workload->steps[rehearsal.seen->pending[thread] - 1]);
    if (rehearsal.seen->is_later)
        fprintf(rehearsal.answer, "later %u\n", rehearsal.session);
    if (is_refused)
        print_refusal();
    else
        deaths_print(rehearsal.answer, &report);
    return false;
}

static void end_answer(void) {
    if (fclose(rehearsal.answer) != 0)
        fail(EXIT_INFRASTRUCTURE, "standard output: it cannot be written");
}

int run_rehearse(const struct options *options) {
    const struct fl_adapter *adapter = adapter_load(options->adapter);
    struct workload *workload = workload_read(options->workload);
    struct execution *execution = &rehearsal.execution;
    execute_prepare(execution, options, workload, adapter);
    execution->left = map_or_fail(left_bytes(workload), MAP_SHARED, -1, "the workload's slots"); /* of all sessions' processes */
    rehearsal.seen = map_or_fail(sizeof *rehearsal.seen, MAP_SHARED, -1, "the operations");
    execution->before = note_before;
    execution->after = note_after;
    execution->refused = note_refused;
    execution->later = note_later;
    make_case_folders(execution);
    report_map();
    rehearsal.answer = fdopen(move_away(1), "w");
    if (rehearsal.answer == NULL)
        fail(EXIT_INFRASTRUCTURE, "standard output cannot be kept");
    hide_streams(true);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, options->folder, options->limit_bytes, 0});
    for (rehearsal.session = 0; rehearsal.session < workload->session_count; rehearsal.session++)
        if (!rehearse_session(options)) {
            end_answer();
            return 0;
        }
    fprintf(rehearsal.answer, "done 0\n");
    end_answer();
    return 0;
}
