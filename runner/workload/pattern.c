/* SPDX-License-Identifier: Apache-2.0
 *
 * The self-describing pattern (protocol.h): writing it, and finding it without knowing what was written.
 *
 * A word tells its object id and is checked against its mix, so whole words are found with certainty. Of a word that two
 * objects' runs share (after a reallocation at an odd size), the bytes that match the run before it count to that one, then
 * those that match the run after it: a run may so appear up to 7 bytes longer than what was written, never shorter. The word itself is
 * shown beside them: it is bare.
 */
#include "workload/workload.h"
#include "base/traced.h"
#include "loads/loads.h"
#include "persist.h"
#include <string.h>

/* Plain 8-byte stores, one each: volatile keeps the compiler from widening, narrowing or merging them. */
typedef volatile uint64_t word_store __attribute__((aligned(1), may_alias));

/* Bytes [from, to), all of one word. */
static void fill_bytes(uint32_t object, uint8_t *start, uint64_t from, uint64_t to) {
    for (uint64_t at = from; at < to; at++)
        *(volatile uint8_t *)(start + at) = (uint8_t)(fl_pattern_word(object, at / 8) >> (at % 8 * 8));
}

void pattern_fill(void *context, void *object, uint64_t from, uint64_t bytes) {
    const struct fill *fill = context;
    uint8_t *start = object;
    loads_written(start + from, bytes);
    loads_open(start + from, bytes);
    traced_pause(true);
    uint64_t end = from + bytes, first = (from + 7) / 8, last = end / 8; /* whole words */
    if (first > last)
        fill_bytes(fill->object, start, from, end);
    else {
        fill_bytes(fill->object, start, from, first * 8);
        for (uint64_t index = first; index < last; index++)
            *(word_store *)(start + index * 8) = fl_pattern_word(fill->object, index);
        fill_bytes(fill->object, start, last * 8, end);
    }
    if (fill->is_persisted)
        fl_persist(start + from, bytes);
    traced_pause(false);
    if (events_are_recorded()) /* the runner has no hooks */
        events_filled(start + from, bytes);
}

/* Object id of a word that holds the pattern, else 0. */
static uint32_t object_of(uint64_t word, uint64_t index) {
    uint32_t object = (uint32_t)(word >> 24) & 0xffffffu;
    return word >> 48 == 0xF1ED && object != 0 && fl_pattern_word(object, index) == word ? object : 0;
}

/* How many bytes from the first (last) of the word are those of the object's pattern. */
static unsigned matching_head(uint64_t word, uint32_t object, uint64_t index) {
    uint64_t difference = word ^ fl_pattern_word(object, index);
    return difference == 0 ? 8 : (unsigned)__builtin_ctzll(difference) / 8;
}

static unsigned matching_tail(uint64_t word, uint32_t object, uint64_t index) {
    uint64_t difference = word ^ fl_pattern_word(object, index);
    return difference == 0 ? 8 : (unsigned)__builtin_clzll(difference) / 8;
}

struct scan {
    const uint8_t *object;
    uint64_t limit;
    uint64_t settled; /* the recording has nothing to note of what is before */
    pattern_visit visit;
    void *context;
    uint32_t run; /* object id of the run that is open; 0: none */
    uint64_t from;
    uint64_t last_end; /* of the run before */
    unsigned bare;     /* words in a row that are no whole word of a pattern */
};

static void note_scan(struct scan *scan, uint64_t index) {
    const uint8_t *at = scan->object + index * 8;
    uint64_t settled = loads_settled_bytes(at, scan->limit - index * 8);
    if (settled < 8)
        loads_scanned(at, 8);
    scan->settled = index * 8 + (settled < 8 ? 8 : settled);
}

static inline uint64_t load_word(struct scan *scan, uint64_t index) {
    uint64_t word;
    if (loads_is_guarded || (index + 1) * 8 > scan->settled) /* its page may be closed again */
        note_scan(scan, index);
    memcpy(&word, scan->object + index * 8, sizeof word);
    return word;
}

static void end_run(struct scan *scan, uint64_t end) {
    if (scan->run != 0) {
        scan->visit(scan->context, scan->run, scan->from, end);
        scan->last_end = end;
    }
    scan->run = 0;
}

static void start_run(struct scan *scan, uint32_t object, uint64_t index) {
    uint64_t from = index * 8;
    if (index > 0)
        from -= matching_tail(load_word(scan, index - 1), object, index - 1);
    scan->run = object;
    scan->from = from > scan->last_end ? from : scan->last_end;
}

static void end_in_word(struct scan *scan, uint64_t index) {
    if (scan->run != 0)
        end_run(scan, index * 8 + matching_head(load_word(scan, index), scan->run, index));
}

static void show_bare(struct scan *scan, uint64_t index, uint64_t word) { scan->visit(scan->context, 0, index * 8, word); }

/* A word that is no whole word of a pattern. */
static void pass_bare(struct scan *scan, uint64_t index) {
    end_in_word(scan, index);
    if (++scan->bare <= FL_BARE_WORDS)
        show_bare(scan, index, load_word(scan, index));
}

/* The word that the next run may share, where it was not shown. */
static void end_bare(struct scan *scan, uint64_t index) {
    if (scan->bare > FL_BARE_WORDS)
        show_bare(scan, index - 1, load_word(scan, index - 1));
    scan->bare = 0;
}

/* The last bytes, fewer than a word has. */
static void end_in_tail(struct scan *scan, uint64_t index, unsigned bytes) {
    if (bytes == 0 || (scan->run == 0 && scan->bare >= FL_BARE_WORDS))
        return end_run(scan, index * 8);
    uint64_t word = 0;
    loads_scanned(scan->object + index * 8, bytes);
    memcpy(&word, scan->object + index * 8, bytes);
    if (scan->run != 0) {
        unsigned matching = matching_head(word, scan->run, index);
        end_run(scan, index * 8 + (matching < bytes ? matching : bytes));
    }
    show_bare(scan, index, word);
}

/* The first word from index on that does not go on with the run. */
static uint64_t skip_run(struct scan *scan, uint64_t index, uint64_t words) {
    uint32_t object = scan->run;
    while (index < words && load_word(scan, index) == fl_pattern_word(object, index))
        index++;
    return index;
}

void pattern_scan(const uint8_t *object, uint64_t limit, bool stops_early, pattern_visit visit, void *context) {
    struct scan scan = {.object = object, .limit = limit, .visit = visit, .context = context};
    for (uint64_t index = 0, words = limit / 8; index < words; index++) {
        uint32_t found = object_of(load_word(&scan, index), index);
        if (found == 0) {
            pass_bare(&scan, index);
            if (stops_early && scan.bare > 1)
                return;
            continue;
        }
        end_bare(&scan, index);
        end_run(&scan, index * 8);
        start_run(&scan, found, index);
        index = skip_run(&scan, index, words) - 1;
    }
    end_in_tail(&scan, limit / 8, limit % 8);
}
