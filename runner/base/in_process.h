/* SPDX-License-Identifier: Apache-2.0
 *
 * base/in_process.h - whether a life runs in-process (inprocess/inprocess.c), and its way out. Here, at the bottom, because every
 * part that works otherwise then has to ask.
 */
#ifndef FAULTLINE_IN_PROCESS_H
#define FAULTLINE_IN_PROCESS_H

#include "base/base.h"
#include <setjmp.h>

#define REASON_BYTES 128u

extern struct in_process {
    bool is_running;   /* a life runs in-process */
    bool has_hooks;    /* a target with hooks was loaded */
    const char *blind; /* why the hooks may not see all that it does, whatever that is; null: nothing is known */
    sigjmp_buf way_out; /* of the run, while is_running */
    char *reason;      /* REASON_BYTES that worker and server share: why the run left */
} in_process;

static inline bool inprocess_is_running(void) { return in_process.is_running; }

/* A life of a target without hooks runs in-process: what it stores to the image is not seen, so it stores to private mappings. */
static inline bool inprocess_is_plain(void) { return in_process.is_running && !in_process.has_hooks; }

/* Does nothing but while a life runs in-process: that run ends here, and is done in the isolated engine instead. The reason goes on
 * after "the target ". */
void inprocess_leave(const char *reason);

#endif
