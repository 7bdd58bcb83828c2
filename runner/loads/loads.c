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
 * The bits and the list lie in memory that the server shares with its lives. Before each run they are set from the set of hot
 * units, so nothing that a life did to them matters later: all words with hot units, or for in-process runs, which are short, only
 * those that the last run changed. (After a run that listed what is not hot, all words.) The set of hot units itself can be written
 * only while it is set. A copy made afresh shows the crash's bytes again: all is undecided but what is listed.
 *
 * In-process, stores are noted here too before they are made, so that they can be taken back (undo.c).
 */
#include "runner.h"
#include "inprocess.h"
#include "loads.h"
#include "planted.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

#define MOST_LOADS (1u << 20)     /* 16 MiB of list; a recovery that reads more hot units is no recovery to explore by loads */
#define MOST_UNITS (1ull << 29)   /* of the hot files: 4 GiB; 64 MiB of bits for each set */
#define TEXT_BYTES 256u
/* Of the limits. An access that is looked at costs 21 us instead of 7 ns, but a run takes a millisecond or a few, of a limit of a
 * second: one that a guard slows down by as much as it can takes some seconds of 200. One that reaches a limit all the same
 * says nothing, neither that it hangs nor that all is announced: the engine never judges a guarded run, and takes this one for
 * unknown. */
#define GUARDED_SLOWDOWN 200u
#define MOST_SPANS 64u
#define MOST_HOT_FILES 65536u
#define MOST_PARTS 4096u
#define SETTLED_AT_ONCE_BYTES 4096u /* a scan that asks may end soon */
#define MOST_CHANGED 65536u /* words of bits; after more of them all are set again */

struct shared {
    struct fl_loads_header header;
    struct fl_load loads[MOST_LOADS];
    uint32_t rest; /* the first load of the rest of the run; MOST_LOADS: there is none */
    char text[TEXT_BYTES]; /* not where the answer has it: behind the last load */
};

struct hot_file {
    uint32_t number;
    uint64_t first_bit, units; /* bit first_bit + u is unit u */
    uint64_t room; /* units that have a bit; those from `units` on are never hot */
};

/* What may be hot; server and worker both set it. */
struct hot_set {
    uint64_t number; /* that the engine gave it */
    uint64_t unit_count;
    size_t file_count, part_count;
    struct hot_file files[MOST_HOT_FILES];
    struct {
        uint64_t first, end;
    } parts[MOST_PARTS]; /* words; there are no bits in others */
    uint64_t bits[MOST_UNITS / 64];
};

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
    struct shared *shared;
    struct hot_set *hot;
    uint64_t *undecided, *unscanned;
    const uint64_t *none; /* of as many bits: where nothing is hot */
    uint64_t changed[MOST_CHANGED]; /* words of undecided and unscanned that are not those of hot */
    size_t changed_count;
    bool are_words_known; /* all others are */
    uint64_t *were_undecided, *were_unscanned; /* when the rest of the run began: its list is too long until it ends */
    uint32_t opened; /* loads that were listed when life 0 had opened the heap */
    bool are_bits_spoilt; /* the last run set bits of what is not hot */
    uint32_t life;
    bool is_hooked, is_recording, is_every;
    struct span spans[MOST_SPANS];
    size_t span_count;
    const struct span *last_span; /* that was looked at; null: none */
} loads;

struct fl_hook_near fl_hook_near;
struct loads_window loads_window;
uint32_t loads_accesses;
bool loads_is_guarded;
const void *loads_caller;

/* ---- the server's part -------------------------------------------------------------------------------------------------- */

static void *map_memory(uint64_t bytes, int kind) {
    void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, kind | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (memory == MAP_FAILED)
        fail(EXIT_INFRASTRUCTURE, "no memory for the list of loads (%llu MiB)", (unsigned long long)bytes >> 20);
    return memory;
}

void loads_map(void) {
    loads.shared = map_memory(sizeof *loads.shared, MAP_SHARED);
    loads.hot = map_memory(sizeof *loads.hot, MAP_SHARED);
    loads.undecided = map_memory(MOST_UNITS / 8, MAP_SHARED);
    loads.unscanned = map_memory(MOST_UNITS / 8, MAP_SHARED);
    loads.none = map_memory(MOST_UNITS / 8, MAP_PRIVATE);
    loads.were_undecided = map_memory(MOST_UNITS / 8, MAP_SHARED);
    loads.were_unscanned = map_memory(MOST_UNITS / 8, MAP_SHARED);
    guard_map();
}

