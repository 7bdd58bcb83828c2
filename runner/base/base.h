/* SPDX-License-Identifier: Apache-2.0
 *
 * base/base.h - what every part of the runner uses: the end with an error, memory, streams, the C library's own functions.
 */
#ifndef FAULTLINE_BASE_H
#define FAULTLINE_BASE_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "adapter.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit codes. */
enum { EXIT_BAD_INPUT = 2, EXIT_INFRASTRUCTURE = 3 };

#define OS_PAGE_BYTES 4096u
static inline uint64_t whole_pages(uint64_t bytes) { return (bytes + OS_PAGE_BYTES - 1) / OS_PAGE_BYTES * OS_PAGE_BYTES; }

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

struct options {
    const char *command;
    const char *adapter;
    const char *opened_by; /* the adapter that opens what the other one made; may be null */
    const char *workload;
    const char *plan; /* may be null */
    const char *markers; /* the file that they are written to; may be null */
    const char *folder; /* real path */
    uint64_t session;
    uint64_t heap_bytes, limit_bytes, slots, address_hint;
    enum fl_slot_layout slot_layout;
    uint64_t cpu_limit_ms, wall_limit_ms;
    uint64_t ends_at_ms; /* 0: never */
    uint64_t death_of; /* operation + 1; 0: none */
    uint64_t relocated_by; /* a multiple of it, bytes; 0: not */
    bool is_code_in_place; /* the adapter is loaded where it was in the workload */
    bool is_lazy; /* opens are */
    bool is_full, is_unchecked, is_text, is_verbose, is_tallied, ends_when_full;
};

/* ---- base.c */
/* Where errors go: standard error, wherever it was moved. */
extern int error_fd;
/* Prints "runner: error: ..." as one line and ends the process. */
_Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *allocate_or_fail(void *old, size_t bytes);
/* A mapping of the file from its start, fd -1: of no file, with these flags (MAP_SHARED or MAP_PRIVATE). what: it is for. */
void *map_or_fail(uint64_t bytes, int flags, int fd, const char *what);

/* What a target that did not write it finds in memory from malloc, and on the stack: this byte in isolated and traced lives, zeros in-process.
 * So a recovery that reads such memory differs between engines, or from its twin. */
#define UNWRITTEN 0xa5
/* Fills the stack below the caller, as deep as most targets come. */
void fill_stack(int byte);

/* ---- disk.c */
#define ENDLESS_SPACE UINT64_MAX
/* From now on files may grow, or be made, so many times. */
void disk_has(uint64_t growths);
void disk_counts(bool is_counted); /* what the target does in this thread from now on */
bool disk_is_watched(void); /* growths of this thread count */
/* Asked by a call that takes space: there is none, and errno says so. */
bool disk_refuses(void);

/* ---- streams.c */
/* Targets get /dev/null for the standard streams (is_verbose: standard error for output); errors of the runner move away. */
void hide_streams(bool is_verbose);
int move_away(int fd); /* the same stream under a number that is out of a target's way */

/* ---- interposed.c: for those who have a function of the C library's name */
/* Interposed calls are found by the adapter's dynamic linker. */
#define INTERPOSED __attribute__((visibility("default"), used))
/* What they share is expanded in each of them: CALLER is there the code of the target that calls. */
#define EXPANDED static inline __attribute__((always_inline))
#define CALLER __builtin_return_address(0)
/* The libc's own function of that name; REAL: looked up once. */
void *real_function(const char *name);
#define REAL(name)                                                                                                                 \
    (*({                                                                                                                           \
        static __typeof__(&name) real;                                                                                             \
        if (real == NULL)                                                                                                          \
            real = (__typeof__(real))real_function(#name);                                                                         \
        real;                                                                                                                      \
    }))

/* ---- guard_pages.c: the system calls, for mappings of the target and the tester */
void *guarded_mmap(void *address, size_t bytes, int protection, int flags, int fd, off_t offset);
int guarded_munmap(void *address, size_t bytes);
void *guarded_mremap(void *address, size_t old_bytes, size_t new_bytes, int flags, void *wanted);

#endif
