/* SPDX-License-Identifier: Apache-2.0
 *
 * The in-process engine: lives of a target, one after the other in one long-lived process, the worker.
 *
 *     image     the server's own files. What a run does to them is taken back: contents and sizes (undo.c), names (names.c)
 *     target    its heap, globals and thread-locals are put back after each life (arena.c)
 *     kernel    mappings and descriptors are kept for the next life (kept_mappings.c)
 *     the rest  threads, folders that change, signal actions, ...: inprocess_leave() ends the run; the isolated engine does it then
 *
 * Targets without hooks. Nobody sees what they store. So their shared mappings of the image are private ones (copy on write),
 * which go when the life ends. What such mappings cannot show truthfully ends the run: a second mapping of a file, a call that
 * reads behind one, any change of files. Only the first part of the probe is done so: later lives would not see what earlier
 * ones stored.
 *
 * Guard. The worker is a child of the server, and its death is the guard. Signals, stack overflow, exit and abort of a target
 * end it, however broken it is by then. The server takes back what the run stored and does the run in the isolated engine, whose
 * answer counts. It forks another worker when one is wanted. A run that makes too many accesses leaves (loads.c). A run that
 * hangs otherwise is killed at the isolated engine's limits.
 *
 * Turns. Server and worker share the engine's input and output. Exactly one of them has the turn: it reads commands, obeys and
 * answers them. Input that was read ahead lies in memory that they share. The worker gives the turn back when a command is not
 * its business; the server gives it when the next in-process run is asked for.
 *
 * Tail. Most of a full probe is what follows the first recovery. It is taken from another run that came to the same state
 * (probe/tail_cache.c).
 *
 * Trust. Some runs are done in both engines, and heap report and loads must be the same: the first run, one in FL_COMPARE_ONE_IN
 * others, those of what becomes a finding (FL_RUN_COMPARED), and each run that did not come to its end. The image is looked at
 * then as well, and before it is let go (reference.c), because a store that no hook announced is not taken back. If the image is
 * damaged after the first run, no more runs are in-process. If it is damaged after a later one, the server ends: nobody knows
 * what the runs between saw. Other names or sizes of files end the server in any case.
 */
#include "inprocess/inprocess.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <poll.h>
#include <setjmp.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <time.h>

#define MOST_REASONS 32u

struct reason {
    uint64_t count;
    char text[REASON_BYTES];
};

struct shared {
    struct fl_engines engines;
    enum inprocess_turn turn;
    struct fl_command command;
    uint32_t is_in_run;
    uint64_t runs;              /* that were begun */
    char reason[REASON_BYTES];  /* why the run was given back */
};

static struct {
    struct shared *shared;
    pid_t worker; /* 0: there is none */
    int link;     /* to the other one */
    bool is_distrusted;
    int (*descriptor)(uint32_t file);
    struct reason reasons[MOST_REASONS];
    uint8_t *report, *loads; /* remembered */
    uint32_t report_bytes, loads_bytes;
} engine;

bool inprocess_is_first(void) { return engine.shared->runs == 1; }
bool inprocess_is_trusted(void) { return !engine.is_distrusted; }
pid_t inprocess_worker(void) { return engine.worker; }

/* ---- in the worker: runs -------------------------------------------------------------------------------------------------- */

static bool is_chosen(uint64_t seed, uint64_t run) {
    uint64_t x = (seed << 32 ^ run) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 32)) * 0xbf58476d1ce4e5b9ull;
    return run == 0 || (x >> 32) % FL_COMPARE_ONE_IN == 0;
}

/* False: the target left. */
static bool run_lives_here(const struct probed_heap *probed, const struct fl_command *command) {
    bool is_done = sigsetjmp(in_process.way_out, 0) == 0;
    if (is_done) {
        in_process.is_running = true;
        loads_begin(command->run.flags & (FL_RUN_LOADS | FL_RUN_EVERY_ACCESS), 0);
        uint32_t flags = command->run.flags & (FL_RUN_LOADS | FL_RUN_EVERY_ACCESS | FL_RUN_AFRESH);
        bool has_tail = flags == FL_RUN_LOADS && command->run.probe == FL_PROBE_FULL;
        tail_begin_run(has_tail && !probed->probe.is_lazy); /* life 3 does not do what life 0 did */
        run_probe(probed, (enum fl_probe)command->run.probe);
    } else
        inprocess_end_life();
    undo_apply();
    engine.shared->engines.remembered += tail_end_run(is_done);
    vfs_set(VFS_PASS, probed->base, probed->copy, probed->tree);
    in_process.is_running = false;
    return is_done;
}

