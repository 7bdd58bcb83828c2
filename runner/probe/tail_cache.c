/* SPDX-License-Identifier: Apache-2.0
 *
 * The probe tail cache. The tail of an in-process run is all that follows the first recovery: a second and a third recovery, drain, free
 * all, and so on. It takes most of a full probe's time, and most recoveries end in a heap that another recovery ended in. So the tail is
 * taken from another run where it must be the same. It is a function of
 *
 *     what target and runner hold outside the image       hashed: arena.c, kept_mappings.c, the names of report.c
 *     what life 0 stored to units that are not hot        hashed; all other such units are the same in all runs of one watch
 *     the values of the hot units that the tail loads     the units are listed, with the values they have at the end of life 0
 *
 * when life 0 has come to its end, with open, slots, walk and check.
 *
 * Lives 1, 3 and 5 recover the crash image again. They make the same loads as life 0 and come to the same end, so these loads do not
 * belong to the tail: those of open in lives 1 and 5, those up to check in life 3. Lives 1 and 5 go on from the end of open. So what the
 * target holds at the end of open is hashed too, and life 0 must not store to the image after open: life 1 would leave another image
 * than life 0 did, or would find the crash's bytes in units that life 0 had decided.
 *
 * Which units the tail loads is known once a tail was run. It is remembered with their values. A run is over when its life 0 ends with the
 * same hash and those units have the same values: the tail of its report and of its list of loads are those of the remembered run. Most
 * tails of one state load the same units, so each list of units is kept once, and its values are looked at once. While a life changes
 * no file, the answers of the file system are the same too (protocol.h).
 *
 * Equal hashes count as equal states, as the hashes of images do in the engine. A run that the engine asks for afresh does not use the
 * cache: it shows whether the target is a function of what it loads. The isolated engine does not use it either, and one run in
 * FL_COMPARE_ONE_IN is compared with it, whether its tail came from the cache or not.
 */
#include "probe/probe.h"
#include "loads/loads.h"
#include "undo/undo.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BUCKETS 4096u
#define TAIL_BUCKETS 64u
#define MOST_STORED 16384u /* hot units; a run with more has no tail to remember */
#define MOST_TRIED 64u /* lists of one state, the newest first */
#define MOST_BYTES (192ull << 20) /* in all; then it begins anew */

struct tail {
    struct tail *next; /* of the list, in its bucket */
    XXH128_hash_t values; /* of the list's units */
    struct report_tail report;
    uint8_t text[]; /* the report's */
};

/* What tails of one state read. */
struct list {
    struct list *next; /* in its bucket */
    uint64_t watch;
    XXH128_hash_t state;
    struct tail *tails[TAIL_BUCKETS];
    uint32_t count;
    struct fl_load loads[];
};

struct stored { /* without padding: it is hashed */
    uint64_t file, unit, value;
};

static struct {
    struct list *buckets[BUCKETS];
    uint64_t bytes;
    XXH3_state_t hash;
    /* Of the run: */
    XXH128_hash_t units; /* not hot, that it stored to; the sum of their hashes: in any order */
    struct stored stored[MOST_STORED]; /* in hot units, by the end of life 0 */
    size_t stored_count;
    bool is_wanted, is_state_known;
    XXH128_hash_t opened_stored, opened; /* what was stored by the end of open, and what was held outside the image */
    XXH128_hash_t state;
    struct report_position place;
    const struct list *known_list;
    const struct tail *known;
} cache;

/* ---- remembering ---------------------------------------------------------------------------------------------------------- */

static struct list **bucket_of(XXH128_hash_t state) { return &cache.buckets[state.low64 % BUCKETS]; }

static struct tail **tails_with(struct list *list, XXH128_hash_t values) { return &list->tails[values.low64 % TAIL_BUCKETS]; }

static void free_list(struct list *list) {
    for (size_t i = 0; i < TAIL_BUCKETS; i++)
        while (list->tails[i] != NULL) {
            struct tail *tail = list->tails[i];
            list->tails[i] = tail->next;
            free(tail);
        }
    free(list);
}

