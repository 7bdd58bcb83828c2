/* SPDX-License-Identifier: Apache-2.0
 *
 * Which hot units of the crash image a run read (loads.h). All of it rests on one bit a unit, `undecided`: the unit is hot, and
 * this run neither depends on what the crash left in it yet, nor has stored to all of it. An access asks for that bit before it
 * is made:
 *
 *     read      of undecided units: they are listed, and undecided no more
 *     written   whole units are undecided no more; of a unit written in part, the rest is still the crash's: it is read first
 *     scanned   by the runner itself, for contents: listed as that, and still undecided for the target
 *
 * To miss a read would be wrong; a read too many costs time and nothing else, and so does a store that is not noticed. So no
 * file operation decides anything, and a unit is decided by stores only where they are certain.
 *
 * The bits and the list lie in memory that the server shares with its lives. Before each run the server sets them from its own
 * set of hot units, so nothing that a life did to them matters later. A copy made afresh shows the crash's bytes again: all is
 * undecided but what is listed.
 */
#include "runner.h"
#include "loads.h"
#include "planted.h"
#include "vfs.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_LOADS (1u << 20)     /* 16 MiB of list; a recovery that reads more hot units is no recovery to explore by loads */
#define MOST_UNITS (1ull << 29)   /* of the hot files: 4 GiB; 64 MiB of bits for each set */
#define TEXT_BYTES 256u
#define MOST_SPANS 64u

struct shared {
    struct fl_loads_header header;
    struct fl_load loads[MOST_LOADS];
    char text[TEXT_BYTES]; /* not where the answer has it: behind the last load */
};

struct hot_file {
    uint32_t number;
    uint64_t first_bit, units; /* bit first_bit + u is unit u */
};

/* Where hot units are in this process's memory. */
struct span {
    uintptr_t start, end;
    uint64_t first_unit;         /* at start */
    const struct hot_file *file;
    bool is_shared;              /* stores reach the file */
};

static struct {
    struct shared *shared;
    uint64_t *hot, *undecided, *unscanned;
    struct hot_file *files;
    size_t file_count;
    uint64_t unit_count;
    uint32_t life;
    bool is_hooked, is_recording, is_guarded, is_every;
    struct span spans[MOST_SPANS];
    size_t span_count;
} loads;

uintptr_t loads_near;
uint64_t loads_near_bytes;

/* ---- the server's part -------------------------------------------------------------------------------------------------- */

static void *map_memory(uint64_t bytes, int kind) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for the list of loads (%llu MiB)", (unsigned long long)bytes >> 20);
    return memory;
}

void loads_map(void) {
    loads.shared = map_memory(sizeof *loads.shared, MAP_SHARED);
    loads.hot = map_memory(MOST_UNITS / 8, MAP_PRIVATE);
    loads.undecided = map_memory(MOST_UNITS / 8, MAP_SHARED);
    loads.unscanned = map_memory(MOST_UNITS / 8, MAP_SHARED);
}

static size_t used_bytes(void) { return (loads.unit_count + 63) / 64 * 8; }

static struct hot_file *hot_file(uint32_t number) {
    for (size_t i = 0; i < loads.file_count; i++)
        if (loads.files[i].number == number)
            return &loads.files[i];
    return NULL;
}

static void add_hot_file(const struct fl_watch *watch) {
    struct hot_file *file = hot_file(watch->file);
    uint64_t units = watch->first + watch->count;
    if (file == NULL) {
        loads.files = allocate_or_fail(loads.files, (loads.file_count + 1) * sizeof *loads.files);
        file = &loads.files[loads.file_count++];
        *file = (struct hot_file){.number = watch->file};
    }
    file->units = units > file->units ? units : file->units;
}

static void set_bits(uint64_t *bits, uint64_t first, uint64_t end) {
    for (; first < end && first % 64 != 0; first++)
        bits[first / 64] |= 1ull << first % 64;
    for (; first + 64 <= end; first += 64)
        bits[first / 64] = ~0ull;
    for (; first < end; first++)
        bits[first / 64] |= 1ull << first % 64;
}

bool loads_watch(const struct fl_watch *watches, size_t count) {
    memset(loads.hot, 0, used_bytes());
    loads.file_count = 0;
    loads.unit_count = 0;
    for (size_t i = 0; i < count; i++) {
        if (watches[i].first > MOST_UNITS || watches[i].count > MOST_UNITS)
            return false;
        add_hot_file(&watches[i]);
    }
    for (size_t i = 0; i < loads.file_count; i++) {
        loads.files[i].first_bit = loads.unit_count;
        loads.unit_count += (loads.files[i].units + 63) / 64 * 64;
        if (loads.unit_count > MOST_UNITS)
            return false;
    }
    for (size_t i = 0; i < count; i++) {
        uint64_t first = hot_file(watches[i].file)->first_bit + watches[i].first;
        set_bits(loads.hot, first, first + watches[i].count);
    }
    return true;
}

