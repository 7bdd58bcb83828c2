/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_record.c - stores, flushes, fences: from an executed instruction to a record.
 *
 * All calls come after the instruction's effect, so a stored value is read back from memory: Valgrind runs one thread at a
 * time, so nothing else stored there since. (Another process could have; then the chunks of the two are no memory order
 * either.) Order of calls is the memory order of the trace.
 */
#include "fl.h"

/* Largest payload of one store record: size has 32 bits; a longer rep movs becomes several records. */
#define MOST_STORE_BYTES (1u << 30)

/* Of an instruction that Valgrind does not know; no EVEX instruction is shorter. */
#define SHOWN_BYTES 6

/* The stores of one instruction that VEX splits: rep movs and rep stos (one call an iteration), vmaskmov, fxsave. Contiguous
 * ones grow here, up or down, until the instruction ends or another record comes; R3 wants one wide store. */
static struct {
    const struct fl_point *point; /* null: nothing is open */
    UInt site;
    struct fl_mapping mapping; /* a copy: the array may move */
    Addr start;
    SizeT bytes;
} joined;

static void copy_value(struct fl_record *record, Addr address, UInt bytes) {
    record->value = 0;
    switch (bytes) {
    case 8: record->value = *(ULong *)address; return;
    case 4: record->value = *(UInt *)address; return;
    case 2: record->value = *(UShort *)address; return;
    case 1: record->value = *(UChar *)address; return;
    default: break;
    }
    if (bytes < 8) {
        VG_(memcpy)(&record->value, (void *)address, bytes);
        return;
    }
    record[FL_PAYLOAD_CELLS(bytes)] = (struct fl_record){0}; /* zero padding */
    VG_(memcpy)(record + 1, (void *)address, bytes);
}

static inline void emit_store(const struct fl_mapping *mapping, Addr address, UInt bytes, UInt detail, UInt site) {
    if (UNLIKELY(fl_mode == FL_COUNTS)) {
        fl_wear_store(mapping->file, mapping->offset + (address - mapping->start), bytes, detail == FL_STORE_NT, site);
        return;
    }
    if (UNLIKELY(fl_mode == FL_SERVES)) {
        fl_recording_store(mapping, address, bytes, detail, site);
        return;
    }
    struct fl_record *record = fl_reserve(bytes <= 8 ? 1 : 1 + FL_PAYLOAD_CELLS(bytes));
    record->kind = FL_STORE;
    record->detail = detail;
    record->thread = fl_thread;
    record->site = site;
    record->file = mapping->file;
    record->size = bytes;
    record->offset = mapping->offset + (address - mapping->start);
    copy_value(record, address, bytes);
}

static void emit_long_store(const struct fl_mapping *mapping, Addr address, SizeT bytes, UInt detail, UInt site) {
    while (bytes > 0) {
        UInt piece = bytes < MOST_STORE_BYTES ? bytes : MOST_STORE_BYTES;
        emit_store(mapping, address, piece, detail, site);
        address += piece;
        bytes -= piece;
    }
}

void fl_close_joined(void) {
    const struct fl_point *point = joined.point;
    if (point == NULL)
        return;
    joined.point = NULL;
    emit_long_store(&joined.mapping, joined.start, joined.bytes, point->detail, joined.site);
}

void fl_on_joined_end(void) { fl_close_joined(); }

Bool fl_is_joining(void) { return joined.point != NULL; }

static void join(const struct fl_mapping *mapping, Addr address, SizeT bytes, struct fl_point *point) {
    /* By address: an unrolled loop has several points for one instruction. */
    Bool is_same = joined.point != NULL && joined.point->address == point->address;
    if (is_same && joined.mapping.start == mapping->start) {
        if (address == joined.start + joined.bytes) {
            joined.bytes += bytes;
            return;
        }
        if (address + bytes == joined.start) {
            joined.start = address;
            joined.bytes += bytes;
            return;
        }
    }
    fl_close_joined();
    joined.point = point;
    joined.site = fl_store_site(point);
    joined.mapping = *mapping;
    joined.start = address;
    joined.bytes = bytes;
}

/* In a trace a private mapping's stores reach no file. To a recording they tell that the file keeps what it has. */
static Bool counts(const struct fl_mapping *mapping) { return (mapping->flags & FL_MAP_SHARED) || fl_mode == FL_SERVES; }

