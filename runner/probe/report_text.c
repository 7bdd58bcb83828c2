/* SPDX-License-Identifier: Apache-2.0
 *
 * A heap report for people, on standard output: one line a section, its entries below it.
 */
#include "probe/probe.h"
#include <stdio.h>
#include <string.h>

static const char *const OUTCOMES[] = {"done", "signal", "hung", "exited", "overloaded", "broken"};
static const char *const KINDS[] = {"before the first stage",
                                    "open",
                                    "files",
                                    "slots",
                                    "walk",
                                    "check",
                                    "contents",
                                    "drain",
                                    "free all",
                                    "maximal",
                                    "close",
                                    "recreate",
                                    "message",
                                    "objects",
                                    "retained",
                                    "files without heap blocks",
                                    "settle"};
_Static_assert(sizeof KINDS / sizeof KINDS[0] == FL_SECTION_SETTLE + 1, "each section has a name");
static const char *const STATES[] = {"?", "allocated", "reserved", "free", "metadata", "unusable"};
#define NAME_OF(names, number) ((number) < sizeof(names) / sizeof((names)[0]) ? (names)[number] : "?")

typedef unsigned long long number;

static void print_files(const struct fl_section *section) {
    const char *name = (const char *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++, name += strlen(name) + 1)
        printf("    file %u is %s\n", i, name);
}

static void print_slots(const struct fl_section *section) {
    const struct fl_slot_entry *entry = (const void *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++)
        printf("    slot %u: file %u, offset 0x%llx\n", entry[i].slot, entry[i].file, (number)entry[i].offset);
}

static void print_blocks(const struct fl_section *section) {
    const struct fl_block_entry *entry = (const void *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++)
        printf("    file %u, offset 0x%llx, %llu bytes: %s\n", entry[i].file, (number)entry[i].offset, (number)entry[i].bytes,
               NAME_OF(STATES, entry[i].state));
}

static void print_objects(const struct fl_section *section) {
    const struct fl_object_entry *entry = (const void *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++) {
        printf("    object %u: file %u, offset 0x%llx", i, entry[i].file, (number)entry[i].offset);
        for (uint32_t field = 0; field < FL_GRAPH_FIELDS; field++)
            if (entry[i].fields[field].is_set)
                printf(", field %u: file %u, offset 0x%llx", field, entry[i].fields[field].file,
                       (number)entry[i].fields[field].offset);
        printf("\n");
    }
}

/* In the graph layout it is the object's number. */
static void print_contents(const struct fl_section *section) {
    const struct fl_content_entry *entry = (const void *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++)
        if (entry[i].object == 0)
            printf("    slot %u: the word at %llu is 0x%016llx\n", entry[i].slot, (number)entry[i].from, (number)entry[i].to);
        else
            printf("    slot %u: bytes %llu to %llu hold object %u%s\n", entry[i].slot, (number)entry[i].from, (number)entry[i].to,
                   entry[i].object, entry[i].object == PROBE_OBJECT ? " (the probe's)" : "");
}

static void print_unwalked(const struct fl_section *section) {
    const struct fl_unwalked_entry *entry = (const void *)(section + 1);
    for (uint32_t i = 0; i < section->count; i++)
        printf("    file %u, %llu bytes%s\n", entry[i].file, (number)entry[i].bytes, entry[i].is_mapped ? ", mapped" : "");
}

static void print_entries(const struct fl_section *section) {
    switch (section->kind) {
    case FL_SECTION_FILES: print_files(section); break;
    case FL_SECTION_SLOTS: print_slots(section); break;
    case FL_SECTION_WALK:
    case FL_SECTION_RETAINED:
    case FL_SECTION_DRAIN: print_blocks(section); break;
    case FL_SECTION_OBJECTS: print_objects(section); break;
    case FL_SECTION_UNWALKED: print_unwalked(section); break;
    case FL_SECTION_CONTENTS: print_contents(section); break;
    case FL_SECTION_MESSAGE: printf("    %.*s\n", (int)section->payload_bytes, (const char *)(section + 1)); break;
    }
}

static void print_section(const struct fl_section *section) {
    printf("life %u, %s: %s", section->life, NAME_OF(KINDS, section->kind), status_name((int)section->status));
    switch (section->kind) {
    case FL_SECTION_SLOTS: printf(", %u of %llu in use", section->count, (number)section->value); break;
    case FL_SECTION_WALK: printf(", %u heap blocks, files of %llu bytes", section->count, (number)section->value); break;
    case FL_SECTION_OBJECTS: printf(", %u reached", section->count); break;
    case FL_SECTION_RETAINED:
        printf(", %u of %llu left-over heap blocks are in reach of a word", section->count, (number)section->value);
        break;
    case FL_SECTION_DRAIN: printf(", %u allocations of %llu bytes in all", section->count, (number)section->value); break;
    case FL_SECTION_MAXIMAL: printf(", %llu bytes", (number)section->value); break;
    case FL_SECTION_MESSAGE: printf(" (about %s)", NAME_OF(KINDS, section->value)); break;
    }
    printf("\n");
    print_entries(section);
}

void report_print(const struct fl_report_header *report) {
    printf("outcome: %s", NAME_OF(OUTCOMES, report->outcome));
    if (report->outcome == FL_OUTCOME_SIGNAL)
        printf(" %u (%s)", report->signal, strsignal((int)report->signal));
    printf(", in life %u, %s\n", report->life, NAME_OF(KINDS, report->stage));
    const uint8_t *end = (const uint8_t *)report + report->total_bytes;
    for (const uint8_t *at = (const uint8_t *)(report + 1); at < end;) {
        const struct fl_section *section = (const void *)at;
        print_section(section);
        at += sizeof *section + ((uint64_t)section->payload_bytes + 7) / 8 * 8;
    }
}
