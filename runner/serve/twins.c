/* SPDX-License-Identifier: Apache-2.0
 *
 * Twins: the workload without a crash. After each operation's return two private copies of the heap are made. One is emptied as
 * it is, still open; the other is closed, and lives 3 to 6 of the full probe run on it. What every open loses is lost in these
 * lives, as in every recovery; it is not lost in the copy that stayed open. The two copies together are life 1. Written to
 * standard output for each twin: u32 operation index, u32 bytes, report.
 *
 * In a workload with threads the file does not say what had happened before what. A plan says which histories are wanted
 * (plan.c). Each is executed from its case's create on, one operation after the other, each on its own thread; then it is
 * emptied in a copy, and closed. The twin's number in the plan is written instead of an operation index.
 *
 * Three kinds of processes, so that nothing volatile leaks from the workload into a probe:
 *   the parent     never opens a heap; starts the lives
 *   the executor   one a session; executes the workload's steps, and waits while a twin is looked at
 *   the emptier,   copies of the executor: each moves to a private copy of the heap folder, and frees all and drains there, or
 *   the closer     closes it
 *
 * A copy of a process has one thread. Where the target has threads of its own (one that flushes, say), the emptier and the closer
 * are no copies: each executes the session again up to the operation, in a private copy of the folder as the session found it.
 */
#include "serve/serve.h"
#include "files/files.h"
#include "probe/probe.h"
#include "signals/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <signal.h>
#include <unistd.h>

#define COPIES 2u /* of the heap, after each operation: one is emptied, one closed */

/* From executor to parent: the closed copy is made, or cannot be. */
struct notice {
    uint32_t index, case_number;
    uint32_t is_closed; /* by the executor itself: the report says nothing of it */
    uint32_t has_threads; /* of the target: no copies of the executor were made */
    int32_t close_status; /* not FL_OK: there is no twin, and message says why */
    uint32_t outcome; /* not DONE: how the executor, or the closer, was ended */
    uint32_t signal;  /* by that one; 0: by none */
    char message[512];
};

static struct {
    const struct options *options;
    struct execution execution;
    char copy[PATH_MAX];
    char start[PATH_MAX]; /* the folder of the session's first case as the session found it, when it opens that */
    struct left *left_at_start; /* as the session found it */
    uint32_t session;
    int output;
    int to_parent, from_parent; /* the executor's ends */
    int to_executor, from_executor;
} twins;

/* ---- executor and closer ---------------------------------------------------------------------------------------------------- */

static _Noreturn void end_process(int code) {
    syscall(SYS_exit_group, code);
    __builtin_unreachable();
}

static void list_case(struct tree *tree) {
    int error = tree_list(twins.execution.case_folder, tree);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be listed: %s", twins.execution.case_folder, strerror(error));
}

static void fail_copy(const char *message) { fail(EXIT_INFRASTRUCTURE, "%s", message); }

typedef void act_on_copy(struct execution *execution, struct notice *answer);

static void close_copy(struct execution *execution, struct notice *answer) {
    answer->close_status = execution->adapter->close(execution->heap);
    if (answer->close_status != FL_OK)
        snprintf(answer->message, sizeof answer->message, "%s", execution->adapter->message());
}

/* With another adapter that opens: the parent loads neither of them, so that each process has one alone, and the libraries of that. */
static void load_executing(struct execution *execution) {
    if (execution->adapter == NULL)
        execution->adapter = adapter_load(twins.options->adapter);
}

static struct probe probe_of_twin(void) {
    return (struct probe){.adapter = twins.options->opened_by == NULL ? twins.execution.adapter : NULL,
                          .adapter_file = twins.options->opened_by,
                          .options = twins.execution.options,
                          .slots = (uint32_t)twins.options->slots,
                          .is_twin = true,
                          .is_lazy = twins.options->is_lazy,
                          .ends_when_full = twins.options->ends_when_full};
}

/* What it answers is in the report. No collection comes first: an adapter may close and open the heap for it. In the graph layout
 * the freeing of all ends with one. Where memory ends the process only life 5 says how much there is. */
