/* SPDX-License-Identifier: Apache-2.0
 *
 * What a recovery does to PM, event by event (protocol.h).
 *
 * The hook of a plain store comes before the store. So the store waits, and what it left in memory is read when the next event comes:
 * no other store of the target can lie between. Hooks of loads do not count as events: in `*a = *b` they come between the
 * hook of the store and the store.
 *
 * The list lies in memory that the server shares with its lives: it is there when the target has died.
 */
#include "loads/loads.h"
#include "base/traced.h"
#include "recording.h"
#include <dlfcn.h>
#include <limits.h>
#include <link.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_BYTES (64u << 20)
#define MOST_SPANS 64u
#define MOST_COMPARED 128u
#define MOST_MADE 64u

struct shared {
    uint64_t used; /* bytes of list */
    uint64_t processes; /* that the life forked */
    struct fl_events_header header;
    uint8_t list[MOST_BYTES];
};

/* Where PM is in this process's memory. */
struct span {
    uintptr_t start, end;
    uint64_t offset;
    uint32_t file;
    bool is_shared;
};

static struct {
    struct shared *shared;
    bool is_asked; /* of the run */
    uintptr_t adapter, adapter_end; /* where its file is mapped */
    uint32_t index;       /* of the last operation that began */
    struct span spans[MOST_SPANS];
    size_t span_count;
    uint64_t made[MOST_MADE]; /* inodes of the files that this life made */
    uint32_t made_count;
    struct {
        uintptr_t address;
        uint64_t bytes;
        struct fl_place place;
        enum fl_event_store kind;
        bool is_in_pieces;
        bool is_by_compiler; /* by its hook: the assembler may announce the same store once more */
        uint8_t before[MOST_COMPARED]; /* what was there then */
    } waiting; /* bytes 0: no store waits */
} events;

/* The module with hooks that called last, which is not the adapter: a library that it needs. end 0: none has. */
static _Thread_local struct {
    uintptr_t start, end;
    uint32_t number;
} library;

bool events_is_on, events_is_by_hooks;

/* ---- the server's part -------------------------------------------------------------------------------------------------- */

/* Behind what is mapped of a shared object, by the head of its file. */
static uintptr_t end_of(uintptr_t start) {
    const ElfW(Ehdr) *head = (const ElfW(Ehdr) *)start;
    const ElfW(Phdr) *segments = (const ElfW(Phdr) *)(start + head->e_phoff);
    uintptr_t end = 0;
    for (size_t i = 0; i < head->e_phnum; i++)
        if (segments[i].p_type == PT_LOAD && segments[i].p_vaddr + segments[i].p_memsz > end)
            end = segments[i].p_vaddr + segments[i].p_memsz;
    return start + end;
}

