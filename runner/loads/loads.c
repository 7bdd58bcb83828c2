/* SPDX-License-Identifier: Apache-2.0
 *
 * Which hot units of the crash image a run reads (protocol.h). All of it rests on one bit for each unit, `undecided`: the unit is
 * hot, the run does not depend yet on what the crash left in it, and has not stored to all of it. Each access asks for that bit
 * before it is made:
 *
 *     read      undecided units are listed, and are undecided no more
 *     written   whole units are undecided no more; a unit that is written in part is read first, for the rest is the crash's
 *     scanned   by the runner itself, for contents: the unit is listed as that, and stays undecided for the target
 *
 * To miss a read would be wrong. A read too many costs time and nothing else, and so does a store that is not noticed. So no
 * file operation decides anything, and stores decide a unit only where they are certain.
 *
 * The bits and the list lie in memory that the server shares with its lives (hot.c, list.c). A copy made afresh shows the crash's bytes
 * again: all is undecided but what is listed.
 *
 * In-process, stores are noted here too before they are made, so that they can be taken back (undo.c).
 */
#include "loads/internal.h"
#include "base/traced.h"
#include "signals/signals.h"
#include "undo/undo.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

/* Of the limits. An access that is looked at costs 21 us instead of 7 ns, but a run takes a millisecond or a few, of a limit of a
 * second: one that a guard slows down by as much as it can takes some seconds of 200. One that reaches a limit all the same
 * says nothing, neither that it hangs nor that all is announced: the engine never judges a guarded run, and takes this one for
 * unknown. */
#define GUARDED_SLOWDOWN 200u
#define TRACED_SLOWDOWN 50u /* of the limits, under a tracer: all code runs some ten times as long, new code has to be translated */
#define MOST_SPANS 64u
#define SETTLED_AT_ONCE_BYTES 4096u /* a scan that asks may end soon */

/* Where hot units are in this process's memory. */
struct span {
    uintptr_t start, end;
    uint64_t first_unit; /* at start */
    const struct hot_file *file; /* null: none of its units is hot */
    uint32_t number;
    bool is_shared; /* stores reach the file */
    struct loads_window window;
};

static struct {
    uint32_t life;
    bool is_recording;
    struct span spans[MOST_SPANS];
    size_t span_count;
    const struct span *last_span; /* that was looked at; null: none */
} loads;

struct fl_hook_near fl_hook_near;
struct loads_window loads_window;
uint32_t loads_accesses;
bool loads_is_guarded;

/* ---- the server's part -------------------------------------------------------------------------------------------------- */

void loads_map(void) {
    list_map();
    units_map();
    loads_tail_map();
    guard_map();
    vfs_on_mappings(loads_follow);
}

void loads_begin(uint32_t flags, uint64_t seed) {
    loads_accesses = 0;
    loads_caller = NULL;
    loads_is_by_instruction = false;
    loads.is_recording = (flags & FL_RUN_LOADS) != 0;
    load_list->tail = MOST_LOADS;
    loads_is_guarded = loads.is_recording && (flags & FL_RUN_GUARDED) != 0;
    if (!loads.is_recording)
        return;
    if (loads_is_guarded)
        guard_begin_run(seed);
    list_begin();
    if (in_process.blind != NULL)
        loads_unknown(FL_LOADS_UNSEEN, in_process.blind);
    loads_is_every = (flags & FL_RUN_EVERY_ACCESS) != 0;
    units_begin();
}

uint64_t loads_slowdown(void) { return loads_is_guarded ? GUARDED_SLOWDOWN : is_traced ? TRACED_SLOWDOWN : 1; }

void loads_life(uint32_t life) { loads.life = life; }

void loads_copy_is_fresh(void) {
    if (!loads.is_recording)
        return;
    units_copy_hot(crash_units.undecided);
    crash_units.are_words_known = false;
    for (uint32_t i = 0; i < list_count(); i++) {
        const struct fl_load *load = &load_list->loads[i];
        uint64_t bit;
        if (load->kind == FL_LOAD_TARGET && units_find(load, &bit))
            crash_units.undecided[bit / 64] &= ~(1ull << bit % 64);
    }
}

/* ---- in a life ---------------------------------------------------------------------------------------------------------- */

bool loads_is_recording(void) { return loads.is_recording && vfs_is_active(); }