void loads_begin(uint64_t flags) {
    loads.is_recording = (flags & FL_RUN_LOADS) != 0;
    loads.is_guarded = loads.is_recording && (flags & FL_RUN_GUARDED) != 0;
    if (!loads.is_recording)
        return;
    loads.shared->header = (struct fl_loads_header){
        .version = FL_LOADS_VERSION,
        .flags = loads.is_hooked ? 0 : FL_LOADS_NOT_HOOKED,
    };
    loads.is_every = (flags & RUN_EVERY_ACCESS) != 0;
    memcpy(loads.undecided, loads.hot, used_bytes());
    memcpy(loads.unscanned, loads.hot, used_bytes());
}

void loads_life(uint32_t life) { loads.life = life; }

static uint32_t listed(void) {
    uint32_t count = loads.shared->header.count;
    return count < MOST_LOADS ? count : MOST_LOADS;
}

/* False: no life listed this, something overwrote it. */
static bool find_bit(const struct fl_load *load, uint64_t *bit) {
    const struct hot_file *file = hot_file(load->file);
    if (file == NULL || load->unit >= file->units)
        return false;
    *bit = file->first_bit + load->unit;
    return (loads.hot[*bit / 64] >> *bit % 64 & 1) != 0;
}

void loads_copy_is_fresh(void) {
    if (!loads.is_recording || planted("stale-decisions"))
        return;
    memcpy(loads.undecided, loads.hot, used_bytes());
    for (uint32_t i = 0; i < listed(); i++) {
        const struct fl_load *load = &loads.shared->loads[i];
        uint64_t bit;
        if (load->kind == FL_LOAD_TARGET && find_bit(load, &bit))
            loads.undecided[bit / 64] &= ~(1ull << bit % 64);
    }
}

const void *loads_answer(uint32_t *bytes) {
    struct fl_loads_header *header = &loads.shared->header;
    header->count = listed();
    for (uint32_t i = 0; i < header->count && !loads.is_every; i++) {
        uint64_t bit;
        if (!find_bit(&loads.shared->loads[i], &bit)) {
            loads_unknown(FL_LOADS_UNSEEN, "the target overwrote the list of loads");
            break;
        }
    }
    header->version = FL_LOADS_VERSION;
    header->text_bytes = (uint32_t)strnlen(loads.shared->text, TEXT_BYTES);
    header->text_bytes = (header->flags & FL_LOADS_UNSEEN) != 0 ? header->text_bytes : 0;
    uint32_t end = (uint32_t)(sizeof *header + header->count * sizeof(struct fl_load));
    memmove((uint8_t *)loads.shared + end, loads.shared->text, header->text_bytes);
    *bytes = end + header->text_bytes;
    return loads.shared;
}

/* ---- in a life ---------------------------------------------------------------------------------------------------------- */

void loads_is_hooked(void) { loads.is_hooked = true; }
bool loads_is_recording(void) { return loads.is_recording && vfs_is_active(); }

void loads_unknown(uint32_t flag, const char *text) {
    struct fl_loads_header *header = &loads.shared->header;
    if (flag == FL_LOADS_UNSEEN && (header->flags & FL_LOADS_UNSEEN) == 0)
        snprintf(loads.shared->text, TEXT_BYTES, "%s", text);
    header->flags |= flag;
}

void loads_follow(void) {
    struct vfs_view view;
    uintptr_t lowest = UINTPTR_MAX, highest = 0;
    loads.span_count = 0;
    loads_near_bytes = 0;
    for (size_t i = 0; loads_is_recording() && vfs_view(i, &view); i++) {
        if (loads.is_guarded)
            guard_close(&view);
        const struct hot_file *file = hot_file(view.file);
        if (file == NULL && !loads.is_guarded)
            continue;
        lowest = view.start < lowest ? view.start : lowest;
        highest = view.end > highest ? view.end : highest;
        if (file == NULL)
            continue;
        if (loads.span_count == MOST_SPANS) {
            loads_unknown(FL_LOADS_UNSEEN, "the target has more than 64 mappings of its heap");
            break;
        }
        loads.spans[loads.span_count++] = (struct span){view.start, view.end, view.offset / FL_UNIT_BYTES, file, view.is_shared};
    }
    if (highest > 0) {
        loads_near = lowest - FL_WIDEST_ACCESS;
        loads_near_bytes = highest - loads_near;
    }
}