static void empty_copy(struct execution *execution, struct notice *answer) {
    struct probe probe = probe_of_twin();
    probe.adapter = execution->adapter;
    probe.is_twin = false;
    if (!probe.ends_when_full)
        probe_empty_open(&probe, execution->heap);
    answer->close_status = FL_OK;
}

/* What a process for one copy is for. */
struct act {
    act_on_copy *on_copy;
    const char *doing; /* for messages: it "closed" a copy of the heap */
    const struct notice *at;
    int result; /* its answer goes there */
    struct tree tree; /* the case's folder */
};

static _Noreturn void act_and_end(struct execution *execution, const struct act *act) {
    report_enter_life();
    struct notice answer = {0};
    act->on_copy(execution, &answer);
    if (write(act->result, &answer, sizeof answer) != sizeof answer)
        end_process(EXIT_INFRASTRUCTURE);
    end_process(0);
}

/* How a new process comes to its copy of the heap. */
typedef void reach_copy(struct execution *execution, struct act *act);

static _Noreturn void move_to_copy(struct execution *execution, struct act *act) {
    vfs_set(VFS_TRACK, execution->case_folder, twins.copy, &act->tree);
    vfs_materialise();
    act_and_end(execution, act);
}

static const char *late_word(enum fl_outcome outcome) { return outcome == FL_OUTCOME_OVERLOADED ? "got no processor" : "hung"; }

static enum fl_outcome outcome_of(int status) {
    if (!WIFSIGNALED(status))
        return FL_OUTCOME_EXITED;
    switch (WTERMSIG(status)) {
    case SIGPROF: return FL_OUTCOME_HUNG;
    case SIGKILL: return FL_OUTCOME_BROKEN; /* from outside: nothing is known of the allocator */
    default: return FL_OUTCOME_SIGNAL;
    }
}

/* Of a copy that ended by itself, and whether it has answered. */
static void note_end(pid_t child, bool has_answered, const char *doing, struct notice *notice) {
    int status;
    waitpid(child, &status, 0);
    if (WIFEXITED(status) && WEXITSTATUS(status) == EXIT_INFRASTRUCTURE && !has_answered && report_outcome() != FL_OUTCOME_BROKEN)
        end_process(EXIT_INFRASTRUCTURE); /* it said why */
    if (has_answered)
        return;
    notice->outcome = outcome_of(status);
    notice->signal = notice->outcome == FL_OUTCOME_SIGNAL ? (uint32_t)WTERMSIG(status) : 0;
    snprintf(notice->message, sizeof notice->message, "the target %s %d while it %s a copy of the heap",
             WIFSIGNALED(status) ? "died of signal" : "ended with exit code",
             WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status), doing);
}

/* In a new process, on a copy of the heap, which stays. False: the notice says why. */
static bool in_copy(struct execution *execution, reach_copy *reach, struct act *act, struct notice *notice) {
    int result[2];
    if (pipe2(result, O_CLOEXEC) != 0)
        fail(EXIT_INFRASTRUCTURE, "pipe: %s", strerror(errno));
    list_case(&act->tree);
    pid_t child = fork();
    if (child < 0)
        fail(EXIT_INFRASTRUCTURE, "fork: %s", strerror(errno));
    if (child == 0) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_limit_cpu();
        vfs_on_failure(fail_copy);
        act->result = result[1];
        reach(execution, act);
    }
    close(result[1]);
    tree_free(&act->tree);
    struct notice answer = {0};
    struct pollfd polled = {.fd = result[0], .events = POLLIN};
    bool is_late = poll(&polled, 1, (int)twins.options->wall_limit_ms) == 0;
    bool has_answered = !is_late && read(result[0], &answer, sizeof answer) == sizeof answer;
    close(result[0]);
    notice->close_status = has_answered ? answer.close_status : FL_ERROR;
    memcpy(notice->message, answer.message, sizeof notice->message);
    if (is_late) {
        notice->outcome = child_end_late(child);
        snprintf(notice->message, sizeof notice->message, "the target %s while it %s a copy of the heap: not done after %llu ms",
                 late_word((enum fl_outcome)notice->outcome), act->doing, (unsigned long long)twins.options->wall_limit_ms);
    } else {
        note_end(child, has_answered, act->doing, notice);
    }
    return notice->close_status == FL_OK;
}

