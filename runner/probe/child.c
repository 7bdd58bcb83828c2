/* SPDX-License-Identifier: Apache-2.0
 *
 * One life in a process of its own, with limits.
 *
 * CPU time is limited by ITIMER_PROF in the child, whose SIGPROF kills it; wall time by the parent, which waits for SIGCHLD
 * with a time-out. The parent must stay small and touch no image: forking it is most of a recovery's cost.
 */
#include "probe/probe.h"
#include "base/traced.h"
#include "loads/loads.h"
#include "signals/signals.h"
#include <errno.h>
#include <fcntl.h>
#include <dirent.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/statvfs.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#define MOST_ASKED 50 /* how often a late child is looked at whether it has said where it is */
#define ASKED_STEP_NS 10000000
#define TRACED_FIRST 10u /* times the limit: for a traced life before any has ended */
#define TRACED_LEAST 2u  /* and for each later one at least */
#define LONG_TIMES 20u   /* the limit: for a long life */
#define GRACE_MS 2000u   /* for a run after the end of the time that was asked for: most hangs are known as such by then */

static struct {
    struct limits limits;
    sigset_t original;  /* mask that targets run with */
    sigset_t waited;    /* SIGCHLD and the signals that ask to end */
    sigset_t waiting;   /* mask to wait for input with */
    struct sigaction defaults[3];
    volatile sig_atomic_t is_stopped;
    uint64_t longest_ms; /* of processor time, of lives that came to their end */
    bool is_long;        /* the life that comes next */
    uint64_t run_ends_ms; /* 0: when it ends */
} state;

static const int STOPPING[] = {SIGINT, SIGTERM, SIGHUP};

static void on_stop(int number) {
    (void)number;
    state.is_stopped = 1;
}

bool child_stop_requested(void) { return state.is_stopped != 0; }
const void *child_waiting_mask(void) { return &state.waiting; }

uint64_t free_bytes(const char *folder) {
    struct statvfs status;
    if (statvfs(folder, &status) != 0 || status.f_blocks == 0) /* a file system without a limit */
        return UINT64_MAX;
    return (uint64_t)status.f_bavail * status.f_frsize;
}

void child_prepare(const struct limits *limits) {
    state.limits = *limits;
    struct sigaction action = {.sa_handler = on_stop};
    sigemptyset(&state.waited);
    sigaddset(&state.waited, SIGCHLD);
    for (int i = 0; i < 3; i++) {
        sigaction(STOPPING[i], &action, &state.defaults[i]);
        sigaddset(&state.waited, STOPPING[i]);
    }
    sigprocmask(SIG_BLOCK, &state.waited, &state.original);
    state.waiting = state.original;
    sigaddset(&state.waiting, SIGCHLD);
    signal(SIGCHLD, SIG_DFL);
    signal(SIGPIPE, SIG_DFL);
    setrlimit(RLIMIT_CORE, &(struct rlimit){0, 0});
}

/* How many times as long as others the next life may take: a guarded or traced run takes longer for the same work, a long life does more. */
static uint64_t slowdown(void) { return loads_slowdown() * (state.is_long ? LONG_TIMES : 1); }

/* How much longer a traced run takes is not known before one has ended: most take some ten times as long. From then on one that takes as
 * much longer than all others hangs. */
static uint64_t cpu_limit_ms(void) {
    uint64_t most = state.limits.cpu_ms * slowdown(), least = state.limits.cpu_ms * TRACED_LEAST;
    if (!is_traced)
        return most;
    if (state.longest_ms == 0)
        return state.limits.cpu_ms * TRACED_FIRST;
    uint64_t wanted = state.longest_ms * slowdown();
    return wanted > most ? most : wanted > least ? wanted : least;
}
static uint64_t wall_limit_ms(void) { return state.limits.wall_ms * slowdown(); }

static struct timeval in_timeval(uint64_t ms) { return (struct timeval){(time_t)(ms / 1000), (suseconds_t)(ms % 1000 * 1000)}; }

