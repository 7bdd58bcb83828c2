/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_mappings.c - which addresses are persistent memory.
 *
 * A sorted array of disjoint mappings of files below the PM folder: the same file may be in it several times (libpmemobj maps
 * its pool twice). Private mappings are in it too, because their unmapping is recorded, but nothing stored in them is.
 */
#include "fl.h"

Addr fl_lowest;
SizeT fl_span;

static struct fl_mapping no_mapping;
struct fl_mapping *fl_last_mapping = &no_mapping;

static struct fl_mapping *mappings;
static UInt mapping_count, mapping_room;

static void insert(UInt at, struct fl_mapping mapping) {
    if (mapping_count == mapping_room) {
        mapping_room = mapping_room == 0 ? 16 : 2 * mapping_room;
        mappings = VG_(realloc)("fl.mappings", mappings, mapping_room * sizeof *mappings);
    }
    VG_(memmove)(mappings + at + 1, mappings + at, (mapping_count - at) * sizeof *mappings);
    mappings[at] = mapping;
    mapping_count++;
}

static void erase(UInt at) {
    mapping_count--;
    VG_(memmove)(mappings + at, mappings + at + 1, (mapping_count - at) * sizeof *mappings);
}

/* After every change: the bounds of the inline test, and no pointer into the array. */
static void update_bounds(void) {
    Addr lowest = ~(Addr)0, end = 0;
    for (UInt i = 0; i < mapping_count; i++) {
        if (!(mappings[i].flags & FL_MAP_SHARED) && !fl_loads_are_wanted())
            continue;
        if (mappings[i].start < lowest)
            lowest = mappings[i].start;
        end = mappings[i].start + mappings[i].bytes;
    }
    fl_lowest = end == 0 ? 0 : lowest - FL_INLINE_BYTES;
    fl_span = end == 0 ? 0 : end - fl_lowest;
    fl_last_mapping = &no_mapping;
}

/* Index of the first mapping that ends after the address. */
static UInt first_ending_after(Addr address) {
    UInt low = 0, high = mapping_count;
    while (low < high) {
        UInt middle = (low + high) / 2;
        if (mappings[middle].start + mappings[middle].bytes <= address)
            low = middle + 1;
        else
            high = middle;
    }
    return low;
}

struct fl_mapping *fl_find_mapping(Addr address) {
    UInt at = first_ending_after(address);
    if (at == mapping_count || mappings[at].start > address || !(mappings[at].flags & FL_MAP_SHARED))
        return NULL;
    return &mappings[at];
}

struct fl_mapping *fl_next_mapping(Addr address, SizeT bytes, UInt *from) {
    UInt at = *from == 0 ? first_ending_after(address) : *from;
    if (at >= mapping_count || mappings[at].start >= address + bytes)
        return NULL;
    *from = at + 1;
    return &mappings[at];
}

static void emit_mapping(UChar kind, const struct fl_mapping *mapping) {
    fl_emit((struct fl_record){.kind = kind,
                               .detail = kind == FL_MAP ? mapping->flags : 0,
                               .thread = fl_thread,
                               .file = mapping->file,
                               .offset = mapping->offset,
                               .value = mapping->bytes});
}

void fl_mappings_add(Addr start, SizeT bytes, UInt file, ULong offset, UChar flags) {
    struct fl_mapping mapping = {.start = start, .bytes = bytes, .offset = offset, .file = file, .flags = flags};
    insert(first_ending_after(start), mapping);
    update_bounds();
    emit_mapping(FL_MAP, &mapping);
}

void fl_mappings_remove(Addr start, SizeT bytes) {
    Addr end = start + bytes;
    UInt at = first_ending_after(start);
    while (at < mapping_count && mappings[at].start < end) {
        struct fl_mapping whole = mappings[at];
        Addr whole_end = whole.start + whole.bytes;
        Addr from = whole.start > start ? whole.start : start, to = whole_end < end ? whole_end : end;
        struct fl_mapping gone = whole, left = whole, right = whole;
        gone.start = from, gone.bytes = to - from, gone.offset += from - whole.start;
        left.bytes = from - whole.start;
        right.start = to, right.bytes = whole_end - to, right.offset += to - whole.start;
        erase(at);
        if (left.bytes > 0)
            insert(at++, left);
        if (right.bytes > 0)
            insert(at++, right);
        emit_mapping(FL_UNMAP, &gone);
    }
    update_bounds();
}

void fl_mappings_remove_all(void) {
    mapping_count = 0;
    update_bounds();
}

void fl_mappings_define_again(void) {
    for (UInt i = 0; i < mapping_count; i++)
        emit_mapping(FL_MAP, &mappings[i]);
}
