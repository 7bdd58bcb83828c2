/* SPDX-License-Identifier: Apache-2.0
 *
 * The rest of an in-process run, known from another run. What follows the first recovery (a second and a third one, drain, free all,
 * and so on) is most of a full probe's time, and most recoveries end in a heap that another one ended in. When life 0 has come
 * to its end, with open, slots, walk and check, the rest is a function of
 *
 *     what target and runner hold outside the image        hashed: arena.c, kept.c, the names of report.c
 *     what the life stored to units that are not hot       hashed; where it stored nothing, they are the same in all runs of one watch
 *     what hot units hold that are read from there on      listed, as loads are, with what they hold at the end of life 0
 *
 * Lives 1, 3 and 5 recover the crash image again, by the same loads and to the same end as life 0: what they load is not of the
 * rest, up to where life 0 was then (open in lives 1 and 5, check in life 3). Lives 1 and 5 go on from the end of open. So what the
 * target holds then is hashed, too; and life 0 must have stored nothing to the image since: life 1 would leave another one than it
 * did, or find the crash's bytes in units that life 0 had decided.
 *
 * What is read is known when the rest was run once. Then it is remembered, and a run whose life 0 ends with the same hash and
 * the same values there is over: the rest of its report and of its list are those of the other one. Rests of one state mostly read
 * the same, so what they read is there once, and the values there are looked at once. While the life has changed no file, the
 * answers of the file system are the same, too (loads.h).
 *
 * Equal hashes count as equal states, as the engine's of images do. Runs that the engine asks for afresh, to see whether the
 * target is a function of what it loads, go on; so does the isolated engine, with which one run in FL_COMPARE_ONE_IN is
 * compared, whether it went on or not.
 */
#include "inprocess.h"
#include "planted.h"
#include "runner.h"
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#define XXH_INLINE_ALL
#include <xxhash.h>

#define BUCKETS 4096u
#define RESTS_BUCKETS 64u
#define MOST_STORED 16384u /* hot units; with more, the rest is that of no other run */
#define MOST_TRIED 64u /* lists of one state, the newest first */
#define MOST_BYTES (192ull << 20) /* in all; then it begins anew */

struct rest {
    struct rest *next; /* of the list, in its bucket */
    XXH128_hash_t values; /* of the list's units */
    struct report_rest report;
    uint8_t text[]; /* the report's */
};

/* What rests of one state read. */
struct list {
    struct list *next; /* in its bucket */
    uint64_t watch;
    XXH128_hash_t state;
    struct rest *rests[RESTS_BUCKETS];
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
    struct report_place place;
    const struct list *known_list;
    const struct rest *known;
} all;

/* ---- remembering ---------------------------------------------------------------------------------------------------------- */

static struct list **bucket_of(XXH128_hash_t state) { return &all.buckets[state.low64 % BUCKETS]; }

static struct rest **rests_with(struct list *list, XXH128_hash_t values) { return &list->rests[values.low64 % RESTS_BUCKETS]; }

static void free_list(struct list *list) {
    for (size_t i = 0; i < RESTS_BUCKETS; i++)
        while (list->rests[i] != NULL) {
            struct rest *rest = list->rests[i];
            list->rests[i] = rest->next;
            free(rest);
        }
    free(list);
}

static void forget_all(void) {
    for (size_t i = 0; i < BUCKETS; i++)
        while (all.buckets[i] != NULL) {
            struct list *list = all.buckets[i];
            all.buckets[i] = list->next;
            free_list(list);
        }
    all.bytes = 0;
}

/* What those units hold, or held at the end of life 0. */
static XXH128_hash_t values_of(const struct fl_load *loads, uint32_t count, uint64_t (*value_of)(uint32_t file, uint64_t unit)) {
    XXH3_128bits_reset(&all.hash);
    for (uint32_t i = 0; i < count; i++) {
        uint64_t value = value_of(loads[i].file, loads[i].unit);
        XXH3_128bits_update(&all.hash, &value, sizeof value);
    }
    return XXH3_128bits_digest(&all.hash);
}

static int compare_stored(const void *one, const void *other) {
    const struct stored *a = one, *b = other;
    return a->file != b->file ? (a->file < b->file ? -1 : 1) : a->unit < b->unit ? -1 : a->unit > b->unit;
}

/* The run's stores were taken back. */
static uint64_t after_first(uint32_t file, uint64_t unit) {
    struct stored wanted = {.file = file, .unit = unit}, *found;
    found = bsearch(&wanted, all.stored, all.stored_count, sizeof wanted, compare_stored);
    return found != NULL ? found->value : undo_unit(file, unit);
}

static bool is_of_state(const struct list *list) {
    return list->watch == loads_watch_number() && XXH128_isEqual(list->state, all.state);
}

static void *allocate_counted(uint64_t bytes) {
    all.bytes += bytes;
    return allocate_or_fail(NULL, bytes);
}

static struct list *make_list(const struct fl_load *loads, uint32_t count) {
    struct list *list = allocate_counted(sizeof *list + count * sizeof *loads);
    *list = (struct list){.watch = loads_watch_number(), .state = all.state, .count = count};
    memcpy(list->loads, loads, count * sizeof *loads);
    return list;
}

/* Of the state, made if there is none; now the newest. */
static struct list *list_of(const struct fl_load *loads, uint32_t count) {
    struct list **at = bucket_of(all.state), *found;
    while ((found = *at) != NULL &&
           !(is_of_state(found) && found->count == count && memcmp(found->loads, loads, count * sizeof *loads) == 0))
        at = &found->next;
    if (found != NULL)
        *at = found->next;
    else
        found = make_list(loads, count);
    found->next = *bucket_of(all.state);
    *bucket_of(all.state) = found;
    return found;
}

