/* SPDX-License-Identifier: Apache-2.0
 *
 * protocol.h - all that engine and runner say to each other. Numbers are little-endian.
 *
 *   commands         what the engine asks the fork server for, on its standard input (runner serve)
 *   the heap report  what the probe finds in the heap of a crash image
 *   loads            which hot units of the crash image a run loads
 *   events           what a recovery does to PM: the recovery trace
 *   deaths           where a life died of a signal
 *
 * The engine reads the same numbers in crashgen/src/replay/protocol.rs; runner/tests/test_protocol.py compares the two. A change of
 * anything here needs another FL_PROTOCOL_VERSION, a change of the heap report another FL_REPORT_VERSION.
 */
#ifndef FAULTLINE_PROTOCOL_H
#define FAULTLINE_PROTOCOL_H

#include <stdint.h>

#define FL_PROTOCOL_VERSION 16u /* in each answer but the heap report */
#define FL_REPORT_VERSION 11u   /* in the heap report */

#define FL_UNIT_BYTES 8u

/* ==== commands =================================================================================================================
 *
 * A command is fl_command and its payload. The engine moves the image by commands that change its files; the server applies them
 * to the files of its heap folder, and runs the probe on it. An answer has its length, u32 bytes, in front.
 */
enum fl_command_kind {
    FL_COMMAND_CREATE = 1, /* change: file, size. payload: its name, relative; the content is zero */
    FL_COMMAND_RESIZE,     /* change: file, size */
    FL_COMMAND_PUNCH,      /* change: file, offset, size */
    FL_COMMAND_REMOVE,     /* change: file */
    FL_COMMAND_RENAME,     /* change: file. payload: the new name */
    FL_COMMAND_WRITE,      /* change: file, offset. payload: the bytes */
    FL_COMMAND_MKDIR,      /* payload: the folder's name */
    FL_COMMAND_RMDIR,      /* payload: the folder's name */
    FL_COMMAND_RUN,        /* run. Answered by the heap report, and by what the flags ask for */
    FL_COMMAND_STAGES, /* answered: for each stage of recovery (stage.h) a u64, how often life 0 entered it so far, and its name
                          with a NUL */
    FL_COMMAND_WATCH, /* watch. payload: fl_watch[], the units that are hot from now on */
    FL_COMMAND_ENGINES, /* answered: fl_engines, and for each reason why runs were not in-process a u64, how many, and a text with
                           a NUL that goes on after `the target ` */
    FL_COMMAND_REPORT, /* answered: a path (FL_RUN_REPORT_APART). No bytes: there is no such file */
    FL_COMMAND_AFFINITY, /* payload: a set of processors, as sched_setaffinity(2) takes it, at most FL_MOST_AFFINITY_BYTES. From
                            now on runs are done there, if that is possible */
    FL_COMMAND_MODULES, /* answered: the paths of the modules that loads and events name, each but the last with a NUL */
    FL_COMMAND_POISON, /* change: file, offset, size. From now on these OS pages can be neither loaded nor stored, and all others
                          can; size 0: all can. Meanwhile runs are done in processes of their own */
    FL_COMMAND_STRAY, /* change: file, offset, a multiple of 8. payload: 8 bytes that are stored there from now on, through a
                         mapping of the target's, as soon as lives 0, 1, 3 and 5 of FIRST, FULL and DEEP have opened the crash
                         image. Where that is not possible, it is tried again when lives 3 and 5 have freed objects. No
                         payload: nothing is stored. Meanwhile runs are done in processes of their own */
};

#define FL_MOST_AFFINITY_BYTES 1024u
#define FL_EXIT_DISTRUST 4u /* the server ended: in-process runs of this target are not to be believed; why, on standard error */

/* Of the image's files. */
struct fl_change {
    uint32_t file; /* number that the engine gives it in FL_COMMAND_CREATE */
    uint32_t zero;
    uint64_t offset, size;
};

struct fl_run {
    uint32_t probe; /* enum fl_probe */
    uint32_t flags; /* enum fl_run_flag */
    uint32_t seed; /* FL_RUN_IN_PROCESS: chooses runs that are compared. FL_RUN_GUARDED: chooses accesses that are looked at */
    uint32_t generation; /* of a recovery trace, from 1: no two generations use an operation index or an object id twice */
    uint64_t zero;
};

