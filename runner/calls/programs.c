/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: what starts another program, or a process or thread otherwise than the C library does. What that reads of the heap no engine
 * sees but the isolated one, which needs not. And it sees the files: what the target stored before is put there first.
 */
#include "calls/calls.h"
#include "base/traced.h"
#include "hooks/hooks.h"
#include "loads/loads.h"
#include <pty.h>
#include <sched.h>
#include <spawn.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/syscall.h>

#define BEFORE_PROGRAM(name) before_start(CALLER, name, "another program")
#define BEFORE_PROCESS(name) before_start(CALLER, name, "a process of its own")

static void before_start(const void *caller, const char *name, const char *started) {
    char text[64];
    snprintf(text, sizeof text, "%s starts %s", name, started);
    loads_unseen(caller, text);
    if (is_traced && loads_is_recording())
        loads_unknown(FL_LOADS_UNSEEN, text);
    before_sharing();
    recording_starts_process(true); /* to the life's end: its run does not count */
}

INTERPOSED FILE *popen(const char *command, const char *mode) {
    BEFORE_PROGRAM("popen");
    return REAL(popen)(command, mode);
}

INTERPOSED int system(const char *command) {
    if (command != NULL)
        BEFORE_PROGRAM("system");
    return REAL(system)(command);
}

INTERPOSED int posix_spawn(pid_t *child, const char *path, const posix_spawn_file_actions_t *actions,
                           const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    BEFORE_PROGRAM("posix_spawn");
    return REAL(posix_spawn)(child, path, actions, attributes, arguments, environment);
}

INTERPOSED int posix_spawnp(pid_t *child, const char *file, const posix_spawn_file_actions_t *actions,
                            const posix_spawnattr_t *attributes, char *const arguments[], char *const environment[]) {
    BEFORE_PROGRAM("posix_spawnp");
    return REAL(posix_spawnp)(child, file, actions, attributes, arguments, environment);
}

/* A process of its own from the start: what it does to memory before it is another program is no matter of its parent's. */
INTERPOSED pid_t vfork(void) { return fork(); }
pid_t _Fork(void); /* of newer C libraries */
INTERPOSED pid_t _Fork(void) { return fork(); }

INTERPOSED int daemon(int stays, int keeps_streams) {
    BEFORE_PROCESS("daemon");
    return REAL(daemon)(stays, keeps_streams);
}

INTERPOSED pid_t forkpty(int *terminal, char *name, const struct termios *settings, const struct winsize *size) {
    BEFORE_PROCESS("forkpty");
    return REAL(forkpty)(terminal, name, settings, size);
}

INTERPOSED int clone(int (*body)(void *), void *stack, int flags, void *argument, ...) {
    va_list more;
    va_start(more, argument);
    pid_t *parent = va_arg(more, pid_t *);
    void *thread_locals = va_arg(more, void *);
    pid_t *child = va_arg(more, pid_t *);
    va_end(more);
    BEFORE_PROCESS("clone");
    return REAL(clone)(body, stack, flags, argument, parent, thread_locals, child);
}

/* ---- by number ---------------------------------------------------------------------------------------------------------------- */

void before_call_by_number(long number, const void *caller);
__attribute__((used)) void before_call_by_number(long number, const void *caller) {
    switch (number) {
    case SYS_clone:
    case SYS_clone3: before_start(caller, "clone", "a process of its own"); break;
    case SYS_fork:
    case SYS_vfork: before_start(caller, "fork", "a process of its own"); break;
    default: before_start(caller, "exec", "another program"); break;
    }
}

/* The C library's, and a look before those that start something. A new thread or process comes out of it on a stack that the caller chose:
 * nothing of ours may lie on that. */
/* clang-format off */
#define OR_NUMBER(number) "\tcmpq $" NUMBER_TEXT(number) ", %rdi\n\tje 1f\n"
#define NUMBER_TEXT(number) NUMBER_TEXT_(number)
#define NUMBER_TEXT_(number) #number
INTERPOSED __attribute__((naked)) long syscall(__attribute__((unused)) long number, ...) {
    __asm__(
        OR_NUMBER(__NR_clone) OR_NUMBER(__NR_clone3) OR_NUMBER(__NR_fork) OR_NUMBER(__NR_vfork) OR_NUMBER(__NR_execve)
        OR_NUMBER(__NR_execveat)
        "\tjmp 2f\n"
        "1:\tpushq %rdi\n\tpushq %rsi\n\tpushq %rdx\n\tpushq %rcx\n\tpushq %r8\n\tpushq %r9\n"
        "\tmovq 48(%rsp), %rsi\n" /* where the caller goes on */
        "\tsubq $8, %rsp\n"
        "\tcall before_call_by_number\n"
        "\taddq $8, %rsp\n"
        "\tpopq %r9\n\tpopq %r8\n\tpopq %rcx\n\tpopq %rdx\n\tpopq %rsi\n\tpopq %rdi\n"
        "2:\tmovq %rdi, %rax\n\tmovq %rsi, %rdi\n\tmovq %rdx, %rsi\n\tmovq %rcx, %rdx\n\tmovq %r8, %r10\n\tmovq %r9, %r8\n"
        "\tmovq 8(%rsp), %r9\n"
        "\tsyscall\n"
        "\tcmpq $-4095, %rax\n"
        "\tjae 3f\n"
        "\tret\n"
        "3:\tnegq %rax\n"
        "\tpushq %rax\n"
        "\tcall __errno_location@PLT\n"
        "\tpopq %rcx\n"
        "\tmovl %ecx, (%rax)\n"
        "\tmovq $-1, %rax\n"
        "\tret\n");
}
/* clang-format on */
