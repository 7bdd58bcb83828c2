/* SPDX-License-Identifier: Apache-2.0
 *
 * Finds accesses to PM that no hook announced. In a guarded run all mappings of the heap are closed (PROT_NONE). An access to
 * them is a SIGSEGV: its OS page is opened, the instruction runs alone (trap flag), and SIGTRAP closes the page again. An access
 * is one that the hooks do not see when its first byte lies in none of the units that the last few hooks announced.
 *
 * The runner opens what it touches itself, and what a system call is to touch, until the next hook. A hook that makes the access
 * itself opens it until the access is made.
 *
 * A fault and a step cost much more than an access, and the loops of a recovery make tens of thousands. So hooks that were
 * called from one place many times in the run are looked at closely only now and then, and ever more rarely; the other times
 * what they announce is opened, too. Loops go to and fro between a few OS pages. These stay open until the next hook that is
 * looked at closely; then nothing is open. An access without a hook that comes behind such a hook, on an OS page that is open,
 * is found another time: each guarded run looks closely at other calls.
 */
#include "loads/loads.h"
#include "signals/signals.h"
#include <dlfcn.h>
#include <signal.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define ANNOUNCED 8u  /* hooks come right before their access; a statement has a few of them */
#define MOST_KEPT 4u  /* ranges open between hooks that are known well */
#define MOST_OPEN 64u /* OS pages that one instruction touches, or ranges that the runner opened */
#define TRAP_FLAG 0x100
#define SITES 8192u         /* of hooks; two that share one begin anew each time */
#define STRICT_CALLS 8u     /* of one of them: the first ones */
#define STRICT_ONE_IN 8u    /* of the next ones */
#define STRICT_SHARE 16u    /* of so many calls that there were: one, where that is less */

struct range {
    uintptr_t start, end;
};

struct hook_site {
    const void *caller;
    uint64_t calls;
};

static struct {
    struct range announced[ANNOUNCED];
    unsigned next;
    struct range open[MOST_OPEN];
    unsigned open_count;
    bool is_stepping, is_started;
    struct hook_site *sites; /* SITES of them; of all lives of a run: the server's memory */
    uint64_t seed;
} guard;

static uintptr_t page_of(uintptr_t address) { return address & ~(uintptr_t)(OS_PAGE_BYTES - 1); }

/* Only the kernel's mprotect: the C library's could be the target's to call. */
static void protect(uintptr_t start, uintptr_t end, int protection) { syscall(SYS_mprotect, start, end - start, protection); }

static bool find_view(uintptr_t address, struct vfs_view *view) {
    for (size_t i = 0; vfs_view(i, view); i++)
        if (view->start <= address && address < view->end)
            return true;
    return false;
}