/* 40 bytes. */
struct fl_command {
    uint32_t kind; /* enum fl_command_kind */
    uint32_t zero;
    uint64_t payload_bytes;
    union {
        struct fl_change change;
        struct fl_run run;
        uint64_t watch; /* number of the set of hot units; 0: it has none */
    };
};

/* How much of the probe script is run. GENERATION and RECOVERY are of targets with hooks, and of runs with FL_RUN_LOADS. */
enum fl_probe {
    FL_PROBE_FIRST = 1, /* life 0, and the contents in it */
    FL_PROBE_FULL, /* all lives */
    FL_PROBE_GENERATION, /* one life, with a recovery trace: recovery, and what follows it before the next crash */
    FL_PROBE_RECOVERY, /* one life, with a recovery trace: recovery alone */
    FL_PROBE_DEEP, /* all lives, and more: many opens, and a long use */
};
#define FL_DEEP_OPENS 20u
#define FL_DEEP_OPERATIONS 1000u

enum fl_run_flag {
    /* Recorded: answered by the loads, too (fl_loads_header). */
    FL_RUN_LOADS = 1,
    /* With FL_RUN_LOADS: slowly, and accesses to PM that no hook announced are found: all that are made after the first
     * calls of a hook, and of the later ones those that the seed chooses. */
    FL_RUN_GUARDED = 2,
    /* Not in a process of its own, if the target lets that happen. Of a target without hooks only first parts of the
     * probe that are not recorded are done so, and what becomes of misused volatile memory (a free too many, a use after
     * free) may be another thing; the first comparison that differs ends that. The answer is the same. The first such
     * run, one in FL_COMPARE_ONE_IN others, and every run that does not come to its end are done in processes of their
     * own too, and the answers are compared: FL_LOADS_DIFFERS, or in a run that is not recorded the outcome BROKEN. */
    FL_RUN_IN_PROCESS = 4,
    /* For tests of the hooks, with FL_RUN_LOADS: lists every access to hot files that they announce, in order. A load has
     * kind 1, a store kind 2, and 4 more where the instruction announced it, perhaps after a hook did; `unit` is the offset in bytes, `zero` the length.
     * With FL_PROBE_FIRST the runner, whose accesses are not announced, looks at no contents. */
    FL_RUN_EVERY_ACCESS = 8,
    /* Of the heap report only the length is sent. The report lies at the start of the file that FL_COMMAND_REPORT names,
     * until the next command. A report is most of an answer, and a pipe copies it twice. */
    FL_RUN_REPORT_APART = 16,
    /* All of it is run. Else its tail may be that of another recorded in-process run that came to the same state under
     * the same number of the hot units; the answer is the same. */
    FL_RUN_AFRESH = 32,
    /* Alone: answered by where a life dies of a signal or hangs, too (fl_death). */
    FL_RUN_DEATH = 64,
    /* If it is done in-process, it is one of those that are compared. */
    FL_RUN_COMPARED = 128,
};

#define FL_COMPARE_ONE_IN 1000u

/* 24 bytes. Units [first, first + count) of the file: unit u is bytes [8 u, 8 u + 8). A unit is hot when its value may differ
 * between the images that the engine wants to compare. The images of all runs under one number have the same tree and the same
 * bytes in units that are not hot. Ranges may overlap and reach past a file's end. Files are meant by their numbers at the time
 * of each run. */
struct fl_watch {
    uint32_t file;
    uint32_t zero;
    uint64_t first, count;
};

/* 32 bytes. Runs that FL_RUN_IN_PROCESS asked for; without hooks, first parts of the probe that are not recorded. */
struct fl_engines {
    uint64_t in_process;
    uint64_t compared; /* of them: isolated, too */
    uint64_t isolated; /* instead */
    uint64_t remembered; /* of those in-process: the tail was that of another run */
};

