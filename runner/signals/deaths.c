/* SPDX-License-Identifier: Apache-2.0
 *
 * Where a life died of a signal or hung, in a run that is asked for it (FL_RUN_DEATH): the calls that led there, and what was
 * touched. The end of a life's processor time is a signal, SIGPROF, and one that sleeps too long is sent the same. Only such
 * runs have the handlers: an unwinder that hangs or dies itself must not decide what a recovery does.
 */
#include "signals/signals.h"
#include <dlfcn.h>
#include <execinfo.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <ucontext.h>
#include <unistd.h>

#define STACK_BYTES (128u << 10) /* a life may die because its own is full */
#define MOST_ADDRESSES 64        /* the handler's own calls among them */
#define LOWEST_MAPPED 65536u     /* vm.mmap_min_addr: what lies below is an offset from null */
#define MOST_LOOKS 32            /* at a life that is busy: where it is by chance is not where it hangs */
#define LOOK_US 1000             /* of processor time, between two */

/* A life's, and the server's. */
struct shared {
    struct fl_death death;
    uintptr_t addresses[MOST_ADDRESSES]; /* innermost first, each in the instruction itself */
    uint32_t address_count;
    uint32_t looks;
};

static struct {
    struct shared *shared;
    uint8_t *stack;
    bool is_wanted;
} deaths;

