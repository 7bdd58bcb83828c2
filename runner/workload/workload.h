/* SPDX-License-Identifier: Apache-2.0
 *
 * workload/workload.h - workload files and their execution.
 */
#ifndef FAULTLINE_WORKLOAD_H
#define FAULTLINE_WORKLOAD_H

#include "base/target.h"
#include "workload/operations.h"

/* Slots that heaps have beyond the workload's; the drain uses them. */
#define FL_PROBE_SLOTS 1024u
#define MAX_SLOTS 65536u
#define MAX_WORKERS 63u
/* Object id of what the drain allocates; no operation has it. */
#define PROBE_OBJECT 0xffffffu

/* ---- pattern.c */
struct fill {
    uint32_t object;
    bool is_persisted; /* flush and fence what was written */
};
void pattern_fill(void *context, void *object, uint64_t from, uint64_t bytes);
/* As fl_content_entry has it. */
typedef void (*pattern_visit)(void *context, uint32_t object, uint64_t from, uint64_t to);
/* Finds the runs of one object's pattern in [object, object + limit), and bare words beside them. With stops_early the search ends with
 * the first word that is neither part of a run nor shared by two. */
void pattern_scan(const uint8_t *object, uint64_t limit, bool stops_early, pattern_visit visit, void *context);

/* ---- workload.c */
struct step {
    enum fl_operation kind;
    uint32_t thread; /* 0: the main thread, N: worker N */
    uint32_t segment; /* steps of one segment, those of one thread in order, run concurrently */
    uint32_t index; /* of the operation in the workload; a case: its number */
    uint32_t slot;
    uint32_t other; /* link: the slot linked to; load: the slot whose object's field is loaded */
    uint32_t field; /* link, unlink, load */
    uint32_t case_number;
    uint32_t session;
    uint64_t bytes; /* allocate, reallocate: asked for; load: of the object; write: how many */
    uint32_t start; /* write: the first byte */
};
struct workload {
    const char *path;
    struct step *steps;
    size_t step_count;
    uint32_t slots, case_count, session_count;
    enum fl_slot_layout layout;
    bool is_lazy; /* heaps are opened so */
    uint64_t growths; /* that the disk has room for once a heap is there; ENDLESS_SPACE: it is never full */
    uint32_t worker_count; /* highest worker number, 0: everything is the main thread's */
    bool has_transactions; /* or writes, which the same capability is for */
};
struct workload *workload_read(const char *path);
const char *layout_name(enum fl_slot_layout layout);
bool find_layout(const char *word, enum fl_slot_layout *layout);

/* ---- markers.c */
/* From now on markers are said to that file, too; the folders of the heaps are there, and stay. */
void markers_begin(const char *path, const char *folder);
void markers_say_begin(const struct step *step);
void markers_say_return(const struct step *step, int status);

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

/* ---- steps.c */
/* What the file alone does not say: an operation that ran out of memory had no effect. */
struct left {
    uint32_t is_case_over; /* graph layout: an operation of the case ran out of memory, those after it are skipped */
    uint64_t live_bytes[]; /* by slot; 0: empty */
};
/* What operations of one thread came to. A reallocation is an allocation and a free. */
struct tally {
    uint64_t allocations, frees, failed, object_bytes; /* failed: for lack of room */
};

struct execution {
    const struct fl_adapter *adapter;
    const struct workload *workload;
    struct fl_heap_options options; /* folder: of the case that is open */
    const char *folder; /* the cases' folders lie here */
    char case_folder[4096];
    fl_heap *heap; /* null: no case is open */
    bool is_settled; /* no piece of a lazy open is left for lazy_step */
    struct left *left; /* by what ran so far; the next session goes on with it */
    struct left *left_at_begin; /* of the transaction that is open; null: none is */
    struct workers *workers; /* of the open heap; null: none was started */
    struct tally *tally; /* null: nobody asks */
    /* Called before each operation, and when one answers an error that ends the execution. May be null. */
    void (*before)(struct execution *execution, const struct step *step);
    void (*refused)(struct execution *execution, const struct step *step, int status);
    /* Called around a piece of what a lazy open left, after the operation. May be null. */
    void (*later)(struct execution *execution, const struct step *step, bool begins);
    /* Called after each operation's return, with the heap open unless it was closed; in a transaction after its end only. May be
     * null. */
    void (*after)(struct execution *execution, const struct step *step);
    void *context;
};
void enter_case(struct execution *execution, uint32_t number);
/* Those of the steps in [from, to) that are the thread's. */
void execute_steps(struct execution *execution, const struct step *from, const struct step *to, uint32_t thread);
size_t left_bytes(const struct workload *workload);

/* ---- workers.c */
/* Starts the workers that have steps in [from, to) and are not there yet, in order of their numbers. */
void workers_start(struct execution *execution, const struct step *from, const struct step *to);
/* Runs [from, to), each thread's steps in order, the threads concurrently; returns when all have returned. */
void workers_run(struct execution *execution, const struct step *from, const struct step *to);
/* Those that run. */
uint32_t workers_count(const struct execution *execution);

/* ---- execute.c */
struct fl_heap_options heap_options(const struct options *options);
void execute_prepare(struct execution *execution, const struct options *options, const struct workload *workload,
                     const struct fl_adapter *adapter);
void execute_session(struct execution *execution, uint32_t session);
void make_case_folders(const struct execution *execution);
int run_workload(const struct options *options);

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

#endif