/* ==== the heap report ==========================================================================================================
 *
 * It is a function of the crash image and the configuration only, never of the history.
 *
 *     report  := fl_report_header  section*
 *     section := fl_section  payload[payload_bytes, zero padded to 8]
 *
 * A probe runs the heap through one or more lives. Life 0 is the recovery of the crash image; the full probe goes on:
 *
 *     life 0   open, slots, walk, check                                            (the first part; its heap is thrown away)
 *     life 1   open, contents, power fails at once, with every store persisted
 *     life 2   open, slots, walk, check, contents; power fails
 *     life 3   open, slots, walk, check, contents; drain, contents; free what it got, contents; maximal allocation; close
 *     life 4   open, slots, walk, check, contents; close
 *     life 5   open; free all, the workload's objects too; drain; close
 *     life 6   open; power fails
 *
 * Life 0 works on the image itself, lives 1 and 2 on a private copy of it, lives 3 and 4 on another copy, lives 5 and 6 on a
 * third one. Lives 3 and 5 recover the crash image, so that their allocations and frees use what the first recovery built in
 * volatile memory; life 2 recovers what life 1 left. Each life begins as a process of its own does. When open of life 0 answers
 * FL_NOT_A_HEAP, the full probe tries create on the same folder instead (FL_SECTION_RECREATE).
 *
 * Of a workload whose opens are lazy (--lazy), lives 2, 3 and 6 are as above and all others open lazily: the heaps of both kinds must be
 * the same. Lives 0 and 4 settle the heap before their walk. Life 1 uses it before it settles it, as the follow-up of a recovery does (see
 * events); an allocation that fails there is FL_SECTION_DRAIN, a free FL_SECTION_FREE_ALL, a piece FL_SECTION_SETTLE, and where all is well
 * there is FL_SECTION_SETTLE alone. Then come the contents. Life 5 frees and drains without settling it.
 *
 * Where memory ends the process (--ends-when-full), life 5 alone fills the heap, in pieces of one size, and ends in its drain: the
 * section has what it got until then, with FL_OK. Life 3 drains one piece of each size, down to the smallest. There is no life 6, and
 * a twin is not emptied while it is open.
 *
 * The deep probe opens and closes the heap FL_DEEP_OPENS times before life 4 and before life 5, each time in a process of its own. Where
 * one of them fails, or comes to no end, it is reported as the life that it comes before. Life 4 goes on before it closes: with
 * FL_DEEP_OPERATIONS operations in the probe's slots, allocations and frees of a fixed sequence of sizes. FL_SECTION_DRAIN of life 4 is what
 * is allocated at their end.
 *
 * A twin (runner twins) has lives 3 to 6, and a life 1 of its own. Copies of the process that executed the workload make it, each
 * on a copy of the heap: one frees all and drains while the heap is open as it was, one closes it. A message about free all: the
 * first copy came to no end. A close that dies, calls exit or hangs is the end of life 1. There is no free all and no drain where the workload had closed the heap, and no close there and in
 * planned twins.
 */
#define FL_REPORT_MAGIC 0x52484c46u /* "FLHR" */
#define FL_LAST_LIFE 6u

/* 32 bytes. */
struct fl_report_header {
    uint32_t magic;
    uint32_t version;
    uint32_t total_bytes;   /* header and sections */
    uint32_t section_count;
    uint32_t outcome;       /* enum fl_outcome, of the life that ended the probe */
    uint32_t signal;        /* FL_OUTCOME_SIGNAL */
    uint32_t life;          /* last life that began */
    uint32_t stage;         /* enum fl_section_kind it was in */
};

enum fl_outcome {
    FL_OUTCOME_DONE = 0,
    FL_OUTCOME_SIGNAL = 1,     /* the target died of a signal */
    FL_OUTCOME_HUNG = 2,       /* CPU limit, or asleep at the wall limit */
    FL_OUTCOME_EXITED = 3,     /* the target called exit */
    FL_OUTCOME_OVERLOADED = 4, /* wall limit while runnable and below its CPU limit: unknown */
    FL_OUTCOME_BROKEN = 5,     /* the runner itself failed (report full, fork failed): unknown; text in FL_SECTION_MESSAGE */
};

/* 24 bytes. */
struct fl_section {
    uint16_t kind;          /* enum fl_section_kind */
    uint16_t life;
    uint32_t status;        /* enum fl_status of the adapter call */
    uint32_t count;         /* entries in the payload */
    uint32_t payload_bytes; /* without padding */
    uint64_t value;         /* per kind */
};