static void copy_or_end(struct tree *tree, const char *from, const char *to) {
    int error = tree_copy(tree, from, to);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: the heap cannot be copied: %s", to, strerror(error));
}

static void remove_or_end(const char *path) {
    int error = tree_remove(path);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be removed: %s", path, strerror(error));
}

/* Life 1 is the executor's, whose end the parent reports. */
static void begin_twin(void) {
    report_begin();
    report_life(1);
}

/* Without it the closed copy is a twin still. */
static void empty_in_copy(struct execution *execution, reach_copy *reach, const struct notice *at) {
    struct notice emptied = {0};
    bool is_done = in_copy(execution, reach, &(struct act){.on_copy = empty_copy, .doing = "emptied", .at = at}, &emptied);
    if (!report_is_sound())
        begin_twin(); /* the copy wrote over it */
    if (!is_done && report_outcome() != FL_OUTCOME_BROKEN)
        report_message(FL_SECTION_FREE_ALL, emptied.message);
    remove_or_end(twins.copy);
}

static void make_copies(struct execution *execution, reach_copy *reach, struct notice *notice) {
    empty_in_copy(execution, reach, notice);
    in_copy(execution, reach, &(struct act){.on_copy = close_copy, .doing = "closed", .at = notice}, notice);
}

static void copy_closed_heap(void) {
    struct tree tree;
    list_case(&tree);
    copy_or_end(&tree, twins.execution.case_folder, twins.copy);
    tree_free(&tree);
}

static bool has_own_threads(const struct execution *execution) {
    char line[128];
    unsigned threads = 0;
    FILE *status = fopen("/proc/self/status", "re");
    while (status != NULL && fgets(line, sizeof line, status) != NULL && sscanf(line, "Threads: %u", &threads) != 1)
        continue;
    if (status == NULL || threads == 0)
        fail(EXIT_INFRASTRUCTURE, "/proc/self/status: does not say how many threads the target has");
    fclose(status);
    return threads > 1 + workers_count(execution);
}

/* Called after each operation: makes the copies, and waits until the parent has looked at the closed one. */
static void show_twin(struct execution *execution, const struct step *step) {
    struct notice notice = {.index = step->index, .case_number = step->case_number, .is_closed = execution->heap == NULL};
    notice.has_threads = !notice.is_closed && has_own_threads(execution);
    if (notice.is_closed)
        copy_closed_heap();
    else if (!notice.has_threads)
        make_copies(execution, move_to_copy, &notice);
    char answer;
    if (write(twins.to_parent, &notice, sizeof notice) != sizeof notice || read(twins.from_parent, &answer, 1) != 1)
        end_process(EXIT_INFRASTRUCTURE);
}

static _Noreturn void execute(uint32_t session) {
    load_executing(&twins.execution);
    vfs_set(VFS_TRACK, twins.options->folder, twins.copy, NULL);
    twins.execution.after = show_twin;
    execute_session(&twins.execution, session);
    end_process(0);
}

/* ---- the session again, of a target with threads ---------------------------------------------------------------------------- */

static const struct step *first_step(uint32_t session) {
    const struct step *step = twins.execution.workload->steps;
    while (step->session != session)
        step++;
    return step;
}

static void act_when_there(struct execution *execution, const struct step *step) {
    const struct act *act = execution->context;
    if (step->index == act->at->index)
        act_and_end(execution, act);
}

