/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_recording.c - with --serve=yes: no trace. What the lives of a runner's fork server do to PM goes into memory that the server gives
 * (runner/recording.h): the traced engine.
 *
 * The runner knows which addresses show which file of the crash image, also where a private mapping stands in for a shared one. So its
 * spans are the mappings here, and system calls that map are not looked at. Before the first span, and while the runner works for
 * itself, nothing is recorded.
 */
#include "fl.h"
#include "pub_tool_aspacemgr.h"
#include "pub_tool_guest.h"
#include "pub_tool_libcproc.h"
#include "pub_tool_machine.h"
#include "pub_tool_threadstate.h"
#include "pub_tool_vkiscnums.h"

#include "../../runner/protocol.h"
#include "../../runner/recording.h"

#define FL_MOST_PIECES 1024 /* UIO_MAXIOV */

static struct fl_recording *recording; /* the runner's; null: it has not said yet */
static Bool *are_paused; /* by ThreadId */
static Bool is_paused;   /* the running thread */

/* ---- translations ----
 * A life is forked, runs some tens of milliseconds and ends, and most of that would be the translation of code that the life before has
 * translated, too. So each tells the server what it had to translate, and the server does so before the next one is forked. */

/* In libcoregrind, not in its public headers. */
extern Bool VG_(translate)(ThreadId thread, Addr address, Bool is_debugging, Int verbosity, ULong blocks_done, Bool may_redirect);

static Bool is_life; /* forked from the server, or from a life */
static ULong warmed;
static UShort first_thread; /* of this process, in events */

/* A process that a life forks has other threads than the life. */
void fl_recording_forked(void) {
    if (is_life) {
        ULong process = __sync_add_and_fetch(recording->processes, 1);
        if (process >= (1u << 16) / FL_THREADS_OF_A_PROCESS)
            recording->events->flags |= FL_EVENTS_OVERFLOW;
        first_thread = process * FL_THREADS_OF_A_PROCESS;
    }
    is_life = True;
}

static UShort event_thread(void) {
    if (fl_thread > FL_THREADS_OF_A_PROCESS)
        recording->events->flags |= FL_EVENTS_OVERFLOW;
    return first_thread + fl_thread - 1;
}

void fl_recording_translates(Addr address) {
    if (!is_life || recording == NULL || *recording->translated_count >= recording->translated_capacity)
        return;
    recording->translated[(*recording->translated_count)++] = address;
}

/* Code of a file that the server has mapped, too. What a life mapped itself, or generated, is not there. */
static Bool is_mapped_code(Addr address) {
    const NSegment *segment = VG_(am_find_nsegment)(address);
    return segment != NULL && segment->kind == SkFileC && segment->hasX;
}

static void warm(ThreadId thread) {
    if (*recording->is_exact && !fl_signals_are_exact()) {
        fl_signals_make_exact();
        warmed = 0;
    }
    for (; warmed < *recording->translated_count; warmed++)
        if (is_mapped_code(recording->translated[warmed]))
            VG_(translate)(thread, recording->translated[warmed], False, 0, 0, True);
}

void fl_recording_became_exact(void) {
    if (recording != NULL)
        *recording->is_exact = 1;
}

Addr fl_recording_runner_code(void) { return recording == NULL ? 0 : recording->runner_code; }

/* ---- what the runner says ---- */

Bool fl_recording_is_on(void) { return recording != NULL && recording->span_count > 0 && !is_paused; }

static Bool has_events(void) { return fl_recording_is_on() && recording->has_events; }

static const struct fl_span *span_of(const struct fl_mapping *mapping) { return &recording->spans[mapping->file]; }

static void follow(void) {
    fl_mappings_remove_all();
    for (UInt i = 0; !is_paused && i < recording->span_count; i++) {
        const struct fl_span *span = &recording->spans[i];
        fl_mappings_add(span->start, span->end - span->start, i, span->offset,
                        (span->is_shared ? FL_MAP_SHARED : FL_MAP_PRIVATE) | FL_MAP_WRITABLE);
    }
}

/* Another thread runs from here on, which works for the runner or does not. */
void fl_recording_thread_runs(ThreadId thread) {
    if (are_paused == NULL)
        are_paused = VG_(calloc)("fl.recording.paused", VG_N_THREADS, sizeof *are_paused);
    if (are_paused[thread] == is_paused)
        return;
    is_paused = are_paused[thread];
    if (recording != NULL)
        follow();
}