static void look_at(const struct span *span) {
    loads.last_span = span;
    loads_window = span == NULL ? (struct loads_window){0} : span->window;
}

/* As far as the span shows the image and bits: in-process only, where no thread runs that could see half a window. */
static void open_window(struct span *span) {
    const uint8_t *notes = inprocess_is_running() ? undo_notes(span->number) : NULL;
    if (notes == NULL || loads_is_guarded || loads_is_every)
        return;
    uint64_t offset = span->first_unit * FL_UNIT_BYTES, image = undo_image_bytes(span->number);
    uint64_t room = span->file == NULL ? MOST_UNITS : span->file->room, bytes = span->end - span->start;
    uint64_t shown = image > offset ? image - offset : 0, covered = room > span->first_unit ? room - span->first_unit : 0;
    bytes = bytes < shown ? bytes : shown;
    bytes = bytes < covered * FL_UNIT_BYTES ? bytes : covered * FL_UNIT_BYTES;
    const uint64_t *undecided =
        span->file == NULL ? crash_units.none : crash_units.undecided + (span->file->first_bit + span->first_unit) / 64;
    span->window = (struct loads_window){span->start, bytes, undecided, notes + offset / 64};
}

void loads_follow(void) {
    struct vfs_view view;
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    loads.span_count = 0;
    look_at(NULL);
    fl_hook_near.bytes = 0;
    events_follow();
    if (loads_is_guarded)
        guard_forget();
    bool is_undone = inprocess_is_running();
    if (is_undone && !kept_range(&lowest, &highest))
        return;
    for (size_t i = 0; (loads_is_recording() || is_undone) && vfs_view(i, &view); i++) {
        if (loads_is_guarded)
            guard_close(&view);
        const struct hot_file *file = loads_is_recording() ? units_file(view.file) : NULL;
        if (file == NULL && !loads_is_guarded && !is_undone && !events_are_recorded())
            continue;
        lowest = view.start < lowest ? view.start : lowest;
        highest = view.end > highest ? view.end : highest;
        if (file == NULL && !is_undone)
            continue;
        if (loads.span_count == MOST_SPANS) {
            inprocess_leave("has more than 64 mappings of its heap");
            loads_unknown(FL_LOADS_MAPPINGS, NULL);
            break;
        }
        struct span *span = &loads.spans[loads.span_count++];
        *span = (struct span){view.start, view.end, view.offset / FL_UNIT_BYTES, file, view.file, view.is_shared, {0}};
        open_window(span);
    }
    if (is_traced && !recording_follow(loads.life, loads_is_recording()))
        loads_unknown(FL_LOADS_MAPPINGS, NULL);
    if (highest > 0 && !is_traced) {
        fl_hook_near.start = lowest - FL_WIDEST_ACCESS;
        fl_hook_near.bytes = highest - fl_hook_near.start;
    }
}

enum { IS_LOAD = 1, IS_STORE = 2, IS_BY_INSTRUCTION = 4 }; /* of FL_RUN_EVERY_ACCESS */

/* Units [first, end) of the file. */
static void list_units(enum fl_load_kind kind, const struct hot_file *file, uint64_t first, uint64_t end) {
    if (loads_is_every || file == NULL)
        return;
    end = file->first_bit + (end < file->units ? end : file->units);
    for (uint64_t at = file->first_bit + first; at < end; at++) {
        uint64_t *undecided = &crash_units.undecided[at / 64], *unscanned = &crash_units.unscanned[at / 64];
        uint64_t wanted = (kind == FL_LOAD_TARGET ? *undecided : *undecided & *unscanned) >> at % 64;
        if (wanted == 0) {
            at |= 63;
            continue;
        }
        at += (uint64_t)__builtin_ctzll(wanted);
        if (at >= end)
            break;
        *(kind == FL_LOAD_TARGET ? undecided : unscanned) &= ~(1ull << at % 64);
        units_note_changed(at / 64);
        list_load(kind, loads.life, file->number, at - file->first_bit);
    }
}

