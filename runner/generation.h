/* SPDX-License-Identifier: Apache-2.0
 *
 * generation.h - what a recovery does to PM, event by event: the part of the serve protocol (heap_report.h) for crashes that
 * follow a crash. For targets that were compiled with hooks (build variant `hooks`).
 *
 *     FL_SERVE_RUN with size FL_PROBE_GENERATION and FL_RUN_LOADS: one life, recorded (loads.h) and told event by event:
 *     open, slots, and in the graph layout objects; then the follow-up: FL_FOLLOW_UP_OPERATIONS, each on an empty slot, an
 *     allocation of each of FL_FOLLOW_UP_BYTES and then a free of each that was made. With size FL_PROBE_RECOVERY there is no
 *     follow-up. `file` of the command: number of the generation, from 1, so that no two generations use an operation index (or
 *     object id) twice.
 *     Answered: the report, the list of loads, and then u32 bytes, then fl_events_header, and for each event fl_event and its
 *     payload, zero padded to 8.
 *
 * Events are in memory order. A store's payload is what it left in memory. What cannot be told is said by a flag: threads (loads.h),
 * and file operations that FL_EVENT_FILE does not know (writes by system calls, links).
 *
 * What the runner fills a new object with is told as one non-temporal store and a fence (FL_STORED_CONTENT), so that each object is two
 * events: until the operation returns nothing of it is promised.
 *
 * Copies and fills by the C library are one wide store each: the hooked build makes them with `rep movs` and `rep stos`. A structure
 * that the compiler copies in pieces of its own choice is told as stores of 8 bytes in order of addresses.
 */
#ifndef FAULTLINE_GENERATION_H
#define FAULTLINE_GENERATION_H

#include <stdint.h>

#define FL_GENERATION_VERSION 3u

/* More of enum fl_probe. */
#define FL_PROBE_GENERATION 3u
#define FL_PROBE_RECOVERY 4u

/* Sizes that reach the allocation paths that allocators have: the smallest, small runs, several OS pages, large. Bytes. */
#define FL_FOLLOW_UP_BYTES {48, 1000, 9000, 70000}
/* Operation index of open, of generation 0; the operations of the follow-up have the next ones, and object ids one above. */
#define FL_FIRST_INDEX 0xf00000u
#define FL_INDEXES_OF_A_GENERATION 0x1000u

enum fl_events_flag {
    FL_EVENTS_OVERFLOW = 1, /* there was no room for all events */
    FL_EVENTS_FILES = 2,    /* the life changed files of the heap in a way that is not told */
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
    FL_EVENT_FLUSH,     /* detail: enum fl_event_flush; offset: of any byte of the line */
    FL_EVENT_FENCE,     /* detail: enum fl_event_fence */
    FL_EVENT_BEGIN, /* an operation of trace.h (detail: enum fl_operation) begins. file: slot; site: index; offset: bytes asked
                           for; bytes: 4, the payload is the object id */
    FL_EVENT_RETURN, /* it returned. site: index; file: status */
    FL_EVENT_FILE, /* a file operation returned and had an effect (detail: enum fl_event_effect). Payload: u64, a number of bytes,
                           then the path in the heap folder with a NUL; rename: then the new path with a NUL */
};
enum fl_event_effect {
    FL_DID_CREATE = 1, /* file: number that this life gives it, from FL_FIRST_NEW_FILE */
    FL_DID_TRUNCATE, /* to that many bytes */
    FL_DID_EXTEND, /* to at least that many bytes */
    FL_DID_PUNCH, /* that many bytes at offset are zero */
    FL_DID_UNLINK,
    FL_DID_RENAME,
    FL_DID_MAKE_FOLDER,
    FL_DID_REMOVE_FOLDER,
    FL_DID_SYNC, /* that many bytes at offset */
};
#define FL_FIRST_NEW_FILE 0x80000000u
enum fl_event_store { FL_STORED_PLAIN = 1, FL_STORED_RMW, FL_STORED_CONTENT, FL_STORED_STREAM /* non-temporal */ };
enum fl_event_flush { FL_FLUSHED_CLFLUSH = 1, FL_FLUSHED_CLFLUSHOPT, FL_FLUSHED_CLWB };
enum fl_event_fence { FL_FENCED_SFENCE = 1, FL_FENCED_MFENCE, FL_FENCED_LOCKED };

#define FL_SITE_UNKNOWN 0u
#define FL_SITE_CONTENT 1u /* the runner's fill: application content */

/* 24 bytes. */
struct fl_event {
    uint8_t kind; /* enum fl_event_kind */
    uint8_t detail;
    uint16_t zero;
    uint32_t file; /* number of FL_SERVE_CREATE */
    uint64_t offset;
    uint32_t bytes; /* of the payload, without padding */
    uint32_t site; /* offset in the adapter's file, or one of FL_SITE_* */
};

#ifndef __cplusplus
_Static_assert(sizeof(struct fl_events_header) == 16 && sizeof(struct fl_event) == 24, "events format");
#endif

#endif