enum fl_section_kind {
    FL_SECTION_OPEN = 1,   /* status of open. value: enum fl_open_kind, and its flags */
    FL_SECTION_FILES,      /* payload: count NUL-terminated names, position = file number in this report */
    FL_SECTION_SLOTS,      /* payload: fl_slot_entry, non-null slots in order. value: slot count */
    FL_SECTION_WALK,       /* payload: fl_block_entry in order of file and offset. value: sum of the file sizes, bytes */
    FL_SECTION_CHECK,      /* status of check */
    FL_SECTION_CONTENTS,   /* payload: fl_content_entry in order of slot and from. Graph layout: of the objects in
                              FL_SECTION_OBJECTS, slot is the position there as it was after open */
    FL_SECTION_DRAIN,      /* payload: fl_block_entry of each probe allocation, in order made, none below 64 bytes. value:
                              bytes in all. status: FL_OK, or FL_OUT_OF_MEMORY when all slots were used up (bounded). Life 4 of the
                              deep probe: of what its operations left allocated; FL_ERROR also when the content of one was wrong */
    FL_SECTION_FREE_ALL,   /* status of the first free that failed, or FL_OK. value: FL_OPEN_KEPT_OUT, if that holds still.
                              Lives 5 and 1: of every slot that is set; in the graph layout the workload's slots are dropped
                              instead, and then collected. Life 3: of the drain's */
    FL_SECTION_MAXIMAL,    /* value: bytes asked for (largest that drain got); status */
    FL_SECTION_CLOSE,
    FL_SECTION_RECREATE,   /* status of create after FL_NOT_A_HEAP */
    FL_SECTION_MESSAGE,    /* payload: text of message() or of the runner */
    FL_SECTION_OBJECTS,    /* graph layout only, after FL_SECTION_SLOTS. payload: fl_object_entry of the distinct objects that
                              the workload's slots reach, breadth first, in order of slots and of fields, then those in the
                              other slots, which have no fields: null. What lies in no allocated heap block is only a slot's or
                              some field's target. status: FL_OUT_OF_MEMORY when there were more than FL_MAX_OBJECTS (bounded:
                              these are the first ones) */
    FL_SECTION_RETAINED,   /* with FL_CAN_COLLECT and FL_CAN_WALK, after FL_SECTION_WALK, if some allocated heap blocks are not
                              reached by slots and fields: value says how many. payload: fl_block_entry of those among them
                              that the runner's own conservative mark reaches, in the order of the walk */
    FL_SECTION_UNWALKED,   /* after FL_SECTION_WALK, if there are any. payload: fl_unwalked_entry of the files in the heap folder
                              that are not empty and hold no heap block of the walk */
    FL_SECTION_SETTLE,     /* of a lazy open: status of settle, or of the piece before it that failed */
};

enum fl_open_kind {
    FL_OPEN_NOT_TOLD = 0,
    FL_OPEN_AS_CLOSED = 1,
    FL_OPEN_RECOVERED = 2,
    /* Flags, added to one of those. */
    FL_OPEN_NOT_MOVED = 4, /* of a heap that is relocated: nothing of it is mapped where it was to be */
    FL_OPEN_KEPT_OUT = 8,  /* nothing that this life maps lets the word of FL_COMMAND_STRAY be stored */
};

struct fl_slot_entry {
    uint32_t slot, file;
    uint64_t offset;
};
struct fl_block_entry {
    uint32_t file, state;
    uint64_t offset, bytes;
}; /* state: enum fl_block_state */
struct fl_unwalked_entry {
    uint32_t file, is_mapped; /* is_mapped: by this life, at its walk */
    uint64_t bytes;
};
#define FL_MAX_OBJECTS 65536u
struct fl_field_entry {
    uint32_t file, is_set; /* is_set 0: null */
    uint64_t offset;
};
struct fl_object_entry {
    uint32_t file, reserved;
    uint64_t offset;
    struct fl_field_entry fields[2]; /* FL_GRAPH_FIELDS */
};
/* Bytes [from, to) of the object in the slot hold the pattern of this object id. Object 0: `to` is the word at `from`, zero beyond the
 * heap block's end. It is no whole word of any pattern; two runs may share it. Listed are the first FL_BARE_WORDS of each row of such
 * words, and the last one before a run. */
#define FL_BARE_WORDS 4u
struct fl_content_entry {
    uint32_t slot, object;
    uint64_t from, to;
};