/* In a process in which nothing of the session has happened. */
static _Noreturn void execute_again(struct execution *execution, struct act *act) {
    const struct workload *workload = execution->workload;
    size_t bytes = left_bytes(workload);
    struct left *left = allocate_or_fail(NULL, bytes);
    memcpy(left, twins.left_at_start, bytes);
    execution->left = left;
    execution->after = act_when_there;
    execution->context = act;
    vfs_set(VFS_REDIRECT, execution->case_folder, twins.copy, &act->tree);
    for (size_t i = 0; i < workload->step_count; i++) {
        const struct step *step = &workload->steps[i];
        if (step->session == twins.session && step->case_number == act->at->case_number)
            workers_run(execution, step, step + 1);
    }
    fail(EXIT_INFRASTRUCTURE, "%s: operation %u had an effect, and has none when the session is executed again", workload->path,
         act->at->index);
}

/* A case that the session created began with nothing. */
static _Noreturn void begin_copy_again(struct execution *execution, struct act *act) {
    child_unmask();
    load_executing(execution);
    const struct step *first = first_step(twins.session);
    if (first->kind == FL_OP_OPEN && first->case_number == act->at->case_number) {
        struct tree tree;
        int error = tree_list(twins.start, &tree);
        if (error != 0)
            fail(EXIT_INFRASTRUCTURE, "%s: cannot be listed: %s", twins.start, strerror(error));
        copy_or_end(&tree, twins.start, twins.copy);
    } else if (mkdir(twins.copy, 0777) != 0) {
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be made: %s", twins.copy, strerror(errno));
    }
    execute_again(execution, act);
}

static void keep_start(uint32_t session) {
    const struct step *first = first_step(session);
    twins.session = session;
    memcpy(twins.left_at_start, twins.execution.left, left_bytes(twins.execution.workload));
    if (first->kind != FL_OP_OPEN)
        return;
    struct tree tree;
    enter_case(&twins.execution, first->case_number);
    list_case(&tree);
    copy_or_end(&tree, twins.execution.case_folder, twins.start);
    tree_free(&tree);
}

static void make_copies_again(struct notice *notice) {
    enter_case(&twins.execution, notice->case_number);
    make_copies(&twins.execution, begin_copy_again, notice);
}

/* ---- parent ------------------------------------------------------------------------------------------------------------------ */

