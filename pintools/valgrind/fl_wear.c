/* SPDX-License-Identifier: GPL-2.0-or-later
 *
 * fl_wear.c - with --wear=FILE: no trace, but how often each line was written (../wear.h says what is counted, ../wear_cache.h
 * what reaches the medium). FILE is written when the process ends.
 *
 * The lines of a file are counted in pieces of PIECE_LINES, found by a hash table; the piece that was hit last is tried first. Each
 * line has a list of the sites that stored to it, the last one first: a line is written from few places.
 *
 * With --wear-memory=yes the process's own heap is watched too: what brk gives, and the private anonymous mappings that the
 * program and its libraries make, without those of the loader (which are its modules) and thread stacks. fl_files says when they
 * come and go.
 */
#include "fl.h"
#include "pub_tool_hashtable.h"
#include "pub_tool_xarray.h"

#include "../wear.h"
#include "../wear_cache.h"

extern Int VG_(safe_fd)(Int);

#define FLUSHED_BYTES 64ull
#define PIECE_LINES 1024u
#define BUFFERED_LINES 1024u
#define MOST_SITE_TEXT 1024u

const HChar *fl_clo_wear;
Bool fl_clo_wear_memory;
Int fl_clo_wear_line = 64;
Long fl_clo_wear_cache = 2 << 20;
Int fl_clo_wear_ways = 16;

struct use {
    struct use *next;
    ULong stores;
    UInt site;
};

struct line {
    ULong stores, write_backs;
    struct use *uses;
};

struct piece {
    struct piece *next; /* as VgHashNode wants it */
    UWord key;          /* of its first line, divided by PIECE_LINES */
    struct line lines[PIECE_LINES];
};

static VgHashTable *pieces;
static struct piece *last_piece;
static struct wear_cache cache;
static UInt line_shift;
static Int descriptor = -1;
static UInt memory_file;
static struct fl_wear_header totals;

/* Of the last store. is_in_cache: dirty and most recently used, so that one more store changes nothing. */
static struct {
    ULong key;
    Bool is_in_cache;
} last = {WEAR_NO_LINE, False};

/* ---- counting ---- */

static struct line *line_at(ULong key) {
    UWord wanted = key / PIECE_LINES;
    if (UNLIKELY(last_piece == NULL || last_piece->key != wanted)) {
        struct piece *piece = VG_(HT_lookup)(pieces, wanted);
        if (piece == NULL) {
            piece = VG_(calloc)("fl.wear.piece", 1, sizeof *piece);
            piece->key = wanted;
            VG_(HT_add_node)(pieces, piece);
        }
        last_piece = piece;
    }
    return &last_piece->lines[key % PIECE_LINES];
}

static void wear_written(uint64_t key, enum fl_wear_reason reason) {
    line_at(key)->write_backs++;
    totals.write_backs[reason]++;
}

static void add_use(struct line *line, UInt site) {
    struct use **place = &line->uses;
    while (*place != NULL && (*place)->site != site)
        place = &(*place)->next;
    struct use *use = *place;
    if (use == NULL) {
        use = VG_(calloc)("fl.wear.use", 1, sizeof *use);
        use->site = site;
    } else {
        *place = use->next;
    }
    use->next = line->uses;
    line->uses = use;
    use->stores++;
}

static void store_to_line(ULong key, Bool is_non_temporal, UInt site) {
    totals.executed++;
    if (key == last.key && last.is_in_cache && !is_non_temporal)
        return;
    if (is_non_temporal)
        wear_cache_store_past(&cache, key);
    else
        wear_cache_store(&cache, key);
    last.is_in_cache = !is_non_temporal;
    if (key == last.key)
        return;
    last.key = key;
    struct line *line = line_at(key);
    line->stores++;
    add_use(line, site);
}

void fl_wear_store(UInt file, ULong offset, ULong bytes, Bool is_non_temporal, UInt site) {
    ULong end = (offset + bytes - 1) >> line_shift;
    for (ULong number = offset >> line_shift; number <= end; number++)
        store_to_line(wear_key(file, number), is_non_temporal, site);
}

