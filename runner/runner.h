/* SPDX-License-Identifier: Apache-2.0
 *
 * runner.h - the parts of the runner and how they meet.
 *
 *   main.c      options and subcommands
 *   base/       tree.c: listing, copying and removing a heap folder; adapter_load.c: finds and validates an adapter; stages.c: which
 *               stages of its recovery a target entered; guard_pages.c: pages beside mappings that cannot be accessed
 *   files/      vfs.c: what the target's file calls reach: the heap folder itself, or a private view of it
 *   signals/    deaths.c: where a life died of a signal; flushes.c: flush instructions, and what stands in for those that the processor
 *               lacks
 *   undo/       what an in-process life did is taken back: contents and sizes (undo.c), names (names.c), the target's memory (arena.c,
 *               touched.c), mappings and descriptors (kept.c)
 *   loads/      loads.c: which hot units of the image a run read (loads.h); guard.c: accesses that no hook announced; events.c: what a
 *               recovery does to PM, event by event (generation.h)
 *   hooks/      what targets compiled with hooks call around their accesses: the compiler's hooks (hooks.c), and instructions that
 *               their assembler announces (hooks.h; entry.c, instructions.c); calls that leave them (leaving.c)
 *   assembler/  that assembler, a program of its own
 *   calls/      the interposed calls of the C library (vfs.h)
 *   workload/   workload.c: reads a workload file into steps; links.c: which objects slots and fields hold, as the file alone says;
 *               execute.c: executes the steps of one session, with operation markers; workers.c: the threads that run `thread N`
 *               operations; pattern.c: what fill writes into objects, and finding it again; plan.c: which histories of a workload
 *               with threads the twins are of
 *   probe/      probe.c: the probe script, lives and stages; lives.c: the lives of a probe; child.c: one life in a process of its own,
 *               with limits; report.c: the heap report under construction, in memory that outlives the process that writes it;
 *               report_text.c: a heap report for people; blocks.c: the heap blocks of one walk; objects.c: the objects that slots
 *               reach through fields; mark.c: a conservative mark; retained.c: which heap blocks only a conservative mark keeps;
 *               rests.c: the rest of an in-process run, known from another one
 *   inprocess/  inprocess.c: lives without a process of their own (inprocess.h); reference.c: whether the image is what it should be
 *   serve/      serve.c: the fork server; twins.c: the workload without a crash, probed after each operation
 */
#ifndef FAULTLINE_RUNNER_H
#define FAULTLINE_RUNNER_H

#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "adapter.h"
#include "generation.h"
#include "heap_report.h"
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <sys/types.h>

/* Exit codes. */
enum { EXIT_BAD_INPUT = 2, EXIT_INFRASTRUCTURE = 3 };

/* Slots that heaps have beyond the workload's; the drain uses them. */
#define FL_PROBE_SLOTS 1024u
#define MAX_SLOTS 65536u
#define MAX_WORKERS 63u
/* Object id of what the drain allocates; no operation has it. */
#define PROBE_OBJECT 0xffffffu
#define OS_PAGE_BYTES 4096u

/* ---- main.c */
struct options {
    const char *command;
    const char *adapter;
    const char *workload;
    const char *plan; /* may be null */
    const char *folder; /* real path */
    uint64_t session;
    uint64_t heap_bytes, limit_bytes, slots, address_hint;
    enum fl_slot_layout slot_layout;
    uint64_t cpu_limit_ms, wall_limit_ms;
    bool is_full, is_unchecked, is_text, is_verbose;
};

/* Where errors go: standard error, wherever it was moved. */
extern int error_fd;
/* Prints "runner: error: ..." as one line and ends the process. */
_Noreturn void fail(int code, const char *format, ...) __attribute__((format(printf, 2, 3)));
void *allocate_or_fail(void *old, size_t bytes);

/* ---- adapter_load.c */
const struct fl_adapter *adapter_load(const char *path);
const void *adapter_base(const struct fl_adapter *adapter); /* where its file is mapped */
void adapter_describe(const struct fl_adapter *adapter);
const char *status_name(int status);

