/* SPDX-License-Identifier: Apache-2.0
 *
 * loads.h - which bytes of a crash image a recovery read: the part of the serve protocol (heap_report.h) for targets that were
 * compiled with hooks (build variant `hooks`). For exploration by loads: images that a run cannot tell apart need no second run. And
 * for any target which runs need no process of their own.
 *
 * Engine to runner:
 *
 *     FL_SERVE_WATCH   payload: fl_watch[]. These units are hot; the set replaces the one before. Not answered. `offset`: its
 *                      number (0: none); the images of all runs under one number have the same tree and the same bytes in units
 *                      that are not hot.
 *                      A unit is hot when its value may differ between the images that the engine wants to compare. Ranges may
 *                      overlap and reach past a file's end. Files are meant by their numbers at the time of each run.
 *     FL_SERVE_RUN     with FL_RUN_LOADS in `offset`: recorded. Answered as ever, and then: u32 bytes, then
 *                      fl_loads_header, fl_load[count], text[text_bytes].
 *                      with FL_RUN_GUARDED too: slowly, and accesses to PM that no hook announced are found: all that are made after the
 *                      first calls of a hook, and of the later ones those that `file`, a seed, chooses.
 *                      with FL_RUN_IN_PROCESS, recorded or not: not in a process of its own, if the target lets that happen. Of a
 *                      target without hooks only first parts of the probe that are not recorded are done so, and what becomes of misused
 *                      volatile memory (a free too many, a use after free) may be another thing; the first comparison that differs ends
 *                      that.
 *                      The answer is the same. The first such run, one in FL_COMPARE_ONE_IN others, chosen by `file`, a seed,
 *                      and every run that does not come to its end are done in processes of their own too, and the
 *                      answers compared: FL_LOADS_DIFFERS, or in a run that is not recorded the outcome BROKEN.
 *                      with FL_RUN_REPORT_APART too: of the heap report only u32 bytes is sent; it lies at the start of the file
 *                      that FL_SERVE_REPORT names, until the next command. A report is most of an answer, and a pipe copies it twice.
 *                      with FL_RUN_AFRESH too: all of it is run. Else its later stages may be those of another recorded in-process
 *                      run that came to the same state, under the same number of the hot units; the answer is the same.
 *                      with FL_RUN_COMPARED too: if it is done in-process, it is one of those that are compared.
 *                      with FL_RUN_TELL_DEATH, which has no other flag beside it: if a life dies of a signal, where. Answered as ever, and
 *                      then: u32 bytes, then fl_death, fl_death_call[call_count], and the modules' paths, each with a NUL.
 *     FL_SERVE_REPORT  answered: u32 bytes, then a path. No bytes: there is no such file.
 *     FL_SERVE_SEAT    payload: a set of processors, as sched_setaffinity(2) takes it, at most FL_MOST_SEAT_BYTES. The runs from now on
 *                      are to be done there, if that is possible. Not answered.
 *     FL_SERVE_ENGINES answered: u32 bytes, then fl_engines, and for each reason why runs were not in-process a u64, how many, and
 *                      text with a NUL that goes on after `the target `.
 *
 * What is listed. Each hot unit at most once as FL_LOAD_TARGET: when the run first depends on what the crash left there, in
 * order of time, before the access is made. That is a load of any byte of it by the target (allocator and adapter, through every
 * life), whatever the instruction: plain, wide, bit-field, structure assignment, atomic, failed compare-exchange, copy or string
 * function of the C library, system call that reads mapped memory or reads behind a descriptor; or a store that may leave a byte
 * of the unit as it was; or a load by the runner's conservative mark (FL_SECTION_RETAINED). Only copies by the C library,
 * atomics of 8 bytes and more, and the runner are known to store a whole unit and are no load; the compiler's hook of a plain
 * store looks the same for a bit-field, and runs before the one of what is read for it, so plain stores count as loads. A unit
 * that the run has stored to as a whole is decided, for the lives that see this store: life 2 sees those of life 1, life 4 those
 * of life 3, life 6 those of life 5; nobody else sees another life's.
 * FL_LOAD_CONTENTS: the runner's own scan of objects (FL_SECTION_CONTENTS) read the unit, and nothing before did. At most once a
 * unit; the same unit may follow as FL_LOAD_TARGET.
 *
 * What is guaranteed. Let a recorded run on image A have none of the flags in FL_LOADS_UNKNOWN, and an outcome other than
 * OVERLOADED and BROKEN. Let image B have
 *   1. the same tree: paths, kinds, sizes, and the same file number at each path. This is every answer of the file system in
 *      one: each run asks for it, since FL_SECTION_WALK tells the sum of the sizes. So answers are not listed one by one;
 *   2. the same bytes in every unit that is not hot;
 *   3. the same bytes, at the crash, in every unit listed.
 * Then a run on B gives the same heap report and the same list. With 3 only for the units listed as FL_LOAD_TARGET, it gives the
 * same list of those, and the same report but for the payload and count of FL_SECTION_CONTENTS.
 * It holds for targets that are a function of what they load: not of time, random numbers, inode numbers, other files, free
 * space, how much of a file the file system holds (holes), or addresses of volatile memory. (The server turns off address
 * randomisation, and lists folders in order of names.) The engine runs some states twice to find such targets. Loads in
 * instructions that the target's sources write themselves (inline assembly) or in libraries compiled without hooks have no hooks:
 * the engine runs some states guarded, and believes no run of a target in which something was found.
 */