/* The instruction flushes an aligned FLUSHED_BYTES, whatever line is counted by. */
void fl_wear_flush(UInt file, ULong offset, Bool stays) {
    ULong start = offset & ~(FLUSHED_BYTES - 1), end = (start + FLUSHED_BYTES - 1) >> line_shift;
    totals.flushes++;
    for (ULong number = start >> line_shift; number <= end; number++)
        wear_cache_flush(&cache, wear_key(file, number), stays);
    last.is_in_cache = False;
}

void fl_wear_fence(void) {
    totals.fences++;
    wear_cache_fence(&cache);
}

/* ---- the process's own heap ---- */

UInt fl_wear_memory_file(void) { return memory_file; }

/* ---- start and end ---- */

static void check_options(void) {
    ULong line = fl_clo_wear_line, lines = fl_clo_wear_cache / fl_clo_wear_line;
    if (line < 8 || line > 4096 || (line & (line - 1)) != 0)
        fl_stop(2, "--wear-line=%llu: expected a power of two from 8 to 4096", line);
    if (lines == 0 || fl_clo_wear_cache % line != 0 || lines % fl_clo_wear_ways != 0)
        fl_stop(2, "--wear-cache=%lld: expected a multiple of --wear-ways=%d lines of %llu bytes", fl_clo_wear_cache,
                fl_clo_wear_ways, line);
}

void fl_wear_open(void) {
    if (fl_clo_wear == NULL)
        return;
    check_options();
    SysRes opened = VG_(open)(fl_clo_wear, VKI_O_WRONLY | VKI_O_CREAT | VKI_O_TRUNC, 0644);
    if (sr_isError(opened))
        fl_stop(2, "cannot open --wear=%s; name a file in a folder that can be written", fl_clo_wear);
    descriptor = VG_(safe_fd)(sr_Res(opened));
    while (1u << line_shift < (UInt)fl_clo_wear_line)
        line_shift++;
    pieces = VG_(HT_construct)("fl.wear.pieces");
    ULong lines = fl_clo_wear_cache >> line_shift;
    ULong *entries = VG_(malloc)("fl.wear.cache", lines * sizeof *entries);
    wear_cache_init(&cache, lines / fl_clo_wear_ways, fl_clo_wear_ways, (uint64_t *)entries);
    if (fl_clo_wear_memory)
        memory_file = fl_file_new(FL_WEAR_MEMORY);
}

/* The parent's counts are the parent's to write. */
void fl_wear_forks(void) { totals.flags |= FL_WEAR_FORKED; }

void fl_wear_brk_refused(void) { totals.flags |= FL_WEAR_BRK_REFUSED; }

void fl_wear_forked(void) {
    if (descriptor >= 0)
        VG_(close)(descriptor);
    descriptor = -1;
}

static void write_all(const void *bytes, ULong count) {
    const UChar *from = bytes;
    while (count > 0) {
        Int written = VG_(write)(descriptor, from, count > (1u << 30) ? (Int)(1u << 30) : (Int)count);
        if (written == -VKI_EINTR)
            continue;
        if (written <= 0)
            fl_stop(3, "cannot write --wear=%s; make room and count again", fl_clo_wear);
        from += written;
        count -= written;
    }
}

static Int compare_pieces(const void *one, const void *other) {
    const struct piece *a = *(struct piece *const *)one, *b = *(struct piece *const *)other;
    return a->key < b->key ? -1 : a->key > b->key;
}

static Int compare_uses(const void *one, const void *other) {
    const struct fl_wear_use *a = one, *b = other;
    if (a->line != b->line)
        return a->line < b->line ? -1 : 1;
    if (a->stores != b->stores)
        return a->stores > b->stores ? -1 : 1;
    return a->site < b->site ? -1 : a->site > b->site;
}

static Bool was_written(const struct line *line) { return line->stores > 0 || line->write_backs > 0; }

struct hot {
    ULong index;
    const struct line *line;
};

/* Keeps the FL_WEAR_HOTTEST lines with most stores, most first; of equal ones the first. */
static void consider(struct hot *hottest, UInt *count, struct hot candidate) {
    UInt at = *count;
    while (at > 0 && hottest[at - 1].line->stores < candidate.line->stores)
        at--;
    if (at == FL_WEAR_HOTTEST)
        return;
    if (*count < FL_WEAR_HOTTEST)
        (*count)++;
    for (UInt i = *count - 1; i > at; i--)
        hottest[i] = hottest[i - 1];
    hottest[at] = candidate;
}