/* Bytes [from, to) of the span, for tests. */
static void list_access(uint8_t kind, const struct span *span, uintptr_t from, uintptr_t to) {
    struct fl_loads_header *header = &load_list->header;
    for (; from < to; from += UINT16_MAX) {
        uint64_t bytes = to - from < UINT16_MAX ? to - from : UINT16_MAX;
        list_load((enum fl_load_kind)kind, loads.life, span->file->number, span->first_unit * FL_UNIT_BYTES + (from - span->start));
        load_list->loads[header->count - 1].zero = (uint16_t)bytes;
    }
}

static void announce(uint8_t kind, const void *address, uint64_t bytes) {
    kind |= loads_is_by_instruction ? IS_BY_INSTRUCTION : 0;
    if (loads_accesses++ >= LOADS_MOST_ACCESSES)
        inprocess_leave("makes more than 10 million accesses to PM");
    if (loads_is_guarded)
        guard_announce(address, bytes);
    for (size_t i = 0; loads_is_every && i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        if (span->file == NULL)
            continue;
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        list_access(kind, span, start > span->start ? start : span->start, end < span->end ? end : span->end);
    }
}

/* Of an access outside of all that the target has mapped: in a process of its own it would fault. */
static void leave_if_unmapped(uintptr_t address) {
    if (inprocess_is_running() && kept_is_unmapped(address))
        inprocess_leave("touches memory that it has unmapped");
}

static void read_as(enum fl_load_kind kind, uintptr_t address, uint64_t bytes) {
    bool is_mapped = false;
    for (size_t i = 0; i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t from = address > span->start ? address : span->start;
        uintptr_t to = address + bytes < span->end ? address + bytes : span->end;
        if (from >= to)
            continue;
        is_mapped = true;
        look_at(span);
        list_units(kind, span->file, span->first_unit + (from - span->start) / FL_UNIT_BYTES,
                   span->first_unit + (to - 1 - span->start) / FL_UNIT_BYTES + 1);
    }
    if (!is_mapped)
        leave_if_unmapped(address);
}

/* Before the store. */
static void note_store(const void *address, uint64_t bytes) {
    bool is_mapped = false;
    for (size_t i = 0; i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        uintptr_t from = start > span->start ? start : span->start, to = end < span->end ? end : span->end;
        is_mapped |= from < to;
        if (from < to && span->is_shared)
            undo_note(span->number, span->first_unit * FL_UNIT_BYTES + (from - span->start), to - from);
    }
    if (!is_mapped)
        leave_if_unmapped((uintptr_t)address);
}

void loads_open(const void *address, uint64_t bytes) {
    if (loads_is_guarded)
        guard_open(address, bytes);
}

void loads_filled(const void *address, uint64_t bytes) {
    loads_open(address, bytes);
    if (inprocess_is_running())
        note_store(address, bytes);
}

void loads_updated(const void *address, uint64_t bytes) {
    loads_read(address, bytes);
    if (inprocess_is_running())
        note_store(address, bytes);
}

/* The common case: nothing that any of the below is about. */
static bool is_listed(uintptr_t address, uint64_t bytes) {
    const struct span *span = loads.last_span;
    if (span == NULL || address < span->start || address + bytes > span->end || loads_is_guarded || loads_is_every)
        return false;
    if (loads_accesses++ >= LOADS_MOST_ACCESSES)
        return false;
    if (span->file == NULL)
        return true;
    uint64_t first = span->first_unit + (address - span->start) / FL_UNIT_BYTES;
    uint64_t last = span->first_unit + (address + bytes - 1 - span->start) / FL_UNIT_BYTES;
    if (last - first > 1 || last >= span->file->units)
        return first >= span->file->units;
    first += span->file->first_bit;
    last += span->file->first_bit;
    uint64_t of_first = crash_units.undecided[first / 64], of_last = crash_units.undecided[last / 64];
    return ((of_first >> first % 64 | of_last >> last % 64) & 1) == 0;
}