/* A store that is not wholly inside the mapping hit last: each part that lies in PM is a store. */
static void store_slowly(Addr address, SizeT bytes, struct fl_point *point) {
    UInt from = 0;
    struct fl_mapping *mapping;
    while ((mapping = fl_next_mapping(address, bytes, &from)) != NULL) {
        if (!counts(mapping))
            continue;
        fl_last_mapping = mapping;
        Addr end = mapping->start + mapping->bytes;
        Addr part = address > mapping->start ? address : mapping->start;
        SizeT part_bytes = (address + bytes < end ? address + bytes : end) - part;
        if (point->is_joined)
            join(mapping, part, part_bytes, point);
        else
            emit_long_store(mapping, part, part_bytes, point->detail, fl_store_site(point));
    }
}

void fl_on_store(Addr address, struct fl_point *point) {
    struct fl_mapping *mapping = fl_last_mapping;
    UInt bytes = point->bytes;
    if (UNLIKELY(point->is_joined) || UNLIKELY(address - mapping->start >= mapping->bytes) ||
        UNLIKELY(mapping->start + mapping->bytes - address < bytes)) {
        fl_on_store_to(address, bytes, point);
        return;
    }
    if (UNLIKELY(joined.point != NULL))
        fl_close_joined();
    emit_store(mapping, address, bytes, point->detail, fl_store_site(point));
    fl_tick();
}

void fl_on_store_to(Addr address, SizeT bytes, struct fl_point *point) {
    if (address >= fl_lowest + fl_span || address + bytes <= fl_lowest)
        return;
    if (!point->is_joined) {
        fl_close_joined();
        fl_tick();
    }
    store_slowly(address, bytes, point);
}

/* maskmovq, maskmovdqu: bit 7 of each mask byte selects. Each run of selected bytes is a store. */
void fl_on_masked_store(Addr address, ULong mask_low, ULong mask_high, struct fl_point *point) {
    UInt run = 0;
    fl_close_joined();
    fl_tick();
    for (UInt i = 0; i <= point->bytes; i++) {
        ULong word = i < 8 ? mask_low : mask_high;
        Bool is_selected = i < point->bytes && (word >> (8 * (i & 7) + 7)) & 1;
        if (is_selected) {
            run++;
            continue;
        }
        if (run > 0)
            store_slowly(address + i - run, run, point);
        run = 0;
    }
}

/* A locked read-modify-write, or a compare-exchange, which failed if it has not stored. */
void fl_on_locked(Addr address, ULong has_stored, struct fl_point *point) {
    fl_close_joined();
    fl_tick();
    if (UNLIKELY(fl_mode == FL_COUNTS))
        fl_wear_fence();
    if (has_stored && fl_find_mapping(address) != NULL)
        store_slowly(address, point->bytes, point);
    else if (fl_mode == FL_SERVES)
        fl_recording_fence(FL_RMW_FENCE, point);
    else if (fl_mode == FL_TRACES)
        fl_emit((struct fl_record){.kind = FL_FENCE, .detail = FL_RMW_FENCE, .thread = fl_thread, .site = fl_own_site(point)});
}

/* Flushes outside PM by site: the first is a record at once, the others are one at the end of the process. */
static struct elsewhere {
    ULong count;
    UChar detail;
} *elsewhere;
static UInt elsewhere_sites;

static void emit_elsewhere(UInt site, ULong count) {
    fl_emit(
        (struct fl_record){.kind = FL_FLUSH, .detail = elsewhere[site].detail, .thread = fl_thread, .site = site, .value = count});
}

static void flush_elsewhere(struct fl_point *point) {
    UInt site = fl_site(point);
    if (site >= elsewhere_sites) {
        UInt sites = 2 * site + 1;
        elsewhere = VG_(realloc)("fl.record.elsewhere", elsewhere, sites * sizeof *elsewhere);
        VG_(memset)(elsewhere + elsewhere_sites, 0, (sites - elsewhere_sites) * sizeof *elsewhere);
        elsewhere_sites = sites;
    }
    if (elsewhere[site].count++ > 0)
        return;
    elsewhere[site].detail = point->detail;
    emit_elsewhere(site, 1);
}