/* ---- pattern.c */
struct fill {
    uint32_t object;
    bool is_persisted; /* flush and fence what was written */
};
void pattern_fill(void *context, void *object, uint64_t from, uint64_t bytes);
typedef void (*pattern_visit)(void *context, uint32_t object, uint64_t from, uint64_t to);
/* Finds the runs of one object's pattern in [object, object + limit). With stops_early the search ends with the first word that
 * is neither part of a run nor shared by two. */
void pattern_scan(const uint8_t *object, uint64_t limit, bool stops_early, pattern_visit visit, void *context);

/* ---- workload.c */
/* The operations on slots are those from STEP_ALLOCATE on, those of the graph layout only from STEP_LINK on. */
enum step_kind {
    STEP_CASE,
    STEP_CREATE,
    STEP_OPEN,
    STEP_CLOSE,
    STEP_ALLOCATE,
    STEP_FREE,
    STEP_REALLOCATE,
    STEP_LINK,
    STEP_UNLINK,
    STEP_DROP,
    STEP_LOAD,
};
struct step {
    enum step_kind kind;
    uint32_t thread;  /* 0: the main thread, N: worker N */
    uint32_t segment; /* steps of one segment, those of one thread in order, run concurrently */
    uint32_t index; /* of the operation in the workload; a case: its number */
    uint32_t slot;
    uint32_t other; /* link: the slot linked to; load: the slot whose object's field is loaded */
    uint32_t field; /* link, unlink, load */
    uint32_t case_number;
    uint32_t session;
    uint64_t bytes; /* allocate, reallocate: asked for; load: of the object */
};
struct workload {
    const char *path;
    struct step *steps;
    size_t step_count;
    uint32_t slots, case_count, session_count;
    enum fl_slot_layout layout;
    uint32_t worker_count; /* highest worker number, 0: everything is the main thread's */
};
struct workload *workload_read(const char *path);
const char *layout_name(enum fl_slot_layout layout);
bool find_layout(const char *word, enum fl_slot_layout *layout);

/* ---- links.c */
enum { LINKS_TEXT_BYTES = 96 };
struct links *links_new(uint32_t slots);
void links_forget(struct links *links); /* everything: another case */
void links_free(struct links *links);
/* Each for a line of the file that is in order: slots as it needs them, fields below FL_GRAPH_FIELDS. */
void links_allocate(struct links *links, uint32_t slot, uint64_t bytes);
void links_reallocate(struct links *links, uint32_t slot, uint64_t bytes);
void links_free_object(struct links *links, uint32_t slot);
void links_link(struct links *links, uint32_t slot, uint32_t field, uint32_t target_slot);
void links_unlink(struct links *links, uint32_t slot, uint32_t field);
void links_drop(struct links *links, uint32_t slot);
void links_load(struct links *links, uint32_t slot, uint32_t from_slot, uint32_t field);
uint64_t links_bytes(const struct links *links, uint32_t slot); /* of the slot's object */
bool links_is_set(const struct links *links, uint32_t slot, uint32_t field);
/* Whether another slot, or a field of an object that slots reach, holds the slot's object: the text says which and what to do. */
bool links_find_holder(struct links *links, uint32_t slot, char text[LINKS_TEXT_BYTES]);

/* ---- execute.c */
/* What the file alone does not say: an operation that ran out of memory had no effect. */
struct left {
    uint32_t is_case_over;  /* graph layout: an operation of the case ran out of memory, those after it are skipped */
    uint64_t live_bytes[];  /* by slot; 0: empty */
};
struct execution {
    const struct fl_adapter *adapter;
    const struct workload *workload;
    struct fl_heap_options options; /* folder: of the case that is open */
    const char *folder;             /* the cases' folders lie here */
    char case_folder[4096];
    fl_heap *heap;                  /* null: no case is open */
    struct left *left;              /* by what ran so far; the next session goes on with it */
    struct workers *workers;        /* of the open heap; null: none was started */
    /* Called after each operation's return, with the heap open unless it was closed. May be null. */
    void (*after)(struct execution *execution, const struct step *step);
    void *context;
};
struct fl_heap_options heap_options(const struct options *options);
void execute_prepare(struct execution *execution, const struct options *options, const struct workload *workload,
                     const struct fl_adapter *adapter);