void child_unmask(void) {
    for (int i = 0; i < 3; i++)
        sigaction(STOPPING[i], &state.defaults[i], NULL);
    sigprocmask(SIG_SETMASK, &state.original, NULL);
}

void child_limit_cpu(void) {
    struct itimerval timer = {.it_value = in_timeval(cpu_limit_ms())};
    syscall(SYS_setitimer, ITIMER_PROF, &timer, NULL);
}

static _Noreturn void live(void (*body)(void *context), void *context) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    child_limit_cpu();
    child_unmask();
    deaths_begin_life();
    report_enter_life();
    fill_stack(UNWRITTEN);
    body(context);
    report_result()->is_done = 1;
    syscall(SYS_exit_group, 0); /* past the target's exit handlers: power fails */
    __builtin_unreachable();
}

void child_expect_long(bool is_long) { state.is_long = is_long; }

/* ---- waiting ---------------------------------------------------------------------------------------------------------- */

const struct limits *child_limits(void) { return &state.limits; }

uint64_t child_cpu_ms(pid_t child) {
    clockid_t clock;
    struct timespec used;
    if (clock_getcpuclockid(child, &clock) != 0 || clock_gettime(clock, &used) != 0)
        return 0;
    return (uint64_t)used.tv_sec * 1000 + (uint64_t)used.tv_nsec / 1000000;
}

static uint64_t now_ms(void) {
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

void child_begin_run(void) {
    uint64_t now = now_ms(), ends = state.limits.ends_at_ms;
    state.run_ends_ms = ends == 0 ? 0 : (now > ends ? now : ends) + GRACE_MS;
}

bool child_is_out_of_time(void) { return state.run_ends_ms != 0 && now_ms() >= state.run_ends_ms; }

/* Whether a thread of the process is runnable (or waits for the disk, which is the machine's fault too). */
static bool is_runnable(pid_t child) {
    char path[64];
    snprintf(path, sizeof path, "/proc/%d/task", child);
    DIR *tasks = opendir(path);
    bool found = false;
    for (struct dirent *entry; tasks != NULL && !found && (entry = readdir(tasks)) != NULL;) {
        char text[512] = "";
        snprintf(path, sizeof path, "/proc/%d/task/%.16s/stat", child, entry->d_name);
        int fd = entry->d_name[0] == '.' ? -1 : open(path, O_RDONLY | O_CLOEXEC);
        if (fd < 0)
            continue;
        ssize_t length = read(fd, text, sizeof text - 1);
        close(fd);
        const char *name_end = length > 0 ? strrchr(text, ')') : NULL;
        found = name_end != NULL && name_end[1] == ' ' && (name_end[2] == 'R' || name_end[2] == 'D');
    }
    if (tasks != NULL)
        closedir(tasks);
    return found;
}

/* Waits until the child ended, the wall limit is reached or the run is out of time; false: it still runs. Work takes longer for a guarded or traced run, and
 * sleep does not: a child that has slept through half of the others' limit sleeps for ever. */
static bool wait_for_end(pid_t child, int *status, struct rusage *usage) {
    uint64_t deadline = now_ms() + wall_limit_ms();
    if (state.run_ends_ms != 0 && state.run_ends_ms < deadline)
        deadline = state.run_ends_ms;
    uint64_t used_ms = UINT64_MAX;
    for (;;) {
        /* A fast child has ended by now; asking first would cost every run a system call, so the signal comes first. */
        uint64_t now = now_ms(), left = now < deadline ? deadline - now : 0;
        uint64_t step_ms = (state.limits.wall_ms + 1) / 2, wait_ms = left < step_ms ? left : step_ms;
        struct timespec timeout = {(time_t)(wait_ms / 1000), (long)(wait_ms % 1000 * 1000000)};
        int number = sigtimedwait(&state.waited, NULL, &timeout);
        if (number > 0 && number != SIGCHLD) {
            state.is_stopped = 1;
            return false;
        }
        if (wait4(child, status, WNOHANG, usage) == child)
            return true;
        if (number >= 0 || errno != EAGAIN)
            continue;
        uint64_t used_before_ms = used_ms;
        used_ms = child_cpu_ms(child);
        if (now_ms() >= deadline || (used_ms == used_before_ms && !is_runnable(child)))
            return false;
    }
}

static uint64_t cpu_ms_of(const struct rusage *usage) {
    return (uint64_t)(usage->ru_utime.tv_sec + usage->ru_stime.tv_sec) * 1000 +
           (uint64_t)(usage->ru_utime.tv_usec + usage->ru_stime.tv_usec) / 1000;
}

/* Lets the child say where it is, if that is wanted: it ends itself then. */
static void ask_where(pid_t child) {
    siginfo_t ended = {0};
    if (!deaths_are_wanted() || kill(child, SIGPROF) != 0)
        return;
    for (int i = 0; i < MOST_ASKED && ended.si_pid == 0; i++) {
        nanosleep(&(struct timespec){0, ASKED_STEP_NS}, NULL);
        if (waitid(P_PID, (id_t)child, &ended, WEXITED | WNOHANG | WNOWAIT) != 0)
            return;
    }
}

enum fl_outcome child_end_late(pid_t child) {
    bool was_runnable = is_runnable(child);
    int status;
    struct rusage usage = {0};
    ask_where(child);
    kill(child, SIGKILL);
    while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR)
        continue;
    bool is_hung = !was_runnable || cpu_ms_of(&usage) >= cpu_limit_ms();
    return is_hung ? FL_OUTCOME_HUNG : FL_OUTCOME_OVERLOADED;
}