#ifndef FAULTLINE_LOADS_H
#define FAULTLINE_LOADS_H

#include <stdint.h>

#define FL_LOADS_VERSION 9u
#define FL_UNIT_BYTES 8u

/* More of enum fl_serve. */
#define FL_SERVE_WATCH 11u
#define FL_SERVE_ENGINES 12u
#define FL_SERVE_REPORT 13u
#define FL_SERVE_SEAT 14u

#define FL_MOST_SEAT_BYTES 1024u

/* In `offset` of FL_SERVE_RUN. */
#define FL_RUN_LOADS 1u
#define FL_RUN_GUARDED 2u
#define FL_RUN_IN_PROCESS 4u
#define FL_RUN_REPORT_APART 16u
#define FL_RUN_AFRESH 32u
#define FL_RUN_TELL_DEATH 64u
#define FL_RUN_COMPARED 128u

#define FL_COMPARE_ONE_IN 1000u

/* 24 bytes. Units [first, first + count) of the file: unit u is bytes [8 u, 8 u + 8). */
struct fl_watch {
    uint32_t file; /* number of FL_SERVE_CREATE */
    uint32_t zero;
    uint64_t first, count;
};

/* NOT_HOOKED, SHARED and UNSEEN say something of the target, the others of this run alone. */
enum fl_loads_flag {
    FL_LOADS_OVERFLOW = 1,   /* there was no room for all of the list */
    FL_LOADS_NOT_HOOKED = 2, /* the adapter was compiled without hooks */
    FL_LOADS_SHARED = 4,     /* the target started a thread or a process */
    FL_LOADS_UNSEEN = 8,     /* an access that no hook announced, or a read that cannot be followed; text: what and where */
    FL_LOADS_DIFFERS = 16,   /* in-process and isolated run have other answers; text: in what */
    FL_LOADS_MAPPINGS = 32,  /* more mappings of the heap at a time than are followed */
    FL_LOADS_DAMAGED = 64,   /* the target overwrote the list */
    FL_LOADS_UNKNOWN = 127,  /* any of these: the list is not complete */
};

/* 32 bytes. */
struct fl_loads_header {
    uint32_t version;
    uint32_t flags;      /* enum fl_loads_flag */
    uint32_t count;      /* of fl_load */
    uint32_t text_bytes; /* of the text behind them, without NUL: the first reason for FL_LOADS_UNSEEN or FL_LOADS_DIFFERS */
    uint64_t unseen;     /* accesses without a hook that a guarded run found */
    uint64_t seen;       /* accesses to PM that a guarded run saw, announced or not */
};

/* 32 bytes. Runs that FL_RUN_IN_PROCESS asked for, without hooks first parts of the probe that are not recorded. */
struct fl_engines {
    uint64_t in_process;
    uint64_t compared; /* of them: isolated, too */
    uint64_t isolated; /* instead */
    uint64_t remembered; /* of those in-process: the later stages were those of another run */
};

enum fl_load_kind { FL_LOAD_TARGET = 1, FL_LOAD_CONTENTS = 2 };

/* 24 bytes. */
struct fl_load {
    uint8_t kind; /* enum fl_load_kind */
    uint8_t life;
    uint16_t zero;
    uint32_t file; /* number of FL_SERVE_CREATE */
    uint64_t unit;
    uint32_t site; /* of the target's code: offset in the adapter's file; 0: unknown (of another module, a stream's),
                      or the runner's own load */
    uint32_t zero_too;
};

#define FL_DEATH_VERSION 1u
#define FL_DEATH_CALLS 32u

/* Of which address a SIGSEGV or SIGBUS came. */
enum fl_touched {
    FL_TOUCHED_NOTHING = 0,
    FL_TOUCHED_FILE,       /* in a mapping of a file; offset: in the file */
    FL_TOUCHED_BEHIND,     /* less than an OS page behind the end of one; offset: from there */
    FL_TOUCHED_BEFORE,     /* at most an OS page before the start of one; offset: to there */
    FL_TOUCHED_NEAR_NULL,  /* offset: the address */
    FL_TOUCHED_UNMAPPED,   /* somewhere else */
    FL_TOUCHED_NO_ADDRESS, /* one that is not canonical, as words of the pattern are */
};

/* 32 bytes. */
struct fl_death {
    uint32_t version;
    uint32_t signal;  /* 0: no life died of one, or where is not known */
    uint32_t touched; /* enum fl_touched */
    uint32_t file;    /* number of FL_SERVE_CREATE; UINT32_MAX: recovery made it */
    uint64_t offset;
    uint32_t call_count;
    uint32_t zero;
};

/* 16 bytes. Of the target, innermost first: where it died, then the call that led there, and so on. */
struct fl_death_call {
    uint64_t offset; /* in the module's file */
    uint32_t module; /* position of its path */
    uint32_t zero;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct fl_death) == 32 && sizeof(struct fl_death_call) == 16, "loads format");
_Static_assert(sizeof(struct fl_watch) == 24 && sizeof(struct fl_loads_header) == 32 && sizeof(struct fl_load) == 24,
               "loads format");
_Static_assert(sizeof(struct fl_engines) == 32, "loads format");
#endif

#endif