static void write_all(const void *bytes, size_t count) {
    for (size_t done = 0; done < count;) {
        ssize_t put = write(twins.output, (const char *)bytes + done, count - done);
        if (put < 0)
            fail(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
        done += (size_t)put;
    }
}

enum news { NEWS_NOTICE, NEWS_END, NEWS_LATE };

/* An operation, or the planned ones of a session, may take as long as a life, and each of its two copies, too, which it ends itself
 * when they are late. An executor that takes longer is ended. */
static enum news next_notice(pid_t executor, struct notice *notice) {
    struct pollfd polled = {.fd = twins.from_executor, .events = POLLIN};
    uint64_t limit = twins.options->wall_limit_ms * (1 + COPIES);
    if (poll(&polled, 1, (int)limit) != 0)
        return read(twins.from_executor, notice, sizeof *notice) == sizeof *notice ? NEWS_NOTICE : NEWS_END;
    notice->outcome = child_end_late(executor);
    notice->close_status = FL_ERROR;
    notice->is_closed = 1;
    snprintf(notice->message, sizeof notice->message, "not done after %llu ms", (unsigned long long)limit);
    return NEWS_LATE;
}

/* As of a crash image, each pair of lives has a copy of its own. */
static void run_twin_lives(struct probed_heap *probed) {
    char emptied[sizeof twins.copy + sizeof "-2"];
    struct tree tree;
    snprintf(emptied, sizeof emptied, "%s-2", twins.copy);
    int error = tree_list(twins.copy, &tree);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be listed: %s", twins.copy, strerror(error));
    copy_or_end(&tree, twins.copy, emptied);
    tree_free(&tree);
    bool goes_on = run_lives(probed, 3, 4);
    probed->copy = emptied;
    if (goes_on)
        run_lives(probed, 5, 6);
    remove_or_end(emptied);
}

static void remove_cases(void) {
    for (uint32_t number = 0; number < twins.execution.workload->case_count; number++) {
        char path[PATH_MAX];
        snprintf(path, sizeof path, "%s/case-%u", twins.options->folder, number);
        tree_remove(path);
    }
}

/* Where the newest life died is all that is asked for. What it printed is in the standard error. */
static _Noreturn void end_with_death(void) {
    static struct death_report report;
    FILE *answer = fdopen(twins.output, "w");
    if (answer == NULL)
        fail(EXIT_INFRASTRUCTURE, "standard output: %s", strerror(errno));
    deaths_describe(&report);
    deaths_print(answer, &report);
    remove_cases();
    exit(fclose(answer) == 0 ? 0 : EXIT_INFRASTRUCTURE);
}

static void probe_twin(const struct notice *notice) {
    char base[PATH_MAX];
    struct tree tree;
    snprintf(base, sizeof base, "%s/case-%u", twins.options->folder, notice->case_number);
    int error = tree_list(base, &tree);
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be listed: %s", base, strerror(error));
    struct probed_heap probed = {.probe = probe_of_twin(), .base = base, .copy = twins.copy, .tree = &tree};
    probed.probe.options.folder = base;
    bool is_sound = report_is_sound() && report_outcome() != FL_OUTCOME_BROKEN;
    bool is_done = notice->outcome == FL_OUTCOME_DONE;
    if (is_sound && (!notice->is_closed || !is_done))
        report_stage(FL_SECTION_CLOSE);
    if (is_sound && !notice->is_closed && is_done)
        report_empty(FL_SECTION_CLOSE, notice->close_status, 0);
    if (is_sound && !(is_done && (notice->is_closed || notice->close_status == FL_OK)))
        report_message(FL_SECTION_CLOSE, notice->message);
    report_finish_life((enum fl_outcome)notice->outcome, notice->signal);
    bool is_asked = twins.options->death_of == (uint64_t)notice->index + 1;
    if (is_asked)
        deaths_want(true);
    if (notice->close_status == FL_OK && report_outcome() == FL_OUTCOME_DONE)
        run_twin_lives(&probed);
    tree_free(&tree);
    remove_or_end(twins.copy);
    if (is_asked)
        end_with_death();
    if (twins.options->death_of != 0)
        return;
    uint32_t head[2] = {notice->index, report_bytes()->total_bytes};
    write_all(head, sizeof head);
    write_all(report_bytes(), head[1]);
}

/* With pipes to and from it; 0 in the executor. */
static pid_t fork_executor(void) {
    int up[2], down[2];
    if (pipe2(up, O_CLOEXEC) != 0 || pipe2(down, O_CLOEXEC) != 0)
        fail(EXIT_INFRASTRUCTURE, "pipe: %s", strerror(errno));
    pid_t executor = fork();
    if (executor < 0)
        fail(EXIT_INFRASTRUCTURE, "fork: %s", strerror(errno));
    bool is_executor = executor == 0;
    twins.from_executor = up[0];
    twins.to_parent = up[1];
    twins.from_parent = down[0];
    twins.to_executor = down[1];
    close(is_executor ? twins.from_executor : twins.to_parent);
    close(is_executor ? twins.to_executor : twins.from_parent);
    if (is_executor) {
        prctl(PR_SET_PDEATHSIG, SIGKILL);
        child_unmask();
    }
    return executor;
}

/* Also ends one that waits for an answer. */
static void close_pipes(void) {
    close(twins.from_executor);
    close(twins.to_executor);
}

static const char *name_of_target(void) {
    return twins.execution.adapter == NULL ? twins.options->adapter : twins.execution.adapter->name;
}

static void end_session(pid_t executor) {
    int status;
    while (waitpid(executor, &status, 0) < 0 && errno == EINTR)
        continue;
    if (WIFSIGNALED(status))
        fail(EXIT_INFRASTRUCTURE, "%s died of signal %d (%s) while it executed %s, without a crash", name_of_target(),
             WTERMSIG(status), strsignal(WTERMSIG(status)), twins.execution.workload->path);
    if (WEXITSTATUS(status) != 0)
        exit(WEXITSTATUS(status)); /* it said why, or the adapter called exit */
}

/* What a session leaves in the slots is the next executor's to know: it goes through memory that both see. */
static void run_session(uint32_t session) {
    keep_start(session);
    begin_twin();
    pid_t executor = fork_executor();
    if (executor == 0)
        execute(session);
    struct notice notice;
    enum news news;
    while ((news = next_notice(executor, &notice)) == NEWS_NOTICE) {
        if (notice.has_threads)
            make_copies_again(&notice);
        probe_twin(&notice);
        begin_twin();
        if (write(twins.to_executor, "", 1) != 1)
            break;
    }
    close_pipes();
    if (tree_remove(twins.start) != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be removed", twins.start);
    if (news == NEWS_LATE)
        fail(EXIT_INFRASTRUCTURE, "%s %s while it executed %s, without a crash: %s", name_of_target(),
             late_word((enum fl_outcome)notice.outcome), twins.execution.workload->path, notice.message);
    end_session(executor);
}

/* ---- planned twins ------------------------------------------------------------------------------------------------------------ */

/* The steps of one segment around the step. */
static void start_segment(struct execution *execution, const struct step *step) {
    const struct workload *workload = execution->workload;
    const struct step *from = step, *to = step + 1, *end = workload->steps + workload->step_count;
    while (from > workload->steps && from[-1].segment == step->segment)
        from--;
    while (to < end && to->segment == step->segment)
        to++;
    workers_start(execution, from, to);
}

/* An operation that returned when it was traced returns here too: else this is not its history. */
static bool has_effect(const struct execution *execution, const struct step *step) {
    uint64_t bytes = execution->left->live_bytes[step->slot];
    return step->kind == FL_OP_FREE ? bytes == 0 : bytes == step->bytes;
}

/* The planned operations of one session, in an executor. */
static void execute_planned(struct execution *execution, const struct planned_twin *twin, uint32_t session, struct notice *notice) {
    for (uint32_t i = 0; i < twin->count; i++) {
        const struct step *step = twin->steps[i];
        if (step->session != session)
            continue;
        start_segment(execution, step);
        bool was_live = execution->left->live_bytes[step->slot] != 0;
        workers_run(execution, step, step + 1);
        bool is_possible = step->kind == FL_OP_ALLOCATE || was_live;
        if (i >= twin->returned_count || (is_possible && has_effect(execution, step)))
            continue;
        notice->is_closed = 0;
        notice->close_status = FL_OUT_OF_MEMORY;
        snprintf(notice->message, sizeof notice->message, "operation %u had no effect, which it had when it was traced",
                 step->index);
    }
}

/* What is done at the end of a plan's twin. Where the target turns out to have threads of its own, the twin is executed once more to be
 * emptied, and once more to be closed. */
enum way {
    WAY_BOTH, /* emptied in a copy of the process, then closed */
    WAY_EMPTY, /* emptied where it was executed */
    WAY_CLOSE, /* closed only */
};

static void empty_planned(struct execution *execution, enum way way, struct notice *notice) {
    notice->has_threads = has_own_threads(execution);
    if (way == WAY_BOTH && !notice->has_threads)
        empty_in_copy(execution, move_to_copy, NULL);
    if (way != WAY_EMPTY)
        return;
    report_enter_life();
    empty_copy(execution, notice);
    if (write(twins.to_parent, notice, sizeof *notice) != sizeof *notice)
        end_process(EXIT_INFRASTRUCTURE);
    end_process(0);
}

static _Noreturn void execute_planned_session(const struct planned_twin *twin, uint32_t session, enum way way) {
    struct execution *execution = &twins.execution;
    load_executing(execution);
    const struct workload *workload = execution->workload;
    struct notice notice = {.case_number = twin->case_number, .is_closed = 1};
    vfs_set(VFS_TRACK, twins.options->folder, twins.copy, NULL);
    for (size_t i = 0; i < workload->step_count; i++) {
        const struct step *step = &workload->steps[i];
        if (step->session != session || step->case_number != twin->case_number || has_slot(step->kind))
            continue;
        if (step->kind == FL_OP_CLOSE) {
            execute_planned(execution, twin, session, &notice);
            if (session == twin->last_session && notice.close_status == FL_OK)
                empty_planned(execution, way, &notice);
        }
        workers_run(execution, step, step + 1);
    }
    if (write(twins.to_parent, &notice, sizeof notice) != sizeof notice)
        end_process(EXIT_INFRASTRUCTURE);
    end_process(0);
}

static void probe_planned(const struct planned_twin *twin, struct notice *notice) {
    enter_case(&twins.execution, twin->case_number);
    if (notice->close_status == FL_OK)
        copy_closed_heap();
    notice->index = twin->number;
    probe_twin(notice);
}

static void make_case_folder(const struct planned_twin *twin) {
    enter_case(&twins.execution, twin->case_number);
    int error = tree_remove(twins.execution.case_folder);
    if (error == 0 && mkdir(twins.execution.case_folder, 0777) != 0)
        error = errno;
    if (error != 0)
        fail(EXIT_INFRASTRUCTURE, "%s: cannot be made afresh: %s", twins.execution.case_folder, strerror(error));
}

static struct notice execute_plan(const struct planned_twin *twin, enum way way) {
    struct notice notice = {.close_status = FL_ERROR};
    make_case_folder(twin);
    for (uint32_t session = twin->first_session; session <= twin->last_session; session++) {
        pid_t executor = fork_executor();
        if (executor == 0)
            execute_planned_session(twin, session, way);
        enum news news = next_notice(executor, &notice);
        if (news == NEWS_END)
            notice.close_status = FL_ERROR;
        close_pipes();
        if (news != NEWS_LATE)
            end_session(executor);
        if (notice.close_status != FL_OK)
            break;
    }
    return notice;
}

static void run_planned(const struct planned_twin *twin) {
    begin_twin();
    struct notice notice = execute_plan(twin, WAY_BOTH);
    if (notice.has_threads && notice.close_status == FL_OK) {
        begin_twin();
        notice = execute_plan(twin, WAY_EMPTY);
        if (notice.close_status == FL_OK)
            notice = execute_plan(twin, WAY_CLOSE);
    }
    probe_planned(twin, &notice);
}

/* Of the executors of all sessions. */
static void share_left(const struct workload *workload) {
    twins.left_at_start = twins.execution.left;
    twins.execution.left = map_or_fail(left_bytes(workload), MAP_SHARED, -1, "the workload's slots");
}

int run_twins(const struct options *options) {
    const struct fl_adapter *adapter = options->opened_by == NULL ? adapter_load(options->adapter) : NULL;
    struct workload *workload = workload_read(options->workload);
    if (workload->worker_count > 0 && options->plan == NULL)
        fail(EXIT_BAD_INPUT, "%s: the workload has threads: which histories are wanted must come with --plan FILE", workload->path);
    twins.options = options;
    execute_prepare(&twins.execution, options, workload, adapter);
    share_left(workload);
    if (snprintf(twins.copy, sizeof twins.copy, "%s/copy", options->folder) >= (int)sizeof twins.copy ||
        snprintf(twins.start, sizeof twins.start, "%s/start", options->folder) >= (int)sizeof twins.start)
        fail(EXIT_BAD_INPUT, "%s: the path is too long", options->folder);
    make_case_folders(&twins.execution);
    report_map();
    twins.output = move_away(1);
    hide_streams(options->is_verbose);
    child_prepare(&(struct limits){options->cpu_limit_ms, options->wall_limit_ms, options->folder, options->limit_bytes, 0});
    if (options->plan != NULL)
        plan_read(options->plan, workload, run_planned);
    else
        for (uint32_t session = 0; session < workload->session_count; session++)
            run_session(session);
    remove_cases();
    return 0;
}