Bool fl_recording_on_request(ThreadId thread, const UWord *request, UWord *result) {
    if (fl_mode != FL_SERVES || request[0] < FL_REQUEST_RECORDING || request[0] > FL_REQUEST_THREAD)
        return False;
    fl_close_joined();
    *result = FL_RECORDING_VERSION;
    if (request[0] == FL_REQUEST_WARM) {
        warm(thread);
        return True;
    }
    if (request[0] == FL_REQUEST_THREAD) {
        *result = event_thread();
        return True;
    }
    if (request[0] == FL_REQUEST_PAUSE)
        are_paused[thread] = is_paused = request[1] != 0;
    else
        recording = (struct fl_recording *)request[1];
    if (recording != NULL && recording->version != FL_RECORDING_VERSION)
        fl_stop(3, "the runner's recording is of version %u, expected %u; build both again", recording->version,
                FL_RECORDING_VERSION);
    if (recording != NULL)
        follow();
    return True;
}

/* ---- places in code ---- */

static UInt module_number(const HChar *path) {
    struct fl_modules *modules = recording->modules;
    for (UInt i = 0; i < modules->count; i++)
        if (VG_(strcmp)(modules->paths[i], path) == 0)
            return i;
    if (modules->count == FL_MOST_MODULES || VG_(strlen)(path) >= FL_MODULE_PATH_BYTES)
        return FL_MOST_MODULES;
    VG_(strcpy)(modules->paths[modules->count], path);
    return modules->count++;
}

struct code {
    UInt module, offset;
};

static struct code code_of(UInt site) {
    const HChar *path;
    Addr offset;
    struct code unknown = {0, FL_SITE_UNKNOWN};
    if (site == FL_NO_SITE || !fl_site_place(site, &path, &offset))
        return unknown;
    UInt module = module_number(path);
    if (module == FL_MOST_MODULES || offset > 0xffffffffull || offset <= FL_SITE_CONTENT)
        return unknown;
    return (struct code){module, offset};
}

Bool fl_recording_is_hook(Addr address) {
    return recording != NULL && address - recording->hooks_start < recording->hooks_end - recording->hooks_start;
}

/* ---- loads ---- */

static void list_load(UInt file, ULong unit, UInt site) {
    struct fl_loads_header *header = recording->loads;
    if (header->count >= recording->load_capacity) {
        header->flags |= FL_LOADS_OVERFLOW;
        return;
    }
    struct code code = code_of(site);
    struct fl_load *load = (struct fl_load *)(header + 1) + header->count++;
    *load = (struct fl_load){
        .kind = FL_LOAD_TARGET, .life = recording->life, .file = file, .unit = unit, .site = code.offset, .module = code.module};
}

/* Units [first, end) of a file: of those that are undecided, each is listed. point: null where the kernel loads. */
static void load_units(UInt file, ULong first_bit, ULong unit_count, ULong first, ULong end, struct fl_point *point, UInt site) {
    end = end < unit_count ? end : unit_count;
    for (ULong unit = first; unit < end; unit++) {
        ULong bit = first_bit + unit;
        uint64_t *word = &recording->undecided[bit / 64];
        if (*word >> bit % 64 == 0) {
            unit += 63 - bit % 64;
            continue;
        }
        if ((*word >> bit % 64 & 1) == 0)
            continue;
        *word &= ~(1ull << bit % 64);
        list_load(file, unit, point == NULL ? site : fl_place_site(point));
    }
}

static void load_span(const struct fl_span *span, ULong from, ULong to, struct fl_point *point, UInt site) {
    load_units(span->file, span->first_bit, span->unit_count, from / FL_UNIT_BYTES, (to - 1) / FL_UNIT_BYTES + 1, point, site);
}

/* Bytes [offset, offset + bytes) of the span's file. */
void fl_recording_load(const struct fl_mapping *mapping, ULong offset, SizeT bytes, struct fl_point *point) {
    const struct fl_span *span = span_of(mapping);
    if (recording->has_loads && span->unit_count > 0)
        load_span(span, offset, offset + bytes, point, FL_NO_SITE);
}

static void decide(const struct fl_span *span, ULong first, ULong end) {
    end = end < span->unit_count ? end : span->unit_count;
    for (ULong unit = first; unit < end; unit++) {
        ULong bit = span->first_bit + unit;
        recording->undecided[bit / 64] &= ~(1ull << bit % 64);
    }
}