static void copy_parts(uint64_t *to) {
    for (size_t i = 0; i < loads.hot->part_count; i++) {
        uint64_t first = loads.hot->parts[i].first, end = loads.hot->parts[i].end;
        memcpy(to + first, loads.hot->bits + first, (end - first) * sizeof *to);
    }
}

static void clear_parts(uint64_t *bits) {
    for (size_t i = 0; i < loads.hot->part_count; i++)
        memset(bits + loads.hot->parts[i].first, 0, (loads.hot->parts[i].end - loads.hot->parts[i].first) * sizeof *bits);
}

static void clear_spoilt_bits(void) {
    if (!loads.are_bits_spoilt)
        return;
    memset(loads.undecided, 0, loads.hot->unit_count / 8);
    memset(loads.unscanned, 0, loads.hot->unit_count / 8);
    loads.are_bits_spoilt = loads.are_words_known = false;
}

/* Bits [first, end) are set. */
static void add_part(struct hot_set *hot, uint64_t first, uint64_t end) {
    first /= 64;
    end = (end + 63) / 64;
    bool is_next =
        hot->part_count > 0 && hot->parts[hot->part_count - 1].first <= first && first <= hot->parts[hot->part_count - 1].end;
    if (!is_next && hot->part_count < MOST_PARTS) {
        hot->parts[hot->part_count].first = first;
        hot->parts[hot->part_count++].end = end;
        return;
    }
    uint64_t *last_first = &hot->parts[hot->part_count - 1].first, *last_end = &hot->parts[hot->part_count - 1].end;
    *last_first = first < *last_first ? first : *last_first;
    *last_end = end > *last_end ? end : *last_end;
}

static struct hot_file *hot_file(uint32_t number) {
    for (size_t i = 0; i < loads.hot->file_count; i++)
        if (loads.hot->files[i].number == number)
            return &loads.hot->files[i];
    return NULL;
}

static bool add_hot_file(const struct fl_watch *watch) {
    struct hot_file *file = hot_file(watch->file);
    uint64_t units = watch->first + watch->count;
    if (file == NULL) {
        if (loads.hot->file_count == MOST_HOT_FILES)
            return false;
        file = &loads.hot->files[loads.hot->file_count++];
        *file = (struct hot_file){.number = watch->file};
    }
    file->units = units > file->units ? units : file->units;
    return true;
}

static void set_bits(uint64_t *bits, uint64_t first, uint64_t end) {
    for (; first < end && first % 64 != 0; first++)
        bits[first / 64] |= 1ull << first % 64;
    for (; first + 64 <= end; first += 64)
        bits[first / 64] = ~0ull;
    for (; first < end; first++)
        bits[first / 64] |= 1ull << first % 64;
}

static void protect_hot(int protection) {
    if (syscall(SYS_mprotect, loads.hot, sizeof *loads.hot, protection) != 0)
        fail(EXIT_INFRASTRUCTURE, "the set of hot units cannot be protected");
}

static uint64_t whole_words(uint64_t units) { return (units + 63) / 64 * 64; }

/* False: there is not room for all. has_files: also for what of the files is not hot, so that windows can be wide. */
static bool give_room(struct hot_set *hot, bool has_files, uint64_t (*bytes_of)(uint32_t file)) {
    hot->unit_count = 0;
    for (size_t i = 0; i < hot->file_count; i++) {
        struct hot_file *file = &hot->files[i];
        uint64_t all = has_files ? bytes_of(file->number) / FL_UNIT_BYTES : 0;
        file->first_bit = hot->unit_count;
        file->room = whole_words(file->units > all ? file->units : all);
        hot->unit_count += file->room;
        if (hot->unit_count > MOST_UNITS)
            return false;
    }
    return true;
}

static bool set_hot(const struct fl_watch *watches, size_t count, uint64_t (*bytes_of)(uint32_t file)) {
    struct hot_set *hot = loads.hot;
    clear_spoilt_bits();
    clear_parts(hot->bits);
    clear_parts(loads.undecided);
    clear_parts(loads.unscanned);
    loads.are_words_known = false;
    hot->file_count = hot->part_count = 0;
    for (size_t i = 0; i < count; i++)
        if (watches[i].first > MOST_UNITS || watches[i].count > MOST_UNITS || !add_hot_file(&watches[i]))
            return false;
    if (!give_room(hot, true, bytes_of) && !give_room(hot, false, bytes_of))
        return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t first = hot_file(watches[i].file)->first_bit + watches[i].first;
        set_bits(hot->bits, first, first + watches[i].count);
        add_part(hot, first, first + watches[i].count);
    }
    return true;
}