void fl_flushes_elsewhere_end(void) {
    for (UInt site = 0; site < elsewhere_sites; site++)
        if (elsewhere[site].count > 1)
            emit_elsewhere(site, elsewhere[site].count - 1);
}

void fl_flushes_elsewhere_forked(void) {
    for (UInt site = 0; site < elsewhere_sites; site++)
        elsewhere[site].count = 0;
}

void fl_on_flush(Addr address, struct fl_point *point) {
    struct fl_mapping *mapping = fl_last_mapping;
    fl_close_joined();
    if (UNLIKELY(address - mapping->start >= mapping->bytes)) {
        mapping = fl_find_mapping(address);
        if (mapping == NULL) {
            if (fl_mode == FL_TRACES)
                flush_elsewhere(point);
            return;
        }
        fl_last_mapping = mapping;
    }
    fl_tick();
    if (UNLIKELY(fl_mode != FL_TRACES)) {
        if (fl_mode == FL_COUNTS)
            fl_wear_flush(mapping->file, mapping->offset + (address - mapping->start), point->detail == FL_CLWB);
        else
            fl_recording_flush(mapping, address, point);
        return;
    }
    UInt site = fl_site(point);
    fl_emit((struct fl_record){.kind = FL_FLUSH,
                               .detail = point->detail,
                               .thread = fl_thread,
                               .site = site,
                               .file = mapping->file,
                               .offset = mapping->offset + (address - mapping->start)});
}

void fl_on_fence(struct fl_point *point) {
    fl_close_joined();
    fl_tick();
    if (UNLIKELY(fl_mode != FL_TRACES)) {
        if (fl_mode == FL_COUNTS)
            fl_wear_fence();
        else
            fl_recording_fence(point->detail, point);
        return;
    }
    UInt site = fl_fence_site(point);
    fl_emit((struct fl_record){.kind = FL_FENCE, .detail = point->detail, .thread = fl_thread, .site = site});
}

/* SIGILL follows, for which Valgrind runs into it once more. */
void fl_on_undecoded(struct fl_point *point) {
    static Addr told;
    const UChar *bytes = (const UChar *)point->address;
    const HChar *advice, *name = fl_name_undecoded(bytes, &advice);
    HChar hex[3 * SHOWN_BYTES], where[FL_PATH_BYTES], text[FL_PATH_BYTES + 256];
    if (told == point->address)
        return;
    told = point->address;
    for (UInt i = 0; i < SHOWN_BYTES; i++)
        VG_(sprintf)(hex + 3 * i, "%02x%s", bytes[i], i < SHOWN_BYTES - 1 ? " " : "");
    fl_address_describe(point->address, where, sizeof where);
    VG_(snprintf)(text, sizeof text, "%s (%s) at %s that Valgrind does not know; build the target without it (%s)", name, hex,
                  where, advice);
    VG_(printf)("faultline: %s\n", text);
    fl_unsupported("%s", text);
}

/* The kernel wrote to the program's memory (read into a PM buffer, a signal frame): one copy, as of rep movs. */
void fl_on_kernel_write(CorePart part, ThreadId thread, Addr address, SizeT bytes) {
    UInt from = 0;
    struct fl_mapping *mapping;
    if (part == Vg_CoreStartup || bytes == 0 || address >= fl_lowest + fl_span || address + bytes <= fl_lowest)
        return;
    fl_close_joined();
    UInt site = FL_NO_SITE;
    if (part == Vg_CoreSysCall) {
        bytes = fl_bytes_written(thread, address, bytes);
        site = fl_call_site(thread);
    }
    while ((mapping = fl_next_mapping(address, bytes, &from)) != NULL) {
        if (!counts(mapping))
            continue;
        Addr end = mapping->start + mapping->bytes;
        Addr start = address > mapping->start ? address : mapping->start;
        fl_thread = fl_number_of(thread);
        emit_long_store(mapping, start, (address + bytes < end ? address + bytes : end) - start, FL_STORE_REP, site);
    }
}

/* Valgrind hides clflushopt and clwb; code that asks CPUID would fall back to clflush, which orders more. The new RBX. */
ULong fl_on_cpuid(ULong leaf, ULong subleaf, ULong rbx) {
    return (UInt)leaf == 7 && (UInt)subleaf == 0 ? rbx | (1u << 23) | (1u << 24) : rbx;
}