/* The store was made. Of a unit that it stores to in part the rest is the crash's. */
static void store_units(const struct fl_span *span, ULong from, ULong to, UInt site) {
    ULong first = (from + FL_UNIT_BYTES - 1) / FL_UNIT_BYTES, end = to / FL_UNIT_BYTES;
    if (!span->is_shared) { /* the file keeps what it has */
        load_span(span, from, to, NULL, site);
        return;
    }
    if (from % FL_UNIT_BYTES != 0)
        load_span(span, from, from + 1, NULL, site);
    if (to % FL_UNIT_BYTES != 0)
        load_span(span, to - 1, to, NULL, site);
    decide(span, first, end);
}

/* ---- events ---- */

static void append(struct fl_event event, const void *payload) {
    struct fl_events_header *header = recording->events;
    ULong padded = (event.bytes + 7ull) & ~7ull, used = *recording->events_used;
    if (used + sizeof event + padded > recording->event_capacity) {
        header->flags |= FL_EVENTS_OVERFLOW;
        return;
    }
    event.thread = event_thread();
    UChar *end = (UChar *)(header + 1) + used;
    if (padded > 0)
        VG_(memset)(end + sizeof event + padded - 8, 0, 8);
    VG_(memcpy)(end, &event, sizeof event);
    VG_(memcpy)(end + sizeof event, payload, event.bytes);
    *recording->events_used = used + sizeof event + padded;
    header->count++;
}

static UChar event_detail(UChar detail) {
    switch (detail) {
    case FL_STORE_NT: return FL_STORED_STREAM;
    case FL_STORE_RMW: return FL_STORED_RMW;
    default: return FL_STORED_PLAIN;
    }
}

void fl_recording_store(const struct fl_mapping *mapping, Addr address, UInt bytes, UChar detail, UInt site) {
    const struct fl_span *span = span_of(mapping);
    ULong offset = mapping->offset + (address - mapping->start);
    if (recording->has_loads && span->unit_count > 0)
        store_units(span, offset, offset + bytes, site);
    if (!recording->has_events || !span->is_shared)
        return;
    struct code code = code_of(site);
    append((struct fl_event){.kind = FL_EVENT_STORE,
                             .detail = event_detail(detail),
                             .file = span->file,
                             .offset = offset,
                             .bytes = bytes,
                             .site = code.offset,
                             .module = code.module},
           (const void *)address);
}

void fl_recording_flush(const struct fl_mapping *mapping, Addr address, struct fl_point *point) {
    if (!has_events())
        return;
    struct code code = code_of(fl_place_site(point));
    UChar kind = point->detail == FL_CLFLUSH      ? FL_FLUSHED_CLFLUSH
                 : point->detail == FL_CLFLUSHOPT ? FL_FLUSHED_CLFLUSHOPT
                                                  : FL_FLUSHED_CLWB;
    append((struct fl_event){.kind = FL_EVENT_FLUSH,
                             .detail = kind,
                             .file = span_of(mapping)->file,
                             .offset = mapping->offset + (address - mapping->start),
                             .site = code.offset,
                             .module = code.module},
           NULL);
}

/* A fence, or a locked instruction that stored to no PM. One that the runner makes for itself orders nothing of the target's. */
void fl_recording_fence(UChar detail, struct fl_point *point) {
    UInt site;
    if (!has_events() || fl_site_is_in_module_of(site = fl_place_site(point), recording->runner_code))
        return;
    struct code code = code_of(site);
    UChar kind = detail == FL_SFENCE ? FL_FENCED_SFENCE : detail == FL_MFENCE ? FL_FENCED_MFENCE : FL_FENCED_LOCKED;
    append((struct fl_event){.kind = FL_EVENT_FENCE, .detail = kind, .site = code.offset, .module = code.module}, NULL);
}

/* ---- system calls ---- */

/* The file of the image, or of the life's copy, that a descriptor leads to; null: another one, or none. */
static const struct fl_known_file *known_file(Int descriptor) {
    struct vg_stat status;
    if (VG_(fstat)(descriptor, &status) != 0)
        return NULL;
    for (UInt i = 0; i < recording->file_count; i++)
        if (recording->files[i].device == status.dev && recording->files[i].inode == status.ino)
            return &recording->files[i];
    return NULL;
}

static void load_file(Int descriptor, Bool is_positioned, ULong position, ULong bytes) {
    const struct fl_known_file *file = known_file(descriptor);
    if (file == NULL || bytes == 0)
        return;
    if (!is_positioned)
        position = VG_(lseek)(descriptor, 0, VKI_SEEK_CUR);
    ULong end = position + bytes < position ? ~0ull : position + bytes;
    load_units(file->file, file->first_bit, file->unit_count, position / FL_UNIT_BYTES, (end - 1) / FL_UNIT_BYTES + 1, NULL,
               FL_NO_SITE);
}