bool inprocess_run(const struct probed_heap *probed, struct fl_command *command) {
    struct shared *shared = engine.shared;
    uint64_t run = shared->runs++;
    bool is_compared = is_chosen(command->run.seed, run) || (command->run.flags & FL_RUN_COMPARED) != 0;
    shared->command = *command;
    __atomic_store_n(&shared->is_in_run, 1, __ATOMIC_RELEASE);
    bool is_done = run_lives_here(probed, command);
    __atomic_store_n(&shared->is_in_run, 0, __ATOMIC_RELEASE);
    if (is_done && !is_compared) {
        shared->engines.in_process++;
        return true;
    }
    inprocess_give_back(is_done ? TURN_COMPARE : TURN_ISOLATE, command);
    return false;
}

/* ---- turns ---------------------------------------------------------------------------------------------------------------- */

static void send_byte(void) {
    char byte = 0;
    syscall(SYS_sendto, engine.link, &byte, 1, MSG_NOSIGNAL, NULL, 0); /* if the other one is dead, reading tells */
}

void inprocess_give_back(enum inprocess_turn why, struct fl_command *command) {
    char byte;
    engine.shared->turn = why;
    engine.shared->command = *command;
    send_byte();
    if (syscall(SYS_read, engine.link, &byte, 1) != 1)
        syscall(SYS_exit_group, 0); /* the server has no more use for it */
    loads_forget_words();
    *command = engine.shared->command;
}

static _Noreturn void be_worker(int link, void (*work)(struct fl_command *command)) {
    char byte;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    engine.link = link;
    report_enter_life();
    if (syscall(SYS_read, link, &byte, 1) == 1) {
        struct fl_command command = engine.shared->command;
        work(&command);
    }
    syscall(SYS_exit_group, 0);
    __builtin_unreachable();
}

static void start_worker(void (*work)(struct fl_command *command)) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
        fail(EXIT_INFRASTRUCTURE, "socketpair: %s", strerror(errno));
    int own = move_away(ends[0]), others = move_away(ends[1]);
    close(ends[0]);
    close(ends[1]);
    engine.worker = fork();
    if (engine.worker < 0)
        fail(EXIT_INFRASTRUCTURE, "fork: %s", strerror(errno));
    if (engine.worker == 0) {
        close(own);
        be_worker(others, work);
    }
    close(others);
    engine.link = own;
}

static int bury_worker(void) {
    int status = 0;
    close(engine.link);
    while (waitpid(engine.worker, &status, 0) < 0 && errno == EINTR)
        continue;
    engine.worker = 0;
    return status;
}

void inprocess_end_worker(void) {
    if (engine.worker == 0)
        return;
    kill(engine.worker, SIGKILL);
    bury_worker();
}

static void note_reason(const char *text) {
    engine.shared->engines.isolated++;
    for (size_t i = 0; i < MOST_REASONS; i++) {
        struct reason *reason = &engine.reasons[i];
        bool is_last = i + 1 == MOST_REASONS;
        if (reason->count > 0 && strcmp(reason->text, text) != 0 && !is_last)
            continue;
        if (reason->count == 0)
            snprintf(reason->text, REASON_BYTES, "%s", is_last ? "has other reasons" : text);
        reason->count++;
        return;
    }
}

/* Until the worker gives the turn back; false: it died, or had to be ended. */
static bool wait_for_worker(const struct limits *limits) {
    struct pollfd polled = {.fd = engine.link, .events = POLLIN};
    uint64_t run = UINT64_MAX, cpu_ms = 0, wall_ms = 0;
    uint64_t step_ms = limits->cpu_ms < limits->wall_ms ? limits->cpu_ms : limits->wall_ms;
    for (;;) {
        struct timespec timeout = {(time_t)(step_ms / 1000), (long)(step_ms % 1000 * 1000000)};
        int found = ppoll(&polled, 1, &timeout, child_waiting_mask());
        if (child_stop_requested()) {
            kill(engine.worker, SIGKILL);
            return false;
        }
        char byte;
        if (found > 0)
            return read(engine.link, &byte, 1) == 1;
        if (found < 0 || !__atomic_load_n(&engine.shared->is_in_run, __ATOMIC_ACQUIRE)) {
            run = UINT64_MAX;
            continue;
        }
        uint64_t now_cpu_ms = child_cpu_ms(engine.worker);
        if (run != engine.shared->runs) {
            child_begin_run();
            run = engine.shared->runs;
            cpu_ms = now_cpu_ms;
            wall_ms = 0;
        } else if (child_is_out_of_time() || (wall_ms += step_ms) >= limits->wall_ms || now_cpu_ms - cpu_ms >= limits->cpu_ms) {
            snprintf(in_process.reason, REASON_BYTES, "reached a time limit");
            kill(engine.worker, SIGKILL);
            return false;
        }
    }
}

/* Reports the life's end as the isolated engine does; false: nothing is known of it. */
static bool report_death(int status) {
    bool is_killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (is_killed || report_outcome() == FL_OUTCOME_BROKEN)
        return false;
    report_finish_life(WIFSIGNALED(status) ? FL_OUTCOME_SIGNAL : FL_OUTCOME_EXITED,
                       WIFSIGNALED(status) ? (uint32_t)WTERMSIG(status) : 0);
    return true;
}

