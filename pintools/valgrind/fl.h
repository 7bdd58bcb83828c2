/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl.h - what the files of the Valgrind tool share.
 *
 *   fl_main        options, life of the process: threads, forks, markers, end
 *   fl_instrument  adds the calls below to the guest's code
 *   fl_decode      what the intermediate code does not say, read from the guest's instruction bytes
 *   fl_record      stores, flushes, fences: from an executed instruction to a record
 *   fl_loads       loads of PM, into a file of their own
 *   fl_wear        in the place of a trace, how often each line was written, into a file of its own
 *   fl_recording   in the place of a trace, what lives of a fork server do to PM, into the server's memory
 *   fl_mappings    which addresses are persistent memory
 *   fl_files       system calls: file operations, mapping, unmapping, kernel writes
 *   fl_paths       names below the PM folder, identities of files
 *   fl_sites       instruction addresses to module and offset, with the calls that led there
 *   fl_schedule    which thread runs: the turn, handed on at points that the seed fixes
 *   fl_waits       system calls that wait: what they mean for the turn
 *   fl_room        addresses for a target that reserves many
 *   fl_trace       the buffer of cells and the file it goes to
 *
 * A `point` is an instruction that may make an event; it is made when the instruction is translated. A `site` is its
 * identity in the trace, with its callers; it is made when the point first makes an event, so that a trace names only the code that matters.
 */
#ifndef FL_H
#define FL_H

#include "pub_tool_basics.h"
#include "pub_tool_vki.h"
#include "pub_tool_debuginfo.h"
#include "pub_tool_libcassert.h"
#include "pub_tool_libcbase.h"
#include "pub_tool_libcfile.h"
#include "pub_tool_libcprint.h"
#include "pub_tool_machine.h"
#include "pub_tool_mallocfree.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_tooliface.h"

#include "../trace.h"

/* What the tool makes of the events that it sees. */
enum fl_mode {
    FL_TRACES, /* --trace: a trace */
    FL_COUNTS, /* --wear: counts of writes */
    FL_SERVES, /* --serve: the recording of a runner's fork server */
};
extern enum fl_mode fl_mode;

/* ---- fl_decode ---- */

enum fl_instruction {
    FL_ORDINARY,
    FL_NON_TEMPORAL,
    FL_MASKED_NON_TEMPORAL, /* maskmovq, maskmovdqu: only the masked bytes are stored */
    FL_REPEATED,            /* rep movs, rep stos */
    FL_LOCKED,              /* locked read-modify-write, xchg with memory */
    FL_LOCKED_COMPARE,      /* lock cmpxchg, cmpxchg8b, cmpxchg16b: may fail */
    FL_IS_SFENCE,
    FL_IS_MFENCE,
    FL_IS_CLFLUSH,
    FL_IS_CLFLUSHOPT,
    FL_IS_CLWB,
    FL_IS_CPUID,
    FL_IS_TRAP, /* ud2: the program's own wish */
};

/* base + index * scale + displacement; a base or index of -1 is absent. */
struct fl_operand {
    Int base;  /* register number 0..15, as encoded */
    Int index;
    UInt scale;
    Long displacement;
    Bool is_rip_relative;
    Bool is_32_bit; /* address-size prefix */
    Int segment;    /* 0, or the prefix byte 0x64 (FS), 0x65 (GS) */
};

struct fl_decoded {
    enum fl_instruction instruction;
    struct fl_operand operand; /* of the flushes only */
    UInt bytes;                /* length, of the flushes only */
};

void fl_decode(Addr address, struct fl_decoded *decoded);
/* What Valgrind does not know, in words; advice: by which flags a compiler leaves it out. */
const HChar *fl_name_undecoded(const UChar *bytes, const HChar **advice);

/* ---- fl_instrument ---- */

IRSB *fl_instrument(VgCallbackClosure *closure, IRSB *in, const VexGuestLayout *layout, const VexGuestExtents *extents,
                    const VexArchInfo *host, IRType guest_word, IRType host_word);

/* ---- fl_sites ---- */

