/* SPDX-License-Identifier: Apache-2.0
 *
 * Flush instructions, and what stands in for those that the processor lacks. An adapter is built for one of clwb, clflushopt and
 * clflush; the tracer knows all three, and so the same trace is made everywhere. Recoveries run on the processor itself: where it
 * knows no clwb, the instruction raises SIGILL, and is made a clflush where it stands. That changes nothing of what a recovery
 * does: what its flushes persist is told by hooks, not by the processor. Every x86-64 processor has clflush.
 */
#include "signals/signals.h"
#include <dlfcn.h>
#include <fcntl.h>
#include <signal.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <ucontext.h>
#include <unistd.h>

#define MOST_PREFIXES (FL_FLUSH_BYTES - 3) /* an instruction has at most 15 bytes: Intel SDM vol. 2, 2.3.11 */
#define NOP 0x90
#define OPERAND_SIZE 0x66 /* the prefix that tells clwb and clflushopt from xsaveopt and clflush */

/* Prefixes that a flush may have; of segments, only FS and GS mean anything. Not LOCK: it makes any flush illegal on any processor,
 * and so one with it, taken for one without, stands for a flush that the processor lacks, in the runner's own tests. */
static bool is_prefix(uint8_t byte) {
    switch (byte) {
#if defined(FL_LOCKED_FLUSHES)
    case 0xf0:
#endif
    case OPERAND_SIZE:
    case 0x67:
    case 0x26:
    case 0x2e:
    case 0x36:
    case 0x3e:
    case 0x64:
    case 0x65: return true;
    }
    return (byte & 0xf0) == 0x40; /* REX */
}

static bool is_dropped(uint8_t prefix) { return prefix == OPERAND_SIZE || prefix == 0xf0; }

/* Where the opcode of the flush begins that stands there; null: it is none. Intel SDM vol. 2, CLFLUSH, CLFLUSHOPT, CLWB. */
static const uint8_t *flush_opcode(const uint8_t *code) {
    const uint8_t *opcode = code;
    bool has_operand_size = false;
    for (; opcode < code + MOST_PREFIXES && is_prefix(*opcode); opcode++)
        has_operand_size |= *opcode == OPERAND_SIZE;
    if (opcode == code + MOST_PREFIXES || opcode[0] != 0x0f || opcode[1] != 0xae || opcode[2] >> 6 == 3)
        return NULL;
    unsigned extension = opcode[2] >> 3 & 7;
    return extension == 7 || (extension == 6 && has_operand_size) ? opcode : NULL;
}

bool is_flush(const uint8_t *code) { return flush_opcode(code) != NULL; }

/* A clflush with the same operand, and a nop before it for each prefix that it has not. */
size_t flush_replacement(const uint8_t *code, uint8_t replacement[FL_FLUSH_BYTES]) {
    const uint8_t *opcode = flush_opcode(code);
    size_t prefixes = opcode == NULL ? 0 : (size_t)(opcode - code), dropped = 0, kept = 0;
    for (size_t i = 0; i < prefixes; i++)
        dropped += is_dropped(code[i]);
    if (dropped == 0)
        return 0;
    memset(replacement, NOP, dropped);
    for (size_t i = 0; i < prefixes; i++)
        if (!is_dropped(code[i]))
            replacement[dropped + kept++] = code[i];
    memcpy(replacement + prefixes, (uint8_t[]){0x0f, 0xae, opcode[2] | 7 << 3}, 3);
    return prefixes + 3;
}

/* Through a file, for code is not to be written, and a server's may not be there. Other threads may run the same instruction. The
 * opcode is changed first, and what they meet before the prefix is gone is a clflushopt, which comes here too if it is illegal; the
 * other way round it would be an xsaveopt, which stores. */
static bool replace(const uint8_t *code) {
    uint8_t there[FL_FLUSH_BYTES] = {0}, bytes[FL_FLUSH_BYTES];
    off_t at = (off_t)(uintptr_t)code;
    int memory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
    if (memory < 0)
        return false;
    size_t count = syscall(SYS_pread64, memory, there, sizeof there, at) > 0 ? flush_replacement(there, bytes) : 0;
    bool is_replaced = count > 0 && syscall(SYS_pwrite64, memory, bytes + count - 1, 1, at + (off_t)count - 1) == 1 &&
                       syscall(SYS_pwrite64, memory, bytes, count - 1, at) == (long)count - 1;
    syscall(SYS_close, memory);
    return is_replaced;
}

/* Another thread was here first: a nop is never illegal. */
static bool is_replaced(const uint8_t *code) { return *code == NOP; }

/* ---- for those that are forked later -------------------------------------------------------------------------------------- */

#define MOST_FOUND 4096u

/* By this process and those forked from it, which share it. */
static struct found {
    uint32_t count;
    const uint8_t *code[MOST_FOUND];
} *found;

static void note(const uint8_t *code) {
    uint32_t at = __atomic_fetch_add(&found->count, 1, __ATOMIC_RELAXED);
    if (at < MOST_FOUND)
        found->code[at] = code;
}

void flushes_take_over(void) {
    static uint32_t taken_over;
    Dl_info object;
    for (; taken_over < found->count && taken_over < MOST_FOUND; taken_over++)
        if (dladdr(found->code[taken_over], &object) != 0) /* not what only a target has loaded */
            replace(found->code[taken_over]);
}

/* ---- the signal ------------------------------------------------------------------------------------------------------------ */

static __typeof__(&signal) set_action; /* not that which targets call (calls/state.c) */

static void on_illegal(int number, siginfo_t *info, void *context) {
    const uint8_t *code = (const uint8_t *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    bool is_sent = info->si_code <= 0;
    if (!is_sent && replace(code))
        return note(code);
    if (!is_sent && is_replaced(code))
        return;
    deaths_note(number, info, context);
    set_action(number, SIG_DFL); /* the target's own: it dies of it when the instruction runs again */
    if (is_sent)
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

void flushes_prepare(void) {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    found = mmap(NULL, sizeof *found, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (found == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for the list of flushes");
    set_action = REAL(signal);
    REAL(sigaction)(SIGILL, &action, NULL);
}