enum { IS_LOAD = 1, IS_STORE = 2 }; /* of RUN_EVERY_ACCESS */

static void list(enum fl_load_kind kind, const struct hot_file *file, uint64_t unit) {
    struct fl_loads_header *header = &loads.shared->header;
    if (header->count >= MOST_LOADS)
        header->flags |= FL_LOADS_OVERFLOW;
    else
        loads.shared->loads[header->count++] =
            (struct fl_load){.kind = (uint8_t)kind, .life = (uint8_t)loads.life, .file = file->number, .unit = unit};
}

/* Units [first, end) of the file. */
static void list_units(enum fl_load_kind kind, const struct hot_file *file, uint64_t first, uint64_t end) {
    if (loads.is_every)
        return;
    end = file->first_bit + (end < file->units ? end : file->units);
    for (uint64_t at = file->first_bit + first; at < end; at++) {
        uint64_t *undecided = &loads.undecided[at / 64], *unscanned = &loads.unscanned[at / 64];
        uint64_t wanted = (kind == FL_LOAD_TARGET ? *undecided : *undecided & *unscanned) >> at % 64;
        if (wanted == 0) {
            at |= 63;
            continue;
        }
        at += (uint64_t)__builtin_ctzll(wanted);
        if (at >= end)
            break;
        *(kind == FL_LOAD_TARGET ? undecided : unscanned) &= ~(1ull << at % 64);
        list(kind, file, at - file->first_bit);
    }
}

/* Bytes [from, to) of the span, for tests. */
static void list_access(uint8_t kind, const struct span *span, uintptr_t from, uintptr_t to) {
    struct fl_loads_header *header = &loads.shared->header;
    for (; from < to; from += UINT16_MAX) {
        uint64_t bytes = to - from < UINT16_MAX ? to - from : UINT16_MAX;
        list((enum fl_load_kind)kind, span->file, span->first_unit * FL_UNIT_BYTES + (from - span->start));
        loads.shared->loads[header->count - 1].zero = (uint16_t)bytes;
    }
}

static void announce(uint8_t kind, const void *address, uint64_t bytes) {
    if (loads.is_guarded)
        guard_announce(address, bytes);
    for (size_t i = 0; loads.is_every && i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        list_access(kind, span, start > span->start ? start : span->start, end < span->end ? end : span->end);
    }
}

static void read_as(enum fl_load_kind kind, uintptr_t address, uint64_t bytes) {
    for (size_t i = 0; i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t from = address > span->start ? address : span->start;
        uintptr_t to = address + bytes < span->end ? address + bytes : span->end;
        if (from < to)
            list_units(kind, span->file, span->first_unit + (from - span->start) / FL_UNIT_BYTES,
                       span->first_unit + (to - 1 - span->start) / FL_UNIT_BYTES + 1);
    }
}

void loads_open(const void *address, uint64_t bytes) {
    if (loads.is_guarded)
        guard_open(address, bytes);
}

void loads_guarded(bool is_announced) {
    loads.shared->header.seen++;
    loads.shared->header.unseen += !is_announced;
}

void loads_read(const void *address, uint64_t bytes) {
    announce(IS_LOAD, address, bytes);
    if (planted("first-unit-only"))
        bytes = 1;
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

void loads_stored(const void *address, uint64_t bytes) {
    announce(IS_STORE, address, bytes);
    if (planted("bit-field-is-whole"))
        loads_written(address, bytes);
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

void loads_looked_at(const void *address, uint64_t bytes) {
    loads_open(address, bytes);
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
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
        uint64_t unit = span->first_unit + (from - span->start) / FL_UNIT_BYTES;
        uint64_t end_unit = span->first_unit + (to - span->start) / FL_UNIT_BYTES;
        end_unit = end_unit < span->file->units ? end_unit : span->file->units;
        for (; unit < end_unit; unit++) {
            uint64_t bit = span->file->first_bit + unit;
            loads.undecided[bit / 64] &= ~(1ull << bit % 64);
        }
    }
}

void loads_read_file(int fd, uint64_t offset, uint64_t bytes) {
    const struct hot_file *file = loads_is_recording() ? hot_file(vfs_file_number(fd)) : NULL;
    if (file == NULL || bytes == 0)
        return;
    uint64_t end = offset + bytes < offset ? UINT64_MAX : offset + bytes;
    list_units(FL_LOAD_TARGET, file, offset / FL_UNIT_BYTES, (end - 1) / FL_UNIT_BYTES + 1);
}