bool loads_watch(uint64_t number, const struct fl_watch *watches, size_t count, uint64_t (*bytes_of)(uint32_t file)) {
    protect_hot(PROT_READ | PROT_WRITE);
    bool is_set = set_hot(watches, count, bytes_of);
    loads.hot->number = number;
    protect_hot(PROT_READ);
    return is_set;
}

/* Those words of the bits that may have changed, or all. */
static void set_words(void) {
    clear_spoilt_bits();
    if (!loads.are_words_known || !inprocess_is_running() || loads.changed_count >= MOST_CHANGED) {
        copy_parts(loads.undecided);
        copy_parts(loads.unscanned);
    } else
        for (size_t i = 0; i < loads.changed_count; i++) {
            uint64_t word = loads.changed[i];
            loads.undecided[word] = loads.unscanned[word] = loads.hot->bits[word];
        }
    loads.changed_count = 0;
    loads.are_words_known = inprocess_is_running();
}

void loads_forget_words(void) { loads.are_words_known = false; }

void loads_begin(uint64_t flags, uint64_t seed) {
    loads_accesses = 0;
    loads_caller = NULL;
    loads.is_recording = (flags & FL_RUN_LOADS) != 0;
    loads.shared->rest = MOST_LOADS;
    loads_is_guarded = loads.is_recording && (flags & FL_RUN_GUARDED) != 0;
    if (!loads.is_recording)
        return;
    if (loads_is_guarded)
        guard_begin_run(seed);
    loads.shared->header = (struct fl_loads_header){
        .version = FL_LOADS_VERSION,
        .flags = loads.is_hooked ? 0 : FL_LOADS_NOT_HOOKED,
    };
    loads.is_every = (flags & RUN_EVERY_ACCESS) != 0;
    set_words();
}

uint64_t loads_slowdown(void) { return loads_is_guarded ? GUARDED_SLOWDOWN : 1; }

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
    return (loads.hot->bits[*bit / 64] >> *bit % 64 & 1) != 0;
}

void loads_copy_is_fresh(void) {
    if (!loads.is_recording || planted("stale-decisions"))
        return;
    copy_parts(loads.undecided);
    loads.are_words_known = false;
    for (uint32_t i = 0; i < listed(); i++) {
        const struct fl_load *load = &loads.shared->loads[i];
        uint64_t bit;
        if (load->kind == FL_LOAD_TARGET && find_bit(load, &bit))
            loads.undecided[bit / 64] &= ~(1ull << bit % 64);
    }
}

/* ---- the rest of a run (rests.c) -------------------------------------------------------------------------------------------- */

uint64_t loads_watch_number(void) { return loads.hot->number; }
bool loads_are_known(void) { return (loads.shared->header.flags & FL_LOADS_UNKNOWN) == 0; }

static bool is_set(const uint64_t *bits, uint64_t bit) { return (bits[bit / 64] >> bit % 64 & 1) != 0; }

static void keep_bits(void) {
    for (size_t i = 0; i < loads.hot->part_count; i++) {
        uint64_t first = loads.hot->parts[i].first, bytes = (loads.hot->parts[i].end - first) * sizeof *loads.undecided;
        memcpy(loads.were_undecided + first, loads.undecided + first, bytes);
        memcpy(loads.were_unscanned + first, loads.unscanned + first, bytes);
    }
}

static uint64_t decided_since_kept(void) {
    uint64_t count = 0;
    for (size_t i = 0; i < loads.hot->part_count; i++)
        for (uint64_t word = loads.hot->parts[i].first; word < loads.hot->parts[i].end; word++)
            count += (uint64_t)__builtin_popcountll(loads.were_undecided[word] & ~loads.undecided[word]);
    return count;
}

void loads_begin_rest(void) {
    loads.opened = listed();
    keep_bits();
}

bool loads_go_on_with_rest(void) {
    if (decided_since_kept() != listed() - loads.opened)
        return false;
    loads.shared->rest = listed();
    keep_bits();
    return true;
}

void loads_list_rest(void) {
    copy_parts(loads.undecided);
    copy_parts(loads.unscanned);
}