#define FL_PATH_SITES 6u /* a site with its callers, and theirs */
#define FL_PATH_CALLS 12u /* with those inside the C library */

/* A return address, and where it lay. */
struct fl_call {
    PtrdiffT distance; /* from the stack pointer */
    Addr address;      /* of the call: the return address less one */
};

/* A way that led to a point. */
struct fl_path {
    struct fl_path *next;
    UInt site;
    UInt count; /* 0: it cannot be told whether it is taken again */
    SizeT reach; /* bytes of the stack that the calls lie in, from the stack pointer on */
    struct fl_call calls[FL_PATH_CALLS]; /* innermost first */
};

/* Memory that can be read, with the stack that was last looked at in it. */
struct fl_stack {
    Addr start;
    SizeT bytes;
};
extern struct fl_stack fl_stack;
void fl_stack_forget(void); /* when memory goes, or what may be done with it changes */

struct fl_point {
    Addr address;
    struct fl_path *path; /* the last one first; null until the first event */
    UInt own_site;        /* without callers; FL_NO_SITE until somebody asks */
    UInt bytes;
    UChar detail; /* enum of the record's kind */
    Bool is_joined; /* the stores of one instruction are joined to one record */
    Bool is_call;   /* a system call: who asked the runner's own functions for it is what matters */
};

UInt fl_site_slowly(struct fl_point *point);
UInt fl_own_site(struct fl_point *point); /* of locks, that few ask for: the instruction itself, in the C library too */
UInt fl_fence_site(struct fl_point *point); /* in the C library the instruction itself */
/* The instruction itself, or who called the C library. Cheaper than with callers. */
UInt fl_place_site(struct fl_point *point);
/* Of the thread's system call in progress: who called the C library, or the runner's functions that stand before it. */
UInt fl_call_site(ThreadId thread);
/* Module and offset of a site; false: it lies in none. */
Bool fl_site_place(UInt site, const HChar **path, Addr *offset);
Bool fl_site_is_in_module_of(UInt site, Addr address);
void fl_sites_define_again(void);
/* "FUNCTION (FILE:LINE)", and its callers behind " < ". */
void fl_site_describe(UInt site, HChar *out, UInt bytes);
/* The same of any address of code, without callers. */
void fl_address_describe(Addr address, HChar *out, UInt bytes);
Bool fl_is_in_loader(Addr address);

/* From the inside outwards: where one is found, the next one's place is known. A stack that is not as deep as it was has no such
 * places: above its first frame may be nothing. */
static inline Bool fl_is_on_path(const struct fl_path *path, Addr stack) {
    Addr depth = stack - fl_stack.start;
    if (depth >= fl_stack.bytes || path->reach > fl_stack.bytes - depth)
        return False;
    for (UInt i = 0; i < path->count; i++)
        if (*(Addr *)(stack + path->calls[i].distance) != path->calls[i].address + 1)
            return False;
    return path->count > 0;
}

static inline UInt fl_site(struct fl_point *point) {
    if (LIKELY(point->path != NULL) && LIKELY(fl_is_on_path(point->path, VG_(get_SP)(VG_(get_running_tid)()))))
        return point->path->site;
    return fl_site_slowly(point);
}

/* Of a store. A recording wants no callers. */
static inline UInt fl_store_site(struct fl_point *point) {
    return LIKELY(fl_mode != FL_SERVES) ? fl_site(point) : fl_place_site(point);
}

/* ---- fl_mappings ---- */

struct fl_mapping {
    Addr start;
    SizeT bytes; /* whole OS pages */
    ULong offset;
    UInt file;
    UChar flags; /* enum fl_map */
};

/* No store (with --loads: no access) outside [fl_lowest, fl_lowest + fl_span) touches PM: the test that runs inline. fl_lowest lies FL_INLINE_BYTES
 * below the lowest mapping, so that a store that begins just below is seen. */
#define FL_INLINE_BYTES 64
extern Addr fl_lowest;
extern SizeT fl_span;
extern struct fl_mapping *fl_last_mapping; /* never null: an empty one if there is nothing */

