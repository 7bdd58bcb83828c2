/* SPDX-License-Identifier: Apache-2.0
 *
 * Interposed: calls that leave something behind in this process that no reset reaches: descriptors, state of the C library or
 * the kernel. A life in a process of its own may do all of that. An in-process run ends here and is done in the isolated engine.
 *
 * Exit handlers and the destructors of thread-locals are the exception: power fails before they run, so an in-process run
 * forgets them. A target that calls exit ends the worker, and such a run is done again anyway.
 */
#undef _FORTIFY_SOURCE
#include "calls/calls.h"
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/time.h>

INTERPOSED int close(int fd) { return inprocess_is_running() ? kept_close(fd) : (int)syscall(SYS_close, fd); }

/* Function, what it is declared as, what is passed on, and what the target does with it. */
#define LEAVES_STATE(result, name, declared, passed, reason)                                                                       \
    INTERPOSED result name declared {                                                                                              \
        inprocess_leave(reason);                                                                                                   \
        return REAL(name) passed;                                                                                                  \
    }

#define DUPLICATES "duplicates a descriptor"
#define OPENS "opens a descriptor that is no file's"
#define ENVIRONMENT "changes its environment"
#define SIGNALS "changes what signals do"
#define KEYS "has robust mutexes"
#define LIMITS "changes limits, timers or protections of its process"

LEAVES_STATE(int, dup, (int fd), (fd), DUPLICATES)
LEAVES_STATE(int, dup2, (int fd, int to), (fd, to), DUPLICATES)
LEAVES_STATE(int, dup3, (int fd, int to, int flags), (fd, to, flags), DUPLICATES)
LEAVES_STATE(int, pipe, (int ends[2]), (ends), OPENS)
LEAVES_STATE(int, pipe2, (int ends[2], int flags), (ends, flags), OPENS)
LEAVES_STATE(int, socket, (int domain, int type, int protocol), (domain, type, protocol), OPENS)
LEAVES_STATE(int, eventfd, (unsigned count, int flags), (count, flags), OPENS)
LEAVES_STATE(int, memfd_create, (const char *name, unsigned flags), (name, flags), OPENS)

LEAVES_STATE(int, setenv, (const char *name, const char *value, int replaces), (name, value, replaces), ENVIRONMENT)
LEAVES_STATE(int, unsetenv, (const char *name), (name), ENVIRONMENT)
LEAVES_STATE(int, putenv, (char *text), (text), ENVIRONMENT)
LEAVES_STATE(char *, setlocale, (int category, const char *name), (category, name), ENVIRONMENT)
LEAVES_STATE(int, chdir, (const char *folder), (folder), ENVIRONMENT)
LEAVES_STATE(int, fchdir, (int folder), (folder), ENVIRONMENT)
LEAVES_STATE(void, srand, (unsigned seed), (seed), ENVIRONMENT)
LEAVES_STATE(int, rand, (void), (), ENVIRONMENT)
LEAVES_STATE(void, srandom, (unsigned seed), (seed), ENVIRONMENT)
LEAVES_STATE(long, random, (void), (), ENVIRONMENT)
LEAVES_STATE(char *, strtok, (char *text, const char *ends), (text, ends), ENVIRONMENT)

LEAVES_STATE(int, sigaction, (int number, const struct sigaction *action, struct sigaction *old), (number, action, old), SIGNALS)
LEAVES_STATE(__sighandler_t, signal, (int number, __sighandler_t handler), (number, handler), SIGNALS)
LEAVES_STATE(int, sigprocmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old), SIGNALS)
LEAVES_STATE(int, pthread_sigmask, (int how, const sigset_t *set, sigset_t *old), (how, set, old), SIGNALS)
LEAVES_STATE(int, sigaltstack, (const stack_t *stack, stack_t *old), (stack, old), SIGNALS)

LEAVES_STATE(int, pthread_mutexattr_setrobust, (pthread_mutexattr_t * attributes, int kind), (attributes, kind), KEYS)

LEAVES_STATE(int, mprotect, (void *address, size_t bytes, int protection), (address, bytes, protection), LIMITS)
LEAVES_STATE(int, brk, (void *end), (end), LIMITS)
LEAVES_STATE(void *, sbrk, (intptr_t bytes), (bytes), LIMITS)
LEAVES_STATE(int, mlock, (const void *address, size_t bytes), (address, bytes), LIMITS)
LEAVES_STATE(int, setitimer, (__itimer_which_t which, const struct itimerval *value, struct itimerval *old), (which, value, old),
             LIMITS)
LEAVES_STATE(unsigned, alarm, (unsigned seconds), (seconds), LIMITS)
LEAVES_STATE(int, setrlimit, (__rlimit_resource_t resource, const struct rlimit *limit), (resource, limit), LIMITS)

/* ---- forgotten ------------------------------------------------------------------------------------------------------------ */

int __cxa_atexit(void (*end)(void *), void *argument, void *library);
int __cxa_thread_atexit_impl(void (*end)(void *), void *argument, void *library);

INTERPOSED int __cxa_atexit(void (*end)(void *), void *argument, void *library) {
    return inprocess_is_running() ? 0 : REAL(__cxa_atexit)(end, argument, library);
}

INTERPOSED int __cxa_thread_atexit_impl(void (*end)(void *), void *argument, void *library) {
    return inprocess_is_running() ? 0 : REAL(__cxa_thread_atexit_impl)(end, argument, library);
}