void enter_case(struct execution *execution, uint32_t number);
void execute_session(struct execution *execution, uint32_t session);
/* Those of the steps in [from, to) that are the thread's. */
void execute_steps(struct execution *execution, const struct step *from, const struct step *to, uint32_t thread);
void make_case_folders(const struct execution *execution);
size_t left_bytes(const struct workload *workload);
int run_workload(const struct options *options);

/* ---- workers.c */
/* Starts the workers that have steps in [from, to) and are not there yet, in order of their numbers. */
void workers_start(struct execution *execution, const struct step *from, const struct step *to);
/* Runs [from, to), each thread's steps in order, the threads concurrently; returns when all have returned. */
void workers_run(struct execution *execution, const struct step *from, const struct step *to);
/* Before the heap is closed: detaches them and waits for their end. */
void workers_end(struct execution *execution);

/* ---- tree.c */
struct tree_entry {
    char *path; /* relative */
    uint64_t inode;
    uint64_t copy_inode; /* in the last copy that was made */
    uint32_t number;     /* that the engine gave the file; NO_FILE: none */
    mode_t mode;
    uint64_t bytes; /* when it was listed */
};
#define NO_FILE UINT32_MAX
struct tree {
    struct tree_entry *entries; /* parents before their children */
    size_t count;
    uint64_t device;
    uint64_t folder_inode;
};
int tree_list(const char *folder, struct tree *tree); /* 0 or errno */
void tree_free(struct tree *tree);
const struct tree_entry *tree_find(const struct tree *tree, uint64_t device, uint64_t inode);
uint64_t tree_bytes(const struct tree *tree);
/* Copies what tree lists from one folder into another, which is made, holes as holes. Uses no heap memory. 0 or errno. */
int tree_copy(struct tree *tree, const char *from, const char *to);
int tree_remove(const char *folder); /* 0 or errno; a folder that is not there is removed */

/* ---- vfs.c */
enum vfs_mode {
    VFS_PASS,     /* calls reach the files they name */
    VFS_TRACK,    /* the same, and mappings are remembered */
    VFS_ISOLATE,  /* the heap folder is seen, never changed: the first change makes a copy */
    VFS_REDIRECT, /* calls that name the heap folder reach the copy */
    VFS_IN_PROCESS, /* the image itself is used, and what happens to it is taken back later (inprocess.c) */
};
enum vfs_mode vfs_mode(void);
/* The heap folder as the target sees it, where a copy of it may be made, and what is in it. */
void vfs_set(enum vfs_mode mode, const char *base, const char *copy, struct tree *tree);
const char *vfs_folder(void); /* empty before vfs_set */
/* Called with one line when a private view cannot be kept up; must not return. */
void vfs_on_failure(void (*failure)(const char *message));
/* The heap folder's file system has MAP_SYNC; remembered once there is a file to ask with. */
bool vfs_has_sync(void);
/* From now on this process works on a private copy of the heap folder, with its descriptors and mappings. */
void vfs_materialise(void);
/* The byte of the file (a path relative to the heap folder) in this process's memory; null when it is not mapped. *available:
 * how many bytes from there are mapped and inside the file. */
const uint8_t *vfs_address(const char *file, uint64_t offset, uint64_t *available);
/* Before the first of a row of those calls, during which the target changes no file. */
void vfs_look_anew(void);
/* Sum of the sizes of the heap's files as the target sees them. */
uint64_t vfs_heap_bytes(void);

