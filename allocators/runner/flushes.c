/* SPDX-License-Identifier: Apache-2.0
 *
 * Flush instructions, and what stands in for those that the processor lacks. An adapter is built for one of clwb, clflushopt and
 * clflush; the tracer knows all three, and so the same trace is made everywhere. Recoveries run on the processor itself: where it
 * knows no clwb, the instruction raises SIGILL, and is made a clflush where it stands. That changes nothing of what a recovery
 * does: what its flushes persist is told by hooks, not by the processor. Every x86-64 processor has clflush.
 */
#include "runner.h"
#include "vfs.h"
#include <fcntl.h>
#include <signal.h>
#include <string.h>
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

/* Also of what must not be written, as code is. */
static bool write_code(uint8_t *code, const uint8_t *bytes, size_t count) {
    int memory = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/mem", O_RDWR | O_CLOEXEC, 0);
    bool is_written = memory >= 0 && syscall(SYS_pwrite64, memory, bytes, count, (off_t)(uintptr_t)code) == (long)count;
    if (memory >= 0)
        syscall(SYS_close, memory);
    return is_written;
}

/* Other threads may run the same instruction. The opcode is changed first, and what they meet before the prefix is gone is a
 * clflushopt, which comes here too if it is illegal; the other way round it would be an xsaveopt, which stores. */
static bool replace(uint8_t *code) {
    uint8_t bytes[FL_FLUSH_BYTES];
    size_t count = flush_replacement(code, bytes);
    return count > 0 && write_code(code + count - 1, bytes + count - 1, 1) && write_code(code, bytes, count - 1);
}

/* Another thread was here first: a nop is never illegal. */
static bool is_replaced(const uint8_t *code) { return *code == NOP; }

static __typeof__(&signal) set_action; /* not that which targets call (calls_state.c) */

static void on_illegal(int number, siginfo_t *info, void *context) {
    uint8_t *code = (uint8_t *)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
    bool is_sent = info->si_code <= 0;
    if (!is_sent && (replace(code) || is_replaced(code)))
        return;
    set_action(number, SIG_DFL); /* the target's own: it dies of it when the instruction runs again */
    if (is_sent)
        syscall(SYS_tgkill, getpid(), syscall(SYS_gettid), number);
}

void flushes_prepare(void) {
    struct sigaction action = {.sa_sigaction = on_illegal, .sa_flags = SA_SIGINFO};
    set_action = REAL(signal);
    REAL(sigaction)(SIGILL, &action, NULL);
}