void events_map(const void *adapter) {
    events.shared = mmap(NULL, sizeof *events.shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (events.shared == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for the list of events (%u MiB)", MOST_BYTES >> 20);
    events.adapter = (uintptr_t)adapter;
    events.adapter_end = end_of(events.adapter);
}

void events_begin(bool is_asked) {
    events.is_asked = is_asked;
    events.shared->used = events.shared->processes = 0;
    events.shared->header = (struct fl_events_header){.version = FL_PROTOCOL_VERSION};
}

void events_describe(struct fl_recording *recording) {
    recording->events = &events.shared->header;
    recording->events_used = &events.shared->used;
    recording->event_capacity = MOST_BYTES;
    recording->processes = &events.shared->processes;
}

const void *events_answer(uint32_t *bytes) {
    struct shared *shared = events.shared;
    uint64_t used = shared->used < MOST_BYTES ? shared->used : 0;
    shared->header.version = FL_PROTOCOL_VERSION;
    *bytes = (uint32_t)(sizeof shared->header + used);
    return &shared->header;
}

/* ---- in a life ---------------------------------------------------------------------------------------------------------- */

void events_start(uint32_t generation) {
    events_is_on = events.is_asked;
    events_is_by_hooks = events_is_on && !is_traced;
    library.end = 0;
    events.index = FL_FIRST_INDEX + generation * FL_INDEXES_OF_A_GENERATION;
}

void events_files_changed(void) {
    if (events_is_on)
        events.shared->header.flags |= FL_EVENTS_FILES;
}

uint32_t events_file_number(uint32_t known, uint64_t inode) {
    for (uint32_t i = events.made_count; known == NO_FILE && i-- > 0;)
        if (events.made[i] == inode)
            known = FL_FIRST_NEW_FILE + i;
    return known;
}

static void settle(void);

void events_follow(void) {
    struct vfs_view view;
    if (events_is_on)
        settle(); /* while the address is still what it was */
    events.span_count = 0;
    for (size_t i = 0; events_is_on && vfs_view(i, &view); i++) {
        uint32_t file = events_file_number(view.file, view.inode);
        if (file == NO_FILE || events.span_count == MOST_SPANS)
            events.shared->header.flags |= file == NO_FILE ? FL_EVENTS_FILES : FL_EVENTS_OVERFLOW;
        else
            events.spans[events.span_count++] = (struct span){view.start, view.end, view.offset, file, view.is_shared};
    }
}

/* Room for the event's payload, which is in the list then; null: there is none. */
static uint8_t *append_head(struct fl_event event) {
    struct shared *shared = events.shared;
    uint64_t padded = (event.bytes + 7ull) & ~7ull;
    if (shared->used + sizeof event + padded > MOST_BYTES) {
        shared->header.flags |= FL_EVENTS_OVERFLOW;
        return NULL;
    }
    event.thread = traced_thread();
    uint8_t *end = shared->list + shared->used;
    memset(end + sizeof event + (padded == 0 ? 0 : padded - 8), 0, padded == 0 ? 0 : 8);
    memcpy(end, &event, sizeof event);
    shared->used += sizeof event + padded;
    shared->header.count++;
    return end + sizeof event;
}

static void append(struct fl_event event, const void *payload) {
    uint8_t *room = append_head(event);
    if (room != NULL && payload != NULL)
        memcpy(room, payload, event.bytes);
}

/* The parts of [address, address + bytes) that are PM, as they are in memory. */
static void append_stores(enum fl_event_store kind, uintptr_t address, uint64_t bytes, struct fl_place place) {
    for (size_t i = 0; i < events.span_count; i++) {
        const struct span *span = &events.spans[i];
        uintptr_t from = address > span->start ? address : span->start;
        uintptr_t to = address + bytes < span->end ? address + bytes : span->end;
        if (from < to)
            append((struct fl_event){.kind = FL_EVENT_STORE,
                                     .detail = (uint8_t)kind,
                                     .file = span->file,
                                     .offset = span->offset + (from - span->start),
                                     .bytes = (uint32_t)(to - from),
                                     .site = place.site,
                                     .module = place.module},
                   (const void *)from);
    }
}

static void append_pieces(uintptr_t address, uint64_t bytes, struct fl_place place) {
    for (uintptr_t end = address + bytes, next; address < end; address = next) {
        next = (address & ~7ul) + 8;
        append_stores(FL_STORED_PLAIN, address, (next < end ? next : end) - address, place);
    }
}

/* The store that waits has been made by now. */
static void settle(void) {
    uint64_t bytes = events.waiting.bytes;
    events.waiting.bytes = 0;
    if (bytes == 0)
        return;
    if (events.waiting.is_in_pieces)
        append_pieces(events.waiting.address, bytes, events.waiting.place);
    else
        append_stores(events.waiting.kind, events.waiting.address, bytes, events.waiting.place);
}

static struct fl_place place_in(uint32_t module, uintptr_t start, uintptr_t address) {
    uintptr_t offset = address - start;
    bool is_known = module < FL_MOST_MODULES && offset < UINT32_MAX && offset > FL_SITE_CONTENT;
    return is_known ? (struct fl_place){(uint32_t)offset, module} : (struct fl_place){FL_SITE_UNKNOWN, 0};
}

/* The call's own address: what a return address points behind. Hooks are called by the adapter and by libraries that were built with
 * hooks; under a tracer any library may call. */
struct fl_place events_place(const void *caller) {
    uintptr_t address = (uintptr_t)caller - 1;
    Dl_info found;
    if (address >= events.adapter && address < events.adapter_end)
        return place_in(0, events.adapter, address);
    if (address < library.start || address >= library.end) {
        if (dladdr((const void *)address, &found) == 0)
            return (struct fl_place){FL_SITE_UNKNOWN, 0};
        library.start = (uintptr_t)found.dli_fbase;
        library.end = end_of(library.start);
        library.number = modules_number(found.dli_fname);
    }
    return place_in(library.number, library.start, address);
}

static bool is_pm(uintptr_t address, uint64_t bytes) {
    for (size_t i = 0; i < events.span_count; i++)
        if (address < events.spans[i].end && address + bytes > events.spans[i].start)
            return true;
    return false;
}

static void wait_for(enum fl_event_store kind, const void *address, uint64_t bytes, const void *caller) {
    settle();
    events.waiting.address = (uintptr_t)address;
    events.waiting.bytes = bytes;
    events.waiting.place = events_place(caller);
    events.waiting.kind = kind;
    events.waiting.is_in_pieces = events.waiting.is_by_compiler = false;
}

void events_will_store(const void *address, uint64_t bytes, bool is_in_pieces, const void *caller) {
    wait_for(FL_STORED_PLAIN, address, bytes, caller);
    events.waiting.is_in_pieces = is_in_pieces;
    events.waiting.is_by_compiler = is_pm((uintptr_t)address, 1) && is_pm((uintptr_t)address + bytes - 1, 1);
    if (events.waiting.is_by_compiler)
        memcpy(events.waiting.before, address, bytes < MOST_COMPARED ? bytes : MOST_COMPARED);
}

/* The store that waits is this one, or this is a part of it: it was not made yet. */
static bool is_waiting(uintptr_t address, uint64_t bytes) {
    uint64_t at = address - events.waiting.address;
    bool is_part = events.waiting.bytes > 0 && at < events.waiting.bytes && bytes <= events.waiting.bytes - at;
    if (!is_part || !events.waiting.is_by_compiler)
        return false;
    uint64_t known = at < MOST_COMPARED ? MOST_COMPARED - at : 0;
    return memcmp(events.waiting.before + at, (const void *)address, bytes < known ? bytes : known) == 0;
}

void events_will_execute_store(const void *address, uint64_t bytes, const void *caller) {
    if (!is_waiting((uintptr_t)address, bytes))
        wait_for(FL_STORED_PLAIN, address, bytes, caller);
}

void events_will_stream(const void *address, uint64_t bytes, const void *caller) {
    wait_for(FL_STORED_STREAM, address, bytes, caller);
}

static void append_fence(enum fl_event_fence kind, struct fl_place place) {
    append((struct fl_event){.kind = FL_EVENT_FENCE, .detail = (uint8_t)kind, .site = place.site, .module = place.module}, NULL);
}

void events_will_exchange(const void *address, uint64_t bytes, bool is_stored, const void *caller) {
    settle();
    if (is_stored && is_pm((uintptr_t)address, bytes))
        wait_for(FL_STORED_RMW, address, bytes, caller);
    else
        append_fence(FL_FENCED_LOCKED, events_place(caller));
}

void events_stored(const void *address, uint64_t bytes, const void *caller) {
    settle();
    append_stores(FL_STORED_PLAIN, (uintptr_t)address, bytes, events_place(caller));
}

void events_exchanged(const void *address, uint64_t bytes, bool is_stored, const void *caller) {
    settle();
    struct fl_place place = events_place(caller);
    uint32_t before = events.shared->header.count;
    if (is_stored)
        append_stores(FL_STORED_RMW, (uintptr_t)address, bytes, place);
    if (events.shared->header.count == before)
        append_fence(FL_FENCED_LOCKED, place);
}

void events_filled(const void *address, uint64_t bytes) {
    settle();
    append_stores(FL_STORED_CONTENT, (uintptr_t)address, bytes, (struct fl_place){FL_SITE_CONTENT, 0});
    append_fence(FL_FENCED_SFENCE, (struct fl_place){FL_SITE_CONTENT, 0});
}

void events_flushed(enum fl_event_flush kind, const void *address, const void *caller) {
    struct fl_place place = events_place(caller);
    settle();
    for (size_t i = 0; i < events.span_count; i++) {
        const struct span *span = &events.spans[i];
        if (span->start <= (uintptr_t)address && (uintptr_t)address < span->end)
            append((struct fl_event){.kind = FL_EVENT_FLUSH,
                                     .detail = (uint8_t)kind,
                                     .file = span->file,
                                     .offset = span->offset + ((uintptr_t)address - span->start),
                                     .site = place.site,
                                     .module = place.module},
                   NULL);
    }
}

void events_fenced(enum fl_event_fence kind, const void *caller) {
    settle();
    append_fence(kind, events_place(caller));
}

void events_file(enum fl_event_effect effect, uint64_t offset, uint64_t bytes, const char *path, const char *new_path) {
    char payload[sizeof bytes + 2 * PATH_MAX];
    if (!events_is_on)
        return;
    settle();
    size_t length = strlen(path) + 1, new_length = new_path == NULL ? 0 : strlen(new_path) + 1;
    memcpy(payload, &bytes, sizeof bytes);
    memcpy(payload + sizeof bytes, path, length);
    if (new_path != NULL)
        memcpy(payload + sizeof bytes + length, new_path, new_length);
    append((struct fl_event){.kind = FL_EVENT_FILE,
                             .detail = (uint8_t)effect,
                             .file = FL_FIRST_NEW_FILE + events.made_count,
                             .offset = offset,
                             .bytes = (uint32_t)(sizeof bytes + length + new_length)},
           payload);
}

/* The number of the file behind the descriptor; NO_FILE: none of the heap. One that cannot be numbered is said. */
static uint32_t file_behind(int fd) {
    char path[PATH_MAX];
    struct stat info;
    if (!events_is_on || syscall(SYS_fstat, fd, &info) != 0 || !S_ISREG(info.st_mode))
        return NO_FILE;
    uint32_t file = events_file_number(vfs_file_number(fd), info.st_ino);
    if (file == NO_FILE && vfs_heap_path(fd, path))
        events_files_changed();
    return file;
}

void events_wrote(int fd, uint64_t offset, const struct iovec *parts, uint64_t bytes, const void *caller) {
    uint32_t file = file_behind(fd);
    if (file == NO_FILE)
        return;
    settle();
    if (bytes > UINT32_MAX) {
        events.shared->header.flags |= FL_EVENTS_OVERFLOW;
        return;
    }
    struct fl_place place = events_place(caller);
    uint8_t *room = append_head((struct fl_event){.kind = FL_EVENT_WRITE,
                                                  .file = file,
                                                  .offset = offset,
                                                  .bytes = (uint32_t)bytes,
                                                  .site = place.site,
                                                  .module = place.module});
    for (; room != NULL && bytes > 0; parts++) {
        uint64_t part = parts->iov_len < bytes ? parts->iov_len : bytes;
        memcpy(room, parts->iov_base, part);
        room += part;
        bytes -= part;
    }
}

static void append_sync(uint32_t file, uint64_t offset, uint64_t bytes, struct fl_place place) {
    append((struct fl_event){.kind = FL_EVENT_SYNC,
                             .file = file,
                             .offset = offset,
                             .bytes = sizeof bytes,
                             .site = place.site,
                             .module = place.module},
           &bytes);
}

void events_synced_file(int fd, uint64_t offset, uint64_t bytes, const void *caller) {
    uint32_t file = file_behind(fd);
    if (file == NO_FILE)
        return;
    settle();
    append_sync(file, offset, bytes, events_place(caller));
}

void events_synced(const void *address, uint64_t bytes, const void *caller) {
    if (!events_is_on)
        return;
    settle();
    for (size_t i = 0; i < events.span_count; i++) {
        const struct span *span = &events.spans[i];
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        uintptr_t from = start > span->start ? start : span->start, to = end < span->end ? end : span->end;
        if (from < to && span->is_shared)
            append_sync(span->file, span->offset + (from - span->start), to - from, events_place(caller));
    }
}

void events_filled_by_kernel(const void *address, uint64_t bytes, const void *caller) {
    if (!events_is_by_hooks)
        return;
    settle();
    append_stores(FL_STORED_PLAIN, (uintptr_t)address, bytes, events_place(caller));
}

void events_file_made(uint64_t inode, const char *path) {
    if (!events_is_on)
        return;
    if (events.made_count == MOST_MADE) {
        events.shared->header.flags |= FL_EVENTS_OVERFLOW;
        return;
    }
    events_file(FL_DID_CREATE, 0, 0, path, NULL);
    events.made[events.made_count++] = inode;
}

uint32_t events_operation_begins(uint8_t kind, uint32_t slot, uint64_t bytes) {
    settle();
    uint32_t index = events.index++, object = index + 1;
    append(
        (struct fl_event){
            .kind = FL_EVENT_BEGIN, .detail = (uint8_t)kind, .file = slot, .offset = bytes, .bytes = sizeof object, .site = index},
        &object);
    return index;
}

void events_operation_returned(uint8_t kind, uint32_t index, int status) {
    settle();
    append((struct fl_event){.kind = FL_EVENT_RETURN, .detail = (uint8_t)kind, .file = (uint32_t)status, .site = index}, NULL);
}