/* ---- report.c */
/* Maps the memory that reports are written to; once. */
void report_map(void);
void report_path(char path[64]); /* of the file that begins with the report, for other processes */
void report_enter_life(void); /* in the process of a life, which leaves room for what the server adds */
void report_begin(void);
void report_life(uint32_t life);
void report_stage(enum fl_section_kind stage);
/* A section is seen by readers only once it is ended. */
void report_section(enum fl_section_kind kind);
void *report_append(uint32_t bytes);
void report_end(int status, uint32_t count, uint64_t value);
void report_empty(enum fl_section_kind kind, int status, uint64_t value);
void report_message(enum fl_section_kind about, const char *text);
uint32_t report_file(const char *name); /* number of the file in this life */
/* For the process that started the life: closes the life's part. */
void report_finish_life(enum fl_outcome outcome, uint32_t signal);
bool report_is_sound(void);
enum fl_outcome report_outcome(void);
const struct fl_report_header *report_bytes(void);
void report_break(const char *message); /* outcome BROKEN, and why */
/* The same, and ends this process. */
_Noreturn void report_broken(const char *message);

/* ---- report.c: for rests.c */
struct report_place {
    uint32_t bytes, sections; /* before it */
};
struct report_rest {
    struct fl_report_header end; /* of the whole report */
    uint32_t bytes, sections;    /* of the rest */
};
void report_tell_names(void (*tell)(const void *bytes, size_t count));
void report_mark(struct report_place *place);
const void *report_rest(const struct report_place *from, struct report_rest *rest);
void report_add_rest(const struct report_rest *rest, const void *bytes);

/* What one life tells the process that started it. */
struct life_result {
    uint32_t is_done;
    uint32_t open_status;
    uint32_t made_copy;
};
struct life_result *report_result(void);

/* ---- report_text.c */
void report_print(const struct fl_report_header *report);

/* ---- probe.c */
enum life_kind {
    LIFE_FIRST,    /* open, slots, walk, check */
    LIFE_POWER,    /* open, contents, power fails */
    LIFE_SECOND,   /* open, slots, walk, check, contents; power fails */
    LIFE_USE,      /* open, slots, walk, check, contents; drain, free what it got, maximal; close */
    LIFE_LAST,     /* open, slots, walk, check, contents; close */
    LIFE_EMPTIED,    /* open; free all, drain; close */
    LIFE_EMPTIED_LAST,  /* open; power fails */
    LIFE_RECREATE, /* create */
    LIFE_TOLD,     /* open, slots, perhaps follow-up, told event by event (generation.h) */
};
struct probe {
    const struct fl_adapter *adapter;
    struct fl_heap_options options;
    uint32_t slots; /* the workload's; the probe's follow */
    bool is_unchecked; /* the stage check is left out */
    bool is_twin;   /* of a heap without a crash, whose garbage no recovery collected: collect before it is used */
    uint32_t generation; /* of LIFE_TOLD */
    bool has_follow_up;  /* of LIFE_TOLD */
};
/* Runs in the life's own process. */
void probe_life(const struct probe *probe, enum life_kind kind);
/* LIFE_EMPTIED of a heap that was not closed since it was used: free all; drain. */
void probe_empty_open(const struct probe *probe, fl_heap *heap);

/* ---- blocks.c */
struct blocks {
    struct fl_block *list; /* in the order of the walk */
    size_t count, capacity;
};
/* What walk answers; there are no blocks when it fails. */
int blocks_learn(struct blocks *blocks, const struct fl_adapter *adapter, fl_heap *heap);
/* The heap block that holds the location; null: none. One that a broken walk order hides is only not found. */
const struct fl_block *blocks_find(const struct blocks *blocks, const struct fl_location *object);
const struct fl_block *blocks_find_allocated(const struct blocks *blocks, const struct fl_location *object);

/* ---- objects.c */
struct object {
    struct fl_location location, fields[FL_GRAPH_FIELDS];
};
struct objects {
    struct object *list;
    uint32_t count;
    bool is_bounded; /* there are more than FL_MAX_OBJECTS */
};
/* Those that the first slots reach, then those in the others, whose fields are null. What read_slot or read_field answers. */
int objects_reach(struct objects *objects, const struct blocks *blocks, const struct fl_adapter *adapter, fl_heap *heap,
                  uint32_t graph_slots, uint32_t slots);

