/* SPDX-License-Identifier: Apache-2.0
 *
 * The set of hot units, and the bits of a run that begin as it (loads.c). They lie in memory that the server shares with its lives.
 * Before each run the bits are set from the set of hot units, so nothing that a life did to them matters later: all words with hot
 * units, or for in-process runs, which are short, only those that the last run changed. (After a run that listed what is not hot, all
 * words.) The set of hot units itself can be written only while it is set.
 */
#include "loads/internal.h"
#include <string.h>
#include <sys/mman.h>

#define MOST_CHANGED 65536u /* words of bits; after more of them all are set again */

struct unit_bits crash_units;
static uint64_t changed[MOST_CHANGED]; /* words of undecided and unscanned that are not those of hot */
static size_t changed_count;

void units_map(void) {
    crash_units.hot = map_or_fail(sizeof *crash_units.hot, MAP_SHARED, -1, "the set of hot units");
    crash_units.undecided = map_or_fail(MOST_UNITS / 8, MAP_SHARED, -1, "the set of hot units");
    crash_units.unscanned = map_or_fail(MOST_UNITS / 8, MAP_SHARED, -1, "the set of hot units");
    crash_units.none = map_or_fail(MOST_UNITS / 8, MAP_PRIVATE, -1, "the set of hot units");
}

void units_copy_hot(uint64_t *to) {
    for (size_t i = 0; i < crash_units.hot->part_count; i++) {
        uint64_t first = crash_units.hot->parts[i].first, end = crash_units.hot->parts[i].end;
        memcpy(to + first, crash_units.hot->bits + first, (end - first) * sizeof *to);
    }
}

static void clear_parts(uint64_t *bits) {
    for (size_t i = 0; i < crash_units.hot->part_count; i++)
        memset(bits + crash_units.hot->parts[i].first, 0,
               (crash_units.hot->parts[i].end - crash_units.hot->parts[i].first) * sizeof *bits);
}

static void clear_spoilt_bits(void) {
    if (!crash_units.are_spoilt)
        return;
    memset(crash_units.undecided, 0, crash_units.hot->unit_count / 8);
    memset(crash_units.unscanned, 0, crash_units.hot->unit_count / 8);
    crash_units.are_spoilt = crash_units.are_words_known = false;
}

/* Bits [first, end) are set. */
static void add_part(struct hot_set *hot, uint64_t first, uint64_t end) {
    first /= 64;
    end = (end + 63) / 64;
    bool is_next =
        hot->part_count > 0 && hot->parts[hot->part_count - 1].first <= first && first <= hot->parts[hot->part_count - 1].end;
    if (!is_next && hot->part_count < COUNT_OF(crash_units.hot->parts)) {
        hot->parts[hot->part_count].first = first;
        hot->parts[hot->part_count++].end = end;
        return;
    }
    uint64_t *last_first = &hot->parts[hot->part_count - 1].first, *last_end = &hot->parts[hot->part_count - 1].end;
    *last_first = first < *last_first ? first : *last_first;
    *last_end = end > *last_end ? end : *last_end;
}

static struct hot_file *find_file(uint32_t number) {
    for (size_t i = 0; i < crash_units.hot->file_count; i++)
        if (crash_units.hot->files[i].number == number)
            return &crash_units.hot->files[i];
    return NULL;
}

static bool add_hot_file(const struct fl_watch *watch) {
    struct hot_file *file = find_file(watch->file);
    uint64_t units = watch->first + watch->count;
    if (file == NULL) {
        if (crash_units.hot->file_count == COUNT_OF(crash_units.hot->files))
            return false;
        file = &crash_units.hot->files[crash_units.hot->file_count++];
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
    if (syscall(SYS_mprotect, crash_units.hot, sizeof *crash_units.hot, protection) != 0)
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
    struct hot_set *hot = crash_units.hot;
    clear_spoilt_bits();
    clear_parts(hot->bits);
    clear_parts(crash_units.undecided);
    clear_parts(crash_units.unscanned);
    crash_units.are_words_known = false;
    hot->file_count = hot->part_count = 0;
    for (size_t i = 0; i < count; i++)
        if (watches[i].first > MOST_UNITS || watches[i].count > MOST_UNITS || !add_hot_file(&watches[i]))
            return false;
    if (!give_room(hot, true, bytes_of) && !give_room(hot, false, bytes_of))
        return false;
    for (size_t i = 0; i < count; i++) {
        uint64_t first = find_file(watches[i].file)->first_bit + watches[i].first;
        set_bits(hot->bits, first, first + watches[i].count);
        add_part(hot, first, first + watches[i].count);
    }
    return true;
}

bool loads_watch(uint64_t number, const struct fl_watch *watches, size_t count, uint64_t (*bytes_of)(uint32_t file)) {
    protect_hot(PROT_READ | PROT_WRITE);
    bool is_set = set_hot(watches, count, bytes_of);
    crash_units.hot->number = number;
    protect_hot(PROT_READ);
    return is_set;
}

void units_begin(void) {
    clear_spoilt_bits();
    if (!crash_units.are_words_known || !inprocess_is_running() || changed_count >= MOST_CHANGED) {
        units_copy_hot(crash_units.undecided);
        units_copy_hot(crash_units.unscanned);
    } else
        for (size_t i = 0; i < changed_count; i++) {
            uint64_t word = changed[i];
            crash_units.undecided[word] = crash_units.unscanned[word] = crash_units.hot->bits[word];
        }
    changed_count = 0;
    crash_units.are_words_known = inprocess_is_running();
}

void loads_forget_words(void) { crash_units.are_words_known = false; }

void units_note_changed(uint64_t word) {
    if (changed_count < MOST_CHANGED)
        changed[changed_count++] = word;
}

const struct hot_file *units_file(uint32_t number) { return find_file(number); }

bool units_find(const struct fl_load *load, uint64_t *bit) {
    const struct hot_file *file = find_file(load->file);
    if (file == NULL || load->unit >= file->units)
        return false;
    *bit = file->first_bit + load->unit;
    return (crash_units.hot->bits[*bit / 64] >> *bit % 64 & 1) != 0;
}