static void add_text(XArray *text, const HChar *added) { VG_(addBytesToXA)(text, added, VG_(strlen)(added) + 1); }

/* By site, so that each is described once. */
struct described {
    UInt site;
    ULong place;
};

static ULong place_of_site(XArray *text, XArray *known, UInt site) {
    for (Word i = 0; i < VG_(sizeXA)(known); i++) {
        const struct described *described = VG_(indexXA)(known, i);
        if (described->site == site)
            return described->place;
    }
    HChar words[MOST_SITE_TEXT];
    fl_site_describe(site, words, sizeof words);
    struct described described = {.site = site, .place = VG_(sizeXA)(text)};
    VG_(addToXA)(known, &described);
    add_text(text, words);
    return described.place;
}

static void write_lines(struct piece **sorted, UInt count) {
    static struct fl_wear_line buffer[BUFFERED_LINES];
    UInt buffered = 0;
    for (UInt i = 0; i < count; i++) {
        for (UInt j = 0; j < PIECE_LINES; j++) {
            const struct line *line = &sorted[i]->lines[j];
            if (!was_written(line))
                continue;
            ULong key = sorted[i]->key * PIECE_LINES + j;
            buffer[buffered++] = (struct fl_wear_line){.number = key & ((1ull << WEAR_FILE_SHIFT) - 1),
                                                       .stores = line->stores,
                                                       .write_backs = line->write_backs,
                                                       .file = key >> WEAR_FILE_SHIFT};
            if (buffered == BUFFERED_LINES) {
                write_all(buffer, sizeof buffer);
                buffered = 0;
            }
        }
    }
    write_all(buffer, buffered * sizeof *buffer);
}

void fl_wear_close(void) {
    if (fl_clo_wear == NULL || descriptor < 0)
        return;
    wear_cache_end(&cache);
    UInt piece_count;
    struct piece **sorted = (struct piece **)VG_(HT_to_array)(pieces, &piece_count);
    if (sorted != NULL)
        VG_(ssort)(sorted, piece_count, sizeof *sorted, compare_pieces);

    struct hot hottest[FL_WEAR_HOTTEST];
    UInt hot_count = 0;
    for (UInt i = 0; i < piece_count; i++)
        for (UInt j = 0; j < PIECE_LINES; j++)
            if (was_written(&sorted[i]->lines[j]))
                consider(hottest, &hot_count, (struct hot){totals.line_count++, &sorted[i]->lines[j]});

    XArray *text = VG_(newXA)(VG_(malloc), "fl.wear.text", VG_(free), sizeof(HChar));
    XArray *known = VG_(newXA)(VG_(malloc), "fl.wear.known", VG_(free), sizeof(struct described));
    XArray *uses = VG_(newXA)(VG_(malloc), "fl.wear.uses", VG_(free), sizeof(struct fl_wear_use));
    for (const HChar *name; (name = fl_file_name(totals.file_count + 1)) != NULL; totals.file_count++)
        add_text(text, name);
    for (UInt i = 0; i < hot_count; i++) {
        for (const struct use *use = hottest[i].line->uses; use != NULL; use = use->next) {
            struct fl_wear_use row = {
                .line = hottest[i].index, .stores = use->stores, .site = place_of_site(text, known, use->site)};
            VG_(addToXA)(uses, &row);
        }
    }
    if (VG_(sizeXA)(uses) > 0)
        VG_(ssort)(VG_(indexXA)(uses, 0), VG_(sizeXA)(uses), sizeof(struct fl_wear_use), compare_uses);

    VG_(memcpy)(totals.magic, FL_WEAR_MAGIC, sizeof totals.magic);
    totals.version = FL_WEAR_VERSION;
    totals.line_bytes = fl_clo_wear_line;
    totals.cache_bytes = fl_clo_wear_cache;
    totals.cache_ways = fl_clo_wear_ways;
    totals.use_count = VG_(sizeXA)(uses);
    totals.text_bytes = VG_(sizeXA)(text);
    write_all(&totals, sizeof totals);
    write_lines(sorted, piece_count);
    if (totals.use_count > 0)
        write_all(VG_(indexXA)(uses, 0), totals.use_count * sizeof(struct fl_wear_use));
    if (totals.text_bytes > 0)
        write_all(VG_(indexXA)(text, 0), totals.text_bytes);
    VG_(close)(descriptor);
    descriptor = -1;
}