/* ---- mark.c */
#define MARK_NOTHING SIZE_MAX
struct marking {
    size_t block_count;
    /* The block's content from its first aligned word on, and how many bytes that is; valid until the next call. */
    const uint8_t *(*content)(void *context, size_t block, uint64_t *bytes);
    /* The block that the collector takes the word for a pointer to; MARK_NOTHING: none. */
    size_t (*target)(void *context, uint64_t word);
    void *context;
};
/* is_marked, by block: those to start from; then all that they reach too. */
void mark_conservatively(const struct marking *marking, uint8_t *is_marked);

/* ---- retained.c */
struct retained {
    const struct fl_adapter *adapter;
    fl_heap *heap;
    const struct blocks *blocks;
    const struct objects *objects; /* none but in the graph layout */
    uint8_t *is_reached;           /* by heap block, allocated ones only: slots and fields reach it */
    uint8_t *is_marked;            /* the conservative mark does; only if some were not reached */
    uint32_t left_over_count;      /* allocated heap blocks that were not reached */
    uint8_t *content;              /* of the heap block that is being looked at */
};
/* What read_slot answers. slots: of the heap, the probe's too. */
int retained_find(struct retained *retained, uint32_t slots);
void retained_free(struct retained *retained);

/* ---- child.c */
struct limits {
    uint64_t cpu_ms, wall_ms;
    const char *folder;  /* where lives write their copies of the heap */
    uint64_t heap_bytes; /* that a copy may grow to */
};
/* Free bytes of the folder's file system; UINT64_MAX when it does not say. */
uint64_t free_bytes(const char *folder);
/* For the process that starts lives: signals and the like; once. */
void child_prepare(const struct limits *limits);
/* Runs body in a process of its own and says how it ended; DONE: body returned. *signal: of SIGNAL. */
enum fl_outcome child_run(void (*body)(void *context), void *context, uint32_t *signal);
const struct limits *child_limits(void);
uint64_t child_cpu_ms(pid_t child); /* CPU time that it has used so far */
/* Ends a child that reached the wall limit and says what that means: HUNG or OVERLOADED. */
enum fl_outcome child_end_late(pid_t child);
/* In a child that runs a target: signals as this program got them. */
void child_unmask(void);
/* SIGPROF ends this process when it has used the processor for as long as a life may. */
void child_limit_cpu(void);
/* Set when a signal asked this process to end. */
bool child_stop_requested(void);
/* The signal mask to wait with: that asks to end are let through. */
const void *child_waiting_mask(void);

/* Targets get /dev/null for the standard streams (is_verbose: standard error for output); errors of the runner move away. */
void hide_streams(bool is_verbose);
int move_away(int fd); /* the same stream under a number that is out of a target's way */

/* ---- lives.c */
/* Where a probe runs: the image, and where private copies of it may lie. */
struct place {
    struct probe probe;
    const char *base, *copy;
    struct tree *tree;
};
/* Runs the probe on the image; the report is then in report_bytes(). The image is not changed. kind: or one of generation.h. */
void run_probe(const struct place *place, enum fl_probe kind);
/* Later lives, numbered, on the copy that lies at place->copy already. True: each came to its end with an open heap. */
bool run_lives(const struct place *place, uint32_t first, uint32_t last);

/* ---- loads.c: for the server */
struct fl_watch;
void loads_map(void); /* once */
/* The set of hot units; bytes_of: size of a file; false: they span too much. */
bool loads_watch(uint64_t number, const struct fl_watch *watches, size_t count, uint64_t (*bytes_of)(uint32_t file));
void loads_begin(uint64_t flags, uint64_t seed); /* of FL_SERVE_RUN; seed: of guarded runs */
/* One more of these, for tests of the hooks: with FL_RUN_LOADS, lists every access to hot files that they announce, in order.
 * kind 1: load, 2: store; `unit` is its offset in bytes, `zero` its length. */
#define RUN_EVERY_ACCESS 8u
/* A run of these flags may take so many times as long. */
uint64_t loads_slowdown(void);
void loads_life(uint32_t life);
void loads_forget_words(void); /* of the last in-process run: another one changed bits */
/* The next life sees the crash's bytes again: on a new copy. */
void loads_copy_is_fresh(void);
/* What follows the report of a recorded run. */
const void *loads_answer(uint32_t *bytes);