static ULong bytes_of_pieces(UWord pieces, UWord count) {
    const struct vki_iovec *piece = (const struct vki_iovec *)pieces;
    ULong bytes = 0;
    for (UWord i = 0; i < count && count <= FL_MOST_PIECES; i++)
        bytes += piece[i].iov_len;
    return bytes;
}

/* process_vm_readv from the process itself: Valgrind does not say what it reads. */
static void load_remote(ThreadId thread, const UWord *a) {
    const struct vki_iovec *pieces = (const struct vki_iovec *)a[3];
    UWord count = a[4] > FL_MOST_PIECES ? 0 : a[4];
    if (!fl_is_itself(a[0]) || !VG_(am_is_valid_for_client)(a[3], count * sizeof *pieces, VKI_PROT_READ))
        return;
    for (UWord i = 0; i < count; i++)
        fl_recording_kernel_load(Vg_CoreSysCall, thread, "", (Addr)pieces[i].iov_base, pieces[i].iov_len);
}

/* A process that is none of the runner's works on copies of what is mapped here: what it stores would be lost in silence. */
static void look_for_process(UInt number, const UWord *a) {
    Bool is_process = number == __NR_fork || number == __NR_vfork;
    if (number == __NR_clone)
        is_process = (a[0] & VKI_CLONE_THREAD) == 0;
    else if (number == __NR_clone3) /* the flags are the first word of what it is given */
        is_process =
            VG_(am_is_valid_for_client)(a[0], sizeof(ULong), VKI_PROT_READ) && (*(const ULong *)a[0] & VKI_CLONE_THREAD) == 0;
    if (is_process && is_life && recording != NULL && !recording->is_starting)
        *recording->has_lost_process = 1;
}

/* Reads behind a descriptor, whoever makes them. What a call does to files the runner's own functions see; a call that goes past them
 * (the syscall instruction) and may change a file of the heap, or map it, cannot be followed. */
void fl_recording_before_call(ThreadId thread, UInt number, const UWord *a) {
    look_for_process(number, a);
    if (!fl_recording_is_on() || !recording->has_loads)
        return;
    switch (number) {
    case __NR_read: load_file(a[0], False, 0, a[2]); break;
    case __NR_pread64: load_file(a[0], True, a[3], a[2]); break;
    case __NR_readv: load_file(a[0], False, 0, bytes_of_pieces(a[1], a[2])); break;
    case __NR_preadv:
    case __NR_preadv2: load_file(a[0], a[3] != (UWord)-1, a[3], bytes_of_pieces(a[1], a[2])); break;
    case __NR_sendfile: load_file(a[1], False, 0, ~0ull); break;
    case __NR_copy_file_range: load_file(a[0], False, 0, ~0ull); break;
    case __NR_process_vm_readv: load_remote(thread, a); break;
    case __NR_execve:
    case __NR_execveat: fl_recording_unseen("another program is started"); break;
    default: break;
    }
}

/* What msync reads goes to the medium, and nothing of it comes back. */
static Bool is_synced(const HChar *what) { return VG_(strcmp)(what, "msync(start)") == 0; }

/* The kernel is about to read the program's memory. what: as Valgrind calls it. */
void fl_recording_kernel_load(CorePart part, ThreadId thread, const HChar *what, Addr address, SizeT bytes) {
    UInt from = 0;
    (void)thread;
    if (is_synced(what))
        return;
    if (part != Vg_CoreSysCall || bytes == 0 || !fl_recording_is_on() || address >= fl_lowest + fl_span ||
        address + bytes <= fl_lowest)
        return;
    for (struct fl_mapping *mapping; (mapping = fl_next_mapping(address, bytes, &from)) != NULL;) {
        Addr start = address > mapping->start ? address : mapping->start;
        Addr end = mapping->start + mapping->bytes < address + bytes ? mapping->start + mapping->bytes : address + bytes;
        fl_recording_load(mapping, mapping->offset + (start - mapping->start), end - start, NULL);
    }
}

void fl_recording_kernel_load_text(CorePart part, ThreadId thread, const HChar *what, Addr text) {
    if (text - fl_lowest < fl_span)
        fl_recording_kernel_load(part, thread, what, text, VG_(strlen)((const HChar *)text) + 1);
}

void fl_recording_unseen(const HChar *text) {
    if (recording == NULL)
        return;
    if ((recording->loads->flags & FL_LOADS_UNSEEN) == 0)
        VG_(snprintf)(recording->text, recording->text_bytes, "%s", text);
    recording->loads->flags |= FL_LOADS_UNSEEN;
}