static enum inprocess_turn after_death(struct fl_command *command) {
    struct shared *shared = engine.shared;
    int status = bury_worker();
    if (child_stop_requested())
        fail(EXIT_INFRASTRUCTURE, "stopped by a signal");
    if (!shared->is_in_run && WIFEXITED(status)) /* it said why */
        exit(WEXITSTATUS(status));
    if (!shared->is_in_run)
        fail(EXIT_INFRASTRUCTURE, "the in-process engine's worker died of signal %d between runs", WTERMSIG(status));
    shared->is_in_run = 0;
    undo_apply_for_the_dead(engine.descriptor);
    *command = shared->command;
    loads_end_tail();
    if (report_death(status))
        return TURN_COMPARE;
    if (in_process.reason[0] == '\0')
        snprintf(in_process.reason, REASON_BYTES, "was killed");
    return TURN_ISOLATE;
}

enum inprocess_turn inprocess_give_turn(struct fl_command *command, void (*work)(struct fl_command *command)) {
    struct shared *shared = engine.shared;
    if (engine.worker == 0)
        start_worker(work);
    shared->command = *command;
    in_process.reason[0] = '\0';
    send_byte();
    if (!wait_for_worker(child_limits()))
        return after_death(command);
    *command = shared->command;
    return shared->turn;
}

/* ---- in the server: trust ------------------------------------------------------------------------------------------------- */

void inprocess_map(int (*descriptor)(uint32_t file)) {
    engine.descriptor = descriptor;
    engine.shared = map_or_fail(sizeof *engine.shared, MAP_SHARED, -1, "in-process runs");
    in_process.reason = engine.shared->reason;
    undo_map();
}

const char *inprocess_damage(void) {
    if (!reference_is_there())
        return NULL;
    if (reference_has_other_files())
        return "changes files where no call shows it";
    if (!reference_differs())
        return NULL;
    engine.is_distrusted = true;
    snprintf(in_process.reason, REASON_BYTES, "stores to PM where no hook sees it");
    return engine.shared->runs == 1 ? NULL : in_process.reason;
}

void inprocess_note_isolated(void) { note_reason(in_process.reason); }

void inprocess_distrust(const char *reason) {
    engine.is_distrusted = true;
    snprintf(in_process.reason, REASON_BYTES, "%s", reason);
}

static void keep(uint8_t **kept, uint32_t *kept_bytes, const void *bytes, uint32_t count) {
    *kept = allocate_or_fail(*kept, count);
    memcpy(*kept, bytes, count);
    *kept_bytes = count;
}

void inprocess_remember(bool is_recorded) {
    uint32_t bytes = 0;
    const void *answer = is_recorded ? loads_answer(&bytes) : "";
    keep(&engine.report, &engine.report_bytes, report_bytes(), report_bytes()->total_bytes);
    keep(&engine.loads, &engine.loads_bytes, answer, bytes);
}

static const struct fl_load *load_at(const void *answer, uint32_t at) {
    const struct fl_loads_header *header = answer;
    return at < header->count ? (const struct fl_load *)(header + 1) + at : NULL;
}

uint32_t inprocess_different_load(const struct fl_load **here, const struct fl_load **isolated) {
    uint32_t bytes, at = 0;
    const void *answer = loads_answer(&bytes);
    for (;; at++) {
        *here = load_at(engine.loads, at);
        *isolated = load_at(answer, at);
        if (*here == NULL || *isolated == NULL || memcmp(*here, *isolated, sizeof **here) != 0)
            return at;
    }
}

const char *inprocess_difference(bool is_recorded) {
    engine.shared->engines.in_process++;
    engine.shared->engines.compared++;
    uint32_t bytes = 0;
    const void *answer = is_recorded ? loads_answer(&bytes) : "";
    if (engine.report_bytes != report_bytes()->total_bytes || memcmp(engine.report, report_bytes(), engine.report_bytes) != 0)
        return "have other heap reports";
    return engine.loads_bytes != bytes || memcmp(engine.loads, answer, bytes) != 0 ? "load other units" : NULL;
}

void *inprocess_engines(uint32_t *bytes) {
    char *list = allocate_or_fail(NULL, sizeof(struct fl_engines) + MOST_REASONS * (sizeof(uint64_t) + REASON_BYTES)), *end = list;
    end = (char *)memcpy(end, &engine.shared->engines, sizeof(struct fl_engines)) + sizeof(struct fl_engines);
    for (size_t i = 0; i < MOST_REASONS && engine.reasons[i].count > 0; i++) {
        end = (char *)memcpy(end, &engine.reasons[i].count, sizeof(uint64_t)) + sizeof(uint64_t);
        end = stpcpy(end, engine.reasons[i].text) + 1;
    }
    *bytes = (uint32_t)(end - list);
    return list;
}