struct fl_mapping *fl_find_mapping(Addr address); /* shared, or null */
struct fl_mapping *fl_next_mapping(Addr address, SizeT bytes, UInt *from); /* next that overlaps, of either kind */
void fl_mappings_add(Addr start, SizeT bytes, UInt file, ULong offset, UChar flags);
void fl_mappings_remove(Addr start, SizeT bytes);
void fl_mappings_remove_all(void);
void fl_mappings_define_again(void);

/* ---- fl_record ---- */

void fl_on_store(Addr address, struct fl_point *point);
void fl_on_store_to(Addr address, SizeT bytes, struct fl_point *point);
void fl_on_masked_store(Addr address, ULong mask_low, ULong mask_high, struct fl_point *point);
void fl_on_joined_end(void);
void fl_on_locked(Addr address, ULong has_stored, struct fl_point *point);
void fl_on_flush(Addr address, struct fl_point *point);
void fl_flushes_elsewhere_end(void); /* of the process */
void fl_flushes_elsewhere_forked(void); /* in the child */
void fl_on_fence(struct fl_point *point);
void fl_on_undecoded(struct fl_point *point);
void fl_on_kernel_write(CorePart part, ThreadId thread, Addr address, SizeT bytes);
ULong fl_on_cpuid(ULong leaf, ULong subleaf, ULong rbx);
void fl_close_joined(void);
Bool fl_is_joining(void);

/* ---- fl_loads ---- */

#define FL_LOAD_REPEATED 0x8000ull
extern const HChar *fl_clo_loads; /* null: not wanted */
void fl_loads_open(void);
void fl_loads_flush(void);
Bool fl_loads_are_wanted(void);
void fl_on_load(Addr address, ULong bytes, struct fl_point *point);

/* ---- fl_wear ---- */

extern const HChar *fl_clo_wear; /* null: a trace is wanted, and the rest is not called */
extern Bool fl_clo_wear_memory;
extern Int fl_clo_wear_line, fl_clo_wear_ways;
extern Long fl_clo_wear_cache; /* bytes */
void fl_wear_open(void);
void fl_wear_close(void);
void fl_wear_forks(void);
void fl_wear_forked(void);
void fl_wear_brk_refused(void);
void fl_wear_store(UInt file, ULong offset, ULong bytes, Bool is_non_temporal, UInt site);
void fl_wear_flush(UInt file, ULong offset, Bool stays);
void fl_wear_fence(void);
UInt fl_wear_memory_file(void);

/* ---- fl_recording ---- */

Bool fl_recording_is_on(void);
void fl_recording_became_exact(void);
Addr fl_recording_runner_code(void); /* an address in it; 0: none has said */
void fl_recording_forked(void);
void fl_recording_translates(Addr address); /* a block of code */
void fl_recording_thread_runs(ThreadId thread);
Bool fl_recording_on_request(ThreadId thread, const UWord *request, UWord *result); /* false: it is none of the recording's */
Bool fl_recording_is_hook(Addr address); /* code of the runner that makes an access of the target's */
void fl_recording_load(const struct fl_mapping *mapping, ULong offset, SizeT bytes, struct fl_point *point);
void fl_recording_store(const struct fl_mapping *mapping, Addr address, UInt bytes, UChar detail, UInt site);
void fl_recording_flush(const struct fl_mapping *mapping, Addr address, struct fl_point *point);
void fl_recording_fence(UChar detail, struct fl_point *point);
void fl_recording_unseen(const HChar *text); /* what happened cannot be recorded */
void fl_recording_before_call(ThreadId thread, UInt number, const UWord *arguments);
void fl_recording_kernel_load(CorePart part, ThreadId thread, const HChar *what, Addr address, SizeT bytes);
void fl_recording_kernel_load_text(CorePart part, ThreadId thread, const HChar *what, Addr text);

/* ---- fl_paths ---- */

#define FL_PATH_BYTES 4096