bool loads_is_hot(uint32_t number, uint64_t unit) {
    const struct hot_file *file = hot_file(number);
    return file != NULL && unit < file->units && is_set(loads.hot->bits, file->first_bit + unit);
}

const struct fl_load *loads_rest(uint32_t *count) {
    *count = listed() - loads.shared->rest;
    return &loads.shared->loads[loads.shared->rest];
}

void loads_add_rest(const struct fl_load *rest, uint32_t count) {
    struct fl_loads_header *header = &loads.shared->header;
    if (count > MOST_LOADS - listed())
        header->flags |= FL_LOADS_OVERFLOW;
    count = count < MOST_LOADS - listed() ? count : MOST_LOADS - listed();
    memcpy(&loads.shared->loads[listed()], rest, count * sizeof *rest);
    header->count = listed() + count;
}

/* It is listed without the units that loads_list_rest made undecided again, too; and once. */
static bool is_new(const struct fl_load *load) {
    uint64_t bit;
    if (!find_bit(load, &bit))
        return true;
    bool is_by_target = load->kind == FL_LOAD_TARGET;
    if (!is_set(loads.were_undecided, bit) || (!is_by_target && !is_set(loads.were_unscanned, bit)))
        return false;
    (is_by_target ? loads.were_undecided : loads.were_unscanned)[bit / 64] &= ~(1ull << bit % 64);
    return true;
}

void loads_end_rest(void) {
    struct fl_load *list = loads.shared->loads;
    uint32_t end = loads.shared->rest;
    if (end >= listed())
        return;
    for (uint32_t i = end; i < listed(); i++)
        if (is_new(&list[i]))
            list[end++] = list[i];
    loads.shared->header.count = end;
}

const void *loads_answer(uint32_t *bytes) {
    struct fl_loads_header *header = &loads.shared->header;
    header->count = listed();
    for (uint32_t i = 0; i < header->count && !loads.is_every; i++) {
        uint64_t bit;
        if (!find_bit(&loads.shared->loads[i], &bit)) {
            loads_unknown(FL_LOADS_DAMAGED, NULL);
            header->count = i;
            loads.are_bits_spoilt = true; /* who knows what else it overwrote */
            break;
        }
    }
    header->version = FL_LOADS_VERSION;
    header->text_bytes = (uint32_t)strnlen(loads.shared->text, TEXT_BYTES);
    header->text_bytes = (header->flags & (FL_LOADS_UNSEEN | FL_LOADS_DIFFERS)) != 0 ? header->text_bytes : 0;
    uint32_t end = (uint32_t)(sizeof *header + header->count * sizeof(struct fl_load));
    memmove((uint8_t *)loads.shared + end, loads.shared->text, header->text_bytes);
    *bytes = end + header->text_bytes;
    return loads.shared;
}

/* ---- in a life ---------------------------------------------------------------------------------------------------------- */

void loads_is_hooked(void) { loads.is_hooked = true; }
bool loads_has_hooks(void) { return loads.is_hooked; }
bool loads_is_recording(void) { return loads.is_recording && vfs_is_active(); }

void loads_unknown(uint32_t flag, const char *text) {
    struct fl_loads_header *header = &loads.shared->header;
    bool has_text = (header->flags & (FL_LOADS_UNSEEN | FL_LOADS_DIFFERS)) != 0;
    if ((flag == FL_LOADS_UNSEEN || flag == FL_LOADS_DIFFERS) && !has_text)
        snprintf(loads.shared->text, TEXT_BYTES, "%s", text);
    header->flags |= flag;
}

static void look_at(const struct span *span) {
    loads.last_span = span;
    loads_window = span == NULL ? (struct loads_window){0} : span->window;
}

