/* SPDX-License-Identifier: Apache-2.0
 *
 * recording.h - the joint between the runner's fork server and a tracer under which it runs (the traced engine).
 *
 * The server runs each life of a recovery in a process that it forks. The tracer sees every instruction of it, whatever the target was
 * built from, and writes what it does to PM where hooks would write it: the list of loads (protocol.h) and the list of events
 * (protocol.h). Both lie in memory that the server shares with its lives.
 *
 * Client requests:
 *
 *     FL_REQUEST_RECORDING  argument: the address of a struct fl_recording. Its spans, or what is wanted, have changed. Answered
 *                           FL_RECORDING_VERSION by a tracer that serves (--serve=yes), 0 by any other and by none.
 *     FL_REQUEST_PAUSE      argument: 1, the runner accesses PM for itself from here on, and announces what counts; 0: no more.
 *     FL_REQUEST_WARM       the server is about to fork a life: what lives before it had to translate is translated now, once for all.
 *     FL_REQUEST_THREAD     answered: the number in events of the thread that asks.
 *
 * What an access means, by `undecided`, one bit for each unit that varies between the crash images:
 *
 *     load    of undecided units: each is listed, with its instruction, and undecided no more
 *     store   whole units are undecided no more, if the file gets the store; of a unit stored to in part the rest is still the crash's:
 *             it is loaded
 *
 * Where events are wanted, what the kernel writes into a shared span is a store, too. Each store to a shared span, each flush of one, and each fence and locked instruction of the target
 * anywhere is an event, after it was made.
 */
#ifndef FAULTLINE_RECORDING_H
#define FAULTLINE_RECORDING_H

#include "trace.h"
#include <stdint.h>

#define FL_RECORDING_VERSION 3u
/* Beside those of trace.h. */
#define FL_REQUEST_RECORDING (FL_REQUEST_BASE + 3)
#define FL_REQUEST_PAUSE (FL_REQUEST_BASE + 4)
#define FL_REQUEST_WARM (FL_REQUEST_BASE + 5)
#define FL_REQUEST_THREAD (FL_REQUEST_BASE + 6)
#define FL_MOST_SPANS 64u
#define FL_MOST_MODULES 64u
#define FL_MODULE_PATH_BYTES 1024u
#define FL_THREADS_OF_A_PROCESS 256u

/* Addresses that show a part of a file of the heap. */
struct fl_span {
    uint64_t start, end;
    uint64_t offset;     /* of start in the file */
    uint32_t file;       /* its number in loads and events */
    uint32_t is_shared;  /* stores reach the file, as far as the target can see */
    uint64_t first_bit;  /* of the file's unit 0 */
    uint64_t unit_count; /* of the file that may vary; 0: none does, or no loads are wanted */
};

/* Paths of the modules that places in code name; 0: the adapter's. */
struct fl_modules {
    uint32_t count;
    char paths[FL_MOST_MODULES][FL_MODULE_PATH_BYTES];
};

/* A file of the image, or of the private copy that the life works on. */
struct fl_known_file {
    uint64_t device, inode;
    uint32_t file;
    uint32_t zero;
    uint64_t first_bit, unit_count;
};

struct fl_recording {
    uint32_t version;
    uint32_t has_loads, has_events; /* are wanted */
    uint32_t life;
    uint32_t span_count, file_count;
    struct fl_span spans[FL_MOST_SPANS];
    const struct fl_known_file *files;
    uint64_t *undecided;
    struct fl_loads_header *loads; /* and struct fl_load[load_capacity] behind it */
    uint64_t load_capacity;
    struct fl_events_header *events; /* and bytes[event_capacity] behind it, of which *events_used are used */
    uint64_t *events_used;
    uint64_t event_capacity;
    uint64_t *processes; /* that the life forked so far, in shared memory: each has FL_THREADS_OF_A_PROCESS numbers of threads */
    struct fl_modules *modules;
    char *text; /* of the first thing that cannot be followed */
    uint64_t text_bytes;
    /* Addresses of code that lives had to translate, in shared memory. */
    uint64_t *translated, *translated_count;
    uint64_t translated_capacity;
    uint64_t *is_exact; /* 1: a life has installed a handler of SIGSEGV or SIGBUS, so code is translated for that. Shared memory */
    uint64_t is_starting; /* a process, by a function that the runner has a part in: it made the life's stores visible to it */
    uint64_t *has_lost_process; /* 1: the life started one otherwise. What it stores reaches no other process. Shared memory */
    /* Code that runs for the target though it lies in the runner: the hooks that make an access themselves. */
    uint64_t hooks_start, hooks_end;
    uint64_t runner_code; /* an address in the runner itself */
};

#endif