/* ---- the pattern that fill writes ---------------------------------------------------------------------------------------
 * Byte b of an object is byte b % 8 of word b / 8 (little-endian), and
 *     word(object, i) = 0xF1ED << 48 | object (24 bits) << 24 | fl_mix(object, i) (24 bits)
 * The top bits make it a non-canonical address, so that no conservative collector takes it for a pointer. The size is not
 * part of it: what reallocate keeps stays valid. Object ids are 1, 2, ...: operation index + 1, unique in a workload.
 */
static inline uint64_t fl_pattern_word(uint32_t object, uint64_t index) {
    uint64_t x = ((uint64_t)object << 40) ^ index;
    x = (x ^ (x >> 31)) * 0x9e3779b97f4a7c15ull;
    x = (x ^ (x >> 29)) * 0xbf58476d1ce4e5b9ull;
    return 0xF1EDull << 48 | (uint64_t)(object & 0xffffffu) << 24 | (x >> 40);
}

/* ==== loads ====================================================================================================================
 *
 * Which hot units of the crash image a run loads: fl_loads_header, fl_load[count], text[text_bytes]. For targets that were
 * compiled with hooks (build variant `hooks`), and for exploration by loads: of images that a run cannot tell apart one is
 * enough.
 *
 * What is listed. FL_LOAD_TARGET lists each hot unit at most once: when the run first depends on what the crash left there, in
 * order of time, before the access is made. That is
 *     - a load of any byte of it by the target (allocator and adapter, through every life), whatever the instruction: plain, wide,
 * bit-field, structure assignment, atomic, failed compare-exchange, copy or string function of the C library, system call that
 * reads
 *       mapped memory or reads behind a descriptor;
 *     - a store that may leave a byte of the unit as it was;
 *     - a load by the runner's conservative mark (FL_SECTION_RETAINED).
 * Copies by the C library, atomics of 8 bytes and more, and the runner are known to store a whole unit: they are no load. Plain
 * stores count as loads: the compiler's hook of one looks the same for a bit-field, and runs before the hook of what is read for
 * it. A unit that the run has stored to as a whole is decided for the lives that see this store: life 2 sees those of life 1,
 * life 4 those of life 3, life 6 those of life 5; no life sees those of another one. FL_LOAD_CONTENTS lists a unit when the
 * runner's own scan of objects (FL_SECTION_CONTENTS) reads it and nothing before did. At most once a unit; the same unit may
 * follow as FL_LOAD_TARGET.
 *
 * What is guaranteed. Let a recorded run on image A have none of the flags in FL_LOADS_UNKNOWN, and an outcome other than
 * OVERLOADED and BROKEN. Let image B have
 * 1. the same tree: paths, kinds, sizes, and the same file number at each path. This is every answer of the file system in one:
 * each
 *      run asks for it, since FL_SECTION_WALK tells the sum of the sizes. So answers are not listed one by one;
 *   2. the same bytes in every unit that is not hot;
 *   3. the same bytes, at the crash, in every unit listed.
 * Then a run on B gives the same heap report and the same list. With 3 only for the units listed as FL_LOAD_TARGET, it gives the
 * same list of those, and the same report but for the payload and count of FL_SECTION_CONTENTS. It holds for targets that are a
 * function of what they load: not of time, random numbers, inode numbers, other files, free space, how much of a file the file
 * system holds (holes), or addresses of volatile memory. (The server turns off address randomisation, and lists folders in order
 * of names.) The engine runs some states twice to find such targets. A run that comes to a place that hooks do not see (a library
 * compiled without hooks, a system call by an instruction, a gather) says so: FL_LOADS_UNSEEN. Code that a target makes while it runs
 * loads without hooks and says nothing: the engine runs some states under the tracer, too, and believes no run of a target in which
 * that saw something else. Guarded runs (FL_RUN_GUARDED) are for the tests of the hooks.
 */
/* NOT_HOOKED, SHARED, UNSEEN and DIFFERS say something of the target, the others of this run alone. */
enum fl_loads_flag {
    FL_LOADS_OVERFLOW = 1, /* there was no room for all of the list */
    FL_LOADS_NOT_HOOKED = 2, /* the adapter was compiled without hooks */
    FL_LOADS_SHARED = 4, /* the target started a thread or a process */
    FL_LOADS_UNSEEN = 8, /* the run came to a place that hooks do not see, or made an access without one; text: what and where */
    FL_LOADS_DIFFERS = 16, /* in-process and isolated run have other answers; text: in what */
    FL_LOADS_MAPPINGS = 32, /* more mappings of the heap at a time than are followed */
    FL_LOADS_DAMAGED = 64, /* the target overwrote the list */
    FL_LOADS_UNKNOWN = 127, /* any of these: the list is not complete */
};

