/* SPDX-License-Identifier: Apache-2.0
 *
 * The list of what a run loads (loads.c), in memory that the server shares with its lives.
 */
#include "loads/internal.h"
#include "base/traced.h"
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>

struct load_list *load_list;
const void *loads_caller;
bool loads_is_by_instruction;
bool loads_is_every;

void list_map(void) { load_list = map_or_fail(sizeof *load_list, MAP_SHARED, -1, "the list of loads"); }

void list_begin(void) {
    load_list->header = (struct fl_loads_header){
        .version = FL_PROTOCOL_VERSION,
        .flags = in_process.has_hooks || is_traced ? 0 : FL_LOADS_NOT_HOOKED,
    };
}

uint32_t list_count(void) {
    uint32_t count = load_list->header.count;
    return count < MOST_LOADS ? count : MOST_LOADS;
}

void list_load(enum fl_load_kind kind, uint32_t life, uint32_t file, uint64_t unit) {
    struct fl_loads_header *header = &load_list->header;
    if (header->count >= MOST_LOADS && load_list->tail < MOST_LOADS)
        inprocess_leave("loads more than a list holds that has some units twice");
    if (header->count >= MOST_LOADS)
        header->flags |= FL_LOADS_OVERFLOW;
    else {
        struct fl_place place = loads_caller == NULL ? (struct fl_place){0} : events_place(loads_caller);
        load_list->loads[header->count++] = (struct fl_load){
            .kind = (uint8_t)kind,
            .life = (uint8_t)life,
            .file = file,
            .unit = unit,
            .site = place.site,
            .module = place.module,
        };
    }
}

void loads_guarded(bool is_announced) {
    load_list->header.seen++;
    load_list->header.unseen += !is_announced;
}

void loads_unknown(uint32_t flag, const char *text) {
    struct fl_loads_header *header = &load_list->header;
    bool has_text = (header->flags & (FL_LOADS_UNSEEN | FL_LOADS_DIFFERS)) != 0;
    if ((flag == FL_LOADS_UNSEEN || flag == FL_LOADS_DIFFERS) && !has_text)
        snprintf(load_list->text, sizeof load_list->text, "%s", text);
    header->flags |= flag;
}

const void *loads_answer(uint32_t *bytes) {
    struct fl_loads_header *header = &load_list->header;
    header->count = list_count();
    for (uint32_t i = 0; i < header->count && !loads_is_every; i++) {
        uint64_t bit;
        if (!units_find(&load_list->loads[i], &bit)) {
            loads_unknown(FL_LOADS_DAMAGED, NULL);
            header->count = i;
            crash_units.are_spoilt = true; /* who knows what else it overwrote */
            break;
        }
    }
    header->version = FL_PROTOCOL_VERSION;
    header->text_bytes = (uint32_t)strnlen(load_list->text, sizeof load_list->text);
    header->text_bytes = (header->flags & (FL_LOADS_UNSEEN | FL_LOADS_DIFFERS)) != 0 ? header->text_bytes : 0;
    uint32_t end = (uint32_t)(sizeof *header + header->count * sizeof(struct fl_load));
    memmove((uint8_t *)load_list + end, load_list->text, header->text_bytes);
    *bytes = end + header->text_bytes;
    return load_list;
}
