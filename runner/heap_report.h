/* SPDX-License-Identifier: Apache-2.0
 *
 * heap_report.h - what the runner tells of a recovered heap, and how the engine asks for it.
 *
 * The report is a function of the crash image and the configuration only, never of the history. Little-endian.
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
 * Life 0 works on the image itself, lives 1 and 2 on one private copy of it, lives 3 and 4 on another, made afresh, lives 5 and 6
 * on a third one: lives 3 and 5 recover the crash image, so that their allocations and frees use what the first recovery built in
 * volatile memory, and life 2 what life 1 left. Each life begins as a process of its own does (in-process runs: loads.h).
 * When open of life 0 answers FL_NOT_A_HEAP, the full probe tries create on the same folder instead (FL_SECTION_RECREATE).
 *
 * A twin (runner twins) has lives 3 to 6, and life 1 of its own, which is told by copies of the process that executed the workload, each
 * on a copy of the heap: free all, drain, while the heap is open as it was; close. A message about free all: the first copy came
 * to no end. There is no free all and no drain where the workload had closed the heap; and no close there and in planned twins.
 */
#ifndef FAULTLINE_HEAP_REPORT_H
#define FAULTLINE_HEAP_REPORT_H

#include <stdint.h>

#define FL_REPORT_MAGIC 0x52484c46u /* "FLHR" */
#define FL_REPORT_VERSION 6u
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
    FL_SECTION_OPEN = 1,   /* status of open. value: enum fl_open_kind */
    FL_SECTION_FILES,      /* payload: count NUL-terminated names, position = file number in this report */
    FL_SECTION_SLOTS,      /* payload: fl_slot_entry, non-null slots in order. value: slot count */
    FL_SECTION_WALK,       /* payload: fl_block_entry in order of file and offset. value: sum of the file sizes, bytes */
    FL_SECTION_CHECK,      /* status of check */
    FL_SECTION_CONTENTS,   /* payload: fl_content_entry in order of slot and from. Graph layout: of the objects in
                              FL_SECTION_OBJECTS, slot is the position there as it was after open */
    FL_SECTION_DRAIN,      /* payload: fl_block_entry of each probe allocation, in order made, none below 64 bytes. value:
                              bytes in all. status: FL_OK, or FL_OUT_OF_MEMORY when all slots were used up (bounded) */
    FL_SECTION_FREE_ALL,   /* status of the first free that failed, or FL_OK. Lives 5 and 1: of every slot that is set; in the
                              graph layout the workload's slots are dropped instead, and then collected. Life 3: of the drain's */
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
};

enum fl_open_kind {
    FL_OPEN_NOT_TOLD = 0,
    FL_OPEN_AS_CLOSED = 1,
    FL_OPEN_RECOVERED = 2,
};

struct fl_slot_entry {
    uint32_t slot, file;
    uint64_t offset;
};
struct fl_block_entry {
    uint32_t file, state;
    uint64_t offset, bytes;
}; /* state: enum fl_block_state */
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
/* Bytes [from, to) of the object in the slot hold the pattern of this object id. */
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

/* ---- serve: the fork server's protocol, engine to runner on stdin -------------------------------------------------------
 * Each command is fl_command and its payload. The engine moves the image by writes and file operations; the runner applies
 * them to the files of its heap folder and runs the probe on it. FL_SERVE_RUN is answered: u32 bytes, then the report; and
 * FL_SERVE_STAGES: u32 bytes, then for each stage of recovery (stage.h) a u64, how often life 0 entered it so far, and its
 * name with a NUL. The other commands are not answered. Commands from 11 on, and more of FL_SERVE_RUN: loads.h.
 */
struct fl_command {
    uint32_t kind;          /* enum fl_serve */
    uint32_t file;          /* number the engine gave the file in FL_SERVE_CREATE */
    uint64_t offset;
    uint64_t size;          /* bytes, or new size */
    uint64_t payload_bytes;
};

enum fl_serve {
    FL_SERVE_CREATE = 1, /* payload: name, relative; size: its size; content zero */
    FL_SERVE_RESIZE,     /* size */
    FL_SERVE_PUNCH,      /* offset, size */
    FL_SERVE_REMOVE,
    FL_SERVE_RENAME,     /* payload: new name */
    FL_SERVE_WRITE,      /* offset; payload: the bytes */
    FL_SERVE_MKDIR,      /* payload: name */
    FL_SERVE_RMDIR,      /* payload: name */
    FL_SERVE_RUN,        /* size: enum fl_probe */
    FL_SERVE_STAGES,
};

enum fl_probe { FL_PROBE_FIRST = 1, FL_PROBE_FULL = 2 };

#ifndef __cplusplus
_Static_assert(sizeof(struct fl_report_header) == 32 && sizeof(struct fl_section) == 24, "heap report format");
_Static_assert(sizeof(struct fl_slot_entry) == 16 && sizeof(struct fl_block_entry) == 24, "heap report format");
_Static_assert(sizeof(struct fl_object_entry) == 48, "heap report format");
_Static_assert(sizeof(struct fl_content_entry) == 24 && sizeof(struct fl_command) == 32, "serve protocol");
#endif

#endif