static void remember(void) {
    uint32_t count;
    const struct fl_load *loads = loads_rest(&count);
    struct report_rest report;
    const void *text = report_rest(&all.place, &report);
    if (all.bytes + sizeof(struct list) + count * sizeof *loads + sizeof(struct rest) + report.bytes > MOST_BYTES)
        forget_all();
    struct list *list = list_of(loads, count);
    qsort(all.stored, all.stored_count, sizeof *all.stored, compare_stored);
    XXH128_hash_t values = values_of(loads, count, after_first);
    struct rest *rest = allocate_counted(sizeof *rest + report.bytes), **bucket = rests_with(list, values);
    *rest = (struct rest){.next = *bucket, .values = values, .report = report};
    memcpy(rest->text, text, report.bytes);
    *bucket = rest;
}

/* ---- the state at the end of life 0 --------------------------------------------------------------------------------------- */

static void add(const void *bytes, size_t count) { XXH3_128bits_update(&all.hash, bytes, count); }

static void add_stored(uint32_t file, uint64_t unit, uint64_t value) {
    if (loads_is_hot(file, unit)) {
        if (all.stored_count < MOST_STORED)
            all.stored[all.stored_count++] = (struct stored){file, unit, value};
        return;
    }
    XXH128_hash_t hash = XXH3_128bits((uint64_t[3]){file, unit, value}, 3 * sizeof(uint64_t));
    all.units.low64 += hash.low64;
    all.units.high64 += hash.high64;
}

/* What the run stored so far. */
static XXH128_hash_t hash_stored(void) {
    all.units = (XXH128_hash_t){0, 0};
    all.stored_count = 0;
    undo_each_change(add_stored);
    XXH3_128bits_reset(&all.hash);
    add(&all.units, sizeof all.units);
    add(all.stored, all.stored_count * sizeof *all.stored);
    return XXH3_128bits_digest(&all.hash);
}

/* Of what target and runner hold outside the image. False: it is not all known. */
static bool hash_memory(int error, XXH128_hash_t *hash) {
    struct vfs_view view;
    XXH3_128bits_reset(&all.hash);
    add(&error, sizeof error);
    for (size_t i = 0; vfs_view(i, &view); i++) /* in the order in which they are looked through */
        add(&view.start, sizeof view.start);
    report_tell_names(add);
    bool is_known = arena_tell_state(add) && kept_tell_state(add);
    *hash = XXH3_128bits_digest(&all.hash);
    return is_known;
}

/* False: it is not all known. */
static bool hash_state(int error, const void *life, size_t bytes) {
    XXH128_hash_t memory;
    bool is_known = hash_memory(error, &memory);
    XXH3_128bits_reset(&all.hash);
    add(&memory, sizeof memory);
    add(&all.opened, sizeof all.opened);
    add(life, bytes);
    if (!planted("rest-of-other-stores"))
        add(&all.units, sizeof all.units);
    all.state = XXH3_128bits_digest(&all.hash);
    return is_known;
}

static const struct rest *find_in(struct list *list) {
    XXH128_hash_t values = values_of(list->loads, list->count, undo_unit);
    for (size_t i = 0; planted("rest-of-other-values") && i < RESTS_BUCKETS; i++)
        if (list->rests[i] != NULL)
            return list->rests[i];
    for (const struct rest *rest = *rests_with(list, values); rest != NULL; rest = rest->next)
        if (XXH128_isEqual(rest->values, values))
            return rest;
    return NULL;
}

static void find(void) {
    unsigned tried = 0;
    for (struct list *list = *bucket_of(all.state); list != NULL && all.known == NULL; list = list->next)
        if (is_of_state(list) && tried++ < MOST_TRIED) {
            all.known_list = list;
            all.known = find_in(list);
        }
}

/* ---- in a run ------------------------------------------------------------------------------------------------------------- */

static bool is_asked(void) {
    return inprocess_is_running() && all.is_wanted && loads_watch_number() != 0 && !undo_has_resized() && !names_are_changed();
}

void rests_begin_run(bool is_wanted) {
    all.is_wanted = is_wanted;
    all.is_state_known = false;
    all.known = NULL;
}

void rests_opened(void) {
    int error = errno;
    if (!is_asked())
        return;
    all.opened_stored = hash_stored();
    all.is_wanted = hash_memory(error, &all.opened);
    loads_begin_rest();
    errno = error;
}

void rests_end_first(const void *life, size_t bytes) {
    int error = errno;
    if (!is_asked())
        return;
    bool is_as_opened = loads_go_on_with_rest() && XXH128_isEqual(all.opened_stored, hash_stored());
    is_as_opened |= planted("rest-of-later-stores");
    all.is_state_known = is_as_opened && all.stored_count < MOST_STORED && hash_state(error, life, bytes);
    if (all.is_state_known)
        find();
    errno = error;
}

bool rests_is_known(void) {
    report_mark(&all.place);
    return all.known != NULL;
}

void rests_go_on(void) {
    if (inprocess_is_running() && all.is_state_known)
        loads_list_rest();
}

bool rests_end_run(bool is_done) {
    const struct rest *known = is_done && report_outcome() == FL_OUTCOME_DONE ? all.known : NULL;
    if (known != NULL) {
        loads_add_rest(all.known_list->loads, all.known_list->count);
        report_add_rest(&known->report, known->text);
    } else if (is_done && all.is_state_known && report_outcome() == FL_OUTCOME_DONE && loads_are_known())
        remember();
    loads_end_rest();
    return known != NULL;
}
