/* SPDX-License-Identifier: Apache-2.0
 *
 * probe/probe.h - the probe of a heap image: its lives, its stages, the heap report.
 */
#ifndef FAULTLINE_PROBE_H
#define FAULTLINE_PROBE_H

#include "base/target.h"
#include "base/tree.h"
#include "protocol.h"
#include "workload/workload.h"

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
/* The same of the drain of a life that memory may end: what it has until then is kept. */
void report_drain_until_end(void);
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

/* ---- report.c: for tail_cache.c */
struct report_position {
    uint32_t bytes, sections; /* before it */
};
struct report_tail {
    struct fl_report_header end; /* of the whole report */
    uint32_t bytes, sections;    /* of the tail */
};
void report_visit_names(void (*visit)(const void *bytes, size_t count));
void report_mark(struct report_position *place);
const void *report_tail(const struct report_position *from, struct report_tail *tail);
void report_add_tail(const struct report_tail *tail, const void *bytes);

/* What one life tells the process that started it. */
struct life_result {
    uint32_t is_done;
    uint32_t open_status;
};
struct life_result *report_result(void);

/* ---- report_text.c */
void report_print(const struct fl_report_header *report);

/* ---- probe.c */
enum life_kind {
    LIFE_FIRST,    /* open, slots, walk, check; of a lazy open: settle, before the walk */
    LIFE_ONLY,     /* open, slots, walk, check, contents: no other life comes */
    LIFE_POWER,    /* open, contents, power fails */
    LIFE_SECOND,   /* open, slots, walk, check, contents; power fails */
    LIFE_USE,      /* open, slots, walk, check, contents; drain, free what it got, maximal; close */
    LIFE_LAST,     /* open, slots, walk, check, contents; of the deep probe: a long use; close */
    LIFE_OPENED,   /* open; close. Nothing of it is reported but what fails */
    LIFE_EMPTIED,    /* open; free all, drain; close */
    LIFE_EMPTIED_LAST,  /* open; power fails */
    LIFE_RECREATE, /* create */
    LIFE_TRACED, /* open, slots, perhaps follow-up; what it does to PM is recorded */
};
struct probe {
    const struct fl_adapter *adapter; /* null: each life loads the one in this file */
    const char *adapter_file;
    struct fl_heap_options options;
    uint32_t slots; /* the workload's; the probe's follow */
    bool is_unchecked; /* the stage check is left out */
    bool is_lazy; /* lives open lazily, but for those that are compared with them */
    bool ends_when_full; /* the target ends the process when memory is out */
    uint64_t relocated_by; /* each life maps the heap a multiple of it elsewhere (lives.c); 0: none does */
    bool is_twin;   /* of a heap without a crash, whose garbage no recovery collected: collect before it is used */
    uint32_t generation; /* of LIFE_TRACED */
    bool has_follow_up;  /* of LIFE_TRACED */
    bool is_deep;        /* FL_PROBE_DEEP */
};
/* Runs in the life's own process. */
void probe_life(const struct probe *probe, enum life_kind kind);
/* LIFE_EMPTIED of a heap that was not closed since it was used: free all; drain. */
void probe_empty_open(const struct probe *probe, fl_heap *heap);

/* ---- long_use.c */
/* What an open heap was used for, at its end. */
struct long_use {
    int status; /* FL_OK, or what ended it */
    char message[256]; /* of the runner, about that; empty: the adapter has it */
    uint32_t count; /* of objects */
    struct long_object {
        uint32_t slot;
        uint64_t bytes; /* asked for */
        struct fl_location location;
    } objects[128];
};
/* FL_DEEP_OPERATIONS allocations and frees in the empty slots from first on. largest: no object is larger, bytes. */
void use_long(const struct probe *probe, fl_heap *heap, uint32_t first, uint64_t largest, struct long_use *use);

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
    uint64_t ends_at_ms; /* no run goes on for long after that, on the monotonic clock; 0: any may */
};
/* Free bytes of the folder's file system; UINT64_MAX when it does not say. */
uint64_t free_bytes(const char *folder);
/* For the process that starts lives: signals and the like; once. */
void child_prepare(const struct limits *limits);
/* Runs body in a process of its own and says how it ended; DONE: body returned. *signal: of SIGNAL. */
enum fl_outcome child_run(void (*body)(void *context), void *context, uint32_t *signal);
const struct limits *child_limits(void);
/* Whether the lives from now on do much more than others: their limits are larger. */
void child_expect_long(bool is_long);
/* The lives of a run begin. */
void child_begin_run(void);
/* The run that was begun has no more time. */
bool child_is_out_of_time(void);
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

/* ---- lives.c */
/* Where a probe runs: the image, and where private copies of it may lie. */
struct probed_heap {
    struct probe probe;
    const char *base, *copy;
    struct tree *tree;
};
/* Runs the probe on the image; the report is then in report_bytes(). The image is not changed. */
void run_probe(const struct probed_heap *probed, enum fl_probe kind);
/* Later lives, numbered, on the copy that lies at probed->copy already. True: each came to its end with an open heap. */
bool run_lives(const struct probed_heap *probed, uint32_t first, uint32_t last);

/* ---- tail_cache.c: in the worker */
void tail_begin_run(bool is_wanted);
void tail_opened(void); /* in life 0: open has returned */
/* Life 0 comes to its end. life: what the runner holds of it. */
void tail_end_first(const void *life, size_t bytes);
/* After life 0: the tail is known from another run. */
bool tail_is_known(void);
/* In lives 1, 3 and 5: what life 0 did is done, the tail begins. */
void tail_go_on(void);
/* After a run, when its stores were taken back. True: its tail was that of another run. */
bool tail_end_run(bool is_done);

#endif