void loads_read(const void *address, uint64_t bytes) {
    if (is_listed((uintptr_t)address, bytes))
        return;
    announce(IS_LOAD, address, bytes);
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

void loads_stored(const void *address, uint64_t bytes) {
    announce(IS_STORE, address, bytes);
    if (inprocess_is_running())
        note_store(address, bytes);
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

void loads_looked_at(const void *address, uint64_t bytes) {
    loads_open(address, bytes);
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

/* Of the word that `first` lies in: the bits from there on, and before `end`. */
static uint64_t bits_of_word(uint64_t first, uint64_t end) {
    uint64_t in_word = (first | 63) + 1 - first;
    return (end - first < in_word ? (1ull << (end - first)) - 1 : ~0ull >> (64 - in_word)) << first % 64;
}

/* The first bit from `at` on, before `end`, that is set in both; `end`: none. */
static uint64_t first_in_both(const uint64_t *one, const uint64_t *other, uint64_t at, uint64_t end) {
    while (at < end) {
        uint64_t both = (one[at / 64] & other[at / 64]) >> at % 64;
        if (both != 0)
            return at + (uint64_t)__builtin_ctzll(both) < end ? at + (uint64_t)__builtin_ctzll(both) : end;
        at = (at | 63) + 1;
    }
    return end;
}

uint64_t loads_settled_bytes(const void *address, uint64_t bytes) {
    const struct span *span = loads.last_span;
    uintptr_t start = (uintptr_t)address;
    if (span == NULL || start < span->start || start >= span->end || bytes == 0 || loads_is_guarded || loads_is_every)
        return 0;
    bytes = bytes < span->end - start ? bytes : span->end - start;
    bytes = bytes < SETTLED_AT_ONCE_BYTES ? bytes : SETTLED_AT_ONCE_BYTES;
    const struct hot_file *file = span->file;
    if (file == NULL)
        return bytes;
    uint64_t of_span = file->first_bit + span->first_unit, hot_end = file->first_bit + file->units;
    uint64_t first = of_span + (start - span->start) / FL_UNIT_BYTES;
    uint64_t end = of_span + (start + bytes - 1 - span->start) / FL_UNIT_BYTES + 1;
    end = end < hot_end ? end : hot_end;
    uint64_t hot = first_in_both(crash_units.undecided, crash_units.unscanned, first, end);
    if (hot >= end)
        return bytes;
    uintptr_t hot_address = span->start + (hot - of_span) * FL_UNIT_BYTES;
    return hot_address > start ? hot_address - start : 0;
}

void loads_scanned(const void *address, uint64_t bytes) {
    loads_open(address, bytes);
    read_as(FL_LOAD_CONTENTS, (uintptr_t)address, bytes);
}

void loads_written(const void *address, uint64_t bytes) {
    uintptr_t start = (uintptr_t)address, end = start + bytes;
    uintptr_t first = (start + FL_UNIT_BYTES - 1) & ~(uintptr_t)(FL_UNIT_BYTES - 1), last = end & ~(uintptr_t)(FL_UNIT_BYTES - 1);
    if (bytes == 0)
        return;
    announce(IS_STORE, address, bytes);
    if (inprocess_is_running())
        note_store(address, bytes);
    if (first > start)
        read_as(FL_LOAD_TARGET, start, 1);
    if (end > last)
        read_as(FL_LOAD_TARGET, end - 1, 1);
    for (size_t i = 0; i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t from = first > span->start ? first : span->start, to = last < span->end ? last : span->end;
        if (from >= to)
            continue;
        if (!span->is_shared) { /* the file keeps what it has */
            read_as(FL_LOAD_TARGET, from, to - from);
            continue;
        }
        if (span->file == NULL)
            continue;
        uint64_t unit = span->first_unit + (from - span->start) / FL_UNIT_BYTES;
        uint64_t end_unit = span->first_unit + (to - span->start) / FL_UNIT_BYTES;
        end_unit = end_unit < span->file->units ? end_unit : span->file->units;
        uint64_t bit = span->file->first_bit + unit, end_bit = span->file->first_bit + end_unit;
        for (; bit < end_bit; bit = (bit | 63) + 1) {
            uint64_t written = bits_of_word(bit, end_bit);
            if ((crash_units.undecided[bit / 64] & written) == 0)
                continue;
            crash_units.undecided[bit / 64] &= ~written;
            units_note_changed(bit / 64);
        }
    }
}

void loads_read_file(int fd, uint64_t offset, uint64_t bytes) {
    const struct hot_file *file = loads_is_recording() ? units_file(vfs_file_number(fd)) : NULL;
    if (file == NULL || bytes == 0)
        return;
    uint64_t end = offset + bytes < offset ? UINT64_MAX : offset + bytes;
    list_units(FL_LOAD_TARGET, file, offset / FL_UNIT_BYTES, (end - 1) / FL_UNIT_BYTES + 1);
}