void deaths_want(bool is_wanted) {
    deaths.is_wanted = is_wanted;
    if (!is_wanted)
        return;
    if (deaths.shared == NULL) {
        void *frame;
        (void)backtrace(&frame, 1); /* its first call loads a library */
        deaths.shared = mmap(NULL, sizeof *deaths.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
        deaths.stack = mmap(NULL, STACK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
        if (deaths.shared == MAP_FAILED || deaths.stack == MAP_FAILED)
            fail(EXIT_INFRASTRUCTURE, "no memory to tell where a life dies");
    }
    *deaths.shared = (struct shared){0};
}

bool deaths_are_wanted(void) { return deaths.is_wanted; }

/* ---- in the life ----------------------------------------------------------------------------------------------------------- */

static void note_touched(struct fl_death *death, const siginfo_t *info) {
    uintptr_t address = (uintptr_t)info->si_addr;
    if (info->si_code == SI_KERNEL) { /* x86 tells no address of one that is not canonical */
        death->touched = FL_TOUCHED_NO_ADDRESS;
        return;
    }
    death->touched = address < LOWEST_MAPPED ? FL_TOUCHED_NEAR_NULL : FL_TOUCHED_UNMAPPED;
    death->offset = address;
    struct vfs_view view;
    for (size_t i = 0; vfs_view(i, &view); i++) {
        bool is_in = view.start <= address && address < view.end;
        bool is_behind = view.end <= address && address - view.end < OS_PAGE_BYTES;
        if (!is_in && !is_behind && !(address < view.start && view.start - address <= OS_PAGE_BYTES))
            continue;
        death->file = view.file;
        death->touched = is_in ? FL_TOUCHED_FILE : is_behind ? FL_TOUCHED_BEHIND : FL_TOUCHED_BEFORE;
        death->offset = is_in ? address - view.start + view.offset : is_behind ? address - view.end : view.start - address;
        if (is_in)
            return;
    }
    if (death->touched == FL_TOUCHED_UNMAPPED)
        death->offset = 0; /* it may be another one each time */
}

/* The instruction that the signal met, and the calls that led there. */
static uint32_t find_calls(const void *context, uintptr_t calls[MOST_ADDRESSES]) {
    void *found[MOST_ADDRESSES];
    uintptr_t instruction = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    uint32_t call_count = 0;
    calls[call_count++] = instruction;
    int count = backtrace(found, MOST_ADDRESSES), at = 0;
    while (at < count && (uintptr_t)found[at] != instruction)
        at++; /* the handler's */
    for (at++; at < count; at++)
        calls[call_count++] = (uintptr_t)found[at] - 1;
    return call_count;
}

void deaths_note(int number, const siginfo_t *info, const void *context) {
    struct shared *shared = deaths.shared;
    if (!deaths.is_wanted || shared->address_count > 0)
        return;
    shared->addresses[0] = (uintptr_t)((const ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    shared->address_count = 1; /* what is known if the unwinder dies */
    shared->death.signal = (uint32_t)number;
    if (number == SIGPROF)
        shared->death.hung = info->si_code > 0 ? FL_HUNG_BUSY : FL_HUNG_ASLEEP;
    else if (info->si_code > 0 && (number == SIGSEGV || number == SIGBUS))
        note_touched(&shared->death, info);
    shared->address_count = find_calls(context, shared->addresses);
}

/* Keeps the calls in which it was at each look, from the outermost one on, and of the next ones the lowest address. */
static void look_again(const void *context) {
    struct shared *shared = deaths.shared;
    uintptr_t calls[MOST_ADDRESSES];
    uint32_t count = find_calls(context, calls), known = shared->address_count, same = 0;
    while (same < count && same < known && calls[count - 1 - same] == shared->addresses[known - 1 - same])
        same++;
    if (same == known)
        return;
    uint32_t kept = same < count ? same + 1 : same;
    uintptr_t lowest = shared->addresses[known - 1 - same];
    if (same < count && calls[count - 1 - same] < lowest)
        lowest = calls[count - 1 - same];
    memmove(shared->addresses, shared->addresses + known - kept, kept * sizeof shared->addresses[0]);
    if (kept > same)
        shared->addresses[0] = lowest;
    shared->address_count = kept;
}

static void end_life(int number) { syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number); }

static void on_death(int number, siginfo_t *info, void *context) {
    deaths_note(number, info, context);
    if (info->si_code <= 0) /* sent; else the instruction runs again, and nothing handles it */
        end_life(number);
}

static void on_time_limit(int number, siginfo_t *info, void *context) {
    struct itimerval next = {.it_value = {0, LOOK_US}};
    if (deaths.shared->looks++ == 0)
        deaths_note(number, info, context);
    else
        look_again(context);
    if (info->si_code > 0 && deaths.shared->looks < MOST_LOOKS) {
        syscall(SYS_setitimer, ITIMER_PROF, &next, NULL);
        return;
    }
    signal(number, SIG_DFL);
    end_life(number);
}

/* What was printed before is of what the target came through. Only a file, which somebody reads afterwards, can forget it. */
static void forget_printed(void) {
    if (ftruncate(STDERR_FILENO, 0) == 0)
        lseek(STDERR_FILENO, 0, SEEK_SET);
}

void deaths_begin_life(void) {
    static const int SIGNALS[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
    struct sigaction action = {.sa_sigaction = on_death, .sa_flags = SA_SIGINFO | SA_ONSTACK | (int)SA_RESETHAND};
    stack_t stack = {.ss_sp = deaths.stack, .ss_size = STACK_BYTES};
    if (!deaths.is_wanted)
        return;
    forget_printed();
    syscall(SYS_sigaltstack, &stack, NULL);
    for (size_t i = 0; i < sizeof SIGNALS / sizeof SIGNALS[0]; i++)
        sigaction(SIGNALS[i], &action, NULL);
    action = (struct sigaction){.sa_sigaction = on_time_limit, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART};
    sigaction(SIGPROF, &action, NULL);
}

/* ---- in the server --------------------------------------------------------------------------------------------------------- */

/* What is nobody's source to look at. */
static bool is_of_the_system(const char *path) {
    static const char *const NAMES[] = {"libc.so", "libm.so", "libstdc++.so", "libgcc_s.so", "ld-linux"};
    const char *slash = strrchr(path, '/'), *name = slash == NULL ? path : slash + 1;
    for (size_t i = 0; i < sizeof NAMES / sizeof NAMES[0]; i++)
        if (strncmp(name, NAMES[i], strlen(NAMES[i])) == 0)
            return true;
    return false;
}

static uint32_t number_of(const char *path, struct death_report *report) {
    uint32_t number = 0;
    for (uint32_t at = 0; at < report->path_bytes; at += (uint32_t)strlen(report->paths + at) + 1, number++)
        if (strcmp(report->paths + at, path) == 0)
            return number;
    size_t bytes = strlen(path) + 1;
    if (report->path_bytes + bytes > sizeof report->paths)
        return UINT32_MAX;
    memcpy(report->paths + report->path_bytes, path, bytes);
    report->path_bytes += (uint32_t)bytes;
    return number;
}

/* The target's own calls, from the innermost one outwards, up to the runner's. */
void deaths_describe(struct death_report *report) {
    Dl_info runner, module;
    *report = (struct death_report){.death = deaths.shared->death};
    report->death.version = FL_PROTOCOL_VERSION;
    bool knows_itself = dladdr((void *)(uintptr_t)deaths_describe, &runner) != 0;
    for (uint32_t i = 0; knows_itself && i < deaths.shared->address_count && report->death.call_count < FL_DEATH_CALLS; i++) {
        uintptr_t address = deaths.shared->addresses[i];
        if (dladdr((void *)address, &module) == 0 || module.dli_fname == NULL || is_of_the_system(module.dli_fname))
            continue;
        bool is_runner = module.dli_fbase == runner.dli_fbase;
        if (is_runner && report->death.call_count > 0)
            break;
        uint32_t number = is_runner ? UINT32_MAX : number_of(module.dli_fname, report);
        if (number != UINT32_MAX)
            report->calls[report->death.call_count++] =
                (struct fl_death_call){.offset = address - (uintptr_t)module.dli_fbase, .module = number};
    }
}

void deaths_print(FILE *answer, const struct death_report *report) {
    for (uint32_t i = 0; i < report->death.call_count; i++) {
        const char *path = report->paths;
        for (uint32_t module = 0; module < report->calls[i].module; module++)
            path += strlen(path) + 1;
        fprintf(answer, "call %llu %s\n", (unsigned long long)report->calls[i].offset, path);
    }
}