/* 32 bytes. */
struct fl_loads_header {
    uint32_t version;
    uint32_t flags; /* enum fl_loads_flag */
    uint32_t count; /* of fl_load */
    uint32_t text_bytes; /* of the text behind them, without NUL: the first reason for FL_LOADS_UNSEEN or FL_LOADS_DIFFERS */
    uint64_t unseen; /* accesses without a hook that a guarded run found */
    uint64_t seen; /* accesses to PM that a guarded run saw, announced or not */
};

enum fl_load_kind { FL_LOAD_TARGET = 1, FL_LOAD_CONTENTS = 2 };

/* 24 bytes. */
struct fl_load {
    uint8_t kind; /* enum fl_load_kind */
    uint8_t life;
    uint16_t zero;
    uint32_t file;
    uint64_t unit;
    uint32_t site; /* of the target's code: offset in the module's file; 0: unknown, or the runner's own load */
    uint32_t module; /* 0: the adapter's (FL_COMMAND_MODULES) */
};

/* ==== events ===================================================================================================================
 *
 * The recovery trace of a run of FL_PROBE_GENERATION or FL_PROBE_RECOVERY: what recovery does to PM, for crashes that follow a
 * crash. Such a run is one life: open, slots, and in the graph layout objects; then, but for FL_PROBE_RECOVERY, the follow-up. It
 * uses empty slots: an allocation of each of FL_FOLLOW_UP_BYTES, and then a free of each that was made. Of a lazy open a piece of what it
 * left comes after each of them, and all that is left at the end; in the graph layout all of it comes before the objects. Its third
 * answer is fl_events_header, and for each event fl_event and its payload, zero padded to 8.
 *
 * Events are in memory order. A store's payload is what it left in memory. A flag says what is missing: file operations that
 * no event stands for (links, copies from file to file).
 *
 * What the runner fills a new object with is one non-temporal store and a fence (FL_STORED_CONTENT): of an object nothing is
 * promised until the operation returns, and so it is two events. Copies and fills by the C library are one wide store each: the
 * hooks make them with `rep movs` and `rep stos`. A structure that the compiler copies in pieces of its own choice is stores of 8
 * bytes in order of addresses.
 */
/* Sizes that reach the allocation paths that allocators have: the smallest, small runs, several OS pages, large. Bytes. */
#define FL_FOLLOW_UP_BYTES {48, 1000, 9000, 70000}
/* Operation index of open, of generation 0; the operations of the follow-up have the next ones, and object ids one above. */
#define FL_FIRST_INDEX 0xf00000u
#define FL_INDEXES_OF_A_GENERATION 0x1000u

enum fl_events_flag {
    FL_EVENTS_OVERFLOW = 1, /* there was no room for all events */
    FL_EVENTS_FILES = 2, /* the life changed files of the heap in a way that events do not say */
};

/* 16 bytes. */
struct fl_events_header {
    uint32_t version;
    uint32_t flags; /* enum fl_events_flag */
    uint32_t count; /* of events */
    uint32_t zero;
};

enum fl_event_kind {
    FL_EVENT_STORE = 1, /* detail: enum fl_event_store. Payload: the bytes */
    FL_EVENT_FLUSH, /* detail: enum fl_event_flush; offset: of any byte of the line */
    FL_EVENT_FENCE, /* detail: enum fl_event_fence */
    FL_EVENT_BEGIN, /* an operation of trace.h (detail: enum fl_operation) begins. file: slot; site: index; offset: bytes asked
                           for; bytes: 4, the payload is the object id */
    FL_EVENT_RETURN, /* it returned. site: index; file: status */
    FL_EVENT_FILE, /* a file operation returned and had an effect (detail: enum fl_event_effect). Payload: u64, a number of bytes,
                           then the path in the heap folder with a NUL; rename: then the new path with a NUL */
    FL_EVENT_WRITE, /* the kernel wrote to a file of the heap behind a descriptor. Payload: the bytes */
    FL_EVENT_SYNC, /* msync, fsync or fdatasync returned. Payload: u64, how many bytes at offset; all: UINT64_MAX at 0 */
};
enum fl_event_effect {
    FL_DID_CREATE = 1, /* file: number that the life gives it, from FL_FIRST_NEW_FILE */
    FL_DID_TRUNCATE, /* to that many bytes */
    FL_DID_EXTEND, /* to at least that many bytes */
    FL_DID_PUNCH, /* that many bytes at offset are zero */
    FL_DID_UNLINK,
    FL_DID_RENAME,
    FL_DID_MAKE_FOLDER,
    FL_DID_REMOVE_FOLDER,
};
#define FL_FIRST_NEW_FILE 0x80000000u
enum fl_event_store { FL_STORED_PLAIN = 1, FL_STORED_RMW, FL_STORED_CONTENT, FL_STORED_STREAM /* non-temporal */ };
enum fl_event_flush { FL_FLUSHED_CLFLUSH = 1, FL_FLUSHED_CLFLUSHOPT, FL_FLUSHED_CLWB };
enum fl_event_fence { FL_FENCED_SFENCE = 1, FL_FENCED_MFENCE, FL_FENCED_LOCKED };