/* ---- loads.c: for rests.c */
uint64_t loads_watch_number(void);
bool loads_are_known(void); /* all that were made */
/* Life 0 has opened the heap. */
void loads_begin_rest(void);
/* It has come to its end: what is listed from here on is of the rest of the run. False: it decided units since then otherwise than by
 * reading them, and there is no rest. */
bool loads_go_on_with_rest(void);
/* From here on every hot unit is listed when it is read, also if it was before or holds what the run stored; until the next copy. */
void loads_list_rest(void);
bool loads_is_hot(uint32_t file, uint64_t unit);
const struct fl_load *loads_rest(uint32_t *count); /* what was listed from there on */
void loads_add_rest(const struct fl_load *rest, uint32_t count);
void loads_end_rest(void); /* from there on the list has only what it would have had; also in the server */

/* ---- loads.c: in a life. Accesses are told before they are made. */
#define FL_WIDEST_ACCESS 64u /* bytes of one instruction */
/* No access of at most FL_WIDEST_ACCESS bytes that begins outside [start, start + bytes) touches PM. Targets with hooks ask it before
 * they call one (runner/assembler). */
extern struct fl_hook_near {
    uintptr_t start;
    uint64_t bytes;
} fl_hook_near __attribute__((visibility("default")));
static inline bool loads_are_near(const volatile void *address) {
    return (uintptr_t)address - fl_hook_near.start < fl_hook_near.bytes;
}
/* The mapping of PM that was last looked at, of in-process runs: what hooks ask before they call. Most accesses are settled. */
struct loads_window {
    uintptr_t start;
    uint64_t bytes; /* 0: ask loads.c */
    const uint64_t *undecided; /* one bit a unit from start on */
    const uint8_t *is_noted; /* one byte a line from start on: the undo log has it */
};
extern struct loads_window loads_window;
extern uint32_t loads_accesses; /* to PM in this run */
/* More in an in-process run is taken for a hang, which the isolated engine is asked about: some hundredths of a second of nothing
 * else, where most runs make some thousands. */
#define LOADS_MOST_ACCESSES 10000000u
/* Within one unit, and nothing of it is the crash's; bytes: constant. */
static inline bool loads_is_settled(const volatile void *address, uint64_t bytes) {
    uint64_t at = (uintptr_t)address - loads_window.start;
    return at < loads_window.bytes && at % 8 + bytes <= 8 && (loads_window.undecided[at / 512] >> at / 8 % 64 & 1) == 0 &&
           loads_accesses++ < LOADS_MOST_ACCESSES;
}
/* The same, and a store to it can be taken back. */
static inline bool loads_is_stored_already(const volatile void *address, uint64_t bytes) {
    return loads_is_settled(address, bytes) && loads_window.is_noted[((uintptr_t)address - loads_window.start) / 64] != 0;
}
void loads_is_hooked(void); /* a target with hooks was loaded */
bool loads_has_hooks(void);
bool loads_is_recording(void);
/* Return address of the hook that is about to tell an access; NULL: the access is not the target's. */
extern const void *loads_caller;
void loads_read(const void *address, uint64_t bytes); /* by the target */
void loads_stored(const void *address, uint64_t bytes); /* all of it or some, maybe after a read */
void loads_written(const void *address, uint64_t bytes); /* certainly, all of it */
void loads_looked_at(const void *address, uint64_t bytes); /* by the runner, and the report depends on it */
void loads_scanned(const void *address, uint64_t bytes); /* by the runner, for contents only */
/* How many bytes from there on, of these, loads_scanned has nothing to note of, until the target runs again. */
uint64_t loads_settled_bytes(const void *address, uint64_t bytes);
void loads_read_file(int fd, uint64_t offset, uint64_t bytes);
void loads_updated(const void *address, uint64_t bytes); /* by the target, read and maybe stored to at once */
/* The runner or the kernel is about to access this; for guarded runs. */
void loads_open(const void *address, uint64_t bytes);
void loads_filled(const void *address, uint64_t bytes); /* the same, and the kernel stores */
extern bool loads_is_guarded; /* this run */
/* Calls by a library with hooks that leave it are looked at from now on. */
void leaving_watch(void *library);
/* The target comes to a place that hooks do not see; caller: behind it. */
void loads_unseen(const void *caller, const char *what);
void loads_unknown(uint32_t flag, const char *text); /* enum fl_loads_flag; text: for UNSEEN and DIFFERS */
void loads_follow(void); /* mappings of the heap changed */
void loads_guarded(bool is_announced); /* guard.c saw an access */