void guard_map(void) {
    guard.sites = mmap(NULL, SITES * sizeof *guard.sites, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (guard.sites == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for guarded runs");
}

void guard_begin_run(uint64_t seed) {
    guard.seed = seed;
    memset(guard.sites, 0, SITES * sizeof *guard.sites);
}

/* ---- opening and closing ------------------------------------------------------------------------------------------------ */

static bool is_open(uintptr_t address) {
    for (unsigned i = 0; i < guard.open_count; i++)
        if (guard.open[i].start <= address && address < guard.open[i].end)
            return true;
    return false;
}

static void close_down_to(unsigned count) {
    while (guard.open_count > count) {
        const struct range *range = &guard.open[--guard.open_count];
        protect(range->start, range->end, PROT_NONE);
    }
}

static void close_again(void) { close_down_to(0); }

static void open_range(uintptr_t start, uintptr_t end, int protection) {
    if (guard.open_count == MOST_OPEN)
        close_again();
    guard.open[guard.open_count++] = (struct range){start, end};
    protect(start, end, protection);
}

void guard_open(const void *address, uint64_t bytes) {
    struct vfs_view view;
    uintptr_t start = (uintptr_t)address, end = start + bytes;
    for (size_t i = 0; vfs_view(i, &view); i++) {
        uintptr_t from = start > view.start ? start : view.start, to = end < view.end ? end : view.end;
        if (from < to && !(is_open(from) && is_open(to - 1) && to - from <= OS_PAGE_BYTES))
            open_range(page_of(from), page_of(to - 1) + OS_PAGE_BYTES, view.protection);
    }
}

/* What was open before stays so: its number and one, so that it is not 0. */
unsigned guard_lend(const void *address, uint64_t bytes) {
    /* What is closed again must not overlap what stays open. */
    bool is_half_open = is_open((uintptr_t)address) != is_open((uintptr_t)address + bytes - 1);
    if (is_half_open || guard.open_count >= MOST_OPEN - 1)
        close_again();
    unsigned open = guard.open_count;
    guard_open(address, bytes);
    if (guard.open_count > open)
        loads_guarded(true);
    return open + 1;
}

void guard_take_back(unsigned lent) { close_down_to(lent - 1); }

/* caller: of the hook; NULL: the runner. Calls are chosen without a period, which a loop might have, too. */
static bool is_well_known(const void *caller) {
    struct hook_site *site = &guard.sites[XXH3_64bits(&caller, sizeof caller) % SITES];
    if (site->caller != caller)
        *site = (struct hook_site){.caller = caller};
    uint64_t number = site->calls++, call[3] = {(uintptr_t)caller, number, guard.seed};
    uint64_t one_in = number / STRICT_SHARE > STRICT_ONE_IN ? number / STRICT_SHARE : STRICT_ONE_IN;
    bool is_strict = number < STRICT_CALLS || XXH3_64bits(call, sizeof call) % one_in == 0;
    return caller != NULL && !is_strict;
}

void guard_announce(const void *address, uint64_t bytes) {
    uintptr_t start = (uintptr_t)address, end = start + bytes;
    guard.announced[guard.next++ % ANNOUNCED] = (struct range){start & ~7ul, (end + 7) & ~7ul};
    bool is_opened = is_well_known(loads_caller);
    if (guard.open_count > (is_opened ? MOST_KEPT : 0))
        close_again();
    if (is_opened)
        guard_open(address, bytes);
}

/* ---- faults ------------------------------------------------------------------------------------------------------------- */

static bool is_announced(uintptr_t address) {
    for (unsigned i = 0; i < ANNOUNCED; i++)
        if (guard.announced[i].start <= address && address < guard.announced[i].end)
            return true;
    return false;
}

static void report_unseen(uintptr_t instruction, const struct vfs_view *view, uintptr_t address) {
    char text[256];
    Dl_info module = {0};
    const char *name = "?", *slash;
    if (dladdr((void *)instruction, &module) != 0 && module.dli_fname != NULL)
        name = (slash = strrchr(module.dli_fname, '/')) != NULL ? slash + 1 : module.dli_fname;
    snprintf(text, sizeof text, "%s+0x%llx: an access without a hook to offset %llu of a heap file", name,
             (unsigned long long)(instruction - (uintptr_t)module.dli_fbase),
             (unsigned long long)(address - view->start + view->offset));
    loads_unknown(FL_LOADS_UNSEEN, text);
}

static void on_fault(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    uintptr_t address = (uintptr_t)info->si_addr;
    bool is_store = (registers[REG_ERR] & 2) != 0;
    struct vfs_view view;
    bool is_ours = number == SIGSEGV && find_view(address, &view) && !is_open(address) &&
                   (view.protection & (is_store ? PROT_WRITE : PROT_READ)) != 0;
    if (!is_ours) { /* the target's own: it dies of it when the instruction runs again */
        signal(number, SIG_DFL);
        registers[REG_EFL] &= ~TRAP_FLAG;
        return;
    }
    uintptr_t instruction = (uintptr_t)registers[REG_RIP];
    if (!is_flush((const uint8_t *)instruction)) { /* they fault as loads do, and load nothing */
        loads_guarded(is_announced(address));
        if (!is_announced(address))
            report_unseen(instruction, &view, address);
    }
    open_range(page_of(address), page_of(address) + OS_PAGE_BYTES, view.protection);
    guard.is_stepping = true;
    registers[REG_EFL] |= TRAP_FLAG;
}

static void on_step(int number, siginfo_t *info, void *context) {
    greg_t *registers = ((ucontext_t *)context)->uc_mcontext.gregs;
    (void)info;
    registers[REG_EFL] &= ~TRAP_FLAG;
    if (!guard.is_stepping)
        signal(number, SIG_DFL);
    guard.is_stepping = false;
    close_again();
}

/* All mappings will be closed, and what is none any more may be another's. */
void guard_forget(void) { guard.open_count = 0; }

void guard_close(const struct vfs_view *view) {
    if (!guard.is_started) {
        struct sigaction fault = {.sa_sigaction = on_fault, .sa_flags = SA_SIGINFO};
        struct sigaction step = {.sa_sigaction = on_step, .sa_flags = SA_SIGINFO};
        sigaction(SIGSEGV, &fault, NULL);
        sigaction(SIGTRAP, &step, NULL);
        guard.is_started = true;
    }
    protect(view->start, view->end, PROT_NONE);
}
