/* SPDX-License-Identifier: Apache-2.0
 *
 * The loads of the tail of a run: of what follows the first recovery (probe/tail_cache.c).
 */
#include "loads/internal.h"
#include <string.h>
#include <sys/mman.h>

static uint64_t *were_undecided, *were_unscanned; /* when the tail of the run began: its list is too long until it ends */
static uint32_t opened; /* loads that were listed when life 0 had opened the heap */

void loads_tail_map(void) {
    were_undecided = map_or_fail(MOST_UNITS / 8, MAP_SHARED, -1, "the set of hot units");
    were_unscanned = map_or_fail(MOST_UNITS / 8, MAP_SHARED, -1, "the set of hot units");
}

uint64_t loads_watch_number(void) { return crash_units.hot->number; }
bool loads_are_known(void) { return (load_list->header.flags & FL_LOADS_UNKNOWN) == 0; }

static void keep_bits(void) {
    for (size_t i = 0; i < crash_units.hot->part_count; i++) {
        uint64_t first = crash_units.hot->parts[i].first,
                 bytes = (crash_units.hot->parts[i].end - first) * sizeof *crash_units.undecided;
        memcpy(were_undecided + first, crash_units.undecided + first, bytes);
        memcpy(were_unscanned + first, crash_units.unscanned + first, bytes);
    }
}

static uint64_t decided_since_kept(void) {
    uint64_t count = 0;
    for (size_t i = 0; i < crash_units.hot->part_count; i++)
        for (uint64_t word = crash_units.hot->parts[i].first; word < crash_units.hot->parts[i].end; word++)
            count += (uint64_t)__builtin_popcountll(were_undecided[word] & ~crash_units.undecided[word]);
    return count;
}

void loads_begin_tail(void) {
    opened = list_count();
    keep_bits();
}

bool loads_go_on_with_tail(void) {
    if (decided_since_kept() != list_count() - opened)
        return false;
    load_list->tail = list_count();
    keep_bits();
    return true;
}

void loads_list_tail(void) {
    units_copy_hot(crash_units.undecided);
    units_copy_hot(crash_units.unscanned);
}

bool loads_is_hot(uint32_t number, uint64_t unit) {
    const struct hot_file *file = units_file(number);
    return file != NULL && unit < file->units && is_set(crash_units.hot->bits, file->first_bit + unit);
}

const struct fl_load *loads_tail(uint32_t *count) {
    *count = list_count() - load_list->tail;
    return &load_list->loads[load_list->tail];
}

void loads_add_tail(const struct fl_load *tail, uint32_t count) {
    struct fl_loads_header *header = &load_list->header;
    if (count > MOST_LOADS - list_count())
        header->flags |= FL_LOADS_OVERFLOW;
    count = count < MOST_LOADS - list_count() ? count : MOST_LOADS - list_count();
    memcpy(&load_list->loads[list_count()], tail, count * sizeof *tail);
    header->count = list_count() + count;
}

/* It is listed without the units that loads_list_tail made undecided again, too; and once. */
static bool is_new(const struct fl_load *load) {
    uint64_t bit;
    if (!units_find(load, &bit))
        return true;
    bool is_by_target = load->kind == FL_LOAD_TARGET;
    if (!is_set(were_undecided, bit) || (!is_by_target && !is_set(were_unscanned, bit)))
        return false;
    (is_by_target ? were_undecided : were_unscanned)[bit / 64] &= ~(1ull << bit % 64);
    return true;
}

void loads_end_tail(void) {
    struct fl_load *list = load_list->loads;
    uint32_t end = load_list->tail;
    if (end >= list_count())
        return;
    for (uint32_t i = end; i < list_count(); i++)
        if (is_new(&list[i]))
            list[end++] = list[i];
    load_list->header.count = end;
}