/* As far as the span shows the image and bits: in-process only, where no thread runs that could see half a window. */
static void open_window(struct span *span) {
    const uint8_t *notes = inprocess_is_running() ? undo_notes(span->number) : NULL;
    if (notes == NULL || loads_is_guarded || loads.is_every)
        return;
    uint64_t offset = span->first_unit * FL_UNIT_BYTES, image = undo_image_bytes(span->number);
    uint64_t room = span->file == NULL ? MOST_UNITS : span->file->room, bytes = span->end - span->start;
    uint64_t shown = image > offset ? image - offset : 0, covered = room > span->first_unit ? room - span->first_unit : 0;
    bytes = bytes < shown ? bytes : shown;
    bytes = bytes < covered * FL_UNIT_BYTES ? bytes : covered * FL_UNIT_BYTES;
    const uint64_t *undecided = span->file == NULL ? loads.none : loads.undecided + (span->file->first_bit + span->first_unit) / 64;
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
        const struct hot_file *file = loads_is_recording() ? hot_file(view.file) : NULL;
        if (file == NULL && !loads_is_guarded && !is_undone && !events_are_told())
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
    if (highest > 0) {
        fl_hook_near.start = lowest - FL_WIDEST_ACCESS;
        fl_hook_near.bytes = highest - fl_hook_near.start;
    }
}

enum { IS_LOAD = 1, IS_STORE = 2 }; /* of RUN_EVERY_ACCESS */

static void list(enum fl_load_kind kind, const struct hot_file *file, uint64_t unit) {
    struct fl_loads_header *header = &loads.shared->header;
    if (header->count >= MOST_LOADS && loads.shared->rest < MOST_LOADS)
        inprocess_leave("loads more than a list holds that has some units twice");
    if (header->count >= MOST_LOADS)
        header->flags |= FL_LOADS_OVERFLOW;
    else
        loads.shared->loads[header->count++] = (struct fl_load){
            .kind = (uint8_t)kind,
            .life = (uint8_t)loads.life,
            .file = file->number,
            .unit = unit,
            .site = loads_caller == NULL ? 0 : events_site(loads_caller),
        };
}

static void note_changed(uint64_t word) {
    if (loads.changed_count < MOST_CHANGED)
        loads.changed[loads.changed_count++] = word;
}

/* Units [first, end) of the file. */
static void list_units(enum fl_load_kind kind, const struct hot_file *file, uint64_t first, uint64_t end) {
    if (loads.is_every || file == NULL)
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
        note_changed(at / 64);
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
    if (loads_accesses++ >= LOADS_MOST_ACCESSES)
        inprocess_leave("makes more than 10 million accesses to PM");
    if (loads_is_guarded)
        guard_announce(address, bytes);
    for (size_t i = 0; loads.is_every && i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        if (span->file == NULL)
            continue;
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        list_access(kind, span, start > span->start ? start : span->start, end < span->end ? end : span->end);
    }
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
    if (!is_mapped && inprocess_is_running() && kept_is_unmapped(address))
        inprocess_leave("touches memory that it has unmapped");
}

/* Before the store. */
static void note_store(const void *address, uint64_t bytes) {
    for (size_t i = 0; i < loads.span_count; i++) {
        const struct span *span = &loads.spans[i];
        uintptr_t start = (uintptr_t)address, end = start + bytes;
        uintptr_t from = start > span->start ? start : span->start, to = end < span->end ? end : span->end;
        if (from < to && span->is_shared)
            undo_note(span->number, span->first_unit * FL_UNIT_BYTES + (from - span->start), to - from);
    }
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

void loads_guarded(bool is_announced) {
    loads.shared->header.seen++;
    loads.shared->header.unseen += !is_announced;
}

/* The common case: nothing that any of the below is about. */
static bool is_listed(uintptr_t address, uint64_t bytes) {
    const struct span *span = loads.last_span;
    if (span == NULL || address < span->start || address + bytes > span->end || loads_is_guarded || loads.is_every)
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
    uint64_t of_first = loads.undecided[first / 64], of_last = loads.undecided[last / 64];
    return ((of_first >> first % 64 | of_last >> last % 64) & 1) == 0;
}

void loads_read(const void *address, uint64_t bytes) {
    if (is_listed((uintptr_t)address, bytes))
        return;
    announce(IS_LOAD, address, bytes);
    if (planted("first-unit-only"))
        bytes = 1;
    read_as(FL_LOAD_TARGET, (uintptr_t)address, bytes);
}

void loads_stored(const void *address, uint64_t bytes) {
    announce(IS_STORE, address, bytes);
    if (planted("bit-field-is-whole"))
        loads_written(address, bytes);
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
    if (span == NULL || start < span->start || start >= span->end || bytes == 0 || loads_is_guarded || loads.is_every)
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
    uint64_t hot = first_in_both(loads.undecided, loads.unscanned, first, end);
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
            if ((loads.undecided[bit / 64] & written) == 0)
                continue;
            loads.undecided[bit / 64] &= ~written;
            note_changed(bit / 64);
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