static void forget_tails(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        while (cache.buckets[i] != NULL) {
            struct list *list = cache.buckets[i];
            cache.buckets[i] = list->next;
            free_list(list);
        }
    cache.bytes = 0;
}

/* What those units hold, or held at the end of life 0. */
static XXH128_hash_t values_of(const struct fl_load *loads, uint32_t count, uint64_t (*value_of)(uint32_t file, uint64_t unit)) {
    XXH3_128bits_reset(&cache.hash);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = value_of(loads[i].file, loads[i].unit);
        XXH3_128bits_update(&cache.hash, &value, sizeof value);
    }
    return XXH3_128bits_digest(&cache.hash);
}

static int compare_stored(const void *one, const void *other) {
    const struct stored *a = one, *b = other;
    return a->file != b->file ? (a->file < b->file ? -1 : 1) : a->unit < b->unit ? -1 : a->unit > b->unit;
}

/* The run's stores were taken back. */
static uint64_t after_first(uint32_t file, uint64_t unit) {
    struct stored wanted = {.file = file, .unit = unit}, *found;
    found = bsearch(&wanted, cache.stored, cache.stored_count, sizeof wanted, compare_stored);
    return found != NULL ? found->value : undo_unit(file, unit);
}

static bool is_of_state(const struct list *list) {
    return list->watch == loads_watch_number() && XXH128_isEqual(list->state, cache.state);
}

static void *allocate_counted(uint64_t bytes) {
    cache.bytes += bytes;
    return allocate_or_fail(NULL, bytes);
}

static struct list *make_list(const struct fl_load *loads, uint32_t count) {
    struct list *list = allocate_counted(sizeof *list + count * sizeof *loads);
    *list = (struct list){.watch = loads_watch_number(), .state = cache.state, .count = count};
    memcpy(list->loads, loads, count * sizeof *loads);
    return list;
}

/* Of the state, made if there is none; now the newest. */
static struct list *list_of(const struct fl_load *loads, uint32_t count) {
    struct list **at = bucket_of(cache.state), *found;
    while ((found = *at) != NULL &&
           !(is_of_state(found) && found->count == count && memcmp(found->loads, loads, count * sizeof *loads) == 0))
        at = &found->next;
    if (found != NULL)
        *at = found->next;
    else
        found = make_list(loads, count);
    found->next = *bucket_of(cache.state);
    *bucket_of(cache.state) = found;
    return found;
}

static void remember(void) {
    uint32_t count;
    const struct fl_load *loads = loads_tail(&count);
    struct report_tail report;
    const void *text = report_tail(&cache.place, &report);
    if (cache.bytes + sizeof(struct list) + count * sizeof *loads + sizeof(struct tail) + report.bytes > MOST_BYTES)
        forget_tails();
    struct list *list = list_of(loads, count);
    qsort(cache.stored, cache.stored_count, sizeof *cache.stored, compare_stored);
    XXH128_hash_t values = values_of(loads, count, after_first);
    struct tail *tail = allocate_counted(sizeof *tail + report.bytes), **bucket = tails_with(list, values);
    *tail = (struct tail){.next = *bucket, .values = values, .report = report};
    memcpy(tail->text, text, report.bytes);
    *bucket = tail;
}

/* ---- the state at the end of life 0 --------------------------------------------------------------------------------------- */

static void add(const void *bytes, size_t count) { XXH3_128bits_update(&cache.hash, bytes, count); }

static void add_stored(uint32_t file, uint64_t unit, uint64_t value) {
    if (loads_is_hot(file, unit)) {
        if (cache.stored_count < MOST_STORED)
            cache.stored[cache.stored_count++] = (struct stored){file, unit, value};
        return;
    }
    XXH128_hash_t hash = XXH3_128bits((uint64_t[3]){file, unit, value}, 3 * sizeof(uint64_t));
    cache.units.low64 += hash.low64;
    cache.units.high64 += hash.high64;
}