#define FL_SITE_UNKNOWN 0u
#define FL_SITE_CONTENT 1u /* the runner's fill: application content */

/* 32 bytes. */
struct fl_event {
    uint8_t kind; /* enum fl_event_kind */
    uint8_t detail;
    uint16_t thread; /* of the life and of the processes that it forked, each another number; 0: the first one */
    uint32_t file;
    uint64_t offset;
    uint32_t bytes; /* of the payload, without padding */
    uint32_t site; /* offset in the module's file, or one of FL_SITE_* */
    uint32_t module; /* 0: the adapter's (FL_COMMAND_MODULES) */
    uint32_t zero;
};

/* ==== deaths ===================================================================================================================
 *
 * Where a life died of a signal: fl_death, fl_death_call[call_count], and the modules' paths, each with a NUL.
 */
#define FL_DEATH_CALLS 32u

/* Of which address a SIGSEGV or SIGBUS came. */
enum fl_touched {
    FL_TOUCHED_NOTHING = 0,
    FL_TOUCHED_FILE, /* in a mapping of a file; offset: in the file */
    FL_TOUCHED_BEHIND, /* less than an OS page behind the end of one; offset: from there */
    FL_TOUCHED_BEFORE, /* at most an OS page before the start of one; offset: to there */
    FL_TOUCHED_NEAR_NULL, /* offset: the address */
    FL_TOUCHED_UNMAPPED, /* somewhere else */
    FL_TOUCHED_NO_ADDRESS, /* one that is not canonical, as words of the pattern are */
};

enum fl_hung {
    FL_HUNG_BUSY = 1, /* it used up its limit of processor time */
    FL_HUNG_ASLEEP, /* it waited for what did not come */
};

/* 32 bytes. */
struct fl_death {
    uint32_t version;
    uint32_t signal; /* 0: no life died of one, or where is not known */
    uint32_t touched; /* enum fl_touched */
    uint32_t file; /* UINT32_MAX: recovery made it */
    uint64_t offset;
    uint32_t call_count;
    uint32_t hung; /* enum fl_hung; 0: it died */
};

/* 16 bytes. Of the target, innermost first: where it died or hung, then the call that led there, and so on. */
struct fl_death_call {
    uint64_t offset; /* in the module's file */
    uint32_t module; /* position of its path */
    uint32_t zero;
};

#ifndef __cplusplus
_Static_assert(sizeof(struct fl_command) == 40 && sizeof(struct fl_watch) == 24 && sizeof(struct fl_engines) == 32, "commands");
_Static_assert(sizeof(struct fl_report_header) == 32 && sizeof(struct fl_section) == 24, "heap report");
_Static_assert(sizeof(struct fl_slot_entry) == 16 && sizeof(struct fl_block_entry) == 24, "heap report");
_Static_assert(sizeof(struct fl_object_entry) == 48 && sizeof(struct fl_content_entry) == 24, "heap report");
_Static_assert(sizeof(struct fl_loads_header) == 32 && sizeof(struct fl_load) == 24, "loads");
_Static_assert(sizeof(struct fl_events_header) == 16 && sizeof(struct fl_event) == 32, "events");
_Static_assert(sizeof(struct fl_death) == 32 && sizeof(struct fl_death_call) == 16, "deaths");
#endif

#endif
