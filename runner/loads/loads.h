/* SPDX-License-Identifier: Apache-2.0
 *
 * loads/loads.h - what a life reads of the crash image, and what it does to PM, as the hooks announce it.
 */
#ifndef FAULTLINE_RUNNER_LOADS_H
#define FAULTLINE_RUNNER_LOADS_H

#include "base/in_process.h"
#include "files/files.h"
#include "protocol.h"
#include <sys/uio.h>

/* ---- loads.c: for the server */
struct fl_watch;
void loads_map(void); /* once */
/* The set of hot units; bytes_of: size of a file; false: they span too much. */
bool loads_watch(uint64_t number, const struct fl_watch *watches, size_t count, uint64_t (*bytes_of)(uint32_t file));
void loads_begin(uint32_t flags, uint64_t seed); /* flags: enum fl_run_flag; seed: of guarded runs */
/* A run of these flags may take so many times as long. */
uint64_t loads_slowdown(void);
void loads_life(uint32_t life);
void loads_forget_words(void); /* of the last in-process run: another one changed bits */
/* The next life sees the crash's bytes again: on a new copy. */
void loads_copy_is_fresh(void);
/* What follows the report of a recorded run. */
const void *loads_answer(uint32_t *bytes);

/* ---- tail.c: for probe/tail_cache.c */
uint64_t loads_watch_number(void);
bool loads_are_known(void); /* all that were made */
/* Life 0 has opened the heap. */
void loads_begin_tail(void);
/* It has come to its end: what is listed from here on is of the tail of the run. False: it decided units since then otherwise than by
 * reading them, and there is no tail. */
bool loads_go_on_with_tail(void);
/* From here on every hot unit is listed when it is read, also if it was before or holds what the run stored; until the next copy. */
void loads_list_tail(void);
bool loads_is_hot(uint32_t file, uint64_t unit);
const struct fl_load *loads_tail(uint32_t *count); /* what was listed from there on */
void loads_add_tail(const struct fl_load *tail, uint32_t count);
void loads_end_tail(void); /* from there on the list has only what it would have had; also in the server */

/* ---- loads.c: in a life. Accesses are announced before they are made. */
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
bool loads_is_recording(void);
/* Return address of the hook that announces an access; NULL: the access is not the target's. */
extern const void *loads_caller;
extern bool loads_is_by_instruction; /* it is not the compiler's hook that tells it */
void loads_read(const void *address, uint64_t bytes); /* by the target */
void loads_stored(const void *address, uint64_t bytes); /* all of it or some, maybe after a read */
void loads_written(const void *address, uint64_t bytes); /* certainly, all of it */
void loads_looked_at(const void *address, uint64_t bytes); /* by the runner, and the report depends on it */
extern bool loads_is_every; /* FL_RUN_EVERY_ACCESS: what the target accesses, and the runner looks at no contents */
void loads_scanned(const void *address, uint64_t bytes); /* by the runner, for contents only */
/* How many bytes from there on, of these, loads_scanned has nothing to note of, until the target runs again. */
uint64_t loads_settled_bytes(const void *address, uint64_t bytes);
void loads_read_file(int fd, uint64_t offset, uint64_t bytes);
void loads_updated(const void *address, uint64_t bytes); /* by the target, read and maybe stored to at once */
/* The runner or the kernel is about to access this; for guarded runs. */
void loads_open(const void *address, uint64_t bytes);
void loads_filled(const void *address, uint64_t bytes); /* the same, and the kernel stores */
extern bool loads_is_guarded; /* this run */
void loads_unknown(uint32_t flag, const char *text); /* enum fl_loads_flag; text: for UNSEEN and DIFFERS */
void loads_follow(void); /* mappings of the heap changed */
void loads_guarded(bool is_announced); /* guard.c saw an access */

/* ---- guard.c: for loads.c, in guarded runs */
void guard_map(void); /* once, in the server */
/* In the server: hooks are counted anew, over all lives of the run. seed: chooses which calls of those known well are looked at. */
void guard_begin_run(uint64_t seed);
void guard_forget(void);
void guard_close(const struct vfs_view *view);
void guard_announce(const void *address, uint64_t bytes);
/* Until the next announcement. */
void guard_open(const void *address, uint64_t bytes);
/* For a hook that accesses what it has announced; returns what it gives back, not 0. */
unsigned guard_lend(const void *address, uint64_t bytes);
void guard_take_back(unsigned lent);

/* ---- modules.c */
struct fl_modules;
struct fl_modules *modules_map(const char *adapter); /* once, in the server; the adapter's is module 0 */
const struct fl_modules *modules_known(void);
uint32_t modules_number(const char *path); /* FL_MOST_MODULES: there is no room for it */

/* ---- recording.c */
struct fl_recording;
void recording_map(const char *adapter); /* once, in the server, when the others have mapped */
bool recording_follow(uint32_t life, bool has_loads); /* what is mapped has changed; false: there are more mappings than spans */
void recording_begin_life(void); /* in the server */
void recording_starts_process(bool is_starting); /* the runner knows of it */
bool recording_lost_process(void); /* this life started one that the runner does not know of, under a tracer */

/* ---- events.c: for the server */
void events_describe(struct fl_recording *recording);
void events_map(const void *adapter); /* once; adapter: any address in its file as it is mapped */
void events_begin(bool is_asked); /* before a run */
const void *events_answer(uint32_t *bytes);

/* ---- events.c: in a life */
void events_start(uint32_t generation); /* from here on the life's events are recorded */
extern bool events_is_on; /* in a life whose events are recorded */
static inline bool events_are_recorded(void) { return events_is_on; }
extern bool events_is_by_hooks; /* and it is hooks that see what the target does */
static inline bool events_by_hooks(void) { return events_is_by_hooks; }
uint32_t events_file_number(uint32_t known, uint64_t inode); /* known: NO_FILE for one that recovery may have made */
void events_follow(void); /* mappings of the heap changed */
void events_files_changed(void); /* in a way that events do not say */
/* A file operation returned and had an effect. Paths: in the heap folder. */
void events_file(enum fl_event_effect effect, uint64_t offset, uint64_t bytes, const char *path, const char *new_path);
void events_file_made(uint64_t inode, const char *path);
/* A call returned that wrote these bytes, of the parts' first ones, to the file at offset. */
void events_wrote(int fd, uint64_t offset, const struct iovec *parts, uint64_t bytes, const void *caller);
/* A call returned that made the range of the file, or of what is mapped there, persistent. */
void events_synced_file(int fd, uint64_t offset, uint64_t bytes, const void *caller); /* all of it: UINT64_MAX at 0 */
void events_synced(const void *address, uint64_t bytes, const void *caller);
/* A call returned that filled memory: bytes on their own. */
void events_filled_by_kernel(const void *address, uint64_t bytes, const void *caller);
/* caller: where the code goes on that does it. will_store: before it is done; the others: after. */
struct fl_place {
    uint32_t site, module; /* as in struct fl_event */
};
struct fl_place events_place(const void *caller);
void events_will_store(const void *address, uint64_t bytes, bool is_in_pieces, const void *caller); /* the compiler's hook */
void events_will_execute_store(const void *address, uint64_t bytes, const void *caller); /* the instruction */
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

#endif