/* ---- flushes.c */
/* From here on a flush instruction that the processor lacks is a clflush. */
void flushes_prepare(void);
/* Before a fork: what forked processes replaced is replaced here, so that none of those to come has to. */
void flushes_take_over(void);
/* Whether a clflush, clflushopt or clwb stands there. */
bool is_flush(const uint8_t *code);
/* What is to stand there instead of a clwb or clflushopt, up to its operand; its length. 0: there is neither. */
#define FL_FLUSH_BYTES 18u
size_t flush_replacement(const uint8_t *code, uint8_t replacement[FL_FLUSH_BYTES]);

/* ---- events.c: for the server */
void events_map(const void *adapter); /* once; adapter: any address in its file as it is mapped */
void events_begin(bool is_asked); /* before a run */
const void *events_answer(uint32_t *bytes);

/* ---- events.c: in a life */
void events_start(uint32_t generation); /* from here on the life is told */
extern bool events_is_on; /* in a life that is told */
static inline bool events_are_told(void) { return events_is_on; }
void events_follow(void); /* mappings of the heap changed */
void events_files_changed(void); /* in a way that cannot be told */
/* A file operation returned and had an effect. Paths: in the heap folder. */
void events_file(enum fl_event_effect effect, uint64_t offset, uint64_t bytes, const char *path, const char *new_path);
void events_file_made(uint64_t inode, const char *path);
/* caller: where the code goes on that does it. will_store: before it is done; the others: after. */
uint32_t events_site(const void *caller); /* offset in the adapter's file, or FL_SITE_UNKNOWN */
void events_will_store(const void *address, uint64_t bytes, bool is_in_pieces, const void *caller);
void events_stored(const void *address, uint64_t bytes, const void *caller);
void events_will_stream(const void *address, uint64_t bytes, const void *caller);
void events_will_exchange(const void *address, uint64_t bytes, bool is_stored, const void *caller); /* locked */
void events_exchanged(const void *address, uint64_t bytes, bool is_stored, const void *caller); /* locked */
void events_filled(const void *address, uint64_t bytes); /* by fill, and persisted */
void events_flushed(enum fl_event_flush kind, const void *address, const void *caller);
void events_fenced(enum fl_event_fence kind, const void *caller);
/* kind: enum fl_operation of trace.h. */
uint32_t events_operation_begins(uint8_t kind, uint32_t slot, uint64_t bytes); /* its index */
void events_operation_returned(uint8_t kind, uint32_t index, int status);

/* ---- stages.c */
struct fl_stage;
/* Takes note of a library's stages; list: its faultline_stages, null when it names none. */
void stages_find(struct fl_stage *const *(*list)(size_t *count));
/* From now on this process and its children count the stages they enter; stages_stop: this one no more. */
void stages_map(void);
void stages_stop(void);
void stages_pause(bool is_paused); /* the same until it is false again */
/* What FL_SERVE_STAGES answers, to be freed. */
void *stages_list(uint32_t *bytes);

/* ---- plan.c */
struct planned_twin {
    uint32_t number; /* in the plan, from 0 */
    uint32_t case_number;
    const struct step **steps;
    uint32_t count, returned_count; /* the first ones had returned with an effect when they were traced */
    uint32_t first_session, last_session;
};
/* Calls run for each twin of the plan, in order. */
void plan_read(const char *path, const struct workload *workload, void (*run)(const struct planned_twin *twin));

/* ---- serve.c, twins.c */
int run_serve(const struct options *options);
int run_probe_command(const struct options *options);
int run_twins(const struct options *options);

#endif