enum fl_outcome child_run(void (*body)(void *context), void *context, uint32_t *signal) {
    *signal = 0;
    flushes_take_over();
    traced_warm();
    recording_begin_life();
    pid_t child = fork();
    if (child < 0) {
        char text[128];
        snprintf(text, sizeof text, "fork: %s", strerror(errno));
        report_break(text);
        return FL_OUTCOME_BROKEN;
    }
    if (child == 0)
        live(body, context);
    int status;
    struct rusage usage = {0};
    bool has_ended = wait_for_end(child, &status, &usage);
    if (!has_ended && child_is_out_of_time()) {
        kill(child, SIGKILL);
        while (wait4(child, &status, 0, &usage) < 0 && errno == EINTR)
            continue;
        report_break("the time that was asked for was over before it came to its end");
        return FL_OUTCOME_BROKEN;
    }
    if (recording_lost_process()) {
        if (!has_ended)
            child_end_late(child);
        report_break(
            "recovery starts a process by a system call of its own, not by a function: nothing is known of what that stores");
        return FL_OUTCOME_BROKEN;
    }
    if (!has_ended)
        return child_end_late(child);
    if (WIFSIGNALED(status) && WTERMSIG(status) == SIGPROF)
        return FL_OUTCOME_HUNG;
    if (WIFSIGNALED(status)) {
        *signal = (uint32_t)WTERMSIG(status);
        if (*signal == SIGBUS && free_bytes(state.limits.folder) < state.limits.heap_bytes) {
            report_break("a store met no free space in the file system of the heap's copy: nothing is known of the allocator");
            return FL_OUTCOME_BROKEN;
        }
        if (*signal == SIGKILL) { /* nobody does that to itself; the kernel does when memory is short */
            report_break("the life was killed from outside; is there enough memory?");
            return FL_OUTCOME_BROKEN;
        }
        return FL_OUTCOME_SIGNAL;
    }
    uint64_t used_ms = cpu_ms_of(&usage) + 1;
    state.longest_ms = used_ms > state.longest_ms ? used_ms : state.longest_ms;
    return report_result()->is_done ? FL_OUTCOME_DONE : FL_OUTCOME_EXITED;
}