extern const HChar *fl_clo_pm_folder;
extern const HChar *fl_clo_module_root; /* no slash at its end; NULL: none */
void fl_paths_init(void);
/* Writes the canonical absolute name of path (relative to the folder descriptor) to out. False if its folder is not there. */
Bool fl_resolve(Int folder, const HChar *path, HChar *out);
Bool fl_path_of_descriptor(Int descriptor, HChar *out);
/* The part of an absolute name below the PM folder, or null. */
const HChar *fl_below_pm(const HChar *absolute);
/* The same of a folder, which may be the PM folder itself: ".". */
const HChar *fl_folder_in_pm(const HChar *absolute);
/* Whether a file of this name outlives the run and is no file of the heap. */
Bool fl_is_state_outside(const HChar *absolute);
UInt fl_file_of(ULong device, ULong inode, const HChar *relative); /* defines it at first sight */
UInt fl_file_new(const HChar *relative); /* that is about to be created */
void fl_file_bind(UInt file, ULong device, ULong inode);
void fl_file_renamed(const HChar *old_name, const HChar *new_name); /* null: unlinked */
const HChar *fl_file_name(UInt file); /* null: no such file yet */
void fl_files_define_again(void);

/* ---- fl_files ---- */

void fl_pre_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count);
void fl_post_syscall(ThreadId thread, UInt number, UWord *arguments, UInt count, SysRes result);
/* Whether a system call that names a process names this one. */
Bool fl_is_itself(UWord process);

/* Of the bytes that the core says a system call in progress has written, how many it has. */
SizeT fl_bytes_written(ThreadId thread, Addr address, SizeT bytes);

/* ---- fl_signals ---- */

void fl_signals_before_call(UInt number, const UWord *arguments);
/* From here on registers are exact at each access to memory. */
void fl_signals_make_exact(void);
Bool fl_signals_are_exact(void);

/* ---- fl_schedule and fl_waits ---- */

extern ULong fl_clo_schedule_seed;
extern ULong fl_events_left; /* of the running thread's slice */

void fl_schedule_thread_created(ThreadId parent, ThreadId child);
void fl_schedule_thread_exits(ThreadId thread);
void fl_schedule_forks(void); /* before it does */
void fl_schedule_forked(ThreadId thread); /* in the child */
void fl_schedule_before_call(ThreadId thread, UInt number, const UWord *arguments);
void fl_schedule_after_call(ThreadId thread, UInt number, const UWord *arguments, SysRes result);
void fl_schedule_before_signal(ThreadId thread, Int signal, Bool is_on_own_stack);
void fl_schedule_end_slice(void);

/* At each event that may end a slice. */
static inline void fl_tick(void) {
    if (UNLIKELY(--fl_events_left == 0))
        fl_schedule_end_slice();
}

/* ---- fl_main ---- */

extern UShort fl_thread; /* number of the running thread */
UShort fl_number_of(ThreadId thread);
extern UInt fl_process;

/* ---- fl_trace ---- */

#define FL_BUFFER_CELLS 8192u

extern struct fl_record *fl_next_cell;
extern struct fl_record *fl_buffer_end;

void fl_trace_open(const HChar *path);
void fl_trace_flush(void);
void fl_trace_close(void);
struct fl_record *fl_reserve_slowly(ULong cells);
/* A record with text as its payload; the caller's record says the rest. */
void fl_emit_text(struct fl_record record, const HChar *text, UInt bytes);
void fl_unsupported(const HChar *format, ...) PRINTF_CHECK(1, 2);
void fl_stop(Int status, const HChar *format, ...) PRINTF_CHECK(2, 3) __attribute__((noreturn));

/* Room for a record and its payload, not initialised. */
static inline struct fl_record *fl_reserve(ULong cells) {
    struct fl_record *first = fl_next_cell;
    if (UNLIKELY((ULong)(fl_buffer_end - first) < cells))
        return fl_reserve_slowly(cells);
    fl_next_cell = first + cells;
    return first;
}

static inline void fl_emit(struct fl_record record) { *fl_reserve(1) = record; }

#endif