/* What the run stored so far. */
static XXH128_hash_t hash_stored(void) {
    cache.units = (XXH128_hash_t){0, 0};
    cache.stored_count = 0;
    undo_each_change(add_stored);
    XXH3_128bits_reset(&cache.hash);
    add(&cache.units, sizeof cache.units);
    add(cache.stored, cache.stored_count * sizeof *cache.stored);
    return XXH3_128bits_digest(&cache.hash);
}

/* Of what target and runner hold outside the image. False: it is not all known. */
static bool hash_memory(int error, XXH128_hash_t *hash) {
    struct vfs_view view;
    XXH3_128bits_reset(&cache.hash);
    add(&error, sizeof error);
    for (size_t i = 0; vfs_view(i, &view); i++) /* in the order in which they are looked through */
        add(&view.start, sizeof view.start);
    report_visit_names(add);
    bool is_known = arena_visit_state(add) && kept_visit_state(add);
    *hash = XXH3_128bits_digest(&cache.hash);
    return is_known;
}

/* False: it is not all known. */
static bool hash_state(int error, const void *life, size_t bytes) {
    XXH128_hash_t memory;
    bool is_known = hash_memory(error, &memory);
    XXH3_128bits_reset(&cache.hash);
    add(&memory, sizeof memory);
    add(&cache.opened, sizeof cache.opened);
    add(life, bytes);
    add(&cache.units, sizeof cache.units);
    cache.state = XXH3_128bits_digest(&cache.hash);
    return is_known;
}

static const struct tail *find_in(struct list *list) {
    XXH128_hash_t values = values_of(list->loads, list->count, undo_unit);
    for (const struct tail *tail = *tails_with(list, values); tail != NULL; tail = tail->next)
        if (XXH128_isEqual(tail->values, values))
            return tail;
    return NULL;
}

static void find(void) {
    unsigned tried = 0;
    for (struct list *list = *bucket_of(cache.state); list != NULL && cache.known == NULL; list = list->next)
        if (is_of_state(list) && tried++ < MOST_TRIED) {
            cache.known_list = list;
            cache.known = find_in(list);
        }
}

/* ---- in a run ------------------------------------------------------------------------------------------------------------- */

static bool is_asked(void) {
    return inprocess_is_running() && cache.is_wanted && loads_watch_number() != 0 && !undo_has_resized() && !names_are_changed();
}

void tail_begin_run(bool is_wanted) {
    cache.is_wanted = is_wanted;
    cache.is_state_known = false;
    cache.known = NULL;
}

void tail_opened(void) {
    int error = errno;
    if (!is_asked())
        return;
    cache.opened_stored = hash_stored();
    cache.is_wanted = hash_memory(error, &cache.opened);
    loads_begin_tail();
    errno = error;
}

void tail_end_first(const void *life, size_t bytes) {
    int error = errno;
    if (!is_asked())
        return;
    bool is_as_opened = loads_go_on_with_tail() && XXH128_isEqual(cache.opened_stored, hash_stored());
    cache.is_state_known = is_as_opened && cache.stored_count < MOST_STORED && hash_state(error, life, bytes);
    if (cache.is_state_known)
        find();
    errno = error;
}

bool tail_is_known(void) {
    report_mark(&cache.place);
    return cache.known != NULL;
}

void tail_go_on(void) {
    if (inprocess_is_running() && cache.is_state_known)
        loads_list_tail();
}

bool tail_end_run(bool is_done) {
    const struct tail *known = is_done && report_outcome() == FL_OUTCOME_DONE ? cache.known : NULL;
    if (known != NULL) {
        loads_add_tail(cache.known_list->loads, cache.known_list->count);
        report_add_tail(&known->report, known->text);
    } else if (is_done && cache.is_state_known && report_outcome() == FL_OUTCOME_DONE && loads_are_known())
        remember();
    loads_end_tail();
    return known != NULL;
}
